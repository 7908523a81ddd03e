//! Objects of a store (S3 and its like) as a file system that is only read: one listing, then ranged reads.
//!
//! The listing decides which files exist: names and sizes cost no further request, and readers see one state. Reading an
//! object that has changed since is an error and never returns other bytes.
//!
//! Reads go through pages that all files of one [`ObjectFs`] share. A page that follows one read before counts as the next
//! part of a stream: it is fetched with those after it, [`READ_AHEAD`] bytes at once. Any other read fetches only its own
//! pages. Two readers of the same pages cause one request.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::path::{Component, Path};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};

use super::{DirEntry, DirLock, File, Fs, LockError};
use crate::sync::lock;

/// Reads are rounded to this size. A lookup in a log touches one or two pages.
const PAGE: u64 = 256 << 10;
/// Bytes that a stream fetches at once: enough that the time to the first byte of a response hardly counts, and the part of a
/// log that one thread of a scan decodes.
const READ_AHEAD: u64 = 4 << 20;
/// Bytes of pages that are kept for all files together.
const CACHE: u64 = 64 << 20;

/// What an object store must be able to do. Calls may block, and come from many threads.
pub trait ObjectStore: Send + Sync + fmt::Debug {
    /// Every object below the root.
    ///
    /// # Errors
    /// `NotFound`: there is none; others say what to do.
    fn list(&self) -> Result<Vec<Object>>;
    /// These bytes of an object.
    ///
    /// # Errors
    /// `NotFound`: the object no longer exists as it was listed. Others say what to do.
    fn read(&self, object: &Object, range: Range<u64>) -> Result<Bytes>;
}

/// An object as it was listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Name below the root, parts separated by `/`.
    pub key: String,
    /// Bytes.
    pub len: u64,
    /// When it was written, ms since the epoch.
    pub modified_ms: i64,
}

/// The objects below one root, as they were when it was opened.
pub struct ObjectFs {
    inner: Arc<Inner>,
}

struct Inner {
    root: std::path::PathBuf,
    store: Arc<dyn ObjectStore>,
    objects: Vec<Object>,
    /// Directory below the root -> its entries by name, and which object a file is.
    dirs: HashMap<String, BTreeMap<String, (DirEntry, Option<usize>)>>,
    pages: Mutex<Pages>,
    arrived: Condvar,
}

impl fmt::Debug for ObjectFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectFs")
            .field("root", &self.inner.root)
            .field("objects", &self.inner.objects.len())
            .finish_non_exhaustive()
    }
}

impl ObjectFs {
    /// The listed objects of a store. `root` is what paths begin with.
    pub(crate) fn new(store: Arc<dyn ObjectStore>, objects: Vec<Object>, root: &Path) -> Self {
        let mut dirs = HashMap::from([(String::new(), BTreeMap::new())]);
        for (index, object) in objects.iter().enumerate() {
            let mut dir = String::new();
            for (part, rest) in parts(&object.key) {
                let entry = DirEntry {
                    name: part.to_owned(),
                    is_dir: !rest.is_empty(),
                    len: if rest.is_empty() { object.len } else { 0 },
                };
                let file = rest.is_empty().then_some(index);
                let entries: &mut BTreeMap<_, _> = dirs.entry(dir.clone()).or_default();
                entries.entry(part.to_owned()).or_insert((entry, file));
                if !rest.is_empty() {
                    dir = join(&dir, part);
                }
            }
        }
        Self {
            inner: Arc::new(Inner {
                root: root.to_path_buf(),
                store,
                objects,
                dirs,
                pages: Mutex::default(),
                arrived: Condvar::new(),
            }),
        }
    }

    fn file(&self, path: &Path) -> Result<ObjectFile> {
        let key = self.key(path)?;
        let (dir, name) = key.rsplit_once('/').unwrap_or(("", &key));
        let entry = self.inner.dirs.get(dir).and_then(|entries| entries.get(name));
        match entry {
            Some((_, Some(index))) => Ok(ObjectFile {
                inner: Arc::clone(&self.inner),
                index: *index,
            }),
            Some(_) => Err(Error::from(ErrorKind::IsADirectory)),
            None => Err(Error::from(ErrorKind::NotFound)),
        }
    }

    /// The name below the root.
    fn key(&self, path: &Path) -> Result<String> {
        let below = path.strip_prefix(&self.inner.root);
        let below = below.map_err(|_| Error::from(ErrorKind::NotFound))?;
        let mut key = String::new();
        for component in below.components() {
            match component {
                Component::Normal(part) => {
                    let part = part.to_str().ok_or(ErrorKind::InvalidFilename)?;
                    key = join(&key, part);
                }
                _ => return Err(Error::from(ErrorKind::NotFound)),
            }
        }
        Ok(key)
    }
}

/// The parts of a key, each with what follows it.
fn parts(key: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = key;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (part, behind) = rest.split_once('/').unwrap_or((rest, ""));
        rest = behind;
        Some((part, behind))
    })
}

