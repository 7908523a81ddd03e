//! Descriptors of segment files, shared by all logs of the process: a log of many segments, or many logs, must not need as
//! many descriptors. A handle opens its file when it is used and may lose the descriptor when others need one. The clock
//! algorithm (second chance) picks the handle to close, so that a read takes no lock but its own.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use rustix::process::{Resource, getrlimit};

use super::File;
use super::os_file::{next_data, open, read_at, read_into};
use crate::error::is_out_of_descriptors;
use crate::sync::lock;

/// Descriptors assumed if the process has no limit.
const WITHOUT_LIMIT: u64 = 65_536;
/// With fewer, reading two logs in turn would reopen their files each time.
const AT_LEAST: u64 = 16;

/// The open handles of a process, oldest first.
#[derive(Debug)]
pub(super) struct FileCache {
    limit: usize,
    open: Mutex<VecDeque<Weak<CachedFile>>>,
}

/// The cache of this process and the process it belongs to. A forked child must not use its parent's: a lock that another
/// thread of the parent held would never be released.
static SHARED: Mutex<Option<(u32, Weak<FileCache>)>> = Mutex::new(None);
/// Spin limit: a lock held for longer belongs to a thread that did not survive a fork.
const TURNS: usize = 10_000;

impl FileCache {
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            open: Mutex::default(),
        })
    }

    /// The cache of this process: it may use half of the process's descriptors, the rest is for everything else.
    pub fn shared() -> Arc<Self> {
        let new = || {
            let limit = getrlimit(Resource::Nofile).current.unwrap_or(WITHOUT_LIMIT) / 2;
            Self::new(usize::try_from(limit.max(AT_LEAST)).unwrap_or(usize::MAX))
        };
        for _ in 0..TURNS {
            let Ok(mut shared) = SHARED.try_lock() else {
                std::thread::yield_now();
                continue;
            };
            let pid = std::process::id();
            let known = shared
                .as_ref()
                .and_then(|(owner, cache)| cache.upgrade().filter(|_| *owner == pid));
            return known.unwrap_or_else(|| {
                let cache = new();
                *shared = Some((pid, Arc::downgrade(&cache)));
                cache
            });
        }
        new()
    }

    /// Registers an opened handle; makes room if there are too many.
    fn opened(&self, file: &Arc<CachedFile>) {
        let mut open = lock(&self.open);
        open.push_back(Arc::downgrade(file));
        if open.len() > self.limit {
            // An eighth at a time: finding what to close means walking over all handles.
            self.make_room(&mut open, self.limit - self.limit / 8);
        }
    }

    /// Closes handles until at most `keep` are open. First those not used since the last pass; a handle with unsynced writes
    /// only if there is no other, because it must be synced before.
    fn make_room(&self, open: &mut VecDeque<Weak<CachedFile>>, keep: usize) {
        for (unused, synced) in [(true, true), (false, true), (false, false)] {
            for _ in 0..open.len() {
                if open.len() <= keep {
                    return;
                }
                let Some(handle) = open.pop_front() else { return };
                let Some(file) = handle.upgrade() else { continue };
                if !file.close_unless(unused, synced) {
                    open.push_back(handle);
                }
            }
        }
    }

    fn halve(&self) {
        let mut open = lock(&self.open);
        let keep = open.len() / 2;
        self.make_room(&mut open, keep);
    }

    /// Opens something. If no descriptor is left, others than this cache use them up: closes half of the cache's own and
    /// tries again.
    pub fn with_room<T>(&self, opens: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match opens() {
            Err(e) if is_out_of_descriptors(&e) => {
                self.halve();
                opens()
            }
            other => other,
        }
    }
}

#[derive(Debug, Default)]
struct Slot {
    file: Option<Arc<fs::File>>,
    /// Device and inode at the first opening.
    identity: Option<(u64, u64)>,
    /// An fsync before closing failed: the next write or fsync must return it.
    failed: Option<i32>,
}

