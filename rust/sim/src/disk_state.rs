//! The contents of a simulated disk at one moment: those that programs see (live), and those that a power loss would leave (durable).
//!
//! The rules are stricter than those of any journalling file system: a file's fsync makes its bytes durable but not its name, a directory's
//! fsync makes its names durable but not the bytes of its files, and any part of the unsynced changes may survive, in any order, torn at
//! sector borders. A copy shares everything that does not change, so that a state can be kept for every operation.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustc_hash::FxHasher;

/// Bytes that survive or vanish together. Small, so that small batches tear too.
const SECTOR: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Dir,
    File(usize),
}

/// A path as text, which compares much faster.
pub(crate) type Name = Arc<str>;

#[derive(Debug, Clone)]
pub(crate) enum NameChange {
    Link(Name, Node),
    Unlink(Name),
    Rename(Name, Name),
}

#[derive(Debug, Clone)]
pub(crate) enum DataChange {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

#[derive(Debug, Clone, Default)]
struct Inode {
    live: Arc<Vec<u8>>,
    durable: Arc<Vec<u8>>,
    pending: Vec<(u64, DataChange)>,
    /// Hash of `live`.
    hash: OnceLock<u64>,
}

pub(crate) type Names = BTreeMap<Name, Node>;

/// Everything on the disk at one moment.
#[derive(Debug, Clone, Default)]
pub struct DiskState {
    inodes: Vec<Arc<Inode>>,
    names: Arc<Names>,
    durable_names: Arc<Names>,
    pending_names: Vec<(u64, NameChange)>,
    /// Number of operations so far that changed something.
    pub(crate) operations: u64,
}

/// Which of the unsynced changes survive.
pub enum Left<'a> {
    /// None.
    Nothing,
    /// Those whose number is below this.
    Before(u64),
    /// Names and sizes, which a journal keeps, but zeros instead of written bytes. As ext4 with data=writeback.
    Sizes,
    /// Those that the chooser keeps: for each change `None` = lost, `Some(seed)` = kept, writes torn by the bits of the seed (`u64::MAX` =
    /// whole, 0 = only the size).
    Some(&'a mut dyn FnMut() -> Option<u64>),
}

fn write(data: &mut Vec<u8>, position: usize, bytes: &[u8]) {
    if data.len() < position + bytes.len() {
        data.resize(position + bytes.len(), 0);
    }
    data[position..position + bytes.len()].copy_from_slice(bytes);
}

/// A path as a name.
pub(crate) fn name(path: &Path) -> Name {
    path.to_string_lossy().into()
}

fn parent(name: &str) -> Option<&str> {
    match name.rsplit_once('/')? {
        ("", "") => None,
        ("", _) => Some("/"),
        (parent, _) => Some(parent),
    }
}

/// The part of a name after the directory and a slash.
fn strip<'a>(name: &'a str, dir: &str) -> Option<&'a str> {
    name.strip_prefix(dir)?.strip_prefix('/')
}

/// Removes a name and, if it is a directory, everything below it.
fn remove(names: &mut Names, gone: &str) -> Option<Node> {
    let node = names.remove(gone)?;
    if node == Node::Dir {
        names.retain(|name, _| strip(name, gone).is_none());
    }
    Some(node)
}

/// Removes names in directories that do not exist: a name may be durable in a directory whose own name is not.
fn drop_unreachable(names: &mut Arc<Names>) {
    let is_lost = |names: &Names, name: &str| parent(name).is_some_and(|parent| !names.contains_key(parent));
    while let Some(lost) = names.keys().find(|name| is_lost(names, name)).cloned() {
        Arc::make_mut(names).remove(&lost);
    }
}

impl DataChange {
    fn apply(&self, data: &mut Vec<u8>) {
        match self {
            Self::Write(position, bytes) => write(data, *position, bytes),
            Self::SetLen(len) => data.resize(*len, 0),
        }
    }

