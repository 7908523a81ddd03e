//! What the log directories hold. Kafka: `ReplicaManager#describeLogDirs`.

use std::io::ErrorKind;
use std::path::PathBuf;

use fletchlog_api::NodeId;
use fletchlog_log::{LogError, file_name};
use fletchlog_records::TopicPartition;

use super::LogManager;
use crate::BrokerError;
use crate::each_log::EachLog;
use crate::partition::Partition;

/// A log directory.
#[derive(Debug, Clone)]
pub struct LogDirDescription {
    /// Node that it belongs to.
    pub node: NodeId,
    /// Where it is.
    pub path: PathBuf,
    /// Bytes of its device, -1 in memory.
    pub total_bytes: i64,
    /// Free bytes of its device, -1 in memory.
    pub usable_bytes: i64,
    /// Bytes of every partition's segments, by partition.
    pub partitions: Vec<(TopicPartition, u64)>,
}

impl LogManager {
    /// The log directory of every node. No log is opened. A partition whose directory cannot be listed is left out, which is logged.
    pub(crate) fn describe_log_dirs(&self) -> Result<Vec<LogDirDescription>, BrokerError> {
        let topics = self.topics();
        let fs = self.directory.fs();
        let mut dirs = Vec::new();
        let mut describing = EachLog::new("cannot be examined");
        for (dir, node) in self.directory.log_dirs().iter().zip(self.directory.nodes().as_slice()) {
            let space = fs.space(dir.path());
            let space =
                space.map_err(|e| BrokerError::directory(&**fs, dir.path(), format!("cannot be examined: {e}")))?;
            let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
            dirs.push(LogDirDescription {
                node: *node,
                path: fs.display(dir.path()),
                total_bytes: space.map_or(-1, |(total, _)| bytes(total)),
                usable_bytes: space.map_or(-1, |(_, usable)| bytes(usable)),
                partitions: Vec::new(),
            });
        }
        for partition in topics.iter().flat_map(|topic| &topic.partitions) {
            let size = self.ignore_if_deleted(partition, self.size_of(partition));
            let size = describing.note(partition, size).flatten();
            if let (Some(size), Some(dir)) = (size, dirs.get_mut(partition.node_index())) {
                dir.partitions.push((partition.tp().clone(), size));
            }
        }
        describing.report();
        Ok(dirs)
    }

    fn size_of(&self, partition: &Partition) -> Result<u64, BrokerError> {
        if let Some(log) = partition.opened_log() {
            return Ok(log.size());
        }
        match self.directory.fs().read_dir(partition.dir()) {
            Ok(entries) => {
                let logs = entries.iter().filter(|entry| entry.name.ends_with(file_name::LOG));
                Ok(logs.map(|entry| entry.len).sum())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            Err(source) => Err(BrokerError::Log(LogError::Io {
                action: "list",
                path: partition.dir().to_path_buf(),
                source,
            })),
        }
    }
}
