//! Opening a directory: what kind it is, whether it may be written, which topics it holds.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use fletchlog_api::NodeId;
use fletchlog_log::LogError;
use fletchlog_log::checkpoint;
use fletchlog_log::file_name::{CLEANER_CHECKPOINT, LOG, META_PROPERTIES, PARTITION_METADATA, offset_of};
use fletchlog_log::fs::{DirEntry, DirLock, File, Fs, LockError, RealFs};
use fletchlog_log::tiered::open_local;
use fletchlog_records::TopicPartition;
use fletchlog_records::planted;

use super::MAX_PARTITIONS;
use super::log_dir::{LogDir, sync_names};
use super::metadata_file::{ClusterMetadata, METADATA_FILE, TopicRecord};
use super::names::{self, DirName};
use crate::node_ids::{MAX_NODES, NodeIds};
use crate::sync::lock;
use crate::{BrokerError, uuid};

/// The file that lists what an export has yet to write, in the directory that it creates. Its name is also in `fletchlog.exporting`.
const EXPORT_PLAN: &str = "fletchlog.export";

/// Whether a directory is fletchlog's or a Kafka broker's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It has fletchlog's metadata file.
    Ours,
    /// A Kafka broker's log.dir, without a file of fletchlog.
    Kafka,
}

/// First producer id assigned in an adopted log.dir: far above what a broker's blocks of 1000 reach, because the next block of the
/// cluster that wrote it is unknown here.
const FIRST_ADOPTED_PRODUCER_ID: i64 = 1_000_000_000_000;

/// An open directory.
#[derive(Debug)]
pub(crate) struct Directory {
    fs: Arc<dyn Fs>,
    root: PathBuf,
    kind: Kind,
    read_only: bool,
    nodes: NodeIds,
    log_dirs: Vec<LogDir>,
    locks: Mutex<Vec<Box<dyn DirLock>>>,
    /// `fletchlog.metadata` as it was last read by [`Directory::reload`]. It is kept open, so that no other file gets its inode.
    reloaded: Mutex<Option<Arc<dyn File>>>,
}

/// The file system for a local directory: the real one, unless the directory has segments of tiered storage instead of a log
/// directory.
pub(crate) fn file_system(root: &Path, read_only: bool) -> Result<Arc<dyn Fs>, BrokerError> {
    let fs: Arc<dyn Fs> = Arc::new(RealFs::new());
    if !read_only
        || [METADATA_FILE, META_PROPERTIES]
            .iter()
            .any(|name| fs.exists(&root.join(name)))
    {
        return Ok(fs);
    }
    match open_local(root) {
        Ok(tiered) => Ok(tiered.map_or(fs, |tiered| Arc::new(tiered))),
        Err(error) => Err(BrokerError::directory(&*fs, root, error.to_string())),
    }
}

/// The kind of a directory that is not open yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectoryKind {
    /// It does not exist.
    Missing,
    /// It is empty.
    Empty,
    /// fletchlog has written it, or has taken it over.
    Fletchlog,
    /// A Kafka broker's log.dir, without a file of fletchlog.
    Kafka,
    /// Directories of partitions without the other files of a broker, as after copying them by hand.
    Partitions,
}

/// The kind of a local directory.
///
/// # Errors
/// It cannot be read, or it holds something else.
pub fn directory_kind(path: &Path) -> Result<DirectoryKind, BrokerError> {
    classify(&RealFs::new(), path)
}

