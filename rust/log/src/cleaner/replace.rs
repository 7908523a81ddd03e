//! New segments in place of old ones, so that a crash at any rename leaves the old or the new ones (spec 1.11). Kafka:
//! `LocalLog#replaceSegments`.
//!
//! | step | files | a crash here |
//! |---|---|---|
//! | 1 | new ones written as `.cleaned`, synced | new ones are removed when the log is opened |
//! | 2 | `.cleaned` -> `.swap` | while a `.cleaned` is left: as 1 |
//! | 3 | old ones -> `.deleted`, and the names synced | the `.swap` files take their place, what is left of the old ones is removed |
//! | 4 | `.swap` -> final names | the rest is renamed |

use fletchlog_records::planted;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::LogError;
use crate::file_name::{CLEANED, DELETED, SNAPSHOT, SWAP, segment_file, with_suffix};
use crate::fs::remove_file;
use crate::partition_log::{PartitionLog, Writer};
use crate::segment::{LogSegment, SegmentParams};
use crate::segment_files::SegmentFiles;
use crate::sync::write;

/// Removes what an earlier attempt left.
pub(super) fn remove_files(log: &PartitionLog, files: &SegmentFiles) -> Result<(), LogError> {
    for path in files.all() {
        remove_file(&*log.fs, path)?;
    }
    Ok(())
}

impl PartitionLog {
    pub(super) fn replace_segments(
        &self,
        cleaned: LogSegment,
        old: &[Arc<LogSegment>],
        now_ms: i64,
    ) -> Result<(), LogError> {
        let mut writer = self.lock_writer();
        let view = self.view()?;
        let position = view
            .segments
            .as_slice()
            .iter()
            .position(|segment| Arc::ptr_eq(segment, &old[0]));
        let still_there = position.is_some_and(|at| {
            let now = view.segments.as_slice().get(at..at + old.len());
            now.is_some_and(|now| now.iter().zip(old).all(|(a, b)| Arc::ptr_eq(a, b)))
        });
        if !still_there {
            remove_files(self, &cleaned.files)?;
            return Err(LogError::Replaced {
                path: old[0].files.log.clone(),
            });
        }
        // A descriptor for the directory must be available between the renames.
        let kept = old.iter().try_for_each(|segment| segment.keep_for_readers());
        let sync = kept.and_then(|()| self.names_sync()).inspect_err(|_| {
            for segment in old {
                // It fails only if the file is not open.
                let _ = segment.keep_open(false);
            }
        })?;
        self.mark_directory_changed();
        let replaced = self.rename_all(&cleaned, old, &sync, &mut writer, now_ms);
        if let Err(e) = &replaced {
            // Some files are renamed and some not: only reopening the log resolves that.
            self.fence(e);
        }
        let segment = Arc::new(replaced?);
        let mut published = write(&self.view);
        published.segments = published.segments.with_replaced(old, segment);
        Ok(())
    }

    fn rename_all(
        &self,
        cleaned: &LogSegment,
        old: &[Arc<LogSegment>],
        sync_names: &dyn Fn() -> Result<(), LogError>,
        writer: &mut Writer,
        now_ms: i64,
    ) -> Result<LogSegment, LogError> {
        let base_offset = cleaned.base_offset;
        let name = |suffix: &str| SegmentFiles::with_suffix(&self.dir, base_offset, suffix);
        // The segment after the replaced ones may be newer than the last sync of the names. If a power loss removed it but
        // kept the `.swap`, a compacted segment would be the last one, where recovery expects a batch that ends at the
        // recovery point.
        sync_names()?;
        self.rename_files(&name(CLEANED), &name(SWAP))?;
        sync_names()?;
        let delete_at = now_ms.saturating_add(self.config().file_delete_delay_ms);
        for segment in old {
            let snapshot = segment_file(&self.dir, segment.base_offset, SNAPSHOT);
            // The snapshot at the start of the new segment stays.
            let snapshot = (segment.base_offset != base_offset).then_some(&*snapshot);
            for path in segment.files.all().into_iter().chain(snapshot) {
                if let Some(deleted) = self.rename_if_there(path, &with_suffix(path, DELETED))? {
                    writer.deleted.push((deleted, delete_at));
                }
            }
        }
        // If a power loss brought an old segment back now, it would overlap the new one, and no `.swap` would show that.
        if !planted!("replaced-names-not-synced") {
            sync_names()?;
        }
        let files = name("");
        self.rename_files(&name(SWAP), &files)?;
        sync_names()?;
        let params = SegmentParams {
            files,
            base_offset,
            size: cleaned.size(),
            writable: true,
            created_ms: now_ms,
            index_interval: cleaned.index_interval(),
        };
        let segment = LogSegment::new(Arc::clone(&self.fs), params);
        segment.adopt_txn_index(cleaned);
        Ok(segment)
    }

    fn rename_files(&self, from: &SegmentFiles, to: &SegmentFiles) -> Result<(), LogError> {
        for (from, to) in from.all().into_iter().zip(to.all()) {
            self.rename_if_there(from, to)?;
        }
        Ok(())
    }

    pub(crate) fn rename_if_there(&self, from: &Path, to: &Path) -> Result<Option<PathBuf>, LogError> {
        if !self.fs.exists(from) {
            return Ok(None);
        }
        self.fs.rename(from, to).map_err(|e| LogError::io("rename", from, e))?;
        Ok(Some(to.to_path_buf()))
    }
}
