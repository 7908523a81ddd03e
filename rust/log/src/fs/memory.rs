//! Files in memory, for brokers without a directory and for tests. Same semantics as the real ones; nothing survives.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::read_buffers::{is_lent, read_lent};
use super::{DirEntry, DirLock, File, Fs, LockError};
use crate::sync::{lock, read, write};

/// Files grow chunk by chunk, so that appending to a large file never copies existing data. 256 KiB: a consumer's default
/// fetch of 1 MiB touches five chunks, and a partition with little data allocates only what it uses.
const CHUNK: usize = 256 * 1024;

type Now = Arc<dyn Fn() -> i64 + Send + Sync>;

/// A file system in memory. Clones share the files.
#[derive(Clone)]
pub struct MemoryFs {
    nodes: Arc<Mutex<BTreeMap<PathBuf, Node>>>,
    locked: Arc<Mutex<BTreeSet<PathBuf>>>,
    now: Now,
}

impl fmt::Debug for MemoryFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryFs")
            .field("files", &lock(&self.nodes).len())
            .finish()
    }
}

#[derive(Clone)]
enum Node {
    Dir,
    File(Arc<MemoryFile>),
}

struct MemoryFile {
    chunks: RwLock<Chunks>,
    modified_ms: AtomicI64,
    now: Now,
}

impl fmt::Debug for MemoryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryFile")
            .field("len", &read(&self.chunks).len)
            .finish()
    }
}

#[derive(Default)]
struct Chunks {
    chunks: Vec<Vec<u8>>,
    len: usize,
}

impl Chunks {
    fn read(&self, position: usize, len: usize, mut each: impl FnMut(&[u8])) {
        let end = self.len.min(position.saturating_add(len));
        let mut at = position;
        while at < end {
            let start = at % CHUNK;
            let take = (CHUNK - start).min(end - at);
            each(&self.chunks[at / CHUNK][start..start + take]);
            at += take;
        }
    }

    fn resize(&mut self, len: usize) {
        self.chunks.resize_with(len.div_ceil(CHUNK), Vec::new);
        // Every chunk but the last is full.
        let old_last = self.len / CHUNK;
        let count = self.chunks.len();
        for (i, chunk) in self.chunks.iter_mut().enumerate().skip(old_last.min(len / CHUNK)) {
            chunk.resize(if i + 1 == count { len - i * CHUNK } else { CHUNK }, 0);
        }
        self.len = len;
    }

    fn write(&mut self, position: usize, mut data: &[u8]) {
        if position > self.len {
            self.resize(position);
        }
        let mut at = position;
        while !data.is_empty() {
            let (index, start) = (at / CHUNK, at % CHUNK);
            let take = (CHUNK - start).min(data.len());
            if index == self.chunks.len() {
                self.chunks.push(Vec::new());
            }
            let chunk = &mut self.chunks[index];
            let overlap = take.min(chunk.len() - start);
            chunk[start..start + overlap].copy_from_slice(&data[..overlap]);
            chunk.extend_from_slice(&data[overlap..take]);
            data = &data[take..];
            at += take;
        }
        self.len = self.len.max(at);
    }
}

fn to_usize(n: u64) -> io::Result<usize> {
    usize::try_from(n).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))
}

impl File for MemoryFile {
    fn read_at(&self, position: u64, len: usize) -> io::Result<Bytes> {
        let position = to_usize(position)?;
        let chunks = read(&self.chunks);
        let len = len.min(chunks.len.saturating_sub(position));
        if is_lent(len) {
            drop(chunks);
            return read_lent(len, |buffer| self.read_into(position as u64, buffer));
        }
        let mut out = Vec::with_capacity(len);
        chunks.read(position, len, |part| out.extend_from_slice(part));
        Ok(Bytes::from(out))
    }

    fn read_into(&self, position: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        read(&self.chunks).read(to_usize(position)?, buf.len(), |part| {
            buf[done..done + part.len()].copy_from_slice(part);
            done += part.len();
        });
        Ok(done)
    }

    fn write_at(&self, position: u64, data: &[u8]) -> io::Result<()> {
        write(&self.chunks).write(to_usize(position)?, data);
        self.modified_ms.store((self.now)(), Ordering::Relaxed);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        write(&self.chunks).resize(to_usize(len)?);
        self.modified_ms.store((self.now)(), Ordering::Relaxed);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(read(&self.chunks).len as u64)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Default for MemoryFs {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryFs {
    /// An empty file system. Modification times come from the system clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        }))
    }

    /// An empty file system whose modification times (ms since the epoch) come from `now`.
    pub fn with_clock(now: Now) -> Self {
        Self {
            nodes: Arc::default(),
            locked: Arc::default(),
            now,
        }
    }

    fn file(&self, path: &Path) -> io::Result<Arc<MemoryFile>> {
        match lock(&self.nodes).get(path) {
            Some(Node::File(file)) => Ok(Arc::clone(file)),
            Some(Node::Dir) => Err(io::Error::from(io::ErrorKind::IsADirectory)),
            None => Err(io::Error::from(io::ErrorKind::NotFound)),
        }
    }
}

/// Everything below a directory. Paths are ordered by their components, so these entries directly follow the directory
/// itself: a broker has three or more entries for each of its partitions, and opens their logs one by one.
fn below<'a>(nodes: &'a BTreeMap<PathBuf, Node>, dir: &'a Path) -> impl Iterator<Item = (&'a PathBuf, &'a Node)> {
    nodes
        .range::<Path, _>((Bound::Excluded(dir), Bound::Unbounded))
        .inspect(|_| {
            #[cfg(test)]
            tests::LOOKED_AT.set(tests::LOOKED_AT.get() + 1);
        })
        .take_while(move |(path, _)| path.starts_with(dir))
}

impl Fs for MemoryFs {
    fn is_in_memory(&self) -> bool {
        true
    }

