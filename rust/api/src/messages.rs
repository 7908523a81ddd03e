//! Request and response values: what Kafka's wire messages carry, without their encoding.
//! Field names are Kafka's (clients/src/main/resources/common/message).

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_records::TopicPartition;

use crate::{ErrorCode, NodeId};

/// Every request a client of ours sends.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub enum Request {
    Produce(ProduceRequest),
    Fetch(FetchRequest),
    ListOffsets(ListOffsetsRequest),
    OffsetForLeaderEpoch(OffsetForLeaderEpochRequest),
    Metadata(MetadataRequest),
    InitProducerId(InitProducerIdRequest),
    AddPartitionsToTxn(AddPartitionsToTxnRequest),
    AddOffsetsToTxn(AddOffsetsToTxnRequest),
    TxnOffsetCommit(TxnOffsetCommitRequest),
    EndTxn(EndTxnRequest),
    FindCoordinator(FindCoordinatorRequest),
    JoinGroup(JoinGroupRequest),
    SyncGroup(SyncGroupRequest),
    Heartbeat(HeartbeatRequest),
    LeaveGroup(LeaveGroupRequest),
    OffsetCommit(OffsetCommitRequest),
    OffsetFetch(OffsetFetchRequest),
    LegacyGroup(LegacyGroupRequest),
}

/// Every answer.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub enum Response {
    Produce(ProduceResponse),
    Fetch(FetchResponse),
    ListOffsets(ListOffsetsResponse),
    OffsetForLeaderEpoch(OffsetForLeaderEpochResponse),
    Metadata(MetadataResponse),
    InitProducerId(InitProducerIdResponse),
    AddPartitionsToTxn(AddPartitionsToTxnResponse),
    AddOffsetsToTxn(ErrorCode),
    TxnOffsetCommit(TxnOffsetCommitResponse),
    EndTxn(ErrorCode),
    FindCoordinator(FindCoordinatorResponse),
    JoinGroup(JoinGroupResponse),
    SyncGroup(SyncGroupResponse),
    Heartbeat(ErrorCode),
    LeaveGroup(ErrorCode),
    OffsetCommit(OffsetCommitResponse),
    OffsetFetch(OffsetFetchResponse),
    LegacyGroup(LegacyGroupResponse),
}

// ---------------------------------------------------------------- produce

/// Produce, v8+ semantics: one batch per partition.
#[derive(Debug, Clone)]
pub struct ProduceRequest {
    /// Transactional id, if any.
    pub transactional_id: Option<Arc<str>>,
    /// -1 (all), 0 or 1.
    pub acks: i16,
    /// How long the broker may wait for replicas.
    pub timeout_ms: i32,
    /// Batches in request order.
    pub partitions: Vec<(TopicPartition, Bytes)>,
}

/// Answer to one partition's batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducePartitionResponse {
    /// Partition.
    pub tp: TopicPartition,
    /// NONE or why it was refused.
    pub error: ErrorCode,
    /// Offset of the first record, -1 on error.
    pub base_offset: i64,
    /// Append time under LogAppendTime, else -1.
    pub log_append_time_ms: i64,
    /// Log start offset, -1 where Kafka answers -1 (spec 2.1).
    pub log_start_offset: i64,
    /// Failing records: (index in the batch, message).
    pub record_errors: Vec<(i32, String)>,
    /// Global message, if any.
    pub error_message: Option<String>,
}

/// Answers in any order; empty for acks=0.
#[derive(Debug, Clone)]
pub struct ProduceResponse {
    /// Per partition.
    pub partitions: Vec<ProducePartitionResponse>,
}

// ---------------------------------------------------------------- fetch

/// Isolation of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum IsolationLevel {
    /// Everything below the high watermark.
    #[default]
    ReadUncommitted,
    /// Everything below the last stable offset, aborted data filtered by the client.
    ReadCommitted,
}

/// One partition of a fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchPartition {
    /// Partition.
    pub tp: TopicPartition,
    /// First offset wanted.
    pub fetch_offset: i64,
    /// Leader epoch known to the client, -1 none.
    pub current_leader_epoch: i32,
    /// max.partition.fetch.bytes.
    pub partition_max_bytes: i32,
}

/// Fetch, v12 semantics (names, sessions, leader epochs).
#[derive(Debug, Clone)]
pub struct FetchRequest {
    /// fetch.max.wait.ms.
    pub max_wait_ms: i32,
    /// fetch.min.bytes.
    pub min_bytes: i32,
    /// fetch.max.bytes.
    pub max_bytes: i32,
    /// Isolation.
    pub isolation_level: IsolationLevel,
    /// Session id, 0 none.
    pub session_id: i32,
    /// -1 sessionless, 0 full fetch that asks for a session, n > 0 incremental.
    pub session_epoch: i32,
    /// Partitions in wire order.
    pub partitions: Vec<FetchPartition>,
    /// Partitions to forget (incremental only).
    pub forgotten: Vec<TopicPartition>,
}

