//! The Arrow type that a column of JSON values shows, and the values as it.

use arrow_array::Array;
use arrow_schema::{ArrowError, DataType, Field, TimeUnit};

use super::check::refused;
use super::iso8601;
use super::names::in_type;
use super::read::{JsonReader, place_of};
use super::text::{Kind, NotJson, Text};
use crate::decode::{Decoded, Rows, each_value};
use crate::reason::Reason;

/// Decodes a column as the type of the longest beginning of it whose values agree.
///
/// Whole numbers are int64, with others or larger ones among them double; strings are timestamp\[s\] if all of them are one in ISO 8601. A value that
/// contradicts itself is left out, and malformed; values that do not fit the type are malformed.
///
/// # Errors
///
/// The column has no bytes.
pub fn decode_inferred(values: &dyn Array) -> Result<Decoded, ArrowError> {
    let mut guesses = Guesses::default();
    each_value(values, |value| guesses.add(value))?;
    let data_type = guesses.type_so_far.map_or(DataType::Null, |guess| guess.data_type());
    let reader = JsonReader::new(&data_type).map_err(|error| ArrowError::ExternalError(Box::new(error)))?;
    let mut rows = Rows::new(&data_type, values.len());
    let mut left_out = guesses.left_out.into_iter().peekable();
    each_value(values, |value| match left_out.next_if(|(row, _)| *row == rows.len()) {
        Some((_, reason)) => rows.refuse(reason),
        None => rows.append(&reader, value),
    })?;
    rows.finish(&data_type)
}

#[derive(Default)]
struct Guesses {
    type_so_far: Option<Guess>,
    /// Rows that contradict themselves.
    left_out: Vec<(usize, Reason)>,
    /// A value has contradicted those before it.
    is_decided: bool,
    rows: usize,
}

impl Guesses {
    fn add(&mut self, value: Option<&[u8]>) {
        let row = self.rows;
        self.rows += 1;
        let Some(bytes) = value else { return };
        let fits = self
            .type_so_far
            .as_ref()
            .is_some_and(|guess| whole(bytes, |text| guess.fits(text)) == Some(true));
        if fits {
            return;
        }
        let Ok(mut text) = Text::new(bytes) else { return };
        // decoding reports what is not JSON
        match Guess::of(&mut text) {
            Ok(guess) if !self.is_decided && text.end().is_ok() => {
                let merged = match &self.type_so_far {
                    Some(so_far) => so_far.merged(&guess),
                    None => Some(guess),
                };
                match merged {
                    Some(merged) => self.type_so_far = Some(merged),
                    None => self.is_decided = true,
                }
            }
            Err(Contradiction::Of(reason)) if refused(bytes).is_none() => self.left_out.push((row, reason)),
            _ => {}
        }
    }
}

/// What `read` makes of exactly one value.
fn whole<'a, T>(bytes: &'a [u8], read: impl FnOnce(&mut Text<'a>) -> Result<T, NotJson>) -> Option<T> {
    let mut text = Text::new(bytes).ok()?;
    let made = read(&mut text).ok()?;
    text.end().ok()?;
    Some(made)
}

#[derive(Debug, Clone)]
enum Guess {
    Null,
    Boolean,
    Whole,
    Number,
    Timestamp,
    String,
    List(Box<Self>),
    Struct(Vec<(String, Self)>),
}

enum Contradiction {
    NotJson,
    Of(Reason),
}

impl From<NotJson> for Contradiction {
    fn from(_: NotJson) -> Self {
        Self::NotJson
    }
}