fn classify(fs: &dyn Fs, root: &Path) -> Result<DirectoryKind, BrokerError> {
    if !fs.exists(root) {
        return Ok(DirectoryKind::Missing);
    }
    let entries = fs
        .read_dir(root)
        .map_err(|e| BrokerError::directory(fs, root, format!("is not a directory that can be read: {e}")))?;
    let has = |name: &str| entries.iter().any(|e| e.name == name);
    if has(METADATA_FILE) {
        return Ok(DirectoryKind::Fletchlog);
    }
    if has(META_PROPERTIES) {
        return Ok(DirectoryKind::Kafka);
    }
    if !fs.is_snapshot() && !has(EXPORT_PLAN) {
        if of_a_partition(&entries) {
            let reason = "is the folder of one partition; open the directory that it is in, or read its files with `fletchlog verify` and `fletchlog dump`";
            return Err(BrokerError::directory(fs, root, reason));
        }
        let is_log = |entry: &DirEntry| {
            entry.is_dir
                && matches!(names::parse(&entry.name), DirName::Partition(_))
                && fs
                    .read_dir(&root.join(&entry.name))
                    .is_ok_and(|files| of_a_partition(&files))
        };
        if entries.iter().any(is_log) {
            return Ok(DirectoryKind::Partitions);
        }
    }
    let ignorable = |name: &str| name == ".lock" || name == "lost+found" || name.starts_with(METADATA_FILE);
    if let Some(other) = entries.iter().find(|e| !ignorable(&e.name)) {
        let advice = if fs.is_snapshot() || has(EXPORT_PLAN) {
            ", or an export that is not finished; finish it with the same fletchlog export, or give the prefix of a whole directory"
        } else {
            "; give an empty or a new one"
        };
        let name = &other.name;
        let reason = format!(
            "holds `{name}` but neither {METADATA_FILE} nor {META_PROPERTIES}, so it is no broker's directory{advice}"
        );
        return Err(BrokerError::directory(fs, root, reason));
    }
    Ok(DirectoryKind::Empty)
}

/// Whether these are the files of one partition. A log that nothing was written to has `partition.metadata` and no segment.
fn of_a_partition(entries: &[DirEntry]) -> bool {
    entries
        .iter()
        .any(|entry| !entry.is_dir && (entry.name == PARTITION_METADATA || offset_of(&entry.name, LOG).is_some()))
}

fn not_for_writing(fs: &dyn Fs, root: &Path) -> BrokerError {
    let reason = "holds folders of partitions without the files that a broker keeps beside them; read_only=True reads them, and a copy of their topics in another directory can be written";
    BrokerError::directory(fs, root, reason)
}

impl Directory {
    /// Opens the directory, which has this number of nodes, and these ids if there are any. With `read_only` nothing is written and no lock is
    /// taken.
    pub(crate) fn open(
        fs: Arc<dyn Fs>,
        root: &Path,
        nodes: Option<u32>,
        ids: &[NodeId],
        read_only: bool,
    ) -> Result<(Self, ClusterMetadata), BrokerError> {
        if nodes.is_some_and(|nodes| !(1..=MAX_NODES).contains(&nodes)) {
            let reason = format!("can have 1 to {MAX_NODES} nodes, not {}", nodes.unwrap_or(0));
            return Err(BrokerError::directory(&*fs, root, reason));
        }
        let wanted = match ids {
            [] => nodes.map(NodeIds::numbered),
            ids => Some(NodeIds::of(ids.to_vec()).map_err(|reason| BrokerError::directory(&*fs, root, reason))?),
        };
        if read_only {
            Self::open_read_only(fs, root, wanted)
        } else {
            Self::open_for_writing(fs, root, wanted)
        }
    }

