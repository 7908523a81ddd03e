//! The topics and partitions of a broker: what is appended to them, read from them and looked up in them.
//! Kafka: `ReplicaManager`; what its controller does to topics is here as well.

mod alter_config;
mod coordinator_log;
mod create_partitions;
pub(crate) mod fetch;
mod leader_epochs;
mod list_offsets;
mod new_topic;
mod produce;
mod producer_ids;
mod security;
mod topic_admin;

pub use alter_config::{AlterConfig, AlterConfigOp, Alteration, ConfigChange};
pub(crate) use coordinator_log::CoordinatorRecord;
pub use create_partitions::MorePartitions;
pub use new_topic::{CreatedTopic, NewTopic};
pub(crate) use produce::{AddPartitionsToTxnManager, Produced};
pub use topic_admin::{PartitionDescription, TopicDescription};

use std::sync::Arc;

use fletchlog_api::{Clock, Config, ErrorCode, NodeId, topic_id_of};
use fletchlog_log::{LogError, PartitionLog};
use fletchlog_records::TopicPartition;

use crate::BrokerError;
use crate::directory::ClusterMetadata;
use crate::dynamic_config::BrokerConfigs;
use crate::failures::Failures;
use crate::log_manager::LogManager;
use crate::metrics::{BrokerMetric, BrokerTopicMetrics, value};
use crate::one_look::OneLook;
use crate::partition::Partition;
use crate::security::{CurrentSecurity, Rules};
use crate::sync::{Changes, Mutex, Rank, ReadGuard};
use crate::topics::{Topic, TopicTable};
use fetch::{FetchManager, FetchPurgatory};

/// The topics of a broker and their partitions. Thread-safe; appends to different partitions run in parallel.
pub(crate) struct ReplicaManager {
    logs: Arc<LogManager>,
    cluster_id: Arc<str>,
    metadata: Mutex<ClusterMetadata>,
    security: CurrentSecurity,
    authorizer: Option<Rules>,
    fetches: FetchManager,
    purgatory: FetchPurgatory,
    failures: Failures,
    metrics: BrokerTopicMetrics,
    /// Waiting clients wait for its next change.
    changes: Changes,
}

impl ReplicaManager {
    /// A replica manager over these logs.
    pub(crate) fn new(logs: Arc<LogManager>, metadata: ClusterMetadata) -> Self {
        let slots = usize::try_from(logs.config().int("max.incremental.fetch.session.cache.slots")).unwrap_or(0);
        let nodes = NodeId::try_from(logs.directory().log_dirs().len()).unwrap_or(NodeId::MAX);
        Self {
            fetches: FetchManager::new(nodes, slots, !logs.is_read_only()),
            security: CurrentSecurity::new(&metadata.security),
            authorizer: Rules::new(logs.config()),
            cluster_id: Arc::from(metadata.cluster_id.as_str()),
            metadata: Mutex::new(Rank::Metadata, metadata),
            purgatory: FetchPurgatory::default(),
            failures: Failures::default(),
            metrics: BrokerTopicMetrics::default(),
            changes: Changes::default(),
            logs,
        }
    }

    /// The current topics, and what else `fletchlog.metadata` keeps.
    pub(crate) fn current_metadata(&self) -> ClusterMetadata {
        self.metadata.lock().clone()
    }

