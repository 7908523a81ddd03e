//! The classic group protocol (spec 8.7) and offsets.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_records::TopicPartition;

use crate::ErrorCode;

/// JoinGroup.
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
    /// "consumer", "connect", ...
    pub protocol_type: Arc<str>,
    /// (assignor name, subscription blob of spec 8.8), in order of preference.
    pub protocols: Vec<(Arc<str>, Bytes)>,
    /// A member without an id first gets one and joins with it (versions 4 and newer). Kafka:
    /// `JoinGroupRequest#requiresKnownMemberId`.
    pub requires_known_member_id: bool,
    /// A static leader that comes back understands `skip_assignment` (versions 9 and newer). Kafka:
    /// `JoinGroupRequest#supportsSkippingAssignment`.
    pub supports_skipping_assignment: bool,
    /// Why the client joins, for the log.
    pub reason: Option<Arc<str>>,
}

/// One member, as the leader sees it.
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
    /// The group's protocol type; `None` with an error.
    pub protocol_type: Option<Arc<str>>,
    /// Chosen assignor.
    pub protocol_name: Arc<str>,
    /// Leader's member id.
    pub leader: Arc<str>,
    /// The leader gets the members but is not to assign partitions: the assignment stays as it is.
    pub skip_assignment: bool,
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
    /// The protocol type that the member believes the group to have; `None` is not compared.
    pub protocol_type: Option<Arc<str>>,
    /// The protocol that the member believes to be chosen; `None` is not compared.
    pub protocol_name: Option<Arc<str>>,
    /// Assignment blobs by member id, only from the leader.
    pub assignments: Vec<(Arc<str>, Bytes)>,
}

/// Answer.
#[derive(Debug, Clone)]
pub struct SyncGroupResponse {
    /// NONE or the error.
    pub error: ErrorCode,
    /// The group's protocol type; `None` with an error.
    pub protocol_type: Option<Arc<str>>,
    /// The chosen protocol; `None` with an error.
    pub protocol_name: Option<Arc<str>>,
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
    /// The members that leave.
    pub members: Vec<LeavingMember>,
}

/// A member that leaves a group. Kafka: `MemberIdentity`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeavingMember {
    /// Member id; "": the member with the group.instance.id.
    pub member_id: Arc<str>,
    /// group.instance.id.
    pub group_instance_id: Option<Arc<str>>,
    /// Why, for the log.
    pub reason: Option<Arc<str>>,
}

/// Answer.
#[derive(Debug, Clone)]
pub struct LeaveGroupResponse {
    /// NONE or the error of all.
    pub error: ErrorCode,
    /// Per member, in the order of the request; none with an error of all.
    pub members: Vec<(LeavingMember, ErrorCode)>,
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
    /// How long the offsets are kept (versions 2 to 4); `None`: as the broker is configured.
    pub retention_ms: Option<i64>,
    /// A group that is not there is GROUP_ID_NOT_FOUND (versions 9 and newer), not ILLEGAL_GENERATION.
    pub knows_group_id_not_found: bool,
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
    /// Per partition; `None` = nothing committed, UNSTABLE_OFFSET_COMMIT while a transaction commits.
    pub partitions: Vec<(TopicPartition, Result<Option<OffsetAndMetadata>, ErrorCode>)>,
}
