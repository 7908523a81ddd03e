//! What members of a group exchange inside JoinGroup and SyncGroup, and what coordinators keep in `__consumer_offsets`,
//! `__transaction_state` and `__share_group_state`. Names are Kafka's; those of fields are in snake case.
//!
//! The tables are those of Kafka 4.3.1's own definitions, and those of the sticky assignors' schemas.

pub mod consumer_offsets;
pub mod consumer_protocol;
pub mod share_group_state;
pub mod transaction_log;

pub use consumer_offsets::{
    ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue, ConsumerGroupMetadataKey, ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey, ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue, ConsumerOffsetsKey,
    GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue, ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue, ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey, ShareGroupMetadataValue, ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue, ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue,
    consumer_group_current_member_assignment_value, consumer_group_member_metadata_value,
    consumer_group_target_assignment_member_value, group_metadata_value, share_group_current_member_assignment_value,
    share_group_state_partition_metadata_value, share_group_target_assignment_member_value,
};
pub use consumer_protocol::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, CooperativeStickyAssignorUserData, StickyAssignorUserData,
};
pub use share_group_state::{
    ShareGroupStateKey, ShareSnapshotKey, ShareSnapshotValue, ShareUpdateKey, ShareUpdateValue, share_snapshot_value,
    share_update_value,
};
pub use transaction_log::{TransactionLogKey, TransactionLogValue, transaction_log_value};
