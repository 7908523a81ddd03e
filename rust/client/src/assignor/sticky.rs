//! The sticky assignor (spec 8.6): balance first, then as few moves as possible. Kafka: `AbstractStickyAssignor`,
//! `StickyAssignor`.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use fletchlog_api::java_hash::{DEFAULT_CAPACITY, string_hash, walk_order};
use fletchlog_records::TopicPartition;

use super::general_sticky::general;
use super::owned::Owned;
use super::{Assignment, Subscriptions, TopicCounts, empty_assignment, java_compare, subscribed_partitions};

/// Assigns so that members keep what they own if possible: by the constrained algorithm if all subscriptions are equal,
/// else by the general one.
pub fn sticky(topics: &TopicCounts, members: &Subscriptions) -> Assignment {
    if all_subscriptions_equal(members) {
        constrained(topics, members)
    } else {
        general(topics, members)
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
/// of them with the larger number (where the two differ).
fn constrained(topics: &TopicCounts, members: &Subscriptions) -> Assignment {
    let mut assignment = empty_assignment(members);
    if members.is_empty() {
        return assignment;
    }
    let all = subscribed_partitions(topics, members);
    let min_quota = all.len() / members.len();
    let max_quota = all.len().div_ceil(members.len());
    let expected_over = all.len() % members.len();

    let mut owned = Owned::of(topics, members).by_member;
    let mut over = 0;
    let mut under_min: VecDeque<&Arc<str>> = VecDeque::new();
    let mut at_min: VecDeque<&Arc<str>> = VecDeque::new();
    let mut kept: BTreeSet<TopicPartition> = BTreeSet::new();
    for id in in_hash_order(members) {
        let mut list = owned.remove(id).unwrap_or_default();
        list.sort_by(|a, b| {
            a.partition
                .cmp(&b.partition)
                .then_with(|| java_compare(&a.topic, &b.topic))
        });
        if list.len() < min_quota {
            under_min.push_back(id);
        } else if list.len() >= max_quota && over < expected_over {
            over += 1;
            list.truncate(max_quota);
        } else {
            list.truncate(min_quota);
            at_min.push_back(id);
        }
        kept.extend(list.iter().cloned());
        assignment.insert(Arc::clone(id), list);
    }
    // Round robin over the members below the minimum; once all have it, the first members get one more.
    for waiting in [&mut under_min, &mut at_min] {
        waiting.make_contiguous().sort_by(|a, b| java_compare(a, b));
    }
    for tp in all.into_iter().filter(|tp| !kept.contains(tp)) {
        let Some(id) = under_min.pop_front().or_else(|| at_min.pop_front()) else {
            break;
        };
        let Some(list) = assignment.get_mut(id) else { break };
        list.push(tp);
        if list.len() < min_quota {
            under_min.push_back(id);
        } else if list.len() == min_quota {
            at_min.push_back(id);
        }
    }
    assignment
}
