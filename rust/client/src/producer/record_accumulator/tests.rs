//! Kafka's own accumulator tests, restated (spec 11.5).

use std::sync::Arc;

use fletchlog_api::transport::SystemClock;
use fletchlog_api::{Config, Scope};

use super::*;
use crate::net::fixtures::{cluster, topic};
use crate::producer::metadata::ProducerMetadata;

const NODE: NodeId = 1;

fn metadata(partitions: i32) -> ProducerMetadata {
    let mut metadata = ProducerMetadata::new(100, 300_000);
    metadata.request_topic("t");
    metadata.update(&cluster([NODE], [topic("t", (0..partitions).map(|_| (NODE, 0)))]), 0);
    metadata
}

fn accumulator(config: &[(&str, &str)]) -> RecordAccumulator {
    let config = Config::parse(Scope::Producer, config.iter().copied()).unwrap();
    let clock = Arc::new(SystemClock::default());
    let config = ProducerConfig::new(&config).unwrap();
    RecordAccumulator::new(Arc::new(config), clock.clone(), Signal::new(clock), 1)
}

/// Appends a value, opening a batch when the last has no room.
fn append(accumulator: &mut RecordAccumulator, partition: PartitionId, value: &[u8], now: i64) {
    let row = Row {
        partition: None,
        timestamp: 0,
        key: None,
        value: Some(value),
        headers: &[],
    };
    if accumulator.try_append(partition, &row).is_none() {
        let size = accumulator.buffer_size(&row);
        let id = accumulator.add_batch(partition, &Arc::from("t"), size, now);
        accumulator.batches[id].try_append(0, None, Some(value), &[]).unwrap();
    }
}

fn error() -> ClientError {
    ClientError::Interrupted
}

fn ready(accumulator: &mut RecordAccumulator, metadata: &ProducerMetadata, now: i64) -> (bool, i64) {
    let check = accumulator.ready(metadata, now);
    (!check.nodes.is_empty(), check.next_check_ms)
}

const LONG: (&str, &str) = ("linger.ms", "600000");
const DELIVERY: (&str, &str) = ("delivery.timeout.ms", "2000000");

#[test]
fn a_node_is_ready_once_a_batch_is_full() {
    let (mut accumulator, metadata) = (accumulator(&[("batch.size", "1025"), LONG, DELIVERY]), metadata(1));
    let value = [0; 100];
    for _ in 0..8 {
        append(&mut accumulator, 0, &value, 0);
        assert_eq!(ready(&mut accumulator, &metadata, 0), (false, 600_000));
    }
    append(&mut accumulator, 0, &value, 0);
    assert!(
        ready(&mut accumulator, &metadata, 0).0,
        "61 + 9 records of 109 bytes is more than 1025: the ninth opened a second batch"
    );
    let drained = accumulator.drain(&metadata, NODE, None, 0);
    assert_eq!(drained.len(), 1);
    assert_eq!(accumulator.batches[drained[0]].count(), 8);
}

#[test]
fn linger_delays_and_returns_how_long() {
    let (mut accumulator, metadata) = (accumulator(&[("linger.ms", "10")]), metadata(1));
    append(&mut accumulator, 0, b"x", 0);
    assert_eq!(ready(&mut accumulator, &metadata, 0), (false, 10));
    assert_eq!(ready(&mut accumulator, &metadata, 5), (false, 5));
    assert!(ready(&mut accumulator, &metadata, 10).0);
}

#[test]
fn a_drain_stops_at_the_request_size_and_the_next_begins_with_what_did_not_fit() {
    for release in ["2.6", "3.9"] {
        let config = [
            ("batch.size", "1024"),
            ("max.request.size", "1100"),
            ("fletchlog.producer.version", release),
        ];
        let (mut accumulator, metadata) = (accumulator(&config), metadata(2));
        for partition in 0..2 {
            append(&mut accumulator, partition, &[0; 1000], 0);
        }
        let order = metadata.led_by(NODE).to_vec();
        let mut seen = Vec::new();
        for _ in 0..2 {
            let drained = accumulator.drain(&metadata, NODE, None, 0);
            assert_eq!(drained.len(), 1, "{release}");
            seen.push(accumulator.batches[drained[0]].partition);
        }
        assert_eq!(seen, order, "{release}");
    }
}

#[test]
fn the_start_of_a_drain_stays_on_2_6_and_moves_back_by_one_on_3_3() {
    for (release, expected) in [("2.6", [0, 0, 0]), ("3.3", [0, 2, 1])] {
        let (mut accumulator, metadata) = (accumulator(&[("fletchlog.producer.version", release)]), metadata(3));
        let order = metadata.led_by(NODE).to_vec();
        for start in expected {
            (0..3).for_each(|partition| append(&mut accumulator, partition, b"x", 0));
            let drained = accumulator.drain(&metadata, NODE, None, 0);
            let got: Vec<PartitionId> = drained.iter().map(|&id| accumulator.batches[id].partition).collect();
            let wanted: Vec<PartitionId> = (0..3).map(|i| order[(start + i) % 3]).collect();
            assert_eq!(got, wanted, "{release}");
        }
    }
}

