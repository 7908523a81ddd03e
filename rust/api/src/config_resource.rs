//! The resources that have properties.

use crate::NodeId;

/// A resource that has properties. Kafka: `ConfigResource`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigResource {
    /// A topic.
    Topic(String),
    /// All nodes of the broker: its values apply to nodes without a value of their own. Kafka: the default entity, whose name is empty.
    AllBrokers,
    /// One node of the broker.
    Broker(NodeId),
    /// A group, whether it has members or not.
    Group(String),
    /// A subscription to the metrics of clients.
    ClientMetrics(String),
}