    fn open_read_only(
        fs: Arc<dyn Fs>,
        root: &Path,
        nodes: Option<NodeIds>,
    ) -> Result<(Self, ClusterMetadata), BrokerError> {
        let (kind, metadata) = match classify(&*fs, root)? {
            DirectoryKind::Missing => {
                return Err(BrokerError::directory(&*fs, root, "does not exist; check the name"));
            }
            DirectoryKind::Empty => {
                return Err(BrokerError::directory(
                    &*fs,
                    root,
                    "is empty, there is nothing to read; open it without read_only to begin a log in it",
                ));
            }
            DirectoryKind::Fletchlog => (Kind::Ours, ClusterMetadata::load(&*fs, root)?.0),
            DirectoryKind::Kafka | DirectoryKind::Partitions => (Kind::Kafka, derive_metadata(&*fs, root, true)?),
        };
        check_nodes(&*fs, root, nodes.as_ref(), &metadata.nodes)?;
        let log_dirs = node_paths(root, &metadata.nodes)
            .iter()
            .map(|path| LogDir::open_for_reading(&*fs, path))
            .collect::<Result<_, _>>()?;
        let directory = Self {
            fs,
            root: root.to_path_buf(),
            kind,
            read_only: true,
            nodes: metadata.nodes.clone(),
            log_dirs,
            locks: Mutex::default(),
            reloaded: Mutex::default(),
        };
        Ok((directory, metadata))
    }

    fn open_for_writing(
        fs: Arc<dyn Fs>,
        root: &Path,
        nodes: Option<NodeIds>,
    ) -> Result<(Self, ClusterMetadata), BrokerError> {
        match classify(&*fs, root)? {
            DirectoryKind::Missing | DirectoryKind::Empty => create_durably(&*fs, root)
                .map_err(|e| BrokerError::directory(&*fs, root, format!("cannot be created: {e}")))?,
            DirectoryKind::Partitions => return Err(not_for_writing(&*fs, root)),
            DirectoryKind::Fletchlog | DirectoryKind::Kafka => {}
        }
        refuse_part_of_a_cluster(&*fs, root)?;
        let mut locks = vec![take_lock(&*fs, root)?];
        // Classified again under the lock: another process may have been quicker.
        let metadata = match classify(&*fs, root)? {
            DirectoryKind::Missing | DirectoryKind::Empty => {
                let metadata = ClusterMetadata::new(nodes.clone().unwrap_or(NodeIds::numbered(1)));
                metadata.store(&*fs, root)?;
                metadata
            }
            DirectoryKind::Fletchlog => {
                sync_names(&*fs, root)?;
                ClusterMetadata::load(&*fs, root)?.0
            }
            DirectoryKind::Kafka => {
                check_nodes(&*fs, root, nodes.as_ref(), &NodeIds::numbered(1))?;
                let metadata = derive_metadata(&*fs, root, false)?;
                metadata.store(&*fs, root)?;
                metadata
            }
            DirectoryKind::Partitions => return Err(not_for_writing(&*fs, root)),
        };
        check_nodes(&*fs, root, nodes.as_ref(), &metadata.nodes)?;
        let mut log_dirs = Vec::new();
        for (path, node_id) in node_paths(root, &metadata.nodes).iter().zip(metadata.nodes.as_slice()) {
            if path != root {
                fs.create_dir_all(path)
                    .map_err(|e| BrokerError::directory(&*fs, path, format!("cannot be created: {e}")))?;
                locks.push(take_lock(&*fs, path)?);
            }
            log_dirs.push(LogDir::open_for_writing(&*fs, path, *node_id, &metadata.cluster_id)?);
        }
        let directory = Self {
            fs,
            root: root.to_path_buf(),
            kind: Kind::Ours,
            read_only: false,
            nodes: metadata.nodes.clone(),
            log_dirs,
            locks: Mutex::new(locks),
            reloaded: Mutex::default(),
        };
        directory.clear_leftovers(&metadata)?;
        for dir in &directory.log_dirs {
            let exists = |tp: &TopicPartition| has_partition(&metadata, tp);
            // Also on disk: the next start would apply them to a topic of the same name that is created until then.
            if dir.retain(exists) {
                dir.write_checkpoints(&*directory.fs, &[], exists)?;
                match dir.forget_clean_offsets(&*directory.fs, exists) {
                    // Cleaning reports it.
                    Err(BrokerError::Log(LogError::Damaged { .. })) => {}
                    forgotten => forgotten?,
                }
            }
        }
        Ok((directory, metadata))
    }

