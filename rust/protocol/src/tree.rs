//! Messages as trees of fields, by their tables: for what treats every API alike, such as rules for faults and the record of requests.
//! What depends on one API uses its struct.

use std::sync::Arc;

use bytes::Bytes;

use crate::api_key::ApiKey;
use crate::error::{Fault, WireError};
use crate::reader::Reader;
use crate::schema::{FieldSpec, FieldType, Place};
use crate::table::check_version;
use crate::writer::Writer;

/// The value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// Null, of any type that may be null.
    Null,
    /// A bool.
    Bool(bool),
    /// An integer of any width, error codes included.
    Int(i64),
    /// A float64.
    Float(f64),
    /// A uuid.
    Uuid([u8; 16]),
    /// A string.
    String(Arc<str>),
    /// Bytes or records, not copied.
    Bytes(Bytes),
    /// An array.
    Array(Vec<Node>),
    /// A struct.
    Struct(Box<Tree>),
}

/// A message, or a struct in it. Fields that its version does not have hold their default.
#[derive(Debug, Clone, PartialEq)]
pub struct Tree {
    /// Its fields in the order of the wire.
    pub table: &'static [FieldSpec],
    /// Their values.
    pub values: Vec<Node>,
    /// Tagged fields that the table does not have: they are written as they were read.
    unknown: Vec<(u32, Bytes)>,
}

/// One of the two messages of an API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// What the client sends.
    Request,
    /// What the broker sends.
    Response,
}

/// Name and table of a message.
fn table_of(api: ApiKey, side: Side) -> (&'static str, &'static [FieldSpec]) {
    let [request, response] = api.tables();
    match side {
        Side::Request => request,
        Side::Response => response,
    }
}

impl Tree {
    /// A message whose fields have their defaults.
    pub fn of(api: ApiKey, side: Side) -> Self {
        Self::initial(table_of(api, side).1)
    }

    /// A struct whose fields have their defaults.
    pub fn initial(table: &'static [FieldSpec]) -> Self {
        Self {
            table,
            values: table.iter().map(Node::initial).collect(),
            unknown: Vec::new(),
        }
    }

    /// Reads the body of a message, which follows its header; the reader is one of [`Reader::of_trees`]. Bytes that follow the body stay in
    /// it.
    ///
    /// # Errors
    /// A version that the API does not have, or bytes that are not such a message.
    pub fn decode(api: ApiKey, side: Side, r: &mut Reader, version: i16) -> Result<Self, WireError> {
        let (name, table) = table_of(api, side);
        check_version(name, api.min_version()..=api.max_version(), version)?;
        r.set_flexible(version >= api.first_flexible_version());
        Self::read(table, r, version).map_err(|fault| WireError::of(name, fault))
    }

    /// Writes the body of a message. A field that the version does not have is left out.
    ///
    /// # Errors
    /// A version that the API does not have, or a value that does not fit the type of its field.
    pub fn encode(&self, api: ApiKey, side: Side, w: &mut Writer, version: i16) -> Result<(), WireError> {
        let (name, _) = table_of(api, side);
        check_version(name, api.min_version()..=api.max_version(), version)?;
        w.set_flexible(version >= api.first_flexible_version());
        self.write(w, version).map_err(|fault| WireError::of(name, fault))
    }

    /// The fields that a version has, with their values.
    pub fn fields(&self, version: i16) -> impl Iterator<Item = (&'static FieldSpec, &Node)> {
        let present = move |(spec, _): &(&FieldSpec, _)| spec.presence.place(version) != Place::Absent;
        self.table.iter().zip(&self.values).filter(present)
    }

