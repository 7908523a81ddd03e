//! One partition's part of a fetch response, and the iteration over its records (spec 7.7). Kafka: `CompletedFetch`.

use std::sync::Arc;

use fletchlog_api::{ErrorCode, IsolationLevel, NodeId};
use fletchlog_protocol::messages::fetch_response::PartitionData;
use fletchlog_records::committed::AbortedTransactions;
use fletchlog_records::{BatchIter, RecordCursor, RecordError, RecordSpan, RecordsSlice, TopicPartition};

use super::settings::Settings;
use super::subscription_state::SubscriptionState;
use super::trace::{Trace, TraceEvent, TraceKind};
use crate::ClientError;

/// The batch whose records are being returned.
#[derive(Debug, Clone)]
struct CurrentBatch {
    slice: RecordsSlice,
    cursor: RecordCursor,
    next_offset: i64,
    is_control: bool,
}

/// A queue entry. Empty ones (0 bytes) exist and count (spec 7.3).
#[derive(Debug, Clone)]
pub struct CompletedFetch {
    /// Partition.
    pub tp: TopicPartition,
    /// Requested offset.
    pub fetch_offset: i64,
    /// Error of the response.
    pub error: ErrorCode,
    /// Why the log cannot be read.
    pub error_message: Option<Arc<str>>,
    /// High watermark of the response.
    pub high_watermark: i64,
    /// Last stable offset of the response.
    pub last_stable_offset: i64,
    /// The follower that the leader named instead of returning records.
    pub preferred_read_replica: Option<NodeId>,
    /// Size of the records in the response, in bytes.
    pub size: usize,
    /// It was checked at the head of the queue and is usable.
    pub initialized: bool,
    /// No more records will come from it.
    pub consumed: bool,
    /// Offset after the last record returned or skipped.
    pub next_fetch_offset: i64,
    /// Leader epoch of the last batch, -1 none.
    pub last_epoch: i32,
    batches: BatchIter,
    current: Option<CurrentBatch>,
    /// Where the next fetch begins when all batches are done; `None` before the first batch.
    after_batches: Option<i64>,
    aborted: AbortedTransactions,
    returned_any: bool,
    /// Why the next record cannot be read; repeated until a seek drops this fetch.
    failure: Option<ClientError>,
}

impl CompletedFetch {
    /// A fresh entry.
    pub fn new(tp: TopicPartition, fetch_offset: i64, response: PartitionData) -> Self {
        let preferred_read_replica = response.preferred_read_replica();
        let aborted = response.aborted_transactions.unwrap_or_default();
        let records = response.records.unwrap_or_default();
        Self {
            tp,
            fetch_offset,
            error: response.error_code,
            error_message: response.error_message,
            high_watermark: response.high_watermark,
            last_stable_offset: response.last_stable_offset,
            preferred_read_replica,
            size: records.len(),
            initialized: false,
            consumed: false,
            next_fetch_offset: fetch_offset,
            last_epoch: -1,
            batches: BatchIter::new(records),
            current: None,
            after_batches: None,
            aborted: AbortedTransactions::new(aborted.iter().map(|t| (t.producer_id, t.first_offset))),
            returned_any: false,
            failure: None,
        }
    }

    /// Whether the response has bytes but no whole batch. Brokers that support fetch v3 never send this.
    pub fn has_only_a_fragment(&self) -> bool {
        self.size > 0 && self.batches.clone().next().is_none()
    }

    /// Ends this fetch. If it returned a record, its partition moves to the end of the assignment order (spec 7.2).
    pub fn drain(&mut self, subs: &mut SubscriptionState, trace: &mut Trace, why: &'static str) {
        if self.consumed {
            return;
        }
        self.consumed = true;
        self.current = None;
        self.batches = BatchIter::new(bytes::Bytes::new());
        trace.push(|| {
            TraceEvent::of(TraceKind::Drained, &self.tp)
                .at(self.next_fetch_offset)
                .because(why)
        });
        if self.returned_any {
            subs.move_partition_to_end(&self.tp);
            trace.push(|| TraceEvent::of(TraceKind::Rotate, &self.tp));
        }
    }

