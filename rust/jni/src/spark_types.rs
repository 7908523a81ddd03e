//! Arrow's types as Spark has them, and arrays as those types: the rules of `python/fletchlog/spark/arrow_types.py`.
//!
//! Java reads the arrays where they are, by the types that Spark was planned with. [`name_of`] shows that they are those.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal128Type, Int32Type, Int64Type, Time32MillisecondType, Time32SecondType, Time64MicrosecondType,
    Time64NanosecondType, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, BinaryArray, ListArray, MapArray, PrimitiveArray, StructArray};
use arrow_schema::{DataType, Field, FieldRef, Fields, TimeUnit};

/// Digits of the largest number of 64 bits.
const DIGITS: u8 = 20;

/// An array as a type of Spark's: structs have the fields of `paths`, in that order, all of them if a path ends there.
pub(crate) fn as_spark(array: &ArrayRef, paths: &[&[String]]) -> Result<ArrayRef, String> {
    match array.data_type() {
        DataType::Struct(fields) => of_struct(array, fields, paths),
        DataType::List(item) => {
            let list: &ListArray = array.as_list();
            let values = as_spark(list.values(), paths)?;
            let item = renamed(item, &values);
            let made = ListArray::try_new(item, list.offsets().clone(), values, list.nulls().cloned());
            Ok(Arc::new(made.map_err(|error| error.to_string())?))
        }
        DataType::Map(entries, sorted) => {
            let map: &MapArray = array.as_map();
            let (keys, values) = (as_spark(map.keys(), &[])?, as_spark(map.values(), paths)?);
            let DataType::Struct(fields) = entries.data_type() else {
                return Err(format!("{} is no map", array.data_type()));
            };
            let fields: Fields = fields
                .iter()
                .zip([&keys, &values])
                .map(|(field, of)| renamed(field, of))
                .collect();
            let made = StructArray::try_new(fields, vec![keys, values], None).map_err(|error| error.to_string())?;
            let entries = renamed(entries, &made);
            let made = MapArray::try_new(entries, map.offsets().clone(), made, map.nulls().cloned(), *sorted);
            Ok(Arc::new(made.map_err(|error| error.to_string())?))
        }
        _ => scalar(array),
    }
}

/// A field with the type of an array.
fn renamed(field: &FieldRef, array: &dyn Array) -> FieldRef {
    Arc::new(Field::new(field.name(), array.data_type().clone(), field.is_nullable()))
}

fn of_struct(array: &ArrayRef, fields: &Fields, paths: &[&[String]]) -> Result<ArrayRef, String> {
    let is_whole = paths.is_empty() || paths.iter().any(|path| path.is_empty());
    let mut names: Vec<&str> = Vec::new();
    if is_whole {
        names.extend(fields.iter().map(|field| field.name().as_str()));
    } else {
        for name in paths.iter().filter_map(|path| path.first()) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
    }
    let whole = array.as_struct();
    let (mut made, mut kept) = (Vec::with_capacity(names.len()), Vec::with_capacity(names.len()));
    for name in names {
        let Some((field, part)) = fields
            .find(name)
            .and_then(|(at, field)| Some((field, whole.columns().get(at)?)))
        else {
            return Err(format!("there is no field {name}"));
        };
        let inside: Vec<&[String]> = match is_whole {
            true => Vec::new(),
            false => paths
                .iter()
                .filter(|path| path.first().is_some_and(|first| first == name))
                .filter_map(|path| path.get(1..))
                .collect(),
        };
        let part = as_spark(part, &inside)?;
        made.push(renamed(field, &part));
        kept.push(part);
    }
    let made = StructArray::try_new_with_length(Fields::from(made), kept, whole.nulls().cloned(), whole.len());
    Ok(Arc::new(made.map_err(|error| error.to_string())?))
}

