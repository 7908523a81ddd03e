//! The classic group protocol (spec 8.7) and offsets.

use std::sync::Arc;

use fletchlog_records::TopicPartition;

use crate::ErrorCode;

/// An offset as committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetAndMetadata {
    /// Next offset to read.
    pub offset: i64,
    /// Leader epoch, -1 none.
    pub leader_epoch: i32,
    /// Free text.
    pub metadata: Arc<str>,
}

/// OffsetCommit.
#[derive(Debug, Clone)]
pub struct OffsetCommitRequest {
    /// group.id.
    pub group_id: Arc<str>,
    /// -1 for a consumer that manages its partitions itself.
    pub generation_id: i32,
    /// "" for such a consumer.
    pub member_id: Arc<str>,
    /// group.instance.id.
    pub group_instance_id: Option<Arc<str>>,
    /// How long the offsets are kept (versions 2 to 4); `None`: as the broker is configured.
    pub retention_ms: Option<i64>,
    /// A group that does not exist is reported as GROUP_ID_NOT_FOUND (versions 9 and newer), not as ILLEGAL_GENERATION.
    pub knows_group_id_not_found: bool,
    /// Offsets.
    pub offsets: Vec<(TopicPartition, OffsetAndMetadata)>,
}

/// Response.
#[derive(Debug, Clone)]
pub struct OffsetCommitResponse {
    /// Per partition.
    pub partitions: Vec<(TopicPartition, ErrorCode)>,
    /// Why a commit was refused, if the codes alone do not show it (a broker open for reading only).
    pub error_message: Option<String>,
}

/// OffsetFetch.
#[derive(Debug, Clone)]
pub struct OffsetFetchRequest {
    /// group.id.
    pub group_id: Arc<str>,
    /// Partitions, `None` = all with an offset.
    pub partitions: Option<Vec<TopicPartition>>,
    /// Wait for pending transactional commits (88).
    pub require_stable: bool,
}

/// Response.
#[derive(Debug, Clone)]
pub struct OffsetFetchResponse {
    /// NONE or the group's error.
    pub error: ErrorCode,
    /// Per partition; `None` = nothing committed, UNSTABLE_OFFSET_COMMIT while a transaction commits.
    pub partitions: Vec<(TopicPartition, Result<Option<OffsetAndMetadata>, ErrorCode>)>,
}
