//! Consumer groups: the classic protocol and committed offsets (spec 8.7, 8.8). Kafka: `GroupCoordinator`.

mod admin;
mod assignor;
mod coordinator;
mod expiry;
mod join;
mod leave;
mod legacy;
mod member;
mod offsets;
mod rebalance;
mod records;
mod state;
mod store;
mod sync;
mod table;
mod txn_offsets;

pub use admin::{GroupDescription, GroupListing, GroupMember};
pub use assignor::{GroupSpec, MemberAssignment, MemberSubscription, ServerAssignor, TopicId, UnknownTopic};
pub(crate) use coordinator::GroupCoordinator;
pub(crate) use legacy::LegacyGroups;
pub(crate) use member::ClientLiveness;
