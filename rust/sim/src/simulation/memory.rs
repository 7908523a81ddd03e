//! Which batches of idempotent producers the broker must remember, and which it may forget.
//!
//! It keeps the last five batches of a producer; while a batch is sent again, a client may send more than five (spec 3.4, 9.6). After a
//! restart it has the last batch before the newest snapshot and those after it: a snapshot has one batch of each producer (Kafka:
//! `ProducerStateManager#writeSnapshot`). Nor does it remember batches that were below the log start when it started (spec 3.7). Both are so
//! after the end of a log was cut, too. A batch that is in the log but forgotten is refused as out of order, and a client that sends it
//! under a new epoch writes it twice. A client whose batch fails because it is too large for any segment also continues under a new epoch,
//! and sends again its earlier batches without a response: to the broker they are different batches (spec 9.6; Kafka:
//! `TransactionManager#handleFailedBatch`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fletchlog_api::{ErrorCode, ProduceRequest, ProduceResponse};
use fletchlog_protocol::messages::produce_request::PartitionProduceData;
use fletchlog_protocol::messages::produce_response::PartitionProduceResponse;
use fletchlog_records::batch_header::RECORD_BATCH_OVERHEAD;
use fletchlog_records::{BatchIter, TopicPartition};

/// Number of batches of a producer that the broker remembers.
const WINDOW: usize = 5;

/// A batch, identified by its partition, producer and sequence number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Batch {
    tp: TopicPartition,
    producer: (i64, i16),
    sequence: i32,
    /// Tells apart batches with one sequence number: a repeat has the same bytes, but after a refusal another batch may get the number.
    crc: u32,
    /// The records, which stay the same under a new epoch.
    records: bytes::Bytes,
}

/// A batch in the log.
#[derive(Debug, Clone)]
struct Appended {
    sequence: i32,
    crc: u32,
    records: bytes::Bytes,
    /// `None`: the disk failed, or nobody saw the response, so it may or may not be in the log.
    offset: Option<i64>,
    /// Number of restarts and cuts before it, and the log start at that time.
    restarts: u32,
    start: i64,
}

/// The producer is known but not the batch before it, or the producer is unknown.
const REFUSED: [ErrorCode; 2] = [ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode::UNKNOWN_PRODUCER_ID];

/// The batch may be in the log in spite of the error, as it is with one that has an offset.
const APPENDED_IN_SPITE: [ErrorCode; 2] = [
    ErrorCode::KAFKA_STORAGE_ERROR,
    ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND,
];

/// A partition's producer, with its epoch.
type Producer = (TopicPartition, (i64, i16));

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Per partition and producer: the batches in the log, oldest first.
    appended: BTreeMap<Producer, Vec<Appended>>,
    restarts: u32,
    /// How often a log was cut: what it keeps of producers is read again, as at a start.
    cuts: BTreeMap<TopicPartition, u32>,
    /// The log starts now, and when the broker started.
    starts: BTreeMap<TopicPartition, i64>,
    starts_at_restart: BTreeMap<TopicPartition, i64>,
    /// Producers with a batch that is too large for any segment.
    too_large: BTreeSet<Producer>,
    /// Batches that the broker had forgotten, as it may.
    pub forgotten: usize,
    /// Batches that were written again under a new epoch because another one was too large.
    pub rewritten: usize,
    /// Batches that it should have remembered.
    pub wrongly_forgotten: Vec<String>,
}

/// The batches of a request's partitions that have sequence numbers.
pub(super) fn batches_of(request: &ProduceRequest) -> Vec<Batch> {
    let of = |(topic, partition): (&Arc<str>, &PartitionProduceData)| {
        let batch = BatchIter::new(partition.records.clone()?).next()?.ok()?;
        let header = batch.header();
        (header.base_sequence >= 0).then(|| Batch {
            tp: TopicPartition::new(Arc::clone(topic), partition.index),
            producer: (header.producer_id, header.producer_epoch),
            sequence: header.base_sequence,
            crc: header.crc,
            records: batch.bytes().slice(RECORD_BATCH_OVERHEAD..),
        })
    };
    request.partitions().filter_map(of).collect()
}

impl Memory {
    pub fn restarted(&mut self) {
        self.restarts += 1;
        self.starts_at_restart = self.starts.clone();
    }

    /// Records below this offset are deleted.
    pub fn starts_at(&mut self, tp: &TopicPartition, offset: i64) {
        self.starts.insert(tp.clone(), offset);
    }

    /// The log was cut here: batches beyond are forgotten.
    pub fn cut(&mut self, tp: &TopicPartition, end: i64) {
        let of_log = self.appended.iter_mut().filter(|((of, _), _)| of == tp);
        of_log.for_each(|(_, known)| known.retain(|a| a.offset.is_none_or(|offset| offset < end)));
        *self.cuts.entry(tp.clone()).or_default() += 1;
        let start = self.starts.get(tp).copied().unwrap_or(0);
        self.starts_at_restart.insert(tp.clone(), start);
    }

