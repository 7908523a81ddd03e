//! Transactions (spec 10, KIP-98): the transaction coordinator. Kafka: `TransactionCoordinator`, `TransactionStateManager`,
//! `TransactionMarkerChannelManager`.
//!
//! What Kafka does between brokers happens here within one request: PrepareX is written, then the markers, then CompleteX. A marker
//! that cannot be written leaves the transaction in PrepareX, and is tried again with the next request of that id, at the next check
//! for time-outs, and when the broker is reopened.
//!
//! Each transactional id has its own lock, which is held during its appends and its markers; the table of ids is never locked
//! meanwhile.

mod coordinator;
mod end;
mod expiry;
mod listing;
mod markers;
mod producer_ids;
mod records;
mod requests;
mod state;
mod store;
mod version;

pub(crate) use coordinator::TransactionCoordinator;
pub use coordinator::TransactionDescription;
pub use listing::{TransactionFilter, TransactionListing};