/// A transaction that was aborted, for the client-side filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Producer.
    pub producer_id: i64,
    /// First offset of the transaction in this partition.
    pub first_offset: i64,
}

/// Answer for one partition.
#[derive(Debug, Clone)]
pub struct FetchPartitionResponse {
    /// Partition.
    pub tp: TopicPartition,
    /// NONE or the partition's error.
    pub error: ErrorCode,
    /// High watermark (-1 on OFFSET_OUT_OF_RANGE).
    pub high_watermark: i64,
    /// Last stable offset.
    pub last_stable_offset: i64,
    /// Log start offset.
    pub log_start_offset: i64,
    /// Only for read_committed.
    pub aborted_transactions: Option<Vec<AbortedTransaction>>,
    /// File bytes, cut at the limit: the last batch may be partial, the first may begin below the fetch offset.
    pub records: Bytes,
}

/// Answer to a fetch: partitions in wire order.
#[derive(Debug, Clone)]
pub struct FetchResponse {
    /// Top-level error (70, 71) or NONE.
    pub error: ErrorCode,
    /// Session id, 0 none.
    pub session_id: i32,
    /// Per partition.
    pub partitions: Vec<FetchPartitionResponse>,
}

// ---------------------------------------------------------------- list offsets

/// Special timestamps of ListOffsets (spec 5.1).
pub mod list_offsets {
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
}

/// ListOffsets.
#[derive(Debug, Clone)]
pub struct ListOffsetsRequest {
    /// Isolation.
    pub isolation_level: IsolationLevel,
    /// (partition, current leader epoch or -1, timestamp or special).
    pub partitions: Vec<(TopicPartition, i32, i64)>,
}

/// Answer for one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListOffsetsPartitionResponse {
    /// Partition.
    pub tp: TopicPartition,
    /// NONE or the partition's error.
    pub error: ErrorCode,
    /// Timestamp of the record found, -1 none.
    pub timestamp: i64,
    /// Offset found, -1 none.
    pub offset: i64,
    /// Leader epoch, -1 none.
    pub leader_epoch: i32,
}

/// Answer.
#[derive(Debug, Clone)]
pub struct ListOffsetsResponse {
    /// Per partition.
    pub partitions: Vec<ListOffsetsPartitionResponse>,
}

/// OffsetForLeaderEpoch, v3: where leader epochs end. A consumer asks whether its position is still in the log.
#[derive(Debug, Clone)]
pub struct OffsetForLeaderEpochRequest {
    /// (partition, current leader epoch or -1, leader epoch asked for).
    pub partitions: Vec<(TopicPartition, i32, i32)>,
}

/// Answer for one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochEndOffset {
    /// Partition.
    pub tp: TopicPartition,
    /// NONE or the partition's error.
    pub error: ErrorCode,
    /// Greatest known epoch that is not above the one asked for; -1 none.
    pub leader_epoch: i32,
    /// Offset behind the last record of that epoch; -1 none.
    pub end_offset: i64,
}

/// Answer.
#[derive(Debug, Clone)]
pub struct OffsetForLeaderEpochResponse {
    /// Per partition.
    pub partitions: Vec<EpochEndOffset>,
}

// ---------------------------------------------------------------- metadata, ids, coordinator

/// Metadata for topics; `None` = all.
#[derive(Debug, Clone)]
pub struct MetadataRequest {
    /// Topics asked for.
    pub topics: Option<Vec<Arc<str>>>,
    /// Create unknown topics (allow.auto.create.topics and the broker's auto.create.topics.enable).
    pub allow_auto_topic_creation: bool,
}

/// One partition's leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionMetadata {
    /// Partition.
    pub partition: i32,
    /// Leader node.
    pub leader: NodeId,
    /// Leader epoch.
    pub leader_epoch: i32,
}

/// One topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicMetadata {
    /// NONE or UNKNOWN_TOPIC_OR_PARTITION.
    pub error: ErrorCode,
    /// Name.
    pub name: Arc<str>,
    /// 16-byte topic id.
    pub topic_id: [u8; 16],
    /// True for __consumer_offsets and the like.
    pub is_internal: bool,
    /// Partitions ascending.
    pub partitions: Vec<PartitionMetadata>,
}

/// Answer.
#[derive(Debug, Clone)]
pub struct MetadataResponse {
    /// Cluster id.
    pub cluster_id: Arc<str>,
    /// Node ids ascending.
    pub nodes: Vec<NodeId>,
    /// Topics in request order (all: by name).
    pub topics: Vec<TopicMetadata>,
}

/// InitProducerId.
#[derive(Debug, Clone)]
pub struct InitProducerIdRequest {
    /// None for an idempotent, non-transactional producer.
    pub transactional_id: Option<Arc<str>>,
    /// transaction.timeout.ms.
    pub transaction_timeout_ms: i32,
    /// Current id for an epoch bump, -1 none.
    pub producer_id: i64,
    /// Current epoch for an epoch bump, -1 none.
    pub producer_epoch: i16,
}

