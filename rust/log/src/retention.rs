//! Deleting from the start (spec 4.1, 4.2). Kafka: `UnifiedLog#deleteOldSegments`, `#maybeIncrementLogStartOffset`.

use fletchlog_records::planted;
use std::path::Path;
use std::sync::Arc;

use crate::config::Durability;
use crate::file_name::{DELETED, SNAPSHOT, segment_file, with_suffix};
use crate::partition_log::{PartitionLog, Writer};
use crate::segment::{KEPT_OPEN, LogSegment};
use crate::sync::write;
use crate::view::{Segments, View};
use crate::{LogConfig, LogError};

impl PartitionLog {
    /// Deletes segments by start offset, size and time (spec 4.1). Returns how many were deleted.
    pub fn delete_old_segments(&self, now_ms: i64) -> Result<usize, LogError> {
        self.check_writable("delete old segments")?;
        let config = self.config();
        let mut writer = self.lock_writer();
        self.remove_deleted_files(&mut writer, now_ms);
        let start = self.view()?.log_start_offset;
        let mut count = self.delete_while(&mut writer, &config, now_ms, |_, next| {
            Ok(next.is_some_and(|next| next.base_offset <= start))
        })?;
        if !config.cleanup_delete {
            return Ok(count);
        }
        if let Ok(limit) = u64::try_from(config.retention_bytes) {
            let mut excess = self.size().saturating_sub(limit);
            count += self.delete_while(&mut writer, &config, now_ms, |segment, _| {
                // The log never shrinks below the limit: a segment that is larger than the excess stays.
                let fits = segment.size() <= excess;
                if fits {
                    excess -= segment.size();
                }
                Ok(fits)
            })?;
        }
        if config.retention_ms >= 0 {
            count += self.delete_while(&mut writer, &config, now_ms, |segment, _| {
                Ok(now_ms.saturating_sub(segment.largest_timestamp()?) > config.retention_ms)
            })?;
        }
        Ok(count)
    }

    /// Deletes from the oldest segment on, up to the first one that must stay.
    fn delete_while(
        &self,
        writer: &mut Writer,
        config: &LogConfig,
        now_ms: i64,
        mut predicate: impl FnMut(&LogSegment, Option<&LogSegment>) -> Result<bool, LogError>,
    ) -> Result<usize, LogError> {
        let view = self.view()?;
        let segments = view.segments.as_slice();
        let mut count = 0;
        for (i, segment) in segments.iter().enumerate() {
            let next = segments.get(i + 1).map(|next| &**next);
            let end = next.map_or(view.log_end_offset, |next| next.base_offset);
            let last_and_empty = next.is_none() && view.size_of(segment) == 0;
            if last_and_empty || view.high_watermark < end || !predicate(segment, next)? {
                break;
            }
            count += 1;
        }
        if count == 0 {
            return Ok(0);
        }
        if count == segments.len() {
            self.roll_to(writer, &view, config, view.log_end_offset, now_ms)?;
            // If the name of the new segment were lost, the log would begin at offset 0 again.
            if config.durability == Durability::Fsync {
                self.sync_names().inspect_err(|e| self.fence_after_sync(e))?;
            }
        }
        // Not all at once: a deleted segment takes a descriptor for as long as a reader holds it.
        drop(view);
        let mut left = count;
        while left > 0 {
            let portion = left.min(KEPT_OPEN);
            self.delete_first(writer, &self.view()?, portion, config, now_ms)?;
            left -= portion;
        }
        Ok(count)
    }

