//! A range of offsets of one or more partitions, batch by batch: what `Broker.scan` and the Spark source read.
//!
//! Every checksum is checked. Control batches are never returned, nor are aborted transactions with
//! [`FetchBound::LastStableOffset`]. Memory: for each partition that is being read, the bytes of one read and one
//! decompressed batch.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_records::committed::AbortedTransactions;
use fletchlog_records::planted;
use fletchlog_records::timestamp_merge::{MergeTurn, TimestampMerge};
use fletchlog_records::{
    BatchIter, DECOMPRESSION_LIMIT, RecordBatch, RecordCursor, RecordError, RecordsSlice, TimeRange, TopicPartition,
};

use crate::{FetchBound, LogError, PartitionLog};

/// Bytes read from a segment at a time: they are still in a core's second-level cache when they are decoded. With 1 MiB two threads are a
/// tenth slower.
pub const READ_BYTES: usize = 512 << 10;
/// Least bytes read at a time from each of many partitions: a few batches of a default producer.
const READ_BYTES_MIN: usize = 64 << 10;

/// A scan could not begin or continue.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ScanError {
    /// The range ends before it starts.
    #[error("start_offset is {start} and end_offset {end}; a range does not end before it starts")]
    Backwards {
        /// First offset asked for.
        start: i64,
        /// End asked for.
        end: i64,
    },
    /// The range starts below the log. Kafka: OFFSET_OUT_OF_RANGE (1).
    #[error("offset {offset} of {tp} is gone: the log starts at {log_start}; scan from there")]
    Gone {
        /// Partition.
        tp: TopicPartition,
        /// First offset asked for.
        offset: i64,
        /// Log start offset.
        log_start: i64,
    },
    /// The log cannot be read any further.
    #[error("{tp} at offset {offset}: {source}")]
    Unreadable {
        /// Partition.
        tp: TopicPartition,
        /// Base offset of the batch, or the offset to read from.
        offset: i64,
        /// Cause. Every later call gets the same.
        source: Arc<LogError>,
    },
}

/// Offsets of one partition. It never changes: reading it twice shows the same records.
#[derive(Debug, Clone)]
pub struct ScanRange {
    log: Arc<PartitionLog>,
    /// First offset.
    pub start: i64,
    /// End, exclusive.
    pub end: i64,
}

impl ScanRange {
    /// From `start` (the log start if `None`) to `end`, at most to the end that a reader of `bound` sees now. A range that
    /// starts beyond that end is empty.
    ///
    /// # Errors
    /// `Backwards`, `Gone`.
    pub fn resolve(
        log: Arc<PartitionLog>,
        start: Option<i64>,
        end: Option<i64>,
        bound: FetchBound,
    ) -> Result<Self, ScanError> {
        if let (Some(start), Some(end)) = (start, end)
            && start > end
        {
            return Err(ScanError::Backwards { start, end });
        }
        let log_start = log.log_start_offset();
        let log_end = log.end(bound);
        let start = start.unwrap_or(log_start);
        if start < log_start {
            return Err(ScanError::Gone {
                tp: log.tp.clone(),
                offset: start,
                log_start,
            });
        }
        let end = end.map_or(log_end, |end| end.min(log_end));
        Ok(Self { log, start, end })
    }

    /// Leaves out the records that, by the time index, precede every record with a timestamp at or above `timestamp` (ms).
    /// The remaining ones may still include smaller timestamps.
    ///
    /// # Errors
    /// `Unreadable`.
    pub fn from_time(mut self, timestamp: i64) -> Result<Self, ScanError> {
        let first = self.log.first_offset_of_times(timestamp);
        let first = first.map_err(|source| ScanError::Unreadable {
            tp: self.tp().clone(),
            offset: self.start,
            source: Arc::new(source),
        })?;
        self.start = self.start.max(first);
        Ok(self)
    }

