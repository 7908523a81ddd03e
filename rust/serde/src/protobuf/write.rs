//! Columns -> values of a Protobuf message.
//!
//! Fields are in the order of their numbers, as Google's libraries write them with `deterministic=True`; the entries of a map are in the order of
//! those of Google's Python library. Null fields are left out, and so are defaults where a field cannot tell that it is absent. Of several members of a oneof the
//! last declared one is written.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, BinaryArray, BooleanArray, Float32Array, Float64Array, Int32Array, Int64Array, StringArray,
    TimestampMicrosecondArray, UInt32Array, UInt64Array,
};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;

use super::descriptor::Files;
use super::indexes::Indexes;
use super::plan::{Enum, Field, Kind, Message, Plan, Shape};
use super::wire::{END_GROUP, GROUP, LENGTH, put_varint, put_with_length, zigzag};
use crate::encode::{WriteColumn, WriteValue};
use crate::reason::{Reason, SchemaError};

const MICROS: i64 = 1_000_000;
/// The first second of the year 1 and the last of the year 9999.
const TIMES: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;
const TWICE: Reason = Reason::plain("a map has a key twice");

/// Writes values of a message.
#[derive(Debug)]
pub struct ProtobufWriter {
    message: Arc<Message>,
    data_type: DataType,
    indexes: Option<Indexes>,
}

impl ProtobufWriter {
    /// A writer of the message `full_name`: see [`super::ProtobufReader::new`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn new(descriptors: &[u8], full_name: &str, is_indexed: bool) -> Result<Self, SchemaError> {
        let files = Files::new(descriptors)?;
        let message = Plan::new(&files, full_name)?.message;
        let indexes = if is_indexed {
            Some(Indexes::new(&files, full_name)?)
        } else {
            None
        };
        Ok(Self {
            data_type: message.data_type(),
            message,
            indexes,
        })
    }
}

impl WriteColumn for ProtobufWriter {
    fn column_type(&self, _given: &DataType) -> Result<DataType, SchemaError> {
        Ok(self.data_type.clone())
    }

    fn writer<'a>(&'a self, column: &'a dyn Array) -> Result<Box<dyn WriteValue + 'a>, SchemaError> {
        if *column.data_type() != self.data_type {
            let (given, name) = (column.data_type(), &self.message.full_name);
            return Err(SchemaError::Invalid(format!(
                "a column of {given} has no values of the Protobuf message {name}"
            )));
        }
        Ok(Box::new(Writer {
            prefix: self.indexes.as_ref().map_or(&[], Indexes::prefix),
            fields: Fields::new(&self.message, column),
        }))
    }
}

struct Writer<'a> {
    prefix: &'a [u8],
    fields: Fields<'a>,
}

impl WriteValue for Writer<'_> {
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Reason> {
        out.extend_from_slice(self.prefix);
        self.fields.write(row, out)
    }
}

/// The fields of a message and the columns of a struct, in the order of the fields' numbers.
struct Fields<'a> {
    message: &'a Message,
    columns: Vec<FieldColumn<'a>>,
}

struct FieldColumn<'a> {
    field: &'a Field,
    /// Its bytes.
    tag: Vec<u8>,
    nulls: Option<NullBuffer>,
    values: Values<'a>,
    /// Nulls of the members of its oneof that are declared later.
    later: Vec<Option<NullBuffer>>,
    has_default: bool,
}

