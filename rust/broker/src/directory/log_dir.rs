//! One Kafka log.dir: its checkpoints, its clean-shutdown marker, its meta.properties.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fletchlog_log::checkpoint::{self, MetaProperties, encode_uuid};
use fletchlog_log::file_name::{
    CLEANER_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT,
};
use fletchlog_log::fs::{File, Fs};
use fletchlog_log::{LogError, OpenMode};
use fletchlog_records::{TopicPartition, planted};

use super::names::{self, DirName};
use crate::sync::{Mutex, Rank};
use crate::{BrokerError, uuid};

type Offsets = BTreeMap<TopicPartition, i64>;

/// A log directory, with what its files said when it was opened.
#[derive(Debug)]
pub(crate) struct LogDir {
    path: PathBuf,
    clean_shutdown: bool,
    read: Mutex<Checkpoints>,
    /// Held while a checkpoint is changed.
    writing: Mutex<()>,
}

/// What the checkpoints said, for logs that have not been opened yet.
#[derive(Debug, Default)]
struct Checkpoints {
    recovery_points: Offsets,
    log_starts: LogStarts,
    clean_offsets: Offsets,
}

/// What `log-start-offset-checkpoint` said.
#[derive(Debug, Default)]
struct LogStarts {
    offsets: Offsets,
    /// The file as it was last read, `None` if there was none. It is kept open, so that no other file gets its inode.
    file: Option<Arc<dyn File>>,
}

impl LogStarts {
    fn load(fs: &dyn Fs, path: &Path) -> Result<Self, BrokerError> {
        // Opened first: if the file is replaced in between, the next check reads it again.
        let file = match fs.open(path, false, false) {
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            opened => Some(opened.map_err(|e| BrokerError::directory(fs, path, format!("cannot be opened: {e}")))?),
        };
        let offsets = checkpoint::read_offset_checkpoint(fs, path)?;
        Ok(Self { offsets, file })
    }

    /// A checkpoint is never changed, only replaced.
    fn is_current(&self, fs: &dyn Fs, path: &Path) -> bool {
        match &self.file {
            Some(file) => file.is_at(path).unwrap_or(false),
            None => !fs.exists(path),
        }
    }
}

impl LogDir {
    /// Opens the directory for writing. First reads the marker of a clean stop and removes it, durably, so that a crash while the
    /// logs are loaded leaves an unclean directory; then reads the checkpoints.
    pub(crate) fn open_for_writing(
        fs: &dyn Fs,
        path: &Path,
        node_id: i32,
        cluster_id: &str,
    ) -> Result<Self, BrokerError> {
        let clean_shutdown = checkpoint::take_clean_shutdown(fs, path)?;
        if !clean_shutdown {
            sync_names(fs, path)?;
        }
        if checkpoint::read_meta_properties(fs, path)?.is_none() {
            let properties = MetaProperties {
                version: 1,
                node_id,
                cluster_id: Some(cluster_id.to_owned()),
                directory_id: Some(encode_uuid(&uuid::random())),
            };
            checkpoint::write_meta_properties(fs, path, &properties)?;
        }
        let dir = Self {
            clean_shutdown,
            ..Self::open_for_reading(fs, path)?
        };
        match checkpoint::read_offset_checkpoint(fs, &path.join(CLEANER_CHECKPOINT)) {
            // Cleaning reports it.
            Err(LogError::Damaged { .. }) => {}
            clean_offsets => dir.read.lock().clean_offsets = clean_offsets?,
        }
        Ok(dir)
    }

    /// Reads the checkpoints only.
    pub(crate) fn open_for_reading(fs: &dyn Fs, path: &Path) -> Result<Self, BrokerError> {
        let read = Checkpoints {
            recovery_points: checkpoint::read_offset_checkpoint(fs, &path.join(RECOVERY_POINT_CHECKPOINT))?,
            log_starts: LogStarts {
                offsets: checkpoint::read_offset_checkpoint(fs, &path.join(LOG_START_OFFSET_CHECKPOINT))?,
                file: None,
            },
            clean_offsets: Offsets::new(),
        };
        Ok(Self {
            path: path.to_path_buf(),
            clean_shutdown: false,
            read: Mutex::new(Rank::ReadCheckpoints, read),
            writing: Mutex::new(Rank::WriteCheckpoints, ()),
        })
    }

