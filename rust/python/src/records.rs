//! The records of one poll: `fletchlog.Records`.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::ArrowError;
use fletchlog_arrow::{Column, RowsBuilder, schema_of};
use fletchlog_client::consumer::PolledRecords;
use fletchlog_records::{RecordCursor, RecordSpan, TimeRange, TopicPartition};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict, PyInt, PyList, PyString, PyTuple};

use crate::capsule::{batch_to_py, schema_to_py, stream_to_py};
use crate::convert::{counted, partition_to_py, record_class, run_class, unpicklable};
use crate::errors::Failure;
use crate::gate::gate;
use crate::scan_arguments::in_unit;
use crate::{interop, named_tuple};

/// One Arrow batch has at most 2 GiB per column (32-bit offsets). Batches are cut well below that: fetches are limited to 50 MiB by
/// default, so a poll is one batch unless the user raised every limit.
const BATCH_PAYLOAD_MAX: usize = 1 << 30;

/// Memory for columns, kept from poll to poll.
pub type Builder = Arc<Mutex<Option<RowsBuilder>>>;

#[doc = stub!(Records)]
#[pyclass(frozen, module = "fletchlog")]
pub struct Records {
    polled: Arc<PolledRecords>,
    /// Indices into the runs, in row order.
    order: Arc<[usize]>,
    /// Columns of the Arrow batches.
    columns: Arc<[Column]>,
    builder: Builder,
    batches: Mutex<Option<Vec<RecordBatch>>>,
}

impl Records {
    /// Wraps the result of a poll, with its consumer's builder.
    pub fn new(polled: PolledRecords, builder: Builder) -> Self {
        let order = polled.row_order().into();
        Self {
            polled: Arc::new(polled),
            order,
            columns: Column::of_kafka(false).into(),
            builder,
            batches: Mutex::default(),
        }
    }

    /// The same records with these columns.
    fn of_columns(&self, columns: &[Column]) -> Self {
        Self {
            polled: Arc::clone(&self.polled),
            order: Arc::clone(&self.order),
            columns: columns.into(),
            builder: Arc::clone(&self.builder),
            batches: Mutex::default(),
        }
    }

    /// The records, for another poll to return; `None` without records.
    pub fn give_back(&self) -> Option<PolledRecords> {
        (self.polled.count() > 0).then(|| PolledRecords::clone(&self.polled))
    }

    /// The rows as Arrow batches, decoded at the first call.
    fn batches(&self, py: Python<'_>) -> PyResult<Vec<RecordBatch>> {
        gate(py, |_| {
            let mut batches = self.batches.lock().map_err(|_| Failure::broken("Records"))?;
            if let Some(batches) = batches.as_ref() {
                return Ok(batches.clone());
            }
            let decoded = self.decode()?;
            Ok(batches.insert(decoded).clone())
        })
    }

    fn decode(&self) -> Result<Vec<RecordBatch>, Failure> {
        // a new builder for another schema, or while another thread uses the shared one
        let is_usual = *self.columns == *Column::of_kafka(false);
        let shared = is_usual.then(|| self.builder.try_lock().ok().and_then(|mut slot| slot.take()));
        let mut builder = shared
            .flatten()
            .unwrap_or_else(|| RowsBuilder::of(&self.columns, TimeRange::ALL));
        let mut batches = Vec::new();
        for run in self.order.iter().filter_map(|&index| self.polled.runs.get(index)) {
            for span in &run.spans {
                if builder.rows() > 0 && builder.payload_bytes() + (span.end - span.start) > BATCH_PAYLOAD_MAX {
                    batches.push(builder.finish());
                }
                let appended = builder.append_span(&run.tp, span);
                appended.map_err(|error| Failure::of_record(error, &run.tp, span.slice.base_offset))?;
            }
        }
        if builder.rows() > 0 || batches.is_empty() {
            batches.push(builder.finish());
        }
        if is_usual && let Ok(mut slot) = self.builder.try_lock() {
            *slot = Some(builder);
        }
        Ok(batches)
    }
}

#[pymethods]
impl Records {
    fn __len__(&self) -> usize {
        self.polled.count()
    }

    fn __bool__(&self) -> bool {
        self.polled.count() > 0
    }

    fn __repr__(&self) -> String {
        format!(
            "<fletchlog.Records: {} of {}>",
            counted(self.polled.count(), "record"),
            counted(self.partition_count(), "partition")
        )
    }

