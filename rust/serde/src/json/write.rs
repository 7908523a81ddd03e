//! A row of a column -> a value of JSON: one line without blanks, fields in the order of the type, null fields as null or left out (see `left_out`).

use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    DecimalType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, GenericListArray, GenericStringArray, MapArray, OffsetSizeTrait};
use arrow_buffer::ArrowNativeType;
use arrow_schema::{DataType, TimeUnit};

use super::iso8601;
use super::left_out::{self, LeftOut, Schemas};
use super::names::in_json;
use super::schema::JsonSchema;
use crate::encode::{WriteColumn, WriteValue};
use crate::reason::{Reason, SchemaError, named};

/// Writes columns of every type that has JSON.
#[derive(Debug, Default)]
pub struct JsonWriter;

impl WriteColumn for JsonWriter {
    fn column_type(&self, given: &DataType) -> Result<DataType, SchemaError> {
        Ok(given.clone())
    }

    fn writer<'a>(&'a self, column: &'a dyn Array) -> Result<Box<dyn WriteValue + 'a>, SchemaError> {
        Ok(Box::new(Rows(cells(column, &left_out::NONE))))
    }
}

/// Writes columns of values that follow a JSON Schema: without null fields that it does not require and does not allow as null.
#[derive(Debug)]
pub struct JsonSchemaWriter {
    schemas: Arc<Schemas>,
}

impl JsonSchemaWriter {
    /// Values of `schema`. Whether they follow it is not checked.
    #[must_use]
    pub fn new(schema: &JsonSchema) -> Self {
        Self {
            schemas: Arc::clone(&schema.schemas),
        }
    }
}

impl WriteColumn for JsonSchemaWriter {
    fn column_type(&self, given: &DataType) -> Result<DataType, SchemaError> {
        Ok(given.clone())
    }

    fn writer<'a>(&'a self, column: &'a dyn Array) -> Result<Box<dyn WriteValue + 'a>, SchemaError> {
        let left_out = self.schemas.left_out(column.data_type());
        Ok(Box::new(Rows(cells(column, &left_out))))
    }
}

struct Rows<'a>(Cells<'a>);

impl WriteValue for Rows<'_> {
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Reason> {
        (self.0)(row, out)
    }
}

/// Appends the JSON of a row.
type Cells<'a> = Box<dyn Fn(usize, &mut Vec<u8>) -> Result<(), Reason> + 'a>;

/// The cells of a column, null for those that are null.
fn cells<'a>(column: &'a dyn Array, left_out: &LeftOut) -> Cells<'a> {
    let write = valid_cells(column, left_out);
    match column.logical_nulls() {
        Some(nulls) => Box::new(move |row, out| {
            if nulls.is_valid(row) {
                return write(row, out);
            }
            out.extend_from_slice(b"null");
            Ok(())
        }),
        None => write,
    }
}

fn valid_cells<'a>(column: &'a dyn Array, left_out: &LeftOut) -> Cells<'a> {
    match column.data_type() {
        DataType::Boolean => {
            let bits = column.as_boolean();
            Box::new(|row, out| text(out, if bits.value(row) { "true" } else { "false" }))
        }
        DataType::Int8 => numbers::<Int8Type>(column),
        DataType::Int16 => numbers::<Int16Type>(column),
        DataType::Int32 => numbers::<Int32Type>(column),
        DataType::Int64 => numbers::<Int64Type>(column),
        DataType::UInt8 => numbers::<UInt8Type>(column),
        DataType::UInt16 => numbers::<UInt16Type>(column),
        DataType::UInt32 => numbers::<UInt32Type>(column),
        DataType::UInt64 => numbers::<UInt64Type>(column),
        DataType::Duration(unit) => match unit {
            TimeUnit::Second => numbers::<arrow_array::types::DurationSecondType>(column),
            TimeUnit::Millisecond => numbers::<arrow_array::types::DurationMillisecondType>(column),
            TimeUnit::Microsecond => numbers::<arrow_array::types::DurationMicrosecondType>(column),
            TimeUnit::Nanosecond => numbers::<arrow_array::types::DurationNanosecondType>(column),
        },
        DataType::Float16 => floats::<Float16Type>(column),
        DataType::Float32 => floats::<Float32Type>(column),
        DataType::Float64 => floats::<Float64Type>(column),
        DataType::Decimal32(..) => decimals::<Decimal32Type>(column),
        DataType::Decimal64(..) => decimals::<Decimal64Type>(column),
        DataType::Decimal128(..) => decimals::<Decimal128Type>(column),
        DataType::Decimal256(..) => decimals::<Decimal256Type>(column),
        DataType::Utf8 => strings(column.as_string::<i32>()),
        DataType::LargeUtf8 => strings(column.as_string::<i64>()),
        DataType::Date32 | DataType::Date64 | DataType::Time32(_) | DataType::Time64(_) | DataType::Timestamp(..) => {
            times(column)
        }
        DataType::List(_) => lists(column.as_list::<i32>(), left_out),
        DataType::LargeList(_) => lists(column.as_list::<i64>(), left_out),
        DataType::FixedSizeList(_, size) => {
            let items = cells(column.as_fixed_size_list().values(), left_out.items());
            let size = usize::try_from(*size).unwrap_or_default();
            Box::new(move |row, out| array(row * size..(row + 1) * size, &items, out))
        }
        DataType::Map(..) => maps(column.as_map(), left_out),
        DataType::Struct(_) => structs(column, left_out),
        other => {
            let reason = Reason::from(format!("{} has no JSON", named(other)));
            Box::new(move |_, _| Err(reason.clone()))
        }
    }
}

