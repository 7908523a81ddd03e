//! The sticky assignor for the cooperative protocol (spec 8.6). Kafka: `CooperativeStickyAssignor`.

use std::collections::BTreeSet;

use fletchlog_records::TopicPartition;

use super::owned::Owned;
use super::sticky::all_subscriptions_equal;
use super::{Assignment, Subscriptions, TopicCounts, sticky};

/// The sticky assignment without the partitions that another member must give up first: that member revokes them and
/// rejoins, and the next rebalance assigns them to their new owner. So no partition ever has two owners. With equal
/// subscriptions, a partition that two members claim is withheld even from those two (measured 4.3.1).
pub fn cooperative_sticky(topics: &TopicCounts, members: &Subscriptions) -> Assignment {
    let mut assignment = sticky(topics, members);
    let empty = Vec::new();
    let mut revoked: BTreeSet<TopicPartition> = BTreeSet::new();
    for (id, member) in members {
        let assigned: BTreeSet<&TopicPartition> = assignment.get(id).unwrap_or(&empty).iter().collect();
        revoked.extend(member.owned.iter().filter(|tp| !assigned.contains(tp)).cloned());
    }
    let contested = if all_subscriptions_equal(members) {
        Owned::of(topics, members).contested
    } else {
        BTreeSet::new()
    };
    for (id, list) in &mut assignment {
        let owned: BTreeSet<&TopicPartition> = members.get(id).map(|m| m.owned.iter().collect()).unwrap_or_default();
        list.retain(|tp| !contested.contains(tp) && (owned.contains(tp) || !revoked.contains(tp)));
    }
    assignment
}
