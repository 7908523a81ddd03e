//! `Broker.scan` and `Cluster.scan`: the log as a stream of Arrow batches, without a consumer and with bounded memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use fletchlog_api::{Config, ErrorCode};
use fletchlog_arrow::{Column, RowsBuilder, schema_of};
use fletchlog_broker::Broker as Engine;
use fletchlog_client::consumer::{RangeScan, ScannedSpan};
use fletchlog_log::FetchBound;
use fletchlog_log::scan::{Scan as LogScan, ScanOrder, ScanRange};
use fletchlog_net::TopicOffsets;
use fletchlog_records::{RecordCursor, TimeRange, TopicPartition};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::capsule::{schema_to_py, stream_to_py, without_gil};
use crate::cluster_scan;
use crate::convert::unpicklable;
use crate::errors::Failure;
use crate::fork::Stop;
use crate::interop;
use crate::logging;
use crate::peer::Peer;
use crate::scan_arguments::{Wanted, in_unit};
use crate::scan_builders::{Builders, Lent};
use crate::scan_records::ScanRecords;
use crate::scan_tail;
use crate::scan_threads::{PART_BYTES, ScanThreads, Work, fill_from_logs};
use crate::scan_typed::Typed;

/// The source of the records.
#[derive(Clone)]
enum Source {
    Logs {
        ranges: Arc<[ScanRange]>,
        bound: FetchBound,
        order: ScanOrder,
    },
    Cluster(Arc<cluster_scan::Plan>),
}

impl Source {
    /// The partitions and their offsets, for display.
    fn ranges(&self) -> Vec<(&TopicPartition, i64, i64)> {
        match self {
            Self::Logs { ranges, .. } => ranges.iter().map(|r| (r.tp(), r.start, r.end)).collect(),
            Self::Cluster(plan) => plan.ranges.iter().map(|r| (&r.tp, r.start, r.end)).collect(),
        }
    }
}

/// The ranges to read, fixed when `scan` was called: reading twice gives the same rows.
#[derive(Clone)]
struct Plan {
    source: Source,
    batch_rows: usize,
    columns: Arc<[Column]>,
    times: TimeRange,
    threads: usize,
    builders: Arc<Builders>,
}

#[doc = stub!(Scan)]
#[pyclass(frozen, module = "fletchlog.types")]
pub struct Scan {
    plan: Plan,
    /// The last failure of a stream of this scan: Arrow's C interface passes on only its text.
    failure: Arc<Mutex<Option<Failure>>>,
    asked: Option<Asked>,
    /// What decodes keys and values; `None`: they stay bytes.
    typed: Option<Typed>,
}

/// What `scan` was called with, for readers of a part of its range.
struct Asked {
    /// The `Broker` or the `Cluster`.
    place: Py<PyAny>,
    isolation_level: String,
    order: String,
}

impl Scan {
    /// The same, of this place.
    pub fn at(self, place: &Bound<'_, PyAny>, wanted: &Wanted<'_>) -> Self {
        let asked = Some(Asked {
            place: place.clone().unbind(),
            isolation_level: wanted.isolation_level.to_owned(),
            order: wanted.order.to_owned(),
        });
        Self { asked, ..self }
    }

    /// The same, decoded.
    pub fn typed(self, typed: Option<Typed>) -> Self {
        Self { typed, ..self }
    }

    /// Resolves the arguments against the current log.
    pub fn open(broker: &Engine, builders: &Arc<Builders>, topic: &str, wanted: &Wanted<'_>) -> Result<Self, Failure> {
        let (bound, order) = wanted.checked()?;
        let partitions: Vec<i32> = match wanted.partition {
            Some(partition) => vec![partition],
            None => broker
                .describe_topic(topic)?
                .partitions
                .iter()
                .map(|p| p.partition)
                .collect(),
        };
        let resolve = |partition| {
            let log = broker.partition_log(&TopicPartition::new(topic, partition))?;
            let range = ScanRange::resolve(log, wanted.start_offset, wanted.end_offset, bound);
            let range = match wanted.start_time() {
                Some(time) => range.and_then(|range| range.from_time(time)),
                None => range,
            };
            range.map_err(Failure::from)
        };
        let mut ranges = partitions
            .into_iter()
            .map(resolve)
            // A partition without a directory yet is empty.
            .filter(|range| match range {
                Err(failure) => wanted.partition.is_some() || !failure.is(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
                Ok(_) => true,
            })
            .collect::<Result<Vec<_>, Failure>>()?;
        if let Some(tail) = wanted.tail {
            scan_tail::of_logs(&mut ranges, tail, bound)?;
        }
        let source = Source::Logs {
            ranges: ranges.into(),
            bound,
            order,
        };
        Ok(Self::of(source, wanted, Arc::clone(builders)))
    }

    /// Opens a scan of a cluster's topic. `firsts`: by partition, an offset below which no record is in the range of times.
    pub fn of_cluster(
        peer: &Arc<Peer>,
        config: &Config,
        topic: &TopicOffsets,
        firsts: &BTreeMap<i32, i64>,
        wanted: &Wanted<'_>,
        stop: Stop<'_>,
    ) -> Result<Self, Failure> {
        wanted.checked()?;
        let mut plan = cluster_scan::Plan::new(Arc::clone(peer), config, topic, firsts, wanted)?;
        if let Some(tail) = wanted.tail {
            let mut ranges = std::mem::take(&mut plan.ranges);
            scan_tail::of_cluster(&mut ranges, tail, |ranges| plan.open_ranges(ranges), stop)?;
            plan.ranges = ranges;
        }
        Ok(Self::of(Source::Cluster(Arc::new(plan)), wanted, Arc::default()))
    }

    fn of(source: Source, wanted: &Wanted<'_>, builders: Arc<Builders>) -> Self {
        Self {
            plan: Plan {
                source,
                batch_rows: wanted.batch_rows,
                columns: wanted.columns.as_slice().into(),
                times: wanted.times,
                threads: wanted.threads,
                builders,
            },
            failure: Arc::default(),
            asked: None,
            typed: None,
        }
    }
}

#[pymethods]
impl Scan {
    #[doc = stub!(Scan.source)]
    #[getter]
    fn source(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.asked.as_ref().map(|asked| asked.place.clone_ref(py))
    }

