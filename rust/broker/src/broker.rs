//! The broker's facade: what the Python `Broker` and the transports call.

mod admin;
mod group_admin;
mod seal;

pub use seal::SealedDirectory;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use bytes::Bytes;
use fletchlog_api::{Clock, Config, ConfigError, LegacyGroupRequest, LegacyGroupResponse, NodeId, Request, Scope};
use fletchlog_log::checkpoint::read_meta_properties;
use fletchlog_log::fs::{Fs, MemoryFs, free_unused_buffers};
use fletchlog_log::{LogError, PartitionLog};
use fletchlog_records::TopicPartition;

use crate::directory::{Directory, file_system};
use crate::group::{ClientLiveness, GroupCoordinator};
use crate::kafka_apis::{Handled, KafkaApis};
use crate::log_manager::{CleanedPartition, CleanerThread, LogManager};
use crate::one_look::OneLook;
use crate::panics::{contained, place};
use crate::replica_manager::{NewTopic, ReplicaManager};
use crate::transaction::TransactionCoordinator;
use crate::{BrokerError, TopicDescription, TransactionDescription};

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

/// The embedded broker. Thread-safe; share it as `Arc<Broker>`.
///
/// Appends to different partitions run side by side, and so do different groups and transactional ids. Dropping it without
/// [`Broker::close`] leaves the directory as a killed process would.
pub struct Broker {
    logs: Arc<LogManager>,
    replicas: Arc<ReplicaManager>,
    groups: Arc<GroupCoordinator>,
    transactions: Arc<TransactionCoordinator>,
    apis: KafkaApis,
    cleaner: OnceLock<CleanerThread>,
    /// Every call holds it for reading, `close` for writing: no call runs while the logs are being closed.
    gate: RwLock<()>,
    closed: AtomicBool,
    /// Held by the thread that closes.
    closing: Mutex<()>,
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Broker")
            .field("directory", &self.logs.directory().root())
            .field("nodes", &self.replicas.num_nodes())
            .field("read_only", &self.is_read_only())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

/// The result for the only one that was asked for.
pub(crate) fn only<T>(results: Vec<Result<T, BrokerError>>) -> Result<T, BrokerError> {
    let mut results = results.into_iter();
    results.next().unwrap_or(Err(BrokerError::Closed))
}

impl Broker {
    /// Opens (or creates, in write mode) a directory. With `read_only` also one of segments of tiered storage.
    ///
    /// # Errors
    /// [`BrokerError::Directory`] (missing, foreign, inconsistent), [`BrokerError::DirectoryLocked`], or what recovery found.
    pub fn open(path: &Path, options: OpenOptions, clock: Arc<dyn Clock>) -> Result<Arc<Self>, BrokerError> {
        Self::open_in(file_system(path, options.read_only)?, path, options, clock)
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
        let logs = Arc::new(LogManager::open(directory, &metadata, options.config, clock)?);
        let replicas = Arc::new(ReplicaManager::new(logs.clone(), metadata));
        let groups = Arc::new(GroupCoordinator::new(&replicas));
        let transactions = Arc::new(TransactionCoordinator::open(&replicas, &groups)?);
        let broker = Arc::new(Self {
            apis: KafkaApis::new(replicas.clone(), groups.clone(), transactions.clone()),
            logs,
            replicas,
            groups,
            transactions,
            cleaner: OnceLock::new(),
            gate: RwLock::default(),
            closed: AtomicBool::new(false),
            closing: Mutex::default(),
        });
        if broker.replicas.config().boolean("log.cleaner.enable") && !broker.is_read_only() {
            let _ = broker.cleaner.set(broker.start_cleaner()?);
        }
        Ok(broker)
    }

    fn start_cleaner(self: &Arc<Self>) -> Result<CleanerThread, BrokerError> {
        let logs = Arc::downgrade(&self.logs);
        let pause = move || {
            let config = logs.upgrade().map(|logs| Arc::clone(logs.configs().of(1)));
            Duration::from_millis(config.map_or(0, |c| c.long("log.cleaner.backoff.ms").unsigned_abs()))
        };
        let weak = Arc::downgrade(self);
        let clean = move || weak.upgrade().ok_or(BrokerError::Closed)?.clean_filthiest();
        CleanerThread::start(pause, clean).map_err(|source| {
            let path = self.logs.directory().root().to_path_buf();
            let action = "start the cleaner for";
            BrokerError::Log(LogError::Io { action, path, source })
        })
    }

    /// Node ids ascending: 1..=nodes.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.replicas.nodes()
    }

    /// Whether a partition can have these replicas, in Kafka's words. Kafka: `ReplicationControlManager#validateManualPartitionAssignment`.
    ///
    /// # Errors
    /// INVALID_REPLICA_ASSIGNMENT.
    pub fn check_assignment(&self, replicas: &[NodeId]) -> Result<(), BrokerError> {
        self.replicas.check_assignment(replicas)
    }

