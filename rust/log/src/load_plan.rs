//! What the names in a partition directory mean (spec 1.11): which segments exist once an interrupted deletion or replacement
//! is completed, and what must be done to complete it. Reading it changes nothing. Kafka: `LogLoader#load`.

use fletchlog_records::planted;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::LogError;
use crate::batch_walk::{HeaderWalk, OffsetOrder};
use crate::file_name::{CLEANED, DELETED, LOG, OFFSET_INDEX, SWAP, TIME_INDEX, TORN, TXN_INDEX, offset_of};
use crate::fs::{DirEntry, Fs, open_to_read, remove_file, sync_dir};
use crate::producer_snapshot;
use crate::segment_files::SegmentFiles;

/// Kafka: `FileRecords`, whose positions are 32-bit numbers.
const MAX_SEGMENT_BYTES: u64 = i32::MAX.cast_unsigned() as u64;

/// A segment and its files under the names they have now.
#[derive(Debug, Clone)]
pub(crate) struct PlannedSegment {
    pub files: SegmentFiles,
    pub size: u64,
    pub has_offset_index: bool,
    pub has_time_index: bool,
    pub has_txn_index: bool,
}

/// The directory as it is meant to be.
#[derive(Debug)]
pub(crate) struct LoadPlan {
    pub segments: BTreeMap<i64, PlannedSegment>,
    pub snapshots: BTreeMap<i64, PathBuf>,
    /// To be removed by a writer, in this order, before the renames.
    pub remove: Vec<PathBuf>,
    /// To be renamed by a writer.
    pub rename: Vec<(PathBuf, PathBuf)>,
    /// A recovery has dropped segments behind a cut one, now or before.
    pub has_torn: bool,
}

/// A file of a segment, as its name says.
struct SegmentFile {
    base: i64,
    /// `.log`, ...
    kind: &'static str,
    is_swap: bool,
    path: PathBuf,
    len: u64,
}

impl SegmentFile {
    fn parse(dir: &Path, entry: &DirEntry) -> Option<Self> {
        let stripped = entry.name.strip_suffix(SWAP);
        let name = stripped.unwrap_or(&entry.name);
        [LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX].into_iter().find_map(|kind| {
            Some(Self {
                base: offset_of(name, kind)?,
                kind,
                is_swap: stripped.is_some(),
                path: dir.join(&entry.name),
                len: entry.len,
            })
        })
    }
}

impl LoadPlan {
    /// Whether the segments of `before` are in the same files here, with any others only after them.
    pub fn begins_with(&self, before: &Self) -> bool {
        let files = |plan: &Self| {
            plan.segments
                .values()
                .map(|segment| segment.files.log.clone())
                .collect::<Vec<_>>()
        };
        files(self).starts_with(&files(before))
    }

    /// Whether no file is left to rename or remove.
    pub fn is_clean(&self) -> bool {
        self.remove.is_empty() && self.rename.is_empty()
    }

    /// # Errors
    /// `Damaged` for a `.log` file that no log can have.
    pub fn read(fs: &dyn Fs, dir: &Path) -> Result<Self, LogError> {
        let mut entries = fs.read_dir(dir).map_err(|e| LogError::io("list", dir, e))?;
        let snapshots = producer_snapshot::list(dir, &entries);
        entries.retain(|entry| !entry.is_dir);
        let mut files = Vec::new();
        for entry in &entries {
            let file = SegmentFile::parse(dir, entry);
            check_name_and_size(dir, entry, file.as_ref())?;
            files.extend(file);
        }
        let mut plan = Self {
            segments: BTreeMap::new(),
            snapshots,
            remove: Vec::new(),
            rename: Vec::new(),
            has_torn: entries.iter().any(|entry| entry.name.ends_with(TORN)),
        };
        plan.remove_unfinished(dir, &entries, &mut files);
        let replaced = plan.complete_swaps(fs, &files)?;
        let side_files = plan.list_segments(dir, files, &replaced);
        plan.assign_side_files(side_files);
        // The snapshot at the base of a replaced segment is removed with it.
        plan.remove
            .extend(plan.snapshots.range(replaced.clone()).map(|(_, path)| path.clone()));
        plan.snapshots.retain(|offset, _| !replaced.contains(offset));
        Ok(plan)
    }

    /// Pass 1: removes the files of an interrupted deletion or cleaning, and the `.swap` files of a replacement that still has a
    /// `.cleaned` file.
    fn remove_unfinished(&mut self, dir: &Path, entries: &[DirEntry], files: &mut Vec<SegmentFile>) {
        let mut smallest_cleaned = i64::MAX;
        for name in entries.iter().map(|entry| entry.name.as_str()) {
            if name.ends_with(DELETED) || name.ends_with(CLEANED) {
                self.remove.push(dir.join(name));
            }
            if name.ends_with(CLEANED) {
                let base = name.split('.').next().and_then(|digits| digits.parse().ok());
                smallest_cleaned = smallest_cleaned.min(base.unwrap_or(i64::MAX));
            }
        }
        let unfinished = files.extract_if(.., |file| file.is_swap && file.base >= smallest_cleaned);
        self.remove.extend(unfinished.map(|file| file.path));
    }

