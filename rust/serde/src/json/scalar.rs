//! Texts and numbers of JSON as single values of Arrow's types, appended to a column.

use std::fmt::Display;
use std::str::FromStr;

use arrow_array::types::{ArrowPrimitiveType, Float16Type};
use arrow_buffer::i256;
use arrow_schema::DataType;

use super::text::{Kind, Number};
use super::{decimal, iso8601};
use crate::column::{Column, Values};
use crate::reason::named;

type Half = <Float16Type as ArrowPrimitiveType>::Native;

/// Of the largest whole number.
const MOST_DIGITS: u8 = 20;

/// Why a value is none of its type, without the place.
pub(crate) type Fault = String;

/// The text of another kind of value than the type has.
pub(crate) fn another(data_type: &DataType, kind: Kind) -> Fault {
    format!("{} where the type is {}", kind.described(), named(data_type))
}

/// Appends a number.
pub(crate) fn push_number(data_type: &DataType, number: Number<'_>, into: &mut Column) -> Result<(), Fault> {
    let text = number.text;
    match (&mut into.values, data_type) {
        (Values::Int64(numbers), DataType::Int64) => numbers.push(whole(number, data_type)?),
        (Values::Float64(numbers), _) => {
            let parsed: f64 = text.parse().map_err(|_| beyond(text, data_type))?;
            numbers.push(
                Some(parsed)
                    .filter(|parsed| parsed.is_finite())
                    .ok_or_else(|| beyond(text, data_type))?,
            );
        }
        (Values::Float32(numbers), _) => {
            let parsed: f32 = text.parse().map_err(|_| beyond(text, data_type))?;
            numbers.push(
                Some(parsed)
                    .filter(|parsed| parsed.is_finite())
                    .ok_or_else(|| beyond(text, data_type))?,
            );
        }
        (Values::Int16(bits), DataType::Float16) => {
            let parsed = Half::from_f64(text.parse().map_err(|_| beyond(text, data_type))?);
            let parsed = Some(parsed)
                .filter(|parsed| parsed.is_finite())
                .ok_or_else(|| beyond(text, data_type))?;
            bits.push(parsed.to_bits().cast_signed());
        }
        (_, DataType::Utf8 | DataType::LargeUtf8 | DataType::Boolean | DataType::Null | DataType::Timestamp(..)) => {
            return Err(another(data_type, Kind::Number));
        }
        (Values::Int8(numbers), _) => numbers.push(whole(number, data_type)?),
        (Values::Int16(numbers), _) => numbers.push(whole(number, data_type)?),
        (Values::UInt8(numbers), _) => numbers.push(whole(number, data_type)?),
        (Values::UInt16(numbers), _) => numbers.push(whole(number, data_type)?),
        (Values::UInt32(numbers), _) => numbers.push(whole(number, data_type)?),
        (Values::UInt64(numbers), _) => numbers.push(whole(number, data_type)?),
        (
            _,
            DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) | DataType::Decimal256(..),
        ) => {
            push_decimal(data_type, text, into)?;
        }
        (Values::Int32(numbers), _) => numbers.push(in_range(whole::<i32>(number, data_type)?.into(), data_type)?),
        (Values::Int64(numbers), _) => numbers.push(in_range(whole(number, data_type)?, data_type)?),
        (_, _) => return Err(another(data_type, Kind::Number)),
    }
    Ok(())
}

fn beyond(text: &str, data_type: &DataType) -> Fault {
    format!("{text} is beyond the numbers of {}", named(data_type))
}

fn whole<T: FromStr<Err: Display>>(number: Number<'_>, data_type: &DataType) -> Result<T, Fault> {
    let none = || format!("{} is no {}", number.text, named(data_type));
    if number.is_whole {
        return number.text.parse().map_err(|_| none());
    }
    // 1.0 and 1e3 are whole numbers, as JSON Schema says
    let exact = decimal::parse(number.text, MOST_DIGITS, 0).map_err(|_| none())?;
    exact.to_string().parse().map_err(|_| none())
}

/// Numbers of times must be within a day, those of date64 whole days.
fn in_range<T: TryFrom<i64>>(number: i64, data_type: &DataType) -> Result<T, Fault> {
    let is_one = match data_type {
        DataType::Time32(unit) | DataType::Time64(unit) => (0..86_400 * iso8601::per_second(*unit)).contains(&number),
        DataType::Date64 => number % 86_400_000 == 0,
        _ => true,
    };
    let none = || format!("{number} is no {}", named(data_type));
    if !is_one {
        return Err(none());
    }
    T::try_from(number).map_err(|_| none())
}