    /// Splits the range into consecutive ranges of about `bytes` of the log each, for readers that work in parallel. Bytes
    /// are assumed to be spread evenly over the offsets of a segment: a part may be smaller or larger, but each record is in
    /// exactly one. The first part begins where the range does, even if the log no longer has these records: reading it is an
    /// error then.
    pub fn parts(&self, bytes: u64) -> Vec<Self> {
        let segments = self.log.segments();
        let bases = segments.iter().map(|&(base, _)| base);
        let ends = bases.skip(1).chain([self.log.log_end_offset().max(self.end)]);
        let mut starts = Vec::new();
        let mut gathered = 0;
        for (&(base, size), next) in segments.iter().zip(ends) {
            let (start, end) = (base.max(self.start), next.min(self.end));
            if start >= end {
                continue;
            }
            let share = |offsets: i64| {
                u128::from(size) * u128::from(offsets.unsigned_abs()) / u128::from((next - base).unsigned_abs())
            };
            let size = u64::try_from(share(end - start)).unwrap_or(u64::MAX);
            if starts.is_empty() || gathered + size > bytes {
                starts.push(if starts.is_empty() && !planted!("parts-begin-where-the-log-does") {
                    self.start
                } else {
                    start
                });
                gathered = 0;
            }
            gathered += size;
            let pieces = i64::try_from(size / bytes.max(1))
                .unwrap_or(i64::MAX)
                .clamp(1, end - start);
            let step = (end - start) / pieces;
            starts.extend((1..pieces).map(|piece| start + step * piece));
        }
        if starts.is_empty() && self.start < self.end {
            starts.push(self.start);
        }
        let ends = starts.iter().skip(1).copied().chain([self.end]);
        let part = |(&start, end)| Self {
            log: Arc::clone(&self.log),
            start,
            end,
        };
        starts.iter().zip(ends).map(part).collect()
    }

    /// Its partition.
    pub fn tp(&self) -> &TopicPartition {
        &self.log.tp
    }
}

/// The order of the records of several ranges. Within a partition it is always that of the offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanOrder {
    /// Range after range.
    Offset,
    /// All ranges merged: the range whose next record is least by (timestamp, place of the range) comes next.
    Timestamp,
}

/// The next records: those of `slice` from `cursor` on with offsets in `start..end`, as many as [`ScanBatch::in_turn`]
/// allows. The caller reads them, which advances the cursor; the rest is returned again.
#[derive(Debug)]
pub struct ScanBatch<'a> {
    /// Partition.
    pub tp: &'a TopicPartition,
    /// Records of one batch, not parsed yet.
    pub slice: &'a RecordsSlice,
    /// The next record.
    pub cursor: &'a mut RecordCursor,
    /// First offset of the range.
    pub start: i64,
    /// End of the range, exclusive.
    pub end: i64,
    /// Only records up to this timestamp (ms) come next; `None`: all of them.
    until: Option<i64>,
}

impl ScanBatch<'_> {
    /// How many of the next `max` records come before those of other partitions.
    ///
    /// # Errors
    /// The next record is malformed.
    pub fn in_turn(&self, max: usize) -> Result<usize, RecordError> {
        let Some(until) = self.until else { return Ok(max) };
        let walked = self
            .cursor
            .clone()
            .walk_while(self.slice, max, |timestamp| timestamp <= until)?;
        Ok(walked.map_or(0, |(records, _, _)| records))
    }
}

/// A running scan. Belongs to one reader.
#[derive(Debug)]
pub struct Scan {
    bound: FetchBound,
    walks: Vec<Walk>,
    progress: Progress,
    /// The error that ended it.
    failure: Option<ScanError>,
}

#[derive(Debug)]
enum Progress {
    /// The range that is being read.
    Offset(usize),
    Timestamp {
        merge: TimestampMerge,
        /// Ranges whose next record is in `merge` or does not exist.
        begun: usize,
        /// The range whose records were shown last: its next record is not in `merge`.
        shown: Option<usize>,
    },
}

impl Scan {
    /// A scan at its first record. In timestamp order the ranges share the bytes that one alone reads at a time, down to
    /// `READ_BYTES_MIN` each.
    pub fn new(ranges: &[ScanRange], bound: FetchBound, order: ScanOrder) -> Self {
        let (progress, read_bytes) = match order {
            ScanOrder::Offset => (Progress::Offset(0), READ_BYTES),
            ScanOrder::Timestamp => (
                Progress::Timestamp {
                    merge: TimestampMerge::default(),
                    begun: 0,
                    shown: None,
                },
                (READ_BYTES / ranges.len().max(1)).max(READ_BYTES_MIN),
            ),
        };
        Self {
            bound,
            walks: ranges
                .iter()
                .map(|range| Walk::new(range.clone(), read_bytes))
                .collect(),
            progress,
            failure: None,
        }
    }

    /// Skips batches whose headers show that they have no record in `times`. The reader checks the timestamps of the records
    /// in all others, whose order stays the same.
    pub fn of_times(mut self, times: TimeRange) -> Self {
        let skipped = match self.progress {
            Progress::Offset(_) => times,
            // A record that is too late for the range delays those after it, so its batch is not skipped; one that is too
            // early delays none.
            Progress::Timestamp { .. } => TimeRange {
                last: i64::MAX,
                ..times
            },
        };
        self.walks.iter_mut().for_each(|walk| walk.times = skipped);
        self
    }