fn text(out: &mut Vec<u8>, text: &str) -> Result<(), Reason> {
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

fn numbers<T: ArrowPrimitiveType<Native: std::fmt::Display>>(column: &dyn Array) -> Cells<'_> {
    let numbers = column.as_primitive::<T>();
    Box::new(|row, out| {
        // a Vec takes everything
        let _ = write!(out, "{}", numbers.value(row));
        Ok(())
    })
}

fn floats<T: ArrowPrimitiveType<Native: Into<f64>>>(column: &dyn Array) -> Cells<'_> {
    let numbers = column.as_primitive::<T>();
    Box::new(|row, out| {
        let number: f64 = numbers.value(row).into();
        if !number.is_finite() {
            return Err(Reason::from(format!("{number} has no JSON: it is not a finite number")));
        }
        serde_json::to_writer(out, &number).map_err(|error| Reason::from(error.to_string()))
    })
}

/// As texts: a number of JSON is read as a double by most.
fn decimals<T: DecimalType>(column: &dyn Array) -> Cells<'_> {
    let numbers = column.as_primitive::<T>();
    Box::new(|row, out| {
        let _ = write!(out, "\"{}\"", numbers.value_as_string(row));
        Ok(())
    })
}

fn strings<O: OffsetSizeTrait>(strings: &GenericStringArray<O>) -> Cells<'_> {
    Box::new(|row, out| {
        quoted(strings.value(row), out);
        Ok(())
    })
}

/// Appends a string with its quotes. Only what must be escaped is.
fn quoted(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut from = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0x08 => b"\\b",
            0x0c => b"\\f",
            0..0x20 => &[],
            _ => continue,
        };
        out.extend_from_slice(&bytes[from..at]);
        if escape.is_empty() {
            let _ = write!(out, "\\u{byte:04x}");
        } else {
            out.extend_from_slice(escape);
        }
        from = at + 1;
    }
    out.extend_from_slice(&bytes[from..]);
    out.push(b'"');
}

/// Dates and times as texts.
fn times(column: &dyn Array) -> Cells<'_> {
    let data_type = column.data_type();
    let numbers = whole_numbers(column);
    Box::new(move |row, out| {
        let number = numbers(row);
        let mut text = String::with_capacity(32);
        match data_type {
            DataType::Date32 => iso8601::write_date(number, &mut text),
            DataType::Date64 if number % 86_400_000 == 0 => iso8601::write_date(number / 86_400_000, &mut text),
            DataType::Date64 => {
                return Err(Reason::from(format!(
                    "the date64 {number} does not represent a whole number of days"
                )));
            }
            DataType::Timestamp(unit, zone) => iso8601::write_timestamp(number, *unit, zone.is_some(), &mut text),
            DataType::Time32(unit) | DataType::Time64(unit) => {
                let is_one = iso8601::write_time(number, *unit, &mut text);
                is_one
                    .ok_or_else(|| Reason::from(format!("{number} is not within a day, so no {}", named(data_type))))?;
            }
            other => return Err(Reason::from(format!("{} has no JSON", named(other)))),
        }
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
        Ok(())
    })
}

