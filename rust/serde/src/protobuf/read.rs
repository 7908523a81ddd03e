//! Values of a Protobuf message -> columns.
//!
//! | in the bytes | in the columns |
//! |---|---|
//! | a field twice | the last one; messages are merged; repeated fields have the items of all |
//! | a member of a oneof after another | the others are null |
//! | no field | null where the field can tell that it is absent, else its default |
//! | items in blocks or one by one | the same, whatever is declared |
//! | an unknown number, another wire type, an unknown number of a closed enum | skipped |
//! | two entries of a map with one key | the last one, in the place of the first |
//! | an entry of a map with an unknown field | no entry: Google's Python library takes the whole entry for an unknown field |
//! | an extension | skipped |
//! | a string that is not UTF-8 | malformed, for proto2 too: Arrow's strings are UTF-8 |

use super::descriptor::low_i32;
use super::plan::{Enum, Field, Kind, Message, Shape};
use super::reader::Places;
use super::timestamp::push_timestamp;
use super::wire::{END_GROUP, Fault, GROUP, LENGTH, MOST_LEVELS, Wire, check_end, deeper, unzigzag};
use crate::column::{Column, NOT_UTF8, Values};
use crate::reason::Reason;

/// Reads one row.
pub(crate) struct Decoder<'a> {
    pub(crate) wire: Wire<'a>,
    pub(crate) places: Places,
    /// Whether the present entry of a map has a field that is unknown.
    pub(crate) has_unknown: bool,
    /// Those of a `Timestamp` that is beyond timestamp[us].
    pub(crate) seconds: i64,
    /// Whether each string is checked at once, not only those that a column has in the end.
    pub(crate) checks: bool,
    /// Whether something was appended that the column does not have in the end.
    pub(crate) took_back: bool,
}

impl<'a> Decoder<'a> {
    pub(crate) const fn new(bytes: &'a [u8], places: Places, checks: bool) -> Self {
        Self {
            wire: Wire::new(bytes),
            places,
            has_unknown: false,
            seconds: 0,
            checks,
            took_back: false,
        }
    }

    pub(crate) fn whole(&mut self, message: &Message, into: &mut Column) -> Result<(), Fault> {
        if i32::try_from(self.wire.rest().len()).is_err() {
            return Err(Fault::TooLong);
        }
        into.push_valid();
        self.fields(message, into, MOST_LEVELS, None)?;
        self.close(message, into)
    }

    /// Reads fields into the last row of a struct, until the limit or the end of the group that the tag `group` began.
    fn fields(&mut self, message: &Message, into: &mut Column, levels: u32, group: Option<u32>) -> Result<(), Fault> {
        let row = into.len();
        let Values::Struct(columns) = &mut into.values else {
            return Err(Fault::OtherColumn);
        };
        while !self.wire.is_at_end() {
            let tag = self.wire.tag()?;
            match (message.find(tag >> 3), tag & 7) {
                (_, END_GROUP) => return check_end(tag, group.unwrap_or_default()),
                (Some(index), _) => self.field(message, index, tag, columns, row, levels)?,
                (None, _) => {
                    self.has_unknown = true;
                    self.wire.skip(tag, levels)?;
                }
            }
        }
        if group.is_some() {
            Err(Fault::EndsInGroup)
        } else {
            Ok(())
        }
    }

    #[inline]
    fn field(
        &mut self,
        message: &Message,
        index: usize,
        tag: u32,
        columns: &mut [Column],
        row: usize,
        levels: u32,
    ) -> Result<(), Fault> {
        let Some(field) = message.fields.get(index) else {
            return Err(Fault::OtherColumn);
        };
        if tag & 7 != field.wire {
            return self.other_wire(field, tag, columns.get_mut(index), levels);
        }
        if !field.members.is_empty() {
            self.clear_others(message, index, columns, row)?;
        }
        let Some(column) = columns.get_mut(index) else {
            return self.wire.skip(tag, levels);
        };
        match (field.shape, &mut column.values) {
            (Shape::Implicit | Shape::Optional, _) => {
                if column.len() == row {
                    return self.again(field, tag, column, levels);
                }
                self.one(field, tag, column, levels)
            }
            (Shape::Repeated { .. }, Values::List(list)) => match &field.kind {
                Kind::Message(inner) => {
                    list.items.push_valid();
                    self.nested(inner, tag, &mut list.items, levels)?;
                    self.close(inner, &mut list.items)
                }
                Kind::Timestamp(_) => {
                    let (seconds, nanos) = self.timestamp(tag, (0, 0), levels)?;
                    push_timestamp(self.micros(seconds, nanos)?, &mut list.items)
                }
                _ => self.item(field, tag, &mut list.items, levels),
            },
            (Shape::Map(place), Values::List(list)) => self.entry(field, place, &mut list.items, levels),
            _ => Err(Fault::OtherColumn),
        }
    }

