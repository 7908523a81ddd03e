//! Unclean elections: what was beyond the offset at which a log was cut may be lost, and its offsets are used again. The rest of the checker
//! gets a history without what was lost, so that everything else must hold.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::fetches::Fetched;
use crate::history::{Action, History, Outcome, Partition, Step, Value};

/// A record at its place.
type Place = (Partition, i64, Value);

/// A cut: from which offset on, and when.
struct Cut {
    offset: i64,
    moment: u64,
}

struct Cuts {
    of: BTreeMap<Partition, Vec<Cut>>,
    /// When each value began to be sent.
    sent: BTreeMap<Value, u64>,
    /// When each record was last read: a moment before which the fetch had not reached the broker.
    read: BTreeMap<Place, u64>,
}

impl Cuts {
    fn of(history: &History) -> Self {
        let mut cuts = Self {
            of: BTreeMap::new(),
            sent: BTreeMap::new(),
            read: BTreeMap::new(),
        };
        let fetched = Fetched::of(history);
        for op in &history.ops {
            if let Action::Cut { partition, offset } = op.action {
                let (offset, moment) = (offset, op.begin);
                cuts.of.entry(partition).or_default().push(Cut { offset, moment });
            }
            for step in op.steps() {
                match step {
                    Step::Send { value, .. } => drop(cuts.sent.insert(*value, op.begin)),
                    Step::Poll { records, .. } => {
                        for &place in records {
                            let at = fetched.at(op, place.0, place.1);
                            let last = cuts.read.entry(place).or_insert(at);
                            *last = at.max(*last);
                        }
                    }
                }
            }
        }
        cuts
    }

    /// Whether a record was beyond a cut, and no reader has found it there since. A record that was sent later was not.
    fn is_lost(&self, place: Place) -> bool {
        let (partition, offset, value) = place;
        let sent = self.sent.get(&value).copied().unwrap_or(0);
        let read = self.read.get(&place).copied().unwrap_or(0);
        let cuts = self.of.get(&partition).into_iter().flatten();
        let mut beyond = cuts.filter(|cut| offset >= cut.offset && sent < cut.moment);
        beyond.any(|cut| read < cut.moment)
    }

    /// An offset that was known before a cut is that of the cut, if it was beyond.
    fn lowered(&self, partition: Partition, offset: i64, known: u64) -> i64 {
        let cuts = self.of.get(&partition).into_iter().flatten();
        let later = cuts.filter(|cut| cut.moment > known);
        later.map(|cut| cut.offset).fold(offset, i64::min)
    }
}

/// Offsets that groups committed before a cut, and that lie beyond it: a group keeps them until it commits again, lower ones.
#[derive(Default)]
struct Stale {
    /// The offset that was found last, and whether it may be from before a cut.
    of: BTreeMap<(u32, Partition), (i64, bool)>,
    cut: BTreeSet<Partition>,
}

impl Stale {
    fn cut(&mut self, partition: Partition) {
        self.cut.insert(partition);
        let of_partition = self.of.iter_mut().filter(|((_, of), _)| *of == partition);
        of_partition.for_each(|(_, (_, is_stale))| *is_stale = true);
    }

    /// Whether an offset that is found was committed after the last cut for certain, or there was none.
    fn is_renewed(&mut self, group: u32, partition: Partition, offset: i64) -> bool {
        let is_cut = self.cut.contains(&partition);
        let (last, is_stale) = self.of.entry((group, partition)).or_insert((offset, is_cut));
        *is_stale &= offset >= *last;
        *last = offset;
        !*is_stale
    }
}

/// How far readers have come since the last cut.
#[derive(Default)]
struct Reached {
    /// The last cut of each partition.
    cut: BTreeMap<Partition, i64>,
    /// The offset behind the last record that a process got since then.
    of: BTreeMap<(u32, Partition), i64>,
}

impl Reached {
    fn cut(&mut self, partition: Partition, offset: i64) {
        self.cut.insert(partition, offset);
        self.of.retain(|(_, of), _| *of != partition);
    }

    fn polled(&mut self, process: u32, (partition, offset, _): Place) {
        let next = self.of.entry((process, partition)).or_default();
        *next = (offset + 1).max(*next);
    }

    /// Whether a process knows this offset from the log as it is now.
    fn knows(&self, process: u32, partition: Partition, offset: i64) -> bool {
        let next = self.of.get(&(process, partition)).copied();
        let cut = self.cut.get(&partition).copied();
        cut.is_none_or(|cut| offset <= cut.max(next.unwrap_or(0)))
    }
}

/// The history without the records that cuts took. The send of one may still be read at another place.
pub(super) fn without_lost(history: &History) -> Cow<'_, History> {
    let cuts = Cuts::of(history);
    if cuts.of.is_empty() {
        return Cow::Borrowed(history);
    }
    let mut left = history.clone();
    let (mut stale, mut reached) = (Stale::default(), Reached::default());
    for op in &mut left.ops {
        let (process, begin) = (op.process, op.begin);
        match &mut op.action {
            Action::Steps { steps, .. } => {
                for step in steps {
                    match step {
                        Step::Send {
                            partition,
                            value,
                            offset,
                            ..
                        } => {
                            if offset.is_some_and(|offset| cuts.is_lost((*partition, offset, *value))) {
                                *offset = None;
                                (op.outcome, op.end) = (Outcome::Unknown, u64::MAX);
                            }
                        }
                        Step::Poll { records, .. } => {
                            records.retain(|place| !cuts.is_lost(*place));
                            records.iter().for_each(|place| reached.polled(process, *place));
                        }
                    }
                }
            }
            Action::Cut { partition, offset } => {
                stale.cut(*partition);
                reached.cut(*partition, *offset);
            }
            // Without an epoch a position may be out of range, and where the reader continues depends on auto.offset.reset.
            Action::Moved(to) => to.iter_mut().for_each(|(partition, offset)| {
                let is_known = |offset: &i64| {
                    cuts.lowered(*partition, *offset, begin) == *offset && reached.knows(process, *partition, *offset)
                };
                *offset = offset.filter(is_known);
            }),
            Action::Reached { offsets, .. } => offsets.iter_mut().for_each(|(partition, offset)| {
                *offset = cuts.lowered(*partition, *offset, begin);
            }),
            Action::Committed { group, offsets } => {
                offsets.retain(|&(partition, offset)| stale.is_renewed(*group, partition, offset));
                for (partition, offset) in offsets {
                    *offset = cuts.lowered(*partition, *offset, begin);
                }
            }
            _ => {}
        }
    }
    Cow::Owned(left)
}
