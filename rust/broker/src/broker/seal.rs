//! The content of a copy of the directory that a reader can open at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fletchlog_log::checkpoint::{
    self, MetaProperties, read_meta_properties, write_clean_shutdown, write_meta_properties, write_offset_checkpoint,
};
use fletchlog_log::file_name::CLEANER_CHECKPOINT;
use fletchlog_log::fs::{Fs, MemoryFs};
use fletchlog_log::{PartitionLog, SealedFile};
use fletchlog_records::TopicPartition;

use super::Broker;
use crate::BrokerError;
use crate::directory::{Directory, LogDir};
use crate::log_manager::offsets;
use crate::security::SecurityRecord;

/// The content of a copy. Paths are relative to the root of the directory.
#[derive(Debug)]
pub struct SealedDirectory {
    /// Files that are copied.
    pub copied: Vec<SealedFile>,
    /// Files written for the copy, with their bytes. The last ones identify the directory: a reader refuses it without them.
    pub made: Vec<(PathBuf, Vec<u8>)>,
    /// Every partition with a log: its start and its end in the copy.
    pub partitions: Vec<(TopicPartition, i64, i64)>,
}

impl Broker {
    /// The content of a copy of these topics as they are now; `None`: all topics, also internal ones. SCRAM users and ACLs are left
    /// out. Each partition is captured at one moment, one partition after the other.
    ///
    /// # Errors
    /// `ReadOnly` unless the broker is open for reading, UNKNOWN_TOPIC_OR_PARTITION, `Closed`, storage errors.
    pub fn seal(&self, topics: Option<&[String]>) -> Result<SealedDirectory, BrokerError> {
        let _open = self.enter()?;
        if !self.is_read_only() {
            let text = "only a broker that is open with read_only=True can be exported".to_owned();
            return Err(BrokerError::kafka(fletchlog_api::ErrorCode::INVALID_REQUEST, text));
        }
        if self.logs.directory().fs().is_snapshot() {
            return Err(BrokerError::ReadOnlyStore("export"));
        }
        self.replicas.controller().see_new_topics()?;
        let mut metadata = self.replicas.controller().current_metadata();
        if let Some(wanted) = topics {
            for name in wanted {
                self.replicas.topic(name)?;
            }
            metadata.topics.retain(|name, _| wanted.contains(name));
        }
        metadata.deleting.clear();
        metadata.security = SecurityRecord::default();
        let directory = self.logs.directory();
        let out = MemoryFs::new();
        let mut sealed = SealedDirectory {
            copied: Vec::new(),
            made: Vec::new(),
            partitions: Vec::new(),
        };
        let mut logs = vec![Vec::new(); directory.log_dirs().len()];
        for name in metadata.topics.keys() {
            for partition in &self.replicas.topic(name)?.partitions {
                if directory.is_kafkas() && !directory.fs().exists(partition.dir()) {
                    continue;
                }
                make_dir(&out, partition.dir())?;
                checkpoint::write_partition_metadata(&out, partition.dir(), partition.topic_id())?;
                if !partition.has_log(directory)? {
                    continue;
                }
                let log: &PartitionLog = self.replicas.log_of(partition)?;
                sealed.copied.extend(log.seal(&out)?);
                let at_end = offsets(partition, log);
                let (start, end) = (at_end.log_start_offset, at_end.high_watermark);
                sealed.partitions.push((partition.tp().clone(), start, end));
                logs[partition.node_index()].push(at_end);
            }
        }
        for (dir, logs) in directory.log_dirs().iter().zip(&mut logs) {
            make_dir(&out, dir.path())?;
            // In the copy, the whole log counts as on disk.
            logs.iter_mut().for_each(|log| log.recovery_point = log.high_watermark);
            let exists = |tp: &TopicPartition| metadata.topics.contains_key(&*tp.topic);
            dir.write_checkpoints(&out, logs, exists)?;
            write_of_log_dir(&**directory.fs(), &out, dir, &metadata.cluster_id, exists)?;
        }
        if !directory.is_kafkas() {
            metadata.store(&out, directory.root())?;
        }
        sealed.made = made(&out, directory)?;
        below(directory.root(), sealed)
    }
}

/// The cleaner's checkpoint, the marker of a clean stop and the identity of a log directory.
fn write_of_log_dir(
    fs: &dyn Fs,
    out: &MemoryFs,
    dir: &LogDir,
    cluster_id: &str,
    exists: impl Fn(&TopicPartition) -> bool,
) -> Result<(), BrokerError> {
    let mut clean: BTreeMap<TopicPartition, i64> = dir.clean_offsets(fs)?;
    clean.retain(|tp, _| exists(tp));
    if !clean.is_empty() {
        write_offset_checkpoint(out, &dir.path().join(CLEANER_CHECKPOINT), &clean)?;
    }
    write_clean_shutdown(out, dir.path())?;
    let properties = read_meta_properties(fs, dir.path())?.unwrap_or(MetaProperties {
        version: 1,
        node_id: 1,
        cluster_id: Some(cluster_id.to_owned()),
        directory_id: None,
    });
    Ok(write_meta_properties(out, dir.path(), &properties)?)
}

fn make_dir(out: &MemoryFs, dir: &Path) -> Result<(), BrokerError> {
    out.create_dir_all(dir)
        .map_err(|e| BrokerError::directory(out, dir, format!("cannot be made: {e}")))
}

/// The files written to `out`, those of the root last.
fn made(out: &MemoryFs, directory: &Directory) -> Result<Vec<(PathBuf, Vec<u8>)>, BrokerError> {
    let mut files = Vec::new();
    let mut open = vec![directory.root().to_path_buf()];
    while let Some(dir) = open.pop() {
        let failed = |e: std::io::Error| BrokerError::directory(out, &dir, format!("cannot be read: {e}"));
        for entry in out.read_dir(&dir).map_err(failed)? {
            let path = dir.join(&entry.name);
            if entry.is_dir {
                open.push(path);
            } else {
                let bytes = out.read(&path).map_err(failed)?;
                files.push((path, bytes));
            }
        }
    }
    // A directory with `meta.properties` alone would be taken for a Kafka broker's.
    let rank = |path: &Path| match path.file_name().and_then(|name| name.to_str()) {
        _ if path.parent() != Some(directory.root()) => 0,
        Some(crate::directory::METADATA_FILE) => 2,
        Some(fletchlog_log::file_name::META_PROPERTIES) => 3,
        _ => 1,
    };
    files.sort_by_key(|(path, _)| rank(path));
    Ok(files)
}

/// The same with paths relative to the root.
fn below(root: &Path, mut sealed: SealedDirectory) -> Result<SealedDirectory, BrokerError> {
    let paths = sealed.copied.iter_mut().map(|file| &mut file.path);
    for path in paths.chain(sealed.made.iter_mut().map(|(path, _)| path)) {
        let name = path.strip_prefix(root).map(Path::to_path_buf);
        *path = name.map_err(|_| {
            let reason = format!("is not below {}; this is a defect", root.display());
            BrokerError::Directory {
                path: path.clone(),
                reason,
            }
        })?;
    }
    Ok(sealed)
}
