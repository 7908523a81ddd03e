//! Producer ids that are silent for producer.id.expiration.ms are forgotten while the broker runs (spec 3.7).

use std::sync::Arc;

use crate::common::*;
use crate::transactions::client::{Txn, read_committed};
use bytes::Bytes;
use fletchlog_api::ErrorCode;
use fletchlog_broker::{Broker, BrokerError};
use fletchlog_records::BatchParams;

/// Kafka's default of producer.id.expiration.check.interval.ms.
const CHECK_INTERVAL_MS: i64 = 600_000;
/// A silence after which ids expire, much shorter than the time between two checks.
const EXPIRATION: [(&str, &str); 1] = [("producer.id.expiration.ms", "1000")];

fn broker(clock: &Arc<VirtualClock>) -> Arc<Broker> {
    let broker = Broker::in_memory(options(Some(1), false, &EXPIRATION), clock.clone()).unwrap();
    broker.create_topic("t", 1, &[]).unwrap();
    broker
}

/// A batch of one record of a producer.
fn from(producer_id: i64, base_sequence: i32) -> Bytes {
    let params = BatchParams {
        producer_id,
        producer_epoch: 0,
        base_sequence,
        ..BatchParams::default()
    };
    batch_with(1, 10, &params)
}

/// Its offset, or the code.
fn append(broker: &Broker, records: Bytes) -> Result<i64, ErrorCode> {
    match broker.append_batches(&tp("t", 0), records) {
        Ok((offset, ..)) => Ok(offset),
        Err(BrokerError::Kafka { code, .. }) => Err(code),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_silent_producer_is_forgotten_at_the_first_check_after_its_time() {
    let clock = VirtualClock::new();
    let broker = broker(&clock);
    assert_eq!(append(&broker, from(7, 0)), Ok(0));
    assert_eq!(append(&broker, from(8, 0)), Ok(1));
    clock.advance(CHECK_INTERVAL_MS - 1);
    // Its time is over, but nobody has looked.
    assert_eq!(append(&broker, from(7, 0)), Ok(0), "a repeat");
    assert_eq!(
        append(&broker, from(8, 5)),
        Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER)
    );
    clock.advance(1);
    assert_eq!(append(&broker, from(7, 0)), Ok(2), "nothing is known of a repeat");
    assert_eq!(append(&broker, from(8, 5)), Ok(3), "any sequence begins");
    // From then on it counts again.
    assert_eq!(
        append(&broker, from(8, 7)),
        Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER)
    );
    assert_eq!(append(&broker, from(8, 6)), Ok(4));
}

#[test]
fn a_producer_that_is_heard_of_is_kept_and_checks_go_on() {
    let clock = VirtualClock::new();
    let config = [("producer.id.expiration.check.interval.ms", "500"), EXPIRATION[0]];
    let broker = Broker::in_memory(options(Some(1), false, &config), clock.clone()).unwrap();
    broker.create_topic("t", 1, &[]).unwrap();
    assert_eq!(append(&broker, from(7, 0)), Ok(0));
    clock.advance(999);
    assert_eq!(
        append(&broker, from(7, 0)),
        Ok(0),
        "a repeat: 999 ms after the batch's timestamp"
    );
    clock.advance(500);
    assert_eq!(append(&broker, from(7, 0)), Ok(1), "forgotten at the second check");
}

#[test]
fn the_producer_of_an_open_transaction_is_kept() {
    let clock = VirtualClock::new();
    let broker = broker(&clock);
    let t = tp("t", 0);
    let mut txn = Txn::with_timeout(&broker, "id", 900_000);
    txn.write(&t, "a");
    clock.advance(CHECK_INTERVAL_MS);
    let gap = ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER.code();
    assert_eq!(txn.send_with(&t, "c", 7, true), Err(gap));
    assert_eq!(txn.send(&t, "b"), Ok(1));
    assert_eq!(txn.end(true), 0);
    assert_eq!(read_committed(&broker, &t), ["a", "b"]);
    // The transaction is over, its producer silent.
    clock.advance(CHECK_INTERVAL_MS);
    assert_eq!(txn.add(std::slice::from_ref(&t)), [0]);
    assert_eq!(txn.send_with(&t, "c", 7, true), Ok(3));
}
