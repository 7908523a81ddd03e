//! The broker's directory: what it is, who may write it, and which log directories it holds.
//!
//! ```text
//! data/                      one node: this is a Kafka log.dir           data/            several nodes
//!   fletchlog.metadata       topics, ids, configs (fletchlog)              fletchlog.metadata, .lock
//!   .lock                    one writer                                    node-1/        a Kafka log.dir each
//!   meta.properties          node.id, cluster.id, directory.id             node-2/
//!   .kafka_cleanshutdown     only after a clean stop
//!   recovery-point-offset-checkpoint, log-start-offset-checkpoint, replication-offset-checkpoint
//!   <topic>-<partition>/     one log each
//!   <topic>-<p>.<hex>-delete a log being removed;  ...-stray: one that belongs to no topic
//! ```

/// Maximum number of partitions of a topic in a directory: ten times what can be created at once. A larger number in a file or a
/// directory name is damage: it would cost memory for every partition below it.
pub(crate) const MAX_PARTITIONS: i32 = 100_000;

mod log_dir;
mod metadata_file;
mod names;
mod open;
mod partition_state;

pub(crate) use log_dir::{LogDir, LogOffsets};
pub(crate) use metadata_file::{ClusterMetadata, METADATA_FILE, TopicRecord};
pub(crate) use names::{deleted_dir_name, partition_dir_name};
pub(crate) use open::{Directory, file_system};
pub use open::{DirectoryKind, directory_kind};
pub(crate) use partition_state::{NO_LEADER, NoElection, PartitionState};
