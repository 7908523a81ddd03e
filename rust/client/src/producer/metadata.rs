//! The producer's view of topics and leaders (spec 9.3). Kafka: `ProducerMetadata`.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use fletchlog_api::java_hash::{table_size_for, topic_partition_hash, walk_order};
use fletchlog_api::{ErrorCode, MetadataResponse, NodeId};
use fletchlog_records::TopicPartition;
use rustc_hash::FxHashMap;

use super::producer_batch::ProducerBatch;
use crate::ClientError;
use crate::net::Metadata;

/// Number of a partition's queue in the accumulator: partitions in the order in which the producer learnt of them.
pub(crate) type PartitionId = usize;
/// Number of a topic, likewise.
pub(crate) type TopicId = usize;

/// One partition as of the last response.
#[derive(Debug, Clone)]
pub(crate) struct PartitionInfo {
    pub tp: TopicPartition,
    /// `None` = no leader at the moment.
    pub leader: Option<NodeId>,
    pub leader_epoch: i32,
}

/// One topic.
#[derive(Debug)]
pub(crate) struct TopicInfo {
    pub name: Arc<str>,
    /// Queue numbers by partition.
    pub partitions: Vec<PartitionId>,
    /// Partitions that have a leader, ascending.
    pub available: Vec<i32>,
    /// The topic's error code in the last response; `None` while that is awaited.
    pub answer: Option<ErrorCode>,
}

impl TopicInfo {
    pub(crate) fn count(&self) -> i32 {
        i32::try_from(self.partitions.len()).unwrap_or(i32::MAX)
    }
    /// The queue of a partition that exists.
    #[allow(
        clippy::cast_sign_loss,
        clippy::cast_possible_truncation,
        reason = "partitions are checked to be in range"
    )]
    #[inline]
    pub(crate) fn id(&self, partition: i32) -> PartitionId {
        self.partitions[partition as usize]
    }
}

/// Topics and leaders. While an update is due no node is ready. Kafka: `ProducerMetadata`.
#[derive(Debug)]
pub(crate) struct ProducerMetadata {
    updates: Metadata,
    topics: Vec<TopicInfo>,
    by_name: FxHashMap<Arc<str>, TopicId>,
    partitions: Vec<PartitionInfo>,
    /// Partitions led by each node, in the walk order of the client's HashMap (spec 9.4).
    by_node: BTreeMap<NodeId, Vec<PartitionId>>,
    /// The nodes are other processes: one may not know yet what another one knows. A broker in this process knows everything.
    pub is_remote: bool,
    /// Which node does not respond, and why.
    pub unreachable: Option<String>,
    /// Number of failures that no retry fixes, and the last of them.
    fatal: (u64, Option<ClientError>),
}

impl Deref for ProducerMetadata {
    type Target = Metadata;
    fn deref(&self) -> &Metadata {
        &self.updates
    }
}

impl DerefMut for ProducerMetadata {
    fn deref_mut(&mut self) -> &mut Metadata {
        &mut self.updates
    }
}

impl ProducerMetadata {
    pub(crate) fn new(backoff_ms: i64, max_age_ms: i64) -> Self {
        Self {
            updates: Metadata::new(backoff_ms, max_age_ms),
            topics: Vec::new(),
            by_name: FxHashMap::default(),
            partitions: Vec::new(),
            by_node: BTreeMap::new(),
            is_remote: false,
            unreachable: None,
            fatal: (0, None),
        }
    }

    /// Nothing can be sent now, and waiting does not help: calls that wait for metadata fail. Kafka: `Metadata#fatalError`.
    pub(crate) fn fatal_error(&mut self, error: ClientError) {
        self.fatal = (self.fatal.0 + 1, Some(error));
    }
    pub(crate) fn fatal_count(&self) -> u64 {
        self.fatal.0
    }
    /// Fails if there was a fatal error since there were `count`. Kafka: `Metadata#maybeThrowFatalException`.
    pub(crate) fn check_fatal_since(&self, count: u64) -> Result<(), ClientError> {
        match &self.fatal {
            (now, Some(error)) if *now > count => Err(error.clone()),
            _ => Ok(()),
        }
    }

    pub(crate) fn topic_id(&self, name: &str) -> Option<TopicId> {
        self.by_name.get(name).copied()
    }
    pub(crate) fn topic(&self, id: TopicId) -> &TopicInfo {
        &self.topics[id]
    }
    pub(crate) fn topics(&self) -> impl Iterator<Item = (TopicId, &TopicInfo)> {
        self.topics.iter().enumerate()
    }
    pub(crate) fn partition(&self, id: PartitionId) -> &PartitionInfo {
        &self.partitions[id]
    }
    /// The partition that a batch goes to.
    pub(crate) fn tp_of(&self, batch: &ProducerBatch) -> &TopicPartition {
        &self.partitions[batch.partition].tp
    }
    pub(crate) fn led_by(&self, node: NodeId) -> &[PartitionId] {
        self.by_node.get(&node).map_or(&[], Vec::as_slice)
    }
    /// Topics to ask for.
    pub(crate) fn topic_names(&self) -> Vec<Arc<str>> {
        self.topics.iter().map(|t| t.name.clone()).collect()
    }

