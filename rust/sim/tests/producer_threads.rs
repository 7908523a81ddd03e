//! The producer on its thread, against an embedded broker and the machine's clock: waiting, closing, interruption.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::producer_harness::cluster::log_bytes;
use crate::producer_harness::faults::{done, scripted};
use crate::producer_harness::records_of;
use fletchlog_api::transport::SystemClock;
use fletchlog_api::{Clock, Config, ErrorCode, Scope};
use fletchlog_broker::{Broker, LocalTransport, OpenOptions};
use fletchlog_client::producer::{OnDecided, ProducerRecord, RecordColumns};
use fletchlog_client::{ClientError, Producer};
use fletchlog_faults::{FaultTransport, Faults};

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::default())
}

fn embedded(partitions: i32) -> Arc<Broker> {
    let config = Config::parse(Scope::Broker, []).unwrap();
    let broker = Broker::in_memory(
        OpenOptions {
            nodes: Some(1),
            named_nodes: Vec::new(),
            read_only: false,
            config,
        },
        clock(),
    )
    .unwrap();
    broker.create_topic("t", partitions, &[]).unwrap();
    broker
}

fn producer(broker: &Arc<Broker>, faults: Option<&Arc<Faults>>, config: &[(&str, &str)]) -> Producer {
    let config = Config::parse(Scope::Producer, config.iter().copied()).unwrap();
    let local = LocalTransport::new(broker.clone());
    let clock = clock();
    match faults {
        None => Producer::new(config, Box::new(local), clock).unwrap(),
        Some(faults) => {
            let transport = FaultTransport::new(Box::new(local), faults.clone(), clock.clone(), "").unwrap();
            Producer::new(config, Box::new(transport), clock).unwrap()
        }
    }
}

fn record(partition: i32, value: &[u8]) -> ProducerRecord<'_> {
    ProducerRecord {
        topic: "t",
        partition: Some(partition),
        timestamp: None,
        key: None,
        value: Some(value),
        headers: &[],
    }
}

fn never() -> bool {
    false
}

fn values(broker: &Broker, partition: i32) -> Vec<String> {
    records_of(&log_bytes(broker, partition))
        .iter()
        .map(|r| String::from_utf8_lossy(&r.value).into_owned())
        .collect()
}

/// Ten-byte values, null keys.
struct Tens {
    rows: usize,
    /// Reading the last row panics.
    broken: bool,
}

impl Tens {
    fn new(rows: usize) -> Self {
        Self { rows, broken: false }
    }
}

impl RecordColumns for Tens {
    fn len(&self) -> usize {
        self.rows
    }
    fn value(&self, row: usize) -> Option<&[u8]> {
        assert!(!self.broken || row + 1 < self.rows, "no such row");
        Some(b"0123456789")
    }
    fn key(&self, _row: usize) -> Option<&[u8]> {
        None
    }
    fn partition(&self, _row: usize) -> Option<i32> {
        None
    }
    fn timestamp(&self, _row: usize) -> Option<i64> {
        None
    }
    fn headers<'a>(&'a self, _row: usize, _out: &mut Vec<(&'a str, Option<&'a [u8]>)>) {}
    fn no_headers(&self) -> bool {
        true
    }
}

#[test]
fn records_are_acknowledged_with_their_offsets_and_times() {
    let broker = embedded(2);
    let producer = producer(&broker, None, &[("enable.idempotence", "true")]);
    assert_eq!(producer.producer_id(), None);
    assert_eq!(producer.partitions_for("t", &mut || false).unwrap(), 2);
    let mut sent = record(1, b"a");
    sent.timestamp = Some(77);
    let first = producer.send(&sent, &mut never).unwrap();
    let second = producer.send(&record(1, b"b"), &mut never).unwrap();
    let first = first.result(None, &mut never).unwrap();
    assert_eq!(
        (&*first.topic, first.partition, first.offset, first.timestamp),
        ("t", 1, 0, 77)
    );
    assert_eq!(second.result(Some(5000), &mut never).unwrap().offset, 1);
    assert_eq!(producer.producer_id().map(|(_, epoch)| epoch), Some(0));
    producer.close(None, &mut never).unwrap();
    assert_eq!(values(&broker, 1), ["a", "b"]);
}

