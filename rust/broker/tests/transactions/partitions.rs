//! Data, markers, the last stable offset.

use std::sync::Arc;

use fletchlog_api::*;
use fletchlog_broker::{Broker, NewTopic};

use super::client::*;
use crate::common::{Client, OneAtATime, VirtualClock, batch, fetch_of, nth, options, tp};

#[test]
fn a_commit_shows_its_records_and_an_abort_hides_them() {
    let (broker, _) = broker(&[]);
    let (t0, t1) = (tp("t", 0), tp("t", 1));
    let mut txn = Txn::new(&broker, "id");
    txn.write(&t0, "a");
    txn.write(&t1, "b");
    assert!(read_committed(&broker, &t0).is_empty());
    assert_eq!(txn.end(true), 0);
    assert_eq!(
        (read_committed(&broker, &t0), read_committed(&broker, &t1)),
        (vec!["a".into()], vec!["b".into()])
    );
    txn.write(&t0, "c");
    assert_eq!(txn.end(false), 0);
    txn.write(&t0, "d");
    assert_eq!(txn.end(true), 0);
    assert_eq!(read_committed(&broker, &t0), ["a", "d"]);
    // Transactions of one producer share its epoch (transaction.version 1 and below).
    assert_eq!(log_of(&broker, &t0), ["a", "COMMIT 0", "c", "ABORT 0", "d", "COMMIT 0"]);
    assert_eq!(log_of(&broker, &t1), ["b", "COMMIT 0"]);
}

#[test]
fn a_repeated_end_txn_is_acknowledged_and_the_other_outcome_refused() {
    let (broker, _) = broker(&[]);
    let mut txn = Txn::new(&broker, "id");
    assert_eq!((txn.end(true), txn.end(false)), (48, 48), "nothing was begun");
    txn.write(&tp("t", 0), "a");
    assert_eq!((txn.end(true), txn.end(true), txn.end(false)), (0, 0, 48));
    txn.write(&tp("t", 0), "b");
    assert_eq!((txn.end(false), txn.end(false), txn.end(true)), (0, 0, 48));
    assert_eq!(log_of(&broker, &tp("t", 0)).len(), 4, "one marker each");
}

#[test]
fn the_oldest_open_transaction_holds_the_last_stable_offset() {
    let (broker, _) = broker(&[]);
    let t = tp("t", 0);
    let lso = || broker.describe_topic("t").unwrap().partitions[0].last_stable_offset;
    let (mut one, mut two) = (Txn::new(&broker, "one"), Txn::new(&broker, "two"));
    broker.append_batches(&t, batch(1, 1)).unwrap();
    one.write(&t, "1a");
    two.write(&t, "2a");
    one.write(&t, "1b");
    assert_eq!(lso(), 1);
    assert_eq!(two.end(true), 0);
    assert_eq!(lso(), 1, "the other one is older");
    assert_eq!(one.end(false), 0);
    assert_eq!(lso(), 6);
    assert_eq!(read_committed(&broker, &t), ["v", "2a"]);
}

#[test]
fn a_partition_that_was_not_added_takes_no_transactional_batch() {
    let (broker, _) = broker(&[]);
    let t = tp("t", 0);
    let mut txn = Txn::new(&broker, "id");
    assert_eq!(txn.send(&t, "a"), Err(48));
    assert_eq!(txn.add(&[tp("t", 1)]), [0]);
    assert_eq!(txn.send(&t, "a"), Err(48));
    assert_eq!(txn.send(&tp("t", 1), "a"), Ok(0));
    assert_eq!(txn.end(true), 0);
    // A late batch of a transaction that has ended would be held for ever (KIP-890).
    assert_eq!(txn.send(&tp("t", 1), "late"), Err(48));
    assert_eq!(log_of(&broker, &t), [""; 0]);
    let (unverified, _) = super::client::broker(&[("transaction.partition.verification.enable", "false")]);
    assert_eq!(Txn::new(&unverified, "id").send(&t, "a"), Ok(0));
}

