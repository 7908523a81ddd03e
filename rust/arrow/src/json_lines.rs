//! A column of JSON values as lines that are safe to give to a reader of newline-delimited JSON.
//!
//! Such readers take a stream, so one malformed value could swallow its neighbours or split in two, and some neither check
//! UTF-8 nor bound the depth of nesting. Here every value is checked alone: it must be exactly one JSON value.

use std::fmt;

use arrow_array::{Array, BinaryArray};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::de::SliceRead;
use serde_json::error::Category;

const OPEN: &[u8] = b"{\"v\":";
const NULL: &[u8] = b"null";
const CLOSE: &[u8] = b"}\n";

/// The lines, and the rows that are not JSON.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct JsonLines {
    /// One line `{"v":VALUE}` per row, in row order; `{"v":null}` for null rows and for those that are not JSON. A line
    /// break inside a value (which can only be blank space) becomes a blank.
    pub lines: Vec<u8>,
    /// Rows that are not exactly one JSON value, ascending, and why.
    pub malformed: Vec<(usize, String)>,
    /// Rows so far.
    pub rows: usize,
}

impl JsonLines {
    /// Checks every value and writes its line. Values nested deeper than 128 levels count as malformed.
    pub fn append(&mut self, column: &BinaryArray) {
        let payload = column.iter().flatten().map(<[u8]>::len).sum::<usize>();
        self.lines
            .reserve(payload + column.len() * (OPEN.len() + NULL.len() + CLOSE.len()));
        for value in column {
            self.lines.extend_from_slice(OPEN);
            match value.map(|value| check(value).map(|()| value)) {
                Some(Ok(value)) => extend_on_one_line(&mut self.lines, value),
                Some(Err(reason)) => {
                    self.malformed.push((self.rows, reason));
                    self.lines.extend_from_slice(NULL);
                }
                None => self.lines.extend_from_slice(NULL),
            }
            self.lines.extend_from_slice(CLOSE);
            self.rows += 1;
        }
    }
}

fn extend_on_one_line(lines: &mut Vec<u8>, value: &[u8]) {
    let start = lines.len();
    lines.extend_from_slice(value);
    for byte in &mut lines[start..] {
        if matches!(*byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
}

fn check(value: &[u8]) -> Result<(), String> {
    let mut json = serde_json::Deserializer::new(SliceRead::new(value));
    Valid::deserialize(&mut json)
        .and_then(|Valid| json.end())
        .map_err(|error| match error.classify() {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json_lines(column: &BinaryArray) -> JsonLines {
        let mut out = JsonLines::default();
        out.append(column);
        out
    }

    fn lines_of(values: &[Option<&[u8]>]) -> (String, Vec<usize>) {
        let out = json_lines(&BinaryArray::from_iter(values.iter().copied()));
        let rows = out.malformed.iter().map(|(row, _)| *row).collect();
        (String::from_utf8(out.lines).unwrap(), rows)
    }

    #[test]
    fn every_row_is_one_line_whatever_it_holds() {
        let (lines, malformed) = lines_of(&[
            Some(b"{\"a\":\n\r1}"),
            None,
            Some(b"[1, \"x\\n\"]"),
            Some(b"null"),
            Some(b" 7 "),
        ]);
        assert_eq!(
            lines,
            "{\"v\":{\"a\":  1}}\n{\"v\":null}\n{\"v\":[1, \"x\\n\"]}\n{\"v\":null}\n{\"v\": 7 }\n"
        );
        assert!(malformed.is_empty());
    }

    #[test]
    fn what_is_not_exactly_one_json_value_is_named_and_becomes_null() {
        let deep = [b"[".repeat(200), b"]".repeat(200)].concat();
        let bad: [&[u8]; 14] = [
            b"",
            b"  \n",
            b"{",
            b"{}{}",
            b"1}{\"v\":2",
            b"1,\"v\":2",
            b"1 2",
            b"{\"a\":}",
            b"{1:2}",
            b"NaN",
            b"\"\xff\"",
            b"{\"\xff\":1}",
            b"\"a\nb\"",
            &deep,
        ];
        for value in bad {
            let (lines, malformed) = lines_of(&[Some(b"1"), Some(value), Some(b"2")]);
            assert_eq!(
                (lines.as_str(), malformed),
                ("{\"v\":1}\n{\"v\":null}\n{\"v\":2}\n", vec![1]),
                "{value:?}"
            );
        }
    }

    #[test]
    fn a_reason_says_where() {
        let out = json_lines(&BinaryArray::from_iter([Some(&b"{\"a\": x}"[..]), Some(b"")]));
        assert_eq!(
            out.malformed,
            [
                (0, "not JSON: expected value at line 1 column 7".to_owned()),
                (1, "not JSON: it is empty".to_owned())
            ]
        );
    }

    proptest! {
        #[test]
        fn a_value_passes_if_and_only_if_a_full_parser_takes_it(value in r#"[\[\]{}:,"0-9a-z \\\n-]{0,12}"#) {
            let bytes = value.as_bytes();
            let (lines, malformed) = lines_of(&[Some(bytes)]);
            prop_assert_eq!(malformed.is_empty(), serde_json::from_slice::<serde_json::Value>(bytes).is_ok());
            prop_assert_eq!(lines.matches('\n').count(), 1);
            prop_assert!(serde_json::from_str::<serde_json::Value>(&lines).is_ok());
        }
    }
}
