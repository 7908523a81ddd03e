//! What the names in a partition directory mean (spec 1.11): which segments there are once an interrupted deletion or
//! replacement is completed, and what has to be done for that. Reading it changes nothing. Kafka: `LogLoader#load`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::LogError;
use crate::batch_walk::{HeaderWalk, OffsetOrder};
use crate::file_name::{CLEANED, DELETED, LOG, OFFSET_INDEX, SWAP, TIME_INDEX, TXN_INDEX, offset_of};
use crate::fs::Fs;
use crate::producer_snapshot;
use crate::segment_files::SegmentFiles;

/// Kafka: `FileRecords`, whose positions are 32-bit numbers.
const MAX_SEGMENT_BYTES: u64 = i32::MAX.cast_unsigned() as u64;
const SIDE_FILES: [&str; 3] = [OFFSET_INDEX, TIME_INDEX, TXN_INDEX];

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
}

/// Base offset, kind (`.log`, ...) and whether it is a `.swap` file.
fn segment_file(name: &str) -> Option<(i64, &'static str, bool)> {
    let (name, swap) = name.strip_suffix(SWAP).map_or((name, false), |name| (name, true));
    [LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX]
        .into_iter()
        .find_map(|kind| Some((offset_of(name, kind)?, kind, swap)))
}

