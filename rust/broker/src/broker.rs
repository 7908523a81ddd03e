//! The broker's facade: what the Python `Broker` and the transports call.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;
use fletchlog_api::{Clock, Config, ConfigError, NodeId, Scope};
use fletchlog_log::PartitionLog;
use fletchlog_log::fs::{Fs, MemoryFs, RealFs};
use fletchlog_records::TopicPartition;

use crate::BrokerError;
use crate::cleaner::{CleanedPartition, CleanerThread};
use crate::directory::{ClusterMetadata, Directory};
use crate::failures::Failures;
use crate::fetch::{FetchPurgatory, FetchSessionCache};
use crate::group::{GroupCoordinator, LegacyGroups};
use crate::partition::Partition;
use crate::producer_ids::ProducerIds;
use crate::sync::{Changes, lock};
use crate::topics::{Topic, TopicTable};
use crate::transaction::TransactionCoordinator;

/// How to open a broker.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Number of nodes; `None`: what the directory says, 1 for a new one. A disagreeing number is an error.
    pub nodes: Option<u32>,
    /// No lock, never writes.
    pub read_only: bool,
    /// `Scope::Broker` properties.
    pub config: Config,
}

/// What `describe_topic` tells.
#[derive(Debug, Clone)]
pub struct TopicDescription {
    /// Name.
    pub name: Arc<str>,
    /// 16-byte id.
    pub topic_id: [u8; 16],
    /// Explicit configuration.
    pub config: BTreeMap<String, String>,
    /// Per partition: (partition, leader node, start, end (high watermark), last stable offset, bytes, segments).
    pub partitions: Vec<PartitionDescription>,
}

/// One partition of a [`TopicDescription`].
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct PartitionDescription {
    pub partition: i32,
    pub leader: NodeId,
    pub log_start_offset: i64,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub size_bytes: u64,
    pub segments: usize,
}

/// The embedded broker. Thread-safe; share it as `Arc<Broker>`.
///
/// Appends to different partitions run side by side; group operations are serialised. Dropping it without
/// [`Broker::close`] leaves the directory as a killed process would.
pub struct Broker {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: Config,
    pub(crate) directory: Directory,
    pub(crate) metadata: Mutex<ClusterMetadata>,
    pub(crate) table: RwLock<TopicTable>,
    pub(crate) producer_ids: ProducerIds,
    /// One per node, node 1 first.
    pub(crate) sessions: Vec<Mutex<FetchSessionCache>>,
    pub(crate) purgatory: FetchPurgatory,
    pub(crate) groups: GroupCoordinator,
    pub(crate) legacy_groups: LegacyGroups,
    pub(crate) transactions: TransactionCoordinator,
    pub(crate) failures: Failures,
    /// Waiting clients sleep on it.
    pub(crate) changes: Changes,
    pub(crate) next_retention_ms: AtomicI64,
    /// Who writes checkpoints writes what holds when it is written.
    pub(crate) checkpointing: Mutex<()>,
    /// One log is cleaned at a time: their keys share the memory.
    pub(crate) cleaning: Mutex<()>,
    cleaner: OnceLock<CleanerThread>,
    /// Every call holds it for reading, `close` for writing: nothing runs while the logs are closed.
    gate: RwLock<()>,
    closed: AtomicBool,
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Broker")
            .field("directory", &self.directory.root())
            .field("nodes", &self.directory.log_dirs().len())
            .field("read_only", &self.directory.read_only())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

impl Broker {
    /// Opens (or creates, in write mode) a directory.
    ///
    /// # Errors
    /// [`BrokerError::Directory`] (missing, foreign, inconsistent), [`BrokerError::DirectoryLocked`], or what recovery found.
    pub fn open(path: &Path, options: OpenOptions, clock: Arc<dyn Clock>) -> Result<Arc<Self>, BrokerError> {
        Self::open_in(Arc::new(RealFs::new()), path, options, clock)
    }

    /// A broker in memory: the same code over a file system in memory, gone with the last reference.
    ///
    /// # Errors
    /// A bad property.
    pub fn in_memory(options: OpenOptions, clock: Arc<dyn Clock>) -> Result<Arc<Self>, BrokerError> {
        Self::open_in(Arc::new(MemoryFs::new()), Path::new("/memory"), options, clock)
    }

