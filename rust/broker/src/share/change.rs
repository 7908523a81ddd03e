//! Changes of states that are persisted before they count: acknowledgements, releases, ends of locks, dead letters (spec 14.7). Kafka:
//! `SharePartition#acknowledge`, `#releaseAcquiredRecords`, `#releaseAcquisitionLockOnTimeout`.

use std::sync::Arc;

use fletchlog_api::ErrorCode;
use fletchlog_records::planted;

use super::in_flight_batch::Records;
use super::record_state::{AcknowledgeType, InFlightState, RecordState};
use super::share_partition::{Limits, SharePartition, StateBatch};

/// An acknowledgement of a range of offsets: one type for all of them, or one for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AcknowledgementBatch {
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) types: Vec<AcknowledgeType>,
}

impl AcknowledgementBatch {
    fn type_of(&self, offset: i64) -> AcknowledgeType {
        let at = usize::try_from(offset - self.first).unwrap_or(0);
        let own = self.types.get(at).filter(|_| self.types.len() > 1);
        own.or(self.types.first()).copied().unwrap_or(AcknowledgeType::Gap)
    }
}

/// Why a partition refuses an acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: ErrorCode,
    pub(crate) message: Arc<str>,
}

impl Refusal {
    pub(crate) fn new(code: ErrorCode, message: &str) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    fn state(message: &str) -> Self {
        Self::new(ErrorCode::INVALID_RECORD_STATE, message)
    }

    fn request(message: &str) -> Self {
        Self::new(ErrorCode::INVALID_REQUEST, message)
    }
}

/// States that have changed and are to be persisted.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// What is persisted.
    pub(crate) batches: Vec<StateBatch>,
    /// Records whose deliveries are used up, or that were rejected, and go to a dead-letter topic.
    pub(crate) dead: Vec<DeadLetters>,
    /// What to restore if it cannot be persisted.
    undo: Vec<Undo>,
    complete_before: i64,
    /// Offsets of batches and single records whose locks begin anew.
    renewed: Vec<i64>,
}

/// Records that go to a dead-letter topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeadLetters {
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) deliveries: u16,
    pub(crate) reason: DeadReason,
}

/// Why a record is a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeadReason {
    Rejected,
    DeliveriesUsedUp,
}

#[derive(Debug)]
struct Undo {
    key: i64,
    /// `None`: the whole batch.
    offset: Option<i64>,
    before: InFlightState,
}

impl Undo {
    /// Where its lock is noted.
    fn at(&self) -> i64 {
        self.offset.unwrap_or(self.key)
    }
}

/// Where a state is: the whole batch, or a single record of it.
#[derive(Debug, Clone, Copy)]
struct Place {
    key: i64,
    last: i64,
    offset: Option<i64>,
}

impl SharePartition {
    /// Acknowledges ranges; all or none. Everything below the start offset counts as done.
    ///
    /// # Errors
    /// INVALID_RECORD_STATE, INVALID_REQUEST; nothing has changed.
    pub(crate) fn acknowledge(
        &mut self,
        member: &str,
        batches: &[AcknowledgementBatch],
        limits: &Limits,
    ) -> Result<Change, Refusal> {
        let mut change = self.new_change();
        let start = self.start_offset;
        for batch in batches.iter().filter(|batch| batch.last >= start) {
            let acknowledged = self
                .keys_of(batch)
                .and_then(|keys| self.acknowledge_batch(member, batch, &keys, limits, &mut change));
            if let Err(refusal) = acknowledged {
                self.roll_back(change);
                return Err(refusal);
            }
        }
        Ok(change)
    }

    fn new_change(&self) -> Change {
        Change {
            complete_before: self.complete,
            ..Change::default()
        }
    }

