//! Transactions of transaction.version 2 (KIP-890, part 2), and what lowering the feature changes.

use std::path::Path;
use std::sync::Arc;

use fletchlog_api::ErrorCode;
use fletchlog_broker::{Broker, Feature, FeatureUpdate, UpgradeType};
use fletchlog_protocol::messages::WriteTxnMarkersRequest;
use fletchlog_protocol::messages::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};

use super::client::*;
use super::offsets::committed;
use crate::common::{Client, VirtualClock, in_memory, open, options, tp};

#[test]
fn every_end_raises_the_epoch_and_partitions_are_added_by_their_first_batch() {
    let (broker, _) = broker(&[]);
    let (t, u) = (tp("t", 0), tp("t", 1));
    let mut txn = Txn::of_version_2(&broker, "id");
    let producer_id = txn.producer_id;
    assert_eq!(txn.send_with(&u, "late", 3, true), Err(45));
    assert_eq!(state(&broker, "id"), Some(("Ongoing", 0, 1)));
    assert_eq!(txn.send(&t, "a"), Ok(0));
    assert_eq!(txn.send(&t, "b"), Ok(1));
    assert_eq!(txn.end(true), 0);
    assert_eq!((txn.producer_id, txn.epoch), (producer_id, 1));
    assert_eq!(txn.send(&t, "c"), Ok(3));
    assert_eq!(txn.end(false), 0);
    assert_eq!(txn.send(&t, "d"), Ok(5));
    assert_eq!(txn.end(true), 0);
    assert_eq!(
        log_of(&broker, &t),
        ["a", "b", "COMMIT 1", "c", "ABORT 2", "d", "COMMIT 3"]
    );
    assert_eq!(read_committed(&broker, &t), ["a", "b", "d"]);
    // A batch of an earlier transaction is too late.
    txn.epoch = 2;
    assert_eq!(txn.send_with(&t, "late", 0, true), Err(47));
    assert_eq!(txn.end(true), 0, "the last end, again");
    assert_eq!(txn.epoch, 3);
    assert_eq!(txn.send(&tp("t", 9), "nowhere"), Err(3));
    assert_eq!(state(&broker, "id"), Some(("CompleteCommit", 3, 0)));
}

#[test]
fn nothing_to_abort_raises_the_epoch_without_a_marker() {
    let (broker, _) = broker(&[]);
    let mut txn = Txn::of_version_2(&broker, "id");
    assert_eq!(txn.end(true), 48);
    assert_eq!(txn.end(false), 0);
    assert_eq!((txn.epoch, state(&broker, "id")), (1, Some(("CompleteAbort", 1, 0))));
    assert_eq!(log_of(&broker, &tp("t", 0)), Vec::<String>::new());
}

#[test]
fn offsets_are_added_by_their_commit() {
    let (broker, _) = broker(&[]);
    let t = tp("t", 0);
    let mut txn = Txn::of_version_2(&broker, "id");
    assert_eq!(txn.commit_offset("g", &t, 5), 0);
    assert_eq!(committed(&broker, "g", true), Err(88));
    assert_eq!(txn.end(true), 0);
    assert_eq!(committed(&broker, "g", true), Ok(Some(5)));
    let mut old = Txn::of_version_2(&broker, "id");
    old.epoch -= 1;
    assert_eq!(old.commit_offset("g", &t, 6), 47);
}

#[test]
fn an_older_client_on_the_same_broker_keeps_its_rules() {
    let (broker, _) = broker(&[]);
    let t = tp("t", 0);
    let mut txn = Txn::new(&broker, "id");
    assert_eq!(txn.send(&t, "unknown"), Err(48));
    assert_eq!(txn.write(&t, "a"), 0);
    assert_eq!((txn.end(true), txn.epoch), (0, 0));
    assert_eq!(txn.end(false), 48);
    assert_eq!(txn.write(&t, "b"), 2);
    // Its transaction may be ended by a newer instance of its program.
    txn.version_2 = true;
    assert_eq!((txn.end(true), txn.epoch), (0, 1));
    assert_eq!(log_of(&broker, &t), ["a", "COMMIT 0", "b", "COMMIT 1"]);
}

