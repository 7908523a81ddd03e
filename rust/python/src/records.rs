//! The records of one poll: `fletchlog.Records`.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use arrow_array::{Int16Array, RecordBatch, RecordBatchIterator};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use fletchlog_arrow::{Column, RowsBuilder, schema_of};
use fletchlog_client::consumer::{PartitionRun, PolledRecords};
use fletchlog_records::{RecordCursor, RecordSpan, TimeRange, TopicPartition};
use pyo3::exceptions::{PyException, PyIndexError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict, PyInt, PyList, PySlice, PyString, PyTuple};

use crate::capsule::{batch_to_py, schema_to_py, stream_to_py};
use crate::convert::{counted, describe, partition_to_py, record_class, run_class, share_record_class, unpicklable};
use crate::deserializers::Deserializers;
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
#[pyclass(frozen, generic, module = "fletchlog")]
pub struct Records {
    polled: Arc<PolledRecords>,
    /// Indices into the runs, in row order.
    order: Arc<[usize]>,
    /// Columns of the Arrow batches.
    columns: Arc<[Column]>,
    builder: Builder,
    /// They come from a share group: with a column of delivery counts.
    is_shared: bool,
    /// Of the consumer, for records that are handed out one by one.
    deserializers: Option<Arc<Deserializers>>,
    batches: Mutex<Option<Vec<RecordBatch>>>,
}

impl Records {
    /// Wraps the result of a poll, with its consumer's builder and deserializers.
    pub fn new(polled: PolledRecords, builder: Builder, deserializers: Option<Arc<Deserializers>>) -> Self {
        let order = polled.row_order().into();
        Self {
            polled: Arc::new(polled),
            order,
            columns: Column::of_kafka(false).into(),
            builder,
            is_shared: false,
            deserializers,
            batches: Mutex::default(),
        }
    }

    /// As [`Self::new`], for the poll of a share consumer.
    pub fn of_share_group(polled: PolledRecords, builder: Builder, deserializers: Option<Arc<Deserializers>>) -> Self {
        Self {
            is_shared: true,
            ..Self::new(polled, builder, deserializers)
        }
    }

    /// Partition, first and last offset of each stretch of records.
    pub fn stretches(&self) -> Vec<(TopicPartition, i64, i64)> {
        let spans = self
            .polled
            .runs
            .iter()
            .flat_map(|run| run.spans.iter().map(move |span| (run, span)));
        spans
            .map(|(run, span)| (run.tp.clone(), span.first_offset, span.last_offset))
            .collect()
    }

