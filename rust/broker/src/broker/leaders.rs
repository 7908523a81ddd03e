//! Events of a cluster: leaders and coordinators move, nodes stop and start (spec 6.8). No call of the broker runs meanwhile, so a client sees an
//! event before or after its request, never within it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};

use fletchlog_api::{CoordinatorType, ErrorCode, NodeId};
use fletchlog_records::TopicPartition;

use super::{Broker, only};
use crate::BrokerError;
use crate::controller::{Change, ElectionType};
use crate::directory::{NO_LEADER, PartitionState};
use crate::partition::Partition;
use crate::replica_manager::ReplicaManager;
use crate::topic_names::{CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE};

/// Partitions, and the result for each.
type Elections = Vec<(TopicPartition, Result<(), BrokerError>)>;

impl Broker {
    /// Makes a node the leader of a partition, as a reassignment that puts the node first and the election of the preferred leader do: the
    /// leader epoch rises, waiting fetches that know the former epoch end with FENCED_LEADER_EPOCH, but at the new leader. A node
    /// without a replica takes the place of the leader among the replicas. For the leader itself nothing changes.
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST for a node that does not exist, NOT_LEADER_OR_FOLLOWER for one that is stopped or not
    /// in sync, `ReadOnly`, `Closed`, storage errors.
    pub fn move_leader(&self, tp: &TopicPartition, to: NodeId) -> Result<(), BrokerError> {
        self.move_leader_slowly(tp, to, 0)
    }

    /// As [`Broker::move_leader`], with followers that ask the new leader for records only after a time of the broker's clock, as Kafka's do
    /// after an error (replica.fetch.backoff.ms): until then the high watermark stands still, acks=all waits, and the new leader does not know where
    /// the log ends for clients.
    ///
    /// # Errors
    /// As [`Broker::move_leader`].
    pub fn move_leader_slowly(
        &self,
        tp: &TopicPartition,
        to: NodeId,
        replicated_after_ms: i64,
    ) -> Result<(), BrokerError> {
        let _alone = self.alone()?;
        let partition = self.replicas.partition(tp)?;
        if replicated_after_ms <= 0 || partition.leader() == to {
            return self.move_partition(&partition, to, 0);
        }
        let now_ms = self.replicas.clock().monotonic_ms();
        partition.hold_until(now_ms.saturating_add(replicated_after_ms));
        let moved = self.move_partition(&partition, to, 0);
        match moved {
            Ok(()) => {
                partition.note_lost_high_watermark();
                self.replicas.note_slow(&partition);
            }
            Err(_) => partition.hold_until(i64::MIN),
        }
        moved
    }

    /// Makes a node the coordinator of a group, or of a transactional id, and of all others of its partition of the internal topic, which
    /// is created if it does not exist. What waits at the former coordinator ends with NOT_COORDINATOR; the new one answers
    /// COORDINATOR_LOAD_IN_PROGRESS for `loading_ms`, and then knows what was last written.
    ///
    /// # Errors
    /// As [`Broker::move_leader`].
    pub fn move_coordinator(
        &self,
        of: CoordinatorType,
        id: &str,
        to: NodeId,
        loading_ms: i64,
    ) -> Result<(), BrokerError> {
        let _alone = self.alone()?;
        let controller = self.replicas.controller();
        let (topic, number) = match of {
            CoordinatorType::Transaction => (controller.transaction_topic()?, self.transactions.partition_for(id)),
            _ => (controller.offsets_topic()?, self.groups.partition_for(id)),
        };
        let partition = topic.partition(number);
        let partition = partition.ok_or_else(|| BrokerError::unknown_topic(&topic.name))?;
        self.move_partition(partition, to, loading_ms)
    }

    fn move_partition(&self, partition: &Arc<Partition>, to: NodeId, loading_ms: i64) -> Result<(), BrokerError> {
        let controller = self.replicas.controller();
        controller.check_node_id(to)?;
        let refuse = |why: &str| {
            let text = format!("node {to} cannot lead {}: {why}", partition.tp());
            BrokerError::kafka(ErrorCode::NOT_LEADER_OR_FOLLOWER, text)
        };
        if !controller.runs(to) || !controller.is_active(to) {
            return Err(refuse("it is stopped; start it first"));
        }
        let mut change = |_: usize, partition: &Partition, state: &PartitionState| {
            if state.leader == to {
                return Ok(None);
            }
            if !state.replicas.contains(&to) {
                let leader = match state.leader {
                    NO_LEADER => state.replicas.first().copied(),
                    leader => Some(leader),
                };
                let others = state.replicas.iter().copied().filter(|node| Some(*node) != leader);
                let target: Vec<NodeId> = std::iter::once(to).chain(others).collect();
                return controller.reassigned(partition, state, &target, true).map(Some);
            }
            match state.isr.contains(&to) {
                true => Ok(Some(state.moved_to(to))),
                false => Err(refuse(
                    "its replica is not in sync; an unclean election could choose it",
                )),
            }
        };
        only(self.change_leaders(std::slice::from_ref(partition), loading_ms, &mut change)).map(drop)
    }

