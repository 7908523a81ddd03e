//! Avro's binary encoding of single values, without a header.
//!
//! [`schema`] parses a schema, [`plan`] makes of a writer's and a reader's the steps by which [`read`] fills columns.

mod bad;
mod cursor;
mod default;
mod json;
mod logical;
mod number;
mod plan;
mod read;
mod schema;
mod types;
mod varint;
mod write;
mod write_types;

use std::sync::Arc;

use arrow_array::Array;
use arrow_schema::DataType;

use self::cursor::Cursor;
use self::read::Step;
use self::schema::Schema;
use crate::column::Column;
use crate::decode::ReadValue;
use crate::encode::{WriteColumn, WriteValue};
use crate::keep::{self, Keep};
use crate::reason::{Reason, SchemaError};

/// Whether a value of a schema takes memory in proportion to its bytes: no type contains itself, and none that takes no bytes is repeated, as the records of
/// a file are.
///
/// # Errors
///
/// Not an Avro schema, or one with more than 100,000 types once its names are replaced.
pub fn is_bounded(schema: &str) -> Result<bool, SchemaError> {
    Ok(Schema::parse(schema)?.is_bounded())
}

/// Reads values of one Avro schema.
#[derive(Debug)]
pub struct AvroReader {
    writer: Arc<Schema>,
    reader: Arc<Schema>,
    data_type: DataType,
    steps: Step,
}

impl AvroReader {
    /// Values of the schema `writer`, resolved to `reader` if there is one: JSON texts.
    ///
    /// # Errors
    ///
    /// Not an Avro schema, one without an Arrow type, one with more than 100,000 types once its names are replaced, a default that is not of its type, or two
    /// by which no value can be read.
    pub fn new(writer: &str, reader: Option<&str>) -> Result<Self, SchemaError> {
        let written = Arc::new(Schema::parse(writer)?);
        let wanted = match reader {
            Some(text) => {
                let wanted = Arc::new(Schema::parse(text)?);
                plan::check_defaults(&wanted)?;
                if text == writer { Arc::clone(&written) } else { wanted }
            }
            None => Arc::clone(&written),
        };
        Self::of(written, wanted, &keep::ALL)
    }

    fn of(writer: Arc<Schema>, reader: Arc<Schema>, keep: &Keep) -> Result<Self, SchemaError> {
        let data_type = types::data_type(&reader, keep)?;
        let steps = plan::plan(&writer, &reader, keep)?;
        Ok(Self {
            writer,
            reader,
            data_type,
            steps,
        })
    }
}

impl ReadValue for AvroReader {
    fn data_type(&self) -> &DataType {
        &self.data_type
    }

    fn read(&self, bytes: &[u8], into: &mut Column) -> Result<(), Reason> {
        let mut cursor = Cursor::new(bytes);
        let read = read::run(&self.steps, &mut cursor, into).and_then(|()| match cursor.left() {
            0 => Ok(()),
            left => Err(bad::Bad::no_value(format!("{left} bytes are left after the value"))),
        });
        read.map_err(|bad| bad.reason(bytes))
    }

    fn pruned(&self, fields: &[Vec<String>]) -> Result<Arc<dyn ReadValue>, SchemaError> {
        let (writer, reader) = (Arc::clone(&self.writer), Arc::clone(&self.reader));
        Ok(Arc::new(Self::of(writer, reader, &Keep::of(fields))?))
    }
}

/// Writes values of one Avro schema.
#[derive(Debug)]
pub struct AvroWriter {
    schema: Schema,
}

impl AvroWriter {
    /// Values of a schema: JSON text.
    ///
    /// # Errors
    ///
    /// Not an Avro schema, or one with more than 100,000 types once its names are replaced.
    pub fn new(schema: &str) -> Result<Self, SchemaError> {
        Ok(Self {
            schema: Schema::parse(schema)?,
        })
    }
}

impl WriteColumn for AvroWriter {
    fn column_type(&self, given: &DataType) -> Result<DataType, SchemaError> {
        write_types::column_type(&self.schema, given)
    }

    fn writer<'a>(&'a self, column: &'a dyn Array) -> Result<Box<dyn WriteValue + 'a>, SchemaError> {
        Ok(Box::new(write::writer(&self.schema, column)?))
    }
}

#[cfg(test)]
mod tests;
