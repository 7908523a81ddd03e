//! ListOffsets, API key 2.

use std::collections::HashMap;
use std::sync::Arc;

use crate::by_topic::grouped;

message! {
    ListOffsetsRequest, list_offsets_request: key 2, versions 1 to 11, flexible from 6;
    ListOffsetsRequest {
        replica_id: i32, since(0);
        isolation_level: IsolationLevel, since(2);
        topics: Vec<ListOffsetsTopic>, since(0);
        timeout_ms: i32, since(10).ignorable();
    }
    ListOffsetsTopic {
        name: Arc<str>, since(0);
        partitions: Vec<ListOffsetsPartition>, since(0);
    }
    ListOffsetsPartition {
        partition_index: i32, since(0);
        current_leader_epoch: i32 = -1, since(4).ignorable();
        timestamp: i64, since(0);
    }
}

message! {
    ListOffsetsResponse, list_offsets_response: key 2, versions 1 to 11, flexible from 6, with for_version;
    ListOffsetsResponse {
        throttle_time_ms: i32, since(2).ignorable();
        topics: Vec<ListOffsetsTopicResponse>, since(0);
    }
    ListOffsetsTopicResponse {
        name: Arc<str>, since(0);
        partitions: Vec<ListOffsetsPartitionResponse>, since(0);
    }
    ListOffsetsPartitionResponse {
        partition_index: i32, since(0);
        error_code: ErrorCode, since(0);
        timestamp: i64 = -1, since(1);
        offset: i64 = -1, since(1);
        leader_epoch: i32 = -1, since(4);
        @local
        /// Why the log cannot be read, with KAFKA_STORAGE_ERROR and CORRUPT_MESSAGE.
        error_message: Option<Arc<str>>;
    }
}

/// Special timestamps (spec 5.1).
impl ListOffsetsRequest {
    /// End of the log.
    pub const LATEST_TIMESTAMP: i64 = -1;
    /// Start of the log.
    pub const EARLIEST_TIMESTAMP: i64 = -2;
    /// Offset of the record with the greatest timestamp.
    pub const MAX_TIMESTAMP: i64 = -3;
    /// Start of the local log.
    pub const EARLIEST_LOCAL_TIMESTAMP: i64 = -4;
    /// End of the tiered log.
    pub const LATEST_TIERED_TIMESTAMP: i64 = -5;
    /// Earliest offset pending upload.
    pub const EARLIEST_PENDING_UPLOAD_TIMESTAMP: i64 = -6;

    /// The first version that may ask for a timestamp; `None`: no version may. Kafka: `KafkaApis#handleListOffsetRequest`,
    /// `ListOffsetsRequest.Builder#forConsumer`.
    pub fn first_version_of(timestamp: i64) -> Option<i16> {
        match timestamp {
            Self::EARLIEST_TIMESTAMP.. => Some(0),
            Self::MAX_TIMESTAMP => Some(7),
            Self::EARLIEST_LOCAL_TIMESTAMP => Some(8),
            Self::LATEST_TIERED_TIMESTAMP => Some(9),
            Self::EARLIEST_PENDING_UPLOAD_TIMESTAMP => Some(11),
            _ => None,
        }
    }
}

impl ListOffsetsRequest {
    /// A request of a client that is no broker, about partitions of these topics. Kafka: `ListOffsetsRequest.Builder#forConsumer`.
    pub fn for_consumer(
        isolation_level: crate::IsolationLevel,
        partitions: impl IntoIterator<Item = (Arc<str>, list_offsets_request::ListOffsetsPartition)>,
    ) -> Self {
        let topics = grouped(partitions).into_iter();
        Self {
            replica_id: -1,
            isolation_level,
            topics: topics
                .map(|(name, partitions)| list_offsets_request::ListOffsetsTopic { name, partitions })
                .collect(),
            ..Self::default()
        }
    }

    /// The partitions, each with its topic's name.
    pub fn partitions(&self) -> impl Iterator<Item = (&Arc<str>, &list_offsets_request::ListOffsetsPartition)> {
        let topics = self.topics.iter();
        topics.flat_map(|topic| topic.partitions.iter().map(|partition| (&topic.name, partition)))
    }
}

/// First version with leader epochs.
const LEADER_EPOCHS: i16 = 4;

impl ListOffsetsResponse {
    /// Omits what an older version has no field for.
    fn for_version(mut self, version: i16) -> Self {
        if version < LEADER_EPOCHS {
            for partition in self.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                partition.leader_epoch = -1;
            }
        }
        self
    }

    /// The entries of all partitions, each with its topic's name.
    pub fn partitions(
        &self,
    ) -> impl Iterator<Item = (&Arc<str>, &list_offsets_response::ListOffsetsPartitionResponse)> {
        let topics = self.topics.iter();
        topics.flat_map(|topic| topic.partitions.iter().map(|partition| (&topic.name, partition)))
    }

    /// The entries by topic and partition.
    pub fn by_partition(&self) -> HashMap<(&str, i32), &list_offsets_response::ListOffsetsPartitionResponse> {
        let partitions = self.partitions();
        partitions
            .map(|(topic, p)| ((&**topic, p.partition_index), p))
            .collect()
    }
}

impl list_offsets_response::ListOffsetsPartitionResponse {
    /// The offset, unless no record has the timestamp. Kafka: `ListOffsetsResponse#UNKNOWN_OFFSET`.
    pub fn found(&self) -> Option<i64> {
        (self.offset >= 0).then_some(self.offset)
    }
}
