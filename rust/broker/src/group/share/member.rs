//! A member of a share group: what it reported of itself, and what it has. Kafka: `ShareGroupMember`.

use std::collections::BTreeSet;
use std::sync::Arc;

use fletchlog_protocol::topic_ids::TopicId;
use fletchlog_protocol::values::share_group_current_member_assignment_value::TopicPartitions as CurrentPartitions;
use fletchlog_protocol::values::share_group_target_assignment_member_value::TopicPartition as TargetPartitions;
use fletchlog_protocol::values::{
    ShareGroupCurrentMemberAssignmentValue, ShareGroupMemberMetadataValue, ShareGroupTargetAssignmentMemberValue,
};

use super::super::consumer_member::Partitions;

/// What a member has. Kafka: the record `ShareGroupCurrentMemberAssignment`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ShareAssignment {
    pub(super) epoch: i32,
    pub(super) previous_epoch: i32,
    pub(super) assigned: Partitions,
}

/// Kafka: `MemberState#STABLE`. A member of a share group has no other state: nothing has to be given up first.
const STABLE: i8 = 0;

impl ShareAssignment {
    /// The value of its record.
    pub(super) fn value(&self) -> ShareGroupCurrentMemberAssignmentValue {
        let of = |(&topic_id, partitions): (&TopicId, &BTreeSet<i32>)| CurrentPartitions {
            topic_id,
            partitions: partitions.iter().copied().collect(),
        };
        ShareGroupCurrentMemberAssignmentValue {
            member_epoch: self.epoch,
            previous_member_epoch: self.previous_epoch,
            state: STABLE,
            assigned_partitions: self.assigned.iter().map(of).collect(),
        }
    }

    /// Reads the value of its record.
    pub(super) fn of_value(value: &ShareGroupCurrentMemberAssignmentValue) -> Self {
        let topics = value.assigned_partitions.iter();
        Self {
            epoch: value.member_epoch,
            previous_epoch: value.previous_member_epoch,
            assigned: collected(topics.map(|topic| (topic.topic_id, &topic.partitions))),
        }
    }
}

/// A member.
#[derive(Debug, Clone)]
pub(super) struct ShareGroupMember {
    pub(super) id: Arc<str>,
    pub(super) metadata: Arc<ShareGroupMemberMetadataValue>,
    pub(super) current: ShareAssignment,
    /// Its place in the order in which the members joined.
    pub(super) joined: u64,
}

/// The value of the record of a member's target.
pub(super) fn target_value(target: &Partitions) -> ShareGroupTargetAssignmentMemberValue {
    let of = |(&topic_id, partitions): (&TopicId, &BTreeSet<i32>)| TargetPartitions {
        topic_id,
        partitions: partitions.iter().copied().collect(),
    };
    ShareGroupTargetAssignmentMemberValue {
        topic_partitions: target.iter().map(of).collect(),
    }
}

/// Reads the value of the record of a member's target.
pub(super) fn target_of_value(value: &ShareGroupTargetAssignmentMemberValue) -> Partitions {
    let topics = value.topic_partitions.iter();
    collected(topics.map(|topic| (topic.topic_id, &topic.partitions)))
}

/// Partitions by topic; a topic without partitions is left out.
fn collected<'a>(topics: impl Iterator<Item = (TopicId, &'a Vec<i32>)>) -> Partitions {
    let mut read = Partitions::new();
    for (id, partitions) in topics.filter(|(_, partitions)| !partitions.is_empty()) {
        read.entry(id).or_default().extend(partitions);
    }
    read
}