    /// The broker has responded to a request with these batches. Nobody has seen a response to `pending`, which may be in the log.
    pub fn answered(&mut self, sent: &[Batch], response: &ProduceResponse, pending: &[&Batch]) {
        for batch in sent {
            let is_of = |topic: &Arc<str>, index: i32| *topic == batch.tp.topic && index == batch.tp.partition;
            let mut answers = response.partitions();
            if let Some((_, answer)) = answers.find(|(topic, answer)| is_of(topic, answer.index)) {
                self.answer(batch, answer, pending);
            }
        }
    }

    /// These batches were sent, and their connection was lost before their responses.
    pub fn unanswered(&mut self, lost: Vec<Batch>) {
        for batch in lost {
            let new = self.appended_now(&batch, None);
            let known = self.appended.entry((batch.tp, batch.producer)).or_default();
            if !known.iter().any(|a| (a.sequence, a.crc) == (batch.sequence, batch.crc)) {
                known.push(new);
            }
        }
    }

    /// How often the broker has read what it remembers of this log.
    fn reads_of(&self, tp: &TopicPartition) -> u32 {
        self.restarts + self.cuts.get(tp).copied().unwrap_or(0)
    }

    fn appended_now(&self, batch: &Batch, offset: Option<i64>) -> Appended {
        Appended {
            sequence: batch.sequence,
            crc: batch.crc,
            records: batch.records.clone(),
            offset,
            restarts: self.reads_of(&batch.tp),
            start: self.starts.get(&batch.tp).copied().unwrap_or(0),
        }
    }

    fn answer(&mut self, batch: &Batch, answer: &PartitionProduceResponse, pending: &[&Batch]) {
        let start = self.starts_at_restart.get(&batch.tp).copied().unwrap_or(0);
        let (unknown, new) = (
            self.appended_now(batch, None),
            self.appended_now(batch, Some(answer.base_offset)),
        );
        if answer.error_code == ErrorCode::RECORD_LIST_TOO_LARGE {
            self.too_large.insert((batch.tp.clone(), batch.producer));
        }
        self.rewritten += usize::from(answer.error_code == ErrorCode::NONE && self.is_rewritten(batch));
        let reads = self.reads_of(&batch.tp);
        let before_restart = |a: &Appended| a.restarts < reads;
        let deleted = |a: &Appended| before_restart(a) && a.offset.map_or(a.start < start, |offset| offset < start);
        let known = self.appended.entry((batch.tp.clone(), batch.producer)).or_default();
        let at = known
            .iter()
            .rposition(|a| (a.sequence, a.crc) == (batch.sequence, batch.crc));
        let was = at.map(|at| known[at].clone());
        let is_later = |p: &&&Batch| (&p.tp, p.producer) == (&batch.tp, batch.producer) && p.sequence > batch.sequence;
        let pending = pending.iter().filter(is_later).count();
        let later = at.map_or(0, |at| known.len() - 1 - at + pending);
        let refused = REFUSED.contains(&answer.error_code);
        if answer.error_code == ErrorCode::NONE {
            match at {
                Some(at) if known[at].offset.is_none() => known[at].offset = Some(answer.base_offset),
                Some(at) if known[at].offset == Some(answer.base_offset) => return,
                _ => known.push(new),
            }
        } else if at.is_none() && (answer.base_offset >= 0 || APPENDED_IN_SPITE.contains(&answer.error_code)) {
            known.push(unknown);
        }
        let wrong = match was {
            _ if !refused && answer.error_code != ErrorCode::NONE => return,
            // The next batch of a producer whose batches are all deleted.
            None if refused && known.last().is_some_and(deleted) => None,
            None => return,
            Some(was) if deleted(&was) => None,
            Some(was) if refused && (later >= WINDOW || (before_restart(&was) && later > 0)) => None,
            // Where it was in the log, and whether that is deleted, nobody knows.
            Some(was) if was.offset.is_none() && refused && before_restart(&was) => None,
            Some(was) if was.offset.is_none() => return,
            Some(_) if !refused => Some("was appended once more"),
            Some(_) => Some("was refused as out of order"),
        };
        match wrong {
            None => self.forgotten += 1,
            Some(wrong) => self.wrongly_forgotten.push(format!(
                "{batch:?} is in the log and {wrong}; its producer's batches: {known:?}"
            )),
        }
    }

    /// Whether the same records are in the log under an earlier epoch, which ended because a batch was too large.
    fn is_rewritten(&self, batch: &Batch) -> bool {
        let (id, epoch) = batch.producer;
        let earlier = (batch.tp.clone(), (id, i16::MIN))..(batch.tp.clone(), (id, epoch));
        self.too_large.range(earlier).any(|producer| {
            let known = self.appended.get(producer);
            known.is_some_and(|known| known.iter().any(|a| a.records == batch.records))
        })
    }
}
