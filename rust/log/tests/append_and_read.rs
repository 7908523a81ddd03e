//! What is appended is read back, at the offsets that were answered, cut as a Fetch response is cut (spec 6.3, 6.4).

use crate::common::*;
use bytes::BytesMut;
use fletchlog_log::{AppendOrigin, FetchBound, LogConfig, LogError};

#[test]
fn records_get_consecutive_offsets_and_survive_a_reopen() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, LogConfig::default(), CLEAN);
    assert_eq!(
        (log.log_start_offset(), log.log_end_offset(), log.high_watermark()),
        (0, 0, 0)
    );
    let info = append(&log, batch(&[(NOW, b"a"), (NOW + 1, b"b")]));
    assert_eq!(
        (
            info.first_offset,
            info.last_offset,
            info.log_append_time_ms,
            info.duplicate
        ),
        (0, 1, -1, false)
    );
    let info = append(&log, batch(&[(NOW + 2, b"c")]));
    assert_eq!((info.first_offset, info.last_offset), (2, 2));
    let expected = vec![
        (0, NOW, b"a".to_vec()),
        (1, NOW + 1, b"b".to_vec()),
        (2, NOW + 2, b"c".to_vec()),
    ];
    assert_eq!(read_all(&log, FetchBound::HighWatermark, 1), expected);
    log.close().unwrap();
    assert!(matches!(
        log.read(0, 1, true, FetchBound::LogEnd),
        Err(LogError::Closed)
    ));
    for mode in [CLEAN, UNCLEAN, READ_ONLY] {
        let log = open(&fs, &dir, LogConfig::default(), mode);
        assert_eq!(read_all(&log, FetchBound::HighWatermark, 1 << 20), expected, "{mode:?}");
        assert_eq!(log.latest_epoch(), Some(0));
    }
}

#[test]
fn a_slice_is_cut_as_a_fetch_response_is_cut() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, LogConfig::default(), CLEAN);
    let size = batch(&[(NOW, b"0123456789")]).len();
    for _ in 0..10 {
        append(&log, batch(&[(NOW, b"0123456789")]));
    }
    let read = |offset, max, min_one| log.read(offset, max, min_one, FetchBound::HighWatermark).unwrap();
    assert_eq!(read(0, usize::MAX, true).records.len(), 10 * size);
    // Anywhere, in the middle of a batch too.
    assert_eq!(read(0, 3 * size + 50, false).records.len(), 3 * size + 50);
    // At least one batch, or nothing of use.
    assert_eq!(read(0, 0, true).records.len(), size);
    assert_eq!(read(0, size - 1, false).records.len(), 0);
    assert_eq!(read(0, size, false).records.len(), size);
    let from_seven = read(7, usize::MAX, false);
    assert_eq!(
        (from_seven.position, from_seven.records.len()),
        (7 * size as u64, 3 * size)
    );
    assert_eq!(read(10, usize::MAX, true).records.len(), 0);
    for offset in [-1, 11] {
        let error = log.read(offset, 1, true, FetchBound::HighWatermark).unwrap_err();
        assert!(
            matches!(error, LogError::OffsetOutOfRange { start: 0, end: 10, .. }),
            "{error}"
        );
    }
}

#[test]
fn a_read_never_spans_two_segments_and_begins_with_the_batch_that_holds_the_offset() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, small_segments(400), CLEAN);
    for _ in 0..12 {
        append(&log, batch(&[(NOW, b"01234"), (NOW, b"56789"), (NOW, b"abcde")]));
    }
    let segments = log.segments();
    assert!(segments.len() > 2, "{segments:?}");
    for offset in 0..36 {
        let info = log.read(offset, usize::MAX, true, FetchBound::HighWatermark).unwrap();
        let base = i64::from_be_bytes(info.records[..8].try_into().unwrap());
        assert_eq!(base, offset / 3 * 3);
        let (segment, size) = segments.iter().rev().find(|(base, _)| *base <= offset).unwrap();
        assert_eq!(info.segment_base_offset, *segment);
        assert_eq!(info.position + info.records.len() as u64, *size);
    }
}

