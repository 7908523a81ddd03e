//! Compaction: of each key the newest value survives, offsets and order never change. (Crashes: `cleaner_crash.rs`.)

use std::collections::BTreeMap;

use crate::common::compacted::*;
use crate::common::*;
use bytes::Bytes;
use fletchlog_log::{AppendOrigin, CleanerOptions, FetchBound, LogConfig, PartitionLog};
use fletchlog_records::{BatchIter, BatchParams, Compression};
use proptest::prelude::*;

#[test]
fn the_newest_value_of_each_key_stays_where_it_was() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, config(), CLEAN);
    put(&log, &[("a", Some("0")), ("b", Some("1")), ("a", Some("2"))]);
    put(&log, &[("c", Some("3")), ("b", Some("4"))]);
    log.roll(NOW).unwrap();
    put(&log, &[("a", Some("5"))]);
    let stats = clean(&log);
    // The active segment is never cleaned and its keys do not count.
    assert_eq!(keys(&log), expected(&[(2, "a"), (3, "c"), (4, "b"), (5, "a")]));
    assert_eq!(
        (stats.end_offset, stats.messages_read, stats.messages_written),
        (5, 5, 3)
    );
    log.roll(NOW).unwrap();
    assert_eq!(clean_at(&log, stats.end_offset, NOW).end_offset, 6);
    assert_eq!(keys(&log), expected(&[(3, "c"), (4, "b"), (5, "a")]));
    assert_eq!(log.log_end_offset(), 6);
    log.close().unwrap();
    let log = open(&fs, &dir, config(), CLEAN);
    assert_eq!(keys(&log), expected(&[(3, "c"), (4, "b"), (5, "a")]));
    assert_eq!(put(&log, &[("d", None)]), 6);
}

#[test]
fn small_segments_become_one_and_their_snapshots_go() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, config(), CLEAN);
    for i in 0..12 {
        append(&log, idempotent(7, 0, i, 1));
    }
    log.roll(NOW).unwrap();
    let before = log.segments();
    assert!(before.len() > 3);
    let stats = clean(&log);
    // Two of them do not fit into one. Once they have lost their records, they do.
    let inactive = before.len() - 1;
    assert_eq!((stats.segments_read, stats.segments_written), (inactive, inactive));
    clean_at(&log, stats.end_offset, NOW);
    let after = log.segments();
    assert_eq!(after.iter().map(|s| s.0).collect::<Vec<_>>(), [0, 12]);
    log.delete_old_segments(NOW).unwrap();
    let names: Vec<String> = fs.read_dir(&dir).unwrap().into_iter().map(|entry| entry.name).collect();
    let snapshots: Vec<_> = names.iter().filter(|name| name.contains("snapshot")).collect();
    assert_eq!(snapshots, [&format!("{:020}.snapshot", 12)]);
    assert!(
        !names
            .iter()
            .any(|name| name.ends_with("deleted") || name.ends_with("cleaned")),
        "{names:?}"
    );
}

#[test]
fn a_tombstone_is_seen_until_its_horizon_and_then_goes() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, config(), CLEAN);
    put(&log, &[("a", Some("0")), ("b", Some("1"))]);
    put(&log, &[("a", None)]);
    put(&log, &[("z", Some("3"))]);
    log.roll(NOW).unwrap();
    let end = clean(&log).end_offset;
    let with_tombstone = expected(&[(1, "b"), (2, "a"), (3, "z")]);
    assert_eq!(keys(&log), with_tombstone);
    clean_at(&log, end, NOW + HORIZON - 1);
    assert_eq!(keys(&log), with_tombstone);
    clean_at(&log, end, NOW + HORIZON);
    assert_eq!(keys(&log), expected(&[(1, "b"), (3, "z")]));
    drop(fs);
}

