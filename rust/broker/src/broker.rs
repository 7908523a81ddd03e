//! The broker's facade: what the Python `Broker` and the transports call.

mod admin;
mod group_admin;
mod leaders;
mod seal;
mod security;
mod share;
mod time;

pub use seal::SealedDirectory;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Duration;

use bytes::Bytes;
use fletchlog_api::transport::Waker;
use fletchlog_api::{Clock, Config, ConfigError, LegacyGroupRequest, LegacyGroupResponse, NodeId, Request, Scope};
use fletchlog_log::checkpoint::read_meta_properties;
use fletchlog_log::fs::{Fs, MemoryFs, free_unused_buffers};
use fletchlog_log::{LogError, PartitionLog};
use fletchlog_records::TopicPartition;

use crate::controller::{Controller, NewTopic};
use crate::directory::{Directory, file_system};
use crate::dynamic_config::{ConsumerGroupConfig, ShareGroupConfig};
use crate::group::{ClientLiveness, GroupCoordinator};
use crate::kafka_apis::{Handled, KafkaApis};
use crate::log_manager::{CleanedPartition, CleanerThread, LogManager};
use crate::panics::{contained, place};
use crate::partition::Partition;
use crate::refresh_once::RefreshOnce;
use crate::replica_manager::ReplicaManager;
use crate::share::SharePartitionManager;
use crate::share_coordinator::ShareCoordinator;
use crate::transaction::TransactionCoordinator;
use crate::{BrokerError, TopicDescription, TransactionDescription};
use leaders::all_partitions;

/// A writer in another process does not announce its appends, so a waiting read-only broker checks this often, in ms. 10 ms is short
/// compared with the 500 ms of fetch.max.wait.ms, and the cost is to read a few file lengths a hundred times a second.
pub(crate) const LOOK_AGAIN_MS: i64 = 10;

/// How to open a broker.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Number of nodes; `None`: the number in the directory, or 1 for a new directory. A different number is an error.
    pub nodes: Option<u32>,
    /// Ids of the nodes and their racks (broker.id, broker.rack); empty: 1 to the number of nodes, without racks. The directory keeps the
    /// ids: others than there are an error.
    pub named_nodes: Vec<(NodeId, Option<Arc<str>>)>,
    /// Takes no lock and writes nothing.
    pub read_only: bool,
    /// `Scope::Broker` properties.
    pub config: Config,
}

/// The embedded broker. Thread-safe; share it as `Arc<Broker>`.
///
/// Appends to different partitions run in parallel, and so does work on different groups and transactional ids. Dropping it without
/// [`Broker::close`] leaves the directory as a killed process would.
pub struct Broker {
    logs: Arc<LogManager>,
    replicas: Arc<ReplicaManager>,
    groups: Arc<GroupCoordinator>,
    transactions: Arc<TransactionCoordinator>,
    share_coordinator: Arc<ShareCoordinator>,
    share: Arc<SharePartitionManager>,
    apis: KafkaApis,
    cleaner: OnceLock<CleanerThread>,
    /// What the clock calls after a change, as long as this exists.
    _clock_changed: Waker,
    /// Every call holds it for reading, `close` and changes of leaders for writing: no call runs meanwhile.
    gate: RwLock<()>,
    closed: AtomicBool,
    /// See [`Broker::node_changes`].
    node_changes: AtomicU64,
    /// The partitions that the directory had, until a listener starts; deleted ones are not kept.
    inherited: Mutex<Vec<Weak<Partition>>>,
    /// Held by the thread that closes the broker.
    closing: Mutex<()>,
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Broker")
            .field("directory", &self.logs.directory().root())
            .field("nodes", &self.replicas.controller().num_nodes())
            .field("read_only", &self.is_read_only())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

/// The single result of a request for one item.
pub(crate) fn only<T>(results: Vec<Result<T, BrokerError>>) -> Result<T, BrokerError> {
    let mut results = results.into_iter();
    results.next().unwrap_or(Err(BrokerError::Closed))
}

impl Broker {
    /// Opens a directory; without `read_only`, creates it if it does not exist. With `read_only` it may also have segments of tiered
    /// storage.
    ///
    /// # Errors
    /// [`BrokerError::Directory`] (missing, holding something else, inconsistent), [`BrokerError::DirectoryLocked`], or an error of
    /// recovery.
    pub fn open(path: &Path, options: OpenOptions, clock: Arc<dyn Clock>) -> Result<Arc<Self>, BrokerError> {
        Self::open_in(file_system(path, options.read_only)?, path, options, clock)
    }