#[test]
fn a_time_out_is_an_abort_that_the_producer_may_repeat() {
    let (broker, clock) = broker(&[]);
    let t = tp("t", 0);
    let mut txn = Txn::of_version_2(&broker, "id");
    txn.send(&t, "a").unwrap();
    clock.advance(70_000);
    broker.run_due();
    assert_eq!(state(&broker, "id"), Some(("CompleteAbort", 1, 0)));
    assert_eq!(txn.send(&t, "b"), Err(47));
    assert_eq!(txn.end(true), 48);
    assert_eq!((txn.end(false), txn.epoch), (0, 1));
    assert_eq!(txn.send(&t, "c"), Ok(2));
}

/// The codes of one marker in partitions of `t`.
fn marker(broker: &Broker, txn: &Txn, epoch: i16, version: i8, partitions: &[i32]) -> Vec<i16> {
    let marker = WritableTxnMarker {
        producer_id: txn.producer_id,
        producer_epoch: epoch,
        transaction_result: false,
        topics: vec![WritableTxnMarkerTopic {
            name: "t".into(),
            partition_indexes: partitions.to_vec(),
        }],
        coordinator_epoch: 0,
        transaction_version: version,
    };
    let request = WriteTxnMarkersRequest { markers: vec![marker] };
    let mut answer = broker.write_txn_markers(1, &request).unwrap();
    let topic = answer.markers.remove(0).topics.remove(0);
    topic.partitions.iter().map(|p| p.error_code.code()).collect()
}

#[test]
fn an_admin_ends_a_transaction_in_one_partition() {
    let (broker, _) = broker(&[]);
    let t = tp("t", 0);
    let mut txn = Txn::of_version_2(&broker, "id");
    txn.send(&t, "a").unwrap();
    assert_eq!(marker(&broker, &txn, 0, 2, &[0, 9]), [47, 3]);
    assert_eq!(marker(&broker, &txn, 1, 2, &[0]), [0]);
    assert_eq!(log_of(&broker, &t), ["a", "ABORT 1"]);
    assert_eq!(state(&broker, "id"), Some(("Ongoing", 0, 1)));
    assert_eq!(txn.send(&t, "b"), Err(47));
    // Of version 1 the epoch may be that of the transaction.
    let mut old = Txn::new(&broker, "old");
    old.write(&t, "c");
    assert_eq!(marker(&broker, &old, 0, 1, &[0]), [0]);
}

fn lower(broker: &Broker, level: i16) -> Result<(), ErrorCode> {
    let update = FeatureUpdate {
        feature: "transaction.version".to_owned(),
        level,
        upgrade_type: Some(UpgradeType::Downgrade),
    };
    broker.update_features(&[update], false).map_err(|error| error.code())
}

/// The versions of the records of `__transaction_state`, in order.
fn record_versions(broker: &Broker) -> Vec<u8> {
    let mut versions = Vec::new();
    let number = (0..50).find(|p| {
        broker
            .partition_log(&tp("__transaction_state", *p))
            .is_ok_and(|log| log.log_end_offset() > 0)
    });
    let log = broker
        .partition_log(&tp("__transaction_state", number.unwrap()))
        .unwrap();
    let data = log.read(0, 1 << 20, true, fletchlog_log::FetchBound::LogEnd).unwrap();
    for batch in fletchlog_records::BatchIter::new(data.records) {
        let batch = batch.unwrap();
        let slice = batch.records(1 << 20).unwrap();
        let mut cursor = fletchlog_records::RecordCursor::new();
        while let Some(record) = cursor.next(&slice).unwrap() {
            versions.push(record.value.unwrap()[1]);
        }
    }
    versions
}

#[test]
fn a_request_adds_all_its_partitions_at_once() {
    let (broker, _) = broker(&[]);
    let all = [tp("t", 0), tp("t", 9), tp("t", 1)];
    let mut txn = Txn::of_version_2(&broker, "id");
    let before = record_versions(&broker).len();
    assert_eq!(txn.send_to_all(&all, "a"), [0, 3, 0]);
    assert_eq!(record_versions(&broker).len(), before + 1, "one record with both");
    assert_eq!(state(&broker, "id"), Some(("Ongoing", 0, 2)));
    assert_eq!(txn.end(true), 0);
    assert_eq!(log_of(&broker, &all[0]), ["a", "COMMIT 1"]);
    assert_eq!(log_of(&broker, &all[2]), ["a", "COMMIT 1"]);
}

