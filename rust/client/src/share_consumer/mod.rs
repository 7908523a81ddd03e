//! The share consumer: a member of a share group (KIP-932), which acquires records for a time and acknowledges each. Kafka: `KafkaShareConsumer`.
//!
//! It has no thread: what Java's background thread does, a call does while it waits. So between two calls no fetch is built; the transport
//! sends heartbeats.

mod acknowledgements;
mod coordinator_request_manager;
mod offset_runs;
mod settings;
mod share_completed_fetch;
mod share_consume_request_manager;
#[allow(clippy::module_inception)] // The facade's folder is named after it.
mod share_consumer;
mod share_fetch_buffer;
mod share_in_flight_batch;
mod share_membership_manager;
mod share_session_handler;
mod topic_id_partition;

pub use acknowledgements::AcknowledgeType;
#[cfg(test)]
mod tests;

pub use share_consumer::{AcknowledgementCommit, CommitResult, ShareConsumer};
