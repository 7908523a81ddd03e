//! Reading a log that another process may be writing: nothing is created, changed or locked. Readers see the whole, valid
//! batches of the files; bytes after them may belong to an append in progress and are ignored, unless they are below the
//! recovery point.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::batch_walk::{BatchMeta, CheckedWalk, OffsetOrder, WalkEnd};
use crate::checkpoint::read_partition_metadata;
use crate::file_name::{LOG, SWAP, segment_file};
use crate::fs::Fs;
use crate::leader_epoch::LeaderEpochCache;
use crate::load_plan::{LoadPlan, PlannedSegment};
use crate::loaded::Loaded;
use crate::partition_log::{PartitionLog, Writer};
use crate::producer_state::ProducerStateManager;
use crate::recovery::{Restore, apply};
use crate::segment::{LogSegment, SegmentParams};
use crate::segment_files::SegmentFiles;
use crate::segment_indexes::{Check, IndexLoader, LoadedIndexes, SegmentIndexes};
use crate::sync::{lock, read, write};
use crate::txn_index::TransactionIndex;
use crate::view::{Segments, View};
use crate::{LogConfig, LogError, OpenMode, producer_snapshot};

/// A writer may delete or rename a file after it is listed and before it is opened; then the directory is listed again. A
/// file that is still missing after this many attempts has another cause.
const ATTEMPTS: usize = 10;

/// Lists the directory. The writer may rename and delete files meanwhile, and a renamed file may be listed under neither
/// name. So the directory is listed until two listings in a row have the same segments, apart from new ones at the end, and
/// the first segment still exists; or four, if file names show that the writer is deleting or replacing segments: two
/// listings may miss the same file while many are renamed.
fn list(fs: &dyn Fs, dir: &Path) -> Result<LoadPlan, LogError> {
    let mut plan = LoadPlan::read(fs, dir);
    let mut agreed = 0;
    for _ in 0..ATTEMPTS {
        let before = match plan {
            Ok(_) if fs.is_snapshot() => break,
            Err(ref e) if !(e.is_not_found() && fs.exists(dir)) => break,
            before => before,
        };
        plan = LoadPlan::read(fs, dir);
        let (Ok(before), Ok(plan)) = (&before, &plan) else {
            continue;
        };
        let first = plan.segments.first_key_value();
        let agrees = plan.begins_with(before) && first.is_none_or(|(_, first)| fs.exists(&first.files.log));
        agreed = if agrees { agreed + 1 } else { 0 };
        if agreed >= if plan.is_clean() { 1 } else { 3 } {
            break;
        }
    }
    plan
}

fn params(config: &LogConfig, base_offset: i64, files: SegmentFiles, size: u64, now_ms: i64) -> SegmentParams {
    SegmentParams {
        writable: false,
        ..SegmentParams::new(config, base_offset, files, size, now_ms)
    }
}

/// Loads a directory without changing it, beside a writer or without one.
pub(crate) struct ReadOnlyLoader<'a> {
    pub fs: &'a Arc<dyn Fs>,
    pub dir: &'a Path,
    pub config: &'a LogConfig,
    /// Below it every batch was on disk.
    pub recovery_point: i64,
    pub checkpointed_start: i64,
    pub now_ms: i64,
    /// A missing directory is an empty log.
    pub may_be_missing: bool,
}

