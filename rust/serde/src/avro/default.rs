//! Defaults of fields: JSON in the schema, encoded once as values of their types, and read like them.

use super::json::Json;
use super::schema::{Kind, Schema, TypeId};
use super::varint;

/// Defaults within defaults.
const MAX_DEPTH: usize = 128;
const MAX_VALUES: usize = 1_000_000;

/// A default as a value of a type.
///
/// # Errors
///
/// It is not of that type: why.
pub fn encoded(schema: &Schema, id: TypeId, json: &Json) -> Result<Vec<u8>, String> {
    let mut encoder = Encoder {
        schema,
        out: Vec::new(),
        left: MAX_VALUES,
    };
    encoder.put(id, json, 0)?;
    Ok(encoder.out)
}

struct Encoder<'a> {
    schema: &'a Schema,
    out: Vec<u8>,
    /// How many values may follow: records within themselves can have defaults that double with each level.
    left: usize,
}

impl Encoder<'_> {
    fn put(&mut self, id: TypeId, json: &Json, depth: usize) -> Result<(), String> {
        self.left = self.left.saturating_sub(1);
        if depth > MAX_DEPTH || self.left == 0 {
            return Err("it is nested too deep".to_owned());
        }
        let schema = self.schema;
        let kind = &schema.get(id).kind;
        let not_one = || format!("{json} is no {}", kind.word());
        match (kind, json) {
            (Kind::Null, Json::Null) => {}
            (Kind::Boolean, Json::Bool(value)) => self.out.push(u8::from(*value)),
            (Kind::Int, Json::Int(value)) if i32::try_from(*value).is_ok() => varint::put(&mut self.out, *value),
            (Kind::Long, Json::Int(value)) => varint::put(&mut self.out, *value),
            (Kind::Float, Json::Int(_) | Json::Float(_) | Json::Text(_)) => {
                #[expect(clippy::cast_possible_truncation, reason = "the nearest float is meant")]
                let value = float(json).ok_or_else(not_one)? as f32;
                self.out.extend_from_slice(&value.to_le_bytes());
            }
            (Kind::Double, Json::Int(_) | Json::Float(_) | Json::Text(_)) => {
                self.out
                    .extend_from_slice(&float(json).ok_or_else(not_one)?.to_le_bytes());
            }
            (Kind::Bytes, Json::Text(text)) => varint::put_bytes(&mut self.out, &latin1(text, json)?),
            (Kind::Fixed(_, size), Json::Text(text)) => {
                let bytes = latin1(text, json)?;
                if bytes.len() != *size {
                    return Err(format!("{json} is {} bytes, the fixed type has {size}", bytes.len()));
                }
                self.out.extend_from_slice(&bytes);
            }
            (Kind::String, Json::Text(text)) => varint::put_bytes(&mut self.out, text.as_bytes()),
            (Kind::Enum(_, symbols), Json::Text(text)) => {
                let number = symbols
                    .all
                    .iter()
                    .position(|symbol| symbol == text)
                    .ok_or_else(not_one)?;
                varint::put_size(&mut self.out, number);
            }
            (Kind::Array(items), Json::List(values)) => {
                block(&mut self.out, values.len());
                for value in values {
                    self.put(*items, value, depth + 1)?;
                }
                self.out.push(0);
            }
            (Kind::Map(of), Json::Object(members)) => {
                block(&mut self.out, members.len());
                for (key, value) in members {
                    varint::put_bytes(&mut self.out, key.as_bytes());
                    self.put(*of, value, depth + 1)?;
                }
                self.out.push(0);
            }
            (Kind::Record(_, fields), Json::Object(_)) => {
                for field in fields {
                    let value = json.get(&field.name).or(field.default.as_ref());
                    let value = value.ok_or_else(|| format!("{json} lacks the field {}", field.name))?;
                    self.put(field.of, value, depth + 1)?;
                }
            }
            (Kind::Union(branches), _) => return self.union(branches, json, depth),
            _ => return Err(not_one()),
        }
        Ok(())
    }

    /// As the first branch that the default is one of: before Avro 1.12 only the first of all was allowed.
    fn union(&mut self, branches: &[TypeId], json: &Json, depth: usize) -> Result<(), String> {
        let begin = self.out.len();
        for (number, branch) in branches.iter().enumerate() {
            varint::put_size(&mut self.out, number);
            if self.put(*branch, json, depth + 1).is_ok() {
                return Ok(());
            }
            self.out.truncate(begin);
        }
        Err(format!("{json} is of no branch of the union"))
    }
}

fn block(out: &mut Vec<u8>, items: usize) {
    if items > 0 {
        varint::put_size(out, items);
    }
}

/// Java takes texts as well, as JSON has no NaN.
fn float(json: &Json) -> Option<f64> {
    match json {
        Json::Int(value) => Some(*value as f64),
        Json::Float(value) => Some(*value),
        Json::Text(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// JSON has no bytes: those of a default are a text, a character a byte.
fn latin1(text: &str, json: &Json) -> Result<Vec<u8>, String> {
    let bytes: Result<Vec<u8>, _> = text.chars().map(|one| u8::try_from(u32::from(one))).collect();
    bytes.map_err(|_| format!("{json} has characters above U+00FF, which are no bytes"))
}