    /// Applies only the sectors whose bit is set, and the size if the number of bits is even. A lost sector before a kept one, or within
    /// the size, reads as zeros.
    fn apply_torn(&self, data: &mut Vec<u8>, sectors: u64) {
        let Self::Write(position, bytes) = self else {
            return self.apply(data);
        };
        if sectors.count_ones().is_multiple_of(2) && data.len() < position + bytes.len() {
            data.resize(position + bytes.len(), 0);
        }
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

/// The new name after a directory (or the file itself) was renamed.
fn moved(name: &Name, from: &str, to: &Name) -> Name {
    if **name == *from {
        return Arc::clone(to);
    }
    strip(name, from).map_or_else(|| Arc::clone(name), |rest| format!("{to}/{rest}").into())
}

impl NameChange {
    fn apply(&self, names: &mut Names) {
        match self {
            Self::Link(name, node) => {
                // A new directory is empty, whatever had that name before.
                remove(names, name);
                names.insert(Arc::clone(name), node.clone());
            }
            Self::Unlink(name) => {
                remove(names, name);
            }
            Self::Rename(from, to) => {
                let Some(node) = names.remove(from) else { return };
                remove(names, to);
                if node == Node::Dir {
                    let below: Vec<Name> = names.keys().filter(|n| strip(n, from).is_some()).cloned().collect();
                    for name in below {
                        if let Some(node) = names.remove(&name) {
                            names.insert(moved(&name, from, to), node);
                        }
                    }
                }
                names.insert(Arc::clone(to), node);
            }
        }
    }

    fn name(&self) -> &Name {
        match self {
            Self::Link(name, _) | Self::Unlink(name) | Self::Rename(name, _) => name,
        }
    }

    fn moved(&self, from: &Name, to: &Name) -> Self {
        match self {
            Self::Link(name, node) => Self::Link(moved(name, from, to), node.clone()),
            Self::Unlink(name) => Self::Unlink(moved(name, from, to)),
            Self::Rename(a, b) => Self::Rename(moved(a, from, to), moved(b, from, to)),
        }
    }

    fn touches(&self, dir: &str) -> bool {
        match self {
            Self::Link(name, _) | Self::Unlink(name) => parent(name) == Some(dir),
            Self::Rename(from, to) => parent(from) == Some(dir) || parent(to) == Some(dir),
        }
    }
}

impl DiskState {
    /// A disk with empty, durable directories.
    pub(crate) fn with_dirs(dirs: &[&Path]) -> Self {
        let names = dirs.iter().flat_map(|dir| dir.ancestors());
        let names = Arc::new(names.map(|dir| (name(dir), Node::Dir)).collect::<Names>());
        Self {
            durable_names: Arc::clone(&names),
            names,
            ..Self::default()
        }
    }

    /// Numbers of the changes that are not durable yet, ascending.
    pub fn pending(&self) -> Vec<u64> {
        let data = self.inodes.iter().flat_map(|i| i.pending.iter().map(|(at, _)| *at));
        let mut all: Vec<u64> = data.chain(self.pending_names.iter().map(|(at, _)| *at)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether all live contents are durable, so that nothing can be lost.
    pub(crate) fn is_clean(&self) -> bool {
        let same = |inode: &Arc<Inode>| inode.pending.is_empty() && Arc::ptr_eq(&inode.live, &inode.durable);
        self.pending_names.is_empty() && self.inodes.iter().all(same)
    }

    /// Number of operations before this moment.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// The disk after a restart.
    #[must_use]
    pub fn left(&self, mut left: Left<'_>) -> Self {
        let mut keep = |at: u64| match &mut left {
            Left::Nothing => None,
            Left::Before(end) => (at < *end).then_some(u64::MAX),
            Left::Sizes => Some(0),
            Left::Some(chooser) => chooser(),
        };
        let mut names = Arc::clone(&self.durable_names);
        for (at, change) in &self.pending_names {
            if keep(*at).is_some() {
                change.apply(Arc::make_mut(&mut names));
            }
        }
        drop_unreachable(&mut names);
        let mut survive = |inode: &Arc<Inode>| {
            if inode.pending.is_empty() && Arc::ptr_eq(&inode.live, &inode.durable) {
                return Arc::clone(inode);
            }
            let mut data = Arc::clone(&inode.durable);
            for (at, change) in &inode.pending {
                if let Some(sectors) = keep(*at) {
                    change.apply_torn(Arc::make_mut(&mut data), sectors);
                }
            }
            Arc::new(Inode {
                live: Arc::clone(&data),
                durable: data,
                ..Inode::default()
            })
        };
        Self {
            inodes: self.inodes.iter().map(&mut survive).collect(),
            durable_names: Arc::clone(&names),
            names,
            ..Self::default()
        }
    }

    /// Equal for equal names and contents.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = FxHasher::default();
        for (name, node) in self.names.iter() {
            name.hash(&mut hasher);
            match node {
                Node::Dir => 0u64.hash(&mut hasher),
                Node::File(inode) => self.inodes[*inode].fingerprint().hash(&mut hasher),
            }
        }
        hasher.finish()
    }

    pub(crate) fn node(&self, path: &Path) -> Option<&Node> {
        self.names.get(path.to_str()?)
    }

    /// The nodes below a directory, at any depth, each with the rest of its path.
    pub(crate) fn below<'a>(&'a self, dir: &'a str) -> impl Iterator<Item = (&'a str, &'a Node)> {
        let names = self.names.range::<str, _>((Bound::Excluded(dir), Bound::Unbounded));
        names
            .take_while(move |(name, _)| name.starts_with(dir))
            .filter_map(move |(name, node)| Some((strip(name, dir)?, node)))
    }

    pub(crate) fn data(&self, inode: usize) -> &[u8] {
        &self.inodes[inode].live
    }

    /// Adds a file without a name.
    pub(crate) fn new_file(&mut self) -> usize {
        self.inodes.push(Arc::default());
        self.inodes.len() - 1
    }

    pub(crate) fn change_names(&mut self, change: NameChange) {
        change.apply(Arc::make_mut(&mut self.names));
        self.pending_names.push((self.operations, change));
    }

    pub(crate) fn change_data(&mut self, inode: usize, change: DataChange) {
        let at = self.operations;
        let inode = Arc::make_mut(&mut self.inodes[inode]);
        change.apply(Arc::make_mut(&mut inode.live));
        inode.hash = OnceLock::new();
        inode.pending.push((at, change));
    }

    pub(crate) fn sync_data(&mut self, inode: usize) {
        if self.inodes[inode].pending.is_empty() {
            return;
        }
        let inode = Arc::make_mut(&mut self.inodes[inode]);
        let durable = Arc::make_mut(&mut inode.durable);
        for (_, change) in std::mem::take(&mut inode.pending) {
            change.apply(durable);
        }
        if inode.durable == inode.live {
            inode.durable = Arc::clone(&inode.live);
        }
    }

    /// A write-back failed: programs still see their data, but no later fsync writes it to the disk.
    pub(crate) fn lose_data(&mut self, inode: usize) {
        Arc::make_mut(&mut self.inodes[inode]).pending.clear();
    }

    /// Programs see the disk's data again, with zeros where none was written.
    pub(crate) fn drop_cache(&mut self, inode: usize) {
        let inode = Arc::make_mut(&mut self.inodes[inode]);
        let mut data = (*inode.durable).clone();
        for (_, change) in &inode.pending {
            change.apply(&mut data);
        }
        data.resize(inode.live.len(), 0);
        if data != *inode.live {
            inode.live = Arc::new(data);
            inode.hash = OnceLock::new();
        }
    }

    pub(crate) fn sync_names(&mut self, dir: &str) {
        let (now, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pending_names)
            .into_iter()
            .partition(|(_, change)| change.touches(dir));
        self.pending_names = later;
        for (at, change) in now {
            change.apply(Arc::make_mut(&mut self.durable_names));
            // Earlier changes in a directory move or vanish with the directory.
            match &change {
                NameChange::Rename(from, to) => {
                    for (_, earlier) in self.pending_names.iter_mut().filter(|(earlier, _)| *earlier < at) {
                        *earlier = earlier.moved(from, to);
                    }
                }
                NameChange::Unlink(gone) | NameChange::Link(gone, Node::Dir) => {
                    self.pending_names
                        .retain(|(earlier, change)| *earlier > at || strip(change.name(), gone).is_none());
                }
                NameChange::Link(..) => {}
            }
        }
    }
}

impl Inode {
    fn fingerprint(&self) -> u64 {
        *self.hash.get_or_init(|| {
            let mut hasher = FxHasher::default();
            self.live.hash(&mut hasher);
            hasher.finish()
        })
    }
}