    /// Drops the checkpoints' offsets of partitions that no longer belong to a topic.
    pub(crate) fn forget_deleted(&self, metadata: &ClusterMetadata) {
        for dir in &self.log_dirs {
            dir.retain(|tp| has_partition(metadata, tp));
        }
    }

    /// Removes what interrupted deletions left, and sets aside logs that belong to no topic (Kafka: stray logs). Both are durable:
    /// the names may be used again at once.
    ///
    /// # Errors
    /// The first failure, after everything else was tried; other failures are logged.
    pub(crate) fn clear_leftovers(&self, metadata: &ClusterMetadata) -> Result<(), BrokerError> {
        let mut first = Ok(());
        for (dir, node) in self.log_dirs.iter().zip(self.nodes.as_slice()) {
            let mut changed = false;
            for (name, parsed) in dir.list(&*self.fs)? {
                match self.clear_leftover(&dir.path().join(name), parsed, *node, metadata) {
                    Ok(cleared) => changed |= cleared,
                    Err(error) if first.is_ok() => first = Err(error),
                    Err(error) => log::error!("{error}"),
                }
            }
            if changed {
                sync_names(&*self.fs, dir.path())?;
            }
        }
        first
    }

    /// Returns whether there was anything to do.
    fn clear_leftover(
        &self,
        path: &Path,
        name: DirName,
        node: NodeId,
        metadata: &ClusterMetadata,
    ) -> Result<bool, BrokerError> {
        let io = |e: std::io::Error| BrokerError::directory(&*self.fs, path, format!("cannot be removed: {e}"));
        let DirName::Partition(tp) = name else {
            let deleted = name == DirName::Deleted;
            if deleted {
                self.fs.remove_dir_all(path).map_err(io)?;
            }
            return Ok(deleted);
        };
        let known = metadata
            .topics
            .get(&*tp.topic)
            .is_some_and(|t| tp.partition < t.partitions && t.leader_of(tp.partition, &metadata.nodes) == node);
        let deleting = || {
            let id = checkpoint::read_partition_metadata(&*self.fs, path).ok().flatten();
            id.is_some_and(|id| metadata.deleting.contains(&id))
        };
        if !metadata.deleting.is_empty() && deleting() {
            self.fs.remove_dir_all(path).map_err(io)?;
        } else if known {
            return Ok(false);
        } else if self.is_without_log(path).map_err(io)? {
            self.fs.remove_dir_all(path).map_err(io)?;
        } else {
            log::warn!(
                "{} belongs to no topic; it is set aside as a stray log",
                self.fs.display(path).display()
            );
            self.fs
                .rename(path, &path.with_file_name(names::stray_dir_name(&tp)))
                .map_err(io)?;
        }
        Ok(true)
    }

    /// Whether a directory has only what creating a topic writes: no record was ever written there.
    fn is_without_log(&self, path: &Path) -> std::io::Result<bool> {
        let entries = self.fs.read_dir(path)?;
        Ok(entries.iter().all(|entry| entry.name.starts_with(PARTITION_METADATA)))
    }

    /// The file system.
    pub(crate) fn fs(&self) -> &Arc<dyn Fs> {
        &self.fs
    }

    /// The directory.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether it was opened for reading only.
    pub(crate) fn read_only(&self) -> bool {
        self.read_only
    }

    /// Whether it is a Kafka broker's log.dir, read as it is: it does not say how many partitions a topic has, only which of them are
    /// here.
    pub(crate) fn is_kafkas(&self) -> bool {
        self.kind == Kind::Kafka
    }

    /// The nodes.
    pub(crate) fn nodes(&self) -> &NodeIds {
        &self.nodes
    }

    /// One log directory per node, in the order of [`Self::nodes`].
    pub(crate) fn log_dirs(&self) -> &[LogDir] {
        &self.log_dirs
    }

