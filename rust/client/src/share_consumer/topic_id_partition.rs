//! A partition whose topic is named by its id and by its name. Kafka: `TopicIdPartition`.

use fletchlog_api::TopicId;
use fletchlog_records::TopicPartition;

/// A partition of a topic with this id. One of a topic that was made again under the same name is another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TopicIdPartition {
    pub topic_id: TopicId,
    pub tp: TopicPartition,
}

/// Partitions by topic id, in the order of their first appearance.
pub(super) fn by_topic<T>(partitions: impl IntoIterator<Item = (TopicId, T)>) -> Vec<(TopicId, Vec<T>)> {
    let mut topics: Vec<(TopicId, Vec<T>)> = Vec::new();
    let mut places = rustc_hash::FxHashMap::default();
    for (topic_id, partition) in partitions {
        let place = *places.entry(topic_id).or_insert(topics.len());
        match topics.get_mut(place) {
            Some((_, of_topic)) => of_topic.push(partition),
            None => topics.push((topic_id, vec![partition])),
        }
    }
    topics
}
