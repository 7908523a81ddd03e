//! Checking a whole partition directory: every batch, every index entry, every side file. Changes nothing.

mod checkpoints;
mod index_checks;
mod report;

use std::path::Path;

use fletchlog_records::control::EndTxnMarker;

pub use checkpoints::OffsetCheckpoints;
use index_checks::{OffsetCheck, TimeCheck};
pub use report::{Cut, PartitionReport, Problem, ProducerReport, SegmentReport};

use crate::batch_walk::BatchMeta;
use crate::config::Durability;
use crate::dump::inspect_segment;
use crate::file_name::{LEADER_EPOCH_CHECKPOINT, TXN_INDEX};
use crate::fs::{Fs, open_to_read};
use crate::leader_epoch::LeaderEpochCache;
use crate::load_plan::{LoadPlan, PlannedSegment};
use crate::offset_index::OffsetIndex;
use crate::producer_state::{PendingAppend, ProducerStateManager};
use crate::recovery::SegmentCheck;
use crate::time_index::TimeIndex;
use crate::txn_index::{AbortedTxn, TransactionIndex};
use crate::{AppendOrigin, LogConfig, LogError, offset_index, producer_snapshot, time_index};

/// The default of producer.id.expiration.ms (spec 3.7).
const PRODUCER_ID_EXPIRATION_MS: i64 = 86_400_000;

/// Checks everything in a partition directory. The report lists what is wrong. Pass the same `checkpoints` for all partitions of a log
/// directory.
///
/// # Errors
/// The directory or a file cannot be read.
pub fn verify_partition(
    fs: &dyn Fs,
    dir: &Path,
    now_ms: i64,
    checkpoints: &mut OffsetCheckpoints,
) -> Result<PartitionReport, LogError> {
    let plan = match LoadPlan::read(fs, dir) {
        Ok(plan) => plan,
        // A `.log` file that no log can have: a broker refuses the whole directory.
        Err(LogError::Damaged { path, position, reason }) => {
            return Ok(PartitionReport {
                damaged: vec![Problem { path, position, reason }],
                ..PartitionReport::default()
            });
        }
        Err(e) => return Err(e),
    };
    let mut verifier = Verifier {
        fs,
        epochs: LeaderEpochCache::default(),
        report: PartitionReport::default(),
        producers: ProducerStateManager::default(),
        expected: None,
        without_epoch: 0,
        before_epochs: 0,
        cut: false,
        index_interval: LogConfig::default().index_interval(),
    };
    let epochs = LeaderEpochCache::read(fs, dir);
    verifier.epochs = verifier.unless_damaged(epochs)?.unwrap_or_default();
    for (base, planned) in &plan.segments {
        verifier.segment(*base, planned)?;
    }
    for path in plan.snapshots.values() {
        if let Err(reason) = producer_snapshot::read(fs, path) {
            verifier.index_problem(path, 0, reason);
        }
    }
    verifier.checkpoints(dir, checkpoints)?;
    let Verifier {
        mut report, producers, ..
    } = verifier;
    report.producers = producers
        .entries()
        .map(|entry| ProducerReport {
            producer_id: entry.producer_id,
            epoch: entry.producer_epoch,
            last_sequence: entry.last_seq(),
            last_offset: entry.last_batch().map_or(-1, |batch| batch.last_offset),
            last_timestamp: entry.last_timestamp,
            expired: entry.current_txn_first_offset.is_none()
                && now_ms.saturating_sub(entry.last_timestamp) >= PRODUCER_ID_EXPIRATION_MS,
        })
        .collect();
    report.producers.sort_by_key(|producer| producer.producer_id);
    report.open_transactions = producers.ongoing().map(|(first, producer)| (producer, first)).collect();
    Ok(report)
}

struct Verifier<'a> {
    fs: &'a dyn Fs,
    epochs: LeaderEpochCache,
    report: PartitionReport,
    producers: ProducerStateManager,
    /// Offset that the next batch should have.
    expected: Option<i64>,
    /// Next offset after the last batch that was written without a leader epoch.
    without_epoch: i64,
    /// Next offset after the last batch before the first leader epoch.
    before_epochs: i64,
    /// An earlier segment would be cut, so later ones would be dropped.
    cut: bool,
    /// index.interval.bytes: where recovery would make index entries, and notice that offsets go backwards.
    index_interval: u64,
}