/// Answer.
#[derive(Debug, Clone, Copy)]
pub struct InitProducerIdResponse {
    /// NONE or the error.
    pub error: ErrorCode,
    /// The id.
    pub producer_id: i64,
    /// The epoch.
    pub producer_epoch: i16,
}

/// What a coordinator is asked for. Kafka: `FindCoordinatorRequest.CoordinatorType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CoordinatorType {
    /// Key type 0: the key is a group.id.
    Group,
    /// Key type 1: the key is a transactional.id.
    Transaction,
}

/// FindCoordinator.
#[derive(Debug, Clone)]
pub struct FindCoordinatorRequest {
    /// group.id or transactional.id.
    pub key: Arc<str>,
    /// Which of the two.
    pub key_type: CoordinatorType,
}

/// Answer.
#[derive(Debug, Clone, Copy)]
pub struct FindCoordinatorResponse {
    /// NONE or the error.
    pub error: ErrorCode,
    /// Node of the coordinator.
    pub node: NodeId,
}

// ---------------------------------------------------------------- transactions (spec 10.2, KIP-98)

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

/// Answer: all partitions were added, or none.
#[derive(Debug, Clone)]
pub struct AddPartitionsToTxnResponse {
    /// Per partition, in request order.
    pub partitions: Vec<(TopicPartition, ErrorCode)>,
}

/// AddOffsetsToTxn: the transaction will commit offsets of this group. Sent to the transaction coordinator.
#[derive(Debug, Clone)]
pub struct AddOffsetsToTxnRequest {
    /// transactional.id.
    pub transactional_id: Arc<str>,
    /// Producer.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i16,
    /// group.id.
    pub group_id: Arc<str>,
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

/// Answer.
#[derive(Debug, Clone)]
pub struct TxnOffsetCommitResponse {
    /// Per partition, in request order.
    pub partitions: Vec<(TopicPartition, ErrorCode)>,
}

/// EndTxn. Sent to the transaction coordinator.
#[derive(Debug, Clone)]
pub struct EndTxnRequest {
    /// transactional.id.
    pub transactional_id: Arc<str>,
    /// Producer.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i16,
    /// COMMIT, else ABORT.
    pub committed: bool,
}

// ---------------------------------------------------------------- classic group protocol (spec 8.7)

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

// ---------------------------------------------------------------- groups of the 0.8 high-level consumer (spec 8.2)

/// One step against the registry of a legacy group: what ZooKeeper's nodes under `/consumers/<group>` were to the 0.8
/// high-level consumer. Kafka has no such request; offsets go through OffsetCommit and OffsetFetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LegacyGroupRequest {
    /// group.id.
    pub group_id: Arc<str>,
    /// The consumer that speaks. Its session lives as long as the connection that registered it.
    pub consumer_id: Arc<str>,
    /// What it wants.
    pub action: LegacyGroupAction,
}

/// What a legacy consumer can ask of the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LegacyGroupAction {
    /// Creates the ephemeral node `ids/<consumerId>`.
    Register {
        /// zookeeper.session.timeout.ms: how long the session outlives its connection.
        session_timeout_ms: i32,
        /// (topic, number of streams).
        streams: Vec<(Arc<str>, i32)>,
    },
    /// Deletes it, with the owner nodes of this consumer.
    Unregister,
    /// Reads members, partitions and owners.
    View,
    /// Creates the owner nodes of this consumer's threads, all or none.
    Claim {
        /// Generation for which the assignment was computed.
        generation: i32,
        /// (partition, thread id).
        owners: Vec<(TopicPartition, Arc<str>)>,
    },
    /// Deletes the owner nodes of this consumer.
    Release,
}

/// The registry after the step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LegacyGroupResponse {
    /// NONE; UNKNOWN_MEMBER_ID: not registered, or the session has expired; ILLEGAL_GENERATION: claimed for an older
    /// generation; REBALANCE_IN_PROGRESS: a claimed partition still has another owner (nothing was claimed);
    /// UNRELEASED_INSTANCE_ID: another consumer that lives has registered with this id.
    pub error: ErrorCode,
    /// Grows with every change of members, their streams, or the partitions of their topics.
    pub generation: i32,
    /// (consumer id, its (topic, streams)), by consumer id.
    pub members: Vec<LegacyGroupMember>,
    /// (topic, number of partitions; 0 unknown) of every subscribed topic, by topic.
    pub topics: Vec<(Arc<str>, i32)>,
    /// (partition, owning thread id), by partition.
    pub owners: Vec<(TopicPartition, Arc<str>)>,
}

/// One registered consumer of a legacy group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LegacyGroupMember {
    /// Consumer id.
    pub consumer_id: Arc<str>,
    /// (topic, number of streams), by topic.
    pub streams: Vec<(Arc<str>, i32)>,
}