#[test]
fn a_muted_partition_is_neither_ready_nor_drained() {
    let (mut accumulator, metadata) = (accumulator(&[]), metadata(2));
    append(&mut accumulator, 0, b"x", 0);
    accumulator.mute(0);
    assert_eq!(ready(&mut accumulator, &metadata, 0), (false, i64::MAX));
    assert!(accumulator.drain(&metadata, NODE, None, 0).is_empty());
    append(&mut accumulator, 1, b"y", 0);
    let drained = accumulator.drain(&metadata, NODE, None, 0);
    assert_eq!(drained.len(), 1, "the other partition of the node flows on");
    assert!(accumulator.unmute(0));
    assert!(ready(&mut accumulator, &metadata, 0).0);
}

#[test]
fn a_retried_batch_waits_for_its_back_off_at_the_front_while_others_flow() {
    let (mut accumulator, metadata) = (
        accumulator(&[("retry.backoff.ms", "100"), ("batch.size", "1")]),
        metadata(2),
    );
    append(&mut accumulator, 0, &[0; 40], 0);
    append(&mut accumulator, 0, &[1; 40], 0);
    let first = accumulator.drain(&metadata, NODE, None, 0)[0];
    accumulator.reenqueue(first, None, 5);
    assert_eq!(ready(&mut accumulator, &metadata, 5), (false, 100));
    append(&mut accumulator, 1, b"y", 5);
    let drained = accumulator.drain(&metadata, NODE, None, 5);
    assert_eq!(drained.len(), 1);
    assert_eq!(accumulator.batches[drained[0]].partition, 1);
    assert_eq!(ready(&mut accumulator, &metadata, 104), (false, 1));
    assert!(ready(&mut accumulator, &metadata, 105).0);
    assert_eq!(accumulator.drain(&metadata, NODE, None, 105), [first]);
}

#[test]
fn the_back_off_doubles_with_jitter_from_3_7_on() {
    let mut constant = accumulator(&[("fletchlog.producer.version", "3.6")]);
    let mut growing = accumulator(&[("fletchlog.producer.version", "3.7")]);
    for (failures, middle) in [
        (0, 100.0),
        (1, 200.0),
        (2, 400.0),
        (3, 800.0),
        (4, 1000.0),
        (60, 1000.0),
    ] {
        assert_eq!(constant.backoff(failures), 100);
        #[allow(clippy::cast_precision_loss)]
        let wait = growing.backoff(failures) as f64;
        assert!(
            (0.79 * middle..=(1.21f64 * middle).min(1000.0)).contains(&wait),
            "{failures}: {wait}"
        );
    }
}

#[test]
fn flush_close_and_waiting_threads_make_everything_ready() {
    let (mut accumulator, metadata) = (accumulator(&[LONG, DELIVERY]), metadata(1));
    append(&mut accumulator, 0, b"x", 0);
    assert!(!ready(&mut accumulator, &metadata, 0).0);
    let mark = accumulator.serial_mark();
    accumulator.flushes = 1;
    assert!(ready(&mut accumulator, &metadata, 0).0);
    accumulator.flushes = 0;
    accumulator.memory_waiters = 1;
    assert!(ready(&mut accumulator, &metadata, 0).0);
    accumulator.memory_waiters = 0;
    accumulator.closed = true;
    assert!(ready(&mut accumulator, &metadata, 0).0);
    assert!(!accumulator.all_decided_below(mark));
    let id = accumulator.drain(&metadata, NODE, None, 0)[0];
    accumulator.decided(id);
    assert!(accumulator.all_decided_below(mark) && !accumulator.has_incomplete());
}

#[test]
fn a_record_larger_than_the_batch_gets_a_batch_of_its_own_size() {
    let (mut accumulator, metadata) = (accumulator(&[("batch.size", "64")]), metadata(1));
    append(&mut accumulator, 0, &[0; 2000], 0);
    append(&mut accumulator, 0, b"x", 0);
    let id = accumulator.drain(&metadata, NODE, None, 0)[0];
    assert!(accumulator.batches[id].count() <= 2 && accumulator.batches[id].records.bytes().len() > 2000);
}