    /// Creates a topic; `config` by `Scope::Topic`. When it returns, the topic is on disk at every durability level. A
    /// directory of a partition that a power loss takes is made again when the partition is first used.
    ///
    /// # Errors
    /// INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, a bad property, INVALID_REPLICATION_FACTOR where
    /// default.replication.factor asks for more nodes than there are, `ReadOnly`, `Closed`, storage errors. After an error nothing was made, unless storage fails twice in a row: then the next start may find the topic.
    pub fn create_topic(&self, name: &str, partitions: i32, config: &[(String, String)]) -> Result<(), BrokerError> {
        let _open = self.enter()?;
        let new = NewTopic {
            // Here -1 does not stand for the default number of partitions.
            partitions: partitions.max(0),
            config: config.iter().map(|(k, v)| (k.clone(), Some(v.clone()))).collect(),
            ..NewTopic::default()
        };
        only(self.replicas.create_user_topics(&[(name, &new)])).map(drop)
    }

    /// Deletes a topic (directories renamed `-delete`, then removed).
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION for an internal topic, TOPIC_DELETION_DISABLED, `ReadOnly`, `Closed`.
    pub fn delete_topic(&self, name: &str) -> Result<(), BrokerError> {
        only(self.delete_topics(&[name])?)
    }

    /// As [`Broker::delete_topic`], for several topics; what becomes of each.
    ///
    /// # Errors
    /// `Closed`.
    pub fn delete_topics(&self, names: &[&str]) -> Result<Vec<Result<(), BrokerError>>, BrokerError> {
        let _open = self.enter()?;
        Ok(self
            .replicas
            .remove_topics(names, |gone| self.groups.forget_offsets_of(gone)))
    }

    /// Topic names, sorted, without internal ones unless asked.
    ///
    /// # Errors
    /// `Closed`; read-only: the directory has become unreadable.
    pub fn topics(&self, include_internal: bool) -> Result<Vec<Arc<str>>, BrokerError> {
        let _open = self.enter()?;
        self.replicas.see_new_topics()?;
        let table = self.replicas.topic_table();
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
        self.replicas.see_new_topics()?;
        self.replicas.describe(name)
    }

    /// The log of a partition (read paths: scan, tools). Refreshed when read-only.
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION, `Closed`, storage errors.
    pub fn partition_log(&self, tp: &TopicPartition) -> Result<Arc<PartitionLog>, BrokerError> {
        let _open = self.enter()?;
        self.do_scheduled_work();
        let partition = self.replicas.partition(tp)?;
        Ok(self.replicas.log_of(&partition)?.clone())
    }

    /// Appends batches to one partition, exactly as a Produce request with acks=-1 does.
    /// Returns (base_offset, log_append_time_ms, log_start_offset).
    ///
    /// # Errors
    /// The code and text that the Produce response would carry, `ReadOnly`, `Closed`.
    pub fn append_batches(&self, tp: &TopicPartition, records: Bytes) -> Result<(i64, i64, i64), BrokerError> {
        let _open = self.enter()?;
        self.do_scheduled_work();
        self.replicas.append_one(tp, records)
    }

    /// Retention over all topics now; returns segments deleted.
    ///
    /// # Errors
    /// `ReadOnly`, `Closed`, storage errors.
    pub fn run_retention(&self) -> Result<usize, BrokerError> {
        let _open = self.enter()?;
        self.logs.cleanup_logs(&|p| self.replicas.partition_changed(p))
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
        self.logs
            .clean(name, force, &mut || self.is_closed() || cancelled(), &|p| {
                self.replicas.partition_changed(p);
            })
    }

    /// One step of the thread of log.cleaner.enable: retention if its time has come, then the log with the largest share of dirty
    /// bytes, if one is due. `None`: none is, or cleaning it was cut short.
    ///
    /// # Errors
    /// `ReadOnly`, `Closed`; or a log cannot be looked at or cleaned. That one is left out from then on, so that the others do not
    /// wait for it, until [`Broker::clean_topic`] has cleaned it or the broker is opened again.
    #[doc(hidden)] // For tests, in which no thread runs.
    pub fn clean_filthiest(&self) -> Result<Option<(TopicPartition, CleanedPartition)>, BrokerError> {
        let _open = self.enter()?;
        self.logs
            .clean_filthiest(&mut || self.is_closed(), &|p| self.replicas.partition_changed(p))
    }

    /// Every transactional id that is known, by id. A read-only broker reads them from `__transaction_state` each time.
    ///
    /// # Errors
    /// `Closed`, storage errors.
    pub fn transactions(&self) -> Result<Vec<TransactionDescription>, BrokerError> {
        let _open = self.enter()?;
        self.transactions.describe_transactions()
    }