    #[doc = stub!(Scan.ranges)]
    #[getter]
    fn ranges<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        interop::call(slf.as_any(), "scan_ranges", None)
    }

    #[doc = stub!(Scan.lazy)]
    fn lazy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        interop::call(slf.as_any(), "lazy", None)
    }

    #[doc = stub!(Scan._asked)]
    fn _asked<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let TimeRange { first, last } = self.plan.times;
        let ranges = self.plan.source.ranges().into_iter();
        let ranges: Vec<_> = ranges
            .map(|(tp, start, end)| (&*tp.topic, tp.partition, start, end))
            .collect();
        let fields = PyDict::new(py);
        fields.set_item("ranges", ranges)?;
        fields.set_item("start_time", (first != i64::MIN).then_some(first))?;
        fields.set_item("end_time", last.checked_add(1))?;
        fields.set_item(
            "isolation_level",
            self.asked.as_ref().map(|asked| &*asked.isolation_level),
        )?;
        fields.set_item("order", self.asked.as_ref().map(|asked| &*asked.order))?;
        fields.set_item("threads", self.plan.threads)?;
        Ok(fields)
    }

    #[doc = stub!(Scan.schema)]
    #[getter]
    fn schema<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        interop::call(slf.as_any(), "schema", None)
    }

    fn __repr__(&self) -> String {
        let ranges = self.plan.source.ranges().into_iter();
        let ranges: Vec<_> = ranges.map(|(tp, start, end)| format!("{tp}[{start}..{end}]")).collect();
        format!("<fletchlog.types.Scan: {}>", ranges.join(", "))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        slf: &Bound<'py, Self>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema; // the interface allows a producer to use its own schema
        let this = slf.get();
        if this.typed.is_some() {
            let reader = interop::call(slf.as_any(), "to_reader", None)?;
            return Ok(reader.call_method0("__arrow_c_stream__")?.cast_into()?);
        }
        stream_to_py(slf.py(), Box::new(Reader::new(&this.plan, Arc::clone(&this.failure))))
    }

    fn __arrow_c_schema__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyCapsule>> {
        let this = slf.get();
        if this.typed.is_some() {
            let schema = interop::call(slf.as_any(), "schema", None)?;
            return Ok(schema.call_method0("__arrow_c_schema__")?.cast_into()?);
        }
        schema_to_py(slf.py(), &schema_of(&this.plan.columns))
    }

    #[doc = stub!(Scan._decoder)]
    #[getter]
    fn _decoder(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.typed.as_ref().map(|typed| typed.decoder(py))
    }

    #[doc = stub!(Scan._bytes)]
    fn _bytes(&self) -> Self {
        Self {
            plan: self.plan.clone(),
            failure: Arc::clone(&self.failure),
            asked: None,
            typed: None,
        }
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        interop::call(slf.as_any(), "batches", None)
    }

    #[doc = stub!(Scan.records)]
    fn records(&self) -> ScanRecords {
        let all = in_unit(Column::of_kafka(true), "ms").unwrap_or_default();
        let plan = Plan {
            columns: all.into(),
            ..self.plan.clone()
        };
        let failure = Arc::default();
        let deserializers = self.typed.as_ref().and_then(Typed::deserializers);
        ScanRecords::new(Reader::new(&plan, Arc::clone(&failure)), failure, deserializers)
    }

    #[doc = stub!(Scan.to_reader)]
    fn to_reader<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        interop::call(slf.as_any(), "to_reader", None)
    }

    #[doc = stub!(Scan.to_pyarrow)]
    fn to_pyarrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        interop::call(slf.as_any(), "to_pyarrow", None)
    }

    #[doc = stub!(Scan.to_pandas)]
    #[pyo3(signature = (**options))]
    fn to_pandas<'py>(slf: &Bound<'py, Self>, options: Option<&Bound<'py, PyDict>>) -> PyResult<Bound<'py, PyAny>> {
        interop::call(slf.as_any(), "to_pandas", options)
    }

    #[doc = stub!(Scan.to_polars)]
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        interop::call(slf.as_any(), "to_polars", None)
    }

    #[doc = stub!(Scan._raise_failure)]
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