    /// Takes at most `max` records. Fewer than `max` do not mean that the fetch is exhausted; only [`Taken::exhausted`]
    /// does, and then the caller drains. Records before a bad one are returned first; the next call returns the error.
    ///
    /// # Errors
    /// `CorruptRecord`, again at every call.
    pub fn take(
        &mut self,
        max: usize,
        mut turn: Option<&mut TimeTurn>,
        settings: &Settings,
        spans: &mut Vec<RecordSpan>,
    ) -> Result<Taken, ClientError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let mut taken = 0;
        while taken < max {
            match self.next_span(max - taken, turn.as_deref_mut(), settings) {
                Ok(Some(span)) if span.count == 0 => break,
                Ok(Some(span)) => {
                    taken += span.count;
                    // Not beyond the end of the batch. Its records may have higher offsets (a wrapper of format v0
                    // whose offset is too low), and such a position could be out of range.
                    let behind = span.last_offset.saturating_add(1);
                    let behind = behind.min(self.after_batches.unwrap_or(behind));
                    self.next_fetch_offset = self.next_fetch_offset.max(behind);
                    self.returned_any = true;
                    spans.push(span);
                }
                Ok(None) => {
                    return Ok(Taken {
                        records: taken,
                        exhausted: true,
                    });
                }
                Err(failure) => {
                    self.failure = Some(failure.clone());
                    return if taken == 0 {
                        Err(failure)
                    } else {
                        Ok(Taken {
                            records: taken,
                            exhausted: false,
                        })
                    };
                }
            }
        }
        Ok(Taken {
            records: taken,
            exhausted: false,
        })
    }

    /// Timestamp (ms) of the record that [`Self::take`] would return next; `None` if none is left. Skips batches
    /// without records for the user, which may move `next_fetch_offset`.
    ///
    /// # Errors
    /// `CorruptRecord`, again at every call.
    pub fn peek_timestamp(&mut self, settings: &Settings) -> Result<Option<i64>, ClientError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let peeked = self.find_timestamp(settings);
        self.failure = peeked.as_ref().err().cloned();
        peeked
    }

    fn find_timestamp(&mut self, settings: &Settings) -> Result<Option<i64>, ClientError> {
        while self.find_batch(settings)? {
            let Some(current) = &self.current else { continue };
            match current.cursor.peek_timestamp(&current.slice) {
                Ok(None) => self.current = None,
                Ok(timestamp) => return Ok(timestamp),
                Err(error) => return Err(self.corrupt(self.next_fetch_offset, &error)),
            }
        }
        Ok(None)
    }

    /// Highest timestamp (ms) in the headers of the batches not yet begun; `None` if there are none.
    pub fn newest_timestamp(&self) -> Option<i64> {
        self.batches
            .clone()
            .map_while(Result::ok)
            .filter(|batch| !batch.header().is_control())
            .map(|batch| batch.header().max_timestamp)
            .max()
    }

    /// Ensures that there is a current batch. Returns false if none is left; then `next_fetch_offset` is after all of
    /// them.
    fn find_batch(&mut self, settings: &Settings) -> Result<bool, ClientError> {
        if self.current.is_some() || self.next_batch(settings)? {
            return Ok(true);
        }
        if let Some(next) = self.after_batches {
            self.next_fetch_offset = self.next_fetch_offset.max(next);
        }
        Ok(false)
    }

    /// The next run of records inside one batch; `None` if no batch is left, an empty run if the turn is over.
    /// Kafka: `CompletedFetch#nextFetchedRecord`.
    fn next_span(
        &mut self,
        max: usize,
        mut turn: Option<&mut TimeTurn>,
        settings: &Settings,
    ) -> Result<Option<RecordSpan>, ClientError> {
        while self.find_batch(settings)? {
            let Some(current) = &mut self.current else { continue };
            let CurrentBatch { slice, cursor, .. } = current;
            let start = cursor.position();
            let walked = match turn.as_deref_mut() {
                None => cursor.walk(slice, max),
                Some(turn) => cursor.walk_while(slice, max, |timestamp| turn.takes(timestamp)),
            };
            let (count, first_offset, last_offset) = match walked {
                Ok(Some(walked)) => walked,
                Ok(None) if cursor.returned() < slice.count => (0, -1, -1),
                Ok(None) => {
                    self.current = None;
                    continue;
                }
                Err(error) => return Err(self.corrupt(self.next_fetch_offset, &error)),
            };
            return Ok(Some(RecordSpan {
                slice: slice.clone(),
                start,
                end: cursor.position(),
                count,
                first_offset,
                last_offset,
            }));
        }
        Ok(None)
    }

    /// Moves to the next batch that may hold records for the user; skips markers and aborted data. Returns false if
    /// none is left.
    fn next_batch(&mut self, settings: &Settings) -> Result<bool, ClientError> {
        loop {
            let batch = match self.batches.next() {
                None => return Ok(false),
                Some(Err(error)) => return Err(self.corrupt(self.next_fetch_offset, &error)),
                Some(Ok(batch)) => batch,
            };
            let header = *batch.header();
            let next_offset = header.next_offset();
            self.last_epoch = header.partition_leader_epoch;
            self.after_batches = Some(next_offset);
            if settings.check_crcs {
                batch
                    .ensure_valid()
                    .map_err(|error| self.corrupt(header.base_offset, &error))?;
            }
            if settings.isolation_level == IsolationLevel::ReadCommitted
                && header.has_producer_id()
                && self
                    .aborted
                    .is_aborted(&batch, settings.decompression_limit)
                    .map_err(|error| self.corrupt(header.base_offset, &error))?
            {
                self.next_fetch_offset = self.next_fetch_offset.max(next_offset);
                continue;
            }
            let slice = batch
                .records(settings.decompression_limit)
                .map_err(|error| self.corrupt(header.base_offset, &error))?;
            let mut current = CurrentBatch {
                slice,
                cursor: RecordCursor::new(),
                next_offset,
                is_control: header.is_control(),
            };
            if current.is_control {
                self.skip_control(&mut current)?;
                continue;
            }
            if current.slice.base_offset < self.next_fetch_offset {
                skip_below(&mut current, self.next_fetch_offset)
                    .map_err(|error| self.corrupt(header.base_offset, &error))?;
            }
            self.current = Some(current);
            return Ok(true);
        }
    }

    /// Skips the records of a control batch, which are never returned; the position moves past each.
    fn skip_control(&mut self, current: &mut CurrentBatch) -> Result<(), ClientError> {
        loop {
            match current.cursor.next(&current.slice) {
                Ok(Some(record)) => {
                    self.next_fetch_offset = self.next_fetch_offset.max(record.offset.saturating_add(1))
                }
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.corrupt(current.next_offset.saturating_sub(1), &error)),
            }
        }
    }

    fn corrupt(&self, offset: i64, error: &RecordError) -> ClientError {
        ClientError::CorruptRecord {
            tp: self.tp.clone(),
            offset,
            reason: error.to_string(),
        }
    }
}

