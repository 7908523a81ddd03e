//! InitProducerId: ids, epochs, fencing, time.

use fletchlog_api::*;

use super::client::*;
use crate::common::{Client, tp};

#[test]
fn init_producer_id_refuses_wrong_ids_and_time_outs() {
    let (broker, _) = broker(&[("transaction.max.timeout.ms", "1000")]);
    let mut client = Client::new(&broker);
    assert_eq!(init(&mut client, "", 1000, NO_ID), Err(42));
    assert_eq!(init(&mut client, &"x".repeat(32_768), 1000, NO_ID), Err(42));
    for timeout in [0, -1, 1001] {
        assert_eq!(init(&mut client, "id", timeout, NO_ID), Err(50), "{timeout}");
    }
    assert_eq!(init(&mut client, "id", 1000, NO_ID).map(|(_, epoch)| epoch), Ok(0));
    assert_eq!(state(&broker, "id"), Some(("Empty", 0, 0)));
}

#[test]
fn a_newer_producer_fences_the_older_one() {
    let (broker, _) = broker(&[]);
    let mut old = Txn::new(&broker, "id");
    let new = Txn::new(&broker, "id");
    assert_eq!((new.producer_id, new.epoch), (old.producer_id, old.epoch + 1));
    assert_eq!(old.add(&[tp("t", 0)]), [90]);
    assert_eq!(old.add_offsets("g"), 90);
    assert_eq!(old.end(true), 90);
    let fenced = init(&mut old.client, "id", 60_000, (old.producer_id, old.epoch));
    assert_eq!(fenced, Err(90));
}

#[test]
fn an_open_transaction_is_aborted_before_the_next_producer_gets_the_id() {
    let (broker, _) = broker(&[]);
    let t = tp("t", 0);
    let mut old = Txn::new(&broker, "id");
    old.write(&t, "a");
    let mut client = Client::new(&broker);
    // The answer that makes it ask again; the marker carries the next epoch.
    assert_eq!(init(&mut client, "id", 60_000, NO_ID), Err(51));
    assert_eq!(log_of(&broker, &t), ["a", "ABORT 1"]);
    assert_eq!(state(&broker, "id"), Some(("CompleteAbort", 1, 0)));
    let (_, epoch) = init(&mut client, "id", 60_000, NO_ID).unwrap();
    assert_eq!(epoch, 2);
    // The zombie is known to the partition, too (47), not only to the coordinator (90).
    assert_eq!(old.send(&t, "b"), Err(47));
    assert_eq!(old.end(true), 90);
    assert!(read_committed(&broker, &t).is_empty());
}

#[test]
fn an_epoch_bump_keeps_the_id_and_is_recognised_when_it_is_asked_for_again() {
    let (broker, _) = broker(&[]);
    let mut txn = Txn::new(&broker, "id");
    let current = (txn.producer_id, txn.epoch);
    let bumped = init(&mut txn.client, "id", 60_000, current).unwrap();
    assert_eq!(bumped, (txn.producer_id, txn.epoch + 1));
    assert_eq!(init(&mut txn.client, "id", 60_000, current), Ok(bumped));
    assert_eq!(init(&mut txn.client, "id", 60_000, (txn.producer_id + 1, 0)), Err(90));
}

#[test]
fn requests_of_an_unknown_id_or_another_producer_are_refused() {
    let (broker, _) = broker(&[]);
    let t = tp("t", 0);
    let mut txn = Txn::new(&broker, "id");
    let mut other = Txn::new(&broker, "other");
    other.id = "id".into();
    assert_eq!(other.add(std::slice::from_ref(&t)), [49]);
    assert_eq!((other.add_offsets("g"), other.end(true)), (49, 49));
    txn.id = "unknown".into();
    assert_eq!(txn.add(std::slice::from_ref(&t)), [49]);
    assert_eq!(txn.send_with(&t, "a", 0, true), Err(49));
}

