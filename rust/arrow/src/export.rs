//! Batches of rows for Arrow, decoded straight from record bytes.

use std::sync::Arc;

use arrow_array::types::TimestampMillisecondType;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use fletchlog_records::{RecordCursor, RecordError, RecordSpan, RecordsSlice, TimeRange, TopicPartition};

use crate::bytes_column::Pools;
use crate::columns::Columns;
use crate::constants::{Constants, Run};
use crate::decode::{Window, decode};
use crate::schema::{Column, schema_of};

/// Bytes of keys, values and headers of a batch. With more, the batches that take turns do not fit the caches (with 8 MiB
/// values of 1 kB are a sixth slower); with less, the cost of each batch shows.
const BATCH_PAYLOAD: usize = 2 << 20;

/// Vectors that an idle builder may have lent: those of a batch with offsets, timestamps, and two each for keys, values, and keys and
/// values of headers.
const MAX_LENT: usize = 10;

/// Collects decoded records into one Arrow batch after the other.
///
/// A builder is meant to live as long as its consumer or scan: it keeps the memory of its columns, takes it back when a
/// batch it returned is dropped (on any thread), and builds constant columns once. Batches of some 131,072 rows or
/// 2 MiB are quickest; the caller asks [`RowsBuilder::room`].
#[derive(Debug)]
pub struct RowsBuilder {
    asked: Arc<[Column]>,
    schema: SchemaRef,
    times: TimeRange,
    pools: Pools,
    columns: Columns,
    constants: Constants,
    runs: Vec<Run>,
    /// Bytes of the topic column.
    topic_bytes: usize,
}

impl RowsBuilder {
    /// An empty builder for these columns, in this order, of the records whose timestamps are in `times`. Every record is checked
    /// completely whatever is asked for.
    pub fn of(columns: &[Column], times: TimeRange) -> Self {
        Self {
            asked: columns.into(),
            schema: schema_of(columns),
            times,
            pools: Pools::new(),
            columns: Columns::new(columns),
            constants: Constants::default(),
            runs: Vec::new(),
            topic_bytes: 0,
        }
    }

    /// Its columns.
    pub fn columns(&self) -> &[Column] {
        &self.asked
    }

    /// An empty builder as [`Self::of`] makes it, with the memory of this one.
    #[must_use]
    pub fn reused(self, columns: &[Column], times: TimeRange) -> Self {
        if *self.asked == *columns && self.rows() == 0 {
            return Self { times, ..self };
        }
        Self {
            pools: self.pools,
            constants: self.constants,
            ..Self::of(columns, times)
        }
    }

    /// Bytes of memory kept for later batches; `None` if it has rows, or if more than a few of its batches are still being
    /// read, as their memory comes back to it.
    pub fn idle_bytes(&self) -> Option<usize> {
        let is_idle = self.rows() == 0 && self.pools.lent() <= MAX_LENT;
        is_idle.then(|| self.pools.free_bytes() + self.columns.room() + self.constants.bytes())
    }

    /// Appends the rows of a whole span that a consumer has cut.
    ///
    /// # Errors
    /// The span does not hold its records, or holds a timestamp that the column cannot hold: then nothing of it is appended.
    pub fn append_span(&mut self, tp: &TopicPartition, span: &RecordSpan) -> Result<(), RecordError> {
        let before = self.rows();
        let mut cursor = span.cursor();
        let first = cursor.returned();
        let window = Window {
            from_offset: i64::MIN,
            to_offset: i64::MAX,
            max_records: span.count,
            times: self.times,
            end: span.end,
        };
        self.append(tp, &span.slice, &mut cursor, window)?;
        let walked = usize::try_from(cursor.returned() - first);
        if walked == Ok(span.count) && cursor.position() == span.end {
            return Ok(());
        }
        // If it stopped after a row, the next call returns the reason.
        let error = self.append(tp, &span.slice, &mut cursor, window).err();
        self.forget(before);
        Err(error.unwrap_or_else(|| span.slice.invalid("a span does not hold the records it was cut with")))
    }

    /// Decodes and checks records from the cursor on, in one pass: skips those below `from_offset`, stops before `to_offset`,
    /// after `max_records` others, and before a malformed record. Returns the rows appended: the records taken, except those
    /// outside of the builder's times. The cursor is left where it stopped.
    ///
    /// # Errors
    /// A malformed record, or one whose timestamp the column cannot hold, if nothing was appended before it. Repeating the
    /// call returns the same error.
    pub fn append_records(
        &mut self,
        tp: &TopicPartition,
        slice: &RecordsSlice,
        cursor: &mut RecordCursor,
        max_records: usize,
        from_offset: i64,
        to_offset: i64,
    ) -> Result<usize, RecordError> {
        let window = Window {
            from_offset,
            to_offset,
            max_records,
            times: self.times,
            end: slice.payload.len(),
        };
        self.append(tp, slice, cursor, window)
    }

