//! The topics and partitions of a broker: what is appended to them, read from them and looked up in them.
//! Kafka: `ReplicaManager`.

mod acks;
mod coordinator_log;
mod delete_records;
mod describe;
pub(crate) mod fetch;
mod leader_epochs;
mod list_offsets;
mod produce;
mod share_watch;

pub(crate) use acks::Deferred;
pub(crate) use coordinator_log::CoordinatorRecord;
pub use describe::{PartitionDescription, TopicDescription};
pub(crate) use produce::{AddPartitionsToTxnManager, Produced};
pub(crate) use share_watch::ShareWatchKey;

use std::sync::Arc;

use fletchlog_api::{Clock, Config, ErrorCode, NodeId, topic_id_of};
use fletchlog_log::{LogError, PartitionLog};
use fletchlog_records::TopicPartition;

use crate::BrokerError;
use crate::controller::Controller;
use crate::dynamic_config::BrokerConfigs;
use crate::error::ReadRefusal;
use crate::failures::Failures;
use crate::log_manager::LogManager;
use crate::metrics::{BrokerMetric, BrokerTopicMetrics, value};
use crate::partition::Partition;
use crate::sync::{Changes, ReadGuard};
use crate::topics::{Topic, TopicTable};
use acks::ProducePurgatory;
use fetch::{FetchManager, FetchPurgatory};
use share_watch::ShareWatch;

/// The topics of a broker and their partitions. Thread-safe; appends to different partitions run in parallel.
pub(crate) struct ReplicaManager {
    logs: Arc<LogManager>,
    controller: Arc<Controller>,
    fetches: FetchManager,
    purgatory: FetchPurgatory,
    acks: ProducePurgatory,
    share_watch: ShareWatch,
    failures: Failures,
    metrics: BrokerTopicMetrics,
    /// replica.selector.class is set: leaders name followers near consumers.
    selects_replicas: bool,
    /// Waiting clients wait for its next change.
    changes: Changes,
}

impl ReplicaManager {
    /// A replica manager over these logs, whose topics this controller keeps.
    pub(crate) fn new(logs: Arc<LogManager>, controller: Arc<Controller>) -> Self {
        let slots = usize::try_from(logs.config().int("max.incremental.fetch.session.cache.slots")).unwrap_or(0);
        Self {
            fetches: FetchManager::new(logs.directory().nodes().clone(), slots, !logs.is_read_only()),
            selects_replicas: logs.config().get("replica.selector.class").is_some(),
            controller,
            purgatory: FetchPurgatory::default(),
            acks: ProducePurgatory::default(),
            share_watch: ShareWatch::default(),
            failures: Failures::default(),
            metrics: BrokerTopicMetrics::default(),
            changes: Changes::default(),
            logs,
        }
    }

    /// What Kafka's controller does.
    pub(crate) fn controller(&self) -> &Controller {
        &self.controller
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

    /// Which share fetches wait for what.
    pub(crate) fn share_watch(&self) -> &ShareWatch {
        &self.share_watch
    }

    /// To be called after a change that a share fetch may wait for: it is tried again once the thread holds no lock.
    pub(crate) fn share_changed(&self, key: impl FnOnce() -> ShareWatchKey) {
        if self.share_watch.changed(key) {
            self.changes.notify();
        }
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
        self.controller.topic(name)
    }

    /// A partition; a read-only broker first checks for changes.
    pub(crate) fn partition(&self, tp: &TopicPartition) -> Result<Arc<Partition>, BrokerError> {
        self.controller.see_changes()?;
        if let Some(partition) = self.topic_table().partition(tp) {
            return Ok(partition.clone());
        }
        self.controller.see_new_topics()?;
        self.topic_table()
            .partition(tp)
            .cloned()
            .ok_or_else(|| BrokerError::unknown_partition(tp))
    }

    /// Whether a transaction of the producer is open in the log of the partition, in this epoch.
    pub(crate) fn has_ongoing_transaction(&self, tp: &TopicPartition, (producer_id, epoch): (i64, i16)) -> bool {
        let partition = self.topic_table().partition(tp).cloned();
        let log = partition.as_ref().and_then(|partition| partition.opened_log());
        log.is_some_and(|log| log.has_ongoing_transaction(producer_id, epoch))
    }

    /// A partition of a fetch, whose topic is named [by its id](fletchlog_api::topic_by_id) if `by_id`; a read-only broker first
    /// checks for changes.
    pub(crate) fn fetched_partition(&self, tp: &TopicPartition, by_id: bool) -> Result<Arc<Partition>, BrokerError> {
        let Some(id) = topic_id_of(&tp.topic).filter(|_| by_id) else {
            return self.partition(tp);
        };
        self.controller.see_changes()?;
        if self.topic_table().name_of(&id).is_none() {
            self.controller.see_new_topics()?;
        }
        let table = self.topic_table();
        let name = table.name_of(&id).ok_or_else(|| {
            let text = "no topic has this id".to_owned();
            BrokerError::kafka(ErrorCode::UNKNOWN_TOPIC_ID, text)
        })?;
        let partition = table.get(name).and_then(|topic| topic.partition(tp.partition));
        partition.cloned().ok_or_else(|| BrokerError::unknown_partition(tp))
    }

    /// As [`Self::log_of`], for a request to `node`: a node without a replica opens no log.
    pub(crate) fn log_as_replica<'a>(
        &self,
        partition: &'a Partition,
        node: NodeId,
    ) -> Result<&'a Arc<PartitionLog>, ReadRefusal> {
        if partition.leader() != node && !partition.replicas().contains(&node) {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER.into());
        }
        Ok(self.log_of(partition)?)
    }

    /// The log of a partition, opened on first use, refreshed when read-only.
    pub(crate) fn log_of<'a>(&self, partition: &'a Partition) -> Result<&'a Arc<PartitionLog>, BrokerError> {
        let log = self.logs.log_of(partition);
        if log.is_err() && self.is_read_only() {
            // The writer may have deleted its topic since.
            self.controller.see_new_topics()?;
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
}
