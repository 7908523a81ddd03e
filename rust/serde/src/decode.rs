//! A column of bytes -> a typed column.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::{ArrowError, DataType};

use crate::column::Column;
use crate::reason::{Reason, SchemaError};

/// What reads single values of one writer's schema into a column.
pub trait ReadValue: Send + Sync {
    /// Arrow type of the column.
    fn data_type(&self) -> &DataType;

    /// Appends exactly one row to `into`, which has the structure of [`ReadValue::data_type`].
    ///
    /// # Errors
    ///
    /// The bytes are no such value. What was appended of it is taken back by the caller.
    fn read(&self, bytes: &[u8], into: &mut Column) -> Result<(), Reason>;

    /// The same values with these fields only, each the names on the way to it from the top, in the order of the type. What is left out is skipped, not decoded, but
    /// a value that is malformed there is malformed.
    ///
    /// # Errors
    ///
    /// There is no such field.
    fn pruned(&self, fields: &[Vec<String>]) -> Result<Arc<dyn ReadValue>, SchemaError>;
}

/// A decoded column.
#[derive(Debug)]
pub struct Decoded {
    /// One row for each value; null for null values and for those with a reason.
    pub column: ArrayRef,
    /// Rows that cannot be decoded, ascending, and why.
    pub reasons: Vec<(usize, Reason)>,
}

/// Decodes a column of binary, large binary, views of binary, or fixed-size binary.
///
/// # Errors
///
/// The column is of another type.
pub fn decode(reader: &dyn ReadValue, values: &dyn Array) -> Result<Decoded, ArrowError> {
    let mut rows = Rows::new(reader.data_type(), values.len());
    rows.column.check_at_the_end();
    each_value(values, |value| rows.append(reader, value))?;
    if let Ok(decoded) = rows.finish(reader.data_type()) {
        return Ok(decoded);
    }
    // a string is not UTF-8, and its row is to be found
    let mut rows = Rows::new(reader.data_type(), values.len());
    each_value(values, |value| rows.append(reader, value))?;
    rows.finish(reader.data_type())
}

/// Calls `each` with every value of a column of bytes.
pub(crate) fn each_value<'a>(values: &'a dyn Array, each: impl FnMut(Option<&'a [u8]>)) -> Result<(), ArrowError> {
    match values.data_type() {
        DataType::Binary => values.as_binary::<i32>().iter().for_each(each),
        DataType::LargeBinary => values.as_binary::<i64>().iter().for_each(each),
        DataType::BinaryView => values.as_binary_view().iter().for_each(each),
        DataType::FixedSizeBinary(_) => values.as_fixed_size_binary().iter().for_each(each),
        DataType::Null => std::iter::repeat_n(None, values.len()).for_each(each),
        other => {
            return Err(ArrowError::InvalidArgumentError(format!(
                "a column of {other} has no bytes to decode"
            )));
        }
    }
    Ok(())
}

/// The rows so far.
pub(crate) struct Rows {
    column: Column,
    reasons: Vec<(usize, Reason)>,
}

impl Rows {
    pub(crate) fn new(data_type: &DataType, expected: usize) -> Self {
        Self {
            column: Column::new(data_type, expected),
            reasons: Vec::new(),
        }
    }

    /// Appends a row: a null for a null, and for a value that cannot be read.
    pub(crate) fn append(&mut self, reader: &dyn ReadValue, value: Option<&[u8]>) {
        let row = self.column.len();
        match value.map(|bytes| reader.read(bytes, &mut self.column)) {
            Some(Ok(())) => debug_assert_eq!(self.column.len(), row + 1),
            Some(Err(reason)) => {
                self.column.truncate(row);
                self.refuse(reason);
            }
            None => self.column.push_null(),
        }
    }

    /// How many there are.
    pub(crate) const fn len(&self) -> usize {
        self.column.len()
    }

    /// Appends a null for a value with a reason.
    pub(crate) fn refuse(&mut self, reason: Reason) {
        self.reasons.push((self.column.len(), reason));
        self.column.push_null();
    }

    /// The column as an array.
    pub(crate) fn finish(self, data_type: &DataType) -> Result<Decoded, ArrowError> {
        Ok(Decoded {
            column: self.column.finish(data_type)?,
            reasons: self.reasons,
        })
    }
}
