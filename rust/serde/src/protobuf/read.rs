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

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::DataType;

use super::descriptor::{Files, low_i32};
use super::indexes::Indexes;
use super::plan::{Enum, Field, Kind, Message, Plan, Shape};
use super::wire::{END_GROUP, Fault, GROUP, LENGTH, MOST_LEVELS, VARINT, Wire, check_end, deeper, unzigzag};
use crate::column::{Column, Values};
use crate::decode::ReadValue;
use crate::reason::{Reason, SchemaError};

const PER_SECOND: i128 = 1_000_000;
/// A value of Confluent's wire format has as many bytes before its schema ends.
const FRAME: usize = 5;

thread_local! {
    /// What a thread used for its last value, to be used for the next.
    static PLACES: Cell<Places> = const { Cell::new(Places::NONE) };
}

/// What is known of the present row beyond its columns.
#[derive(Debug, Default)]
struct Places {
    /// Seconds and nanoseconds of each `Timestamp` that is not repeated: several of them are merged.
    timestamps: Vec<(i64, i32)>,
    /// Where the entries of each map are in the bytes.
    maps: Vec<Vec<Range<usize>>>,
}

impl Places {
    const NONE: Self = Self {
        timestamps: Vec::new(),
        maps: Vec::new(),
    };
}

/// Reads values of a message.
#[derive(Debug, Clone)]
pub struct ProtobufReader {
    plan: Plan,
    data_type: DataType,
    indexes: Option<Arc<Indexes>>,
}

impl ProtobufReader {
    /// A reader of the message `full_name`.
    ///
    /// `descriptors` are the bytes of a `google.protobuf.FileDescriptorSet`: its file and all that it imports. `is_indexed`: values begin with Confluent's
    /// message indexes.
    ///
    /// # Errors
    ///
    /// Not descriptors, or a message that is none of theirs, or one without an Arrow type: it contains itself, or is larger than any table.
    pub fn new(descriptors: &[u8], full_name: &str, is_indexed: bool) -> Result<Self, SchemaError> {
        let files = Files::new(descriptors)?;
        let plan = Plan::new(&files, full_name)?;
        let indexes = if is_indexed {
            Some(Arc::new(Indexes::new(&files, full_name)?))
        } else {
            None
        };
        Ok(Self {
            data_type: plan.message.data_type(),
            plan,
            indexes,
        })
    }

    #[inline]
    fn read_message(&self, bytes: &[u8], into: &mut Column) -> Result<(), Reason> {
        let has_places = self.plan.timestamps + self.plan.maps > 0;
        let mut decoder = Decoder {
            wire: Wire::new(bytes),
            places: if has_places { self.places() } else { Places::NONE },
            has_unknown: false,
            seconds: 0,
        };
        match decoder.whole(&self.plan.message, into) {
            Ok(()) if has_places => PLACES.set(decoder.places),
            Ok(()) => {}
            Err(fault) => return Err(self.reason(fault, &decoder, bytes)),
        }
        Ok(())
    }

    /// Those of this thread, enough of them for a row.
    fn places(&self) -> Places {
        let mut places = PLACES.take();
        let timestamps = places.timestamps.len().max(self.plan.timestamps);
        places.timestamps.resize(timestamps, (0, 0));
        places.maps.resize(places.maps.len().max(self.plan.maps), Vec::new());
        places
    }

    #[cold]
    fn reason(&self, fault: Fault, decoder: &Decoder<'_>, bytes: &[u8]) -> Reason {
        let framed = if bytes.len() > FRAME && bytes.first() == Some(&0) && self.indexes.is_none() {
            " (it begins as in Confluent's wire format: give the deserializer to Confluent)"
        } else {
            ""
        };
        let place = if decoder.wire.is_at_end() {
            String::new()
        } else {
            format!(", at byte {}", decoder.wire.at)
        };
        let what = match fault {
            Fault::Beyond => format!("a Timestamp of {} seconds is beyond timestamp[us]", decoder.seconds),
            other => Reason::from(other).to_string(),
        };
        Reason::from(format!("not a {}: {what}{place}{framed}", self.plan.message.full_name))
    }
}

impl ReadValue for ProtobufReader {
    fn data_type(&self) -> &DataType {
        &self.data_type
    }

