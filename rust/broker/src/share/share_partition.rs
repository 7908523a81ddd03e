//! A partition as a share group sees it: which records are in flight, and where they begin and end (spec 14.5 to 14.9). Kafka:
//! `SharePartition`.
//!
//! Pure: time, limits and batches of the log are arguments. A change of states is made, persisted by the caller and then
//! [committed](SharePartition::commit) or [taken back](SharePartition::roll_back).
//!
//! ```text
//!     start offset                           end offset
//!         |                                      |
//! done .. | batch | batch | (compacted) | batch  | not acquired yet ..
//! ```
//!
//! Without records in flight the end offset is the next one to be acquired, otherwise the last one that was.

use std::collections::{BTreeMap, BTreeSet};

use fletchlog_records::planted;

use super::in_flight_batch::{InFlightBatch, Records};
use super::record_state::{InFlightState, NO_LOCK, RecordState};

/// The state of a range of records, as it is persisted. Kafka: `PersisterStateBatch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StateBatch {
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) state: RecordState,
    pub(crate) deliveries: u16,
}

/// A range of records that was acquired. Kafka: `ShareFetchResponseData.AcquiredRecords`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Acquired {
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) deliveries: u16,
}

/// The group's limits as they are now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// share.record.lock.duration.ms
    pub(crate) lock_ms: i64,
    /// share.delivery.count.limit
    pub(crate) max_deliveries: u16,
    /// share.partition.max.record.locks
    pub(crate) max_locks: i64,
    /// Rejected records, and those whose deliveries are used up, go to a dead-letter topic.
    pub(crate) dead_letters: bool,
}

/// Offsets between persisted batches, of which nothing is known: they may be acquired. Kafka: `SharePartition.GapWindow`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GapWindow {
    /// The end offset when the state was read: once that moves, all gaps are compacted records.
    end: i64,
    start: i64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct SharePartition {
    pub(super) start_offset: i64,
    pub(super) end_offset: i64,
    /// Records from the start offset on that are done. Kafka: `deliveryCompleteCount`.
    pub(super) complete: i64,
    /// By first offset.
    pub(super) in_flight: BTreeMap<i64, InFlightBatch>,
    /// When the lock ends of the batch, or of the single record, at an offset.
    pub(super) locks: BTreeSet<(i64, i64)>,
    gap: Option<GapWindow>,
    /// Some record in flight may be available. Kafka: `findNextFetchOffset`.
    pub(super) any_available: bool,
}

/// Records of one persisted state: more than can be in flight, with the largest batch.
const MOST_RECORDS: i64 = 1 << 22;

/// Persisted states that contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the persisted states of offsets {first} to {last} are not in order, too many, or below the start offset {start}"
)]
pub(crate) struct InvalidState {
    first: i64,
    last: i64,
    start: i64,
}

impl SharePartition {
    /// Takes over what was persisted. Kafka: `SharePartition#maybeInitialize`.
    pub(crate) fn new(start: i64, batches: &[StateBatch]) -> Result<Self, InvalidState> {
        let mut partition = Self {
            start_offset: start,
            end_offset: start,
            complete: 0,
            in_flight: BTreeMap::new(),
            locks: BTreeSet::new(),
            gap: None,
            any_available: false,
        };
        let mut gap_start = None;
        let mut next = start;
        for &StateBatch {
            first,
            last,
            state,
            deliveries,
        } in batches
        {
            let is_too_long = last == i64::MAX || last.saturating_sub(first) >= MOST_RECORDS;
            if first < next || last < first || is_too_long {
                return Err(InvalidState { first, last, start });
            }
            if first > next && gap_start.is_none() {
                gap_start = Some(next);
            }
            next = last + 1;
            if state.is_terminal() {
                partition.complete += last - first + 1;
            }
            let batch = InFlightBatch::new(last, InFlightState::free(state, deliveries));
            partition.in_flight.insert(first, batch);
        }
        if let Some(last) = partition.last_in_flight() {
            partition.any_available = true;
            partition.end_offset = last;
            partition.gap = gap_start.map(|start| GapWindow { end: last, start });
            partition.move_start_offset();
        }
        Ok(partition)
    }

