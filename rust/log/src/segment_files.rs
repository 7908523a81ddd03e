//! Where the files of one segment are. Usually the canonical names; a read-only log beside an unfinished replacement of
//! segments reads the `.swap` files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::file_name::{LOG, OFFSET_INDEX, SWAP, TIME_INDEX, TXN_INDEX, segment_file};

#[derive(Debug, Clone)]
pub(crate) struct SegmentFiles {
    pub log: PathBuf,
    pub offset_index: PathBuf,
    pub time_index: PathBuf,
    pub txn_index: PathBuf,
}

impl SegmentFiles {
    pub fn new(dir: &Path, base_offset: i64) -> Self {
        Self::with_suffix(dir, base_offset, "")
    }

    pub fn with_suffix(dir: &Path, base_offset: i64, suffix: &str) -> Self {
        // Formatted once: opening creates these names for every segment.
        let stem = segment_file(dir, base_offset, "").into_os_string();
        let name = |kind: &str| {
            let mut path = OsString::with_capacity(stem.len() + kind.len() + suffix.len());
            path.extend([stem.as_os_str(), kind.as_ref(), suffix.as_ref()]);
            PathBuf::from(path)
        };
        Self {
            log: name(LOG),
            offset_index: name(OFFSET_INDEX),
            time_index: name(TIME_INDEX),
            txn_index: name(TXN_INDEX),
        }
    }

    /// Whether these are the `.swap` files of a cleaning that was not completed.
    pub fn is_swap(&self) -> bool {
        self.log.as_os_str().as_encoded_bytes().ends_with(SWAP.as_bytes())
    }

    pub fn all(&self) -> [&Path; 4] {
        [&self.log, &self.offset_index, &self.time_index, &self.txn_index]
    }
}
