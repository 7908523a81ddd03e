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

fn expected(value: &Value) -> AssignmentByTopic {
    let partitions = |v: &Value| {
        v.as_array()
            .unwrap()
            .iter()
            .map(|p| i32::try_from(p.as_i64().unwrap()).unwrap())
            .collect()
    };
    let of_member = |v: &Value| {
        v.as_object()
            .unwrap()
            .iter()
            .map(|(t, ps)| (Arc::from(t.as_str()), partitions(ps)))
            .collect()
    };
    value
        .as_object()
        .unwrap()
        .iter()
        .map(|(id, v)| (Arc::from(id.as_str()), of_member(v)))
        .collect()
}

#[test]
fn range_and_round_robin_equal_every_recorded_group() {
    let lines = lines("assignors.jsonl");
    assert!(lines.len() >= 200);
    for line in &lines {
        let (topics, members) = (counts(&line["topics"]), subscriptions(line));
        assert_eq!(
            by_topic(&range(&topics, &members)),
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
        let assignment = sticky(&topics, &members);
        assert_valid(&topics, &members, &assignment);
        assert_balanced(&members, &assignment);
        let sets: BTreeSet<BTreeSet<&Arc<str>>> = members.values().map(|m| m.topics.iter().collect()).collect();
        if sets.len() == 1 {
            assert_eq!(by_topic(&assignment), expected(&line["sticky"]), "sticky: {line}");
            equal += 1;
        }
        assert_eq!(
            cooperative_sticky(&topics, &members),
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
