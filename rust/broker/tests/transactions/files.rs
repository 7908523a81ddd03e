//! `__transaction_state` on disk: what a reopened broker finds.

use std::path::Path;
use std::sync::Arc;

use fletchlog_broker::Broker;

use super::client::*;
use super::offsets::committed;
use crate::common::{VirtualClock, golden, open, options, tp};

fn open_at(path: &Path, clock: &Arc<VirtualClock>) -> Arc<Broker> {
    Broker::open(path, options(None, false, &[]), clock.clone()).unwrap()
}

#[test]
fn a_killed_broker_finds_open_transactions_and_pending_offsets_again() {
    let dir = tempfile::tempdir().unwrap();
    let t = tp("t", 0);
    let (producer_id, epoch) = {
        let broker = open(dir.path()).unwrap();
        broker.create_topic("t", 1, &[]).unwrap();
        let mut txn = Txn::new(&broker, "id");
        txn.write(&t, "a");
        assert_eq!((txn.add_offsets("g"), txn.commit_offset("g", &t, 5)), (0, 0));
        (txn.producer_id, txn.epoch)
        // Dropped without close: the directory is as a killed process leaves it.
    };
    let broker = open(dir.path()).unwrap();
    assert_eq!(state(&broker, "id"), Some(("Ongoing", 0, 2)));
    assert_eq!(committed(&broker, "g", true), Err(88));
    // The producer lives on, if it can: the same id goes on with the transaction.
    let mut txn = Txn::new(&broker, "other");
    (txn.id, txn.producer_id, txn.epoch) = ("id".into(), producer_id, epoch);
    txn.sequences = vec![(t.clone(), 1)];
    assert_eq!(txn.send(&t, "b"), Ok(1));
    assert_eq!(txn.end(true), 0);
    assert_eq!(read_committed(&broker, &t), ["a", "b"]);
    assert_eq!(committed(&broker, "g", true), Ok(Some(5)));
    drop((broker, txn));
    let broker = open(dir.path()).unwrap();
    assert_eq!(state(&broker, "id"), Some(("CompleteCommit", 0, 0)));
    assert_eq!(committed(&broker, "g", true), Ok(Some(5)));
    let next = Txn::new(&broker, "id");
    assert_eq!((next.producer_id, next.epoch), (producer_id, epoch + 1));
}

/// Cuts the last `batches` batches off a log, as if they had never been written.
fn cut(log: &Path, batches: usize) {
    let bytes = std::fs::read(log).unwrap();
    let mut starts = Vec::new();
    let mut at = 0;
    while at + 12 <= bytes.len() {
        let length = i32::from_be_bytes(bytes[at + 8..at + 12].try_into().unwrap());
        if length <= 0 {
            break;
        }
        starts.push(at);
        at += 12 + usize::try_from(length).unwrap();
    }
    std::fs::write(log, &bytes[..starts[starts.len() - batches]]).unwrap();
}

