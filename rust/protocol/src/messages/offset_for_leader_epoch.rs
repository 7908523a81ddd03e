//! OffsetForLeaderEpoch, API key 23: where leader epochs end. A consumer checks with it whether its position is still in the log.

use std::collections::HashMap;
use std::sync::Arc;

use crate::by_topic::grouped;

message! {
    OffsetForLeaderEpochRequest, offset_for_leader_epoch_request: key 23, versions 2 to 4, flexible from 4;
    OffsetForLeaderEpochRequest {
        replica_id: i32 = -2, since(3).ignorable();
        topics: Vec<OffsetForLeaderTopic>, since(0);
    }
    OffsetForLeaderTopic {
        topic: Arc<str>, since(0);
        partitions: Vec<OffsetForLeaderPartition>, since(0);
    }
    OffsetForLeaderPartition {
        partition: i32, since(0);
        current_leader_epoch: i32 = -1, since(2).ignorable();
        leader_epoch: i32, since(0);
    }
}

message! {
    OffsetForLeaderEpochResponse, offset_for_leader_epoch_response: key 23, versions 2 to 4, flexible from 4;
    OffsetForLeaderEpochResponse {
        throttle_time_ms: i32, since(2).ignorable();
        topics: Vec<OffsetForLeaderTopicResult>, since(0);
    }
    OffsetForLeaderTopicResult {
        topic: Arc<str>, since(0);
        partitions: Vec<EpochEndOffset>, since(0);
    }
    EpochEndOffset {
        error_code: ErrorCode, since(0);
        partition: i32, since(0);
        leader_epoch: i32 = -1, since(1).ignorable();
        end_offset: i64 = -1, since(0);
        @local
        /// Why the log cannot be read, with KAFKA_STORAGE_ERROR and CORRUPT_MESSAGE.
        error_message: Option<Arc<str>>;
    }
}

impl OffsetForLeaderEpochRequest {
    /// A request of a client that is no broker, about partitions of these topics. Kafka: `OffsetsForLeaderEpochRequest.Builder#forConsumer`.
    pub fn for_consumer(
        partitions: impl IntoIterator<Item = (Arc<str>, offset_for_leader_epoch_request::OffsetForLeaderPartition)>,
    ) -> Self {
        let topics = grouped(partitions).into_iter();
        Self {
            replica_id: -1,
            topics: topics
                .map(|(topic, partitions)| offset_for_leader_epoch_request::OffsetForLeaderTopic { topic, partitions })
                .collect(),
        }
    }
}

impl OffsetForLeaderEpochResponse {
    /// The entries by topic and partition.
    pub fn by_partition(&self) -> HashMap<(&str, i32), &offset_for_leader_epoch_response::EpochEndOffset> {
        let topics = self.topics.iter();
        let entries = topics.flat_map(|t| t.partitions.iter().map(|p| ((&*t.topic, p.partition), p)));
        entries.collect()
    }
}

impl offset_for_leader_epoch_response::EpochEndOffset {
    /// The greatest known epoch that is not above the requested one, and the offset after its last record. Kafka:
    /// `OffsetsForLeaderEpochResponse#UNDEFINED_EPOCH`, `#UNDEFINED_EPOCH_OFFSET`.
    pub fn found(&self) -> Option<(i32, i64)> {
        (self.leader_epoch >= 0 && self.end_offset >= 0).then_some((self.leader_epoch, self.end_offset))
    }
}
