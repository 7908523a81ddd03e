//! Arrow columns under construction, row by row, from which the last rows can be taken back.
//!
//! One tree of columns for every format. A format appends to the `values` it knows from the type and counts the row with `push_valid`; a value that turns
//! out to be malformed half way is taken back with [`Column::truncate`].

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, GenericListArray, MapArray, NullArray, OffsetSizeTrait, StructArray,
    make_array,
};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer, i256};
use arrow_data::ArrayDataBuilder;
use arrow_schema::{ArrowError, DataType, Field};

use crate::reason::Reason;
use crate::reused;

const FULL: Reason = Reason::plain("the column has no room for it: 2 GiB of values are the most of one batch");

/// Bytes of a string or of bytes that are expected.
const EXPECTED: usize = 8;

/// A string that is none.
pub(crate) const NOT_UTF8: Reason = Reason::plain("a string is not UTF-8");

/// One column under construction.
#[derive(Debug)]
pub struct Column {
    len: usize,
    /// Made with the first null.
    validity: Option<BooleanBufferBuilder>,
    pub(crate) values: Values,
}

/// The values of a column by their physical type. Rows that are null have a value too: 0, or no bytes, or no items.
#[derive(Debug)]
pub(crate) enum Values {
    Null,
    Boolean(BooleanBufferBuilder),
    Int8(Vec<i8>),
    /// int16, and the bits of half floats.
    Int16(Vec<i16>),
    /// int32, date32, time32, decimal32.
    Int32(Vec<i32>),
    /// int64, date64, time64, timestamps, durations, decimal64.
    Int64(Vec<i64>),
    UInt8(Vec<u8>),
    UInt16(Vec<u16>),
    UInt32(Vec<u32>),
    UInt64(Vec<u64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    Decimal128(Vec<i128>),
    Decimal256(Vec<i256>),
    /// string, binary.
    Bytes(Bytes<i32>),
    /// large string, large binary.
    LargeBytes(Bytes<i64>),
    Fixed {
        width: usize,
        data: Vec<u8>,
    },
    /// lists and maps (of structs of key and value).
    List(List<i32>),
    LargeList(List<i64>),
    /// Lists of `size` items.
    FixedList {
        size: usize,
        items: Box<Column>,
    },
    Struct(Vec<Column>),
}

/// Values of any length, back to back.
#[derive(Debug)]
pub(crate) struct Bytes<O> {
    /// 0, then the end of each value.
    offsets: Vec<O>,
    data: Vec<u8>,
    /// Whether [`Bytes::push_text`] checks each value, and not [`Column::finish`] all of them at once.
    pub(crate) checks: bool,
}

impl<O: OffsetSizeTrait> Bytes<O> {
    fn new(rows: usize) -> Self {
        Self {
            offsets: starting(rows),
            data: reused::vec(rows.saturating_mul(EXPECTED)),
            checks: true,
        }
    }

    /// Appends a value of a column of strings.
    #[inline]
    pub(crate) fn push_text(&mut self, bytes: &[u8]) -> Result<(), Reason> {
        if self.checks && std::str::from_utf8(bytes).is_err() {
            return Err(NOT_UTF8);
        }
        self.push(bytes)
    }

    /// Appends a value. Those of a column of strings must be UTF-8.
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), Reason> {
        let end = O::from_usize(self.data.len() + bytes.len()).ok_or(FULL)?;
        self.data.extend_from_slice(bytes);
        self.offsets.push(end);
        Ok(())
    }

    /// The values from row `begin` on.
    pub(crate) fn values_from(&self, begin: usize) -> impl Iterator<Item = &[u8]> + Clone {
        let ends = self.offsets.get(begin..).unwrap_or_default();
        ends.windows(2).map(|pair| match pair {
            [start, end] => self.data.get(start.as_usize()..end.as_usize()).unwrap_or_default(),
            _ => &[],
        })
    }

    fn repeat_end(&mut self) {
        self.offsets.extend(self.offsets.last().copied());
    }

    fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        self.data.truncate(self.offsets.last().map_or(0, |end| end.as_usize()));
    }
}