    /// The schema of the batches.
    fn arrow_schema(&self) -> SchemaRef {
        let schema = schema_of(&self.columns);
        if !self.is_shared {
            return schema;
        }
        let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new("delivery_count", DataType::Int16, true)));
        Arc::new(Schema::new(fields))
    }

    /// A batch with the delivery counts of its rows.
    fn with_delivery_counts(&self, batch: RecordBatch, counts: &mut Vec<i16>) -> Result<RecordBatch, Failure> {
        let counts = std::mem::take(counts);
        if !self.is_shared {
            return Ok(batch);
        }
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(Int16Array::from(counts)));
        RecordBatch::try_new(self.arrow_schema(), columns).map_err(|error| Failure::internal(error.to_string()))
    }

    /// The same records with these columns.
    fn of_columns(&self, columns: &[Column]) -> Self {
        Self {
            polled: Arc::clone(&self.polled),
            order: Arc::clone(&self.order),
            columns: columns.into(),
            builder: Arc::clone(&self.builder),
            is_shared: self.is_shared,
            deserializers: self.deserializers.clone(),
            batches: Mutex::default(),
        }
    }

    /// These runs of the records, in row order, with the same columns.
    fn of_runs(&self, runs: Vec<PartitionRun>) -> Self {
        Self {
            order: (0..runs.len()).collect(),
            polled: Arc::new(PolledRecords {
                runs,
                in_order: self.polled.in_order,
            }),
            columns: Arc::clone(&self.columns),
            builder: Arc::clone(&self.builder),
            is_shared: self.is_shared,
            deserializers: self.deserializers.clone(),
            batches: Mutex::default(),
        }
    }

    /// The runs in row order.
    fn runs_by_row(&self) -> impl Iterator<Item = &PartitionRun> {
        self.order.iter().filter_map(|&index| self.polled.runs.get(index))
    }

    /// `count` rows from row `start` on.
    fn rows_from(&self, start: usize, count: usize) -> Result<Vec<PartitionRun>, Failure> {
        let (mut skip, mut left) = (start, count);
        let mut runs = Vec::new();
        for run in self.runs_by_row() {
            if left == 0 {
                break;
            }
            if skip >= run.count {
                skip -= run.count;
                continue;
            }
            let taken = left.min(run.count - skip);
            runs.push(cut_run(run, skip, taken)?);
            (skip, left) = (0, left - taken);
        }
        Ok(runs)
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
        let (mut batches, mut counts) = (Vec::new(), Vec::new());
        for run in self.runs_by_row() {
            for span in &run.spans {
                if builder.rows() > 0 && builder.payload_bytes() + (span.end - span.start) > BATCH_PAYLOAD_MAX {
                    batches.push(self.with_delivery_counts(builder.finish(), &mut counts)?);
                }
                let appended = builder.append_span(&run.tp, span);
                appended.map_err(|error| Failure::of_record(error, &run.tp, span.slice.base_offset))?;
                counts.resize(builder.rows(), run.delivery_count.unwrap_or(0));
            }
        }
        if builder.rows() > 0 || batches.is_empty() {
            batches.push(self.with_delivery_counts(builder.finish(), &mut counts)?);
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
        for run in self.runs_by_row() {
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
        stream_to_py(py, Box::new(RecordBatchIterator::new(batches, self.arrow_schema())))
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
        schema_to_py(py, &self.arrow_schema())
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

    #[doc = stub!(Records.by_partition)]
    fn by_partition<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut runs: Vec<(&TopicPartition, Vec<PartitionRun>)> = Vec::new();
        let mut places = HashMap::new();
        for run in self.runs_by_row() {
            let place = *places.entry(&run.tp).or_insert(runs.len());
            match runs.get_mut(place) {
                Some((_, of_partition)) => of_partition.push(run.clone()),
                None => runs.push((&run.tp, vec![run.clone()])),
            }
        }
        let dict = PyDict::new(py);
        for (tp, runs) in runs {
            dict.set_item(partition_to_py(py, tp)?, self.of_runs(runs))?;
        }
        Ok(dict)
    }

    #[doc = stub!(Records.__getitem__)]
    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let count = self.polled.count();
        let length = isize::try_from(count).unwrap_or(isize::MAX);
        if let Ok(slice) = index.cast::<PySlice>() {
            let indices = slice.indices(length)?;
            if indices.step != 1 {
                let reason = format!(
                    "a slice of Records has the step 1, not {}: take rows of to_pyarrow()",
                    indices.step
                );
                return Err(Failure::argument(reason).into());
            }
            let start = indices.start.unsigned_abs();
            let runs = gate(py, |_| self.rows_from(start, indices.slicelength))?;
            return Ok(Bound::new(py, self.of_runs(runs))?.into_any());
        }
        let index = index.extract::<isize>().map_err(|_| {
            PyTypeError::new_err(format!(
                "Records take an int or a slice as index, got {}",
                describe(index)
            ))
        })?;
        let place = if index < 0 { index + length } else { index };
        if !(0..length).contains(&place) {
            return Err(PyIndexError::new_err(format!(
                "there is no record {index}: there are {count}"
            )));
        }
        let runs = gate(py, |_| self.rows_from(place.unsigned_abs(), 1))?;
        let record = self.of_runs(runs).rows().next(py)?;
        record.ok_or_else(|| Failure::internal("a record is missing").into())
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
            deserializers: self.deserializers.clone(),
            place: Mutex::default(),
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

/// A run without its first `skip` records, at most `take` of the rest.
fn cut_run(run: &PartitionRun, mut skip: usize, take: usize) -> Result<PartitionRun, Failure> {
    let mut left = take;
    let mut spans = Vec::new();
    for span in &run.spans {
        if skip >= span.count {
            skip -= span.count;
            continue;
        }
        let taken = left.min(span.count - skip);
        if taken == 0 {
            break;
        }
        spans.push(cut_span(span, skip, taken)?);
        (skip, left) = (0, left - taken);
    }
    Ok(PartitionRun {
        tp: run.tp.clone(),
        first_offset: spans.first().map_or(run.first_offset, |span| span.first_offset),
        last_offset: spans.last().map_or(run.last_offset, |span| span.last_offset),
        count: spans.iter().map(|span| span.count).sum(),
        spans,
        delivery_count: run.delivery_count,
    })
}

/// `take` records of a span, without its first `skip`.
fn cut_span(span: &RecordSpan, skip: usize, take: usize) -> Result<RecordSpan, Failure> {
    if take == span.count {
        return Ok(span.clone());
    }
    let mut cursor = span.cursor();
    if skip > 0 {
        cursor.walk(&span.slice, skip)?;
    }
    let start = cursor.position();
    let walked = cursor.walk(&span.slice, take)?;
    let (count, first_offset, last_offset) = walked.ok_or_else(|| Failure::internal("a span ends too early"))?;
    Ok(RecordSpan {
        slice: span.slice.clone(),
        start,
        end: cursor.position(),
        count,
        first_offset,
        last_offset,
    })
}

#[derive(Default)]
struct Place {
    run: usize,
    span: usize,
    in_span: Option<InSpan>,
    /// A record whose deserializer was interrupted: it is handed out next.
    again: Option<(Py<PyTuple>, Option<i16>)>,
}

/// The fields of a record, and its delivery count in a share group.
type Fields<'py> = (Bound<'py, PyTuple>, Option<i16>);

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
#[pyclass(frozen, generic, module = "fletchlog.types")]
pub struct RecordIterator {
    polled: Arc<PolledRecords>,
    order: Arc<[usize]>,
    deserializers: Option<Arc<Deserializers>>,
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
            return usize::from(place.again.is_some());
        };
        let spans = &self.polled.runs[index].spans;
        let before: usize = spans.iter().take(place.span).map(|span| span.count).sum();
        let of_this = match (&place.in_span, spans.get(place.span)) {
            (Some(here), Some(span)) => span.count - here.left,
            _ => 0,
        };
        all - before - of_this + usize::from(place.again.is_some())
    }

    /// Whether all records were handed out; false if that takes a search.
    pub fn is_at_end(&self) -> bool {
        let Ok(place) = self.place.try_lock() else { return false };
        let run = self.order.get(place.run).and_then(|&index| self.polled.runs.get(index));
        let is_used_up = match (run, &place.in_span) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(run), Some(here)) => {
                here.left == 0 && place.run + 1 == self.order.len() && place.span + 1 == run.spans.len()
            }
        };
        is_used_up && place.again.is_none()
    }

    /// The next record as a Python object; `None` after the last. An error of a deserializer uses its record up, an interrupt does not.
    pub fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some((mut fields, delivery_count)) = self.next_fields(py)? else {
            return Ok(None);
        };
        if let Some(deserializers) = &self.deserializers {
            fields = deserializers.apply(fields.clone()).inspect_err(|error| {
                if !error.is_instance_of::<PyException>(py)
                    && let Ok(mut place) = self.place.try_lock()
                {
                    place.again = Some((fields.clone().unbind(), delivery_count));
                }
            })?;
        }
        let Some(count) = delivery_count else {
            return named_tuple::new(record_class(py)?.cast()?, fields).map(Some);
        };
        let record = named_tuple::new(share_record_class(py)?.cast()?, fields)?;
        record.setattr(intern!(py, "_delivery_count"), count)?;
        Ok(Some(record))
    }

    /// The fields of the next record, and its delivery count; `None` after the last.
    fn next_fields<'py>(&self, py: Python<'py>) -> PyResult<Option<Fields<'py>>> {
        let Ok(mut place) = self.place.try_lock() else {
            return Err(Failure::concurrent("iterator").into());
        };
        if let Some((fields, delivery_count)) = place.again.take() {
            return Ok(Some((fields.into_bound(py), delivery_count)));
        }
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
            return fields_to_py(py, here, &record).map(|fields| Some((fields, run.delivery_count)));
        }
    }
}

/// Makes the fields of a `Record`.
fn fields_to_py<'py>(
    py: Python<'py>,
    here: &mut InSpan,
    record: &fletchlog_records::Record<'_>,
) -> PyResult<Bound<'py, PyTuple>> {
    let headers = PyList::empty(py);
    for header in record.headers() {
        headers.append((header.key, header.value.map(|value| PyBytes::new(py, value))))?;
    }
    let bytes = |field: Option<&[u8]>| field.map(|field| PyBytes::new(py, field));
    if here.timestamp.0 != record.timestamp {
        here.timestamp = (record.timestamp, int_to_py(py, record.timestamp));
    }
    (
        &here.topic,
        &here.partition,
        record.offset,
        &here.timestamp.1,
        &here.timestamp_type,
        bytes(record.key),
        bytes(record.value),
        headers,
    )
        .into_pyobject(py)
}

fn next_record<'a>(
    cursor: &mut RecordCursor,
    span: &'a RecordSpan,
) -> Result<Option<fletchlog_records::Record<'a>>, Failure> {
    Ok(cursor.next(&span.slice)?)
}
