//! max.decompressed.message.bytes: the body of a record in a compressed batch, however small the batch is. Cases of a Kafka 4.4.0 are
//! replayed over the wire (tests/wire/test_recordings.py).

use fletchlog_log::{CleanerOptions, FetchBound, LogConfig, LogError};
use fletchlog_records::{BatchParams, Compression, RecordError};

use crate::common::compacted::*;
use crate::common::*;

/// What a record of [`batch_of`] takes besides its value: attributes, two deltas, the length and byte of its key, the length of its
/// value, the number of headers.
const OVERHEAD: i32 = 7;

fn limited(limit: i32) -> LogConfig {
    LogConfig {
        max_decompressed_message_bytes: limit,
        ..config()
    }
}

fn compressed(compression: Compression, values: &[&[u8]]) -> bytes::Bytes {
    let params = BatchParams {
        compression,
        ..BatchParams::default()
    };
    let records: Vec<_> = (NOW..).zip(values.iter().copied()).collect();
    batch_of(&params, &records)
}

fn is_too_large(error: &LogError, at: i32) -> bool {
    matches!(error, LogError::Record(RecordError::RecordTooLarge { index, .. }) if *index == at)
}

#[test]
fn one_record_above_the_limit_refuses_a_compressed_batch() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, limited(OVERHEAD + 40), CLEAN);
    let (fits, larger) = ([7; 40], [7; 41]);
    let send = |records| code(log.append_as_leader(records, 0, fletchlog_log::AppendOrigin::Client, NOW));
    for codec in [
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let before = log.log_end_offset();
        // Only each record counts, not their sum.
        assert_eq!(send(compressed(codec, &[&fits, &fits])), 0, "{codec:?}");
        assert_eq!(log.log_end_offset(), before + 2);
        for values in [[&fits[..], &larger], [&larger, &fits]] {
            assert_eq!(send(compressed(codec, &values)), 87, "{codec:?}");
        }
        assert_eq!(log.log_end_offset(), before + 2, "{codec:?}");
    }
    assert_eq!(send(compressed(Compression::None, &[&larger])), 0);
}

#[test]
fn lookups_by_time_and_the_cleaner_refuse_what_became_too_large() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, config(), CLEAN);
    append(&log, compressed(Compression::Gzip, &[&[7; 10], &[7; 100]]));
    log.roll(NOW).unwrap();
    append(&log, compressed(Compression::None, &[&[7; 100]]));
    log.update_config(limited(OVERHEAD + 50));
    let at = |time: i64| log.fetch_offset_by_timestamp(time, FetchBound::HighWatermark);
    assert_eq!(at(NOW).unwrap().offset, 0);
    assert!(is_too_large(&at(NOW + 1).unwrap_err(), 1));
    // The batch with the greatest timestamp has to be opened.
    assert!(is_too_large(&at(-3).unwrap_err(), 1));
    assert_eq!([at(-1), at(-2)].map(|found| found.unwrap().offset), [3, 0]);
    let cleaned = log.clean(
        &log.cleanable(None, NOW).unwrap(),
        &CleanerOptions::default(),
        NOW,
        &mut || false,
    );
    let error = cleaned.unwrap_err().to_string();
    assert!(error.contains("max.decompressed.message.bytes = 57"), "{error}");
    log.update_config(limited(OVERHEAD + 101));
    assert_eq!(at(NOW + 1).unwrap().offset, 1);
}
