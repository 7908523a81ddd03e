//! The way of many rows into batches: consecutive rows without headers that go to one partition are appended to its last batch until one
//! does not fit. That row takes the way of [`RecordAccumulator::append`], which closes the batch and opens the next.

use fletchlog_records::{BatchBuilder, Header};

use super::{RecordAccumulator, Row};
use crate::producer::RecordColumns;
use crate::producer::config::ProducerConfig;
use crate::producer::memory_records_builder::MemoryRecordsBuilder;
use crate::producer::metadata::{PartitionId, ProducerMetadata, TopicId, TopicInfo};
use crate::producer::partitioner::{Placement, Target, is_left};
use crate::producer::producer_batch::{BatchId, ProducerBatch};

/// So many rows of a run are appended under the lock; only for more rows it is worth to release it and take it again.
const LONG_RUN: i32 = 64;
/// Fewer rows are not worth it.
const WORTH_LENDING: usize = 64;

/// The rows before `end` of columns for one topic.
pub(crate) struct Rows<'a, C> {
    pub columns: &'a C,
    pub topic: TopicId,
    pub end: usize,
    /// The timestamp of rows that have none.
    pub wall: i64,
    /// Most bytes of a key and a value together that need no check of the record's size.
    pub most: usize,
}

impl<'a, C: RecordColumns> Rows<'a, C> {
    pub(crate) fn row<'b>(&self, at: usize, headers: &'b [Header<'b>]) -> Row<'b>
    where
        'a: 'b,
    {
        Row {
            partition: self.columns.partition(at),
            timestamp: self.columns.timestamp(at).unwrap_or(self.wall),
            key: self.columns.key(at),
            value: self.columns.value(at),
            headers,
        }
    }
}

/// Rows that go to the same partition, and what ends them.
#[derive(Debug)]
struct Run {
    topic: TopicId,
    placement: Placement,
    batch_size: usize,
    target: Target,
    partition: i32,
    id: PartitionId,
    /// KIP-794: the bytes that it has counted. It may leave the partition after any row: the run ends at that row.
    counted: Option<usize>,
    /// Records appended so far, and the bytes by which the estimated size grew.
    added: i32,
    grown: usize,
}

impl Run {
    /// Appends rows from `row` on, which goes here, until one does not fit, its size must be checked, or it is one of more than `most`. If the
    /// next row could be appended, as far as that is known, returns where it goes.
    #[inline]
    fn fill<C: RecordColumns>(
        &mut self,
        records: &mut MemoryRecordsBuilder,
        rows: &Rows<'_, C>,
        row: usize,
        most: i32,
    ) -> Option<Target> {
        let columns = rows.columns;
        let (mut at, mut key) = (row, columns.key(row));
        loop {
            let value = columns.value(at);
            let lengths = key.map_or(0, <[u8]>::len).saturating_add(value.map_or(0, <[u8]>::len));
            if lengths > rows.most {
                return None;
            }
            self.grown += records.append(columns.timestamp(at).unwrap_or(rows.wall), key, value, &[])?;
            self.added += 1;
            at += 1;
            let leaves = |counted: usize| {
                is_left(counted.saturating_add(self.grown), self.batch_size, || {
                    records.is_full()
                })
            };
            if at == rows.end || self.counted.is_some_and(leaves) {
                return None;
            }
            key = columns.key(at);
            let target = self.placement.target(columns.partition(at), key);
            if target != self.target || self.added == most {
                return Some(target);
            }
        }
    }
}

/// The records of a batch, lent to a thread that appends to them, or compresses them, without the lock.
#[derive(Debug)]
pub(crate) struct Loan {
    id: BatchId,
    serial: u64,
    pub(super) records: MemoryRecordsBuilder,
    /// The memory of the uncompressed records, for reuse.
    spare: Option<BatchBuilder>,
}

impl Loan {
    pub(crate) fn pack(&mut self, config: &ProducerConfig) {
        self.spare = self.records.pack(config);
    }
}

/// A run that is appended to a lent batch, without the lock.
#[derive(Debug)]
pub(crate) struct LentRun {
    run: Run,
    loan: Loan,
}

impl LentRun {
    pub(crate) fn fill<C: RecordColumns>(&mut self, rows: &Rows<'_, C>, row: usize) {
        self.run.fill(&mut self.loan.records, rows, row, i32::MAX);
    }
}

impl RecordAccumulator {
    /// Appends runs from `row` on, and moves `row` behind them. For a long run it lends the batch instead.
    pub(crate) fn append_run<C: RecordColumns>(
        &mut self,
        metadata: &ProducerMetadata,
        rows: &Rows<'_, C>,
        row: &mut usize,
    ) -> Option<LentRun> {
        let info = metadata.topic(rows.topic);
        let placement = self.placement(info);
        let mut run = Run {
            topic: rows.topic,
            placement,
            batch_size: self.config.batch_size.max(1),
            target: placement.target(rows.columns.partition(*row), rows.columns.key(*row)),
            partition: 0,
            id: 0,
            counted: None,
            added: 0,
            grown: 0,
        };
        let mut is_long = false;
        loop {
            (run.partition, run.counted) = match run.target {
                Target::Partition(partition) if (0..placement.partitions).contains(&partition) => (partition, None),
                Target::Sticky => self.sticky(rows.topic, info),
                Target::Partition(_) | Target::RoundRobin => return None,
            };
            (run.id, run.added, run.grown) = (info.id(run.partition), 0, 0);
            let id = self.last_batch_id(run.id)?;
            let batch = &mut self.batches[id];
            if is_long && rows.end - *row >= WORTH_LENDING && !batch.is_full() {
                let loan = self.lend(id)?;
                return Some(LentRun { run, loan });
            }
            let next = run.fill(batch.open_records()?, rows, *row, LONG_RUN);
            batch.add_run(run.added);
            *row += self.note_run(metadata, &run);
            let next = next?;
            is_long = next == run.target;
            run.target = next;
        }
    }

