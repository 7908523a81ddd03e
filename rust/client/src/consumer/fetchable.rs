//! Which partitions may be fetched from which node, and their order in a request (spec 7.3, 7.8).
//! Kafka: `AbstractFetch#fetchablePartitions`.

use fletchlog_api::{NO_TOPIC_ID, NodeId, java_hash};
use fletchlog_protocol::messages::fetch_request::FetchPartition;
use fletchlog_records::TopicPartition;
use rustc_hash::FxHashSet;

use super::decision_table::RequestOrder;
use super::fetch_buffer::FetchBuffer;
use super::fetch_session_handler::Wanted;
use super::metadata::{ConsumerMetadata, Leader};
use super::settings::{FetchOrder, Settings};
use super::subscription_state::{PartitionState, SubscriptionState};
use super::timestamp_collector::is_at_end;

/// Snapshot of everything that decides what is requested.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    pub(super) subs: &'a SubscriptionState,
    pub(super) buffer: &'a FetchBuffer,
    /// Partitions of `subs` that may be fetched, buffered ones included.
    pub(super) num_fetchable: usize,
    pub(super) metadata: &'a ConsumerMetadata,
    pub(super) settings: &'a Settings,
    /// The metadata has a leader of every assigned partition.
    pub(super) all_led: bool,
    /// The broker is in this process: requests to it have topic names.
    pub(super) in_process: bool,
}