#[test]
fn a_crash_between_the_decision_and_the_markers_is_completed_when_the_broker_is_reopened() {
    for committed_txn in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (t0, t1) = (tp("t", 0), tp("t", 1));
        {
            let broker = open(dir.path()).unwrap();
            broker.create_topic("t", 2, &[]).unwrap();
            let mut txn = Txn::new(&broker, "id");
            txn.write(&t0, "a");
            txn.write(&t1, "b");
            assert_eq!((txn.add_offsets("g"), txn.commit_offset("g", &t0, 5)), (0, 0));
            assert_eq!(txn.end(committed_txn), 0);
        }
        // The decision is in __transaction_state; CompleteX, one marker of two and that of the group are not.
        let state_log = std::fs::read_dir(dir.path())
            .unwrap()
            .filter_map(Result::ok)
            .map(|e| e.path())
            .find(|p| {
                p.file_name()
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .starts_with("__transaction_state-")
            })
            .unwrap();
        cut(&state_log.join("00000000000000000000.log"), 1);
        cut(&dir.path().join("t-1/00000000000000000000.log"), 1);
        let group_log = std::fs::read_dir(dir.path())
            .unwrap()
            .filter_map(Result::ok)
            .map(|e| e.path())
            .find(|p| {
                p.file_name()
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .starts_with("__consumer_offsets-")
            })
            .unwrap();
        cut(&group_log.join("00000000000000000000.log"), 1);
        let broker = open(dir.path()).unwrap();
        let (name, marker) = if committed_txn {
            ("CompleteCommit", "COMMIT 0")
        } else {
            ("CompleteAbort", "ABORT 0")
        };
        assert_eq!(state(&broker, "id"), Some((name, 0, 0)));
        assert_eq!(log_of(&broker, &t1), ["b", marker]);
        // The partition that had its marker has it twice, which changes nothing.
        assert_eq!(log_of(&broker, &t0), ["a", marker, marker]);
        let expected: &[&str] = if committed_txn { &["b"] } else { &[] };
        assert_eq!(read_committed(&broker, &t1), expected);
        assert_eq!(committed(&broker, "g", true), Ok(committed_txn.then_some(5)));
    }
}

#[test]
fn an_open_transaction_of_an_earlier_run_times_out_by_the_wall_clock() {
    let dir = tempfile::tempdir().unwrap();
    let t = tp("t", 0);
    let clock = VirtualClock::new();
    {
        let broker = open_at(dir.path(), &clock);
        broker.create_topic("t", 1, &[]).unwrap();
        Txn::with_timeout(&broker, "id", 15_000).write(&t, "a");
        broker.close().unwrap();
    }
    clock.advance(5_000);
    let broker = open_at(dir.path(), &clock);
    clock.advance(10_000);
    assert_eq!(log_of(&broker, &t), ["a"]);
    clock.advance(10_000);
    assert_eq!(log_of(&broker, &t), ["a", "ABORT 1"]);
}

#[test]
fn a_read_only_broker_reports_transactions_and_changes_none() {
    let dir = tempfile::tempdir().unwrap();
    let writer = open(dir.path()).unwrap();
    writer.create_topic("t", 1, &[]).unwrap();
    let mut txn = Txn::new(&writer, "id");
    txn.write(&tp("t", 0), "a");
    let reader = crate::common::open_read_only(dir.path()).unwrap();
    assert_eq!(state(&reader, "id"), Some(("Ongoing", 0, 1)));
    let mut client = crate::common::Client::new(&reader);
    assert_eq!(init(&mut client, "id", 1000, NO_ID), Err(44));
    assert_eq!(txn.end(true), 0);
    assert_eq!(state(&reader, "id"), Some(("CompleteCommit", 0, 0)));
}

/// Unpacks a directory that a real broker wrote.
fn unpack(name: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let status = std::process::Command::new("tar")
        .arg("xzf")
        .arg(golden(&format!("directories/{name}.tar.gz")))
        .arg("-C")
        .arg(dir.path())
        .status()
        .unwrap();
    assert!(status.success());
    dir
}

#[test]
fn the_transactional_ids_of_real_brokers_are_read() {
    for name in ["kafka-3.9.1-killed", "kafka-4.3.1-clean"] {
        let dir = unpack(name);
        let broker = crate::common::open_read_only(dir.path()).unwrap();
        let known = broker.transactions().unwrap();
        let open: Vec<_> = known
            .iter()
            .filter(|t| t.state == "Ongoing")
            .map(|t| (&*t.transactional_id, t.partitions.as_slice()))
            .collect();
        // The manifest's one open transaction, in the topic that was made for it.
        assert_eq!(open, [("tx-open-1", [tp("g-txnopen", 0)].as_slice())], "{name}");
        assert_eq!(state(&broker, "tx-0").map(|(state, ..)| state), Some("CompleteCommit"));
        assert_eq!(state(&broker, "tx-1").map(|(state, ..)| state), Some("CompleteAbort"));
    }
}
