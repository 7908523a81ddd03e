//! Groups of the 0.8 high-level consumer (spec 8.2).

use std::sync::Arc;

use fletchlog_records::TopicPartition;

use crate::ErrorCode;

/// One operation on the registry of a legacy group, which replaces ZooKeeper's nodes under `/consumers/<group>`. It is sent by
/// [`crate::InProcess::legacy_group`], because Kafka has no such request; offsets go through OffsetCommit and OffsetFetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LegacyGroupRequest {
    /// group.id.
    pub group_id: Arc<str>,
    /// The consumer. Its session lasts as long as the connection that registered it.
    pub consumer_id: Arc<str>,
    /// The operation.
    pub action: LegacyGroupAction,
}

/// An operation of a legacy consumer on the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LegacyGroupAction {
    /// Creates the ephemeral node `ids/<consumerId>`.
    Register {
        /// zookeeper.session.timeout.ms: how long the session outlives its connection.
        session_timeout_ms: i32,
        /// (topic, number of streams).
        streams: Vec<(Arc<str>, i32)>,
    },
    /// Deletes that node, with the owner nodes of this consumer.
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

/// The registry after the operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LegacyGroupResponse {
    /// NONE; UNKNOWN_MEMBER_ID: not registered, or the session has expired; ILLEGAL_GENERATION: claimed for an older generation;
    /// REBALANCE_IN_PROGRESS: a claimed partition still has another owner (nothing was claimed); UNRELEASED_INSTANCE_ID: another live
    /// consumer has registered with this id.
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
