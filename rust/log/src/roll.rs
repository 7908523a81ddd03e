//! When a new segment starts, and how (spec 1.10). Kafka: `LogSegment#shouldRoll`, `LocalLog#roll`.

use fletchlog_records::planted;
use std::path::Path;
use std::sync::Arc;

use crate::config::Durability;
use crate::file_name::{SNAPSHOT, segment_file};
use crate::fs::remove_file;
use crate::partition_log::{PartitionLog, Writer};
use crate::segment::{LogSegment, SegmentParams};
use crate::segment_files::SegmentFiles;
use crate::sync::write;
use crate::view::View;
use crate::{LogConfig, LogError, offset_index, producer_snapshot, time_index};

/// Capacity of an index in entries.
fn capacity(config: &LogConfig, entry_size: usize) -> usize {
    usize::try_from(config.segment_index_bytes).unwrap_or(0) / entry_size
}

/// Sizes of preallocated index files, if they are wanted.
pub(crate) fn preallocation(config: &LogConfig) -> Option<(u64, u64)> {
    let bytes = |entry_size| (capacity(config, entry_size) * entry_size) as u64;
    config
        .preallocate_indexes
        .then(|| (bytes(offset_index::ENTRY_SIZE), bytes(time_index::ENTRY_SIZE)))
}

/// The properties of an append that decide whether the active segment can take it. Kafka: `RollParams`.
pub(crate) struct RollParams {
    pub max_timestamp_in_messages: i64,
    pub max_offset_in_messages: i64,
    pub messages_size: u64,
    pub now_ms: i64,
}

impl PartitionLog {
    /// Starts a new segment now. Returns its base offset.
    pub fn roll(&self, now_ms: i64) -> Result<i64, LogError> {
        self.check_writable("roll")?;
        let mut writer = self.lock_writer();
        let view = self.view()?;
        self.roll_to(&mut writer, &view, &self.config(), view.log_end_offset, now_ms)
    }

    /// Rolls if the append does not belong in the active segment. Returns the view to append to.
    pub(crate) fn maybe_roll(
        &self,
        writer: &mut Writer,
        view: View,
        config: &LogConfig,
        first_offset: i64,
        params: &RollParams,
    ) -> Result<View, LogError> {
        if should_roll(view.segments.active(), config, params)? {
            self.roll_to(writer, &view, config, first_offset, params.now_ms)?;
            return self.view();
        }
        Ok(view)
    }

    /// Starts a segment at max(expected first offset, log end). With durability fsync the old one is synced up to its end
    /// first. The new files are created before anything else changes: if that fails, the old segment stays active and usable.
    /// (Kafka takes its log directory offline: `LogDirFailureChannel`.)
    pub(crate) fn roll_to(
        &self,
        writer: &mut Writer,
        view: &View,
        config: &LogConfig,
        expected_first_offset: i64,
        now_ms: i64,
    ) -> Result<i64, LogError> {
        let old = view.segments.active();
        let base_offset = expected_first_offset.max(view.log_end_offset);
        if old.size() == 0 && old.base_offset == base_offset {
            return Ok(base_offset);
        }
        if config.durability == Durability::Fsync {
            // Appends may still be waiting for their fsync. A power loss must not take anything from a segment that is
            // followed by another: recovery would continue after the gap.
            if !planted!("rolled-before-old-segment-is-synced") {
                self.await_durable(view.log_end_offset)?;
            }
        }
        let files = SegmentFiles::new(&self.dir, base_offset);
        let params = SegmentParams::new(config, base_offset, files, 0, now_ms);
        let path = params.files.log.clone();
        let is_new = !self.fs.exists(&path);
        let created = LogSegment::create(Arc::clone(&self.fs), params, preallocation(config));
        self.mark_directory_changed();
        if is_new && created.is_err() {
            self.remove_new_segment(&path);
        }
        let segment = created?;
        // Side files may lag behind: what could not be written stays in memory and is written on flush or close.
        if let Err(e) = old.seal() {
            log::warn!(
                "{}: index of the old segment stays in memory for now: {e}",
                self.dir.display()
            );
        }
        if let Err(e) = self.take_snapshot(writer, base_offset) {
            log::warn!("{}: no producer snapshot at {base_offset}: {e}", self.dir.display());
        }
        let mut published = write(&self.view);
        published.segments = published.segments.with(Arc::new(segment));
        published.active_size = 0;
        drop(published);
        // Memory does not grow with the log: readers load a sealed segment's indexes when they need them.
        old.evict();
        Ok(base_offset)
    }