    fn open(&self, path: &Path, write: bool, create: bool) -> io::Result<Arc<dyn File>> {
        match self.file(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && create && write => {}
            other => return Ok(other?),
        }
        let mut nodes = lock(&self.nodes);
        let parent_exists = path
            .parent()
            .is_none_or(|p| p.as_os_str().is_empty() || nodes.contains_key(p));
        if !parent_exists {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        let file = Arc::new(MemoryFile {
            chunks: RwLock::default(),
            modified_ms: AtomicI64::new((self.now)()),
            now: Arc::clone(&self.now),
        });
        nodes.insert(path.to_path_buf(), Node::File(Arc::clone(&file)));
        Ok(file)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.file(path)?;
        let bytes = file.read_at(0, read(&file.chunks).len)?;
        Ok(bytes.into())
    }

    fn replace(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        // A new file, so that handles of the replaced one keep what they had.
        self.remove_file(path)?;
        self.open(path, true, true)?.write_at(0, data)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let nodes = lock(&self.nodes);
        if !matches!(nodes.get(path), Some(Node::Dir)) {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        let entries = below(&nodes, path)
            .filter(|(p, _)| p.parent() == Some(path))
            .filter_map(|(p, node)| {
                let name = p.file_name()?.to_str()?.to_string();
                Some(match node {
                    Node::Dir => DirEntry {
                        name,
                        is_dir: true,
                        len: 0,
                    },
                    Node::File(file) => DirEntry {
                        name,
                        is_dir: false,
                        len: read(&file.chunks).len as u64,
                    },
                })
            });
        Ok(entries.collect())
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut nodes = lock(&self.nodes);
        for dir in path.ancestors().filter(|p| !p.as_os_str().is_empty()) {
            match nodes.get(dir) {
                Some(Node::File(_)) => return Err(io::Error::from(io::ErrorKind::NotADirectory)),
                Some(Node::Dir) => {}
                None => drop(nodes.insert(dir.to_path_buf(), Node::Dir)),
            }
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut nodes = lock(&self.nodes);
        let moved = nodes.remove(from).ok_or(io::ErrorKind::NotFound)?;
        let inside: Vec<PathBuf> = below(&nodes, from).map(|(p, _)| p.clone()).collect();
        for path in inside {
            let Ok(rest) = path.strip_prefix(from) else { continue };
            if let Some(node) = nodes.remove(&path) {
                nodes.insert(to.join(rest), node);
            }
        }
        nodes.insert(to.to_path_buf(), moved);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut nodes = lock(&self.nodes);
        if let Some(Node::Dir) = nodes.get(path) {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        nodes.remove(path);
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut nodes = lock(&self.nodes);
        nodes.remove(path).ok_or(io::ErrorKind::NotFound)?;
        let gone: Vec<PathBuf> = below(&nodes, path).map(|(p, _)| p.clone()).collect();
        for path in gone {
            nodes.remove(&path);
        }
        Ok(())
    }

    fn exists(&self, path: &Path) -> bool {
        lock(&self.nodes).contains_key(path)
    }

    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        Ok(self.file(path)?.modified_ms.load(Ordering::Relaxed))
    }

    fn set_modified_ms(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        self.file(path)?.modified_ms.store(modified_ms, Ordering::Relaxed);
        Ok(())
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, LockError> {
        self.open(&dir.join(".lock"), true, true)?;
        if !lock(&self.locked).insert(dir.to_path_buf()) {
            return Err(LockError::Held { pid: None });
        }
        Ok(Box::new(MemoryLock {
            dir: dir.to_path_buf(),
            locked: Arc::clone(&self.locked),
        }))
    }
}

#[derive(Debug)]
struct MemoryLock {
    dir: PathBuf,
    locked: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl DirLock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        lock(&self.locked).remove(&self.dir);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// Entries that were looked at to find those below a directory.
        pub(super) static LOOKED_AT: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn finding_what_is_below_a_directory_looks_at_nothing_else() {
        let fs = MemoryFs::new();
        for partition in 0..1000 {
            let dir = PathBuf::from(format!("/log/t-{partition}"));
            fs.create_dir_all(&dir).unwrap();
            for file in ["0.index", "0.log", "0.timeindex"] {
                fs.open(&dir.join(file), true, true).unwrap();
            }
        }
        let looked_at = |call: &dyn Fn()| {
            LOOKED_AT.set(0);
            call();
            LOOKED_AT.get()
        };
        let listed = |dir: &str| fs.read_dir(Path::new(dir)).unwrap().len();
        // The entries, and the one behind them.
        assert_eq!(looked_at(&|| assert_eq!(listed("/log/t-1"), 3)), 4);
        let moved = looked_at(&|| fs.rename(Path::new("/log/t-1"), Path::new("/log/t-1.moved")).unwrap());
        assert_eq!(moved, 4);
        assert_eq!(listed("/log/t-1.moved"), 3);
        // Of a name that begins like the other's.
        assert_eq!(listed("/log/t-10"), 3);
        assert_eq!(
            looked_at(&|| fs.remove_dir_all(Path::new("/log/t-1.moved")).unwrap()),
            4
        );
        assert!(!fs.exists(Path::new("/log/t-1.moved/0.log")));
        assert_eq!(listed("/log"), 999);
    }
}
