//! Python objects as a column, one in each row: what `pyarrow.array(objects, type)` makes of objects of the usual classes.

use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, ByteArrayType, Date32Type, Decimal128Type, Float32Type, Float64Type, GenericBinaryType,
    GenericStringType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeBinaryArray, GenericByteArray, GenericListArray, MapArray, NullArray,
    OffsetSizeTrait, PrimitiveArray, StructArray, make_array, new_empty_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, TimeUnit};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};
use pyo3::{PyTypeInfo, intern};

use crate::object_values::{DAY_OF_1970, Shape, decimal_class};
use crate::time::{date_class, datetime_class, microseconds, naive_epoch, utc_epoch};

impl Shape {
    /// The column of objects, of which `None` is null. Objects are taken if they are of exactly the class of [`Shape::object`]; an int also as a float.
    pub fn array(&self, data_type: &DataType, objects: &[Bound<'_, PyAny>]) -> Result<ArrayRef, NotMade> {
        match (self, data_type) {
            (Self::Timestamp(..), DataType::Timestamp(unit, _)) => of_datetimes(*unit, data_type, objects),
            (Self::List(item), DataType::List(field)) => item.of_lists::<i32>(field, objects),
            (Self::List(item), DataType::LargeList(field)) => item.of_lists::<i64>(field, objects),
            (Self::Map(shapes), DataType::Map(entry, ordered)) => {
                let DataType::Struct(fields) = entry.data_type() else {
                    return Err(NotMade::LeftToPyarrow);
                };
                let (mut keys, mut values, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
                for object in objects {
                    let dict = exactly::<PyDict>(object)?;
                    lengths.push(dict.map_or(0, |dict| dict.len()));
                    for (key, value) in dict.into_iter().flatten() {
                        keys.push(key);
                        values.push(value);
                    }
                }
                let columns = vec![
                    shapes[0].of_field(&fields[0], &keys)?,
                    shapes[1].of_field(&fields[1], &values)?,
                ];
                check_room::<i32>(keys.len())?;
                let entries = StructArray::try_new(fields.clone(), columns, None)?;
                let offsets = OffsetBuffer::from_lengths(lengths);
                Ok(Arc::new(MapArray::try_new(
                    Arc::clone(entry),
                    offsets,
                    entries,
                    nulls(objects),
                    *ordered,
                )?))
            }
            (Self::Struct(shapes), DataType::Struct(fields)) => of_dicts(shapes, fields, objects),
            _ => of_plain(data_type, objects),
        }
    }

    /// The same of a field, which may refuse null.
    fn of_field(&self, field: &Field, objects: &[Bound<'_, PyAny>]) -> Result<ArrayRef, NotMade> {
        if !field.is_nullable() && objects.iter().any(|object| object.is_none()) {
            return Err(NotMade::LeftToPyarrow);
        }
        self.array(field.data_type(), objects)
    }

    fn of_lists<O: OffsetSizeTrait>(
        &self,
        field: &FieldRef,
        objects: &[Bound<'_, PyAny>],
    ) -> Result<ArrayRef, NotMade> {
        let (mut items, mut lengths) = (Vec::new(), Vec::new());
        for object in objects {
            let list = exactly::<PyList>(object)?;
            lengths.push(list.map_or(0, |list| list.len()));
            items.extend(list.into_iter().flatten());
        }
        check_room::<O>(items.len())?;
        let (offsets, items) = (OffsetBuffer::from_lengths(lengths), self.of_field(field, &items)?);
        Ok(Arc::new(GenericListArray::<O>::try_new(
            Arc::clone(field),
            offsets,
            items,
            nulls(objects),
        )?))
    }
}

/// Why there is no column of some objects.
pub enum NotMade {
    LeftToPyarrow,
    Raised(PyErr),
}

impl From<PyErr> for NotMade {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

impl From<ArrowError> for NotMade {
    fn from(_: ArrowError) -> Self {
        Self::LeftToPyarrow
    }
}

fn nulls(objects: &[Bound<'_, PyAny>]) -> Option<NullBuffer> {
    let is_null = |object: &Bound<'_, PyAny>| object.is_none();
    objects
        .iter()
        .any(is_null)
        .then(|| objects.iter().map(|object| !is_null(object)).collect())
}

/// Whether the offsets of a column reach as far.
fn check_room<O: OffsetSizeTrait>(end: usize) -> Result<(), NotMade> {
    O::from_usize(end).map(|_| ()).ok_or(NotMade::LeftToPyarrow)
}

/// An object of exactly one class, or `None`.
fn exactly<'a, 'py, T: PyTypeInfo>(object: &'a Bound<'py, PyAny>) -> Result<Option<&'a Bound<'py, T>>, NotMade> {
    if object.is_none() {
        return Ok(None);
    }
    object.cast_exact::<T>().map(Some).map_err(|_| NotMade::LeftToPyarrow)
}

fn of_plain(data_type: &DataType, objects: &[Bound<'_, PyAny>]) -> Result<ArrayRef, NotMade> {
    match data_type {
        DataType::Null => match objects.iter().all(|object| object.is_none()) {
            true => Ok(Arc::new(NullArray::new(objects.len()))),
            false => Err(NotMade::LeftToPyarrow),
        },
        DataType::Boolean => {
            let values = objects
                .iter()
                .map(|object| Ok(exactly::<PyBool>(object)?.map(|value| value.is_true())));
            Ok(Arc::new(values.collect::<Result<BooleanArray, NotMade>>()?))
        }
        DataType::Int8 => of_numbers::<Int8Type>(objects, whole),
        DataType::Int16 => of_numbers::<Int16Type>(objects, whole),
        DataType::Int32 => of_numbers::<Int32Type>(objects, whole),
        DataType::Int64 => of_numbers::<Int64Type>(objects, whole),
        DataType::UInt8 => of_numbers::<UInt8Type>(objects, whole),
        DataType::UInt16 => of_numbers::<UInt16Type>(objects, whole),
        DataType::UInt32 => of_numbers::<UInt32Type>(objects, whole),
        DataType::UInt64 => of_numbers::<UInt64Type>(objects, whole),
        #[expect(clippy::cast_possible_truncation, reason = "rounded, as pyarrow does")]
        DataType::Float32 => of_numbers::<Float32Type>(objects, |object| Ok(float(object, 1 << 24)? as f32)),
        DataType::Float64 => of_numbers::<Float64Type>(objects, |object| float(object, 1 << 53)),
        DataType::Utf8 => of_strings::<i32>(objects),
        DataType::LargeUtf8 => of_strings::<i64>(objects),
        DataType::Binary => of_bytes::<i32>(objects),
        DataType::LargeBinary => of_bytes::<i64>(objects),
        DataType::FixedSizeBinary(width) => {
            let values = objects
                .iter()
                .map(|object| Ok(exactly::<PyBytes>(object)?.map(|value| value.as_bytes())));
            let values = values.collect::<Result<Vec<_>, NotMade>>()?;
            Ok(Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(
                values.into_iter(),
                *width,
            )?))
        }
        DataType::Date32 => of_numbers::<Date32Type>(objects, |object| {
            let py = object.py();
            if !object.get_type().is(date_class(py)?) {
                return Err(NotMade::LeftToPyarrow);
            }
            let days: i64 = object.call_method0(intern!(py, "toordinal"))?.extract()?;
            i32::try_from(days - DAY_OF_1970).map_err(|_| NotMade::LeftToPyarrow)
        }),
        DataType::Decimal128(precision, scale) => {
            let made = primitives::<Decimal128Type>(objects, |object| decimal(object, *precision, *scale))?;
            Ok(Arc::new(made.with_precision_and_scale(*precision, *scale)?))
        }
        _ => Err(NotMade::LeftToPyarrow),
    }
}

fn primitives<T: ArrowPrimitiveType>(
    objects: &[Bound<'_, PyAny>],
    number: impl Fn(&Bound<'_, PyAny>) -> Result<T::Native, NotMade>,
) -> Result<PrimitiveArray<T>, NotMade> {
    let number = |object: &Bound<'_, PyAny>| {
        if object.is_none() {
            Ok(T::Native::default())
        } else {
            number(object)
        }
    };
    let numbers = objects.iter().map(number).collect::<Result<Vec<_>, _>>()?;
    Ok(PrimitiveArray::try_new(ScalarBuffer::from(numbers), nulls(objects))?)
}

fn of_numbers<T: ArrowPrimitiveType>(
    objects: &[Bound<'_, PyAny>],
    number: impl Fn(&Bound<'_, PyAny>) -> Result<T::Native, NotMade>,
) -> Result<ArrayRef, NotMade> {
    Ok(Arc::new(primitives::<T>(objects, number)?))
}

/// An int. A float with a fraction is refused: pyarrow cuts the fraction off.
fn whole<N: for<'a, 'py> FromPyObject<'a, 'py>>(object: &Bound<'_, PyAny>) -> Result<N, NotMade> {
    if let Ok(float) = object.cast_exact::<PyFloat>()
        && float.value().fract() != 0.0
        && float.value().is_finite()
    {
        return Err(PyValueError::new_err(format!("{} is not a whole number", float.value())).into());
    }
    let whole = object.cast_exact::<PyInt>().map_err(|_| NotMade::LeftToPyarrow)?;
    whole.extract::<N>().map_err(|_| NotMade::LeftToPyarrow)
}

/// A float, or an int of at most `exact`, up to which floats have all whole numbers.
fn float(object: &Bound<'_, PyAny>, exact: i64) -> Result<f64, NotMade> {
    if let Ok(float) = object.cast_exact::<PyFloat>() {
        return Ok(float.value());
    }
    let whole: i64 = whole(object)?;
    #[expect(clippy::cast_precision_loss, reason = "it has all bits")]
    (-exact..=exact)
        .contains(&whole)
        .then_some(whole as f64)
        .ok_or(NotMade::LeftToPyarrow)
}

fn of_strings<O: OffsetSizeTrait>(objects: &[Bound<'_, PyAny>]) -> Result<ArrayRef, NotMade> {
    let text = |object| match exactly::<PyString>(object)? {
        // a lone surrogate has no UTF-8
        Some(text) => Ok(Some(text.to_cow().map_err(|_| NotMade::LeftToPyarrow)?)),
        None => Ok(None),
    };
    let texts = objects.iter().map(text).collect::<Result<Vec<_>, NotMade>>()?;
    let texts: Vec<_> = texts
        .iter()
        .map(|text| text.as_ref().map(|text| text.as_bytes()))
        .collect();
    of_parts::<GenericStringType<O>>(&texts, objects)
}

fn of_bytes<O: OffsetSizeTrait>(objects: &[Bound<'_, PyAny>]) -> Result<ArrayRef, NotMade> {
    let values = objects
        .iter()
        .map(|object| Ok(exactly::<PyBytes>(object)?.map(|value| value.as_bytes())));
    of_parts::<GenericBinaryType<O>>(&values.collect::<Result<Vec<_>, NotMade>>()?, objects)
}

fn of_parts<T: ByteArrayType>(parts: &[Option<&[u8]>], objects: &[Bound<'_, PyAny>]) -> Result<ArrayRef, NotMade> {
    check_room::<T::Offset>(parts.iter().flatten().map(|part| part.len()).sum())?;
    let offsets = OffsetBuffer::from_lengths(parts.iter().map(|part| part.map_or(0, <[u8]>::len)));
    let data = parts.iter().flatten().copied().collect::<Vec<_>>().concat();
    Ok(Arc::new(GenericByteArray::<T>::try_new(
        offsets,
        data.into(),
        nulls(objects),
    )?))
}

/// A `decimal.Decimal` of at most so many digits, and so many of them behind the point.
fn decimal(object: &Bound<'_, PyAny>, precision: u8, scale: i8) -> Result<i128, NotMade> {
    let py = object.py();
    if !object.get_type().is(decimal_class(py)?) {
        return Err(NotMade::LeftToPyarrow);
    }
    let text = object.str()?;
    let text = text.to_cow()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let scale = usize::try_from(scale).map_err(|_| NotMade::LeftToPyarrow)?;
    let digits = whole.trim_start_matches('-').len() + scale;
    // an exponent, NaN and infinity do not parse
    if fraction.len() > scale || digits > usize::from(precision) {
        return Err(NotMade::LeftToPyarrow);
    }
    format!("{whole}{fraction:0<scale$}")
        .parse()
        .map_err(|_| NotMade::LeftToPyarrow)
}

fn of_datetimes(unit: TimeUnit, data_type: &DataType, objects: &[Bound<'_, PyAny>]) -> Result<ArrayRef, NotMade> {
    let Some(py) = objects.first().map(Bound::py) else {
        return Ok(new_empty_array(data_type));
    };
    let (class, naive) = (datetime_class(py)?, naive_epoch(py)?);
    let utc = utc_epoch(py)?;
    let micros = |object: &Bound<'_, PyAny>| {
        if !object.get_type().is(&class) {
            return Err(NotMade::LeftToPyarrow);
        }
        // one without a zone is taken for UTC, as by pyarrow
        let is_naive = object.call_method0(intern!(py, "utcoffset"))?.is_none();
        let since = object.sub(if is_naive { &naive } else { &utc })?;
        Ok(microseconds(&since)?)
    };
    let of = |unit: i64| move |micros: i64| micros.div_euclid(unit);
    let unit = match unit {
        TimeUnit::Second => 1_000_000,
        TimeUnit::Millisecond => 1_000,
        _ => 1,
    };
    let numbers = primitives::<Int64Type>(objects, |object| Ok(of(unit)(micros(object)?)))?;
    let data = numbers
        .into_data()
        .into_builder()
        .data_type(data_type.clone())
        .build()?;
    Ok(make_array(data))
}

fn of_dicts(
    shapes: &[(Py<PyString>, Shape)],
    fields: &Fields,
    objects: &[Bound<'_, PyAny>],
) -> Result<ArrayRef, NotMade> {
    let dicts = objects.iter().map(exactly::<PyDict>).collect::<Result<Vec<_>, _>>()?;
    let mut columns = Vec::with_capacity(fields.len());
    let (mut found, given) = (0, dicts.iter().flatten().map(|dict| dict.len()).sum::<usize>());
    for ((name, shape), field) in shapes.iter().zip(fields) {
        let mut values = Vec::with_capacity(objects.len());
        for (dict, object) in dicts.iter().zip(objects) {
            let value = dict.map(|dict| dict.get_item(name)).transpose()?.flatten();
            found += usize::from(value.is_some());
            values.push(value.unwrap_or_else(|| object.py().None().into_bound(object.py())));
        }
        columns.push(shape.of_field(field, &values)?);
    }
    // another key, which is an error, or keys that are bytes
    if found < given {
        return Err(NotMade::LeftToPyarrow);
    }
    Ok(Arc::new(StructArray::try_new_with_length(
        fields.clone(),
        columns,
        nulls(objects),
        objects.len(),
    )?))
}
