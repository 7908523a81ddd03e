//! The sticky assignor for the cooperative protocol (spec 8.6). Kafka: `CooperativeStickyAssignor`.

use std::collections::BTreeSet;

use fletchlog_records::TopicPartition;

use super::{Assignment, Subscriptions, TopicCounts, sticky};

/// The sticky assignment without the partitions that still have to be given up by another member: their owner revokes
/// them and rejoins, and the rebalance that follows hands them over. So no partition ever has two owners.
pub fn cooperative_sticky(topics: &TopicCounts, members: &Subscriptions) -> Assignment {
    let mut assignment = sticky(topics, members);
    let empty = Vec::new();
    let mut revoked: BTreeSet<TopicPartition> = BTreeSet::new();
    for (id, member) in members {
        let assigned: BTreeSet<&TopicPartition> = assignment.get(id).unwrap_or(&empty).iter().collect();
        revoked.extend(member.owned.iter().filter(|tp| !assigned.contains(tp)).cloned());
    }
    for (id, list) in &mut assignment {
        let owned: BTreeSet<&TopicPartition> = members.get(id).map(|m| m.owned.iter().collect()).unwrap_or_default();
        list.retain(|tp| owned.contains(tp) || !revoked.contains(tp));
    }
    assignment
}