#[test]
fn an_emptied_batch_keeps_what_a_producer_needs_and_the_end_of_the_round() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, config(), CLEAN);
    let of = |producer_id, base_sequence| BatchParams {
        producer_id,
        producer_epoch: 0,
        base_sequence,
        ..BatchParams::default()
    };
    append(&log, keyed(&of(1, 0), &[("a", Some("0")), ("b", Some("1"))]));
    append(&log, keyed(&of(1, 2), &[("a", Some("2"))]));
    append(&log, keyed(&of(2, 0), &[("a", Some("3"))]));
    put(&log, &[("a", Some("4")), ("b", Some("5"))]);
    put(&log, &[("a", None), ("b", None)]);
    log.roll(NOW).unwrap();
    let end = clean(&log).end_offset;
    clean_at(&log, end, NOW + HORIZON);
    assert_eq!(keys(&log), []);
    assert_eq!((log.log_end_offset(), log.size()), (8, 3 * 61));
    log.close().unwrap();
    // Even without the snapshots the sequences are found in the log, and nothing is appended twice.
    for entry in fs.read_dir(&dir).unwrap() {
        if entry.name.ends_with("snapshot") {
            fs.remove_file(&dir.join(entry.name)).unwrap();
        }
    }
    let log = open(&fs, &dir, config(), UNCLEAN);
    assert_eq!(log.log_end_offset(), 8);
    let again = append(&log, keyed(&of(1, 2), &[("a", Some("2"))]));
    assert_eq!((again.duplicate, again.first_offset), (true, 2));
    let again = append(&log, keyed(&of(2, 0), &[("a", Some("3"))]));
    assert_eq!((again.duplicate, again.first_offset), (true, 3));
    assert_eq!(append(&log, keyed(&of(2, 1), &[("c", Some("8"))])).first_offset, 8);
}

#[test]
fn aborted_records_go_and_their_marker_follows_after_its_horizon() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, config(), CLEAN);
    let control = |bytes| log.append_as_leader(bytes, 0, AppendOrigin::Coordinator, NOW).unwrap();
    append(&log, transactional(1, 0, 2));
    control(marker(1, 0, false));
    append(&log, transactional(2, 0, 1));
    control(marker(2, 0, true));
    put(&log, &[("other", Some("5"))]);
    append(&log, idempotent(1, 1, 0, 1));
    append(&log, idempotent(2, 1, 0, 1));
    log.roll(NOW).unwrap();
    let committed = |log: &PartitionLog| log.read(0, 1 << 20, true, FetchBound::LastStableOffset).unwrap();
    assert_eq!(committed(&log).aborted_transactions.unwrap(), [(1, 0)]);
    let kept_markers = |log: &PartitionLog| {
        let batches = BatchIter::new(committed(log).records).map(Result::unwrap);
        let control = batches.filter(|batch| batch.header().is_control());
        control.map(|batch| batch.header().base_offset).collect::<Vec<_>>()
    };
    // The data goes at once, the markers stay: a reader may be in the middle of the transaction.
    let end = clean(&log).end_offset;
    assert_eq!(keys(&log), expected(&[(5, "other"), (7, "k")]));
    assert_eq!(kept_markers(&log), [2, 4]);
    // The next round finds them without data and sets the horizon, the one after it removes them.
    clean_at(&log, end, NOW);
    assert_eq!(kept_markers(&log), [2, 4]);
    assert_eq!(committed(&log).aborted_transactions.unwrap(), []);
    clean_at(&log, end, NOW + HORIZON);
    assert_eq!(kept_markers(&log), [0; 0]);
    log.close().unwrap();
    assert_eq!(
        keys(&open(&fs, &dir, config(), CLEAN)),
        expected(&[(5, "other"), (7, "k")])
    );
}

#[test]
fn an_open_transaction_and_the_compaction_lag_hold_the_cleaner_back() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, config(), CLEAN);
    put(&log, &[("a", Some("0"))]);
    log.roll(NOW).unwrap();
    append(&log, transactional(1, 0, 1));
    log.roll(NOW).unwrap();
    put(&log, &[("a", Some("2"))]);
    log.roll(NOW).unwrap();
    let bound = |now_ms| log.cleanable(None, now_ms).unwrap().first_uncleanable_offset;
    assert_eq!(bound(NOW), 1);
    log.append_as_leader(marker(1, 0, true), 0, AppendOrigin::Coordinator, NOW)
        .unwrap();
    assert_eq!(bound(NOW), 3);
    log.update_config(LogConfig {
        min_compaction_lag_ms: 100,
        ..config()
    });
    assert_eq!((bound(NOW + 99), bound(NOW + 100)), (0, 3));
    drop(fs);
}

