//! The topics and partitions of a broker: what is appended to them, read from them and looked up in them.
//! Kafka: `ReplicaManager`; what its controller does to topics is here as well.

mod coordinator_log;
pub(crate) mod fetch;
mod leader_epochs;
mod list_offsets;
mod produce;
mod producer_ids;
mod topic_admin;

pub(crate) use coordinator_log::CoordinatorRecord;
pub(crate) use produce::{AddPartitionsToTxnManager, Produced};

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use fletchlog_api::{Clock, Config, NodeId};
use fletchlog_log::{LogError, PartitionLog};
use fletchlog_records::TopicPartition;

use crate::BrokerError;
use crate::directory::{ClusterMetadata, Directory};
use crate::failures::Failures;
use crate::partition::Partition;
use crate::sync::{Changes, Mutex, Rank, ReadGuard, RwLock};
use crate::topics::{Topic, TopicTable};
use fetch::{FetchManager, FetchPurgatory};

/// The topics of a broker and their partitions. Thread-safe; appends to different partitions run side by side.
pub(crate) struct ReplicaManager {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: Config,
    pub(crate) directory: Directory,
    cluster_id: Arc<str>,
    pub(crate) metadata: Mutex<ClusterMetadata>,
    table: RwLock<TopicTable>,
    fetches: FetchManager,
    purgatory: FetchPurgatory,
    pub(crate) failures: Failures,
    /// Waiting clients sleep on it.
    pub(crate) changes: Changes,
    pub(crate) next_retention_ms: AtomicI64,
    /// Who writes checkpoints writes what holds when it is written.
    pub(crate) checkpointing: Mutex<()>,
    /// One log is cleaned at a time: their keys share the memory.
    pub(crate) cleaning: Mutex<()>,
    /// When expired producer ids are looked for next (monotonic).
    next_producer_expiry_ms: AtomicI64,
}

impl ReplicaManager {
    /// Over an open directory. After an unclean stop every log is recovered here.
    pub(crate) fn new(
        directory: Directory,
        metadata: ClusterMetadata,
        config: Config,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, BrokerError> {
        let topics = TopicTable::build(&metadata, &config, &directory, &TopicTable::default())?;
        let slots = usize::try_from(config.int("max.incremental.fetch.session.cache.slots")).unwrap_or(0);
        let nodes = NodeId::try_from(directory.log_dirs().len()).unwrap_or(NodeId::MAX);
        let fetches = FetchManager::new(nodes, slots, !directory.read_only());
        let first_expiry_ms = clock
            .monotonic_ms()
            .saturating_add(producer_ids::expiry_check_ms(&config));
        let replicas = Self {
            clock,
            config,
            directory,
            cluster_id: Arc::from(metadata.cluster_id.as_str()),
            metadata: Mutex::new(Rank::Metadata, metadata),
            table: RwLock::new(Rank::TopicTable, topics),
            fetches,
            purgatory: FetchPurgatory::default(),
            failures: Failures::default(),
            changes: Changes::default(),
            next_retention_ms: AtomicI64::new(i64::MIN),
            checkpointing: Mutex::new(Rank::Checkpoints, ()),
            cleaning: Mutex::new(Rank::Cleaning, ()),
            next_producer_expiry_ms: AtomicI64::new(first_expiry_ms),
        };
        replicas.recover_logs()?;
        Ok(replicas)
    }

    /// After an unclean stop every log is recovered before anything is served; after a clean one each is opened when
    /// it is first needed, so that a thousand partitions open at once.
    fn recover_logs(&self) -> Result<(), BrokerError> {
        if self.is_read_only() {
            return Ok(());
        }
        let now_ms = self.clock.now_ms();
        let topics: Vec<_> = self.topic_table().iter().cloned().collect();
        for topic in topics {
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

    /// The clock.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The broker's properties.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The id of the cluster.
    pub(crate) fn cluster_id(&self) -> &Arc<str> {
        &self.cluster_id
    }

    /// What fails at the moment.
    pub(crate) fn failures(&self) -> &Failures {
        &self.failures
    }

    /// The leader epoch of a partition.
    ///
    /// # Errors
    /// Its file cannot be read.
    pub(crate) fn leader_epoch_of(&self, partition: &Partition) -> Result<i32, LogError> {
        partition.leader_epoch(&self.directory)
    }

    /// Whether a partition's directory holds anything of a log.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub(crate) fn has_log(&self, partition: &Partition) -> Result<bool, BrokerError> {
        partition.has_log(&self.directory)
    }

    /// False: the partition was never used, or another broker of the cluster keeps it.
    pub(crate) fn has_directory(&self, partition: &Partition) -> bool {
        partition.opened_log().is_some() || self.directory.fs().exists(partition.dir())
    }

    /// What waiting clients sleep on.
    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// The waiting fetches.
    pub(crate) fn purgatory(&self) -> &FetchPurgatory {
        &self.purgatory
    }

    /// Number of nodes.
    pub(crate) fn num_nodes(&self) -> i32 {
        i32::try_from(self.directory.log_dirs().len()).unwrap_or(i32::MAX)
    }

    /// Node ids ascending: 1..=nodes.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        (1..=self.num_nodes()).collect()
    }

    /// Whether the broker was opened for reading only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.directory.read_only()
    }

    /// Error unless it may be written; `action` completes "open it without read_only to ...".
    pub(crate) fn for_writing(&self, action: &'static str) -> Result<(), BrokerError> {
        if self.is_read_only() {
            Err(BrokerError::ReadOnly(action))
        } else {
            Ok(())
        }
    }

    /// The table of topics.
    pub(crate) fn topic_table(&self) -> ReadGuard<'_, TopicTable> {
        self.table.read()
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
        let mut metadata = self.metadata.lock();
        if let Some(new) = self.directory.reload(&metadata)? {
            let mut table = self.table.write();
            *table = TopicTable::build(&new, &self.config, &self.directory, &table)?;
            *metadata = new;
        }
        Ok(())
    }
}