    /// The log directory of a node.
    pub(crate) fn log_dir_of(&self, node: NodeId) -> &LogDir {
        // The nodes in the metadata were checked when it was read or changed.
        &self.log_dirs[self.nodes.index_of(node).unwrap_or(0)]
    }

    /// Read-only: the metadata, read again; `None`: it is the same as `seen`.
    pub(crate) fn reload(&self, seen: &ClusterMetadata) -> Result<Option<ClusterMetadata>, BrokerError> {
        if self.fs.is_snapshot() {
            return Ok(None);
        }
        let path = self.root.join(METADATA_FILE);
        let mut reloaded = lock(&self.reloaded);
        // The file is never changed, only replaced.
        if reloaded.as_ref().is_some_and(|file| file.is_at(&path).unwrap_or(false)) {
            return Ok(None);
        }
        // Opened first: if it is replaced in between, the next check reads it again.
        let file = match self.fs.open(&path, false, false) {
            Err(error) if error.kind() == ErrorKind::NotFound && self.kind == Kind::Kafka => None,
            opened => {
                Some(opened.map_err(|e| BrokerError::directory(&*self.fs, &path, format!("cannot be opened: {e}")))?)
            }
        };
        let metadata = match &file {
            // If it was a Kafka broker's directory, a writer has taken it over since.
            Some(_) => ClusterMetadata::load(&*self.fs, &self.root)?.0,
            None => derive_metadata(&*self.fs, &self.root, true)?,
        };
        *reloaded = file;
        if (&metadata.topics, &metadata.security, &metadata.configs) == (&seen.topics, &seen.security, &seen.configs) {
            return Ok(None);
        }
        Ok(Some(metadata))
    }

    /// Releases the locks.
    pub(crate) fn unlock(&self) {
        lock(&self.locks).clear();
    }
}

fn has_partition(metadata: &ClusterMetadata, tp: &TopicPartition) -> bool {
    let topic = metadata.topics.get(&*tp.topic);
    topic.is_some_and(|t| tp.partition < t.partitions)
}

fn node_paths(root: &Path, nodes: &NodeIds) -> Vec<PathBuf> {
    match nodes.as_slice() {
        [_] => vec![root.to_path_buf()],
        ids => ids.iter().map(|id| root.join(format!("node-{id}"))).collect(),
    }
}

fn check_nodes(fs: &dyn Fs, root: &Path, wanted: Option<&NodeIds>, found: &NodeIds) -> Result<(), BrokerError> {
    let Some(wanted) = wanted.filter(|wanted| *wanted != found) else {
        return Ok(());
    };
    let reason = match wanted.is_numbered() && found.is_numbered() {
        true => {
            let (found, wanted) = (found.count(), wanted.count());
            format!("has {found} node(s), not {wanted}; leave nodes= out or give {found}")
        }
        false => format!("has the nodes {found}, not {wanted}; leave nodes= out or give these ids"),
    };
    Err(BrokerError::directory(fs, root, reason))
}

fn refuse_part_of_a_cluster(fs: &dyn Fs, root: &Path) -> Result<(), BrokerError> {
    let is_node = root
        .file_name()
        .and_then(|n| n.to_str())
        .is_some_and(|n| n.starts_with("node-"));
    match root.parent() {
        Some(parent) if is_node && fs.exists(&parent.join(METADATA_FILE)) => Err(BrokerError::directory(
            fs,
            root,
            format!(
                "is one node of the broker in {}; open that directory",
                fs.display(parent).display()
            ),
        )),
        _ => Ok(()),
    }
}

/// Creates a directory if it does not exist, and makes its name durable: what is synced in it later would be lost with its name.
fn create_durably(fs: &dyn Fs, root: &Path) -> std::io::Result<()> {
    let made: Vec<&Path> = root.ancestors().take_while(|dir| !fs.exists(dir)).collect();
    fs.create_dir_all(root)?;
    // A process that was killed may have created it a moment ago.
    let made = if planted!("root-directory-not-synced") {
        vec![]
    } else if made.is_empty() {
        vec![root]
    } else {
        made
    };
    for parent in made.into_iter().filter_map(Path::parent) {
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        match fs.sync_dir(parent) {
            // Another user's directory: its owner has to keep it safe.
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {}
            other => other?,
        }
    }
    Ok(())
}