    /// The start offset, and how many records from there on are done: what is persisted with each change.
    pub(crate) fn start_and_complete(&self) -> (i64, i64) {
        (self.start_offset, self.complete)
    }

    /// The last offset in flight.
    pub(super) fn last_in_flight(&self) -> Option<i64> {
        self.in_flight.last_key_value().map(|(_, batch)| batch.last)
    }

    /// The batch that begins at or before an offset.
    pub(super) fn floor(&self, offset: i64) -> Option<(i64, &InFlightBatch)> {
        let (first, batch) = self.in_flight.range(..=offset).next_back()?;
        Some((*first, batch))
    }

    /// The first offsets of the batches that begin in a range.
    pub(super) fn keys(&self, first: i64, last: i64) -> Vec<i64> {
        match first <= last {
            true => self.in_flight.range(first..=last).map(|(key, _)| *key).collect(),
            false => Vec::new(),
        }
    }

    pub(super) fn is_gap_open(&self) -> bool {
        self.gap.is_some_and(|gap| gap.end == self.end_offset)
    }

    /// Where the next fetch reads: the first available record, or the first one that was never acquired. Kafka:
    /// `SharePartition#nextFetchOffset`.
    pub(crate) fn next_fetch_offset(&mut self) -> i64 {
        let Some(last) = self.last_in_flight().filter(|last| self.start_offset <= *last) else {
            self.any_available = false;
            return self.end_offset;
        };
        debug_assert!(self.end_offset >= last, "the end offset is that of the last batch");
        if self.any_available {
            if let Some(offset) = self.first_available() {
                return offset;
            }
            self.any_available = false;
        }
        self.end_offset.saturating_add(1)
    }

