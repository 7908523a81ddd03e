//! Transactions (spec 10, KIP-98): the transaction coordinator. Kafka: `TransactionCoordinator`, `TransactionStateManager`,
//! `TransactionMarkerChannelManager`.
//!
//! What Kafka does between brokers happens here within one request: PrepareX is written, then the markers, then CompleteX.
//! A marker that cannot be written leaves the transaction in PrepareX, and is tried again with the next request of that
//! id, at the next look at time-outs, and when the broker is reopened.
//!
//! Lock order: the coordinator's lock, then the groups' lock or a log's.

mod coordinator;
mod expiry;
mod markers;
mod records;
mod requests;
mod state;
mod store;

pub(crate) use coordinator::TransactionCoordinator;
pub use coordinator::TransactionDescription;
