//! A column as Python objects, one for each row: those of pyarrow's `as_py(maps_as_pydicts="strict")`.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Decimal256Type, DecimalType, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, Time32MillisecondType, Time32SecondType, Time64MicrosecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{Array, GenericListArray, OffsetSizeTrait};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, TimeUnit};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyList, PyString};
use pyo3::{IntoPyObjectExt, intern};

use crate::object_values::{DAY_OF_1970, Shape, Zone, decimal_class, naive_epoch};
use crate::time::{date_class, timedelta_class};

type Objects<'py> = Vec<Bound<'py, PyAny>>;

impl Shape {
    /// An object for each row of a column.
    pub fn objects<'py>(&self, py: Python<'py>, column: &dyn Array) -> PyResult<Objects<'py>> {
        match self {
            Self::Plain => plain(py, column),
            Self::Timestamp(zone) => zone.timestamps(py, column),
            Self::List(item) => match column.data_type() {
                DataType::List(_) => item.lists(py, column.as_list::<i32>()),
                _ => item.lists(py, column.as_list::<i64>()),
            },
            Self::Map(entry) => {
                let maps = column.as_map();
                let (keys, values) = (entry[0].objects(py, maps.keys())?, entry[1].objects(py, maps.values())?);
                each(py, column, |row| {
                    let dict = PyDict::new(py);
                    for place in range(maps.offsets(), row) {
                        if dict.contains(&keys[place])? {
                            let text = format!("a map has the key {} twice", keys[place].repr()?);
                            return Err(PyValueError::new_err(text));
                        }
                        dict.set_item(&keys[place], &values[place])?;
                    }
                    Ok(dict.into_any())
                })
            }
            Self::Struct(fields) => {
                let columns = column.as_struct().columns().iter().zip(fields);
                let columns = columns.map(|(column, (_, shape))| shape.objects(py, column));
                let columns = columns.collect::<PyResult<Vec<_>>>()?;
                each(py, column, |row| {
                    let dict = PyDict::new(py);
                    for ((name, _), values) in fields.iter().zip(&columns) {
                        dict.set_item(name, &values[row])?;
                    }
                    Ok(dict.into_any())
                })
            }
        }
    }

    fn lists<'py, O: OffsetSizeTrait>(&self, py: Python<'py>, lists: &GenericListArray<O>) -> PyResult<Objects<'py>> {
        let items = self.objects(py, lists.values())?;
        each(py, lists, |row| {
            Ok(PyList::new(py, &items[range(lists.offsets(), row)])?.into_any())
        })
    }
}

/// The object of each row, `None` for null.
fn each<'py>(
    py: Python<'py>,
    column: &dyn Array,
    mut object: impl FnMut(usize) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Objects<'py>> {
    let object = |row| {
        if column.is_null(row) {
            Ok(py.None().into_bound(py))
        } else {
            object(row)
        }
    };
    (0..column.len()).map(object).collect()
}

/// The items of a row.
fn range<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>, row: usize) -> Range<usize> {
    offsets[row].as_usize()..offsets[row + 1].as_usize()
}

