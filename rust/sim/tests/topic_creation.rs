//! A creation of a topic that a fault or a power loss interrupts (reliability C1, C2, C15).
//!
//! `create_topic` that fails has made nothing: neither the topic nor a directory of it is there, now or after the next start.
//! One that succeeds has made all of it, whatever is lost afterwards: directories are made again. A power loss in between
//! leaves one or the other.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fletchlog_api::ErrorCode;
use fletchlog_broker::{Broker, BrokerError};
use fletchlog_log::FetchBound;
use fletchlog_log::checkpoint::read_partition_metadata;
use fletchlog_sim::crash_points::images;
use fletchlog_sim::disk_state::{DiskState, Left};
use fletchlog_sim::rng::Rng;
use fletchlog_sim::sim_disk::{Fault, SimDisk};

use crate::broker_disk::{FSYNC, OTHER, TOPIC, directories, new_disk, open, partitions, send};

/// What a topic is made with.
#[derive(Debug)]
struct Shape {
    partitions: i32,
    max_message_bytes: &'static str,
}

const OLD: Shape = Shape {
    partitions: 4,
    max_message_bytes: "1000",
};
const FIRST: Shape = Shape {
    partitions: 2,
    max_message_bytes: "2000",
};
const SECOND: Shape = Shape {
    partitions: 3,
    max_message_bytes: "3000",
};

impl Shape {
    fn config(&self) -> Vec<(String, String)> {
        vec![("max.message.bytes".to_owned(), self.max_message_bytes.to_owned())]
    }

    fn create(&self, broker: &Broker) -> Result<(), BrokerError> {
        broker.create_topic(TOPIC, self.partitions, &self.config())
    }

    fn send(&self, broker: &Broker, value: &str) -> i64 {
        send(broker, TOPIC, self.partitions, value)
    }

    /// Every partition, the configuration, one id. `used`: the directories are there, too.
    fn check(&self, disk: &SimDisk, broker: &Broker, used: bool, what: &str) {
        let topic = broker.describe_topic(TOPIC).unwrap_or_else(|e| panic!("{what}: {e}"));
        let numbers: Vec<i32> = topic.partitions.iter().map(|p| p.partition).collect();
        assert_eq!(numbers, (0..self.partitions).collect::<Vec<_>>(), "{what}");
        assert_eq!(
            topic.config,
            self.config().into_iter().collect::<BTreeMap<_, _>>(),
            "{what}"
        );
        for partition in &topic.partitions {
            let dir = format!("/data/node-{}/{TOPIC}-{}", partition.leader, partition.partition);
            match read_partition_metadata(disk, Path::new(&dir)) {
                Ok(Some(id)) => assert_eq!(id, topic.topic_id, "{what}: {dir}"),
                // Lost, and written again before the first record. A torn one is written again by a start.
                other => assert!(!used && other.is_ok(), "{what}: {dir}: {other:?}"),
            }
        }
    }
}

/// What there was of the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    Deleted,
    /// The topic is gone, its directories are not, and its end may not be durable.
    HalfDeleted,
}

const BEFORE: [Before; 3] = [Before::Nothing, Before::Deleted, Before::HalfDeleted];

fn prepare(before: Before, durability: &str) -> (SimDisk, Arc<Broker>) {
    let half_deleted = |call| {
        let (disk, broker) = prepare_whole(before, durability);
        disk.fail(disk.calls() + call, Fault::Io);
        let left = broker.delete_topic(TOPIC).is_err() && !is_listed(&broker);
        left.then_some((disk, broker))
    };
    match before {
        Before::HalfDeleted => (0..).find_map(half_deleted).unwrap(),
        _ => prepare_whole(before, durability),
    }
}

fn prepare_whole(before: Before, durability: &str) -> (SimDisk, Arc<Broker>) {
    let disk = new_disk();
    let broker = open(&disk, durability).unwrap();
    broker.create_topic(OTHER, 1, &[]).unwrap();
    send(&broker, OTHER, 1, "other");
    if before != Before::Nothing {
        OLD.create(&broker).unwrap();
        OLD.send(&broker, "old");
    }
    if before == Before::Deleted {
        broker.delete_topic(TOPIC).unwrap();
    }
    (disk, broker)
}

