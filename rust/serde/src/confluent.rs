//! Confluent's wire format: what says by which schema a value was written, then the value.
//!
//! ```text
//! magic u8 = 0 | schema id i32, big-endian | value
//! magic u8 = 1 | GUID, 16 bytes            | value
//! ```
//!
//! What comes before the value may be in a header of the record instead (`__value_schema_id`, `__key_schema_id`): [`with_headers`] puts it there.
//! A column may have values of many schemas. Each is read with the reader of its own, into the same columns, in one pass.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray};
use arrow_schema::{ArrowError, DataType};

use crate::column::Column;
use crate::decode::{ReadValue, each_value};
use crate::reason::{Reason, SchemaError};

const SHOWN: usize = 5;

/// What a registry knows a schema by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SchemaId {
    /// Within a context.
    Id(i32),
    /// Everywhere.
    Guid([u8; 16]),
}

impl fmt::Display for SchemaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Guid(guid) = self else {
            let Self::Id(id) = self else { return Ok(()) };
            return write!(f, "id {id}");
        };
        f.write_str("GUID ")?;
        for (place, byte) in guid.iter().enumerate() {
            let dash = if matches!(place, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl FromStr for SchemaId {
    type Err = String;

    /// A number, or a GUID as 32 hexadecimal digits with dashes in any place.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(number) = text.parse() {
            return Ok(Self::Id(number));
        }
        let digits = text.replace('-', "");
        match u128::from_str_radix(&digits, 16) {
            Ok(bits) if digits.len() == 32 => Ok(Self::Guid(bits.to_be_bytes())),
            _ => Err(format!("{text} is no schema id: a number, or a GUID")),
        }
    }
}

/// What reads the values of one schema.
#[derive(Clone)]
pub enum OfSchema {
    /// What follows the schema id.
    Reader(Arc<dyn ReadValue>),
    /// None of them can be read: why.
    Malformed(String),
}

/// Reads values by the ids of their schemas.
pub struct ConfluentReader {
    data_type: DataType,
    /// By id.
    schemas: Vec<(SchemaId, OfSchema)>,
}

impl ConfluentReader {
    /// Values of these schemas, which all give the type `data_type`; values of others are malformed.
    ///
    /// # Errors
    ///
    /// One gives another type.
    pub fn new(data_type: DataType, mut schemas: Vec<(SchemaId, OfSchema)>) -> Result<Self, SchemaError> {
        for (id, schema) in &schemas {
            if let OfSchema::Reader(reader) = schema
                && *reader.data_type() != data_type
            {
                let other = reader.data_type();
                let message =
                    format!("schema {id} gives {other}, others {data_type}; give a reader_schema that all resolve to");
                return Err(SchemaError::Invalid(message));
            }
        }
        schemas.sort_by_key(|(id, _)| *id);
        Ok(Self { data_type, schemas })
    }
}

impl ReadValue for ConfluentReader {
    fn data_type(&self) -> &DataType {
        &self.data_type
    }

    fn read(&self, bytes: &[u8], into: &mut Column) -> Result<(), Reason> {
        let (id, rest) = id_of(bytes).ok_or_else(|| no_frame(bytes))?;
        let found = self.schemas.binary_search_by_key(&id, |(id, _)| *id);
        match found.ok().and_then(|place| self.schemas.get(place)) {
            Some((_, OfSchema::Reader(reader))) => reader.read(rest, into),
            Some((_, OfSchema::Malformed(why))) => Err(why.clone().into()),
            None => Err(format!("schema {id} is unknown").into()),
        }
    }

