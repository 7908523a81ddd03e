//! Acquiring fetched records (spec 14.6). Kafka: `SharePartition#acquire`.

use std::sync::Arc;

use fletchlog_records::planted;

use super::in_flight_batch::{InFlightBatch, Records};
use super::record_state::{InFlightState, RecordState};
use super::share_partition::{Acquired, Counted, Limits, SharePartition};

/// share.acquire.mode. Kafka: `ShareAcquireMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcquireMode {
    /// Whole record batches.
    BatchOptimized,
    /// At most the number of records that was asked for.
    RecordLimit,
}

impl AcquireMode {
    /// The mode with this id; `None`: unknown.
    pub(crate) fn from_id(id: i8) -> Option<Self> {
        match id {
            0 => Some(Self::BatchOptimized),
            1 => Some(Self::RecordLimit),
            _ => None,
        }
    }
}

/// A fetch that wants records.
#[derive(Debug)]
pub(crate) struct Acquire<'a> {
    pub(crate) member: &'a Arc<str>,
    pub(crate) mode: AcquireMode,
    /// A new acquired batch ends with the first record batch at which it has this many records.
    pub(crate) batch_size: i64,
    pub(crate) max_records: i64,
    /// Where the log was read.
    pub(crate) fetch_offset: i64,
    pub(crate) now_ms: i64,
    pub(crate) limits: Limits,
}

/// A record batch of the log, as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FetchedBatch {
    pub(crate) base: i64,
    pub(crate) last: i64,
    /// It belongs to an aborted transaction, and the group reads committed records only.
    pub(crate) is_aborted: bool,
}

/// From this number of deliveries on fewer records are delivered at once. Kafka: `throttleRecordsDeliveryLimit`.
fn throttled_from(max_deliveries: u16) -> u16 {
    max_deliveries.div_ceil(2).max(2)
}

impl Acquire<'_> {
    fn is_record_limit(&self) -> bool {
        self.mode == AcquireMode::RecordLimit
    }

    fn locked_until_ms(&self) -> i64 {
        self.now_ms.saturating_add(self.limits.lock_ms)
    }
}

/// The acquired ranges, and how many records they have.
#[derive(Debug, Default)]
struct Taken {
    ranges: Vec<Acquired>,
    count: i64,
}

impl SharePartition {
    /// Acquires what was fetched, as far as it is available. Archived without being acquired are the records of aborted transactions, and
    /// available ones that the log has no longer.
    pub(crate) fn acquire(&mut self, acquire: &Acquire<'_>, batches: &[FetchedBatch]) -> Vec<Acquired> {
        let (Some(first), Some(last)) = (batches.first(), batches.last()) else {
            return Vec::new();
        };
        if acquire.max_records <= 0 || last.last < self.start_offset {
            return Vec::new();
        }
        let (last_offset, max_records) = self.room_for(acquire, last.last);
        if max_records <= 0 {
            return Vec::new();
        }
        self.archive_compacted(acquire.fetch_offset, first.base);
        let base = match self.floor(first.base) {
            Some((key, batch)) if batch.last >= first.base => key,
            // The log may begin inside of the batch. Kafka looks at that only if nothing is in flight before it, and may then read below the
            // start of the log again and again.
            _ => first.base.max(self.start_offset),
        };
        let keys = self.keys(first.base.min(base), last_offset);
        let taken = match keys.is_empty() {
            true => self.acquire_new(acquire, batches, base, last_offset, max_records),
            false => self.acquire_among(acquire, batches, (base, last_offset), max_records, &keys),
        };
        self.without_aborted(taken.ranges, batches)
    }

