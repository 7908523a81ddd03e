//! An Arrow type as what a value of JSON is read as.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields};

use super::names::in_json;
use crate::column::Column;
use crate::reason::{SchemaError, named};

/// One part of a type.
#[derive(Debug)]
pub(crate) struct Node {
    /// As in Arrow, without dictionaries and views.
    pub(crate) data_type: DataType,
    pub(crate) parts: Parts,
    pub(crate) nullable: bool,
}

/// What a type consists of.
#[derive(Debug)]
pub(crate) enum Parts {
    None,
    Items(Box<Node>),
    Map { key: DataType, value: Box<Node> },
    Fields(Vec<(String, Node)>),
}

impl Node {
    /// The type of one part, at `path`.
    pub(crate) fn new(data_type: &DataType, nullable: bool, path: &str) -> Result<Self, SchemaError> {
        let (data_type, parts) = match data_type {
            DataType::Dictionary(_, values) if !values.is_nested() => return Self::new(values, nullable, path),
            DataType::Utf8View => (DataType::Utf8, Parts::None),
            DataType::List(item) => {
                let (item, node) = item_of(item, path)?;
                (DataType::List(item), Parts::Items(Box::new(node)))
            }
            DataType::LargeList(item) => {
                let (item, node) = item_of(item, path)?;
                (DataType::LargeList(item), Parts::Items(Box::new(node)))
            }
            DataType::FixedSizeList(item, size) => {
                let (item, node) = item_of(item, path)?;
                (DataType::FixedSizeList(item, *size), Parts::Items(Box::new(node)))
            }
            DataType::Map(entry, ordered) => return Self::of_map(data_type, entry, *ordered, nullable, path),
            DataType::Struct(fields) => {
                let mut nodes: Vec<(String, Self)> = Vec::with_capacity(fields.len());
                let mut plain = Vec::with_capacity(fields.len());
                for field in fields {
                    if plain.iter().any(|known: &FieldRef| known.name() == field.name()) {
                        let name = field.name();
                        return Err(SchemaError::Invalid(format!(
                            "a JSON object has no name twice, but the struct{} has {name:?} twice",
                            at(path)
                        )));
                    }
                    let node = Self::new(
                        field.data_type(),
                        field.is_nullable(),
                        &format!("{path}/{}", field.name()),
                    )?;
                    plain.push(retyped(field, &node));
                    nodes.push((in_json(field.name()), node));
                }
                (DataType::Struct(Fields::from(plain)), Parts::Fields(nodes))
            }
            other if is_scalar(other) => (other.clone(), Parts::None),
            other => return Err(none(other, path)),
        };
        Ok(Self {
            data_type,
            parts,
            nullable,
        })
    }

    fn of_map(
        whole: &DataType,
        entry: &FieldRef,
        ordered: bool,
        nullable: bool,
        path: &str,
    ) -> Result<Self, SchemaError> {
        let DataType::Struct(fields) = entry.data_type() else {
            return Err(none(whole, path));
        };
        let [key, value] = &fields[..] else {
            return Err(none(whole, path));
        };
        if key.data_type().is_nested() {
            return Err(SchemaError::Invalid(format!(
                "Json has no {whole}{}: the names of an object are strings",
                at(path)
            )));
        }
        let key_node = Self::new(key.data_type(), false, &format!("{path}/key"))?;
        let node = Self::new(value.data_type(), value.is_nullable(), &format!("{path}/value"))?;
        let fields = Fields::from(vec![retyped(key, &key_node), retyped(value, &node)]);
        let entry = Field::clone(entry).with_data_type(DataType::Struct(fields));
        Ok(Self {
            data_type: DataType::Map(Arc::new(entry), ordered),
            parts: Parts::Map {
                key: key_node.data_type,
                value: Box::new(node),
            },
            nullable,
        })
    }
}

fn item_of(item: &FieldRef, path: &str) -> Result<(FieldRef, Node), SchemaError> {
    let node = Node::new(item.data_type(), item.is_nullable(), &format!("{path}/items"))?;
    Ok((retyped(item, &node), node))
}

fn retyped(field: &FieldRef, node: &Node) -> FieldRef {
    Arc::new(Field::clone(field).with_data_type(node.data_type.clone()))
}

fn is_scalar(data_type: &DataType) -> bool {
    let has_no_json = matches!(
        data_type,
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_)
    );
    !has_no_json && !data_type.is_nested() && Column::has(data_type)
}

fn none(data_type: &DataType, path: &str) -> SchemaError {
    SchemaError::Invalid(format!(
        "Json has no {}{}; give another type, such as string, list or struct",
        named(data_type),
        at(path)
    ))
}

fn at(path: &str) -> String {
    if path.is_empty() {
        String::new()
    } else {
        format!(" at {path}")
    }
}