fn take_lock(fs: &dyn Fs, dir: &Path) -> Result<Box<dyn DirLock>, BrokerError> {
    fs.lock_dir(dir).map_err(|e| match e {
        LockError::Held { pid } => BrokerError::DirectoryLocked {
            path: fs.display(dir),
            pid,
        },
        LockError::Io(e) => BrokerError::directory(fs, dir, format!("its .lock file cannot be locked: {e}")),
    })
}

/// The metadata that a Kafka broker's own log.dir shows: topics from the partition directories, ids from `partition.metadata`. Topic
/// configurations are in the cluster's metadata log and unknown here, so retention is off; logs that Kafka compacts (they are in the
/// cleaner's checkpoint) stay marked as compacted.
fn derive_metadata(fs: &dyn Fs, root: &Path, read_only: bool) -> Result<ClusterMetadata, BrokerError> {
    let mut metadata = ClusterMetadata::new(NodeIds::numbered(1));
    if let Some(id) = checkpoint::read_meta_properties(fs, root)?.and_then(|properties| properties.cluster_id) {
        metadata.cluster_id = id;
    }
    metadata.next_producer_id = FIRST_ADOPTED_PRODUCER_ID;
    let compacted = checkpoint::read_offset_checkpoint(fs, &root.join(CLEANER_CHECKPOINT))?;
    let dir = LogDir::open_for_reading(fs, root)?;
    let mut present: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for (name, parsed) in dir.list(fs)? {
        let DirName::Partition(tp) = parsed else { continue };
        if tp.partition >= MAX_PARTITIONS {
            let reason = format!(
                "holds `{name}`, but no topic has {MAX_PARTITIONS} partitions; move the directory away if it is not a log"
            );
            return Err(BrokerError::directory(fs, root, reason));
        }
        let id = checkpoint::read_partition_metadata(fs, &root.join(&name))?;
        let topic = metadata.topics.entry(tp.topic.to_string()).or_insert_with(|| {
            let policy = if compacted.keys().any(|k| k.topic == tp.topic) {
                "compact"
            } else {
                "delete"
            };
            let config = BTreeMap::from([
                ("cleanup.policy".to_owned(), policy.to_owned()),
                ("retention.ms".to_owned(), "-1".to_owned()),
            ]);
            TopicRecord {
                id: [0; 16],
                partitions: 0,
                first_leader: 0,
                replication_factor: 1,
                assigned: BTreeMap::new(),
                states: BTreeMap::new(),
                config,
            }
        });
        topic.id = id.unwrap_or(topic.id);
        topic.partitions = topic.partitions.max(tp.partition.saturating_add(1));
        present.entry(tp.topic.to_string()).or_default().push(tp.partition);
    }
    if !read_only {
        for (name, topic) in &metadata.topics {
            let have = present.get(name).map_or(0, Vec::len);
            if i64::from(topic.partitions) != i64::try_from(have).unwrap_or(i64::MAX) {
                return Err(BrokerError::directory(
                    fs,
                    root,
                    format!(
                        "holds {have} of the {} partitions of topic {name}: it is one broker's part of a larger cluster, which cannot be written alone; open it with read_only=True",
                        topic.partitions
                    ),
                ));
            }
        }
        for topic in metadata.topics.values_mut().filter(|topic| topic.id == [0; 16]) {
            // No partition has the id; Kafka reserves the id of zeros.
            topic.id = uuid::random();
        }
        metadata.topics_created = metadata.topics.len() as u64;
    }
    Ok(metadata)
}