    /// The last offset and the number of records that the limit of locks allows. At the limit only what is in flight may be acquired
    /// again. Kafka: `SharePartition#lastOffsetAndMaxRecordsToAcquire`.
    fn room_for(&self, acquire: &Acquire<'_>, last_fetched: i64) -> (i64, i64) {
        let free = acquire.limits.max_locks - self.in_flight_count();
        let max_records = acquire.max_records.min(free);
        if max_records <= 0 && acquire.fetch_offset <= self.end_offset {
            let until_end = self.end_offset - acquire.fetch_offset + 1;
            return (last_fetched.min(self.end_offset), acquire.max_records.min(until_end));
        }
        (last_fetched, max_records)
    }

    /// Archives available records between the offset that was read and the first one that was found there. Kafka:
    /// `SharePartition#maybeArchiveStaleBatches`.
    fn archive_compacted(&mut self, fetch_offset: i64, base: i64) {
        if fetch_offset >= base {
            return;
        }
        let from = match self.floor(fetch_offset) {
            Some((key, batch)) if batch.last >= fetch_offset => key,
            _ => fetch_offset,
        };
        let keys = self.keys(from, base - 1);
        let range = (fetch_offset, base - 1);
        if self.archive(keys, range, RecordState::Available, Counted::Yes) {
            self.any_available = true;
        }
    }

    /// Acquires where records are in flight already: they are acquired again if they are available, with the bounds that they have.
    fn acquire_among(
        &mut self,
        acquire: &Acquire<'_>,
        batches: &[FetchedBatch],
        (base, last_offset): (i64, i64),
        mut max_records: i64,
        keys: &[i64],
    ) -> Taken {
        let first_offset = batches.first().map_or(base, |batch| batch.base);
        let mut taken = Taken::default();
        let mut gap_start = base;
        for &key in keys {
            if taken.count >= max_records {
                break;
            }
            if self.is_gap_open() {
                if gap_start < key {
                    let left = max_records - taken.count;
                    let new = self.acquire_new(acquire, batches, gap_start, key - 1, left);
                    taken.add(new);
                }
                gap_start = self.in_flight.get(&key).map_or(gap_start, |batch| batch.last + 1);
                if taken.count >= max_records {
                    break;
                }
            }
            let is_throttled = self.is_throttled(acquire, key, (first_offset, last_offset));
            if is_throttled && taken.count > 0 {
                max_records = 0;
                break;
            }
            let left = max_records - taken.count;
            let again = self.acquire_again(acquire, key, (first_offset, last_offset), left, is_throttled);
            let was_throttled = is_throttled && again.count > 0;
            taken.add(again);
            if was_throttled {
                max_records = 0;
                break;
            }
        }
        let last_key = keys.last().and_then(|key| self.in_flight.get(key));
        let behind = last_key.map_or(base, |batch| batch.last + 1);
        if taken.count < max_records && behind <= last_offset {
            let left = max_records - taken.count;
            let new = self.acquire_new(acquire, batches, behind, last_offset, left);
            taken.add(new);
        }
        match taken.ranges.last() {
            Some(last) => self.note_fetched_until(last.last + 1),
            // Kafka reads the same again and again: what lies between the offset that was read and these was compacted away.
            None if self.is_gap_open() && !planted!("share-gap-of-compacted-records-read-again") => {
                self.note_fetched_until(last_offset + 1);
                self.move_start_offset();
            }
            None => {}
        }
        taken
    }

    /// Whether so few deliveries are left that records are delivered in small numbers, so that one bad record does not use up the
    /// deliveries of the others. Kafka: `SharePartition#shouldThrottleRecordsDelivery`.
    fn is_throttled(&self, acquire: &Acquire<'_>, key: i64, (from, to): (i64, i64)) -> bool {
        let threshold = throttled_from(acquire.limits.max_deliveries);
        let is_near = |state: &InFlightState| state.state == RecordState::Available && state.deliveries >= threshold;
        match self.in_flight.get(&key).map(|batch| &batch.records) {
            Some(Records::All(state)) => is_near(state),
            Some(Records::Each(states)) => {
                let mut within = (key..).zip(states).filter(|(at, _)| (from..=to).contains(at));
                within.any(|(_, state)| is_near(state))
            }
            None => false,
        }
    }

