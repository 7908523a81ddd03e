//! The file system as the log needs it: real, in memory, objects of a store, or simulated.

mod file_cache;
mod memory;
mod object;
mod ofd_lock;
mod os_file;
mod read_buffers;
mod real;

pub use memory::MemoryFs;
pub(crate) use object::join;
pub use object::{Object, ObjectFs, ObjectStore};
pub use read_buffers::free_unused_buffers;
pub use real::RealFs;

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::LogError;

/// An open file. Positions are bytes from the start.
#[allow(clippy::len_without_is_empty)] // a system call; no caller needs to know whether it is 0
pub trait File: Send + Sync + Debug {
    /// Reads up to `len` bytes at `position` (fewer only at the end of the file).
    fn read_at(&self, position: u64, len: usize) -> io::Result<Bytes>;
    /// Reads into `buf`, returns how many bytes (fewer only at the end of the file).
    fn read_into(&self, position: u64, buf: &mut [u8]) -> io::Result<usize>;
    /// Writes all bytes at `position`.
    fn write_at(&self, position: u64, data: &[u8]) -> io::Result<()>;
    /// Cuts or extends (with zeros) the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// The first position at or after this one where something was written; `None`: only a hole follows, which reads as zeros.
    fn next_data(&self, position: u64) -> io::Result<Option<u64>> {
        Ok(Some(position))
    }
    /// Length now.
    fn len(&self) -> io::Result<u64>;
    /// fdatasync.
    fn sync(&self) -> io::Result<()>;
    /// Whether `path` leads to this file, and not to one that has replaced it. False if that is not known.
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let _ = path;
        Ok(false)
    }
    /// `true`: the file is about to be renamed or removed while holders of this handle still read it, so its descriptor stays
    /// open until the handle is dropped. `false`: that did not happen, and the file may be opened by its name again.
    fn keep_open(&self, keep: bool) -> io::Result<()> {
        let _ = keep;
        Ok(())
    }
}

/// An entry of [`Fs::read_dir`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// File name.
    pub name: String,
    /// A directory, or a link to one.
    pub is_dir: bool,
    /// Bytes, 0 for directories.
    pub len: u64,
}

/// A file system.
pub trait Fs: Send + Sync + Debug {
    /// Whether this view never changes and cannot be written: readers need not refresh.
    fn is_snapshot(&self) -> bool {
        false
    }
    /// Whether nothing waits for a disk.
    fn is_in_memory(&self) -> bool {
        false
    }
    /// Opens for reading; `write` also for writing; `create` creates a missing file (mode 0640).
    fn open(&self, path: &Path, write: bool, create: bool) -> io::Result<Arc<dyn File>>;
    /// As [`Fs::open`], for a segment's `.log`: handles of many segments share the process's descriptors, so holding one
    /// does not mean that a descriptor is open.
    fn open_segment(&self, path: &Path, write: bool, create: bool) -> io::Result<Arc<dyn File>> {
        self.open(path, write, create)
    }
    /// Reads a whole (small) file. One of more than 2^31-1 bytes is an error, and nothing of it is read.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Drops the clean pages of a file from the page cache: the next read comes from the disk. After a failed fsync the page
    /// cache may have bytes that no later fsync writes.
    fn drop_cache(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        Ok(())
    }
    /// Replaces a small file atomically: `<name>.tmp`, fsync, rename, directory fsync.
    fn replace(&self, path: &Path, data: &[u8]) -> io::Result<()>;
    /// Replaces a small file atomically: `<name>.tmp`, fsync, rename. Until the directory is synced a power loss may undo it, but
    /// it never leaves a file without its bytes.
    fn replace_without_name(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        self.replace(path, data)
    }
    /// Entries of a directory, by name.
    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>>;
    /// Creates a directory and its parents (mode 0750).
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Renames within a file system, replacing the target.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file; a missing one is not an error.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory and what is in it.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Whether the path exists.
    fn exists(&self, path: &Path) -> bool;
    /// Modification time, ms since the epoch.
    fn modified_ms(&self, path: &Path) -> io::Result<i64>;
    /// Sets the modification time, ms since the epoch.
    fn set_modified_ms(&self, path: &Path, modified_ms: i64) -> io::Result<()>;
    /// Makes names in this directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// A function that does what [`Fs::sync_dir`] does and needs no new descriptor: for a change that must not stop half-way.
    fn dir_sync<'a>(&'a self, path: &'a Path) -> io::Result<DirSync<'a>> {
        Ok(Box::new(|| self.sync_dir(path)))
    }
    /// Makes everything below a directory durable at once, names included, and with it all other files on the same device.
    /// From a few dozen files on, cheaper than an fsync of each. A failed write-back is still reported by the file's own
    /// fsync.
    fn sync_all(&self, dir: &Path) -> io::Result<()>;
    /// Takes the exclusive lock on `<dir>/.lock`, created if missing: an OFD lock, so that it excludes a Kafka broker (Java
    /// locks the same file) and other fletchlog writers, and is not lost when another descriptor closes.
    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, LockError>;
    /// Bytes of the device that holds a directory: all of them, and those that are free for this process. `None`: no device.
    fn space(&self, dir: &Path) -> io::Result<Option<(u64, u64)>> {
        let _ = dir;
        Ok(None)
    }
    /// The path as the user knows it, for messages.
    fn display(&self, path: &Path) -> PathBuf {
        path.to_path_buf()
    }
}

/// Opens a file for reading only.
pub(crate) fn open_to_read(fs: &dyn Fs, path: &Path) -> Result<Arc<dyn File>, LogError> {
    fs.open(path, false, false).map_err(|e| LogError::io("open", path, e))
}

/// Removes a file; a missing one is not an error.
pub(crate) fn remove_file(fs: &dyn Fs, path: &Path) -> Result<(), LogError> {
    fs.remove_file(path).map_err(|e| LogError::io("remove", path, e))
}

/// Makes names in a directory durable.
pub(crate) fn sync_dir(fs: &dyn Fs, path: &Path) -> Result<(), LogError> {
    fs.sync_dir(path).map_err(|e| LogError::io("sync", path, e))
}

/// Makes the names in a directory durable.
pub type DirSync<'a> = Box<dyn Fn() -> io::Result<()> + 'a>;

/// Held while a writer has a log directory open; dropping it unlocks (not in a forked child).
pub trait DirLock: Send + Sync + Debug {}

/// Why a directory could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another writer (fletchlog or a Kafka broker) holds the lock.
    #[error("another writer holds the lock{}", pid.map_or(String::new(), |p| format!(" (process {p})")))]
    Held {
        /// Its process id if it is known.
        pid: Option<u32>,
    },
    /// The lock file could not be opened or locked.
    #[error(transparent)]
    Io(#[from] io::Error),
}
