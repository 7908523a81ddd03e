//! The columns that a user wants to produce, of any suitable Arrow types.

mod bytes_column;
mod error;
mod headers_column;
#[cfg(test)]
mod tests;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrowPrimitiveType, PrimitiveArray, RecordBatch};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, TimeUnit};
use fletchlog_records::NO_TIMESTAMP;

use bytes_column::BytesColumn;
pub use error::ImportError;
use error::wrong_type;
use headers_column::HeadersColumn;

/// Columns of Spark's kafka source that a producer has no use for: the log decides them.
const IGNORED: [&str; 3] = ["topic", "offset", "timestampType"];
/// What is read.
const ACCEPTED: &str = "value, key, partition, timestamp, headers (topic, offset and timestampType are ignored)";
/// Types of value and key.
const BYTES_TYPES: &str =
    "Binary, LargeBinary, BinaryView, FixedSizeBinary, Utf8, LargeUtf8, Utf8View, a Dictionary of these, Null";

/// Numbers with nulls.
#[derive(Debug, Clone)]
struct Numbers<T: arrow_buffer::ArrowNativeType> {
    values: ScalarBuffer<T>,
    nulls: Option<NullBuffer>,
}

impl<T: arrow_buffer::ArrowNativeType> Numbers<T> {
    #[inline]
    fn get(&self, row: usize) -> Option<T> {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return None;
        }
        self.values.get(row).copied()
    }
}

/// One Arrow batch whose columns were checked and can be read row by row without checking their types.
#[derive(Debug, Clone)]
pub struct ProducerBatch {
    rows: usize,
    value: BytesColumn,
    key: Option<BytesColumn>,
    partition: Option<Numbers<i32>>,
    timestamp: Option<Numbers<i64>>,
    headers: Option<HeadersColumn>,
}

impl ProducerBatch {
    /// Checks names and types and keeps the buffers (nothing is copied except partition and timestamp columns that need
    /// converting).
    ///
    /// | column    | types                                                                                      |
    /// |-----------|--------------------------------------------------------------------------------------------|
    /// | value     | required; any binary or string type, a dictionary of one, or Null                          |
    /// | key       | the same                                                                                   |
    /// | partition | any integer type; null: the partitioner decides                                            |
    /// | timestamp | Timestamp of any unit (to milliseconds, rounded down) or Int64 milliseconds; null, -1: now  |
    /// | headers   | List or LargeList of Struct(key, value), or Map; keys strings, values binary or strings    |
    ///
    /// # Errors
    /// A missing, unknown, doubled or wrongly typed column; a partition outside 32 bits; a null header key.
    pub fn try_new(batch: &RecordBatch) -> Result<Self, ImportError> {
        let mut columns: [Option<&dyn Array>; 5] = [None; 5];
        let names = ["value", "key", "partition", "timestamp", "headers"];
        for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
            let name = field.name().as_str();
            if IGNORED.contains(&name) {
                continue;
            }
            let Some(at) = names.iter().position(|known| *known == name) else {
                return Err(ImportError::UnknownColumn {
                    column: name.to_owned(),
                    accepted: ACCEPTED,
                });
            };
            if columns[at].replace(column.as_ref()).is_some() {
                return Err(ImportError::DuplicateColumn {
                    column: name.to_owned(),
                });
            }
        }
        let [value, key, partition, timestamp, headers] = columns;
        let value = value.ok_or(ImportError::MissingColumn {
            column: "value",
            accepted: BYTES_TYPES,
        })?;
        Ok(Self {
            rows: batch.num_rows(),
            value: bytes_column("value", value)?,
            key: key.map(|column| bytes_column("key", column)).transpose()?,
            partition: partition.map(partition_column).transpose()?,
            timestamp: timestamp.map(timestamp_column).transpose()?,
            headers: headers.map(HeadersColumn::try_new).transpose()?,
        })
    }

    /// Rows.
    #[inline]
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Value of a row, `None` = null.
    ///
    /// # Panics
    /// If `row >= len()`, like the accessors that follow.
    #[inline]
    pub fn value(&self, row: usize) -> Option<&[u8]> {
        self.value.get(row)
    }

    /// Key of a row, `None` = null or no such column.
    #[inline]
    pub fn key(&self, row: usize) -> Option<&[u8]> {
        self.key.as_ref()?.get(row)
    }

    /// Partition of a row, `None` = null or no such column.
    #[inline]
    pub fn partition(&self, row: usize) -> Option<i32> {
        self.partition.as_ref()?.get(row)
    }

    /// Milliseconds since the epoch, `None` = null, no timestamp (-1) or no such column.
    #[inline]
    pub fn timestamp(&self, row: usize) -> Option<i64> {
        let timestamp = self.timestamp.as_ref()?.get(row);
        timestamp.filter(|timestamp| *timestamp != NO_TIMESTAMP)
    }

    /// Whether it has a headers column.
    #[inline]
    pub fn has_headers(&self) -> bool {
        self.headers.is_some()
    }

    /// Replaces `out` by the headers of a row, in order.
    #[inline]
    pub fn headers<'a>(&'a self, row: usize, out: &mut Vec<(&'a str, Option<&'a [u8]>)>) {
        out.clear();
        if let Some(headers) = &self.headers {
            headers.get(row, out);
        }
    }
}