/// Lists of items in one column.
#[derive(Debug)]
pub(crate) struct List<O> {
    /// 0, then the end of each list.
    ends: Vec<O>,
    /// Items are appended here, and then the list is closed.
    pub(crate) items: Box<Column>,
}

impl<O: OffsetSizeTrait> List<O> {
    fn new(items: &Field, rows: usize) -> Self {
        Self {
            ends: starting(rows),
            items: Box::new(Column::new(items.data_type(), rows)),
        }
    }

    /// Ends the list of the items that were appended since the one before.
    #[inline]
    pub(crate) fn close(&mut self) -> Result<(), Reason> {
        self.ends.push(O::from_usize(self.items.len()).ok_or(FULL)?);
        Ok(())
    }

    /// 0, then the end of each list.
    pub(crate) fn ends(&self) -> &[O] {
        &self.ends
    }

    fn repeat_end(&mut self) {
        self.ends.extend(self.ends.last().copied());
    }

    fn truncate(&mut self, rows: usize) {
        self.ends.truncate(rows + 1);
        self.items.truncate(self.ends.last().map_or(0, |end| end.as_usize()));
    }
}

fn starting<O: OffsetSizeTrait>(rows: usize) -> Vec<O> {
    let mut offsets = reused::vec(rows + 1);
    offsets.push(O::zero());
    offsets
}

macro_rules! each_number {
    ($values:expr, $vec:ident => $number:expr, $($others:tt)*) => {
        match $values {
            Values::Int8($vec) => $number,
            Values::Int16($vec) => $number,
            Values::Int32($vec) => $number,
            Values::Int64($vec) => $number,
            Values::UInt8($vec) => $number,
            Values::UInt16($vec) => $number,
            Values::UInt32($vec) => $number,
            Values::UInt64($vec) => $number,
            Values::Float32($vec) => $number,
            Values::Float64($vec) => $number,
            Values::Decimal128($vec) => $number,
            Values::Decimal256($vec) => $number,
            $($others)*
        }
    };
}

impl Column {
    /// An empty column.
    ///
    /// `rows` is how many are expected. A type without a physical one here (see [`Column::has`]) gives a column of nulls.
    #[must_use]
    pub fn new(data_type: &DataType, rows: usize) -> Self {
        Self {
            len: 0,
            validity: None,
            values: Values::new(data_type, rows),
        }
    }

    /// Whether columns of a type can be made: not of dictionaries, views, unions, run ends, or intervals.
    #[must_use]
    pub fn has(data_type: &DataType) -> bool {
        match data_type {
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::FixedSizeList(item, _)
            | DataType::Map(item, _) => Self::has(item.data_type()),
            DataType::Struct(fields) => fields.iter().all(|field| Self::has(field.data_type())),
            DataType::Null => true,
            other => !matches!(Values::new(other, 0), Values::Null),
        }
    }

    /// Leaves the check of strings that formats append unchecked to [`Column::finish`], which checks all at once: it fails if one is not UTF-8.
    pub(crate) fn check_at_the_end(&mut self) {
        match &mut self.values {
            Values::Bytes(bytes) => bytes.checks = false,
            Values::LargeBytes(bytes) => bytes.checks = false,
            Values::List(list) => list.items.check_at_the_end(),
            Values::LargeList(list) => list.items.check_at_the_end(),
            Values::FixedList { items, .. } => items.check_at_the_end(),
            Values::Struct(columns) => columns.iter_mut().for_each(Self::check_at_the_end),
            _ => {}
        }
    }

