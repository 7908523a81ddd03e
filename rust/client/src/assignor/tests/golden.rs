//! What a real Kafka assigned.

use super::*;

fn lines(name: &str) -> Vec<Value> {
    let path = format!("{}/../../tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn counts(value: &Value) -> BTreeMap<Arc<str>, i32> {
    value
        .as_object()
        .unwrap()
        .iter()
        .map(|(t, n)| (t.as_str().into(), i32::try_from(n.as_i64().unwrap()).unwrap()))
        .collect()
}

fn subscriptions(line: &Value) -> Subscriptions {
    let mut members: Subscriptions = BTreeMap::new();
    for (id, topics) in line["members"].as_object().unwrap() {
        members.insert(
            id.as_str().into(),
            dynamic(topics.as_array().unwrap().iter().map(|t| t.as_str().unwrap())),
        );
    }
    for (id, instance) in line["static"].as_object().unwrap() {
        members.get_mut(id.as_str()).unwrap().group_instance_id = Some(instance.as_str().unwrap().into());
    }
    members
}

/// Topic -> partitions.
fn expected_topics(value: &Value) -> BTreeMap<Arc<str>, Vec<i32>> {
    let partitions = |v: &Value| {
        v.as_array()
            .unwrap()
            .iter()
            .map(|p| i32::try_from(p.as_i64().unwrap()).unwrap())
            .collect()
    };
    let topics = value.as_object().unwrap().iter();
    topics.map(|(t, ps)| (Arc::from(t.as_str()), partitions(ps))).collect()
}

fn expected(value: &Value) -> AssignmentByTopic {
    value
        .as_object()
        .unwrap()
        .iter()
        .map(|(id, v)| (Arc::from(id.as_str()), expected_topics(v)))
        .collect()
}

#[test]
fn range_and_round_robin_equal_every_recorded_group() {
    let lines = lines("assignors.jsonl");
    assert!(lines.len() >= 200);
    for line in &lines {
        let (topics, members) = (counts(&line["topics"]), subscriptions(line));
        assert_eq!(
            by_topic(&range(&topics, &NO_RACKS, &members)),
            expected(&line["range"]),
            "range: {line}"
        );
        assert_eq!(
            by_topic(&round_robin(&topics, &members)),
            expected(&line["roundrobin"]),
            "round robin: {line}"
        );
    }
}

#[test]
fn sticky_equals_recorded_groups_of_equal_subscriptions_and_is_valid_and_balanced_in_all() {
    let mut equal = 0;
    for line in lines("assignors.jsonl") {
        let (topics, members) = (counts(&line["topics"]), subscriptions(&line));
        let assignment = sticky(&topics, &NO_RACKS, &members);
        assert_valid(&topics, &members, &assignment);
        assert_balanced(&members, &assignment);
        let sets: BTreeSet<BTreeSet<&Arc<str>>> = members.values().map(|m| m.topics.iter().collect()).collect();
        if sets.len() == 1 {
            assert_eq!(by_topic(&assignment), expected(&line["sticky"]), "sticky: {line}");
            equal += 1;
        }
        assert_eq!(
            cooperative_sticky(&topics, &NO_RACKS, &members),
            assignment,
            "nothing was owned, so nothing is held back"
        );
    }
    assert!(equal > 100);
}

fn owners(value: &Value) -> BTreeMap<Arc<str>, BTreeMap<i32, Arc<str>>> {
    let threads = |v: &Value| {
        v.as_object()
            .unwrap()
            .iter()
            .map(|(p, thread)| (p.parse().unwrap(), thread.as_str().unwrap().into()))
            .collect()
    };
    value
        .as_object()
        .unwrap()
        .iter()
        .map(|(t, v)| (Arc::from(t.as_str()), threads(v)))
        .collect()
}

#[test]
fn legacy_assignors_equal_every_recorded_group_before_and_after_a_member_left() {
    for line in lines("legacy-groups.jsonl") {
        let topics = counts(&line["topics"]);
        let mut members: StreamCounts = line["members"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(id, topics)| (Arc::from(id.as_str()), counts(topics)))
            .collect();
        let assign = |members: &StreamCounts| -> LegacyAssignment {
            match line["strategy"].as_str().unwrap() {
                "roundrobin" => legacy_round_robin(&topics, members).unwrap(),
                _ => legacy_range(&topics, members).unwrap(),
            }
        };
        assert_eq!(owners_of(&assign(&members)), owners(&line["owners"]), "{line}");
        if let Some(left) = line["left"].as_str() {
            members.remove(left);
            assert_eq!(owners_of(&assign(&members)), owners(&line["ownersAfter"]), "{line}");
        }
    }
}

#[test]
fn range_and_sticky_equal_every_recorded_group_with_racks() {
    let lines = lines("assignors-racks.jsonl");
    assert!(lines.len() >= 100);
    let mut sticky_ones = 0;
    for line in &lines {
        let (topics, members) = (counts(&line["topics"]), placed_subscriptions(line));
        let of_partition = |racks: &Value| {
            racks
                .as_array()
                .unwrap()
                .iter()
                .map(|r| r.as_str().unwrap().into())
                .collect()
        };
        let of_topic = |partitions: &Value| partitions.as_array().unwrap().iter().map(of_partition).collect();
        let by_name = line["replica_racks"].as_object().unwrap().iter();
        let racks: PartitionRacks = by_name.map(|(topic, v)| (topic.as_str().into(), of_topic(v))).collect();
        let dealt = |assignor: Assignor| by_topic(&assignor.assign(&topics, &racks, &members));
        assert_eq!(dealt(Assignor::Range), expected(&line["range"]), "{line}");
        if line.get("sticky").is_some() {
            sticky_ones += 1;
            assert_eq!(dealt(Assignor::Sticky), expected(&line["sticky"]), "{line}");
            assert_eq!(
                dealt(Assignor::CooperativeSticky),
                expected(&line["cooperative-sticky"]),
                "{line}"
            );
        }
    }
    assert!(sticky_ones >= 50);
}

/// With racks and claims; members in the order in which they are recorded.
fn placed_subscriptions(line: &Value) -> Subscriptions {
    let mut members = subscriptions(line);
    for (id, member) in &mut members {
        let id = &**id;
        member.rack = line["racks"][id].as_str().map(Into::into);
        member.generation = line["generations"][id]
            .as_i64()
            .map(|generation| i32::try_from(generation).unwrap());
        let owned = line["owned"].get(id).map(expected_topics).unwrap_or_default();
        member.owned = owned
            .into_iter()
            .flat_map(|(topic, partitions)| {
                partitions
                    .into_iter()
                    .map(move |p| TopicPartition::new(Arc::clone(&topic), p))
            })
            .collect();
    }
    members
}
