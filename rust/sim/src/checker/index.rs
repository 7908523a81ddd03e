//! An index of a history: the operation that sent each value, and the contents of every partition as clients saw it.

use std::collections::{BTreeMap, BTreeSet};

use fletchlog_api::IsolationLevel;

use super::compaction::Compacted;
use super::fetches::Fetched;
use crate::history::{Action, History, Op, Outcome, Partition, Step, Value};

pub(super) const ISOLATIONS: [IsolationLevel; 2] = [IsolationLevel::ReadUncommitted, IsolationLevel::ReadCommitted];

/// One partition.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Values by offset, from acknowledgements and polls.
    pub at: BTreeMap<i64, BTreeSet<Value>>,
    /// The values that a reader of each isolation level must see, by offset.
    pub visible: [BTreeMap<i64, Value>; 2],
    /// The values that any reader of each isolation level got.
    pub read: [BTreeSet<Value>; 2],
    /// The highest offset of those.
    pub highest_read: [Option<i64>; 2],
    /// A poll that returned the value, for display.
    pub reader: BTreeMap<Value, usize>,
}

pub(super) struct Index<'h> {
    pub history: &'h History,
    /// The operation that sent each value.
    pub writer: BTreeMap<Value, usize>,
    pub logs: BTreeMap<Partition, Log>,
    /// Whether any process read with each isolation level.
    pub is_read: [bool; 2],
    /// Whether the records of each operation are known to be committed.
    pub committed: Vec<bool>,
    /// From when on records may have been deleted.
    may_start: BTreeMap<Partition, Starts>,
    /// From when on they are deleted for good.
    starts: BTreeMap<Partition, Starts>,
    /// The records that compaction may have removed, and from when on.
    compacted: Compacted,
    fetched: Fetched,
}

/// The log starts over time: (moment, offset), with moments in order and each offset the highest so far.
#[derive(Debug, Default)]
struct Starts(Vec<(u64, i64)>);

impl Starts {
    fn of(mut moments: Vec<(u64, i64)>) -> Self {
        moments.sort_unstable();
        let mut highest = 0;
        for (_, offset) in &mut moments {
            highest = highest.max(*offset);
            *offset = highest;
        }
        Self(moments)
    }

    fn before(&self, moment: u64) -> i64 {
        let earlier = self.0.partition_point(|&(at, _)| at < moment);
        earlier.checked_sub(1).map_or(0, |last| self.0[last].1)
    }
}

pub(super) fn place(isolation: IsolationLevel) -> usize {
    match isolation {
        IsolationLevel::ReadCommitted => 1,
        _ => 0,
    }
}

impl<'h> Index<'h> {
    pub fn of(history: &'h History) -> Self {
        let mut index = Self {
            history,
            writer: BTreeMap::new(),
            logs: BTreeMap::new(),
            is_read: [false; 2],
            committed: Vec::new(),
            may_start: starts(history, |op| (op.outcome != Outcome::Failed).then_some(op.begin)),
            starts: starts(history, |op| (op.outcome == Outcome::Ok).then_some(op.end)),
            compacted: Compacted::default(),
            fetched: Fetched::of(history),
        };
        for (number, op) in history.ops.iter().enumerate() {
            for step in op.steps() {
                index.note(number, step);
            }
        }
        index.committed = (0..history.ops.len()).map(|op| index.is_committed(op)).collect();
        index.make_visible();
        index.compacted = Compacted::of(&index);
        index
    }

    fn note(&mut self, op: usize, step: &Step) {
        match step {
            &Step::Send {
                partition,
                value,
                offset,
                ..
            } => {
                let log = self.logs.entry(partition).or_default();
                if let Some(offset) = offset {
                    log.at.entry(offset).or_default().insert(value);
                }
                self.writer.insert(value, op);
            }
            Step::Poll { isolation, records, .. } => {
                let place = place(*isolation);
                self.is_read[place] = true;
                for &(partition, offset, value) in records {
                    let log = self.logs.entry(partition).or_default();
                    log.at.entry(offset).or_default().insert(value);
                    log.read[place].insert(value);
                    log.highest_read[place] = log.highest_read[place].max(Some(offset));
                    log.reader.entry(value).or_insert(op);
                }
            }
        }
    }