    fn delete_first(
        &self,
        writer: &mut Writer,
        view: &View,
        count: usize,
        config: &LogConfig,
        now_ms: i64,
    ) -> Result<(), LogError> {
        let (gone, kept) = view.segments.as_slice().split_at(count);
        let kept: Vec<Arc<LogSegment>> = kept.to_vec();
        let start = kept.first().map_or(view.log_end_offset, |first| first.base_offset);
        // With durability fsync the renames are synced. The descriptor for that is opened now: it must not be missing after the
        // renames.
        let sync = match config.durability {
            Durability::Fsync => Some(self.names_sync()?),
            Durability::PageCache => None,
        };
        // Readers that hold a segment keep reading: the file stays open from here on.
        let unreadable = gone.iter().filter_map(|segment| segment.keep_open(true).err());
        if let Some(e) = unreadable.reduce(|first, _| first) {
            log::warn!("readers of a deleted segment may fail: {e}");
        }
        // The files first: after a crash the log start must not be lower than what readers have seen.
        let synced = || sync.as_ref().map_or(Ok(()), |sync| sync());
        self.rename_deleted(writer, gone, config, now_ms, synced)
            .inspect_err(|e| self.fence(e))?;
        // Behind the renames, before the view without these segments: a flush of that view syncs the names.
        self.mark_directory_changed();
        {
            let mut published = write(&self.view);
            published.segments = Segments::new(kept);
            published.log_start_offset = published.log_start_offset.max(start);
        }
        self.trim_epochs_from_start(start)?;
        self.remove_deleted_files(writer, now_ms);
        Ok(())
    }

    /// A power loss may undo any rename since the last `sync`. So the `.log` files are renamed one by one, oldest first, and
    /// their other files after that: what comes back is the end of the log, without a hole, and with its aborted
    /// transactions.
    fn rename_deleted(
        &self,
        writer: &mut Writer,
        gone: &[Arc<LogSegment>],
        config: &LogConfig,
        now_ms: i64,
        sync: impl Fn() -> Result<(), LogError>,
    ) -> Result<(), LogError> {
        let delete_at = now_ms.saturating_add(config.file_delete_delay_ms);
        let mut rename = |path: &Path| -> Result<(), LogError> {
            let deleted = self.rename_if_there(path, &with_suffix(path, DELETED))?;
            writer.deleted.extend(deleted.map(|deleted| (deleted, delete_at)));
            Ok(())
        };
        for segment in gone {
            rename(&segment.files.log)?;
            if !planted!("deleted-segments-in-any-order") {
                sync()?;
            }
        }
        for segment in gone {
            rename(&segment_file(&self.dir, segment.base_offset, SNAPSHOT))?;
            segment.files.all().into_iter().try_for_each(&mut rename)?;
        }
        sync()
    }

    /// Removes files whose delay has passed; what cannot be removed now is removed when the log is next opened.
    pub(crate) fn remove_deleted_files(&self, writer: &mut Writer, now_ms: i64) {
        writer.deleted.retain(|(path, due_ms)| {
            let due = *due_ms <= now_ms;
            if due && let Err(e) = self.fs.remove_file(path) {
                log::warn!("cannot remove {}: {e}", path.display());
            }
            !due
        });
    }

    fn trim_epochs_from_start(&self, start: i64) -> Result<(), LogError> {
        let mut epochs = write(&self.epochs);
        let mut trimmed = epochs.clone();
        if trimmed.truncate_from_start(start) {
            self.store_epochs(&mut epochs, trimmed)?;
        }
        Ok(())
    }

    /// The log start offset that [`PartitionLog::delete_records`] would return now, with the same errors.
    pub fn log_start_after_deleting(&self, before_offset: Option<i64>) -> Result<i64, LogError> {
        self.check_writable("delete records")?;
        let view = self.view()?;
        let offset = before_offset.unwrap_or(view.high_watermark);
        if offset < 0 || offset > view.high_watermark {
            return Err(LogError::OffsetOutOfRange {
                partition: self.tp.to_string(),
                offset,
                start: view.log_start_offset,
                end: view.high_watermark,
            });
        }
        Ok(offset.max(view.log_start_offset))
    }

    /// DeleteRecords (spec 4.2): `None` = up to the high watermark. Returns the new log start offset.
    pub fn delete_records(&self, before_offset: Option<i64>) -> Result<i64, LogError> {
        let _writer = self.lock_writer();
        let offset = self.log_start_after_deleting(before_offset)?;
        if offset > self.log_start_offset() {
            self.trim_epochs_from_start(offset)?;
            write(&self.view).log_start_offset = offset;
        }
        Ok(self.log_start_offset())
    }
}
