//! The logs of a broker: their directory, the table of their partitions, retention, compaction, checkpoints, flush, and the clean
//! stop. Kafka: `LogManager`.

mod cleaner;
mod log_dirs;

pub use cleaner::CleanedPartition;
pub(crate) use cleaner::CleanerThread;
pub use log_dirs::LogDirDescription;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use fletchlog_api::{Clock, Config};
use fletchlog_log::config::Durability;
use fletchlog_log::{PartitionLog, checkpoint};
use fletchlog_records::TopicPartition;
use fletchlog_records::planted;

use crate::BrokerError;
use crate::directory::{ClusterMetadata, Directory, LogDir, LogOffsets};
use crate::dynamic_config::BrokerConfigs;
use crate::each_log::EachLog;
use crate::panics::{contained, failing, place};
use crate::partition::Partition;
use crate::sync::{Mutex, Periodic, Rank, ReadGuard, RwLock};
use crate::topics::{Topic, TopicTable};

/// What the log says if a log cannot be synced for a change of properties.
const MAKING_DURABLE: &str = "cannot be made durable";

/// Called after a change of a partition that a fetch could see.
pub(crate) type Changed<'a> = &'a dyn Fn(&Partition);

/// The directory of a broker, its partitions and their logs. Thread-safe.
pub(crate) struct LogManager {
    clock: Arc<dyn Clock>,
    /// The properties that the broker was opened with.
    config: Config,
    /// The properties in effect.
    configs: Mutex<Arc<BrokerConfigs>>,
    directory: Directory,
    table: RwLock<TopicTable>,
    /// The check for old segments (wall clock).
    retention: Periodic,
    /// The check for expired producer ids (monotonic).
    producer_expiry: Periodic,
    /// Serialises the writers of checkpoints, so that no file gets older values than it has.
    checkpointing: Mutex<()>,
    /// Only one log is cleaned at a time: they share the memory for keys.
    cleaning: Mutex<()>,
}

impl LogManager {
    /// A log manager over an open directory. After an unclean stop every log is recovered here.
    ///
    /// # Errors
    /// A bad property of a topic; an error of recovery.
    pub(crate) fn open(
        directory: Directory,
        metadata: &ClusterMetadata,
        config: Config,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, BrokerError> {
        let configs = BrokerConfigs::new(&config, &metadata.configs, directory.nodes());
        let mut building = EachLog::new("cannot be opened");
        let table = TopicTable::build(metadata, &configs, &directory, &TopicTable::default(), &mut building);
        building.outcome()?;
        let first_expiry_ms = clock.monotonic_ms().saturating_add(producer_expiry_check_ms(&config));
        let logs = Self {
            clock,
            config,
            configs: Mutex::new(Rank::BrokerConfigs, Arc::new(configs)),
            directory,
            table: RwLock::new(Rank::TopicTable, table),
            retention: Periodic::new(Periodic::NEVER_BEGUN),
            producer_expiry: Periodic::new(first_expiry_ms),
            checkpointing: Mutex::new(Rank::Checkpoints, ()),
            cleaning: Mutex::new(Rank::Cleaning, ()),
        };
        logs.load_logs()?;
        Ok(logs)
    }

    /// After an unclean stop every log is recovered before anything is served; after a clean one each is opened when
    /// it is first needed, so that a thousand partitions open at once. Kafka: `LogManager#loadLogs`.
    fn load_logs(&self) -> Result<(), BrokerError> {
        if self.is_read_only() {
            return Ok(());
        }
        let now_ms = self.clock.now_ms();
        let mut loading = EachLog::new("cannot be loaded");
        for partition in self.topics().iter().flat_map(|topic| &topic.partitions) {
            if let Err(error) = partition.mend_topic_id(&self.directory) {
                log::warn!("partition.metadata is written when the partition is first used: {error}");
            }
            let dir = &self.directory.log_dirs()[partition.node_index()];
            if dir.clean_shutdown() {
                continue;
            }
            let load = || {
                if partition.has_log(&self.directory)? {
                    partition.log(&self.directory, now_ms)?;
                }
                Ok(())
            };
            loading.note(partition, load());
        }
        loading.outcome()
    }

    /// The clock.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The properties that the broker was opened with.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The properties that are in effect.
    pub(crate) fn configs(&self) -> Arc<BrokerConfigs> {
        Arc::clone(&self.configs.lock())
    }

    /// Puts new properties into effect, also for open logs. Kafka: `DynamicLogConfig#reconfigure`.
    ///
    /// # Errors
    /// A bad property of a topic, which keeps its settings; all other topics get the new ones.
    pub(crate) fn reconfigure(&self, configs: BrokerConfigs) -> Result<(), BrokerError> {
        let mut altering = EachLog::new("keeps its settings");
        for topic in self.topics() {
            let altered = topic.altered(topic.record.clone(), &configs, &self.directory);
            if let Some(altered) = altering.note_topic(&topic.name, altered) {
                self.insert(Arc::new(altered));
            }
        }
        *self.configs.lock() = Arc::new(configs);
        altering.outcome()
    }

    /// The directory.
    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Whether the broker was opened for reading only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.directory.read_only()
    }

