//! A member of a consumer group: what it reported of itself, and what it has. Kafka: `ConsumerGroupMember`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fletchlog_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use fletchlog_protocol::topic_ids::TopicId;
use fletchlog_protocol::values::consumer_group_current_member_assignment_value::TopicPartitions as CurrentPartitions;
use fletchlog_protocol::values::consumer_group_member_metadata_value::{ClassicMemberMetadata, ClassicProtocol};
use fletchlog_protocol::values::consumer_group_target_assignment_member_value::TopicPartition as TargetPartitions;
use fletchlog_protocol::values::{
    ConsumerGroupCurrentMemberAssignmentValue, ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMemberValue,
};
use fletchlog_records::planted;

/// Partitions by topic. A topic has at least one.
pub(crate) type Partitions = BTreeMap<TopicId, BTreeSet<i32>>;

/// Partitions by topic, each with the member epoch since which it belongs to the member. A topic has at least one.
pub(crate) type Assigned = BTreeMap<TopicId, BTreeMap<i32, i32>>;

/// The epoch of a static member that is away. Kafka: `Utils#LEAVE_GROUP_STATIC_MEMBER_EPOCH`.
pub(crate) use fletchlog_protocol::messages::LEAVE_GROUP_STATIC_MEMBER_EPOCH;

/// Kafka: `MemberState`, with its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberState {
    /// It has everything of the target of its epoch.
    Stable = 0,
    /// It has to give up partitions, and is still at its old epoch.
    UnrevokedPartitions = 1,
    /// It is at the new epoch, and waits for partitions that others have.
    UnreleasedPartitions = 2,
}

impl MemberState {
    fn of(number: i8) -> Self {
        match number {
            1 => Self::UnrevokedPartitions,
            2 => Self::UnreleasedPartitions,
            _ => Self::Stable,
        }
    }
}

/// What a member has. Kafka: the record `ConsumerGroupCurrentMemberAssignment`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CurrentAssignment {
    pub(crate) epoch: i32,
    pub(crate) previous_epoch: i32,
    pub(crate) state: MemberState,
    /// Without those that it has to give up.
    pub(crate) assigned: Assigned,
    pub(crate) pending_revocation: Assigned,
}

impl Default for CurrentAssignment {
    fn default() -> Self {
        Self {
            epoch: 0,
            previous_epoch: 0,
            state: MemberState::Stable,
            assigned: Assigned::new(),
            pending_revocation: Assigned::new(),
        }
    }
}

impl CurrentAssignment {
    /// Every partition that is not free for others, with the member epoch of its owner.
    pub(crate) fn held(&self) -> impl Iterator<Item = (TopicId, i32)> {
        let all = self.assigned.iter().chain(&self.pending_revocation);
        all.flat_map(|(&id, partitions)| partitions.keys().map(move |&p| (id, p)))
    }

    /// What a static member keeps while it is away: all but what it had to give up; a commit of any older epoch is in order. Kafka:
    /// `ConsumerGroupMember.Builder`, `GroupMetadataManager#consumerGroupStaticMemberGroupLeave`.
    pub(crate) fn away(&self) -> Self {
        let since_ever = |partitions: &BTreeMap<i32, i32>| partitions.keys().map(|&p| (p, 0)).collect();
        Self {
            epoch: LEAVE_GROUP_STATIC_MEMBER_EPOCH,
            previous_epoch: self.previous_epoch,
            state: self.state,
            assigned: self.assigned.iter().map(|(&id, p)| (id, since_ever(p))).collect(),
            pending_revocation: Assigned::new(),
        }
    }

    /// The value of its record.
    pub(crate) fn value(&self) -> ConsumerGroupCurrentMemberAssignmentValue {
        ConsumerGroupCurrentMemberAssignmentValue {
            member_epoch: self.epoch,
            previous_member_epoch: self.previous_epoch,
            state: self.state as i8,
            assigned_partitions: with_epochs(&self.assigned),
            partitions_pending_revocation: with_epochs(&self.pending_revocation),
        }
    }

    /// Reads the value of its record. A partition without an epoch has that of the member.
    pub(crate) fn of_value(value: &ConsumerGroupCurrentMemberAssignmentValue) -> Self {
        let is_old = planted!("member-epoch-goes-back-when-loaded");
        Self {
            epoch: if is_old {
                value.previous_member_epoch
            } else {
                value.member_epoch
            },
            previous_epoch: value.previous_member_epoch,
            state: MemberState::of(value.state),
            assigned: of_epochs(&value.assigned_partitions, value.member_epoch),
            pending_revocation: of_epochs(&value.partitions_pending_revocation, value.member_epoch),
        }
    }
}