    /// Gives partitions other replicas, in one step: all replicas share one copy of the bytes. A target that is `None` would cancel a
    /// reassignment, and none is ever in progress. `may_change_factor`: the number of replicas may change. Returns the result of each.
    ///
    /// # Errors
    /// `Closed`. Per partition: UNKNOWN_TOPIC_OR_PARTITION, NO_REASSIGNMENT_IN_PROGRESS, INVALID_REPLICA_ASSIGNMENT,
    /// INVALID_REPLICATION_FACTOR, `ReadOnly`, storage errors.
    pub fn reassign_partitions(
        &self,
        wanted: &[(TopicPartition, Option<Vec<NodeId>>)],
        may_change_factor: bool,
    ) -> Result<Vec<Result<(), BrokerError>>, BrokerError> {
        let _alone = self.alone()?;
        let mut results = Vec::with_capacity(wanted.len());
        let (mut partitions, mut targets) = (Vec::new(), Vec::new());
        for (place, (tp, target)) in wanted.iter().enumerate() {
            let checked = self.reassigned_partition(tp).and_then(|partition| match target {
                Some(target) => Ok((partition, target)),
                None => {
                    let text = "No partition reassignment is in progress.";
                    Err(BrokerError::kafka(ErrorCode::NO_REASSIGNMENT_IN_PROGRESS, text))
                }
            });
            results.push(checked.map(|(partition, target)| {
                partitions.push(partition);
                targets.push((place, target));
            }));
        }
        let controller = self.replicas.controller();
        let mut change = |place: usize, partition: &Partition, state: &PartitionState| {
            let (_, target) = targets[place];
            let reassigned = controller.reassigned(partition, state, target, may_change_factor);
            reassigned.map(Some)
        };
        let changed = self.change_leaders(&partitions, 0, &mut change);
        for ((place, _), changed) in targets.iter().zip(changed) {
            results[*place] = changed.map(drop);
        }
        Ok(results)
    }

    /// Kafka: `ReplicationControlManager#alterPartitionReassignment`, its texts.
    fn reassigned_partition(&self, tp: &TopicPartition) -> Result<Arc<Partition>, BrokerError> {
        let topic = self.replicas.topic(&tp.topic).ok();
        let text = match &topic {
            Some(_) => format!("Unable to find partition {}:{}.", tp.topic, tp.partition),
            None => format!("Unable to find a topic named {}.", tp.topic),
        };
        let partition = topic.and_then(|topic| topic.partition(tp.partition).cloned());
        partition.ok_or_else(|| BrokerError::kafka(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, text))
    }

    /// Elects leaders. `None`: of all partitions, and the result has those only that have another leader then. Kafka:
    /// `ReplicationControlManager#electLeaders`.
    ///
    /// # Errors
    /// `Closed`. Per partition: UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE,
    /// ELIGIBLE_LEADERS_NOT_AVAILABLE, `ReadOnly`, storage errors.
    pub fn elect_leaders(
        &self,
        how: ElectionType,
        wanted: Option<&[TopicPartition]>,
    ) -> Result<Elections, BrokerError> {
        let _alone = self.alone()?;
        let controller = self.replicas.controller();
        let mut change = |_: usize, _: &Partition, state: &PartitionState| controller.elected(state, how).map(Some);
        let Some(wanted) = wanted else {
            let all = self.all_partitions();
            let results = self.change_leaders(&all, 0, &mut change);
            let elected = all.iter().zip(results).filter(|(_, changed)| !is_not_needed(changed));
            return Ok(elected
                .map(|(p, changed)| (p.tp().clone(), changed.map(drop)))
                .collect());
        };
        let found: Vec<Result<Arc<Partition>, BrokerError>> =
            wanted.iter().map(|tp| self.elected_partition(tp)).collect();
        let known: Vec<Arc<Partition>> = found.iter().flatten().cloned().collect();
        let mut changed = self.change_leaders(&known, 0, &mut change).into_iter();
        let result = |found: Result<_, BrokerError>| found.and_then(|_| changed.next().unwrap_or(Ok(false)).map(drop));
        Ok(wanted.iter().cloned().zip(found.into_iter().map(result)).collect())
    }

