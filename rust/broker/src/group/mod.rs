//! Groups of consumers: the classic protocol, the protocol of consumer groups (KIP-848), share groups (KIP-932), and committed
//! offsets (spec 8, 14). Kafka:
//! `GroupCoordinator`.

mod admin;
mod assignor;
mod classic_members;
mod consumer_change;
mod consumer_config;
mod consumer_describe;
mod consumer_group;
mod consumer_heartbeat;
mod consumer_leave;
mod consumer_member;
mod consumer_offsets;
mod consumer_records;
mod coordinator;
mod cut;
mod election;
mod expiry;
mod join;
mod leave;
mod legacy;
mod member;
mod member_step;
mod metadata_hash;
mod migration;
mod offsets;
mod re2j;
mod rebalance;
mod reconcile;
mod records;
mod regex;
mod share;
mod state;
mod store;
mod sync;
mod table;
mod target_assignment;
mod timers;
mod txn_offsets;

pub use admin::{GroupDescription, GroupListing, GroupMember};
pub use assignor::{GroupSpec, MemberAssignment, MemberSubscription, ServerAssignor, UnknownTopic};
pub(crate) use coordinator::GroupCoordinator;
pub(crate) use legacy::LegacyGroups;
pub(crate) use member::ClientLiveness;
