//! Leaders, replicas and running nodes: their changes. Kafka: `ReplicationControlManager`, `BrokerHeartbeatManager`.
//!
//! A change of many partitions is one write of `fletchlog.metadata`. No request runs meanwhile: the caller has the broker for itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fletchlog_api::{ErrorCode, NodeId};
use fletchlog_records::TopicPartition;
use fletchlog_records::planted;

use super::Controller;
use super::new_topic::check_assignment;
use crate::BrokerError;
use crate::directory::{ClusterMetadata, NoElection, PartitionState, TopicRecord};
use crate::error::spread;
use crate::node_ids::NodeIds;
use crate::partition::Partition;

/// How a leader is elected. Kafka: `ElectionType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElectionType {
    /// The first replica, if it is in sync.
    Preferred,
    /// Any replica on a running node, for a partition without leader: records may be lost.
    Unclean,
}

/// What becomes of a partition, which has this place among those to be changed; `None`: it stays as it is.
pub(crate) type Change<'a> =
    &'a mut dyn FnMut(usize, &Partition, &PartitionState) -> Result<Option<PartitionState>, BrokerError>;

impl Controller {
    /// Whether the cluster takes a node for running. Kafka: a broker that is not fenced.
    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        !self.any_stopped.load(Ordering::Acquire) || !self.stopped.read().contains_key(&node)
    }

    /// Whether replicas of a node may be in sync: it is not fenced, and no shutdown of it is in progress. Kafka: `isActive`.
    pub(crate) fn is_active(&self, node: NodeId) -> bool {
        self.is_up(node) && !self.is_stopping(node)
    }

    fn is_stopping(&self, node: NodeId) -> bool {
        self.any_stopping.load(Ordering::Acquire) && self.stopping.read().contains_key(&node)
    }

    /// The nodes that are not fenced, ascending.
    pub(crate) fn live_nodes(&self) -> Vec<NodeId> {
        let nodes = self.nodes().into_iter();
        nodes.filter(|node| self.is_up(*node)).collect()
    }

    /// Whether a node runs.
    pub(crate) fn runs(&self, node: NodeId) -> bool {
        self.is_up(node) && (!self.any_undetected() || !self.undetected.read().contains_key(&node))
    }

    /// Whether some nodes have ended that the cluster takes for running.
    pub(crate) fn any_undetected(&self) -> bool {
        self.any_undetected.load(Ordering::Acquire)
    }

    /// Whether all nodes run.
    pub(crate) fn all_run(&self) -> bool {
        !self.any_stopped.load(Ordering::Acquire) && !self.any_undetected()
    }

    /// Notes that a node has ended, which the cluster notices at this time (monotonic ms); false: it did not run.
    ///
    /// # Errors
    /// INVALID_REQUEST: no such node.
    pub(crate) fn set_undetected(&self, node: NodeId, deadline_ms: i64) -> Result<bool, BrokerError> {
        self.check_node_id(node)?;
        if !self.runs(node) {
            return Ok(false);
        }
        self.set_detected(node);
        self.undetected.write().insert(node, deadline_ms);
        self.any_undetected.store(true, Ordering::Release);
        Ok(true)
    }

    /// Notes that the shutdown of a node has begun, which ends at this time (monotonic ms); false: it does not run, or has begun before.
    ///
    /// # Errors
    /// INVALID_REQUEST: no such node.
    pub(crate) fn set_stopping(&self, node: NodeId, deadline_ms: i64) -> Result<bool, BrokerError> {
        self.check_node_id(node)?;
        if !self.runs(node) || self.is_stopping(node) {
            return Ok(false);
        }
        self.stopping.write().insert(node, deadline_ms);
        self.any_stopping.store(true, Ordering::Release);
        Ok(true)
    }

    /// From now on the cluster knows whether a node runs.
    pub(crate) fn set_detected(&self, node: NodeId) {
        let mut stopping = self.stopping.write();
        stopping.remove(&node);
        self.any_stopping.store(!stopping.is_empty(), Ordering::Release);
        drop(stopping);
        let mut undetected = self.undetected.write();
        undetected.remove(&node);
        self.any_undetected.store(!undetected.is_empty(), Ordering::Release);
    }

    /// Nodes that are to be fenced, when (monotonic ms), and whether they were killed, in that order.
    pub(crate) fn ending(&self) -> Vec<(i64, NodeId, bool)> {
        let mut all = Vec::new();
        if self.any_undetected() {
            all.extend(self.undetected.read().iter().map(|(node, at)| (*at, *node, true)));
        }
        if self.any_stopping.load(Ordering::Acquire) {
            all.extend(self.stopping.read().iter().map(|(node, at)| (*at, *node, false)));
        }
        all.sort_unstable();
        all
    }

    /// Notes that a node does not run; false: it was stopped before.
    ///
    /// # Errors
    /// INVALID_REQUEST: no such node.
    pub(crate) fn set_stopped(&self, node: NodeId, is_killed: bool) -> Result<bool, BrokerError> {
        self.check_node_id(node)?;
        self.set_detected(node);
        let mut stopped = self.stopped.write();
        let is_new = !stopped.contains_key(&node);
        stopped.entry(node).or_insert(is_killed);
        self.any_stopped.store(true, Ordering::Release);
        Ok(is_new)
    }

    /// Notes that a node runs; returns whether it was killed, `None`: it was not stopped.
    ///
    /// # Errors
    /// INVALID_REQUEST: no such node.
    pub(crate) fn set_started(&self, node: NodeId) -> Result<Option<bool>, BrokerError> {
        self.check_node_id(node)?;
        let mut stopped = self.stopped.write();
        let was_killed = stopped.remove(&node);
        self.any_stopped.store(!stopped.is_empty(), Ordering::Release);
        Ok(was_killed)
    }

    /// Checks that the broker has this node.
    pub(crate) fn check_node_id(&self, node: NodeId) -> Result<(), BrokerError> {
        if self.node_ids().contains(node) {
            return Ok(());
        }
        let text = format!("the broker has no node {node}; its nodes are {}", self.node_ids());
        Err(BrokerError::kafka(ErrorCode::INVALID_REQUEST, text))
    }

    /// Changes the states of partitions. Each change succeeds or fails separately; those that succeed are in one write of the metadata.
    /// Returns whether each partition has changed. A partition that comes twice is changed twice.
    pub(crate) fn change_states(
        &self,
        partitions: &[Arc<Partition>],
        change: Change<'_>,
    ) -> Vec<Result<bool, BrokerError>> {
        let mut metadata = self.metadata.lock();
        let mut new: BTreeMap<TopicPartition, PartitionState> = BTreeMap::new();
        let mut one = |(place, partition): (usize, &Arc<Partition>)| {
            self.logs.for_writing("move leaders")?;
            let current = match new.get(partition.tp()) {
                Some(changed) => changed.clone(),
                None => self.state_of(partition)?,
            };
            let Some(next) = change(place, partition, &current)?.filter(|next| *next != current) else {
                return Ok(false);
            };
            new.insert(partition.tp().clone(), next);
            Ok(true)
        };
        let mut results: Vec<Result<bool, BrokerError>> = partitions.iter().enumerate().map(&mut one).collect();
        if let Err(error) = self.store_states(&mut metadata, new) {
            let changed = results
                .iter()
                .enumerate()
                .filter(|(_, changed)| matches!(changed, Ok(true)));
            let places: Vec<usize> = changed.map(|(place, _)| place).collect();
            spread(error, &places, &mut results);
        }
        results
    }

    /// The state of a partition with its leader epoch.
    fn state_of(&self, partition: &Partition) -> Result<PartitionState, BrokerError> {
        Ok(PartitionState {
            leader_epoch: partition.leader_epoch(self.logs.directory())?,
            ..PartitionState::clone(&partition.state())
        })
    }

    /// Writes new states, and puts them into effect.
    fn store_states(
        &self,
        metadata: &mut ClusterMetadata,
        new: BTreeMap<TopicPartition, PartitionState>,
    ) -> Result<(), BrokerError> {
        if new.is_empty() {
            return Ok(());
        }
        let mut changed = metadata.clone();
        let mut names = Vec::new();
        let mut states = Vec::new();
        for (tp, state) in new {
            if let Some(record) = changed.topics.get_mut(&*tp.topic) {
                let state = Arc::new(state);
                record.states.insert(tp.partition, Arc::clone(&state));
                if names.last() != Some(&tp.topic) {
                    names.push(Arc::clone(&tp.topic));
                }
                states.push((tp, state));
            }
        }
        if !planted!("leader-kept-in-memory") {
            self.store_or_undo(&changed, metadata)?;
        }
        self.follow_leaders(&states);
        *metadata = changed;
        for name in names {
            let (Some(record), Ok(topic)) = (metadata.topics.get(&*name), self.topic(&name)) else {
                continue;
            };
            let altered = topic.altered(record.clone(), &self.configs(), self.logs.directory())?;
            self.logs.insert(Arc::new(altered));
        }
        Ok(())
    }

    /// Cuts logs to those of their new leaders, after their recovery points: a log that ends below its own, and grows again, would be
    /// refused if a power loss tears its end. A log that cannot be cut is fenced, and reports it when it is next used, and so
    /// are all of them if the checkpoints cannot be written. Kafka, which checks less: `LogManager#truncateTo`.
    fn follow_leaders(&self, states: &[(TopicPartition, Arc<PartitionState>)]) {
        let now_ms = self.logs.clock().now_ms();
        let cuts: Vec<(Arc<Partition>, i64)> = states
            .iter()
            .filter_map(|(tp, state)| {
                let partition = self.logs.table().partition(tp).cloned()?;
                let end = partition.follow_leader(state)?;
                Some((partition, end))
            })
            .collect();
        if cuts.is_empty() {
            return;
        }
        let written = match planted!("recovery-point-after-the-cut") {
            true => Ok(()),
            false => self.logs.write_checkpoints(),
        };
        for (partition, end) in &cuts {
            let tp = partition.tp();
            match &written {
                Ok(()) => {
                    if let Err(error) = partition.cut(*end, now_ms) {
                        log::error!("{tp} cannot be cut to the log of its new leader: {error}");
                    }
                }
                Err(error) => partition.fence(&format!(
                    "its recovery point cannot be lowered before it is cut: {error}"
                )),
            }
        }
    }

    /// The states of new partitions of a topic, if some nodes do not run: replicas there are not in sync.
    ///
    /// # Errors
    /// INVALID_REPLICA_ASSIGNMENT: none of the nodes that were chosen by hand runs.
    pub(super) fn place_new(&self, record: &mut TopicRecord, from: i32, nodes: &NodeIds) -> Result<(), BrokerError> {
        if !self.any_stopped.load(Ordering::Acquire) && !self.any_stopping.load(Ordering::Acquire) {
            return Ok(());
        }
        for partition in from..record.partitions {
            let replicas = record.replicas_of(partition, nodes);
            let state = PartitionState::created(replicas, |node| self.is_active(node));
            if state.isr.is_empty() && record.assigned.contains_key(&partition) {
                let text = format!(
                    "All brokers specified in the manual partition assignment for partition {partition} are fenced or in controlled shutdown."
                );
                return Err(BrokerError::kafka(ErrorCode::INVALID_REPLICA_ASSIGNMENT, text));
            }
            if state.is_under_replicated() {
                record.states.insert(partition, Arc::new(state));
            }
        }
        Ok(())
    }

    /// What an election makes of a partition.
    pub(crate) fn elected(&self, state: &PartitionState, how: ElectionType) -> Result<PartitionState, BrokerError> {
        let is_up = |node| self.is_active(node);
        let elected = match how {
            ElectionType::Preferred => state.elect_preferred(is_up),
            ElectionType::Unclean => state.elect_unclean(is_up),
        };
        elected.map_err(|(code, text): NoElection| BrokerError::kafka(code, text))
    }

    /// What a reassignment makes of a partition; all of its replicas are in sync at once. Kafka:
    /// `ReplicationControlManager#alterPartitionReassignment`.
    pub(crate) fn reassigned(
        &self,
        partition: &Partition,
        state: &PartitionState,
        target: &[NodeId],
        may_change_factor: bool,
    ) -> Result<PartitionState, BrokerError> {
        check_assignment(target, self.node_ids(), None)?;
        if !may_change_factor && target.len() != state.replicas.len() {
            let text = format!(
                "The replication factor is changed from {} to {}",
                state.replicas.len(),
                target.len()
            );
            return Err(BrokerError::kafka(ErrorCode::INVALID_REPLICATION_FACTOR, text));
        }
        let min_isr = partition.config().min_insync_replicas;
        let reassigned = state.reassigned(target, min_isr, |node| self.is_active(node));
        reassigned.ok_or_else(|| {
            let tp = partition.tp();
            let text = format!("no node of {target:?} runs, so {tp} cannot be moved there; start one of them first");
            BrokerError::kafka(ErrorCode::INVALID_REPLICA_ASSIGNMENT, text)
        })
    }
}
