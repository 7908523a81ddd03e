//! A deletion of a topic that a fault or a power loss interrupts, and a new topic of the same name (reliability C1, C2, C15): the
//! new one holds what was sent to it and nothing else.

use std::path::Path;
use std::sync::Arc;

use fletchlog_api::ErrorCode;
use fletchlog_broker::{Broker, BrokerError};
use fletchlog_log::FetchBound;
use fletchlog_log::fs::Fs;
use fletchlog_sim::disk_state::Left;
use fletchlog_sim::sim_disk::{Fault, SimDisk};

use crate::broker_disk::{FSYNC, OTHER, TOPIC, new_disk, open, partitions, send};

/// One on each node.
const PARTITIONS: i32 = 2;

/// A directory with two topics of three records; the first of one topic is deleted.
fn prepare(disk: &SimDisk) -> Arc<Broker> {
    let broker = open(disk, FSYNC).unwrap();
    broker.create_topic(TOPIC, PARTITIONS, &[]).unwrap();
    broker.create_topic(OTHER, PARTITIONS, &[]).unwrap();
    for value in ["old-0", "old-1", "old-2"] {
        send(&broker, TOPIC, PARTITIONS, value);
        send(&broker, OTHER, PARTITIONS, value);
    }
    for tp in partitions(TOPIC, PARTITIONS) {
        broker.delete_records(&tp, Some(1)).unwrap();
    }
    broker
}

/// A broker that starts on the disk finds a new topic, with so many records.
fn check(disk: &SimDisk, records: i64, what: &str) {
    let broker = open(disk, FSYNC).unwrap_or_else(|e| panic!("{what}: {e}"));
    for tp in partitions(TOPIC, PARTITIONS) {
        let log = broker
            .partition_log(&tp)
            .unwrap_or_else(|e| panic!("{what}: {tp}: {e}"));
        assert_eq!(
            (log.log_start_offset(), log.log_end_offset()),
            (0, records),
            "{what}: {tp}"
        );
        let bytes = log.read(0, 1 << 20, true, FetchBound::LogEnd).unwrap().records;
        assert!(records == 0 || bytes.windows(3).any(|w| w == b"new"), "{what}: {tp}");
    }
}

/// Whether anything failed.
fn delete_with_fault(fault: Fault, call: u64, reopen: bool) -> bool {
    let what = format!("call {call} of the deletion, {fault:?}, reopened: {reopen}");
    let disk = new_disk();
    let mut broker = prepare(&disk);
    disk.fail(disk.calls() + call, fault);
    let failed = broker.delete_topic(TOPIC).is_err();
    let met = disk.failed().is_some();
    disk.fail(u64::MAX, fault);
    if reopen {
        // Killed, and the power goes before anything else is done.
        drop(broker);
        let image: SimDisk = disk.state().left(Left::Nothing).into();
        drop(open(&image, FSYNC).unwrap_or_else(|e| panic!("{what}: {e}")));
        create_and_check(&image, &open(&image, FSYNC).unwrap(), &what);
        broker = open(&disk, FSYNC).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
    create_and_check(&disk, &broker, &what);
    assert!(met || !failed, "{what}");
    met
}

fn create_and_check(disk: &SimDisk, broker: &Broker, what: &str) {
    match broker.delete_topic(TOPIC) {
        Ok(()) => {}
        Err(BrokerError::Kafka {
            code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            ..
        }) => {}
        Err(e) => panic!("{what}: deleted again: {e}"),
    }
    broker
        .create_topic(TOPIC, PARTITIONS, &[])
        .unwrap_or_else(|e| panic!("{what}: made again: {e}"));
    check_images(disk, 0, what);
    assert_eq!(send(broker, TOPIC, PARTITIONS, "new"), 0, "{what}");
    check_images(disk, 1, what);
}

/// The broker is killed, or the power goes, once and again after the recovery.
fn check_images(disk: &SimDisk, records: i64, what: &str) {
    check(&disk.state().into(), records, &format!("{what}, killed"));
    let lost: SimDisk = disk.state().left(Left::Nothing).into();
    check(&lost, records, &format!("{what}, power lost"));
    let lost = lost.state().left(Left::Nothing).into();
    check(&lost, records, &format!("{what}, power lost twice"));
}

#[test]
fn a_topic_whose_deletion_failed_can_be_made_again_and_is_empty() {
    for fault in Fault::ALL {
        for reopen in [false, true] {
            let calls = (0..).take_while(|call| delete_with_fault(fault, *call, reopen)).count();
            assert!(calls > 5, "{fault:?}: {calls} calls failed");
        }
    }
}

#[test]
fn records_that_a_topic_took_after_its_deletion_had_failed_stay() {
    let mut taken = 0;
    for fault in Fault::ALL {
        for call in 0.. {
            let disk = new_disk();
            let broker = prepare(&disk);
            disk.fail(disk.calls() + call, fault);
            let failed = broker.delete_topic(TOPIC).is_err();
            if disk.failed().is_none() {
                break;
            }
            disk.fail(u64::MAX, fault);
            if !failed || broker.describe_topic(TOPIC).is_err() {
                continue;
            }
            taken += 1;
            assert_eq!(send(&broker, TOPIC, PARTITIONS, "new"), 3);
            drop(broker);
            for image in [disk.state(), disk.state().left(Left::Nothing)] {
                let broker = open(&image.into(), FSYNC).unwrap();
                for tp in partitions(TOPIC, PARTITIONS) {
                    let log = broker.partition_log(&tp);
                    let log = log.unwrap_or_else(|e| panic!("call {call}, {fault:?}: {tp}: {e}"));
                    assert_eq!(
                        (log.log_start_offset(), log.log_end_offset()),
                        (1, 4),
                        "call {call}, {fault:?}"
                    );
                }
            }
        }
    }
    assert!(taken > 5, "{taken}");
}

#[test]
fn a_log_that_was_set_aside_does_not_come_back_under_a_new_topic() {
    let disk = new_disk();
    let broker = prepare(&disk);
    broker.delete_topic(TOPIC).unwrap();
    broker.close().unwrap();
    // A log of no topic, put there by somebody else.
    let node = Path::new("/data/node-1");
    disk.rename(&node.join("other-1"), &node.join("t-0")).unwrap();
    disk.sync_dir(node).unwrap();
    let broker = open(&disk, FSYNC).unwrap();
    create_and_check(&disk, &broker, "beside a stray log");
}
