//! An append that the disk fails, and the ones after it: what is acknowledged stays, whatever part of the unsynced a power loss takes
//! (reliability C12, C15).

use std::path::Path;

use crate::broker_disk::{FSYNC, ROOT, TOPIC, append, directories, new_disk, open};
use fletchlog_log::{FetchBound, stored_leader_epoch};
use fletchlog_records::TopicPartition;
use fletchlog_sim::crash_points::images;
use fletchlog_sim::rng::Rng;
use fletchlog_sim::sim_disk::{Fault, SimDisk};

#[test]
fn what_is_acknowledged_after_a_failed_append_stays() {
    let mut rng = Rng::new(1);
    let tp = TopicPartition::new(TOPIC, 0);
    for fault in Fault::ALL {
        for call in 0.. {
            let disk = new_disk();
            let broker = open(&disk, FSYNC).unwrap();
            let small = [("segment.bytes".to_owned(), "1000".to_owned())];
            broker.create_topic(TOPIC, 1, &small).unwrap();
            let mut acknowledged: Vec<i64> = (0..4).map(|_| append(&broker, &tp, &[b'v'; 100]).unwrap()).collect();
            disk.fail(disk.calls() + call, fault);
            // The second one does not fit the segment any more.
            for size in [50, 500, 50] {
                acknowledged.extend(append(&broker, &tp, &vec![b'v'; size]));
            }
            for image in images(&disk.state(), &mut rng, 300) {
                let disk = SimDisk::from(image);
                let broker = open(&disk, FSYNC).unwrap();
                let log = broker.partition_log(&tp).unwrap();
                for &offset in &acknowledged {
                    let read = log.read(offset, 1, true, FetchBound::LogEnd);
                    let there = read.is_ok_and(|read| !read.records.is_empty());
                    assert!(there, "call {call}, {fault:?}: {offset} of {acknowledged:?} is lost");
                }
            }
            if disk.failed().is_none() {
                break;
            }
        }
    }
}

#[test]
fn what_is_acknowledged_stays_over_a_failed_call_a_restart_a_clean_stop_and_a_power_loss() {
    let mut rng = Rng::new(1);
    let tp = TopicPartition::new(TOPIC, 0);
    let mut met = 0;
    for fault in Fault::ALL {
        for call in 0.. {
            let disk = new_disk();
            let broker = open(&disk, FSYNC).unwrap();
            broker.create_topic(TOPIC, 1, &[]).unwrap();
            disk.fail(disk.calls() + call, fault);
            let mut acknowledged: Vec<i64> = (0..2).filter_map(|_| append(&broker, &tp, &[b'v'; 50]).ok()).collect();
            let _failed_or_not = broker.close();
            drop(broker);
            // The failure may come as late as this.
            let broker = open(&disk, FSYNC).or_else(|_| open(&disk, FSYNC)).unwrap();
            if disk.failed().is_none() {
                break;
            }
            met += 1;
            acknowledged.extend((0..2).filter_map(|_| append(&broker, &tp, &[b'w'; 50]).ok()));
            broker.close().unwrap();
            for image in images(&disk.state(), &mut rng, 20) {
                let disk = SimDisk::from(image);
                let directory = Path::new(ROOT).join(&directories(&disk, TOPIC)[0]);
                let epoch = stored_leader_epoch(&disk, &directory).unwrap();
                assert_eq!(epoch, Some(0), "call {call}, {fault:?}: the leader epochs are lost");
                let broker = open(&disk, FSYNC);
                let broker = broker.unwrap_or_else(|e| panic!("call {call}, {fault:?}: {e}"));
                let log = broker.partition_log(&tp).unwrap();
                for &offset in &acknowledged {
                    let read = log.read(offset, 1, true, FetchBound::LogEnd);
                    let there = read.is_ok_and(|read| !read.records.is_empty());
                    assert!(there, "call {call}, {fault:?}: {offset} of {acknowledged:?} is lost");
                }
            }
        }
    }
    assert!(met > 60, "{met} faults were met");
}