impl Guess {
    fn data_type(&self) -> DataType {
        match self {
            Self::Null => DataType::Null,
            Self::Boolean => DataType::Boolean,
            Self::Whole => DataType::Int64,
            Self::Number => DataType::Float64,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Second, None),
            Self::String => DataType::Utf8,
            Self::List(item) => DataType::new_list(item.data_type(), true),
            Self::Struct(fields) => {
                let fields = fields
                    .iter()
                    .map(|(name, guess)| Field::new(in_type(name), guess.data_type(), true));
                DataType::Struct(fields.collect())
            }
        }
    }

    /// Whether the next value changes nothing.
    fn fits(&self, text: &mut Text<'_>) -> Result<bool, NotJson> {
        match (text.kind()?, self) {
            (Kind::Null, _) => text.null().map(|()| true),
            (Kind::Boolean, Self::Boolean) => text.boolean().map(|_| true),
            (Kind::Number, Self::Number) => text.number().map(|_| true),
            (Kind::Number, Self::Whole) => Ok(is_whole(text.number()?)),
            (Kind::String, Self::String) => text.string().map(|_| true),
            (Kind::String, Self::Timestamp) => Ok(is_timestamp(&text.string()?)),
            (Kind::Array, Self::List(item)) => {
                text.open()?;
                let mut is_first = true;
                while text.more(is_first, b']')? {
                    if !item.fits(text)? {
                        return Ok(false);
                    }
                    is_first = false;
                }
                Ok(true)
            }
            (Kind::Object, Self::Struct(fields)) => {
                text.open()?;
                let mut seen = vec![false; fields.len()];
                let mut is_first = true;
                let mut expected = 0;
                while text.more(is_first, b'}')? {
                    is_first = false;
                    let name = text.name()?;
                    let Some(at) = place_of(fields, &name, expected) else {
                        return Ok(false);
                    };
                    expected = at + 1;
                    if std::mem::replace(&mut seen[at], true) || !fields[at].1.fits(text)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// The type of the next value alone.
    fn of(text: &mut Text<'_>) -> Result<Self, Contradiction> {
        Ok(match text.kind()? {
            Kind::Null => {
                text.null()?;
                Self::Null
            }
            Kind::Boolean => {
                text.boolean()?;
                Self::Boolean
            }
            Kind::Number if is_whole(text.number()?) => Self::Whole,
            Kind::Number => Self::Number,
            Kind::String if is_timestamp(&text.string()?) => Self::Timestamp,
            Kind::String => Self::String,
            Kind::Array => {
                text.open()?;
                let mut item = Self::Null;
                let mut is_first = true;
                while text.more(is_first, b']')? {
                    let other = Self::of(text)?;
                    item = item.merged(&other).ok_or_else(|| {
                        Contradiction::Of(Reason::from(format!(
                            "an array has values of different kinds: {} and {}",
                            item.described(),
                            other.described()
                        )))
                    })?;
                    is_first = false;
                }
                Self::List(Box::new(item))
            }
            Kind::Object => {
                text.open()?;
                let mut fields: Vec<(String, Self)> = Vec::new();
                let mut is_first = true;
                while text.more(is_first, b'}')? {
                    is_first = false;
                    let name = text.name()?.into_owned();
                    if fields.iter().any(|(field, _)| *field == name) {
                        return Err(Contradiction::Of(Reason::from(format!(
                            "the object has the name {name:?} twice"
                        ))));
                    }
                    fields.push((name, Self::of(text)?));
                }
                Self::Struct(fields)
            }
        })
    }

    /// The type of values of both; `None` if there is none.
    fn merged(&self, other: &Self) -> Option<Self> {
        Some(match (self, other) {
            (Self::Null, any) | (any, Self::Null) => any.clone(),
            (Self::Boolean, Self::Boolean) => Self::Boolean,
            (Self::Whole, Self::Whole) => Self::Whole,
            (Self::Whole | Self::Number, Self::Whole | Self::Number) => Self::Number,
            (Self::Timestamp, Self::Timestamp) => Self::Timestamp,
            (Self::Timestamp | Self::String, Self::Timestamp | Self::String) => Self::String,
            (Self::List(one), Self::List(other)) => Self::List(Box::new(one.merged(other)?)),
            (Self::Struct(fields), Self::Struct(others)) => {
                let mut merged = fields.clone();
                for (expected, (name, other)) in others.iter().enumerate() {
                    match place_of(&merged, name, expected) {
                        Some(at) => merged[at].1 = merged[at].1.merged(other)?,
                        None => merged.push((name.clone(), other.clone())),
                    }
                }
                Self::Struct(merged)
            }
            _ => return None,
        })
    }

    const fn described(&self) -> &'static str {
        match self {
            Self::Null => Kind::Null.described(),
            Self::Boolean => Kind::Boolean.described(),
            Self::Whole | Self::Number => Kind::Number.described(),
            Self::Timestamp | Self::String => Kind::String.described(),
            Self::List(_) => Kind::Array.described(),
            Self::Struct(_) => Kind::Object.described(),
        }
    }
}

fn is_whole(number: super::text::Number<'_>) -> bool {
    number.is_whole && number.text.parse::<i64>().is_ok()
}

fn is_timestamp(text: &str) -> bool {
    iso8601::timestamp(text, TimeUnit::Second).is_some()
}