    /// Pass 2: complete replacements are renamed. Returns the offsets of the segments that they replace.
    fn complete_swaps(&mut self, fs: &dyn Fs, files: &[SegmentFile]) -> Result<Range<i64>, LogError> {
        let mut replaced = 0..0;
        for file in files.iter().filter(|file| file.is_swap) {
            if file.kind == LOG {
                let end = next_offset(fs, &file.path, file.len, file.base)?;
                replaced = if replaced.is_empty() {
                    file.base..end.max(file.base + 1)
                } else {
                    replaced.start.min(file.base)..replaced.end.max(end)
                };
            }
            self.rename.push((file.path.clone(), file.path.with_extension("")));
        }
        Ok(replaced)
    }

    /// Pass 3: lists the resulting segments. Returns the side files.
    fn list_segments(&mut self, dir: &Path, files: Vec<SegmentFile>, replaced: &Range<i64>) -> Vec<SegmentFile> {
        let mut side_files = Vec::new();
        for file in files {
            if !file.is_swap && replaced.contains(&file.base) {
                self.remove.push(file.path);
            } else if file.kind == LOG {
                let segment = PlannedSegment {
                    files: SegmentFiles::with_suffix(dir, file.base, if file.is_swap { SWAP } else { "" }),
                    size: file.len,
                    has_offset_index: false,
                    has_time_index: false,
                    has_txn_index: false,
                };
                self.segments.insert(file.base, segment);
            } else {
                side_files.push(file);
            }
        }
        side_files
    }

    /// Pass 4: assigns side files to their segments. Those without a segment are removed.
    fn assign_side_files(&mut self, side_files: Vec<SegmentFile>) {
        for file in side_files {
            let Some(segment) = self.segments.get_mut(&file.base) else {
                self.rename.retain(|(from, _)| *from != file.path);
                self.remove.push(file.path);
                continue;
            };
            // A replacement may have been renamed in part: each side file keeps its current name.
            let (path, is_present) = match file.kind {
                OFFSET_INDEX => (&mut segment.files.offset_index, &mut segment.has_offset_index),
                TIME_INDEX => (&mut segment.files.time_index, &mut segment.has_time_index),
                _ => (&mut segment.files.txn_index, &mut segment.has_txn_index),
            };
            (*path, *is_present) = (file.path, true);
        }
    }

    /// Does what the plan says; afterwards all files have their canonical names.
    pub fn apply(&mut self, fs: &dyn Fs, dir: &Path) -> Result<(), LogError> {
        let replaces = !self.rename.is_empty();
        let sync_names = || match replaces {
            true => sync_dir(fs, dir),
            false => Ok(()),
        };
        // A killed process may not have synced the names of the `.swap` files: a power loss must not remove both them and the
        // segments that they replace.
        if !planted!("replaced-removed-before-swap-names-are-synced") {
            sync_names()?;
        }
        for path in self.remove.drain(..) {
            remove_file(fs, &path)?;
        }
        // The removal of the replaced segments must be on disk before the `.swap` names, which request it, disappear.
        if !planted!("swap-renamed-before-the-replaced-are-gone") {
            sync_names()?;
        }
        for (from, to) in self.rename.drain(..) {
            fs.rename(&from, &to).map_err(|e| LogError::io("rename", &from, e))?;
        }
        for (base, segment) in &mut self.segments {
            segment.files = SegmentFiles::new(dir, *base);
        }
        Ok(())
    }
}

fn check_name_and_size(dir: &Path, entry: &DirEntry, file: Option<&SegmentFile>) -> Result<(), LogError> {
    let reason = if entry.len > MAX_SEGMENT_BYTES && file.is_some_and(|file| file.kind == LOG) {
        format!(
            "it has {} bytes, and no segment has more than {MAX_SEGMENT_BYTES}; nothing was changed, restore the file",
            entry.len
        )
    } else if let Some(stem) = entry.name.strip_suffix(LOG).filter(|_| file.is_none()) {
        format!("a segment is named after its base offset in 20 digits, found {stem:?}; move the file away")
    } else {
        return Ok(());
    };
    Err(LogError::damaged(&dir.join(&entry.name), 0, reason))
}

/// Kafka: `LogSegment#readNextOffset`.
fn next_offset(fs: &dyn Fs, path: &Path, size: u64, base: i64) -> Result<i64, LogError> {
    let file = open_to_read(fs, path)?;
    let mut walk = HeaderWalk::new(&*file, 0, size).in_order(OffsetOrder::of_segment(base));
    let mut next = base;
    loop {
        match walk.next().map_err(|e| LogError::io("read", path, e))? {
            Ok(batch) => next = batch.header.next_offset(),
            Err(why) => {
                // The segments that it covers will be removed, so its offsets must be right.
                why.unless_disorder(path, walk.position())?;
                return Ok(next);
            }
        }
    }
}