    /// Adds a topic, or requests one again that the last response did not know. The update is allowed at once.
    pub(crate) fn request_topic(&mut self, name: &str) -> TopicId {
        let id = match self.by_name.get(name) {
            Some(&id) => id,
            None => {
                let name: Arc<str> = Arc::from(name);
                self.by_name.insert(name.clone(), self.topics.len());
                self.topics.push(TopicInfo {
                    name,
                    partitions: Vec::new(),
                    available: Vec::new(),
                    answer: None,
                });
                self.topics.len() - 1
            }
        };
        self.topics[id].answer = None;
        self.request_update_for_new_topics();
        id
    }

    /// Applies a response. It also satisfies an update that was requested while it was in flight. Returns the partitions that became known,
    /// in the order of their new queue numbers.
    pub(crate) fn update(&mut self, response: &MetadataResponse, now: i64) -> Vec<TopicPartition> {
        self.updated(now);
        let mut new = Vec::new();
        for topic in &response.topics {
            let Some(&id) = topic.name.as_ref().and_then(|name| self.by_name.get(name)) else {
                continue;
            };
            let info = &mut self.topics[id];
            info.answer = Some(topic.error_code);
            if topic.error_code != ErrorCode::NONE {
                continue;
            }
            let mut partitions: Vec<_> = topic.partitions.iter().collect();
            partitions.sort_unstable_by_key(|p| p.partition_index);
            for partition in partitions {
                let Ok(index) = usize::try_from(partition.partition_index) else {
                    continue;
                };
                if index == info.partitions.len() {
                    let tp = TopicPartition {
                        topic: info.name.clone(),
                        partition: partition.partition_index,
                    };
                    info.partitions.push(self.partitions.len());
                    self.partitions.push(PartitionInfo {
                        tp: tp.clone(),
                        leader: None,
                        leader_epoch: -1,
                    });
                    new.push(tp);
                }
                if let Some(&id) = info.partitions.get(index) {
                    self.partitions[id].leader = partition.leader();
                    self.partitions[id].leader_epoch = partition.leader_epoch;
                }
            }
            info.available.clear();
            for &id in &info.partitions {
                if self.partitions[id].leader.is_some() {
                    info.available.push(self.partitions[id].tp.partition);
                }
            }
        }
        self.index_by_node();
        new
    }

    /// Kafka: the lists of `Cluster#partitionsForNode`, filled by walking `new HashMap(n)` over all partitions.
    fn index_by_node(&mut self) {
        let hashes: Vec<i32> = self.partitions.iter().map(|p| topic_partition_hash(&p.tp)).collect();
        self.by_node.clear();
        for id in walk_order(&hashes, table_size_for(self.partitions.len())) {
            if let Some(leader) = self.partitions[id].leader {
                self.by_node.entry(leader).or_default().push(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::fixtures::{cluster, topic};

    fn answer(name: &str, partitions: i32) -> MetadataResponse {
        cluster([1], [topic(name, (0..partitions).map(|_| (1, 0)))])
    }

    #[test]
    fn an_update_is_due_only_after_the_back_off_and_not_while_one_is_in_flight() {
        let mut metadata = ProducerMetadata::new(10, 1000);
        assert!(!metadata.is_update_due(0));
        metadata.request_topic("t");
        assert!(metadata.is_update_due(0));
        metadata.start_request();
        assert!(!metadata.is_update_due(0));
        assert_eq!(metadata.update(&answer("t", 2), 5).len(), 2);
        assert_eq!(metadata.time_to_next_update(5), 1000);
        metadata.request_update();
        assert_eq!(metadata.time_to_next_update(6), 9);
        assert!(metadata.is_update_due(15));
    }

    #[test]
    fn an_answer_satisfies_an_update_requested_while_it_was_in_flight_but_not_a_topic_added_then() {
        let mut metadata = ProducerMetadata::new(10, 1000);
        metadata.request_topic("t");
        metadata.start_request();
        metadata.request_update();
        metadata.update(&answer("t", 1), 0);
        assert_eq!(metadata.time_to_next_update(20), 980);
        metadata.request_update();
        metadata.start_request();
        metadata.request_topic("u");
        metadata.update(&answer("t", 1), 20);
        assert!(metadata.is_update_due(30));
    }

    #[test]
    fn partitions_of_a_node_are_in_hash_map_order() {
        let mut metadata = ProducerMetadata::new(10, 1000);
        metadata.request_topic("test");
        metadata.update(&answer("test", 6), 0);
        let order: Vec<i32> = metadata
            .led_by(1)
            .iter()
            .map(|&id| metadata.partition(id).tp.partition)
            .collect();
        assert_eq!(order, [5, 4, 1, 0, 3, 2]);
    }
}
