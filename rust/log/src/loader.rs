//! Opening a log for writing (spec 1.11, 1.12): first everything is checked without changing anything, so that a log that
//! cannot be opened stays as it was; then the directory is put in order. Kafka: `LogLoader`.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use fletchlog_records::TopicPartition;
use fletchlog_records::planted;

use crate::checkpoint::read_partition_metadata;
use crate::config::Durability;
use crate::file_name::{TORN, with_suffix};
use crate::fs::{Fs, remove_file, sync_dir};
use crate::leader_epoch::LeaderEpochCache;
use crate::load_decision::{Decision, SegmentChecks};
use crate::load_plan::LoadPlan;
use crate::loaded::Loaded;
use crate::partition_log::PartitionLog;
use crate::producer_snapshot::SnapshotEntry;
use crate::producer_state::ProducerStateManager;
use crate::recovery::{RecoveredSegment, Restore, keep_torn};
use crate::refresh::ReadOnlyLoader;
use crate::roll::preallocation;
use crate::segment::{LogSegment, SegmentParams};
use crate::segment_files::SegmentFiles;
use crate::view::Segments;
use crate::{LogConfig, LogError, OpenMode, producer_snapshot};

impl PartitionLog {
    /// Opens `dir` (missing: created in write mode, an empty log in read-only mode) and recovers it as spec 1.11-1.12 say.
    pub fn open(
        fs: Arc<dyn Fs>,
        dir: &Path,
        tp: TopicPartition,
        config: LogConfig,
        mode: OpenMode,
        now_ms: i64,
    ) -> Result<Self, LogError> {
        let (clean_shutdown, recovery_point, checkpointed_start) = match mode {
            OpenMode::ReadOnly {
                recovery_point,
                log_start_offset,
            } => {
                let loader = ReadOnlyLoader {
                    fs: &fs,
                    dir,
                    config: &config,
                    recovery_point,
                    checkpointed_start: log_start_offset,
                    now_ms,
                    may_be_missing: true,
                };
                // Read before loading: if a new topic takes the directory meanwhile, its id differs from this one and the log
                // counts as gone.
                let topic_id = read_partition_metadata(&*fs, dir).ok().flatten();
                let loaded = loader.load()?;
                let log = loaded.into_log(fs, dir, tp, config, mode);
                if let Some(id) = topic_id {
                    log.topic_id.get_or_init(|| id);
                }
                return Ok(log);
            }
            OpenMode::Write {
                clean_shutdown,
                recovery_point,
                log_start_offset,
            } => (clean_shutdown, recovery_point, log_start_offset),
        };
        let loader = Loader {
            fs,
            dir,
            config,
            now_ms,
            clean_shutdown,
            recovery_point,
            checkpointed_start,
            touched: Cell::new(!clean_shutdown),
        };
        let loaded = loader.load()?;
        let fsync = loader.config.durability == Durability::Fsync;
        let log = loaded.into_log(loader.fs, dir, tp, loader.config, mode);
        if fsync && !planted!("recovered-tail-not-synced") {
            // What recovery read may only be in the page cache: it must be on disk before it is reported.
            log.flush()?;
        }
        Ok(log)
    }
}

/// Loads a directory for writing.
struct Loader<'a> {
    fs: Arc<dyn Fs>,
    dir: &'a Path,
    config: LogConfig,
    now_ms: i64,
    clean_shutdown: bool,
    recovery_point: i64,
    checkpointed_start: i64,
    /// A name in the directory changed, or may have changed without an fsync before the writer was killed.
    touched: Cell<bool>,
}