/// Appends a string.
pub(crate) fn push_text(data_type: &DataType, text: &str, into: &mut Column) -> Result<(), Fault> {
    let none = || format!("{} is no {} in ISO 8601", shown(text), named(data_type));
    match (&mut into.values, data_type) {
        (Values::Bytes(bytes), _) => bytes.push(text.as_bytes()).map_err(|reason| reason.to_string())?,
        (Values::LargeBytes(bytes), _) => bytes.push(text.as_bytes()).map_err(|reason| reason.to_string())?,
        (Values::Int32(numbers), DataType::Date32) => {
            let days = iso8601::date(text).and_then(|days| i32::try_from(days).ok());
            numbers.push(days.ok_or_else(none)?);
        }
        (Values::Int64(numbers), DataType::Date64) => {
            let days = iso8601::date(text).and_then(|days| days.checked_mul(86_400_000));
            numbers.push(days.ok_or_else(none)?);
        }
        (Values::Int32(numbers), DataType::Time32(unit)) => {
            let units = iso8601::time(text, *unit).and_then(|units| i32::try_from(units).ok());
            numbers.push(units.ok_or_else(none)?);
        }
        (Values::Int64(numbers), DataType::Time64(unit)) => numbers.push(iso8601::time(text, *unit).ok_or_else(none)?),
        (Values::Int64(numbers), DataType::Timestamp(unit, _)) => {
            numbers.push(iso8601::timestamp(text, *unit).ok_or_else(none)?);
        }
        (
            _,
            DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) | DataType::Decimal256(..),
        ) => {
            push_decimal(data_type, text, into)?;
        }
        _ => return Err(another(data_type, Kind::String)),
    }
    Ok(())
}

fn shown(text: &str) -> String {
    const MOST: usize = 60;
    let short: String = text.chars().take(MOST).collect();
    if short.len() < text.len() {
        format!("{short:?}..")
    } else {
        format!("{short:?}")
    }
}

fn push_decimal(data_type: &DataType, text: &str, into: &mut Column) -> Result<(), Fault> {
    let (DataType::Decimal32(precision, scale)
    | DataType::Decimal64(precision, scale)
    | DataType::Decimal128(precision, scale)
    | DataType::Decimal256(precision, scale)) = data_type
    else {
        return Err(another(data_type, Kind::String));
    };
    let number = decimal::parse(text, *precision, *scale)?;
    let narrow = |number: i256| number.to_i128().ok_or_else(|| beyond(text, data_type));
    match &mut into.values {
        Values::Int32(numbers) => numbers.push(i32::try_from(narrow(number)?).map_err(|_| beyond(text, data_type))?),
        Values::Int64(numbers) => numbers.push(i64::try_from(narrow(number)?).map_err(|_| beyond(text, data_type))?),
        Values::Decimal128(numbers) => numbers.push(narrow(number)?),
        Values::Decimal256(numbers) => numbers.push(number),
        _ => return Err(another(data_type, Kind::String)),
    }
    Ok(())
}

/// Appends the key of a map, which JSON has as a string: numbers and booleans as they would be written without quotes.
pub(crate) fn push_key(data_type: &DataType, text: &str, into: &mut Column) -> Result<(), Fault> {
    let none = || format!("the key {} is no {}", shown(text), named(data_type));
    match data_type {
        DataType::Boolean => {
            let is_true = match text {
                "true" => true,
                "false" => false,
                _ => return Err(none()),
            };
            if let Values::Boolean(bits) = &mut into.values {
                bits.append(is_true);
            }
        }
        DataType::Null => return Err(none()),
        _ if data_type.is_integer() || data_type.is_floating() || matches!(data_type, DataType::Duration(_)) => {
            let is_whole = text
                .strip_prefix('-')
                .unwrap_or(text)
                .bytes()
                .all(|byte| byte.is_ascii_digit());
            if !is_whole && !data_type.is_floating() {
                return Err(none());
            }
            push_number(data_type, Number { text, is_whole }, into).map_err(|_| none())?;
        }
        _ => push_text(data_type, text, into)?,
    }
    into.push_valid();
    Ok(())
}
