//! A typed column -> a column of bytes.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BinaryArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType};

use crate::reason::{Reason, SchemaError};

/// What writes values of one schema.
pub trait WriteColumn: Send + Sync {
    /// The Arrow type to which a column of the type `given` is cast before it is written: that of the schema, without the fields that `given` lacks and
    /// that have a default.
    ///
    /// # Errors
    ///
    /// No column of that type can be written.
    fn column_type(&self, given: &DataType) -> Result<DataType, SchemaError>;

    /// What writes the rows of `column`, whose type is one of [`WriteColumn::column_type`].
    ///
    /// # Errors
    ///
    /// It is of another type.
    fn writer<'a>(&'a self, column: &'a dyn Array) -> Result<Box<dyn WriteValue + 'a>, SchemaError>;
}

/// What writes the rows of one array.
pub trait WriteValue {
    /// Appends the bytes of the value in a row, which is not null.
    ///
    /// # Errors
    ///
    /// The format has no such value. What was appended of it is taken back by the caller.
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Reason>;
}

/// An encoded column.
#[derive(Debug)]
pub struct Encoded {
    /// Binary; null for null rows and for those with a reason.
    pub column: ArrayRef,
    /// Rows that cannot be encoded, ascending, and why.
    pub reasons: Vec<(usize, Reason)>,
}

/// Bytes of a value that are expected.
const EXPECTED: usize = 16;

/// Encodes a column.
///
/// # Errors
///
/// It is of a type that cannot be written, or the bytes are more than 2 GiB: what a column of binary holds.
pub fn encode(schema: &dyn WriteColumn, values: &dyn Array) -> Result<Encoded, ArrowError> {
    let writer = schema
        .writer(values)
        .map_err(|error| ArrowError::ExternalError(Box::new(error)))?;
    let mut out = Vec::with_capacity(values.len().saturating_mul(EXPECTED));
    let mut offsets = Vec::with_capacity(values.len() + 1);
    offsets.push(0);
    let mut validity = NullBufferBuilder::new(values.len());
    let mut reasons = Vec::new();
    let nulls = values.logical_nulls();
    for row in 0..values.len() {
        let is_valid = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        let begin = out.len();
        let written = is_valid
            && match writer.write(row, &mut out) {
                Ok(()) => true,
                Err(reason) => {
                    out.truncate(begin);
                    reasons.push((row, reason));
                    false
                }
            };
        validity.append(written);
        let end = i32::try_from(out.len());
        offsets.push(end.map_err(|_| ArrowError::OffsetOverflowError(out.len()))?);
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    let column = BinaryArray::try_new(offsets, out.into(), validity.finish())?;
    Ok(Encoded {
        column: Arc::new(column),
        reasons,
    })
}
