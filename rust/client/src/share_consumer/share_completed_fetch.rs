//! One partition's part of a ShareFetch response: the acquired records among the batches that were sent. Kafka: `ShareCompletedFetch`.

use bytes::Bytes;
use fletchlog_api::{ErrorCode, NodeId};
use fletchlog_records::{BatchIter, RecordBatch, RecordCursor, RecordError, RecordSpan, TopicPartition};

use super::acknowledgements::{AcknowledgeType, Acknowledgements};
use super::share_in_flight_batch::{ShareInFlightBatch, run_of};
use super::topic_id_partition::TopicIdPartition;
use crate::ClientError;
use crate::consumer::PartitionRun;

/// Offsets that were acquired in one go. Kafka: `ShareFetchResponseData.AcquiredRecords`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Acquired {
    pub first: i64,
    pub last: i64,
    pub delivery_count: i16,
}

/// How batches are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    /// check.crcs
    pub check_crcs: bool,
    /// fletchlog.decompression.limit.bytes
    pub decompression_limit: usize,
}

/// Acquired records with their bytes. The leader sends whole batches of its log, which have more records than were acquired.
#[derive(Debug)]
pub(super) struct ShareCompletedFetch {
    pub tip: TopicIdPartition,
    pub node: NodeId,
    pub records: Bytes,
    /// In ascending order.
    pub acquired: Vec<Acquired>,
}

/// The spans found so far, by acquired range.
struct Found {
    spans: Vec<Vec<RecordSpan>>,
    /// Acquired offsets of which nothing was found yet.
    gaps: Acknowledgements,
}

impl ShareCompletedFetch {
    /// Finds the acquired records. Offsets without a record (markers of transactions, removed by compaction) are acknowledged as gaps. A batch
    /// that cannot be read is rejected: another delivery would not help; the second part is then the error. Kafka: `rejectRecordBatch`.
    pub fn into_batch(mut self, reading: Reading) -> (ShareInFlightBatch, Option<ClientError>) {
        self.acquired.retain(|range| range.first <= range.last);
        let mut found = Found {
            spans: vec![Vec::new(); self.acquired.len()],
            gaps: Acknowledgements::default(),
        };
        for range in &self.acquired {
            found.gaps.set(range.first, range.last, AcknowledgeType::Gap);
        }
        let (mut failure, mut sent_up_to) = (None, None);
        let size = self.records.len();
        let mut batches = BatchIter::new(self.records.clone());
        for batch in batches.by_ref() {
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => {
                    // What follows it is unknown.
                    let after = sent_up_to.map_or(i64::MIN, |last: i64| last.saturating_add(1));
                    found.acknowledge_rest(after, i64::MAX, AcknowledgeType::Reject);
                    failure.get_or_insert_with(|| self.unreadable(after.max(0), &error));
                    sent_up_to = Some(i64::MAX);
                    break;
                }
            };
            let header = batch.header();
            let (base, last) = (header.base_offset, header.last_offset());
            sent_up_to = Some(last);
            if let Err(error) = found.take(&batch, &self.acquired, reading) {
                found.drop_spans(base, last);
                found.acknowledge_rest(base, last, AcknowledgeType::Reject);
                failure.get_or_insert_with(|| self.unreadable(base, &error));
            }
        }
        // The last batch was cut off, or nothing was sent: its records come again.
        if batches.position() < size || sent_up_to.is_none() {
            let after = sent_up_to.map_or(i64::MIN, |last| last.saturating_add(1));
            found.acknowledge_rest(after, i64::MAX, AcknowledgeType::Release);
        }
        let runs = runs_of(&self.tip.tp, &self.acquired, found.spans);
        (ShareInFlightBatch::new(self.tip, self.node, runs, found.gaps), failure)
    }

    fn unreadable(&self, offset: i64, error: &RecordError) -> ClientError {
        ClientError::Kafka {
            code: ErrorCode::CORRUPT_MESSAGE,
            message: format!(
                "{} at offset {offset}: {error}; the records of this batch were rejected, the next poll goes past them",
                self.tip.tp
            ),
        }
    }
}

impl Found {
    /// Takes the acquired records of a batch.
    fn take(&mut self, batch: &RecordBatch, acquired: &[Acquired], reading: Reading) -> Result<(), RecordError> {
        let header = batch.header();
        let (base, last) = (header.base_offset, header.last_offset());
        let start = acquired.partition_point(|range| range.last < base);
        let end = acquired.partition_point(|range| range.first <= last);
        if start >= end || header.is_control() {
            return Ok(());
        }
        if reading.check_crcs {
            batch.ensure_valid()?;
        }
        let slice = batch.records(reading.decompression_limit)?;
        let mut cursor = RecordCursor::new();
        let overlapping = acquired.iter().zip(&mut self.spans).take(end).skip(start);
        for (range, spans) in overlapping {
            if range.first > base {
                while cursor.visit(&slice, usize::MAX, |offset, _, _| offset < range.first)? > 0 {}
            }
            loop {
                let from = cursor.position();
                let (mut first, mut end, mut run) = (None, -1, 0usize);
                // A span without holes: the offsets that it covers are those of its records.
                let count = cursor.visit(&slice, usize::MAX, |offset, _, _| {
                    let follows = first.is_none() || offset == end + 1;
                    let is_wanted = offset <= range.last && follows;
                    if is_wanted {
                        first.get_or_insert(offset);
                        end = offset;
                        run += 1;
                    }
                    is_wanted
                })?;
                let Some(first_offset) = first else { break };
                self.gaps.remove(first_offset, end);
                spans.push(RecordSpan {
                    slice: slice.clone(),
                    start: from,
                    end: cursor.position(),
                    count,
                    first_offset,
                    last_offset: end,
                });
            }
        }
        Ok(())
    }

    /// What was found of a batch that cannot be read to its end.
    fn drop_spans(&mut self, base: i64, last: i64) {
        for spans in &mut self.spans {
            spans.retain(|span| {
                let is_of_batch = (base..=last).contains(&span.first_offset);
                if is_of_batch {
                    self.gaps.set(span.first_offset, span.last_offset, AcknowledgeType::Gap);
                }
                !is_of_batch
            });
        }
    }

    /// Acknowledges acquired offsets of which nothing was found.
    fn acknowledge_rest(&mut self, first: i64, last: i64, kind: AcknowledgeType) {
        let gaps: Vec<(i64, i64)> = self.gaps.iter().map(|(first, last, _)| (first, last)).collect();
        for (from, to) in gaps {
            self.gaps.set(from.max(first), to.min(last), kind);
        }
    }
}

/// A run for each stretch of acquired ranges with the same delivery count.
fn runs_of(tp: &TopicPartition, acquired: &[Acquired], found: Vec<Vec<RecordSpan>>) -> Vec<PartitionRun> {
    let mut runs = Vec::new();
    let mut open: (Option<i16>, Vec<RecordSpan>) = (None, Vec::new());
    for (range, spans) in acquired.iter().zip(found) {
        if open.0 != Some(range.delivery_count) {
            runs.extend(run_of(tp, std::mem::take(&mut open.1), open.0));
            open.0 = Some(range.delivery_count);
        }
        open.1.extend(spans);
    }
    runs.extend(run_of(tp, open.1, open.0));
    runs
}

#[cfg(test)]
mod tests;