/// The numbers that Arrow keeps of dates and times.
fn whole_numbers<'a>(column: &'a dyn Array) -> Box<dyn Fn(usize) -> i64 + 'a> {
    use arrow_array::types as t;
    match column.data_type() {
        DataType::Date32 => of::<Date32Type>(column),
        DataType::Date64 => of::<Date64Type>(column),
        DataType::Time32(TimeUnit::Second) => of::<t::Time32SecondType>(column),
        DataType::Time32(_) => of::<t::Time32MillisecondType>(column),
        DataType::Time64(TimeUnit::Microsecond) => of::<t::Time64MicrosecondType>(column),
        DataType::Time64(_) => of::<t::Time64NanosecondType>(column),
        DataType::Timestamp(TimeUnit::Second, _) => of::<t::TimestampSecondType>(column),
        DataType::Timestamp(TimeUnit::Millisecond, _) => of::<t::TimestampMillisecondType>(column),
        DataType::Timestamp(TimeUnit::Microsecond, _) => of::<t::TimestampMicrosecondType>(column),
        _ => of::<t::TimestampNanosecondType>(column),
    }
}

fn of<T: ArrowPrimitiveType<Native: Into<i64>>>(column: &dyn Array) -> Box<dyn Fn(usize) -> i64 + '_> {
    let numbers = column.as_primitive::<T>();
    Box::new(|row| numbers.value(row).into())
}

fn lists<'a, O: OffsetSizeTrait>(lists: &'a GenericListArray<O>, left_out: &LeftOut) -> Cells<'a> {
    let items = cells(lists.values(), left_out.items());
    let ends = lists.value_offsets();
    Box::new(move |row, out| array(ends[row].as_usize()..ends[row + 1].as_usize(), &items, out))
}

fn array(rows: std::ops::Range<usize>, items: &Cells<'_>, out: &mut Vec<u8>) -> Result<(), Reason> {
    out.push(b'[');
    let first = rows.start;
    for row in rows {
        if row > first {
            out.push(b',');
        }
        items(row, out)?;
    }
    out.push(b']');
    Ok(())
}

fn structs<'a>(column: &'a dyn Array, left_out: &LeftOut) -> Cells<'a> {
    let (columns, fields) = (column.as_struct().columns(), column.as_struct().fields());
    let members: Vec<_> = fields
        .iter()
        .zip(columns)
        .map(|(field, column)| {
            let mut name = vec![b','];
            quoted(&in_json(field.name()), &mut name);
            name.push(b':');
            let below = left_out.field(field.name());
            let nulls = column.logical_nulls().filter(|_| below.where_null);
            (name, cells(column, below), nulls)
        })
        .collect();
    Box::new(move |row, out| {
        out.push(b'{');
        let mut is_first = true;
        for (name, cells, nulls) in &members {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                continue;
            }
            out.extend_from_slice(name.get(usize::from(is_first)..).unwrap_or_default());
            is_first = false;
            cells(row, out)?;
        }
        out.push(b'}');
        Ok(())
    })
}

fn maps<'a>(maps: &'a MapArray, left_out: &LeftOut) -> Cells<'a> {
    let keys = cells(maps.keys(), &left_out::NONE);
    let values = cells(maps.values(), left_out.items());
    let ends = maps.value_offsets();
    let key_type = maps.keys().data_type();
    Box::new(move |row, out| {
        out.push(b'{');
        let mut seen = HashSet::new();
        for entry in ends[row].as_usize()..ends[row + 1].as_usize() {
            if !seen.is_empty() {
                out.push(b',');
            }
            let mut key = Vec::new();
            keys(entry, &mut key).map_err(|reason| match key_type.is_floating() {
                true => Reason::plain("a key of a map is not a finite number, which has no JSON"),
                false => Reason::from(format!("a key of a map: {reason}")),
            })?;
            // the name of a member is a string, whatever the key is
            if key.first() != Some(&b'"') {
                key.insert(0, b'"');
                key.push(b'"');
            }
            out.extend_from_slice(&key);
            out.push(b':');
            values(entry, out)?;
            if let Some(twice) = seen.replace(key) {
                return Err(Reason::from(format!(
                    "a map has the key {} twice",
                    String::from_utf8_lossy(&twice)
                )));
            }
        }
        out.push(b'}');
        Ok(())
    })
}
