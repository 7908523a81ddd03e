//! The Arrow type by which a column of another type is written.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields};

use super::schema::{Kind, Schema, TypeId, too_deep};
use super::types::{branches, data_type_of, map_of};
use crate::reason::SchemaError;

const MAX_DEPTH: usize = 128;

/// The type of the schema as far as a column of the type `given` has it: fields that it lacks are left out.
pub fn column_type(schema: &Schema, given: &DataType) -> Result<DataType, SchemaError> {
    of(schema, schema.root, given, 0)
}

fn of(schema: &Schema, id: TypeId, given: &DataType, depth: usize) -> Result<DataType, SchemaError> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    let part = |name: &str, id: TypeId, given: &Field| {
        let data_type = of(schema, id, given.data_type(), depth + 1)?;
        Ok(Field::new(name, data_type, true))
    };
    match (&schema.get(id).kind, given) {
        (Kind::Union(union), given) => as_union(schema, union, given, depth),
        (Kind::Record(_, fields), DataType::Struct(columns)) => {
            let mut made = Vec::new();
            for field in fields {
                if let Some((_, column)) = columns.find(&field.name) {
                    made.push(part(&field.name, field.of, column)?);
                }
            }
            Ok(DataType::Struct(Fields::from(made)))
        }
        (
            Kind::Array(items),
            DataType::List(given)
            | DataType::LargeList(given)
            | DataType::FixedSizeList(given, _)
            | DataType::ListView(given)
            | DataType::LargeListView(given),
        ) => Ok(DataType::List(Arc::new(part("item", *items, given)?))),
        (Kind::Map(values), DataType::Map(entry, _)) => {
            let value = match entry.data_type() {
                DataType::Struct(fields) => fields.get(1),
                _ => None,
            };
            let value = value.ok_or_else(too_deep)?;
            Ok(map_of(of(schema, *values, value.data_type(), depth + 2)?))
        }
        _ => data_type_of(schema, id),
    }
}

fn as_union(schema: &Schema, union: &[TypeId], given: &DataType, depth: usize) -> Result<DataType, SchemaError> {
    let named = branches(schema, union);
    match named[..] {
        [] => return Ok(DataType::Null),
        [(_, only, _)] => return of(schema, only, given, depth + 1),
        _ => {}
    }
    if matches!(given, DataType::Null) {
        return Ok(DataType::Null);
    }
    if let Some(branch) = branch_of(schema, union, given) {
        return of(schema, union[branch], given, depth + 1);
    }
    if let DataType::Struct(columns) = given {
        let mut made = Vec::with_capacity(columns.len());
        for column in columns {
            let branch = named.iter().find(|(_, _, name)| *name == column.name());
            let (_, id, name) = branch.ok_or_else(|| none(given, &named))?;
            let data_type = of(schema, *id, column.data_type(), depth + 1)?;
            made.push(Field::new(*name, data_type, true));
        }
        return Ok(DataType::Struct(Fields::from(made)));
    }
    Err(none(given, &named))
}

fn none(given: &DataType, named: &[(usize, TypeId, &str)]) -> SchemaError {
    let names: Vec<&str> = named.iter().map(|(_, _, name)| *name).collect();
    SchemaError::Invalid(format!(
        "a column of {given} is of no branch of an Avro union; give one of the type of a branch, or a struct with some of the fields {}",
        names.join(", ")
    ))
}

/// The branch as which a column of a type is written; `None` for a struct with one field a branch, and for types of no branch.
pub fn branch_of(schema: &Schema, union: &[TypeId], given: &DataType) -> Option<usize> {
    let named = branches(schema, union);
    if let [(only, ..)] = named[..] {
        return Some(only);
    }
    if let DataType::Struct(columns) = given {
        let is_branch = |name: &str| named.iter().any(|(_, _, branch)| *branch == name);
        if !columns.is_empty() && columns.iter().all(|column| is_branch(column.name())) {
            return None;
        }
    }
    let ranked = named
        .iter()
        .filter_map(|(branch, id, _)| Some((rank(schema, *id, given)?, *branch)));
    ranked.min().map(|(_, branch)| branch)
}

/// How far a type is from that of a column: 0 is the same; `None` where the column's values are none of the type's.
fn rank(schema: &Schema, id: TypeId, given: &DataType) -> Option<u8> {
    use DataType::{
        Binary, BinaryView, Date64, Decimal32, Decimal64, Decimal128, Decimal256, FixedSizeBinary, Float16, Float32,
        Float64, Int8, Int16, Int32, Int64, LargeBinary, LargeUtf8, Map, Struct, Time32, Time64, Timestamp, UInt8,
        UInt16, UInt32, UInt64, Utf8, Utf8View,
    };
    let found = schema.get(id);
    let is_list = |given: &DataType| {
        matches!(
            given,
            DataType::List(_)
                | DataType::LargeList(_)
                | DataType::FixedSizeList(..)
                | DataType::ListView(_)
                | DataType::LargeListView(_)
        )
    };
    if let Kind::Record(_, fields) = &found.kind
        && let Struct(columns) = given
    {
        let known = columns
            .iter()
            .filter(|column| fields.iter().any(|field| field.name == *column.name()));
        let strange = columns.len() - known.count();
        return Some(u8::try_from(strange).unwrap_or(u8::MAX));
    }
    match (&found.kind, given) {
        (Kind::Array(_), given) if is_list(given) => return Some(0),
        (Kind::Map(_), Map(..)) => return Some(0),
        (Kind::Array(_) | Kind::Map(_) | Kind::Record(..), _) => return None,
        _ => {}
    }
    let own = data_type_of(schema, id).ok()?;
    if own == *given {
        return Some(0);
    }
    Some(match (&own, given) {
        (Int32, Int8 | Int16 | UInt8 | UInt16) | (Int64, Int32 | UInt32) | (Float64, Float32) | (Float32, Float16) => 1,
        (Int64, Int8 | Int16 | UInt8 | UInt16 | UInt64) | (Float64, Float16) => 2,
        (Int32, Int64 | UInt32 | UInt64) | (Float32, Float64) => 3,
        (Float64, Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64) => 4,
        (Utf8, LargeUtf8 | Utf8View) | (Binary, LargeBinary | BinaryView) => 1,
        (Binary, FixedSizeBinary(_)) => 2,
        (DataType::Date32, Date64) | (Time32(_), Time64(_)) | (Time64(_), Time32(_)) => 1,
        (Timestamp(_, own), Timestamp(_, other)) => 1 + u8::from(own.is_some() != other.is_some()),
        (Decimal128(..) | Decimal256(..), Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..)) => 1,
        _ => return None,
    })
}