    /// The value of a field; `None`: the struct has no such field.
    pub fn get(&self, name: &str) -> Option<&Node> {
        let at = self.table.iter().position(|spec| spec.name == name)?;
        self.values.get(at)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Node> {
        let at = self.table.iter().position(|spec| spec.name == name)?;
        self.values.get_mut(at)
    }

    /// Sets a field, if the struct has it.
    pub fn set(&mut self, name: &str, value: Node) {
        if let Some(field) = self.get_mut(name) {
            *field = value;
        }
    }

    fn read(table: &'static [FieldSpec], r: &mut Reader, version: i16) -> Result<Self, Fault> {
        r.charge(size_of::<Self>() + table.len() * size_of::<Node>())?;
        let mut values = Vec::with_capacity(table.len());
        for spec in table {
            values.push(match spec.presence.place(version) {
                Place::Plain => Node::read(spec.field_type, r, version, spec.presence.nullable.contains(version))?,
                _ => Node::initial(spec),
            });
        }
        let mut unknown = Vec::new();
        if r.flexible() {
            r.fields::<Fault>(&mut |r, tag, size| {
                let known = table.iter().position(|spec| spec.presence.tag_in(version) == Some(tag));
                let Some((value, spec)) = known.and_then(|at| Some((values.get_mut(at)?, &table[at]))) else {
                    unknown.push((tag, r.slice(size)?));
                    return Ok(());
                };
                *value = Node::read(spec.field_type, r, version, spec.presence.nullable.contains(version))?;
                Ok(())
            })?;
        }
        Ok(Self { table, values, unknown })
    }

    fn write(&self, w: &mut Writer, version: i16) -> Result<(), Fault> {
        let mut tagged = Vec::new();
        for (spec, value) in self.table.iter().zip(&self.values) {
            match (spec.presence.place(version), spec.presence.tag) {
                (Place::Plain, _) => {
                    value.write(spec.field_type, w, version, spec.presence.nullable.contains(version))?;
                }
                (Place::Tagged, Some(tag)) if *value != Node::initial(spec) => tagged.push((tag, spec, value)),
                _ => {}
            }
        }
        if !w.flexible() {
            return Ok(());
        }
        tagged.sort_by_key(|(tag, ..)| *tag);
        w.unsigned_varint(u32::try_from(tagged.len() + self.unknown.len()).map_err(|_| Fault::Length(tagged.len()))?);
        for (tag, spec, value) in tagged {
            let nullable = spec.presence.nullable.contains(version);
            w.tag(tag, &mut |w| value.write(spec.field_type, w, version, nullable))?;
        }
        for (tag, bytes) in &self.unknown {
            w.tag::<Fault>(*tag, &mut |w| {
                w.splice(bytes);
                Ok(())
            })?;
        }
        Ok(())
    }
}

impl Node {
    /// The default of a field.
    pub(crate) fn initial(spec: &FieldSpec) -> Self {
        match (spec.default, spec.field_type) {
            ("", FieldType::Bool) => Self::Bool(false),
            ("true", _) => Self::Bool(true),
            ("None", _) => Self::Null,
            ("", FieldType::Float64) => Self::Float(0.0),
            ("", FieldType::Uuid) => Self::Uuid([0; 16]),
            ("", FieldType::String) => Self::String(Arc::default()),
            ("", FieldType::Bytes) => Self::Bytes(Bytes::new()),
            ("", FieldType::Records) => Self::Null,
            ("", FieldType::Array(_)) => Self::Array(Vec::new()),
            ("", FieldType::Struct(_, table)) => Self::Struct(Box::new(Tree::initial(table))),
            (number, _) => Self::Int(number.parse().unwrap_or(0)),
        }
    }

    /// The text of a string that is not null.
    pub fn text(&self) -> Option<&Arc<str>> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The integer.
    pub fn int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The elements of an array; of anything else none.
    pub fn elements(&self) -> &[Self] {
        match self {
            Self::Array(elements) => elements,
            _ => &[],
        }
    }

    fn read(field_type: FieldType, r: &mut Reader, version: i16, nullable: bool) -> Result<Self, Fault> {
        let is_null = |value: Option<Self>| value.or(nullable.then_some(Self::Null)).ok_or(Fault::Null);
        Ok(match field_type {
            FieldType::Bool => Self::Bool(r.i8()? != 0),
            FieldType::Int8 => Self::Int(r.i8()?.into()),
            FieldType::Int16 | FieldType::ErrorCode => Self::Int(r.i16()?.into()),
            FieldType::Uint16 => Self::Int(r.u16()?.into()),
            FieldType::Int32 => Self::Int(r.i32()?.into()),
            FieldType::Int64 => Self::Int(r.i64()?),
            FieldType::Float64 => Self::Float(r.f64()?),
            FieldType::Uuid => Self::Uuid(r.uuid()?),
            FieldType::String => is_null(r.string()?.map(Self::String))?,
            FieldType::Bytes => is_null(bytes(r)?)?,
            FieldType::Records => bytes(r)?.unwrap_or(Self::Null),
            FieldType::Array(element) => is_null(Self::read_array(*element, r, version)?)?,
            FieldType::Struct(_, table) => match nullable && r.i8()? < 0 {
                true => Self::Null,
                false => Self::Struct(Box::new(Tree::read(table, r, version)?)),
            },
        })
    }