    /// Rows so far.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a row is null.
    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.validity.as_ref().is_some_and(|validity| !validity.get_bit(row))
    }

    /// Counts a row whose value was appended to `values`.
    #[inline]
    pub(crate) fn push_valid(&mut self) {
        self.len += 1;
        if let Some(validity) = &mut self.validity {
            validity.append(true);
        }
    }

    /// Appends a null.
    pub fn push_null(&mut self) {
        let len = self.len;
        let validity = self.validity.get_or_insert_with(|| {
            let mut validity = BooleanBufferBuilder::new(len + 1);
            validity.append_n(len, true);
            validity
        });
        validity.append(false);
        self.values.push_default();
        self.len += 1;
    }

    /// Leaves the first `rows` rows, and nothing of what was appended after them. There must be as many.
    pub fn truncate(&mut self, rows: usize) {
        self.len = rows;
        if let Some(validity) = &mut self.validity {
            validity.truncate(rows);
        }
        self.values.truncate(rows);
    }

    /// The column as an array of the type it was made for.
    ///
    /// # Errors
    ///
    /// A string is not UTF-8, or a field that must not be null is: what formats must not append.
    pub fn finish(self, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
        let nulls = self.validity.map(|mut bits| NullBuffer::new(bits.finish()));
        self.values.finish(data_type, self.len, nulls)
    }
}

impl Values {
    fn new(data_type: &DataType, rows: usize) -> Self {
        match data_type {
            DataType::Boolean => Self::Boolean(BooleanBufferBuilder::new(rows)),
            DataType::Int8 => Self::Int8(reused::vec(rows)),
            // half floats by their bits
            DataType::Int16 | DataType::Float16 => Self::Int16(reused::vec(rows)),
            DataType::Int32 | DataType::Date32 | DataType::Time32(_) | DataType::Decimal32(..) => {
                Self::Int32(reused::vec(rows))
            }
            DataType::Int64
            | DataType::Date64
            | DataType::Time64(_)
            | DataType::Timestamp(..)
            | DataType::Duration(_)
            | DataType::Decimal64(..) => Self::Int64(reused::vec(rows)),
            DataType::UInt8 => Self::UInt8(reused::vec(rows)),
            DataType::UInt16 => Self::UInt16(reused::vec(rows)),
            DataType::UInt32 => Self::UInt32(reused::vec(rows)),
            DataType::UInt64 => Self::UInt64(reused::vec(rows)),
            DataType::Float32 => Self::Float32(reused::vec(rows)),
            DataType::Float64 => Self::Float64(reused::vec(rows)),
            DataType::Decimal128(..) => Self::Decimal128(reused::vec(rows)),
            DataType::Decimal256(..) => Self::Decimal256(reused::vec(rows)),
            DataType::Utf8 | DataType::Binary => Self::Bytes(Bytes::new(rows)),
            DataType::LargeUtf8 | DataType::LargeBinary => Self::LargeBytes(Bytes::new(rows)),
            DataType::FixedSizeBinary(width) => Self::Fixed {
                width: usize::try_from(*width).unwrap_or_default(),
                data: Vec::new(),
            },
            DataType::List(item) | DataType::Map(item, _) => Self::List(List::new(item, rows)),
            DataType::LargeList(item) => Self::LargeList(List::new(item, rows)),
            DataType::FixedSizeList(item, size) => Self::FixedList {
                size: usize::try_from(*size).unwrap_or_default(),
                items: Box::new(Column::new(item.data_type(), rows)),
            },
            DataType::Struct(fields) => Self::Struct(
                fields
                    .iter()
                    .map(|field| Column::new(field.data_type(), rows))
                    .collect(),
            ),
            _ => Self::Null,
        }
    }

    /// Appends the value below a null.
    pub(crate) fn push_default(&mut self) {
        each_number!(self, numbers => numbers.push(Default::default()),
            Self::Null => {}
            Self::Boolean(bits) => bits.append(false),
            Self::Bytes(bytes) => bytes.repeat_end(),
            Self::LargeBytes(bytes) => bytes.repeat_end(),
            Self::Fixed { width, data } => data.resize(data.len() + *width, 0),
            Self::List(list) => list.repeat_end(),
            Self::LargeList(list) => list.repeat_end(),
            Self::FixedList { size, items } => (0..*size).for_each(|_| items.push_null()),
            Self::Struct(fields) => fields.iter_mut().for_each(Column::push_null),
        );
    }

