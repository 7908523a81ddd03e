//! Which fields of an object are left out where they are null: those that a JSON Schema, or one of several, does not allow as null, unless another of them
//! does and requires the field.
//!
//! The rules of `properties`, `additionalProperties`, `items`, `required`, `type`, `enum`, `const`, `$ref`, `allOf`, `anyOf` and `oneOf` are followed. A
//! schema that refuses null by another rule (`not`, `if`) counts as one that allows it.

use std::collections::HashMap;

use arrow_schema::DataType;
use serde_json::Value;

use super::names::in_json;

/// How deep schemas refer to others before they count as ones that allow everything.
const MOST_LEVELS: usize = 64;

/// The fields of a type that are left out where they are null.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    /// Whether this one is.
    pub(crate) where_null: bool,
    /// By name.
    fields: HashMap<String, Self>,
    /// Those of the items of a list, or of the values of a map.
    items: Option<Box<Self>>,
}

/// None is.
pub(crate) static NONE: std::sync::LazyLock<LeftOut> = std::sync::LazyLock::new(LeftOut::default);

impl LeftOut {
    /// The field of a struct.
    pub(crate) fn field(&self, name: &str) -> &Self {
        self.fields.get(name).unwrap_or(&NONE)
    }

    /// The items of a list, or the values of a map.
    pub(crate) fn items(&self) -> &Self {
        self.items.as_deref().unwrap_or(&NONE)
    }
}

/// A schema, and others that it refers to by name.
#[derive(Debug)]
pub(crate) struct Schemas {
    pub(crate) root: Value,
    pub(crate) references: HashMap<String, Value>,
}

/// A part of a schema, and the whole to which its `$ref` are relative.
type Part<'a> = (&'a Value, &'a Value);

impl Schemas {
    /// What is left out of values of a type.
    pub(crate) fn left_out(&self, data_type: &DataType) -> LeftOut {
        self.below(&self.applying(&[(&self.root, &self.root)]), data_type)
    }

    fn below(&self, parts: &[Part<'_>], data_type: &DataType) -> LeftOut {
        let mut made = LeftOut::default();
        match data_type {
            DataType::Struct(fields) => {
                for field in fields {
                    let name = in_json(field.name());
                    let own: Vec<Part<'_>> = parts.iter().filter_map(|part| property(*part, &name)).collect();
                    let mut below = self.below(&self.applying(&own), field.data_type());
                    let must_be_null = |part: &Part<'_>| {
                        requires(part.0, &name) && property(*part, &name).is_some_and(|of| self.allows_null(of, 0))
                    };
                    below.where_null =
                        own.iter().any(|part| !self.allows_null(*part, 0)) && !parts.iter().any(must_be_null);
                    made.fields.insert(field.name().clone(), below);
                }
            }
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                let own: Vec<Part<'_>> = parts.iter().filter_map(|part| member(*part, "items")).collect();
                made.items = Some(Box::new(self.below(&self.applying(&own), item.data_type())));
            }
            DataType::Map(entries, _) => {
                if let DataType::Struct(pair) = entries.data_type()
                    && let Some(value) = pair.get(1)
                {
                    let values = parts.iter().filter_map(|part| member(*part, "additionalProperties"));
                    let own: Vec<Part<'_>> = values.collect();
                    made.items = Some(Box::new(self.below(&self.applying(&own), value.data_type())));
                }
            }
            _ => {}
        }
        made
    }

    /// The schemas, and all that they say by `$ref`, `allOf`, `anyOf` and `oneOf`.
    fn applying<'a>(&'a self, parts: &[Part<'a>]) -> Vec<Part<'a>> {
        let mut found: Vec<Part<'a>> = parts.to_vec();
        let mut at = 0;
        while let Some(part) = found.get(at).copied() {
            let mut more: Vec<Part<'a>> = self.referred(part).into_iter().collect();
            for word in ["allOf", "anyOf", "oneOf"] {
                more.extend(listed(part, word).unwrap_or_default());
            }
            // a schema that refers to itself says nothing new
            more.retain(|new| !found.iter().any(|known| std::ptr::eq(known.0, new.0)));
            found.extend(more);
            at += 1;
        }
        found
    }

    fn allows_null(&self, part: Part<'_>, level: usize) -> bool {
        let (schema, _) = part;
        if level > MOST_LEVELS {
            return true;
        }
        let says = |word: &str, allows: &dyn Fn(&Value) -> bool| schema.get(word).is_none_or(allows);
        let of = |part: Part<'_>| self.allows_null(part, level + 1);
        schema.as_bool().unwrap_or(true)
            && says("type", &|kind| match kind {
                Value::Array(kinds) => kinds.iter().any(|kind| kind == "null"),
                kind => kind == "null",
            })
            && says("enum", &|values| {
                values.as_array().is_none_or(|values| values.contains(&Value::Null))
            })
            && says("const", &Value::is_null)
            && self.referred(part).is_none_or(of)
            && listed(part, "allOf").is_none_or(|all| all.into_iter().all(of))
            && listed(part, "anyOf").is_none_or(|any| any.into_iter().any(of))
            && listed(part, "oneOf").is_none_or(|one| one.into_iter().any(of))
    }

    /// What a `$ref` names, if it is the whole of a schema or a place in one.
    fn referred<'a>(&'a self, (part, whole): Part<'a>) -> Option<Part<'a>> {
        let name = part.get("$ref")?.as_str()?;
        let (file, place) = name.split_once('#').unwrap_or((name, ""));
        let whole = if file.is_empty() {
            whole
        } else {
            self.references.get(file)?
        };
        Some((whole.pointer(place)?, whole))
    }
}

fn listed<'a>((part, whole): Part<'a>, word: &str) -> Option<Vec<Part<'a>>> {
    let parts = part.get(word)?.as_array()?;
    Some(parts.iter().map(|part| (part, whole)).collect())
}

fn member<'a>((part, whole): Part<'a>, word: &str) -> Option<Part<'a>> {
    part.get(word).map(|inner| (inner, whole))
}

/// The schema of a member of an object.
fn property<'a>(part: Part<'a>, name: &str) -> Option<Part<'a>> {
    member(part, "properties")
        .and_then(|properties| member(properties, name))
        .or_else(|| member(part, "additionalProperties"))
}

fn requires(part: &Value, name: &str) -> bool {
    let names = part.get("required").and_then(Value::as_array);
    names.is_some_and(|names| names.iter().any(|required| required == name))
}
