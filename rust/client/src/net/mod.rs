//! The network layer of consumer, producer, groups and transactions. Kafka: `org.apache.kafka.clients`.

mod cluster_connection_states;
#[cfg(test)]
pub(crate) mod fixtures;
mod in_flight_requests;
mod metadata;
mod network_client;
mod reconnect;
#[cfg(test)]
mod tests;

pub(crate) use in_flight_requests::InFlightRequest;
pub(crate) use metadata::{Metadata, is_metadata_error};
pub(crate) use network_client::{ClientResponse, NetworkClient};
pub use reconnect::Reconnect;

/// Number of a request, unique per client; its response has the same `correlation_id`.
pub type RequestId = i32;
