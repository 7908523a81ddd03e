//! Elections that cut `__transaction_state` and `__consumer_offsets` (spec 10.3, 8.14): transactions, and the offsets in them, are those of the
//! records that are left.

use std::sync::Arc;

use fletchlog_broker::Broker;

use super::client::*;
use super::offsets::committed;
use crate::common::{cut, tp};

#[test]
fn transactions_are_those_of_the_records_that_are_left() {
    let (broker, _) = cut::cluster(&[]);
    let t = tp("t", 0);
    let mut old = Txn::new(&broker, "old");
    old.write(&t, "a");
    cut::begin(&broker);
    let mut new = Txn::new(&broker, "new");
    assert_eq!(old.end(true), 0);
    assert_eq!(state(&broker, "old"), Some(("CompleteCommit", 0, 0)));
    cut::lose(&broker);
    assert_eq!(state(&broker, "old"), Some(("Ongoing", 0, 1)));
    assert_eq!(state(&broker, "new"), None);
    assert_eq!(new.add(std::slice::from_ref(&t)), [49]);
    assert_eq!(old.end(true), 0);
    assert_eq!(state(&broker, "old"), Some(("CompleteCommit", 0, 0)));
    assert_eq!(log_of(&broker, &t), ["a", "COMMIT 0", "COMMIT 0"]);
}

/// A transaction whose marker for the second partition waits for node 3.
fn half_ended(broker: &Arc<Broker>) {
    let (here, away) = (tp("t", 0), tp("t", 1));
    let mut txn = Txn::new(broker, "id");
    assert_eq!(txn.add(&[here.clone(), away.clone()]), [0, 0]);
    txn.send(&here, "a").unwrap();
    broker.kill_node(3).unwrap();
    cut::begin(broker);
    assert_eq!(txn.end(true), 0);
    assert_eq!(state(broker, "id"), Some(("PrepareCommit", 0, 1)));
}

#[test]
fn a_decision_that_was_cut_off_is_not_carried_out() {
    let (broker, _) = cut::cluster(&[]);
    half_ended(&broker);
    cut::lose(&broker);
    assert_eq!(state(&broker, "id"), Some(("Ongoing", 0, 2)));
    broker.start_node(3).unwrap();
    assert_eq!(log_of(&broker, &tp("t", 1)), [""; 0]);
    assert_eq!(state(&broker, "id"), Some(("Ongoing", 0, 2)));
}

#[test]
fn no_marker_is_written_while_no_coordinator_runs() {
    let (broker, _) = cut::cluster(&[]);
    half_ended(&broker);
    broker.kill_node(1).unwrap();
    broker.start_node(3).unwrap();
    assert_eq!(log_of(&broker, &tp("t", 1)), [""; 0]);
    broker.start_node(1).unwrap();
    assert_eq!(log_of(&broker, &tp("t", 1)), ["COMMIT 0"]);
    assert_eq!(state(&broker, "id"), Some(("CompleteCommit", 0, 0)));
}

#[test]
fn a_decision_that_is_left_is_carried_out() {
    let (broker, _) = cut::cluster(&[]);
    let (here, away) = (tp("t", 0), tp("t", 1));
    let mut txn = Txn::new(&broker, "id");
    assert_eq!(txn.add(&[here.clone(), away.clone()]), [0, 0]);
    txn.send(&here, "a").unwrap();
    broker.kill_node(3).unwrap();
    assert_eq!(txn.end(true), 0);
    cut::begin(&broker);
    broker.start_node(3).unwrap();
    assert_eq!(state(&broker, "id"), Some(("CompleteCommit", 0, 0)));
    cut::lose(&broker);
    assert_eq!(state(&broker, "id"), Some(("CompleteCommit", 0, 0)));
    // As after a restart, its markers are written again.
    assert_eq!(log_of(&broker, &here), ["a", "COMMIT 0", "COMMIT 0"]);
    assert_eq!(log_of(&broker, &away), ["COMMIT 0", "COMMIT 0"]);
    assert_eq!(read_committed(&broker, &here), ["a"]);
}

#[test]
fn offsets_of_an_open_transaction_that_were_cut_off_are_not_committed_by_its_marker() {
    let (broker, _) = cut::cluster(&[]);
    let t = tp("t", 0);
    let mut txn = Txn::new(&broker, "id");
    assert_eq!(txn.add_offsets("g"), 0);
    cut::begin(&broker);
    assert_eq!(txn.commit_offset("g", &t, 5), 0);
    assert_eq!(committed(&broker, "g", true), Err(88));
    cut::lose(&broker);
    assert_eq!(committed(&broker, "g", true), Ok(None));
    assert_eq!(txn.end(true), 0);
    assert_eq!(committed(&broker, "g", true), Ok(None));
}

#[test]
fn offsets_whose_marker_was_cut_off_wait_for_it_again() {
    let (broker, _) = cut::cluster(&[]);
    let t = tp("t", 0);
    let mut txn = Txn::new(&broker, "id");
    assert_eq!((txn.add_offsets("g"), txn.commit_offset("g", &t, 5)), (0, 0));
    cut::begin(&broker);
    assert_eq!(txn.end(false), 0);
    assert_eq!(committed(&broker, "g", true), Ok(None));
    cut::lose(&broker);
    assert_eq!(committed(&broker, "g", true), Err(88));
    assert_eq!(txn.end(true), 0);
    assert_eq!(committed(&broker, "g", true), Ok(Some(5)));
}
