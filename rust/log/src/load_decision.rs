//! Which segments are checked when a log is opened for writing, and what that finds. Changes nothing (spec 1.12).

use crate::LogError;
use crate::batch_walk::WalkEnd;
use crate::config::Durability;
use crate::file_name::CLEAN_SHUTDOWN;
use crate::load_plan::{LoadPlan, PlannedSegment};
use crate::loader::Loader;
use crate::recovery::{RecoveredSegment, check_segment};
use crate::segment_indexes::{Check, SegmentIndexes, load};

/// What the look at one segment decided.
pub(crate) struct Decision {
    pub base_offset: i64,
    pub planned: PlannedSegment,
    /// Present if the segment was checked completely: its indexes are replaced.
    pub recovered: Option<RecoveredSegment>,
    /// Of the active segment after a clean stop.
    pub indexes: Option<(SegmentIndexes, bool)>,
    pub next_offset: i64,
}

impl Decision {
    pub fn valid_bytes(&self) -> u64 {
        self.recovered
            .as_ref()
            .map_or(self.planned.size, |recovered| recovered.valid_bytes)
    }
}

/// Row C8 of docs/reliability.md. Appending behind it would give offsets that its name, and so every lookup, denies.
fn foreign(planned: &PlannedSegment, base: i64, next_offset: i64) -> LogError {
    LogError::Damaged {
        path: planned.files.log.clone(),
        position: 0,
        reason: format!(
            "its records end below offset {next_offset}, which does not belong into a segment that starts at {base}; nothing was changed, restore the file"
        ),
    }
}

impl Loader<'_> {
    /// Looks at every segment that must be looked at; also returns the bases of those that go because one before them
    /// was cut.
    ///
    /// | stop | segment | checked completely |
    /// |---|---|---|
    /// | clean | old | no |
    /// | clean | active | headers behind the last index entry; completely if they do not reach the end of the file |
    /// | unclean | ends below the recovery point | no |
    /// | unclean | others | yes |
    ///
    /// # Errors
    /// `Damaged` for a segment that ends below the offset in its name.
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
                next_offset: *base,
            };
            if !self.clean_shutdown && recover_from.is_some_and(|from| *base >= from) {
                let recovered = self.check(planned, *base)?;
                cut = recovered.valid_bytes < planned.size;
                decision.next_offset = recovered.next_offset;
                decision.recovered = Some(recovered);
            } else if active {
                self.look_at_active(&mut decision)?;
            }
            if decision.next_offset < *base {
                return Err(foreign(planned, *base, decision.next_offset));
            }
            decisions.push(decision);
        }
        Ok((decisions, dropped))
    }

    fn check(&self, planned: &PlannedSegment, base: i64) -> Result<RecoveredSegment, LogError> {
        let path = &planned.files.log;
        if self.config.durability == Durability::Fsync {
            // What a failed fsync has left in memory alone must not be taken for what is on disk.
            self.fs.drop_cache(path).map_err(|e| LogError::io("open", path, e))?;
        }
        let file = self
            .fs
            .open(path, false, false)
            .map_err(|e| LogError::io("open", path, e))?;
        let durable_end = (self.config.durability == Durability::Fsync).then_some(self.recovery_point);
        check_segment(&*file, path, base, planned.size, self.interval(), durable_end)
    }

    fn look_at_active(&self, decision: &mut Decision) -> Result<(), LogError> {
        let planned = &decision.planned;
        let path = &planned.files.log;
        let io = |e| LogError::io("read", path, e);
        let file = self
            .fs
            .open(path, false, false)
            .map_err(|e| LogError::io("open", path, e))?;
        let loaded = load(
            &*self.fs,
            &planned.files,
            &*file,
            decision.base_offset,
            planned.size,
            self.interval(),
            Check::Headers,
        )
        .map_err(io)?;
        match loaded.why {
            WalkEnd::EndOfFile => {
                decision.next_offset = loaded
                    .last
                    .map_or(decision.base_offset, |last| last.header.next_offset());
                decision.indexes = Some((loaded.indexes, loaded.rebuilt.is_some()));
            }
            WalkEnd::TooShort(reason) if self.clean_shutdown => {
                let reason = format!(
                    "{reason}, although the log was stopped cleanly; nothing was changed. Delete {} to recover the log",
                    CLEAN_SHUTDOWN
                );
                return Err(LogError::Damaged {
                    path: path.clone(),
                    position: loaded.end,
                    reason,
                });
            }
            _ => {
                let recovered = self.check(planned, decision.base_offset)?;
                decision.next_offset = recovered.next_offset;
                decision.recovered = Some(recovered);
            }
        }
        Ok(())
    }
}
