//! Entries of maps: the last one of a key counts, in the place of the first.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;

use super::plan::{Field, Kind, Message, Shape};
use super::read::Decoder;
use super::wire::{Fault, LENGTH, MOST_LEVELS};
use crate::column::{Column, Values};

impl Decoder<'_> {
    /// Appends an entry of a map.
    pub(crate) fn entry(&mut self, field: &Field, place: usize, items: &mut Column, levels: u32) -> Result<(), Fault> {
        let Kind::Message(entry) = &field.kind else {
            return Err(Fault::OtherColumn);
        };
        let (begin, rows) = (self.wire.at(), items.len());
        items.push_valid();
        if self.nested(entry, LENGTH, items, levels)? {
            self.forget(entry);
            self.took_back = true;
            items.truncate(rows);
            return Ok(());
        }
        let end = self.wire.at();
        self.close(entry, items)?;
        if let Some(entries) = self.places.maps.get_mut(place) {
            entries.push(begin..end);
        }
        Ok(())
    }

    /// Forgets the entries of maps inside a message that is taken back.
    pub(crate) fn forget(&mut self, message: &Message) {
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

    /// Leaves the last entry of each key of the present row's map.
    pub(crate) fn only_last_entries(&mut self, field: &Field, column: &mut Column) -> Result<(), Fault> {
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
            self.took_back = true;
            list.items.truncate(begin);
            let after = self.wire.outer();
            for range in last.into_iter().filter_map(|index| entries.get(index).cloned()) {
                self.wire.again(range);
                list.items.push_valid();
                self.nested(entry, LENGTH, &mut list.items, MOST_LEVELS)?;
                self.close(entry, &mut list.items)?;
            }
            self.wire.leave(after);
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