fn scalar(array: &ArrayRef) -> Result<ArrayRef, String> {
    let kept = Ok(Arc::clone(array));
    match array.data_type() {
        DataType::UInt8 => Ok(wider::<UInt8Type, arrow_array::types::Int16Type>(array)),
        DataType::UInt16 => Ok(wider::<UInt16Type, Int32Type>(array)),
        DataType::UInt32 => Ok(wider::<UInt32Type, Int64Type>(array)),
        DataType::UInt64 => {
            let made: PrimitiveArray<Decimal128Type> = array.as_primitive::<UInt64Type>().unary(i128::from);
            let made = made
                .with_precision_and_scale(DIGITS, 0)
                .map_err(|error| error.to_string())?;
            Ok(Arc::new(made))
        }
        DataType::Time32(TimeUnit::Second) => Ok(wider::<Time32SecondType, Int32Type>(array)),
        DataType::Time32(_) => Ok(wider::<Time32MillisecondType, Int32Type>(array)),
        DataType::Time64(TimeUnit::Nanosecond) => Ok(wider::<Time64NanosecondType, Int64Type>(array)),
        DataType::Time64(_) => Ok(wider::<Time64MicrosecondType, Int64Type>(array)),
        DataType::Timestamp(unit, zone) => {
            let zone = zone.as_ref().map(|_| Arc::from("UTC"));
            let made = match unit {
                TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().clone(),
                TimeUnit::Millisecond => larger::<TimestampMillisecondType>(array, 1_000)?,
                TimeUnit::Second => larger::<TimestampSecondType>(array, 1_000_000)?,
                TimeUnit::Nanosecond => array
                    .as_primitive::<TimestampNanosecondType>()
                    .unary(|value| value / 1_000),
            };
            Ok(Arc::new(made.with_timezone_opt(zone)))
        }
        DataType::FixedSizeBinary(_) => {
            let made: BinaryArray = array.as_fixed_size_binary().iter().collect();
            Ok(Arc::new(made))
        }
        DataType::Boolean | DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => kept,
        DataType::Float32 | DataType::Float64 | DataType::Utf8 | DataType::Binary | DataType::Date32 => kept,
        DataType::Decimal128(..) | DataType::Duration(TimeUnit::Microsecond) => kept,
        other => Err(format!("Spark has no type for {other}")),
    }
}

fn wider<F: ArrowPrimitiveType, T: ArrowPrimitiveType>(array: &ArrayRef) -> ArrayRef
where
    F::Native: Into<T::Native>,
{
    Arc::new(array.as_primitive::<F>().unary::<_, T>(Into::into))
}

fn larger<F: ArrowPrimitiveType<Native = i64>>(
    array: &ArrayRef,
    factor: i64,
) -> Result<PrimitiveArray<TimestampMicrosecondType>, String> {
    let times = array.as_primitive::<F>();
    times.try_unary(|value: i64| {
        value
            .checked_mul(factor)
            .ok_or_else(|| format!("a timestamp of {value} is beyond the microseconds that Spark has"))
    })
}

/// The type as Spark's `catalogString` names it.
pub(crate) fn name_of(data_type: &DataType) -> String {
    let plain = match data_type {
        DataType::Boolean => "boolean",
        DataType::Int8 => "tinyint",
        DataType::Int16 => "smallint",
        DataType::Int32 => "int",
        DataType::Int64 => "bigint",
        DataType::Float32 => "float",
        DataType::Float64 => "double",
        DataType::Utf8 => "string",
        DataType::Binary => "binary",
        DataType::Date32 => "date",
        DataType::Timestamp(_, Some(_)) => "timestamp",
        DataType::Timestamp(_, None) => "timestamp_ntz",
        DataType::Duration(_) => "interval day to second",
        DataType::Decimal128(precision, scale) => return format!("decimal({precision},{scale})"),
        DataType::List(item) => return format!("array<{}>", name_of(item.data_type())),
        DataType::Map(entries, _) => {
            let DataType::Struct(fields) = entries.data_type() else {
                return "map".to_owned();
            };
            let names: Vec<String> = fields.iter().map(|field| name_of(field.data_type())).collect();
            return format!("map<{}>", names.join(","));
        }
        DataType::Struct(fields) => {
            let named = fields
                .iter()
                .map(|field| format!("{}:{}", field.name(), name_of(field.data_type())));
            return format!("struct<{}>", named.collect::<Vec<_>>().join(","));
        }
        other => return other.to_string(),
    };
    plain.to_owned()
}