    /// Returns an error unless the directory may be written; `action` completes "open it without read_only to ...".
    pub(crate) fn for_writing(&self, action: &'static str) -> Result<(), BrokerError> {
        if self.directory.fs().is_snapshot() {
            Err(BrokerError::ReadOnlyStore(action))
        } else if self.is_read_only() {
            Err(BrokerError::ReadOnly(action))
        } else {
            Ok(())
        }
    }

    /// Makes the logs durable for which these properties require it, before the properties take effect.
    ///
    /// # Errors
    /// The first failure, after all other logs were handled: a bad property of a topic, storage errors.
    pub(crate) fn make_durable(&self, configs: &BrokerConfigs) -> Result<(), BrokerError> {
        let mut making = EachLog::new(MAKING_DURABLE);
        for topic in self.topics() {
            let of_node = topic.record.configs(configs).map_err(BrokerError::from);
            let Some(of_node) = making.note_topic(&topic.name, of_node) else {
                continue;
            };
            let durable = topic.partitions.iter().filter(|partition| {
                let config = of_node.of(partition.leader());
                config.log.durability == Durability::Fsync
            });
            self.make_each_durable(durable, &mut making);
        }
        making.outcome()
    }

    /// Makes the logs of a topic durable, before the properties that require it take effect.
    ///
    /// # Errors
    /// The first failure, after all other logs were handled.
    pub(crate) fn make_topic_durable(&self, topic: &Topic) -> Result<(), BrokerError> {
        let mut making = EachLog::new(MAKING_DURABLE);
        self.make_each_durable(topic.partitions.iter(), &mut making);
        making.outcome()
    }