    /// DeleteRecords (spec 4.2): moves the log start up to `before_offset`, `None` = the high watermark. Returns the
    /// new log start offset.
    ///
    /// # Errors
    /// OFFSET_OUT_OF_RANGE, POLICY_VIOLATION without the delete policy, UNKNOWN_TOPIC_OR_PARTITION, `ReadOnly`, `Closed`.
    pub fn delete_records(&self, tp: &TopicPartition, before_offset: Option<i64>) -> Result<i64, BrokerError> {
        let _open = self.enter()?;
        only(self.replicas.delete_records_of(&[(tp, before_offset)]))
    }

    /// As [`Broker::delete_records`], for several partitions; what becomes of each.
    ///
    /// # Errors
    /// `Closed`.
    pub fn delete_records_of(
        &self,
        all: &[(&TopicPartition, Option<i64>)],
    ) -> Result<Vec<Result<i64, BrokerError>>, BrokerError> {
        let _open = self.enter()?;
        Ok(self.replicas.delete_records_of(all))
    }

    /// Fsync everything.
    ///
    /// # Errors
    /// `Closed`, storage errors. Nothing to do when read-only.
    pub fn flush(&self) -> Result<(), BrokerError> {
        let _open = self.enter()?;
        self.logs.flush_logs()
    }

    /// Clean shutdown: flush, close logs, checkpoints, marker. Idempotent; later calls answer `Closed`. A second caller waits for the first.
    ///
    /// # Errors
    /// The first failure; the directory then counts as not closed cleanly and is recovered at the next open.
    pub fn close(&self) -> Result<(), BrokerError> {
        let _first = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        self.replicas.changes().notify();
        if let Some(cleaner) = self.cleaner.get() {
            cleaner.stop();
        }
        let _alone = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let result = self.logs.shutdown();
        self.logs.directory().unlock();
        self.replicas.changes().notify();
        result
    }

    /// The id of the cluster, which stays when the directory is moved. `None`: it is a Kafka's directory that is only read, and its
    /// `meta.properties` has none, as before Kafka 0.10.1.
    ///
    /// # Errors
    /// `meta.properties` cannot be read.
    pub fn cluster_id(&self) -> Result<Option<Arc<str>>, BrokerError> {
        let directory = self.logs.directory();
        if !directory.is_kafkas() {
            return Ok(Some(Arc::clone(self.replicas.cluster_id())));
        }
        let properties = read_meta_properties(&**directory.fs(), directory.root())?;
        Ok(properties.and_then(|properties| properties.cluster_id).map(Arc::from))
    }

    /// Whether it was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.replicas.is_read_only()
    }

    /// Whether `close` was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// The broker's clock.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.replicas.clock().clone()
    }

    /// The properties that the broker was opened with.
    pub fn config(&self) -> &Config {
        self.replicas.config()
    }

    /// Gives memory back that reads have used and that none has used since the last call; true: there is more.
    pub fn free_unused_memory(&self) -> bool {
        free_unused_buffers()
    }

    /// The properties that are in effect on a node: [`Broker::config`] with what was altered since.
    pub fn config_of(&self, node: NodeId) -> Arc<Config> {
        Arc::clone(self.logs.configs().of(node))
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

    /// The topics and partitions, for the transports.
    pub(crate) fn replicas(&self) -> &ReplicaManager {
        &self.replicas
    }

    /// Handles one request that a client sent to `node`.
    pub(crate) fn handle(&self, node: NodeId, client: &Arc<ClientLiveness>, request: Request) -> Handled {
        let Ok(_open) = self.enter() else {
            return Handled::CloseConnection;
        };
        let _one_look = OneLook::begin();
        self.do_scheduled_work();
        self.apis.handle(node, client, request)
    }

    /// One step of a legacy consumer; `None` once the broker is closed.
    pub(crate) fn legacy_group(
        &self,
        client: &Arc<ClientLiveness>,
        request: &LegacyGroupRequest,
    ) -> Option<LegacyGroupResponse> {
        let _open = self.enter().ok()?;
        self.do_scheduled_work();
        Some(self.apis.legacy_group(client, request))
    }

    /// Does the timed work that is due. Every call does this first: there is no thread for it. A panic does not end the call.
    fn do_scheduled_work(&self) {
        let now_ms = self.replicas.clock().monotonic_ms();
        contained("timed work of transactions", || self.transactions.tick(now_ms));
        contained("forgetting expired producers", || {
            self.logs.maybe_remove_expired_producers(now_ms);
        });
    }

    /// Does what is due: waiting fetches and joins whose time is over, members that have gone.
    /// A listener calls it when [`Broker::next_deadline`] has come.
    pub fn run_due(&self) {
        let Ok(_open) = self.enter() else { return };
        place(|| "timers");
        let now_ms = self.replicas.clock().monotonic_ms();
        contained("waiting fetches", || self.replicas.expire_fetches(now_ms));
        contained("timed work of groups", || self.groups.tick(now_ms));
        self.do_scheduled_work();
    }

    /// When something is due next, on the monotonic clock. Waits for no group and no transaction.
    pub fn next_deadline(&self) -> Option<i64> {
        [
            self.replicas.purgatory().next_deadline(),
            self.groups.next_deadline(),
            self.transactions.next_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}