    fn first_available(&self) -> Option<i64> {
        let mut gap_start = self.gap.filter(|_| self.is_gap_open()).map(|gap| gap.start);
        for (&first, batch) in &self.in_flight {
            if let Some(start) = &mut gap_start {
                if first > *start {
                    return Some(*start);
                }
                *start = (*start).max(batch.last + 1);
            }
            let found = match &batch.records {
                Records::All(state) => (state.state == RecordState::Available).then_some(first),
                Records::Each(states) => {
                    let mut each = (first..).zip(states);
                    each.find(|(_, s)| s.state == RecordState::Available)
                        .map(|(offset, _)| offset)
                }
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Whether a fetch may acquire anything: below the limit of locks, or of what is in flight. Kafka:
    /// `SharePartition#canAcquireRecords`.
    pub(crate) fn can_acquire(&mut self, limits: &Limits) -> bool {
        self.next_fetch_offset() != self.end_offset.saturating_add(1) || self.in_flight_count() < limits.max_locks
    }

    /// Offsets from the start to the end, also those that are done. Kafka: `SharePartition#numInFlightRecords`.
    pub(crate) fn in_flight_count(&self) -> i64 {
        match self.in_flight.is_empty() {
            true => 0,
            false => self.end_offset - self.start_offset + 1,
        }
    }

    /// How many offsets of a range are not below the start offset.
    pub(super) fn count_in_flight(&self, first: i64, last: i64) -> i64 {
        (last - first.max(self.start_offset) + 1).max(0)
    }

    /// When the next lock ends.
    pub(crate) fn next_lock_end(&self) -> Option<i64> {
        self.locks.first().map(|(until_ms, _)| *until_ms)
    }

    /// The states of what is not done, by offset: ranges of equal states.
    pub(crate) fn open_states(&self) -> Vec<(i64, i64, InFlightState)> {
        let mut open = Vec::new();
        for (first, batch) in &self.in_flight {
            let runs = batch.runs(*first).into_iter();
            open.extend(runs.filter_map(|(first, last, state)| {
                let first = first.max(self.start_offset);
                let is_open = !state.state.is_terminal() && first <= last;
                is_open.then(|| (first, last, state.clone()))
            }));
        }
        open
    }

    /// Gives each record of a batch a state of its own. Kafka: `InFlightBatch#maybeInitializeOffsetStateUpdate`.
    pub(super) fn split(&mut self, first: i64) {
        let Some(batch) = self.in_flight.get_mut(&first) else {
            return;
        };
        let Records::All(state) = &batch.records else { return };
        let (state, last) = (state.clone(), batch.last);
        if self.locks.remove(&(state.locked_until_ms, first)) {
            self.locks
                .extend((first..=last).map(|offset| (state.locked_until_ms, offset)));
        }
        let length = usize::try_from(last - first + 1).unwrap_or(0);
        batch.records = Records::Each(vec![state; length]);
    }

    /// Removes the lock at an offset, if the state there has one.
    pub(super) fn unlock(&mut self, offset: i64, before: &InFlightState) {
        if before.locked_until_ms != NO_LOCK {
            self.locks.remove(&(before.locked_until_ms, offset));
        }
    }

    /// Called after an acquisition: everything before this offset has been fetched. Kafka:
    /// `SharePartition#maybeUpdatePersisterGapWindowStartOffset`.
    pub(super) fn note_fetched_until(&mut self, offset: i64) {
        match &mut self.gap {
            Some(gap) if gap.end == self.end_offset && offset <= gap.end => gap.start = offset,
            _ => self.gap = None,
        }
    }

    /// Moves the start offset over the records that are done, and drops their batches; true: it has moved. Kafka:
    /// `SharePartition#maybeUpdateCachedStateAndOffsets`.
    pub(super) fn move_start_offset(&mut self) -> bool {
        let skips = self.skip_compacted();
        self.move_over_done() || skips
    }

    /// Moves the start offset to the first record in flight, if those before it are known to be compacted away. Kafka leaves it there until
    /// the limit of locks is reached, and then delivers nothing more.
    fn skip_compacted(&mut self) -> bool {
        let Some((&first, _)) = self.in_flight.first_key_value() else {
            return false;
        };
        let may_be_there = self.is_gap_open() && self.gap.is_some_and(|gap| gap.start < first);
        if first <= self.start_offset || may_be_there {
            return false;
        }
        self.start_offset = first;
        true
    }

    fn move_over_done(&mut self) -> bool {
        let Some((first, batch)) = self.floor(self.start_offset) else {
            return false;
        };
        let is_done = |state: &InFlightState| state.state.is_terminal();
        if !batch
            .at(first, self.start_offset)
            .or_else(|| batch.whole())
            .is_some_and(is_done)
        {
            return false;
        }
        let Some((last_done, done)) = self.last_done() else {
            return false;
        };
        if self.last_in_flight() == Some(last_done) {
            self.start_offset = last_done + 1;
            self.end_offset = self.start_offset;
            self.in_flight.clear();
            self.complete = 0;
            return true;
        }
        let Some((key, last)) = self.floor(last_done).map(|(key, batch)| (key, batch.last)) else {
            return false;
        };
        let keep_from = if last == last_done {
            // Behind it may be offsets that were compacted away.
            let next = self.in_flight.range(last_done + 1..).next().map(|(key, _)| *key);
            self.start_offset = next.map_or(self.start_offset, |next| next.max(self.start_offset));
            if let Some(gap) = self.gap.filter(|_| self.is_gap_open()) {
                self.start_offset = self.start_offset.min(gap.start);
            }
            last_done + 1
        } else {
            self.start_offset = self.start_offset.max(last_done + 1);
            key
        };
        self.complete -= done;
        self.in_flight = self.in_flight.split_off(&keep_from);
        true
    }

    /// The last of the records at the beginning that are done, and how many of them are not below the start offset. Kafka:
    /// `SharePartition#findLastOffsetAcknowledgedAndMetadata`.
    fn last_done(&self) -> Option<(i64, i64)> {
        let gap = self.gap.filter(|_| self.is_gap_open());
        let (mut last_done, mut done) = (None, 0);
        for (&first, batch) in &self.in_flight {
            if gap.is_some_and(|gap| batch.last >= gap.start) {
                break;
            }
            match &batch.records {
                Records::All(state) if state.state.is_terminal() => {
                    last_done = Some(batch.last);
                    done += self.count_in_flight(first, batch.last);
                }
                Records::All(_) => break,
                Records::Each(states) => {
                    let is_done = |(_, state): &(i64, &InFlightState)| state.state.is_terminal();
                    let mut until = None;
                    let is_done = |state: &(i64, &InFlightState)| {
                        is_done(state) || (planted!("share-start-moves-over-an-open-record") && state.0 > first)
                    };
                    for (offset, _) in (first..).zip(states).take_while(is_done) {
                        until = Some(offset);
                    }
                    let Some(until) = until else { break };
                    last_done = Some(until);
                    done += self.count_in_flight(first, until);
                    if until < batch.last {
                        break;
                    }
                }
            }
        }
        last_done.map(|last| (last, done))
    }

    /// Called when a fetch finds that the log begins later than its offset. What is available before is archived, what is acquired stays with
    /// its members. Nothing is persisted. Kafka: `SharePartition#updateCacheAndOffsets`.
    pub(crate) fn log_start_moved(&mut self, log_start: i64) {
        if log_start <= self.start_offset {
            return;
        }
        if self.in_flight.is_empty() {
            self.start_offset = log_start;
            self.end_offset = log_start;
            self.complete = 0;
            return;
        }
        let removed = self.done_before(log_start);
        let keys = self.keys(i64::MIN, log_start - 1);
        if self.archive(
            keys,
            (self.start_offset, log_start - 1),
            RecordState::Available,
            Counted::No,
        ) {
            self.any_available = true;
        }
        self.start_offset = log_start;
        if let Some(gap) = &mut self.gap {
            gap.start = gap.start.max(log_start);
        }
        self.complete -= removed;
        self.end_offset = self.end_offset.max(self.start_offset);
    }

    /// The records from the start offset to an offset that are done.
    fn done_before(&self, offset: i64) -> i64 {
        let batches = self.in_flight.range(..offset);
        let runs = batches.flat_map(|(first, batch)| batch.runs(*first));
        let done = runs.filter(|(_, _, state)| state.state.is_terminal());
        done.map(|(first, last, _)| self.count_in_flight(first, last.min(offset - 1)))
            .sum()
    }

    /// Archives the records of a range that are in a state; true: there were any. Kafka: `SharePartition#archiveRecords`.
    pub(super) fn archive(
        &mut self,
        keys: Vec<i64>,
        (from, to): (i64, i64),
        state: RecordState,
        counted: Counted,
    ) -> bool {
        let mut any = false;
        for first in keys {
            let Some(batch) = self.in_flight.get(&first) else {
                continue;
            };
            let last = batch.last;
            let is_covered = first >= from && last <= to;
            match batch.whole() {
                Some(whole) if whole.state != state => continue,
                Some(_) if is_covered => {
                    any |= self.archive_at(first, first, None, counted, last - first + 1);
                }
                _ => {
                    self.split(first);
                    for offset in first.max(from)..=last.min(to) {
                        let found = self
                            .in_flight
                            .get(&first)
                            .and_then(|batch| batch.at(first, offset))
                            .is_some_and(|found| found.state == state);
                        if found {
                            any |= self.archive_at(first, offset, Some(offset), counted, 1);
                        }
                    }
                }
            }
        }
        any
    }

    fn archive_at(&mut self, first: i64, at: i64, single: Option<i64>, counted: Counted, records: i64) -> bool {
        let Some(batch) = self.in_flight.get_mut(&first) else {
            return false;
        };
        let state = match single {
            Some(offset) => batch.each_mut(first, offset),
            None => batch.whole_mut(),
        };
        let Some(state) = state else { return false };
        let before = state.clone();
        state.leave(RecordState::Archived);
        self.unlock(at, &before);
        if counted == Counted::Yes {
            self.complete += records;
        }
        true
    }
}

/// Whether archived records count as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    Yes,
    No,
}