/// DeleteRecords into a segment that may not be cleaned yet: what is dirty begins above the bound.
#[test]
fn a_log_start_within_a_segment_does_not_expose_the_segment_to_the_cleaner() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, config(), CLEAN);
    put(&log, &[("a", Some("0")), ("b", Some("1"))]);
    append(&log, transactional(1, 0, 1));
    log.append_as_leader(marker(1, 0, false), 0, AppendOrigin::Coordinator, NOW)
        .unwrap();
    log.roll(NOW).unwrap();
    let lagging = LogConfig {
        min_compaction_lag_ms: 100,
        cleanup_delete: true,
        ..config()
    };
    log.update_config(lagging);
    log.delete_records(Some(1)).unwrap();
    let before = keys(&log);
    assert_eq!(before, expected(&[(1, "b"), (2, "k")]));
    let cleanable = log.cleanable(None, NOW).unwrap();
    assert_eq!(
        (cleanable.first_dirty_offset, cleanable.first_uncleanable_offset),
        (1, 0)
    );
    let stats = log.clean(&cleanable, &CleanerOptions::default(), NOW, &mut || false);
    assert_eq!(stats.unwrap().segments_read, 0);
    assert_eq!(keys(&log), before);
}

#[test]
fn a_log_is_due_by_its_dirty_share_or_by_the_age_of_its_dirt() {
    let (_, dir) = memory();
    let (fs, _) = memory();
    let log = open(&fs, &dir, config(), CLEAN);
    assert!(!log.cleanable(None, NOW).unwrap().is_due());
    for _ in 0..4 {
        put(&log, &[("a", Some("0"))]);
        log.roll(NOW).unwrap();
    }
    let at = |checkpoint, now_ms| log.cleanable(Some(checkpoint), now_ms).unwrap();
    assert_eq!(
        (at(0, NOW).ratio(), at(1, NOW).ratio(), at(2, NOW).ratio()),
        (1.0, 0.75, 0.5)
    );
    // Strictly more than min.cleanable.dirty.ratio.
    assert_eq!((at(1, NOW).is_due(), at(2, NOW).is_due()), (true, false));
    log.update_config(LogConfig {
        max_compaction_lag_ms: 100,
        ..config()
    });
    assert_eq!((at(2, NOW + 100).is_due(), at(2, NOW + 101).is_due()), (false, true));
    assert!(!at(4, NOW + 101).is_due());
    // A checkpoint outside of the log is not believed.
    assert!(at(9, NOW).checkpoint_is_invalid);
    assert_eq!(at(9, NOW).first_dirty_offset, 0);
}

#[test]
fn little_memory_means_more_rounds_not_less_cleaning() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, config(), CLEAN);
    for _ in 0..3 {
        for key in ["a", "b", "c", "d"] {
            put(&log, &[(key, Some("v"))]);
        }
    }
    log.roll(NOW).unwrap();
    let one_key = CleanerOptions { dedupe_buffer_bytes: 1 };
    let (mut dirty, mut rounds) = (0, 0);
    while dirty < 12 {
        let cleanable = log.cleanable(Some(dirty), NOW).unwrap();
        let end = log.clean(&cleanable, &one_key, NOW, &mut || false).unwrap().end_offset;
        assert!(end > dirty);
        dirty = end;
        rounds += 1;
    }
    assert!(rounds > 4);
    assert_eq!(keys(&log), expected(&[(8, "a"), (9, "b"), (10, "c"), (11, "d")]));
    drop(fs);
}

#[test]
fn damaged_data_is_not_cleaned_away() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, config(), CLEAN);
    put(&log, &[("a", Some("0"))]);
    put(&log, &[("a", Some("1"))]);
    log.roll(NOW).unwrap();
    let path = dir.join("00000000000000000000.log");
    let whole = fs.read(&path).unwrap();
    // In the records of the first batch, which its checksum covers, and in the offset of the second, which it does not.
    for position in [65, 70] {
        let mut damaged = whole.clone();
        damaged[position] = b'?';
        let file = fs.open(&path, true, false).unwrap();
        file.write_at(0, &damaged).unwrap();
        let cleanable = log.cleanable(None, NOW).unwrap();
        let error = log
            .clean(&cleanable, &CleanerOptions::default(), NOW, &mut || false)
            .unwrap_err();
        assert!(error.to_string().contains("not cleaned"), "{error}");
        assert_eq!(fs.read(&path).unwrap(), damaged);
        file.write_at(0, &whole).unwrap();
    }
}

