//! The sticky assignor (spec 8.6): balance first, then as few moves as possible. Kafka: `AbstractStickyAssignor`,
//! `StickyAssignor`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use fletchlog_records::TopicPartition;

use super::general_sticky::general;
use super::{
    Assignment, MemberSubscription, Subscriptions, TopicCounts, empty_assignment, java_compare, subscribed_partitions,
};

/// Assigns with regard to what members own; equal subscriptions by the constrained algorithm, others by the general one.
pub fn sticky(topics: &TopicCounts, members: &Subscriptions) -> Assignment {
    if all_subscriptions_equal(members) {
        constrained(topics, members)
    } else {
        general(topics, members)
    }
}

fn all_subscriptions_equal(members: &Subscriptions) -> bool {
    let mut sets = members.values().map(|m| m.topics.iter().collect::<BTreeSet<_>>());
    let first = sets.next();
    sets.all(|set| Some(&set) == first.as_ref())
}

/// Which claim to a partition counts when members report several generations.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Claims {
    /// Only members of the highest generation own anything.
    OfHighestGeneration,
    /// Per partition, the claim of the highest generation.
    HighestPerPartition,
}

/// What each member owns, of partitions that exist and that it still subscribes to. A partition claimed twice in one
/// generation belongs to nobody (spec 8.6 step 1).
pub(super) fn owned_partitions(
    topics: &TopicCounts,
    members: &Subscriptions,
    claims: Claims,
) -> BTreeMap<Arc<str>, Vec<TopicPartition>> {
    let exists = |tp: &TopicPartition| {
        topics
            .get(&tp.topic)
            .is_some_and(|&count| (0..count).contains(&tp.partition))
    };
    let generation = |m: &MemberSubscription| m.generation.unwrap_or(-1);
    let highest = members.values().map(generation).max().unwrap_or(-1);
    // partition -> (highest generation that claims it, its claimants)
    let mut claimed: BTreeMap<&TopicPartition, (i32, BTreeSet<&Arc<str>>)> = BTreeMap::new();
    for (id, member) in members {
        let generation = generation(member);
        if claims == Claims::OfHighestGeneration && generation < highest {
            continue;
        }
        for tp in member
            .owned
            .iter()
            .filter(|tp| exists(tp) && member.topics.contains(&tp.topic))
        {
            let (best, claimants) = claimed.entry(tp).or_insert_with(|| (generation, BTreeSet::new()));
            if generation > *best {
                *best = generation;
                claimants.clear();
            }
            if generation == *best {
                claimants.insert(id);
            }
        }
    }
    let mut owned: BTreeMap<Arc<str>, Vec<TopicPartition>> =
        members.keys().map(|id| (Arc::clone(id), Vec::new())).collect();
    for (tp, (_, claimants)) in claimed {
        if let (1, Some(list)) = (claimants.len(), claimants.first().and_then(|id| owned.get_mut(*id))) {
            list.push(tp.clone());
        }
    }
    owned
}

/// Equal subscriptions. Every member ends with `minQuota` or `maxQuota` partitions, exactly `N mod M` of them with the
/// larger number (where the two differ).
fn constrained(topics: &TopicCounts, members: &Subscriptions) -> Assignment {
    let mut assignment = empty_assignment(members);
    if members.is_empty() {
        return assignment;
    }
    let all = subscribed_partitions(topics, members);
    let min_quota = all.len() / members.len();
    let max_quota = all.len().div_ceil(members.len());
    let expected_over = all.len() % members.len();

    let mut ids: Vec<&Arc<str>> = members.keys().collect();
    ids.sort_by(|a, b| java_compare(a, b));
    let mut owned = owned_partitions(topics, members, Claims::OfHighestGeneration);
    let mut over = 0;
    let mut under_min: VecDeque<&Arc<str>> = VecDeque::new();
    let mut at_min: VecDeque<&Arc<str>> = VecDeque::new();
    let mut kept: BTreeSet<TopicPartition> = BTreeSet::new();
    for id in ids {
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
    // Round robin over those below the minimum; when all have it, one more for the first members at the minimum.
    at_min.make_contiguous().sort_by(|a, b| java_compare(a, b));
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
