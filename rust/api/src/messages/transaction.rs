//! Transactions (spec 10.2, KIP-98).

use std::sync::Arc;

use fletchlog_records::TopicPartition;

use super::{OffsetAndMetadata, StorageFailure};
use crate::ErrorCode;

/// AddPartitionsToTxn: what the producer is about to write to. Sent to the transaction coordinator.
#[derive(Debug, Clone)]
pub struct AddPartitionsToTxnRequest {
    /// transactional.id.
    pub transactional_id: Arc<str>,
    /// Producer.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i16,
    /// Partitions to add.
    pub partitions: Vec<TopicPartition>,
}

/// Response: all partitions were added, or none.
#[derive(Debug, Clone)]
pub struct AddPartitionsToTxnResponse {
    /// Per partition, in request order.
    pub partitions: Vec<(TopicPartition, ErrorCode)>,
    /// What the broker could not write.
    pub failure: Option<StorageFailure>,
}

/// TxnOffsetCommit: offsets that take effect when the transaction commits. Sent to the group's coordinator.
#[derive(Debug, Clone)]
pub struct TxnOffsetCommitRequest {
    /// transactional.id.
    pub transactional_id: Arc<str>,
    /// group.id.
    pub group_id: Arc<str>,
    /// Producer.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i16,
    /// -1 for a consumer that manages its partitions itself.
    pub generation_id: i32,
    /// "" for such a consumer.
    pub member_id: Arc<str>,
    /// group.instance.id.
    pub group_instance_id: Option<Arc<str>>,
    /// Offsets.
    pub offsets: Vec<(TopicPartition, OffsetAndMetadata)>,
}

/// Response.
#[derive(Debug, Clone)]
pub struct TxnOffsetCommitResponse {
    /// Per partition, in request order.
    pub partitions: Vec<(TopicPartition, ErrorCode)>,
    /// What the broker could not write.
    pub failure: Option<StorageFailure>,
}
