//! Racks of members and of replicas (KIP-881, spec 8.4, 8.6). Kafka: `AbstractPartitionAssignor#useRackAwareAssignment`,
//! `AbstractStickyAssignor.RackInfo`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fletchlog_records::TopicPartition;

use super::{MemberSubscription, Subscriptions, TopicCounts};

/// Racks of the replicas of one partition.
pub type Racks = BTreeSet<Arc<str>>;

/// Topic -> racks of the replicas of its partitions, by partition. What is missing is in no rack.
pub type PartitionRacks = BTreeMap<Arc<str>, Vec<Racks>>;

/// The rack of a member; an empty name is none.
pub(super) fn rack_of(member: &MemberSubscription) -> Option<&Arc<str>> {
    member.rack.as_ref().filter(|rack| !rack.is_empty())
}

/// Whether racks decide: members and replicas have some in common, and not every partition is in all racks of the replicas.
pub(super) fn racks_decide(of_members: &BTreeSet<&Arc<str>>, of_partitions: &[&Racks]) -> bool {
    let all: Racks = of_partitions.iter().flat_map(|racks| racks.iter().cloned()).collect();
    of_members.iter().any(|rack| all.contains(*rack)) && of_partitions.iter().any(|racks| **racks != all)
}

/// The racks of the partitions of a topic, by partition; `none` for those that are missing.
pub(super) fn of_topic<'a>(racks: &'a PartitionRacks, topic: &str, count: i32, none: &'a Racks) -> Vec<&'a Racks> {
    let known = racks.get(topic).map_or(&[][..], Vec::as_slice);
    (0..usize::try_from(count).unwrap_or(0))
        .map(|partition| known.get(partition).unwrap_or(none))
        .collect()
}

/// The racks of a group whose members all subscribe to the same topics. Empty where racks do not decide.
#[derive(Default)]
pub(super) struct RackInfo<'a> {
    members: BTreeMap<&'a Arc<str>, &'a Arc<str>>,
    partitions: BTreeMap<TopicPartition, &'a Racks>,
    members_in: BTreeMap<&'a Arc<str>, usize>,
}

impl<'a> RackInfo<'a> {
    pub(super) fn of(
        topics: &TopicCounts,
        racks: &'a PartitionRacks,
        none: &'a Racks,
        members: &'a Subscriptions,
        all: &[TopicPartition],
    ) -> Self {
        let of_members: BTreeMap<_, _> = members
            .iter()
            .filter_map(|(id, member)| Some((id, rack_of(member)?)))
            .collect();
        if of_members.is_empty() {
            return Self::default();
        }
        let of_topics: BTreeMap<_, _> = topics
            .iter()
            .map(|(topic, &count)| (topic, of_topic(racks, topic, count, none)))
            .collect();
        let of_partitions: Vec<&Racks> = all
            .iter()
            .filter_map(|tp| Some(*of_topics.get(&tp.topic)?.get(usize::try_from(tp.partition).ok()?)?))
            .collect();
        if !racks_decide(&of_members.values().copied().collect(), &of_partitions) {
            return Self::default();
        }
        let mut members_in = BTreeMap::new();
        for rack in of_members.values() {
            *members_in.entry(*rack).or_default() += 1;
        }
        Self {
            members: of_members,
            partitions: all.iter().cloned().zip(of_partitions).collect(),
            members_in,
        }
    }

    /// Whether racks decide.
    pub(super) fn decides(&self) -> bool {
        !self.members.is_empty()
    }

    /// Whether a replica of the partition is in the rack of the member.
    fn matches(&self, member: &Arc<str>, tp: &TopicPartition) -> bool {
        let racks = self.partitions.get(tp);
        self.members
            .get(member)
            .is_some_and(|rack| racks.is_some_and(|racks| racks.contains(*rack)))
    }

    /// Whether the member has a rack, and no replica of the partition is there.
    pub(super) fn mismatch(&self, member: &Arc<str>, tp: &TopicPartition) -> bool {
        self.members.contains_key(member) && !self.matches(member, tp)
    }

    /// How many members are in racks of the partition.
    pub(super) fn members_near(&self, tp: &TopicPartition) -> usize {
        let racks = self.partitions.get(tp).into_iter().flat_map(|racks| racks.iter());
        racks.filter_map(|rack| self.members_in.get(rack)).sum()
    }

    /// Place of the first member in a rack of the partition, from `first` on and around.
    pub(super) fn next_near(&self, tp: &TopicPartition, ids: &[&Arc<str>], first: usize) -> Option<usize> {
        (0..ids.len())
            .map(|step| (first + step) % ids.len())
            .find(|&at| self.matches(ids[at], tp))
    }
}
