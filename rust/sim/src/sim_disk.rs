//! A disk that can lose power: what programs see (live) and what would be left (durable) are two things.
//!
//! Strict rules, stricter than any journalling file system: a file's fsync makes its bytes durable but not its name, a
//! directory's fsync makes its names durable but not the bytes of its files, and of what was not synced any part may survive, in
//! any order, torn at sector borders. Every operation that changes something is a crash point (`reliability` R1-R11).

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use fletchlog_log::fs::{DirEntry, DirLock, File, Fs, LockError};

/// Bytes that survive or vanish together. Small, so that small batches tear too.
const SECTOR: usize = 64;

/// A promise that a disk, or a program on it, does not keep: for proving that a suite notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// fsync of a directory does nothing.
    DirectorySync,
    /// fsync of files with this ending does nothing.
    FileSync(&'static str),
    /// `Fs::replace` renames without fsync of the file.
    ReplaceSync,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Node {
    Dir,
    File(usize),
}

#[derive(Debug, Clone)]
enum NameChange {
    Link(PathBuf, Node),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
}

#[derive(Debug, Clone)]
enum DataChange {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

#[derive(Debug, Clone, Default)]
struct Inode {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<(u64, DataChange)>,
}

type Names = BTreeMap<PathBuf, Node>;

/// Everything on the disk at one moment.
#[derive(Debug, Clone, Default)]
pub struct DiskState {
    inodes: Vec<Inode>,
    names: Names,
    durable_names: Names,
    pending_names: Vec<(u64, NameChange)>,
    /// Operations so far that changed something.
    operations: u64,
}

/// What is left of the changes that were not synced.
pub enum Left<'a> {
    /// All: the process was killed, the machine goes on.
    All,
    /// Nothing.
    Nothing,
    /// Those whose number is below this.
    Before(u64),
    /// What the chooser says: for each change `None` = lost, `Some(seed)` = kept, writes torn by the bits of the seed
    /// (`u64::MAX` = whole).
    Some(&'a mut dyn FnMut() -> Option<u64>),
}

fn write(data: &mut Vec<u8>, position: usize, bytes: &[u8]) {
    if data.len() < position + bytes.len() {
        data.resize(position + bytes.len(), 0);
    }
    data[position..position + bytes.len()].copy_from_slice(bytes);
}

impl DataChange {
    fn apply(&self, data: &mut Vec<u8>) {
        match self {
            Self::Write(position, bytes) => write(data, *position, bytes),
            Self::SetLen(len) => data.resize(*len, 0),
        }
    }

    /// Only the sectors whose bit is set; a lost sector in front of a kept one reads as zeros.
    fn apply_torn(&self, data: &mut Vec<u8>, sectors: u64) {
        let Self::Write(position, bytes) = self else {
            return self.apply(data);
        };
        let mut at = 0;
        while at < bytes.len() {
            let sector = (position + at) / SECTOR;
            let end = ((sector + 1) * SECTOR - position).min(bytes.len());
            if sectors >> (sector % 64) & 1 == 1 {
                write(data, position + at, &bytes[at..end]);
            }
            at = end;
        }
    }
}

impl NameChange {
    fn apply(&self, names: &mut Names) {
        match self {
            Self::Link(path, node) => {
                if path.parent().is_none_or(|p| names.contains_key(p)) {
                    names.insert(path.clone(), node.clone());
                }
            }
            Self::Unlink(path) => {
                names.retain(|p, _| !p.starts_with(path));
            }
            Self::Rename(from, to) => {
                if names.contains_key(from) && to.parent().is_none_or(|p| names.contains_key(p)) {
                    let moved: Vec<_> = names
                        .iter()
                        .filter(|(p, _)| p.starts_with(from))
                        .map(|(p, n)| (p.clone(), n.clone()))
                        .collect();
                    names.retain(|p, _| !p.starts_with(from) && !p.starts_with(to));
                    for (path, node) in moved {
                        let rest = path.strip_prefix(from).unwrap_or(Path::new(""));
                        let path = if rest.as_os_str().is_empty() {
                            to.clone()
                        } else {
                            to.join(rest)
                        };
                        names.insert(path, node);
                    }
                }
            }
        }
    }

    fn touches(&self, dir: &Path) -> bool {
        match self {
            Self::Link(path, _) | Self::Unlink(path) => path.parent() == Some(dir),
            Self::Rename(from, to) => from.parent() == Some(dir) || to.parent() == Some(dir),
        }
    }
}

impl DiskState {
    /// Numbers of the changes that are not durable yet, ascending.
    pub fn pending(&self) -> Vec<u64> {
        let data = self.inodes.iter().flat_map(|i| i.pending.iter().map(|(at, _)| *at));
        let mut all: Vec<u64> = data.chain(self.pending_names.iter().map(|(at, _)| *at)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Operations before this moment.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// The disk as it comes up again.
    pub fn image(&self, mut left: Left<'_>) -> SimDisk {
        let mut keep = |at: u64| match &mut left {
            Left::All => Some(u64::MAX),
            Left::Nothing => None,
            Left::Before(end) => (at < *end).then_some(u64::MAX),
            Left::Some(chooser) => chooser(),
        };
        let mut names = self.durable_names.clone();
        for (at, change) in &self.pending_names {
            if keep(*at).is_some() {
                change.apply(&mut names);
            }
        }
        let inodes = self.inodes.iter().map(|inode| {
            let mut data = inode.durable.clone();
            for (at, change) in &inode.pending {
                if let Some(sectors) = keep(*at) {
                    change.apply_torn(&mut data, sectors);
                }
            }
            Inode {
                live: data.clone(),
                durable: data,
                pending: Vec::new(),
            }
        });
        let state = Self {
            inodes: inodes.collect(),
            durable_names: names.clone(),
            names,
            ..Self::default()
        };
        SimDisk::of(state)
    }

    /// Equal for equal names and contents.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (path, node) in &self.names {
            path.hash(&mut hasher);
            match node {
                Node::Dir => 0.hash(&mut hasher),
                Node::File(inode) => self.inodes[*inode].live.hash(&mut hasher),
            }
        }
        hasher.finish()
    }

    fn change_names(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.pending_names.push((self.operations, change));
    }

    fn change_data(&mut self, inode: usize, change: DataChange) {
        let at = self.operations;
        let inode = &mut self.inodes[inode];
        change.apply(&mut inode.live);
        inode.pending.push((at, change));
    }

    fn sync_data(&mut self, inode: usize) {
        let inode = &mut self.inodes[inode];
        inode.durable.clone_from(&inode.live);
        inode.pending.clear();
    }

    fn sync_names(&mut self, dir: &Path) {
        let (now, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pending_names)
            .into_iter()
            .partition(|(_, change)| change.touches(dir));
        for (_, change) in now {
            change.apply(&mut self.durable_names);
        }
        self.pending_names = later;
    }
}

#[derive(Default)]
struct Disk {
    state: DiskState,
    lie: Option<Lie>,
    /// The operation with this number fails, once.
    fail: Option<(u64, io::ErrorKind)>,
    /// The state before every operation and at the end, if recording.
    history: Option<Vec<DiskState>>,
}

/// The disk. Clones are the same disk.
#[derive(Clone, Default)]
pub struct SimDisk {
    disk: Arc<Mutex<Disk>>,
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk")
            .field("operations", &self.operations())
            .finish()
    }
}

impl SimDisk {
    fn of(state: DiskState) -> Self {
        Self {
            disk: Arc::new(Mutex::new(Disk {
                state,
                ..Disk::default()
            })),
        }
    }

    /// A disk with these empty directories, durable.
    pub fn with_dirs(dirs: &[&Path]) -> Self {
        let mut state = DiskState::default();
        for dir in dirs.iter().flat_map(|dir| dir.ancestors()) {
            state.names.insert(dir.to_path_buf(), Node::Dir);
        }
        state.durable_names.clone_from(&state.names);
        Self::of(state)
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Breaks a promise from now on.
    pub fn lie(&self, lie: Lie) {
        self.lock().lie = Some(lie);
    }

    /// Lets the operation with this number (from 0) fail.
    pub fn fail(&self, operation: u64, kind: io::ErrorKind) {
        self.lock().fail = Some((operation, kind));
    }

    /// Keeps the state at every crash point from now on.
    pub fn record(&self) {
        self.lock().history = Some(Vec::new());
    }

    /// The states kept, the present one last.
    pub fn history(&self) -> Vec<DiskState> {
        let mut disk = self.lock();
        let mut history = disk.history.take().unwrap_or_default();
        history.push(disk.state.clone());
        history
    }

    /// The state now.
    pub fn state(&self) -> DiskState {
        self.lock().state.clone()
    }

    /// Operations so far that changed something.
    pub fn operations(&self) -> u64 {
        self.lock().state.operations
    }

    /// One operation: a crash point in front of it, and perhaps a failure instead of it.
    fn operate<T>(&self, operation: impl FnOnce(&mut Disk) -> io::Result<T>) -> io::Result<T> {
        let mut disk = self.lock();
        let Disk { state, history, .. } = &mut *disk;
        if let Some(history) = history {
            history.push(state.clone());
        }
        let at = disk.state.operations;
        disk.state.operations += 1;
        if let Some((_, kind)) = disk.fail.take_if(|(n, _)| *n == at) {
            return Err(kind.into());
        }
        operation(&mut disk)
    }

    fn inode(&self, path: &Path) -> io::Result<usize> {
        match self.lock().state.names.get(path) {
            Some(Node::File(inode)) => Ok(*inode),
            Some(Node::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn create(&self, path: &Path) -> io::Result<usize> {
        self.operate(|disk| {
            let state = &mut disk.state;
            if path.parent().is_some_and(|p| !state.names.contains_key(p)) {
                return Err(io::ErrorKind::NotFound.into());
            }
            state.inodes.push(Inode::default());
            let inode = state.inodes.len() - 1;
            state.change_names(NameChange::Link(path.to_path_buf(), Node::File(inode)));
            Ok(inode)
        })
    }

    fn sync_file(&self, inode: usize, path: &Path) -> io::Result<()> {
        self.operate(|disk| {
            let skipped = match disk.lie {
                Some(Lie::FileSync(ending)) => path.to_string_lossy().ends_with(ending),
                _ => false,
            };
            if !skipped {
                disk.state.sync_data(inode);
            }
            Ok(())
        })
    }

    fn write_new(&self, path: &Path, data: &[u8], sync: bool) -> io::Result<()> {
        let inode = self.create(path)?;
        self.operate(|disk| {
            disk.state.change_data(inode, DataChange::Write(0, data.to_vec()));
            Ok(())
        })?;
        if sync { self.sync_file(inode, path) } else { Ok(()) }
    }
}

struct SimFile {
    disk: SimDisk,
    inode: usize,
    path: PathBuf,
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimFile").field("path", &self.path).finish()
    }
}

fn at(position: u64) -> io::Result<usize> {
    usize::try_from(position).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

impl File for SimFile {
    fn read_at(&self, position: u64, len: usize) -> io::Result<Bytes> {
        let disk = self.disk.lock();
        let data = &disk.state.inodes[self.inode].live;
        let start = at(position)?.min(data.len());
        Ok(Bytes::copy_from_slice(&data[start..(start + len).min(data.len())]))
    }
    fn read_into(&self, position: u64, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.read_at(position, buf.len())?;
        buf[..read.len()].copy_from_slice(&read);
        Ok(read.len())
    }
    fn write_at(&self, position: u64, data: &[u8]) -> io::Result<()> {
        let position = at(position)?;
        self.disk.operate(|disk| {
            disk.state
                .change_data(self.inode, DataChange::Write(position, data.to_vec()));
            Ok(())
        })
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = at(len)?;
        self.disk.operate(|disk| {
            disk.state.change_data(self.inode, DataChange::SetLen(len));
            Ok(())
        })
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.lock().state.inodes[self.inode].live.len() as u64)
    }
    fn sync(&self) -> io::Result<()> {
        self.disk.sync_file(self.inode, &self.path)
    }
}

#[derive(Debug)]
struct NoLock;
impl DirLock for NoLock {}

impl Fs for SimDisk {
    fn open(&self, path: &Path, write: bool, create: bool) -> io::Result<Arc<dyn File>> {
        let inode = match self.inode(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && write && create => self.create(path)?,
            other => other?,
        };
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            inode,
            path: path.to_path_buf(),
        }))
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let inode = self.inode(path)?;
        Ok(self.lock().state.inodes[inode].live.clone())
    }
    fn replace(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        let temporary = path.with_extension("tmp");
        let sync = self.lock().lie != Some(Lie::ReplaceSync);
        self.write_new(&temporary, data, sync)?;
        self.rename(&temporary, path)?;
        path.parent().map_or(Ok(()), |parent| self.sync_dir(parent))
    }
    fn replace_unsynced(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        let temporary = path.with_extension("tmp");
        self.write_new(&temporary, data, false)?;
        self.rename(&temporary, path)
    }
    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let disk = self.lock();
        if disk.state.names.get(path) != Some(&Node::Dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let below = disk.state.names.iter().filter(|(p, _)| p.parent() == Some(path));
        let entries = below.filter_map(|(p, node)| {
            let name = p.file_name()?.to_str()?.to_owned();
            let (is_dir, len) = match node {
                Node::Dir => (true, 0),
                Node::File(inode) => (false, disk.state.inodes[*inode].live.len() as u64),
            };
            Some(DirEntry { name, is_dir, len })
        });
        Ok(entries.collect())
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut missing: Vec<&Path> = path.ancestors().take_while(|p| !self.exists(p)).collect();
        missing.reverse();
        missing.into_iter().try_for_each(|dir| {
            self.operate(|disk| {
                disk.state.change_names(NameChange::Link(dir.to_path_buf(), Node::Dir));
                Ok(())
            })
        })
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if !self.exists(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.operate(|disk| {
            disk.state
                .change_names(NameChange::Rename(from.to_path_buf(), to.to_path_buf()));
            Ok(())
        })
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        if !self.exists(path) {
            return Ok(());
        }
        self.operate(|disk| {
            disk.state.change_names(NameChange::Unlink(path.to_path_buf()));
            Ok(())
        })
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.remove_file(path)
    }
    fn exists(&self, path: &Path) -> bool {
        self.lock().state.names.contains_key(path)
    }
    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        self.inode(path).map(|_| 0)
    }
    fn set_modified_ms(&self, path: &Path, _modified_ms: i64) -> io::Result<()> {
        self.inode(path).map(drop)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.operate(|disk| {
            if disk.lie != Some(Lie::DirectorySync) {
                disk.state.sync_names(path);
            }
            Ok(())
        })
    }
    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        self.operate(|disk| {
            let below = |path: &Path| path.starts_with(dir);
            let files: Vec<usize> = disk
                .state
                .names
                .iter()
                .filter_map(|(path, node)| match node {
                    Node::File(inode) if below(path) => Some(*inode),
                    _ => None,
                })
                .collect();
            files.into_iter().for_each(|inode| disk.state.sync_data(inode));
            let dirs: Vec<PathBuf> = disk.state.names.keys().filter(|p| below(p)).cloned().collect();
            dirs.iter().for_each(|dir| disk.state.sync_names(dir));
            Ok(())
        })
    }
    fn lock_dir(&self, _dir: &Path) -> Result<Box<dyn DirLock>, LockError> {
        Ok(Box::new(NoLock))
    }
}
