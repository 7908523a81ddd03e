//! Columns to values: for each part of a schema what writes it from an array.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::{Array, BinaryArray, BooleanArray, FixedSizeBinaryArray, StringArray};
use arrow_buffer::{ArrowNativeType, NullBuffer, OffsetBuffer, ScalarBuffer, i256};
use arrow_schema::DataType;

use super::default;
use super::number::{decimal_bytes, fixed_bytes};
use super::schema::{Field, Kind, Schema, TypeId};
use super::types::branches;
use super::varint;
use super::write_types::branch_of;
use crate::encode::WriteValue;
use crate::reason::{Reason, SchemaError};

/// What writes the rows of `array` as values of a schema.
pub fn writer(schema: &Schema, array: &dyn Array) -> Result<Node, SchemaError> {
    Writers { schema }.of(schema.root, array, "")
}

/// Writes rows of an array as values of one type.
pub struct Node {
    nulls: Option<NullBuffer>,
    /// For a null row.
    on_null: OnNull,
    /// For other rows: the number of the branch of a union, encoded.
    branch: Vec<u8>,
    values: Values,
}

enum OnNull {
    /// The bytes of a null: a union's branch, or the default of a field whose type has no null.
    Bytes(Vec<u8>),
    /// The type has no null: where.
    Refused(Reason),
}

enum Values {
    Null,
    Boolean(BooleanArray),
    Int(ScalarBuffer<i32>),
    Long(ScalarBuffer<i64>),
    Float(ScalarBuffer<f32>),
    Double(ScalarBuffer<f64>),
    Bytes(BinaryArray),
    Text(StringArray),
    Fixed(FixedSizeBinaryArray),
    Enum(StringArray, HashMap<String, Vec<u8>>, String),
    Decimal128(ScalarBuffer<i128>, Option<usize>),
    Decimal256(ScalarBuffer<i256>, Option<usize>),
    Array(OffsetBuffer<i32>, Box<Node>),
    Map(OffsetBuffer<i32>, StringArray, Box<Node>),
    Record(Vec<Part>),
    /// One of these is set: for each the number of its branch, encoded.
    Union(Vec<(Vec<u8>, Node)>, String),
}

/// A field of a record.
enum Part {
    Column(Box<Node>),
    /// The column does not have it: its default.
    Constant(Vec<u8>),
    Missing(Reason),
}

impl WriteValue for Node {
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Reason> {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return match &self.on_null {
                OnNull::Bytes(bytes) => {
                    out.extend_from_slice(bytes);
                    Ok(())
                }
                OnNull::Refused(reason) => Err(reason.clone()),
            };
        }
        out.extend_from_slice(&self.branch);
        self.values.write(row, out)
    }
}

impl Values {
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Reason> {
        match self {
            Self::Null => {}
            Self::Boolean(values) => out.push(u8::from(values.value(row))),
            Self::Int(values) => varint::put(out, i64::from(values[row])),
            Self::Long(values) => varint::put(out, values[row]),
            Self::Float(values) => out.extend_from_slice(&values[row].to_le_bytes()),
            Self::Double(values) => out.extend_from_slice(&values[row].to_le_bytes()),
            Self::Bytes(values) => varint::put_bytes(out, values.value(row)),
            Self::Text(values) => varint::put_bytes(out, values.value(row).as_bytes()),
            Self::Fixed(values) => out.extend_from_slice(values.value(row)),
            Self::Enum(values, numbers, name) => {
                let symbol = values.value(row);
                let none = || Reason::from(format!("{symbol:?} is no symbol of the enum {name}"));
                out.extend_from_slice(numbers.get(symbol).ok_or_else(none)?);
            }
            Self::Decimal128(values, size) => decimal(&values[row].to_be_bytes(), *size, out)?,
            Self::Decimal256(values, size) => decimal(&values[row].to_be_bytes(), *size, out)?,
            Self::Array(offsets, items) => {
                let (begin, end) = ends(offsets, row);
                if end > begin {
                    varint::put_size(out, end - begin);
                }
                (begin..end).try_for_each(|item| items.write(item, out))?;
                out.push(0);
            }
            Self::Map(offsets, keys, values) => {
                let (begin, end) = ends(offsets, row);
                if end > begin {
                    varint::put_size(out, end - begin);
                }
                for entry in begin..end {
                    varint::put_bytes(out, keys.value(entry).as_bytes());
                    values.write(entry, out)?;
                }
                out.push(0);
            }
            Self::Record(parts) => {
                for part in parts {
                    match part {
                        Part::Column(node) => node.write(row, out)?,
                        Part::Constant(bytes) => out.extend_from_slice(bytes),
                        Part::Missing(reason) => return Err(reason.clone()),
                    }
                }
            }
            Self::Union(branches, place) => {
                let is_set = |node: &Node| node.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                let mut set = branches.iter().filter(|(_, node)| is_set(node));
                let (Some((number, node)), None) = (set.next(), set.next()) else {
                    let text = format!("exactly one field of the union{place} must be set, the others null");
                    return Err(text.into());
                };
                out.extend_from_slice(number);
                node.write(row, out)?;
            }
        }
        Ok(())
    }
}

