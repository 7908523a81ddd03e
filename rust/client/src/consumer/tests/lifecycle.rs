//! Spec 11.11 (KafkaConsumerTest), 7.12: positions, seeking, lookups, commits, waking up, misuse.

use fletchlog_api::{Clock, ErrorCode, OffsetAndMetadata};

use super::fake_broker::{FakeBroker, Net};
use super::*;
use crate::ClientError;

fn five() -> FakeBroker {
    FakeBroker::default().with("A", 0, 1, 5)
}

fn committed(offset: i64) -> OffsetAndMetadata {
    OffsetAndMetadata {
        offset,
        leader_epoch: -1,
        metadata: "".into(),
    }
}

fn assigned(broker: &FakeBroker, properties: &[(&str, &str)]) -> Consumer {
    let mut c = consumer(broker, properties);
    c.assign(&[tp("A")]).unwrap();
    c
}

fn position(c: &mut Consumer, of: &str) -> i64 {
    c.position(&tp(of), 1000, &mut || false).unwrap()
}

#[test]
fn policy_none_without_a_committed_offset_is_an_error_of_poll() {
    for properties in [
        &[("auto.offset.reset", "none")][..],
        &[("auto.offset.reset", "none"), ("group.id", "g")],
    ] {
        let broker = five();
        let mut c = assigned(&broker, properties);
        match c.poll(1000, &mut || false) {
            Err(ClientError::NoOffsetForPartition(missing)) => assert_eq!(missing, [tp("A")]),
            other => panic!("{other:?}"),
        }
        c.seek(&tp("A"), 2).unwrap();
        assert_eq!(offsets(&poll(&mut c)), [2, 3, 4]);
    }
}

#[test]
fn a_committed_offset_is_the_first_position() {
    let broker = five();
    broker.state().committed.insert(tp("A"), committed(3));
    let mut c = assigned(&broker, &[("group.id", "g"), ("auto.offset.reset", "none")]);
    assert_eq!(position(&mut c, "A"), 3);
    assert_eq!(offsets(&poll(&mut c)), [3, 4]);
    assert!(!broker.take_net().iter().any(|n| matches!(n, Net::ListOffsets(_))));
}

#[test]
fn without_a_commit_the_policy_decides() {
    for (policy, expected) in [("latest", 5), ("earliest", 0)] {
        let broker = five();
        let mut c = assigned(&broker, &[("group.id", "g"), ("auto.offset.reset", policy)]);
        assert_eq!(position(&mut c, "A"), expected);
    }
}

#[test]
fn after_a_seek_nothing_is_looked_up() {
    let broker = five();
    let mut c = assigned(&broker, &[("group.id", "g")]);
    c.seek(&tp("A"), 20).unwrap();
    assert_eq!(position(&mut c, "A"), 20);
    assert!(broker.take_net().is_empty());
}

#[test]
fn a_lookup_that_fails_for_one_partition_does_not_hold_up_another() {
    let broker = five().with("B", 0, 1, 3);
    broker.log("B", |log| {
        log.lookup_errors.push_back(ErrorCode::NOT_LEADER_OR_FOLLOWER)
    });
    let mut c = consumer(&broker, &[]);
    c.assign(&[tp("A"), tp("B")]).unwrap();
    assert_eq!(token(&poll(&mut c)), "A5");
    broker.clock.advance(100);
    assert_eq!(token(&poll(&mut c)), "B3");
}

#[test]
fn the_timer_commits_what_earlier_polls_returned_and_nothing_that_is_only_buffered() {
    let broker = five();
    let mut c = assigned(
        &broker,
        &[
            ("group.id", "g"),
            ("enable.auto.commit", "true"),
            ("auto.commit.interval.ms", "1000"),
        ],
    );
    let commits = |broker: &FakeBroker| -> Vec<i64> {
        broker
            .take_net()
            .into_iter()
            .filter_map(|n| if let Net::Commit(o) = n { Some(o[0].1) } else { None })
            .collect()
    };
    c.seek(&tp("A"), 0).unwrap();
    assert_eq!(c.poll(0, &mut || false).unwrap().count(), 0, "no metadata yet");
    assert!(commits(&broker).is_empty());
    broker.clock.advance(1000);
    assert_eq!(poll(&mut c).count(), 5);
    broker.clock.advance(1000);
    assert_eq!(poll(&mut c).count(), 0);
    let seen = commits(&broker);
    assert_eq!(
        (seen[0], *seen.last().unwrap()),
        (0, 5),
        "the first commit was due before the five records were returned"
    );
}

