//! The Arrow type of a schema.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields};

use super::schema::{Kind, Schema, TypeId, too_deep};
use crate::keep::{self, Keep};
use crate::reason::SchemaError;

/// Arrow's C interface takes 64 levels; a table around it is one, and a column is one.
const MAX_LEVELS: usize = 62;

/// The Arrow type of a whole schema, with these fields.
pub fn data_type(schema: &Schema, keep: &Keep) -> Result<DataType, SchemaError> {
    let mut types = Types {
        schema,
        inside: Vec::new(),
    };
    types.of(schema.root, keep, "", 0)
}

/// The Arrow type of one type of a schema.
pub fn data_type_of(schema: &Schema, id: TypeId) -> Result<DataType, SchemaError> {
    let mut types = Types {
        schema,
        inside: Vec::new(),
    };
    types.of(id, &keep::ALL, "", 0)
}

/// The branches of a union that are not null, with the names of their fields in a struct, each its number in the union.
pub fn branches<'a>(schema: &'a Schema, union: &[TypeId]) -> Vec<(usize, TypeId, &'a str)> {
    let kinds = union
        .iter()
        .enumerate()
        .map(|(number, id)| (number, *id, &schema.get(*id).kind));
    let kinds: Vec<_> = kinds.filter(|(_, _, kind)| !matches!(kind, Kind::Null)).collect();
    let short = |kind: &'a Kind| kind.name().map_or(kind.word(), |name| name.short());
    let is_alone = |name: &str| kinds.iter().filter(|(_, _, kind)| short(kind) == name).count() == 1;
    let named = kinds.iter().map(|(number, id, kind)| {
        let name = short(kind);
        let full = || kind.name().map_or(name, |name| name.full.as_str());
        (*number, *id, if is_alone(name) { name } else { full() })
    });
    named.collect()
}

struct Types<'a> {
    schema: &'a Schema,
    inside: Vec<TypeId>,
}

impl Types<'_> {
    fn of(&mut self, id: TypeId, keep: &Keep, path: &str, level: usize) -> Result<DataType, SchemaError> {
        if level > MAX_LEVELS {
            return Err(too_deep());
        }
        let found = self.schema.get(id);
        if let Some(logical) = found.logical {
            self.ends_here(keep, path)?;
            return Ok(logical.data_type());
        }
        Ok(match &found.kind {
            Kind::Array(items) => {
                let item = self.of(*items, keep, &format!("{path}/items"), level + 1)?;
                DataType::List(Arc::new(Field::new("item", item, true)))
            }
            Kind::Map(values) => {
                let value = self.of(*values, keep, &format!("{path}/values"), level + 2)?;
                map_of(value)
            }
            Kind::Record(_, fields) => {
                let fields = fields.iter().map(|field| (field.of, field.name.as_str())).collect();
                self.structure(id, fields, keep, path, level)?
            }
            Kind::Union(union) => {
                let branches = branches(self.schema, union);
                match branches[..] {
                    [] => DataType::Null,
                    [(_, only, _)] => self.of(only, keep, path, level)?,
                    _ => {
                        let fields = branches.into_iter().map(|(_, id, name)| (id, name)).collect();
                        self.structure(id, fields, keep, path, level)?
                    }
                }
            }
            leaf => {
                self.ends_here(keep, path)?;
                leaf_type(leaf)?
            }
        })
    }

    fn structure(
        &mut self,
        id: TypeId,
        fields: Vec<(TypeId, &str)>,
        keep: &Keep,
        path: &str,
        level: usize,
    ) -> Result<DataType, SchemaError> {
        if self.inside.contains(&id) {
            let place = if path.is_empty() { "the top" } else { path };
            let kind = &self.schema.get(id).kind;
            let name = kind.name().map_or(kind.word(), |name| name.full.as_str());
            let message = format!("the Avro type {name} at {place} contains itself; Arrow has no such type");
            return Err(SchemaError::Invalid(message));
        }
        if let Some(unknown) = keep.unknown(fields.iter().map(|(_, name)| *name)) {
            let names: Vec<&str> = fields.iter().map(|(_, name)| *name).collect();
            return Err(no_field(path, unknown, &names.join(", ")));
        }
        self.inside.push(id);
        let mut made = Vec::with_capacity(fields.len());
        for (of, name) in fields {
            if let Some(keep) = keep.field(name) {
                let data_type = self.of(of, keep, &format!("{path}/{name}"), level + 1)?;
                made.push(Field::new(name, data_type, true));
            }
        }
        self.inside.pop();
        Ok(DataType::Struct(Fields::from(made)))
    }

    /// A type without fields has nothing to leave out.
    fn ends_here(&self, keep: &Keep, path: &str) -> Result<(), SchemaError> {
        keep.unknown(std::iter::empty())
            .map_or(Ok(()), |unknown| Err(no_field(path, unknown, "none")))
    }
}

fn no_field(path: &str, unknown: &str, known: &str) -> SchemaError {
    SchemaError::Invalid(format!(
        "the Avro schema has no field {path}/{unknown}; the fields there are: {known}"
    ))
}

/// A map from strings.
pub fn map_of(value: DataType) -> DataType {
    let entry = Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", value, true),
    ]);
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entry), false)), false)
}

fn leaf_type(kind: &Kind) -> Result<DataType, SchemaError> {
    Ok(match kind {
        Kind::Boolean => DataType::Boolean,
        Kind::Int => DataType::Int32,
        Kind::Long => DataType::Int64,
        Kind::Float => DataType::Float32,
        Kind::Double => DataType::Float64,
        Kind::Bytes => DataType::Binary,
        Kind::String | Kind::Enum(..) => DataType::Utf8,
        Kind::Fixed(name, size) => {
            let width = i32::try_from(*size).map_err(|_| {
                SchemaError::Invalid(format!(
                    "the Avro type {} of {size} bytes has no Arrow type: its values have at most {} bytes",
                    name.full,
                    i32::MAX
                ))
            })?;
            DataType::FixedSizeBinary(width)
        }
        _ => DataType::Null,
    })
}