#[test]
fn a_closed_producer_refuses_records_and_closes_twice() {
    let broker = embedded(1);
    let producer = producer(
        &broker,
        None,
        &[("linger.ms", "60000"), ("delivery.timeout.ms", "120000")],
    );
    let queued = producer.send(&record(0, b"a"), &mut never).unwrap();
    assert!(queued.try_result().is_none());
    producer.close(None, &mut never).unwrap();
    assert_eq!(queued.try_result().unwrap().unwrap().offset, 0);
    assert!(matches!(
        producer.send(&record(0, b"b"), &mut never),
        Err(ClientError::Closed(_))
    ));
    producer.close(None, &mut never).unwrap();
    let unused = self::producer(&broker, None, &[]);
    unused.close(None, &mut never).unwrap();
    unused.flush(&mut never).unwrap();
}

#[test]
fn a_close_that_may_not_wait_fails_what_is_undecided() {
    let broker = embedded(1);
    let faults = scripted([(1, "drop")]);
    let producer = producer(&broker, Some(&faults), &[("batch.size", "1")]);
    let first = producer.send(&record(0, b"a"), &mut never).unwrap();
    producer.close(Some(0), &mut never).unwrap();
    assert!(matches!(first.try_result(), Some(Err(ClientError::Closed(_)))));
    assert!(values(&broker, 0).is_empty());
}

#[test]
fn wrong_records_are_errors_that_leave_the_producer_usable() {
    let broker = embedded(2);
    let producer = producer(&broker, None, &[("max.request.size", "200")]);
    let refused = producer.send(&record(2, b"a"), &mut never).unwrap_err();
    assert!(refused.to_string().contains("has no partition 2"), "{refused}");
    let negative = ProducerRecord {
        timestamp: Some(-1),
        ..record(0, b"a")
    };
    assert!(matches!(
        producer.send(&negative, &mut never),
        Err(ClientError::IllegalArgument(_))
    ));
    let unknown = ProducerRecord {
        topic: "other",
        ..record(0, b"a")
    };
    let error = producer.send(&unknown, &mut never).unwrap_err();
    assert!(
        matches!(
            &error,
            ClientError::Kafka {
                code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                ..
            }
        ),
        "{error:?}"
    );
    let large = producer.send(&record(0, &[b'x'; 200]), &mut never).unwrap();
    assert!(matches!(large.try_result(), Some(Err(ClientError::RecordTooLarge(_)))));
    broker.create_topic("other", 1, &[]).unwrap();
    let now = producer.send(&unknown, &mut never).unwrap();
    assert_eq!(now.result(None, &mut never).unwrap().offset, 0);
    producer.close(None, &mut never).unwrap();
}

#[test]
fn waiting_calls_ask_their_interrupt_and_stop() {
    let broker = embedded(1);
    let faults = scripted([(1, "drop")]);
    let producer = producer(&broker, Some(&faults), &[("batch.size", "1"), ("buffer.memory", "200")]);
    let first = producer.send(&record(0, b"a"), &mut never).unwrap();
    let asked = AtomicUsize::new(0);
    let mut stop = || asked.fetch_add(1, Ordering::SeqCst) >= 1;
    assert!(matches!(producer.flush(&mut stop), Err(ClientError::Interrupted)));
    assert!(matches!(
        first.result(None, &mut || true),
        Err(ClientError::Interrupted)
    ));
    assert!(matches!(
        first.result(Some(20), &mut never),
        Err(ClientError::Timeout(_))
    ));
    // buffer.memory holds one such batch: this send waits for the first to be decided.
    assert!(matches!(
        producer.send(&record(0, &[b'y'; 40]), &mut || true),
        Err(ClientError::Interrupted)
    ));
    producer.close(Some(0), &mut never).unwrap();
}

