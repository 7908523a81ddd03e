//! Why a value or a schema was refused.

use std::borrow::Cow;

use arrow_schema::{DataType, TimeUnit};

/// Why one value cannot be read or written: a sentence without a full stop, for the people who look for the producer's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Reason(pub Cow<'static, str>);

impl Reason {
    /// A reason that needs no value.
    #[must_use]
    pub const fn plain(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text))
    }
}

/// A schema that is none, that has no Arrow type, or that cannot be read as the reader's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// Not a schema, or none with an Arrow type: what is wrong, and where.
    #[error("{0}")]
    Invalid(String),
    /// No value of the writer's schema can be read by the reader's.
    #[error("{0}")]
    Unresolvable(String),
}

/// A type as Arrow's documentation and pyarrow name it; nested ones without what is in them.
pub(crate) fn named(data_type: &DataType) -> String {
    let unit = |unit: &TimeUnit| match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    };
    match data_type {
        DataType::Boolean => "bool".to_owned(),
        DataType::Utf8 => "string".to_owned(),
        DataType::LargeUtf8 => "large_string".to_owned(),
        DataType::LargeBinary => "large_binary".to_owned(),
        DataType::FixedSizeBinary(size) => format!("fixed_size_binary[{size}]"),
        DataType::Float16 => "halffloat".to_owned(),
        DataType::Float32 => "float".to_owned(),
        DataType::Float64 => "double".to_owned(),
        DataType::Date32 => "date32[day]".to_owned(),
        DataType::Date64 => "date64[ms]".to_owned(),
        DataType::Time32(u) => format!("time32[{}]", unit(u)),
        DataType::Time64(u) => format!("time64[{}]", unit(u)),
        DataType::Duration(u) => format!("duration[{}]", unit(u)),
        DataType::Timestamp(u, None) => format!("timestamp[{}]", unit(u)),
        DataType::Timestamp(u, Some(zone)) => format!("timestamp[{}, tz={zone}]", unit(u)),
        DataType::Decimal32(precision, scale) => format!("decimal32({precision}, {scale})"),
        DataType::Decimal64(precision, scale) => format!("decimal64({precision}, {scale})"),
        DataType::Decimal128(precision, scale) => format!("decimal128({precision}, {scale})"),
        DataType::Decimal256(precision, scale) => format!("decimal256({precision}, {scale})"),
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => "list".to_owned(),
        DataType::Struct(_) => "struct".to_owned(),
        DataType::Map(..) => "map".to_owned(),
        other => {
            let name = other.to_string();
            name.split('(').next().unwrap_or_default().to_lowercase()
        }
    }
}
