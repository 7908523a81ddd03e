//! A message as a tree of columns: which field is which column, and how its values are kept in bytes.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field as ArrowField, Fields, TimeUnit};

use super::descriptor::{EnumProto, FieldProto, Files, MessageProto};
use super::wire::{FIXED32, FIXED64, GROUP, LENGTH, MOST_LEVELS, VARINT};
use crate::keep::Keep;
use crate::reason::SchemaError;

/// A message that has more columns than this, itself and in messages inside, is refused: few bytes of a schema can ask for any number.
const MOST_COLUMNS: usize = 100_000;
/// Fields with smaller numbers are found by their number.
const DENSE: u32 = 1024;
const NONE: u32 = u32::MAX;
const TIMESTAMP: &str = "google.protobuf.Timestamp";

/// A message whose fields are columns.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) full_name: String,
    /// Those with columns, in the order of the columns; then those without one that are members of a oneof.
    pub(crate) fields: Vec<Field>,
    /// How many have columns.
    pub(crate) columns: usize,
    pub(crate) is_entry: bool,
    /// Number -> field, for small numbers.
    dense: Vec<u32>,
    /// Number -> field, for the others.
    sparse: HashMap<u32, u32>,
}

/// A field.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) name: String,
    /// With its message, for reasons.
    pub(crate) full_name: String,
    pub(crate) number: u32,
    /// The wire type of one value.
    pub(crate) wire: u32,
    pub(crate) kind: Kind,
    pub(crate) shape: Shape,
    /// The members of its oneof that have columns, if there are others.
    pub(crate) members: Arc<[usize]>,
    pub(crate) is_required: bool,
    oneof: Option<u64>,
}

/// How many values a field has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One, or the default.
    Implicit,
    /// One, or none: null.
    Optional,
    /// Any number. Written as one block, or one by one.
    Repeated { is_packed: bool },
    /// Any number of entries, the last of a key counts. The number is that of the place where the entries of the present row are kept.
    Map(usize),
}

/// What a value is.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Double,
    Float,
    Int64,
    SInt64,
    SFixed64,
    UInt64,
    Fixed64,
    Int32,
    SInt32,
    SFixed32,
    UInt32,
    Fixed32,
    Bool,
    /// Whether the parser refuses text that is not UTF-8, which is refused as a value in any case.
    String {
        is_checked: bool,
    },
    Bytes,
    Enum(Arc<Enum>),
    Message(Arc<Message>),
    /// The number of the place where the present row's is kept.
    Timestamp(usize),
}

impl Kind {
    /// Whether several values may be in one block.
    pub(crate) const fn is_packable(&self) -> bool {
        !matches!(
            self,
            Self::String { .. } | Self::Bytes | Self::Message(_) | Self::Timestamp(_)
        )
    }
}

/// An enum, whose values are names.
#[derive(Debug)]
pub(crate) struct Enum {
    pub(crate) full_name: String,
    pub(crate) is_closed: bool,
    by_number: HashMap<i32, String>,
    by_name: HashMap<String, i32>,
    /// The names of the numbers from 0.
    dense: Vec<Option<String>>,
}

impl Enum {
    fn new(proto: &EnumProto) -> Self {
        let mut by_number: HashMap<i32, String> = HashMap::new();
        for (name, number) in &proto.values {
            by_number.entry(*number).or_insert_with(|| name.clone());
        }
        Self {
            full_name: proto.full_name.clone(),
            is_closed: proto.is_closed,
            dense: (0..64).map(|number| by_number.get(&number).cloned()).collect(),
            by_number,
            by_name: proto.values.iter().cloned().collect(),
        }
    }

    /// The name of a number, the first if there are several.
    pub(crate) fn name(&self, number: i32) -> Option<&str> {
        let dense = usize::try_from(number).ok().and_then(|index| self.dense.get(index));
        match dense {
            Some(name) => name.as_deref(),
            None => self.by_number.get(&number).map(String::as_str),
        }
    }

    pub(crate) fn number(&self, name: &str) -> Option<i32> {
        self.by_name.get(name).copied()
    }
}

/// A plan, and how many places the rows of its readers need.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) message: Arc<Message>,
    pub(crate) timestamps: usize,
    pub(crate) maps: usize,
}

impl Plan {
    /// The plan of a message.
    pub(crate) fn new(files: &Files, full_name: &str) -> Result<Self, SchemaError> {
        let mut planner = Planner {
            files,
            enums: HashMap::new(),
            inside: Vec::new(),
            columns: 0,
            timestamps: 0,
            maps: 0,
        };
        let message = planner.message(full_name)?;
        Ok(Self {
            message,
            timestamps: planner.timestamps,
            maps: planner.maps,
        })
    }

    /// The same with these fields only, in the order of the message.
    pub(crate) fn pruned(&self, keep: &Keep) -> Result<Self, SchemaError> {
        Ok(Self {
            message: self.message.pruned(keep)?,
            ..*self
        })
    }
}

