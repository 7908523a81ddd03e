//! Times and decimals: from the units and scales of a writer's schema to those of a reader's.
//!
//! Avro resolves only what is encoded, so a number of milliseconds would be read as one of microseconds. These convert, and refuse what would lose.

use arrow_buffer::i256;

use super::bad::Bad;
use super::logical::Logical;

/// A time of one unit as one of another.
#[derive(Debug, Clone, Copy)]
pub struct Convert {
    from: Logical,
    to: Logical,
    multiply: i64,
    divide: i64,
}

impl Convert {
    /// How a time is converted; `None` if one of both is none.
    pub fn new(from: Logical, to: Logical) -> Option<Self> {
        let (multiply, divide) = (from.nanoseconds()?, to.nanoseconds()?);
        Some(Self {
            from,
            to,
            multiply,
            divide,
        })
    }

    /// A number in the unit of the reader.
    pub fn of(&self, number: i64) -> Result<i64, Bad> {
        let (from, to) = (self.from.word(), self.to.word());
        if matches!(self.from, Logical::Time(_)) != matches!(self.to, Logical::Time(_)) {
            return Err(Bad::no_value(format!("a {from} is no {to}")));
        }
        let whole = i128::from(number) * i128::from(self.multiply);
        let divide = i128::from(self.divide);
        if whole.rem_euclid(divide) != 0 {
            return Err(Bad::no_value(format!("the {from} {number} is between two of {to}")));
        }
        let too_large = |_| Bad::no_value(format!("the {from} {number} is too large for {to}"));
        i64::try_from(whole.div_euclid(divide)).map_err(too_large)
    }
}

/// A time of day must be within the day.
pub fn within_day(number: i64, per_day: i64) -> Result<i64, Bad> {
    if (0..per_day).contains(&number) {
        return Ok(number);
    }
    Err(Bad::of_type(format!(
        "the time of day {number} is not within the acceptable range, 0 to {}",
        per_day - 1
    )))
}

/// The digits of a decimal, big-endian in two's complement, as those of another scale.
#[derive(Debug, Clone, Copy)]
pub struct Digits {
    /// Digits of the type.
    pub precision: u8,
    /// Places of the type.
    pub scale: i8,
    /// How many places the type has more than what was written.
    pub more_places: i8,
    /// The bytes of a fixed type.
    pub size: Option<usize>,
}

impl Digits {
    /// A decimal of at most 38 digits.
    pub fn decimal128(&self, bytes: &[u8]) -> Result<i128, Bad> {
        if self.more_places == 0
            && let Some(value) = small(bytes)
        {
            if value.unsigned_abs() < 10_u128.pow(u32::from(self.precision)) {
                return Ok(value);
            }
            return Err(self.too_many(&value.unsigned_abs().to_string(), bytes));
        }
        let value = self.decimal256(bytes)?;
        value.to_i128().ok_or_else(|| self.too_many(&magnitude(value), bytes))
    }

    /// A decimal of at most 76 digits.
    pub fn decimal256(&self, bytes: &[u8]) -> Result<i256, Bad> {
        let value = large(bytes).ok_or_else(|| self.too_many("", bytes))?;
        let value = self.scaled(value, bytes)?;
        if let Some(size) = self.size
            && self.more_places != 0
            && least_bytes(value) > size
        {
            let text = format!("a decimal has more digits than the {size} bytes of the reader schema hold");
            return Err(Bad::no_value(text));
        }
        let limit = i256::from(10).checked_pow(u32::from(self.precision));
        if limit.is_some_and(|limit| value >= limit || value <= -limit) {
            return Err(self.too_many(&magnitude(value), bytes));
        }
        Ok(value)
    }

    fn scaled(&self, value: i256, bytes: &[u8]) -> Result<i256, Bad> {
        let power = i256::from(10).checked_pow(u32::from(self.more_places.unsigned_abs()));
        let power = power.ok_or_else(|| self.too_many("", bytes))?;
        if self.more_places >= 0 {
            return value.checked_mul(power).ok_or_else(|| self.too_many("", bytes));
        }
        let rest = value.checked_rem(power).unwrap_or_default();
        if rest != i256::ZERO {
            let text = format!("a decimal has more than the {} places of the reader schema", self.scale);
            return Err(Bad::no_value(text));
        }
        Ok(value.checked_div(power).unwrap_or_default())
    }

    #[cold]
    fn too_many(&self, digits: &str, bytes: &[u8]) -> Bad {
        let size = if digits.is_empty() {
            format!("{} bytes", bytes.len())
        } else {
            format!("{} digits", digits.len())
        };
        let precision = self.precision;
        Bad::of_type(format!(
            "it has a decimal of {size}, the type has a precision of {precision}"
        ))
    }
}

fn magnitude(value: i256) -> String {
    value.to_string().trim_start_matches('-').to_owned()
}

/// Without the bytes in front that only repeat the sign.
fn trimmed(bytes: &[u8]) -> &[u8] {
    let is_negative = bytes.first().is_some_and(|first| *first >= 0x80);
    let filler = if is_negative { 0xFF } else { 0 };
    let mut rest = bytes;
    while let [first, second, ..] = rest {
        if *first != filler || (*second >= 0x80) != is_negative {
            break;
        }
        rest = &rest[1..];
    }
    rest
}

fn filled<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    let bytes = if bytes.len() > N { trimmed(bytes) } else { bytes };
    let before = N.checked_sub(bytes.len())?;
    let is_negative = bytes.first().is_some_and(|first| *first >= 0x80);
    let mut made = [if is_negative { 0xFF } else { 0 }; N];
    made[before..].copy_from_slice(bytes);
    Some(made)
}

fn small(bytes: &[u8]) -> Option<i128> {
    filled(bytes).map(i128::from_be_bytes)
}

fn large(bytes: &[u8]) -> Option<i256> {
    filled(bytes).map(i256::from_be_bytes)
}

/// The bytes of a decimal, as few as hold the sign as well.
fn least_bytes(value: i256) -> usize {
    trimmed(&value.to_be_bytes()).len()
}

/// The digits of a decimal of big-endian bytes, as few as hold the sign as well: as Java's `BigInteger.toByteArray`.
pub fn decimal_bytes(bytes: &[u8]) -> &[u8] {
    trimmed(bytes)
}

/// The digits of a decimal in `size` bytes, if they hold them.
pub fn fixed_bytes(bytes: &[u8], size: usize) -> Option<Vec<u8>> {
    let digits = trimmed(bytes);
    let before = size.checked_sub(digits.len())?;
    let filler = if digits.first().is_some_and(|first| *first >= 0x80) {
        0xFF
    } else {
        0
    };
    let mut made = vec![filler; before];
    made.extend_from_slice(digits);
    Some(made)
}