    /// The partition that gets null keys at the moment, and the bytes that KIP-794 has counted there.
    fn sticky(&mut self, topic: TopicId, info: &TopicInfo) -> (i32, Option<usize>) {
        let partition = self.partitioners.sticky(topic, info);
        let built_in = self.config.release.built_in_partitioner;
        (partition, built_in.then(|| self.partitioners.of(topic).0.produced()))
    }

    /// Ends a run on a lent batch. Returns the number of rows, 0 if the batch was decided meanwhile: then they have to be appended again.
    pub(crate) fn end_run(&mut self, metadata: &ProducerMetadata, lent: LentRun) -> usize {
        let Some(batch) = self.give_back(lent.loan) else {
            return 0;
        };
        batch.add_run(lent.run.added);
        self.note_run(metadata, &lent.run)
    }

    /// Reports the appended bytes to the partitioner, unless it has left the partition since. Returns the number of rows.
    fn note_run(&mut self, metadata: &ProducerMetadata, run: &Run) -> usize {
        if run.counted.is_some()
            && run.added > 0
            && self.partitioners.sticky(run.topic, metadata.topic(run.topic)) == run.partition
        {
            self.note_appended(run.topic, run.id, run.grown);
        }
        usize::try_from(run.added).unwrap_or(0)
    }

    /// Lends the records of a batch, if they are there.
    pub(super) fn lend(&mut self, id: BatchId) -> Option<Loan> {
        let batch = &mut self.batches[id];
        Some(Loan {
            id,
            serial: batch.serial,
            records: batch.records.lend()?,
            spare: None,
        })
    }

    /// Ends a loan. Returns the batch, or `None` if it was decided meanwhile.
    pub(crate) fn give_back(&mut self, loan: Loan) -> Option<&mut ProducerBatch> {
        let batch = self.batches.get_mut(loan.id)?;
        if batch.serial != loan.serial || !batch.records.take_back(loan.records) {
            return None;
        }
        let write_limit = batch.records.write_limit;
        self.keep_spare(write_limit, loan.spare);
        Some(&mut self.batches[loan.id])
    }
}
