//! Values of records one by one: bytes to Python objects and back, without pyarrow. See [`crate::value_to_object`] and [`crate::object_to_value`] for what
//! they are; a type or a class that is not there is left to pyarrow, which also words the errors.

use std::sync::{Arc, Mutex};

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_schema::{DataType, TimeUnit};
use fletchlog_serde::{Column, ReadValue, WriteColumn, encode, read_one};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyString};

use crate::gate::{contained, gate};
use crate::object_to_value::NotMade;
use crate::once::once;
use crate::time::{datetime_class, naive_epoch};

/// The ordinal of 1970-01-01 in Python's calendar.
pub const DAY_OF_1970: i64 = 719_163;

/// Larger values are read and written without the GIL, and leave no memory behind.
const SMALL: usize = 16 << 10;

#[doc = stub!(ObjectReader)]
#[pyclass(frozen, module = "fletchlog._core")]
pub struct ObjectReader {
    reader: Arc<dyn ReadValue>,
    shape: Shape,
    /// For small values, one after the other. The lock is only tried: another thread, or a finalizer, makes its own.
    column: Mutex<Column>,
}

impl ObjectReader {
    /// `None`: the values have a type that is left to pyarrow.
    pub fn new(py: Python<'_>, reader: Arc<dyn ReadValue>) -> PyResult<Option<Self>> {
        let column = Mutex::new(Column::new(reader.data_type(), 1));
        let shape = Shape::of(py, reader.data_type())?;
        Ok(shape.map(|shape| Self { reader, shape, column }))
    }
}

#[pymethods]
impl ObjectReader {
    #[doc = stub!(ObjectReader.decode)]
    fn decode<'py>(&self, data: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyAny>> {
        let (py, bytes) = (data.py(), data.as_bytes());
        let mut kept = if bytes.len() <= SMALL {
            self.column.try_lock().ok()
        } else {
            None
        };
        let mut own = None;
        let column = match &mut kept {
            Some(kept) => &mut **kept,
            None => own.insert(Column::new(self.reader.data_type(), 1)),
        };
        let mut read = || Ok(read_one(self.reader.as_ref(), bytes, column));
        let outcome = if bytes.len() <= SMALL {
            contained(read)?
        } else {
            gate(py, |_| read())?
        };
        outcome.map_err(|reason| PyValueError::new_err(reason.to_string()))?;
        self.shape.object(py, column, 0)
    }
}

#[doc = stub!(ObjectWriter)]
#[pyclass(frozen, module = "fletchlog._core")]
pub struct ObjectWriter {
    writer: Arc<dyn WriteColumn>,
    data_type: DataType,
    shape: Shape,
}

impl ObjectWriter {
    /// `None`: values of this type are cast before they are written, or are left to pyarrow.
    pub fn new(py: Python<'_>, writer: Arc<dyn WriteColumn>, data_type: DataType) -> PyResult<Option<Self>> {
        if writer.column_type(&data_type).ok().as_ref() != Some(&data_type) {
            return Ok(None);
        }
        let shape = Shape::of(py, &data_type)?;
        Ok(shape.map(|shape| Self {
            writer,
            data_type,
            shape,
        }))
    }
}

#[pymethods]
impl ObjectWriter {
    #[doc = stub!(ObjectWriter.encode)]
    fn encode<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let py = value.py();
        let column = match self.shape.array(&self.data_type, std::slice::from_ref(value)) {
            Ok(column) => column,
            Err(NotMade::Raised(error)) => return Err(error),
            Err(NotMade::LeftToPyarrow) => return Ok(None),
        };
        let write = || Ok(encode(self.writer.as_ref(), &column)?);
        let encoded = if column.get_buffer_memory_size() <= SMALL {
            contained(write)?
        } else {
            gate(py, |_| write())?
        };
        let bytes = encoded.column.as_binary::<i32>();
        Ok((encoded.reasons.is_empty() && bytes.is_valid(0)).then(|| PyBytes::new(py, bytes.value(0))))
    }
}

