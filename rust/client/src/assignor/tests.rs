//! Tests of all assignors: the recorded results of real Kafkas, the vectors of the specification, and properties.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fletchlog_records::TopicPartition;
use serde_json::Value;

use super::legacy_range::{LegacyAssignment, StreamCounts, WarnAbout};
use super::*;

mod golden;
mod properties;
mod vectors;

const NO_RACKS: PartitionRacks = PartitionRacks::new();

fn topics(counts: &[(&str, i32)]) -> TopicCounts {
    counts.iter().map(|&(topic, n)| (topic.into(), n)).collect()
}

/// A dynamic member that owns nothing.
fn dynamic(topics: impl IntoIterator<Item = impl Into<Arc<str>>>) -> MemberSubscription {
    MemberSubscription {
        topics: topics.into_iter().map(Into::into).collect(),
        ..MemberSubscription::default()
    }
}

/// Three of the ids share a bucket of Java's `HashMap`: the one that the broker names first keeps its third partition.
#[test]
fn of_ids_in_one_bucket_the_one_named_first_keeps_more() {
    let ids = [
        "m1-ef034521-d529-424b-a7f0-f4c30119a6ef",
        "m4-c4b8bc5f-e085-4016-a995-9e4ac1ee7966",
        "m5-cfc7735b-9072-4c38-a0cc-195d64c2208f",
        "m7-cf44a5bc-139c-4e7a-8432-268462bb7199",
        "m8-aad571dd-5c5b-4ac1-95eb-a60adb9706a9",
    ];
    let topics = BTreeMap::from([(Arc::from("a"), 12)]);
    // Members 0, 1 and 2 share a bucket; all but the last own three partitions.
    for (named, keeps) in [([0, 1, 2, 3, 4], 0), ([3, 4, 1, 0, 2], 1), ([2, 1, 0, 3, 4], 2)] {
        let member = |index: usize| {
            let first = 3 * i32::try_from(index).unwrap();
            let owned = if index < 4 { first..first + 3 } else { 0..0 };
            let subscription = MemberSubscription {
                owned: owned.map(|p| TopicPartition::new("a", p)).collect(),
                generation: Some(7),
                place: named.iter().position(|&at| at == index).unwrap(),
                ..dynamic(["a"])
            };
            (Arc::from(ids[index]), subscription)
        };
        let assigned = sticky(&topics, &NO_RACKS, &(0..5).map(member).collect());
        let sizes = ids.map(|id| assigned[id].len());
        for index in 0..3 {
            assert_eq!(sizes[index] == 3, index == keeps, "named {named:?}: {sizes:?}");
        }
        assert_eq!(sizes[3..], [3, 2]);
    }
}

#[test]
fn members_with_other_subscriptions_get_what_is_in_their_rack_too() {
    let racks: PartitionRacks = [("a", [["r1"], ["r2"], ["r1"], ["r2"]])]
        .map(|(topic, racks)| (topic.into(), racks.map(|r| r.map(Arc::from).into()).into()))
        .into();
    let counts = topics(&[("a", 4), ("b", 1)]);
    let mut group = members(&[("m1", &["a", "b"]), ("m2", &["a"])]);
    for (id, rack) in [("m1", "r1"), ("m2", "r2")] {
        group.get_mut(id).unwrap().rack = Some(rack.into());
    }
    let near = ["a-0 a-2 b-0", "a-1 a-3"];
    assert_eq!(shown(&sticky(&counts, &racks, &group)), near);
    let far = owning(group, &[("m1", "a-1", 1), ("m2", "a-0 a-2 a-3", 1)]);
    assert_eq!(shown(&sticky(&counts, &racks, &far)), near, "what is far is given up");
}

/// Topic -> partition -> owning thread: what the owner registry holds after a rebalance.
fn owners_of(assignment: &LegacyAssignment) -> BTreeMap<Arc<str>, BTreeMap<i32, Arc<str>>> {
    let mut owners: BTreeMap<Arc<str>, BTreeMap<i32, Arc<str>>> = BTreeMap::new();
    for (thread, topics) in &assignment.threads {
        for (topic, partitions) in topics {
            let of_topic = owners.entry(Arc::clone(topic)).or_default();
            of_topic.extend(partitions.iter().map(|&partition| (partition, Arc::clone(thread))));
        }
    }
    owners
}

fn members(subscriptions: &[(&str, &[&str])]) -> Subscriptions {
    subscriptions
        .iter()
        .map(|&(id, topics)| (id.into(), dynamic(topics.iter().copied())))
        .collect()
}

fn tps(text: &str) -> Vec<TopicPartition> {
    text.split_whitespace()
        .map(|tp| {
            let (topic, partition) = tp.rsplit_once('-').unwrap();
            TopicPartition::new(topic, partition.parse().unwrap())
        })
        .collect()
}

fn owning(mut members: Subscriptions, owned: &[(&str, &str, i32)]) -> Subscriptions {
    for &(id, partitions, generation) in owned {
        let member = members.get_mut(id).unwrap();
        member.owned = tps(partitions);
        member.generation = Some(generation);
    }
    members
}

/// "t1-0 t1-1" for each member, sorted.
fn shown(assignment: &Assignment) -> Vec<String> {
    assignment
        .values()
        .map(|list| {
            let mut list = list.clone();
            list.sort();
            list.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        })
        .collect()
}

fn streams(members: &[(&str, &[(&str, i32)])]) -> StreamCounts {
    members
        .iter()
        .map(|&(id, counts)| (id.into(), counts.iter().map(|&(t, n)| (t.into(), n)).collect()))
        .collect()
}

/// Every partition of a subscribed topic exactly once, and only to subscribers.
fn assert_valid(counts: &TopicCounts, members: &Subscriptions, assignment: &Assignment) {
    let mut given = BTreeSet::new();
    for (id, list) in assignment {
        for tp in list {
            assert!(
                members[id].topics.contains(&tp.topic),
                "{id} does not subscribe to {tp}"
            );
            assert!(given.insert(tp.clone()), "{tp} has two owners");
        }
    }
    let wanted: BTreeSet<_> = subscribed_partitions(counts, members).into_iter().collect();
    assert_eq!(given, wanted);
    assert_eq!(
        assignment.keys().collect::<Vec<_>>(),
        members.keys().collect::<Vec<_>>()
    );
}

/// No partition could go to a subscriber that has at least two fewer.
fn assert_balanced(members: &Subscriptions, assignment: &Assignment) {
    for list in assignment.values() {
        for tp in list {
            for (to, member) in members {
                let better = member.topics.contains(&tp.topic) && assignment[to].len() + 1 < list.len();
                assert!(!better, "{tp} could move to {to}");
            }
        }
    }
}