    /// Kafka: `ReplicationControlManager#electLeader`, its texts.
    fn elected_partition(&self, tp: &TopicPartition) -> Result<Arc<Partition>, BrokerError> {
        let topic = self.replicas.topic(&tp.topic).ok();
        let text = match &topic {
            Some(_) => format!("No such partition as {tp}"),
            None => format!("No such topic as {}", tp.topic),
        };
        let partition = topic.and_then(|topic| topic.partition(tp.partition).cloned());
        partition.ok_or_else(|| BrokerError::kafka(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, text))
    }

    /// Stops a node, as a controlled shutdown does: its replicas leave the sets in sync, and other nodes lead and coordinate in its place.
    /// A partition without another replica in sync has no leader. Requests to the node are not answered, and a listener closes its
    /// connections ([`Broker::node_changes`]). For a stopped node nothing changes.
    ///
    /// # Errors
    /// INVALID_REQUEST for a node that does not exist, `ReadOnly`, `Closed`, storage errors, after which the node runs.
    pub fn stop_node(&self, node: NodeId) -> Result<(), BrokerError> {
        self.end_node(node, false)
    }

    /// As [`Broker::stop_node`], in two steps as in Kafka: at once its replicas leave the sets in sync, and other nodes lead and coordinate. It
    /// goes on answering, and metadata list it, until a time of the broker's clock has passed. For a node that is being stopped, it has.
    ///
    /// # Errors
    /// As [`Broker::stop_node`].
    pub fn shut_down_node(&self, node: NodeId, closes_after_ms: i64) -> Result<(), BrokerError> {
        let controller = self.replicas.controller();
        if closes_after_ms <= 0 {
            return self.stop_node(node);
        }
        let alone = self.alone()?;
        self.replicas.for_writing("stop and start nodes")?;
        let now_ms = self.replicas.clock().monotonic_ms();
        if !controller.set_stopping(node, now_ms.saturating_add(closes_after_ms))? {
            drop(alone);
            return self.stop_node(node);
        }
        let all = self.all_partitions();
        all.iter().for_each(|partition| partition.note_end(node));
        let left = self.leave_isr(node);
        if left.is_err() {
            controller.set_detected(node);
            all.iter().for_each(|partition| partition.forget_end(node));
        }
        left
    }

    /// Takes a node out of the sets in sync.
    fn leave_isr(&self, node: NodeId) -> Result<(), BrokerError> {
        self.change_nodes(&mut |_: usize, partition: &Partition, state: &PartitionState| {
            Ok(state.without(node, partition.config().min_insync_replicas))
        })
    }

    /// Called before a node ends: if it is the active controller, the election of the next one then takes so long, by the broker's clock.
    /// DescribeQuorum waits for it.
    pub fn set_election_ms(&self, node: NodeId, election_ms: i64) {
        self.replicas.controller().set_election_ms(node, election_ms);
    }

    /// Elects the next active controller, if it is time.
    pub(super) fn elect_controller(&self) {
        self.replicas.controller().elect_controller(self.replicas.changes());
    }

    /// As [`Broker::stop_node`], after a crash of the node that the cluster has detected: when it starts, it may have lost records, so it is
    /// not eligible to lead partitions without leader (KIP-966).
    ///
    /// # Errors
    /// As [`Broker::stop_node`].
    pub fn kill_node(&self, node: NodeId) -> Result<(), BrokerError> {
        self.end_node(node, true)
    }

    /// As [`Broker::kill_node`], after a crash that the cluster detects only after a time (Kafka: broker.session.timeout.ms): until then
    /// metadata name the node as before, and what it led and coordinated has nobody. The high watermark of partitions with a replica in sync
    /// on the node stands still, so acks=all and writes of coordinators wait there. The time is that of the broker's clock. For a node that has
    /// crashed, it is detected now.
    ///
    /// # Errors
    /// As [`Broker::stop_node`].
    pub fn crash_node(&self, node: NodeId, detected_after_ms: i64) -> Result<(), BrokerError> {
        let controller = self.replicas.controller();
        if detected_after_ms <= 0 || !controller.runs(node) {
            return self.kill_node(node);
        }
        let _alone = self.alone()?;
        self.replicas.for_writing("stop and start nodes")?;
        let now_ms = self.replicas.clock().monotonic_ms();
        controller.set_undetected(node, now_ms.saturating_add(detected_after_ms))?;
        let all = self.all_partitions();
        all.iter().for_each(|partition| partition.note_end(node));
        self.nodes_changed(&all);
        Ok(())
    }