#[test]
fn memory_is_taken_by_buffer_size_and_given_back_when_decided() {
    let (mut accumulator, metadata) = (
        accumulator(&[("batch.size", "100"), ("buffer.memory", "150")]),
        metadata(1),
    );
    append(&mut accumulator, 0, b"x", 0);
    assert!(accumulator.has_memory(50) && !accumulator.has_memory(51));
    let id = accumulator.drain(&metadata, NODE, None, 0)[0];
    assert!(!accumulator.has_memory(51), "on the wire it still counts");
    accumulator.decided(id);
    assert!(accumulator.has_memory(150));
    accumulator.batches.remove_if_unused(id);
    assert_eq!(accumulator.batches.len(), 0);
}

#[test]
fn batches_expire_by_creation_muted_or_retried() {
    let config = [
        ("delivery.timeout.ms", "1000"),
        ("request.timeout.ms", "1000"),
        ("retry.backoff.ms", "10"),
    ];
    let (mut accumulator, metadata) = (accumulator(&config), metadata(2));
    append(&mut accumulator, 0, b"x", 0);
    accumulator.mute(0);
    append(&mut accumulator, 1, b"y", 100);
    let other = accumulator.drain(&metadata, NODE, None, 100)[0];
    accumulator.reenqueue(other, None, 900);
    assert_eq!(accumulator.next_expiry_ms(), 1000);
    assert!(accumulator.take_expired(999).is_empty());
    assert_eq!(accumulator.take_expired(1000).len(), 1);
    assert_eq!(accumulator.next_expiry_ms(), 1100);
    assert_eq!(accumulator.take_expired(1100), [other]);
    assert!(!accumulator.has_undrained());
}

#[test]
fn a_partition_without_leader_asks_for_metadata() {
    let (mut accumulator, mut metadata) = (accumulator(&[]), metadata(1));
    metadata.update(&cluster([NODE], [topic("t", [(-1, 1)])]), 0);
    append(&mut accumulator, 0, b"x", 0);
    let check = accumulator.ready(&metadata, 0);
    assert!(check.unknown_leaders && check.nodes.is_empty());
}

#[test]
fn the_compression_estimate_follows_what_was_observed() {
    let (mut accumulator, metadata) = (
        accumulator(&[("compression.type", "lz4"), ("batch.size", "1000"), LONG, DELIVERY]),
        metadata(1),
    );
    let topic: Arc<str> = Arc::from("t");
    accumulator.flushes = 1;
    let mut last = 1.0;
    for _ in 0..40 {
        append(&mut accumulator, 0, &[7; 500], 0);
        let id = accumulator.drain(&metadata, NODE, None, 0)[0];
        let estimate = accumulator.ratios[&topic];
        assert!(
            (last - estimate - 0.005f32).abs() < 1e-4,
            "falls by 0.005 per good batch"
        );
        last = estimate;
        accumulator.decided(id);
        accumulator.batches.remove_if_unused(id);
    }
    // Noise does not compress: the estimate rises by at least 0.05 at once.
    let noise: Vec<u8> = (0..500u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0])
        .collect();
    append(&mut accumulator, 0, &noise, 0);
    accumulator.drain(&metadata, NODE, None, 0);
    assert!(accumulator.ratios[&topic] >= last + 0.05 - 1e-4);
}

#[test]
fn a_split_keeps_order_and_halves_its_products_from_4_2_on() {
    for (release, second) in [("4.1", vec![7]), ("4.2", vec![2, 2, 2, 1])] {
        let config = [
            ("batch.size", "400"),
            ("fletchlog.producer.version", release),
            LONG,
            DELIVERY,
        ];
        let (mut accumulator, metadata) = (accumulator(&config), metadata(1));
        accumulator.flushes = 1;
        for n in 0..7u8 {
            append(&mut accumulator, 0, &[n; 40], 3);
        }
        let topic: Arc<str> = Arc::from("t");
        let counts = |accumulator: &RecordAccumulator, ids: &[BatchId]| -> Vec<i32> {
            ids.iter().map(|&id| accumulator.batches[id].count()).collect()
        };
        let id = accumulator.drain(&metadata, NODE, None, 3)[0];
        let pieces = accumulator.split_and_reenqueue(id, &topic, None);
        assert_eq!(
            counts(&accumulator, &pieces),
            [7],
            "it fits batch.size: the same batch again"
        );
        assert_eq!(accumulator.drain(&metadata, NODE, None, 3), pieces);
        let pieces = accumulator.split_and_reenqueue(pieces[0], &topic, None);
        assert_eq!(counts(&accumulator, &pieces), second, "{release}");
        let mut values = Vec::new();
        for &piece in &pieces {
            assert_eq!(accumulator.batches[piece].created_ms, 3);
            assert_eq!(accumulator.drain(&metadata, NODE, None, 3), [piece]);
            accumulator.batches[piece].for_each_record(|_, _, value, _| values.push(value.unwrap()[0]));
        }
        assert_eq!(values, [0, 1, 2, 3, 4, 5, 6]);
    }
}