    /// A broker in memory: the same code over a file system in memory, which is freed with the last reference.
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
        ConsumerGroupConfig::new(&options.config).validate(&options.config)?;
        ShareGroupConfig::new(&options.config).validate()?;
        let ids: Vec<NodeId> = options.named_nodes.iter().map(|(id, _)| *id).collect();
        let (directory, metadata) = Directory::open(fs, path, options.nodes, &ids, options.read_only)?;
        let logs = Arc::new(LogManager::open(directory, &metadata, options.config, clock)?);
        let controller = Arc::new(Controller::new(logs.clone(), metadata, options.named_nodes));
        let replicas = Arc::new(ReplicaManager::new(logs.clone(), controller));
        let share_coordinator = Arc::new(ShareCoordinator::new(&replicas));
        let groups = Arc::new(GroupCoordinator::new(&replicas, &share_coordinator));
        let transactions = Arc::new(TransactionCoordinator::open(&replicas, &groups)?);
        let share = Arc::new(SharePartitionManager::new(&replicas, &share_coordinator));
        let inherited = all_partitions(&replicas).iter().map(Arc::downgrade).collect();
        let weak = Arc::downgrade(&replicas);
        let clock_changed: Waker = Arc::new(move || {
            if let Some(replicas) = weak.upgrade() {
                replicas.changes().notify();
            }
        });
        replicas.clock().watch(&clock_changed);
        let broker = Arc::new(Self {
            apis: KafkaApis::new(replicas.clone(), groups.clone(), transactions.clone(), share.clone()),
            logs,
            replicas,
            groups,
            transactions,
            share_coordinator,
            share,
            cleaner: OnceLock::new(),
            _clock_changed: clock_changed,
            gate: RwLock::default(),
            closed: AtomicBool::new(false),
            node_changes: AtomicU64::new(0),
            inherited: Mutex::new(inherited),
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
        CleanerThread::start(self.clock(), pause, clean).map_err(|source| {
            let path = self.logs.directory().root().to_path_buf();
            let action = "start the cleaner for";
            BrokerError::Log(LogError::Io { action, path, source })
        })
    }

    /// Whether the files are in memory, so that no request waits for a disk.
    pub fn is_in_memory(&self) -> bool {
        self.logs.directory().fs().is_in_memory()
    }

    /// The ids of the nodes, ascending.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.replicas.controller().nodes()
    }

    /// The rack of a node, if it has one.
    pub fn rack_of(&self, node: NodeId) -> Option<&Arc<str>> {
        self.replicas.controller().rack_of(node)
    }

    /// Creates a topic; `config` has properties of `Scope::Topic`. When it returns, the topic is on disk at every durability level.
    /// If a power loss removes the directory of a partition, it is created again when the partition is first used.
    ///
    /// # Errors
    /// INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, a bad property, INVALID_REPLICATION_FACTOR if
    /// default.replication.factor exceeds the number of nodes, `ReadOnly`, `Closed`, storage errors. After an error nothing was
    /// created, unless storage fails twice in a row: then the next start may find the topic.
    pub fn create_topic(&self, name: &str, partitions: i32, config: &[(String, String)]) -> Result<(), BrokerError> {
        let _open = self.enter()?;
        let new = NewTopic {
            // Here -1 does not mean the default number of partitions.
            partitions: partitions.max(0),
            config: config.iter().map(|(k, v)| (k.clone(), Some(v.clone()))).collect(),
            ..NewTopic::default()
        };
        only(self.replicas.controller().create_topics(&[(name, &new)])).map(drop)
    }

    /// Deletes a topic (directories renamed `-delete`, then removed).
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION for an internal topic, TOPIC_DELETION_DISABLED, `ReadOnly`, `Closed`.
    pub fn delete_topic(&self, name: &str) -> Result<(), BrokerError> {
        only(self.delete_topics(&[name])?)
    }