impl Message {
    fn new(full_name: String, fields: Vec<Field>, ghosts: Vec<Field>, is_entry: bool) -> Self {
        let columns = fields.len();
        let mut fields: Vec<Field> = fields.into_iter().chain(ghosts).collect();
        let mut oneofs: HashMap<u64, Vec<usize>> = HashMap::new();
        for (index, field) in fields.iter().enumerate().take(columns) {
            if let Some(oneof) = field.oneof {
                oneofs.entry(oneof).or_default().push(index);
            }
        }
        let oneofs: HashMap<u64, Arc<[usize]>> = oneofs
            .into_iter()
            .map(|(oneof, members)| (oneof, members.into()))
            .collect();
        for (index, field) in fields.iter_mut().enumerate() {
            let members = field.oneof.and_then(|oneof| oneofs.get(&oneof));
            let has_others = |members: &&Arc<[usize]>| members.len() > 1 || index >= columns;
            field.members = members.filter(has_others).map_or_else(|| Arc::from([]), Arc::clone);
        }
        let smaller = fields.iter().map(|field| field.number).filter(|number| *number < DENSE);
        let mut dense = vec![NONE; smaller.max().map_or(0, |most| most as usize + 1)];
        let mut sparse = HashMap::new();
        for (index, field) in (0_u32..).zip(&fields) {
            match dense.get_mut(field.number as usize) {
                Some(place) => *place = index,
                None => drop(sparse.insert(field.number, index)),
            }
        }
        Self {
            full_name,
            fields,
            columns,
            is_entry,
            dense,
            sparse,
        }
    }

    /// The index of the field with a number.
    #[inline]
    pub(crate) fn find(&self, number: u32) -> Option<usize> {
        match self.dense.get(number as usize) {
            Some(&NONE) => None,
            Some(index) => Some(*index as usize),
            None => self.sparse.get(&number).map(|index| *index as usize),
        }
    }

    /// The fields that have columns.
    pub(crate) fn with_columns(&self) -> &[Field] {
        self.fields.get(..self.columns).unwrap_or_default()
    }

    /// Arrow type of its columns.
    pub(crate) fn data_type(&self) -> DataType {
        let fields = self
            .with_columns()
            .iter()
            .map(|field| ArrowField::new(&field.name, field.data_type(), true));
        DataType::Struct(fields.collect())
    }

    /// The entry of a map with these fields of its value.
    fn with_pruned_value(&self, keep: &Keep) -> Result<Arc<Self>, SchemaError> {
        let mut fields = self.fields.clone();
        if let Some(value) = fields.last_mut() {
            *value = value.pruned(keep)?;
        }
        Ok(Arc::new(Self::new(self.full_name.clone(), fields, Vec::new(), true)))
    }

    fn pruned(&self, keep: &Keep) -> Result<Arc<Self>, SchemaError> {
        if let Some(unknown) = keep.unknown(self.with_columns().iter().map(|field| field.name.as_str())) {
            return Err(SchemaError::Invalid(format!(
                "the Protobuf message {} has no field {unknown}",
                self.full_name
            )));
        }
        let (mut fields, mut ghosts) = (Vec::new(), Vec::new());
        for field in &self.fields {
            if let Some(below) = keep.field(&field.name) {
                fields.push(field.pruned(below)?);
            } else if field.oneof.is_some() {
                ghosts.push(field.clone());
            }
        }
        Ok(Arc::new(Self::new(
            self.full_name.clone(),
            fields,
            ghosts,
            self.is_entry,
        )))
    }
}

impl Field {
    fn pruned(&self, keep: &Keep) -> Result<Self, SchemaError> {
        let mut made = self.clone();
        if keep.is_all() {
            return Ok(made);
        }
        let Kind::Message(inner) = &self.kind else {
            return Err(SchemaError::Invalid(format!(
                "the Protobuf field {} has no fields",
                self.full_name
            )));
        };
        made.kind = Kind::Message(if inner.is_entry {
            inner.with_pruned_value(keep)?
        } else {
            inner.pruned(keep)?
        });
        Ok(made)
    }

    /// Arrow type of its column.
    fn data_type(&self) -> DataType {
        let one = match &self.kind {
            Kind::Double => DataType::Float64,
            Kind::Float => DataType::Float32,
            Kind::Int64 | Kind::SInt64 | Kind::SFixed64 => DataType::Int64,
            Kind::UInt64 | Kind::Fixed64 => DataType::UInt64,
            Kind::Int32 | Kind::SInt32 | Kind::SFixed32 => DataType::Int32,
            Kind::UInt32 | Kind::Fixed32 => DataType::UInt32,
            Kind::Bool => DataType::Boolean,
            Kind::String { .. } | Kind::Enum(_) => DataType::Utf8,
            Kind::Bytes => DataType::Binary,
            Kind::Message(message) => message.data_type(),
            Kind::Timestamp(_) => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        };
        match self.shape {
            Shape::Implicit | Shape::Optional => one,
            Shape::Repeated { .. } => DataType::List(Arc::new(ArrowField::new_list_field(one, true))),
            Shape::Map(_) => {
                let DataType::Struct(entry) = one else {
                    return DataType::Null;
                };
                let entry: Fields = entry
                    .iter()
                    .enumerate()
                    .map(|(index, field)| field.as_ref().clone().with_nullable(index > 0))
                    .collect();
                DataType::Map(
                    Arc::new(ArrowField::new("entries", DataType::Struct(entry), false)),
                    false,
                )
            }
        }
    }
}

