//! What the log cleaner makes of a batch that loses records (spec 4.4). Kafka: `MemoryRecords#buildRetainedRecordsInto`,
//! `DefaultRecordBatch#writeEmptyHeader`.

use bytes::Bytes;

use crate::batch_header::{COMPRESSION_MASK, DELETE_HORIZON_MASK};
use crate::ids::NO_TIMESTAMP;
use crate::{BatchBuilder, BatchHeader, Compression, Record, TimestampType};

/// A batch of the kept records: same codec, base offset, last offset, producer fields and leader epoch. `delete_horizon`
/// becomes the base timestamp, with attribute bit 6; without one it is the first kept record's timestamp.
///
/// A batch of a format before v2 becomes a v2 batch from the first to the last kept record: nothing here writes the old
/// formats.
///
/// # Panics
/// Without records (use [`empty_batch`]), or beyond Kafka's 31-bit sizes, which records of one batch never reach.
pub fn retained_batch(header: &BatchHeader, records: &[Record<'_>], delete_horizon: Option<i64>) -> Bytes {
    assert!(!records.is_empty(), "a batch of kept records has some");
    let (first, last) = (&records[0], &records[records.len() - 1]);
    let mut kept = *header;
    if header.magic < 2 {
        kept.magic = 2;
        kept.base_offset = first.offset;
        kept.last_offset_delta = delta(last.offset, first.offset);
        kept.partition_leader_epoch = -1;
    }
    kept.base_timestamp = delete_horizon.unwrap_or(first.timestamp);
    if header.timestamp_type() != TimestampType::LogAppendTime {
        let times = records.iter().map(|record| record.timestamp);
        kept.max_timestamp = times.fold(NO_TIMESTAMP, i64::max);
    }
    kept.attributes &= !DELETE_HORIZON_MASK;
    if delete_horizon.is_some() {
        kept.attributes |= DELETE_HORIZON_MASK;
    }
    kept.records_count = i32::try_from(records.len()).unwrap_or(i32::MAX);
    let mut builder = BatchBuilder::with_capacity(header.size_in_bytes());
    for record in records {
        let timestamp_delta = record.timestamp.wrapping_sub(kept.base_timestamp);
        builder.append_deltas(timestamp_delta, delta(record.offset, kept.base_offset), record);
    }
    builder.finish(kept, header.compression().unwrap_or(Compression::None), None)
}

/// The header alone, without records: it keeps the offsets, the largest timestamp and the producer's last sequence.
pub fn empty_batch(header: &BatchHeader) -> Bytes {
    let mut kept = *header;
    kept.attributes &= !(COMPRESSION_MASK | DELETE_HORIZON_MASK);
    kept.base_timestamp = NO_TIMESTAMP;
    kept.records_count = 0;
    BatchBuilder::with_capacity(0).finish(kept, Compression::None, None)
}

#[allow(clippy::expect_used, reason = "offsets of one batch span 31 bits")]
fn delta(offset: i64, base: i64) -> i32 {
    i32::try_from(offset.wrapping_sub(base)).expect("offsets of one batch span 31 bits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchParams, RecordBatch, RecordCursor};

    fn batch(times: &[i64], params: &BatchParams) -> RecordBatch {
        let mut builder = BatchBuilder::with_capacity(64);
        for (i, time) in times.iter().enumerate() {
            let value = (i % 2 == 0).then_some(&b"value"[..]);
            builder.append(*time, Some(format!("k{i}").as_bytes()), value, &[]);
        }
        RecordBatch::parse(&builder.build(params)).unwrap().unwrap()
    }

    #[test]
    fn kept_records_keep_offsets_times_and_what_the_producer_said() {
        for compression in [
            Compression::None,
            Compression::Gzip,
            Compression::Lz4,
            Compression::Zstd,
        ] {
            let params = BatchParams {
                base_offset: 100,
                producer_id: 7,
                producer_epoch: 2,
                base_sequence: 40,
                transactional: true,
                leader_epoch: 3,
                compression,
                ..BatchParams::default()
            };
            let before = batch(&[50, 90, 70, 60], &params);
            let slice = before.records(usize::MAX).unwrap();
            for horizon in [None, Some(1_000)] {
                let mut cursor = RecordCursor::new();
                let mut all = Vec::new();
                while let Some(record) = cursor.next(&slice).unwrap() {
                    all.push(record);
                }
                let kept = [all[2], all[3]];
                let bytes = retained_batch(before.header(), &kept, horizon);
                let after = RecordBatch::parse(&bytes).unwrap().unwrap();
                after.ensure_valid().unwrap();
                let header = after.header();
                assert_eq!(
                    (header.base_offset, header.last_offset(), header.last_sequence()),
                    (100, 103, 43)
                );
                assert_eq!(
                    (header.producer_id, header.producer_epoch, header.partition_leader_epoch),
                    (7, 2, 3)
                );
                assert!(header.is_transactional());
                assert_eq!(header.compression(), Some(compression));
                assert_eq!((header.max_timestamp, header.records_count), (70, 2));
                assert_eq!(header.has_delete_horizon(), horizon.is_some());
                assert_eq!(header.base_timestamp, horizon.unwrap_or(70));
                let slice = after.records(usize::MAX).unwrap();
                let mut cursor = RecordCursor::new();
                for record in kept {
                    assert_eq!(cursor.next(&slice).unwrap(), Some(record));
                }
            }
            let bytes = empty_batch(before.header());
            let after = RecordBatch::parse(&bytes).unwrap().unwrap();
            after.ensure_valid().unwrap();
            let header = after.header();
            assert_eq!((bytes.len(), header.records_count, header.base_timestamp), (61, 0, -1));
            assert_eq!(
                (header.last_offset(), header.last_sequence(), header.max_timestamp),
                (103, 43, 90)
            );
            assert_eq!(header.compression(), Some(Compression::None));
        }
    }

    #[test]
    fn under_log_append_time_the_append_time_stays() {
        let params = BatchParams {
            timestamp_type: TimestampType::LogAppendTime,
            ..BatchParams::default()
        };
        let before = batch(&[50, 90], &params);
        let slice = before.records(usize::MAX).unwrap();
        let first = RecordCursor::new().next(&slice).unwrap().unwrap();
        let after = RecordBatch::parse(&retained_batch(before.header(), &[first], None));
        let after = after.unwrap().unwrap();
        assert_eq!(after.header().max_timestamp, 90);
        assert_eq!(after.header().timestamp_type(), TimestampType::LogAppendTime);
    }
}
