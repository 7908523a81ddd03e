//! The events of a trace, packed: a traced poll of one record leaves some fifteen bytes behind, so that what it costs is not the
//! memory it fills.
//!
//! ```text
//! u8      kind, and in the two highest bits `full`: 0 none, 1 false, 2 true
//! u8      which of the fields below follow, the first one in the lowest bit
//! varlong node, partition (its number), offset, bytes, batches, records, text (its number), number as text
//! ```
//! The poll is not written: it is one more with every `PollStarted`.

use std::hash::Hash;

use fletchlog_records::TopicPartition;
use fletchlog_records::varint::{read_varlong, write_varlong};
use rustc_hash::FxHashMap;

use super::trace::{TraceEvent, TraceKind, TraceText};

const FIELDS: usize = 8;
const FULL_SHIFT: u32 = 6;

/// Events in the order in which they came.
#[derive(Debug, Default)]
pub struct TraceEvents {
    packed: Vec<u8>,
    partitions: Numbered<TopicPartition>,
    texts: Numbered<TraceText>,
    /// Poll of the first event; before it, if that is its start.
    first_poll: u64,
}

/// Values by number, in the order in which they first came.
#[derive(Debug)]
struct Numbered<T> {
    values: Vec<T>,
    numbers: FxHashMap<T, i64>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            numbers: FxHashMap::default(),
        }
    }
}

impl<T: Hash + Eq + Clone> Numbered<T> {
    fn number(&mut self, value: &T) -> i64 {
        if let Some(number) = self.numbers.get(value) {
            return *number;
        }
        let number = i64::try_from(self.values.len()).unwrap_or(i64::MAX);
        self.numbers.insert(value.clone(), number);
        self.values.push(value.clone());
        number
    }

    fn value(&self, number: i64) -> Option<&T> {
        self.values.get(usize::try_from(number).ok()?)
    }
}

impl TraceEvents {
    /// Appends an event.
    #[inline]
    pub fn push(&mut self, event: &TraceEvent) {
        if self.packed.is_empty() {
            self.first_poll = event.poll - u64::from(event.kind == TraceKind::PollStarted);
        }
        let partition = event.tp.as_ref().map(|tp| self.partitions.number(tp));
        let (text, number) = match &event.text {
            TraceText::Fixed("") => (None, None),
            TraceText::Number(number) => (None, Some(*number)),
            text => (Some(self.texts.number(text)), None),
        };
        let known = |value: i64| (value != -1).then_some(value);
        let fields: [Option<i64>; FIELDS] = [
            known(i64::from(event.node)),
            partition,
            known(event.offset),
            known(event.bytes),
            known(event.batches),
            known(event.records),
            text,
            number,
        ];
        let full = event.full.map_or(0, |full| 1 + u8::from(full));
        let mask = fields
            .iter()
            .rev()
            .fold(0, |mask: u8, f| mask << 1 | u8::from(f.is_some()));
        self.packed.push(event.kind as u8 | full << FULL_SHIFT);
        self.packed.push(mask);
        for value in fields.into_iter().flatten() {
            write_varlong(&mut self.packed, value);
        }
    }

    /// The events, unpacked.
    pub fn iter(&self) -> impl Iterator<Item = TraceEvent> {
        let mut at = 0;
        let mut poll = self.first_poll;
        std::iter::from_fn(move || {
            let event = self.unpack(&mut at, poll)?;
            poll = event.poll;
            Some(event)
        })
    }

    /// The event at this place, and the place of the next one.
    fn unpack(&self, at: &mut usize, poll: u64) -> Option<TraceEvent> {
        let &[head, mask] = self.packed.get(*at..*at + 2)? else {
            return None;
        };
        *at += 2;
        let kind = TraceKind::ALL[usize::from(head & ((1 << FULL_SHIFT) - 1))];
        let mut fields = [None; FIELDS];
        for (place, field) in fields.iter_mut().enumerate() {
            if mask >> place & 1 == 1 {
                *field = Some(read_varlong(&self.packed, at)?);
            }
        }
        let [node, partition, offset, bytes, batches, records, text, number] = fields;
        let text = text.and_then(|number| self.texts.value(number).cloned());
        Some(TraceEvent {
            poll: poll + u64::from(kind == TraceKind::PollStarted),
            kind,
            node: node.and_then(|node| node.try_into().ok()).unwrap_or(-1),
            tp: partition.and_then(|number| self.partitions.value(number).cloned()),
            offset: offset.unwrap_or(-1),
            bytes: bytes.unwrap_or(-1),
            batches: batches.unwrap_or(-1),
            records: records.unwrap_or(-1),
            full: (head >> FULL_SHIFT != 0).then_some(head >> FULL_SHIFT == 2),
            text: text.or(number.map(TraceText::Number)).unwrap_or(TraceText::Fixed("")),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event() -> impl Strategy<Value = TraceEvent> {
        let number = || prop_oneof![Just(-1), 0..3i64, any::<i64>()];
        let tp = prop::option::of((prop::sample::select(vec!["a", "", "other"]), -1..3i32));
        let text = prop_oneof![
            prop::sample::select(vec!["", "paused", "NONE"]).prop_map(TraceText::Fixed),
            "[ab]{0,2}".prop_map(TraceText::from),
            any::<i64>().prop_map(TraceText::Number),
        ];
        let kind = prop::sample::select(TraceKind::ALL.to_vec());
        let numbers = (number(), number(), number(), number());
        let full = prop::option::of(any::<bool>());
        (kind, prop_oneof![Just(-1), any::<i32>()], tp, numbers, full, text).prop_map(
            |(kind, node, tp, (offset, bytes, batches, records), full, text)| TraceEvent {
                poll: 0,
                kind,
                node,
                tp: tp.map(|(topic, partition)| TopicPartition::new(topic, partition)),
                offset,
                bytes,
                batches,
                records,
                full,
                text,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(before in 0..3u64, events in prop::collection::vec(event(), 0..40)) {
            let mut poll = before;
            let mut packed = TraceEvents::default();
            let events: Vec<TraceEvent> = events
                .into_iter()
                .map(|event| {
                    poll += u64::from(event.kind == TraceKind::PollStarted);
                    TraceEvent { poll, ..event }
                })
                .collect();
            events.iter().for_each(|event| packed.push(event));
            prop_assert_eq!(packed.iter().collect::<Vec<_>>(), events);
        }
    }

    #[test]
    fn a_kind_stands_at_its_number() {
        for (number, kind) in TraceKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
        }
    }
}