/// A column of one value a row, or of lists of them.
enum Values<'a> {
    Double(&'a Float64Array),
    Float(&'a Float32Array),
    Int64(&'a Int64Array),
    UInt64(&'a UInt64Array),
    Int32(&'a Int32Array),
    UInt32(&'a UInt32Array),
    Bool(&'a BooleanArray),
    String(&'a StringArray),
    Bytes(&'a BinaryArray),
    Message(Fields<'a>),
    Timestamp(&'a TimestampMicrosecondArray),
    /// Ends of the lists, and their items.
    List(&'a [i32], Box<Values<'a>>, Option<NullBuffer>),
}

impl<'a> Fields<'a> {
    fn new(message: &'a Message, column: &'a dyn Array) -> Self {
        let all = column.as_struct().columns();
        let nulls: Vec<Option<NullBuffer>> = all.iter().map(Array::logical_nulls).collect();
        let mut columns: Vec<FieldColumn<'a>> = Vec::with_capacity(all.len());
        for (index, (field, array)) in message.with_columns().iter().zip(all).enumerate() {
            let later = field.members.iter().filter(|member| **member > index);
            let later = later.filter_map(|member| nulls.get(*member).cloned()).collect();
            columns.push(FieldColumn {
                field,
                tag: tag_bytes(field),
                nulls: nulls.get(index).cloned().flatten(),
                values: Values::new(field, array.as_ref()),
                later,
                has_default: field.shape == Shape::Implicit && !message.is_entry,
            });
        }
        columns.sort_by_key(|column| column.field.number);
        Self { message, columns }
    }

    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Reason> {
        for column in &self.columns {
            if column.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                column.write_null(self.message)?;
            } else if !column.is_replaced(row) {
                column.write(row, out)?;
            }
        }
        Ok(())
    }
}

impl FieldColumn<'_> {
    fn write_null(&self, message: &Message) -> Result<(), Reason> {
        let name = &self.field.full_name;
        if self.field.is_required {
            let what = format!(
                "{} is missing the required field {}",
                message.full_name, self.field.name
            );
            return Err(Reason::from(what));
        }
        if message.is_entry {
            Err(null_within(name))
        } else {
            Ok(())
        }
    }

    /// Whether a later member of its oneof has a value.
    fn is_replaced(&self, row: usize) -> bool {
        self.later
            .iter()
            .any(|nulls| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)))
    }

    #[inline]
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Reason> {
        let Values::List(ends, items, nulls) = &self.values else {
            let begin = out.len();
            out.extend_from_slice(&self.tag);
            let is_default = self.values.write(row, self.field, out)?;
            if is_default && self.has_default {
                out.truncate(begin);
            }
            return Ok(());
        };
        let rows = match ends.get(row..=row + 1) {
            Some([start, end]) => index(*start)..index(*end),
            _ => 0..0,
        };
        if rows.is_empty() {
            return Ok(());
        }
        if nulls
            .as_ref()
            .is_some_and(|nulls| nulls.slice(rows.start, rows.len()).null_count() > 0)
        {
            return Err(null_within(&self.field.full_name));
        }
        match self.field.shape {
            Shape::Repeated { is_packed: true } => {
                out.extend_from_slice(&self.tag);
                put_with_length(out, |out| {
                    rows.into_iter()
                        .try_for_each(|row| items.write(row, self.field, out).map(drop))
                })
            }
            Shape::Map(_) => self.write_map(items, rows, out),
            _ => rows.into_iter().try_for_each(|row| {
                out.extend_from_slice(&self.tag);
                items.write(row, self.field, out).map(drop)
            }),
        }
    }

    fn write_map(&self, items: &Values<'_>, rows: std::ops::Range<usize>, out: &mut Vec<u8>) -> Result<(), Reason> {
        let Values::Message(entry) = items else {
            return Ok(());
        };
        let Some(keys) = entry.columns.first().map(|keys| &keys.values) else {
            return Ok(());
        };
        let mut rows: Vec<usize> = rows.collect();
        rows.sort_by(|a, b| keys.order(*a, *b));
        for row in &rows {
            out.extend_from_slice(&self.tag);
            items.write(*row, self.field, out)?;
        }
        let mut pairs = rows.windows(2);
        let is_twice = pairs.any(|pair| matches!(pair, [a, b] if keys.order(*a, *b) == Ordering::Equal));
        if is_twice { Err(TWICE) } else { Ok(()) }
    }
}

impl<'a> Values<'a> {
    fn new(field: &'a Field, array: &'a dyn Array) -> Self {
        match array.data_type() {
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                let items = list.values();
                Self::List(
                    list.value_offsets(),
                    Box::new(Self::one(field, items)),
                    items.logical_nulls(),
                )
            }
            DataType::Map(..) => {
                let map = array.as_map();
                Self::List(map.value_offsets(), Box::new(Self::one(field, map.entries())), None)
            }
            _ => Self::one(field, array),
        }
    }

    fn one(field: &'a Field, array: &'a dyn Array) -> Self {
        match &field.kind {
            Kind::Double => Self::Double(array.as_primitive::<Float64Type>()),
            Kind::Float => Self::Float(array.as_primitive::<Float32Type>()),
            Kind::Int64 | Kind::SInt64 | Kind::SFixed64 => Self::Int64(array.as_primitive::<Int64Type>()),
            Kind::UInt64 | Kind::Fixed64 => Self::UInt64(array.as_primitive::<UInt64Type>()),
            Kind::Int32 | Kind::SInt32 | Kind::SFixed32 => Self::Int32(array.as_primitive::<Int32Type>()),
            Kind::UInt32 | Kind::Fixed32 => Self::UInt32(array.as_primitive::<UInt32Type>()),
            Kind::Bool => Self::Bool(array.as_boolean()),
            Kind::String { .. } | Kind::Enum(_) => Self::String(array.as_string::<i32>()),
            Kind::Bytes => Self::Bytes(array.as_binary::<i32>()),
            Kind::Message(inner) => Self::Message(Fields::new(inner, array)),
            Kind::Timestamp(_) => Self::Timestamp(array.as_primitive::<TimestampMicrosecondType>()),
        }
    }

    /// The order of keys in a map: numbers descending as unsigned ones, texts ascending, a longer one before what it begins with.
    fn order(&self, a: usize, b: usize) -> Ordering {
        match self {
            Self::Int64(keys) => Reverse(keys.value(a).cast_unsigned()).cmp(&Reverse(keys.value(b).cast_unsigned())),
            Self::UInt64(keys) => Reverse(keys.value(a)).cmp(&Reverse(keys.value(b))),
            Self::Int32(keys) => Reverse(keys.value(a).cast_unsigned()).cmp(&Reverse(keys.value(b).cast_unsigned())),
            Self::UInt32(keys) => Reverse(keys.value(a)).cmp(&Reverse(keys.value(b))),
            Self::Bool(keys) => Reverse(keys.value(a)).cmp(&Reverse(keys.value(b))),
            Self::String(keys) => {
                let (a, b) = (keys.value(a).as_bytes(), keys.value(b).as_bytes());
                let common = a.len().min(b.len());
                a.get(..common).cmp(&b.get(..common)).then(b.len().cmp(&a.len()))
            }
            _ => Ordering::Less,
        }
    }

    /// Appends one value. Returns whether it is the default of its type.
    #[inline]
    fn write(&self, row: usize, field: &Field, out: &mut Vec<u8>) -> Result<bool, Reason> {
        match self {
            Self::Double(values) => fixed(values.value(row).to_le_bytes(), out),
            Self::Float(values) => fixed(values.value(row).to_le_bytes(), out),
            Self::Int64(values) => {
                let value = values.value(row);
                match &field.kind {
                    Kind::SFixed64 => fixed(value.to_le_bytes(), out),
                    Kind::SInt64 => varint(zigzag(value), out),
                    _ => varint(value.cast_unsigned(), out),
                }
            }
            Self::UInt64(values) if matches!(field.kind, Kind::Fixed64) => fixed(values.value(row).to_le_bytes(), out),
            Self::UInt64(values) => varint(values.value(row), out),
            Self::Int32(values) => {
                let value = values.value(row);
                match &field.kind {
                    Kind::SFixed32 => fixed(value.to_le_bytes(), out),
                    Kind::SInt32 => varint(zigzag(i64::from(value)), out),
                    _ => varint(i64::from(value).cast_unsigned(), out),
                }
            }
            Self::UInt32(values) if matches!(field.kind, Kind::Fixed32) => fixed(values.value(row).to_le_bytes(), out),
            Self::UInt32(values) => varint(u64::from(values.value(row)), out),
            Self::Bool(values) => varint(u64::from(values.value(row)), out),
            Self::String(values) => match &field.kind {
                Kind::Enum(of) => varint(i64::from(number(of, values.value(row))?).cast_unsigned(), out),
                _ => bytes(values.value(row).as_bytes(), out),
            },
            Self::Bytes(values) => bytes(values.value(row), out),
            Self::Message(fields) => {
                if field.wire == GROUP {
                    fields.write(row, out)?;
                    put_varint(u64::from(field.number << 3 | END_GROUP), out);
                } else {
                    put_with_length(out, |out| fields.write(row, out))?;
                }
                Ok(false)
            }
            Self::Timestamp(values) => {
                timestamp(values.value(row), field, out)?;
                Ok(false)
            }
            // no list is an item of another
            Self::List(..) => Ok(true),
        }
    }
}

fn tag_bytes(field: &Field) -> Vec<u8> {
    let wire = if matches!(field.shape, Shape::Repeated { is_packed: true }) {
        LENGTH
    } else {
        field.wire
    };
    let mut tag = Vec::new();
    put_varint(u64::from(field.number << 3 | wire), &mut tag);
    tag
}

#[expect(clippy::unnecessary_wraps, reason = "as the others")]
fn fixed<const N: usize>(bytes: [u8; N], out: &mut Vec<u8>) -> Result<bool, Reason> {
    out.extend_from_slice(&bytes);
    Ok(bytes == [0; N])
}

#[expect(clippy::unnecessary_wraps, reason = "as the others")]
fn varint(bits: u64, out: &mut Vec<u8>) -> Result<bool, Reason> {
    put_varint(bits, out);
    Ok(bits == 0)
}

fn bytes(bytes: &[u8], out: &mut Vec<u8>) -> Result<bool, Reason> {
    let length = u64::try_from(bytes.len()).map_err(|_| Reason::plain("too long"))?;
    put_varint(length, out);
    out.extend_from_slice(bytes);
    Ok(bytes.is_empty())
}

/// The number of an enum's value: of its name, or the number itself as text.
fn number(of: &Enum, text: &str) -> Result<i32, Reason> {
    if let Some(number) = of.number(text) {
        return Ok(number);
    }
    let number = text
        .trim()
        .parse()
        .ok()
        .filter(|number| !of.is_closed || of.name(*number).is_some());
    number.ok_or_else(|| {
        let short: String = text.chars().take(60).collect();
        Reason::from(format!("{} has no value '{short}'", of.full_name))
    })
}

fn timestamp(micros: i64, field: &Field, out: &mut Vec<u8>) -> Result<(), Reason> {
    let seconds = micros.div_euclid(MICROS);
    if !TIMES.contains(&seconds) {
        let what = "Protobuf's are in the years 1 to 9999";
        return Err(Reason::from(format!(
            "Timestamp is not valid: {seconds} seconds in {}, {what}",
            field.full_name
        )));
    }
    let body = |out: &mut Vec<u8>| {
        for (tag, value) in [(0x08, seconds), (0x10, micros.rem_euclid(MICROS) * 1000)] {
            if value != 0 {
                out.push(tag);
                put_varint(value.cast_unsigned(), out);
            }
        }
        Ok(())
    };
    if field.wire == GROUP {
        body(out)?;
        put_varint(u64::from(field.number << 3 | END_GROUP), out);
        return Ok(());
    }
    put_with_length(out, body)
}

fn null_within(name: &str) -> Reason {
    Reason::from(format!("a null within {name}: Protobuf has none in lists and maps"))
}

/// An offset of a list, which Arrow does not let be negative.
fn index(offset: i32) -> usize {
    usize::try_from(offset).unwrap_or_default()
}
