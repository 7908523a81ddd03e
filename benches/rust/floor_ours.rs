//! What is measured against the floors: the same work through the crates' public functions.
#![allow(missing_docs, clippy::unwrap_used, clippy::cast_sign_loss)]

use std::hint::black_box;

use bytes::Bytes;
use fletchlog_arrow::RowsBuilder;
use fletchlog_records::{BatchBuilder, BatchIter, BatchParams, RecordCursor, RecordSpan, TopicPartition};

use super::floor_pass::{BATCH_ROWS, BATCH_SIZE, Flat};

/// Segment bytes to Arrow batches of [`BATCH_ROWS`] rows with all checks, as a scan does; returns the records.
pub fn scan(segment: &Bytes, builder: &mut RowsBuilder) -> usize {
    let tp = TopicPartition::new("floor", 0);
    let mut records = 0;
    for batch in BatchIter::new(segment.clone()) {
        let batch = batch.unwrap();
        batch.ensure_valid().unwrap();
        let slice = batch.records(usize::MAX).unwrap();
        let mut cursor = RecordCursor::new();
        while cursor.returned() < slice.count {
            let room = BATCH_ROWS - builder.rows();
            records += builder
                .append_records(&tp, &slice, &mut cursor, room, 0, i64::MAX)
                .unwrap();
            if builder.rows() == BATCH_ROWS {
                black_box(builder.finish());
            }
        }
    }
    black_box(builder.finish());
    records
}

/// Checks CRCs and walks every batch, as a consumer does before it cuts spans; returns the records.
pub fn walk(segment: &Bytes) -> usize {
    spans(segment).iter().map(|span| span.count).sum()
}

/// One span per batch.
pub fn spans(segment: &Bytes) -> Vec<RecordSpan> {
    let cut = |batch: fletchlog_records::RecordBatch| {
        batch.ensure_valid().unwrap();
        let slice = batch.records(usize::MAX).unwrap();
        let mut cursor = RecordCursor::new();
        let (count, first_offset, last_offset) = cursor.walk(&slice, usize::MAX).unwrap().unwrap();
        RecordSpan {
            slice,
            start: 0,
            end: cursor.position(),
            count,
            first_offset,
            last_offset,
        }
    };
    BatchIter::new(segment.clone())
        .map(|batch| cut(batch.unwrap()))
        .collect()
}

/// Walked spans to Arrow batches, the second half of a poll; returns the records.
pub fn poll_decode(spans: &[RecordSpan], builder: &mut RowsBuilder) -> usize {
    let tp = TopicPartition::new("floor", 0);
    let mut records = 0;
    for span in spans {
        builder.append_span(&tp, span).unwrap();
        if builder.rows() + 1000 > BATCH_ROWS {
            records += builder.rows();
            black_box(builder.finish());
        }
    }
    records += builder.rows();
    black_box(builder.finish());
    records
}

/// Builds full batches as a producer does; returns the records.
pub fn build(rows: &Flat) -> usize {
    let mut builder = BatchBuilder::with_capacity(BATCH_SIZE);
    let params = BatchParams::default();
    let mut begin = 0;
    for (&end, &timestamp) in rows.ends.iter().zip(&rows.timestamps) {
        let value = &rows.values[begin..end as usize];
        begin = end as usize;
        let room = BATCH_SIZE - 61 - builder.records_size();
        if builder.append_within(room, timestamp, None, Some(value), &[]).is_none() {
            black_box(builder.build(&params));
            builder.append(timestamp, None, Some(value), &[]);
        }
    }
    black_box(builder.build(&params));
    rows.ends.len()
}