struct Planner<'a> {
    files: &'a Files,
    enums: HashMap<&'a str, Arc<Enum>>,
    /// Names of the messages around the present one.
    inside: Vec<&'a str>,
    columns: usize,
    timestamps: usize,
    maps: usize,
}

impl<'a> Planner<'a> {
    fn message(&mut self, full_name: &str) -> Result<Arc<Message>, SchemaError> {
        let proto = self
            .files
            .messages
            .get(full_name)
            .ok_or_else(|| SchemaError::Invalid(format!("the descriptors have no Protobuf message {full_name}")))?;
        if self.inside.contains(&proto.full_name.as_str()) {
            let what = format!("the Protobuf message {full_name} contains itself; Arrow has no such type");
            return Err(SchemaError::Invalid(what));
        }
        self.columns += proto.fields.len();
        if self.columns > MOST_COLUMNS || self.inside.len() > MOST_LEVELS as usize {
            let outermost = self.inside.first().copied().unwrap_or(full_name);
            return Err(SchemaError::Invalid(format!(
                "the Protobuf message {outermost} has more than {MOST_COLUMNS} columns or {MOST_LEVELS} levels of messages"
            )));
        }
        self.inside.push(&proto.full_name);
        // the entry of a map begins with its key, whatever the order of their declaration
        let mut fields: Vec<&FieldProto> = proto.fields.iter().collect();
        if proto.is_entry {
            fields.sort_by_key(|field| field.number);
        }
        let fields = fields
            .into_iter()
            .map(|field| self.field(proto, field))
            .collect::<Result<_, _>>()?;
        self.inside.pop();
        Ok(Arc::new(Message::new(
            full_name.to_owned(),
            fields,
            Vec::new(),
            proto.is_entry,
        )))
    }

    fn field(&mut self, message: &MessageProto, field: &FieldProto) -> Result<Field, SchemaError> {
        let full_name = format!("{}.{}", message.full_name, field.name);
        let inner = self.files.messages.get(&field.type_name);
        let is_map = field.is_repeated && inner.is_some_and(|inner| inner.is_entry);
        let kind = self.kind(field, &full_name)?;
        let shape = match (is_map, field.is_repeated, field.has_presence) {
            (true, ..) => {
                self.maps += 1;
                Shape::Map(self.maps - 1)
            }
            (_, true, _) => Shape::Repeated {
                is_packed: field.is_packed && kind.is_packable(),
            },
            (.., true) => Shape::Optional,
            _ => Shape::Implicit,
        };
        let wire = match field.kind {
            1 | 6 | 16 => FIXED64,
            2 | 7 | 15 => FIXED32,
            10 if !is_map => GROUP,
            9..=12 => LENGTH,
            _ => VARINT,
        };
        Ok(Field {
            name: field.name.clone(),
            full_name,
            number: field.number,
            wire,
            kind,
            shape,
            members: Arc::from([]),
            is_required: field.is_required,
            oneof: field.oneof,
        })
    }

    fn kind(&mut self, field: &FieldProto, full_name: &str) -> Result<Kind, SchemaError> {
        Ok(match field.kind {
            1 => Kind::Double,
            2 => Kind::Float,
            3 => Kind::Int64,
            4 => Kind::UInt64,
            5 => Kind::Int32,
            6 => Kind::Fixed64,
            7 => Kind::Fixed32,
            8 => Kind::Bool,
            9 => Kind::String {
                is_checked: field.is_utf8,
            },
            10 | 11 if field.type_name == TIMESTAMP => {
                self.timestamps += 1;
                Kind::Timestamp(self.timestamps - 1)
            }
            10 | 11 => Kind::Message(self.message(&field.type_name)?),
            12 => Kind::Bytes,
            13 => Kind::UInt32,
            14 => Kind::Enum(self.enumeration(&field.type_name)?),
            15 => Kind::SFixed32,
            16 => Kind::SFixed64,
            17 => Kind::SInt32,
            18 => Kind::SInt64,
            other => {
                return Err(SchemaError::Invalid(format!(
                    "the Protobuf field {full_name} has the unknown type {other}"
                )));
            }
        })
    }

    fn enumeration(&mut self, full_name: &str) -> Result<Arc<Enum>, SchemaError> {
        if let Some(known) = self.enums.get(full_name) {
            return Ok(Arc::clone(known));
        }
        let found = self.files.enums.get_key_value(full_name);
        let (name, proto) =
            found.ok_or_else(|| SchemaError::Invalid(format!("the descriptors have no Protobuf enum {full_name}")))?;
        let made = Arc::new(Enum::new(proto));
        self.enums.insert(name, Arc::clone(&made));
        Ok(made)
    }
}
