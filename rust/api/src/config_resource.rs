//! What properties belong to.

use crate::NodeId;

/// What has properties. Kafka: `ConfigResource`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigResource {
    /// A topic.
    Topic(String),
    /// All nodes of the broker: for a node that has no value of its own. Kafka: the default entity, whose name is empty.
    AllBrokers,
    /// One node of the broker.
    Broker(NodeId),
    /// A group, whether it has members or not.
    Group(String),
    /// A subscription to the metrics of clients.
    ClientMetrics(String),
}
