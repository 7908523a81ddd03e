//! A clock that is set ahead: what is due happens at its deadline, in the order of deadlines, before `advance` returns.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fletchlog_api::*;
use fletchlog_broker::{Broker, BrokerError, LocalTransport, Outcome, Port};
use fletchlog_protocol::messages::ShareGroupHeartbeatRequest;

use crate::common::*;

/// A broker whose clock is frozen, and what has happened: a name, and ms since the start.
struct World {
    broker: Arc<Broker>,
    clock: Arc<SettableClock>,
    start_ms: i64,
    happened: Arc<Mutex<Vec<(&'static str, i64)>>>,
}

impl World {
    fn new(config: &[(&str, &str)]) -> Self {
        let clock = Arc::new(SettableClock::default());
        let broker = Broker::in_memory(options(None, false, config), clock.clone()).unwrap();
        broker.create_topic("t", 1, &[]).unwrap();
        clock.freeze();
        Self {
            broker,
            start_ms: clock.monotonic_ms(),
            clock,
            happened: Arc::default(),
        }
    }

    fn connect(&self) -> Port {
        self.broker.connect(1, "/10.0.0.7")
    }

    /// Sends a request that waits; its response is noted under a name.
    fn wait_for(&self, name: &'static str, request: Request) {
        let Outcome::Later(ticket) = self.connect().handle(request) else {
            panic!("{name} does not wait")
        };
        let (clock, start_ms, happened) = (self.clock.clone(), self.start_ms, self.happened.clone());
        ticket.on_ready(move |_| happened.lock().unwrap().push((name, clock.monotonic_ms() - start_ms)));
    }

    fn advance(&self, ms: i64) {
        self.broker.advance(ms, &mut || false).unwrap();
    }

    fn passed_ms(&self) -> i64 {
        self.clock.monotonic_ms() - self.start_ms
    }

    fn happened(&self) -> Vec<(&'static str, i64)> {
        std::mem::take(&mut *self.happened.lock().unwrap())
    }

    /// (state, members) of a group; one without members and offsets is removed every 10 min.
    fn group(&self, id: &str) -> (&'static str, usize) {
        let group = self.broker.describe_group(id);
        group.map_or(("Dead", 0), |group| (group.state, group.members.len()))
    }

    /// A member with a session of 45 s that has joined and synced.
    fn member(&self, group: &str) -> Port {
        let port = self.connect();
        let Outcome::Now(Response::JoinGroup(joined)) = port.handle(join(group)) else {
            panic!()
        };
        let sync = SyncGroupRequest {
            group_id: group.into(),
            generation_id: joined.generation_id,
            member_id: joined.member_id.clone(),
            group_instance_id: None,
            protocol_type: Some("consumer".into()),
            protocol_name: Some("range".into()),
            assignments: vec![assigned(&joined.member_id, "a")],
        };
        let Outcome::Now(Response::SyncGroup(synced)) = port.handle(Request::SyncGroup(sync)) else {
            panic!()
        };
        assert_eq!(synced.error_code, ErrorCode::NONE);
        port
    }
}

fn join(group: &str) -> Request {
    Request::JoinGroup(JoinGroupRequest {
        group_id: group.into(),
        session_timeout_ms: 45_000,
        rebalance_timeout_ms: 5_000,
        member_id: "".into(),
        group_instance_id: None,
        protocol_type: "consumer".into(),
        protocols: vec![protocol("range", Bytes::from_static(b"m"))],
        reason: None,
        sender: sender(3),
    })
}

fn long_poll(max_wait_ms: i32) -> Request {
    Request::Fetch(FetchRequest {
        max_wait_ms,
        ..fetch_of(&[(&tp("t", 0), 0, 1 << 20)])
    })
}

#[test]
fn what_waits_wakes_at_its_deadline_in_the_order_of_deadlines() {
    let world = World::new(&[("group.initial.rebalance.delay.ms", "3000")]);
    world.wait_for("fetch of 5000", long_poll(5000));
    world.wait_for("join", join("g"));
    world.wait_for("fetch of 300", long_poll(300));
    world.wait_for("fetch of 10001", long_poll(10_001));
    world.advance(2_999);
    assert_eq!(world.happened(), [("fetch of 300", 300)]);
    world.advance(4_901);
    assert_eq!(world.happened(), [("join", 3000), ("fetch of 5000", 5000)]);
    // The join began a time-out of 5 s for its sync.
    assert_eq!(
        (world.passed_ms(), world.group("g")),
        (7_900, ("CompletingRebalance", 1))
    );
    world.advance(2_100);
    assert_eq!((world.passed_ms(), world.group("g")), (10_000, ("Empty", 0)));
    assert_eq!(world.happened(), []);
    world.advance(0);
    world.advance(-5);
    assert_eq!(world.passed_ms(), 10_000);
}

#[test]
fn a_deadline_that_arises_on_the_way_is_kept() {
    let world = World::new(&[("group.initial.rebalance.delay.ms", "3000")]);
    world.wait_for("join", join("g"));
    world.advance(10_000);
    assert_eq!(
        (world.happened(), world.group("g")),
        (vec![("join", 3000)], ("Empty", 0))
    );
}

#[test]
fn two_hundred_sessions_of_45_s_end_one_after_the_other() {
    let world = World::new(&[]);
    for round in 0..200 {
        let member = world.member("g");
        world.advance(44_999);
        assert_eq!(world.group("g"), ("Stable", 1), "round {round}");
        world.advance(1);
        assert_eq!(world.group("g").1, 0, "round {round}");
        drop(member);
    }
    assert_eq!(world.passed_ms(), 200 * 45_000);
}

#[test]
fn retention_and_the_cleaner_have_their_times() {
    let world = World::new(&[
        ("log.retention.check.interval.ms", "300000"),
        ("log.cleaner.enable", "true"),
        ("log.cleaner.backoff.ms", "15000"),
    ]);
    let config = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    };
    let short = config(&[("segment.bytes", "100"), ("retention.ms", "600000")]);
    world.broker.create_topic("short", 1, &short).unwrap();
    let compact = config(&[("segment.bytes", "200"), ("cleanup.policy", "compact")]);
    world.broker.create_topic("compact", 1, &compact).unwrap();
    let keyed = || {
        let mut builder = fletchlog_records::BatchBuilder::with_capacity(64);
        builder.append(world.clock.now_ms(), Some(b"k"), Some(b"value"), &[]);
        builder.build(&fletchlog_records::BatchParams::default())
    };
    for _ in 0..9 {
        world.broker.append_batches(&tp("short", 0), keyed()).unwrap();
        world.broker.append_batches(&tp("compact", 0), keyed()).unwrap();
    }
    let log = |topic: &str| world.broker.partition_log(&tp(topic, 0)).unwrap();
    // The cleaner's thread sleeps the rest on the machine's clock.
    world.advance(14_000);
    assert!(log("compact").segments()[0].1 > 0);
    world.advance(1000);
    assert_eq!(log("compact").segments()[0].1, 0, "cleaned");
    // The first check is after 30 s, then every 5 min: 630 s is the first one with records of more than 600 s.
    world.advance(614_999);
    assert_eq!((world.passed_ms(), log("short").log_start_offset()), (629_999, 0));
    world.advance(1);
    assert_eq!(log("short").log_start_offset(), 9);
    world.broker.close().unwrap();
}