impl ReadOnlyLoader<'_> {
    pub fn load(&self) -> Result<Loaded, LogError> {
        let mut attempt = 1;
        loop {
            match self.try_load() {
                Err(e) if e.is_not_found() && attempt < ATTEMPTS && self.fs.exists(self.dir) => attempt += 1,
                // The partition has not been used yet.
                Err(e) if self.may_be_missing && e.is_not_found() && !self.fs.exists(self.dir) => {
                    return Ok(self.without_segments(LeaderEpochCache::default()));
                }
                other => return other,
            }
        }
    }

    fn try_load(&self) -> Result<Loaded, LogError> {
        let plan = list(&**self.fs, self.dir)?;
        let stored_epochs = match LeaderEpochCache::read(&**self.fs, self.dir) {
            Err(e @ LogError::Damaged { .. }) => {
                log::warn!("the leader epochs are read from the batches: {e}");
                None
            }
            read => Some(read?),
        };
        let mut rebuild_txn_index = BTreeSet::new();
        let mut segments = Vec::new();
        for (base, planned) in &plan.segments {
            segments.push(self.open_segment(*base, planned, &mut rebuild_txn_index)?);
        }
        if segments.is_empty() {
            self.warn_of_a_missing_end(self.checkpointed_start);
            return Ok(self.without_segments(stored_epochs.unwrap_or_default()));
        }
        let segments = Segments::new(segments);
        let (log_end_offset, last) = self.check_active(segments.active())?;
        self.warn_of_a_missing_end(log_end_offset);
        let mut epochs = match stored_epochs {
            Some(stored) => stored,
            None => LeaderEpochCache::rebuild(segments.as_slice())?,
        };
        // An epoch that begins beyond the end is damage; at the end it is one whose first batch the writer has not appended
        // yet.
        epochs.truncate_from_end(log_end_offset.saturating_add(1));
        if let Some(BatchMeta { header, .. }) = last {
            epochs.note(header.partition_leader_epoch, header.base_offset);
        }
        let first = segments.first().base_offset;
        let log_start_offset = self.checkpointed_start.max(first).min(log_end_offset);
        let producers = self.producers(&plan, &segments, rebuild_txn_index, log_start_offset, log_end_offset)?;
        Ok(loaded(segments, epochs, producers, log_start_offset, log_end_offset))
    }

    /// A copy of a directory may end before what was on disk: what it has is read.
    fn warn_of_a_missing_end(&self, log_end_offset: i64) {
        if log_end_offset < self.recovery_point {
            log::warn!(
                "{}: the log ends at offset {log_end_offset}, but everything up to offset {} was on disk: records are missing, as in a copy that was cut short; run verify, or copy again",
                self.dir.display(),
                self.recovery_point
            );
        }
    }

    fn open_segment(
        &self,
        base: i64,
        planned: &PlannedSegment,
        rebuild_txn_index: &mut BTreeSet<i64>,
    ) -> Result<Arc<LogSegment>, LogError> {
        let params = params(self.config, base, planned.files.clone(), planned.size, self.now_ms);
        let segment = LogSegment::new(Arc::clone(self.fs), params);
        if planned.has_txn_index && segment.read_txn_index()?.is_err() {
            rebuild_txn_index.insert(base);
        }
        Ok(Arc::new(segment))
    }

    /// For a directory in which the writer has not created the first segment yet.
    fn without_segments(&self, epochs: LeaderEpochCache) -> Loaded {
        let start = self.checkpointed_start;
        let params = params(self.config, start, SegmentFiles::new(self.dir, start), 0, self.now_ms);
        let segment = LogSegment::new(Arc::clone(self.fs), params);
        segment.install(SegmentIndexes::new(start), true);
        let segments = Segments::new(vec![Arc::new(segment)]);
        loaded(segments, epochs, ProducerStateManager::default(), start, start)
    }

    /// Checks the batches after the last index entry, up to the first that is not whole. Returns the log end and the last
    /// batch.
    ///
    /// A bad batch below the recovery point is damage, not an append in progress: the log goes beyond it, and reading it is an error,
    /// as in a sealed segment.
    ///
    /// # Errors
    /// `Damaged`: offsets that do not follow each other, or bytes below the recovery point that are not even the header of a batch.
    fn check_active(&self, active: &LogSegment) -> Result<(i64, Option<BatchMeta>), LogError> {
        let file = active.file()?;
        let len = file.len().map_err(|e| active.io("stat", e))?;
        let load = |check| {
            let loader = IndexLoader {
                fs: &**self.fs,
                files: &active.files,
                file: &*file,
                base_offset: active.base_offset,
                size: len,
                interval: active.index_interval(),
                check,
            };
            loader.load().map_err(|e| active.io("read", e))
        };
        let is_damaged = |found: &LoadedIndexes| {
            let is_bad = matches!(found.why, WalkEnd::Corrupt(_) | WalkEnd::TooShort(_));
            is_bad && found.next_offset < self.recovery_point
        };
        let mut found = load(Check::Checksums)?;
        if is_damaged(&found) {
            found = load(Check::Headers)?;
        }
        if is_damaged(&found) {
            let reason = format!(
                "{}, below offset {}, up to which everything was on disk; run verify, or restore the file",
                found.why.reason(),
                self.recovery_point
            );
            return Err(LogError::damaged(&active.files.log, found.end, reason));
        }
        found.why.unless_disorder(&active.files.log, found.end)?;
        active.install(found.indexes, true);
        active.set_size(found.end);
        Ok((found.next_offset, found.last))
    }

    /// Producer state at the log end. The transaction index of the active segment may lag behind its log: its entries after
    /// the newest snapshot are rebuilt from the log.
    fn producers(
        &self,
        plan: &LoadPlan,
        segments: &Segments,
        mut rebuild_txn_index: BTreeSet<i64>,
        log_start_offset: i64,
        log_end_offset: i64,
    ) -> Result<ProducerStateManager, LogError> {
        let active = segments.active();
        rebuild_txn_index.insert(active.base_offset);
        let known = active.aborted();
        active.install_txn_index(TransactionIndex::default(), 0);
        let newest = plan
            .snapshots
            .iter()
            .rfind(|(offset, _)| **offset > log_start_offset && **offset <= log_end_offset)
            .filter(|(offset, _)| **offset >= active.base_offset && rebuild_txn_index.len() == 1)
            .and_then(|(offset, path)| Some((*offset, producer_snapshot::read(&**self.fs, path).ok()?)));
        let mut restore = Restore {
            fs: &**self.fs,
            segments: segments.as_slice(),
            log_start_offset,
            log_end_offset,
            snapshots: &plan.snapshots,
            rebuild_txn_index: &rebuild_txn_index,
            now_ms: self.now_ms,
            expiration_ms: self.config.producer_id_expiration_ms,
            at_base: &mut |_, _| {},
        };
        let Some((from, entries)) = newest else {
            return Ok(restore.run()?.0);
        };
        // The snapshot is inside the active segment: only what follows it is replayed.
        for txn in known.into_iter().filter(|txn| txn.last_offset < from) {
            active.append_aborted(txn);
        }
        let mut producers = ProducerStateManager::from_snapshot(&entries, self.now_ms, restore.expiration_ms);
        restore.replay(&mut producers, from, true)?;
        Ok(producers)
    }
}

