//! Descriptors of .proto files: what protoc says about messages and enums, with the features of editions resolved.
//!
//! They are read from the bytes of `google.protobuf.FileDescriptorProto`, as every implementation of Protobuf keeps them. Only what decides
//! about values is kept.

use std::collections::HashMap;

use super::wire::{LENGTH, MOST_LEVELS, VARINT, Wire};
use crate::reason::{Reason, SchemaError};

const EDITION_2023: u64 = 1000;
const EDITION_PROTO2: u64 = 998;
const EDITION_PROTO3: u64 = 999;
const REPEATED: u64 = 3;
const REQUIRED: u64 = 2;

/// What decides how fields are kept in bytes: the features of editions. proto2 and proto3 are two settings of them.
///
/// Rule: <https://protobuf.dev/editions/features>.
#[derive(Debug, Clone, Copy)]
struct Features {
    /// 1 explicit, 2 implicit, 3 required.
    presence: u64,
    /// 1 open, 2 closed.
    enum_type: u64,
    /// 1 packed, 2 expanded.
    encoding: u64,
    /// 2 verify, 3 none.
    utf8: u64,
    /// 1 behind a length, 2 a group.
    delimited: u64,
}

impl Features {
    const fn of_edition(edition: u64) -> Self {
        let (presence, enum_type, encoding, utf8) = match edition {
            ..=EDITION_PROTO2 => (1, 2, 2, 3),
            EDITION_PROTO3 => (2, 1, 1, 2),
            _ => (1, 1, 1, 2),
        };
        Self {
            presence,
            enum_type,
            encoding,
            utf8,
            delimited: 1,
        }
    }

    /// These with what a `FeatureSet` sets.
    fn with(mut self, set: &[u8]) -> Result<Self, Reason> {
        each(set, |number, part| {
            match (number, part) {
                (1, Part::Number(value)) => self.presence = value,
                (2, Part::Number(value)) => self.enum_type = value,
                (3, Part::Number(value)) => self.encoding = value,
                (4, Part::Number(value)) => self.utf8 = value,
                (5, Part::Number(value)) => self.delimited = value,
                _ => {}
            }
            Ok(())
        })?;
        Ok(self)
    }
}

/// A message.
#[derive(Debug, Default)]
pub(crate) struct MessageProto {
    pub(crate) full_name: String,
    /// In the order of their declaration.
    pub(crate) fields: Vec<FieldProto>,
    /// Whether it is the entry of a map.
    pub(crate) is_entry: bool,
    /// Full names of the messages in it, in the order of their declaration.
    pub(crate) nested: Vec<String>,
}

/// A field.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent properties of a field")]
pub(crate) struct FieldProto {
    pub(crate) name: String,
    pub(crate) number: u32,
    /// A number of `FieldDescriptorProto.Type`.
    pub(crate) kind: u64,
    /// Full name of its message or enum.
    pub(crate) type_name: String,
    pub(crate) oneof: Option<u64>,
    pub(crate) is_repeated: bool,
    pub(crate) is_required: bool,
    pub(crate) has_presence: bool,
    pub(crate) is_packed: bool,
    pub(crate) is_utf8: bool,
}

/// An enum.
#[derive(Debug, Default)]
pub(crate) struct EnumProto {
    pub(crate) full_name: String,
    pub(crate) is_closed: bool,
    /// Names and numbers in the order of their declaration.
    pub(crate) values: Vec<(String, i32)>,
}

/// Everything that some files declare.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub(crate) messages: HashMap<String, MessageProto>,
    pub(crate) enums: HashMap<String, EnumProto>,
    /// Name of a file -> full names of its outermost messages, in the order of their declaration.
    pub(crate) outermost: HashMap<String, Vec<String>>,
    /// Message -> the file it is in.
    pub(crate) file_of: HashMap<String, String>,
}

impl Files {
    /// The files of a `google.protobuf.FileDescriptorSet`.
    pub(crate) fn new(set: &[u8]) -> Result<Self, SchemaError> {
        let mut made = Self::default();
        let read = each(set, |number, part| match (number, part) {
            (1, Part::Bytes(file)) => made.add(file),
            _ => Ok(()),
        });
        match read {
            Ok(()) => Ok(made),
            Err(reason) => Err(SchemaError::Invalid(format!(
                "not the descriptors of .proto files: {reason}"
            ))),
        }
    }

