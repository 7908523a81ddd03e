//! The sticky assignor for the cooperative protocol (spec 8.6). Kafka: `CooperativeStickyAssignor`.

use std::collections::BTreeSet;
use std::sync::Arc;

use fletchlog_records::TopicPartition;

use super::owned::Owned;
use super::racks::PartitionRacks;
use super::sticky::all_subscriptions_equal;
use super::{Assignment, Subscriptions, TopicCounts, sticky};

/// The sticky assignment without the partitions that another member must give up first: that member revokes them and
/// rejoins, and the next rebalance assigns them to their new owner. So no partition ever has two owners. With equal
/// subscriptions, a partition that two members claim is withheld even from those two (measured 4.3.1).
pub fn cooperative_sticky(topics: &TopicCounts, racks: &PartitionRacks, members: &Subscriptions) -> Assignment {
    let mut assignment = sticky(topics, racks, members);
    // What Java looks at: with equal subscriptions the claims that count, else all.
    let (claims, contested) = if all_subscriptions_equal(members) {
        let owned = Owned::of(topics, members);
        (owned.by_member, owned.contested)
    } else {
        let all = members
            .iter()
            .map(|(id, member)| (Arc::clone(id), member.owned.clone()));
        (all.collect(), BTreeSet::new())
    };
    let empty = Vec::new();
    let mut revoked: BTreeSet<&TopicPartition> = BTreeSet::new();
    for (id, owned) in &claims {
        let assigned: BTreeSet<&TopicPartition> = assignment.get(id).unwrap_or(&empty).iter().collect();
        revoked.extend(owned.iter().filter(|tp| !assigned.contains(tp)));
    }
    for (id, list) in &mut assignment {
        let owned: BTreeSet<&TopicPartition> = claims.get(id).unwrap_or(&empty).iter().collect();
        list.retain(|tp| !contested.contains(tp) && (owned.contains(tp) || !revoked.contains(tp)));
    }
    assignment
}