/// The rows that are left to read.
enum Rows {
    Logs(LogScan),
    Threads(ScanThreads),
    Unconnected(Arc<cluster_scan::Plan>),
    Cluster(Box<ClusterRows>),
}

impl Rows {
    fn new(plan: &Plan) -> Self {
        match &plan.source {
            Source::Logs { ranges, bound, order } => match threads(plan, ranges, *bound, *order) {
                Some(threads) => Self::Threads(threads),
                None => Self::Logs(LogScan::new(ranges, *bound, *order).of_times(plan.times)),
            },
            Source::Cluster(plan) => Self::Unconnected(Arc::clone(plan)),
        }
    }
}

/// Threads, if several are wanted and the ranges have more than one part.
fn threads(plan: &Plan, ranges: &[ScanRange], bound: FetchBound, order: ScanOrder) -> Option<ScanThreads> {
    if plan.threads < 2 || order != ScanOrder::Offset {
        return None;
    }
    let parts: Vec<_> = ranges.iter().flat_map(|range| range.parts(PART_BYTES)).collect();
    let work = Work {
        bound,
        batch_rows: plan.batch_rows,
        times: plan.times,
    };
    let lend = || plan.builders.lend(&plan.columns, plan.times);
    (parts.len() > 1).then(|| ScanThreads::start(parts, plan.threads, &work, lend))?
}

/// Reads the records of a cluster.
struct ClusterRows {
    rows: RangeScan,
    /// A span with rows left, and the position of the next row.
    current: Option<(ScannedSpan, RecordCursor)>,
}

impl ClusterRows {
    fn fill(&mut self, builder: &mut RowsBuilder, batch_rows: usize) -> Result<(), Failure> {
        loop {
            if self.current.is_none() {
                let next = self.rows.next(&mut cluster_scan::wants_to_stop)?;
                self.current = next.map(|next| {
                    let cursor = next.span.cursor();
                    (next, cursor)
                });
            }
            let Some((ScannedSpan { tp, span, end }, cursor)) = &mut self.current else {
                return Ok(());
            };
            let room = builder.room(batch_rows, &span.slice);
            if room == 0 {
                return Ok(());
            }
            // Appends no record after the span: if a span ends inside its batch, its cursor has not counted the records behind it.
            let walked = |cursor: &RecordCursor| {
                let walked = cursor.returned() - span.cursor().returned();
                usize::try_from(walked).unwrap_or(0)
            };
            let before = walked(cursor);
            let most = room.min(span.count - before);
            builder
                .append_records(tp, &span.slice, cursor, most, i64::MIN, *end)
                .map_err(|error| Failure::of_record(error, tp, span.slice.base_offset))?;
            let after = walked(cursor);
            if after - before < most || after >= span.count {
                self.current = None;
            }
        }
    }
}

/// Reads a plan without the GIL, whether or not the consumer of the stream holds it. Log lines are delivered between two batches.
pub struct Reader {
    rows: Rows,
    batch_rows: usize,
    schema: SchemaRef,
    builder: Lent,
    failure: Arc<Mutex<Option<Failure>>>,
    /// A failure that came after rows that had to be returned first; the next call returns it.
    pending: Option<Failure>,
    done: bool,
}

impl Reader {
    fn new(plan: &Plan, failure: Arc<Mutex<Option<Failure>>>) -> Self {
        Self {
            rows: Rows::new(plan),
            batch_rows: plan.batch_rows,
            schema: schema_of(&plan.columns),
            builder: plan.builders.lend(&plan.columns, plan.times),
            failure,
            pending: None,
            done: false,
        }
    }

    /// Reads until a batch is full or the plan is finished.
    fn fill(&mut self) -> Result<(), Failure> {
        match &mut self.rows {
            Rows::Logs(scan) => fill_from_logs(scan, self.builder.get(), self.batch_rows),
            Rows::Threads(_) => Ok(()), // The threads return whole batches.
            Rows::Unconnected(plan) => {
                self.rows = Rows::Cluster(Box::new(ClusterRows {
                    rows: plan.open()?,
                    current: None,
                }));
                self.fill()
            }
            Rows::Cluster(rows) => rows.fill(self.builder.get(), self.batch_rows),
        }
    }

    /// The next batch, `None` at the end.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, Failure> {
        if let Some(failure) = self.pending.take() {
            return Err(failure);
        }
        if let Rows::Threads(threads) = &mut self.rows {
            return threads.next();
        }
        if let Err(failure) = self.fill() {
            if self.builder.get().rows() == 0 {
                return Err(failure);
            }
            self.pending = Some(failure);
        }
        let builder = self.builder.get();
        Ok((builder.rows() > 0).then(|| builder.finish()))
    }
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        match logging::emit_after(|| without_gil(|| self.next_batch())) {
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