    /// A field of another wire type than it is written with: a block of items, or an unknown field.
    fn other_wire(&mut self, field: &Field, tag: u32, column: Option<&mut Column>, levels: u32) -> Result<(), Fault> {
        let is_block = tag & 7 == LENGTH && matches!(field.shape, Shape::Repeated { .. }) && field.kind.is_packable();
        match column {
            Some(column) if is_block => self.packed(field, column),
            _ => {
                self.has_unknown = true;
                self.wire.skip(tag, levels)
            }
        }
    }

    /// A field that has had a value in this row: messages are merged, all else is replaced.
    #[cold]
    fn again(&mut self, field: &Field, tag: u32, column: &mut Column, levels: u32) -> Result<(), Fault> {
        match &field.kind {
            Kind::Message(inner) => self.nested(inner, tag, column, levels).map(drop),
            Kind::Timestamp(place) => {
                let before = self.places.timestamps.get(*place).copied().unwrap_or_default();
                self.place_timestamp(*place, tag, before, levels)
            }
            Kind::Enum(of) if self.is_unknown(of)? => {
                self.has_unknown = true;
                self.wire.varint().map(drop)
            }
            _ => {
                self.took_back |= matches!(field.kind, Kind::String { .. });
                column.truncate(column.len() - 1);
                self.item(field, tag, column, levels)
            }
        }
    }

    /// Takes back the other members of a oneof, unless the value is none that the field takes.
    fn clear_others(
        &mut self,
        message: &Message,
        index: usize,
        columns: &mut [Column],
        row: usize,
    ) -> Result<(), Fault> {
        let Some(field) = message.fields.get(index) else {
            return Err(Fault::OtherColumn);
        };
        if let Kind::Enum(of) = &field.kind
            && self.is_unknown(of)?
        {
            return Ok(());
        }
        for member in field.members.iter().filter(|member| **member != index) {
            let Some(other) = columns.get_mut(*member).filter(|other| other.len() == row) else {
                continue;
            };
            self.took_back = true;
            other.truncate(row - 1);
            if let Some(Kind::Message(inner)) = message.fields.get(*member).map(|field| &field.kind) {
                self.forget(inner);
            }
        }
        Ok(())
    }

    /// Whether the number that follows is not one of a closed enum.
    fn is_unknown(&self, of: &Enum) -> Result<bool, Fault> {
        if !of.is_closed {
            return Ok(false);
        }
        Ok(of.name(low_i32(self.wire.peek_varint()?)).is_none())
    }

