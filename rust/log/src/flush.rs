//! Making appends durable: fsync, the recovery point, fencing (docs/reliability.md, C2 and C15). Kafka: `UnifiedLog#flush`.

use fletchlog_records::planted;
use std::sync::atomic::Ordering;

use crate::config::Durability;
use crate::durable::SyncTurn;
use crate::fs::sync_dir;
use crate::leader_epoch::LeaderEpochCache;
use crate::partition_log::PartitionLog;
use crate::sync::{lock, read, write};
use crate::view::View;
use crate::writer_guard::FenceOnPanic;
use crate::{LogError, OpenMode};

impl PartitionLog {
    pub(crate) fn mark_directory_changed(&self) {
        self.directory_changed
            .store(!planted!("new-names-not-synced"), Ordering::Release);
    }

    /// Makes the names in the log's directory durable.
    pub(crate) fn sync_names(&self) -> Result<(), LogError> {
        sync_dir(&*self.fs, &self.dir)
    }

    /// Returns a function that does what [`PartitionLog::sync_names`] does and needs no new descriptor.
    pub(crate) fn names_sync(&self) -> Result<impl Fn() -> Result<(), LogError> + use<'_>, LogError> {
        let error = |e| LogError::io("sync", &self.dir, e);
        let sync = self.fs.dir_sync(&self.dir).map_err(error)?;
        Ok(move || sync().map_err(error))
    }

    /// Stops all writes until the log is reopened. fsync is never retried: a second one may succeed without writing the data.
    pub(crate) fn fence(&self, error: &LogError) {
        self.fence_because(error.to_string());
    }

    /// Stops all writes until the log is reopened, for this reason.
    pub fn fence_because(&self, cause: String) {
        log::error!("{}: fenced: {cause}", self.dir.display());
        lock(&self.fenced).get_or_insert(cause);
    }

    /// As [`PartitionLog::fence`], unless no descriptor was left to open the file or directory: then nothing was synced, and
    /// the next sync tries again.
    pub(crate) fn fence_after_sync(&self, error: &LogError) {
        if !error.is_out_of_descriptors() {
            self.fence(error);
        }
    }

    pub(crate) fn check_writable(&self, action: &'static str) -> Result<(), LogError> {
        if self.is_closed() {
            return Err(LogError::Closed);
        }
        if let OpenMode::ReadOnly { .. } = self.mode {
            return Err(LogError::ReadOnly {
                path: self.dir.clone(),
                action,
            });
        }
        match &*lock(&self.fenced) {
            Some(_) if planted!("fenced-log-is-written") => Ok(()),
            Some(cause) => Err(LogError::Fenced {
                path: self.dir.clone(),
                cause: cause.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Returns once everything below `offset` is on disk, and lets readers see it. Appends that wait together share an
    /// fsync.
    pub(crate) fn await_durable(&self, offset: i64) -> Result<(), LogError> {
        let Some(turn) = self.durable.begin_sync(Some(offset)) else {
            return Ok(());
        };
        // A turn that this thread waited for may have failed.
        self.check_writable("append")?;
        let end = self.sync_to_end(&turn, false)?;
        debug_assert!(end >= offset, "an append is published before it waits");
        Ok(())
    }

    /// Lets the high watermark stand still, while records are not on all replicas in sync (spec 6.9), or move to the log end again: with
    /// durability fsync, to the end of what is on disk. Kafka: `Partition#maybeIncrementLeaderHW`.
    pub fn hold_high_watermark(&self, is_held: bool) {
        let writer = self.lock_writer();
        let mut view = write(&self.view);
        view.is_held = is_held;
        if is_held {
            return;
        }
        view.first_unstable_offset = writer.producers.first_unstable_offset();
        let end = match self.config().durability {
            Durability::PageCache => view.log_end_offset,
            Durability::Fsync => self.durable.log_end(),
        };
        view.high_watermark = view.high_watermark.max(end);
    }

    /// Syncs what has changed, up to the current log end.
    fn sync_to_end(&self, turn: &SyncTurn<'_>, side_files: bool) -> Result<i64, LogError> {
        let view = read(&self.view).clone();
        let from = turn.log_end();
        let _fence = FenceOnPanic::new(self);
        if let Err(e) = self.sync_changed(&view, from, side_files).or_else(|e| {
            if planted!("fsync-tried-again") {
                self.sync_changed(&view, from, side_files)
            } else {
                Err(e)
            }
        }) {
            if !planted!("no-fence-after-failed-fsync") {
                self.fence_after_sync(&e);
            }
            return Err(e);
        }
        {
            let mut published = write(&self.view);
            if !published.is_held {
                published.high_watermark = published.high_watermark.max(view.log_end_offset);
            }
        }
        // Only after the high watermark: what is acknowledged can be read.
        turn.synced(view.log_end_offset, side_files);
        Ok(view.log_end_offset)
    }

    fn sync_changed(&self, view: &View, from: i64, side_files: bool) -> Result<(), LogError> {
        let segments = if side_files {
            view.segments.as_slice()
        } else {
            view.segments.floor_and_after(from)
        };
        for segment in segments {
            segment.sync(side_files)?;
        }
        if side_files && !planted!("leader-epochs-never-synced") && self.epochs_unsynced.swap(false, Ordering::AcqRel) {
            let synced = LeaderEpochCache::sync(&*self.fs, &self.dir);
            synced.inspect_err(|_| self.epochs_unsynced.store(true, Ordering::Release))?;
        }
        if self.directory_changed.swap(false, Ordering::AcqRel) {
            self.sync_names().inspect_err(|_| {
                if !planted!("names-forgotten-when-no-descriptor-is-left") {
                    self.mark_directory_changed()
                }
            })?;
        }
        Ok(())
    }

    /// Syncs up to the log end, side files included; returns the new recovery point.
    pub fn flush(&self) -> Result<i64, LogError> {
        self.check_writable("flush")?;
        {
            // Index entries are added under the writer's lock.
            let _writer = self.lock_writer();
            let view = self.view()?;
            for segment in view.segments.floor_and_after(self.recovery_point()) {
                segment.write_side_files(false)?;
            }
        }
        self.sync_everything()
    }

    pub(crate) fn sync_everything(&self) -> Result<i64, LogError> {
        // Without an offset to wait for, `begin_sync` always returns a turn.
        match self.durable.begin_sync(None) {
            Some(turn) => {
                self.check_writable("flush")?;
                self.sync_to_end(&turn, true)
            }
            None => Ok(self.recovery_point()),
        }
    }

    /// How many files an fsync of everything would have to touch.
    pub fn unsynced_files(&self) -> usize {
        let view = read(&self.view).clone();
        let segments = view.segments.as_slice();
        segments.iter().map(|segment| segment.unsynced_files()).sum::<usize>()
            + usize::from(self.epochs_unsynced.load(Ordering::Acquire))
            + usize::from(self.directory_changed.load(Ordering::Acquire))
    }
}
