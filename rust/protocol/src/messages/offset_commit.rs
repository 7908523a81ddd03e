//! OffsetCommit, API key 8.

use std::sync::Arc;

use fletchlog_records::{ErrorCode, TopicPartition};

use crate::OffsetAndMetadata;
use crate::by_topic::grouped;

message! {
    OffsetCommitRequest, offset_commit_request: key 8, versions 2 to 10, flexible from 8, with of_version;
    OffsetCommitRequest {
        group_id: Arc<str>, since(0);
        generation_id_or_member_epoch: i32 = -1, since(1).ignorable();
        member_id: Arc<str>, since(1).ignorable();
        group_instance_id: Option<Arc<str>> = None, since(7).nullable(7);
        retention_time_ms: i64 = -1, between(2, 4).ignorable();
        topics: Vec<OffsetCommitRequestTopic>, since(0);
        @local
        /// A group that does not exist is reported as GROUP_ID_NOT_FOUND, not as ILLEGAL_GENERATION. Set by [`Self::of_version`].
        knows_group_id_not_found: bool;
    }
    OffsetCommitRequestTopic {
        name: Arc<str>, between(0, 9).ignorable();
        topic_id: [u8; 16], since(10).ignorable();
        partitions: Vec<OffsetCommitRequestPartition>, since(0);
    }
    OffsetCommitRequestPartition {
        partition_index: i32, since(0);
        committed_offset: i64, since(0);
        committed_leader_epoch: i32 = -1, since(6).ignorable();
        committed_metadata: Option<Arc<str>>, since(0).nullable(0);
    }
}

message! {
    OffsetCommitResponse, offset_commit_response: key 8, versions 2 to 10, flexible from 8;
    OffsetCommitResponse {
        throttle_time_ms: i32, since(3).ignorable();
        topics: Vec<OffsetCommitResponseTopic>, since(0);
        @local
        /// Why a broker in the same process refused the commit, if the codes alone do not show it.
        error_message: Option<Arc<str>>;
    }
    OffsetCommitResponseTopic {
        name: Arc<str>, between(0, 9).ignorable();
        topic_id: [u8; 16], since(10).ignorable();
        partitions: Vec<OffsetCommitResponsePartition>, since(0);
    }
    OffsetCommitResponsePartition {
        partition_index: i32, since(0);
        error_code: ErrorCode, since(0);
    }
}

/// First version in which a group that does not exist has an error of its own.
const GROUP_ID_NOT_FOUND: i16 = 9;

impl OffsetCommitRequest {
    /// Notes what the version of a request that was read means for it.
    fn of_version(mut self, version: i16) -> Self {
        self.knows_group_id_not_found = version >= GROUP_ID_NOT_FOUND;
        self
    }

    /// How long the offsets are kept (versions 2 to 4); `None`: as the broker is configured.
    pub fn retention_ms(&self) -> Option<i64> {
        (self.retention_time_ms != -1).then_some(self.retention_time_ms)
    }

    /// The topics of a request that commits these offsets.
    pub fn topics_of(
        offsets: impl IntoIterator<Item = (TopicPartition, OffsetAndMetadata)>,
    ) -> Vec<offset_commit_request::OffsetCommitRequestTopic> {
        let partition = |(tp, committed): (TopicPartition, OffsetAndMetadata)| {
            let partition = offset_commit_request::OffsetCommitRequestPartition {
                partition_index: tp.partition,
                committed_offset: committed.offset,
                committed_leader_epoch: committed.leader_epoch,
                committed_metadata: Some(committed.metadata),
            };
            (tp.topic, partition)
        };
        let topics = grouped(offsets.into_iter().map(partition)).into_iter();
        topics
            .map(|(name, partitions)| offset_commit_request::OffsetCommitRequestTopic {
                name,
                partitions,
                ..Default::default()
            })
            .collect()
    }

    /// The offsets to commit.
    pub fn offsets(&self) -> impl Iterator<Item = (TopicPartition, OffsetAndMetadata)> {
        self.topics.iter().flat_map(|topic| {
            topic.partitions.iter().map(|p| {
                let committed = OffsetAndMetadata {
                    offset: p.committed_offset,
                    leader_epoch: p.committed_leader_epoch,
                    metadata: p.committed_metadata.clone().unwrap_or_default(),
                };
                (
                    TopicPartition::new(Arc::clone(&topic.name), p.partition_index),
                    committed,
                )
            })
        })
    }

    /// The response with these errors, one for each partition in the order of the request.
    pub fn answered(&self, errors: impl IntoIterator<Item = ErrorCode>) -> OffsetCommitResponse {
        let mut errors = errors.into_iter();
        let topics = self.topics.iter();
        let topics = topics.map(|topic: &offset_commit_request::OffsetCommitRequestTopic| topic.answered(&mut errors));
        OffsetCommitResponse {
            topics: topics.collect(),
            ..Default::default()
        }
    }
}

impl offset_commit_request::OffsetCommitRequestTopic {
    /// Its entry in the response with these errors, one for each partition.
    pub fn answered(
        &self,
        errors: impl IntoIterator<Item = ErrorCode>,
    ) -> offset_commit_response::OffsetCommitResponseTopic {
        let partitions = self.partitions.iter().zip(errors);
        let partitions = partitions.map(
            |(p, error_code)| offset_commit_response::OffsetCommitResponsePartition {
                partition_index: p.partition_index,
                error_code,
            },
        );
        offset_commit_response::OffsetCommitResponseTopic {
            name: Arc::clone(&self.name),
            topic_id: self.topic_id,
            partitions: partitions.collect(),
        }
    }
}

impl OffsetCommitResponse {
    /// The error of each partition.
    pub fn errors(&self) -> impl Iterator<Item = (TopicPartition, ErrorCode)> {
        self.topics.iter().flat_map(|topic| {
            let of = |partition| TopicPartition::new(Arc::clone(&topic.name), partition);
            topic
                .partitions
                .iter()
                .map(move |p| (of(p.partition_index), p.error_code))
        })
    }
}