    /// What a notebook shows.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        interop::call(slf.as_any(), "records_html", None)
    }

    #[doc = stub!(Records.schema)]
    #[getter]
    fn schema<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        interop::call(slf.as_any(), "schema", None)
    }

    #[doc = stub!(Records.with_headers)]
    fn with_headers(&self) -> Self {
        self.of_columns(Column::of_kafka(true))
    }

    #[doc = stub!(Records.runs)]
    fn runs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let class = run_class(py)?;
        self.polled
            .runs
            .iter()
            .map(|run| {
                class.call1((
                    &*run.tp.topic,
                    run.tp.partition,
                    run.first_offset,
                    run.last_offset,
                    run.count,
                ))
            })
            .collect()
    }

    #[doc = stub!(Records.partitions)]
    fn partitions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        let mut seen = HashSet::new();
        for run in self.order.iter().filter_map(|&index| self.polled.runs.get(index)) {
            if seen.insert(&run.tp) {
                list.append(partition_to_py(py, &run.tp)?)?;
            }
        }
        Ok(list)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema; // the interface allows a producer to use its own schema
        let batches: Vec<Result<RecordBatch, ArrowError>> = self.batches(py)?.into_iter().map(Ok).collect();
        stream_to_py(
            py,
            Box::new(RecordBatchIterator::new(batches, schema_of(&self.columns))),
        )
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let _ = requested_schema;
        let mut batches = self.batches(py)?;
        match (batches.pop(), batches.is_empty()) {
            (Some(batch), true) => batch_to_py(py, batch),
            _ => Err(Failure::argument("these records do not fit into one Arrow batch; use __arrow_c_stream__").into()),
        }
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_to_py(py, &schema_of(&self.columns))
    }

    #[doc = stub!(Records.to_pyarrow)]
    #[pyo3(signature = (*, include_headers=false, timestamp_unit="us"))]
    fn to_pyarrow<'py>(
        slf: &Bound<'py, Self>,
        include_headers: bool,
        timestamp_unit: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        interop::call(&view(slf, include_headers, timestamp_unit)?, "to_pyarrow", None)
    }

    #[doc = stub!(Records.to_pandas)]
    #[pyo3(signature = (*, include_headers=false, timestamp_unit="us", **options))]
    fn to_pandas<'py>(
        slf: &Bound<'py, Self>,
        include_headers: bool,
        timestamp_unit: &str,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        interop::call(&view(slf, include_headers, timestamp_unit)?, "to_pandas", options)
    }

    #[doc = stub!(Records.to_polars)]
    #[pyo3(signature = (*, include_headers=false, timestamp_unit="us"))]
    fn to_polars<'py>(
        slf: &Bound<'py, Self>,
        include_headers: bool,
        timestamp_unit: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        interop::call(&view(slf, include_headers, timestamp_unit)?, "to_polars", None)
    }

    fn __iter__(&self) -> RecordIterator {
        self.rows()
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("Records", "to_pyarrow()"))
    }
}

impl Records {
    /// The records one by one.
    pub fn rows(&self) -> RecordIterator {
        RecordIterator {
            polled: Arc::clone(&self.polled),
            order: Arc::clone(&self.order),
            place: Mutex::new(Place {
                run: 0,
                span: 0,
                in_span: None,
            }),
        }
    }

    fn partition_count(&self) -> usize {
        let mut partitions: Vec<_> = self.polled.runs.iter().map(|run| &run.tp).collect();
        partitions.sort_unstable();
        partitions.dedup();
        partitions.len()
    }
}

/// The same records, with or without headers, and with this unit of timestamps.
fn view<'py>(slf: &Bound<'py, Records>, include_headers: bool, timestamp_unit: &str) -> PyResult<Bound<'py, PyAny>> {
    let records = slf.get();
    let include_headers = include_headers || records.columns.contains(&Column::Headers);
    let columns = in_unit(Column::of_kafka(include_headers), timestamp_unit)?;
    if *columns == *records.columns {
        return Ok(slf.clone().into_any());
    }
    Ok(Bound::new(slf.py(), records.of_columns(&columns))?.into_any())
}

struct Place {
    run: usize,
    span: usize,
    in_span: Option<InSpan>,
}