    /// Removes the file of a segment that could not be created, and syncs that. The old segment continues with its offsets; a
    /// file that came back would be a segment in the middle of them.
    fn remove_new_segment(&self, path: &Path) {
        let removed = remove_file(&*self.fs, path);
        if let Err(e) = removed.and_then(|()| {
            if planted!("removal-of-unmade-segment-not-synced") {
                Ok(())
            } else {
                self.sync_names()
            }
        }) {
            self.mark_directory_changed();
            self.fence_after_sync(&e);
        }
    }

    /// Writes the producer state as of `offset`, if the log has grown since the last snapshot. Kafka:
    /// `ProducerStateManager#takeSnapshot`.
    pub(crate) fn take_snapshot(&self, writer: &mut Writer, offset: i64) -> Result<(), LogError> {
        writer.map_end_offset = writer.map_end_offset.max(offset);
        if writer.map_end_offset <= writer.last_snapshot_offset {
            return Ok(());
        }
        producer_snapshot::write(&*self.fs, &self.dir, offset, &writer.producers.to_snapshot())?;
        writer.last_snapshot_offset = offset;
        writer.snapshot_unsynced = true;
        self.mark_directory_changed();
        Ok(())
    }

    /// Syncs the newest snapshot, for a clean stop: it may have producers whose batches are deleted.
    pub(crate) fn sync_snapshot(&self) -> Result<(), LogError> {
        let mut writer = self.lock_writer();
        if !std::mem::take(&mut writer.snapshot_unsynced) {
            return Ok(());
        }
        let path = segment_file(&self.dir, writer.last_snapshot_offset, SNAPSHOT);
        match self.fs.open(&path, true, false).and_then(|file| file.sync()) {
            // Opening an empty log writes none.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(e) => {
                writer.snapshot_unsynced = true;
                let e = LogError::io("sync", &path, e);
                self.fence_after_sync(&e);
                Err(e)
            }
            Ok(()) => Ok(()),
        }
    }
}

/// Kafka: `LogSegment#shouldRoll`.
fn should_roll(segment: &LogSegment, config: &LogConfig, params: &RollParams) -> Result<bool, LogError> {
    let segment_size = segment.size();
    let segment_bytes = u64::try_from(config.segment_bytes).unwrap_or(0);
    if segment_size + params.messages_size > segment_bytes && segment_size > 0 {
        return Ok(true);
    }
    if segment_size > 0 {
        let mut segment_ms = config.segment_ms;
        if config.cleanup_compact {
            segment_ms = segment_ms.min(config.max_compaction_lag_ms);
        }
        let waited = match segment.first_batch_timestamp()? {
            Some(first) if first >= 0 => params.max_timestamp_in_messages.saturating_sub(first),
            _ => params.now_ms.saturating_sub(segment.created_ms),
        };
        if waited > segment_ms.saturating_sub(jitter(config, segment_ms, segment.base_offset)) {
            return Ok(true);
        }
    }
    // The time index keeps one slot for its final entry.
    let (offsets, times) = segment.index_entries();
    let full =
        offsets >= capacity(config, offset_index::ENTRY_SIZE) || times + 1 >= capacity(config, time_index::ENTRY_SIZE);
    let fits = (0..=i64::from(i32::MAX)).contains(&(params.max_offset_in_messages - segment.base_offset));
    Ok((full && segment_size > 0) || !fits)
}

/// A number in [0, min(segment.jitter.ms, segment.ms)), always the same for a segment: segments of many partitions should
/// not all roll at once.
fn jitter(config: &LogConfig, segment_ms: i64, base_offset: i64) -> i64 {
    let range = config.segment_jitter_ms.min(segment_ms);
    if range <= 0 {
        return 0;
    }
    // Consecutive offsets are spread.
    (fletchlog_records::mix(base_offset.cast_unsigned()) % range.cast_unsigned()).cast_signed()
}
