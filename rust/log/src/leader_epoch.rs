//! `leader-epoch-checkpoint`: which leader epoch wrote from which offset on (spec 1.9). Kafka: `LeaderEpochFileCache`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::LogError;
use crate::batch_walk::HeaderWalk;
use crate::checkpoint::{checkpoint_text, entries_in, read_text, replace_unsynced};
use crate::file_name::LEADER_EPOCH_CHECKPOINT;
use crate::fs::Fs;
use crate::segment::LogSegment;

/// An epoch and the first offset written in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EpochEntry {
    pub epoch: i32,
    pub start_offset: i64,
}

/// Entries ascending in both fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LeaderEpochCache {
    entries: Vec<EpochEntry>,
}

/// The entries in the text of a `leader-epoch-checkpoint`; the error says what is wrong with it.
pub(crate) fn epochs_in(text: &str) -> Result<Vec<EpochEntry>, String> {
    let entry = |line: &str| {
        let (epoch, start) = line.split_once(' ')?;
        let (epoch, start_offset) = (epoch.parse().ok()?, start.trim().parse().ok()?);
        Some(EpochEntry { epoch, start_offset })
    };
    let malformed = |line| format!("malformed line {line:?}, expected `epoch offset`; delete the file to rebuild it");
    let entries = entries_in(text)?.into_iter();
    entries.map(|line| entry(line).ok_or_else(|| malformed(line))).collect()
}

/// The newest epoch in the `leader-epoch-checkpoint` of a log that is not open; `None` without the file or entries.
///
/// # Errors
/// `Damaged`, storage errors.
pub fn stored_leader_epoch(fs: &dyn Fs, dir: &Path) -> Result<Option<i32>, LogError> {
    Ok(LeaderEpochCache::read(fs, dir)?.latest_epoch())
}

fn path_in(dir: &Path) -> PathBuf {
    dir.join(LEADER_EPOCH_CHECKPOINT)
}

impl LeaderEpochCache {
    /// Missing and empty files are empty caches; anything malformed is an error.
    pub fn read(fs: &dyn Fs, dir: &Path) -> Result<Self, LogError> {
        let path = path_in(dir);
        let text = read_text(fs, &path)?.unwrap_or_default();
        let entries = epochs_in(&text).map_err(|reason| LogError::damaged(&path, 0, reason))?;
        let mut cache = Self::default();
        for EpochEntry { epoch, start_offset } in entries {
            cache.assign(epoch, start_offset);
        }
        Ok(cache)
    }

    /// Lets the next read of the file come from the disk: after a failed fsync the page cache may have bytes that no later fsync writes.
    pub fn drop_cache(fs: &dyn Fs, dir: &Path) -> Result<(), LogError> {
        let path = path_in(dir);
        match fs.drop_cache(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(LogError::io("open", &path, e)),
            _ => Ok(()),
        }
    }

    /// Replaces the file. Its name is synced with the next flush: until then recovery finds the epochs in the batches.
    pub fn write(&self, fs: &dyn Fs, dir: &Path) -> Result<(), LogError> {
        let path = path_in(dir);
        fs.replace_without_name(&path, self.text().as_bytes())
            .map_err(|e| LogError::io("write", &path, e))
    }

    /// Writes the file of a log that had none, without an fsync, which a log's first record would wait for: call
    /// [`Self::sync`] before the recovery point moves. Until then recovery finds the epochs in the batches.
    pub fn write_first(&self, fs: &dyn Fs, dir: &Path) -> Result<(), LogError> {
        replace_unsynced(fs, &path_in(dir), &self.text())
    }

    /// Syncs the file if it exists.
    pub fn sync(fs: &dyn Fs, dir: &Path) -> Result<(), LogError> {
        let path = path_in(dir);
        match fs.open(&path, true, false).and_then(|file| file.sync()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(LogError::io("sync", &path, e)),
            _ => Ok(()),
        }
    }

    fn text(&self) -> String {
        let line = |entry: &EpochEntry| format!("{} {}", entry.epoch, entry.start_offset);
        checkpoint_text(&self.entries.iter().map(line).collect::<Vec<_>>())
    }

    /// Reads the epochs from the batches of a log, for a file that a power loss left without its bytes.
    ///
    /// # Errors
    /// Segments that cannot be read.
    pub fn rebuild(segments: &[Arc<LogSegment>]) -> Result<Self, LogError> {
        let mut cache = Self::default();
        for segment in segments.iter().filter(|segment| segment.size() > 0) {
            let file = segment.file()?;
            let mut walk = HeaderWalk::new(&*file, 0, segment.size());
            while let Ok(batch) = walk.next().map_err(|e| segment.io("read", e))? {
                cache.note(batch.header.partition_leader_epoch, batch.header.base_offset);
            }
        }
        Ok(cache)
    }

    /// Notes the epoch of a batch that is in the log. An epoch below the one before it is damage and is ignored.
    pub fn note(&mut self, epoch: i32, offset: i64) {
        if epoch >= 0 && self.latest_epoch().is_none_or(|latest| epoch > latest) {
            self.assign(epoch, offset);
        }
    }

    /// Notes that `epoch` writes from `start_offset` on. True if something changed. Kafka: `LeaderEpochFileCache#assign`.
    pub fn assign(&mut self, epoch: i32, start_offset: i64) -> bool {
        if self
            .entries
            .last()
            .is_some_and(|last| last.epoch == epoch && start_offset >= last.start_offset)
        {
            return false;
        }
        self.entries
            .retain(|entry| entry.epoch < epoch && entry.start_offset < start_offset);
        self.entries.push(EpochEntry { epoch, start_offset });
        true
    }