    /// The batches in flight that an acknowledgement is about. Kafka: `SharePartition#fetchSubMapForAcknowledgementBatch`.
    fn keys_of(&self, batch: &AcknowledgementBatch) -> Result<Vec<i64>, Refusal> {
        let floor = self.floor(batch.first).map(|(key, _)| key).or_else(|| {
            let is_across = batch.first < self.start_offset && self.start_offset <= batch.last;
            self.floor(self.start_offset).map(|(key, _)| key).filter(|_| is_across)
        });
        let not_found = "Batch record not found. The request batch offsets are not found in the cache.";
        let floor = floor.ok_or_else(|| Refusal::state(not_found))?;
        let keys = self.keys(floor, batch.last);
        let last = keys.last().and_then(|key| self.in_flight.get(key));
        let last = last.map_or(i64::MIN, |batch| batch.last);
        if last < batch.first {
            let text = "Batch record not found. The first offset in request is past acquired records.";
            return Err(Refusal::request(text));
        }
        if last < batch.last {
            let text = "Batch record not found. The last offset in request is past acquired records.";
            return Err(Refusal::request(text));
        }
        Ok(keys)
    }

    /// Kafka: `SharePartition#acknowledgeBatchRecords`.
    fn acknowledge_batch(
        &mut self,
        member: &str,
        batch: &AcknowledgementBatch,
        keys: &[i64],
        limits: &Limits,
        change: &mut Change,
    ) -> Result<(), Refusal> {
        for &key in keys {
            let Some(in_flight) = self.in_flight.get(&key) else {
                continue;
            };
            let last = in_flight.last;
            if last < self.start_offset {
                continue;
            }
            if let Some(state) = in_flight.whole() {
                if state.state != RecordState::Acquired {
                    let text = "The batch cannot be acknowledged. The batch is not in the acquired state.";
                    return Err(Refusal::state(text));
                }
                if !state.is_of(member) && !planted!("share-acknowledgement-of-another-member") {
                    return Err(Refusal::state("Member is not the owner of batch record"));
                }
                let is_covered = key >= batch.first && last <= batch.last && key >= self.start_offset;
                if is_covered && batch.types.len() == 1 {
                    let place = Place {
                        key,
                        last,
                        offset: None,
                    };
                    self.acknowledge_at(place, batch.type_of(batch.first), limits, change);
                    continue;
                }
                self.split(key);
            }
            for offset in key.max(batch.first).max(self.start_offset)..=last.min(batch.last) {
                let state = self.in_flight.get(&key).and_then(|found| found.at(key, offset));
                let Some(state) = state.filter(|state| state.state == RecordState::Acquired) else {
                    let text = "The offset cannot be acknowledged. The offset is not acquired.";
                    return Err(Refusal::state(text));
                };
                if !state.is_of(member) {
                    return Err(Refusal::state("Member is not the owner of offset"));
                }
                let place = Place {
                    key,
                    last,
                    offset: Some(offset),
                };
                self.acknowledge_at(place, batch.type_of(offset), limits, change);
            }
        }
        Ok(())
    }

    fn acknowledge_at(&mut self, place: Place, acknowledged: AcknowledgeType, limits: &Limits, change: &mut Change) {
        match acknowledged {
            AcknowledgeType::Renew => change.renewed.push(place.offset.unwrap_or(place.key)),
            AcknowledgeType::Accept => self.leave(place, RecordState::Acknowledged, None, change),
            AcknowledgeType::Gap => self.leave(place, RecordState::Archived, None, change),
            AcknowledgeType::Reject => self.archive_dead(place, DeadReason::Rejected, limits, change),
            AcknowledgeType::Release => self.release_at(place, limits, change),
        }
    }

    /// Makes records available again, unless their deliveries are used up or they are below the start offset.
    fn release_at(&mut self, place: Place, limits: &Limits, change: &mut Change) {
        let Some(state) = self.state_at(place) else { return };
        if place.offset.unwrap_or(place.last) < self.start_offset {
            self.leave(place, RecordState::Archived, None, change);
        } else if state.deliveries >= limits.max_deliveries && !planted!("share-delivery-limit-ignored") {
            self.archive_dead(place, DeadReason::DeliveriesUsedUp, limits, change);
        } else {
            self.leave(place, RecordState::Available, None, change);
        }
    }

