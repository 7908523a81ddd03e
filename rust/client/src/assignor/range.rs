//! The range assignor of consumer groups (spec 8.4). Kafka: `RangeAssignor`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fletchlog_api::java_hash::{DEFAULT_CAPACITY, string_hash, walk_order};
use fletchlog_records::TopicPartition;

use super::racks::{PartitionRacks, Racks, of_topic, rack_of, racks_decide};
use super::{
    Assignment, MemberSubscription, Subscriptions, TopicCounts, empty_assignment, java_compare, sorted_members,
};

/// Deals each topic for itself: the first `partitions mod members` of its members get one more than the others, all in
/// consecutive runs. Where racks decide, members get partitions with a replica in their rack first, as far as their share allows;
/// topics with the same members and as many partitions stay aligned.
pub fn range(topics: &TopicCounts, racks: &PartitionRacks, members: &Subscriptions) -> Assignment {
    let mut assignment = empty_assignment(members);
    let none = Racks::new();
    let sorted = sorted_members(members);
    let mut states: Vec<TopicState<'_>> = topics_in_hash_order(members)
        .into_iter()
        .map(|topic| {
            let count = topics.get(&topic).copied().unwrap_or(0);
            let racks = of_topic(racks, &topic, count, &none);
            TopicState::of(topic, count, racks, &sorted)
        })
        .collect();
    let by_racks = states.iter().any(|state| state.racks_decide);
    if by_racks {
        assign_by_racks(&mut states, &mut assignment);
    }
    for state in &mut states {
        state.assign_ranges(|_, _, _| true, &mut assignment);
    }
    if by_racks {
        for list in assignment.values_mut() {
            list.sort_by(|a, b| java_compare(&a.topic, &b.topic).then(a.partition.cmp(&b.partition)));
        }
    }
    assignment
}

/// One topic while it is dealt. Kafka: `RangeAssignor.TopicAssignmentState`.
struct TopicState<'a> {
    topic: Arc<str>,
    /// Members that subscribe to it, in their order, with their racks.
    consumers: Vec<(&'a Arc<str>, Option<&'a Arc<str>>)>,
    /// By partition; empty if no member has a rack.
    racks: Vec<&'a Racks>,
    racks_decide: bool,
    unassigned: BTreeSet<i32>,
    /// Number of partitions of each consumer.
    assigned: Vec<usize>,
    partitions_per_consumer: usize,
    consumers_with_extra_partition: usize,
}

impl<'a> TopicState<'a> {
    fn of(
        topic: Arc<str>,
        count: i32,
        racks: Vec<&'a Racks>,
        members: &[(&'a Arc<str>, &'a MemberSubscription)],
    ) -> Self {
        let consumers: Vec<_> = members
            .iter()
            .filter(|(_, member)| member.topics.contains(&topic))
            .map(|(id, member)| (*id, rack_of(member)))
            .collect();
        let of_members: BTreeSet<_> = consumers.iter().filter_map(|(_, rack)| *rack).collect();
        let racks = if of_members.is_empty() { Vec::new() } else { racks };
        let partitions = usize::try_from(count).unwrap_or(0);
        Self {
            racks_decide: racks_decide(&of_members, &racks),
            unassigned: (0..count).collect(),
            assigned: vec![0; consumers.len()],
            partitions_per_consumer: partitions / consumers.len(),
            consumers_with_extra_partition: partitions % consumers.len(),
            topic,
            consumers,
            racks,
        }
    }

    /// Whether the member has no rack, or a replica of the partition is there.
    fn racks_match(&self, consumer: usize, partition: i32) -> bool {
        let racks = usize::try_from(partition).ok().and_then(|at| self.racks.get(at));
        self.consumers[consumer]
            .1
            .is_none_or(|rack| racks.is_some_and(|racks| racks.contains(rack)))
    }

    /// How many partitions the member may get yet.
    fn max_assignable(&self, consumer: usize) -> usize {
        let most = self.partitions_per_consumer + usize::from(self.consumers_with_extra_partition > 0);
        most.saturating_sub(self.assigned[consumer])
    }

    fn assign(&mut self, consumer: usize, partitions: &[i32], assignment: &mut Assignment) {
        if let Some(list) = assignment.get_mut(self.consumers[consumer].0) {
            let of_topic = |&partition| TopicPartition {
                topic: Arc::clone(&self.topic),
                partition,
            };
            list.extend(partitions.iter().map(of_topic));
        }
        self.assigned[consumer] += partitions.len();
        if self.assigned[consumer] > self.partitions_per_consumer {
            self.consumers_with_extra_partition -= 1;
        }
        for partition in partitions {
            self.unassigned.remove(partition);
        }
    }

    /// Deals what is left in runs, of it what the members may have.
    fn assign_ranges(&mut self, may: impl Fn(&Self, usize, i32) -> bool, assignment: &mut Assignment) {
        for consumer in 0..self.consumers.len() {
            let left = self
                .unassigned
                .iter()
                .copied()
                .filter(|&partition| may(self, consumer, partition));
            let run: Vec<i32> = left.take(self.max_assignable(consumer)).collect();
            if !run.is_empty() {
                self.assign(consumer, &run, assignment);
            }
        }
    }
}

/// Deals what has replicas in the racks of members. Kafka: `RangeAssignor#assignWithRackMatching`.
fn assign_by_racks(states: &mut [TopicState<'_>], assignment: &mut Assignment) {
    let mut partners: BTreeMap<(Vec<&Arc<str>>, usize), Vec<usize>> = BTreeMap::new();
    for (at, state) in states
        .iter()
        .enumerate()
        .filter(|(_, state)| !state.unassigned.is_empty())
    {
        let ids = state.consumers.iter().map(|(id, _)| *id).collect();
        partners.entry((ids, state.racks.len())).or_default().push(at);
    }
    for ((_, partitions), partners) in partners {
        match partners[..] {
            [alone] if states[alone].racks_decide => {
                states[alone].assign_ranges(TopicState::racks_match, assignment);
            }
            [_] => {}
            _ => assign_partners_by_racks(states, &partners, partitions, assignment),
        }
    }
}

/// Topics with the same members and as many partitions: a member gets a partition of all of them if all match.
/// Kafka: `RangeAssignor#assignCoPartitionedWithRackMatching`.
fn assign_partners_by_racks(
    states: &mut [TopicState<'_>],
    partners: &[usize],
    partitions: usize,
    assignment: &mut Assignment,
) {
    for partition in (0..partitions).filter_map(|partition| i32::try_from(partition).ok()) {
        let may = |consumer: usize| {
            let of =
                |&at: &usize| states[at].racks_match(consumer, partition) && states[at].max_assignable(consumer) > 0;
            partners.iter().all(of)
        };
        let Some(consumer) = (0..states[partners[0]].consumers.len()).find(|&consumer| may(consumer)) else {
            continue;
        };
        for &at in partners {
            states[at].assign(consumer, &[partition], assignment);
        }
    }
}

/// The topics in the walk order of the HashMap `consumersPerTopic`. Only the order of the lists depends on it.
fn topics_in_hash_order(members: &Subscriptions) -> Vec<Arc<str>> {
    let mut names: Vec<&Arc<str>> = Vec::new();
    let mut seen = BTreeSet::new();
    for topic in members.values().flat_map(|m| &m.topics) {
        if seen.insert(topic) {
            names.push(topic);
        }
    }
    let hashes: Vec<i32> = names.iter().map(|name| string_hash(name)).collect();
    walk_order(&hashes, DEFAULT_CAPACITY)
        .into_iter()
        .map(|i| Arc::clone(names[i]))
        .collect()
}