#[test]
fn memory_that_stays_full_fails_the_record_after_max_block() {
    let broker = embedded(1);
    let faults = scripted([(1, "drop")]);
    let config = [("batch.size", "1"), ("buffer.memory", "200"), ("max.block.ms", "500")];
    let producer = producer(&broker, Some(&faults), &config);
    producer.send(&record(0, b"a"), &mut never).unwrap();
    let second = producer.send(&record(0, &[b'y'; 40]), &mut never).unwrap();
    assert!(matches!(
        second.try_result(),
        Some(Err(ClientError::BufferExhausted(_)))
    ));
    // Two rows of 17 bytes just fill the 95 bytes of a batch for the first; the third needs another batch.
    let rows = producer.send_columns("t", &Tens::new(3), 0, &mut never);
    assert!(
        matches!(&rows, Err(ClientError::BufferExhausted(text)) if text.starts_with("row 2:")),
        "{rows:?}"
    );
    // Closing at once gives the queued rows up, and says so.
    assert!(matches!(
        producer.close(Some(0), &mut never),
        Err(ClientError::Closed(_))
    ));
}

#[test]
fn columns_larger_than_the_memory_flow_through_and_their_failure_is_reported_by_flush() {
    let broker = embedded(3);
    let producer = producer(
        &broker,
        None,
        &[("buffer.memory", "200000"), ("enable.idempotence", "true")],
    );
    assert_eq!(
        producer.send_columns("t", &Tens::new(200_000), 0, &mut never).unwrap(),
        200_000
    );
    producer.flush(&mut never).unwrap();
    let total: i64 = (0..3)
        .map(|p| {
            broker
                .partition_log(&fletchlog_records::TopicPartition::new("t", p))
                .unwrap()
                .log_end_offset()
        })
        .sum();
    assert_eq!(total, 200_000);
    producer.close(None, &mut never).unwrap();

    let faults = scripted([(1, "refused:INVALID_RECORD")]);
    let failing = self::producer(&broker, Some(&faults), &[]);
    failing.send_columns("t", &Tens::new(10), 0, &mut never).unwrap();
    assert!(matches!(
        failing.flush(&mut never),
        Err(ClientError::Kafka {
            code: ErrorCode::INVALID_RECORD,
            ..
        })
    ));
    failing.flush(&mut never).unwrap();
    failing.close(None, &mut never).unwrap();
}

/// What a call that does not wait has once the sender lets go of the lock.
fn soon<T>(mut call: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(value) = call() {
            return value;
        }
        assert!(Instant::now() < end, "the lock is free most of the time");
        std::thread::yield_now();
    }
}

#[test]
fn a_send_that_would_have_to_wait_or_fail_is_left_to_the_call_that_does() {
    let broker = embedded(1);
    let config = [("batch.size", "100"), ("buffer.memory", "400"), ("linger.ms", "60000")];
    let producer = producer(&broker, None, &config);
    let called = Arc::new(AtomicUsize::new(0));
    let call = || -> Option<OnDecided> {
        let called = called.clone();
        Some(Box::new(move |_| {
            called.fetch_add(1, Ordering::SeqCst);
        }))
    };
    let refused = |record: &ProducerRecord<'_>| {
        let mut on_decided = call();
        let refused = producer.try_send_with(record, &mut on_decided).is_none();
        assert_eq!(on_decided.is_some(), refused, "it is taken with the record only");
        refused && !producer.try_send_row(record)
    };
    assert!(refused(&record(0, b"the topic is unknown")));
    assert_eq!(producer.partitions_for("t", &mut || false).unwrap(), 1);
    assert!(refused(&record(1, b"no such partition")));
    assert!(refused(&ProducerRecord {
        timestamp: Some(-1),
        ..record(0, b"v")
    }));
    assert!(refused(&record(0, &[b'x'; 400])), "larger than the memory");
    let mut on_decided = call();
    let first = soon(|| producer.try_send_with(&record(0, b"0"), &mut on_decided));
    soon(|| producer.try_send_row(&record(0, b"1")).then_some(()));
    // The second batch.
    soon(|| producer.try_send_row(&record(0, &[b'2'; 90])).then_some(()));
    assert!(first.try_result().is_none() || called.load(Ordering::SeqCst) == 1);
    producer.flush(&mut never).unwrap();
    assert_eq!(first.try_result().unwrap().unwrap().offset, 0);
    assert_eq!(called.load(Ordering::SeqCst), 1);
    assert_eq!(values(&broker, 0), ["0", "1", &"2".repeat(90)]);
    producer.close(None, &mut never).unwrap();
    assert!(refused(&record(0, b"closed")));
    assert_eq!(called.load(Ordering::SeqCst), 1);
}