    pub fn latest_epoch(&self) -> Option<i32> {
        self.entries.last().map(|entry| entry.epoch)
    }

    /// Where the first known epoch starts.
    pub fn start_offset(&self) -> Option<i64> {
        self.entries.first().map(|entry| entry.start_offset)
    }

    /// The epoch that wrote an offset.
    pub fn epoch_for_offset(&self, offset: i64) -> Option<i32> {
        self.entries
            .iter()
            .rev()
            .find(|entry| entry.start_offset <= offset)
            .map(|entry| entry.epoch)
    }

    /// (epoch, end offset) for a follower or consumer that last saw `epoch`. Kafka: `LeaderEpochFileCache#endOffsetFor`.
    pub fn end_offset_for(&self, epoch: i32, log_end_offset: i64) -> (i32, i64) {
        let Some(latest) = self.latest_epoch() else {
            return (-1, -1);
        };
        if epoch == latest {
            return (epoch, log_end_offset);
        }
        if epoch == -1 || epoch > latest {
            return (-1, -1);
        }
        let next = self.entries.partition_point(|entry| entry.epoch <= epoch);
        let start = self
            .entries
            .get(next)
            .map_or(log_end_offset, |entry| entry.start_offset);
        let floor = next
            .checked_sub(1)
            .and_then(|i| self.entries.get(i))
            .map_or(epoch, |entry| entry.epoch);
        (floor, start)
    }

    /// Removes the epochs that begin at or beyond the end of the log.
    pub fn truncate_from_end(&mut self, end_offset: i64) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.start_offset < end_offset);
        self.entries.len() != before
    }

    /// Removes the epochs that end before the start of the log; the entry that covers the start begins there.
    pub fn truncate_from_start(&mut self, start_offset: i64) -> bool {
        let covered = self.entries.partition_point(|entry| entry.start_offset <= start_offset);
        let Some(covering) = covered.checked_sub(1) else {
            return false;
        };
        let changed = covering > 0 || self.entries[covering].start_offset != start_offset;
        self.entries.drain(..covering);
        self.entries[0].start_offset = start_offset;
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::MemoryFs;

    fn cache(entries: &[(i32, i64)]) -> LeaderEpochCache {
        let mut cache = LeaderEpochCache::default();
        for (epoch, start) in entries {
            assert!(cache.assign(*epoch, *start));
        }
        cache
    }

    fn entries(cache: &LeaderEpochCache) -> Vec<(i32, i64)> {
        cache.entries.iter().map(|e| (e.epoch, e.start_offset)).collect()
    }

    #[test]
    fn a_new_epoch_replaces_entries_that_contradict_it() {
        let mut cache = cache(&[(0, 0), (2, 67), (5, 80)]);
        assert!(!cache.assign(5, 90));
        assert!(cache.assign(5, 70));
        assert_eq!(entries(&cache), [(0, 0), (2, 67), (5, 70)]);
        assert!(cache.assign(3, 75));
        assert_eq!(entries(&cache), [(0, 0), (2, 67), (3, 75)]);
        assert!(cache.assign(4, 67));
        assert_eq!(entries(&cache), [(0, 0), (4, 67)]);
    }

    #[test]
    fn the_end_of_an_epoch_is_the_start_of_the_next() {
        let cache = cache(&[(1, 10), (3, 30), (4, 40)]);
        for (epoch, expected) in [
            (4, (4, 99)),
            (5, (-1, -1)),
            (-1, (-1, -1)),
            (0, (0, 10)),
            (1, (1, 30)),
            (2, (1, 30)),
            (3, (3, 40)),
        ] {
            assert_eq!(cache.end_offset_for(epoch, 99), expected, "{epoch}");
        }
        assert_eq!(cache.epoch_for_offset(9), None);
        assert_eq!(cache.epoch_for_offset(30), Some(3));
        assert_eq!(cache.epoch_for_offset(39), Some(3));
    }

    #[test]
    fn entries_are_cut_with_the_log() {
        let mut cache = cache(&[(1, 10), (3, 30), (4, 40)]);
        assert!(cache.truncate_from_end(40));
        assert!(!cache.truncate_from_end(40));
        assert_eq!(entries(&cache), [(1, 10), (3, 30)]);
        assert!(!cache.truncate_from_start(5));
        assert!(cache.truncate_from_start(12));
        assert_eq!(entries(&cache), [(1, 12), (3, 30)]);
        assert!(cache.truncate_from_start(33));
        assert_eq!(entries(&cache), [(3, 33)]);
    }

    #[test]
    fn the_file_is_kafkas() {
        let fs = MemoryFs::new();
        let dir = Path::new("/t-0");
        fs.create_dir_all(dir).unwrap();
        assert_eq!(LeaderEpochCache::read(&fs, dir).unwrap(), LeaderEpochCache::default());
        let cache = cache(&[(0, 0), (2, 67)]);
        cache.write(&fs, dir).unwrap();
        assert_eq!(fs.read(&path_in(dir)).unwrap(), b"0\n2\n0 0\n2 67\n");
        assert_eq!(LeaderEpochCache::read(&fs, dir).unwrap(), cache);
        for bad in ["0\n5\n0 0\n", "1\n1\n0 0\n", "0\n1\nx y\n", "0\n1\n7\n"] {
            fs.replace(&path_in(dir), bad.as_bytes()).unwrap();
            assert!(LeaderEpochCache::read(&fs, dir).is_err(), "{bad:?}");
        }
    }
}