    /// Opens a directory of any file system (simulations, tests).
    ///
    /// # Errors
    /// As [`Broker::open`].
    pub fn open_in(
        fs: Arc<dyn Fs>,
        path: &Path,
        options: OpenOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, BrokerError> {
        if options.config.scope() != Scope::Broker {
            return Err(ConfigError::Conflict("a broker takes broker properties".to_owned()).into());
        }
        let (directory, metadata) = Directory::open(fs, path, options.nodes, options.read_only)?;
        let topics = TopicTable::build(&metadata, &options.config, &directory, &TopicTable::default())?;
        let slots = usize::try_from(options.config.int("max.incremental.fetch.session.cache.slots")).unwrap_or(0);
        let sessions = directory
            .log_dirs()
            .iter()
            .map(|_| Mutex::new(FetchSessionCache::new(slots, !options.read_only)))
            .collect();
        let broker = Self {
            groups: GroupCoordinator::new(&options.config),
            legacy_groups: LegacyGroups::default(),
            transactions: TransactionCoordinator::new(&options.config, &*clock),
            producer_ids: ProducerIds::new(&options.config, &*clock),
            clock,
            config: options.config,
            directory,
            metadata: Mutex::new(metadata),
            table: RwLock::new(topics),
            failures: Failures::default(),
            sessions,
            purgatory: FetchPurgatory::default(),
            changes: Changes::default(),
            next_retention_ms: AtomicI64::new(i64::MIN),
            checkpointing: Mutex::default(),
            cleaning: Mutex::default(),
            cleaner: OnceLock::new(),
            gate: RwLock::default(),
            closed: AtomicBool::new(false),
        };
        broker.recover_logs()?;
        broker.load_transactions()?;
        let broker = Arc::new(broker);
        if broker.config.boolean("log.cleaner.enable") && !broker.is_read_only() {
            let _ = broker.cleaner.set(CleanerThread::start(&broker)?);
        }
        Ok(broker)
    }

    /// After an unclean stop every log is recovered before anything is served; after a clean one each is opened when
    /// it is first needed, so that a thousand partitions open at once.
    fn recover_logs(&self) -> Result<(), BrokerError> {
        if self.directory.read_only() {
            return Ok(());
        }
        let now_ms = self.clock.now_ms();
        for topic in self.topic_table().iter() {
            for partition in &topic.partitions {
                if let Err(error) = partition.mend_topic_id(&self.directory) {
                    log::warn!("partition.metadata is written when the partition is first used: {error}");
                }
                let dir = &self.directory.log_dirs()[usize::try_from(partition.leader() - 1).unwrap_or(0)];
                if !dir.clean_shutdown() && partition.has_log(&self.directory)? {
                    partition.log(&self.directory, now_ms)?;
                }
            }
        }
        Ok(())
    }

    /// Node ids ascending: 1..=nodes.
    pub fn nodes(&self) -> Vec<NodeId> {
        (1..).take(self.directory.log_dirs().len()).collect()
    }

    /// Creates a topic; `config` by `Scope::Topic`. When it returns, the topic is on disk at every durability level. A
    /// directory of a partition that a power loss takes is made again when the partition is first used.
    ///
    /// # Errors
    /// INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, a bad property, `ReadOnly`, `Closed`, storage
    /// errors. After an error nothing was made, unless storage fails twice in a row: then the next start may find the topic.
    pub fn create_topic(&self, name: &str, partitions: i32, config: &[(String, String)]) -> Result<(), BrokerError> {
        let _open = self.enter()?;
        self.create_user_topic(name, partitions, config)
    }

    /// Deletes a topic (directories renamed `-delete`, then removed).
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION for an internal topic, `ReadOnly`, `Closed`.
    pub fn delete_topic(&self, name: &str) -> Result<(), BrokerError> {
        let _open = self.enter()?;
        self.remove_topic(name)
    }

    /// Topic names, sorted, without internal ones unless asked.
    ///
    /// # Errors
    /// `Closed`; read-only: the directory has become unreadable.
    pub fn topics(&self, include_internal: bool) -> Result<Vec<Arc<str>>, BrokerError> {
        let _open = self.enter()?;
        self.see_new_topics()?;
        let table = self.topic_table();
        Ok(table
            .iter()
            .filter(|t| include_internal || !t.is_internal())
            .map(|t| t.name.clone())
            .collect())
    }

    /// Describes one topic.
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION, `Closed`, storage errors.
    pub fn describe_topic(&self, name: &str) -> Result<TopicDescription, BrokerError> {
        let _open = self.enter()?;
        self.see_new_topics()?;
        self.describe(name)
    }

    /// The log of a partition (read paths: scan, tools). Refreshed when read-only.
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION, `Closed`, storage errors.
    pub fn partition_log(&self, tp: &TopicPartition) -> Result<Arc<PartitionLog>, BrokerError> {
        let _open = self.enter()?;
        self.do_scheduled_work();
        let partition = self.partition(tp)?;
        Ok(self.log_of(&partition)?.clone())
    }

    /// The low-level produce door: exactly what a Produce request with acks=-1 would do for one partition.
    /// Returns (base_offset, log_append_time_ms, log_start_offset).
    ///
    /// # Errors
    /// The code and text that the Produce response would carry, `ReadOnly`, `Closed`.
    pub fn append_batches(&self, tp: &TopicPartition, records: Bytes) -> Result<(i64, i64, i64), BrokerError> {
        let _open = self.enter()?;
        self.do_scheduled_work();
        self.append_one(tp, records)
    }

    /// Retention over all topics now; returns segments deleted.
    ///
    /// # Errors
    /// `ReadOnly`, `Closed`, storage errors.
    pub fn run_retention(&self) -> Result<usize, BrokerError> {
        let _open = self.enter()?;
        self.delete_old_segments()
    }

    /// Compacts a topic: the partitions that Kafka's cleaner would clean now (spec 4.3), or with `force` every one up to
    /// its end, due or not, for which the active segment is closed. Open transactions and min.compaction.lag.ms hold both
    /// back. Reads and appends go on meanwhile. `cancelled` is asked about once a mebibyte.
    ///
    /// # Errors
    /// POLICY_VIOLATION without the compact policy, UNKNOWN_TOPIC_OR_PARTITION, `ReadOnly`, `Closed`, a damaged batch (the
    /// partition stays as it is), storage errors.
    pub fn clean_topic(
        &self,
        name: &str,
        force: bool,
        cancelled: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<CleanedPartition>, BrokerError> {
        let _open = self.enter()?;
        self.clean(name, force, cancelled)
    }

    /// DeleteRecords (spec 4.2): moves the log start up to `before_offset`, `None` = the high watermark. Returns the
    /// new log start offset.
    ///
    /// # Errors
    /// OFFSET_OUT_OF_RANGE, POLICY_VIOLATION without the delete policy, UNKNOWN_TOPIC_OR_PARTITION, `ReadOnly`, `Closed`.
    pub fn delete_records(&self, tp: &TopicPartition, before_offset: Option<i64>) -> Result<i64, BrokerError> {
        let _open = self.enter()?;
        self.delete_records_of(tp, before_offset)
    }

    /// Fsync everything.
    ///
    /// # Errors
    /// `Closed`, storage errors. Nothing to do when read-only.
    pub fn flush(&self) -> Result<(), BrokerError> {
        let _open = self.enter()?;
        self.flush_logs()
    }

    /// Clean shutdown: flush, close logs, checkpoints, marker. Idempotent; later calls answer `Closed`.
    ///
    /// # Errors
    /// The first failure; the directory then counts as not closed cleanly and is recovered at the next open.
    pub fn close(&self) -> Result<(), BrokerError> {
        if self.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        self.changes.notify();
        if let Some(cleaner) = self.cleaner.get() {
            cleaner.stop();
        }
        let _alone = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let result = self.shut_down();
        self.directory.unlock();
        self.changes.notify();
        result
    }

    /// Whether it was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.directory.read_only()
    }

    /// Whether `close` was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// The broker's clock.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    /// Held during every call; `Closed` once `close` has begun.
    pub(crate) fn enter(&self) -> Result<RwLockReadGuard<'_, ()>, BrokerError> {
        let guard = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        if self.is_closed() {
            Err(BrokerError::Closed)
        } else {
            Ok(guard)
        }
    }

