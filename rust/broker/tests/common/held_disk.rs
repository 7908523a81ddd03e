//! A disk in memory on which the fsyncs of one partition's log can be held up, and those of another one fail.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fletchlog_log::fs::{DirEntry, DirLock, File, Fs, LockError, MemoryFs};

/// What is held up.
#[derive(Debug, Default)]
pub struct Hold {
    /// While it is locked, every fsync of the partition's log waits.
    pub disk: Mutex<()>,
    /// The beginning of the name of the partition's directory.
    pub partition: Mutex<&'static str>,
    /// The name of a partition's directory; every fsync of its log fails. Empty: none.
    pub failing: Mutex<&'static str>,
    /// Fsyncs that were or are held up.
    pub held: AtomicU64,
    /// The beginning of the names of directories that cannot be removed. Empty: all can be.
    pub unremovable: Mutex<&'static str>,
    /// Directories that were to be removed.
    pub removals: AtomicU64,
    /// How many times the metadata was read.
    pub looks: AtomicU64,
    /// Checkpoints of a log directory that were written.
    pub checkpoints: AtomicU64,
}

#[derive(Debug)]
pub struct HeldFs {
    inner: MemoryFs,
    hold: Arc<Hold>,
}

impl HeldFs {
    pub fn new() -> (Arc<Self>, Arc<Hold>) {
        let hold = Arc::<Hold>::default();
        let fs = Arc::new(Self {
            inner: MemoryFs::new(),
            hold: hold.clone(),
        });
        (fs, hold)
    }
}

#[derive(Debug)]
struct HeldFile {
    inner: Arc<dyn File>,
    path: PathBuf,
    hold: Arc<Hold>,
}

impl File for HeldFile {
    fn read_at(&self, position: u64, len: usize) -> io::Result<Bytes> {
        self.inner.read_at(position, len)
    }
    fn read_into(&self, position: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.read_into(position, buf)
    }
    fn write_at(&self, position: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write_at(position, data)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn sync(&self) -> io::Result<()> {
        let partition = *self.hold.partition.lock().unwrap();
        let dir = self.path.parent().and_then(Path::file_name).unwrap().to_string_lossy();
        let is_log = self.path.extension().is_some_and(|extension| extension == "log");
        if is_log && dir == *self.hold.failing.lock().unwrap() {
            return Err(io::Error::other("the disk fails, as the test wants"));
        }
        if is_log && !partition.is_empty() && dir.starts_with(partition) {
            self.hold.held.fetch_add(1, Ordering::SeqCst);
            drop(self.hold.disk.lock().unwrap());
        }
        self.inner.sync()
    }
}

impl Fs for HeldFs {
    fn open(&self, path: &Path, write: bool, create: bool) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(HeldFile {
            inner: self.inner.open(path, write, create)?,
            path: path.to_path_buf(),
            hold: self.hold.clone(),
        }))
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        if path.ends_with("fletchlog.metadata") {
            self.hold.looks.fetch_add(1, Ordering::SeqCst);
        }
        self.inner.read(path)
    }
    fn replace(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        if path.to_string_lossy().ends_with("-offset-checkpoint") {
            self.hold.checkpoints.fetch_add(1, Ordering::SeqCst);
        }
        self.inner.replace(path, data)
    }
    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner.read_dir(path)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.hold.removals.fetch_add(1, Ordering::SeqCst);
        let name = path.file_name().unwrap().to_string_lossy();
        let unremovable = *self.hold.unremovable.lock().unwrap();
        if !unremovable.is_empty() && name.starts_with(unremovable) {
            return Err(io::Error::other("the disk keeps it, as the test wants"));
        }
        self.inner.remove_dir_all(path)
    }
    fn exists(&self, path: &Path) -> bool {
        self.inner.exists(path)
    }
    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        self.inner.modified_ms(path)
    }
    fn set_modified_ms(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        self.inner.set_modified_ms(path, modified_ms)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_dir(path)
    }
    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_all(dir)
    }
    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, LockError> {
        self.inner.lock_dir(dir)
    }
}