#[test]
fn memory_that_is_full_is_waited_for_by_the_call_that_waits() {
    let broker = embedded(1);
    let faults = scripted([(1, "drop")]);
    let config = [
        ("batch.size", "1"),
        ("buffer.memory", "200"),
        ("request.timeout.ms", "100"),
        ("delivery.timeout.ms", "60000"),
    ];
    let producer = producer(&broker, Some(&faults), &config);
    assert_eq!(producer.partitions_for("t", &mut || false).unwrap(), 1);
    soon(|| producer.try_send_row(&record(0, b"a")).then_some(()));
    assert!(
        !producer.try_send_row(&record(0, &[b'y'; 40])),
        "the first request is lost: its memory is still used"
    );
    let second = producer.send(&record(0, &[b'y'; 40]), &mut never).unwrap();
    assert_eq!(second.result(None, &mut never).unwrap().offset, 1);
    producer.close(None, &mut never).unwrap();
}

#[test]
fn sends_under_hold_are_complete_before_the_sender_sees_them() {
    let broker = embedded(1);
    let faults = scripted([(1, "refused:6")]);
    let config = [("batch.size", "1"), ("retry.backoff.ms", "10"), ("acks", "all")];
    let producer = producer(&broker, Some(&faults), &config);
    producer.partitions_for("t", &mut || false).unwrap();
    {
        faults.collect_sends();
        for number in 0..8 {
            // 40 characters, so that each is a batch of its own.
            producer
                .send(&record(0, format!("{number:<40}").as_bytes()), &mut never)
                .unwrap();
        }
        assert!(done(&faults).is_empty());
        faults.resume_sends();
    }
    producer.flush(&mut never).unwrap();
    // Recorded scenario 001 on 2.6.3.
    assert_eq!(values(&broker, 0).concat().replace(' ', ""), "12340567");
    assert_eq!(done(&faults)[5].after, 2);
    producer.close(None, &mut never).unwrap();
}

#[test]
fn acks_0_counts_as_delivered_with_offset_minus_one() {
    let broker = embedded(1);
    let producer = producer(&broker, None, &[("acks", "0")]);
    let future = producer.send(&record(0, b"a"), &mut never).unwrap();
    assert_eq!(future.result(None, &mut never).unwrap().offset, -1);
    producer.close(None, &mut never).unwrap();
    assert_eq!(values(&broker, 0), ["a"]);
}

#[test]
fn many_threads_share_a_producer_and_each_keeps_its_order() {
    let broker = embedded(4);
    let producer = producer(&broker, None, &[("batch.size", "64"), ("enable.idempotence", "true")]);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let producer = &producer;
            scope.spawn(move || {
                for number in 0..500 {
                    producer
                        .send(&record(thread, number.to_string().as_bytes()), &mut never)
                        .unwrap();
                }
            });
        }
    });
    producer.flush(&mut never).unwrap();
    let expected: Vec<String> = (0..500).map(|n| n.to_string()).collect();
    for partition in 0..4 {
        assert_eq!(values(&broker, partition), expected);
    }
    producer.close(None, &mut never).unwrap();
}

/// Numbered rows for one partition.
struct Numbered {
    partition: i32,
    values: Vec<String>,
}

impl Numbered {
    fn new(partition: i32, count: usize) -> Self {
        // What gzip takes a moment for.
        let value = |i: usize| format!("{i:06} {:x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self {
            partition,
            values: (0..count).map(value).collect(),
        }
    }
}

impl RecordColumns for Numbered {
    fn len(&self) -> usize {
        self.values.len()
    }
    fn value(&self, row: usize) -> Option<&[u8]> {
        Some(self.values[row].as_bytes())
    }
    fn key(&self, _row: usize) -> Option<&[u8]> {
        None
    }
    fn partition(&self, _row: usize) -> Option<i32> {
        Some(self.partition)
    }
    fn timestamp(&self, _row: usize) -> Option<i64> {
        None
    }
    fn headers<'a>(&'a self, _row: usize, _out: &mut Vec<(&'a str, Option<&'a [u8]>)>) {}
    fn no_headers(&self) -> bool {
        true
    }
}

