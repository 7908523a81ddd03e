//! `Scan.records`: the rows of a scan as `Record`s, batch by batch, without pyarrow.

use std::sync::{Arc, Mutex};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{Array, RecordBatch};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::convert::record_class;
use crate::deserializers::Deserializers;
use crate::errors::Failure;
use crate::named_tuple;
use crate::scan::Reader;

/// The failure that ended a stream.
type Ended = Arc<Mutex<Option<Failure>>>;

#[doc = stub!(ScanRecords)]
#[pyclass(frozen, module = "fletchlog.types")]
pub struct ScanRecords {
    place: Mutex<Place>,
    failure: Ended,
    deserializers: Option<Arc<Deserializers>>,
}

struct Place {
    reader: Reader,
    batch: Option<RecordBatch>,
    row: usize,
}

impl ScanRecords {
    /// The rows of a reader with all of Kafka's columns and timestamps in milliseconds.
    pub fn new(reader: Reader, failure: Ended, deserializers: Option<Arc<Deserializers>>) -> Self {
        let place = Place {
            reader,
            batch: None,
            row: 0,
        };
        Self {
            place: Mutex::new(place),
            failure,
            deserializers,
        }
    }

    /// The fields of the next row, as bytes.
    fn next_fields<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Ok(mut place) = self.place.try_lock() else {
            return Err(Failure::concurrent("iterator").into());
        };
        loop {
            if let Some(batch) = &place.batch
                && place.row < batch.num_rows()
            {
                let fields = fields_to_py(py, batch, place.row)?;
                place.row += 1;
                return Ok(Some(fields));
            }
            place.row = 0;
            place.batch = match place.reader.next() {
                None => return Ok(None),
                Some(Ok(batch)) => Some(batch),
                Some(Err(error)) => {
                    let failure = self.failure.lock().ok().and_then(|mut failure| failure.take());
                    py.check_signals()?;
                    return Err(failure.unwrap_or_else(|| error.into()).into_py(py));
                }
            };
        }
    }
}

#[pymethods]
impl ScanRecords {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[doc = stub!(ScanRecords.__next__)]
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(fields) = self.next_fields(py)? else {
            return Ok(None);
        };
        let fields = match &self.deserializers {
            Some(deserializers) => deserializers.apply(fields)?,
            None => fields,
        };
        named_tuple::new(record_class(py)?.cast()?, fields).map(Some)
    }
}

/// The fields of a row, as a `Record` has them.
fn fields_to_py<'py>(py: Python<'py>, batch: &RecordBatch, row: usize) -> PyResult<Bound<'py, PyTuple>> {
    let bytes = |column: usize| {
        let cells = batch.column(column).as_binary::<i32>();
        cells.is_valid(row).then(|| PyBytes::new(py, cells.value(row)))
    };
    let timestamps = batch.column(5).as_primitive::<TimestampMillisecondType>();
    let headers = PyList::empty(py);
    let cells = batch.column(7).as_list::<i32>();
    if cells.is_valid(row) {
        let of_row = cells.value(row);
        let pairs = of_row.as_struct();
        let (names, values) = (pairs.column(0).as_string::<i32>(), pairs.column(1).as_binary::<i32>());
        for place in 0..pairs.len() {
            let value = values.is_valid(place).then(|| PyBytes::new(py, values.value(place)));
            headers.append((names.value(place), value))?;
        }
    }
    let fields = (
        batch.column(2).as_string::<i32>().value(row),
        batch.column(3).as_primitive::<Int32Type>().value(row),
        batch.column(4).as_primitive::<Int64Type>().value(row),
        // the engine's columns have null for Kafka's -1
        if timestamps.is_valid(row) {
            timestamps.value(row)
        } else {
            -1
        },
        batch.column(6).as_primitive::<Int32Type>().value(row),
        bytes(0),
        bytes(1),
        headers,
    );
    fields.into_pyobject(py)
}