#[test]
fn a_batch_that_is_compressed_elsewhere_is_drained_afterwards_with_the_same_bytes() {
    let config = [
        ("batch.size", "400"),
        ("compression.type", "gzip"),
        ("linger.ms", "0"),
        DELIVERY,
    ];
    let filled = || {
        let (mut accumulator, metadata) = (accumulator(&config), metadata(1));
        (0..60u8).for_each(|n| append(&mut accumulator, 0, &[n; 90], 0));
        let ids = accumulator.queues[0].batches.clone();
        assert!(ids.len() > 3);
        (accumulator, metadata, ids)
    };
    let (mut plain, metadata, ids) = filled();
    let expected: Vec<_> = ids
        .iter()
        .map(|&id| {
            assert_eq!(plain.drain(&metadata, NODE, None, 0), [id]);
            plain.batches[id].records.bytes()
        })
        .collect();

    let (mut accumulator, metadata, ids) = filled();
    let config = accumulator.config.clone();
    let mut behind = accumulator.take_unpacked_behind().unwrap();
    let mut heads = accumulator.take_unpacked_heads();
    assert_eq!(heads.len(), 1);
    assert!(accumulator.take_unpacked_heads().is_empty(), "it is under way");
    assert!(accumulator.drain(&metadata, NODE, None, 0).is_empty());
    assert!(!ready(&mut accumulator, &metadata, 0).0, "the sender would spin");
    heads[0].pack(&config);
    accumulator.give_back(heads.remove(0));
    assert_eq!(accumulator.drain(&metadata, NODE, None, 0), [ids[0]]);
    assert!(
        accumulator.drain(&metadata, NODE, None, 0).is_empty(),
        "the second is under way"
    );
    let kept = accumulator.spare.len();
    behind.pack(&config);
    accumulator.give_back(behind);
    assert_eq!(accumulator.spare.len(), kept + 1, "the memory of its records");
    while let Some(mut batch) = accumulator.take_unpacked_behind() {
        batch.pack(&config);
        accumulator.give_back(batch);
    }
    let full = &ids.iter().copied().collect::<Vec<_>>()[1..ids.len() - 1];
    assert!(full.iter().all(|&id| !accumulator.batches[id].is_unpacked()));
    for &id in ids.iter().skip(1) {
        assert_eq!(accumulator.drain(&metadata, NODE, None, 0), [id]);
    }
    let found: Vec<_> = ids.iter().map(|&id| accumulator.batches[id].records.bytes()).collect();
    assert_eq!(found, expected);

    let (mut accumulator, _, ids) = filled();
    let late = accumulator.take_unpacked_heads().remove(0);
    accumulator.abort_all(&error());
    append(&mut accumulator, 0, &[1; 90], 0);
    accumulator.give_back(late);
    let reused = accumulator.queues[0].batches[0];
    assert!(ids.contains(&reused), "the slot of another batch");
    assert_eq!(accumulator.batches[reused].count(), 1);
}

#[test]
fn a_batch_that_a_user_appends_to_is_sent_when_it_is_back() {
    let (mut accumulator, metadata) = (accumulator(&[("linger.ms", "0")]), metadata(1));
    append(&mut accumulator, 0, b"a", 0);
    let id = accumulator.last_batch_id(0).unwrap();
    let mut lent = accumulator.lend(id).unwrap();
    assert!(accumulator.lend(id).is_none(), "to one at a time");
    for _ in 0..10 {
        lent.records.append(0, None, Some(b"b"), &[]).unwrap();
    }
    assert!(!ready(&mut accumulator, &metadata, 9).0, "the sender would spin");
    assert!(accumulator.drain(&metadata, NODE, None, 9).is_empty());
    append(&mut accumulator, 0, b"c", 9);
    assert!(accumulator.give_back(lent).is_some());
    assert_eq!(accumulator.batches[id].count(), 11);
    let sizes = [11, 1].map(|count| {
        let drained = accumulator.drain(&metadata, NODE, None, 9);
        assert_eq!(accumulator.batches[drained[0]].count(), count);
        accumulator.batches[drained[0]].records.bytes().len()
    });
    assert!(sizes[0] > sizes[1]);
}

#[test]
fn a_batch_that_was_decided_while_a_user_appended_to_it_takes_nothing_back() {
    let mut accumulator = accumulator(&[]);
    append(&mut accumulator, 0, b"a", 0);
    let id = accumulator.last_batch_id(0).unwrap();
    let mut lent = accumulator.lend(id).unwrap();
    lent.records.append(0, None, Some(b"b"), &[]).unwrap();
    accumulator.fail(id, &error());
    assert!(accumulator.give_back(lent).is_none());
    assert_eq!(accumulator.batches[id].count(), 1);
}
