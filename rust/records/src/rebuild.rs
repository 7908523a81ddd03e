//! A batch with another codec (spec 2.3). Kafka: `LogValidator#buildRecordsAndAssignOffsets`.

use bytes::{Bytes, BytesMut};

use crate::batch::set_max_timestamp;
use crate::{BatchBuilder, BatchHeader, BatchParams, Compression, Header, RecordCursor, RecordsSlice, TimestampType};

/// Rebuilds a batch with another codec, keeping offsets, times, producer fields, transactional flag and leader epoch
/// (spec 2.3 "Rebuilt"). `payload` is the uncompressed record region.
///
/// Every record is encoded anew, as Kafka does: the first record's timestamp becomes the base, and under CreateTime
/// the largest of the records becomes maxTimestamp. The caller has validated the records: those from the first
/// malformed one on would be left out.
pub fn rebuild(header: &BatchHeader, payload: &[u8], compression: Compression, level: Option<i32>) -> BytesMut {
    let mut slice = RecordsSlice::of(header, Bytes::copy_from_slice(payload));
    slice.timestamp_type = TimestampType::CreateTime;
    // Offsets stay deltas here, so that no base offset can overflow.
    slice.base_offset = 0;
    let mut builder = BatchBuilder::with_capacity(payload.len());
    let mut cursor = RecordCursor::new();
    while let Ok(Some(record)) = cursor.next(&slice) {
        let headers: Vec<Header<'_>> = record.headers().collect();
        let delta = i32::try_from(record.offset).unwrap_or(i32::MAX);
        builder.append_at(delta, record.timestamp, record.key, record.value, &headers);
    }
    debug_assert_eq!(
        cursor.returned(),
        header.records_count,
        "only validated records are rebuilt"
    );
    let batch = builder.build(&BatchParams {
        base_offset: header.base_offset,
        compression,
        compression_level: level,
        timestamp_type: TimestampType::CreateTime,
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        transactional: header.is_transactional(),
        control: header.is_control(),
        leader_epoch: header.partition_leader_epoch,
    });
    let mut batch = BytesMut::from(batch);
    if header.timestamp_type() == TimestampType::LogAppendTime && !batch.is_empty() {
        set_max_timestamp(&mut batch, TimestampType::LogAppendTime, header.max_timestamp);
    }
    batch
}
