//! A value of JSON -> a row of a column.

use std::sync::Arc;

use arrow_schema::{DataType, FieldRef, Fields};

use super::check::refused;
use super::node::{Node, Parts};
use super::scalar::{another, push_key, push_number, push_text};
use super::text::{Kind, NotJson, Text};
use crate::column::{Column, Values};
use crate::decode::ReadValue;
use crate::keep::Keep;
use crate::reason::{Reason, SchemaError, named};

/// Reads JSON values as one Arrow type.
#[derive(Debug)]
pub struct JsonReader {
    root: Node,
    refuses_other_fields: bool,
}

impl JsonReader {
    /// For values of `data_type`; dictionaries and views in it are read as the types of their values.
    ///
    /// # Errors
    ///
    /// A part of the type has no JSON, or a struct a name twice.
    pub fn new(data_type: &DataType) -> Result<Self, SchemaError> {
        Ok(Self {
            root: Node::new(data_type, true, "")?,
            refuses_other_fields: false,
        })
    }

    /// A value with a field that the type lacks is malformed; otherwise the field is left out.
    #[must_use]
    pub fn refusing_other_fields(mut self) -> Self {
        self.refuses_other_fields = true;
        self
    }
}

impl ReadValue for JsonReader {
    fn data_type(&self) -> &DataType {
        &self.root.data_type
    }

    fn read(&self, bytes: &[u8], into: &mut Column) -> Result<(), Reason> {
        let read = Text::new(bytes).map_err(Fault::from).and_then(|mut text| {
            text.refuses_other_fields = self.refuses_other_fields;
            value(&self.root, &mut text, into)?;
            Ok(text.end()?)
        });
        read.map_err(|fault| {
            let is_not_json = refused(bytes);
            let place = fault.path.iter().rev().map(String::as_str).collect::<Vec<_>>().concat();
            let at = if place.is_empty() {
                String::new()
            } else {
                format!(" at {place}")
            };
            Reason::from(is_not_json.unwrap_or_else(|| format!("{}{at}", fault.text)))
        })
    }

    fn pruned(&self, fields: &[Vec<String>]) -> Result<Arc<dyn ReadValue>, SchemaError> {
        Ok(Arc::new(Self::new(&pruned(&self.root.data_type, &Keep::of(fields))?)?))
    }
}

/// A type with these fields alone, in its own order.
fn pruned(data_type: &DataType, keep: &Keep) -> Result<DataType, SchemaError> {
    if keep.is_all() {
        return Ok(data_type.clone());
    }
    let of = |field: &FieldRef| {
        let inner = pruned(field.data_type(), keep)?;
        Ok::<_, SchemaError>(Arc::new(field.as_ref().clone().with_data_type(inner)))
    };
    Ok(match data_type {
        DataType::List(item) => DataType::List(of(item)?),
        DataType::LargeList(item) => DataType::LargeList(of(item)?),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(of(item)?, *size),
        DataType::Map(entries, ordered) => {
            let DataType::Struct(pair) = entries.data_type() else {
                return Err(no_fields(data_type));
            };
            let [key, value] = &pair[..] else {
                return Err(no_fields(data_type));
            };
            let pair = DataType::Struct(Fields::from(vec![Arc::clone(key), of(value)?]));
            DataType::Map(Arc::new(entries.as_ref().clone().with_data_type(pair)), *ordered)
        }
        DataType::Struct(fields) => {
            if let Some(missing) = keep.unknown(fields.iter().map(|field| field.name().as_str())) {
                let message = format!("there is no field {missing:?} in {data_type}");
                return Err(SchemaError::Invalid(message));
            }
            let mut kept = Vec::new();
            for field in fields {
                if let Some(keep) = keep.field(field.name()) {
                    let inner = pruned(field.data_type(), keep)?;
                    kept.push(field.as_ref().clone().with_data_type(inner));
                }
            }
            DataType::Struct(Fields::from(kept))
        }
        other => return Err(no_fields(other)),
    })
}

fn no_fields(data_type: &DataType) -> SchemaError {
    SchemaError::Invalid(format!("{} has no fields to choose of", named(data_type)))
}

/// Why a value is none of the type.
struct Fault {
    text: String,
    /// The place, from the inside to the outside.
    path: Vec<String>,
}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        Self { text, path: Vec::new() }
    }
}

impl From<NotJson> for Fault {
    /// What is wrong is found by `check`; this is shown only if that finds nothing.
    fn from(_: NotJson) -> Self {
        Self::from("not JSON".to_owned())
    }
}

impl From<Reason> for Fault {
    fn from(reason: Reason) -> Self {
        Self::from(reason.to_string())
    }
}

impl Fault {
    fn within(mut self, name: &str) -> Self {
        self.path.push(format!("/{name}"));
        self
    }
}