/// A file whose descriptor may be closed and opened again between calls.
#[derive(Debug)]
pub(super) struct CachedFile {
    path: PathBuf,
    write: bool,
    cache: Arc<FileCache>,
    slot: Mutex<Slot>,
    /// Used since it was opened or since the clock's hand last passed.
    used: AtomicBool,
    /// Written since the last fsync.
    dirty: AtomicBool,
    /// The path no longer leads to this file, so the descriptor must stay open.
    keep_open: AtomicBool,
}

impl CachedFile {
    /// Opens a file (and creates it if `create`), to see whether that works.
    pub fn open(cache: &Arc<FileCache>, path: &Path, write: bool, create: bool) -> io::Result<Arc<Self>> {
        let file = Arc::new(Self {
            path: path.to_path_buf(),
            write,
            cache: Arc::clone(cache),
            slot: Mutex::default(),
            used: AtomicBool::new(false),
            dirty: AtomicBool::new(false),
            keep_open: AtomicBool::new(false),
        });
        file.descriptor_of(create)?;
        Ok(file)
    }

    fn descriptor_of(self: &Arc<Self>, create: bool) -> io::Result<Arc<fs::File>> {
        let mut slot = lock(&self.slot);
        if let Some(file) = &slot.file {
            self.used.store(true, Ordering::Relaxed);
            return Ok(Arc::clone(file));
        }
        let opened = self.cache.with_room(|| open(&self.path, self.write, create))?;
        let metadata = opened.metadata()?;
        let identity = (metadata.dev(), metadata.ino());
        if *slot.identity.get_or_insert(identity) != identity {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "another file has taken its place; refresh and read again",
            ));
        }
        let file = Arc::new(opened);
        slot.file = Some(Arc::clone(&file));
        drop(slot);
        self.cache.opened(self);
        Ok(file)
    }

    /// Closes the descriptor unless a caller is using it or it is to stay open. True if it is closed.
    fn close_unless(&self, unused: bool, synced: bool) -> bool {
        // A caller that is opening or using it holds the lock.
        let Ok(mut slot) = self.slot.try_lock() else {
            return false;
        };
        let Some(file) = &slot.file else { return true };
        let in_use = Arc::strong_count(file) > 1 || self.keep_open.load(Ordering::Relaxed);
        if in_use || (unused && self.used.swap(false, Ordering::Relaxed)) {
            return false;
        }
        if self.dirty.load(Ordering::Acquire) {
            if synced {
                return false;
            }
            // Only this descriptor is sure to get the error of a failed write-back.
            if let Err(e) = file.sync_data() {
                slot.failed = Some(e.raw_os_error().unwrap_or(libc::EIO));
            }
            self.dirty.store(false, Ordering::Release);
        }
        slot.file = None;
        true
    }
}

/// The logs' reference to a file, separate from the one in the clock's queue.
#[derive(Debug)]
pub(super) struct Handle(pub Arc<CachedFile>);

impl Handle {
    fn file(&self) -> io::Result<Arc<fs::File>> {
        self.0.descriptor_of(false)
    }

    fn file_for_writing(&self) -> io::Result<Arc<fs::File>> {
        let file = self.file()?;
        match lock(&self.0.slot).failed {
            Some(code) => Err(io::Error::from_raw_os_error(code)),
            None => Ok(file),
        }
    }

    fn change(&self, change: impl FnOnce(&fs::File) -> io::Result<()>) -> io::Result<()> {
        let file = self.file_for_writing()?;
        let changed = change(&file);
        // Set after the change: a sync meanwhile may have missed it. The file is in use, so nobody closes it before this.
        self.0.dirty.store(true, Ordering::Release);
        changed
    }
}

impl File for Handle {
    fn read_at(&self, position: u64, len: usize) -> io::Result<Bytes> {
        read_at(&*self.file()?, position, len)
    }

    fn read_into(&self, position: u64, buf: &mut [u8]) -> io::Result<usize> {
        read_into(&*self.file()?, position, buf)
    }

    fn write_at(&self, position: u64, data: &[u8]) -> io::Result<()> {
        self.change(|file| file.write_all_at(data, position))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(|file| file.set_len(len))
    }

