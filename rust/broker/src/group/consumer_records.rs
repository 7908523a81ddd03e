//! The records of a consumer group in `__consumer_offsets` (spec 8.8; the layouts are in `protocol/values`). Kafka:
//! `GroupCoordinatorRecordHelpers`.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_protocol::values::{
    ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue, ConsumerGroupMetadataKey, ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey, ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue, ConsumerOffsetsKey,
};
use fletchlog_protocol::{Value, WireError};

use super::consumer_group::ConsumerGroup;
use super::consumer_member::{CurrentAssignment, Partitions, target_of_value, target_value};
use crate::replica_manager::CoordinatorRecord;

/// A change of a consumer group; `None` is a tombstone. Kafka: `CoordinatorRecord`.
#[derive(Debug, Clone)]
pub(crate) enum ConsumerRecord {
    /// What a member reported of itself.
    Member(Arc<str>, Option<Arc<ConsumerGroupMemberMetadataValue>>),
    /// The topics that match a regular expression.
    Regex(Arc<str>, Option<Arc<ConsumerGroupRegularExpressionValue>>),
    /// The group's epoch and its hash of the subscribed topics. Without it there is no group.
    Epoch(Option<(i32, i64)>),
    /// The target of a member.
    Target(Arc<str>, Option<Arc<Partitions>>),
    /// The target's epoch, and when it was computed.
    TargetEpoch(Option<(i32, i64)>),
    /// What a member has.
    Current(Arc<str>, Option<CurrentAssignment>),
    /// What earlier releases stored of the subscribed topics: only its tombstone is written.
    PartitionMetadata,
}

impl ConsumerRecord {
    /// Its key and value.
    pub(crate) fn encode(&self, group_id: &Arc<str>) -> Result<CoordinatorRecord, WireError> {
        let (group, member) = (Arc::clone, |id: &Arc<str>| (Arc::clone(group_id), Arc::clone(id)));
        let group_id = group(group_id);
        match self {
            Self::Member(id, metadata) => {
                let (group_id, member_id) = member(id);
                let key = ConsumerGroupMemberMetadataKey { group_id, member_id };
                let (key, value) = record(&key, metadata.as_deref())?;
                let uses_classic = metadata.as_ref().is_some_and(|m| m.classic_member_metadata.is_some());
                Ok((
                    key,
                    value.map(|value| if uses_classic { value } else { with_null(&value) }),
                ))
            }
            Self::Regex(regex, resolved) => {
                let regular_expression = Arc::clone(regex);
                let key = ConsumerGroupRegularExpressionKey {
                    group_id,
                    regular_expression,
                };
                record(&key, resolved.as_deref())
            }
            Self::Epoch(epoch) => {
                let value = epoch.map(|(epoch, metadata_hash)| ConsumerGroupMetadataValue { epoch, metadata_hash });
                record(&ConsumerGroupMetadataKey { group_id }, value.as_ref())
            }
            Self::Target(id, target) => {
                let (group_id, member_id) = member(id);
                let key = ConsumerGroupTargetAssignmentMemberKey { group_id, member_id };
                record(&key, target.as_deref().map(target_value).as_ref())
            }
            Self::TargetEpoch(epoch) => {
                let value = epoch.map(
                    |(assignment_epoch, timestamp)| ConsumerGroupTargetAssignmentMetadataValue {
                        assignment_epoch,
                        assignment_timestamp: timestamp,
                    },
                );
                record(&ConsumerGroupTargetAssignmentMetadataKey { group_id }, value.as_ref())
            }
            Self::Current(id, current) => {
                let (group_id, member_id) = member(id);
                let key = ConsumerGroupCurrentMemberAssignmentKey { group_id, member_id };
                record(&key, current.as_ref().map(CurrentAssignment::value).as_ref())
            }
            Self::PartitionMetadata => {
                let key = ConsumerGroupPartitionMetadataKey { group_id };
                record::<_, ConsumerGroupMetadataValue>(&key, None)
            }
        }
    }