fn value(node: &Node, text: &mut Text<'_>, into: &mut Column) -> Result<(), Fault> {
    let kind = text.kind()?;
    match kind {
        Kind::Null => {
            text.null()?;
            if !node.nullable {
                return Err(Fault::from("it must not be null".to_owned()));
            }
            into.push_null();
            return Ok(());
        }
        Kind::Boolean => {
            let is_true = text.boolean()?;
            match &mut into.values {
                Values::Boolean(bits) => bits.append(is_true),
                _ => return Err(another(&node.data_type, kind).into()),
            }
        }
        Kind::Number => push_number(&node.data_type, text.number()?, into)?,
        Kind::String => push_text(&node.data_type, &text.string()?, into)?,
        Kind::Array => array(node, text, into)?,
        Kind::Object => object(node, text, into)?,
    }
    into.push_valid();
    Ok(())
}

fn array(node: &Node, text: &mut Text<'_>, into: &mut Column) -> Result<(), Fault> {
    let Parts::Items(item) = &node.parts else {
        return Err(another(&node.data_type, Kind::Array).into());
    };
    match &mut into.values {
        Values::List(list) => {
            items(item, text, &mut list.items)?;
            list.close()?;
        }
        Values::LargeList(list) => {
            items(item, text, &mut list.items)?;
            list.close()?;
        }
        Values::FixedList { size, items: into } => {
            let before = into.len();
            items(item, text, into)?;
            let found = into.len() - before;
            if found != *size {
                return Err(Fault::from(format!("a list has {found} items, the type has {size}")));
            }
        }
        _ => return Err(another(&node.data_type, Kind::Array).into()),
    }
    Ok(())
}

fn items(item: &Node, text: &mut Text<'_>, into: &mut Column) -> Result<(), Fault> {
    text.open()?;
    let mut is_first = true;
    while text.more(is_first, b']')? {
        value(item, text, into).map_err(|fault| fault.within("items"))?;
        is_first = false;
    }
    Ok(())
}

fn object(node: &Node, text: &mut Text<'_>, into: &mut Column) -> Result<(), Fault> {
    let row = into.len();
    match (&node.parts, &mut into.values) {
        (Parts::Fields(fields), Values::Struct(columns)) => members(fields, text, row, columns),
        (Parts::Map { key, value }, Values::List(list)) => {
            let Values::Struct(columns) = &mut list.items.values else {
                return Err(another(&node.data_type, Kind::Object).into());
            };
            let [keys, values] = &mut columns[..] else {
                return Err(another(&node.data_type, Kind::Object).into());
            };
            let count = entries(key, value, text, keys, values)?;
            (0..count).for_each(|_| list.items.push_valid());
            Ok(list.close()?)
        }
        _ => Err(another(&node.data_type, Kind::Object).into()),
    }
}

/// The place of a name among fields. Members come mostly in the order of the fields, so the expected place is looked at first.
pub(super) fn place_of<T>(fields: &[(String, T)], name: &str, expected: usize) -> Option<usize> {
    match fields.get(expected) {
        Some((field, _)) if field == name => Some(expected),
        _ => fields.iter().position(|(field, _)| field == name),
    }
}

fn members(fields: &[(String, Node)], text: &mut Text<'_>, row: usize, columns: &mut [Column]) -> Result<(), Fault> {
    text.open()?;
    let mut is_first = true;
    let mut expected = 0;
    while text.more(is_first, b'}')? {
        is_first = false;
        let name = text.name()?;
        let Some(at) = place_of(fields, &name, expected) else {
            if text.refuses_other_fields {
                let names: Vec<&str> = fields.iter().map(|(field, _)| field.as_str()).collect();
                return Err(Fault::from(format!(
                    "there is no field {name:?} (there are {})",
                    names.join(", ")
                )));
            }
            text.skip()?;
            continue;
        };
        expected = at + 1;
        if columns[at].len() > row {
            return Err(Fault::from(format!("the object has the name {name:?} twice")));
        }
        value(&fields[at].1, text, &mut columns[at]).map_err(|fault| fault.within(&name))?;
    }
    for ((name, field), column) in fields.iter().zip(columns) {
        if column.len() == row {
            if !field.nullable {
                return Err(Fault::from("it must not be null, and is missing".to_owned()).within(name));
            }
            column.push_null();
        }
    }
    Ok(())
}

/// Reads the members of an object as a map, and returns how many there are.
fn entries(
    key: &DataType,
    item: &Node,
    text: &mut Text<'_>,
    keys: &mut Column,
    values: &mut Column,
) -> Result<usize, Fault> {
    text.open()?;
    let mut seen = std::collections::HashSet::new();
    while text.more(seen.is_empty(), b'}')? {
        let name = text.name()?;
        push_key(key, &name, keys)?;
        value(item, text, values).map_err(|fault| fault.within("value"))?;
        if let Some(twice) = seen.replace(name) {
            return Err(Fault::from(format!("a map has the key {twice:?} twice")));
        }
    }
    Ok(seen.len())
}
