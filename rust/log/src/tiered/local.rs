//! Objects of tiered storage in a directory of this machine, as the plug-in's `FileSystemStorage` writes them.

use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::fs::{Fs, Object, ObjectStore, RealFs, join};

/// The directories of a topic, of a partition, and its files.
const LEVELS: usize = 3;

#[derive(Debug)]
pub(super) struct LocalDirectory {
    fs: RealFs,
    root: PathBuf,
}

impl LocalDirectory {
    pub fn new(root: &Path) -> Self {
        Self {
            fs: RealFs::new(),
            root: root.to_path_buf(),
        }
    }

    fn walk(&self, dir: &str, levels: usize, found: &mut Vec<Object>) {
        // What cannot be read is skipped.
        for entry in self.fs.read_dir(&self.root.join(dir)).unwrap_or_default() {
            let key = join(dir, &entry.name);
            if !entry.is_dir {
                let modified_ms = self.fs.modified_ms(&self.root.join(&key)).unwrap_or_default();
                let len = entry.len;
                found.push(Object { key, len, modified_ms });
            } else if levels > 1 {
                self.walk(&key, levels - 1, found);
            }
        }
    }
}

impl ObjectStore for LocalDirectory {
    fn list(&self) -> Result<Vec<Object>> {
        let mut found = Vec::new();
        self.walk("", LEVELS, &mut found);
        Ok(found)
    }

    fn read(&self, object: &Object, range: Range<u64>) -> Result<Bytes> {
        let file = self.fs.open(&self.root.join(&object.key), false, false)?;
        if file.len()? != object.len {
            let reason = "the file has changed since the directory was opened; open it again";
            return Err(Error::new(ErrorKind::NotFound, reason));
        }
        file.read_at(
            range.start,
            usize::try_from(range.end - range.start).map_err(Error::other)?,
        )
    }
}