#[test]
fn a_cancelled_cleaning_changes_nothing() {
    let (fs, dir) = memory();
    let log = open(
        &fs,
        &dir,
        LogConfig {
            segment_bytes: 1 << 30,
            ..config()
        },
        CLEAN,
    );
    let value = "v".repeat(1 << 19);
    for _ in 0..4 {
        put(&log, &[("a", Some(&value))]);
    }
    log.roll(NOW).unwrap();
    let cleanable = log.cleanable(None, NOW).unwrap();
    // The first mebibyte is read, then it is asked.
    let mut asked = 0;
    let cancelled = log.clean(&cleanable, &CleanerOptions::default(), NOW, &mut || {
        asked += 1;
        asked == 3
    });
    assert!(matches!(cancelled, Err(fletchlog_log::LogError::Cancelled { .. })));
    assert_eq!(keys(&log).len(), 4);
    let names = fs.read_dir(&dir).unwrap().into_iter().map(|entry| entry.name);
    assert_eq!(names.filter(|name| name.ends_with(".cleaned")).count(), 0);
    clean(&log);
    assert_eq!(keys(&log), expected(&[(3, "a")]));
    drop(fs);
}

#[test]
fn a_reader_beside_the_writer_finishes_with_the_old_or_goes_on_with_the_new_segments() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    let log = open(&real(), &path, config(), CLEAN);
    for i in 0..20 {
        put(&log, &[(["a", "b"][i % 2], Some("value value value"))]);
    }
    log.roll(NOW).unwrap();
    let reader = open(&real(), &path, config(), READ_ONLY);
    assert_eq!(keys(&reader).len(), 20);
    clean(&log);
    log.delete_old_segments(NOW).unwrap();
    let seen = keys(&reader);
    let newest = expected(&[(18, "a"), (19, "b")]);
    assert_eq!(seen[seen.len() - 2..], newest);
    reader.refresh(0).unwrap();
    drop(reader);
    let reader = open(&real(), &path, config(), READ_ONLY);
    assert_eq!(keys(&reader), newest);
    assert_eq!(keys(&log), newest);
}

#[test]
fn appends_and_reads_go_on_while_a_log_is_cleaned() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&real(), &dir.path().join("t-0"), config(), CLEAN);
    let names: Vec<String> = (0..10).map(|i| format!("k{i}")).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..2_000 {
                put(&log, &[(&names[i % 10], Some("value"))]);
            }
        });
        scope.spawn(|| {
            let mut dirty = 0;
            while log.log_end_offset() < 2_000 {
                dirty = clean_at(&log, dirty, NOW).end_offset.max(dirty);
                log.delete_old_segments(NOW).unwrap();
            }
        });
        scope.spawn(|| {
            while log.log_end_offset() < 2_000 {
                let seen = visible(&log, FetchBound::HighWatermark);
                assert!(seen.windows(2).all(|pair| pair[0].0 < pair[1].0));
            }
        });
    });
    log.roll(NOW).unwrap();
    clean(&log);
    let newest: Vec<_> = (1_990..2_000).zip(names).collect();
    assert_eq!(keys(&log), newest);
}

/// What may happen to a log.
#[derive(Debug, Clone)]
enum Op {
    Append(Vec<(u8, bool)>, u8, Option<u8>),
    Roll,
    Clean(usize, i64),
    Reopen(bool),
}