    /// Whether an operation took effect: it is acknowledged, or its records were read (if it is a transaction, by a read_committed reader).
    fn is_committed(&self, op: usize) -> bool {
        let op = &self.history.ops[op];
        match op.outcome {
            Outcome::Ok => true,
            Outcome::Failed => false,
            Outcome::Unknown => op.steps().iter().any(|step| match step {
                Step::Send { partition, value, .. } => {
                    let read = &self.logs[partition].read;
                    read[1].contains(value) || (!op.is_transaction() && read[0].contains(value))
                }
                Step::Poll { .. } => false,
            }),
        }
    }

    fn make_visible(&mut self) {
        for log in self.logs.values_mut() {
            for (&offset, values) in &log.at {
                for &value in values {
                    let Some(&op) = self.writer.get(&value) else { continue };
                    log.visible[0].entry(offset).or_insert(value);
                    if self.committed[op] {
                        log.visible[1].entry(offset).or_insert(value);
                    }
                }
            }
        }
    }

    /// The offset below which records may have been deleted at that moment.
    pub fn may_start_at(&self, partition: Partition, moment: u64) -> i64 {
        self.may_start.get(&partition).map_or(0, |s| s.before(moment))
    }

    /// The offset below which records were deleted for good at that moment.
    pub fn starts_at(&self, partition: Partition, moment: u64) -> i64 {
        self.starts.get(&partition).map_or(0, |s| s.before(moment))
    }

    /// Whether compaction may have removed a record by that moment.
    pub fn may_be_compacted(&self, partition: Partition, offset: i64, moment: u64) -> bool {
        self.compacted.may_be_gone(partition, offset, moment)
    }

    /// Whether a cleaning of the partition may have begun by that moment.
    pub fn may_be_cleaned(&self, partition: Partition, moment: u64) -> bool {
        self.compacted.has_begun(partition, moment)
    }

    /// A moment before which a record that a poll returned had not been read from the log.
    pub fn fetched_at(&self, poll: usize, partition: Partition, offset: i64) -> u64 {
        self.fetched.at(&self.history.ops[poll], partition, offset)
    }

    /// Operations that contain a value.
    pub fn ops_with(&self, partition: Partition, value: Value) -> Vec<usize> {
        let writer = self.writer.get(&value).copied();
        let reader = self
            .logs
            .get(&partition)
            .and_then(|log| log.reader.get(&value).copied());
        writer.into_iter().chain(reader).collect()
    }

    /// The records that a reader of this isolation level must see from `from` until before `to`, unless they were compacted.
    pub fn visible_between(
        &self,
        partition: Partition,
        isolation: IsolationLevel,
        from: i64,
        to: i64,
    ) -> impl Iterator<Item = (i64, Value)> {
        let visible = self.logs.get(&partition).map(|log| &log.visible[place(isolation)]);
        let between = visible
            .into_iter()
            .flat_map(move |visible| visible.range(from..to.max(from)));
        between.map(|(&offset, &value)| (offset, value))
    }
}

/// The log starts, each from the moment that `from` returns.
fn starts(history: &History, from: impl Fn(&Op) -> Option<u64>) -> BTreeMap<Partition, Starts> {
    let mut found: BTreeMap<Partition, Vec<(u64, i64)>> = BTreeMap::new();
    for op in &history.ops {
        if let (&Action::LogStart { partition, offset }, Some(moment)) = (&op.action, from(op)) {
            found.entry(partition).or_default().push((moment, offset));
        }
    }
    found.into_iter().map(|(p, moments)| (p, Starts::of(moments))).collect()
}
