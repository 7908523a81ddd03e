//! A log at one moment, as files that can be copied: the copy has indexes, producers and epochs that match its end, so a
//! reader can open it without reading its last segment.

use std::path::PathBuf;

use crate::fs::Fs;
use crate::partition_log::PartitionLog;
use crate::segment_files::SegmentFiles;
use crate::sync::{lock, read};
use crate::{LogError, producer_snapshot};

/// A file that can be copied from the log unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedFile {
    /// Where it is.
    pub source: PathBuf,
    /// Its path in the copy, relative to the directory of the log.
    pub path: PathBuf,
    /// Bytes to copy from its start: for the last segment those below the log end. `None`: the whole file.
    pub len: Option<u64>,
}

impl PartitionLog {
    /// The files of a copy that ends where the log ends now. Files that the log's directory does not have in this form are
    /// written to `out`, under the paths that they have in the log's directory. Only for a log that is open for reading.
    ///
    /// # Errors
    /// `Closed`, storage errors.
    pub fn seal(&self, out: &dyn Fs) -> Result<Vec<SealedFile>, LogError> {
        // Keeps the view, and the state that belongs to its end, from changing meanwhile.
        let writer = lock(&self.writer);
        let view = self.view()?;
        out.create_dir_all(&self.dir)
            .map_err(|e| LogError::io("create", &self.dir, e))?;
        let mut files = Vec::new();
        let active = view.segments.active();
        for segment in view.segments.as_slice() {
            let names = SegmentFiles::new(&self.dir, segment.base_offset);
            let is_active = segment.base_offset == active.base_offset;
            for (source, path) in segment.files.all().into_iter().zip(names.all()) {
                let is_log = path == names.log;
                if (is_log && view.size_of(segment) > 0) || (!is_active && self.fs.exists(source)) {
                    files.push(SealedFile {
                        source: source.to_path_buf(),
                        path: path.to_path_buf(),
                        len: is_log.then(|| view.size_of(segment)),
                    });
                }
            }
        }
        let names = SegmentFiles::new(&self.dir, active.base_offset);
        if view.active_size == 0 {
            out.open(&names.log, true, true)
                .map_err(|e| LogError::io("write", &names.log, e))?;
        }
        let mut indexes = active.with_indexes(Clone::clone)?;
        indexes.finish();
        indexes
            .write_anew(out, &names)
            .map_err(|e| LogError::io("write", &names.offset_index, e))?;
        let aborted = active.encoded_txn_index();
        if !aborted.is_empty() {
            out.replace(&names.txn_index, &aborted)
                .map_err(|e| LogError::io("write", &names.txn_index, e))?;
        }
        producer_snapshot::write(out, &self.dir, view.log_end_offset, &writer.producers.to_snapshot())?;
        read(&self.epochs).write(out, &self.dir)?;
        Ok(files)
    }
}
