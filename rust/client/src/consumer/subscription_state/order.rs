//! The order of assigned partitions (spec 7.2): that of the hash tables that they pass through in Java.
//! Kafka: `SubscriptionState`, `PartitionStates#set`.

use std::sync::Arc;

use fletchlog_api::java_hash;
use fletchlog_records::TopicPartition;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::consumer::decision_table::SubscribeOrder;

/// The order after assign() of `given` partitions, repetitions included; `distinct` has each once.
pub(super) fn of_user(given: usize, distinct: &[TopicPartition]) -> Vec<TopicPartition> {
    // HashSet(collection) is sized by the collection, repetitions included.
    let set = java_hash::hash_map_order(distinct, java_hash::hash_set_capacity(given));
    by_topic(java_hash::hash_map_order(&set, java_hash::DEFAULT_CAPACITY))
}

/// The order of what a group assigned to a consumer that subscribed to these topics. `None`: the partitions are in the order of the response
/// that assigned them.
pub(super) fn of_group(
    order: SubscribeOrder,
    topics: Option<&[Arc<str>]>,
    partitions: &[TopicPartition],
) -> Vec<TopicPartition> {
    let given = distinct(partitions);
    let mut list = given.clone();
    list.sort();
    let capacity = java_hash::table_size_for(list.len());
    match order {
        SubscribeOrder::Sorted => list,
        SubscribeOrder::SortedThenMap => by_topic(java_hash::hash_map_order(&list, capacity)),
        SubscribeOrder::HashSetThenMap => {
            let list = topics.map_or(given, |topics| as_deserialized(topics, &list));
            by_topic(java_hash::hash_map_order(&java_hash::hash_set_order(&list), capacity))
        }
    }
}

/// The hash table that explains an assignment order: its size, and the bucket of each partition. `subscribed`: how a
/// group's assignment is ordered; `None` after assign(). Returns `None` if no table decides the order, or the table
/// does not lead to it.
pub fn table_behind(assigned: &[TopicPartition], subscribed: Option<SubscribeOrder>) -> Option<(usize, Vec<usize>)> {
    let capacity = match subscribed {
        None => java_hash::DEFAULT_CAPACITY,
        Some(SubscribeOrder::Sorted) => return None,
        Some(_) => java_hash::table_size_for(assigned.len()),
    };
    let hashes: Vec<i32> = assigned.iter().map(java_hash::topic_partition_hash).collect();
    let size = java_hash::table_size(&hashes, capacity);
    let buckets: Vec<usize> = hashes.iter().map(|hash| java_hash::bucket(*hash, size)).collect();
    let mut walked: Vec<_> = assigned.iter().cloned().zip(&buckets).collect();
    walked.sort_by_key(|(_, bucket)| **bucket);
    let walked = by_topic(walked.into_iter().map(|(tp, _)| tp).collect());
    (walked == assigned).then_some((size, buckets))
}

/// Kafka's list L: topics in the order that two hash tables over the subscribed names give them, partitions ascending.
fn as_deserialized(topics: &[Arc<str>], sorted: &[TopicPartition]) -> Vec<TopicPartition> {
    let mut names = topics.to_vec();
    for tp in sorted {
        if !names.contains(&tp.topic) {
            names.push(tp.topic.clone());
        }
    }
    let walk = |names: &[Arc<str>], capacity: usize| -> Vec<Arc<str>> {
        let hashes: Vec<i32> = names.iter().map(|n| java_hash::string_hash(n)).collect();
        java_hash::walk_order(&hashes, capacity)
            .into_iter()
            .map(|i| names[i].clone())
            .collect()
    };
    let names = walk(&names, java_hash::hash_set_capacity(names.len()));
    let names = walk(&names, java_hash::DEFAULT_CAPACITY);
    names
        .iter()
        .flat_map(|name| sorted.iter().filter(move |tp| tp.topic == *name).cloned())
        .collect()
}

/// Groups partitions by topic, in the order in which the topics appear. Kafka: `PartitionStates#set`.
fn by_topic(walked: Vec<TopicPartition>) -> Vec<TopicPartition> {
    let mut groups: Vec<Vec<TopicPartition>> = Vec::new();
    let mut group_of: FxHashMap<Arc<str>, usize> = FxHashMap::default();
    for tp in walked {
        let group = *group_of.entry(tp.topic.clone()).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group].push(tp);
    }
    groups.into_iter().flatten().collect()
}

/// Each item once, at its first place.
pub(super) fn distinct<T: Clone + std::hash::Hash + Eq>(items: &[T]) -> Vec<T> {
    let mut seen = FxHashSet::default();
    items
        .iter()
        .filter(|item| seen.insert((*item).clone()))
        .cloned()
        .collect()
}