    fn append(
        &mut self,
        tp: &TopicPartition,
        slice: &RecordsSlice,
        cursor: &mut RecordCursor,
        window: Window,
    ) -> Result<usize, RecordError> {
        let left = usize::try_from(slice.count.saturating_sub(cursor.returned())).unwrap_or(0);
        let topic_bytes = left.min(window.max_records).saturating_mul(tp.topic.len());
        if self.topic_bytes.saturating_add(topic_bytes) > i32::MAX as usize && self.asked.contains(&Column::Topic) {
            return Err(slice.invalid("the topic column of one Arrow batch would exceed 2 GiB; finish it first"));
        }
        let rows = decode(&mut self.columns, &self.pools, slice, cursor, window)?;
        if rows == 0 {
            return Ok(0);
        }
        self.topic_bytes += rows * tp.topic.len();
        let timestamp_type = i32::from(slice.timestamp_type as i8);
        match self.runs.last_mut() {
            Some(run) if run.timestamp_type == timestamp_type && run.tp == *tp => run.rows += rows,
            _ => self.runs.push(Run {
                tp: tp.clone(),
                timestamp_type,
                rows,
            }),
        }
        Ok(rows)
    }

    /// Drops the rows from `rows` on.
    fn forget(&mut self, rows: usize) {
        let mut surplus = self.rows() - rows;
        self.columns.truncate(rows);
        while let Some(run) = self.runs.last_mut()
            && surplus > 0
        {
            let cut = surplus.min(run.rows);
            run.rows -= cut;
            surplus -= cut;
            self.topic_bytes -= cut * run.tp.topic.len();
            if run.rows == 0 {
                self.runs.pop();
            }
        }
    }

    /// Rows so far.
    pub fn rows(&self) -> usize {
        self.columns.rows
    }

    /// Bytes of the keys, values and headers asked for so far.
    pub fn payload_bytes(&self) -> usize {
        self.columns.payload_bytes()
    }

    /// How many records of this slice may still be appended to a batch of some `batch_rows` rows or 2 MiB; 0 = the batch is full.
    pub fn room(&self, batch_rows: usize, slice: &RecordsSlice) -> usize {
        let rows = self.rows();
        let payload = self.payload_bytes();
        if rows >= batch_rows || payload >= BATCH_PAYLOAD {
            return 0;
        }
        // records of one batch differ in size, but not by so much that their mean would miss the target by more than a batch
        let mean = slice.payload.len() / usize::try_from(slice.count).unwrap_or(1).max(1);
        let by_payload = (BATCH_PAYLOAD - payload) / mean.max(1) + 1;
        by_payload.min(batch_rows - rows)
    }

    /// The rows so far as one batch, leaving the builder empty. No rows give a batch of no rows.
    ///
    /// # Panics
    /// Never: the columns have the schema's types and one length by construction.
    #[allow(
        clippy::expect_used,
        reason = "the types and lengths are those of the schema by construction"
    )]
    pub fn finish(&mut self) -> RecordBatch {
        let rows = self.rows();
        let headers = self.columns.headers.as_mut().map(|headers| {
            let built = headers.take(rows, &self.pools);
            built.expect("the headers column is built to its type")
        });
        let taken = self.columns.take(&self.pools);
        let runs = std::mem::take(&mut self.runs);
        self.topic_bytes = 0;
        let timestamps = taken.timestamps;
        let array = |column: &Column| -> Option<ArrayRef> {
            Some(match column {
                Column::Key => match &taken.key {
                    Some(key) => Arc::new(key.clone()),
                    None => self.constants.null_keys(rows),
                },
                Column::Value => Arc::new(taken.value.clone()),
                Column::Topic => self.constants.topics(&runs),
                Column::Partition => self.constants.ints(&runs, |run| run.tp.partition),
                Column::Offset => Arc::new(Int64Array::new(taken.offsets.clone(), None)),
                Column::Timestamp => Arc::new(timestamps.clone().with_data_type(column.data_type())),
                Column::TimestampMillis => {
                    let milliseconds = timestamps.reinterpret_cast::<TimestampMillisecondType>();
                    Arc::new(milliseconds.with_data_type(column.data_type()))
                }
                Column::TimestampType => self.constants.ints(&runs, |run| run.timestamp_type),
                Column::Headers => Arc::clone(headers.as_ref()?),
            })
        };
        let arrays = self.asked.iter().filter_map(array).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::<Schema>::clone(&self.schema), arrays, &options)
            .expect("the columns fit their schema")
    }
}

#[cfg(test)]
mod tests;
