//! The range assignment of the 0.8 high-level consumer (spec 8.1).
//! Kafka: `kafka.consumer.RangeAssignor`, 0.8.2 / 0.9.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{AssignmentByTopic, AssignorError, TopicCounts, java_compare};

/// Consumer id -> topic -> number of streams (threads).
pub type StreamCounts = BTreeMap<Arc<str>, BTreeMap<Arc<str>, i32>>;

/// A thread of the high-level consumer. Kafka: `ConsumerThreadId`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConsumerThreadId {
    /// Consumer it belongs to.
    pub consumer: Arc<str>,
    /// `<consumer>-<i>`, i from 0.
    pub id: Arc<str>,
}

/// A thread that subscribes to a topic and gets none of its partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleThread {
    /// The thread.
    pub thread: ConsumerThreadId,
    /// The topic.
    pub topic: Arc<str>,
}

impl IdleThread {
    /// Kafka's warning, word for word.
    pub fn warning(&self) -> String {
        format!(
            "No broker partitions consumed by consumer thread {} for topic {}",
            self.thread.id, self.topic
        )
    }
}

/// Whose idle threads a member warns about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarnAbout<'a> {
    /// 0.8.2: the member's own threads.
    OwnThreads(&'a str),
    /// 0.9: every member warns about every thread of the group.
    AllThreads,
}

/// Which thread reads which partitions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LegacyAssignment {
    /// Thread id -> topic -> partitions; idle threads have an empty list.
    pub threads: AssignmentByTopic,
    /// Threads without a partition, by topic and then in string order of the thread ids.
    pub idle: Vec<IdleThread>,
}

impl LegacyAssignment {
    /// The warnings a member logs in one rebalance.
    pub fn warnings(&self, about: WarnAbout<'_>) -> Vec<String> {
        self.idle
            .iter()
            .filter(|idle| match about {
                WarnAbout::OwnThreads(consumer) => &*idle.thread.consumer == consumer,
                WarnAbout::AllThreads => true,
            })
            .map(IdleThread::warning)
            .collect()
    }

    pub(super) fn give(&mut self, thread: &ConsumerThreadId, topic: &Arc<str>, partitions: Vec<i32>) {
        if partitions.is_empty() {
            self.idle.push(IdleThread {
                thread: thread.clone(),
                topic: Arc::clone(topic),
            });
        }
        self.threads
            .entry(Arc::clone(&thread.id))
            .or_default()
            .insert(Arc::clone(topic), partitions);
    }
}

/// Thread ids of every topic, sorted as strings: -10 comes before -2 (Kafka: `TopicCount.makeConsumerThreadIdsPerTopic`,
/// `ZkUtils.getConsumersPerTopic`).
///
/// # Errors
/// A number of streams below 1.
pub fn consumers_per_topic(members: &StreamCounts) -> Result<BTreeMap<Arc<str>, Vec<ConsumerThreadId>>, AssignorError> {
    let mut per_topic: BTreeMap<Arc<str>, Vec<ConsumerThreadId>> = BTreeMap::new();
    for (consumer, topics) in members {
        for (topic, &streams) in topics {
            if streams < 1 {
                return Err(AssignorError::Streams {
                    consumer: Arc::clone(consumer),
                    topic: Arc::clone(topic),
                    streams,
                });
            }
            let threads = per_topic.entry(Arc::clone(topic)).or_default();
            threads.extend((0..streams).map(|i| ConsumerThreadId {
                consumer: Arc::clone(consumer),
                id: format!("{consumer}-{i}").into(),
            }));
        }
    }
    for threads in per_topic.values_mut() {
        threads.sort_by(|a, b| java_compare(&a.id, &b.id));
    }
    Ok(per_topic)
}

/// Deals the partitions of each topic, in consecutive runs, to the threads that subscribe to it.
///
/// ```
/// use std::collections::BTreeMap;
/// use fletchlog_client::assignor::legacy_range;
/// let topics = BTreeMap::from([("t".into(), 3)]);
/// let members = BTreeMap::from([("g_m".into(), BTreeMap::from([("t".into(), 2)]))]);
/// let dealt = legacy_range(&topics, &members).unwrap();
/// assert_eq!(dealt.threads["g_m-0"]["t"], [0, 1]);
/// assert_eq!(dealt.threads["g_m-1"]["t"], [2]);
/// ```
///
/// # Errors
/// A number of streams below 1.
pub fn legacy_range(topics: &TopicCounts, members: &StreamCounts) -> Result<LegacyAssignment, AssignorError> {
    let mut result = LegacyAssignment::default();
    for (topic, threads) in consumers_per_topic(members)? {
        let partitions: Vec<i32> = (0..topics.get(&topic).copied().unwrap_or(0)).collect();
        // Integer arithmetic: the quotient for everyone, one of the remainder for each of the first threads.
        let n_parts_per_consumer = partitions.len() / threads.len();
        let n_consumers_with_extra_part = partitions.len() % threads.len();
        for (position, thread) in threads.iter().enumerate() {
            let start = n_parts_per_consumer * position + position.min(n_consumers_with_extra_part);
            let n_parts = n_parts_per_consumer + usize::from(position < n_consumers_with_extra_part);
            result.give(thread, &topic, partitions[start..start + n_parts].to_vec());
        }
    }
    Ok(result)
}
