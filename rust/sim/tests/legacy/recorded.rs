//! Groups of real 0.8.2.2 consumers, replayed live.

use serde_json::Value;

use super::*;

fn number(value: &Value) -> i32 {
    i32::try_from(value.as_i64().unwrap()).unwrap()
}

fn owners_of(value: &Value) -> Owners {
    let threads = |v: &Value| {
        v.as_object()
            .unwrap()
            .iter()
            .map(|(p, t)| (p.parse().unwrap(), Arc::from(t.as_str().unwrap())))
            .collect()
    };
    value
        .as_object()
        .unwrap()
        .iter()
        .map(|(topic, v)| (Arc::from(topic.as_str()), threads(v)))
        .collect()
}

#[test]
fn every_recorded_group_owns_what_the_real_one_owned_before_and_after_a_member_left() {
    let path = format!("{}/../../tests/golden/legacy-groups.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let mut left = 0;
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let topics: Vec<(&str, i32)> = line["topics"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(t, n)| (t.as_str(), number(n)))
            .collect();
        let (broker, _clock) = virtual_broker(&topics);
        let group = line["group"].as_str().unwrap();
        let strategy = line["strategy"].as_str().unwrap();
        let mut running = Vec::new();
        for (consumer_id, streams) in line["members"].as_object().unwrap() {
            let id = consumer_id.strip_prefix(&format!("{group}_")).unwrap();
            let member = consumer(&broker, group, id, &[("partition.assignment.strategy", strategy)]);
            assert_eq!(member.consumer_id(), consumer_id);
            let counts: Vec<(&str, i32)> = streams
                .as_object()
                .unwrap()
                .iter()
                .map(|(t, n)| (t.as_str(), number(n)))
                .collect();
            let streams = member.create_message_streams(&counts).unwrap();
            running.push((member, streams));
        }
        let (last, _) = running.last().unwrap();
        assert_eq!(last.owners().unwrap(), owners_of(&line["owners"]), "{line}");
        for (_, streams) in &running {
            for stream in streams {
                let mine: Vec<i32> = owners_of(&line["owners"])[stream.topic()]
                    .iter()
                    .filter(|(_, t)| ***t == *stream.thread_id())
                    .map(|(p, _)| *p)
                    .collect();
                assert_eq!(
                    stream.assignment().iter().map(|tp| tp.partition).collect::<Vec<_>>(),
                    mine,
                    "{}",
                    stream.thread_id()
                );
            }
        }
        if let Some(gone) = line["left"].as_str() {
            running
                .iter()
                .find(|(member, _)| member.consumer_id() == gone)
                .unwrap()
                .0
                .shutdown()
                .unwrap();
            let (stays, _) = running.iter().find(|(member, _)| member.consumer_id() != gone).unwrap();
            assert_eq!(stays.owners().unwrap(), owners_of(&line["ownersAfter"]), "{line}");
            left += 1;
        }
    }
    assert!(left > 10);
}