    fn read(&self, bytes: &[u8], into: &mut Column) -> Result<(), Reason> {
        let message = match &self.indexes {
            Some(indexes) => indexes.rest(bytes)?,
            None => bytes,
        };
        self.read_message(message, into)
    }

    fn pruned(&self, fields: &[Vec<String>]) -> Result<Arc<dyn ReadValue>, SchemaError> {
        let plan = self.plan.pruned(fields)?;
        Ok(Arc::new(Self {
            data_type: plan.message.data_type(),
            plan,
            indexes: self.indexes.clone(),
        }))
    }
}

/// Reads one row.
struct Decoder<'a> {
    wire: Wire<'a>,
    places: Places,
    /// Whether the present entry of a map has a field that is unknown.
    has_unknown: bool,
    /// Those of a `Timestamp` that is beyond timestamp[us].
    seconds: i64,
}

impl Decoder<'_> {
    fn whole(&mut self, message: &Message, into: &mut Column) -> Result<(), Fault> {
        if i32::try_from(self.wire.limit).is_err() {
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
            return match columns.get_mut(index) {
                Some(column)
                    if tag & 7 == LENGTH
                        && matches!(field.shape, Shape::Repeated { .. })
                        && field.kind.is_packable() =>
                {
                    self.packed(field, column)
                }
                _ => {
                    self.has_unknown = true;
                    self.wire.skip(tag, levels)
                }
            };
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
                _ => self.one(field, tag, &mut list.items, levels),
            },
            (Shape::Map(place), Values::List(list)) => self.entry(field, place, &mut list.items, levels),
            _ => Err(Fault::OtherColumn),
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
                column.truncate(column.len() - 1);
                self.one(field, tag, column, levels)
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
            other.truncate(row - 1);
            if let Some(Kind::Message(inner)) = message.fields.get(*member).map(|field| &field.kind) {
                self.forget(inner);
            }
        }
        Ok(())
    }

    /// Whether the number that follows is not one of a closed enum.
    fn is_unknown(&mut self, of: &Enum) -> Result<bool, Fault> {
        if !of.is_closed {
            return Ok(false);
        }
        let begin = self.wire.at;
        let number = low_i32(self.wire.varint()?);
        self.wire.at = begin;
        Ok(of.name(number).is_none())
    }

    /// Appends one value.
    #[inline]
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
                let later = !is_checked && !matches!(field.shape, Shape::Repeated { .. });
                if !later && std::str::from_utf8(bytes).is_err() {
                    return Err(Fault::NotUtf8);
                }
                values.push(bytes).map_err(full)?;
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

    /// Reads a message or group into the last row of a struct, which stays open. Returns whether the message itself has an unknown field.
    fn nested(&mut self, message: &Message, tag: u32, into: &mut Column, levels: u32) -> Result<bool, Fault> {
        let levels = deeper(levels)?;
        let outer = std::mem::replace(&mut self.has_unknown, false);
        if tag & 7 == GROUP {
            self.fields(message, into, levels, Some(tag))?;
        } else {
            let end = self.wire.end()?;
            let limit = std::mem::replace(&mut self.wire.limit, end);
            self.fields(message, into, levels, None)?;
            self.wire.limit = limit;
        }
        Ok(std::mem::replace(&mut self.has_unknown, outer))
    }

    /// Reads a block of items.
    fn packed(&mut self, field: &Field, column: &mut Column) -> Result<(), Fault> {
        let Values::List(list) = &mut column.values else {
            return Err(Fault::OtherColumn);
        };
        let end = self.wire.end()?;
        let limit = std::mem::replace(&mut self.wire.limit, end);
        while !self.wire.is_at_end() {
            self.one(field, 0, &mut list.items, 0)?;
        }
        self.wire.limit = limit;
        Ok(())
    }

    /// Appends an entry of a map.
    fn entry(&mut self, field: &Field, place: usize, items: &mut Column, levels: u32) -> Result<(), Fault> {
        let Kind::Message(entry) = &field.kind else {
            return Err(Fault::OtherColumn);
        };
        let (begin, rows) = (self.wire.at, items.len());
        items.push_valid();
        if self.nested(entry, LENGTH, items, levels)? {
            self.forget(entry);
            items.truncate(rows);
            return Ok(());
        }
        let end = self.wire.at;
        self.close(entry, items)?;
        if let Some(entries) = self.places.maps.get_mut(place) {
            entries.push(begin..end);
        }
        Ok(())
    }

    /// Forgets the entries of maps inside a message that is taken back.
    fn forget(&mut self, message: &Message) {
        for field in message.with_columns() {
            if let Some(entries) = self.places_of(field) {
                entries.clear();
            }
            if let Kind::Message(inner) = &field.kind {
                self.forget(inner);
            }
        }
    }

    fn places_of(&mut self, field: &Field) -> Option<&mut Vec<Range<usize>>> {
        match field.shape {
            Shape::Map(place) => self.places.maps.get_mut(place),
            _ => None,
        }
    }

    fn place_timestamp(&mut self, place: usize, tag: u32, before: (i64, i32), levels: u32) -> Result<(), Fault> {
        let read = self.timestamp(tag, before, levels)?;
        if let Some(kept) = self.places.timestamps.get_mut(place) {
            *kept = read;
        }
        Ok(())
    }

    /// Seconds and nanoseconds of a `Timestamp`, of which some are known.
    fn timestamp(&mut self, tag: u32, before: (i64, i32), levels: u32) -> Result<(i64, i32), Fault> {
        let levels = deeper(levels)?;
        let (mut seconds, mut nanos) = before;
        let is_group = tag & 7 == GROUP;
        let end = if is_group { self.wire.limit } else { self.wire.end()? };
        let limit = std::mem::replace(&mut self.wire.limit, end);
        loop {
            if self.wire.is_at_end() {
                if is_group {
                    return Err(Fault::EndsInGroup);
                }
                break;
            }
            let inner = self.wire.tag()?;
            match (inner >> 3, inner & 7) {
                (_, END_GROUP) => {
                    check_end(inner, if is_group { tag } else { 0 })?;
                    break;
                }
                (1, VARINT) => seconds = self.wire.varint()?.cast_signed(),
                (2, VARINT) => nanos = low_i32(self.wire.varint()?),
                _ => self.wire.skip(inner, levels)?,
            }
        }
        self.wire.limit = limit;
        Ok((seconds, nanos))
    }

    fn micros(&mut self, seconds: i64, nanos: i32) -> Result<i64, Fault> {
        self.seconds = seconds;
        let micros = i128::from(seconds) * PER_SECOND + i128::from(nanos.div_euclid(1000));
        i64::try_from(micros).map_err(|_| Fault::Beyond)
    }

    /// Ends the last row of a struct: fields that had no value get what stands for none, lists end.
    fn close(&mut self, message: &Message, into: &mut Column) -> Result<(), Fault> {
        let row = into.len();
        let Values::Struct(columns) = &mut into.values else {
            return Err(Fault::OtherColumn);
        };
        for (field, column) in message.with_columns().iter().zip(columns) {
            match field.shape {
                Shape::Implicit | Shape::Optional if column.len() == row => self.check_last(field, row, column)?,
                Shape::Optional => column.push_null(),
                Shape::Implicit => self.push_default(field, column)?,
                Shape::Repeated { .. } | Shape::Map(_) => {
                    self.only_last_entries(field, column)?;
                    let Values::List(list) = &mut column.values else {
                        return Err(Fault::OtherColumn);
                    };
                    list.close().map_err(full)?;
                    column.push_valid();
                }
            }
        }
        Ok(())
    }

    /// What is left to do for a value once the row is complete.
    #[inline]
    fn check_last(&mut self, field: &Field, row: usize, column: &mut Column) -> Result<(), Fault> {
        match (&field.kind, &mut column.values) {
            (Kind::Message(inner), _) => self.close(inner, column),
            (Kind::Timestamp(place), Values::Int64(values)) => {
                let (seconds, nanos) = self.places.timestamps.get(*place).copied().unwrap_or_default();
                if let Some(last) = values.last_mut() {
                    *last = self.micros(seconds, nanos)?;
                }
                Ok(())
            }
            (Kind::String { is_checked: false }, Values::Bytes(values)) => {
                let last = values.values_from(row - 1).next().unwrap_or_default();
                std::str::from_utf8(last).map(drop).map_err(|_| Fault::NotUtf8)
            }
            _ => Ok(()),
        }
    }

    /// Appends the default of a field that cannot tell that it is absent.
    fn push_default(&mut self, field: &Field, column: &mut Column) -> Result<(), Fault> {
        match (&field.kind, &mut column.values) {
            (Kind::Message(inner), _) => {
                column.push_valid();
                return self.close(inner, column);
            }
            (Kind::Enum(of), Values::Bytes(values)) => match of.name(0) {
                Some(name) => values.push(name.as_bytes()).map_err(full)?,
                None => values.push(b"0").map_err(full)?,
            },
            (_, values) => values.push_default(),
        }
        column.push_valid();
        Ok(())
    }

    /// Leaves the last entry of each key of the present row's map.
    fn only_last_entries(&mut self, field: &Field, column: &mut Column) -> Result<(), Fault> {
        let Some(entries) = self.places_of(field) else {
            return Ok(());
        };
        if entries.len() < 2 {
            entries.clear();
            return Ok(());
        }
        let mut entries = std::mem::take(entries);
        let (Kind::Message(entry), Values::List(list)) = (&field.kind, &mut column.values) else {
            return Err(Fault::OtherColumn);
        };
        let begin = list.items.len() - entries.len();
        if let Some(last) = last_of_each_key(&list.items, begin)? {
            list.items.truncate(begin);
            let at = self.wire.at;
            let limit = self.wire.limit;
            for range in last.into_iter().filter_map(|index| entries.get(index).cloned()) {
                (self.wire.at, self.wire.limit) = (range.start, range.end);
                list.items.push_valid();
                self.nested(entry, LENGTH, &mut list.items, MOST_LEVELS)?;
                self.close(entry, &mut list.items)?;
            }
            (self.wire.at, self.wire.limit) = (at, limit);
        }
        entries.clear();
        if let Some(place) = self.places_of(field) {
            *place = entries;
        }
        Ok(())
    }
}