pub(crate) fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() {
        name.to_owned()
    } else {
        format!("{dir}/{name}")
    }
}

/// What was fetched, and what is being fetched.
#[derive(Default)]
struct Pages {
    /// (object, first page) -> bytes of one request.
    runs: BTreeMap<(usize, u64), Run>,
    /// Requests that are under way.
    fetching: Vec<(usize, Range<u64>)>,
    bytes: u64,
    clock: u64,
}

struct Run {
    bytes: Bytes,
    used: u64,
}

impl Run {
    fn pages(&self) -> u64 {
        (self.bytes.len() as u64).div_ceil(PAGE)
    }
}

impl Pages {
    /// The run that has a page, and where it begins.
    fn run_with(&mut self, object: usize, page: u64) -> Option<(u64, Bytes)> {
        let (&(_, first), run) = self.runs.range_mut((object, 0)..=(object, page)).next_back()?;
        if page >= first + run.pages() {
            return None;
        }
        self.clock += 1;
        run.used = self.clock;
        Some((first, run.bytes.clone()))
    }

    fn is_fetching(&self, object: usize, page: u64) -> bool {
        let has = |(of, pages): &(usize, Range<u64>)| *of == object && pages.contains(&page);
        self.fetching.iter().any(has)
    }

    /// Which pages to fetch for a read that misses `page` and needs those up to `last`, of a file with `count` pages.
    fn plan(&mut self, object: usize, page: u64, last: u64, count: u64) -> Range<u64> {
        let follows = page
            .checked_sub(1)
            .is_some_and(|before| self.run_with(object, before).is_some() || self.is_fetching(object, before));
        let mut end = last + 1;
        if follows {
            // Streams share the cache: what one fetches must not push out what another has yet to read.
            let mut files: Vec<usize> = self.runs.keys().map(|&(object, _)| object).collect();
            files.dedup();
            let share = CACHE / (2 * files.len().max(1) as u64);
            let ahead = (share.min(READ_AHEAD) / PAGE).max(1);
            end = end.max((page / ahead + 1) * ahead);
        }
        let mut next = page + 1;
        while next < end.min(count) && !self.is_fetching(object, next) && self.run_with(object, next).is_none() {
            next += 1;
        }
        page..next
    }

    fn keep(&mut self, object: usize, first: u64, bytes: Bytes) {
        self.clock += 1;
        self.bytes += bytes.len() as u64;
        let used = self.clock;
        self.runs.insert((object, first), Run { bytes, used });
        while self.bytes > CACHE && self.runs.len() > 1 {
            let oldest = self.runs.iter().min_by_key(|(_, run)| run.used).map(|(&key, _)| key);
            if let Some(run) = oldest.and_then(|key| self.runs.remove(&key)) {
                self.bytes -= run.bytes.len() as u64;
            }
        }
    }
}

impl Inner {
    /// Bytes from `position` on: as many as one run has, but at most up to `end`.
    fn some_bytes(&self, index: usize, position: u64, end: u64) -> Result<Bytes> {
        let object = &self.objects[index];
        let page = position / PAGE;
        let mut pages = lock(&self.pages);
        let wanted = loop {
            if let Some((first, bytes)) = pages.run_with(index, page) {
                return Ok(cut(&bytes, first * PAGE, position, end));
            }
            if !pages.is_fetching(index, page) {
                break pages.plan(index, page, (end - 1) / PAGE, object.len.div_ceil(PAGE));
            }
            pages = self.arrived.wait(pages).unwrap_or_else(PoisonError::into_inner);
        };
        pages.fetching.push((index, wanted.clone()));
        drop(pages);
        let _done = Fetching {
            inner: self,
            index,
            first: wanted.start,
        };
        let bytes = self.fetch(object, wanted.start * PAGE..(wanted.end * PAGE).min(object.len))?;
        lock(&self.pages).keep(index, wanted.start, bytes.clone());
        Ok(cut(&bytes, wanted.start * PAGE, position, end))
    }

    fn fetch(&self, object: &Object, range: Range<u64>) -> Result<Bytes> {
        let len = range.end - range.start;
        let bytes = self.store.read(object, range).map_err(|error| match error.kind() {
            // Beside a writer, a missing file makes a log list the directory again. Here that would show nothing new.
            ErrorKind::NotFound => Error::new(ErrorKind::StaleNetworkFileHandle, error.to_string()),
            _ => error,
        })?;
        if bytes.len() as u64 == len {
            return Ok(bytes);
        }
        let reason = format!("the store gave {} bytes where it has {len}; try again", bytes.len());
        Err(Error::new(ErrorKind::UnexpectedEof, reason))
    }
}