fn with_epochs(all: &Assigned) -> Vec<CurrentPartitions> {
    let of = |(&topic_id, partitions): (&TopicId, &BTreeMap<i32, i32>)| CurrentPartitions {
        topic_id,
        partitions: partitions.keys().copied().collect(),
        assignment_epochs: Some(partitions.values().copied().collect()),
    };
    all.iter().map(of).collect()
}

fn of_epochs(all: &[CurrentPartitions], epoch: i32) -> Assigned {
    let mut read = Assigned::new();
    for topic in all.iter().filter(|topic| !topic.partitions.is_empty()) {
        let epochs = topic.assignment_epochs.as_deref().unwrap_or_default();
        let epoch_of = |at: usize| epochs.get(at).copied().unwrap_or(epoch);
        let partitions = topic.partitions.iter().enumerate();
        let partitions = partitions.map(|(at, &p)| (p, epoch_of(at)));
        read.entry(topic.topic_id).or_default().extend(partitions);
    }
    read
}

/// The partitions without their epochs.
pub(crate) fn partitions_of(assigned: &Assigned) -> Partitions {
    let of = |(&id, partitions): (&TopicId, &BTreeMap<i32, i32>)| (id, partitions.keys().copied().collect());
    assigned.iter().map(of).collect()
}

/// The partitions that a request names; a topic without partitions is left out.
pub(crate) fn partitions_of_request(topics: &[TopicPartitions]) -> Partitions {
    let mut read = Partitions::new();
    for topic in topics.iter().filter(|topic| !topic.partitions.is_empty()) {
        read.entry(topic.topic_id).or_default().extend(&topic.partitions);
    }
    read
}

/// The value of the record of a member's target.
pub(crate) fn target_value(target: &Partitions) -> ConsumerGroupTargetAssignmentMemberValue {
    let of = |(&topic_id, partitions): (&TopicId, &BTreeSet<i32>)| TargetPartitions {
        topic_id,
        partitions: partitions.iter().copied().collect(),
    };
    ConsumerGroupTargetAssignmentMemberValue {
        topic_partitions: target.iter().map(of).collect(),
    }
}

/// Reads the value of the record of a member's target.
pub(crate) fn target_of_value(value: &ConsumerGroupTargetAssignmentMemberValue) -> Partitions {
    let mut read = Partitions::new();
    for topic in value
        .topic_partitions
        .iter()
        .filter(|topic| !topic.partitions.is_empty())
    {
        read.entry(topic.topic_id).or_default().extend(&topic.partitions);
    }
    read
}

/// A member.
#[derive(Debug, Clone)]
pub(crate) struct ConsumerGroupMember {
    pub(crate) id: Arc<str>,
    /// What it reported of itself, as its record has it: the names of topics are in order, each once.
    pub(crate) metadata: Arc<ConsumerGroupMemberMetadataValue>,
    pub(crate) current: CurrentAssignment,
    /// Members in the order in which they joined. Where Java's hash tables keep the order of insertion, this is it.
    pub(crate) joined: u64,
}

impl ConsumerGroupMember {
    /// Its group.instance.id.
    pub(crate) fn instance_id(&self) -> Option<&Arc<str>> {
        self.metadata.instance_id.as_ref()
    }

    /// The regular expression to which it subscribes.
    pub(crate) fn regex(&self) -> Option<&Arc<str>> {
        regex_of(&self.metadata)
    }

    /// What it reported as a member of the classic protocol; `None`: it uses the protocol of consumer groups. Kafka:
    /// `ConsumerGroupMember#useClassicProtocol`.
    pub(crate) fn classic(&self) -> Option<&ClassicMemberMetadata> {
        self.metadata.classic_member_metadata.as_ref()
    }

    /// Its protocols, if it is a member of the classic protocol.
    pub(crate) fn classic_protocols(&self) -> &[ClassicProtocol] {
        self.classic().map_or(&[], |classic| &classic.supported_protocols)
    }

    /// Whether it is a static member that has left for some time.
    pub(crate) fn is_away(&self) -> bool {
        self.current.epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH
    }

    /// Whether it has everything of the target with this epoch. Kafka: `ConsumerGroupMember#isReconciledTo`.
    pub(crate) fn is_reconciled_to(&self, epoch: i32) -> bool {
        self.current.state == MemberState::Stable && self.current.epoch == epoch
    }
}

/// What is known of a member that has reported nothing of itself yet.
pub(crate) fn nothing_reported() -> ConsumerGroupMemberMetadataValue {
    ConsumerGroupMemberMetadataValue {
        instance_id: None,
        rack_id: None,
        subscribed_topic_regex: Some(Arc::default()),
        server_assignor: None,
        ..Default::default()
    }
}

/// The regular expression in a member's record; "" is none.
pub(crate) fn regex_of(metadata: &ConsumerGroupMemberMetadataValue) -> Option<&Arc<str>> {
    metadata
        .subscribed_topic_regex
        .as_ref()
        .filter(|regex| !regex.is_empty())
}