    /// Fences the nodes whose end the cluster has noticed by now, and ends those whose shutdown is over. Kafka:
    /// `ReplicationControlManager#maybeFenceReplicas`.
    pub(super) fn detect_ended_nodes(&self) {
        let now_ms = self.replicas.clock().monotonic_ms();
        for (at_ms, node, is_killed) in self.replicas.controller().ending() {
            if at_ms > now_ms {
                break;
            }
            if let Err(error) = self.end_node(node, is_killed) {
                log::error!("node {node} has ended and cannot be fenced: {error}");
            }
        }
    }

    fn end_node(&self, node: NodeId, is_killed: bool) -> Result<(), BrokerError> {
        let _alone = self.alone()?;
        self.replicas.for_writing("stop and start nodes")?;
        let controller = self.replicas.controller();
        if !controller.set_stopped(node, is_killed)? {
            return Ok(());
        }
        self.all_partitions()
            .iter()
            .for_each(|partition| partition.note_end(node));
        let changed = self.leave_isr(node);
        if changed.is_err() {
            controller.set_started(node)?;
            let all = self.all_partitions();
            all.iter().for_each(|partition| partition.forget_end(node));
        }
        changed
    }

    /// Starts a stopped node: its replicas are in sync at once. Leaders do not come back by themselves, but a partition without leader has
    /// one again if the node's replica may lead without loss, or with it where `unclean.leader.election.enable` is true.
    ///
    /// # Errors
    /// As [`Broker::stop_node`], after which the node is stopped.
    pub fn start_node(&self, node: NodeId) -> Result<(), BrokerError> {
        // Kafka registers a broker again only after its session has ended.
        let ending = self.replicas.controller().ending();
        if let Some((_, _, is_killed)) = ending.into_iter().find(|(_, ending, _)| *ending == node) {
            self.end_node(node, is_killed)?;
        }
        let _alone = self.alone()?;
        self.replicas.for_writing("stop and start nodes")?;
        let controller = self.replicas.controller();
        let Some(was_killed) = controller.set_started(node)? else {
            return Ok(());
        };
        let is_up = |node| controller.is_active(node);
        let mut change = |_: usize, partition: &Partition, state: &PartitionState| {
            let config = partition.config();
            let min_isr = config.min_insync_replicas;
            let mut next = state
                .with(node, min_isr, was_killed, is_up)
                .unwrap_or_else(|| state.clone());
            if next.leader == NO_LEADER && config.unclean_leader_election && next.replicas.contains(&node) {
                next = next.elect_unclean(is_up).unwrap_or(next);
            }
            if next.leader != NO_LEADER {
                for follower in state.replicas.iter().copied().filter(|node| is_up(*node)) {
                    next = next.with(follower, min_isr, false, is_up).unwrap_or(next);
                }
            }
            Ok(Some(next))
        };
        let without: Vec<Arc<Partition>> = self.all_partitions();
        let without = without.into_iter().filter(|partition| partition.leader() == NO_LEADER);
        let without: Vec<Arc<Partition>> = without.collect();
        let changed = self.change_nodes(&mut change);
        if changed.is_err() {
            controller.set_stopped(node, was_killed)?;
        } else if was_killed {
            let led = without.iter().filter(|partition| partition.leader() != NO_LEADER);
            led.for_each(|partition| partition.note_lost_high_watermark());
        }
        changed
    }

    /// Changes the states of all partitions after a node has stopped or started.
    fn change_nodes(&self, change: Change<'_>) -> Result<(), BrokerError> {
        let results = self.change_leaders(&self.all_partitions(), 0, change);
        results.into_iter().try_for_each(|changed| changed.map(drop))?;
        self.nodes_changed(&self.all_partitions());
        Ok(())
    }

    /// Lets everything follow that depends on which nodes run: high watermarks, the quorum's leader, listeners.
    fn nodes_changed(&self, all: &[Arc<Partition>]) {
        if !self.update_high_watermarks(all) {
            // A marker may also have waited for its leader.
            self.transactions.complete_prepared();
        }
        self.elect_controller();
        self.node_changes.fetch_add(1, Ordering::SeqCst);
        self.replicas.changes().notify();
    }