/// Limit of one turn in timestamp order, and what the turn took.
#[derive(Debug, Clone, Copy)]
pub struct TimeTurn {
    /// Highest timestamp it takes, ms. Older records after a taken one are taken too.
    pub until: i64,
    /// Highest timestamp returned so far, ms.
    pub newest: i64,
    /// Number of records taken that are older than one returned before them.
    pub late: usize,
}

impl TimeTurn {
    #[inline(always)]
    fn takes(&mut self, timestamp: i64) -> bool {
        if timestamp > self.until {
            return false;
        }
        self.late += usize::from(timestamp < self.newest);
        self.newest = self.newest.max(timestamp);
        true
    }
}

/// Result of one `take`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Records taken.
    pub records: usize,
    /// It read past the last record and found nothing.
    pub exhausted: bool,
}

/// Moves the cursor to the first record at or after `offset`: a fetch in the middle of a batch returns the whole batch.
fn skip_below(current: &mut CurrentBatch, offset: i64) -> Result<(), RecordError> {
    let CurrentBatch { slice, cursor, .. } = current;
    if let Ok(below @ 1..) = usize::try_from(offset - slice.base_offset) {
        // Without compaction gaps the wanted record is number (offset - base); the offset of the record before it
        // proves it.
        let mut jump = cursor.clone();
        if matches!(jump.walk(slice, below)?, Some((count, _, last)) if count == below && last == offset - 1) {
            *cursor = jump;
            return Ok(());
        }
    }
    loop {
        let mut probe = cursor.clone();
        match probe.next(slice)? {
            Some(record) if record.offset < offset => *cursor = probe,
            _ => return Ok(()),
        }
    }
}
