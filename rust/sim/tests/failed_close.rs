//! A broker whose close fails at any call of the disk (reliability C12, C15): the next one finds every log as it was, and deleted
//! records stay deleted.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;

use fletchlog_api::{Config, Scope};
use fletchlog_broker::{Broker, OpenOptions};
use fletchlog_records::{BatchBuilder, BatchParams, TopicPartition};
use fletchlog_sim::sim_disk::{Fault, SimDisk};
use fletchlog_sim::virtual_clock::VirtualClock;

const NOW_MS: i64 = 1_700_000_000_000;
const PARTITIONS: i32 = 3;
/// Records in each partition, and how many of them are deleted.
const RECORDS: i64 = 5;
const DELETED: i64 = 2;

fn open(disk: &SimDisk) -> Arc<Broker> {
    let options = OpenOptions {
        nodes: Some(1),
        read_only: false,
        config: Config::parse(Scope::Broker, []).unwrap(),
    };
    let clock = Arc::new(VirtualClock::at(NOW_MS));
    Broker::open_in(Arc::new(disk.clone()), Path::new("/data"), options, clock).unwrap()
}

fn partitions() -> impl Iterator<Item = TopicPartition> {
    (0..PARTITIONS).map(|partition| TopicPartition::new("t", partition))
}

/// A broker that has deleted records since it was opened.
fn prepare(disk: &SimDisk) -> Arc<Broker> {
    let broker = open(disk);
    broker.create_topic("t", PARTITIONS, &[]).unwrap();
    for tp in partitions() {
        for _ in 0..RECORDS {
            let mut builder = BatchBuilder::with_capacity(128);
            builder.append(NOW_MS, None, Some(b"value"), &[]);
            let batch = builder.build(&BatchParams::default());
            broker.append_batches(&tp, batch).unwrap();
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
            let disk = SimDisk::with_dirs(&[Path::new("/data")]);
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
            for tp in partitions() {
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
