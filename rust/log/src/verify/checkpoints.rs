//! The checkpoints of the log directory, compared with the log of a partition: Kafka's have no checksum.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fletchlog_records::TopicPartition;

use super::{Problem, Verifier};
use crate::LogError;
use crate::checkpoint::{has_clean_shutdown, read_offset_checkpoint, read_partition_metadata};
use crate::file_name::{
    LEADER_EPOCH_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, parse_partition_dir,
};

/// A checkpoint, or why it cannot be read.
type Offsets = Result<BTreeMap<TopicPartition, i64>, Problem>;

/// The offset checkpoints of a log directory. Each lists all partitions: it is read once, not once for each partition that is verified.
#[derive(Debug, Default)]
pub struct OffsetCheckpoints {
    log_dir: PathBuf,
    log_starts: Option<Offsets>,
    recovery_points: Option<Offsets>,
}

impl OffsetCheckpoints {
    /// Forgets those of another directory.
    fn of(&mut self, log_dir: &Path) -> &mut Self {
        if self.log_dir != log_dir {
            *self = Self {
                log_dir: log_dir.to_path_buf(),
                ..Self::default()
            };
        }
        self
    }
}

impl Verifier<'_> {
    /// Checks the start of the log, and the files that a broker reads before it opens the log.
    pub(super) fn checkpoints(&mut self, dir: &Path, checkpoints: &mut OffsetCheckpoints) -> Result<(), LogError> {
        let segments = &self.report.segments;
        let first = segments.first().map_or(0, |segment| segment.base_offset);
        self.report.log_start_offset = first;
        self.report.log_end_offset = segments.last().map_or(0, |segment| segment.next_offset);
        self.unless_damaged(read_partition_metadata(self.fs, dir))?;
        let name = dir.file_name().and_then(|name| name.to_str());
        let (Some(log_dir), Some((topic, partition))) = (dir.parent(), name.and_then(parse_partition_dir)) else {
            return Ok(());
        };
        let tp = TopicPartition::new(topic, partition);
        // A broker that stops leaves files that agree; one that was killed may have changed only one of them.
        let stopped = has_clean_shutdown(self.fs, log_dir);
        let checkpoints = checkpoints.of(log_dir);
        let path = log_dir.join(LOG_START_OFFSET_CHECKPOINT);
        if let Some(starts) = self.offsets(&path, &mut checkpoints.log_starts)? {
            let start = starts.get(&tp).map_or(first, |start| first.max(*start));
            self.report.log_start_offset = start;
            self.log_start(&path, &tp, stopped);
        }
        let path = log_dir.join(RECOVERY_POINT_CHECKPOINT);
        if let Some(points) = self.offsets(&path, &mut checkpoints.recovery_points)?
            && let Some(point) = points.get(&tp)
        {
            self.recovery_point(&path, &tp, *point, stopped);
        }
        Ok(())
    }

    /// A checkpoint as it was when it was first asked for; `None`, with a problem added to the report, if it is damaged.
    fn offsets<'a>(
        &mut self,
        path: &Path,
        held: &'a mut Option<Offsets>,
    ) -> Result<Option<&'a BTreeMap<TopicPartition, i64>>, LogError> {
        let offsets = match held {
            Some(offsets) => offsets,
            None => held.insert(match read_offset_checkpoint(self.fs, path) {
                Err(LogError::Damaged { path, position, reason }) => Err(Problem { path, position, reason }),
                read => Ok(read?),
            }),
        };
        if let Err(problem) = offsets {
            self.report.index_problems.push(problem.clone());
        }
        Ok(offsets.as_ref().ok())
    }

    /// The first leader epoch begins where the log does, unless older records without an epoch precede it, or no records do:
    /// recovery takes epochs from the batches, and compaction may have left none at the start. Kafka:
    /// `LeaderEpochFileCache#truncateFromStart`, whenever the log start moves.
    fn log_start(&mut self, path: &Path, tp: &TopicPartition, stopped: bool) {
        let (start, end) = (self.report.log_start_offset, self.report.log_end_offset);
        if start > end {
            return self.index_problem(path, 0, format!("{tp} starts at {start}, but its log ends at {end}"));
        }
        let Some(first_epoch) = self.epochs.start_offset().filter(|_| stopped) else {
            return;
        };
        let is_missing = first_epoch > start && self.before_epochs > start && self.without_epoch <= start;
        if first_epoch < start || is_missing {
            let reason = format!(
                "{tp} starts at {start}, but by {LEADER_EPOCH_CHECKPOINT} its first epoch starts at {first_epoch}"
            );
            self.index_problem(path, 0, reason);
        }
    }

    /// Recovery checks nothing below the recovery point. A clean stop flushes everything, so after one it is the log end.
    fn recovery_point(&mut self, path: &Path, tp: &TopicPartition, point: i64, stopped: bool) {
        let end = self.report.log_end_offset;
        if point > end || stopped && point != end {
            let reason = format!("the recovery point of {tp} is {point}, but its log ends at {end}");
            self.index_problem(path, 0, reason);
        }
    }
}
