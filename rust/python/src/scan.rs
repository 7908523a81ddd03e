//! `Broker.scan`: the log as a stream of Arrow batches, without a consumer and with bounded memory.

mod merge;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use fletchlog_api::ErrorCode;
use fletchlog_arrow::{RowsBuilder, kafka_schema};
use fletchlog_broker::Broker as Engine;
use fletchlog_log::{FetchBound, PartitionLog};
use fletchlog_records::control::{ControlType, parse_control_record};
use fletchlog_records::{
    BatchIter, DECOMPRESSION_LIMIT, RecordBatch as LogBatch, RecordCursor, RecordError, RecordsSlice, TopicPartition,
};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::broker::log_of;
use crate::capsule::{schema_to_py, stream_to_py};
use crate::convert::unpicklable;
use crate::errors::Failure;
use crate::interop;
use crate::logging;
use merge::Merge;

/// Bytes of keys, values and headers per Arrow batch: beyond some 16 MiB every batch pays for fresh pages, below 2 MiB for
/// the hand-over.
const BATCH_PAYLOAD: usize = 8 << 20;
/// Bytes read from a segment at a time: several of them fit into a core's second-level cache with the columns they become.
pub const READ_BYTES: usize = 1 << 20;

/// The arguments of `scan`.
pub struct Wanted<'a> {
    /// One partition, or all of the topic.
    pub partition: Option<i32>,
    /// First offset, else the log start.
    pub start_offset: Option<i64>,
    /// End (exclusive), else the end of the log now.
    pub end_offset: Option<i64>,
    /// Rows per batch.
    pub batch_rows: usize,
    /// Adds the headers column.
    pub include_headers: bool,
    /// read_uncommitted or read_committed.
    pub isolation_level: &'a str,
    /// offset or timestamp.
    pub order: &'a str,
}

/// One partition's range.
#[derive(Clone)]
struct Range {
    tp: TopicPartition,
    log: Arc<PartitionLog>,
    start: i64,
    end: i64,
}

/// What to read, fixed when `scan` was called: reading it twice gives the same rows.
#[derive(Clone)]
struct Plan {
    ranges: Arc<[Range]>,
    bound: FetchBound,
    batch_rows: usize,
    include_headers: bool,
    /// Merged by timestamp, else partition after partition.
    by_timestamp: bool,
}

/// Records of the log, as a stream of Arrow batches. Every hand-over starts from the first row again.
#[pyclass(frozen, module = "fletchlog")]
pub struct Scan {
    plan: Plan,
    /// The last failure of a stream of this scan: Arrow's C interface hands on only its text.
    failure: Arc<Mutex<Option<Failure>>>,
}

impl Scan {
    /// Resolves the arguments against the log as it is now.
    pub fn open(broker: &Engine, topic: &str, wanted: &Wanted<'_>) -> Result<Self, Failure> {
        let bound = match wanted.isolation_level {
            "read_uncommitted" => FetchBound::HighWatermark,
            "read_committed" => FetchBound::LastStableOffset,
            other => {
                return Err(Failure::argument(format!(
                    "isolation_level is `{other}`; expected read_uncommitted or read_committed"
                )));
            }
        };
        let by_timestamp = match wanted.order {
            "offset" => false,
            "timestamp" => true,
            other => {
                return Err(Failure::argument(format!(
                    "order is `{other}`; expected offset or timestamp"
                )));
            }
        };
        for (name, offset) in [("start_offset", wanted.start_offset), ("end_offset", wanted.end_offset)] {
            if let Some(offset) = offset.filter(|offset| *offset < 0) {
                return Err(Failure::argument(format!("{name} is {offset}; offsets start at 0")));
            }
        }
        let partitions: Vec<i32> = match wanted.partition {
            Some(partition) => vec![partition],
            None => broker
                .describe_topic(topic)?
                .partitions
                .iter()
                .map(|p| p.partition)
                .collect(),
        };
        let ranges = partitions
            .into_iter()
            .filter_map(
                |partition| match Range::resolve(broker, topic, partition, wanted, bound) {
                    // Its writer has announced it and not made its directory yet: nothing is in it.
                    Err(failure) if wanted.partition.is_none() && failure.is(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION) => {
                        None
                    }
                    resolved => Some(resolved),
                },
            )
            .collect::<Result<Arc<[Range]>, Failure>>()?;
        let plan = Plan {
            ranges,
            bound,
            batch_rows: wanted.batch_rows,
            include_headers: wanted.include_headers,
            by_timestamp,
        };
        Ok(Self {
            plan,
            failure: Arc::default(),
        })
    }
}