    fn read_array(element: FieldType, r: &mut Reader, version: i16) -> Result<Option<Self>, Fault> {
        let Some(count) = r.length()? else {
            return Ok(None);
        };
        let mut elements = r.reserve(count, least_size(element, version, r.flexible()))?;
        for _ in 0..count {
            elements.push(Self::read(element, r, version, false)?);
        }
        Ok(Some(Self::Array(elements)))
    }

    fn write(&self, field_type: FieldType, w: &mut Writer, version: i16, nullable: bool) -> Result<(), Fault> {
        match (field_type, self) {
            (FieldType::Struct(_, _), Self::Null) if nullable => w.put(&[0xff]),
            (FieldType::Struct(_, _), Self::Struct(tree)) => {
                if nullable {
                    w.put(&[1]);
                }
                tree.write(w, version)?;
            }
            (FieldType::String, Self::Null) if nullable => w.null_string(),
            (FieldType::String, Self::String(text)) => w.string(text)?,
            (FieldType::Records, Self::Null) => w.null(),
            (FieldType::Bytes | FieldType::Array(_), Self::Null) if nullable => w.null(),
            (FieldType::Bytes | FieldType::Records, Self::Bytes(bytes)) => {
                w.length(bytes.len())?;
                w.splice(bytes);
            }
            (FieldType::Array(element), Self::Array(elements)) => {
                w.length(elements.len())?;
                for node in elements {
                    node.write(*element, w, version, false)?;
                }
            }
            (FieldType::Bool, Self::Bool(value)) => w.put(&[u8::from(*value)]),
            (FieldType::Float64, Self::Float(value)) => w.put(&value.to_be_bytes()),
            (FieldType::Uuid, Self::Uuid(value)) => w.put(value),
            (integer, Self::Int(value)) => write_int(integer, *value, w)?,
            _ => return Err(Fault::Null),
        }
        Ok(())
    }
}

fn bytes(r: &mut Reader) -> Result<Option<Node>, Fault> {
    Ok(match r.length()? {
        Some(len) => Some(Node::Bytes(r.slice(len)?)),
        None => None,
    })
}

fn write_int(integer: FieldType, value: i64, w: &mut Writer) -> Result<(), Fault> {
    let beyond = |_| Fault::NotInVersion;
    match integer {
        FieldType::Int8 => w.put(&i8::try_from(value).map_err(beyond)?.to_be_bytes()),
        FieldType::Int16 | FieldType::ErrorCode => w.put(&i16::try_from(value).map_err(beyond)?.to_be_bytes()),
        FieldType::Uint16 => w.put(&u16::try_from(value).map_err(beyond)?.to_be_bytes()),
        FieldType::Int32 => w.put(&i32::try_from(value).map_err(beyond)?.to_be_bytes()),
        FieldType::Int64 => w.put(&value.to_be_bytes()),
        _ => return Err(Fault::Null),
    }
    Ok(())
}

/// The fewest bytes that a value takes.
fn least_size(field_type: FieldType, version: i16, flexible: bool) -> usize {
    match field_type {
        FieldType::Bool | FieldType::Int8 => 1,
        FieldType::Int16 | FieldType::ErrorCode | FieldType::Uint16 => 2,
        FieldType::Int32 => 4,
        FieldType::Int64 | FieldType::Float64 => 8,
        FieldType::Uuid => 16,
        FieldType::String if !flexible => 2,
        FieldType::Bytes | FieldType::Records | FieldType::Array(_) if !flexible => 4,
        FieldType::String | FieldType::Bytes | FieldType::Records | FieldType::Array(_) => 1,
        FieldType::Struct(_, table) => {
            let plain = table.iter().filter(|spec| spec.presence.place(version) == Place::Plain);
            let size = |spec: &FieldSpec| match (spec.field_type, spec.presence.nullable.contains(version)) {
                (FieldType::Struct(..), true) => 1,
                (field_type, _) => least_size(field_type, version, flexible),
            };
            usize::from(flexible) + plain.map(size).sum::<usize>()
        }
    }
}
