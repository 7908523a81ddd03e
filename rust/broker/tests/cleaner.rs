//! Compaction through the broker: explicit, by the background thread, across restarts.

use std::sync::Arc;

use crate::common::*;
use bytes::Bytes;
use fletchlog_broker::{Broker, BrokerError, CleanedPartition};
use fletchlog_log::FetchBound;
use fletchlog_records::{BatchBuilder, BatchIter, BatchParams};

const COMPACT: &[(&str, &str)] = &[("cleanup.policy", "compact"), ("segment.bytes", "200")];

fn config(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn keyed(key: &str) -> Bytes {
    let mut builder = BatchBuilder::with_capacity(64);
    builder.append(1_700_000_000_000, Some(key.as_bytes()), Some(b"value"), &[]);
    builder.build(&BatchParams::default())
}

fn offsets(broker: &Broker, topic: &str) -> Vec<i64> {
    let log = broker.partition_log(&tp(topic, 0)).unwrap();
    let mut out = Vec::new();
    let mut offset = 0;
    while offset < log.log_end_offset() {
        let read = log.read(offset, 1 << 20, true, FetchBound::HighWatermark).unwrap();
        for batch in BatchIter::new(read.records).map(Result::unwrap) {
            out.extend((batch.header().records_count > 0).then_some(batch.header().base_offset));
            offset = batch.header().next_offset();
        }
    }
    out
}

fn filled(broker: &Arc<Broker>, topic: &str, count: usize) {
    broker.create_topic(topic, 2, &config(COMPACT)).unwrap();
    for i in 0..count {
        broker.append_batches(&tp(topic, 0), keyed(["a", "b"][i % 2])).unwrap();
    }
}

fn clean(broker: &Broker, topic: &str, force: bool) -> Vec<CleanedPartition> {
    broker.clean_topic(topic, force, &mut || false).unwrap()
}

#[test]
fn a_topic_is_cleaned_when_it_is_due_and_whole_when_forced() {
    let broker = Broker::in_memory(options(None, false, &[]), VirtualClock::new()).unwrap();
    filled(&broker, "t", 9);
    let log = broker.partition_log(&tp("t", 0)).unwrap();
    let active = log.segments().last().unwrap().0;
    let done = clean(&broker, "t", false);
    // Partition 1 has no log yet.
    assert_eq!(done.len(), 1);
    assert_eq!(
        (done[0].partition, done[0].rounds, done[0].stats.end_offset),
        (0, 1, active)
    );
    assert_eq!(offsets(&broker, "t"), [6, 7, 8]);
    // Nothing dirty is left.
    assert_eq!(clean(&broker, "t", false)[0].rounds, 0);
    assert_eq!(offsets(&broker, "t"), [6, 7, 8]);
    let done = clean(&broker, "t", true);
    assert_eq!(
        (done[0].stats.first_dirty_offset, done[0].stats.end_offset),
        (active, 9)
    );
    assert_eq!(offsets(&broker, "t"), [7, 8]);
    assert_eq!(log.log_end_offset(), 9);
}

#[test]
fn little_memory_takes_more_rounds() {
    let limits = options(None, false, &[("log.cleaner.dedupe.buffer.size", "1")]);
    let broker = Broker::in_memory(limits, VirtualClock::new()).unwrap();
    filled(&broker, "t", 12);
    let done = clean(&broker, "t", true);
    assert!(done[0].rounds > 2, "{done:?}");
    assert_eq!(offsets(&broker, "t"), [10, 11]);
}

#[test]
fn a_topic_without_the_policy_and_a_read_only_broker_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::open(dir.path(), options(None, false, &[]), VirtualClock::new()).unwrap();
    broker.create_topic("plain", 1, &[]).unwrap();
    let refused = broker.clean_topic("plain", false, &mut || false).unwrap_err();
    assert!(refused.to_string().contains("compact"), "{refused}");
    assert_eq!(refused.code(), fletchlog_api::ErrorCode::POLICY_VIOLATION);
    filled(&broker, "t", 1);
    broker.close().unwrap();
    let reader = Broker::open(dir.path(), options(None, true, &[]), VirtualClock::new()).unwrap();
    assert!(matches!(
        reader.clean_topic("t", false, &mut || false),
        Err(BrokerError::ReadOnly(_))
    ));
}

#[test]
fn how_far_a_log_is_clean_survives_a_restart_and_goes_with_the_topic() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = || std::fs::read_to_string(dir.path().join("cleaner-offset-checkpoint")).unwrap();
    let open = || Broker::open(dir.path(), options(None, false, &[]), VirtualClock::new()).unwrap();
    let broker = open();
    filled(&broker, "t", 8);
    let end = clean(&broker, "t", false)[0].stats.end_offset;
    assert_eq!(checkpoint(), format!("0\n1\nt 0 {end}\n"));
    broker.close().unwrap();
    let broker = open();
    assert_eq!(clean(&broker, "t", true)[0].stats.first_dirty_offset, end);
    assert_eq!(offsets(&broker, "t"), [6, 7]);
    broker.delete_topic("t").unwrap();
    assert_eq!(checkpoint(), "0\n0\n");
    broker.close().unwrap();
}

