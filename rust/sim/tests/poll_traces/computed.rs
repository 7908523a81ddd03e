//! Traces that are stated (T6 of spec 7.9, and spec 7.12) but whose recordings are not among the files here, against the real broker.

use super::replay::{Outcome, replay};
use super::scenario::{Batches, Partition, Scenario, Step, Topic, array, size, text};
use fletchlog_records::TopicPartition;

fn topic(name: &str, batches: Vec<Batches>) -> Topic {
    let end: usize = batches.iter().map(|b| b.repeat * b.count).sum();
    let partition = Partition {
        segments: vec![0],
        batches,
        end: i64::try_from(end).unwrap(),
        log_start: 0,
    };
    Topic {
        name: name.to_owned(),
        config: Vec::new(),
        partitions: vec![partition],
    }
}

fn plain(repeat: usize, count: usize, size: usize) -> Batches {
    Batches {
        repeat,
        count,
        size,
        codec: "none".to_owned(),
        kind: None,
    }
}

fn scenario(group: bool, client: &[(&str, &str)], steps: Vec<Step>, topics: Vec<Topic>) -> Scenario {
    let client = client.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Scenario {
        tags: Vec::new(),
        group,
        client,
        steps,
        topics,
        poll_timeout_ms: 1000,
        settle_cap_ms: 2000,
    }
}

/// Topic and count of every run, polls joined: what one partition gave in a row.
fn runs(outcome: &Outcome) -> Vec<(String, usize)> {
    let mut runs: Vec<(String, usize)> = Vec::new();
    for row in outcome.polls.iter().flat_map(|p| array(&p.got)) {
        let (topic, count) = (text(&row[0]), size(&row[4]));
        match runs.last_mut().filter(|(t, _)| *t == topic) {
            Some((_, sum)) => *sum += count,
            None => runs.push((topic, count)),
        }
    }
    runs
}

/// Three topics of 1,000,000 ten-byte values in full producer batches, default settings.
fn seed_000(group: bool, properties: &[(&str, &str)]) -> Outcome {
    let topics = ["TopicA", "TopicB", "TopicC"];
    let steps = vec![
        if group {
            Step::Subscribe(topics.map(str::to_owned).to_vec())
        } else {
            Step::Assign(topics.map(|t| TopicPartition::new(t, 0)).to_vec())
        },
        Step::Poll(10_000, Some(3_000_000)),
    ];
    let topics = topics
        .map(|t| topic(t, vec![plain(1098, 910, 16_377), plain(1, 820, 14_757)]))
        .into();
    replay(&scenario(group, &[], steps, topics), properties)
}

#[test]
fn a_million_records_of_each_of_three_topics_come_in_runs_of_58240_in_every_release() {
    for (group, version, order, polls) in [
        (false, "2.6", "CBA", 6010),
        (false, "3.9", "CBA", 6010),
        (false, "4.3", "CBA", 6010),
        (true, "2.6", "ACB", 6000),
        (true, "3.9", "CBA", 6000),
        (true, "4.3", "ABC", 6010),
    ] {
        let outcome = seed_000(group, &[("fletchlog.consumer.version", version)]);
        let got = runs(&outcome);
        // Inside one poll a for-each prints hash order: C, B, A. A round that ends and begins in one poll still has full runs.
        let expected: Vec<(String, usize)> = [58_240; 17]
            .into_iter()
            .chain([9920])
            .flat_map(|n| order.chars().map(move |t| (format!("Topic{t}"), n)))
            .collect();
        assert_eq!(outcome.total, 3_000_000, "{version} group={group}");
        assert_eq!(outcome.polls.len(), polls, "{version} group={group}");
        if order == "CBA" && polls == 6010 {
            assert_eq!(got, expected, "{version} group={group}");
        }
        let first: Vec<usize> = outcome
            .polls
            .iter()
            .flat_map(|p| array(&p.got))
            .filter(|r| text(&r[0]) == format!("Topic{}", &order[..1]))
            .map(|r| size(&r[4]))
            .collect();
        assert_eq!(first.iter().sum::<usize>(), 1_000_000);
        assert_eq!(first[..117].iter().sum::<usize>(), 58_240, "{version} group={group}");
    }
}

#[test]
fn a_changed_subscription_of_an_eager_member_starts_again_where_the_group_committed() {
    let names = |list: &[&str]| list.iter().map(|&t| t.to_owned()).collect();
    let steps = vec![
        Step::Subscribe(names(&["A"])),
        Step::Poll(2, None),
        Step::Subscribe(names(&["A", "B"])),
        Step::Poll(4, None),
    ];
    let topics = vec![topic("A", vec![plain(10, 7, 180)]), topic("B", vec![plain(10, 7, 180)])];
    let outcome = replay(
        &scenario(
            true,
            &[("max.poll.records", "7"), ("max.partition.fetch.bytes", "180")],
            steps,
            topics,
        ),
        &[],
    );
    let rows: Vec<(String, i64)> = outcome
        .polls
        .iter()
        .flat_map(|p| array(&p.got))
        .map(|r| (text(&r[0]), r[2].as_i64().unwrap()))
        .collect();
    assert_eq!(rows[..2], [("A".to_owned(), 0), ("A".to_owned(), 7)]);
    let after: Vec<i64> = rows[2..]
        .iter()
        .filter(|(t, _)| t == "A")
        .map(|(_, first)| *first)
        .collect();
    assert_eq!(after[0], 0, "nothing was committed: {rows:?}");
    assert!(rows.iter().any(|(t, _)| t == "B"), "{rows:?}");
}