#[test]
fn a_transactional_batch_needs_the_request_to_name_the_id() {
    let (broker, _) = broker(&[]);
    let t = tp("t", 0);
    let mut txn = Txn::new(&broker, "id");
    assert_eq!(txn.add(std::slice::from_ref(&t)), [0]);
    let records = txn.batch("a", 0, true);
    let refused = txn.client.produce(1, &t, records, -1);
    assert_eq!(refused.error_code, ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
    // In a transaction everything of the producer belongs to it.
    assert_eq!(txn.send_with(&t, "a", 0, true), Ok(0));
    assert_eq!(txn.send_with(&t, "b", 1, false), Err(48));
}

#[test]
fn add_partitions_adds_all_or_none() {
    let (broker, _) = broker(&[]);
    let mut txn = Txn::new(&broker, "id");
    assert_eq!(txn.add(&[tp("t", 0), tp("t", 9), tp("nope", 0)]), [55, 3, 3]);
    assert_eq!(txn.add(&[tp("__consumer_offsets", 0), tp("t", 0)]), [29, 55]);
    assert_eq!(state(&broker, "id"), Some(("Empty", 0, 0)));
    assert_eq!(txn.add(&[tp("t", 0), tp("t", 1)]), [0, 0]);
    assert_eq!(state(&broker, "id"), Some(("Ongoing", 0, 2)));
}

#[test]
fn sequences_go_on_from_one_transaction_to_the_next() {
    let (broker, _) = broker(&[]);
    let t = tp("t", 0);
    let mut txn = Txn::new(&broker, "id");
    txn.write(&t, "a");
    assert_eq!(txn.send_with(&t, "a", 0, true), Ok(0), "the resend is recognised");
    assert_eq!(txn.end(true), 0);
    assert_eq!(txn.add(std::slice::from_ref(&t)), [0]);
    assert_eq!(txn.send_with(&t, "gap", 2, true), Err(45));
    assert_eq!(txn.send_with(&t, "b", 1, true), Ok(2));
    assert_eq!(txn.end(true), 0);
    assert_eq!(read_committed(&broker, &t), ["a", "b"]);
}

#[test]
fn a_waiting_read_committed_fetch_is_answered_by_the_marker() {
    let (broker, _) = broker(&[]);
    let t = tp("t", 0);
    let mut txn = Txn::new(&broker, "id");
    txn.write(&t, "a");
    let mut client = Client::new(&broker);
    let mut request = fetch_of(&[(&t, 0, 1 << 20)]);
    request.isolation_level = IsolationLevel::ReadCommitted;
    request.max_wait_ms = 1_000_000;
    client.send(1, Request::Fetch(request));
    assert!(client.take(1).is_none());
    assert_eq!(txn.end(true), 0);
    let response = client.wait_fetch(1, 0).expect("the marker answers it");
    assert_eq!(nth(&response, 0).last_stable_offset, 2);
    assert!(nth(&response, 0).size() > 0);
}

/// Not only the bytes that came after the wait had begun.
#[test]
fn fetch_min_bytes_counts_the_records_of_a_transaction_that_was_open_when_the_wait_began() {
    let (broker, _clock) = broker(&[]);
    let t = tp("t", 0);
    let mut txn = Txn::new(&broker, "id");
    txn.write(&t, &"x".repeat(100));
    let mut client = Client::new(&broker);
    let mut request = fetch_of(&[(&t, 0, 1 << 20)]);
    request.isolation_level = IsolationLevel::ReadCommitted;
    request.max_wait_ms = 1_000_000;
    request.min_bytes = 150; // A marker has 78.
    client.send(1, Request::Fetch(request));
    assert!(client.take(1).is_none());
    assert_eq!(txn.end(true), 0);
    let response = client.wait_fetch(1, 0).expect("the marker answers it");
    assert!(nth(&response, 0).size() > 240);
}

#[test]
fn a_deleted_topic_does_not_keep_a_transaction_from_ending() {
    let (broker, _) = broker(&[]);
    broker.create_topic("gone", 1, &[]).unwrap();
    let mut txn = Txn::new(&broker, "id");
    txn.write(&tp("gone", 0), "a");
    txn.write(&tp("t", 0), "b");
    broker.delete_topic("gone").unwrap();
    assert_eq!(txn.end(true), 0);
    assert_eq!(state(&broker, "id"), Some(("CompleteCommit", 0, 0)));
    assert_eq!(read_committed(&broker, &tp("t", 0)), ["b"]);
}

#[test]
fn markers_are_written_as_they_are_to_topics_with_their_own_codec_and_time() {
    let (broker, clock) = broker(&[]);
    let config = [
        ("compression.type".to_owned(), "gzip".to_owned()),
        ("message.timestamp.type".to_owned(), "LogAppendTime".to_owned()),
        ("cleanup.policy".to_owned(), "compact,delete".to_owned()),
    ];
    broker.create_topic("own", 1, &config).unwrap();
    let t = tp("own", 0);
    let mut txn = Txn::new(&broker, "id");
    assert_eq!(txn.add(std::slice::from_ref(&t)), [0]);
    clock.advance(5);
    assert_eq!(txn.end(true), 0);
    assert_eq!(log_of(&broker, &t), ["COMMIT 0"]);
    let log = broker.partition_log(&t).unwrap();
    assert_eq!(log.log_end_offset(), 1);
}

/// Three nodes, of which the first coordinates `id`; `alone-0` is on the first one alone, `t-0` on all and led by the second one.
fn cluster(config: &[(&str, &str)]) -> (Arc<Broker>, Arc<VirtualClock>, Txn) {
    let clock = VirtualClock::new();
    let broker = Broker::in_memory(options(Some(3), false, config), clock.clone()).unwrap();
    for (name, replicas) in [("alone", vec![1]), ("t", vec![1, 2, 3])] {
        let new = NewTopic {
            assignments: vec![(0, replicas)],
            ..NewTopic::default()
        };
        broker.create_topic_with(name, &new).unwrap();
    }
    broker
        .move_coordinator(CoordinatorType::Transaction, "id", 1, 0)
        .unwrap();
    let mut txn = Txn::new(&broker, "id");
    txn.write(&tp("alone", 0), "a");
    txn.write(&tp("t", 0), "b");
    broker.move_leader(&tp("t", 0), 2).unwrap();
    broker.crash_node(2, 9_000).unwrap();
    (broker, clock, txn)
}

/// Where the logs of `alone-0` and `t-0` end.
fn ends(broker: &Broker) -> [i64; 2] {
    ["alone", "t"].map(|name| broker.partition_log(&tp(name, 0)).unwrap().log_end_offset())
}

#[test]
fn a_marker_waits_for_a_leader() {
    let (broker, clock, mut txn) = cluster(&[("transaction.state.log.replication.factor", "1")]);
    assert_eq!(txn.end(true), 0);
    assert_eq!(read_committed(&broker, &tp("alone", 0)), ["a"]);
    assert_eq!(
        ends(&broker),
        [2, 1],
        "the leader of t-0 has ended, and nobody has noticed it"
    );
    assert_eq!(txn.add(&[tp("alone", 0)]), [51]);
    clock.advance(9_000);
    broker.run_due();
    assert_eq!(ends(&broker), [2, 2], "the next leader has the marker");
    assert_eq!(txn.add(&[tp("alone", 0)]), [0]);
}

#[test]
fn markers_wait_until_the_outcome_is_on_all_replicas() {
    let (broker, clock, mut txn) = cluster(&[]);
    let request = Request::EndTxn(EndTxnRequest {
        transactional_id: Arc::clone(&txn.id),
        producer_id: txn.producer_id,
        producer_epoch: txn.epoch,
        committed: true,
        bumps_epoch: false,
    });
    txn.client.send(1, request);
    assert!(
        txn.client.take(1).is_none(),
        "the coordinator's log has a replica on the node that has ended"
    );
    assert_eq!(ends(&broker), [1, 1]);
    clock.advance(9_000);
    broker.run_due();
    let Some(Response::EndTxn(ended)) = txn.client.take(1) else {
        panic!()
    };
    assert_eq!(ended.error_code, ErrorCode::NONE);
    assert_eq!(ends(&broker), [2, 2]);
    assert_eq!(txn.add(&[tp("alone", 0)]), [0]);
}
