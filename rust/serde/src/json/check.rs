//! Why bytes are not exactly one JSON value, in the words of a full parser.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::de::SliceRead;
use serde_json::error::Category;

/// Why bytes are not exactly one JSON value; `None` if they are one.
#[must_use]
pub fn refused(value: &[u8]) -> Option<String> {
    let mut json = serde_json::Deserializer::new(SliceRead::new(value));
    let error = Valid::deserialize(&mut json).and_then(|Valid| json.end()).err()?;
    if std::str::from_utf8(value).is_err() {
        return Some("not JSON: it is not UTF-8".to_owned());
    }
    Some(match error.classify() {
        Category::Eof if value.iter().all(u8::is_ascii_whitespace) => "not JSON: it is empty".to_owned(),
        _ => format!("not JSON: {error}"),
    })
}

/// Any JSON value, checked and dropped. Unlike `serde::de::IgnoredAny` it checks UTF-8 and is bound to a depth.
struct Valid;

impl<'de> Deserialize<'de> for Valid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Valid {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<Self>()?.is_some() {}
        Ok(self)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}