    fn truncate(&mut self, rows: usize) {
        each_number!(self, numbers => numbers.truncate(rows),
            Self::Null => {}
            Self::Boolean(bits) => bits.truncate(rows),
            Self::Bytes(bytes) => bytes.truncate(rows),
            Self::LargeBytes(bytes) => bytes.truncate(rows),
            Self::Fixed { width, data } => data.truncate(rows * *width),
            Self::List(list) => list.truncate(rows),
            Self::LargeList(list) => list.truncate(rows),
            Self::FixedList { size, items } => items.truncate(rows * *size),
            Self::Struct(fields) => fields.iter_mut().for_each(|field| field.truncate(rows)),
        );
    }

    fn finish(self, data_type: &DataType, len: usize, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        let array: ArrayRef = each_number!(self, numbers => plain(data_type, len, nulls, vec![reused::buffer(numbers)])?,
            Self::Null => Arc::new(NullArray::new(len)),
            Self::Boolean(mut bits) => boolean(bits.finish(), nulls),
            Self::Bytes(bytes) => plain(data_type, len, nulls, vec![reused::buffer(bytes.offsets), reused::buffer(bytes.data)])?,
            Self::LargeBytes(bytes) => plain(data_type, len, nulls, vec![reused::buffer(bytes.offsets), reused::buffer(bytes.data)])?,
            Self::Fixed { data, .. } => plain(data_type, len, nulls, vec![Buffer::from_vec(data)])?,
            Self::List(list) => list_array(data_type, list, nulls)?,
            Self::LargeList(list) => list_array(data_type, list, nulls)?,
            Self::FixedList { items, .. } => {
                let DataType::FixedSizeList(item, size) = data_type else {
                    return Err(mismatch(data_type));
                };
                let items = items.finish(item.data_type())?;
                // a length of its own: lists of no items say nothing of how many they are
                Arc::new(FixedSizeListArray::try_new_with_length(Arc::clone(item), *size, items, nulls, len)?)
            }
            Self::Struct(columns) => {
                let DataType::Struct(fields) = data_type else {
                    return Err(mismatch(data_type));
                };
                let arrays = columns.into_iter().zip(fields).map(|(column, field)| column.finish(field.data_type()));
                let arrays = arrays.collect::<Result<Vec<_>, _>>()?;
                Arc::new(StructArray::try_new_with_length(fields.clone(), arrays, nulls, len)?)
            }
        );
        Ok(array)
    }
}

fn boolean(bits: BooleanBuffer, nulls: Option<NullBuffer>) -> ArrayRef {
    Arc::new(arrow_array::BooleanArray::new(bits, nulls))
}

fn plain(
    data_type: &DataType,
    len: usize,
    nulls: Option<NullBuffer>,
    buffers: Vec<Buffer>,
) -> Result<ArrayRef, ArrowError> {
    let builder = ArrayDataBuilder::new(data_type.clone())
        .len(len)
        .buffers(buffers)
        .nulls(nulls);
    Ok(make_array(builder.build()?))
}

fn list_array<O: OffsetSizeTrait>(
    data_type: &DataType,
    list: List<O>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) => {
            let items = list.items.finish(item.data_type())?;
            let offsets: OffsetBuffer<O> = OffsetBuffer::new(ScalarBuffer::from(reused::buffer(list.ends)));
            Ok(Arc::new(GenericListArray::try_new(
                Arc::clone(item),
                offsets,
                items,
                nulls,
            )?))
        }
        DataType::Map(entry, ordered) => {
            let entries = list.items.finish(entry.data_type())?;
            let entries = entries
                .as_any()
                .downcast_ref::<StructArray>()
                .ok_or_else(|| mismatch(data_type))?;
            let ends = list
                .ends
                .iter()
                .map(|end| i32::try_from(end.as_usize()))
                .collect::<Result<Vec<_>, _>>();
            let ends = ends.map_err(|error| ArrowError::ExternalError(Box::new(error)))?;
            let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
            Ok(Arc::new(MapArray::try_new(
                Arc::clone(entry),
                offsets,
                entries.clone(),
                nulls,
                *ordered,
            )?))
        }
        other => Err(mismatch(other)),
    }
}

fn mismatch(data_type: &DataType) -> ArrowError {
    ArrowError::InvalidArgumentError(format!("a column was not made for {data_type}"))
}