impl Verifier<'_> {
    /// The content of a side file; `None`, with a problem added to the report, if it is damaged.
    fn unless_damaged<T>(&mut self, read: Result<T, LogError>) -> Result<Option<T>, LogError> {
        match read {
            Ok(held) => Ok(Some(held)),
            Err(LogError::Damaged { path, position, reason }) => {
                self.index_problem(&path, position, reason);
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    fn index_problem(&mut self, path: &Path, position: u64, reason: impl Into<String>) {
        self.report.index_problems.push(Problem {
            path: path.to_path_buf(),
            position,
            reason: reason.into(),
        });
    }

    fn damage(&mut self, path: &Path, position: u64, reason: impl Into<String>) {
        self.report.damaged.push(Problem {
            path: path.to_path_buf(),
            position,
            reason: reason.into(),
        });
    }

    /// No checksum covers a batch's leader epoch, but the checkpoint says which epoch wrote an offset.
    fn wrong_epoch(&self, batch: &BatchMeta) -> Option<String> {
        let found = batch.header.partition_leader_epoch;
        let expected = self.epochs.epoch_for_offset(batch.header.base_offset)?;
        (batch.header.magic == 2 && found != expected).then(|| {
            format!(
                "leader epoch {found}, but by {LEADER_EPOCH_CHECKPOINT} epoch {expected} wrote offset {}",
                batch.header.base_offset
            )
        })
    }

    /// What recovery would cut from a segment. Recovery itself decides that.
    fn cut(&mut self, base: i64, planned: &PlannedSegment) -> Result<(), LogError> {
        let path = &planned.files.log;
        let (from, reason) = if self.cut {
            (0, "it follows a segment that is cut".to_string())
        } else {
            let file = open_to_read(self.fs, path)?;
            let check = SegmentCheck {
                file: &*file,
                path,
                base_offset: base,
                index_interval: self.index_interval,
                durability: Durability::PageCache,
            };
            match check.run(planned.size, 0) {
                Ok(found) if found.valid_bytes == planned.size => return Ok(()),
                Ok(found) => (found.valid_bytes, found.why.reason().to_string()),
                // Recovery refuses to open such a log and cuts nothing.
                Err(LogError::Damaged { path, position, reason }) => {
                    if !self
                        .report
                        .damaged
                        .iter()
                        .any(|p| p.path == path && p.position == position)
                    {
                        self.damage(&path, position, reason);
                    }
                    return Ok(());
                }
                Err(e) => return Err(e),
            }
        };
        self.report.would_cut.push(Cut {
            path: path.clone(),
            from,
            size: planned.size,
            reason,
        });
        self.cut = true;
        Ok(())
    }

    fn side_file(&mut self, path: &Path, present: bool) -> Result<Vec<u8>, LogError> {
        if !present {
            self.index_problem(path, 0, "missing; it is rebuilt when the log is opened");
            return Ok(Vec::new());
        }
        self.fs.read(path).map_err(|e| LogError::io("read", path, e))
    }

    /// Only the zeros of a preallocated index may follow the entries that can be used.
    fn unused(&mut self, path: &Path, bytes: &[u8], used: usize) {
        if bytes.iter().skip(used).any(|byte| *byte != 0) {
            self.index_problem(path, used as u64, "entries from here on do not grow; they are not used");
        }
    }

    fn offset_index<'p>(&mut self, base: i64, planned: &'p PlannedSegment) -> Result<OffsetCheck<'p>, LogError> {
        let path = &planned.files.offset_index;
        let bytes = self.side_file(path, planned.has_offset_index)?;
        let index = OffsetIndex::parse(base, &bytes);
        self.unused(path, &bytes, index.len() * offset_index::ENTRY_SIZE);
        Ok(OffsetCheck { path, index, next: 0 })
    }

    fn time_index<'p>(&mut self, base: i64, planned: &'p PlannedSegment) -> Result<TimeCheck<'p>, LogError> {
        let path = &planned.files.time_index;
        let bytes = self.side_file(path, planned.has_time_index)?;
        let index = TimeIndex::parse(base, &bytes);
        self.unused(path, &bytes, index.len() * time_index::ENTRY_SIZE);
        Ok(TimeCheck { path, index, next: 0 })
    }

    fn txn_index(&mut self, base: i64, planned: &PlannedSegment) -> Result<TransactionIndex, LogError> {
        let path = &planned.files.txn_index;
        if !planned.has_txn_index {
            return Ok(TransactionIndex::default());
        }
        let parsed = TransactionIndex::parse(base, &self.side_file(path, true)?);
        Ok(parsed.unwrap_or_else(|reason| {
            self.index_problem(path, 0, format!("{TXN_INDEX}: {reason}"));
            TransactionIndex::default()
        }))
    }

    fn segment(&mut self, base: i64, planned: &PlannedSegment) -> Result<(), LogError> {
        let log = planned.files.log.as_path();
        let mut offsets = self.offset_index(base, planned)?;
        let mut times = self.time_index(base, planned)?;
        let listed = self.txn_index(base, planned)?;
        if let Some(expected) = self.expected.take_if(|expected| *expected < base) {
            self.report.holes.push((expected, base));
        }
        let mut report = SegmentReport {
            path: log.to_path_buf(),
            base_offset: base,
            size: planned.size,
            batches: 0,
            records: 0,
            next_offset: base,
            max_timestamp: -1,
        };
        let mut aborted = Vec::new();
        let mut batches = inspect_segment(self.fs, log)?;
        while let Some((batch, description)) = batches.next_batch()? {
            self.offset_and_epoch(log, base, &batch, description.error.as_deref());
            let is_newest = batch.header.max_timestamp > report.max_timestamp;
            report.batches += 1;
            report.records += u64::try_from(description.records_count).unwrap_or(0);
            report.next_offset = batch.header.next_offset();
            report.max_timestamp = report.max_timestamp.max(batch.header.max_timestamp);
            let problems = &mut self.report.index_problems;
            offsets.on_batch(&batch, problems);
            times.on_batch(batch.last_offset(), report.max_timestamp, is_newest, problems);
            if description.crc_valid {
                aborted.extend(self.producer_state(&batch, description.marker));
            }
        }
        if let Some((position, reason)) = batches.tail() {
            self.damage(log, position, reason);
        }
        offsets.rest(&mut self.report.index_problems);
        times.rest(&mut self.report.index_problems);
        // Without the start of the log, or with gaps, the markers alone do not say what was aborted.
        let whole = self.report.holes.is_empty() && self.report.segments.first().map_or(base, |s| s.base_offset) == 0;
        if whole && listed.entries() != aborted {
            let reason = format!("{TXN_INDEX}: not what the markers in the log say");
            self.index_problem(&planned.files.txn_index, 0, reason);
        }
        self.cut(base, planned)?;
        self.report.batches += report.batches;
        self.report.records += report.records;
        self.report.segments.push(report);
        Ok(())
    }

    /// Checks the batch against the segment, its leader epoch against the checkpoint, and its offset against the batch before
    /// it. `error`: why its records cannot be read.
    fn offset_and_epoch(&mut self, log: &Path, base: i64, batch: &BatchMeta, error: Option<&str>) {
        let header = &batch.header;
        let offset = header.base_offset;
        let mut bad = error.map(str::to_string);
        if offset < base || batch.last_offset().saturating_sub(base) > i64::from(i32::MAX) {
            bad = Some(format!(
                "offset {offset} does not belong into a segment that starts at {base}"
            ));
        } else if let Some(reason) = self.wrong_epoch(batch) {
            bad = bad.or(Some(reason));
        } else if let Some(expected) = self.expected {
            if offset < expected {
                self.damage(log, batch.position, format!("offset {offset} follows {}", expected - 1));
            } else if offset > expected {
                self.report.holes.push((expected, offset));
            }
        }
        if let Some(reason) = bad {
            self.damage(log, batch.position, reason);
        }
        self.expected = Some(header.next_offset());
        if header.partition_leader_epoch < 0 {
            self.without_epoch = header.next_offset();
        }
        if self.epochs.start_offset().is_some_and(|first| offset < first) {
            self.before_epochs = header.next_offset();
        }
    }

    /// Applies a valid batch to the producer state. Returns what it aborts.
    fn producer_state(&mut self, batch: &BatchMeta, marker: Option<EndTxnMarker>) -> Vec<AbortedTxn> {
        let mut pending = PendingAppend::default();
        let origin = AppendOrigin::Replication;
        match self.producers.check(&mut pending, &batch.header, marker, origin, false) {
            Ok(()) => self.producers.commit(pending),
            Err(_) => Vec::new(),
        }
    }
}
