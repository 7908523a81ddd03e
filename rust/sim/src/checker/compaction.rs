//! compacted-away, compacted-read: what compaction may remove, and when.
//!
//! A cleaning may remove a record below its bound if a later record of the same key, which is not aborted, is below the bound; if it was
//! aborted itself; or if it is a tombstone that a cleaning saw long enough ago. Any other record that a reader does not get, above all the
//! newest value of a key, is [`Class::CompactedAway`]. Nor may a removed record come back: the cleaner's output is on the disk before a
//! reader can see it (spec 1.11), so a record that a reader has found removed stays removed after a kill or a power loss, at every level of
//! durability. With `page-cache`, a plan allows it like other losses of a power failure.

use std::collections::BTreeMap;

use super::index::Index;
use super::{Anomaly, Class};
use crate::history::{Action, Keyed, Outcome, Partition, Step, Value};

/// One run of the cleaner over a partition.
#[derive(Debug, Clone, Copy)]
struct Cleaning {
    begin: u64,
    below: i64,
    sent_before: u64,
    seen_before: u64,
}

/// A record that may replace an earlier one of its key.
#[derive(Debug, Clone, Copy)]
struct Later {
    value: Value,
    begin: u64,
    /// `None`: its offset is unknown; it may not even be in the log.
    offset: Option<i64>,
}

/// When compaction may first have removed each record.
#[derive(Debug, Default)]
pub(super) struct Compacted {
    cleanings: BTreeMap<Partition, Vec<Cleaning>>,
    /// The first moment at which a record may have been removed.
    from: BTreeMap<(Partition, i64), u64>,
}

/// The records of each key, and the keys of values.
#[derive(Default)]
struct Keys {
    later: BTreeMap<(Partition, u32), Vec<Later>>,
    keyed: BTreeMap<Value, Keyed>,
}

impl Compacted {
    pub fn of(index: &Index<'_>) -> Self {
        let mut compacted = Self {
            cleanings: cleanings(index),
            from: BTreeMap::new(),
        };
        if compacted.cleanings.is_empty() {
            return compacted;
        }
        let keys = Keys::of(index);
        for (&partition, cleanings) in &compacted.cleanings {
            let Some(log) = index.logs.get(&partition) else {
                continue;
            };
            for (&offset, &value) in &log.visible[0] {
                let may_go = |&at: &usize| keys.may_go(index, (partition, offset, value), &cleanings[..=at]);
                if let Some(first) = (0..cleanings.len()).find(may_go) {
                    compacted.from.insert((partition, offset), cleanings[first].begin);
                }
            }
        }
        compacted
    }

    pub fn may_be_gone(&self, partition: Partition, offset: i64, moment: u64) -> bool {
        self.from.get(&(partition, offset)).is_some_and(|&from| from < moment)
    }

    pub fn has_begun(&self, partition: Partition, moment: u64) -> bool {
        let cleanings = self.cleanings.get(&partition);
        cleanings.is_some_and(|all| all.first().is_some_and(|first| first.begin < moment))
    }
}

fn cleanings(index: &Index<'_>) -> BTreeMap<Partition, Vec<Cleaning>> {
    let mut found: BTreeMap<Partition, Vec<Cleaning>> = BTreeMap::new();
    for op in index.history.ops.iter().filter(|op| op.outcome != Outcome::Failed) {
        if let Action::Cleaned {
            partition,
            below,
            sent_before,
            seen_before,
        } = op.action
        {
            found.entry(partition).or_default().push(Cleaning {
                begin: op.begin,
                below,
                sent_before,
                seen_before,
            });
        }
    }
    found
}

impl Keys {
    fn of(index: &Index<'_>) -> Self {
        let mut places: BTreeMap<Value, Vec<i64>> = BTreeMap::new();
        for (offset, values) in index.logs.values().flat_map(|log| &log.at) {
            values
                .iter()
                .for_each(|&value| places.entry(value).or_default().push(*offset));
        }
        let mut keys = Self::default();
        for op in &index.history.ops {
            for step in op.steps() {
                let &Step::Send {
                    partition,
                    value,
                    keyed: Some(keyed),
                    ..
                } = step
                else {
                    continue;
                };
                keys.keyed.insert(value, keyed);
                if op.outcome == Outcome::Failed {
                    continue;
                }
                let later = keys.later.entry((partition, keyed.key)).or_default();
                let place = |offset| Later {
                    value,
                    begin: op.begin,
                    offset,
                };
                match places.get(&value) {
                    Some(offsets) => later.extend(offsets.iter().map(|&offset| place(Some(offset)))),
                    None => later.push(place(None)),
                }
            }
        }
        keys
    }

    /// Whether the last of these cleanings was allowed to remove the record.
    fn may_go(&self, index: &Index<'_>, record: (Partition, i64, Value), cleanings: &[Cleaning]) -> bool {
        let (partition, offset, value) = record;
        let writer = index.writer[&value];
        let begin = index.history.ops[writer].begin;
        let Some(now) = cleanings.last() else { return false };
        if offset >= now.below || begin >= now.sent_before {
            return false;
        }
        if index.history.ops[writer].is_transaction() && !index.committed[writer] {
            return true;
        }
        let Some(keyed) = self.keyed.get(&value) else {
            return false;
        };
        let seen = |earlier: &Cleaning| {
            earlier.begin < now.seen_before && offset < earlier.below && begin < earlier.begin.min(earlier.sent_before)
        };
        if keyed.tombstone && cleanings.iter().any(seen) {
            return true;
        }
        let replaces = |later: &Later| {
            later.begin < now.begin.min(now.sent_before)
                && later
                    .offset
                    .map_or(later.value != value, |at| offset < at && at < now.below)
        };
        self.later
            .get(&(partition, keyed.key))
            .is_some_and(|all| all.iter().any(replaces))
    }
}

/// Records that a reader has found removed by compaction: when, and in which operation.
pub(super) type Gone = BTreeMap<(Partition, i64), (u64, usize)>;

pub(super) fn check(index: &Index<'_>, gone: &Gone, found: &mut Vec<Anomaly>) {
    if gone.is_empty() {
        return;
    }
    for (number, op) in index.history.ops.iter().enumerate() {
        for step in op.steps() {
            let Step::Poll { records, .. } = step else { continue };
            for &(partition, offset, value) in records {
                let Some(&(moment, seen)) = gone.get(&(partition, offset)) else {
                    continue;
                };
                let fetched = index.fetched_at(number, partition, offset);
                if fetched > moment {
                    let what = format!(
                        "{value} at offset {offset} was returned from a fetch made at [{fetched}], and had been compacted"
                    );
                    found.push(Anomaly::new(Class::CompactedRead, partition, vec![seen, number], what));
                }
            }
        }
    }
}