    /// Error unless it may be written; `action` completes "open it without read_only to ...".
    pub(crate) fn for_writing(&self, action: &'static str) -> Result<(), BrokerError> {
        if self.directory.read_only() {
            Err(BrokerError::ReadOnly(action))
        } else {
            Ok(())
        }
    }

    /// The table of topics.
    pub(crate) fn topic_table(&self) -> RwLockReadGuard<'_, TopicTable> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A topic; read-only brokers look again for one that they do not know.
    pub(crate) fn topic(&self, name: &str) -> Result<Arc<Topic>, BrokerError> {
        if let Some(topic) = self.topic_table().get(name) {
            return Ok(topic.clone());
        }
        self.see_new_topics()?;
        self.topic_table()
            .get(name)
            .cloned()
            .ok_or_else(|| BrokerError::unknown_topic(name))
    }

    /// A partition; read-only brokers look again for one that they do not know.
    pub(crate) fn partition(&self, tp: &TopicPartition) -> Result<Arc<Partition>, BrokerError> {
        if let Some(partition) = self.topic_table().partition(tp) {
            return Ok(partition.clone());
        }
        self.see_new_topics()?;
        self.topic_table()
            .partition(tp)
            .cloned()
            .ok_or_else(|| BrokerError::unknown_partition(tp))
    }

    /// The log of a partition, opened on first use, refreshed when read-only.
    pub(crate) fn log_of<'a>(&self, partition: &'a Partition) -> Result<&'a Arc<PartitionLog>, BrokerError> {
        match partition.opened_log() {
            Some(log) if !self.directory.read_only() => Ok(log),
            _ => partition.log(&self.directory, self.clock.now_ms()),
        }
    }

    /// Read-only: takes over topics that the writer has created or deleted since.
    pub(crate) fn see_new_topics(&self) -> Result<(), BrokerError> {
        if !self.directory.read_only() {
            return Ok(());
        }
        let mut metadata = lock(&self.metadata);
        if let Some(new) = self.directory.reload(&metadata)? {
            let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
            *table = TopicTable::build(&new, &self.config, &self.directory, &table)?;
            *metadata = new;
        }
        Ok(())
    }
}