/// For each key of the entries from `begin`, in the order in which they appear first, the number of its last entry; None if no key is there twice.
fn last_of_each_key(entries: &Column, begin: usize) -> Result<Option<Vec<usize>>, Fault> {
    let Values::Struct(columns) = &entries.values else {
        return Err(Fault::OtherColumn);
    };
    match columns.first().map(|keys| &keys.values) {
        Some(Values::Int64(keys)) => Ok(last_of_each(keys.iter().skip(begin))),
        Some(Values::UInt64(keys)) => Ok(last_of_each(keys.iter().skip(begin))),
        Some(Values::Int32(keys)) => Ok(last_of_each(keys.iter().skip(begin))),
        Some(Values::UInt32(keys)) => Ok(last_of_each(keys.iter().skip(begin))),
        Some(Values::Boolean(bits)) => Ok(last_of_each((begin..bits.len()).map(|row| bits.get_bit(row)))),
        Some(Values::Bytes(keys)) => Ok(last_of_each(keys.values_from(begin))),
        _ => Err(Fault::OtherColumn),
    }
}

fn last_of_each<K: Eq + Hash>(keys: impl Iterator<Item = K> + Clone) -> Option<Vec<usize>> {
    const FEW: usize = 8;
    let mut rest = keys.clone();
    if keys.clone().nth(FEW).is_none() {
        let mut is_twice = false;
        while let Some(key) = rest.next() {
            is_twice |= rest.clone().any(|other| other == key);
        }
        if !is_twice {
            return None;
        }
    }
    let mut place: HashMap<K, usize> = HashMap::new();
    let mut last: Vec<usize> = Vec::new();
    let mut count = 0;
    for (index, key) in keys.enumerate() {
        count += 1;
        let next = last.len();
        let at = *place.entry(key).or_insert(next);
        match last.get_mut(at) {
            Some(last) => *last = index,
            None => last.push(index),
        }
    }
    (last.len() < count).then_some(last)
}

#[cold]
fn full(_: Reason) -> Fault {
    Fault::Full
}

fn push_timestamp(micros: i64, column: &mut Column) -> Result<(), Fault> {
    let Values::Int64(values) = &mut column.values else {
        return Err(Fault::OtherColumn);
    };
    values.push(micros);
    column.push_valid();
    Ok(())
}
