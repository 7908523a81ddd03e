//! Batches of rows for Arrow, decoded straight from record bytes.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Schema, SchemaRef, TimeUnit};
use fletchlog_records::{RecordCursor, RecordError, RecordSpan, RecordsSlice, TopicPartition};

use crate::columns::{Columns, Pools};
use crate::constants::{Constants, Run};
use crate::decode::{Window, decode};
use crate::schema::kafka_schema;

/// Collects decoded records into one Arrow batch after the other.
///
/// A builder is meant to live as long as its consumer or scan: it keeps the memory of its columns, takes it back when a
/// batch it handed out is dropped (on any thread), and builds constant columns once. Batches of some 131,072 rows or
/// 8 MiB are quickest; the caller watches [`RowsBuilder::rows`] and [`RowsBuilder::payload_bytes`].
#[derive(Debug)]
pub struct RowsBuilder {
    schema: SchemaRef,
    timestamp_type: DataType,
    pools: Pools,
    columns: Columns,
    constants: Constants,
    runs: Vec<Run>,
    /// Bytes of the topic column.
    topic_bytes: usize,
}

impl RowsBuilder {
    /// An empty builder for [`kafka_schema`] with or without headers.
    pub fn new(include_headers: bool) -> Self {
        Self {
            schema: kafka_schema(include_headers),
            timestamp_type: DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            pools: Pools::new(),
            columns: Columns::new(include_headers),
            constants: Constants::default(),
            runs: Vec::new(),
            topic_bytes: 0,
        }
    }

    /// Appends a whole span that a consumer has cut.
    ///
    /// # Errors
    /// If the span does not hold its records: nothing of it is appended then.
    pub fn append_span(&mut self, tp: &TopicPartition, span: &RecordSpan) -> Result<(), RecordError> {
        let before = self.rows();
        let mut cursor = span.cursor();
        let window = Window {
            from_offset: i64::MIN,
            to_offset: i64::MAX,
            max_rows: span.count,
            end: span.end,
        };
        let appended = self.append(tp, &span.slice, &mut cursor, window)?;
        if appended == span.count && cursor.position() == span.end {
            return Ok(());
        }
        self.forget(before);
        Err(span.slice.invalid("a span does not hold the records it was cut with"))
    }

    /// Decodes and checks records from the cursor on, in one pass: skips those below `from_offset`, stops before
    /// `to_offset`, after `max_rows`, and before a malformed record. Returns the rows appended; the cursor is where it
    /// stopped.
    ///
    /// # Errors
    /// A malformed record before which nothing was appended. The same call gives the same error again.
    pub fn append_records(
        &mut self,
        tp: &TopicPartition,
        slice: &RecordsSlice,
        cursor: &mut RecordCursor,
        max_rows: usize,
        from_offset: i64,
        to_offset: i64,
    ) -> Result<usize, RecordError> {
        let window = Window {
            from_offset,
            to_offset,
            max_rows,
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
        let topic_bytes = left.min(window.max_rows).saturating_mul(tp.topic.len());
        if self.topic_bytes.saturating_add(topic_bytes) > i32::MAX as usize {
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
        self.columns.rows()
    }

    /// Bytes of keys, values and headers so far.
    pub fn payload_bytes(&self) -> usize {
        self.columns.payload_bytes()
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
        let headers = self
            .columns
            .headers
            .as_mut()
            .map(|headers| headers.take(rows, &self.pools));
        let taken = self.columns.take(&self.pools);
        let runs = std::mem::take(&mut self.runs);
        self.topic_bytes = 0;
        let key: ArrayRef = match taken.key {
            Some(key) => Arc::new(key),
            None => self.constants.null_keys(taken.rows),
        };
        let mut arrays: Vec<ArrayRef> = vec![
            key,
            Arc::new(taken.value),
            self.constants.topics(&runs),
            self.constants.ints(&runs, |run| run.tp.partition),
            Arc::new(Int64Array::new(taken.offsets, None)),
            Arc::new(taken.timestamps.with_data_type(self.timestamp_type.clone())),
            self.constants.ints(&runs, |run| run.timestamp_type),
        ];
        if let Some(headers) = headers {
            arrays.push(headers.expect("the headers column is built to its type"));
        }
        RecordBatch::try_new(Arc::<Schema>::clone(&self.schema), arrays).expect("the columns fit their schema")
    }
}

#[cfg(test)]
mod tests;