    fn pruned(&self, fields: &[Vec<String>]) -> Result<Arc<dyn ReadValue>, SchemaError> {
        let mut schemas = Vec::with_capacity(self.schemas.len());
        let mut data_type = self.data_type.clone();
        for (id, schema) in &self.schemas {
            let pruned = match schema {
                OfSchema::Reader(reader) => {
                    let reader = reader.pruned(fields)?;
                    data_type = reader.data_type().clone();
                    OfSchema::Reader(reader)
                }
                malformed @ OfSchema::Malformed(_) => malformed.clone(),
            };
            schemas.push((*id, pruned));
        }
        Ok(Arc::new(Self::new(data_type, schemas)?))
    }
}

/// The id that a value begins with, and what follows.
fn id_of(bytes: &[u8]) -> Option<(SchemaId, &[u8])> {
    let (magic, rest) = bytes.split_first()?;
    match magic {
        0 => {
            let (id, value) = rest.split_first_chunk()?;
            Some((SchemaId::Id(i32::from_be_bytes(*id)), value))
        }
        1 => {
            let (guid, value) = rest.split_first_chunk()?;
            Some((SchemaId::Guid(*guid), value))
        }
        _ => None,
    }
}

#[cold]
fn no_frame(bytes: &[u8]) -> Reason {
    let begin: String = bytes.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
    let begin = if begin.is_empty() { "nothing" } else { &begin };
    format!(
        "not in Confluent's wire format: magic byte 0 and four bytes of schema id expected, or 1 and the 16 of a GUID; it begins with {begin}"
    )
    .into()
}

/// The schema ids of a column of bytes, each once, in the order in which they occur.
///
/// # Errors
///
/// The column is of another type.
pub fn schema_ids(values: &dyn Array) -> Result<Vec<SchemaId>, ArrowError> {
    let (mut ids, mut seen, mut last) = (Vec::new(), HashSet::new(), None);
    each_value(values, |value| {
        let id = value.and_then(id_of).map(|(id, _)| id);
        if let Some(id) = id
            && last != Some(id)
        {
            last = Some(id);
            if seen.insert(id) {
                ids.push(id);
            }
        }
    })?;
    Ok(ids)
}

/// The values of a column of binary with what records have in the header `name` before them: the last one of each record. Null values stay null.
///
/// # Errors
///
/// `headers` is no list of structs of a string and a binary, as `include_headers=True` gives it, or the values are more than 2 GiB.
pub fn with_headers(values: &BinaryArray, headers: &dyn Array, name: &str) -> Result<ArrayRef, ArrowError> {
    let no_headers = || {
        let given = headers.data_type();
        ArrowError::InvalidArgumentError(format!(
            "the column of headers is {given}, not a list of structs of key and value"
        ))
    };
    let lists = headers.as_list_opt::<i32>().ok_or_else(no_headers)?;
    let pairs = lists.values().as_struct_opt().ok_or_else(no_headers)?;
    let [keys, contents] = pairs.columns() else {
        return Err(no_headers());
    };
    let keys = keys.as_string_opt::<i32>().ok_or_else(no_headers)?;
    let contents = contents.as_binary_opt::<i32>().ok_or_else(no_headers)?;
    let mut made = BinaryBuilder::with_capacity(values.len(), values.value_data().len());
    let mut joined = Vec::new();
    for (row, value) in values.iter().enumerate() {
        let Some(value) = value else {
            made.append_null();
            continue;
        };
        let ends = lists.offsets();
        let range = match lists.is_valid(row) {
            true => ends[row]..ends[row + 1],
            false => 0..0,
        };
        let mut numbers = range.rev().filter_map(|number| usize::try_from(number).ok());
        let found = numbers.find(|number| keys.value(*number) == name && contents.is_valid(*number));
        joined.clear();
        joined.extend_from_slice(found.map(|number| contents.value(number)).unwrap_or_default());
        joined.extend_from_slice(value);
        if i32::try_from(made.values_slice().len() + joined.len()).is_err() {
            return Err(ArrowError::OffsetOverflowError(
                made.values_slice().len() + joined.len(),
            ));
        }
        made.append_value(&joined);
    }
    Ok(Arc::new(made.finish()))
}