#[test]
fn assign_runs_the_commit_timer_and_close_commits() {
    let broker = five().with("B", 0, 1, 3);
    let mut c = assigned(&broker, &[("group.id", "g"), ("enable.auto.commit", "true")]);
    assert_eq!(poll(&mut c).count(), 5);
    broker.clock.advance(5000);
    c.assign(&[tp("B")]).unwrap();
    assert_eq!(token(&poll(&mut c)), "B3");
    c.close(1000, &mut || false).unwrap();
    let state = broker.state();
    assert_eq!(
        (state.committed[&tp("A")].offset, state.committed[&tp("B")].offset),
        (5, 3)
    );
}

#[test]
fn a_wakeup_leaves_the_next_poll_and_keeps_the_data() {
    let broker = five();
    let mut c = assigned(&broker, &[]);
    c.wakeup_handle().wake();
    assert!(matches!(c.poll(1000, &mut || false), Err(ClientError::Wakeup)));
    assert_eq!(position(&mut c, "A"), 0);
    assert_eq!(poll(&mut c).count(), 5);
    c.wakeup_handle().wake();
    assert!(matches!(c.poll(1000, &mut || false), Err(ClientError::Wakeup)));
    assert_eq!(poll(&mut c).count(), 0);
}

#[test]
fn an_interrupt_ends_the_wait_within_a_slice_and_nothing_has_moved() {
    let broker = five();
    let mut c = assigned(
        &broker,
        &[("auto.offset.reset", "latest"), ("fetch.max.wait.ms", "500000")],
    );
    assert_eq!(poll(&mut c).count(), 0);
    let before = broker.clock.monotonic_ms();
    let mut asked = 0;
    let outcome = c.poll(100_000, &mut || {
        asked += 1;
        asked == 3
    });
    assert!(matches!(outcome, Err(ClientError::Interrupted)));
    assert_eq!(broker.clock.monotonic_ms() - before, 150);
    assert_eq!(position(&mut c, "A"), 5);
    assert!(matches!(
        c.position(&tp("B"), 0, &mut || false),
        Err(ClientError::IllegalState(_))
    ));
}

#[test]
fn an_empty_poll_waits_for_its_timeout_and_no_longer() {
    let broker = five();
    let mut c = assigned(&broker, &[("auto.offset.reset", "latest")]);
    let before = broker.clock.monotonic_ms();
    assert_eq!(c.poll(300, &mut || false).unwrap().count(), 0);
    assert_eq!(broker.clock.monotonic_ms() - before, 300);
}

#[test]
fn seeks_to_the_ends_are_lazy_and_mean_the_end_at_the_time_of_the_lookup() {
    let broker = five();
    let mut c = assigned(&broker, &[]);
    assert_eq!(poll(&mut c).count(), 5);
    c.seek_to_end(&[]).unwrap();
    broker.log("A", |log| log.append(&super::fake_broker::batch(2)));
    assert_eq!(poll(&mut c).count(), 0);
    assert_eq!(position(&mut c, "A"), 7);
    c.seek_to_beginning(&[tp("A")]).unwrap();
    assert_eq!(position(&mut c, "A"), 0);
}

#[test]
fn lookups_by_time_and_of_the_ends_move_nothing() {
    let broker = five().with("Other", 0, 2, 4);
    let mut c = assigned(&broker, &[]);
    c.seek(&tp("A"), 2).unwrap();
    let other = tp("Other");
    assert_eq!(
        c.end_offsets(&[other.clone(), tp("A")], 1000, &mut || false).unwrap(),
        [(other.clone(), 8), (tp("A"), 5)]
    );
    assert_eq!(
        c.beginning_offsets(std::slice::from_ref(&other), 1000, &mut || false)
            .unwrap(),
        [(other.clone(), 0)]
    );
    let found = c
        .offsets_for_times(&[(other.clone(), 5), (tp("A"), 1_700_000_000_001)], 1000, &mut || false)
        .unwrap();
    assert_eq!(found[0].1.map(|f| f.offset), Some(0));
    assert_eq!(found[1], (tp("A"), None));
    assert_eq!(position(&mut c, "A"), 2);
    assert_eq!(offsets(&poll(&mut c)), [2, 3, 4]);
    match c.end_offsets(&[tp("Missing")], 500, &mut || false) {
        Err(ClientError::Timeout(text)) => assert!(text.contains("Missing-0")),
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        c.offsets_for_times(&[(tp("A"), -1)], 500, &mut || false),
        Err(ClientError::IllegalArgument(_))
    ));
}

#[test]
fn commits_and_committed_offsets_go_through_the_group() {
    let broker = five().with("B", 0, 1, 3);
    let mut c = assigned(&broker, &[("group.id", "g")]);
    assert_eq!(poll(&mut c).count(), 5);
    c.commit(None, 1000, &mut || false).unwrap();
    c.commit(Some(&[(tp("B"), committed(2))]), 1000, &mut || false).unwrap();
    let found = c.committed(&[tp("A"), tp("B"), tp("C")], 1000, &mut || false).unwrap();
    assert_eq!(
        found
            .iter()
            .map(|(_, o)| o.as_ref().map(|o| o.offset))
            .collect::<Vec<_>>(),
        [Some(5), Some(2), None]
    );
    assert!(matches!(
        c.commit(Some(&[(tp("B"), committed(-2))]), 1000, &mut || false),
        Err(ClientError::IllegalArgument(_))
    ));
}

