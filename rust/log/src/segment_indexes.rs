//! The indexes of one segment in memory: the rule that fills them, and when files on disk are used or rebuilt
//! (spec 1.8). Kafka: `LogSegment#append`, `LogSegment#recover`.

use std::io;

use fletchlog_records::BatchHeader;

use crate::batch_walk::{BatchMeta, CheckedWalk, HeaderWalk, OffsetOrder, WalkEnd};
use crate::fs::{File, Fs};
use crate::offset_index::{self, InvalidOffset, OffsetIndex};
use crate::segment_files::SegmentFiles;
use crate::time_index::{self, TimeIndex, TimestampOffset};

/// Entries that may wait in memory before they are written: an index is rebuilt after a crash anyway, and one write
/// of 1 KiB per 128 entries (per 512 KiB of log) costs nothing.
const UNWRITTEN_ENTRIES: usize = 128;

#[derive(Debug, Clone)]
pub(crate) struct SegmentIndexes {
    pub offset: OffsetIndex,
    pub time: TimeIndex,
    /// Largest timestamp of the segment and the last offset of the earliest batch that has it.
    pub max_timestamp: TimestampOffset,
    /// Bytes since the last index entry.
    since_entry: u64,
    /// Entries that are in the files.
    written: (usize, usize),
    /// The files hold something else and must be replaced, not continued.
    replace_files: bool,
}

impl SegmentIndexes {
    pub fn new(base: i64) -> Self {
        let time = TimeIndex::new(base);
        Self {
            offset: OffsetIndex::new(base),
            max_timestamp: time.last(),
            time,
            since_entry: 0,
            written: (0, 0),
            replace_files: true,
        }
    }

    /// Notes the next batch, which gets an entry if more than the interval was written since the last one.
    pub fn on_batch(&mut self, batch: &BatchMeta, interval: u64) -> Result<(), InvalidOffset> {
        if batch.header.max_timestamp > self.max_timestamp.timestamp {
            self.max_timestamp = TimestampOffset {
                timestamp: batch.header.max_timestamp,
                offset: batch.last_offset(),
            };
        }
        if self.since_entry > interval {
            self.offset.append(batch.last_offset(), batch.position)?;
            self.time.maybe_append(self.max_timestamp)?;
            self.since_entry = 0;
        }
        self.since_entry += batch.size();
        Ok(())
    }

    /// The final time entry on roll, clean close and end of recovery.
    pub fn finish(&mut self) {
        // Refused only if the offsets of the batches went back; then the entry would be useless.
        let _ = self.time.maybe_append(self.max_timestamp);
    }

    /// New files without entries (empty or preallocated) are continued from their start.
    pub fn adopt_empty_files(&mut self) {
        self.replace_files = false;
        self.written = (0, 0);
    }

    /// For a segment that is opened: counts from 0 again.
    pub fn restart_interval(&mut self) {
        self.since_entry = 0;
    }

    pub fn should_write(&self) -> bool {
        self.offset.len() - self.written.0 >= UNWRITTEN_ENTRIES
    }

    /// Whether everything is in the files.
    pub fn is_written(&self) -> bool {
        !self.replace_files && self.written == (self.offset.len(), self.time.len())
    }

    /// Writes all entries to new files.
    pub fn write_anew(&mut self, fs: &dyn Fs, files: &SegmentFiles) -> io::Result<()> {
        self.replace_files = true;
        self.write(fs, files, true).map(drop)
    }

    /// Writes what is not in the files yet; `trim` also cuts the bytes after the last entry. True if a file changed.
    pub fn write(&mut self, fs: &dyn Fs, files: &SegmentFiles, trim: bool) -> io::Result<bool> {
        if self.replace_files {
            self.written = (0, 0);
        } else if self.is_written() && !trim {
            return Ok(false);
        }
        let mut changed = self.replace_files;
        let trim = trim || self.replace_files;
        let from = self.written;
        let offset = (
            &files.offset_index,
            self.offset.encode(from.0),
            from.0,
            offset_index::ENTRY_SIZE,
            self.offset.len(),
        );
        let time = (
            &files.time_index,
            self.time.encode(from.1),
            from.1,
            time_index::ENTRY_SIZE,
            self.time.len(),
        );
        for (path, bytes, from, entry_size, len) in [offset, time] {
            let file = fs.open(path, true, true)?;
            if !bytes.is_empty() {
                changed = true;
                file.write_at((from * entry_size) as u64, &bytes)?;
            }
            let end = (len * entry_size) as u64;
            if trim && file.len()? != end {
                changed = true;
                file.set_len(end)?;
            }
        }
        self.written = (self.offset.len(), self.time.len());
        self.replace_files = false;
        Ok(changed)
    }
}

/// Indexes of a segment, and what was found when the end of its log was checked.
#[derive(Debug)]
pub(crate) struct LoadedIndexes {
    pub indexes: SegmentIndexes,
    /// The files could not be used; this is why.
    pub rebuilt: Option<String>,
    /// Last batch read, if any.
    pub last: Option<BatchMeta>,
    /// Next offset of the batch before it, and of the last one.
    pub before_last: i64,
    pub next_offset: i64,
    /// Where the walk ended, and why.
    pub end: u64,
    pub why: WalkEnd,
}

/// How to check the batches after the last index entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// Headers alone: sealed segments, clean stops.
    Headers,
    /// Checksums too: the growing end of a log that another process writes.
    Checksums,
}