#[test]
fn rows_that_users_append_and_compress_beside_the_sender_arrive_once_and_in_order() {
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let broker = embedded(3);
        let faults = scripted([(2, "lost-ack"), (5, "drop"), (9, "lost-ack"), (12, "drop")]);
        let config = [
            ("compression.type", codec),
            ("enable.idempotence", "true"),
            ("batch.size", "2000"),
            ("buffer.memory", "400000"),
            ("retry.backoff.ms", "1"),
            ("request.timeout.ms", "100"),
            ("delivery.timeout.ms", "60000"),
        ];
        let producer = producer(&broker, Some(&faults), &config);
        let rows: Vec<Numbered> = (0..3).map(|partition| Numbered::new(partition, 30_000)).collect();
        std::thread::scope(|scope| {
            for own in &rows {
                let producer = &producer;
                scope.spawn(move || producer.send_columns("t", own, 0, &mut never).unwrap());
            }
        });
        producer.flush(&mut never).unwrap();
        producer.close(None, &mut never).unwrap();
        for own in &rows {
            assert!(
                values(&broker, own.partition) == own.values,
                "{codec}, partition {}",
                own.partition
            );
        }
    }
}

#[test]
fn a_producer_that_is_closed_while_users_append_and_compress_ends_and_keeps_what_was_in_order() {
    for round in 0..40 {
        let broker = embedded(2);
        let config = [
            ("compression.type", ["gzip", "none"][round % 2]),
            ("batch.size", "4000"),
            ("enable.idempotence", "true"),
        ];
        let producer = producer(&broker, None, &config);
        let rows: Vec<Numbered> = (0..2).map(|partition| Numbered::new(partition, 40_000)).collect();
        std::thread::scope(|scope| {
            for own in &rows {
                let producer = &producer;
                scope.spawn(move || drop(producer.send_columns("t", own, 0, &mut never)));
            }
            std::thread::sleep(Duration::from_millis(3));
            drop(producer.close(Some(1), &mut never));
        });
        drop(producer);
        for own in &rows {
            let written = values(&broker, own.partition);
            assert!(own.values.starts_with(&written), "partition {}", own.partition);
        }
    }
}

#[test]
fn users_that_append_to_the_same_partition_at_once_each_keep_their_order() {
    let broker = embedded(1);
    let config = [("batch.size", "2000"), ("buffer.memory", "400000"), ("linger.ms", "1")];
    let producer = producer(&broker, None, &config);
    let all = Numbered::new(0, 60_000).values;
    let rows: Vec<Numbered> = all
        .chunks(20_000)
        .map(|part| Numbered {
            partition: 0,
            values: part.to_vec(),
        })
        .collect();
    std::thread::scope(|scope| {
        for own in &rows {
            let producer = &producer;
            scope.spawn(move || producer.send_columns("t", own, 0, &mut never).unwrap());
        }
    });
    producer.close(None, &mut never).unwrap();
    let mut written = values(&broker, 0);
    for own in &rows {
        let found: Vec<&String> = written
            .iter()
            .filter(|value| own.values.binary_search(value).is_ok())
            .collect();
        assert!(found.into_iter().eq(&own.values));
    }
    written.sort_unstable();
    assert!(written == all);
}

#[test]
fn a_panic_while_rows_are_appended_leaves_a_producer_that_sends_what_came_before() {
    let broker = embedded(1);
    let producer = producer(
        &broker,
        None,
        &[("linger.ms", "60000"), ("delivery.timeout.ms", "120000")],
    );
    for rows in [300, 2000] {
        let before = values(&broker, 0).len();
        let sent = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            drop(producer.send_columns("t", &Tens { rows, broken: true }, 0, &mut never));
        }));
        assert!(sent.is_err());
        producer.flush(&mut never).unwrap();
        assert_eq!(values(&broker, 0).len(), before + rows - 1);
    }
    producer.send(&record(0, b"after"), &mut never).unwrap();
    producer.close(None, &mut never).unwrap();
    assert_eq!(values(&broker, 0).last().map(String::as_str), Some("after"));
}