    /// The next records; `None` at the end. If a batch was read in part, its remaining records.
    ///
    /// # Errors
    /// `Unreadable`: the records before it were returned; every later call returns the same error.
    pub fn next_batch(&mut self) -> Result<Option<ScanBatch<'_>>, ScanError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let turn = self
            .turn()
            .inspect_err(|failure| self.failure = Some(failure.clone()))?;
        Ok(turn.and_then(|(place, until)| self.walks.get_mut(place)?.batch(until)))
    }

    /// How many records of the ranges the next batch has, range after range, instead of [`Self::next_batch`]; `None` at the
    /// end. For a batch that lies wholly in its range the header says it: its records are neither decompressed nor parsed.
    /// The times of [`Self::of_times`] leave out whole batches only.
    ///
    /// # Errors
    /// `Unreadable`, as [`Self::next_batch`].
    pub fn next_count(&mut self) -> Result<Option<u64>, ScanError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        for walk in &mut self.walks {
            let counted = walk.count(self.bound);
            if let Some(count) = counted.inspect_err(|failure| self.failure = Some(failure.clone()))? {
                return Ok(Some(count));
            }
        }
        Ok(None)
    }

    /// The range whose records come next, and the timestamp (ms) up to which they do.
    fn turn(&mut self) -> Result<Option<(usize, Option<i64>)>, ScanError> {
        Ok(match &mut self.progress {
            Progress::Offset(place) => {
                while let Some(walk) = self.walks.get_mut(*place)
                    && !walk.step(self.bound)?
                {
                    *place += 1;
                }
                Some((*place, None))
            }
            Progress::Timestamp { merge, begun, shown } => {
                while let Some(place) = shown.or_else(|| (*begun < self.walks.len()).then_some(*begun)) {
                    if let Some(timestamp) = self.walks[place].next_timestamp(self.bound)? {
                        merge.push(timestamp, place);
                    }
                    if shown.take().is_none() {
                        *begun += 1;
                    }
                }
                let turn = merge.pop();
                *shown = turn.map(|turn| turn.place);
                turn.map(|MergeTurn { place, until, .. }| (place, Some(until)))
            }
        })
    }
}

/// Position of the scan in one range.
#[derive(Debug)]
struct Walk {
    range: ScanRange,
    /// Bytes read from the log at a time.
    read_bytes: usize,
    /// First offset not read yet.
    next_offset: i64,
    /// Batches without a record in these times are skipped.
    times: TimeRange,
    batches: BatchIter,
    aborted: AbortedTransactions,
    records: Option<(RecordsSlice, RecordCursor)>,
    /// End of these records, exclusive. A batch in the range is returned whole, as by Kafka's consumer: also records with
    /// offsets beyond its last one (in a v0 wrapper whose offset is too low).
    end: i64,
}

impl Walk {
    fn new(range: ScanRange, read_bytes: usize) -> Self {
        Self {
            next_offset: range.start,
            end: range.end,
            range,
            read_bytes,
            times: TimeRange::ALL,
            batches: BatchIter::new(Bytes::new()),
            aborted: AbortedTransactions::default(),
            records: None,
        }
    }