/// Deletes the old topic again if its deletion, which failed, was lost.
fn delete_old(disk: &SimDisk, broker: &Broker, what: &str) {
    let old = usize::try_from(OLD.partitions).unwrap();
    if broker
        .describe_topic(TOPIC)
        .is_ok_and(|topic| topic.partitions.len() == old)
    {
        OLD.check(disk, broker, false, what);
        broker.delete_topic(TOPIC).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
}

fn is_listed(broker: &Broker) -> bool {
    let topics = broker.topics(false).unwrap();
    assert!(topics.iter().any(|name| **name == *OTHER), "{topics:?}");
    topics.iter().any(|name| **name == *TOPIC)
}

/// Lets one call of the creation of `FIRST` fail. What it answered, and whether it met the fault.
fn create_with_fault(disk: &SimDisk, broker: &Broker, call: u64, fault: Fault) -> (Result<(), BrokerError>, bool) {
    let earlier = disk.failed();
    let before = directories(disk, TOPIC);
    disk.fail(disk.calls() + call, fault);
    let created = FIRST.create(broker);
    disk.fail(u64::MAX, fault);
    let met = disk.failed() != earlier;
    assert!(met || created.is_ok(), "{created:?}");
    match &created {
        Ok(()) => FIRST.check(disk, broker, true, "just made"),
        Err(error) => {
            let left = directories(disk, TOPIC);
            assert!(left.iter().all(|dir| before.contains(dir)), "{error}: {left:?}");
        }
    }
    (created, met)
}

/// Makes the topic as `SECOND`; one that is there must be whole.
fn create_again(disk: &SimDisk, broker: &Broker, what: &str) {
    match SECOND.create(broker) {
        Err(BrokerError::Kafka {
            code: ErrorCode::TOPIC_ALREADY_EXISTS,
            ..
        }) => {
            FIRST.check(disk, broker, false, what);
            broker.delete_topic(TOPIC).unwrap_or_else(|e| panic!("{what}: {e}"));
            SECOND
                .create(broker)
                .unwrap_or_else(|e| panic!("{what}: made again: {e}"));
        }
        other => other.unwrap_or_else(|e| panic!("{what}: made again: {e}")),
    }
    SECOND.check(disk, broker, false, what);
}

/// The new topic is empty, and what it acknowledges stays, at whatever later operation the power goes.
fn records_stay(disk: &SimDisk, broker: &Broker, shape: &Shape, rng: &mut Rng, what: &str) {
    assert_eq!(shape.send(broker, "new"), 0, "{what}");
    shape.check(disk, broker, true, what);
    disk.record();
    assert_eq!(shape.send(broker, "new"), 1, "{what}");
    broker.flush().unwrap();
    let history = disk.history();
    // Two of them at random: every one comes up in some run.
    let moments = [rng.below(history.len()), rng.below(history.len())];
    for state in moments.map(|at| &history[at]).into_iter().chain(history.first()) {
        for image in images(state, rng, 1) {
            check_records(&image, shape, 1, what);
        }
    }
    check_records(&disk.state().left(Left::Nothing), shape, 2, what);
}

/// Opened on an image, and again after a second power loss, a topic holds at least so many records.
fn check_records(image: &DiskState, shape: &Shape, acknowledged: i64, what: &str) {
    let first: SimDisk = image.clone().into();
    drop(open(&first, FSYNC).unwrap_or_else(|e| panic!("{what}: {e}")));
    let second: SimDisk = first.state().left(Left::Nothing).into();
    for disk in [first, second] {
        let broker = open(&disk, FSYNC).unwrap_or_else(|e| panic!("{what}: {e}"));
        shape.check(&disk, &broker, true, what);
        for tp in partitions(TOPIC, shape.partitions) {
            let log = broker
                .partition_log(&tp)
                .unwrap_or_else(|e| panic!("{what}: {tp}: {e}"));
            assert_eq!(log.log_start_offset(), 0, "{what}: {tp}");
            assert!(
                log.log_end_offset() >= acknowledged,
                "{what}: {tp}: {}",
                log.log_end_offset()
            );
            let bytes = log.read(0, 1 << 20, true, FetchBound::LogEnd).unwrap().records;
            assert!(bytes.windows(3).any(|w| w == b"new"), "{what}: {tp}");
            assert!(!bytes.windows(3).any(|w| w == b"old"), "{what}: {tp}");
        }
    }
}

/// Whether anything failed.
fn create_and_create_again(before: Before, fault: Fault, call: u64, reopen: bool) -> bool {
    let what = format!("{before:?}, call {call} of the creation, {fault:?}, reopened: {reopen}");
    let mut rng = Rng::new(call);
    let (disk, mut broker) = prepare(before, FSYNC);
    let (created, met) = create_with_fault(&disk, &broker, call, fault);
    assert_eq!(is_listed(&broker), created.is_ok(), "{what}");
    for image in images(&disk.state(), &mut rng, 2) {
        let disk = image.into();
        let broker = open(&disk, FSYNC).unwrap_or_else(|e| panic!("{what}: {e}"));
        delete_old(&disk, &broker, &what);
        assert_eq!(is_listed(&broker), created.is_ok(), "{what}: after a start");
        if created.is_ok() {
            FIRST.check(&disk, &broker, false, &what);
        }
    }
    if reopen {
        drop(broker);
        broker = open(&disk, FSYNC).unwrap_or_else(|e| panic!("{what}: {e}"));
        delete_old(&disk, &broker, &what);
    }
    if created.is_ok() && call.is_multiple_of(2) {
        records_stay(&disk, &broker, &FIRST, &mut rng, &what);
    } else {
        create_again(&disk, &broker, &what);
        records_stay(&disk, &broker, &SECOND, &mut rng, &what);
    }
    met
}

#[test]
fn a_creation_that_fails_has_made_nothing_and_one_that_succeeds_everything() {
    for before in BEFORE {
        for fault in Fault::ALL {
            for reopen in [false, true] {
                let met = |call: &u64| create_and_create_again(before, fault, *call, reopen);
                let calls = (0..).take_while(met).count();
                assert!(calls > 2, "{before:?}, {fault:?}: {calls} calls failed");
            }
        }
    }
}

/// Comes up on a disk that lost power during a creation; then the topic is used. Whether it was there.
fn whole_or_absent(image: DiskState, durability: &str, rng: &mut Rng, what: &str) -> bool {
    let disk = image.into();
    let broker = open(&disk, durability).unwrap_or_else(|e| panic!("{what}: {e}"));
    delete_old(&disk, &broker, what);
    let listed = is_listed(&broker);
    if listed {
        FIRST.check(&disk, &broker, false, what);
    } else {
        FIRST
            .create(&broker)
            .unwrap_or_else(|e| panic!("{what}: made again: {e}"));
    }
    if durability == FSYNC {
        records_stay(&disk, &broker, &FIRST, rng, what);
    } else {
        assert_eq!(FIRST.send(&broker, "new"), 0, "{what}");
        check_records(&disk.state(), &FIRST, 1, what);
    }
    listed
}

#[test]
fn power_that_goes_during_a_creation_leaves_all_of_the_topic_or_nothing() {
    let mut rng = Rng::new(7);
    for (before, durability) in BEFORE.into_iter().flat_map(|b| [(b, FSYNC), (b, "page-cache")]) {
        let (disk, broker) = prepare(before, durability);
        disk.record();
        FIRST.create(&broker).unwrap();
        let history = disk.history();
        let (end, on_the_way) = history.split_last().unwrap();
        let mut found = [0, 0];
        for state in on_the_way {
            let what = format!("{before:?}, {durability}, after {} operations", state.operations());
            for image in images(state, &mut rng, 3) {
                found[usize::from(whole_or_absent(image, durability, &mut rng, &what))] += 1;
            }
        }
        assert!(found.into_iter().all(|times| times > 0), "{found:?}");
        let what = format!("{before:?}, {durability}, created");
        for image in images(end, &mut rng, 20) {
            assert!(whole_or_absent(image, durability, &mut rng, &what), "{what}");
        }
    }
}

#[test]
fn power_that_goes_while_a_creation_fails_leaves_all_of_the_topic_or_nothing() {
    let mut rng = Rng::new(8);
    for call in 0.. {
        let (disk, broker) = prepare(Before::Nothing, FSYNC);
        disk.record();
        if !create_with_fault(&disk, &broker, call, Fault::Io).1 {
            break;
        }
        let failed_at = disk.failed().unwrap().1;
        for state in disk.history().iter().filter(|state| state.operations() >= failed_at) {
            let what = format!("call {call} failed, after {} operations", state.operations());
            for image in images(state, &mut rng, 10) {
                whole_or_absent(image, FSYNC, &mut rng, &what);
            }
        }
    }
}

/// Starts on the image with each call failing in each way that it can; a start that fails is tried again. Every kind of fault has to be
/// met.
fn start_with_every_fault(image: &DiskState, check: impl Fn(&SimDisk, &Broker, &str)) {
    let start = |fault, call| {
        let what = format!("call {call} of the start, {fault:?}");
        let disk: SimDisk = image.clone().into();
        disk.fail(call, fault);
        let started = open(&disk, FSYNC);
        disk.fail(u64::MAX, fault);
        let met = disk.failed().is_some();
        assert!(met || started.is_ok(), "{what}: {started:?}");
        let broker = started.or_else(|_| open(&disk, FSYNC));
        check(&disk, &broker.unwrap_or_else(|e| panic!("{what}: {e}")), &what);
        met
    };
    for fault in Fault::ALL {
        let failed = (0..).take_while(|call| start(fault, *call)).count();
        assert!(failed > 0, "no call of the start met {fault:?}");
    }
}

#[test]
fn a_start_that_fails_takes_nothing_from_a_topic_whose_creation_failed() {
    let (mut made, mut refused) = (0, 0);
    for before in BEFORE {
        // Not every call of both: these are some of each part of a creation.
        for call in (5..).step_by(23) {
            let (disk, broker) = prepare(before, FSYNC);
            let (created, met) = create_with_fault(&disk, &broker, call, Fault::Io);
            if !met {
                break;
            }
            made += usize::from(created.is_ok());
            refused += usize::from(created.is_err());
            start_with_every_fault(&disk.state().left(Left::Nothing), |disk, broker, what| {
                let what = format!("{before:?}, call {call} of the creation, {what}");
                delete_old(disk, broker, &what);
                assert_eq!(is_listed(broker), created.is_ok(), "{what}");
                create_again(disk, broker, &what);
                assert_eq!(SECOND.send(broker, "new"), 0, "{what}");
                check_records(&disk.state().left(Left::Nothing), &SECOND, 1, &what);
            });
        }
    }
    assert!(
        made > 0 && refused > 0,
        "{made} creations got over the failing call, {refused} did not"
    );
}

#[test]
fn a_start_that_fails_takes_no_record_of_a_topic_that_was_made_at_the_second_attempt() {
    let (disk, broker) = prepare(Before::HalfDeleted, FSYNC);
    create_with_fault(&disk, &broker, 5, Fault::Io).0.unwrap_err();
    create_again(&disk, &broker, "second attempt");
    assert_eq!(SECOND.send(&broker, "new"), 0);
    start_with_every_fault(&disk.state().left(Left::Nothing), |disk, broker, what| {
        assert_eq!(SECOND.send(broker, "new"), 1, "{what}");
        check_records(&disk.state().left(Left::Nothing), &SECOND, 2, what);
    });
}