/// The position of an iteration in a span.
struct InSpan {
    cursor: RecordCursor,
    /// Number of records left.
    left: usize,
    /// Fields that all records of the span share.
    topic: Py<PyString>,
    partition: Py<PyInt>,
    timestamp_type: Py<PyInt>,
    /// The timestamp of the previous record, which most records share.
    timestamp: (i64, Py<PyInt>),
}

fn int_to_py<'py, I>(py: Python<'py>, number: I) -> Py<PyInt>
where
    I: IntoPyObject<'py, Target = PyInt, Output = Bound<'py, PyInt>, Error = Infallible>,
{
    match number.into_pyobject(py) {
        Ok(number) => number.unbind(),
        Err(never) => match never {},
    }
}

impl InSpan {
    fn new(py: Python<'_>, tp: &TopicPartition, span: &RecordSpan) -> Self {
        Self {
            cursor: span.cursor(),
            left: span.count,
            topic: PyString::new(py, &tp.topic).unbind(),
            partition: int_to_py(py, tp.partition),
            timestamp_type: int_to_py(py, span.slice.timestamp_type as i32),
            timestamp: (-1, int_to_py(py, -1i64)),
        }
    }
}

#[doc = stub!(RecordIterator)]
#[pyclass(frozen, module = "fletchlog.types")]
pub struct RecordIterator {
    polled: Arc<PolledRecords>,
    order: Arc<[usize]>,
    place: Mutex<Place>,
}

#[pymethods]
impl RecordIterator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.next(py)
    }

    fn __repr__(&self) -> String {
        match self.place.try_lock() {
            Ok(place) => format!(
                "<fletchlog.types.RecordIterator: {} left>",
                counted(self.left(&place), "record")
            ),
            Err(_) => "<fletchlog.types.RecordIterator: in use>".to_owned(),
        }
    }
}

impl RecordIterator {
    fn left(&self, place: &Place) -> usize {
        let runs = self.order[place.run..].iter().map(|&index| &self.polled.runs[index]);
        let all: usize = runs.flat_map(|run| &run.spans).map(|span| span.count).sum();
        let Some(&index) = self.order.get(place.run) else {
            return all;
        };
        let spans = &self.polled.runs[index].spans;
        let before: usize = spans.iter().take(place.span).map(|span| span.count).sum();
        let of_this = match (&place.in_span, spans.get(place.span)) {
            (Some(here), Some(span)) => span.count - here.left,
            _ => 0,
        };
        all - before - of_this
    }

    /// The next record as a Python object; `None` after the last.
    pub fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Ok(mut place) = self.place.try_lock() else {
            return Err(Failure::concurrent("iterator").into());
        };
        loop {
            let Some(run) = self.order.get(place.run).and_then(|&index| self.polled.runs.get(index)) else {
                return Ok(None);
            };
            let Some(span) = run.spans.get(place.span) else {
                place.run += 1;
                place.span = 0;
                continue;
            };
            let here = place.in_span.get_or_insert_with(|| InSpan::new(py, &run.tp, span));
            let record = match here.left {
                0 => None,
                _ => next_record(&mut here.cursor, span)?,
            };
            let Some(record) = record else {
                place.span += 1;
                place.in_span = None;
                continue;
            };
            here.left -= 1;
            return record_to_py(py, here, &record).map(Some);
        }
    }
}

/// Makes a `Record`.
fn record_to_py<'py>(
    py: Python<'py>,
    here: &mut InSpan,
    record: &fletchlog_records::Record<'_>,
) -> PyResult<Bound<'py, PyAny>> {
    let headers = PyList::empty(py);
    for header in record.headers() {
        headers.append((header.key, header.value.map(|value| PyBytes::new(py, value))))?;
    }
    let bytes = |field: Option<&[u8]>| field.map(|field| PyBytes::new(py, field));
    if here.timestamp.0 != record.timestamp {
        here.timestamp = (record.timestamp, int_to_py(py, record.timestamp));
    }
    let fields = (
        &here.topic,
        &here.partition,
        record.offset,
        &here.timestamp.1,
        &here.timestamp_type,
        bytes(record.key),
        bytes(record.value),
        headers,
    );
    named_tuple::new(record_class(py)?.cast()?, fields.into_pyobject(py)?)
}

fn next_record<'a>(
    cursor: &mut RecordCursor,
    span: &'a RecordSpan,
) -> Result<Option<fletchlog_records::Record<'a>>, Failure> {
    Ok(cursor.next(&span.slice)?)
}
