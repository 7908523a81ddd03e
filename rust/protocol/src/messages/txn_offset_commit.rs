//! TxnOffsetCommit, API key 28.

use std::sync::Arc;

use fletchlog_records::{ErrorCode, TopicPartition};

use crate::Message;
use crate::OffsetAndMetadata;
use crate::by_topic::grouped;
use crate::local::TransactionSupportedOperation;

message! {
    TxnOffsetCommitRequest, txn_offset_commit_request: key 28, versions 0 to 6, flexible from 3, with of_version;
    TxnOffsetCommitRequest {
        transactional_id: Arc<str>, since(0);
        group_id: Arc<str>, since(0);
        producer_id: i64, since(0);
        producer_epoch: i16, since(0);
        generation_id_or_member_epoch: i32 = -1, since(3);
        member_id: Arc<str>, since(3);
        group_instance_id: Option<Arc<str>> = None, since(3).nullable(3);
        topics: Vec<TxnOffsetCommitRequestTopic>, since(0);
        @local
        /// A group that does not exist is reported as GROUP_ID_NOT_FOUND, not as ILLEGAL_GENERATION. Set by [`Self::of_version`].
        knows_group_id_not_found: bool;
        @local
        /// What happens if the group's offsets are not in the transaction. Set by [`Self::of_version`].
        operation: crate::local::TransactionSupportedOperation;
    }
    TxnOffsetCommitRequestTopic {
        name: Arc<str>, between(0, 5).ignorable();
        topic_id: [u8; 16], since(6).ignorable();
        partitions: Vec<TxnOffsetCommitRequestPartition>, since(0);
    }
    TxnOffsetCommitRequestPartition {
        partition_index: i32, since(0);
        committed_offset: i64, since(0);
        committed_leader_epoch: i32 = -1, since(2).ignorable();
        committed_metadata: Option<Arc<str>>, since(0).nullable(0);
    }
}

message! {
    TxnOffsetCommitResponse, txn_offset_commit_response: key 28, versions 0 to 6, flexible from 3;
    TxnOffsetCommitResponse {
        throttle_time_ms: i32, since(0);
        topics: Vec<TxnOffsetCommitResponseTopic>, since(0);
        @local
        /// What a broker in the same process could not write.
        failure: Option<crate::local::StorageFailure>;
    }
    TxnOffsetCommitResponseTopic {
        name: Arc<str>, between(0, 5).ignorable();
        topic_id: [u8; 16], since(6).ignorable();
        partitions: Vec<TxnOffsetCommitResponsePartition>, since(0);
    }
    TxnOffsetCommitResponsePartition {
        partition_index: i32, since(0);
        error_code: ErrorCode, since(0);
    }
}

/// First version in which a group that does not exist has an error of its own.
const GROUP_ID_NOT_FOUND: i16 = 6;
/// First version whose clients know TRANSACTION_ABORTABLE.
const ABORTABLE: i16 = 4;

impl TxnOffsetCommitRequest {
    /// The oldest and the newest version that names topics and means the same for the transaction.
    pub(crate) fn versions_of_transaction(&self) -> (i16, i16) {
        self.operation.versions(Self::MIN_VERSION, ABORTABLE)
    }

    /// Notes what the version of a request that was read means for it.
    fn of_version(mut self, version: i16) -> Self {
        self.operation = TransactionSupportedOperation::of_version(version, ABORTABLE);
        self.knows_group_id_not_found = version >= GROUP_ID_NOT_FOUND;
        self
    }

    /// The topics of a request that commits these offsets.
    pub fn topics_of(
        offsets: impl IntoIterator<Item = (TopicPartition, OffsetAndMetadata)>,
    ) -> Vec<txn_offset_commit_request::TxnOffsetCommitRequestTopic> {
        let partition = |(tp, committed): (TopicPartition, OffsetAndMetadata)| {
            let partition = txn_offset_commit_request::TxnOffsetCommitRequestPartition {
                partition_index: tp.partition,
                committed_offset: committed.offset,
                committed_leader_epoch: committed.leader_epoch,
                committed_metadata: Some(committed.metadata),
            };
            (tp.topic, partition)
        };
        let topics = grouped(offsets.into_iter().map(partition)).into_iter();
        topics
            .map(
                |(name, partitions)| txn_offset_commit_request::TxnOffsetCommitRequestTopic {
                    name,
                    partitions,
                    ..Default::default()
                },
            )
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
    pub fn answered(&self, errors: impl IntoIterator<Item = ErrorCode>) -> TxnOffsetCommitResponse {
        let mut errors = errors.into_iter();
        let topics = self.topics.iter();
        let topics =
            topics.map(|topic: &txn_offset_commit_request::TxnOffsetCommitRequestTopic| topic.answered(&mut errors));
        TxnOffsetCommitResponse {
            topics: topics.collect(),
            ..Default::default()
        }
    }
}

impl txn_offset_commit_request::TxnOffsetCommitRequestTopic {
    /// Its entry in the response with these errors, one for each partition.
    pub fn answered(
        &self,
        errors: impl IntoIterator<Item = ErrorCode>,
    ) -> txn_offset_commit_response::TxnOffsetCommitResponseTopic {
        let partitions = self.partitions.iter().zip(errors);
        let partitions =
            partitions.map(
                |(p, error_code)| txn_offset_commit_response::TxnOffsetCommitResponsePartition {
                    partition_index: p.partition_index,
                    error_code,
                },
            );
        txn_offset_commit_response::TxnOffsetCommitResponseTopic {
            name: Arc::clone(&self.name),
            topic_id: self.topic_id,
            partitions: partitions.collect(),
        }
    }
}

impl TxnOffsetCommitResponse {
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
