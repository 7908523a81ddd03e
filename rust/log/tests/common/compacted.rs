//! What the tests of the cleaner share: keyed records in, what a reader sees out.

use bytes::Bytes;
use fletchlog_log::{CleanerOptions, CleanerStats, FetchBound, LogConfig, PartitionLog};
use fletchlog_records::{BatchBuilder, BatchIter, BatchParams, RecordCursor};

use super::{NOW, append, small_segments};

pub const HORIZON: i64 = 1_000;

pub fn config() -> LogConfig {
    LogConfig {
        cleanup_compact: true,
        cleanup_delete: false,
        delete_retention_ms: HORIZON,
        file_delete_delay_ms: 0,
        ..small_segments(400)
    }
}

pub type KeyValue<'a> = (&'a str, Option<&'a str>);

pub fn keyed(params: &BatchParams, records: &[KeyValue<'_>]) -> Bytes {
    let mut builder = BatchBuilder::with_capacity(256);
    for (key, value) in records {
        builder.append(NOW, Some(key.as_bytes()), value.map(str::as_bytes), &[]);
    }
    builder.build(params)
}

pub fn put(log: &PartitionLog, records: &[KeyValue<'_>]) -> i64 {
    append(log, keyed(&BatchParams::default(), records)).first_offset
}

/// (offset, key, value) of every record that a reader gets.
pub fn visible(log: &PartitionLog, bound: FetchBound) -> Vec<(i64, String, Option<String>)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut out = Vec::new();
    let mut offset = log.log_start_offset();
    loop {
        let info = log.read(offset, 1 << 20, true, bound).unwrap();
        let before = offset;
        for batch in BatchIter::new(info.records) {
            let batch = batch.unwrap();
            batch.ensure_valid().unwrap();
            let slice = batch.records(usize::MAX).unwrap();
            let mut cursor = RecordCursor::new();
            while let Some(record) = cursor.next(&slice).unwrap() {
                if record.offset >= offset && !batch.header().is_control() {
                    out.push((record.offset, text(record.key.unwrap()), record.value.map(text)));
                }
            }
            offset = offset.max(batch.header().next_offset());
        }
        if offset == before {
            return out;
        }
    }
}

pub fn keys(log: &PartitionLog) -> Vec<(i64, String)> {
    visible(log, FetchBound::HighWatermark)
        .into_iter()
        .map(|(offset, key, _)| (offset, key))
        .collect()
}

pub fn clean_at(log: &PartitionLog, dirty: i64, now_ms: i64) -> CleanerStats {
    let cleanable = log.cleanable(Some(dirty), now_ms).unwrap();
    log.clean(&cleanable, &CleanerOptions::default(), now_ms, &mut || false)
        .unwrap()
}

pub fn clean(log: &PartitionLog) -> CleanerStats {
    clean_at(log, 0, NOW)
}

pub fn expected(records: &[(i64, &str)]) -> Vec<(i64, String)> {
    records
        .iter()
        .map(|(offset, key)| (*offset, (*key).to_string()))
        .collect()
}