fn bytes_column(name: &'static str, column: &dyn Array) -> Result<BytesColumn, ImportError> {
    BytesColumn::try_new(column).ok_or_else(|| wrong_type(name, column, BYTES_TYPES))
}

/// Any integer type as i32.
fn partition_column(column: &dyn Array) -> Result<Numbers<i32>, ImportError> {
    fn convert<T: ArrowPrimitiveType>(column: &dyn Array) -> Result<Numbers<i32>, ImportError>
    where
        T::Native: TryInto<i32> + std::fmt::Display,
    {
        let column = column.as_primitive::<T>();
        let mut values = Vec::with_capacity(column.len());
        for (row, &value) in column.values().iter().enumerate() {
            match value.try_into() {
                Ok(value) => values.push(value),
                // The value under a null has no meaning.
                Err(_) if column.is_null(row) => values.push(0),
                Err(_) => {
                    let reason = format!("partition {value} is beyond 32 bits");
                    return Err(ImportError::InvalidValue {
                        column: "partition",
                        row,
                        reason,
                    });
                }
            }
        }
        Ok(Numbers {
            values: ScalarBuffer::from(values),
            nulls: column.nulls().cloned(),
        })
    }
    match column.data_type() {
        DataType::Int8 => convert::<Int8Type>(column),
        DataType::Int16 => convert::<Int16Type>(column),
        DataType::Int32 => Ok(numbers(column.as_primitive::<Int32Type>())),
        DataType::Int64 => convert::<Int64Type>(column),
        DataType::UInt8 => convert::<UInt8Type>(column),
        DataType::UInt16 => convert::<UInt16Type>(column),
        DataType::UInt32 => convert::<UInt32Type>(column),
        DataType::UInt64 => convert::<UInt64Type>(column),
        DataType::Null => Ok(Numbers {
            values: vec![0; column.len()].into(),
            nulls: Some(NullBuffer::new_null(column.len())),
        }),
        _ => Err(wrong_type("partition", column, "Int8 to Int64, UInt8 to UInt64, Null")),
    }
}

/// A timestamp of any unit, or Int64, as milliseconds.
fn timestamp_column(column: &dyn Array) -> Result<Numbers<i64>, ImportError> {
    let scaled = |numbers: Numbers<i64>, divisor: i64| {
        let values: Vec<i64> = numbers.values.iter().map(|value| value.div_euclid(divisor)).collect();
        Numbers {
            values: values.into(),
            nulls: numbers.nulls,
        }
    };
    match column.data_type() {
        DataType::Int64 => Ok(numbers(column.as_primitive::<Int64Type>())),
        DataType::Timestamp(TimeUnit::Millisecond, _) => Ok(numbers(column.as_primitive::<TimestampMillisecondType>())),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            Ok(scaled(numbers(column.as_primitive::<TimestampMicrosecondType>()), 1000))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => Ok(scaled(
            numbers(column.as_primitive::<TimestampNanosecondType>()),
            1_000_000,
        )),
        DataType::Timestamp(TimeUnit::Second, _) => {
            let seconds = numbers(column.as_primitive::<TimestampSecondType>());
            let mut values = Vec::with_capacity(seconds.values.len());
            for (row, value) in seconds.values.iter().enumerate() {
                match value.checked_mul(1000) {
                    Some(value) => values.push(value),
                    None if seconds.get(row).is_none() => values.push(0),
                    None => {
                        let reason = format!("{value} seconds are beyond 64 bits of milliseconds");
                        return Err(ImportError::InvalidValue {
                            column: "timestamp",
                            row,
                            reason,
                        });
                    }
                }
            }
            Ok(Numbers {
                values: values.into(),
                nulls: seconds.nulls,
            })
        }
        DataType::Null => Ok(Numbers {
            values: vec![0; column.len()].into(),
            nulls: Some(NullBuffer::new_null(column.len())),
        }),
        _ => Err(wrong_type(
            "timestamp",
            column,
            "Timestamp of any unit, Int64 (milliseconds), Null",
        )),
    }
}

fn numbers<T: ArrowPrimitiveType>(column: &PrimitiveArray<T>) -> Numbers<T::Native> {
    Numbers {
        values: column.values().clone(),
        nulls: column.nulls().cloned(),
    }
}
