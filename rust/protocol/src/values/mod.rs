//! What members of a group exchange inside JoinGroup and SyncGroup, and what coordinators keep in `__consumer_offsets`,
//! `__transaction_state` and `__share_group_state`. Names are Kafka's; those of fields are in snake case.
//!
//! The tables are those of Kafka 4.4.0's own definitions, and those of the sticky assignors' schemas.

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

use crate::schema::{FieldSpec, Versions};
use crate::table::Value;

/// The table of a key or a value.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) versions: Versions,
    pub(crate) first_flexible_version: i16,
    pub(crate) fields: &'static [FieldSpec],
}

const fn table<V: Value>() -> Table {
    Table {
        name: V::NAME,
        versions: Versions {
            min: V::MIN_VERSION,
            max: V::MAX_VERSION,
        },
        first_flexible_version: V::FIRST_FLEXIBLE_VERSION,
        fields: V::TABLE,
    }
}

/// Those for which Kafka has a definition.
pub(crate) const TABLES: &[Table] = &[
    table::<ConsumerGroupCurrentMemberAssignmentKey>(),
    table::<ConsumerGroupCurrentMemberAssignmentValue>(),
    table::<ConsumerGroupMemberMetadataKey>(),
    table::<ConsumerGroupMemberMetadataValue>(),
    table::<ConsumerGroupMetadataKey>(),
    table::<ConsumerGroupMetadataValue>(),
    table::<ConsumerGroupPartitionMetadataKey>(),
    table::<ConsumerGroupRegularExpressionKey>(),
    table::<ConsumerGroupRegularExpressionValue>(),
    table::<ConsumerGroupTargetAssignmentMemberKey>(),
    table::<ConsumerGroupTargetAssignmentMemberValue>(),
    table::<ConsumerGroupTargetAssignmentMetadataKey>(),
    table::<ConsumerGroupTargetAssignmentMetadataValue>(),
    table::<ConsumerProtocolAssignment>(),
    table::<ConsumerProtocolSubscription>(),
    table::<GroupMetadataKey>(),
    table::<GroupMetadataValue>(),
    table::<OffsetCommitKey>(),
    table::<OffsetCommitValue>(),
    table::<ShareGroupCurrentMemberAssignmentKey>(),
    table::<ShareGroupCurrentMemberAssignmentValue>(),
    table::<ShareGroupMemberMetadataKey>(),
    table::<ShareGroupMemberMetadataValue>(),
    table::<ShareGroupMetadataKey>(),
    table::<ShareGroupMetadataValue>(),
    table::<ShareGroupStatePartitionMetadataKey>(),
    table::<ShareGroupStatePartitionMetadataValue>(),
    table::<ShareGroupTargetAssignmentMemberKey>(),
    table::<ShareGroupTargetAssignmentMemberValue>(),
    table::<ShareGroupTargetAssignmentMetadataKey>(),
    table::<ShareGroupTargetAssignmentMetadataValue>(),
    table::<ShareSnapshotKey>(),
    table::<ShareSnapshotValue>(),
    table::<ShareUpdateKey>(),
    table::<ShareUpdateValue>(),
    table::<TransactionLogKey>(),
    table::<TransactionLogValue>(),
];
