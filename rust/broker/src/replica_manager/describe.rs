//! Describing topics and producers. Kafka: `ReplicaManager#activeProducerState`.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::{ErrorCode, NodeId};
use fletchlog_log::ProducerState;
use fletchlog_records::TopicPartition;

use super::ReplicaManager;
use crate::BrokerError;
use crate::each_log::EachLog;
use crate::partition::Partition;

/// The result of `describe_topic`.
#[derive(Debug, Clone)]
pub struct TopicDescription {
    /// Name.
    pub name: Arc<str>,
    /// 16-byte id.
    pub topic_id: [u8; 16],
    /// Explicit configuration.
    pub config: BTreeMap<String, String>,
    /// Per partition: (partition, leader node, start, end (high watermark), last stable offset, bytes, segments).
    pub partitions: Vec<PartitionDescription>,
}

/// One partition of a [`TopicDescription`]. Offsets, bytes and segments are -1 if its log cannot be read.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct PartitionDescription {
    pub partition: i32,
    /// -1: none.
    pub leader: NodeId,
    /// -1: its file cannot be read.
    pub leader_epoch: i32,
    /// The preferred leader first.
    pub replicas: Vec<NodeId>,
    /// The replicas in sync.
    pub isr: Vec<NodeId>,
    pub log_start_offset: i64,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub size_bytes: i64,
    pub segments: i64,
}

impl PartitionDescription {
    /// A partition with this value for everything that its log would show. 0: nothing was written to it; -1: its log cannot be read.
    fn of_length(partition: &Partition, leader_epoch: i32, length: i64) -> Self {
        let (replicas, isr) = partition.replicas_and_isr();
        Self {
            leader_epoch,
            replicas,
            isr,
            partition: partition.tp().partition,
            leader: partition.leader(),
            log_start_offset: length,
            high_watermark: length,
            last_stable_offset: length,
            size_bytes: length,
            segments: length,
        }
    }
}

impl ReplicaManager {
    /// `describe_topic`. A partition whose log cannot be read has -1 for what is unknown, and the failure is logged.
    pub(crate) fn describe(&self, name: &str) -> Result<TopicDescription, BrokerError> {
        let topic = self.topic(name)?;
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        let mut describing = EachLog::new("cannot be described");
        for partition in &topic.partitions {
            // One broker of a cluster has only some partitions of a topic.
            if self.logs.directory().is_kafkas() && !self.logs.directory().fs().exists(partition.dir()) {
                continue;
            }
            let described = self.describe_partition(partition);
            let Some(described) = self.logs.ignore_if_deleted(partition, described).transpose() else {
                return Err(BrokerError::unknown_topic(name));
            };
            let described = describing.note(partition, described);
            let unreadable = || PartitionDescription::of_length(partition, self.known_epoch(partition), -1);
            partitions.push(described.unwrap_or_else(unreadable));
        }
        describing.report();
        Ok(TopicDescription {
            name: topic.name.clone(),
            topic_id: topic.record.id,
            config: topic.record.config.clone(),
            partitions,
        })
    }

    fn describe_partition(&self, partition: &Partition) -> Result<PartitionDescription, BrokerError> {
        // Describing a partition that was never used does not create its log.
        if partition.opened_log().is_none() && !self.has_log(partition)? {
            return Ok(PartitionDescription::of_length(
                partition,
                self.known_epoch(partition),
                0,
            ));
        }
        let log = self.log_of(partition)?;
        Ok(PartitionDescription {
            log_start_offset: log.log_start_offset(),
            high_watermark: log.high_watermark(),
            last_stable_offset: log.last_stable_offset(),
            size_bytes: i64::try_from(log.size()).unwrap_or(i64::MAX),
            segments: i64::try_from(log.segments().len()).unwrap_or(i64::MAX),
            ..PartitionDescription::of_length(partition, self.known_epoch(partition), 0)
        })
    }

    fn known_epoch(&self, partition: &Partition) -> i32 {
        self.leader_epoch_of(partition).unwrap_or(-1)
    }

    /// `describe_producers`. Kafka: `ReplicaManager#activeProducerState`.
    pub(crate) fn describe_producers(
        &self,
        node: NodeId,
        tp: &TopicPartition,
    ) -> Result<Vec<ProducerState>, BrokerError> {
        let partition = self.partition(tp)?;
        if !partition.replicas().contains(&node) {
            let code = ErrorCode::NOT_LEADER_OR_FOLLOWER;
            return Err(BrokerError::kafka(code, format!("node {node} has no replica of {tp}")));
        }
        // Describing a partition that was never used does not create its log.
        if partition.opened_log().is_none() && !self.has_log(&partition)? {
            return Ok(Vec::new());
        }
        Ok(self.log_of(&partition)?.active_producers())
    }
}
