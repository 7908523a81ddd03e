//! The uniform assignor where subscriptions differ. Kafka: `UniformHeterogeneousAssignmentBuilder`.
//!
//! Members keep what they have and still subscribe to. Partitions of nobody go to the least loaded subscriber. Then partitions are moved,
//! topic by topic, from the most to the least loaded subscriber, until their loads differ by one at most; a member's load is the number of
//! all its partitions. Ties are decided as Kafka decides them.

use std::cmp::Ordering;

use rustc_hash::FxHashMap;

use super::{Assigned, GroupSpec, Topics, uuid_order, walk_of_members};

/// How often all topics are balanced at most. Kafka: `MAX_ITERATION_COUNT`.
const MAX_ROUNDS: usize = 16;

pub(super) fn assign(group: &GroupSpec, topics: &Topics) -> Assigned {
    let order = walk_of_members(group);
    let mut place = vec![0; order.len()];
    order.iter().enumerate().for_each(|(i, &member)| place[member] = i);
    // From here on a member is its place in the walk order.
    let subscribers: Vec<Vec<usize>> = topics
        .subscribers
        .iter()
        .map(|members| members.iter().map(|&member| place[member]).collect())
        .collect();
    let mut balancer = Balancer::of(group, topics, &place);
    let topic_order = order_of_topics(topics, &subscribers);
    for &topic in &topic_order {
        balancer.assign_free(topic, &subscribers[topic]);
    }
    balancer.balance_all(&topic_order, &subscribers);
    let mut assigned = vec![Vec::new(); group.members.len()];
    for (topic, owners) in balancer.owners.iter().enumerate() {
        for (partition, owner) in (0..).zip(owners) {
            let Some(owner) = *owner else { continue };
            let of_member: &mut Vec<(usize, Vec<i32>)> = &mut assigned[order[owner]];
            match of_member.last_mut() {
                Some((last, partitions)) if *last == topic => partitions.push(partition),
                _ => of_member.push((topic, vec![partition])),
            }
        }
    }
    assigned
}

/// The topics that have subscribers: those with many partitions a subscriber first, then those with few subscribers, then by id.
fn order_of_topics(topics: &Topics, subscribers: &[Vec<usize>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..topics.ids.len())
        .filter(|&topic| !subscribers[topic].is_empty())
        .collect();
    #[allow(clippy::cast_precision_loss, reason = "as in Java")]
    let load = |topic: usize| f64::from(topics.partitions[topic]) / subscribers[topic].len() as f64;
    let compare = |&a: &usize, &b: &usize| -> Ordering {
        let by_load = load(b).total_cmp(&load(a));
        let by_subscribers = || subscribers[a].len().cmp(&subscribers[b].len());
        let by_id = || uuid_order(&topics.ids[a]).cmp(&uuid_order(&topics.ids[b]));
        by_load.then_with(by_subscribers).then_with(by_id)
    };
    order.sort_by(compare);
    order
}

/// Who has what, while it is balanced.
struct Balancer {
    /// The owner of each partition of each topic.
    owners: Vec<Vec<Option<usize>>>,
    /// How many partitions each member has.
    loads: Vec<i64>,
}

impl Balancer {
    /// The present target, without what its owners no longer subscribe to.
    fn of(group: &GroupSpec, topics: &Topics, place: &[usize]) -> Self {
        let partitions = topics.partitions.iter();
        let mut owners: Vec<Vec<Option<usize>>> = partitions
            .map(|&n| vec![None; usize::try_from(n).unwrap_or(0)])
            .collect();
        let mut loads = vec![0; group.members.len()];
        for (i, member) in group.members.iter().enumerate() {
            for (topic, partitions) in topics.assigned(member) {
                if topics.subscribed[i].binary_search(&topic).is_err() {
                    continue;
                }
                for &partition in partitions {
                    let at = usize::try_from(partition).unwrap_or(usize::MAX);
                    if let Some(owner) = owners[topic].get_mut(at) {
                        *owner = Some(place[i]);
                        loads[place[i]] += 1;
                    }
                }
            }
        }
        Self { owners, loads }
    }

    fn give(&mut self, topic: usize, partition: usize, member: usize) {
        if let Some(before) = self.owners[topic][partition].replace(member) {
            self.loads[before] -= 1;
        }
        self.loads[member] += 1;
    }

    /// Kafka: `unassignedPartitions`, `assignRemainingPartitions`.
    fn assign_free(&mut self, topic: usize, subscribers: &[usize]) {
        let mut range = MemberRanges::of(subscribers, &self.loads);
        for partition in 0..self.owners[topic].len() {
            if self.owners[topic][partition].is_none() {
                let member = range.least_loaded(&self.loads);
                self.give(topic, partition, member);
            }
        }
    }

