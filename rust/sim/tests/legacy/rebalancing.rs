//! Joining, leaving, crashing, waiting, warning.

use std::sync::Mutex;

use fletchlog_api::{ErrorCode, InProcess, LegacyGroupAction, LegacyGroupRequest};

use super::*;

/// Collects warnings, by thread of this test process.
struct Warnings;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl log::Log for Warnings {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        if record.level() == log::Level::Warn {
            LINES.lock().unwrap().push(record.args().to_string());
        }
    }
    fn flush(&self) {}
}

fn warnings_of(consumer_id: &str) -> Vec<String> {
    let mut mine: Vec<String> = LINES
        .lock()
        .unwrap()
        .iter()
        .filter(|line| line.contains(consumer_id))
        .cloned()
        .collect();
    mine.sort();
    mine
}

#[test]
fn three_machines_of_six_threads_on_six_partitions_leave_two_idle_and_each_warns_for_its_own_threads_once_per_rebalance()
 {
    let _ = log::set_logger(&Warnings);
    log::set_max_level(log::LevelFilter::Warn);
    let (broker, _clock) = virtual_broker(&[("my-topic", 6)]);
    let machines = ["w-adfc", "w-bdfc", "w-cdfc"].map(|id| consumer(&broker, "my-topic-group", id, &[]));
    let mut streams: Vec<Vec<LegacyStream>> = machines
        .iter()
        .map(|m| m.create_message_streams(&[("my-topic", 6)]).unwrap())
        .collect();
    let owners = machines[1].owners().unwrap();
    for partition in 0..6 {
        assert_eq!(
            thread_of(&owners, "my-topic", partition),
            format!("my-topic-group_w-adfc-{partition}")
        );
    }
    assert!(warnings_of("w-adfc").is_empty());
    // c joined last, so it took part in one rebalance; b, which joined before it, in two.
    let expected: Vec<String> = (0..6)
        .map(|i| {
            format!("No broker partitions consumed by consumer thread my-topic-group_w-cdfc-{i} for topic my-topic")
        })
        .collect();
    assert_eq!(warnings_of("w-cdfc"), expected);
    assert_eq!(warnings_of("w-bdfc").len(), 12);
    for stream in streams.iter_mut().flatten() {
        poll(stream).unwrap();
    }
    assert_eq!(
        warnings_of("w-bdfc").len(),
        12,
        "a poll without a rebalance warns nobody"
    );
    // The machine that worked leaves: the next one in string order takes all six.
    machines[0].shutdown().unwrap();
    let owners = machines[2].owners().unwrap();
    assert_eq!(thread_of(&owners, "my-topic", 0), "my-topic-group_w-bdfc-0");
    assert_eq!(
        partitions_of(&streams[1]).values().cloned().collect::<Vec<_>>(),
        (0..6).map(|p| vec![p]).collect::<Vec<_>>()
    );
    assert_eq!(warnings_of("w-cdfc").len(), 12);
    assert!(matches!(poll(&mut streams[0][0]), Err(ClientError::Closed(_))));
}

#[test]
fn a_member_that_vanishes_keeps_its_partitions_until_its_session_expires() {
    let (broker, clock) = virtual_broker(&[("t", 2)]);
    let a = consumer(&broker, "g-vanish", "a", &[]);
    let b = consumer(&broker, "g-vanish", "b", &[]);
    let a_streams = a.create_message_streams(&[("t", 1)]).unwrap();
    let mut b_streams = b.create_message_streams(&[("t", 1)]).unwrap();
    clock.advance(60_000);
    assert_eq!(
        thread_of(&b.owners().unwrap(), "t", 0),
        "g-vanish_a-0",
        "a lives although it does not poll"
    );
    drop((a, a_streams));
    clock.advance(5_999);
    poll(&mut b_streams[0]).unwrap();
    assert_eq!(thread_of(&b.owners().unwrap(), "t", 0), "g-vanish_a-0");
    clock.advance(1);
    poll(&mut b_streams[0]).unwrap();
    assert_eq!(b_streams[0].assignment().len(), 2);
}

/// Stands for a consumer in another process: it answers no watch.
struct Elsewhere {
    transport: LocalTransport,
}

impl Elsewhere {
    fn step(&mut self, action: LegacyGroupAction) -> fletchlog_api::LegacyGroupResponse {
        let request = LegacyGroupRequest {
            group_id: "g-else".into(),
            consumer_id: "g-else_0".into(),
            action,
        };
        self.transport.legacy_group(&request).unwrap()
    }
}