    fn next_data(&self, position: u64) -> io::Result<Option<u64>> {
        next_data(&*self.file()?, position)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file()?.metadata()?.len())
    }

    fn sync(&self) -> io::Result<()> {
        let file = self.file_for_writing()?;
        // Cleared first: a change that ends meanwhile sets it again.
        self.0.dirty.store(false, Ordering::Release);
        file.sync_data()
    }

    fn keep_open(&self, keep: bool) -> io::Result<()> {
        self.0.keep_open.store(keep, Ordering::Relaxed);
        if keep { self.file().map(drop) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_count(cache: &FileCache) -> usize {
        let open = lock(&cache.open);
        open.iter()
            .filter_map(Weak::upgrade)
            .filter(|file| lock(&file.slot).file.is_some())
            .count()
    }

    fn handle(cache: &Arc<FileCache>, path: &Path) -> Handle {
        Handle(CachedFile::open(cache, path, true, true).unwrap())
    }

    #[test]
    fn a_change_that_a_sync_has_not_reached_is_synced_before_its_descriptor_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let file = handle(&FileCache::new(4), &dir.path().join("a"));
        file.change(|descriptor| {
            file.sync()?;
            descriptor.write_all_at(b"late", 0)
        })
        .unwrap();
        assert!(file.0.dirty.load(Ordering::Acquire));
        file.sync().unwrap();
        assert!(!file.0.dirty.load(Ordering::Acquire));
    }

    #[test]
    fn files_beyond_the_limit_are_closed_and_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let cache = FileCache::new(4);
        let files: Vec<Handle> = (0..20u8)
            .map(|i| {
                let file = handle(&cache, &dir.path().join(i.to_string()));
                file.write_at(0, &[i; 3]).unwrap();
                file
            })
            .collect();
        assert!(open_count(&cache) <= 4);
        for (i, file) in files.iter().enumerate() {
            assert_eq!(file.read_at(0, 9).unwrap(), vec![u8::try_from(i).unwrap(); 3]);
            file.sync().unwrap();
        }
        assert!(open_count(&cache) <= 4);
        assert!(lock(&cache.open).len() <= 4);
    }

    #[test]
    fn the_file_that_is_used_stays_open() {
        let dir = tempfile::tempdir().unwrap();
        let cache = FileCache::new(16);
        let busy = handle(&cache, &dir.path().join("busy"));
        let (mut others, mut closed) = (Vec::new(), 0);
        for i in 0..200 {
            others.push(handle(&cache, &dir.path().join(i.to_string())));
            closed += usize::from(lock(&busy.0.slot).file.is_none());
            busy.read_at(0, 1).unwrap();
        }
        // Without second chances it would go every 16th time.
        assert!(closed <= 4, "{closed}");
        assert!(open_count(&cache) <= 16);
    }

    #[test]
    fn a_deleted_file_that_is_kept_open_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let cache = FileCache::new(2);
        let path = dir.path().join("0.log");
        let file = handle(&cache, &path);
        file.write_at(0, b"kept").unwrap();
        file.keep_open(true).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "other").unwrap();
        let others: Vec<_> = (0..9)
            .map(|i| handle(&cache, &dir.path().join(i.to_string())))
            .collect();
        assert_eq!(file.read_at(0, 9).unwrap(), "kept");
        drop(others);
    }

    #[test]
    fn a_file_that_took_anothers_place_is_not_read_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let cache = FileCache::new(2);
        let path = dir.path().join("0.log");
        let file = handle(&cache, &path);
        file.write_at(0, b"old").unwrap();
        fs::write(dir.path().join("new"), "new").unwrap();
        fs::rename(dir.path().join("new"), &path).unwrap();
        assert_eq!(file.read_at(0, 9).unwrap(), "old");
        file.sync().unwrap();
        cache.halve();
        cache.halve();
        let others: Vec<_> = (0..9)
            .map(|i| handle(&cache, &dir.path().join(i.to_string())))
            .collect();
        assert_eq!(file.read_at(0, 9).unwrap_err().kind(), io::ErrorKind::NotFound);
        drop(others);
    }

    #[test]
    fn one_cache_for_the_whole_process() {
        let first = FileCache::shared();
        assert!(Arc::ptr_eq(&first, &FileCache::shared()));
        assert!(first.limit >= 16);
    }
}