impl Range {
    fn resolve(
        broker: &Engine,
        topic: &str,
        partition: i32,
        wanted: &Wanted<'_>,
        bound: FetchBound,
    ) -> Result<Self, Failure> {
        let log = log_of(broker, topic, partition)?;
        let tp = TopicPartition::new(topic, partition);
        let log_start = log.log_start_offset();
        let log_end = match bound {
            FetchBound::LastStableOffset => log.last_stable_offset(),
            FetchBound::HighWatermark | FetchBound::LogEnd => log.high_watermark(),
        };
        let start = wanted.start_offset.unwrap_or(log_start);
        if start < log_start {
            return Err(Failure::kafka(
                ErrorCode::OFFSET_OUT_OF_RANGE,
                format!("offset {start} of {tp} is gone: the log starts at {log_start}; scan from there"),
            ));
        }
        let end = wanted.end_offset.map_or(log_end, |end| end.min(log_end));
        Ok(Self { tp, log, start, end })
    }
}

#[pymethods]
impl Scan {
    /// The schema, as pyarrow has it.
    #[getter]
    fn schema<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        interop::call(slf.as_any(), "schema", None)
    }

    fn __repr__(&self) -> String {
        let ranges: Vec<_> = self
            .plan
            .ranges
            .iter()
            .map(|r| format!("{}[{}..{}]", r.tp, r.start, r.end))
            .collect();
        format!("<fletchlog.Scan: {}>", ranges.join(", "))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema; // the interface lets a producer answer with its own schema
        stream_to_py(py, Box::new(Reader::new(self.plan.clone(), Arc::clone(&self.failure))))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_to_py(py, &kafka_schema(self.plan.include_headers))
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        interop::call(slf.as_any(), "batches", None)
    }

    /// As a `pyarrow.RecordBatchReader`.
    fn to_reader<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        interop::call(slf.as_any(), "to_reader", None)
    }

    /// All rows as a `pyarrow.Table`.
    fn to_pyarrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        interop::call(slf.as_any(), "to_pyarrow", None)
    }

    /// All rows as a `pandas.DataFrame`; `options` go to `pyarrow.Table.to_pandas`.
    #[pyo3(signature = (**options))]
    fn to_pandas<'py>(slf: &Bound<'py, Self>, options: Option<&Bound<'py, PyDict>>) -> PyResult<Bound<'py, PyAny>> {
        interop::call(slf.as_any(), "to_pandas", options)
    }

    /// All rows as a `polars.DataFrame`.
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        interop::call(slf.as_any(), "to_polars", None)
    }

    /// Raises the failure that ended the last stream of this scan, if one did.
    fn _raise_failure(&self, py: Python<'_>) -> PyResult<()> {
        match self.failure.lock().ok().and_then(|mut failure| failure.take()) {
            Some(failure) => Err(failure.into_py(py)),
            None => Ok(()),
        }
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("Scan", "the directory's path and the offsets"))
    }
}

/// Reads a plan: touches Python only to log, between two batches, so the consumer of the stream may call it with or without
/// the GIL.
struct Reader {
    plan: Plan,
    schema: SchemaRef,
    builder: RowsBuilder,
    failure: Arc<Mutex<Option<Failure>>>,
    range: usize,
    walk: Option<Walk>,
    /// By timestamp: all partitions at once, instead of `walk`.
    merge: Option<Merge>,
    /// Found while rows were waiting to be handed over: answered by the next call.
    pending: Option<Failure>,
    done: bool,
}