/// Loads the indexes of the first `size` bytes of a log.
pub(crate) struct IndexLoader<'a> {
    pub fs: &'a dyn Fs,
    pub files: &'a SegmentFiles,
    pub file: &'a dyn File,
    pub base_offset: i64,
    pub size: u64,
    /// index.interval.bytes.
    pub interval: u64,
    pub check: Check,
}

impl IndexLoader<'_> {
    /// Loads from the files if their last entries, which are cheap to check, agree with the log, else from the log itself.
    /// Never writes.
    pub fn load(&self) -> io::Result<LoadedIndexes> {
        let reason = match self.load_if_consistent()? {
            Ok(indexes) => {
                // From the last entry but one, so that the batch of the last one is compared with those before it.
                let start = indexes
                    .offset
                    .len()
                    .checked_sub(2)
                    .and_then(|i| indexes.offset.entry(i));
                let start = start.map_or(0, |entry| entry.position);
                // No entries are added, except beside a writer, whose last entries may not be in the files yet.
                let interval = if self.check == Check::Checksums {
                    self.interval
                } else {
                    u64::MAX
                };
                let last_entry = indexes.offset.last().map_or(0, |entry| entry.position);
                let loaded = self.walk(indexes, start, interval)?;
                if last_entry == 0 || loaded.end > last_entry {
                    return Ok(loaded);
                }
                "the last offset entries lead to a damaged batch".to_string()
            }
            Err(reason) => reason,
        };
        let loaded = self.walk(SegmentIndexes::new(self.base_offset), 0, self.interval)?;
        Ok(LoadedIndexes {
            rebuilt: Some(reason),
            ..loaded
        })
    }

    fn walk(&self, mut indexes: SegmentIndexes, from: u64, mut interval: u64) -> io::Result<LoadedIndexes> {
        let mut last = None;
        let (mut before_last, mut next_offset) = (self.base_offset, self.base_offset);
        let order = OffsetOrder::of_segment(self.base_offset);
        let mut headers = HeaderWalk::new(self.file, from, self.size).in_order(order);
        let mut checked = CheckedWalk::new(self.file, from, self.size).in_order(order);
        let indexed = indexes.offset.last().map_or(0, |entry| entry.position);
        loop {
            let (next, end) = match self.check {
                Check::Headers => (headers.next()?, headers.position()),
                Check::Checksums => (checked.next()?.map(|(batch, _)| batch), checked.position()),
            };
            match next {
                Ok(batch) => {
                    if batch.position >= indexed && indexes.on_batch(&batch, interval).is_err() {
                        // Refused after a damaged last entry: an index that lacks entries is still right.
                        interval = u64::MAX;
                    }
                    (before_last, next_offset) = (next_offset, batch.header.next_offset());
                    last = Some(batch);
                }
                Err(why) => {
                    return Ok(LoadedIndexes {
                        indexes,
                        rebuilt: None,
                        last,
                        before_last,
                        next_offset,
                        end,
                        why,
                    });
                }
            }
        }
    }

    /// Reads the files; `Err` is the reason why they are not used.
    fn load_if_consistent(&self) -> io::Result<Result<SegmentIndexes, String>> {
        let base = self.base_offset;
        let mut contents = Vec::new();
        for path in [&self.files.offset_index, &self.files.time_index] {
            match self.fs.read(path) {
                Ok(bytes) => contents.push(bytes),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    return Ok(Err(format!("{} is missing", path.display())));
                }
                Err(e) => return Err(io::Error::new(e.kind(), format!("{}: {e}", path.display()))),
            }
        }
        let offset = OffsetIndex::parse(base, &contents[0]);
        let time = TimeIndex::parse(base, &contents[1]);
        let max_timestamp = time.last();
        if let Some(entry) = offset.last() {
            let right = self.header_at(entry.position)?.is_some_and(|header| {
                header.base_offset >= base && header.base_offset <= entry.offset && header.last_offset() <= entry.offset
            });
            if !right {
                return Ok(Err(format!(
                    "the last offset entry ({}, {}) does not lead to its batch",
                    entry.offset, entry.position
                )));
            }
            if time.len() == 0 && self.header_at(0)?.is_some_and(|first| first.max_timestamp >= 0) {
                return Ok(Err("the time index is empty".to_string()));
            }
        }
        if time.len() > 0 {
            let mut walk = HeaderWalk::new(self.file, offset.lookup(max_timestamp.offset).position, self.size);
            let found = loop {
                match walk.next()? {
                    Ok(batch) if batch.last_offset() < max_timestamp.offset => {}
                    Ok(batch) => break Some(batch),
                    Err(_) => break None,
                }
            };
            if found.is_none_or(|batch| batch.header.max_timestamp != max_timestamp.timestamp) {
                return Ok(Err(format!(
                    "the last time entry ({}, {}) does not lead to its batch",
                    max_timestamp.timestamp, max_timestamp.offset
                )));
            }
        }
        let written = (offset.len(), time.len());
        Ok(Ok(SegmentIndexes {
            offset,
            time,
            max_timestamp,
            since_entry: 0,
            written,
            replace_files: false,
        }))
    }

    fn header_at(&self, position: u64) -> io::Result<Option<BatchHeader>> {
        if position >= self.size {
            return Ok(None);
        }
        let batch = HeaderWalk::new(self.file, position, self.size).next()?;
        Ok(batch.ok().map(|batch| batch.header))
    }
}
