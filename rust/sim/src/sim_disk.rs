//! A disk that can lose power and whose calls can fail. Every operation that changes something is a crash point; every call can have a
//! fault (docs/reliability.md, "Crash and disk").

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use fletchlog_log::fs::{DirEntry, DirLock, File, Fs, LockError};

use crate::disk_fault::Call;
use crate::disk_state::{DataChange, DiskState, NameChange, Node, name};
use crate::rng::Rng;

pub use crate::disk_fault::{Fault, Lie};

#[derive(Default)]
struct Disk {
    state: DiskState,
    lie: Option<Lie>,
    /// Number of calls so far.
    calls: u64,
    /// The call with this number fails once, or the first one after it that can fail this way.
    fault: Option<(u64, Fault)>,
    /// Every call that can fail this way fails.
    broken: Option<Fault>,
    /// The call that failed, and the number of operations before it.
    failed: Option<(u64, u64)>,
    kept: Kept,
}

/// Which crash points are kept.
#[derive(Default)]
enum Kept {
    #[default]
    None,
    /// The state before every operation.
    Every(Vec<DiskState>),
    /// The state before a random one of the operations so far, because copies are expensive.
    One {
        rng: Rng,
        passed: usize,
        state: Option<DiskState>,
    },
}

impl Kept {
    fn crash_point(&mut self, now: &DiskState) {
        match self {
            Self::None => {}
            Self::Every(states) => states.push(now.clone()),
            Self::One { rng, passed, state } => {
                *passed += 1;
                if rng.below(*passed) == 0 {
                    *state = Some(now.clone());
                }
            }
        }
    }
}

impl Disk {
    /// Counts a call, which may fail.
    fn call(&mut self, call: Call) -> Result<(), Fault> {
        let at = self.calls;
        self.calls += 1;
        if let Some(fault) = self.broken.filter(|fault| fault.applies_to(call)) {
            return Err(fault);
        }
        match self.fault {
            Some((number, fault)) if number <= at && fault.applies_to(call) => {
                self.fault = None;
                self.failed = Some((at, self.state.operations));
                Err(fault)
            }
            _ => Ok(()),
        }
    }

    /// Makes an operation, with a crash point before it.
    fn change<T>(&mut self, operation: impl FnOnce(&mut DiskState) -> T) -> T {
        self.kept.crash_point(&self.state);
        let done = operation(&mut self.state);
        self.state.operations += 1;
        done
    }
}

/// A simulated disk. Clones share the same disk.
#[derive(Clone, Default)]
pub struct SimDisk {
    disk: Arc<Mutex<Disk>>,
    gives_way: Arc<AtomicBool>,
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk")
            .field("operations", &self.operations())
            .finish()
    }
}

impl From<DiskState> for SimDisk {
    fn from(state: DiskState) -> Self {
        Self {
            disk: Arc::new(Mutex::new(Disk {
                state,
                ..Disk::default()
            })),
            gives_way: Arc::default(),
        }
    }
}

impl SimDisk {
    /// A disk with these empty, durable directories.
    pub fn with_dirs(dirs: &[&Path]) -> Self {
        DiskState::with_dirs(dirs).into()
    }