impl Loader<'_> {
    fn load(&self) -> Result<Loaded, LogError> {
        if !self.fs.exists(self.dir) {
            self.fs
                .create_dir_all(self.dir)
                .map_err(|e| LogError::io("create", self.dir, e))?;
            self.touched.set(true);
        }
        let mut plan = LoadPlan::read(&*self.fs, self.dir)?;
        self.sync_own_name(&plan)?;
        let stored_epochs = self.stored_epochs()?;
        let checks = SegmentChecks {
            fs: &*self.fs,
            config: &self.config,
            clean_shutdown: self.clean_shutdown,
            recovery_point: self.recovery_point,
        };
        let (decisions, dropped) = checks.decide(&plan)?;
        // From here on the directory changes.
        self.apply(&mut plan, &dropped)?;
        let (decisions, log_start_offset, log_end_offset) = self.drop_before_start(decisions)?;
        let mut rebuild_txn_index = BTreeSet::new();
        let (segments, epochs) = self.open_segments(
            decisions,
            stored_epochs.as_ref(),
            log_start_offset,
            &mut rebuild_txn_index,
        )?;
        let log_start_offset = log_start_offset.min(log_end_offset);
        let epochs = self.store_epochs(epochs, stored_epochs, log_end_offset)?;
        let (producers, last_snapshot_offset) =
            self.producers(plan, &segments, rebuild_txn_index, log_start_offset, log_end_offset)?;
        let segments = Segments::new(segments);
        let active = segments.active();
        active.prepare_for_append()?;
        if let Some(sizes) = preallocation(&self.config) {
            active
                .preallocate(sizes)
                .map_err(|e| active.io("preallocate the indexes of", e))?;
        }
        let recovery_point = if self.clean_shutdown {
            log_end_offset
        } else {
            self.recovery_point.min(log_end_offset)
        };
        Ok(Loaded {
            active_size: active.size(),
            segments,
            epochs,
            producers,
            last_snapshot_offset,
            log_start_offset,
            log_end_offset,
            recovery_point,
            directory_changed: self.touched.get(),
        })
    }

    /// `None`: the epochs must be read from the batches.
    fn stored_epochs(&self) -> Result<Option<LeaderEpochCache>, LogError> {
        if !self.clean_shutdown
            && self.config.durability == Durability::Fsync
            && !planted!("cached-epochs-believed-after-failed-fsync")
        {
            LeaderEpochCache::drop_cache(&*self.fs, self.dir)?;
        }
        match LeaderEpochCache::read(&*self.fs, self.dir) {
            // A power loss may have left the file with its size but without its bytes. The batches have the same epochs.
            Err(e @ LogError::Damaged { .. })
                if !self.clean_shutdown && !planted!("leader-epochs-without-their-bytes") =>
            {
                log::warn!("the leader epochs are read from the batches: {e}");
                Ok(None)
            }
            read => Ok(Some(read?)),
        }
    }

    /// Drops all segments if the log ends before its start. Returns the segments, the start and the end.
    fn drop_before_start(&self, decisions: Vec<Decision>) -> Result<(Vec<Decision>, i64, i64), LogError> {
        let first_base = decisions.first().map_or(0, |first| first.base_offset);
        let start = self.checkpointed_start.max(first_base);
        let Some(end) = decisions.last().map(|last| last.next_offset) else {
            return Ok((decisions, start, start));
        };
        if end >= start {
            return Ok((decisions, start, end));
        }
        log::warn!(
            "{}: the log ends at {end}, before its start {start}: starting empty there",
            self.dir.display()
        );
        for decision in decisions {
            self.drop_segment(decision.base_offset)?;
        }
        Ok((Vec::new(), start, start))
    }

    /// Completes what was interrupted, and moves aside the segments after a cut one.
    fn apply(&self, plan: &mut LoadPlan, dropped: &[i64]) -> Result<(), LogError> {
        if !plan.remove.is_empty() || !plan.rename.is_empty() {
            self.touched.set(true);
        }
        plan.apply(&*self.fs, self.dir)?;
        for base in dropped {
            self.drop_segment(*base)?;
        }
        let dropped_before =
            plan.has_torn && !self.clean_shutdown && !planted!("dropped-segments-of-a-killed-writer-not-synced");
        if dropped.is_empty() && !dropped_before || planted!("dropped-segments-not-synced") {
            return Ok(());
        }
        // On disk before the cut segment grows over their offsets, at every durability level: a power loss that brought them
        // back would leave two segments with the same offsets. A recovery that failed here, or was killed, has not done it.
        sync_dir(&*self.fs, self.dir)
    }

    /// Opens the segments, or creates the first one, and finds the leader epochs of their batches.
    fn open_segments(
        &self,
        decisions: Vec<Decision>,
        stored_epochs: Option<&LeaderEpochCache>,
        log_start_offset: i64,
        rebuild_txn_index: &mut BTreeSet<i64>,
    ) -> Result<(Vec<Arc<LogSegment>>, LeaderEpochCache), LogError> {
        let mut segments = Vec::new();
        let mut recovered_epochs = Vec::new();
        let last = decisions.last().map(|last| last.base_offset);
        for decision in decisions {
            let recovered = decision.recovered.iter().flat_map(|recovered| &recovered.epochs);
            recovered_epochs.extend(recovered.copied());
            let is_last = Some(decision.base_offset) == last;
            segments.push(self.open_segment(decision, is_last, rebuild_txn_index)?);
        }
        let mut epochs = match stored_epochs {
            Some(stored) => stored.clone(),
            None => LeaderEpochCache::rebuild(&segments)?,
        };
        for (epoch, start) in recovered_epochs {
            epochs.note(epoch, start);
        }
        if segments.is_empty() {
            let files = SegmentFiles::new(self.dir, log_start_offset);
            let params = SegmentParams::new(&self.config, log_start_offset, files, 0, self.now_ms);
            let segment = LogSegment::create(Arc::clone(&self.fs), params, preallocation(&self.config))?;
            segments.push(Arc::new(segment));
            self.touched.set(true);
        }
        Ok((segments, epochs))
    }

    /// Drops the epochs outside the log, and writes the others if they differ from the file.
    fn store_epochs(
        &self,
        mut epochs: LeaderEpochCache,
        stored: Option<LeaderEpochCache>,
        log_end_offset: i64,
    ) -> Result<LeaderEpochCache, LogError> {
        epochs.truncate_from_end(log_end_offset);
        // Kafka takes the checkpointed start here, not the base of the first segment.
        epochs.truncate_from_start(self.checkpointed_start.min(log_end_offset));
        if stored.is_none_or(|stored| epochs != stored) {
            epochs.write(&*self.fs, self.dir)?;
            self.touched.set(true);
        }
        Ok(epochs)
    }

    /// The directory may have been created a moment ago, or by a writer that was killed before it synced it: its name must be
    /// on disk before anything in it is acknowledged.
    fn sync_own_name(&self, plan: &LoadPlan) -> Result<(), LogError> {
        let may_be_new = plan.segments.is_empty() || !self.clean_shutdown;
        match self.dir.parent() {
            Some(parent)
                if may_be_new
                    && self.config.durability == Durability::Fsync
                    && !planted!("partition-directory-not-synced") =>
            {
                sync_dir(&*self.fs, parent)
            }
            _ => Ok(()),
        }
    }

    fn open_segment(
        &self,
        decision: Decision,
        is_last: bool,
        rebuild_txn_index: &mut BTreeSet<i64>,
    ) -> Result<Arc<LogSegment>, LogError> {
        let base = decision.base_offset;
        let files = SegmentFiles::new(self.dir, base);
        let valid_bytes = decision.valid_bytes();
        let params = SegmentParams::new(&self.config, base, files, valid_bytes, self.now_ms);
        let segment = LogSegment::new(Arc::clone(&self.fs), params);
        if let Some(recovered) = decision.recovered {
            // The killed writer may not have synced it.
            segment.mark_unsynced();
            self.touched.set(true);
            if valid_bytes < decision.planned.size {
                self.cut(&segment, decision.planned.size, &recovered)?;
            } else if is_last {
                self.repeat_cut(&segment, valid_bytes)?;
            }
            if decision.planned.has_txn_index {
                self.empty(&segment.files.txn_index)?;
            }
            rebuild_txn_index.insert(base);
            segment.install(recovered.indexes, true);
            segment.write_side_files(true)?;
        } else {
            if decision.planned.has_txn_index
                && let Err(reason) = segment.read_txn_index()?
            {
                log::warn!("{}: rebuilt from the log: {reason}", segment.files.txn_index.display());
                self.empty(&segment.files.txn_index)?;
                rebuild_txn_index.insert(base);
            }
            if let Some((indexes, rebuilt)) = decision.indexes {
                segment.install(indexes, rebuilt);
            }
            if !decision.planned.has_offset_index || !decision.planned.has_time_index {
                segment.with_indexes(|_| ())?;
                segment.seal()?;
            }
        }
        Ok(Arc::new(segment))
    }

    fn write_snapshot(&self, offset: i64, producers: &[SnapshotEntry]) -> Result<(), LogError> {
        self.touched.set(true);
        producer_snapshot::write(&*self.fs, self.dir, offset, producers)
    }

    fn empty(&self, path: &Path) -> Result<(), LogError> {
        self.fs
            .open(path, true, true)
            .and_then(|file| file.set_len(0))
            .map_err(|e| LogError::io("empty", path, e))
    }

    /// Cuts a log after its last valid batch. What is cut off is kept aside.
    fn cut(&self, segment: &LogSegment, size: u64, recovered: &RecoveredSegment) -> Result<(), LogError> {
        let path = &segment.files.log;
        let valid = recovered.valid_bytes;
        let file = segment.file()?;
        let torn = with_suffix(path, &format!("{TORN}-{}", recovered.next_offset));
        let kept = match keep_torn(&*self.fs, &*file, valid, size, &torn) {
            Ok(true) => format!("kept as {}", torn.display()),
            Ok(false) => "only zeros".to_string(),
            Err(e) => format!("not kept: {e}"),
        };
        log::warn!(
            "{}: cut from {size} to {valid} bytes ({}); the rest: {kept}",
            path.display(),
            recovered.why.reason()
        );
        file.set_len(valid).map_err(|e| LogError::io("cut", path, e))?;
        // Sync the log before its side files: these may only lag behind it.
        file.sync().map_err(|e| LogError::io("sync", path, e))
    }

    /// The segment may have this length because it was cut, in memory only: if the fsync of the cut failed, no later one writes it. Cuts it
    /// again, so that the fsync of what was recovered does. Otherwise a power loss brings back what was cut off, behind newer batches.
    fn repeat_cut(&self, segment: &LogSegment, len: u64) -> Result<(), LogError> {
        if self.config.durability != Durability::Fsync || planted!("failed-cut-not-repeated") {
            return Ok(());
        }
        let cut = |e| LogError::io("cut", &segment.files.log, e);
        segment.file()?.set_len(len).map_err(cut)
    }

    /// A segment after a cut one is no longer part of the log. Its records are kept aside.
    fn drop_segment(&self, base: i64) -> Result<(), LogError> {
        let files = SegmentFiles::new(self.dir, base);
        let torn = with_suffix(&files.log, TORN);
        log::warn!(
            "{}: behind a segment that was cut; kept as {}",
            files.log.display(),
            torn.display()
        );
        self.fs
            .rename(&files.log, &torn)
            .map_err(|e| LogError::io("rename", &files.log, e))?;
        for path in &files.all()[1..] {
            remove_file(&*self.fs, path)?;
        }
        Ok(())
    }

    /// Producer state at the log end, and the offset of the newest snapshot.
    fn producers(
        &self,
        mut plan: LoadPlan,
        segments: &[Arc<LogSegment>],
        rebuild_txn_index: BTreeSet<i64>,
        log_start_offset: i64,
        log_end_offset: i64,
    ) -> Result<(ProducerStateManager, i64), LogError> {
        self.remove_stray_snapshots(&mut plan, segments)?;
        if plan.snapshots.is_empty() && self.clean_shutdown && rebuild_txn_index.is_empty() {
            let last = self.write_empty_snapshots(segments, log_end_offset)?;
            return Ok((ProducerStateManager::default(), last.max(log_start_offset)));
        }
        let rebuilt = rebuild_txn_index.first().copied().filter(|_| !self.clean_shutdown);
        let limit = rebuilt.unwrap_or(log_end_offset).min(log_end_offset);
        self.remove_snapshots(&mut plan, |offset| offset > limit || offset <= log_start_offset)?;
        let mut written = 0;
        let mut failed = None;
        let mut at_base = |base: i64, producers: &ProducerStateManager| {
            if base > log_start_offset && failed.is_none() && !plan.snapshots.contains_key(&base) {
                match self.write_snapshot(base, &producers.to_snapshot()) {
                    Ok(()) => written = base,
                    Err(e) => failed = Some(e),
                }
            }
        };
        let restore = Restore {
            fs: &*self.fs,
            segments,
            log_start_offset,
            log_end_offset,
            snapshots: &plan.snapshots,
            rebuild_txn_index: &rebuild_txn_index,
            now_ms: self.now_ms,
            expiration_ms: self.config.producer_id_expiration_ms,
            at_base: &mut at_base,
        };
        let (mut producers, from) = restore.run()?;
        failed.map_or(Ok(()), Err)?;
        for segment in segments {
            segment.write_txn_index()?;
        }
        let mut last = from.max(written);
        if log_end_offset > last {
            self.write_snapshot(log_end_offset, &producers.to_snapshot())?;
            last = log_end_offset;
        }
        // As after a reload from that snapshot: one remembered batch per producer, and none that has expired (measured,
        // spec 3.7).
        producers.keep_newest_batches();
        if !self.clean_shutdown {
            producers.remove_expired(self.now_ms, self.config.producer_id_expiration_ms);
        }
        Ok((producers, last))
    }

    /// Of the snapshots without a segment only the newest is useful, and only if it is beyond the last base offset. Kafka:
    /// `ProducerStateManager#removeStraySnapshots`.
    fn remove_stray_snapshots(&self, plan: &mut LoadPlan, segments: &[Arc<LogSegment>]) -> Result<(), LogError> {
        let bases: BTreeSet<i64> = segments.iter().map(|segment| segment.base_offset).collect();
        let last_base = bases.last().copied().unwrap_or(0);
        let newest = plan.snapshots.keys().rfind(|offset| !bases.contains(offset)).copied();
        let kept = newest.filter(|offset| *offset > last_base);
        self.remove_snapshots(plan, |offset| !bases.contains(&offset) && Some(offset) != kept)
    }

    /// Writes empty snapshots: by Kafka's rule a clean log without snapshots has no producers. Returns the offset of the last
    /// one.
    fn write_empty_snapshots(&self, segments: &[Arc<LogSegment>], log_end_offset: i64) -> Result<i64, LogError> {
        let newest = &segments[segments.len().saturating_sub(2)..];
        let mut last = 0;
        for offset in newest.iter().map(|segment| segment.base_offset).chain([log_end_offset]) {
            if offset > last {
                self.write_snapshot(offset, &[])?;
                last = offset;
            }
        }
        Ok(last)
    }

    fn remove_snapshots(&self, plan: &mut LoadPlan, remove: impl Fn(i64) -> bool) -> Result<(), LogError> {
        let gone: Vec<i64> = plan
            .snapshots
            .keys()
            .copied()
            .filter(|offset| remove(*offset))
            .collect();
        for offset in gone {
            if let Some(path) = plan.snapshots.remove(&offset) {
                self.touched.set(true);
                remove_file(&*self.fs, &path)?;
            }
        }
        Ok(())
    }
}
