//! The assignors of the coordinator: the targets that Kafka's own classes computed, step after step, and what holds for any group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fletchlog_api::TopicId;
use fletchlog_broker::{GroupSpec, MemberAssignment, MemberSubscription, ServerAssignor};
use proptest::prelude::*;
use serde_json::Value;

const RECORDED: &str = include_str!("../../../tests/golden/kip-848/assignors.jsonl");

fn topic_id(hex: &str) -> TopicId {
    u128::from_str_radix(hex, 16).unwrap().to_be_bytes()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn assignment_of(value: &Value) -> MemberAssignment {
    let numbers = |list: &Value| serde_json::from_value(list.clone()).unwrap();
    let topics = value.as_object().unwrap().iter();
    topics.map(|(id, list)| (topic_id(id), numbers(list))).collect()
}

fn group_of(step: &Value, before: &BTreeMap<Arc<str>, MemberAssignment>) -> GroupSpec {
    let partitions = |n: &Value| i32::try_from(n.as_i64().unwrap()).unwrap();
    let topics = step["topics"].as_object().unwrap().iter();
    let member = |m: &Value| MemberSubscription {
        member_id: text(&m["id"]).into(),
        instance_id: m.get("instance").map(|id| text(id).into()),
        topics: m["topics"]
            .as_array()
            .unwrap()
            .iter()
            .map(|id| topic_id(text(id)))
            .collect(),
        assigned: before.get(text(&m["id"])).cloned().unwrap_or_default(),
    };
    GroupSpec {
        topics: topics.map(|(id, n)| (topic_id(id), partitions(n))).collect(),
        members: step["members"].as_array().unwrap().iter().map(member).collect(),
    }
}

#[test]
fn targets_are_those_of_kafkas_own_assignors() {
    let mut targets = 0;
    for line in RECORDED.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let assignor = match text(&case["assignor"]) {
            "range" => ServerAssignor::Range,
            _ => ServerAssignor::Uniform,
        };
        let mut before = BTreeMap::new();
        for (i, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            let target = &step["target"];
            let assigned = assignor.assign(&group_of(step, &before));
            targets += 1;
            if target.get("error").is_some() {
                assert!(assigned.is_err(), "{} step {i}", case["id"]);
                continue;
            }
            let of_member = |(id, topics): (&String, &Value)| (Arc::from(id.as_str()), assignment_of(topics));
            let expected = target.as_object().unwrap().iter().map(of_member).collect();
            assert_eq!(assigned, Ok(expected), "{} {} step {i}", case["id"], case["title"]);
            before = assigned.unwrap();
        }
    }
    assert_eq!(targets, 331);
}

/// A group that is assigned, changes, and is assigned again: topics come and go, members too.
fn steps() -> impl Strategy<Value = Vec<GroupSpec>> {
    let topics = prop::collection::btree_map(0_u8..6, 0_i32..40, 1..6);
    let member = (
        "[a-f]{1,2}",
        prop::option::of("[x-z]"),
        prop::collection::btree_set(0_u8..6, 0..6),
    );
    let step = (topics, prop::collection::vec(member, 1..8)).prop_map(|(topics, members)| {
        let id = |n: u8| -> TopicId {
            u128::from(n + 1)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
                .to_be_bytes()
        };
        let mut seen = BTreeSet::new();
        let members = members.into_iter().filter(|(member, ..)| seen.insert(member.clone()));
        let members = members.map(|(member, instance, subscribed)| MemberSubscription {
            instance_id: instance.map(|instance| format!("{instance}-{member}").into()),
            member_id: member.into(),
            topics: subscribed
                .into_iter()
                .filter(|n| topics.contains_key(n))
                .map(id)
                .collect(),
            assigned: MemberAssignment::new(),
        });
        GroupSpec {
            members: members.collect(),
            topics: topics.iter().map(|(n, partitions)| (id(*n), *partitions)).collect(),
        }
    });
    prop::collection::vec(step, 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_partition_has_one_subscriber_and_nobody_else_has_it(steps in steps(), is_range in any::<bool>()) {
        let assignor = if is_range { ServerAssignor::Range } else { ServerAssignor::Uniform };
        let mut before = BTreeMap::new();
        for mut group in steps {
            for member in &mut group.members {
                member.assigned = before.get(&member.member_id).cloned().unwrap_or_default();
            }
            let assigned = assignor.assign(&group).unwrap();
            prop_assert_eq!(assigned.len(), group.members.len());
            let mut owned = BTreeSet::new();
            for member in &group.members {
                for (topic, partitions) in &assigned[&member.member_id] {
                    prop_assert!(member.topics.contains(topic));
                    prop_assert!(partitions.is_sorted() && !partitions.is_empty());
                    for partition in partitions {
                        prop_assert!(owned.insert((*topic, *partition)), "{partition} has two owners");
                    }
                }
            }
            let wanted: BTreeSet<TopicId> = group.members.iter().flat_map(|m| m.topics.iter().copied()).collect();
            let all = wanted.iter().map(|topic| usize::try_from(group.topics[topic]).unwrap()).sum::<usize>();
            prop_assert_eq!(owned.len(), all);
            let is_same = group.members.iter().all(|m| m.topics.len() == wanted.len());
            if is_same && !is_range {
                let loads = assigned.values().map(|topics| topics.values().map(Vec::len).sum::<usize>());
                let (least, most) = (loads.clone().min().unwrap_or(0), loads.max().unwrap_or(0));
                prop_assert!(most - least <= 1, "{least} and {most}");
            }
            before = assigned;
        }
    }
}