    /// From now on, yields to other threads before every call.
    pub fn give_way(&self) {
        self.gives_way.store(true, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        if self.gives_way.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Breaks a promise from now on.
    pub fn lie(&self, lie: Lie) {
        self.lock().lie = Some(lie);
    }

    /// Number of calls so far, which is the number of the next one.
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    /// Makes a call fail: the one with this number (from 0), or the first one after it that can fail this way.
    pub fn fail(&self, call: u64, fault: Fault) {
        self.lock().fault = Some((call, fault));
    }

    /// Makes every call fail that can fail this way, until it is called with `None`.
    pub fn set_broken(&self, fault: Option<Fault>) {
        self.lock().broken = fault;
    }

    /// The number of the call that failed, and the number of operations before it.
    pub fn failed(&self) -> Option<(u64, u64)> {
        self.lock().failed
    }

    /// Keeps the state at every crash point from now on.
    pub fn record(&self) {
        self.lock().kept = Kept::Every(Vec::new());
    }

    /// Keeps the state at a random one of the crash points from now on.
    pub fn record_one(&self, rng: Rng) {
        let (passed, state) = (0, None);
        self.lock().kept = Kept::One { rng, passed, state };
    }

    /// Returns the state that [`SimDisk::record_one`] has kept, if any, and ends the recording.
    pub fn crash_point(&self) -> Option<DiskState> {
        match std::mem::take(&mut self.lock().kept) {
            Kept::One { state, .. } => state,
            _ => None,
        }
    }

    /// Returns the kept states and the current one, and ends the recording.
    pub fn history(&self) -> Vec<DiskState> {
        let mut disk = self.lock();
        let mut history = match std::mem::take(&mut disk.kept) {
            Kept::Every(states) => states,
            _ => Vec::new(),
        };
        history.push(disk.state.clone());
        history
    }

    /// The current state.
    pub fn state(&self) -> DiskState {
        self.lock().state.clone()
    }

    /// Number of operations so far that changed something.
    pub fn operations(&self) -> u64 {
        self.lock().state.operations
    }

    fn call(&self, call: Call) -> io::Result<MutexGuard<'_, Disk>> {
        let mut disk = self.lock();
        disk.call(call).map_err(Fault::error)?;
        Ok(disk)
    }

    fn create(&self, path: &Path) -> io::Result<usize> {
        let mut disk = self.call(Call::Create)?;
        if path.parent().is_some_and(|p| disk.state.node(p).is_none()) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(disk.change(|state| {
            let inode = state.new_file();
            state.change_names(NameChange::Link(name(path), Node::File(inode)));
            inode
        }))
    }

    fn write(&self, inode: usize, position: usize, data: &[u8]) -> io::Result<()> {
        let mut disk = self.lock();
        let failed = disk.call(Call::Write).err();
        let written = match failed {
            None => data,
            Some(Fault::ShortWrite) => &data[..data.len() / 2],
            Some(_) => &[],
        };
        if !written.is_empty() {
            disk.change(|state| state.change_data(inode, DataChange::Write(position, written.to_vec())));
        }
        let hidden = match failed {
            Some(Fault::ShortWrite) => disk.lie == Some(Lie::ShortWriteHidden),
            _ => disk.lie == Some(Lie::WriteErrorHidden),
        };
        failed.filter(|_| !hidden).map_or(Ok(()), |fault| Err(fault.error()))
    }

    fn set_len(&self, inode: usize, len: usize) -> io::Result<()> {
        self.call(Call::SetLen)?
            .change(|state| state.change_data(inode, DataChange::SetLen(len)));
        Ok(())
    }

    fn sync_file(&self, inode: usize, path: &Path) -> io::Result<()> {
        let mut disk = self.lock();
        if let Err(fault) = disk.call(Call::Sync) {
            disk.change(|state| state.lose_data(inode));
            if !matches!(disk.lie, Some(Lie::SyncRetry | Lie::SyncErrorHidden)) {
                return Err(fault.error());
            }
        }
        let skipped = matches!(disk.lie, Some(Lie::FileSync(ending)) if path.to_string_lossy().ends_with(ending));
        disk.change(|state| {
            if !skipped {
                state.sync_data(inode);
            }
        });
        Ok(())
    }

    fn change_names(&self, change: NameChange) -> io::Result<()> {
        self.call(Call::Name)?.change(|state| state.change_names(change));
        Ok(())
    }

    fn file(&self, path: &Path) -> io::Result<usize> {
        match self.lock().state.node(path) {
            Some(Node::File(inode)) => Ok(*inode),
            Some(Node::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn open_or_create(&self, path: &Path) -> io::Result<usize> {
        match self.file(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => self.create(path),
            other => {
                let inode = other?;
                drop(self.call(Call::Open)?);
                Ok(inode)
            }
        }
    }

    fn write_new(&self, path: &Path, data: &[u8]) -> io::Result<usize> {
        let inode = self.open_or_create(path)?;
        self.set_len(inode, 0)?;
        self.write(inode, 0, data)?;
        Ok(inode)
    }
}

fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(".tmp");
    PathBuf::from(name)
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
        let disk = self.disk.call(Call::Read)?;
        let data = disk.state.data(self.inode);
        let start = at(position)?.min(data.len());
        Ok(Bytes::copy_from_slice(&data[start..(start + len).min(data.len())]))
    }
    fn read_into(&self, position: u64, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.read_at(position, buf.len())?;
        buf[..read.len()].copy_from_slice(&read);
        Ok(read.len())
    }
    fn write_at(&self, position: u64, data: &[u8]) -> io::Result<()> {
        self.disk.write(self.inode, at(position)?, data)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.set_len(self.inode, at(len)?)
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.call(Call::Read)?.state.data(self.inode).len() as u64)
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
        let inode = if write && create {
            self.open_or_create(path)?
        } else {
            drop(self.call(Call::Open)?);
            self.file(path)?
        };
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            inode,
            path: path.to_path_buf(),
        }))
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        drop(self.call(Call::Open)?);
        let inode = self.file(path)?;
        Ok(self.call(Call::Read)?.state.data(inode).to_vec())
    }
    fn drop_cache(&self, path: &Path) -> io::Result<()> {
        drop(self.call(Call::Open)?);
        let inode = self.file(path)?;
        self.lock().state.drop_cache(inode);
        Ok(())
    }
    fn replace(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        let lie = self.lock().lie;
        if lie == Some(Lie::ReplaceInPlace) {
            let inode = self.write_new(path, data)?;
            return self.sync_file(inode, path);
        }
        let temporary = temporary_name(path);
        let sync_parent = || path.parent().map_or(Ok(()), |parent| self.sync_dir(parent));
        if self.exists(&temporary) {
            self.remove_file(&temporary)?;
            sync_parent()?;
        }
        self.replace_without_name(path, data)?;
        sync_parent()
    }
    fn replace_without_name(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        let temporary = temporary_name(path);
        // A failed replacement may have left it, as a link to another file.
        self.remove_file(&temporary)?;
        let inode = self.write_new(&temporary, data)?;
        if self.lock().lie != Some(Lie::ReplaceSync) {
            self.sync_file(inode, &temporary)?;
        }
        self.rename(&temporary, path)
    }
    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let disk = self.call(Call::List)?;
        if disk.state.node(path) != Some(&Node::Dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let dir = name(path);
        let below = disk.state.below(&dir).filter(|(rest, _)| !rest.contains('/'));
        let entries = below.map(|(rest, node)| {
            let (is_dir, len) = match node {
                Node::Dir => (true, 0),
                Node::File(inode) => (false, disk.state.data(*inode).len() as u64),
            };
            DirEntry {
                name: rest.to_owned(),
                is_dir,
                len,
            }
        });
        Ok(entries.collect())
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut missing: Vec<&Path> = path.ancestors().take_while(|p| !self.exists(p)).collect();
        missing.reverse();
        missing
            .into_iter()
            .try_for_each(|dir| self.change_names(NameChange::Link(name(dir), Node::Dir)))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if !self.exists(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.change_names(NameChange::Rename(name(from), name(to)))
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        if !self.exists(path) {
            return Ok(());
        }
        self.change_names(NameChange::Unlink(name(path)))
    }
    /// Removes each file, then the directory, as the operating system does.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let dir = name(path);
        let mut names: Vec<PathBuf> = self.lock().state.below(&dir).map(|(rest, _)| path.join(rest)).collect();
        names.reverse();
        names.push(path.to_path_buf());
        names
            .into_iter()
            .try_for_each(|gone| self.change_names(NameChange::Unlink(name(&gone))))
    }
    fn exists(&self, path: &Path) -> bool {
        self.lock().state.node(path).is_some()
    }
    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        drop(self.call(Call::Read)?);
        self.file(path).map(|_| 0)
    }
    fn set_modified_ms(&self, path: &Path, _modified_ms: i64) -> io::Result<()> {
        drop(self.call(Call::Open)?);
        self.file(path).map(drop)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.call(Call::SyncDir)?;
        let skipped = disk.lie == Some(Lie::DirectorySync);
        disk.change(|state| {
            if !skipped {
                state.sync_names(&name(path));
            }
        });
        Ok(())
    }
    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        self.call(Call::SyncDir)?.change(|state| {
            let dir = name(dir);
            let below: Vec<(String, Node)> = state
                .below(&dir)
                .map(|(rest, node)| (format!("{dir}/{rest}"), node.clone()))
                .collect();
            state.sync_names(&dir);
            for (path, node) in below {
                match node {
                    Node::File(inode) => state.sync_data(inode),
                    Node::Dir => state.sync_names(&path),
                }
            }
        });
        Ok(())
    }
    fn lock_dir(&self, _dir: &Path) -> Result<Box<dyn DirLock>, LockError> {
        drop(self.call(Call::Open).map_err(LockError::Io)?);
        Ok(Box::new(NoLock))
    }
}
