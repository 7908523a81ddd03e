//! The records of a share group in `__consumer_offsets` (spec 14.3; the layouts are in `protocol/values`). Kafka:
//! `GroupCoordinatorRecordHelpers`.

use std::sync::Arc;

use fletchlog_protocol::WireError;
use fletchlog_protocol::values::{
    ConsumerOffsetsKey, ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue, ShareGroupMetadataKey, ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue, ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue, ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
};

use super::super::consumer_member::Partitions;
use super::super::consumer_records::{in_order, of, record};
use super::group::ShareGroup;
use super::member::{ShareAssignment, target_of_value, target_value};
use super::state_partitions::StatePartitions;
use crate::replica_manager::CoordinatorRecord;

/// A change of a share group; `None` is a tombstone. Kafka: `CoordinatorRecord`.
#[derive(Debug, Clone)]
pub(crate) enum ShareRecord {
    /// What a member reported of itself.
    Member(Arc<str>, Option<Arc<ShareGroupMemberMetadataValue>>),
    /// The group's epoch and its hash of the subscribed topics.
    Epoch(Option<(i32, i64)>),
    /// The target of a member.
    Target(Arc<str>, Option<Arc<Partitions>>),
    /// The target's epoch, and when it was computed.
    TargetEpoch(Option<(i32, i64)>),
    /// What a member has.
    Current(Arc<str>, Option<ShareAssignment>),
    /// The partitions with a state.
    Partitions(Option<Arc<StatePartitions>>),
}

impl ShareRecord {
    /// Its key and value.
    pub(super) fn encode(&self, group_id: &Arc<str>) -> Result<CoordinatorRecord, WireError> {
        let group_id = Arc::clone(group_id);
        match self {
            Self::Member(id, metadata) => {
                let member_id = Arc::clone(id);
                let key = ShareGroupMemberMetadataKey { group_id, member_id };
                record(&key, metadata.as_deref())
            }
            Self::Epoch(epoch) => {
                let value = epoch.map(|(epoch, metadata_hash)| ShareGroupMetadataValue { epoch, metadata_hash });
                record(&ShareGroupMetadataKey { group_id }, value.as_ref())
            }
            Self::Target(id, target) => {
                let member_id = Arc::clone(id);
                let key = ShareGroupTargetAssignmentMemberKey { group_id, member_id };
                record(&key, target.as_deref().map(target_value).as_ref())
            }
            Self::TargetEpoch(epoch) => {
                let value = epoch.map(
                    |(assignment_epoch, timestamp)| ShareGroupTargetAssignmentMetadataValue {
                        assignment_epoch,
                        assignment_timestamp: timestamp,
                    },
                );
                record(&ShareGroupTargetAssignmentMetadataKey { group_id }, value.as_ref())
            }
            Self::Current(id, current) => {
                let member_id = Arc::clone(id);
                let key = ShareGroupCurrentMemberAssignmentKey { group_id, member_id };
                record(&key, current.as_ref().map(ShareAssignment::value).as_ref())
            }
            Self::Partitions(partitions) => {
                let value = partitions.as_deref().map(StatePartitions::value);
                record(&ShareGroupStatePartitionMetadataKey { group_id }, value.as_ref())
            }
        }
    }

    /// Reads a record of a share group; returns the group's id with it. `None`: it is of another kind.
    pub(crate) fn decode(key: ConsumerOffsetsKey, value: Option<&[u8]>) -> Result<Option<(Arc<str>, Self)>, WireError> {
        Ok(Some(match key {
            ConsumerOffsetsKey::ShareGroupMember(key) => {
                let mut member: Option<ShareGroupMemberMetadataValue> = of(value)?;
                if let Some(member) = &mut member {
                    in_order(&mut member.subscribed_topic_names);
                }
                (key.group_id, Self::Member(key.member_id, member.map(Arc::new)))
            }
            ConsumerOffsetsKey::ShareGroup(key) => {
                let value: Option<ShareGroupMetadataValue> = of(value)?;
                let epoch = value.map(|value| (value.epoch, value.metadata_hash));
                (key.group_id, Self::Epoch(epoch))
            }
            ConsumerOffsetsKey::ShareTargetAssignmentMember(key) => {
                let value: Option<ShareGroupTargetAssignmentMemberValue> = of(value)?;
                let target = value.map(|value| Arc::new(target_of_value(&value)));
                (key.group_id, Self::Target(key.member_id, target))
            }
            ConsumerOffsetsKey::ShareTargetAssignment(key) => {
                let value: Option<ShareGroupTargetAssignmentMetadataValue> = of(value)?;
                let epoch = value.map(|value| (value.assignment_epoch, value.assignment_timestamp));
                (key.group_id, Self::TargetEpoch(epoch))
            }
            ConsumerOffsetsKey::ShareCurrentMemberAssignment(key) => {
                let value: Option<ShareGroupCurrentMemberAssignmentValue> = of(value)?;
                let current = value.as_ref().map(ShareAssignment::of_value);
                (key.group_id, Self::Current(key.member_id, current))
            }
            ConsumerOffsetsKey::ShareStatePartitions(key) => {
                let value: Option<ShareGroupStatePartitionMetadataValue> = of(value)?;
                let partitions = value.map(|value| Arc::new(StatePartitions::of_value(value)));
                (key.group_id, Self::Partitions(partitions))
            }
            _ => return Ok(None),
        }))
    }

    /// Whether it is a tombstone.
    pub(crate) fn is_tombstone(&self) -> bool {
        match self {
            Self::Member(_, value) => value.is_none(),
            Self::Epoch(value) | Self::TargetEpoch(value) => value.is_none(),
            Self::Target(_, value) => value.is_none(),
            Self::Current(_, value) => value.is_none(),
            Self::Partitions(value) => value.is_none(),
        }
    }
}

/// The records that end a group, encoded. Kafka: `ShareGroup#createGroupTombstoneRecords`.
pub(crate) fn tombstones(group_id: &Arc<str>, group: &ShareGroup) -> Result<Vec<CoordinatorRecord>, WireError> {
    let members = group.members();
    let ids = || members.iter().map(|member| Arc::clone(&member.id));
    let mut records: Vec<_> = ids().map(|id| ShareRecord::Current(id, None)).collect();
    records.extend(ids().map(|id| ShareRecord::Target(id, None)));
    records.push(ShareRecord::TargetEpoch(None));
    records.extend(ids().map(|id| ShareRecord::Member(id, None)));
    records.push(ShareRecord::Partitions(None));
    records.push(ShareRecord::Epoch(None));
    records.iter().map(|record| record.encode(group_id)).collect()
}
