//! What a row of a column holds, for those who want single values and no array.

use std::ops::Range;

use arrow_array::OffsetSizeTrait;
use arrow_buffer::i256;

use crate::column::{Column, Values};
use crate::decode::ReadValue;
use crate::reason::Reason;

/// A value that is not null, by its physical type.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    /// A boolean.
    Boolean(bool),
    /// Signed integers; dates, times, timestamps and durations in their units; the bits of half floats; decimals of up to 64 bits without their point.
    Int(i64),
    /// Unsigned integers.
    UInt(u64),
    /// Floats of 32 and 64 bits.
    Float(f64),
    /// Without its point.
    Decimal128(i128),
    /// Without its point.
    Decimal256(i256),
    /// Strings and bytes.
    Bytes(&'a [u8]),
    /// Of lists these rows; of maps too, each of which has a key and a value.
    Items(&'a Column, Range<usize>),
    /// The columns of a struct.
    Fields(&'a [Column]),
}

/// Reads one value into row 0 of a column, whose memory is used again.
///
/// # Errors
///
/// The bytes are no such value.
pub fn read_one(reader: &dyn ReadValue, bytes: &[u8], into: &mut Column) -> Result<(), Reason> {
    into.truncate(0);
    reader.read(bytes, into)
}

impl Column {
    /// The value in a row; `None`: it is null, or there is no such row.
    #[must_use]
    pub fn value(&self, row: usize) -> Option<Value<'_>> {
        if row >= self.len() || self.is_null(row) {
            return None;
        }
        Some(match &self.values {
            Values::Null => return None,
            Values::Boolean(bits) => Value::Boolean(bits.get_bit(row)),
            Values::Int8(numbers) => Value::Int((*numbers.get(row)?).into()),
            Values::Int16(numbers) => Value::Int((*numbers.get(row)?).into()),
            Values::Int32(numbers) => Value::Int((*numbers.get(row)?).into()),
            Values::Int64(numbers) => Value::Int(*numbers.get(row)?),
            Values::UInt8(numbers) => Value::UInt((*numbers.get(row)?).into()),
            Values::UInt16(numbers) => Value::UInt((*numbers.get(row)?).into()),
            Values::UInt32(numbers) => Value::UInt((*numbers.get(row)?).into()),
            Values::UInt64(numbers) => Value::UInt(*numbers.get(row)?),
            Values::Float32(numbers) => Value::Float((*numbers.get(row)?).into()),
            Values::Float64(numbers) => Value::Float(*numbers.get(row)?),
            Values::Decimal128(numbers) => Value::Decimal128(*numbers.get(row)?),
            Values::Decimal256(numbers) => Value::Decimal256(*numbers.get(row)?),
            Values::Bytes(bytes) => Value::Bytes(bytes.values_from(row).next()?),
            Values::LargeBytes(bytes) => Value::Bytes(bytes.values_from(row).next()?),
            Values::Fixed { width, data } => Value::Bytes(data.get(row * width..(row + 1) * width)?),
            Values::List(list) => Value::Items(&list.items, rows(list.ends(), row)?),
            Values::LargeList(list) => Value::Items(&list.items, rows(list.ends(), row)?),
            Values::FixedList { size, items } => Value::Items(items, row * size..(row + 1) * size),
            Values::Struct(columns) => Value::Fields(columns),
        })
    }
}

fn rows<O: OffsetSizeTrait>(ends: &[O], row: usize) -> Option<Range<usize>> {
    Some(ends.get(row)?.as_usize()..ends.get(row + 1)?.as_usize())
}