    fn archive_dead(&mut self, place: Place, reason: DeadReason, limits: &Limits, change: &mut Change) {
        match limits.dead_letters {
            true => self.leave(place, RecordState::Archiving, Some(reason), change),
            false => self.leave(place, RecordState::Archived, None, change),
        }
    }

    fn state_at(&self, place: Place) -> Option<&InFlightState> {
        let batch = self.in_flight.get(&place.key)?;
        batch.at(place.key, place.offset.unwrap_or(place.key))
    }

    /// Puts records into a state in which no member has them.
    fn leave(&mut self, place: Place, to: RecordState, dead: Option<DeadReason>, change: &mut Change) {
        let Some(batch) = self.in_flight.get_mut(&place.key) else {
            return;
        };
        let state = match place.offset {
            Some(offset) => batch.each_mut(place.key, offset),
            None => batch.whole_mut(),
        };
        let Some(state) = state else { return };
        change.undo.push(Undo {
            key: place.key,
            offset: place.offset,
            before: state.clone(),
        });
        state.leave(to);
        let deliveries = state.deliveries;
        let (first, last) = match place.offset {
            Some(offset) => (offset, offset),
            None => (place.key, place.last),
        };
        change.batches.push(StateBatch {
            first,
            last,
            state: to,
            deliveries,
        });
        if let Some(reason) = dead {
            change.dead.push(DeadLetters {
                first,
                last,
                deliveries,
                reason,
            });
        }
        if to.is_terminal() {
            self.complete += self.count_in_flight(first, last);
        }
    }

    /// Releases what a member has acquired: its session has ended.
    pub(crate) fn release(&mut self, member: &str, limits: &Limits) -> Change {
        let mut change = self.new_change();
        for key in self.keys(i64::MIN, i64::MAX) {
            let is_held = |state: &InFlightState| state.state == RecordState::Acquired && state.is_of(member);
            self.release_batch(key, (i64::MIN, i64::MAX), is_held, limits, &mut change);
        }
        change
    }

    /// Releases the batch, or the single record, whose lock ends next, if it has ended. Each is persisted alone.
    pub(crate) fn end_lock(&mut self, now_ms: i64, limits: &Limits) -> Option<Change> {
        let (until_ms, offset) = self
            .locks
            .first()
            .copied()
            .filter(|(until_ms, _)| *until_ms <= now_ms)?;
        self.locks.remove(&(until_ms, offset));
        let mut change = self.new_change();
        if planted!("share-lock-ends-without-a-release") {
            return Some(change);
        }
        if let Some(key) = self.floor(offset).map(|(key, _)| key) {
            let has_ended =
                |state: &InFlightState| state.state == RecordState::Acquired && state.locked_until_ms == until_ms;
            self.release_batch(key, (offset, offset), has_ended, limits, &mut change);
        }
        Some(change)
    }

    /// Releases the records of a batch that are meant, in a range if they have states of their own.
    fn release_batch(
        &mut self,
        key: i64,
        (from, to): (i64, i64),
        is_meant: impl Fn(&InFlightState) -> bool,
        limits: &Limits,
        change: &mut Change,
    ) {
        let Some(batch) = self.in_flight.get(&key) else { return };
        let last = batch.last;
        if let Some(state) = batch.whole() {
            if !is_meant(state) {
                return;
            }
            if key >= self.start_offset || last < self.start_offset {
                let place = Place {
                    key,
                    last,
                    offset: None,
                };
                return self.release_at(place, limits, change);
            }
            self.split(key);
            return self.release_each(key, last, (i64::MIN, i64::MAX), is_meant, limits, change);
        }
        self.release_each(key, last, (from, to), is_meant, limits, change);
    }

    fn release_each(
        &mut self,
        key: i64,
        last: i64,
        (from, to): (i64, i64),
        is_meant: impl Fn(&InFlightState) -> bool,
        limits: &Limits,
        change: &mut Change,
    ) {
        for offset in key.max(from)..=last.min(to) {
            let found = self.in_flight.get(&key).and_then(|batch| batch.at(key, offset));
            if found.is_some_and(&is_meant) {
                let place = Place {
                    key,
                    last,
                    offset: Some(offset),
                };
                self.release_at(place, limits, change);
            }
        }
    }