/// A request that is under way. Its end, even by failure or panic, wakes the threads that wait for its pages.
struct Fetching<'a> {
    inner: &'a Inner,
    index: usize,
    first: u64,
}

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        let this = |(of, pages): &(usize, Range<u64>)| *of == self.index && pages.start == self.first;
        lock(&self.inner.pages).fetching.retain(|request| !this(request));
        self.inner.arrived.notify_all();
    }
}

/// The bytes of a run, which begins at `start` in its file, from `position` to `end` at most.
fn cut(run: &Bytes, start: u64, position: u64, end: u64) -> Bytes {
    let at = |position: u64| usize::try_from(position - start).map_or(run.len(), |at| at.min(run.len()));
    run.slice(at(position)..at(end))
}

struct ObjectFile {
    inner: Arc<Inner>,
    index: usize,
}

impl fmt::Debug for ObjectFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object().fmt(f)
    }
}

impl ObjectFile {
    fn object(&self) -> &Object {
        &self.inner.objects[self.index]
    }

    /// Passes the bytes of a range to `take`, run by run.
    fn each(&self, position: u64, len: usize, mut take: impl FnMut(Bytes)) -> Result<()> {
        let end = position.saturating_add(len as u64).min(self.object().len);
        let mut at = position;
        while at < end {
            let bytes = self.inner.some_bytes(self.index, at, end)?;
            at += bytes.len() as u64;
            take(bytes);
        }
        Ok(())
    }
}

fn read_only<T>() -> Result<T> {
    Err(Error::new(ErrorKind::ReadOnlyFilesystem, "object stores are only read"))
}

impl File for ObjectFile {
    fn read_at(&self, position: u64, len: usize) -> Result<Bytes> {
        let mut read: Vec<Bytes> = Vec::new();
        self.each(position, len, |bytes| read.push(bytes))?;
        if let [bytes] = &mut *read {
            return Ok(std::mem::take(bytes));
        }
        let mut whole = BytesMut::with_capacity(read.iter().map(Bytes::len).sum());
        read.iter().for_each(|bytes| whole.extend_from_slice(bytes));
        Ok(whole.freeze())
    }

    fn read_into(&self, position: u64, buf: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        let len = buf.len();
        self.each(position, len, |bytes| {
            buf[done..done + bytes.len()].copy_from_slice(&bytes);
            done += bytes.len();
        })?;
        Ok(done)
    }

    fn write_at(&self, _position: u64, _data: &[u8]) -> Result<()> {
        read_only()
    }

    fn set_len(&self, _len: u64) -> Result<()> {
        read_only()
    }

    fn len(&self) -> Result<u64> {
        Ok(self.object().len)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// Nothing replaces an object of the listing.
    fn is_at(&self, _path: &Path) -> Result<bool> {
        Ok(true)
    }
}

impl Fs for ObjectFs {
    fn is_snapshot(&self) -> bool {
        true
    }

    fn open(&self, path: &Path, write: bool, _create: bool) -> Result<Arc<dyn File>> {
        if write {
            return read_only();
        }
        Ok(Arc::new(self.file(path)?))
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        let file = self.file(path)?;
        let object = file.object();
        if i32::try_from(object.len).is_err() {
            let reason = format!(
                "it has {} bytes, and no file that is read whole has so many",
                object.len
            );
            return Err(Error::new(ErrorKind::FileTooLarge, reason));
        }
        let len = usize::try_from(object.len).map_err(|_| ErrorKind::FileTooLarge)?;
        Ok(file.read_at(0, len)?.into())
    }

    fn replace(&self, _path: &Path, _data: &[u8]) -> Result<()> {
        read_only()
    }

    fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let entries = self.inner.dirs.get(&self.key(path)?).ok_or(ErrorKind::NotFound)?;
        Ok(entries.values().map(|(entry, _)| entry.clone()).collect())
    }

    fn create_dir_all(&self, _path: &Path) -> Result<()> {
        read_only()
    }

    fn rename(&self, _from: &Path, _to: &Path) -> Result<()> {
        read_only()
    }

    fn remove_file(&self, _path: &Path) -> Result<()> {
        read_only()
    }

    fn remove_dir_all(&self, _path: &Path) -> Result<()> {
        read_only()
    }

    fn exists(&self, path: &Path) -> bool {
        self.key(path)
            .is_ok_and(|key| self.inner.dirs.contains_key(&key) || self.file(path).is_ok())
    }

    fn modified_ms(&self, path: &Path) -> Result<i64> {
        Ok(self.file(path)?.object().modified_ms)
    }

    fn set_modified_ms(&self, _path: &Path, _modified_ms: i64) -> Result<()> {
        read_only()
    }

    fn sync_dir(&self, _path: &Path) -> Result<()> {
        Ok(())
    }

    fn sync_all(&self, _dir: &Path) -> Result<()> {
        Ok(())
    }

    fn lock_dir(&self, _dir: &Path) -> std::result::Result<Box<dyn DirLock>, LockError> {
        Ok(read_only()?)
    }
}
