//! The embedded broker: topics, nodes, the produce, fetch and lookup paths, groups, and [`LocalTransport`].

pub mod broker;
mod cleaner;
mod coordinator_log;
mod directory;
pub mod error;
mod failures;
mod fetch;
mod fields;
mod group;
mod leader_epochs;
mod list_offsets;
pub mod local_transport;
mod metadata;
mod partition;
mod produce;
mod producer_ids;
mod requests;
mod shutdown;
mod sync;
mod topic_admin;
mod topic_config;
mod topics;
mod transaction;
mod uuid;

pub use broker::{Broker, OpenOptions, PartitionDescription, TopicDescription};
pub use cleaner::CleanedPartition;
pub use error::BrokerError;
pub use local_transport::LocalTransport;
pub use transaction::TransactionDescription;
