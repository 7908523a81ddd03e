//! Records of one partition that the application has, until it has acknowledged them. Kafka: `ShareInFlightBatch`, `ShareFetch`.

use fletchlog_api::NodeId;
use fletchlog_records::{RecordError, RecordSpan, TopicPartition};

use super::acknowledgements::{AcknowledgeType, Acknowledgements};
use super::offset_runs::OffsetRuns;
use super::topic_id_partition::TopicIdPartition;
use crate::consumer::PartitionRun;

/// The records of one partition from one node.
#[derive(Debug)]
pub(super) struct ShareInFlightBatch {
    pub tip: TopicIdPartition,
    /// The leader that they were acquired from: only it knows the acquisition.
    pub node: NodeId,
    /// The records, in offset order; a run for each delivery count.
    pub runs: Vec<PartitionRun>,
    /// Records that the application has.
    in_flight: OffsetRuns<()>,
    /// What is to be sent: of records, and of offsets without one.
    acknowledgements: Acknowledgements,
    /// Records whose renewal was sent.
    renewing: OffsetRuns<()>,
    /// Records whose renewal was confirmed: the application gets them again.
    renewed: OffsetRuns<()>,
}

impl ShareInFlightBatch {
    /// Records, and acknowledgements of offsets that have none.
    pub fn new(tip: TopicIdPartition, node: NodeId, runs: Vec<PartitionRun>, gaps: Acknowledgements) -> Self {
        let mut in_flight = OffsetRuns::default();
        for span in runs.iter().flat_map(|run| &run.spans) {
            in_flight.set(span.first_offset, span.last_offset, ());
        }
        for (first, last, _) in gaps.iter() {
            in_flight.remove(first, last);
        }
        Self {
            tip,
            node,
            runs,
            in_flight,
            acknowledgements: gaps,
            renewing: OffsetRuns::default(),
            renewed: OffsetRuns::default(),
        }
    }

    /// What is to be sent.
    pub fn into_acknowledgements(self) -> Acknowledgements {
        self.acknowledgements
    }

    /// Acknowledges the records from `first` to `last`. Returns their number.
    fn acknowledge(&mut self, first: i64, last: i64, kind: AcknowledgeType) -> u64 {
        let mut number = 0;
        for (first, last, ()) in self.in_flight.between(first, last) {
            self.acknowledgements.set(first, last, kind);
            number += last.abs_diff(first) + 1;
        }
        number
    }

    /// Acknowledges the records that are not acknowledged yet.
    fn acknowledge_rest(&mut self, kind: AcknowledgeType) {
        for (first, last) in self.unacknowledged() {
            self.acknowledgements.set(first, last, kind);
        }
    }

    fn unacknowledged(&self) -> Vec<(i64, i64)> {
        let mut rest = self.in_flight.clone();
        for (first, last, _) in self.acknowledgements.iter() {
            rest.remove(first, last);
        }
        rest.iter().map(|(first, last, ())| (first, last)).collect()
    }

    /// Takes the acknowledgements: their records are the application's no more, but for those that are renewed.
    fn take_acknowledged(&mut self) -> Acknowledgements {
        let taken = std::mem::take(&mut self.acknowledgements);
        for (first, last, kind) in taken.iter() {
            if kind == AcknowledgeType::Renew {
                for (first, last, ()) in self.in_flight.between(first, last) {
                    self.renewing.set(first, last, ());
                }
            }
            self.in_flight.remove(first, last);
        }
        taken
    }

    fn is_done(&self) -> bool {
        self.in_flight.is_empty()
            && self.acknowledgements.is_empty()
            && self.renewing.is_empty()
            && self.renewed.is_empty()
    }

    /// The renewed records, which are the application's again.
    fn take_renewed(&mut self) -> Result<Vec<PartitionRun>, RecordError> {
        let renewed = std::mem::take(&mut self.renewed);
        let mut runs = Vec::new();
        for run in &self.runs {
            let mut spans = Vec::new();
            for span in &run.spans {
                for (first, last, ()) in renewed.between(span.first_offset, span.last_offset) {
                    spans.extend(cut_span(span, first, last)?);
                }
            }
            runs.extend(run_of(&run.tp, spans, run.delivery_count));
        }
        for (first, last, ()) in renewed.iter() {
            self.in_flight.set(first, last, ());
        }
        Ok(runs)
    }
}

/// A run of these spans; `None` without any.
pub(super) fn run_of(tp: &TopicPartition, spans: Vec<RecordSpan>, delivery_count: Option<i16>) -> Option<PartitionRun> {
    Some(PartitionRun {
        tp: tp.clone(),
        first_offset: spans.first()?.first_offset,
        last_offset: spans.last()?.last_offset,
        count: spans.iter().map(|span| span.count).sum(),
        spans,
        delivery_count,
    })
}