    /// As [`Broker::delete_topic`], for several topics; returns the result of each.
    ///
    /// # Errors
    /// `Closed`.
    pub fn delete_topics(&self, names: &[&str]) -> Result<Vec<Result<(), BrokerError>>, BrokerError> {
        let _open = self.enter()?;
        Ok(self.replicas.controller().delete_topics(names, |names, topics| {
            self.groups.forget_offsets_of(names);
            let ids = topics.iter().map(|topic| topic.record.id).collect();
            self.groups.forget_share_states_of(&ids);
            self.share_coordinator.forget_topics(&ids);
            // Waiting fetches of the topics end with their error.
            let partitions = topics.iter().flat_map(|topic| &topic.partitions);
            self.replicas.partitions_changed(partitions.map(|p| &**p));
            self.replicas.expire_produces(self.replicas.clock().monotonic_ms());
        }))
    }

    /// Topic names, sorted; those of internal topics only with `include_internal`.
    ///
    /// # Errors
    /// `Closed`; read-only: the directory has become unreadable.
    pub fn topics(&self, include_internal: bool) -> Result<Vec<Arc<str>>, BrokerError> {
        let _open = self.enter()?;
        self.replicas.controller().see_new_topics()?;
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
        self.replicas.controller().see_new_topics()?;
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
        let appended = self.replicas.append_one(tp, records);
        self.share.complete_ready();
        appended
    }

    /// Applies retention to all topics now; returns the number of deleted segments.
    ///
    /// # Errors
    /// `ReadOnly`, `Closed`, storage errors.
    pub fn run_retention(&self) -> Result<usize, BrokerError> {
        let _open = self.enter()?;
        self.logs.cleanup_logs(&|p| self.replicas.partition_changed(p))
    }

    /// Compacts a topic: the partitions that Kafka's cleaner would clean now (spec 4.3). With `force`, closes the active segment of
    /// every partition and compacts it up to its end, due or not. Open transactions and min.compaction.lag.ms limit both. Reads and
    /// appends continue meanwhile. `cancelled` is called about once per mebibyte.
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

    /// One step of the background cleaner (log.cleaner.enable): applies retention if it is due, then cleans the due log with the
    /// largest share of dirty bytes. `None`: no log is due, or its cleaning was interrupted.
    ///
    /// # Errors
    /// `ReadOnly`, `Closed`; or a log cannot be examined or cleaned. That log is skipped from then on, so that it does not block the
    /// others, until [`Broker::clean_topic`] has cleaned it or the broker is reopened.
    #[doc(hidden)] // For tests, in which no thread runs.
    pub fn clean_filthiest(&self) -> Result<Option<(TopicPartition, CleanedPartition)>, BrokerError> {
        let _open = self.enter()?;
        self.logs
            .clean_filthiest(&mut || self.is_closed(), &|p| self.replicas.partition_changed(p))
    }

    /// All known transactional ids, sorted. A read-only broker reads them from `__transaction_state` each time.
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

    /// As [`Broker::delete_records`], for several partitions; returns the result of each.
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

    /// Clean shutdown: flush, close logs, checkpoints, marker. Idempotent; later calls return `Closed`. A second caller waits for the
    /// first.
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
        self.logs.let_go();
        self.logs.directory().unlock();
        self.replicas.changes().notify();
        result
    }