#[test]
fn calls_that_need_a_group_say_so() {
    let broker = five();
    let mut c = assigned(&broker, &[]);
    for outcome in [
        c.commit(None, 10, &mut || false),
        c.committed(&[tp("A")], 10, &mut || false).map(|_| ()),
        c.subscribe(&["A".into()]),
    ] {
        assert!(matches!(outcome, Err(ClientError::InvalidGroupId(_))));
    }
}

#[test]
fn misuse_is_refused_and_leaves_everything_as_it_was() {
    let broker = five();
    let mut c = consumer(&broker, &[]);
    assert!(matches!(c.poll(10, &mut || false), Err(ClientError::IllegalState(_))));
    assert!(matches!(c.assign(&[tp("")]), Err(ClientError::IllegalArgument(_))));
    assert!(matches!(
        c.assign(&[TopicPartition::new("A", -1)]),
        Err(ClientError::IllegalArgument(_))
    ));
    c.assign(&[tp("A")]).unwrap();
    assert!(matches!(
        c.poll(-1, &mut || false),
        Err(ClientError::IllegalArgument(_))
    ));
    assert!(matches!(c.seek(&tp("A"), -1), Err(ClientError::IllegalArgument(_))));
    assert!(matches!(c.seek(&tp("B"), 1), Err(ClientError::IllegalState(_))));
    assert!(matches!(
        c.pause(&[tp("A"), tp("B")]),
        Err(ClientError::IllegalState(_))
    ));
    assert!(matches!(
        c.seek_to_end(&[tp("A"), tp("B")]),
        Err(ClientError::IllegalState(_))
    ));
    assert!(c.paused().is_empty());
    assert_eq!(position(&mut c, "A"), 0);
    assert_eq!(poll(&mut c).count(), 5);
    c.pause(&[tp("A")]).unwrap();
    c.assign(&[]).unwrap();
    assert!(c.paused().is_empty() && c.assignment().is_empty());
    assert!(matches!(c.poll(10, &mut || false), Err(ClientError::IllegalState(_))));
    c.close(10, &mut || false).unwrap();
    c.close(10, &mut || false).unwrap();
    assert!(matches!(c.poll(10, &mut || false), Err(ClientError::Closed(_))));
}

#[test]
fn contradictory_properties_are_refused() {
    let broker = five();
    for given in [
        &[("group.id", "g"), ("heartbeat.interval.ms", "10000")][..],
        &[("group.id", "")],
    ] {
        let config = Config::parse(Scope::Consumer, given.iter().copied()).unwrap();
        assert!(matches!(
            Consumer::new(config, broker.transport(), Arc::clone(&broker.clock) as _),
            Err(ClientError::Config(_))
        ));
    }
    // Warned about only: a configuration of another client (`api::other_clients`).
    assert!(Config::parse(Scope::Consumer, [("key.deserializer", "x")]).is_ok());
    assert!(Config::parse(Scope::Consumer, [("interceptor.classes", "x")]).is_err());
    assert!(
        Config::parse(
            Scope::Consumer,
            [(
                "partition.assignment.strategy",
                "range,org.apache.kafka.clients.consumer.StickyAssignor"
            )]
        )
        .is_ok()
    );
}

#[test]
fn the_lag_is_the_end_last_heard_minus_the_position() {
    let broker = five();
    let mut c = assigned(&broker, &[("max.poll.records", "2")]);
    assert_eq!(poll(&mut c).count(), 2);
    assert_eq!(c.end_offset_lag(), std::collections::BTreeMap::from([(tp("A"), 3)]));
}

#[test]
fn partitions_are_fetched_from_the_node_that_leads_them() {
    let broker = ["A", "B", "C"]
        .iter()
        .fold(FakeBroker::default(), |b, t| b.with(t, 0, 2, 3));
    broker
        .state()
        .leaders
        .extend([(tp("A"), 1), (tp("B"), 2), (tp("C"), 1)]);
    let mut c = consumer(&broker, &[]);
    c.assign(&abc()).unwrap();
    let total: usize = (0..4).map(|_| poll(&mut c).count()).sum();
    assert_eq!(total, 18);
    let full: Vec<Vec<String>> = broker
        .take_net()
        .iter()
        .filter_map(|n| match n {
            Net::Fetch { full: true, listed, .. } => Some(listed.iter().map(|(t, _)| t.to_string()).collect()),
            _ => None,
        })
        .collect();
    assert_eq!(full, [vec!["A-0", "C-0"], vec!["B-0"]]);
}

