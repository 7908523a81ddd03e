//! The value in a row of a column as a Python object: that of pyarrow's `as_py(maps_as_pydicts="strict")`.

use arrow_array::types::{Decimal128Type, Decimal256Type, DecimalType};
use fletchlog_serde::{Column, Value};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyList, PyString};
use pyo3::{IntoPyObjectExt, intern};

use crate::errors::Failure;
use crate::object_values::{DAY_OF_1970, Shape, Zone, decimal_class};
use crate::time::{date_class, naive_epoch, timedelta_class};

impl Shape {
    /// The object of a row of a column of this type.
    pub fn object<'py>(&self, py: Python<'py>, column: &Column, row: usize) -> PyResult<Bound<'py, PyAny>> {
        let Some(value) = column.value(row) else {
            return Ok(py.None().into_bound(py));
        };
        match (self, value) {
            (Self::Plain, Value::Boolean(value)) => Ok(PyBool::new(py, value).to_owned().into_any()),
            (Self::Plain, Value::Int(number)) => number.into_bound_py_any(py),
            (Self::Plain, Value::UInt(number)) => number.into_bound_py_any(py),
            (Self::Plain, Value::Float(number)) => number.into_bound_py_any(py),
            (Self::Text, Value::Bytes(bytes)) => {
                let text = std::str::from_utf8(bytes).map_err(|_| PyValueError::new_err("a string is not UTF-8"))?;
                Ok(PyString::new(py, text).into_any())
            }
            (Self::Bytes, Value::Bytes(bytes)) => Ok(PyBytes::new(py, bytes).into_any()),
            (Self::Date, Value::Int(days)) => {
                date_class(py)?.call_method1(intern!(py, "fromordinal"), (days + DAY_OF_1970,))
            }
            // later ones than a day begin again with 0, as pyarrow's
            (Self::Time(unit), Value::Int(number)) => {
                let moment = after(&naive_epoch(py)?, number.saturating_mul(*unit))?;
                moment.call_method0(intern!(py, "time"))
            }
            (Self::Decimal(precision, scale), Value::Decimal128(number)) => {
                decimal_class(py)?.call1((Decimal128Type::format_decimal(number, *precision, *scale),))
            }
            (Self::Decimal(precision, scale), Value::Decimal256(number)) => {
                decimal_class(py)?.call1((Decimal256Type::format_decimal(number, *precision, *scale),))
            }
            (Self::Timestamp(zone, unit), Value::Int(number)) => zone.timestamp(py, number.saturating_mul(*unit)),
            (Self::List(item), Value::Items(items, rows)) => {
                let items = rows
                    .map(|row| item.object(py, items, row))
                    .collect::<PyResult<Vec<_>>>()?;
                Ok(PyList::new(py, items)?.into_any())
            }
            (Self::Map(shapes), Value::Items(entries, rows)) => {
                let dict = PyDict::new(py);
                for row in rows {
                    let Some(Value::Fields([keys, values])) = entries.value(row) else {
                        return Err(Failure::internal("a map has no entries").into());
                    };
                    let key = shapes[0].object(py, keys, row)?;
                    if dict.contains(&key)? {
                        return Err(PyValueError::new_err(format!(
                            "a map has the key {} twice",
                            key.repr()?
                        )));
                    }
                    dict.set_item(key, shapes[1].object(py, values, row)?)?;
                }
                Ok(dict.into_any())
            }
            (Self::Struct(fields), Value::Fields(columns)) => {
                let dict = PyDict::new(py);
                for ((name, shape), column) in fields.iter().zip(columns) {
                    dict.set_item(name, shape.object(py, column, row)?)?;
                }
                Ok(dict.into_any())
            }
            _ => Err(Failure::internal("a column has another type").into()),
        }
    }
}

fn after<'py>(epoch: &Bound<'py, PyAny>, micros: i64) -> PyResult<Bound<'py, PyAny>> {
    epoch.add(timedelta_class(epoch.py())?.call1((0, 0, micros))?)
}

impl Zone {
    fn timestamp<'py>(&self, py: Python<'py>, micros: i64) -> PyResult<Bound<'py, PyAny>> {
        let made = after(self.epoch.bind(py), micros)?;
        match &self.other {
            Some(zone) => made.call_method1(intern!(py, "astimezone"), (zone,)),
            None => Ok(made),
        }
    }
}