impl LoadPlan {
    pub fn read(fs: &dyn Fs, dir: &Path) -> Result<Self, LogError> {
        let entries = fs.read_dir(dir).map_err(|e| LogError::io("list", dir, e))?;
        let files: Vec<_> = entries.iter().filter(|entry| !entry.is_dir).collect();
        let mut remove: Vec<PathBuf> = Vec::new();

        // Pass 1: what never came to be goes, and with it what was only complete together with it.
        let mut smallest_cleaned = i64::MAX;
        for file in &files {
            let name = file.name.as_str();
            if name.ends_with(DELETED) || name.ends_with(CLEANED) {
                remove.push(dir.join(name));
            }
            if name.ends_with(CLEANED) {
                let base = name.split('.').next().and_then(|digits| digits.parse().ok());
                smallest_cleaned = smallest_cleaned.min(base.unwrap_or(i64::MAX));
            }
            if file.len > MAX_SEGMENT_BYTES && segment_file(name).is_some_and(|(_, kind, _)| kind == LOG) {
                let reason = format!(
                    "it has {} bytes, and no segment has more than {MAX_SEGMENT_BYTES}; nothing was changed, restore the file",
                    file.len
                );
                return Err(LogError::damaged(&dir.join(name), 0, reason));
            }
            if let Some(stem) = name.strip_suffix(LOG)
                && offset_of(name, LOG).is_none()
            {
                let reason = format!(
                    "a segment is named after its base offset in 20 digits, found {stem:?}; move the file away"
                );
                return Err(LogError::Damaged {
                    path: dir.join(name),
                    position: 0,
                    reason,
                });
            }
        }

        // Pass 2: complete replacements take the place of the segments they cover.
        let mut rename = Vec::new();
        let mut replaced = 0..0;
        let swaps: Vec<_> = files
            .iter()
            .filter_map(|file| Some((file, segment_file(&file.name)?)))
            .filter(|(_, (_, _, swap))| *swap)
            .collect();
        for (file, (base, kind, _)) in swaps {
            let path = dir.join(&file.name);
            if base >= smallest_cleaned {
                remove.push(path);
                continue;
            }
            if kind == LOG {
                let end = next_offset(fs, &path, file.len, base)?;
                replaced = if replaced.is_empty() {
                    base..end.max(base + 1)
                } else {
                    replaced.start.min(base)..replaced.end.max(end)
                };
            }
            rename.push((
                path.clone(),
                dir.join(file.name.strip_suffix(SWAP).unwrap_or(&file.name)),
            ));
        }

        // Pass 3 and 4: the segments that result, and side files that belong to none.
        let mut logs: BTreeMap<i64, (u64, &str)> = BTreeMap::new();
        let mut side_files: Vec<(i64, &'static str, bool, PathBuf)> = Vec::new();
        for file in &files {
            let Some((base, kind, swap)) = segment_file(&file.name) else {
                continue;
            };
            let path = dir.join(&file.name);
            if swap && base >= smallest_cleaned {
                continue;
            }
            if !swap && replaced.contains(&base) {
                remove.push(path);
            } else if kind == LOG {
                logs.insert(base, (file.len, if swap { SWAP } else { "" }));
            } else {
                side_files.push((base, kind, swap, path));
            }
        }
        let mut segments: BTreeMap<i64, PlannedSegment> = BTreeMap::new();
        for (base, (size, suffix)) in &logs {
            let files = SegmentFiles::with_suffix(dir, *base, suffix);
            segments.insert(
                *base,
                PlannedSegment {
                    files,
                    size: *size,
                    has_offset_index: false,
                    has_time_index: false,
                    has_txn_index: false,
                },
            );
        }
        for (base, kind, _, path) in side_files {
            match segments.get_mut(&base) {
                // A replacement may have been renamed in part: each side file keeps the name it has.
                Some(segment) => {
                    let [offset, time, txn] = SIDE_FILES.map(|side| side == kind);
                    if offset {
                        segment.files.offset_index = path;
                        segment.has_offset_index = true;
                    } else if time {
                        segment.files.time_index = path;
                        segment.has_time_index = true;
                    } else if txn {
                        segment.files.txn_index = path;
                        segment.has_txn_index = true;
                    }
                }
                None => {
                    rename.retain(|(from, _)| *from != path);
                    remove.push(path);
                }
            }
        }
        let mut snapshots = producer_snapshot::list(dir, &entries);
        snapshots.retain(|offset, path| {
            // It goes with the segment of its name.
            let kept = !replaced.contains(offset);
            if !kept {
                remove.push(path.clone());
            }
            kept
        });
        Ok(Self {
            segments,
            snapshots,
            remove,
            rename,
        })
    }

    /// Does what the plan says; afterwards all files have their canonical names.
    pub fn apply(&mut self, fs: &dyn Fs, dir: &Path) -> Result<(), LogError> {
        let replaces = !self.rename.is_empty();
        let sync_names = || match replaces {
            true => fs.sync_dir(dir).map_err(|e| LogError::io("sync", dir, e)),
            false => Ok(()),
        };
        // Whoever was killed may not have lived to sync the names of the `.swap` files: a power loss must not take them and what
        // they replace.
        sync_names()?;
        for path in self.remove.drain(..) {
            fs.remove_file(&path).map_err(|e| LogError::io("remove", &path, e))?;
        }
        // What is replaced is gone for good before the `.swap` files that tell so.
        sync_names()?;
        for (from, to) in self.rename.drain(..) {
            fs.rename(&from, &to).map_err(|e| LogError::io("rename", &from, e))?;
        }
        for (base, segment) in &mut self.segments {
            segment.files = SegmentFiles::new(dir, *base);
        }
        Ok(())
    }
}

/// Kafka: `LogSegment#readNextOffset`.
fn next_offset(fs: &dyn Fs, path: &Path, size: u64, base: i64) -> Result<i64, LogError> {
    let file = fs.open(path, false, false).map_err(|e| LogError::io("open", path, e))?;
    let mut walk = HeaderWalk::new(&*file, 0, size).in_order(OffsetOrder::of_segment(base));
    let mut next = base;
    loop {
        match walk.next().map_err(|e| LogError::io("read", path, e))? {
            Ok(batch) => next = batch.header.next_offset(),
            Err(why) => {
                // What it covers is removed for it.
                why.unless_disorder(path, walk.position())?;
                return Ok(next);
            }
        }
    }
}