fn ends(offsets: &OffsetBuffer<i32>, row: usize) -> (usize, usize) {
    (offsets[row].as_usize(), offsets[row + 1].as_usize())
}

fn decimal(bytes: &[u8], size: Option<usize>, out: &mut Vec<u8>) -> Result<(), Reason> {
    match size {
        None => varint::put_bytes(out, decimal_bytes(bytes)),
        Some(size) => {
            let too_many = || Reason::from(format!("a decimal has more digits than its {size} bytes hold"));
            out.extend_from_slice(&fixed_bytes(bytes, size).ok_or_else(too_many)?);
        }
    }
    Ok(())
}

fn number(branch: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    varint::put_size(&mut bytes, branch);
    bytes
}

fn at(path: &str) -> String {
    if path.is_empty() {
        String::new()
    } else {
        format!(" at {path}")
    }
}

struct Writers<'a> {
    schema: &'a Schema,
}

impl Writers<'_> {
    fn of(&self, id: TypeId, array: &dyn Array, path: &str) -> Result<Node, SchemaError> {
        let kind = &self.schema.get(id).kind;
        let Kind::Union(union) = kind else {
            let on_null = match kind {
                Kind::Null => OnNull::Bytes(Vec::new()),
                _ => OnNull::Refused(
                    format!(
                        "there is no value{}, and the type {} has no null",
                        at(path),
                        kind.shown()
                    )
                    .into(),
                ),
            };
            return Ok(Node {
                nulls: array.logical_nulls(),
                on_null,
                branch: Vec::new(),
                values: self.values(id, array, path)?,
            });
        };
        let null = union
            .iter()
            .position(|branch| matches!(self.schema.get(*branch).kind, Kind::Null));
        let refused = || OnNull::Refused(format!("there is no value{}, and the union has no null", at(path)).into());
        let on_null = null.map_or_else(refused, |branch| OnNull::Bytes(number(branch)));
        let (branch, values) = self.union(union, array, path)?;
        Ok(Node {
            nulls: array.logical_nulls(),
            on_null,
            branch,
            values,
        })
    }

    fn union(&self, union: &[TypeId], array: &dyn Array, path: &str) -> Result<(Vec<u8>, Values), SchemaError> {
        if matches!(array.data_type(), DataType::Null) {
            return Ok((Vec::new(), Values::Null));
        }
        let named = branches(self.schema, union);
        if let Some(branch) = branch_of(self.schema, union, array.data_type()) {
            return Ok((number(branch), self.values(union[branch], array, path)?));
        }
        let Some(columns) = array.as_struct_opt() else {
            return Err(mismatch(array, path));
        };
        let mut made = Vec::with_capacity(columns.num_columns());
        for (column, name) in columns.columns().iter().zip(columns.column_names()) {
            let branch = named.iter().find(|(_, _, branch)| *branch == name);
            let (branch, id, _) = branch.ok_or_else(|| mismatch(array, path))?;
            made.push((number(*branch), self.of(*id, column, &format!("{path}/{name}"))?));
        }
        Ok((Vec::new(), Values::Union(made, at(path))))
    }

    fn values(&self, id: TypeId, array: &dyn Array, path: &str) -> Result<Values, SchemaError> {
        let found = self.schema.get(id);
        let wrong = || mismatch(array, path);
        let size = match found.kind {
            Kind::Fixed(_, size) => Some(size),
            _ => None,
        };
        Ok(match (&found.kind, array.data_type()) {
            (Kind::Null, _) => Values::Null,
            (Kind::Boolean, DataType::Boolean) => Values::Boolean(array.as_boolean().clone()),
            (Kind::Int, DataType::Int32 | DataType::Date32 | DataType::Time32(_)) => Values::Int(numbers(array)),
            (Kind::Long, DataType::Int64 | DataType::Time64(_) | DataType::Timestamp(..)) => {
                Values::Long(numbers(array))
            }
            (Kind::Float, DataType::Float32) => Values::Float(numbers(array)),
            (Kind::Double, DataType::Float64) => Values::Double(numbers(array)),
            (Kind::Bytes | Kind::Fixed(..), DataType::Decimal128(..)) => Values::Decimal128(numbers(array), size),
            (Kind::Bytes | Kind::Fixed(..), DataType::Decimal256(..)) => Values::Decimal256(numbers(array), size),
            (Kind::Bytes, DataType::Binary) => Values::Bytes(array.as_binary().clone()),
            (Kind::String, DataType::Utf8) => Values::Text(array.as_string().clone()),
            (Kind::Fixed(..), DataType::FixedSizeBinary(_)) => Values::Fixed(array.as_fixed_size_binary().clone()),
            (Kind::Enum(name, symbols), DataType::Utf8) => {
                let numbers = symbols
                    .all
                    .iter()
                    .enumerate()
                    .map(|(place, symbol)| (symbol.clone(), number(place)));
                Values::Enum(array.as_string().clone(), numbers.collect(), name.full.clone())
            }
            (Kind::Array(items), DataType::List(_)) => {
                let list = array.as_list::<i32>();
                let items = self.of(*items, list.values(), &format!("{path}/items"))?;
                Values::Array(list.offsets().clone(), Box::new(items))
            }
            (Kind::Map(values), DataType::Map(..)) => {
                let map = array.as_map();
                let keys = map.keys().as_string_opt::<i32>().ok_or_else(wrong)?;
                let values = self.of(*values, map.values(), &format!("{path}/values"))?;
                Values::Map(map.offsets().clone(), keys.clone(), Box::new(values))
            }
            (Kind::Record(_, fields), DataType::Struct(_)) => {
                let columns = array.as_struct();
                let names = columns.fields();
                let part = |(place, field): (usize, &Field)| {
                    let path = format!("{path}/{}", field.name);
                    // columns come mostly in the order of the fields
                    let is_there = names.get(place).is_some_and(|column| *column.name() == field.name);
                    let column = match is_there {
                        true => Some(columns.column(place)),
                        false => columns.column_by_name(&field.name),
                    };
                    match column {
                        Some(column) => {
                            let mut node = self.of(field.of, column, &path)?;
                            if let (OnNull::Refused(_), Some(bytes)) = (&node.on_null, self.default(field)) {
                                node.on_null = OnNull::Bytes(bytes);
                            }
                            Ok(Part::Column(Box::new(node)))
                        }
                        None => Ok(self.missing(field, &path)),
                    }
                };
                let parts: Result<Vec<Part>, SchemaError> = fields.iter().enumerate().map(part).collect();
                Values::Record(parts?)
            }
            _ => return Err(wrong()),
        })
    }

    /// The default of a field, encoded.
    fn default(&self, field: &Field) -> Option<Vec<u8>> {
        let default = field.default.as_ref()?;
        default::encoded(self.schema, field.of, default).ok()
    }

    /// A field that the column does not have: its default, or null if it may be.
    fn missing(&self, field: &Field, path: &str) -> Part {
        if let Some(bytes) = self.default(field) {
            return Part::Constant(bytes);
        }
        match &self.schema.get(field.of).kind {
            Kind::Null => return Part::Constant(Vec::new()),
            Kind::Union(union) => {
                let is_null = |branch: &TypeId| matches!(self.schema.get(*branch).kind, Kind::Null);
                if let Some(branch) = union.iter().position(is_null) {
                    return Part::Constant(number(branch));
                }
            }
            _ => {}
        }
        Part::Missing(format!("there is no value and no default for {path}").into())
    }
}

/// The numbers of a column of numbers, times or decimals.
fn numbers<T: ArrowNativeType>(array: &dyn Array) -> ScalarBuffer<T> {
    let data = array.to_data();
    let buffer = data.buffers().first().cloned().unwrap_or_default();
    ScalarBuffer::new(buffer, data.offset(), data.len())
}

fn mismatch(array: &dyn Array, path: &str) -> SchemaError {
    let given = array.data_type();
    SchemaError::Invalid(format!(
        "a column of {given}{} is not of the Avro schema's type",
        at(path)
    ))
}