    /// Read-only: the log start that the writer has set last, 0 if `log-start-offset-checkpoint` has none. The file is read again
    /// only if it was replaced.
    pub(crate) fn log_start_offset(&self, fs: &dyn Fs, tp: &TopicPartition) -> Result<i64, BrokerError> {
        let mut read = self.read.lock();
        let path = self.path.join(LOG_START_OFFSET_CHECKPOINT);
        if !read.log_starts.is_current(fs, &path) {
            read.log_starts = LogStarts::load(fs, &path)?;
        }
        Ok(read.log_starts.offsets.get(tp).copied().unwrap_or(0))
    }

    /// Drops what was read about partitions that no longer exist: a later topic of the same name begins at 0. Returns whether there
    /// was anything to drop.
    pub(crate) fn retain(&self, exists: impl Fn(&TopicPartition) -> bool) -> bool {
        let read = &mut *self.read.lock();
        let all = [
            &mut read.recovery_points,
            &mut read.log_starts.offsets,
            &mut read.clean_offsets,
        ];
        let mut dropped = false;
        for offsets in all {
            let before = offsets.len();
            offsets.retain(|tp, _| exists(tp));
            dropped |= offsets.len() < before;
        }
        dropped
    }

    /// First dirty offsets of compacted logs, as the cleaner left them.
    pub(crate) fn clean_offsets(&self, fs: &dyn Fs) -> Result<Offsets, BrokerError> {
        Ok(checkpoint::read_offset_checkpoint(
            fs,
            &self.path.join(CLEANER_CHECKPOINT),
        )?)
    }

    /// Stores how far a log is clean; entries of partitions that no longer exist are dropped.
    pub(crate) fn store_clean_offset(
        &self,
        fs: &dyn Fs,
        tp: &TopicPartition,
        offset: i64,
        exists: impl Fn(&TopicPartition) -> bool,
    ) -> Result<(), BrokerError> {
        let _one_at_a_time = self.writing.lock();
        let mut offsets = self.clean_offsets(fs)?;
        offsets.retain(|tp, _| exists(tp));
        offsets.insert(tp.clone(), offset);
        Ok(checkpoint::write_offset_checkpoint(
            fs,
            &self.path.join(CLEANER_CHECKPOINT),
            &offsets,
        )?)
    }