fn loaded(
    segments: Segments,
    epochs: LeaderEpochCache,
    producers: ProducerStateManager,
    log_start_offset: i64,
    log_end_offset: i64,
) -> Loaded {
    let active_size = segments.active().size();
    Loaded {
        segments,
        epochs,
        producers,
        last_snapshot_offset: log_end_offset,
        log_start_offset,
        log_end_offset,
        active_size,
        recovery_point: log_end_offset,
        directory_changed: false,
    }
}

impl PartitionLog {
    /// Read-only logs: applies what a live writer has added or deleted. Cheap if nothing changed. `log_start_offset`: the
    /// value of log-start-offset-checkpoint, 0 if it has none; the log start never decreases. The caller reads it before this
    /// call, so that all records below the new start are also seen here.
    pub fn refresh(&self, log_start_offset: i64) -> Result<(), LogError> {
        self.catch_up().map_err(|error| self.or_gone(error))?;
        if matches!(self.mode, OpenMode::ReadOnly { .. }) && log_start_offset > self.log_start_offset() {
            let mut view = write(&self.view);
            // Not beyond the log end known here.
            view.log_start_offset = view.log_start_offset.max(log_start_offset.min(view.log_end_offset));
        }
        Ok(())
    }

    /// Turns an error of a read into `Gone` if the directory no longer exists.
    fn or_gone(&self, error: LogError) -> LogError {
        let may_be_gone = matches!(error, LogError::Closed) || (error.is_not_found() && self.is_beside_writer());
        match may_be_gone && !self.fs.exists(&self.dir) {
            true => self.gone(),
            false => error,
        }
    }