    fn add(&mut self, file: &[u8]) -> Result<(), Reason> {
        let (mut name, mut package, mut edition) = (String::new(), String::new(), EDITION_PROTO2);
        let (mut messages, mut enums, mut set) = (Vec::new(), Vec::new(), Vec::new());
        each(file, |number, part| {
            match (number, part) {
                (1, Part::Bytes(bytes)) => name = text(bytes)?,
                (2, Part::Bytes(bytes)) => package = text(bytes)?,
                (4, Part::Bytes(bytes)) => messages.push(bytes),
                (5, Part::Bytes(bytes)) => enums.push(bytes),
                (8, Part::Bytes(bytes)) => set.extend(features(bytes, 50)?),
                (12, Part::Bytes(b"proto3")) => edition = EDITION_PROTO3,
                (12, Part::Bytes(b"editions")) => edition = edition.max(EDITION_2023),
                (14, Part::Number(value)) => edition = value,
                _ => {}
            }
            Ok(())
        })?;
        let inherited = Features::of_edition(edition).with(&set)?;
        let mut outermost = Vec::new();
        for message in messages {
            outermost.push(self.add_message(message, &package, inherited, &name, MOST_LEVELS)?);
        }
        for one in enums {
            self.add_enum(one, &package, inherited)?;
        }
        self.outermost.insert(name, outermost);
        Ok(())
    }

