//! Making appends durable: fsync, the recovery point, fencing (reliability R1-R9). Kafka: `UnifiedLog#flush`.

use std::sync::atomic::Ordering;

use crate::partition_log::PartitionLog;
use crate::sync::{lock, read, write};
use crate::{LogError, OpenMode};

/// What is known to be on disk. Its lock serialises fsyncs, so that appends that wait together share one.
#[derive(Debug)]
pub(crate) struct Durable {
    /// Offsets below are in `.log` files on disk.
    pub log_end: i64,
    /// Offsets below need no recovery: their side files are on disk too.
    pub recovery_point: i64,
}

impl PartitionLog {
    pub(crate) fn mark_directory_changed(&self) {
        self.directory_changed.store(true, Ordering::Release);
    }

    /// Nothing is written until the log is reopened. fsync is never retried: a second one may succeed without the data.
    pub(crate) fn fence(&self, error: &LogError) {
        log::error!("{}: fenced: {error}", self.dir.display());
        lock(&self.fenced).get_or_insert_with(|| error.to_string());
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

    /// Returns once everything below `offset` is on disk, and lets readers see it.
    pub(crate) fn await_durable(&self, offset: i64) -> Result<(), LogError> {
        let mut durable = lock(&self.durable);
        if durable.log_end >= offset {
            return Ok(());
        }
        self.check_writable("append")?;
        // Whatever was appended meanwhile goes along; those who wait for the lock find it done.
        let end = self.sync_to_end(&mut durable, false)?;
        debug_assert!(end >= offset, "an append is published before it waits");
        Ok(())
    }

    fn sync_to_end(&self, durable: &mut Durable, side_files: bool) -> Result<i64, LogError> {
        let view = read(&self.view).clone();
        let from = if side_files {
            durable.recovery_point
        } else {
            durable.log_end
        };
        let synced = (|| {
            for segment in view.segments.floor_and_after(from) {
                segment.sync(side_files)?;
            }
            if self.directory_changed.swap(false, Ordering::AcqRel) {
                self.fs
                    .sync_dir(&self.dir)
                    .map_err(|e| LogError::io("sync", &self.dir, e))?;
            }
            Ok(())
        })();
        if let Err(e) = synced {
            self.fence(&e);
            return Err(e);
        }
        durable.log_end = view.log_end_offset;
        let mut published = write(&self.view);
        published.high_watermark = published.high_watermark.max(view.log_end_offset);
        Ok(view.log_end_offset)
    }

    /// fsync up to the log end, side files included.
    pub(crate) fn flush_all(&self) -> Result<i64, LogError> {
        self.check_writable("flush")?;
        {
            // Index entries are added under the writer's lock.
            let _writer = lock(&self.writer);
            let view = self.view()?;
            for segment in view.segments.floor_and_after(self.recovery_point()) {
                segment.write_side_files(false)?;
            }
        }
        let mut durable = lock(&self.durable);
        let end = self.sync_to_end(&mut durable, true)?;
        durable.recovery_point = end;
        Ok(end)
    }
}
