//! Logs that the broker cannot read, with a reason: the error is reported to the caller, who does not have to wait.

use fletchlog_api::{Clock, ErrorCode};

use super::fake_broker::{FakeBroker, Net, batch};
use super::{consumer, poll, token, tp};
use crate::{ClientError, Consumer};

const WHY: &str = "cannot read /data/B-0/0.log: out of memory";

fn a_and_b() -> FakeBroker {
    FakeBroker::default().with("A", 0, 1, 3).with("B", 0, 1, 3)
}

fn unreadable(broker: &FakeBroker, why: Option<&'static str>) {
    broker.log("B", |log| log.unreadable = why);
}

fn assert_reason<T: std::fmt::Debug>(result: Result<T, ClientError>) {
    match result {
        Err(ClientError::Kafka { code, message }) => {
            assert_eq!(code, ErrorCode::KAFKA_STORAGE_ERROR);
            assert_eq!(message, format!("B-0 cannot be read: {WHY}"));
        }
        other => panic!("{other:?}"),
    }
}

fn storage_error(consumer: &mut Consumer) {
    assert_reason(consumer.poll(60_000, &mut || false).map(|records| token(&records)));
}

#[test]
fn records_of_other_partitions_come_first_then_each_poll_says_why_and_tries_again() {
    for order in ["partition", "kip-387"] {
        let broker = a_and_b();
        let mut c = consumer(&broker, &[("fletchlog.fetch.order", order)]);
        c.assign(&[tp("B"), tp("A")]).unwrap();
        for partition in [tp("A"), tp("B")] {
            c.seek(&partition, 0).unwrap();
        }
        unreadable(&broker, Some(WHY));
        assert_eq!(token(&poll(&mut c)), "A3");
        let before = broker.clock.monotonic_ms();
        storage_error(&mut c);
        storage_error(&mut c);
        assert_eq!(broker.clock.monotonic_ms(), before, "a poll waited");
        // What comes for another partition is still returned.
        broker.log("A", |log| log.append(&batch(1)));
        assert_eq!(token(&poll(&mut c)), "A1");
        storage_error(&mut c);
        unreadable(&broker, None);
        assert_eq!(c.position(&tp("B"), 0, &mut || false).unwrap(), 0);
        assert_eq!(token(&poll(&mut c)), "B3");
    }
}

#[test]
fn a_position_that_cannot_be_looked_up_is_reported_by_poll_and_position() {
    let broker = a_and_b();
    unreadable(&broker, Some(WHY));
    let mut c = consumer(&broker, &[]);
    c.assign(&[tp("A"), tp("B")]).unwrap();
    assert_eq!(token(&poll(&mut c)), "A3");
    storage_error(&mut c);
    assert_reason(c.position(&tp("B"), 60_000, &mut || false));
    assert_eq!(c.position(&tp("A"), 60_000, &mut || false).unwrap(), 3);
    assert_reason(c.beginning_offsets(&[tp("A"), tp("B")], 60_000, &mut || false));
    assert_reason(c.end_offsets(&[tp("B")], 60_000, &mut || false));
    assert_reason(c.offsets_for_times(&[(tp("B"), 0)], 60_000, &mut || false));
    unreadable(&broker, None);
    assert_eq!(c.position(&tp("B"), 60_000, &mut || false).unwrap(), 0);
    assert_eq!(token(&poll(&mut c)), "B3");
}

#[test]
fn a_lookup_that_failed_is_repeated_once_after_the_back_off() {
    let broker = a_and_b();
    unreadable(&broker, Some(WHY));
    let mut c = consumer(&broker, &[]);
    c.assign(&[tp("B")]).unwrap();
    broker.take_net();
    for _ in 0..3 {
        storage_error(&mut c);
    }
    let lookups = broker.take_net();
    let lookups = lookups.iter().filter(|net| matches!(net, Net::ListOffsets(_)));
    assert_eq!(lookups.count(), 6);
}