    /// Lets high watermarks stand still or move on, and coordinators do what waits for their records; true: one has changed.
    pub(super) fn update_high_watermarks(&self, partitions: &[Arc<Partition>]) -> bool {
        let is_changed = self.replicas.update_high_watermarks(partitions);
        if is_changed {
            self.groups.records_are_replicated();
            self.transactions.complete_prepared();
        }
        is_changed
    }

    pub(super) fn all_partitions(&self) -> Vec<Arc<Partition>> {
        all_partitions(&self.replicas)
    }

    /// Called when a listener starts. As when a real broker starts, all partitions that were in the directory before have a new leader epoch, two
    /// higher: they had no leader meanwhile. For another listener nothing changes, nor with a read-only broker. A partition whose epochs cannot be
    /// read or written keeps its epoch. A closed broker stays as it is.
    pub fn begin_to_listen(&self) {
        let Ok(_alone) = self.alone() else { return };
        let inherited = std::mem::take(&mut *self.inherited.lock().unwrap_or_else(PoisonError::into_inner));
        if self.is_read_only() {
            return;
        }
        for partition in inherited.iter().filter_map(Weak::upgrade) {
            if let Err(error) = partition.lead_anew(self.logs.directory()) {
                log::error!("the leader epoch of {} is not raised: {error}", partition.tp());
            }
        }
    }

    /// Number of times that nodes have stopped or started. A listener that is woken ([`Broker::watch`]) compares it.
    pub fn node_changes(&self) -> u64 {
        self.node_changes.load(Ordering::SeqCst)
    }

    /// Whether a node runs; false for a number that no node has.
    pub fn is_node_up(&self, node: NodeId) -> bool {
        let controller = self.replicas.controller();
        controller.runs(node) && controller.check_node_id(node).is_ok()
    }

    /// Whether the cluster knows that a node does not run. A node that has just crashed is not fenced yet ([`Broker::crash_node`]).
    pub fn is_node_fenced(&self, node: NodeId) -> bool {
        !self.replicas.controller().is_up(node)
    }

    /// Changes states of partitions, and lets everyone who waits see it. New coordinators load for `loading_ms`. Returns whether each has
    /// changed.
    fn change_leaders(
        &self,
        partitions: &[Arc<Partition>],
        loading_ms: i64,
        change: Change<'_>,
    ) -> Vec<Result<bool, BrokerError>> {
        let leaders: Vec<NodeId> = partitions.iter().map(|partition| partition.leader()).collect();
        let results = self.replicas.controller().change_states(partitions, change);
        let changed: Vec<Arc<Partition>> = partitions
            .iter()
            .zip(&results)
            .filter(|(_, changed)| matches!(changed, Ok(true)))
            .map(|(partition, _)| Arc::clone(partition))
            .collect();
        let cut: Vec<Arc<Partition>> = partitions.iter().filter(|p| p.take_cut()).cloned().collect();
        self.replicas.leaders_changed(&changed);
        // Before high watermarks move: a decision that was cut off is not carried out.
        self.transactions.load_cut(&cut);
        self.update_high_watermarks(&changed);
        let moved = partitions.iter().zip(leaders);
        let moved = moved.filter(|(partition, before)| partition.leader() != *before);
        for (partition, _) in moved {
            match partition.leader() {
                NO_LEADER => log::info!("{} has no leader now", partition.tp()),
                leader => log::info!("{} is led by node {leader} now", partition.tp()),
            }
            partition.note_new_leader();
            match &*partition.tp().topic {
                CONSUMER_OFFSETS => self.groups.on_election(partition, loading_ms),
                SHARE_GROUP_STATE => self.share_coordinator.on_election(partition.tp().partition, loading_ms),
                TRANSACTION_STATE => self.transactions.on_election(partition.tp().partition, loading_ms),
                _ => {}
            }
        }
        if !cut.is_empty() {
            self.groups.load_cut(&cut);
            self.share_coordinator.load_cut(&cut);
            self.transactions.complete_prepared();
        }
        self.replicas.changes().notify();
        results
    }
}

fn is_not_needed(changed: &Result<bool, BrokerError>) -> bool {
    matches!(changed, Err(error) if error.code() == ErrorCode::ELECTION_NOT_NEEDED)
}

/// The partitions of all topics.
pub(super) fn all_partitions(replicas: &ReplicaManager) -> Vec<Arc<Partition>> {
    let table = replicas.topic_table();
    let topics = table.iter();
    topics.flat_map(|topic| topic.partitions.iter().cloned()).collect()
}