/// Where the reader stands in one range.
struct Walk {
    /// Read from the log at a time.
    read_bytes: usize,
    /// First offset not read yet.
    next_offset: i64,
    batches: BatchIter,
    aborted: AbortedTransactions,
    records: Option<(RecordsSlice, RecordCursor)>,
}

/// The client-side filter of read_committed. Kafka: `CompletedFetch#consumeAbortedTransactionsUpTo`, spec 7.7.
#[derive(Default)]
struct AbortedTransactions {
    /// (first offset, producer id) of those that have not begun yet, the next one last.
    waiting: Vec<(i64, i64)>,
    /// Producers inside an aborted transaction.
    open: BTreeSet<i64>,
}

impl AbortedTransactions {
    fn new(aborted: Vec<(i64, i64)>) -> Self {
        let mut waiting: Vec<_> = aborted
            .into_iter()
            .map(|(producer_id, first_offset)| (first_offset, producer_id))
            .collect();
        waiting.sort_unstable_by(|a, b| b.cmp(a));
        Self {
            waiting,
            open: BTreeSet::new(),
        }
    }

    /// Whether the records of this batch are to be left out.
    fn skips(&mut self, batch: &LogBatch) -> Result<bool, Failure> {
        let header = batch.header();
        while let Some((_, producer_id)) = self
            .waiting
            .pop_if(|(first_offset, _)| *first_offset <= header.last_offset())
        {
            self.open.insert(producer_id);
        }
        if header.is_control() {
            let slice = batch.records(DECOMPRESSION_LIMIT)?;
            let marker = RecordCursor::new()
                .next(&slice)?
                .and_then(|r| parse_control_record(r.key.unwrap_or(&[]), r.value));
            if marker.is_some_and(|marker| marker.control_type == ControlType::Abort) {
                self.open.remove(&header.producer_id);
            }
            return Ok(true);
        }
        Ok(header.is_transactional() && self.open.contains(&header.producer_id))
    }
}

impl Reader {
    fn new(plan: Plan, failure: Arc<Mutex<Option<Failure>>>) -> Self {
        let builder = RowsBuilder::new(plan.include_headers);
        let schema = kafka_schema(plan.include_headers);
        Self {
            schema,
            builder,
            failure,
            range: 0,
            walk: None,
            merge: plan.by_timestamp.then(|| Merge::new(&plan)),
            plan,
            pending: None,
            done: false,
        }
    }

    /// Reads until a batch is full or the plan is finished.
    fn fill(&mut self) -> Result<(), Failure> {
        if let Some(merge) = &mut self.merge {
            return merge.fill(&self.plan, &mut self.builder);
        }
        while let Some(range) = self.plan.ranges.get(self.range) {
            let walk = self.walk.get_or_insert_with(|| Walk::at(range.start, READ_BYTES));
            while walk.step(range, self.plan.bound)? {
                if let Some((slice, cursor)) = &mut walk.records {
                    let room = room(&self.builder, self.plan.batch_rows, slice);
                    if room == 0 {
                        return Ok(());
                    }
                    self.builder
                        .append_records(&range.tp, slice, cursor, room, range.start, range.end)
                        .map_err(|error| Failure::from(error).at(&range.tp, slice.base_offset))?;
                }
            }
            self.range += 1;
            self.walk = None;
        }
        Ok(())
    }

    /// The next batch, `None` at the end.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, Failure> {
        if let Some(failure) = self.pending.take() {
            return Err(failure);
        }
        if let Err(failure) = self.fill() {
            if self.builder.rows() == 0 {
                return Err(failure);
            }
            self.pending = Some(failure);
        }
        Ok((self.builder.rows() > 0).then(|| self.builder.finish()))
    }
}