    /// Appends one value.
    // a call for each value costs more than reading its bytes
    #[inline(always)]
    fn one(&mut self, field: &Field, tag: u32, column: &mut Column, levels: u32) -> Result<(), Fault> {
        match (&field.kind, &mut column.values) {
            (Kind::Double, Values::Float64(values)) => values.push(f64::from_le_bytes(self.wire.fixed()?)),
            (Kind::Float, Values::Float32(values)) => values.push(f32::from_le_bytes(self.wire.fixed()?)),
            (Kind::Int64, Values::Int64(values)) => values.push(self.wire.varint()?.cast_signed()),
            (Kind::SInt64, Values::Int64(values)) => values.push(unzigzag(self.wire.varint()?)),
            (Kind::SFixed64, Values::Int64(values)) => values.push(i64::from_le_bytes(self.wire.fixed()?)),
            (Kind::UInt64, Values::UInt64(values)) => values.push(self.wire.varint()?),
            (Kind::Fixed64, Values::UInt64(values)) => values.push(u64::from_le_bytes(self.wire.fixed()?)),
            (Kind::Int32, Values::Int32(values)) => values.push(low_i32(self.wire.varint()?)),
            (Kind::SInt32, Values::Int32(values)) => {
                let low = u64::from(low_i32(self.wire.varint()?).cast_unsigned());
                values.push(low_i32(unzigzag(low).cast_unsigned()));
            }
            (Kind::SFixed32, Values::Int32(values)) => values.push(i32::from_le_bytes(self.wire.fixed()?)),
            (Kind::UInt32, Values::UInt32(values)) => values.push(low_i32(self.wire.varint()?).cast_unsigned()),
            (Kind::Fixed32, Values::UInt32(values)) => values.push(u32::from_le_bytes(self.wire.fixed()?)),
            (Kind::Bool, Values::Boolean(bits)) => bits.append(self.wire.varint()? != 0),
            (Kind::String { is_checked }, Values::Bytes(values)) => {
                let bytes = self.wire.bytes()?;
                // the last of several counts, where the parser takes any: see `close`
                let is_last = *is_checked || matches!(field.shape, Shape::Repeated { .. });
                if self.checks && is_last && std::str::from_utf8(bytes).is_err() {
                    return Err(Fault::NotUtf8);
                }
                if is_last {
                    values.push_text(bytes).map_err(not_utf8)?;
                } else {
                    values.push(bytes).map_err(full)?;
                }
            }
            (Kind::Bytes, Values::Bytes(values)) => values.push(self.wire.bytes()?).map_err(full)?,
            (Kind::Enum(of), Values::Bytes(values)) => {
                let number = low_i32(self.wire.varint()?);
                match of.name(number) {
                    Some(name) => values.push(name.as_bytes()).map_err(full)?,
                    None if of.is_closed => {
                        self.has_unknown = true;
                        return Ok(());
                    }
                    None => values.push(number.to_string().as_bytes()).map_err(full)?,
                }
            }
            (Kind::Message(inner), _) => {
                column.push_valid();
                return self.nested(inner, tag, column, levels).map(drop);
            }
            (Kind::Timestamp(place), Values::Int64(values)) => {
                self.place_timestamp(*place, tag, (0, 0), levels)?;
                values.push(0);
            }
            _ => return Err(Fault::OtherColumn),
        }
        column.push_valid();
        Ok(())
    }

    /// The same, as a call.
    fn item(&mut self, field: &Field, tag: u32, column: &mut Column, levels: u32) -> Result<(), Fault> {
        self.one(field, tag, column, levels)
    }

    /// Reads a message or group into the last row of a struct, which stays open. Returns whether the message itself has an unknown field.
    pub(crate) fn nested(
        &mut self,
        message: &Message,
        tag: u32,
        into: &mut Column,
        levels: u32,
    ) -> Result<bool, Fault> {
        let levels = deeper(levels)?;
        let outer = std::mem::replace(&mut self.has_unknown, false);
        if tag & 7 == GROUP {
            self.fields(message, into, levels, Some(tag))?;
        } else {
            let after = self.wire.enter()?;
            self.fields(message, into, levels, None)?;
            self.wire.leave(after);
        }
        Ok(std::mem::replace(&mut self.has_unknown, outer))
    }

    /// Reads a block of items.
    fn packed(&mut self, field: &Field, column: &mut Column) -> Result<(), Fault> {
        let Values::List(list) = &mut column.values else {
            return Err(Fault::OtherColumn);
        };
        let after = self.wire.enter()?;
        while !self.wire.is_at_end() {
            self.one(field, 0, &mut list.items, 0)?;
        }
        self.wire.leave(after);
        Ok(())
    }
}

#[cold]
pub(crate) fn full(_: Reason) -> Fault {
    Fault::Full
}

#[cold]
fn not_utf8(reason: Reason) -> Fault {
    if reason == NOT_UTF8 {
        Fault::NotUtf8
    } else {
        Fault::Full
    }
}