    /// The id of the cluster, which stays the same when the directory is moved. `None`: the directory is a Kafka broker's, read as it
    /// is, and its `meta.properties` has no cluster id (Kafka before 0.10.1).
    ///
    /// # Errors
    /// `meta.properties` cannot be read.
    pub fn cluster_id(&self) -> Result<Option<Arc<str>>, BrokerError> {
        let directory = self.logs.directory();
        if !directory.is_kafkas() {
            return Ok(Some(Arc::clone(self.replicas.controller().cluster_id())));
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

    /// Frees read buffers that no read has used since the last call; true: some are left.
    pub fn free_unused_memory(&self) -> bool {
        free_unused_buffers()
    }

    /// The properties in effect on a node: [`Broker::config`] with the changes made since.
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

    /// Waits until no call runs; none begins until the result is dropped. `Closed` once `close` has begun.
    fn alone(&self) -> Result<RwLockWriteGuard<'_, ()>, BrokerError> {
        let guard = self.gate.write().unwrap_or_else(PoisonError::into_inner);
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
        self.see_ended_nodes();
        let Ok(_open) = self.enter() else {
            return Handled::CloseConnection;
        };
        if !self.replicas.controller().runs(node) {
            return Handled::CloseConnection;
        }
        let _refresh_once = RefreshOnce::begin();
        self.do_scheduled_work();
        let handled = self.apis.handle(node, client, request);
        contained("waiting share fetches", || self.share.complete_ready());
        handled
    }

    /// Fences nodes whose time has come, and lets high watermarks move on. While a node has ended and the cluster does not know it, also new partitions wait for it.
    fn see_ended_nodes(&self) {
        let slow = self.replicas.end_slow();
        if !slow.is_empty() {
            self.update_high_watermarks(&slow);
        }
        if self.replicas.controller().ending().is_empty() {
            return;
        }
        self.detect_ended_nodes();
        if self.replicas.controller().any_undetected() {
            self.update_high_watermarks(&self.all_partitions());
        }
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

    /// Called when a client in this process is gone: its members are removed earlier.
    pub(crate) fn client_gone(&self, client: &ClientLiveness) {
        self.groups.client_gone(client);
    }

    /// Does the timed work that is due. Every call does this first: there is no thread for it. A panic does not end the call.
    fn do_scheduled_work(&self) {
        let now_ms = self.replicas.clock().monotonic_ms();
        contained("timed work of transactions", || self.transactions.tick(now_ms));
        contained("forgetting expired producers", || {
            self.logs.maybe_remove_expired_producers(now_ms);
        });
    }

    /// Does the timed work that is due: completes fetches and joins that have timed out, removes members whose clients are gone. A
    /// listener calls it at [`Broker::next_deadline`].
    pub fn run_due(&self) {
        contained("the end of a node", || self.see_ended_nodes());
        contained("an election", || self.elect_controller());
        let Ok(_open) = self.enter() else { return };
        place(|| "timers");
        let now_ms = self.replicas.clock().monotonic_ms();
        contained("waiting fetches", || self.replicas.expire_fetches(now_ms));
        contained("waiting acknowledgements", || self.replicas.expire_produces(now_ms));
        contained("timed work of groups", || self.groups.tick(now_ms));
        contained("timed work of share groups", || self.share.tick(now_ms));
        contained("timed work of the share coordinator", || {
            self.share_coordinator.tick(now_ms)
        });
        self.do_scheduled_work();
    }

    /// For an owner whose threads do not wait: `notify` is called, under locks, when [`Broker::next_deadline`] may be earlier than before or
    /// the broker is closed, and with other changes, as long as it has another owner. It must not block.
    pub fn watch(&self, notify: &Waker) {
        self.replicas.changes().watch(notify);
    }

    /// Milliseconds until timed work is due; `None`: there is none, or the clock is stopped.
    pub fn due_in_ms(&self) -> Option<i64> {
        let due = self
            .next_deadline()
            .and_then(|due_ms| self.replicas.clock().until(due_ms));
        let due = due.map(|left| i64::try_from(left.as_millis()).unwrap_or(i64::MAX));
        let looks = self.is_read_only() && self.replicas.purgatory().size() > 0;
        due.into_iter().chain(looks.then_some(LOOK_AGAIN_MS)).min()
    }

    /// When timed work is due next, on the monotonic clock. Does not wait for the lock of a group or a transactional id.
    pub fn next_deadline(&self) -> Option<i64> {
        [
            self.replicas.purgatory().next_deadline(),
            self.replicas.next_produce_deadline(),
            self.replicas.controller().ending().first().map(|(at_ms, ..)| *at_ms),
            self.replicas.controller().next_election(),
            self.replicas.next_slow_deadline(),
            self.groups.next_deadline(),
            self.transactions.next_deadline(),
            self.share.next_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}
