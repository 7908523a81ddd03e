//! Annotations of types: times and decimals. An annotation that is not valid, or that has no Arrow type, is ignored, as Avro's specification says.

use arrow_schema::{DataType, TimeUnit};

use super::json::Json;

const DECIMAL128_DIGITS: u8 = 38;
const DECIMAL256_DIGITS: u8 = 76;
const DECIMAL256_BYTES: usize = 32;
const DAY_NS: i64 = 86_400 * 1_000_000_000;

/// An annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logical {
    Date,
    /// Time of day.
    Time(TimeUnit),
    /// `in_utc`: an instant; otherwise a local time.
    Timestamp {
        unit: TimeUnit,
        in_utc: bool,
    },
    Decimal {
        precision: u8,
        scale: i8,
    },
}

impl Logical {
    /// The annotation of a type of the kind `word`; `size` is that of a fixed type.
    pub fn of(word: &str, size: usize, json: &Json) -> Option<Self> {
        use TimeUnit::{Microsecond, Millisecond, Nanosecond};
        let instant = |unit| Some(Self::Timestamp { unit, in_utc: true });
        let local = |unit| Some(Self::Timestamp { unit, in_utc: false });
        let annotation = json.get("logicalType").and_then(Json::text)?;
        match (word, annotation) {
            ("bytes", "decimal") => Self::decimal(DECIMAL256_BYTES, json),
            ("fixed", "decimal") => Self::decimal(size, json),
            ("int", "date") => Some(Self::Date),
            ("int", "time-millis") => Some(Self::Time(Millisecond)),
            ("long", "time-micros") => Some(Self::Time(Microsecond)),
            ("long", "timestamp-millis") => instant(Millisecond),
            ("long", "timestamp-micros") => instant(Microsecond),
            ("long", "timestamp-nanos") => instant(Nanosecond),
            ("long", "local-timestamp-millis") => local(Millisecond),
            ("long", "local-timestamp-micros") => local(Microsecond),
            ("long", "local-timestamp-nanos") => local(Nanosecond),
            _ => None,
        }
    }

    /// A decimal, if its bytes hold as many digits, and Arrow does.
    fn decimal(size: usize, json: &Json) -> Option<Self> {
        let precision = json.get("precision").and_then(Json::int)?;
        let scale = json.get("scale").map_or(Some(0), Json::int)?;
        if !(1..=i64::from(DECIMAL256_DIGITS)).contains(&precision) || !(0..=precision).contains(&scale) || size == 0 {
            return None;
        }
        let (precision, scale) = (u8::try_from(precision).ok()?, i8::try_from(scale).ok()?);
        // 10^p <= 2^b, where b leaves out the sign; no power of ten is one of two
        let bits = 8 * size.min(DECIMAL256_BYTES) - 1;
        let holds = f64::from(precision) * std::f64::consts::LOG2_10 <= f64::from(u32::try_from(bits).ok()?);
        holds.then_some(Self::Decimal { precision, scale })
    }

    /// The Arrow type.
    pub fn data_type(self) -> DataType {
        match self {
            Self::Date => DataType::Date32,
            Self::Time(TimeUnit::Millisecond) => DataType::Time32(TimeUnit::Millisecond),
            Self::Time(unit) => DataType::Time64(unit),
            Self::Timestamp { unit, in_utc } => DataType::Timestamp(unit, in_utc.then(|| "UTC".into())),
            Self::Decimal { precision, scale } if precision <= DECIMAL128_DIGITS => {
                DataType::Decimal128(precision, scale)
            }
            Self::Decimal { precision, scale } => DataType::Decimal256(precision, scale),
        }
    }

    /// The nanoseconds of one unit of a time; `None` for decimals.
    pub const fn nanoseconds(self) -> Option<i64> {
        let unit = match self {
            Self::Date => return Some(DAY_NS),
            Self::Time(unit) | Self::Timestamp { unit, .. } => unit,
            Self::Decimal { .. } => return None,
        };
        Some(match unit {
            TimeUnit::Second => 1_000_000_000,
            TimeUnit::Millisecond => 1_000_000,
            TimeUnit::Microsecond => 1_000,
            TimeUnit::Nanosecond => 1,
        })
    }

    /// Units of a day, of which a time of day has fewer; `None` for all else.
    pub fn per_day(self) -> Option<i64> {
        match self {
            Self::Time(_) => self.nanoseconds().map(|unit| DAY_NS / unit),
            _ => None,
        }
    }

    /// The annotation's name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Date => "date",
            Self::Time(TimeUnit::Millisecond) => "time-millis",
            Self::Time(_) => "time-micros",
            Self::Timestamp { unit, in_utc: true } => match unit {
                TimeUnit::Millisecond => "timestamp-millis",
                TimeUnit::Nanosecond => "timestamp-nanos",
                _ => "timestamp-micros",
            },
            Self::Timestamp { unit, in_utc: false } => match unit {
                TimeUnit::Millisecond => "local-timestamp-millis",
                TimeUnit::Nanosecond => "local-timestamp-nanos",
                _ => "local-timestamp-micros",
            },
            Self::Decimal { .. } => "decimal",
        }
    }
}