    /// Archives the next batch, or single record, of those that have been written to the dead-letter topic, or could not be; `None`: there is
    /// no more. Each is persisted alone.
    pub(crate) fn bury(&mut self, dead: &[DeadLetters]) -> Option<Change> {
        let place = dead.iter().find_map(|letters| self.archiving_in(letters))?;
        let mut change = self.new_change();
        self.leave(place, RecordState::Archived, None, &mut change);
        Some(change)
    }

    /// The first batch, or single record, of a range that is Archiving.
    fn archiving_in(&self, letters: &DeadLetters) -> Option<Place> {
        let from = self.floor(letters.first).map_or(letters.first, |(key, _)| key);
        self.keys(from, letters.last).into_iter().find_map(|key| {
            let batch = self.in_flight.get(&key)?;
            let last = batch.last;
            let offset = match batch.whole() {
                Some(state) => {
                    return (state.state == RecordState::Archiving).then_some(Place {
                        key,
                        last,
                        offset: None,
                    });
                }
                None => (key.max(letters.first)..=last.min(letters.last)).find(|offset| {
                    let state = batch.at(key, *offset);
                    state.is_some_and(|state| state.state == RecordState::Archiving)
                }),
            };
            offset.map(|_| Place { key, last, offset })
        })
    }

    /// The dead letters that an earlier run has not finished.
    pub(crate) fn unfinished_dead(&self) -> Vec<DeadLetters> {
        let open = self.open_states().into_iter();
        let archiving = open.filter(|(_, _, state)| state.state == RecordState::Archiving);
        let letters = archiving.map(|(first, last, state)| DeadLetters {
            first,
            last,
            deliveries: state.deliveries,
            reason: DeadReason::DeliveriesUsedUp,
        });
        letters.collect()
    }

    /// Called once a change is persisted; true: the start offset has moved.
    pub(crate) fn commit(&mut self, change: Change, now_ms: i64, limits: &Limits) -> bool {
        self.take_effect(&change);
        let until_ms = now_ms.saturating_add(limits.lock_ms);
        for offset in change.renewed {
            self.renew(offset, until_ms);
        }
        !change.batches.is_empty() && self.move_start_offset()
    }

    /// Ends the locks of records that a change has released: they can be acquired.
    pub(crate) fn take_effect(&mut self, change: &Change) {
        for undo in &change.undo {
            self.unlock(undo.at(), &undo.before);
        }
        let is_available = |batch: &StateBatch| batch.state == RecordState::Available;
        self.any_available |= change.batches.iter().any(is_available);
    }

    fn renew(&mut self, offset: i64, until_ms: i64) {
        let Some((key, _)) = self.floor(offset) else { return };
        let Some(batch) = self.in_flight.get_mut(&key) else {
            return;
        };
        let state = match &mut batch.records {
            Records::All(state) => Some(state),
            Records::Each(_) => batch.each_mut(key, offset),
        };
        let Some(state) = state.filter(|state| state.state == RecordState::Acquired) else {
            return;
        };
        let before = state.clone();
        state.locked_until_ms = until_ms;
        self.unlock(offset, &before);
        self.locks.insert((until_ms, offset));
    }

    /// Called if a change could not be persisted, or is refused: everything is as before.
    pub(crate) fn roll_back(&mut self, change: Change) {
        for undo in change.undo.into_iter().rev() {
            if planted!("share-acknowledgement-not-taken-back") {
                break;
            }
            if let Some(batch) = self.in_flight.get_mut(&undo.key) {
                let state = match undo.offset {
                    Some(offset) => batch.each_mut(undo.key, offset),
                    None => batch.whole_mut(),
                };
                if let Some(state) = state {
                    *state = undo.before;
                }
            }
        }
        self.complete = change.complete_before;
    }
}

impl Change {
    /// Whether nothing is to be persisted.
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }
}
