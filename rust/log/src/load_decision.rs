//! Which segments are checked when a log is opened for writing, and what that finds. Changes nothing (spec 1.12).

use fletchlog_records::planted;
use std::ops::Bound;

use crate::batch_walk::WalkEnd;
use crate::config::Durability;
use crate::file_name::CLEAN_SHUTDOWN;
use crate::fs::{Fs, open_to_read};
use crate::load_plan::{LoadPlan, PlannedSegment};
use crate::recovery::{RecoveredSegment, SegmentCheck};
use crate::segment_indexes::{Check, IndexLoader, SegmentIndexes};
use crate::{LogConfig, LogError};

/// What was decided about one segment.
pub(crate) struct Decision {
    pub base_offset: i64,
    pub planned: PlannedSegment,
    /// Present if the segment was checked completely: its indexes are replaced.
    pub recovered: Option<RecoveredSegment>,
    /// Only for the active segment after a clean stop.
    pub indexes: Option<(SegmentIndexes, bool)>,
    /// Next offset of the batch before the last one, if it was read.
    pub before_last: i64,
    pub next_offset: i64,
}

impl Decision {
    pub fn valid_bytes(&self) -> u64 {
        self.recovered
            .as_ref()
            .map_or(self.planned.size, |recovered| recovered.valid_bytes)
    }
}

/// An error for conflicting offsets. No checksum covers them, so it is unknown which one is right.
fn conflicting_offsets(planned: &PlannedSegment, position: u64, what: &str) -> LogError {
    LogError::damaged(
        &planned.files.log,
        position,
        format!("{what}; nothing was changed, restore the file"),
    )
}

/// Checks the segments of a log that is opened for writing.
pub(crate) struct SegmentChecks<'a> {
    pub fs: &'a dyn Fs,
    pub config: &'a LogConfig,
    pub clean_shutdown: bool,
    pub recovery_point: i64,
}

impl SegmentChecks<'_> {
    /// Checks every segment that must be checked; also returns the bases of those that are dropped because one before them
    /// is cut.
    ///
    /// | stop | segment | checked completely |
    /// |---|---|---|
    /// | clean | old | no |
    /// | clean | active | headers behind the last index entry; completely if they do not reach the end of the file |
    /// | unclean | ends below the recovery point | no |
    /// | unclean | others | yes |
    ///
    /// # Errors
    /// `Damaged` for a segment with offsets that do not follow each other, or do not fit its name or the next segment's.
    pub fn decide(&self, plan: &LoadPlan) -> Result<(Vec<Decision>, Vec<i64>), LogError> {
        let mut decisions = Vec::new();
        let bases: Vec<i64> = plan.segments.keys().copied().collect();
        let recover_from = bases
            .iter()
            .rev()
            .find(|base| **base <= self.recovery_point)
            .or(bases.first())
            .copied();
        let mut cut = false;
        let mut dropped = Vec::new();
        for (base, planned) in &plan.segments {
            if cut {
                dropped.push(*base);
                continue;
            }
            let active = bases.last() == Some(base);
            let mut decision = Decision {
                base_offset: *base,
                planned: planned.clone(),
                recovered: None,
                indexes: None,
                before_last: *base,
                next_offset: *base,
            };
            if !self.clean_shutdown && recover_from.is_some_and(|from| *base >= from) {
                let recovered = self.check(planned, *base)?;
                cut = recovered.valid_bytes < planned.size;
                (decision.before_last, decision.next_offset) = (recovered.before_last, recovered.next_offset);
                decision.recovered = Some(recovered);
            } else if active {
                self.check_active_segment(&mut decision)?;
            }
            // The log once ended at its recovery point, so a batch must end there: the last segment is never compacted,
            // unless a power loss removed the name of the segment after it (Kafka does not sync that name before the
            // `.swap`).
            let misses_boundary =
                decision.before_last < self.recovery_point && self.recovery_point < decision.next_offset;
            if active && misses_boundary && !planned.files.is_swap() {
                let what = format!(
                    "its last batch ends below offset {}, but a batch was on disk that ends below {} (recovery-point-offset-checkpoint)",
                    decision.next_offset, self.recovery_point
                );
                return Err(conflicting_offsets(planned, 0, &what));
            }
            if let Some((next, _)) = plan.segments.range((Bound::Excluded(base), Bound::Unbounded)).next()
                && decision.next_offset > *next
            {
                let what = format!(
                    "its records end below offset {}, but the next segment starts at {next}",
                    decision.next_offset
                );
                return Err(conflicting_offsets(planned, 0, &what));
            }
            decisions.push(decision);
        }
        Ok((decisions, dropped))
    }

    fn check(&self, planned: &PlannedSegment, base: i64) -> Result<RecoveredSegment, LogError> {
        let path = &planned.files.log;
        if self.config.durability == Durability::Fsync && !planted!("cached-tail-believed-after-failed-fsync") {
            // After a failed fsync the page cache may differ from the disk.
            self.fs.drop_cache(path).map_err(|e| LogError::io("open", path, e))?;
        }
        let file = open_to_read(self.fs, path)?;
        let check = SegmentCheck {
            file: &*file,
            path,
            base_offset: base,
            index_interval: self.config.index_interval(),
            durability: self.config.durability,
        };
        check.run(planned.size, self.recovery_point)
    }

    fn check_active_segment(&self, decision: &mut Decision) -> Result<(), LogError> {
        let planned = &decision.planned;
        let path = &planned.files.log;
        let file = open_to_read(self.fs, path)?;
        let loader = IndexLoader {
            fs: self.fs,
            files: &planned.files,
            file: &*file,
            base_offset: decision.base_offset,
            size: planned.size,
            interval: self.config.index_interval(),
            check: Check::Headers,
        };
        let loaded = loader.load().map_err(|e| LogError::io("read", path, e))?;
        match loaded.why {
            WalkEnd::EndOfFile => {
                decision.before_last = loaded.before_last;
                decision.next_offset = loaded.next_offset;
                decision.indexes = Some((loaded.indexes, loaded.rebuilt.is_some()));
            }
            WalkEnd::Disorder(reason) => return Err(conflicting_offsets(planned, loaded.end, &reason)),
            WalkEnd::TooShort(reason) if self.clean_shutdown => {
                let reason = format!(
                    "{reason}, although the log was stopped cleanly; nothing was changed. Delete {} to recover the log",
                    CLEAN_SHUTDOWN
                );
                return Err(LogError::damaged(path, loaded.end, reason));
            }
            _ => {
                let recovered = self.check(planned, decision.base_offset)?;
                (decision.before_last, decision.next_offset) = (recovered.before_last, recovered.next_offset);
                decision.recovered = Some(recovered);
            }
        }
        Ok(())
    }
}
