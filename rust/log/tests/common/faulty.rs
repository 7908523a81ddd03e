//! A disk whose writes and fsyncs can fail, and can be held up.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fletchlog_log::config::Durability;
use fletchlog_log::fs::{DirEntry, DirLock, File, Fs, LockError, MemoryFs};
use fletchlog_log::{AppendError, AppendOrigin, LogConfig, PartitionLog};

use super::{CLEAN, NOW, idempotent, open};

/// What goes wrong.
#[derive(Debug, Default)]
pub struct Faults {
    /// Bytes that `.log` files still take; below 0: no limit.
    pub room: AtomicI64,
    pub write_error: Mutex<Option<io::ErrorKind>>,
    pub sync_error: Mutex<Option<io::ErrorKind>>,
    pub syncs: AtomicU64,
    /// While it is locked, every fsync of a log waits.
    pub disk: Mutex<()>,
    pub writes: AtomicU64,
    /// While it is locked, every write to a log waits.
    pub write_gate: Mutex<()>,
    /// While it is locked, every renaming waits.
    pub rename_gate: Mutex<()>,
    pub renames: AtomicU64,
    pub synced: Mutex<Vec<PathBuf>>,
    pub side_files_fail: Mutex<bool>,
    pub dir_sync_fails: Mutex<bool>,
    /// The call that panics when it has done its work.
    pub panics: Mutex<Option<Call>>,
}

/// Calls that may panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Create,
    Write,
    Sync,
    Rename,
    SyncDir,
    Replace,
}

impl Faults {
    fn done(&self, call: Call) {
        if *self.panics.lock().unwrap() == Some(call) {
            panic!("{call:?} panics, as the test wants");
        }
    }
}

#[derive(Debug)]
pub struct FaultyFs {
    inner: MemoryFs,
    faults: Arc<Faults>,
}

#[derive(Debug)]
pub struct FaultyFile {
    inner: Arc<dyn File>,
    path: PathBuf,
    faults: Arc<Faults>,
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "log")
}

impl File for FaultyFile {
    fn read_at(&self, position: u64, len: usize) -> io::Result<Bytes> {
        self.inner.read_at(position, len)
    }
    fn read_into(&self, position: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.read_into(position, buf)
    }
    fn write_at(&self, position: u64, data: &[u8]) -> io::Result<()> {
        if !is_log(&self.path) {
            return self.inner.write_at(position, data);
        }
        self.faults.writes.fetch_add(1, Ordering::Relaxed);
        drop(self.faults.write_gate.lock().unwrap());
        if let Some(kind) = *self.faults.write_error.lock().unwrap() {
            return Err(kind.into());
        }
        let room = self.faults.room.load(Ordering::Relaxed);
        if room >= 0 {
            // A short write, as a full disk makes it.
            let fits = usize::try_from(room).unwrap().min(data.len());
            self.inner.write_at(position, &data[..fits])?;
            self.faults
                .room
                .fetch_sub(i64::try_from(fits).unwrap(), Ordering::Relaxed);
            if fits < data.len() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            return Ok(());
        }
        self.inner.write_at(position, data)?;
        self.faults.done(Call::Write);
        Ok(())
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn sync(&self) -> io::Result<()> {
        self.faults.synced.lock().unwrap().push(self.path.clone());
        if is_log(&self.path) {
            self.faults.syncs.fetch_add(1, Ordering::Relaxed);
            drop(self.faults.disk.lock().unwrap());
        }
        self.faults.done(Call::Sync);
        self.faults
            .sync_error
            .lock()
            .unwrap()
            .map_or(Ok(()), |kind| Err(kind.into()))
    }
}

impl Fs for FaultyFs {
    fn open(&self, path: &Path, write: bool, create: bool) -> io::Result<Arc<dyn File>> {
        if write && !is_log(path) && *self.faults.side_files_fail.lock().unwrap() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let inner = self.inner.open(path, write, create)?;
        if create {
            self.faults.done(Call::Create);
        }
        Ok(Arc::new(FaultyFile {
            inner,
            path: path.to_path_buf(),
            faults: Arc::clone(&self.faults),
        }))
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.inner.read(path)
    }
    fn replace(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        self.faults.synced.lock().unwrap().push(path.to_path_buf());
        self.inner.replace(path, data)?;
        self.faults.done(Call::Replace);
        Ok(())
    }
    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner.read_dir(path)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.renames.fetch_add(1, Ordering::Relaxed);
        drop(self.faults.rename_gate.lock().unwrap());
        self.inner.rename(from, to)?;
        self.faults.done(Call::Rename);
        Ok(())
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
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
        self.faults.synced.lock().unwrap().push(path.to_path_buf());
        if *self.faults.dir_sync_fails.lock().unwrap() {
            return Err(io::ErrorKind::Other.into());
        }
        self.faults.done(Call::SyncDir);
        self.inner.sync_dir(path)
    }
    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_all(dir)
    }
    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, LockError> {
        self.inner.lock_dir(dir)
    }
}

pub fn faulty(config: LogConfig) -> (Arc<dyn Fs>, PathBuf, PartitionLog, Arc<Faults>) {
    let faults = Arc::new(Faults {
        room: AtomicI64::new(-1),
        ..Faults::default()
    });
    let fs: Arc<dyn Fs> = Arc::new(FaultyFs {
        inner: MemoryFs::new(),
        faults: Arc::clone(&faults),
    });
    let dir = PathBuf::from("/data/t-0");
    let log = open(&fs, &dir, config, CLEAN);
    (fs, dir, log, faults)
}

pub fn try_append(log: &PartitionLog, sequence: i32) -> Result<i64, AppendError> {
    log.append_as_leader(idempotent(7, 0, sequence, 1), 0, AppendOrigin::Client, NOW)
        .map(|info| info.first_offset)
}

pub fn synced_log() -> (PartitionLog, Arc<Faults>) {
    let (.., log, faults) = faulty(LogConfig {
        durability: Durability::Fsync,
        ..LogConfig::default()
    });
    (log, faults)
}