    /// Acquires the available records of a batch in flight.
    fn acquire_again(
        &mut self,
        acquire: &Acquire<'_>,
        key: i64,
        (from, to): (i64, i64),
        left: i64,
        is_throttled: bool,
    ) -> Taken {
        let Some(batch) = self.in_flight.get_mut(&key) else {
            return Taken::default();
        };
        let last = batch.last;
        let is_covered = key >= from && last <= to;
        let is_too_large = acquire.is_record_limit() && last - key + 1 > left;
        if let Some(state) = batch.whole_mut() {
            if state.state != RecordState::Available && !planted!("share-record-acquired-twice") {
                return Taken::default();
            }
            if is_covered && !is_too_large && !is_throttled {
                state.acquire(acquire.member, acquire.locked_until_ms());
                let deliveries = state.deliveries;
                self.locks.insert((acquire.locked_until_ms(), key));
                return Taken::of(Acquired {
                    first: key,
                    last,
                    deliveries,
                });
            }
            self.split(key);
        }
        self.acquire_each(acquire, key, (from, to), left)
    }

    /// Acquires single records of a batch. Kafka: `SharePartition#acquireSubsetBatchRecords`.
    fn acquire_each(&mut self, acquire: &Acquire<'_>, key: i64, (from, to): (i64, i64), left: i64) -> Taken {
        let Some(InFlightBatch {
            records: Records::Each(states),
            ..
        }) = self.in_flight.get_mut(&key)
        else {
            return Taken::default();
        };
        let max_deliveries = acquire.limits.max_deliveries;
        let threshold = throttled_from(max_deliveries);
        let length = i64::try_from(states.len()).unwrap_or(i64::MAX);
        let mut throttled_to = None;
        let mut taken = Taken::default();
        let within = (key..).zip(states).filter(|(at, _)| (from..=to).contains(at));
        for (offset, state) in within.filter(|(_, state)| state.state == RecordState::Available) {
            let is_last_delivery = max_deliveries > 2 && state.deliveries + 1 == max_deliveries;
            if is_last_delivery && taken.count > 0 {
                break;
            }
            if state.deliveries >= threshold && throttled_to.is_none() {
                let shift = u32::from(state.deliveries - threshold + 1);
                throttled_to = Some(length.checked_shr(shift).unwrap_or(0).max(1));
            }
            state.acquire(acquire.member, acquire.locked_until_ms());
            self.locks.insert((acquire.locked_until_ms(), offset));
            taken.push_single(offset, state.deliveries);
            if is_last_delivery || throttled_to == Some(taken.count) {
                break;
            }
            if acquire.is_record_limit() && taken.count == left {
                break;
            }
        }
        taken
    }

    /// Acquires records that are not in flight. Kafka: `SharePartition#acquireNewBatchRecords`.
    fn acquire_new(
        &mut self,
        acquire: &Acquire<'_>,
        batches: &[FetchedBatch],
        first: i64,
        last: i64,
        max_records: i64,
    ) -> Taken {
        let first = match self.in_flight.is_empty() {
            true => first.max(self.end_offset),
            false => first,
        };
        let mut until = last;
        if max_records < last - first + 1 {
            until = end_of_batch(batches, first + max_records - 1);
            if self.is_gap_open() {
                until = until.min(last);
            }
        }
        if until < first {
            return Taken::default();
        }
        let ranges = self.add_batches(acquire, batches, (first, until), max_records);
        if self.in_flight.first_key_value().is_some_and(|(key, _)| *key == first) {
            // Records before it were compacted away.
            self.start_offset = first;
        }
        self.end_offset = self.end_offset.max(until);
        if acquire.is_record_limit() {
            until = ranges.first().map_or(until, |range| range.last);
        }
        self.note_fetched_until(until + 1);
        Taken {
            ranges,
            count: until - first + 1,
        }
    }

