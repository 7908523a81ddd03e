//! Objects of tiered storage in a directory of this machine, as the plug-in's `FileSystemStorage` writes them.

use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::is_tiered;
use crate::fs::object::join;
use crate::fs::{Fs, Object, ObjectFs, ObjectStore, RealFs};

/// The directories of a topic, of a partition, and its files.
const LEVELS: usize = 3;

/// The objects in a directory and in the two levels of directories below it, as files of a Kafka log directory; `None` if there is no segment
/// of tiered storage.
///
/// # Errors
/// Those of [`ObjectFs::open`].
pub fn open_local(root: &Path) -> Result<Option<ObjectFs>> {
    let store = Directory {
        fs: RealFs::new(),
        root: root.to_path_buf(),
    };
    let objects = store.list()?;
    if !is_tiered(&objects) {
        return Ok(None);
    }
    ObjectFs::of_listing(Arc::new(store), objects, root).map(Some)
}

#[derive(Debug)]
struct Directory {
    fs: RealFs,
    root: PathBuf,
}

impl Directory {
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

impl ObjectStore for Directory {
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
