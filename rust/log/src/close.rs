//! Closing a log cleanly. Kafka: `UnifiedLog#close`.

use std::sync::atomic::Ordering;

use crate::LogError;
use crate::partition_log::PartitionLog;
use crate::sync::lock;

impl PartitionLog {
    /// The part of [`PartitionLog::close`] that writes without waiting for the disk: final index entries and the producer
    /// snapshot at the log end. For many logs, call this for each, then `Fs::sync_all` once, then `close`, whose fsyncs find
    /// little left to do. Nothing may be appended in between.
    pub fn prepare_close(&self) -> Result<(), LogError> {
        self.check_writable("close")?;
        let mut writer = self.lock_writer();
        let view = self.view()?;
        for segment in view.segments.as_slice() {
            // The active segment, and any whose side files could not be written before.
            if segment.base_offset == view.segments.active().base_offset {
                segment.seal()?;
            } else {
                segment.write_pending_side_files()?;
            }
        }
        self.take_snapshot(&mut writer, view.log_end_offset)?;
        self.remove_deleted_files(&mut writer, i64::MAX);
        Ok(())
    }

    /// Flushes, writes final index entries, trims, writes the producer snapshot at the log end (spec 1.8, 3.7). Later calls
    /// return `Closed`. Dropping the log without `close` leaves the directory as a killed process would.
    pub fn close(&self) -> Result<(), LogError> {
        if self.check_writable("close").is_ok() {
            self.prepare_close()?;
            self.sync_snapshot()?;
            self.sync_everything()?;
            self.closed.store(true, Ordering::Release);
            return Ok(());
        }
        // A fenced log is left as it is: the next open recovers it. The error keeps the clean marker from being written.
        let fenced = lock(&self.fenced).clone();
        let was_closed = self.closed.swap(true, Ordering::AcqRel);
        match fenced {
            Some(cause) if !was_closed => Err(LogError::Fenced {
                path: self.dir.clone(),
                cause,
            }),
            _ => Ok(()),
        }
    }
}