    /// Puts new batches in flight. Kafka: `SharePartition#createBatches`.
    fn add_batches(
        &mut self,
        acquire: &Acquire<'_>,
        batches: &[FetchedBatch],
        (first, last): (i64, i64),
        max_records: i64,
    ) -> Vec<Acquired> {
        let range = |first, last| Acquired {
            first,
            last,
            deliveries: 1,
        };
        let state = InFlightState::acquired(acquire.member, acquire.locked_until_ms());
        if acquire.is_record_limit() && last - first + 1 > max_records {
            let until = first + max_records - 1;
            let of = |offset| match offset <= until {
                true => state.clone(),
                false => InFlightState::free(RecordState::Available, 0),
            };
            let records = Records::Each((first..=last).map(of).collect());
            self.in_flight.insert(first, InFlightBatch { last, records });
            self.locks
                .extend((first..=until).map(|offset| (acquire.locked_until_ms(), offset)));
            self.any_available = true;
            return vec![range(first, until)];
        }
        let mut ranges = Vec::new();
        let mut begin = first;
        if !acquire.is_record_limit() && last - first + 1 > acquire.batch_size {
            for batch in batches.iter().take_while(|batch| batch.base <= last) {
                if batch.base - begin >= acquire.batch_size.max(0) {
                    ranges.push(range(begin, batch.base - 1));
                    begin = batch.base;
                }
            }
        }
        ranges.push(range(begin, last));
        // As in Kafka a batch size of 0 and less gives an empty range in front.
        for range in ranges.iter().filter(|range| range.first <= range.last) {
            self.in_flight
                .insert(range.first, InFlightBatch::new(range.last, state.clone()));
            self.locks.insert((acquire.locked_until_ms(), range.first));
        }
        ranges
    }

    /// Archives acquired records of aborted transactions, and takes them out of what was acquired. Kafka:
    /// `SharePartition#filterAbortedTransactionalAcquiredRecords`.
    fn without_aborted(&mut self, acquired: Vec<Acquired>, batches: &[FetchedBatch]) -> Vec<Acquired> {
        let mut left = acquired;
        for batch in batches.iter().filter(|batch| batch.is_aborted) {
            if left.is_empty() {
                break;
            }
            let from = self.floor(batch.base).map_or(batch.base, |(key, _)| key);
            let keys = self.keys(from, batch.last);
            self.archive(keys, (batch.base, batch.last), RecordState::Acquired, Counted::Yes);
            left = left.into_iter().flat_map(|range| range.without(batch)).collect();
        }
        left
    }
}

impl Taken {
    fn of(range: Acquired) -> Self {
        Self {
            count: range.last - range.first + 1,
            ranges: vec![range],
        }
    }

    fn add(&mut self, other: Self) {
        self.ranges.extend(other.ranges);
        self.count += other.count;
    }

    /// Adds a record to the last range, if it follows it.
    fn push_single(&mut self, offset: i64, deliveries: u16) {
        self.count += 1;
        match self.ranges.last_mut() {
            Some(range) if range.last + 1 == offset && range.deliveries == deliveries => range.last = offset,
            _ => self.ranges.push(Acquired {
                first: offset,
                last: offset,
                deliveries,
            }),
        }
    }
}

impl Acquired {
    /// What is left of the range without a batch.
    fn without(self, batch: &FetchedBatch) -> Vec<Self> {
        if self.last < batch.base || self.first > batch.last {
            return vec![self];
        }
        let before = Self {
            last: batch.base - 1,
            ..self
        };
        let behind = Self {
            first: batch.last + 1,
            ..self
        };
        [before, behind]
            .into_iter()
            .filter(|range| range.first <= range.last)
            .collect()
    }
}

/// The last offset of the batch that has this offset; the offset itself, if none has.
fn end_of_batch(batches: &[FetchedBatch], offset: i64) -> i64 {
    let holder = batches.iter().rfind(|batch| batch.base <= offset);
    holder.map_or(offset, |batch| batch.last.max(offset))
}