#[test]
fn index_entries_are_written_per_batch_by_kafkas_rule() {
    // 20 batches of 381 bytes with 2 records each, in one append; 762 bytes are exactly two of them, and not enough.
    let value = vec![b'x'; 150];
    let one = batch(&[(NOW, &value), (NOW, &value)]);
    assert_eq!(one.len(), 381);
    let mut all = BytesMut::new();
    for _ in 0..20 {
        all.extend_from_slice(&one);
    }
    let all = all.freeze();
    let entries = |bytes: Vec<u8>| -> Vec<(u32, u32)> {
        let field = |e: &[u8]| u32::from_be_bytes(e.try_into().unwrap());
        bytes.chunks(8).map(|e| (field(&e[..4]), field(&e[4..]))).collect()
    };
    let expected = [(7, 1143), (13, 2286), (19, 3429), (25, 4572), (31, 5715), (37, 6858)];
    for index_interval_bytes in [1000, 762] {
        let (fs, dir) = memory();
        let config = LogConfig {
            index_interval_bytes,
            ..LogConfig::default()
        };
        let log = open(&fs, &dir, config.clone(), CLEAN);
        log.append_as_leader(all.clone(), 0, AppendOrigin::Coordinator, NOW)
            .unwrap();
        log.close().unwrap();
        let index = dir.join("00000000000000000000.index");
        assert_eq!(entries(fs.read(&index).unwrap()), expected);
        // Recovery writes the same.
        fs.remove_file(&index).unwrap();
        drop(open(&fs, &dir, config, UNCLEAN));
        assert_eq!(entries(fs.read(&index).unwrap()), expected);
    }
}

#[test]
fn a_batch_may_fill_a_segment_exactly() {
    let (fs, dir) = memory();
    let one = batch(&[(NOW, b"0123456789")]);
    let exact = i32::try_from(one.len() * 2).unwrap();
    let log = open(&fs, &dir, small_segments(exact), CLEAN);
    for _ in 0..4 {
        append(&log, one.clone());
    }
    assert_eq!(log.segments(), [(0, exact as u64), (2, exact as u64)]);
    let too_large = batch(&[(NOW, &vec![0; exact as usize])]);
    assert_eq!(code(log.append_as_leader(too_large, 0, AppendOrigin::Client, NOW)), 18);
}

#[test]
fn event_time_rolls_segments() {
    let (fs, dir) = memory();
    let config = LogConfig {
        segment_ms: 10_000,
        ..LogConfig::default()
    };
    let log = open(&fs, &dir, config, CLEAN);
    append(&log, batch(&[(NOW, b"a")]));
    append(&log, batch(&[(NOW + 10_000, b"b")]));
    assert_eq!(log.segments().len(), 1);
    append(&log, batch(&[(NOW + 10_001, b"c")]));
    assert_eq!(log.segments().len(), 2);
    // Without timestamps the time since the segment was opened counts.
    let config = LogConfig {
        segment_ms: 10_000,
        ..LogConfig::default()
    };
    let log = open(&fs, &dir.with_file_name("u-0"), config, CLEAN);
    let at = |now| {
        log.append_as_leader(batch(&[(-1, b"a")]), 0, AppendOrigin::Client, now)
            .unwrap()
    };
    at(NOW);
    at(NOW + 10_000);
    assert_eq!(log.segments().len(), 1);
    at(NOW + 10_001);
    assert_eq!(log.segments().len(), 2);
}

#[test]
fn a_new_segment_can_be_asked_for() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, LogConfig::default(), CLEAN);
    assert_eq!(log.roll(NOW).unwrap(), 0);
    append(&log, batch(&[(NOW, b"a")]));
    assert_eq!(log.roll(NOW).unwrap(), 1);
    assert_eq!(log.roll(NOW).unwrap(), 1);
    append(&log, batch(&[(NOW, b"b")]));
    assert_eq!(log.segments().len(), 2);
    assert_eq!(offsets(&log), [0, 1]);
}