#[test]
fn a_frozen_clock_ends_no_wait_but_that_of_the_client_itself() {
    let world = World::new(&[]);
    world.wait_for("fetch", long_poll(1));
    let _member = world.member("g");
    let mut transport = LocalTransport::new(world.broker.clone());
    transport.send(1, 1, long_poll(1));
    let began_ms = world.clock.machine_ms();
    assert!(!transport.wait(Duration::from_millis(40)));
    assert!((40..10_000).contains(&(world.clock.machine_ms() - began_ms)));
    assert_eq!((world.happened(), world.broker.due_in_ms()), (vec![], None));
    world.clock.resume();
    assert!(transport.wait(Duration::from_secs(20)));
    assert!(world.clock.machine_ms() - began_ms < 10_000);
}

#[test]
fn no_assignment_waits_for_its_interval_while_the_clock_is_frozen() {
    let world = World::new(&[]);
    let port = world.connect();
    let beat = |id: &str, member_epoch, topics: bool| {
        let request = ShareGroupHeartbeatRequest {
            group_id: "s".into(),
            member_id: id.into(),
            member_epoch,
            subscribed_topic_names: topics.then(|| vec!["t".into()]),
            sender: sender(1),
            ..Default::default()
        };
        let Outcome::Now(Response::ShareGroupHeartbeat(response)) = port.handle(Request::ShareGroupHeartbeat(request))
        else {
            panic!()
        };
        let assigned = response.assignment.map(|assigned| assigned.topic_partitions.len());
        (response.member_epoch, assigned)
    };
    assert_eq!(beat("a", 0, true), (2, Some(0)), "its state is made first");
    assert_eq!(beat("a", 2, false), (3, Some(1)));
    assert_eq!(beat("b", 0, true), (4, Some(1)));
    world.clock.resume();
    let joined = beat("c", 0, true);
    assert_eq!(joined, (4, Some(0)), "the interval is 1 s");
    world.advance(1_000);
    assert_eq!(beat("c", 4, false), (5, Some(1)));
}

#[test]
fn a_client_that_waits_in_another_thread_is_woken() {
    let world = World::new(&[]);
    let mut transport = LocalTransport::new(world.broker.clone());
    transport.send(1, 1, long_poll(60_000));
    let waits = std::thread::spawn(move || transport.wait(Duration::from_secs(50)));
    world.advance(60_000);
    assert!(waits.join().unwrap());
}

#[test]
fn several_threads_advance_one_after_the_other() {
    let world = World::new(&[]);
    let fetches = 50;
    for _ in 0..fetches {
        world.wait_for("fetch", long_poll(500));
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..25).for_each(|_| world.advance(10)));
            // Other threads do what is due as well.
            scope.spawn(|| (0..200).for_each(|_| world.broker.run_due()));
        }
    });
    assert_eq!(world.passed_ms(), 1000);
    assert_eq!(world.happened(), vec![("fetch", 500); fetches]);
}

#[test]
fn a_broker_that_is_closed_and_a_clock_that_cannot_be_set_are_errors() {
    let world = World::new(&[]);
    let calls = AtomicUsize::new(0);
    world.wait_for("fetch", long_poll(100));
    let mut stop = || calls.fetch_add(1, Ordering::Relaxed) == 1;
    world.broker.advance(1_000, &mut stop).unwrap();
    assert_eq!(world.passed_ms(), 100, "it was cancelled at the first deadline");
    let closing = world.broker.clone();
    let ended = world.broker.advance(1_000_000_000, &mut || closing.close().is_err());
    assert!(matches!(ended, Err(BrokerError::Closed)), "{ended:?}");
    let ended = world.broker.advance(1, &mut || false);
    assert!(matches!(ended, Err(BrokerError::Closed)), "{ended:?}");
    let unsettable = in_memory(1).advance(1, &mut || false).unwrap_err();
    assert!(unsettable.to_string().contains("cannot be set"), "{unsettable}");
}