    /// The result of a read; `Gone` if the topic was recreated, since its files have the names of the old topic's.
    pub(crate) fn unless_gone<T>(&self, read: Result<T, LogError>) -> Result<T, LogError> {
        match self.is_beside_writer() && self.is_of_another_topic() {
            true => Err(self.gone()),
            false => read.map_err(|error| self.or_gone(error)),
        }
    }

    fn gone(&self) -> LogError {
        let path = self.fs.display(&self.dir);
        LogError::Gone { path }
    }

    /// Whether the directory's topic id differs from the one first seen. A directory without an id never differs.
    fn is_of_another_topic(&self) -> bool {
        match read_partition_metadata(&*self.fs, &self.dir) {
            Ok(Some(id)) => *self.topic_id.get_or_init(|| id) != id,
            _ => false,
        }
    }

    /// Whether another process may change the files.
    pub(crate) fn is_beside_writer(&self) -> bool {
        matches!(self.mode, OpenMode::ReadOnly { .. }) && !self.fs.is_snapshot()
    }

    /// Whether the writer has replaced segments since the last refresh, which can look like damage.
    pub(crate) fn has_other_files(&self) -> Result<bool, LogError> {
        let plan = list(&*self.fs, &self.dir)?;
        let planned = plan.segments.iter().map(|(base, planned)| (*base, planned.size));
        let seen = self.segments();
        let Some((&(active, _), sealed)) = seen.split_last() else {
            return Ok(true);
        };
        // The active segment grows.
        let is_same = planned.take(sealed.len()).eq(sealed.iter().copied()) && plan.segments.contains_key(&active);
        Ok(!is_same)
    }

    /// Read-only logs: applies what the writer has changed since the last refresh.
    pub(crate) fn catch_up(&self) -> Result<(), LogError> {
        if !self.is_beside_writer() {
            return Ok(());
        }
        let fits = {
            let mut writer = lock(&self.writer);
            self.view()?;
            self.follow(&mut writer)?
        };
        if fits { Ok(()) } else { self.load_again() }
    }

    /// Read-only logs: reloads the directory, for when it no longer continues what was seen before.
    pub(crate) fn load_again(&self) -> Result<(), LogError> {
        let OpenMode::ReadOnly {
            recovery_point,
            log_start_offset,
        } = self.mode
        else {
            return Ok(());
        };
        let mut writer = lock(&self.writer);
        let view = self.view()?;
        let loader = ReadOnlyLoader {
            fs: &self.fs,
            dir: &self.dir,
            config: &self.config(),
            recovery_point,
            checkpointed_start: view.log_start_offset.max(log_start_offset),
            now_ms: 0,
            may_be_missing: false,
        };
        let mut loaded = loader.load()?;
        let first = view.segments.first().base_offset;
        for _ in 0..ATTEMPTS {
            if loaded.segments.first().base_offset <= first || !self.has_segment(first) {
                break;
            }
            loaded = loader.load()?;
        }
        writer.producers = loaded.producers;
        *write(&self.epochs) = loaded.epochs;
        *write(&self.view) = View {
            active_size: loaded.active_size,
            segments: loaded.segments,
            log_start_offset: loaded.log_start_offset,
            log_end_offset: loaded.log_end_offset,
            high_watermark: loaded.log_end_offset,
            is_held: false,
            first_unstable_offset: writer.producers.first_unstable_offset(),
        };
        Ok(())
    }