#[test]
fn what_another_node_leads_is_not_added() {
    let broker = in_memory(2);
    broker.create_topic("t", 2, &[]).unwrap();
    let leaders: Vec<i32> = broker
        .describe_topic("t")
        .unwrap()
        .partitions
        .iter()
        .map(|p| p.leader)
        .collect();
    // A transactional id that node 1 coordinates.
    let mut client = Client::new(&broker);
    let id = (0..50)
        .map(|n| format!("id-{n}"))
        .find(|id| init(&mut client, id, 60_000, NO_ID).is_ok());
    let id = id.unwrap();
    let mut txn = Txn::of_version_2(&broker, &id);
    let codes = txn.send_to_all(&[tp("t", 0), tp("t", 1)], "a");
    let expected: Vec<i16> = leaders.iter().map(|&leader| if leader == 1 { 0 } else { 6 }).collect();
    assert_eq!(codes, expected);
    assert!(codes.contains(&0) && codes.contains(&6), "each node leads one");
    assert_eq!(state(&broker, &id).map(|(_, _, partitions)| partitions), Some(1));
}

#[test]
fn a_lowered_level_brings_the_older_rules_back_and_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let t = tp("t", 0);
    let fence = |broker: &Arc<Broker>| {
        let mut txn = Txn::new(broker, "id");
        txn.write(&t, "a");
        let own = (txn.producer_id, txn.epoch);
        let mut client = Client::new(broker);
        assert_eq!(init(&mut client, "id", 60_000, own), Err(51));
        // A retry of the bump for version 2; before, the fence is for its own producer, too.
        init(&mut client, "id", 60_000, own).map(|(_, epoch)| epoch - txn.epoch)
    };
    let level = |broker: &Broker| broker.finalized_level(Feature::TransactionVersion);
    {
        let broker = open(dir.path()).unwrap();
        broker.create_topic("t", 1, &[]).unwrap();
        assert_eq!((level(&broker), broker.features_epoch()), (2, 0));
        assert_eq!(fence(&broker), Ok(1));
        assert_eq!(lower(&broker, 1), Ok(()));
        assert_eq!((level(&broker), broker.features_epoch()), (1, 1));
        assert_eq!(fence(&broker), Err(90));
        assert_eq!(lower(&broker, 2), Err(ErrorCode::INVALID_UPDATE_VERSION));
        broker.close().unwrap();
    }
    let broker = open(dir.path()).unwrap();
    assert_eq!((level(&broker), broker.features_epoch()), (1, 1));
    assert_eq!(fence(&broker), Err(90));
    assert_eq!(lower(&broker, 0), Ok(()));
    let before = record_versions(&broker).len();
    assert_eq!(fence(&broker), Err(90));
    let versions = record_versions(&broker);
    assert_eq!(
        versions[..before].iter().collect::<std::collections::BTreeSet<_>>(),
        [&1].into()
    );
    assert_eq!(
        versions[before..].iter().collect::<std::collections::BTreeSet<_>>(),
        [&0].into()
    );
}

#[test]
fn a_killed_broker_goes_on_with_the_epoch_of_the_last_end() {
    fn open_at(path: &Path, clock: &Arc<VirtualClock>) -> Arc<Broker> {
        Broker::open(path, options(None, false, &[]), clock.clone()).unwrap()
    }
    let (dir, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let t = tp("t", 0);
    let old = {
        let broker = open_at(dir.path(), &clock);
        broker.create_topic("t", 1, &[]).unwrap();
        let mut txn = Txn::of_version_2(&broker, "id");
        txn.send(&t, "a").unwrap();
        assert_eq!(txn.end(true), 0);
        (txn.producer_id, txn.epoch)
        // Dropped without close: the directory is as a killed process leaves it.
    };
    let broker = open_at(dir.path(), &clock);
    let mut txn = Txn::of_version_2(&broker, "other");
    (txn.id, txn.producer_id, txn.epoch) = ("id".into(), old.0, old.1 - 1);
    assert_eq!((txn.end(true), txn.epoch), (0, old.1), "the same answer again");
    // The last epoch is not in the log.
    assert_eq!(init(&mut txn.client, "id", 60_000, (old.0, old.1 - 1)), Err(90));
    assert_eq!(txn.send(&t, "b"), Ok(2));
    assert_eq!((txn.end(true), txn.epoch), (0, old.1 + 1));
    assert_eq!(read_committed(&broker, &t), ["a", "b"]);
}
