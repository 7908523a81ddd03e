//! The columns of Spark's kafka source.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

/// The schema of everything this crate exports, exactly that of Spark's kafka source.
///
/// | column        | type                                     | null when                                     |
/// |---------------|------------------------------------------|-----------------------------------------------|
/// | key           | Binary                                   | the key is null                               |
/// | value         | Binary                                   | the value is null (a tombstone)               |
/// | topic         | Utf8                                     | never                                         |
/// | partition     | Int32                                    | never                                         |
/// | offset        | Int64                                    | never                                         |
/// | timestamp     | Timestamp(Microsecond, "UTC")            | it is beyond 64 bits of microseconds; no timestamp (-1) stays -1 ms, as in Spark |
/// | timestampType | Int32                                    | never; -1 none, 0 CreateTime, 1 LogAppendTime |
/// | headers       | List<element: Struct<key: Utf8, value: Binary>> | the record has no headers; only when asked for |
///
/// All fields are declared nullable, as Spark declares them.
pub fn kafka_schema(include_headers: bool) -> SchemaRef {
    let mut fields = vec![
        Field::new("key", DataType::Binary, true),
        Field::new("value", DataType::Binary, true),
        Field::new("topic", DataType::Utf8, true),
        Field::new("partition", DataType::Int32, true),
        Field::new("offset", DataType::Int64, true),
        Field::new(
            "timestamp",
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            true,
        ),
        Field::new("timestampType", DataType::Int32, true),
    ];
    if include_headers {
        fields.push(Field::new("headers", DataType::List(header_element()), true));
    }
    Arc::new(Schema::new(fields))
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