#[test]
fn a_topic_that_appears_later_is_found_by_asking_again() {
    let broker = FakeBroker::default();
    let mut c = assigned(&broker, &[]);
    assert_eq!(c.poll(250, &mut || false).unwrap().count(), 0);
    assert_eq!(
        broker.take_net().iter().filter(|n| **n == Net::Metadata).count(),
        3,
        "at once, then every retry.backoff.ms"
    );
    let broker = broker.with("A", 0, 1, 5);
    assert_eq!(poll(&mut c).count(), 5);
    drop(broker);
}

#[test]
fn a_lookup_goes_out_while_another_is_under_way_and_asks_only_for_what_is_not_asked_yet() {
    let broker = ["A", "B", "C"]
        .iter()
        .fold(FakeBroker::default(), |b, t| b.with(t, 0, 1, 5));
    let mut c = consumer(&broker, &[("max.poll.records", "2")]);
    c.assign(&abc()).unwrap();
    assert_eq!(token(&poll(&mut c)), "A2");
    broker.take_net();
    // Answers are read only by a poll that finds nothing buffered, so the first lookup stays under way.
    c.seek_to_end(&[tp("B")]).unwrap();
    assert_eq!(token(&poll(&mut c)), "A2");
    c.seek_to_end(&[tp("C")]).unwrap();
    assert_eq!(token(&poll(&mut c)), "A1");
    let lookups = |broker: &FakeBroker| -> Vec<Vec<String>> {
        let net = broker.take_net();
        let list = net
            .into_iter()
            .filter_map(|n| if let Net::ListOffsets(l) = n { Some(l) } else { None });
        list.map(|l| l.iter().map(|(tp, _)| tp.to_string()).collect()).collect()
    };
    assert_eq!(lookups(&broker), [["B-0"], ["C-0"]]);
    assert_eq!(poll(&mut c).count(), 0);
    assert_eq!(lookups(&broker), [] as [Vec<String>; 0]);
    assert_eq!([position(&mut c, "B"), position(&mut c, "C")], [5, 5]);
}

#[test]
fn a_lookup_of_committed_offsets_outlives_unsubscribe_but_not_another_set_of_partitions() {
    let lookups = |broker: &FakeBroker| broker.take_net().iter().filter(|n| **n == Net::OffsetFetch).count();
    let broker = five().with("B", 0, 1, 5);
    let mut c = assigned(&broker, &[("group.id", "g")]);
    assert_eq!(poll(&mut c).count(), 5);
    assert_eq!(lookups(&broker), 1);
    // A poll that does not wait leaves its lookup under way.
    let mut asked_by_a_poll_of = |partitions: &[TopicPartition]| {
        c.unsubscribe().unwrap();
        c.assign(partitions).unwrap();
        assert_eq!(c.poll(0, &mut || false).unwrap().count(), 0);
        lookups(&broker)
    };
    assert_eq!(asked_by_a_poll_of(&[tp("A"), tp("B")]), 1);
    assert_eq!(
        asked_by_a_poll_of(&[tp("B"), tp("A")]),
        0,
        "the answer to the first serves"
    );
    assert_eq!(asked_by_a_poll_of(&[tp("A")]), 1);
    assert_eq!(
        asked_by_a_poll_of(&[tp("B")]),
        1,
        "the answer to the first is of no use"
    );
}

/// What the trace says of errors: where, and why.
fn errors(c: &Consumer) -> Vec<String> {
    let errors = c.trace().iter().filter(|event| event.kind == TraceKind::Error);
    errors.map(|event| event.text.to_string()).collect()
}

#[test]
fn a_topic_and_a_partition_that_are_missing_are_reported_once_each_time_they_go_missing() {
    let broker = five();
    let mut c = consumer(
        &broker,
        &[
            ("fletchlog.trace", "true"),
            ("allow.auto.create.topics", "false"),
            ("metadata.max.age.ms", "100"),
        ],
    );
    c.assign(&[tp("A"), TopicPartition::new("A", 7), tp("gone")]).unwrap();
    let no_topic = "there is no topic gone: polls return nothing of it";
    let no_partition = "there is no partition 7, topic A has 1 partition: polls return nothing of it";
    for _ in 0..5 {
        poll(&mut c);
    }
    assert_eq!(errors(&c), [no_topic, no_partition]);
    c.assign(&[tp("A")]).unwrap();
    poll(&mut c);
    c.assign(&[tp("A"), tp("gone")]).unwrap();
    poll(&mut c);
    assert_eq!(errors(&c), [no_topic, no_partition, no_topic]);
    broker.clone().with("gone", 0, 1, 1);
    let found = (0..20).find(|_| poll(&mut c).count() > 0);
    assert!(found.is_some(), "the topic is read once it is there");
    assert_eq!(errors(&c).len(), 3);
}
