//! The classic group protocol (spec 8.7) and offsets.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_records::TopicPartition;

use crate::ErrorCode;

/// JoinGroup, v5+ semantics (member id required first, static members).
#[derive(Debug, Clone)]
pub struct JoinGroupRequest {
    /// group.id.
    pub group_id: Arc<str>,
    /// session.timeout.ms.
    pub session_timeout_ms: i32,
    /// max.poll.interval.ms.
    pub rebalance_timeout_ms: i32,
    /// "" on the first join.
    pub member_id: Arc<str>,
    /// group.instance.id.
    pub group_instance_id: Option<Arc<str>>,
    /// client.id, the prefix of the generated member id.
    pub client_id: Arc<str>,
    /// "consumer".
    pub protocol_type: Arc<str>,
    /// (assignor name, subscription blob of spec 8.8), in order of preference.
    pub protocols: Vec<(Arc<str>, Bytes)>,
}

/// One member as told to the leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinGroupMember {
    /// Member id.
    pub member_id: Arc<str>,
    /// group.instance.id.
    pub group_instance_id: Option<Arc<str>>,
    /// Subscription blob of the chosen protocol.
    pub metadata: Bytes,
}

/// Answer.
#[derive(Debug, Clone)]
pub struct JoinGroupResponse {
    /// NONE or the error.
    pub error: ErrorCode,
    /// Generation.
    pub generation_id: i32,
    /// Chosen assignor.
    pub protocol_name: Arc<str>,
    /// Leader's member id.
    pub leader: Arc<str>,
    /// This member's id.
    pub member_id: Arc<str>,
    /// Members, only for the leader.
    pub members: Vec<JoinGroupMember>,
}

/// SyncGroup.
#[derive(Debug, Clone)]
pub struct SyncGroupRequest {
    /// group.id.
    pub group_id: Arc<str>,
    /// Generation.
    pub generation_id: i32,
    /// Member id.
    pub member_id: Arc<str>,
    /// group.instance.id.
    pub group_instance_id: Option<Arc<str>>,
    /// Assignment blobs by member id, only from the leader.
    pub assignments: Vec<(Arc<str>, Bytes)>,
}

/// Answer.
#[derive(Debug, Clone)]
pub struct SyncGroupResponse {
    /// NONE or the error.
    pub error: ErrorCode,
    /// Assignment blob (spec 8.8).
    pub assignment: Bytes,
}

/// Heartbeat.
#[derive(Debug, Clone)]
pub struct HeartbeatRequest {
    /// group.id.
    pub group_id: Arc<str>,
    /// Generation.
    pub generation_id: i32,
    /// Member id.
    pub member_id: Arc<str>,
    /// group.instance.id.
    pub group_instance_id: Option<Arc<str>>,
}

/// LeaveGroup.
#[derive(Debug, Clone)]
pub struct LeaveGroupRequest {
    /// group.id.
    pub group_id: Arc<str>,
    /// Member id.
    pub member_id: Arc<str>,
    /// group.instance.id.
    pub group_instance_id: Option<Arc<str>>,
}

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
    /// Offsets.
    pub offsets: Vec<(TopicPartition, OffsetAndMetadata)>,
}

/// Answer.
#[derive(Debug, Clone)]
pub struct OffsetCommitResponse {
    /// Per partition.
    pub partitions: Vec<(TopicPartition, ErrorCode)>,
    /// Why a commit was refused, where the codes alone do not say it (a broker open for reading only).
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

/// Answer.
#[derive(Debug, Clone)]
pub struct OffsetFetchResponse {
    /// NONE or the group's error.
    pub error: ErrorCode,
    /// Per partition; `None` = nothing committed.
    pub partitions: Vec<(TopicPartition, Option<OffsetAndMetadata>)>,
}