#[test]
fn the_coordinator_is_found_by_the_hash_of_the_id_and_only_it_answers() {
    let clock = crate::common::VirtualClock::new();
    let options = crate::common::options(Some(3), false, &[]);
    let broker = fletchlog_broker::Broker::in_memory(options, clock).unwrap();
    let mut client = Client::new(&broker);
    let find = |client: &mut Client| {
        let request = FindCoordinatorRequest::of(CoordinatorType::Transaction, "my-group".into());
        let Response::FindCoordinator(found) = client.ask(2, Request::FindCoordinator(request)) else {
            panic!()
        };
        found.coordinator_node()
    };
    // Java's hash of "my-group" gives partition 12 of 50, which leads on node 1 + 12 mod 3; before and after the first use.
    assert_eq!(find(&mut client), Ok(1));
    let request = |node, client: &mut Client| {
        let request = InitProducerIdRequest {
            transactional_id: Some("my-group".into()),
            transaction_timeout_ms: 1000,
            producer_id: -1,
            producer_epoch: -1,
            ..Default::default()
        };
        let Response::InitProducerId(response) = client.ask(node, Request::InitProducerId(request)) else {
            panic!()
        };
        response.error_code
    };
    assert_eq!(request(2, &mut client), ErrorCode::NOT_COORDINATOR);
    assert_eq!(request(1, &mut client), ErrorCode::NONE);
    assert_eq!(find(&mut client), Ok(1));
}

#[test]
fn a_transaction_open_for_too_long_is_aborted_by_the_next_call() {
    let (broker, clock) = broker(&[]);
    let t = tp("t", 0);
    let mut txn = Txn::with_timeout(&broker, "id", 25_000);
    txn.write(&t, "a");
    // Looked at every 10 s, and not before the time is over.
    clock.advance(20_000);
    assert_eq!(txn.send(&t, "b"), Ok(1));
    assert_eq!(state(&broker, "id"), Some(("Ongoing", 0, 1)));
    clock.advance(9_999);
    assert_eq!(log_of(&broker, &t), ["a", "b"]);
    clock.advance(1);
    assert_eq!(log_of(&broker, &t), ["a", "b", "ABORT 1"]);
    assert_eq!(state(&broker, "id"), Some(("CompleteAbort", 1, 0)));
    assert_eq!((txn.send(&t, "c"), txn.end(true)), (Err(47), 90));
}

#[test]
fn a_waiting_reader_wakes_up_when_a_transaction_times_out() {
    let clock: std::sync::Arc<dyn Clock> = std::sync::Arc::new(transport::SystemClock::default());
    let config = [("transaction.abort.timed.out.transaction.cleanup.interval.ms", "20")];
    let broker = fletchlog_broker::Broker::in_memory(crate::common::options(Some(1), false, &config), clock).unwrap();
    broker.create_topic("t", 1, &[]).unwrap();
    let t = tp("t", 0);
    let mut txn = Txn::with_timeout(&broker, "id", 50);
    txn.write(&t, "a");
    broker.append_batches(&t, crate::common::batch(1, 1)).unwrap();
    let mut client = Client::new(&broker);
    let mut request = crate::common::fetch_of(&[(&t, 0, 1 << 20)]);
    request.isolation_level = IsolationLevel::ReadCommitted;
    request.max_wait_ms = 30_000;
    client.send(1, Request::Fetch(request));
    assert!(client.take(1).is_none(), "everything is behind the open transaction");
    let mut waited = 0;
    let response = loop {
        if let Some(response) = client.wait_fetch(1, 10_000) {
            break response;
        }
        waited += 1;
        assert!(waited < 3, "nothing woke the reader");
    };
    assert_eq!(crate::common::nth(&response, 0).last_stable_offset, 3);
}

#[test]
fn an_idle_transactional_id_is_forgotten_and_its_producer_starts_anew() {
    let (broker, clock) = broker(&[("transactional.id.expiration.ms", "604800000")]);
    let t = tp("t", 0);
    let mut idle = Txn::new(&broker, "idle");
    idle.write(&t, "a");
    assert_eq!(idle.end(true), 0);
    clock.advance(604_800_000 - 3_600_000);
    let mut busy = Txn::new(&broker, "busy");
    clock.advance(3_600_000);
    assert_eq!(idle.add(std::slice::from_ref(&t)), [49]);
    assert_eq!(state(&broker, "idle"), None);
    assert_eq!(busy.add(std::slice::from_ref(&t)), [0]);
    // KIP-360: it asks for the next epoch of what it had and gets a new id.
    let had = (idle.producer_id, idle.epoch);
    let (producer_id, epoch) = init(&mut idle.client, "idle", 60_000, had).unwrap();
    assert!(producer_id != had.0 && epoch == 0);
}