#[test]
fn the_background_thread_cleans_what_is_due_and_ends_with_the_broker() {
    let enabled = &[("log.cleaner.enable", "true"), ("log.cleaner.backoff.ms", "1")];
    let broker = Broker::in_memory(options(None, false, enabled), VirtualClock::new()).unwrap();
    filled(&broker, "t", 9);
    let log = broker.partition_log(&tp("t", 0)).unwrap();
    while log.segments()[0].1 > 0 {
        std::thread::yield_now();
    }
    assert_eq!(offsets(&broker, "t").last(), Some(&8));
    let weak = Arc::downgrade(&broker);
    broker.close().unwrap();
    drop(broker);
    assert!(weak.upgrade().is_none());
}

#[test]
fn a_log_that_cannot_be_cleaned_does_not_hold_up_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::open(dir.path(), options(None, false, &[]), VirtualClock::new()).unwrap();
    filled(&broker, "bad", 9);
    filled(&broker, "good", 9);
    broker.close().unwrap();
    let path = dir.path().join("bad-0/00000000000000000000.log");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[65] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let enabled = &[("log.cleaner.enable", "true"), ("log.cleaner.backoff.ms", "1")];
    let broker = Broker::open(dir.path(), options(None, false, enabled), VirtualClock::new()).unwrap();
    let log = broker.partition_log(&tp("good", 0)).unwrap();
    while log.segments()[0].1 > 0 {
        std::thread::yield_now();
    }
    assert!(broker.clean_topic("bad", false, &mut || false).is_err());
    broker.close().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

/// One that cannot be opened holds up nobody either; it is left out until `clean_topic` has cleaned it, and a new topic of its
/// name is not.
#[test]
fn the_background_leaves_out_what_failed_until_it_was_cleaned() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Broker::open(dir.path(), options(None, false, &[]), VirtualClock::new()).unwrap();
    let broker = open();
    filled(&broker, "bad", 9);
    filled(&broker, "good", 9);
    broker.close().unwrap();
    let path = dir.path().join("bad-0/partition.metadata");
    let metadata = std::fs::read(&path).unwrap();
    std::fs::write(&path, "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n").unwrap();
    let broker = open();
    let cleaned = || broker.clean_filthiest().unwrap().map(|(tp, _)| tp);
    assert!(broker.clean_filthiest().unwrap_err().to_string().contains("bad-0"));
    assert_eq!(cleaned(), Some(tp("good", 0)));
    std::fs::write(&path, metadata).unwrap();
    assert_eq!(cleaned(), None);
    let append = || {
        for i in 0..9 {
            broker.append_batches(&tp("bad", 0), keyed(["a", "b"][i % 2])).unwrap();
        }
    };
    append();
    assert_eq!(cleaned(), None);
    assert_eq!(clean(&broker, "bad", false)[0].rounds, 1);
    append();
    assert_eq!(cleaned(), Some(tp("bad", 0)));
    broker.close().unwrap();
    assert!(matches!(broker.clean_filthiest(), Err(BrokerError::Closed)));
}

#[test]
fn the_background_cleans_a_new_topic_under_the_name_of_one_that_failed() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::open(dir.path(), options(None, false, &[]), VirtualClock::new()).unwrap();
    filled(&broker, "t", 9);
    let path = dir.path().join("t-0/00000000000000000000.log");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[65] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert!(broker.clean_filthiest().is_err());
    assert_eq!(broker.clean_filthiest().unwrap(), None);
    broker.delete_topic("t").unwrap();
    filled(&broker, "t", 9);
    let (cleaned, _) = broker.clean_filthiest().unwrap().unwrap();
    assert_eq!(cleaned, tp("t", 0));
    broker.close().unwrap();
}

/// Kafka: `LogConfig#validateValues`; what the topic does not say the broker does.
#[test]
fn a_compaction_lag_that_ends_before_it_begins_is_refused() {
    let broker_lag = &[("log.cleaner.min.compaction.lag.ms", "1000")];
    let broker = Broker::in_memory(options(None, false, broker_lag), VirtualClock::new()).unwrap();
    let create = |topic: &str, pairs: &[(&str, &str)]| broker.create_topic(topic, 1, &config(pairs));
    let refused = create("t", &[("min.compaction.lag.ms", "60"), ("max.compaction.lag.ms", "59")]).unwrap_err();
    assert_eq!(refused.code(), fletchlog_api::ErrorCode::INVALID_CONFIG);
    assert!(refused.to_string().contains("(60)"), "{refused}");
    assert!(create("t", &[("max.compaction.lag.ms", "999")]).is_err());
    assert!(broker.topics(false).unwrap().is_empty());
    create("same", &[("max.compaction.lag.ms", "1000")]).unwrap();
    create("default", &[]).unwrap();
}
