//! The columns of Spark's kafka source.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

/// A column that this crate exports; all are columns of Spark's kafka source.
///
/// | column        | type                                     | null when                                     |
/// |---------------|------------------------------------------|-----------------------------------------------|
/// | key           | Binary                                   | the key is null                               |
/// | value         | Binary                                   | the value is null (a tombstone)               |
/// | topic         | Utf8                                     | never                                         |
/// | partition     | Int32                                    | never                                         |
/// | offset        | Int64                                    | never                                         |
/// | timestamp     | Timestamp(Microsecond, "UTC")            | the record has no timestamp (-1)              |
/// | timestampType | Int32                                    | never; -1 none, 0 CreateTime, 1 LogAppendTime |
/// | headers       | List<element: Struct<key: Utf8, value: Binary>> | the record has no headers; only when asked for |
///
/// All fields are declared nullable, as Spark declares them. A timestamp beyond 64 bits of microseconds is an error: a null
/// would mean that the record has none. [`Self::TimestampMillis`] holds every timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "see the table")]
pub enum Column {
    Key,
    Value,
    Topic,
    Partition,
    Offset,
    Timestamp,
    TimestampType,
    Headers,
    /// The column `timestamp` in milliseconds.
    TimestampMillis,
}

impl Column {
    /// All columns, in the order of the schema. [`Self::TimestampMillis`] may replace [`Self::Timestamp`].
    pub const ALL: [Self; 8] = [
        Self::Key,
        Self::Value,
        Self::Topic,
        Self::Partition,
        Self::Offset,
        Self::Timestamp,
        Self::TimestampType,
        Self::Headers,
    ];

    /// The columns of Spark's kafka source.
    pub fn of_kafka(include_headers: bool) -> &'static [Self] {
        const WITHOUT: [Column; 7] = {
            let [columns @ .., _] = Column::ALL;
            columns
        };
        if include_headers { &Self::ALL } else { &WITHOUT }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Value => "value",
            Self::Topic => "topic",
            Self::Partition => "partition",
            Self::Offset => "offset",
            Self::Timestamp | Self::TimestampMillis => "timestamp",
            Self::TimestampType => "timestampType",
            Self::Headers => "headers",
        }
    }

    pub(crate) fn data_type(self) -> DataType {
        match self {
            Self::Key | Self::Value => DataType::Binary,
            Self::Topic => DataType::Utf8,
            Self::Partition | Self::TimestampType => DataType::Int32,
            Self::Offset => DataType::Int64,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::TimestampMillis => DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())),
            Self::Headers => DataType::List(header_element()),
        }
    }
}

/// The schema of a batch with these columns, in their order.
pub fn schema_of(columns: &[Column]) -> SchemaRef {
    let field = |column: &Column| Field::new(column.name(), column.data_type(), true);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

/// Key and value of a header.
pub(crate) fn header_fields() -> Fields {
    Fields::from(vec![
        Field::new("key", DataType::Utf8, true),
        Field::new("value", DataType::Binary, true),
    ])
}

/// The item of the headers list.
pub(crate) fn header_element() -> Arc<Field> {
    Arc::new(Field::new("element", DataType::Struct(header_fields()), true))
}
