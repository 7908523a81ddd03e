//! A broker whose close fails at any call of the disk (reliability C12, C15): the next one finds every log as it was, and deleted
//! records stay deleted.

use std::sync::Arc;

use crate::broker_disk::{TOPIC, append, new_disk, open_with, partitions};
use fletchlog_broker::Broker;
use fletchlog_sim::sim_disk::{Fault, SimDisk};

const PARTITIONS: i32 = 3;
/// Records in each partition, and how many of them are deleted.
const RECORDS: i64 = 5;
const DELETED: i64 = 2;

fn open(disk: &SimDisk) -> Arc<Broker> {
    open_with(disk, 1, &[]).unwrap()
}

/// A broker that has deleted records since it was opened.
fn prepare(disk: &SimDisk) -> Arc<Broker> {
    let broker = open(disk);
    broker.create_topic(TOPIC, PARTITIONS, &[]).unwrap();
    for tp in partitions(TOPIC, PARTITIONS) {
        for _ in 0..RECORDS {
            append(&broker, &tp, b"value").unwrap();
        }
        broker.delete_records(&tp, Some(DELETED)).unwrap();
    }
    broker
}

#[test]
fn a_close_that_fails_takes_nothing_back() {
    let mut met = 0;
    for fault in Fault::ALL {
        for call in 0.. {
            let disk = new_disk();
            let broker = prepare(&disk);
            disk.fail(disk.calls() + call, fault);
            let closed = broker.close();
            drop(broker);
            if disk.failed().is_none() {
                closed.unwrap();
                break;
            }
            met += 1;
            // The process is gone; what the machine holds stays.
            let broker = open(&SimDisk::from(disk.state()));
            for tp in partitions(TOPIC, PARTITIONS) {
                let log = broker.partition_log(&tp).unwrap();
                let found = (log.log_start_offset(), log.log_end_offset());
                assert_eq!(
                    found,
                    (DELETED, RECORDS),
                    "{tp} after {fault:?} at call {call} of close: {closed:?}"
                );
            }
        }
    }
    assert!(met > 20, "{met} faults were met");
}
