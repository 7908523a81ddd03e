//! Cutting the end of a log off, as a replica does whose new leader does not have it (spec 6.10). Kafka: `UnifiedLog#truncateTo`.

use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use fletchlog_records::planted;

use crate::fs::sync_dir;
use crate::partition_log::PartitionLog;
use crate::segment::LogSegment;
use crate::sync::write;
use crate::view::View;
use crate::{LogConfig, LogError, OpenMode, producer_snapshot};

impl PartitionLog {
    /// Removes the batches from `offset` on, which is where a batch begins; what is below the log start stays. Indexes, leader epochs and the state of producers are
    /// those of what is left, read as after an unclean stop. No other thread uses the log meanwhile. An offset beyond the log end changes
    /// nothing; at the log end, what an earlier cut left is cut and synced again, since its fsync may have failed.
    ///
    /// # Errors
    /// `ReadOnly`, `Closed`, `Fenced`; a storage error, after which the log is fenced.
    pub fn truncate_to(&self, offset: i64, now_ms: i64) -> Result<(), LogError> {
        self.check_writable("truncate")?;
        let mut writer = self.lock_writer();
        let view = self.view()?;
        let offset = offset.max(view.log_start_offset);
        if offset >= view.log_end_offset {
            // An earlier cut may have failed when it was synced, or its process may have been killed before.
            let has_length = offset == view.log_end_offset && !planted!("cut-of-the-right-length-not-synced");
            let synced = match has_length {
                true => self.cut_file(view.segments.active(), view.active_size),
                false => Ok(()),
            };
            return synced.inspect_err(|error| self.fence(error));
        }
        let again = self
            .cut_files(&view, offset)
            .and_then(|()| self.load_cut(&view, offset, now_ms))
            .inspect_err(|error| self.fence(error))?;
        let Self {
            view: loaded_view,
            writer: loaded_writer,
            epochs,
            durable,
            ..
        } = again;
        let mut loaded_view = loaded_view.into_inner().unwrap_or_else(PoisonError::into_inner);
        loaded_view.is_held = view.is_held;
        if view.is_held {
            loaded_view.high_watermark = view.high_watermark.min(offset);
        }
        let mut loaded_writer = loaded_writer.into_inner().unwrap_or_else(PoisonError::into_inner);
        loaded_writer.deleted = std::mem::take(&mut writer.deleted);
        *writer = loaded_writer;
        self.durable.reset(durable.recovery_point());
        *write(&self.epochs) = epochs.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.epochs_unsynced.store(true, Ordering::Release);
        self.mark_directory_changed();
        *write(&self.view) = loaded_view;
        Ok(())
    }

    /// From now on recovery checks what is at `offset` and beyond: called, and put into the checkpoint, before the log is cut there.
    pub fn lower_recovery_point(&self, offset: i64) {
        self.durable.lower(offset);
    }

    /// Cuts the segment with the offset, and removes those behind it and what was made from their batches.
    fn cut_files(&self, view: &View, offset: i64) -> Result<(), LogError> {
        let Some((cut, gone)) = view.segments.floor_and_after(offset).split_first() else {
            return Ok(());
        };
        let position = cut
            .translate_offset(offset, view.size_of(cut))?
            .map(|batch| batch.position);
        // One after the other: a power loss must not leave a segment without the one before it.
        for segment in gone.iter().rev() {
            segment.files.all().into_iter().try_for_each(|path| self.remove(path))?;
            sync_dir(&*self.fs, &self.dir)?;
        }
        let indexes = [&cut.files.offset_index, &cut.files.time_index, &cut.files.txn_index];
        indexes.into_iter().try_for_each(|path| self.remove(path))?;
        let list = |e| LogError::io("list", &self.dir, e);
        let entries = self.fs.read_dir(&self.dir).map_err(list)?;
        for (_, path) in producer_snapshot::list(&self.dir, &entries).range(offset + 1..) {
            self.remove(path)?;
        }
        match position {
            Some(position) => self.cut_file(cut, position),
            None => sync_dir(&*self.fs, &self.dir),
        }
    }

    /// Cuts the file of a segment, on disk, with the names in the directory.
    fn cut_file(&self, cut: &LogSegment, position: u64) -> Result<(), LogError> {
        let file = self.fs.open(&cut.files.log, true, false);
        file.and_then(|file| file.set_len(position).and_then(|()| file.sync()))
            .map_err(|e| LogError::io("cut", &cut.files.log, e))?;
        sync_dir(&*self.fs, &self.dir)
    }

    fn remove(&self, path: &Path) -> Result<(), LogError> {
        match self.fs.exists(path) {
            true => self.fs.remove_file(path).map_err(|e| LogError::io("remove", path, e)),
            false => Ok(()),
        }
    }

    /// The log as its files say now.
    fn load_cut(&self, view: &View, offset: i64, now_ms: i64) -> Result<Self, LogError> {
        let mode = OpenMode::Write {
            clean_shutdown: false,
            recovery_point: self.recovery_point().min(offset),
            log_start_offset: view.log_start_offset,
        };
        let config = LogConfig::clone(&self.config());
        Self::open(self.fs.clone(), &self.dir, self.tp.clone(), config, mode, now_ms)
    }
}
