//! Confluent's message indexes: which message of its file a value is, between the schema id and the value.
//!
//! ```text
//! count    zigzag varint; 0 alone is short for the one index 0
//! index    zigzag varint, `count` times: the number of an outermost message of the file, then of a message in it, ..
//! ```

use super::descriptor::Files;
use super::wire::{put_varint, unzigzag, zigzag};
use crate::reason::{Reason, SchemaError};

const MOST_BYTES: usize = 5;

/// The indexes of a message.
#[derive(Debug)]
pub(crate) struct Indexes {
    full_name: String,
    file: String,
    path: Vec<i64>,
    /// The bytes before a value.
    prefix: Vec<u8>,
    /// The indexes of all messages of the file, with their names.
    all: Vec<(Vec<i64>, String)>,
}

impl Indexes {
    pub(crate) fn new(files: &Files, full_name: &str) -> Result<Self, SchemaError> {
        let none = || SchemaError::Invalid(format!("the descriptors have no Protobuf message {full_name}"));
        let file = files.file_of.get(full_name).ok_or_else(none)?;
        let mut all = Vec::new();
        let mut path = Vec::new();
        let mut open: Vec<(Vec<i64>, &String)> = numbered(&[], files.outermost.get(file).ok_or_else(none)?);
        while let Some((at, name)) = open.pop() {
            if name == full_name {
                path.clone_from(&at);
            }
            if let Some(message) = files.messages.get(name) {
                open.extend(numbered(&at, &message.nested));
            }
            all.push((at, name.clone()));
        }
        let mut prefix = Vec::new();
        if path == [0] {
            prefix.push(0);
        } else {
            let count = i64::try_from(path.len()).unwrap_or_default();
            for number in std::iter::once(&count).chain(&path) {
                put_varint(zigzag(*number), &mut prefix);
            }
        }
        Ok(Self {
            full_name: full_name.to_owned(),
            file: file.clone(),
            path,
            prefix,
            all,
        })
    }

    /// What is written before each value.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The bytes behind the indexes, which must be those of the message.
    pub(crate) fn rest<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], Reason> {
        if let Some(rest) = bytes.strip_prefix(self.prefix.as_slice()) {
            return Ok(rest);
        }
        let name = &self.full_name;
        let mut rest = bytes;
        let Some(found) = path(&mut rest) else {
            let what = "no message indexes of Confluent's wire format: their number and each of them, before the";
            return Err(Reason::from(format!("{what} {name}")));
        };
        if found == self.path {
            return Ok(rest);
        }
        if let Some((_, other)) = self.all.iter().find(|(at, _)| *at == found) {
            return Err(Reason::from(format!(
                "it is {other}, another message of its file than {name}"
            )));
        }
        let file = &self.file;
        let what = format!("its message indexes are {found:?}, {file} has no such message");
        Err(Reason::from(format!("{what}: are there indexes before the {name}?")))
    }
}

/// Names with their indexes, below those of the message around them.
fn numbered<'a>(outer: &[i64], names: &'a [String]) -> Vec<(Vec<i64>, &'a String)> {
    let below = |index: i64| outer.iter().copied().chain([index]).collect();
    (0..).zip(names).map(|(index, name)| (below(index), name)).collect()
}

/// The indexes that a value begins with, which are taken from it.
fn path(rest: &mut &[u8]) -> Option<Vec<i64>> {
    let count = number(rest)?;
    if count == 0 {
        return Some(vec![0]);
    }
    let mut path = Vec::new();
    for _ in 0..usize::try_from(count).ok()? {
        path.push(number(rest).filter(|index| *index >= 0)?);
    }
    Some(path)
}

/// A zigzag varint of at most five bytes.
fn number(rest: &mut &[u8]) -> Option<i64> {
    let mut bits = 0_u64;
    for index in 0..MOST_BYTES {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        bits |= u64::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            return Some(unzigzag(bits));
        }
    }
    None
}