    /// Kafka: `balance`.
    fn balance_all(&mut self, topic_order: &[usize], subscribers: &[Vec<usize>]) {
        // The topic at which something was moved last: a whole round without a move ends there.
        let mut last_moved = None;
        for _ in 0..MAX_ROUNDS {
            for &topic in topic_order.iter().filter(|&&topic| subscribers[topic].len() >= 2) {
                if last_moved == Some(topic) {
                    return;
                }
                let moved = self.balance_topic(topic, &subscribers[topic]);
                if moved || last_moved.is_none() {
                    last_moved = Some(topic);
                }
            }
        }
    }

    /// Moves partitions of one topic; returns whether there was anything to move. Kafka: `balanceTopic`.
    fn balance_topic(&mut self, topic: usize, subscribers: &[usize]) -> bool {
        let mut range = MemberRanges::of(subscribers, &self.loads);
        if range.spread(&self.loads) <= 1 {
            return false;
        }
        // Of each subscriber its partitions, ascending: the last one is moved first.
        let mut partitions: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        for (partition, owner) in self.owners[topic].iter().enumerate() {
            if let Some(owner) = *owner {
                partitions.entry(owner).or_default().push(partition);
            }
        }
        let mut moved = false;
        while range.most_level - range.least_level > 1 {
            let has_some = |member: usize| partitions.get(&member).is_some_and(|p| !p.is_empty());
            let Some(from) = range.most_loaded(&self.loads, has_some) else {
                break;
            };
            let partition = partitions.get_mut(&from).and_then(Vec::pop);
            let to = range.least_loaded(&self.loads);
            if range.most_level - range.least_level <= 1 {
                break;
            }
            if let Some(partition) = partition {
                self.give(topic, partition, to);
                moved = true;
            }
        }
        moved
    }
}

/// The subscribers of a topic by their load when this was made. Its first members are raised level by level, its last ones lowered. Kafka:
/// `AssignmentManager`'s ranges of least and most loaded members.
struct MemberRanges {
    members: Vec<usize>,
    /// `members[..least_end]` have `least_level` partitions or will have them.
    least_end: usize,
    least_level: i64,
    next_least: usize,
    /// `members[most_start..most_end]` are lowered to `most_level`.
    most_start: usize,
    most_end: usize,
    most_level: i64,
    /// One behind the next of them, from the end.
    next_most: usize,
}

impl MemberRanges {
    fn of(subscribers: &[usize], loads: &[i64]) -> Self {
        let mut members = subscribers.to_vec();
        members.sort_unstable_by_key(|&member| (loads[member], member));
        let load = |member: Option<&usize>| member.map_or(0, |&member| loads[member]);
        Self {
            least_end: 0,
            least_level: load(members.first()) - 1,
            next_least: 0,
            most_start: members.len(),
            most_end: members.len(),
            most_level: load(members.last()) + 1,
            next_most: members.len(),
            members,
        }
    }

    /// How far the loads are apart.
    fn spread(&self, loads: &[i64]) -> i64 {
        match (self.members.first(), self.members.last()) {
            (Some(&first), Some(&last)) => loads[last] - loads[first],
            _ => 0,
        }
    }

    /// The next member that gets a partition.
    fn least_loaded(&mut self, loads: &[i64]) -> usize {
        if self.next_least >= self.least_end {
            self.least_level += 1;
            while self.least_end < self.members.len() && loads[self.members[self.least_end]] == self.least_level {
                self.least_end += 1;
            }
            self.next_least = 0;
        }
        self.next_least += 1;
        self.members[self.next_least - 1]
    }

    /// The next member that gives a partition of the topic away; one that has none to give leaves the range.
    fn most_loaded(&mut self, loads: &[i64], has_some: impl Fn(usize) -> bool) -> Option<usize> {
        loop {
            if self.next_most <= self.most_start {
                if self.most_end <= self.most_start && self.most_start > 0 {
                    self.most_level = loads[self.members[self.most_start - 1]];
                } else {
                    self.most_level -= 1;
                }
                while self.most_start > 0 && loads[self.members[self.most_start - 1]] == self.most_level {
                    self.most_start -= 1;
                }
                self.next_most = self.most_end;
            }
            self.next_most = self.next_most.checked_sub(1)?;
            let member = self.members[self.next_most];
            if has_some(member) {
                return Some(member);
            }
            self.members.swap(self.next_most, self.most_end - 1);
            self.most_end -= 1;
        }
    }
}
