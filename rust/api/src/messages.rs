//! Request and response values: what Kafka's wire messages carry, without their encoding.
//! Field names are Kafka's (clients/src/main/resources/common/message).

mod legacy_group;

use std::sync::Arc;

pub use fletchlog_protocol::local::StorageFailure;
pub use fletchlog_protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
    EndTxnRequest, EndTxnResponse, FetchRequest, FetchResponse, FindCoordinatorRequest, FindCoordinatorResponse,
    HeartbeatRequest, HeartbeatResponse, InitProducerIdRequest, InitProducerIdResponse, JoinGroupRequest,
    JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse, OffsetCommitRequest, OffsetCommitResponse,
    OffsetFetchRequest, OffsetFetchResponse, ProduceRequest, ProduceResponse, SyncGroupRequest, SyncGroupResponse,
    TxnOffsetCommitRequest, TxnOffsetCommitResponse,
};
pub use fletchlog_protocol::{CoordinatorType, IsolationLevel, OffsetAndMetadata};
use fletchlog_records::TopicPartition;

pub use legacy_group::*;

use crate::{ErrorCode, NodeId, TopicId};

/// Every request that a client of fletchlog sends.
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
}

/// Every response.
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
    AddOffsetsToTxn(AddOffsetsToTxnResponse),
    TxnOffsetCommit(TxnOffsetCommitResponse),
    EndTxn(EndTxnResponse),
    FindCoordinator(FindCoordinatorResponse),
    JoinGroup(JoinGroupResponse),
    SyncGroup(SyncGroupResponse),
    Heartbeat(HeartbeatResponse),
    LeaveGroup(LeaveGroupResponse),
    OffsetCommit(OffsetCommitResponse),
    OffsetFetch(OffsetFetchResponse),
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

/// Response for one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListOffsetsPartitionResponse {
    /// Partition.
    pub tp: TopicPartition,
    /// NONE or the partition's error.
    pub error: ErrorCode,
    /// Why its log cannot be read, with KAFKA_STORAGE_ERROR and CORRUPT_MESSAGE. Kafka's response has no field for it: its reasons
    /// stay in the broker's log.
    pub error_message: Option<String>,
    /// Timestamp of the record found, -1 none.
    pub timestamp: i64,
    /// Offset found, -1 none.
    pub offset: i64,
    /// Leader epoch, -1 none.
    pub leader_epoch: i32,
}

/// Response.
#[derive(Debug, Clone)]
pub struct ListOffsetsResponse {
    /// Per partition.
    pub partitions: Vec<ListOffsetsPartitionResponse>,
}

/// OffsetForLeaderEpoch, v3: where leader epochs end. A consumer checks with it whether its position is still in the log.
#[derive(Debug, Clone)]
pub struct OffsetForLeaderEpochRequest {
    /// (partition, current leader epoch or -1, leader epoch asked for).
    pub partitions: Vec<(TopicPartition, i32, i32)>,
}

/// Response for one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochEndOffset {
    /// Partition.
    pub tp: TopicPartition,
    /// NONE or the partition's error.
    pub error: ErrorCode,
    /// Why its log cannot be read, with KAFKA_STORAGE_ERROR and CORRUPT_MESSAGE. Kafka's response has no field for it: its reasons
    /// stay in the broker's log.
    pub error_message: Option<String>,
    /// Greatest known epoch that is not above the requested one; -1 none.
    pub leader_epoch: i32,
    /// Offset after the last record of that epoch; -1 none.
    pub end_offset: i64,
}

/// Response.
#[derive(Debug, Clone)]
pub struct OffsetForLeaderEpochResponse {
    /// Per partition.
    pub partitions: Vec<EpochEndOffset>,
}

// ---------------------------------------------------------------- metadata

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
    /// Leader epoch; -1 if it is not known now.
    pub leader_epoch: i32,
    /// Nodes of the replicas, the leader first. All of them are in sync, none is offline.
    pub replicas: Vec<NodeId>,
}

/// One topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicMetadata {
    /// NONE or UNKNOWN_TOPIC_OR_PARTITION.
    pub error: ErrorCode,
    /// Name.
    pub name: Arc<str>,
    /// Its id.
    pub topic_id: TopicId,
    /// True for __consumer_offsets and the like.
    pub is_internal: bool,
    /// Partitions ascending.
    pub partitions: Vec<PartitionMetadata>,
}

/// Response.
#[derive(Debug, Clone)]
pub struct MetadataResponse {
    /// NONE or REBOOTSTRAP_REQUIRED.
    pub error: ErrorCode,
    /// Cluster id.
    pub cluster_id: Arc<str>,
    /// Node ids ascending.
    pub nodes: Vec<NodeId>,
    /// Topics in request order (all: by name).
    pub topics: Vec<TopicMetadata>,
}
