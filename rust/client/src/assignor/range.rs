//! The range assignor of consumer groups (spec 8.4, without racks). Kafka: `RangeAssignor`.

use std::sync::Arc;

use fletchlog_api::java_hash::{DEFAULT_CAPACITY, string_hash, walk_order};

use super::{Assignment, Subscriptions, TopicCounts, empty_assignment, partitions_of, sorted_members};

/// Deals each topic for itself: the first `partitions mod members` of its members get one more than the others, all in
/// consecutive runs.
pub fn range(topics: &TopicCounts, members: &Subscriptions) -> Assignment {
    let mut assignment = empty_assignment(members);
    let sorted = sorted_members(members);
    for topic in topics_in_hash_order(members) {
        let partitions: Vec<_> = partitions_of(topics, &topic).collect();
        let consumers: Vec<_> = sorted
            .iter()
            .filter(|(_, m)| m.topics.contains(&topic))
            .map(|(id, _)| *id)
            .collect();
        let n_partitions_per_consumer = partitions.len() / consumers.len();
        let consumers_with_extra_partition = partitions.len() % consumers.len();
        for (i, member) in consumers.into_iter().enumerate() {
            let start = n_partitions_per_consumer * i + i.min(consumers_with_extra_partition);
            let length = n_partitions_per_consumer + usize::from(i < consumers_with_extra_partition);
            if let Some(list) = assignment.get_mut(member) {
                list.extend_from_slice(&partitions[start..start + length]);
            }
        }
    }
    assignment
}

/// The topics in the walk order of the HashMap `consumersPerTopic`. Only the order of the lists depends on it.
fn topics_in_hash_order(members: &Subscriptions) -> Vec<Arc<str>> {
    let mut names: Vec<&Arc<str>> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
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