    fn make_each_durable<'a>(&self, partitions: impl Iterator<Item = &'a Arc<Partition>>, making: &mut EachLog) {
        let fs = &**self.directory.fs();
        for partition in partitions {
            making.note(partition, partition.make_durable(fs));
        }
    }

    fn topics(&self) -> Vec<Arc<Topic>> {
        self.table().iter().cloned().collect()
    }

    /// The table of topics.
    pub(crate) fn table(&self) -> ReadGuard<'_, TopicTable> {
        self.table.read()
    }

    /// Adds a new topic.
    pub(crate) fn insert(&self, topic: Arc<Topic>) {
        self.table.write().insert(topic);
    }

    /// Removes a deleted topic.
    pub(crate) fn remove(&self, name: &str) -> Option<Arc<Topic>> {
        self.table.write().remove(name)
    }

    /// Lets every topic go, with the open files of its logs: the broker is closed, and may be referred to for long.
    pub(crate) fn let_go(&self) {
        drop(std::mem::take(&mut *self.table.write()));
    }

    /// Read-only: takes over the writer's current topics. A topic with a bad property, as a newer release may write, does not affect
    /// the others: it stays as it was known before, and the failure is logged.
    pub(crate) fn take_over(&self, metadata: &ClusterMetadata) {
        let mut configs = self.configs();
        if *configs.altered() != metadata.configs {
            if let Err(error) = self.reconfigure(configs.altered_to(&metadata.configs)) {
                log::error!("a change of properties is not in effect everywhere: {error}");
            }
            configs = self.configs();
        }
        let mut building = EachLog::new("cannot be taken over");
        let mut table = self.table.write();
        *table = TopicTable::build(metadata, &configs, &self.directory, &table, &mut building);
        drop(table);
        building.report();
    }

    /// The log of a partition, opened on first use, refreshed when read-only.
    pub(crate) fn log_of<'a>(&self, partition: &'a Partition) -> Result<&'a Arc<PartitionLog>, BrokerError> {
        match partition.opened_log() {
            Some(log) if !self.is_read_only() => Ok(log),
            _ => partition.log(&self.directory, self.clock.now_ms()),
        }
    }

    /// Removes expired producers from every open log, if the check is due. Only a later append or DescribeProducers can notice, so no
    /// waiting client has to be woken. Kafka: `UnifiedLog#removeExpiredProducers`, scheduled by each log.
    pub(crate) fn maybe_remove_expired_producers(&self, now_ms: i64) {
        let interval_ms = producer_expiry_check_ms(&self.config);
        if let Some(_running) = self.producer_expiry.begin(now_ms, interval_ms) {
            let now_ms = self.clock.now_ms();
            for partition in self.open_partitions() {
                contained(
                    format_args!("forgetting expired producers of {}", partition.tp()),
                    || {
                        if let Some(log) = partition.opened_log() {
                            log.remove_expired_producers(now_ms);
                        }
                    },
                );
            }
        }
    }

    /// Partitions whose log is open.
    pub(crate) fn open_partitions(&self) -> Vec<Arc<Partition>> {
        let table = self.table();
        table
            .iter()
            .flat_map(|t| &t.partitions)
            .filter(|p| p.opened_log().is_some())
            .cloned()
            .collect()
    }

    /// Retention over every log (spec 4.1). Kafka: `LogManager#cleanupLogs`.
    ///
    /// # Errors
    /// `ReadOnly`; the first failure of a log, after retention over all others.
    pub(crate) fn cleanup_logs(&self, changed: Changed<'_>) -> Result<usize, BrokerError> {
        self.for_writing("delete old segments")?;
        let now_ms = self.clock.now_ms();
        let mut deleted = 0;
        let mut retention = EachLog::new("retention failed");
        for partition in self.topics().iter().flat_map(|t| &t.partitions) {
            let segments = failing(format_args!("retention of {}", partition.tp()), || {
                place(|| format!("retention of {}", partition.tp()));
                if partition.opened_log().is_none() && !partition.has_log(&self.directory)? {
                    return Ok(0);
                }
                Ok(self.log_of(partition)?.delete_old_segments(now_ms)?)
            });
            let segments = self.ignore_if_deleted(partition, segments);
            // Segments may have been deleted before an error.
            if !matches!(segments, Ok(None | Some(0))) {
                changed(partition);
            }
            if planted!("retention-stops-at-the-first-bad-log") {
                deleted += segments?.unwrap_or(0);
                continue;
            }
            deleted += retention.note(partition, segments).flatten().unwrap_or(0);
        }
        retention.outcome().map(|()| deleted)
    }

    /// The result for a partition; `None` if it failed and the topic was deleted meanwhile, which closes the log.
    pub(crate) fn ignore_if_deleted<T>(
        &self,
        partition: &Partition,
        result: Result<T, BrokerError>,
    ) -> Result<Option<T>, BrokerError> {
        match result {
            Err(_) if !self.table().holds(partition) => Ok(None),
            other => other.map(Some),
        }
    }

    /// With log.retention.check.interval.ms set: applies retention if it is due, in the thread that produces.
    pub(crate) fn maybe_cleanup_logs(&self, now_ms: i64, changed: Changed<'_>) {
        /// Kafka: `LogManager#InitialTaskDelayMs`.
        const INITIAL_DELAY_MS: i64 = 30_000;
        let interval = self.config.long("log.retention.check.interval.ms");
        if interval < 0 {
            return;
        }
        if self.retention.begin_at(now_ms.saturating_add(INITIAL_DELAY_MS)) {
            return;
        }
        if let Some(_running) = self.retention.begin(now_ms, interval)
            && let Err(error) = self.cleanup_logs(changed)
        {
            log::error!("retention failed: {error}");
        }
    }

    /// When the next check is due that no waiting client notices: for expired producers, and for old segments if
    /// log.retention.check.interval.ms is set (monotonic).
    pub(crate) fn next_check(&self) -> i64 {
        let producers_ms = self.producer_expiry.next_ms();
        let retention_ms = self.retention.next_ms();
        if retention_ms == Periodic::NEVER_BEGUN {
            return producers_ms;
        }
        let left_ms = retention_ms.saturating_sub(self.clock.now_ms());
        producers_ms.min(self.clock.monotonic_ms().saturating_add(left_ms))
    }

    /// Whether a thread does one of these checks.
    pub(crate) fn is_checking(&self) -> bool {
        self.producer_expiry.is_running() || self.retention.is_running()
    }

    /// Syncs every open log, then writes the recovery points (the log first, then what names its offsets).
    ///
    /// # Errors
    /// The first failure, after all others were synced and their checkpoints written.
    pub(crate) fn flush_logs(&self) -> Result<(), BrokerError> {
        if self.is_read_only() {
            return Ok(());
        }
        let partitions = self.open_partitions();
        let mut flush = EachLog::new("flush failed");
        self.sync_many(&partitions, &mut flush);
        for partition in partitions {
            if let Some(log) = partition.opened_log() {
                let flushed = self.ignore_if_deleted(&partition, log.flush().map_err(BrokerError::from));
                flush.note(&partition, flushed);
            }
        }
        let written = self.write_checkpoints();
        flush.outcome().and(written)
    }

    /// If many files have to be synced, syncs them all at once, so that the fsync of each has little left to do. Returns the nodes
    /// whose directory failed.
    fn sync_many(&self, partitions: &[Arc<Partition>], sync: &mut EachLog) -> BTreeSet<usize> {
        /// From this number on, one call for the whole device is cheaper than an fsync per file (measured on ext4: 1,000 files take
        /// 14 ms instead of 290 ms), and writes of other programs, which it also syncs, matter less.
        const MANY: usize = 64;
        let logs = partitions.iter().filter_map(|p| p.opened_log());
        if logs.map(|log| log.unsynced_files()).sum::<usize>() < MANY {
            return BTreeSet::new();
        }
        let fs = self.directory.fs();
        let synced = |dir: &LogDir| {
            fs.sync_all(dir.path())
                .map_err(|e| BrokerError::directory(&**fs, dir.path(), format!("cannot be synced: {e}")))
        };
        let dirs = self.directory.log_dirs().iter().enumerate();
        dirs.filter(|(_, dir)| sync.note_dir(synced(dir)).is_none())
            .map(|(node, _)| node)
            .collect()
    }

    /// Writes the three checkpoints of every log directory, as the logs are now.
    pub(crate) fn write_checkpoints(&self) -> Result<(), BrokerError> {
        let _one_at_a_time = (!planted!("checkpoints-written-by-two-at-once")).then(|| self.checkpointing.lock());
        let mut writing = EachLog::new("checkpoints");
        self.store_checkpoints(&self.checkpoint_offsets(), &mut writing);
        writing.outcome()
    }

    /// Writes the checkpoints once, with log starts that are not in effect yet; then `apply_log_starts` puts each of them into effect. No
    /// other thread writes checkpoints in between. A partition whose topic was deleted meanwhile, even if a new topic has its name,
    /// gets the result UNKNOWN_TOPIC_OR_PARTITION.
    ///
    /// # Errors
    /// Storage errors: then no log start is in effect.
    pub(crate) fn write_checkpoints_for<T>(
        &self,
        log_starts: &[(Arc<Partition>, i64)],
        apply_log_starts: impl Fn(&Partition, i64) -> Result<T, BrokerError>,
    ) -> Result<Vec<Result<T, BrokerError>>, BrokerError> {
        let _one_at_a_time = self.checkpointing.lock();
        let is_held: Vec<bool> = {
            let table = self.table();
            log_starts.iter().map(|(partition, _)| table.holds(partition)).collect()
        };
        let mut wanted: HashMap<&TopicPartition, i64> = HashMap::new();
        for ((partition, start), _) in log_starts.iter().zip(&is_held).filter(|(_, is_held)| **is_held) {
            let of_log = wanted.entry(partition.tp()).or_insert(*start);
            *of_log = (*of_log).max(*start);
        }
        let mut offsets = self.checkpoint_offsets();
        for (_, of_log) in &mut offsets {
            if let Some(start) = wanted.get(&of_log.tp) {
                of_log.log_start_offset = of_log.log_start_offset.max(*start);
            }
        }
        let mut writing = EachLog::new("checkpoints");
        self.store_checkpoints(&offsets, &mut writing);
        writing.outcome()?;
        let held = log_starts.iter().zip(is_held);
        Ok(held
            .map(|((partition, start), is_held)| match is_held {
                true => apply_log_starts(partition, *start),
                false => Err(BrokerError::unknown_partition(partition.tp())),
            })
            .collect())
    }

    fn checkpoint_offsets(&self) -> Vec<(usize, LogOffsets)> {
        let partitions = self.open_partitions();
        let of_open = partitions
            .iter()
            .filter_map(|p| Some((p.node_index(), offsets(p, p.opened_log()?))));
        of_open.collect()
    }

    /// Writes the checkpoints of every log directory; returns the nodes whose directory failed. The table of topics is read before
    /// the writes and not locked during them: the next checkpoints take account of a topic that is created or deleted meanwhile.
    fn store_checkpoints(&self, offsets: &[(usize, LogOffsets)], writing: &mut EachLog) -> BTreeSet<usize> {
        let known = self.partitions();
        let mut failed = BTreeSet::new();
        for (node, dir) in self.directory.log_dirs().iter().enumerate() {
            let of_node: Vec<LogOffsets> = offsets
                .iter()
                .filter(|(n, _)| *n == node)
                .map(|(_, o)| o.clone())
                .collect();
            let fs = &**self.directory.fs();
            let written = dir.write_checkpoints(fs, &of_node, |tp| known.contains(tp));
            let written = written.and_then(|()| dir.forget_clean_offsets(fs, |tp| known.contains(tp)));
            if writing.note_dir(written).is_none() {
                failed.insert(node);
            }
        }
        failed
    }

    /// The names of all partitions.
    fn partitions(&self) -> HashSet<TopicPartition> {
        let table = self.table();
        let partitions = table.iter().flat_map(|topic| &topic.partitions);
        partitions.map(|partition| partition.tp().clone()).collect()
    }

    /// Closes every log, writes the checkpoints, then marks every directory whose logs are all closed as cleanly shut down. Kafka:
    /// `LogManager#shutdown`.
    ///
    /// # Errors
    /// The first failure, after the rest of the shutdown.
    pub(crate) fn shutdown(&self) -> Result<(), BrokerError> {
        let partitions = self.open_partitions();
        let mut closing = EachLog::new("cannot be closed cleanly");
        let mut failed = BTreeSet::new();
        if planted!("clean-marker-before-logs") {
            for dir in self.directory.log_dirs() {
                checkpoint::write_clean_shutdown(&**self.directory.fs(), dir.path())?;
            }
        }
        let mut offsets_at_close = Vec::new();
        if !self.is_read_only() {
            for log in partitions.iter().filter_map(|p| p.opened_log()) {
                // A failure is reported below: closing the log fails in the same way.
                let _ = log.prepare_close();
            }
            failed = self.sync_many(&partitions, &mut closing);
        }
        for partition in &partitions {
            let Some(log) = partition.opened_log() else { continue };
            let mut at_close = offsets(partition, log);
            match closing.note(partition, log.close().map_err(BrokerError::from)) {
                // Closing has flushed everything.
                Some(()) => at_close.recovery_point = at_close.high_watermark,
                None => drop(failed.insert(partition.node_index())),
            }
            // Also for a log that failed: otherwise its checkpoints would be those of the last start.
            offsets_at_close.push((partition.node_index(), at_close));
        }
        if self.is_read_only() {
            return Ok(());
        }
        failed.extend(self.store_checkpoints(&offsets_at_close, &mut closing));
        let dirs = self.directory.log_dirs().iter().enumerate();
        for (_, dir) in dirs.filter(|(node, _)| !failed.contains(node)) {
            let marked = checkpoint::write_clean_shutdown(&**self.directory.fs(), dir.path());
            closing.note_dir(marked.map_err(BrokerError::from));
        }
        closing.outcome()
    }
}

fn producer_expiry_check_ms(config: &Config) -> i64 {
    i64::from(config.int("producer.id.expiration.check.interval.ms"))
}

/// The offsets of a log for the checkpoints.
pub(crate) fn offsets(partition: &Partition, log: &PartitionLog) -> LogOffsets {
    LogOffsets {
        tp: partition.tp().clone(),
        recovery_point: log.recovery_point(),
        high_watermark: log.log_end_offset(),
        log_start_offset: log.log_start_offset(),
        first_segment: log.segments().first().map_or(0, |&(base, _)| base),
    }
}