    fn batch(&mut self, until: Option<i64>) -> Option<ScanBatch<'_>> {
        let (slice, cursor) = self.records.as_mut()?;
        Some(ScanBatch {
            tp: self.range.tp(),
            slice,
            cursor,
            start: self.range.start,
            end: self.end,
            until,
        })
    }

    /// Finds the next batch with records of the range. `false`: the range is finished.
    fn step(&mut self, bound: FetchBound) -> Result<bool, ScanError> {
        if let Some((slice, cursor)) = &self.records {
            // The reader stopped: it had enough, or reached a malformed record or the end of the range.
            let next = cursor.clone().next(slice);
            let next = next.map_err(|error| self.unreadable(slice.base_offset, error))?;
            if next.is_some_and(|record| record.offset < self.end) {
                return Ok(true);
            }
            self.records = None;
        }
        self.find(bound)
    }

    fn find(&mut self, bound: FetchBound) -> Result<bool, ScanError> {
        let Some(batch) = self.find_batch(bound)? else {
            return Ok(false);
        };
        self.records = Some((self.records_of(&batch)?, RecordCursor::new()));
        Ok(true)
    }

    fn records_of(&self, batch: &RecordBatch) -> Result<RecordsSlice, ScanError> {
        let records = batch.records(DECOMPRESSION_LIMIT);
        records.map_err(|error| self.unreadable(batch.header().base_offset, error))
    }

    /// How many records of the range the next batch has.
    fn count(&mut self, bound: FetchBound) -> Result<Option<u64>, ScanError> {
        let Some(batch) = self.find_batch(bound)? else {
            return Ok(None);
        };
        let header = batch.header();
        // For older formats the header is made from the entry, which may be a wrapper around many records.
        let is_counted =
            header.magic == 2 && header.base_offset >= self.range.start && header.next_offset() <= self.range.end;
        if let (true, Ok(count)) = (is_counted, u64::try_from(header.records_count)) {
            return Ok(Some(count));
        }
        let slice = self.records_of(&batch)?;
        let (mut cursor, mut count) = (RecordCursor::new(), 0);
        let unreadable = |error| self.unreadable(slice.base_offset, error);
        while let Some(record) = cursor.next(&slice).map_err(unreadable)? {
            count += u64::from((self.range.start..self.end).contains(&record.offset));
        }
        Ok(Some(count))
    }

    /// The next batch that may have records of the range, valid and visible.
    fn find_batch(&mut self, bound: FetchBound) -> Result<Option<RecordBatch>, ScanError> {
        while self.next_offset < self.range.end {
            let next = self.batches.next().transpose();
            let Some(batch) = next.map_err(|error| self.unreadable(self.next_offset, error))? else {
                if !self.read(bound)? {
                    return Ok(None);
                }
                continue;
            };
            let header = batch.header();
            let (base_offset, next_offset) = (header.base_offset, header.next_offset());
            if base_offset >= self.range.end {
                self.next_offset = self.range.end;
                return Ok(None);
            }
            batch
                .ensure_valid()
                .map_err(|error| self.unreadable(base_offset, error))?;
            let is_aborted = bound == FetchBound::LastStableOffset
                && self
                    .aborted
                    .is_aborted(&batch, DECOMPRESSION_LIMIT)
                    .map_err(|error| self.unreadable(base_offset, error))?;
            let skipped =
                is_aborted || header.is_control() || next_offset <= self.range.start || self.times.excludes(header);
            self.next_offset = next_offset.max(self.next_offset);
            self.end = if next_offset <= self.range.end {
                i64::MAX
            } else {
                self.range.end
            };
            if !skipped {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// Reads the next bytes. `false`: there are none.
    fn read(&mut self, bound: FetchBound) -> Result<bool, ScanError> {
        self.batches = BatchIter::new(Bytes::new()); // Frees the memory of the last read, which is still in a cache: the next read reuses it.
        let read = self.range.log.read(self.next_offset, self.read_bytes, true, bound);
        let read = read.map_err(|error| self.unreadable(self.next_offset, error))?;
        if read.records.is_empty() {
            // Compaction may leave no record before the end, but a log never becomes shorter, unless another has taken its
            // place.
            let end = self.range.log.log_end_offset();
            if end < self.range.end {
                let error = LogError::OffsetOutOfRange {
                    partition: self.range.tp().to_string(),
                    offset: self.range.end - 1,
                    start: self.range.log.log_start_offset(),
                    end,
                };
                return Err(self.unreadable(self.next_offset, error));
            }
            return Ok(false);
        }
        self.aborted = AbortedTransactions::new(read.aborted_transactions.unwrap_or_default());
        self.batches = BatchIter::new(read.records);
        Ok(true)
    }

    /// Moves the cursor before the next record of the range and returns its timestamp (ms); `None` at the end.
    fn next_timestamp(&mut self, bound: FetchBound) -> Result<Option<i64>, ScanError> {
        while self.step(bound)? {
            let Some((slice, cursor)) = &mut self.records else {
                break;
            };
            match first_timestamp(slice, cursor, self.range.start) {
                Ok(None) => {}
                Ok(timestamp) => return Ok(timestamp),
                Err(error) => {
                    let offset = slice.base_offset;
                    return Err(self.unreadable(offset, error));
                }
            }
        }
        Ok(None)
    }

    fn unreadable(&self, offset: i64, source: impl Into<LogError>) -> ScanError {
        ScanError::Unreadable {
            tp: self.range.tp().clone(),
            offset,
            source: Arc::new(source.into()),
        }
    }
}

/// Moves the cursor before the first record at or after `start` and returns its timestamp.
fn first_timestamp(slice: &RecordsSlice, cursor: &mut RecordCursor, start: i64) -> Result<Option<i64>, RecordError> {
    loop {
        let mut probe = cursor.clone();
        match probe.next(slice)? {
            Some(record) if record.offset < start => *cursor = probe,
            record => return Ok(record.map(|record| record.timestamp)),
        }
    }
}