fn plain<'py>(py: Python<'py>, column: &dyn Array) -> PyResult<Objects<'py>> {
    match column.data_type() {
        DataType::Boolean => each(py, column, |row| {
            Ok(PyBool::new(py, column.as_boolean().value(row)).to_owned().into_any())
        }),
        DataType::Int8 => numbers::<Int8Type>(py, column),
        DataType::Int16 => numbers::<Int16Type>(py, column),
        DataType::Int32 => numbers::<Int32Type>(py, column),
        DataType::Int64 => numbers::<Int64Type>(py, column),
        DataType::UInt8 => numbers::<UInt8Type>(py, column),
        DataType::UInt16 => numbers::<UInt16Type>(py, column),
        DataType::UInt32 => numbers::<UInt32Type>(py, column),
        DataType::UInt64 => numbers::<UInt64Type>(py, column),
        DataType::Float32 => numbers::<Float32Type>(py, column),
        DataType::Float64 => numbers::<Float64Type>(py, column),
        DataType::Utf8 => each(py, column, |row| {
            Ok(PyString::new(py, column.as_string::<i32>().value(row)).into_any())
        }),
        DataType::LargeUtf8 => each(py, column, |row| {
            Ok(PyString::new(py, column.as_string::<i64>().value(row)).into_any())
        }),
        DataType::Binary => each(py, column, |row| {
            Ok(PyBytes::new(py, column.as_binary::<i32>().value(row)).into_any())
        }),
        DataType::LargeBinary => each(py, column, |row| {
            Ok(PyBytes::new(py, column.as_binary::<i64>().value(row)).into_any())
        }),
        DataType::FixedSizeBinary(_) => each(py, column, |row| {
            Ok(PyBytes::new(py, column.as_fixed_size_binary().value(row)).into_any())
        }),
        DataType::Decimal128(..) => decimals::<Decimal128Type>(py, column),
        DataType::Decimal256(..) => decimals::<Decimal256Type>(py, column),
        DataType::Date32 => {
            let date = date_class(py)?;
            let from_1970 = |days: i32| date.call_method1("fromordinal", (i64::from(days) + DAY_OF_1970,));
            each(py, column, |row| {
                from_1970(column.as_primitive::<Date32Type>().value(row))
            })
        }
        DataType::Time32(TimeUnit::Second) => times::<Time32SecondType>(py, column, 1_000_000),
        DataType::Time32(_) => times::<Time32MillisecondType>(py, column, 1_000),
        DataType::Time64(_) => times::<Time64MicrosecondType>(py, column, 1),
        _ => each(py, column, |_| Ok(py.None().into_bound(py))),
    }
}

fn numbers<'py, T>(py: Python<'py>, column: &dyn Array) -> PyResult<Objects<'py>>
where
    T: ArrowPrimitiveType,
    T::Native: IntoPyObject<'py>,
{
    let numbers = column.as_primitive::<T>();
    each(py, column, |row| numbers.value(row).into_bound_py_any(py))
}

fn decimals<'py, T: DecimalType>(py: Python<'py>, column: &dyn Array) -> PyResult<Objects<'py>> {
    let (decimals, class) = (column.as_primitive::<T>(), decimal_class(py)?);
    each(py, column, |row| class.call1((decimals.value_as_string(row),)))
}

/// Times of a day; later ones begin again with 0, as pyarrow's.
fn times<'py, T>(py: Python<'py>, column: &dyn Array, micros: i64) -> PyResult<Objects<'py>>
where
    T: ArrowPrimitiveType,
    T::Native: Into<i64>,
{
    let (times, epoch) = (column.as_primitive::<T>(), naive_epoch(py)?);
    each(py, column, |row| {
        let number: i64 = times.value(row).into();
        after(&epoch, number.saturating_mul(micros))?.call_method0(intern!(py, "time"))
    })
}
fn after<'py>(epoch: &Bound<'py, PyAny>, micros: i64) -> PyResult<Bound<'py, PyAny>> {
    epoch.add(timedelta_class(epoch.py())?.call1((0, 0, micros))?)
}
impl Zone {
    fn timestamps<'py>(&self, py: Python<'py>, column: &dyn Array) -> PyResult<Objects<'py>> {
        let epoch = self.epoch.bind(py);
        let timestamp = |micros: i64| {
            let made = after(epoch, micros)?;
            match &self.other {
                Some(zone) => made.call_method1(intern!(py, "astimezone"), (zone,)),
                None => Ok(made),
            }
        };
        each(py, column, |row| match column.data_type() {
            DataType::Timestamp(TimeUnit::Second, _) => timestamp(
                column
                    .as_primitive::<TimestampSecondType>()
                    .value(row)
                    .saturating_mul(1_000_000),
            ),
            DataType::Timestamp(TimeUnit::Millisecond, _) => timestamp(
                column
                    .as_primitive::<TimestampMillisecondType>()
                    .value(row)
                    .saturating_mul(1_000),
            ),
            _ => timestamp(column.as_primitive::<TimestampMicrosecondType>().value(row)),
        })
    }
}
