//! What OffsetCommit, TxnOffsetCommit and OffsetFetch carry of a partition.

use std::sync::Arc;

/// An offset as committed. Kafka: `OffsetAndMetadata`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetAndMetadata {
    /// Next offset to read.
    pub offset: i64,
    /// Leader epoch, -1 none.
    pub leader_epoch: i32,
    /// Free text.
    pub metadata: Arc<str>,
}
