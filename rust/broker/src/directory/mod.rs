//! The broker's directory: what it is, who may write it, and which log directories it holds.
//!
//! ```text
//! data/                      nodes = 1: this is a Kafka log.dir          data/            nodes > 1
//!   fletchlog.metadata       topics, ids, configs (ours)                   fletchlog.metadata, .lock
//!   .lock                    one writer                                    node-1/        a Kafka log.dir each
//!   meta.properties          node.id, cluster.id, directory.id             node-2/
//!   .kafka_cleanshutdown     only after a clean stop
//!   recovery-point-offset-checkpoint, log-start-offset-checkpoint, replication-offset-checkpoint
//!   <topic>-<partition>/     one log each
//!   <topic>-<p>.<hex>-delete a log being removed;  ...-stray: one that belongs to no topic
//! ```

/// Most nodes of an embedded broker. Each is a log directory and a session cache; the clusters whose order they reproduce
/// have tens.
pub(crate) const MAX_NODES: u32 = 1_000;
/// Most partitions that one topic of a directory may have: ten times what can be created in one go. A larger number, in
/// a file or as the name of a directory, is damage, and would cost memory for every partition below it.
pub(crate) const MAX_PARTITIONS: i32 = 100_000;

mod log_dir;
mod metadata_file;
mod names;
mod open;

pub(crate) use log_dir::{LogDir, LogOffsets};
pub(crate) use metadata_file::{ClusterMetadata, METADATA_FILE, TopicRecord};
pub(crate) use names::{deleted_dir_name, partition_dir_name};
pub(crate) use open::{Directory, file_system};
pub use open::{DirectoryKind, directory_kind};