    /// Reads a record of a consumer group; returns the group's id with it. `None`: it is of another kind.
    pub(crate) fn decode(key: ConsumerOffsetsKey, value: Option<&[u8]>) -> Result<Option<(Arc<str>, Self)>, WireError> {
        Ok(Some(match key {
            ConsumerOffsetsKey::ConsumerGroupMember(key) => (
                key.group_id,
                Self::Member(key.member_id, member_of(value)?.map(Arc::new)),
            ),
            ConsumerOffsetsKey::RegularExpression(key) => {
                let mut resolved: Option<ConsumerGroupRegularExpressionValue> = of(value)?;
                if let Some(resolved) = &mut resolved {
                    resolved.topics.sort_unstable();
                }
                (
                    key.group_id,
                    Self::Regex(key.regular_expression, resolved.map(Arc::new)),
                )
            }
            ConsumerOffsetsKey::ConsumerGroup(key) => {
                let value: Option<ConsumerGroupMetadataValue> = of(value)?;
                (
                    key.group_id,
                    Self::Epoch(value.map(|value| (value.epoch, value.metadata_hash))),
                )
            }
            ConsumerOffsetsKey::TargetAssignmentMember(key) => {
                let value: Option<ConsumerGroupTargetAssignmentMemberValue> = of(value)?;
                let target = value.map(|value| Arc::new(target_of_value(&value)));
                (key.group_id, Self::Target(key.member_id, target))
            }
            ConsumerOffsetsKey::TargetAssignment(key) => {
                let value: Option<ConsumerGroupTargetAssignmentMetadataValue> = of(value)?;
                let epoch = value.map(|value| (value.assignment_epoch, value.assignment_timestamp));
                (key.group_id, Self::TargetEpoch(epoch))
            }
            ConsumerOffsetsKey::CurrentMemberAssignment(key) => {
                let value: Option<ConsumerGroupCurrentMemberAssignmentValue> = of(value)?;
                let current = value.as_ref().map(CurrentAssignment::of_value);
                (key.group_id, Self::Current(key.member_id, current))
            }
            _ => return Ok(None),
        }))
    }

    /// Whether it is a tombstone.
    pub(crate) fn is_tombstone(&self) -> bool {
        match self {
            Self::Member(_, value) => value.is_none(),
            Self::Regex(_, value) => value.is_none(),
            Self::Epoch(value) | Self::TargetEpoch(value) => value.is_none(),
            Self::Target(_, value) => value.is_none(),
            Self::Current(_, value) => value.is_none(),
            Self::PartitionMetadata => true,
        }
    }
}

/// The records that end a group. Kafka: `ConsumerGroup#createGroupTombstoneRecords`.
pub(crate) fn tombstones(group: &ConsumerGroup) -> Vec<ConsumerRecord> {
    let members = group.members();
    let ids = || members.iter().map(|member| Arc::clone(&member.id));
    let mut records: Vec<_> = ids().map(|id| ConsumerRecord::Current(id, None)).collect();
    records.extend(ids().map(|id| ConsumerRecord::Target(id, None)));
    records.push(ConsumerRecord::TargetEpoch(None));
    records.extend(ids().map(|id| ConsumerRecord::Member(id, None)));
    let regexes = group.all_resolved().keys();
    records.extend(regexes.map(|regex| ConsumerRecord::Regex(Arc::clone(regex), None)));
    records.push(ConsumerRecord::PartitionMetadata);
    records.push(ConsumerRecord::Epoch(None));
    records
}

/// A key has the one version that is the type of its record; values are written at version 0.
pub(super) fn record<K: Value, V: Value>(key: &K, value: Option<&V>) -> Result<CoordinatorRecord, WireError> {
    let value = value.map(|value| value.encode(0)).transpose()?;
    Ok((key.encode(K::MIN_VERSION)?, value))
}

pub(super) fn of<V: Value>(value: Option<&[u8]>) -> Result<Option<V>, WireError> {
    value.map(|value| V::decode(Bytes::copy_from_slice(value))).transpose()
}

/// How Kafka writes that a member does not use the classic protocol: one tagged field, tag 0, of one byte, null. A null struct in a tagged
/// field is 0 there, and is written although it is the default.
const NULL_TAG: [u8; 4] = [1, 0, 1, 0];

/// The bytes of a value without tagged fields, as Kafka writes them, see [`NULL_TAG`].
fn with_null(value: &Bytes) -> Bytes {
    let mut bytes = value[..value.len().saturating_sub(1)].to_vec();
    bytes.extend(NULL_TAG);
    bytes.into()
}

fn member_of(value: Option<&[u8]>) -> Result<Option<ConsumerGroupMemberMetadataValue>, WireError> {
    let plain = value.and_then(|value| Some([value.strip_suffix(&NULL_TAG)?, &[0]].concat()));
    let mut member: Option<ConsumerGroupMemberMetadataValue> = of(plain.as_deref().or(value))?;
    if let Some(member) = &mut member {
        in_order(&mut member.subscribed_topic_names);
    }
    Ok(member)
}

/// Puts names in order, each once.
pub(crate) fn in_order(names: &mut Vec<Arc<str>>) {
    names.sort_unstable();
    names.dedup();
}