    /// The clock.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        self.logs.clock()
    }

    /// The properties that the broker was opened with.
    pub(crate) fn config(&self) -> &Config {
        self.logs.config()
    }

    /// The properties that are in effect.
    pub(crate) fn configs(&self) -> Arc<BrokerConfigs> {
        self.logs.configs()
    }

    /// The id of the cluster.
    pub(crate) fn cluster_id(&self) -> &Arc<str> {
        &self.cluster_id
    }

    /// The operations that currently fail.
    pub(crate) fn failures(&self) -> &Failures {
        &self.failures
    }

    /// The leader epoch of a partition.
    ///
    /// # Errors
    /// Its file cannot be read.
    pub(crate) fn leader_epoch_of(&self, partition: &Partition) -> Result<i32, LogError> {
        partition.leader_epoch(self.logs.directory())
    }

    /// Whether a partition's directory has files of a log.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub(crate) fn has_log(&self, partition: &Partition) -> Result<bool, BrokerError> {
        partition.has_log(self.logs.directory())
    }

    /// Whether a partition has a directory. False: it was never used, or another broker of the cluster keeps it.
    pub(crate) fn has_directory(&self, partition: &Partition) -> bool {
        partition.opened_log().is_some() || self.logs.directory().fs().exists(partition.dir())
    }

    /// The counters, and the numbers of waiting fetches and of fetch sessions. Kafka: `DelayedOperationPurgatory`,
    /// `FetchSessionCache`.
    pub(crate) fn metrics(&self) -> Vec<BrokerMetric> {
        let mut metrics = self.metrics.read().to_vec();
        metrics.push(("purgatory-size", value(self.purgatory.size() as u64)));
        metrics.push(("incremental-fetch-session-count", value(self.fetches.sessions() as u64)));
        metrics
    }

    /// The counter that waiting clients wait for.
    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// The waiting fetches.
    pub(crate) fn purgatory(&self) -> &FetchPurgatory {
        &self.purgatory
    }

    /// Number of nodes.
    pub(crate) fn num_nodes(&self) -> i32 {
        i32::try_from(self.logs.directory().log_dirs().len()).unwrap_or(i32::MAX)
    }

    /// Node ids ascending: 1..=nodes.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        (1..=self.num_nodes()).collect()
    }

    /// Checks that a partition can have these replicas.
    pub(crate) fn check_assignment(&self, replicas: &[NodeId]) -> Result<(), BrokerError> {
        new_topic::check_assignment(replicas, self.metadata.lock().nodes, None)
    }

    /// Whether the broker was opened for reading only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.logs.is_read_only()
    }

    /// Returns an error unless the directory may be written; `action` completes "open it without read_only to ...".
    pub(crate) fn for_writing(&self, action: &'static str) -> Result<(), BrokerError> {
        self.logs.for_writing(action)
    }

    /// The table of topics.
    pub(crate) fn topic_table(&self) -> ReadGuard<'_, TopicTable> {
        self.logs.table()
    }

    /// A topic; a read-only broker first checks for changes.
    pub(crate) fn topic(&self, name: &str) -> Result<Arc<Topic>, BrokerError> {
        self.see_changes()?;
        if let Some(topic) = self.topic_table().get(name) {
            return Ok(topic.clone());
        }
        self.see_new_topics()?;
        self.topic_table()
            .get(name)
            .cloned()
            .ok_or_else(|| BrokerError::unknown_topic(name))
    }

    /// A partition; a read-only broker first checks for changes.
    pub(crate) fn partition(&self, tp: &TopicPartition) -> Result<Arc<Partition>, BrokerError> {
        self.see_changes()?;
        if let Some(partition) = self.topic_table().partition(tp) {
            return Ok(partition.clone());
        }
        self.see_new_topics()?;
        self.topic_table()
            .partition(tp)
            .cloned()
            .ok_or_else(|| BrokerError::unknown_partition(tp))
    }

    /// A partition of a fetch, whose topic is named [by its id](fletchlog_api::topic_by_id) if `by_id`; a read-only broker first
    /// checks for changes.
    pub(crate) fn fetched_partition(&self, tp: &TopicPartition, by_id: bool) -> Result<Arc<Partition>, BrokerError> {
        let Some(id) = topic_id_of(&tp.topic).filter(|_| by_id) else {
            return self.partition(tp);
        };
        self.see_changes()?;
        if self.topic_table().name_of(&id).is_none() {
            self.see_new_topics()?;
        }
        let table = self.topic_table();
        let name = table.name_of(&id).ok_or_else(|| {
            let text = "no topic has this id".to_owned();
            BrokerError::kafka(ErrorCode::UNKNOWN_TOPIC_ID, text)
        })?;
        let partition = table.get(name).and_then(|topic| topic.partition(tp.partition));
        partition.cloned().ok_or_else(|| BrokerError::unknown_partition(tp))
    }

    /// The log of a partition, opened on first use, refreshed when read-only.
    pub(crate) fn log_of<'a>(&self, partition: &'a Partition) -> Result<&'a Arc<PartitionLog>, BrokerError> {
        let log = self.logs.log_of(partition);
        if log.is_err() && self.is_read_only() {
            // The writer may have deleted its topic since.
            self.see_new_topics()?;
            if !self.topic_table().holds(partition) {
                return Err(BrokerError::unknown_partition(partition.tp()));
            }
        }
        log.map_err(|error| match error {
            BrokerError::Log(LogError::Gone { path }) => {
                let reason = "is missing, although its topic was not deleted; bring it back".to_owned();
                BrokerError::Directory { path, reason }
            }
            other => other,
        })
    }

    /// Read-only: as [`ReplicaManager::see_new_topics`] if that costs little. It does not for a Kafka broker's directory, which has
    /// to be listed.
    fn see_changes(&self) -> Result<(), BrokerError> {
        match self.logs.directory().is_kafkas() {
            true => Ok(()),
            false => self.see_new_topics(),
        }
    }

    /// Read-only: takes over topics that the writer has created or deleted since, once within [`OneLook`].
    pub(crate) fn see_new_topics(&self) -> Result<(), BrokerError> {
        if !self.is_read_only() || OneLook::is_done() {
            return Ok(());
        }
        let mut metadata = self.metadata.lock();
        if let Some(new) = self.logs.directory().reload(&metadata)? {
            self.logs.take_over(&new);
            self.security.set(&new.security);
            *metadata = new;
        }
        OneLook::done();
        Ok(())
    }
}
