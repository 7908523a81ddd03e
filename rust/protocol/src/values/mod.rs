//! What members of a group exchange inside JoinGroup and SyncGroup, and what coordinators keep in `__consumer_offsets` and
//! `__transaction_state`. Names are Kafka's; those of fields are in snake case.
//!
//! The tables are those of Kafka 4.3.1's own definitions, and those of the sticky assignors' schemas.

pub mod consumer_offsets;
pub mod consumer_protocol;
pub mod transaction_log;

pub use consumer_offsets::{
    ConsumerOffsetsKey, GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue, group_metadata_value,
};
pub use consumer_protocol::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, CooperativeStickyAssignorUserData, StickyAssignorUserData,
};
pub use transaction_log::{TransactionLogKey, TransactionLogValue, transaction_log_value};