/// How many records of this slice may still be appended; 0 = the batch is full.
fn room(builder: &RowsBuilder, batch_rows: usize, slice: &RecordsSlice) -> usize {
    let rows = builder.rows();
    let payload = builder.payload_bytes();
    if rows >= batch_rows || payload >= BATCH_PAYLOAD {
        return 0;
    }
    // records of one batch differ in size, but not by so much that their mean would miss the target by more than a batch
    let mean = slice.payload.len() / usize::try_from(slice.count).unwrap_or(1).max(1);
    let by_payload = (BATCH_PAYLOAD - payload) / mean.max(1) + 1;
    by_payload.min(batch_rows - rows)
}

impl Walk {
    fn at(offset: i64, read_bytes: usize) -> Self {
        Self {
            read_bytes,
            next_offset: offset,
            batches: BatchIter::new(bytes::Bytes::new()),
            aborted: AbortedTransactions::default(),
            records: None,
        }
    }

    /// Finds the next batch with records of the range. `false`: the range is finished.
    fn step(&mut self, range: &Range, bound: FetchBound) -> Result<bool, Failure> {
        if let Some((slice, cursor)) = &self.records {
            // stopped by a full batch, before a malformed record, or at the end of the range
            let next = peek_offset(slice, cursor).map_err(|error| error.at(&range.tp, slice.base_offset))?;
            if next.is_some_and(|offset| offset < range.end) {
                return Ok(true);
            }
            self.records = None;
        }
        loop {
            if self.next_offset >= range.end {
                return Ok(false);
            }
            let place = |error: RecordError| Failure::from(error).at(&range.tp, self.next_offset);
            let Some(batch) = self.batches.next().transpose().map_err(place)? else {
                if !self.read(range, bound)? {
                    return Ok(false);
                }
                continue;
            };
            let header = batch.header();
            let (base_offset, next_offset) = (header.base_offset, header.next_offset());
            if base_offset >= range.end {
                self.next_offset = range.end;
                return Ok(false);
            }
            batch
                .ensure_valid()
                .map_err(|error| Failure::from(error).at(&range.tp, base_offset))?;
            self.next_offset = next_offset.max(self.next_offset);
            let skipped = if bound == FetchBound::LastStableOffset {
                self.aborted.skips(&batch)?
            } else {
                header.is_control()
            };
            if skipped || next_offset <= range.start {
                continue;
            }
            let slice = batch
                .records(DECOMPRESSION_LIMIT)
                .map_err(|error| Failure::from(error).at(&range.tp, base_offset))?;
            self.records = Some((slice, RecordCursor::new()));
            return Ok(true);
        }
    }

    /// Reads the next bytes. `false`: there are none.
    fn read(&mut self, range: &Range, bound: FetchBound) -> Result<bool, Failure> {
        let read = range.log.read(self.next_offset, self.read_bytes, true, bound);
        let read = read.map_err(|error| Failure::reading(error).at(&range.tp, self.next_offset))?;
        if read.records.is_empty() {
            return Ok(false);
        }
        self.aborted = AbortedTransactions::new(read.aborted_transactions.unwrap_or_default());
        self.batches = BatchIter::new(read.records);
        Ok(true)
    }
}

/// Offset of the record at the cursor.
fn peek_offset(slice: &RecordsSlice, cursor: &RecordCursor) -> Result<Option<i64>, Failure> {
    Ok(cursor.clone().next(slice)?.map(|record| record.offset))
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        match logging::emit_after(|| self.next_batch()) {
            Ok(Some(batch)) => Some(Ok(batch)),
            Ok(None) => {
                self.done = true;
                None
            }
            Err(failure) => {
                self.done = true;
                let text = failure.to_string();
                if let Ok(mut slot) = self.failure.lock() {
                    *slot = Some(failure);
                }
                Some(Err(ArrowError::ExternalError(text.into())))
            }
        }
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