/// The records of a span from offset `first` to `last`; `None` if there are none.
pub(super) fn cut_span(span: &RecordSpan, first: i64, last: i64) -> Result<Option<RecordSpan>, RecordError> {
    if first <= span.first_offset && span.last_offset <= last {
        return Ok(Some(span.clone()));
    }
    let mut cursor = span.cursor();
    let before = cursor.visit(&span.slice, span.count, |offset, _, _| offset < first)?;
    let start = cursor.position();
    let (mut from, mut to) = (None, -1);
    let count = cursor.visit(&span.slice, span.count.saturating_sub(before), |offset, _, _| {
        let is_wanted = offset <= last;
        if is_wanted {
            from.get_or_insert(offset);
            to = offset;
        }
        is_wanted
    })?;
    Ok(from.map(|first_offset| RecordSpan {
        slice: span.slice.clone(),
        start,
        end: cursor.position(),
        count,
        first_offset,
        last_offset: to,
    }))
}

/// Acknowledgements of one partition, and the node that they are for. Kafka: `NodeAcknowledgements`.
#[derive(Debug)]
pub(super) struct NodeAcknowledgements {
    pub node: NodeId,
    pub tip: TopicIdPartition,
    pub acknowledgements: Acknowledgements,
}

/// All records that the application has. Kafka: `ShareFetch`.
#[derive(Debug, Default)]
pub(super) struct ShareFetch {
    batches: Vec<ShareInFlightBatch>,
}

impl ShareFetch {
    /// The records of each partition.
    pub fn into_batches(self) -> Vec<ShareInFlightBatch> {
        self.batches
    }

    pub fn add(&mut self, batch: ShareInFlightBatch) {
        self.batches.push(batch);
    }

    /// Acknowledges the records of a partition from `first` to `last`. Returns their number.
    pub fn acknowledge(&mut self, tp: &TopicPartition, first: i64, last: i64, kind: AcknowledgeType) -> u64 {
        let of_partition = self.batches.iter_mut().filter(|batch| batch.tip.tp == *tp);
        of_partition.map(|batch| batch.acknowledge(first, last, kind)).sum()
    }

    /// Acknowledges all records that are not acknowledged yet.
    pub fn acknowledge_rest(&mut self, kind: AcknowledgeType) {
        for batch in &mut self.batches {
            batch.acknowledge_rest(kind);
        }
    }

    /// A record that is not acknowledged: its partition and offset.
    pub fn first_unacknowledged(&self) -> Option<(&TopicPartition, i64)> {
        let first = |batch: &ShareInFlightBatch| batch.unacknowledged().first().map(|(first, _)| *first);
        self.batches
            .iter()
            .find_map(|batch| first(batch).map(|offset| (&batch.tip.tp, offset)))
    }

    /// Takes all acknowledgements. Kafka: `ShareFetch#takeAcknowledgedRecords`.
    pub fn take_acknowledged(&mut self) -> Vec<NodeAcknowledgements> {
        let mut taken = Vec::new();
        for batch in &mut self.batches {
            let acknowledgements = batch.take_acknowledged();
            if !acknowledgements.is_empty() {
                taken.push(NodeAcknowledgements {
                    node: batch.node,
                    tip: batch.tip.clone(),
                    acknowledgements,
                });
            }
        }
        self.batches.retain(|batch| !batch.is_done());
        taken
    }

    /// The result of acknowledgements: renewed records are handed out again, those whose renewal failed are not.
    pub fn on_acknowledged(&mut self, tip: &TopicIdPartition, acknowledgements: &Acknowledgements, is_accepted: bool) {
        for batch in self.batches.iter_mut().filter(|batch| batch.tip == *tip) {
            for (first, last, kind) in acknowledgements.iter() {
                if kind != AcknowledgeType::Renew {
                    continue;
                }
                for (first, last, ()) in batch.renewing.between(first, last) {
                    batch.renewing.remove(first, last);
                    if is_accepted {
                        batch.renewed.set(first, last, ());
                    }
                }
            }
        }
        self.batches.retain(|batch| !batch.is_done());
    }

    /// Whether renewed records can be handed out again.
    pub fn has_renewed(&self) -> bool {
        self.batches.iter().any(|batch| !batch.renewed.is_empty())
    }

    /// The renewed records.
    ///
    /// # Errors
    /// A malformed record; it was none when it was handed out first.
    pub fn take_renewed(&mut self) -> Result<Vec<PartitionRun>, RecordError> {
        let mut runs = Vec::new();
        for batch in &mut self.batches {
            runs.extend(batch.take_renewed()?);
        }
        Ok(runs)
    }
}