impl<'a> View<'a> {
    /// Why an assigned partition is in no request; `None` if it may be in one.
    pub fn why_not(&self, tp: &TopicPartition, state: &PartitionState) -> Option<&'static str> {
        match state.position() {
            None => Some("no position yet"),
            Some(_) if state.is_paused() => Some("paused"),
            Some(_) if state.backs_off() => Some("its fetches are refused: again after retry.backoff.ms"),
            Some(_) if self.buffer.is_buffered(tp) => Some("the last fetch is still buffered"),
            Some(_) => None,
        }
    }

    /// The leader in a partition's position, which stays there while the metadata lacks the topic.
    /// Kafka: `FetchPosition.currentLeader`.
    pub fn leader(&self, tp: &TopicPartition) -> Option<Leader> {
        self.subs.state(tp)?.leader()
    }

    /// The node that a partition is read from: its leader, or a follower that the leader has named.
    pub fn read_node(&self, tp: &TopicPartition) -> Option<NodeId> {
        self.subs.state(tp)?.read_node()
    }

    /// Partitions that a fetch from `node` requests although the metadata does not have their topic, so that its id is
    /// unknown.
    pub fn without_topic_id(&self, node: NodeId) -> FxHashSet<TopicPartition> {
        if self.all_led || !self.settings.row.topic_ids {
            return FxHashSet::default();
        }
        let unknown = self
            .subs
            .iter()
            .map(|(tp, _)| tp)
            .filter(|tp| !self.metadata.knows(&tp.topic));
        unknown.filter(|tp| self.wanted(tp, node).is_some()).cloned().collect()
    }

    /// What a fetch from `node` requests of this partition; `None` if nothing.
    pub fn wanted(&self, tp: &TopicPartition, node: NodeId) -> Option<Wanted> {
        let state = self.subs.state(tp)?;
        if self.why_not(tp, state).is_some() {
            return None;
        }
        let leader = state.leader().filter(|_| state.read_node() == Some(node))?;
        let topic_id = match self.settings.row.topic_ids && !self.in_process {
            true => self.metadata.topic_id(&tp.topic),
            false => NO_TOPIC_ID,
        };
        let partition = FetchPartition {
            partition: tp.partition,
            fetch_offset: state.position()?,
            current_leader_epoch: leader.epoch,
            partition_max_bytes: self.settings.max_partition_fetch_bytes,
            ..Default::default()
        };
        Some(Wanted { topic_id, partition })
    }

    /// Every partition that may be in a request, in request order.
    pub fn in_request_order(&self) -> Vec<&'a TopicPartition> {
        let may = |(tp, state): &(&TopicPartition, &PartitionState)| self.why_not(tp, state).is_none();
        let list: Vec<&TopicPartition> = self.subs.iter().filter(may).map(|(tp, _)| tp).collect();
        if self.settings.row.request_order == RequestOrder::List {
            return list;
        }
        let hashes: Vec<i32> = list.iter().map(|tp| java_hash::topic_partition_hash(tp)).collect();
        let walk = java_hash::walk_order(&hashes, java_hash::hash_set_capacity(list.len()));
        walk.into_iter().map(|i| list[i]).collect()
    }

    /// Sorts the partitions that may be in a request into request order, if possible without a pass over all others.
    pub fn sorted<'b>(&self, mut partitions: Vec<&'b TopicPartition>) -> Vec<&'b TopicPartition> {
        if partitions.len() < 2 {
            return partitions;
        }
        match self.settings.row.request_order {
            RequestOrder::List => partitions.sort_by_cached_key(|tp| self.subs.place(tp)),
            RequestOrder::HashSet => {
                let buffered = self
                    .buffer
                    .buffered_partitions()
                    .filter(|tp| self.subs.is_fetchable(tp))
                    .count();
                let capacity = java_hash::hash_set_capacity(self.num_fetchable.saturating_sub(buffered));
                if capacity < java_hash::MIN_TREEIFY_CAPACITY {
                    // The other partitions matter too: a full bin makes the table grow.
                    let all = self.in_request_order();
                    partitions.sort_by_cached_key(|tp| all.iter().position(|other| other == tp));
                } else {
                    let bucket = |tp| java_hash::bucket(java_hash::topic_partition_hash(tp), capacity);
                    partitions.sort_by_cached_key(|tp| (bucket(tp), self.subs.place(tp)));
                }
            }
        }
        partitions
    }

    /// These nodes, ordered by the first partition wanted from each. In list order the search ends at the last of these
    /// nodes; with a hash set it visits every partition.
    pub fn nodes_in_request_order(&self, mut nodes: FxHashSet<NodeId>) -> Vec<NodeId> {
        let mut order = Vec::with_capacity(nodes.len());
        let mut look = |tp: &TopicPartition| {
            if let Some(node) = self.read_node(tp)
                && nodes.remove(&node)
            {
                order.push(node);
            }
            nodes.is_empty()
        };
        match self.settings.row.request_order {
            RequestOrder::List => {
                let may = |(tp, state): &(&TopicPartition, &PartitionState)| self.why_not(tp, state).is_none();
                let _ = self.subs.iter().filter(may).any(|(tp, _)| look(tp));
            }
            RequestOrder::HashSet => {
                let _ = self.in_request_order().into_iter().any(look);
            }
        }
        order
    }

    /// Nodes that get no request because a buffered, still fetchable partition is read from them (column "buffered-node
    /// rule" of spec 7.8).
    pub fn blocked_nodes(&self) -> FxHashSet<NodeId> {
        if !self.settings.row.buffered_node || self.settings.fetch_order == FetchOrder::Timestamp {
            return FxHashSet::default(); // By timestamp, buffered records may wait for others that the same node has yet to send.
        }
        self.nodes_with_buffered()
    }

    /// In timestamp order, nodes whose records are not urgent: they lead buffered partitions, and no buffered record is
    /// held back. Such a node gets no request if all partitions in it would be at their end: the broker would delay the
    /// response for fetch.max.wait.ms, and with it the next fetch of the buffered partitions.
    pub fn nodes_that_may_wait(&self) -> FxHashSet<NodeId> {
        if self.settings.fetch_order != FetchOrder::Timestamp || self.buffer.by_time.held_until().is_some() {
            return FxHashSet::default();
        }
        self.nodes_with_buffered()
    }

    /// Whether the node may have records that a merge by timestamp waits for.
    pub fn awaits_records_of(&self, node: NodeId) -> bool {
        let mut all = self.subs.iter();
        all.any(|(tp, state)| !is_at_end(state, self.settings) && self.wanted(tp, node).is_some())
    }

    /// Nodes from which buffered, still fetchable partitions are read.
    fn nodes_with_buffered(&self) -> FxHashSet<NodeId> {
        let fetchable = self
            .buffer
            .buffered_partitions()
            .filter(|tp| self.subs.is_fetchable(tp));
        fetchable.filter_map(|tp| self.read_node(tp)).collect()
    }
}