    /// Drops the clean offsets of partitions that no longer exist: a later topic of the same name begins dirty.
    pub(crate) fn forget_clean_offsets(
        &self,
        fs: &dyn Fs,
        exists: impl Fn(&TopicPartition) -> bool,
    ) -> Result<(), BrokerError> {
        let _one_at_a_time = self.writing.lock();
        let mut offsets = self.clean_offsets(fs)?;
        let before = offsets.len();
        offsets.retain(|tp, _| exists(tp));
        if offsets.len() < before {
            checkpoint::write_offset_checkpoint(fs, &self.path.join(CLEANER_CHECKPOINT), &offsets)?;
        }
        Ok(())
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the last writer stopped cleanly.
    pub(crate) fn clean_shutdown(&self) -> bool {
        self.clean_shutdown
    }

    /// How a partition's log is to be opened.
    pub(crate) fn open_mode(&self, fs: &dyn Fs, tp: &TopicPartition, read_only: bool) -> Result<OpenMode, BrokerError> {
        let recovery_point = self.read.lock().recovery_points.get(tp).copied().unwrap_or(0);
        if read_only {
            return Ok(OpenMode::ReadOnly {
                recovery_point,
                log_start_offset: self.log_start_offset(fs, tp)?,
            });
        }
        let read = self.read.lock();
        Ok(OpenMode::Write {
            clean_shutdown: self.clean_shutdown,
            recovery_point,
            log_start_offset: read.log_starts.offsets.get(tp).copied().unwrap_or(0),
        })
    }

    /// Lowers the recovery point and the clean offset of a log that ends below them: its next records are neither on disk nor clean.
    /// Must be called before the first of them is appended, as recovery checks nothing below the recovery point. Kafka:
    /// `LogManager#truncateTo`.
    pub(crate) fn lower_offsets(
        &self,
        fs: &dyn Fs,
        tp: &TopicPartition,
        log_end_offset: i64,
    ) -> Result<(), BrokerError> {
        type Of = fn(&mut Checkpoints) -> &mut Offsets;
        let files: [(&str, Of); 2] = [
            (RECOVERY_POINT_CHECKPOINT, |read| &mut read.recovery_points),
            (CLEANER_CHECKPOINT, |read| &mut read.clean_offsets),
        ];
        for (name, of) in files {
            let known = of(&mut self.read.lock()).get(tp).copied().unwrap_or(0);
            if known <= log_end_offset {
                continue;
            }
            log::warn!("{tp} ends at offset {log_end_offset}: lowered from {known} in {name}");
            let _one_at_a_time = self.writing.lock();
            let path = self.path.join(name);
            let mut offsets = checkpoint::read_offset_checkpoint(fs, &path)?;
            offsets.insert(tp.clone(), log_end_offset);
            checkpoint::write_offset_checkpoint(fs, &path, &offsets)?;
            of(&mut self.read.lock()).insert(tp.clone(), log_end_offset);
        }
        Ok(())
    }

    /// Writes the three checkpoints for the partitions that exist, with the offsets in `logs`, and for logs that are not open with
    /// the offsets read before.
    pub(crate) fn write_checkpoints(
        &self,
        fs: &dyn Fs,
        logs: &[LogOffsets],
        exists: impl Fn(&TopicPartition) -> bool,
    ) -> Result<(), BrokerError> {
        let _one_at_a_time = self.writing.lock();
        let (mut recovery, mut starts) = {
            let read = self.read.lock();
            (read.recovery_points.clone(), read.log_starts.offsets.clone())
        };
        let high_watermarks = self.path.join(HIGH_WATERMARK_CHECKPOINT);
        let mut marks = checkpoint::read_offset_checkpoint(fs, &high_watermarks).unwrap_or_default();
        for log in logs {
            recovery.insert(log.tp.clone(), log.recovery_point);
            marks.insert(log.tp.clone(), log.high_watermark);
            // Only starts that differ from the name of the first segment (spec 1.9).
            if log.log_start_offset > log.first_segment {
                starts.insert(log.tp.clone(), log.log_start_offset);
            } else {
                starts.remove(&log.tp);
            }
        }
        for offsets in [&mut recovery, &mut starts, &mut marks] {
            offsets.retain(|tp, _| exists(tp));
        }
        checkpoint::write_offset_checkpoint(fs, &self.path.join(RECOVERY_POINT_CHECKPOINT), &recovery)?;
        checkpoint::write_log_start_checkpoint(fs, &self.path.join(LOG_START_OFFSET_CHECKPOINT), &starts)?;
        checkpoint::write_offset_checkpoint(fs, &high_watermarks, &marks)?;
        Ok(())
    }

    /// Lists its subdirectories.
    pub(crate) fn list(&self, fs: &dyn Fs) -> Result<Vec<(String, DirName)>, BrokerError> {
        let entries = fs
            .read_dir(&self.path)
            .map_err(|e| BrokerError::directory(fs, &self.path, format!("cannot be listed: {e}")))?;
        let directories = entries.into_iter().filter(|e| e.is_dir);
        Ok(directories.map(|e| (e.name.clone(), names::parse(&e.name))).collect())
    }
}

/// Offsets of one log at a checkpoint.
#[derive(Debug, Clone)]
pub(crate) struct LogOffsets {
    /// Partition.
    pub(crate) tp: TopicPartition,
    /// Everything below is on disk.
    pub(crate) recovery_point: i64,
    /// High watermark.
    pub(crate) high_watermark: i64,
    /// First readable offset.
    pub(crate) log_start_offset: i64,
    /// Base of the first segment.
    pub(crate) first_segment: i64,
}

/// A writer that was killed may have renamed a file without syncing the directory. After this, what is read is durable.
pub(super) fn sync_names(fs: &dyn Fs, dir: &Path) -> Result<(), BrokerError> {
    if planted!("killed-writers-names-not-synced") {
        return Ok(());
    }
    fs.sync_dir(dir)
        .map_err(|e| BrokerError::directory(fs, dir, format!("cannot be synced: {e}")))
}