#[test]
fn a_rebalance_waits_for_the_old_owner_fails_after_its_retries_and_still_succeeds_later() {
    let (broker, clock) = virtual_broker(&[("t", 2)]);
    let mut elsewhere = Elsewhere {
        transport: LocalTransport::new(Arc::clone(&broker)),
    };
    let joined = elsewhere.step(LegacyGroupAction::Register {
        session_timeout_ms: 6000,
        streams: vec![("t".into(), 1)],
    });
    let both = (0..2)
        .map(|p| (TopicPartition::new("t", p), Arc::from("g-else_0-0")))
        .collect();
    elsewhere.step(LegacyGroupAction::Claim {
        generation: joined.generation,
        owners: both,
    });
    let b = consumer(&broker, "g-else", "b", &[]);
    let mut streams = b.create_message_streams(&[("t", 1)]).unwrap();
    for _ in 0..4 {
        assert_eq!(poll(&mut streams[0]).unwrap().count(), 0);
        assert!(streams[0].assignment().is_empty(), "two owners");
        clock.advance(2000);
    }
    match poll(&mut streams[0]) {
        Err(ClientError::Kafka {
            code: ErrorCode::REBALANCE_IN_PROGRESS,
            message,
        }) => {
            assert!(
                message.contains("can't rebalance after 4 retries") && message.contains("t-1 by g-else_0-0"),
                "{message}"
            );
        }
        other => panic!("{other:?}"),
    }
    elsewhere.step(LegacyGroupAction::Release);
    poll(&mut streams[0]).unwrap();
    assert_eq!(partitions_of(&streams)["g-else_b-0"], [1]);
}

#[test]
fn new_partitions_and_new_topics_are_shared_out() {
    let (broker, _clock) = virtual_broker(&[]);
    let a = consumer(&broker, "g-new", "a", &[]);
    let mut streams = a.create_message_streams(&[("late", 2)]).unwrap();
    assert!(a.owners().unwrap().is_empty());
    broker.create_topic("late", 3, &[]).unwrap();
    produce(&broker, "late", 2, 5);
    let got = drain(&mut streams);
    assert_eq!(
        partitions_of(&streams),
        BTreeMap::from([("g-new_a-0".into(), vec![0, 1]), ("g-new_a-1".into(), vec![2])])
    );
    assert_eq!(
        got[&("g-new_a-1".to_owned(), TopicPartition::new("late", 2))],
        [0, 1, 2, 3, 4]
    );
}

#[test]
fn misuse_is_answered_with_what_to_do() {
    let (broker, _clock) = virtual_broker(&[("t", 2)]);
    let a = consumer(&broker, "g-misuse", "a", &[]);
    assert!(matches!(a.owners(), Err(ClientError::IllegalState(_))));
    assert!(matches!(
        a.create_message_streams(&[("t", 0)]),
        Err(ClientError::IllegalArgument(_))
    ));
    assert!(matches!(
        a.create_message_streams(&[("t", 1), ("t", 1)]),
        Err(ClientError::IllegalArgument(_))
    ));
    a.create_message_streams(&[("t", 1)]).unwrap();
    assert!(matches!(
        a.create_message_streams(&[("t", 1)]),
        Err(ClientError::IllegalState(_))
    ));
    let same = consumer(&broker, "g-misuse", "a", &[]);
    match same.create_message_streams(&[("t", 1)]) {
        Err(ClientError::Kafka {
            code: ErrorCode::UNRELEASED_INSTANCE_ID,
            message,
        }) => assert!(message.contains("g-misuse_a"), "{message}"),
        other => panic!("{other:?}"),
    }
    a.shutdown().unwrap();
    a.shutdown().unwrap();
    assert!(a.is_closed() && matches!(a.owners(), Err(ClientError::Closed(_))));
    same.create_message_streams(&[("t", 1)]).unwrap();
    let no_group = Config::parse(Scope::LegacyConsumer, []).unwrap();
    let transports = Box::new(move || Box::new(LocalTransport::new(Arc::clone(&broker))) as Box<dyn Transport>);
    let clock = VirtualClock::at(0);
    assert!(matches!(
        LegacyConsumer::new(no_group, transports, clock),
        Err(ClientError::InvalidGroupId(_))
    ));
}

#[test]
fn round_robin_refuses_unequal_threads_and_names_the_topics() {
    let (broker, _clock) = virtual_broker(&[("x", 2), ("y", 2)]);
    let a = consumer(&broker, "g-rr", "a", &[("partition.assignment.strategy", "roundrobin")]);
    let mut streams = a.create_message_streams(&[("x", 1), ("y", 2)]).unwrap();
    let error = poll(&mut streams[0]).unwrap_err().to_string();
    assert!(error.contains("same number of streams"), "{error}");
}
