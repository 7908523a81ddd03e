//! Retention, flush and what topics inherit, through the broker.

use crate::common::*;
use fletchlog_broker::{Broker, BrokerError};

fn config(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

#[test]
fn old_segments_go_when_retention_runs_and_not_before() {
    let clock = VirtualClock::new();
    let broker = Broker::in_memory(options(None, false, &[]), clock.clone()).unwrap();
    broker
        .create_topic("t", 1, &config(&[("segment.bytes", "100"), ("retention.ms", "1000")]))
        .unwrap();
    broker
        .create_topic("kept", 1, &config(&[("segment.bytes", "100"), ("retention.ms", "-1")]))
        .unwrap();
    for _ in 0..3 {
        broker.append_batches(&tp("t", 0), batch(1, 20)).unwrap();
        broker.append_batches(&tp("kept", 0), batch(1, 20)).unwrap();
    }
    assert_eq!(broker.run_retention().unwrap(), 0);
    clock.advance(1001);
    assert_eq!(broker.partition_log(&tp("t", 0)).unwrap().log_start_offset(), 0);
    assert_eq!(broker.run_retention().unwrap(), 3);
    assert_eq!(broker.partition_log(&tp("t", 0)).unwrap().log_start_offset(), 3);
    assert_eq!(broker.partition_log(&tp("kept", 0)).unwrap().log_start_offset(), 0);
}

#[test]
fn with_a_check_interval_retention_runs_while_something_is_produced() {
    let clock = VirtualClock::new();
    let options = options(
        None,
        false,
        &[
            ("log.retention.check.interval.ms", "300000"),
            ("log.retention.ms", "1000"),
        ],
    );
    let broker = Broker::in_memory(options, clock.clone()).unwrap();
    broker
        .create_topic("t", 1, &config(&[("segment.bytes", "100")]))
        .unwrap();
    let mut client = Client::new(&broker);
    let t = tp("t", 0);
    let start = || broker.partition_log(&t).unwrap().log_start_offset();
    client.produce(1, &t, batch(1, 20), -1);
    clock.advance(29_999);
    client.produce(1, &t, batch(1, 20), -1);
    assert_eq!(start(), 0);
    clock.advance(1);
    client.produce(1, &t, batch(1, 20), -1);
    assert_eq!(start(), 2);
}

#[test]
fn flush_messages_moves_the_recovery_point_with_the_append_that_reaches_it() {
    let broker = in_memory(1);
    broker
        .create_topic("t", 1, &config(&[("flush.messages", "3")]))
        .unwrap();
    let t = tp("t", 0);
    broker.append_batches(&t, batch(2, 1)).unwrap();
    let log = broker.partition_log(&t).unwrap();
    assert_eq!(log.recovery_point(), 0);
    broker.append_batches(&t, batch(1, 1)).unwrap();
    assert_eq!(log.recovery_point(), 3);
}

#[test]
fn flush_ms_flushes_with_the_first_append_after_it() {
    let clock = VirtualClock::new();
    let broker = Broker::in_memory(options(None, false, &[]), clock.clone()).unwrap();
    broker.create_topic("t", 1, &config(&[("flush.ms", "100")])).unwrap();
    let t = tp("t", 0);
    broker.append_batches(&t, batch(1, 1)).unwrap();
    let log = broker.partition_log(&t).unwrap();
    clock.advance(99);
    broker.append_batches(&t, batch(1, 1)).unwrap();
    assert_eq!(log.recovery_point(), 0);
    clock.advance(1);
    broker.append_batches(&t, batch(1, 1)).unwrap();
    assert_eq!(log.recovery_point(), 3);
}

#[test]
fn flush_writes_the_recovery_points_of_a_running_broker() {
    let dir = tempfile::tempdir().unwrap();
    let broker = open(dir.path()).unwrap();
    broker.create_topic("t", 1, &[]).unwrap();
    broker.append_batches(&tp("t", 0), batch(4, 1)).unwrap();
    broker.flush().unwrap();
    let text = std::fs::read_to_string(dir.path().join("recovery-point-offset-checkpoint")).unwrap();
    assert_eq!(text, "0\n1\nt 0 4\n");
}

#[test]
fn records_of_a_topic_without_the_delete_policy_cannot_be_deleted() {
    let broker = in_memory(1);
    broker
        .create_topic("t", 1, &config(&[("cleanup.policy", "compact")]))
        .unwrap();
    let Err(BrokerError::Kafka { code, .. }) = broker.delete_records(&tp("t", 0), None) else {
        panic!()
    };
    assert_eq!(code, fletchlog_api::ErrorCode::POLICY_VIOLATION);
}
