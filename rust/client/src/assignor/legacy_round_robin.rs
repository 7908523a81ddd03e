//! The round robin assignment of the 0.8 high-level consumer (spec 8.3).
//! Kafka: `kafka.consumer.RoundRobinAssignor`, 0.8.2 / 0.9.

use std::sync::Arc;

use fletchlog_api::java_hash::string_hash;

use super::legacy_range::{ConsumerThreadId, LegacyAssignment, StreamCounts, consumers_per_topic};
use super::{AssignorError, TopicCounts};

/// Deals all partitions of all subscribed topics, sorted by the Java hash of the text `[topic,partition]`, in turn to the
/// threads sorted as strings.
///
/// # Errors
/// A number of streams below 1; topics whose sets of threads differ.
pub fn legacy_round_robin(topics: &TopicCounts, members: &StreamCounts) -> Result<LegacyAssignment, AssignorError> {
    let per_topic = consumers_per_topic(members)?;
    let Some((head, threads)) = per_topic.first_key_value() else {
        return Ok(LegacyAssignment::default());
    };
    if let Some((topic, _)) = per_topic.iter().find(|(_, others)| *others != threads) {
        return Err(AssignorError::UnequalThreads {
            topic: Arc::clone(topic),
            other: Arc::clone(head),
        });
    }
    let mut dealt: Vec<(i32, &Arc<str>, i32)> = per_topic
        .keys()
        .flat_map(|topic| {
            (0..topics.get(topic).copied().unwrap_or(0))
                .map(move |p| (string_hash(&format!("[{topic},{p}]")), topic, p))
        })
        .collect();
    dealt.sort_by_key(|&(hash, ..)| hash);

    let mut result = LegacyAssignment::default();
    for topic in per_topic.keys() {
        for (position, thread) in threads.iter().enumerate() {
            let share = dealt
                .iter()
                .enumerate()
                .filter(|(i, (_, t, _))| i % threads.len() == position && *t == topic);
            let mut partitions: Vec<i32> = share.map(|(_, &(.., p))| p).collect();
            partitions.sort_unstable();
            result.give(thread, topic, partitions);
        }
    }
    result
        .idle
        .retain(|idle| is_idle_everywhere(&result.threads, &idle.thread));
    Ok(result)
}

/// Round robin is one deal over all topics: a thread with partitions of one topic is not idle for lack of another.
fn is_idle_everywhere(threads: &super::AssignmentByTopic, thread: &ConsumerThreadId) -> bool {
    threads
        .get(&thread.id)
        .is_none_or(|topics| topics.values().all(Vec::is_empty))
}
