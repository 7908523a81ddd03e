//! What Kafka's controller keeps and changes: topics, the properties of topics, nodes and groups, users, ACLs, levels of features, blocks of producer ids.
//! All of it is in `fletchlog.metadata`, which is written whole. Kafka: `QuorumController`.

mod alter_config;
mod create_partitions;
mod features;
mod leaders;
mod new_topic;
mod producer_ids;
mod quorum;
mod security;
#[cfg(test)]
mod tests;
mod topics;

pub use alter_config::{AlterConfig, AlterConfigOp, Alteration, ConfigChange};
pub use create_partitions::MorePartitions;
pub(crate) use leaders::Change;
pub use leaders::ElectionType;
pub use new_topic::{CreatedTopic, NewTopic};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use features::CurrentLevels;
use fletchlog_api::{Config, NodeId};
use quorum::Quorum;

use crate::BrokerError;
use crate::directory::ClusterMetadata;
use crate::dynamic_config::BrokerConfigs;
use crate::log_manager::LogManager;
use crate::node_ids::NodeIds;
use crate::refresh_once::RefreshOnce;
use crate::security::{CurrentSecurity, Rules};
use crate::sync::{Mutex, Rank, RwLock};
use crate::topics::Topic;

/// The metadata of the cluster, and its changes. Thread-safe; one change at a time.
pub(crate) struct Controller {
    logs: Arc<LogManager>,
    cluster_id: Arc<str>,
    metadata: Mutex<ClusterMetadata>,
    security: CurrentSecurity,
    authorizer: Option<Rules>,
    levels: CurrentLevels,
    /// Nodes that do not run, and whether they were killed.
    stopped: RwLock<BTreeMap<NodeId, bool>>,
    /// There are such nodes.
    any_stopped: AtomicBool,
    /// Nodes that have ended, and when the cluster notices it (monotonic ms).
    undetected: RwLock<BTreeMap<NodeId, i64>>,
    /// There are such nodes.
    any_undetected: AtomicBool,
    /// Nodes whose shutdown is in progress, and when it ends (monotonic ms).
    stopping: RwLock<BTreeMap<NodeId, i64>>,
    /// There are such nodes.
    any_stopping: AtomicBool,
    quorum: Mutex<Quorum>,
    racks: BTreeMap<NodeId, Arc<str>>,
}

impl Controller {
    /// A controller over these logs; some nodes are in racks.
    pub(crate) fn new(
        logs: Arc<LogManager>,
        metadata: ClusterMetadata,
        named_nodes: Vec<(NodeId, Option<Arc<str>>)>,
    ) -> Self {
        let racks = named_nodes.into_iter().filter_map(|(node, rack)| Some((node, rack?)));
        Self {
            security: CurrentSecurity::new(&metadata.security),
            levels: CurrentLevels::new(&metadata.features),
            authorizer: Rules::new(logs.config()),
            cluster_id: Arc::from(metadata.cluster_id.as_str()),
            metadata: Mutex::new(Rank::Metadata, metadata),
            stopped: RwLock::new(Rank::Nodes, BTreeMap::new()),
            any_stopped: AtomicBool::new(false),
            undetected: RwLock::new(Rank::Nodes, BTreeMap::new()),
            any_undetected: AtomicBool::new(false),
            stopping: RwLock::new(Rank::Nodes, BTreeMap::new()),
            any_stopping: AtomicBool::new(false),
            quorum: Mutex::new(Rank::Quorum, Quorum::new(logs.directory().nodes().first())),
            racks: racks.collect(),
            logs,
        }
    }

    /// The current topics, and what else `fletchlog.metadata` keeps.
    pub(crate) fn current_metadata(&self) -> ClusterMetadata {
        self.metadata.lock().clone()
    }

    /// The id of the cluster.
    pub(crate) fn cluster_id(&self) -> &Arc<str> {
        &self.cluster_id
    }

    /// Number of nodes.
    pub(crate) fn num_nodes(&self) -> i32 {
        i32::try_from(self.node_ids().count()).unwrap_or(i32::MAX)
    }

    /// The nodes.
    pub(crate) fn node_ids(&self) -> &NodeIds {
        self.logs.directory().nodes()
    }

    /// The ids of the nodes, ascending.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        self.node_ids().as_slice().to_vec()
    }

    /// The rack of a node, if it has one.
    pub(crate) fn rack_of(&self, node: NodeId) -> Option<&Arc<str>> {
        self.racks.get(&node)
    }

    fn config(&self) -> &Config {
        self.logs.config()
    }

    fn configs(&self) -> Arc<BrokerConfigs> {
        self.logs.configs()
    }

    /// A topic; a read-only broker first checks for changes.
    pub(crate) fn topic(&self, name: &str) -> Result<Arc<Topic>, BrokerError> {
        self.see_changes()?;
        if let Some(topic) = self.logs.table().get(name) {
            return Ok(topic.clone());
        }
        self.see_new_topics()?;
        self.logs
            .table()
            .get(name)
            .cloned()
            .ok_or_else(|| BrokerError::unknown_topic(name))
    }

    /// Read-only: as [`Controller::see_new_topics`] if that costs little. It does not for a Kafka broker's directory, which has
    /// to be listed.
    pub(crate) fn see_changes(&self) -> Result<(), BrokerError> {
        match self.logs.directory().is_kafkas() {
            true => Ok(()),
            false => self.see_new_topics(),
        }
    }

    /// Read-only: takes over topics that the writer has created or deleted since, once within [`RefreshOnce`].
    pub(crate) fn see_new_topics(&self) -> Result<(), BrokerError> {
        if !self.logs.is_read_only() || RefreshOnce::is_done() {
            return Ok(());
        }
        let mut metadata = self.metadata.lock();
        if let Some(new) = self.logs.directory().reload(&metadata)? {
            self.logs.take_over(&new);
            self.security.set(&new.security);
            self.levels.set(&new.features);
            *metadata = new;
        }
        RefreshOnce::done();
        Ok(())
    }
}