    /// The name of the message that was added.
    fn add_message(
        &mut self,
        bytes: &[u8],
        outer: &str,
        inherited: Features,
        file: &str,
        levels: u32,
    ) -> Result<String, Reason> {
        let levels = super::wire::deeper(levels)?;
        let (mut made, mut name, mut set) = (MessageProto::default(), String::new(), Vec::new());
        let (mut fields, mut nested, mut enums, mut oneofs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        each(bytes, |number, part| {
            match (number, part) {
                (1, Part::Bytes(bytes)) => name = text(bytes)?,
                (2, Part::Bytes(bytes)) => fields.push(bytes),
                (3, Part::Bytes(bytes)) => nested.push(bytes),
                (4, Part::Bytes(bytes)) => enums.push(bytes),
                (7, Part::Bytes(bytes)) => {
                    made.is_entry |= is_set(bytes, 7)?;
                    set.extend(features(bytes, 12)?);
                }
                (8, Part::Bytes(bytes)) => oneofs.push(bytes),
                _ => {}
            }
            Ok(())
        })?;
        let own = inherited.with(&set)?;
        let oneofs = oneofs.into_iter().map(|bytes| {
            let mut set = Vec::new();
            each(bytes, |number, part| {
                if let (2, Part::Bytes(options)) = (number, part) {
                    set.extend(features(options, 1)?);
                }
                Ok(())
            })?;
            own.with(&set)
        });
        let oneofs = oneofs.collect::<Result<Vec<_>, _>>()?;
        made.full_name = joined(outer, &name);
        for field in fields {
            made.fields.push(field_of(field, own, &oneofs, made.is_entry)?);
        }
        for message in nested {
            made.nested
                .push(self.add_message(message, &made.full_name, own, file, levels)?);
        }
        for one in enums {
            self.add_enum(one, &made.full_name, own)?;
        }
        let full_name = made.full_name.clone();
        self.file_of.insert(full_name.clone(), file.to_owned());
        self.messages.insert(full_name.clone(), made);
        Ok(full_name)
    }

    fn add_enum(&mut self, bytes: &[u8], outer: &str, inherited: Features) -> Result<(), Reason> {
        let (mut made, mut set) = (EnumProto::default(), Vec::new());
        each(bytes, |number, part| {
            match (number, part) {
                (1, Part::Bytes(bytes)) => made.full_name = joined(outer, &text(bytes)?),
                (2, Part::Bytes(value)) => {
                    let (mut name, mut of_value) = (String::new(), 0);
                    each(value, |number, part| {
                        match (number, part) {
                            (1, Part::Bytes(bytes)) => name = text(bytes)?,
                            (2, Part::Number(number)) => of_value = low_i32(number),
                            _ => {}
                        }
                        Ok(())
                    })?;
                    made.values.push((name, of_value));
                }
                (3, Part::Bytes(options)) => set.extend(features(options, 7)?),
                _ => {}
            }
            Ok(())
        })?;
        made.is_closed = inherited.with(&set)?.enum_type == 2;
        self.enums.insert(made.full_name.clone(), made);
        Ok(())
    }
}

fn field_of(bytes: &[u8], inherited: Features, oneofs: &[Features], in_entry: bool) -> Result<FieldProto, Reason> {
    let (mut made, mut set, mut label, mut packed) = (FieldProto::default(), Vec::new(), 0, None);
    each(bytes, |number, part| {
        match (number, part) {
            (1, Part::Bytes(bytes)) => made.name = text(bytes)?,
            (3, Part::Number(number)) => made.number = u32::try_from(number).unwrap_or_default(),
            (4, Part::Number(number)) => label = number,
            (5, Part::Number(number)) => made.kind = number,
            (6, Part::Bytes(bytes)) => made.type_name = text(bytes)?.trim_start_matches('.').to_owned(),
            (9, Part::Number(number)) => made.oneof = Some(number),
            (8, Part::Bytes(options)) => {
                each(options, |number, part| {
                    if let (2, Part::Number(number)) = (number, part) {
                        packed = Some(number != 0);
                    }
                    Ok(())
                })?;
                set.extend(features(options, 21)?);
            }
            _ => {}
        }
        Ok(())
    })?;
    let of_oneof = made
        .oneof
        .and_then(|index| oneofs.get(usize::try_from(index).unwrap_or(usize::MAX)));
    let own = of_oneof.copied().unwrap_or(inherited).with(&set)?;
    made.is_repeated = label == REPEATED;
    made.is_required = label == REQUIRED || (own.presence == 3 && !made.is_repeated);
    made.is_packed = packed.unwrap_or(own.encoding == 1);
    made.is_utf8 = own.utf8 != 3;
    let is_message = made.kind == 10 || made.kind == 11;
    made.has_presence = !in_entry && !made.is_repeated && (is_message || made.oneof.is_some() || own.presence != 2);
    // maps and their values are never groups, whatever their file says
    if made.kind == 11 && own.delimited == 2 && !in_entry {
        made.kind = 10;
    }
    Ok(made)
}

/// What follows a tag.
enum Part<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Calls `take` with the numbers and contents of the fields of a message; those of other wire types are left out.
fn each<'a>(bytes: &'a [u8], mut take: impl FnMut(u32, Part<'a>) -> Result<(), Reason>) -> Result<(), Reason> {
    let mut wire = Wire::new(bytes);
    while !wire.is_at_end() {
        let tag = wire.tag()?;
        match tag & 7 {
            VARINT => take(tag >> 3, Part::Number(wire.varint()?))?,
            LENGTH => take(tag >> 3, Part::Bytes(wire.bytes()?))?,
            _ => wire.skip(tag, MOST_LEVELS)?,
        }
    }
    Ok(())
}

/// The bytes of the `FeatureSet` of some options.
fn features(options: &[u8], field: u32) -> Result<Vec<u8>, Reason> {
    let mut found = Vec::new();
    each(options, |number, part| {
        if let (true, Part::Bytes(set)) = (number == field, part) {
            found.extend_from_slice(set);
        }
        Ok(())
    })?;
    Ok(found)
}

fn is_set(options: &[u8], field: u32) -> Result<bool, Reason> {
    let mut found = false;
    each(options, |number, part| {
        if let (true, Part::Number(value)) = (number == field, part) {
            found = value != 0;
        }
        Ok(())
    })?;
    Ok(found)
}

fn text(bytes: &[u8]) -> Result<String, Reason> {
    std::str::from_utf8(bytes)
        .map(str::to_owned)
        .map_err(|_| Reason::plain("a name is not UTF-8"))
}

fn joined(outer: &str, name: &str) -> String {
    if outer.is_empty() {
        name.to_owned()
    } else {
        format!("{outer}.{name}")
    }
}

/// The low 32 bits: what an enum's number or an int32 is.
pub(crate) fn low_i32(bits: u64) -> i32 {
    let [a, b, c, d, ..] = bits.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}