/// A type whose values are made here, with what all of them share.
pub enum Shape {
    /// Integers, floats, booleans, and nothing.
    Plain,
    Text,
    Bytes,
    Date,
    /// Times of a day, and the microseconds of their unit.
    Time(i64),
    /// The digits, and those behind the point.
    Decimal(u8, i8),
    /// Timestamps and the microseconds of their unit; those in nanoseconds are pyarrow's.
    Timestamp(Zone, i64),
    List(Box<Shape>),
    /// Keys and values. A map is a dict.
    Map(Box<[Shape; 2]>),
    /// The names of the fields. A struct is a dict.
    Struct(Vec<(Py<PyString>, Shape)>),
}

impl Shape {
    /// `None`: pyarrow's.
    fn of(py: Python<'_>, data_type: &DataType) -> PyResult<Option<Self>> {
        Ok(match data_type {
            DataType::Null
            | DataType::Boolean
            | DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32
            | DataType::UInt64
            | DataType::Float32
            | DataType::Float64 => Some(Self::Plain),
            DataType::Utf8 | DataType::LargeUtf8 => Some(Self::Text),
            DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => Some(Self::Bytes),
            DataType::Date32 => Some(Self::Date),
            DataType::Time32(unit) | DataType::Time64(unit) => micros_of(*unit).map(Self::Time),
            DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
                Some(Self::Decimal(*precision, *scale))
            }
            DataType::Timestamp(unit, name) => match micros_of(*unit) {
                Some(micros) => Some(Self::Timestamp(Zone::of(py, name.as_deref())?, micros)),
                None => None,
            },
            DataType::List(item) | DataType::LargeList(item) => {
                Self::of(py, item.data_type())?.map(|item| Self::List(Box::new(item)))
            }
            DataType::Map(entry, _) => match entry.data_type() {
                DataType::Struct(fields) => match &fields[..] {
                    [key, value] => Self::of(py, key.data_type())?
                        .zip(Self::of(py, value.data_type())?)
                        .map(|(key, value)| Self::Map(Box::new([key, value]))),
                    _ => None,
                },
                _ => None,
            },
            DataType::Struct(fields) => {
                let mut made = Vec::with_capacity(fields.len());
                for (place, field) in fields.iter().enumerate() {
                    let is_twice = fields[..place].iter().any(|other| other.name() == field.name());
                    match Self::of(py, field.data_type())?.filter(|_| !is_twice) {
                        Some(shape) => made.push((PyString::intern(py, field.name()).unbind(), shape)),
                        None => return Ok(None),
                    }
                }
                Some(Self::Struct(made))
            }
            _ => None,
        })
    }
}

/// The microseconds of a unit; `None`: it is less.
fn micros_of(unit: TimeUnit) -> Option<i64> {
    match unit {
        TimeUnit::Second => Some(1_000_000),
        TimeUnit::Millisecond => Some(1_000),
        TimeUnit::Microsecond => Some(1),
        TimeUnit::Nanosecond => None,
    }
}

/// The zone of timestamps.
pub struct Zone {
    /// 1970: without a zone, or in UTC.
    pub epoch: Py<PyAny>,
    /// The `tzinfo` if it is another one.
    pub other: Option<Py<PyAny>>,
}

impl Zone {
    fn of(py: Python<'_>, name: Option<&str>) -> PyResult<Self> {
        let Some(name) = name else {
            return Ok(Self {
                epoch: naive_epoch(py)?.unbind(),
                other: None,
            });
        };
        // the class that pyarrow gives
        let zone = |name: &str| py.import("pyarrow.lib")?.call_method1("string_to_tzinfo", (name,));
        Ok(Self {
            epoch: datetime_class(py)?
                .call1((1970, 1, 1, 0, 0, 0, 0, zone("UTC")?))?
                .unbind(),
            other: (name != "UTC").then(|| zone(name).map(Bound::unbind)).transpose()?,
        })
    }
}

pub fn decimal_class(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = once(py, &CLASS, || {
        py.import("decimal")?.getattr("Decimal").map(Bound::unbind)
    })?;
    Ok(class.bind(py).clone())
}
