//! The embedded broker: topics, nodes, the produce, fetch and lookup paths, groups, and [`LocalTransport`].

pub mod broker;
mod config_description;
mod controller;
mod directory;
mod dynamic_config;
mod each_log;
pub mod error;
mod failures;
mod features;
mod group;
mod kafka_apis;
mod loading;
pub mod local_transport;
mod log_manager;
mod metrics;
mod node_ids;
pub mod panics;
mod partition;
pub mod port;
mod refresh_once;
mod replica_manager;
mod security;
mod share;
mod share_coordinator;
mod sync;
mod topic_config;
mod topic_names;
mod topics;
mod transaction;
mod uuid;

pub use broker::{Broker, OpenOptions, SealedDirectory};
pub use config_description::{ConfigEntry, ConfigSource, ConfigSynonym, ConfigType};
pub use controller::{
    AlterConfig, AlterConfigOp, Alteration, ConfigChange, CreatedTopic, ElectionType, MorePartitions, NewTopic,
};
pub use directory::{DirectoryKind, directory_kind};
pub use error::BrokerError;
pub use features::{Feature, FeatureUpdate, UpgradeType};
pub use fletchlog_log::ProducerState;
pub use group::{
    GroupDescription, GroupListing, GroupMember, GroupSpec, MemberAssignment, MemberSubscription, ServerAssignor,
    UnknownTopic,
};
pub use kafka_apis::TopicPage;
pub use local_transport::LocalTransport;
pub use log_manager::{CleanedPartition, LogDirDescription};
pub use metrics::BrokerMetric;
pub use port::{Deferred, Outcome, Port, Ticket};
pub use refresh_once::RefreshOnce;
pub use replica_manager::{PartitionDescription, TopicDescription};
pub use security::{
    Acl, AclFilter, AclOperation, Action, AlteredUsers, Authorizer, CLUSTER_NAME, Coded, PatternType, PermissionType,
    Principal, ResourceType, ScramDeletion, ScramUpsertion,
};
pub use share::ShareRecordState;
pub use topic_names::is_internal;
pub use transaction::{TransactionDescription, TransactionFilter, TransactionListing};