    /// Applies what was appended, rolled and deleted. False: the directory does not continue what was seen before.
    fn follow(&self, writer: &mut Writer) -> Result<bool, LogError> {
        loop {
            let view = read(&self.view).clone();
            let active = Arc::clone(view.segments.active());
            let len = match active
                .file()
                .and_then(|file| file.len().map_err(|e| active.io("stat", e)))
            {
                Ok(len) => len,
                // Not created yet, or deleted before it was ever opened.
                Err(e) if e.is_not_found() => return Ok(active.size() == 0 && self.is_without_segments()?),
                Err(e) => return Err(e),
            };
            if len < view.active_size {
                return Ok(false);
            }
            if len > view.active_size && !self.follow_appends(writer, &active, &view, len)? {
                return Ok(false);
            }
            let end = self.log_end_offset();
            let next = segment_file(&self.dir, end, LOG);
            if end == active.base_offset || !self.fs.exists(&next) {
                break;
            }
            let segment = LogSegment::new(
                Arc::clone(&self.fs),
                params(&self.config(), end, SegmentFiles::new(&self.dir, end), 0, 0),
            );
            segment.install(SegmentIndexes::new(end), true);
            let mut published = write(&self.view);
            published.segments = published.segments.with(Arc::new(segment));
            published.active_size = 0;
            drop(published);
            active.forget_indexes();
        }
        let view = read(&self.view).clone();
        if self.fs.exists(&view.segments.first().files.log) {
            return Ok(true);
        }
        self.follow_deletions(&view)
    }

    fn is_without_segments(&self) -> Result<bool, LogError> {
        match list(&*self.fs, &self.dir) {
            Err(e) if e.is_not_found() => Ok(true),
            listed => Ok(listed?.segments.is_empty()),
        }
    }

    /// Whether a segment missing from a listing exists after all. The writer may rename it between the checks: so its own
    /// name is checked first and last, and in between the name that it has while it replaces another.
    fn has_segment(&self, base_offset: i64) -> bool {
        let log = segment_file(&self.dir, base_offset, LOG);
        let swap = SegmentFiles::with_suffix(&self.dir, base_offset, SWAP).log;
        [&log, &swap, &log].into_iter().any(|path| self.fs.exists(path))
    }

    /// False: the new batches do not follow those seen before.
    fn follow_appends(
        &self,
        writer: &mut Writer,
        active: &LogSegment,
        view: &View,
        len: u64,
    ) -> Result<bool, LogError> {
        let file = active.file()?;
        let mut end = view.log_end_offset;
        let order = OffsetOrder::of_segment(active.base_offset).from(end);
        let mut walk = CheckedWalk::new(&*file, view.active_size, len).in_order(order);
        loop {
            let batch = match walk.next().map_err(|e| active.io("read", e))? {
                Ok((batch, _)) => batch,
                Err(WalkEnd::Disorder(_)) => return Ok(false),
                Err(_) => break,
            };
            apply(active, &mut writer.producers, &batch, true)?;
            active.observe(&batch);
            write(&self.epochs).note(batch.header.partition_leader_epoch, batch.header.base_offset);
            end = batch.header.next_offset();
        }
        let mut published = write(&self.view);
        published.log_end_offset = end;
        published.high_watermark = end;
        published.active_size = walk.position();
        published.first_unstable_offset = writer.producers.first_unstable_offset();
        Ok(true)
    }

    fn follow_deletions(&self, view: &View) -> Result<bool, LogError> {
        let plan = list(&*self.fs, &self.dir)?;
        let active = view.segments.active().base_offset;
        if !plan.segments.contains_key(&active) {
            return Ok(false);
        }
        let mut kept = Vec::new();
        for segment in view.segments.as_slice() {
            if plan.segments.contains_key(&segment.base_offset) {
                kept.push(Arc::clone(segment));
            } else if self.has_segment(segment.base_offset) {
                return Ok(false);
            }
        }
        let segments = Segments::new(kept);
        let mut published = write(&self.view);
        published.log_start_offset = published.log_start_offset.max(segments.first().base_offset);
        published.segments = segments;
        Ok(true)
    }
}
