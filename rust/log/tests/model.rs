//! Random appends, reads, rolls, restarts, deletions and lookups against a plain vector.

use crate::common::*;
use fletchlog_log::{AppendOrigin, FetchBound, LogConfig};
use fletchlog_records::{BatchParams, Compression, ErrorCode, TimestampType};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Op {
    Append { times: Vec<i64>, value: Vec<u8>, codec: u8 },
    Read { at: usize, max_bytes: usize },
    Lookup { time: i64 },
    Roll,
    Flush,
    Kill,
    Close,
    Delete { part: usize },
    Retention,
}

fn op() -> impl Strategy<Value = Op> {
    let times = prop::collection::vec(-1..200i64, 1..5);
    prop_oneof![
        8 => (times, prop::collection::vec(any::<u8>(), 0..60), 0..5u8).prop_map(|(times, value, codec)| Op::Append { times, value, codec }),
        4 => (any::<usize>(), 0..2000usize).prop_map(|(at, max_bytes)| Op::Read { at, max_bytes }),
        3 => (0..220i64).prop_map(|time| Op::Lookup { time }),
        1 => Just(Op::Roll),
        1 => Just(Op::Flush),
        1 => Just(Op::Kill),
        1 => Just(Op::Close),
        1 => (0..4usize).prop_map(|part| Op::Delete { part }),
        1 => Just(Op::Retention),
    ]
}

type Record = (i64, i64, Vec<u8>);

