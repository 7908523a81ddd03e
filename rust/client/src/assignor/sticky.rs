//! The sticky assignor (spec 8.6): balance first, then as few moves as possible. Kafka: `AbstractStickyAssignor`,
//! `StickyAssignor`.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use fletchlog_api::java_hash::{DEFAULT_CAPACITY, string_hash, walk_order};
use fletchlog_records::TopicPartition;

use super::general_sticky::general;
use super::owned::Owned;
use super::racks::{PartitionRacks, RackInfo, Racks};
use super::{Assignment, Subscriptions, TopicCounts, empty_assignment, java_compare, subscribed_partitions};

/// Assigns so that members keep what they own if possible: by the constrained algorithm if all subscriptions are equal,
/// else by the general one.
pub fn sticky(topics: &TopicCounts, racks: &PartitionRacks, members: &Subscriptions) -> Assignment {
    if all_subscriptions_equal(members) {
        constrained(topics, racks, members)
    } else {
        general(topics, racks, members)
    }
}

pub(super) fn all_subscriptions_equal(members: &Subscriptions) -> bool {
    let mut sets = members.values().map(|m| m.topics.iter().collect::<BTreeSet<_>>());
    let first = sets.next();
    sets.all(|set| Some(&set) == first.as_ref())
}

/// Members in the iteration order of Java's `HashMap`, which decides which members keep the larger number of partitions
/// (measured 4.3.1). Ids that share a bucket are in the order of the broker's response (measured 3.9.1).
fn in_hash_order(members: &Subscriptions) -> Vec<&Arc<str>> {
    let mut ids: Vec<&Arc<str>> = members.keys().collect();
    ids.sort_by(|a, b| {
        members[*a]
            .place
            .cmp(&members[*b].place)
            .then_with(|| java_compare(a, b))
    });
    let hashes: Vec<i32> = ids.iter().map(|id| string_hash(id)).collect();
    walk_order(&hashes, DEFAULT_CAPACITY)
        .into_iter()
        .filter_map(|i| ids.get(i).copied())
        .collect()
}

/// The algorithm for equal subscriptions. Every member ends with `minQuota` or `maxQuota` partitions, exactly `N mod M`
/// of them with the larger number (where the two differ). Where racks decide, members keep only what has a replica in their rack, and
/// get such partitions first. Kafka: `AbstractStickyAssignor.ConstrainedAssignmentBuilder`.
struct Constrained<'a> {
    racks: RackInfo<'a>,
    min_quota: usize,
    max_quota: usize,
    expected_over: usize,
    /// Members with more than `min_quota`.
    over: usize,
    under_min: Vec<&'a Arc<str>>,
    /// With exactly `min_quota`, as long as more may be had.
    at_min: Vec<&'a Arc<str>>,
    assignment: Assignment,
}

fn constrained(topics: &TopicCounts, racks: &PartitionRacks, members: &Subscriptions) -> Assignment {
    if members.is_empty() {
        return Assignment::new();
    }
    let all = subscribed_partitions(topics, members);
    let none = Racks::new();
    let mut builder = Constrained {
        racks: RackInfo::of(topics, racks, &none, members, &all),
        min_quota: all.len() / members.len(),
        max_quota: all.len().div_ceil(members.len()),
        expected_over: all.len() % members.len(),
        over: 0,
        under_min: Vec::new(),
        at_min: Vec::new(),
        assignment: empty_assignment(members),
    };
    let kept = builder.assign_owned(topics, members);
    for waiting in [&mut builder.under_min, &mut builder.at_min] {
        waiting.sort_by(|a, b| java_compare(a, b));
    }
    let mut unassigned: Vec<TopicPartition> = all.into_iter().filter(|tp| !kept.contains(tp)).collect();
    if builder.racks.decides() {
        unassigned.sort_by_key(|tp| builder.racks.members_near(tp));
        unassigned = builder.assign_near(unassigned);
    }
    builder.assign_round_robin(unassigned);
    builder.assignment
}

impl<'a> Constrained<'a> {
    /// Members keep what they own, up to their quota; returns what is kept.
    fn assign_owned(&mut self, topics: &TopicCounts, members: &'a Subscriptions) -> BTreeSet<TopicPartition> {
        let mut owned = Owned::of(topics, members).by_member;
        let mut kept = BTreeSet::new();
        for id in in_hash_order(members) {
            let mut list = owned.remove(id).unwrap_or_default();
            list.retain(|tp| !self.racks.mismatch(id, tp));
            list.sort_by(|a, b| {
                a.partition
                    .cmp(&b.partition)
                    .then_with(|| java_compare(&a.topic, &b.topic))
            });
            if list.len() < self.min_quota {
                self.under_min.push(id);
            } else if list.len() >= self.max_quota && self.over < self.expected_over {
                list.truncate(self.max_quota);
                self.count_one_over();
            } else {
                list.truncate(self.min_quota);
                self.wait_at_min(id);
            }
            kept.extend(list.iter().cloned());
            self.assignment.insert(Arc::clone(id), list);
        }
        kept
    }

    /// One more member has more than the minimum. Once as many have as can, no other gets one.
    fn count_one_over(&mut self) {
        self.over += 1;
        if self.over == self.expected_over {
            self.at_min.clear();
        }
    }

    fn wait_at_min(&mut self, id: &'a Arc<str>) {
        if self.over < self.expected_over {
            self.at_min.push(id);
        }
    }

    fn assign(&mut self, tp: TopicPartition, id: &Arc<str>) -> usize {
        self.assignment.get_mut(id).map_or(0, |list| {
            list.push(tp);
            list.len()
        })
    }

    /// In turn to members below the minimum in a rack of the partition, else to the first such member at the minimum. Returns what no
    /// member is near to.
    fn assign_near(&mut self, unassigned: Vec<TopicPartition>) -> Vec<TopicPartition> {
        let mut far = Vec::new();
        let mut next = 0;
        for tp in unassigned {
            if let Some(mut at) = self.racks.next_near(&tp, &self.under_min, next) {
                let id = self.under_min[at];
                if self.assign(tp, id) >= self.min_quota {
                    self.under_min.remove(at);
                    if self.max_quota > self.min_quota {
                        self.wait_at_min(id);
                    }
                } else {
                    at += 1;
                }
                next = at % self.under_min.len().max(1);
            } else if let Some(at) = self.racks.next_near(&tp, &self.at_min, 0) {
                let id = self.at_min.remove(at);
                self.assign(tp, id);
                self.count_one_over();
            } else {
                far.push(tp);
            }
        }
        far
    }

    /// Round robin over the members below the minimum; once all have it, the first members get one more.
    fn assign_round_robin(&mut self, unassigned: Vec<TopicPartition>) {
        let mut under_min = VecDeque::from(std::mem::take(&mut self.under_min));
        let mut at_min = VecDeque::from(std::mem::take(&mut self.at_min));
        for tp in unassigned {
            let Some(id) = under_min.pop_front().or_else(|| at_min.pop_front()) else {
                break;
            };
            let count = self.assign(tp, id);
            if count < self.min_quota {
                under_min.push_back(id);
            } else if count == self.min_quota {
                at_min.push_back(id);
            }
        }
    }
}
