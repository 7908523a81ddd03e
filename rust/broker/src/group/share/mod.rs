//! Share groups (KIP-932): their members, who is to read which partition, and the partitions whose state the share coordinator keeps
//! (spec 14.1 to 14.3). Kafka: the share groups of `GroupMetadataManager`.

mod admin;
mod config;
mod group;
mod heartbeat;
mod leave;
mod member;
mod offsets;
mod records;
mod state_partitions;
mod step;

pub(super) use group::ShareGroup;
pub(super) use records::{ShareRecord, tombstones};
