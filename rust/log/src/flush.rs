//! Making appends durable: fsync, the recovery point, fencing (docs/reliability.md, C2 and C15). Kafka: `UnifiedLog#flush`.

use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, PoisonError};

use crate::leader_epoch::LeaderEpochCache;
use crate::partition_log::PartitionLog;
use crate::sync::{FenceOnPanic, lock, read, write};
use crate::view::View;
use crate::{LogError, OpenMode};

/// What is known to be on disk. One thread at a time syncs, on behalf of all waiting threads. Threads that arrive meanwhile
/// wait for the next round, which one of them leads.
#[derive(Debug)]
pub(crate) struct Durable {
    state: Mutex<State>,
    round_over: Condvar,
}

#[derive(Debug)]
struct State {
    /// Offsets below are in `.log` files on disk.
    log_end: i64,
    /// Offsets below need no recovery: their side files are on disk too.
    recovery_point: i64,
    /// A thread is syncing.
    syncing: bool,
}

impl Durable {
    pub fn new(recovery_point: i64) -> Self {
        Self {
            state: Mutex::new(State {
                log_end: recovery_point,
                recovery_point,
                syncing: false,
            }),
            round_over: Condvar::new(),
        }
    }

    pub fn recovery_point(&self) -> i64 {
        lock(&self.state).recovery_point
    }

    /// Waits for a turn to sync. Returns `None` once everything below `offset` is on disk.
    fn lead(&self, offset: Option<i64>) -> Option<Round<'_>> {
        let mut state = lock(&self.state);
        loop {
            if offset.is_some_and(|offset| state.log_end >= offset) {
                return None;
            }
            if !state.syncing {
                state.syncing = true;
                return Some(Round { durable: self });
            }
            state = self.round_over.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The right to sync. Dropping it passes it to the next thread.
struct Round<'a> {
    durable: &'a Durable,
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        lock(&self.durable.state).syncing = false;
        self.durable.round_over.notify_all();
    }
}

impl PartitionLog {
    pub(crate) fn mark_directory_changed(&self) {
        self.directory_changed.store(true, Ordering::Release);
    }

    /// Stops all writes until the log is reopened. fsync is never retried: a second one may succeed without writing the data.
    pub(crate) fn fence(&self, error: &LogError) {
        self.fence_because(error.to_string());
    }

    pub(crate) fn fence_because(&self, cause: String) {
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
        let Some(round) = self.durable.lead(Some(offset)) else {
            return Ok(());
        };
        // A round that this thread waited for may have failed.
        self.check_writable("append")?;
        let end = self.sync_to_end(&round, false)?;
        debug_assert!(end >= offset, "an append is published before it waits");
        Ok(())
    }

    /// Syncs what has changed, up to the current log end.
    fn sync_to_end(&self, round: &Round<'_>, side_files: bool) -> Result<i64, LogError> {
        let view = read(&self.view).clone();
        let from = lock(&round.durable.state).log_end;
        let _fence = FenceOnPanic::new(self);
        if let Err(e) = self.sync_changed(&view, from, side_files) {
            self.fence_after_sync(&e);
            return Err(e);
        }
        {
            let mut published = write(&self.view);
            published.high_watermark = published.high_watermark.max(view.log_end_offset);
        }
        // Only after the high watermark: what is acknowledged can be read.
        let mut state = lock(&round.durable.state);
        state.log_end = view.log_end_offset;
        if side_files {
            state.recovery_point = view.log_end_offset;
        }
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
        if side_files && self.epochs_unsynced.swap(false, Ordering::AcqRel) {
            let synced = LeaderEpochCache::sync(&*self.fs, &self.dir);
            synced.inspect_err(|_| self.epochs_unsynced.store(true, Ordering::Release))?;
        }
        if self.directory_changed.swap(false, Ordering::AcqRel) {
            self.sync_names().inspect_err(|_| self.mark_directory_changed())?;
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
        // Without an offset to wait for, `lead` always returns a round.
        match self.durable.lead(None) {
            Some(round) => {
                self.check_writable("flush")?;
                self.sync_to_end(&round, true)
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
