//! Batches and the records inside them.

use bytes::Bytes;
use fletchlog_records::batch_header::RECORD_BATCH_OVERHEAD;
use fletchlog_records::{
    BatchHeader, BatchIter, Compression, Record, RecordBatch, RecordCursor, RecordsSlice, TimestampType, empty_batch,
    rebuild, retained_batch,
};

use super::{Input, Owned, mended, records_of, same};

/// `[choices u8] [batches]`: bit 0 corrects the checksums, bit 1 selects the limit, the others the codec and the step.
pub(super) fn batch(data: &[u8]) {
    let mut input = Input(data);
    let choices = input.byte();
    let bytes = if choices & 1 == 0 {
        Bytes::copy_from_slice(input.0)
    } else {
        mended(input.0)
    };
    let limit = if choices & 2 == 0 { 1 << 20 } else { 1 << 8 };
    let codec = Compression::ALL[usize::from(choices >> 2) % Compression::ALL.len()];
    let step = usize::from(choices >> 5) + 1;
    let mut batches = BatchIter::new(bytes.clone());
    let mut position = 0;
    while let Some(Ok(batch)) = batches.next() {
        let end = position + batch.bytes().len();
        assert_eq!(batch.bytes(), &bytes[position..end], "a batch is what the bytes hold");
        assert_eq!(batches.position(), end);
        position = end;
        check(&batch, limit, codec, step);
    }
}

fn check(batch: &RecordBatch, limit: usize, codec: Compression, step: usize) {
    let header = batch.header();
    assert_eq!(header.size_in_bytes(), batch.bytes().len());
    if header.magic == 2 {
        let mut bytes = [0; RECORD_BATCH_OVERHEAD];
        header.write(&mut bytes);
        assert_eq!(
            bytes,
            batch.bytes()[..RECORD_BATCH_OVERHEAD],
            "parse, write: the same header"
        );
    }
    let Ok(slice) = batch.records(limit) else { return };
    assert!(
        slice.payload.len() <= limit,
        "{} bytes above {limit}",
        slice.payload.len()
    );
    let (records, error) = records_of(&slice);
    assert!(
        records.len() * 7 <= slice.payload.len(),
        "a record has at least 7 bytes"
    );
    walks_alike(&slice, &records, error.is_some(), step);
    if error.is_some() || batch.ensure_valid().is_err() {
        return;
    }
    assert_eq!(records.len(), usize::try_from(slice.count).unwrap());
    if is_appendable(header, &records) {
        rebuilt_alike(header, &slice, &records, codec);
    }
    // In an old wrapper each entry has its own offset; the cleaner refuses offsets that do not increase.
    let increasing = records.is_sorted_by(|a, b| a.offset < b.offset);
    if header.magic == 2 || (increasing && !records.is_empty()) {
        retained_alike(header, &slice, step);
    }
}

/// Checks that reading in steps, as a consumer cuts spans, finds the same records.
fn walks_alike(slice: &RecordsSlice, records: &[Owned], fails: bool, step: usize) {
    let mut cursor = RecordCursor::new();
    let mut seen = 0;
    loop {
        match cursor.walk(slice, step) {
            Ok(Some((count, first, last))) => {
                let walked = &records[seen..seen + count];
                assert_eq!((first, last), (walked[0].offset, walked[count - 1].offset));
                seen += count;
            }
            ended => {
                assert_eq!(ended.is_err(), fails);
                assert_eq!(seen, records.len());
                return;
            }
        }
    }
}

/// Whether the offsets of a sent batch satisfy the validator.
fn is_appendable(header: &BatchHeader, records: &[Owned]) -> bool {
    let one_apart = (0..)
        .zip(records)
        .all(|(delta, record)| header.base_offset.checked_add(delta) == Some(record.offset));
    header.magic == 2
        && one_apart
        && !records.is_empty()
        && usize::try_from(header.last_offset_delta) == Ok(records.len() - 1)
}

/// Checks that the same records are read after encoding them again with any codec.
fn rebuilt_alike(header: &BatchHeader, slice: &RecordsSlice, records: &[Owned], codec: Compression) {
    let bytes = rebuild(header, &slice.payload, codec, None).freeze();
    let again = RecordBatch::parse(&bytes).unwrap().expect("a whole batch");
    again.ensure_valid().unwrap();
    let (of, was) = (again.header(), header);
    assert_eq!(
        (
            of.base_offset,
            of.last_offset_delta,
            of.producer_id,
            of.producer_epoch,
            of.base_sequence
        ),
        (
            was.base_offset,
            was.last_offset_delta,
            was.producer_id,
            was.producer_epoch,
            was.base_sequence
        )
    );
    assert_eq!(of.compression(), Some(codec));
    let slice = again.records(usize::MAX).unwrap();
    let (found, error) = records_of(&slice);
    same(&found, records);
    assert_eq!(error, None);
}

/// Checks that the batch that the cleaner leaves has the records that it kept.
fn retained_alike(header: &BatchHeader, slice: &RecordsSlice, step: usize) {
    let mut all: Vec<Record<'_>> = Vec::new();
    let mut cursor = RecordCursor::new();
    while let Ok(Some(record)) = cursor.next(slice) {
        all.push(record);
    }
    let kept: Vec<Record<'_>> = all.into_iter().step_by(step).collect();
    let bytes = if kept.is_empty() {
        empty_batch(header)
    } else {
        retained_batch(header, &kept, None)
    };
    let again = RecordBatch::parse(&bytes).unwrap().expect("a whole batch");
    again.ensure_valid().unwrap();
    let slice = again.records(usize::MAX).unwrap();
    let (found, error) = records_of(&slice);
    assert_eq!((found.len(), error), (kept.len(), None));
    for (found, kept) in found.iter().zip(&kept) {
        assert_eq!(found.offset, kept.offset);
        assert_eq!((found.key.as_deref(), found.value.as_deref()), (kept.key, kept.value));
        if header.timestamp_type() == TimestampType::CreateTime {
            assert_eq!(found.timestamp, kept.timestamp);
        }
    }
}