fn run(ops: Vec<Op>, segment_bytes: i32, target: Option<Compression>) {
    let (fs, dir) = memory();
    // Only start offsets delete here: the model knows no time.
    let config = LogConfig {
        compression_type: target,
        retention_ms: -1,
        segment_ms: i64::MAX,
        ..small_segments(segment_bytes)
    };
    let mut log = open(&fs, &dir, config.clone(), CLEAN);
    let mut reader = open(&fs, &dir, config.clone(), READ_ONLY);
    let mut model: Vec<Record> = Vec::new();
    let mut start = 0;
    for op in ops {
        match op {
            Op::Append { times, value, codec } => {
                let params = BatchParams {
                    compression: Compression::from_id(codec).unwrap(),
                    ..BatchParams::default()
                };
                let records: Vec<(i64, &[u8])> = times.iter().map(|time| (*time, &value[..])).collect();
                let info = log
                    .append_as_leader(batch_of(&params, &records), 0, AppendOrigin::Client, NOW)
                    .unwrap();
                assert_eq!(info.first_offset, model.len() as i64);
                model.extend(
                    times
                        .iter()
                        .enumerate()
                        .map(|(i, time)| (info.first_offset + i as i64, *time, value.clone())),
                );
            }
            Op::Read { at, max_bytes } => {
                let offset = start + (at % (model.len() - start + 1));
                let info = log
                    .read(offset as i64, max_bytes, true, FetchBound::HighWatermark)
                    .unwrap();
                assert_eq!(info.records.is_empty(), offset == model.len());
            }
            Op::Lookup { time } => {
                let expected = model[start..]
                    .iter()
                    .find(|(_, t, _)| *t >= time)
                    .map_or((-1, -1), |(offset, t, _)| (*offset, *t));
                let found = log.fetch_offset_by_timestamp(time, FetchBound::HighWatermark).unwrap();
                // A segment chosen for its file time or for a record below the log start ends the search (spec 5.2).
                let gives_up = model
                    .iter()
                    .enumerate()
                    .any(|(i, (_, t, _))| *t < 0 || i < start && *t >= time)
                    && found.offset == -1;
                assert!(
                    (found.offset, found.timestamp) == expected || gives_up,
                    "{time}: {found:?}, expected {expected:?}"
                );
            }
            Op::Roll => drop(log.roll(NOW).unwrap()),
            Op::Flush => assert_eq!(log.flush().unwrap(), model.len() as i64),
            Op::Kill | Op::Close => {
                let clean = matches!(op, Op::Close);
                if clean {
                    log.close().unwrap();
                }
                let recovery_point = if clean {
                    model.len() as i64
                } else {
                    log.recovery_point()
                };
                drop(log);
                let mode = fletchlog_log::OpenMode::Write {
                    clean_shutdown: clean,
                    recovery_point,
                    log_start_offset: start as i64,
                };
                log = open(&fs, &dir, config.clone(), mode);
            }
            Op::Delete { part } => {
                start += (model.len() - start) * part / 4;
                assert_eq!(log.delete_records(Some(start as i64)).unwrap(), start as i64);
            }
            Op::Retention => {
                log.delete_old_segments(i64::MAX).unwrap();
                assert_eq!(log.log_start_offset(), start as i64);
            }
        }
        assert_eq!(
            (log.log_start_offset(), log.log_end_offset()),
            (start as i64, model.len() as i64)
        );
        // The broker hands over what the checkpoint says.
        reader.refresh(start as i64).unwrap();
        assert_eq!(
            (reader.log_start_offset(), reader.high_watermark()),
            (start as i64, model.len() as i64)
        );
    }
    for max_bytes in [1, 300, 1 << 20] {
        assert_eq!(read_all(&log, FetchBound::HighWatermark, max_bytes), model[start..]);
        assert_eq!(read_all(&reader, FetchBound::HighWatermark, max_bytes), model[start..]);
    }
    drop(reader);
    reader = open(
        &fs,
        &dir,
        config,
        fletchlog_log::OpenMode::ReadOnly {
            recovery_point: 0,
            log_start_offset: start as i64,
        },
    );
    assert_eq!(read_all(&reader, FetchBound::HighWatermark, 1 << 20), model[start..]);
    let report =
        fletchlog_log::verify_partition(&*fs, &dir, NOW, &mut fletchlog_log::OffsetCheckpoints::default()).unwrap();
    assert_eq!(report.damaged, []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_log_is_a_vector_of_records(ops in prop::collection::vec(op(), 1..60), segment_bytes in 500..3000i32, codec in 0..6u8) {
        run(ops, segment_bytes, Compression::from_id(codec));
    }
}

#[test]
fn recompression_keeps_everything_but_the_codec() {
    let (fs, dir) = memory();
    let config = LogConfig {
        compression_type: Some(Compression::Zstd),
        ..LogConfig::default()
    };
    let log = open(&fs, &dir, config, CLEAN);
    let params = BatchParams {
        compression: Compression::Gzip,
        producer_id: 9,
        producer_epoch: 2,
        base_sequence: 5,
        ..BatchParams::default()
    };
    append(&log, batch(&[(1, b"x")]));
    append(&log, batch_of(&params, &[(30, b"a"), (20, b"b")]));
    let info = log.read(1, 1, true, FetchBound::LogEnd).unwrap();
    let header = fletchlog_records::BatchHeader::parse(&info.records).unwrap();
    assert_eq!(header.compression(), Some(Compression::Zstd));
    assert_eq!(
        (header.producer_id, header.producer_epoch, header.base_sequence),
        (9, 2, 5)
    );
    assert_eq!(
        (header.base_offset, header.base_timestamp, header.max_timestamp),
        (1, 30, 30)
    );
    assert_eq!(
        read_all(&log, FetchBound::LogEnd, 1)[1..],
        [(1, 30, b"a".to_vec()), (2, 20, b"b".to_vec())]
    );
}

#[test]
fn under_log_append_time_every_record_has_the_brokers_time() {
    for target in [None, Some(Compression::Lz4)] {
        let (fs, dir) = memory();
        let config = LogConfig {
            message_timestamp_type: TimestampType::LogAppendTime,
            compression_type: target,
            ..LogConfig::default()
        };
        let log = open(&fs, &dir, config, CLEAN);
        let info = append(&log, batch(&[(5, b"a"), (-1, b"b")]));
        assert_eq!(info.log_append_time_ms, NOW);
        assert_eq!(
            read_all(&log, FetchBound::LogEnd, 1),
            [(0, NOW, b"a".to_vec()), (1, NOW, b"b".to_vec())]
        );
        let flagged = BatchParams {
            timestamp_type: TimestampType::LogAppendTime,
            ..BatchParams::default()
        };
        assert_eq!(
            code(log.append_as_leader(batch_of(&flagged, &[(5, b"a")]), 0, AppendOrigin::Client, NOW)),
            32
        );
    }
}

#[test]
fn a_compacted_topic_takes_no_record_without_key() {
    let (fs, dir) = memory();
    let log = open(
        &fs,
        &dir,
        LogConfig {
            cleanup_compact: true,
            ..LogConfig::default()
        },
        CLEAN,
    );
    let mut builder = fletchlog_records::BatchBuilder::with_capacity(100);
    builder.append(NOW, Some(b"k"), None, &[]);
    builder.append(NOW, None, Some(b"v"), &[]);
    let result = log.append_as_leader(builder.build(&BatchParams::default()), 0, AppendOrigin::Client, NOW);
    let Err(fletchlog_log::AppendError::Refused {
        code: ErrorCode::INVALID_RECORD,
        record_errors,
        log_start_offset: 0,
        ..
    }) = result
    else {
        panic!("{result:?}")
    };
    assert_eq!(record_errors.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [1]);
}