fn op() -> impl Strategy<Value = Op> {
    let records = prop::collection::vec((0..6u8, any::<bool>()), 1..5);
    prop_oneof![
        6 => (records, 0..5u8, prop::option::of(1..3u8)).prop_map(|(r, codec, producer)| Op::Append(r, codec, producer)),
        2 => Just(Op::Roll),
        3 => (prop_oneof![Just(1usize), Just(200), Just(1 << 20)], 0..2 * HORIZON).prop_map(|(m, t)| Op::Clean(m, t)),
        1 => any::<bool>().prop_map(Op::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// The model: what was appended, by offset.
    #[test]
    fn a_reader_ends_with_the_newest_value_of_every_key(ops in prop::collection::vec(op(), 1..60)) {
        let (fs, dir) = memory();
        let mut log = open(&fs, &dir, config(), CLEAN);
        let mut appended: BTreeMap<i64, (String, Option<String>)> = BTreeMap::new();
        let mut sequences = [0; 3];
        let mut last: BTreeMap<u8, (Bytes, i64)> = BTreeMap::new();
        let (mut dirty, mut now_ms) = (0, NOW);
        for op in ops {
            match op {
                Op::Append(records, codec, producer) => {
                    let named: Vec<(String, Option<String>)> = records
                        .iter()
                        .enumerate()
                        .map(|(i, (key, live))| (format!("k{key}"), live.then(|| format!("v{}", log.log_end_offset() + i as i64))))
                        .collect();
                    let borrowed: Vec<KeyValue<'_>> = named.iter().map(|(k, v)| (k.as_str(), v.as_deref())).collect();
                    let params = BatchParams {
                        compression: Compression::from_id(codec).unwrap(),
                        producer_id: producer.map_or(-1, i64::from),
                        producer_epoch: producer.map_or(-1, |_| 0),
                        base_sequence: producer.map_or(-1, |p| sequences[usize::from(p)]),
                        ..BatchParams::default()
                    };
                    let bytes = keyed(&params, &borrowed);
                    let first = append(&log, bytes.clone()).first_offset;
                    if let Some(p) = producer {
                        sequences[usize::from(p)] += named.len() as i32;
                        last.insert(p, (bytes, first));
                    }
                    appended.extend((first..).zip(named));
                }
                Op::Roll => drop(log.roll(now_ms).unwrap()),
                Op::Clean(memory, later) => {
                    now_ms += later;
                    let cleanable = log.cleanable(Some(dirty), now_ms).unwrap();
                    if cleanable.cleanable_bytes > 0 {
                        let options = CleanerOptions { dedupe_buffer_bytes: memory };
                        dirty = log.clean(&cleanable, &options, now_ms, &mut || false).unwrap().end_offset;
                    }
                }
                Op::Reopen(clean) => {
                    if clean {
                        log.close().unwrap();
                    }
                    drop(log);
                    log = open(&fs, &dir, config(), if clean { CLEAN } else { UNCLEAN });
                }
            }
            check_against(&log, &appended, dirty)?;
        }
        for (bytes, first) in last.into_values() {
            let again = append(&log, bytes);
            prop_assert!(again.duplicate);
            prop_assert_eq!(again.first_offset, first);
        }
    }
}

type Model = BTreeMap<i64, (String, Option<String>)>;

fn check_against(log: &PartitionLog, appended: &Model, dirty: i64) -> Result<(), TestCaseError> {
    let seen = visible(log, FetchBound::HighWatermark);
    prop_assert_eq!(log.log_end_offset(), appended.keys().last().map_or(0, |last| last + 1));
    prop_assert!(seen.windows(2).all(|pair| pair[0].0 < pair[1].0));
    let newest = |records: &mut dyn Iterator<Item = (i64, String, Option<String>)>| {
        records
            .map(|(_, key, value)| (key, value))
            .collect::<BTreeMap<String, Option<String>>>()
    };
    // Only what was appended, at its offset; all of it where nothing was cleaned.
    for (offset, key, value) in &seen {
        prop_assert_eq!(&appended[offset], &(key.clone(), value.clone()));
    }
    let uncleaned = seen.iter().filter(|(offset, ..)| *offset >= dirty).count();
    prop_assert_eq!(uncleaned, appended.range(dirty..).count());
    // A key whose newest record is a tombstone may be unknown, but must not come back.
    let mut ours = newest(&mut seen.into_iter());
    let mut model = newest(&mut appended.iter().map(|(o, (k, v))| (*o, k.clone(), v.clone())));
    ours.retain(|_, value| value.is_some());
    model.retain(|_, value| value.is_some());
    prop_assert_eq!(ours, model);
    Ok(())
}

#[test]
fn retention_that_is_quicker_wins_and_leaves_no_half_cleaned_file() {
    let (fs, dir) = memory();
    let log = open(
        &fs,
        &dir,
        LogConfig {
            segment_bytes: 1 << 30,
            ..config()
        },
        CLEAN,
    );
    let value = "v".repeat(1 << 19);
    for _ in 0..4 {
        put(&log, &[("a", Some(&value))]);
    }
    log.roll(NOW).unwrap();
    let cleanable = log.cleanable(None, NOW).unwrap();
    let mut asked = 0;
    let result = log.clean(&cleanable, &CleanerOptions::default(), NOW, &mut || {
        asked += 1;
        if asked == 3 {
            log.delete_records(None).unwrap();
            log.delete_old_segments(NOW).unwrap();
        }
        false
    });
    assert!(
        matches!(result, Err(fletchlog_log::LogError::Replaced { .. })),
        "{result:?}"
    );
    assert_eq!(keys(&log), []);
    let names = fs.read_dir(&dir).unwrap().into_iter().map(|entry| entry.name);
    assert_eq!(names.filter(|name| name.ends_with(".cleaned")).count(), 0);
    assert_eq!(put(&log, &[("b", Some("on"))]), 4);
}
