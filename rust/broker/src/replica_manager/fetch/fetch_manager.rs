//! Fetch sessions of all nodes (spec 6.6). Kafka: `FetchManager`; here one object for all nodes.

use fletchlog_api::{ErrorCode, FetchRequest, NodeId};

use super::read::{Position, ReadResult};
use super::session::FetchSession;
use super::session::Reading;
use super::session_cache::{BuiltResponse, Context, FetchSessionCache, NewContext, full_context};
use crate::node_ids::NodeIds;
use crate::partition::Partition;
use crate::sync::{Mutex, MutexGuard, Rank};

/// How many partitions of a new session are registered per lock of the cache.
const HELD_AT_ONCE: usize = 1000;

/// The fetch sessions. Each node has a cache of its own.
#[derive(Debug)]
pub(crate) struct FetchManager {
    nodes: NodeIds,
    /// In the order of the nodes.
    caches: Vec<Mutex<FetchSessionCache>>,
}

impl FetchManager {
    /// The number of sessions on all nodes.
    pub(crate) fn sessions(&self) -> usize {
        self.caches.iter().map(|cache| cache.lock().len()).sum()
    }

    /// Empty caches. `reports_changes`: the caller calls [`Self::changed`] after every change of a partition.
    pub(crate) fn new(nodes: NodeIds, slots: usize, reports_changes: bool) -> Self {
        let cache = |_: &NodeId| Mutex::new(Rank::FetchSessions, FetchSessionCache::new(slots, reports_changes));
        Self {
            caches: nodes.as_slice().iter().map(cache).collect(),
            nodes,
        }
    }

    fn cache(&self, node: NodeId) -> Option<MutexGuard<'_, FetchSessionCache>> {
        self.caches.get(self.nodes.index_of(node)?).map(Mutex::lock)
    }

    /// What a fetch reads, and how its response is made. Kafka: `FetchManager#newContext`.
    ///
    /// # Errors
    /// The error of the whole request: no such node, session or epoch.
    pub(super) fn new_context(
        &self,
        node: NodeId,
        request: &FetchRequest,
        now_ms: i64,
    ) -> Result<NewContext, ErrorCode> {
        // Appends need the lock: work that grows with the number of partitions is done before it is taken.
        let full = full_context(request);
        let mut cache = self.cache(node).ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)?;
        match full {
            None => cache.next_context(request, now_ms),
            Some(full) => {
                cache.remove(request.session_id);
                Ok(full)
            }
        }
    }

    /// See [`FetchSessionCache::changed`]; the sessions are those of all nodes with a replica.
    pub(super) fn changed(&self, partition: &Partition) -> Vec<(NodeId, i32)> {
        if partition.has_one_replica() {
            return self.changed_on(partition.leader(), partition).collect();
        }
        let nodes = partition.replicas().into_iter();
        nodes.flat_map(|node| self.changed_on(node, partition)).collect()
    }

    /// As [`Self::changed`], also for nodes that have had a replica.
    pub(super) fn changed_on_all_nodes(&self, partition: &Partition) -> Vec<(NodeId, i32)> {
        let of_node = |node: &NodeId| self.changed_on(*node, partition);
        self.nodes.as_slice().iter().flat_map(of_node).collect()
    }

    fn changed_on(&self, node: NodeId, partition: &Partition) -> impl Iterator<Item = (NodeId, i32)> {
        let holders: Vec<i32> = match self.cache(node) {
            Some(mut cache) => {
                let names = partition.fetched_as().into_iter();
                names.flat_map(|tp| cache.changed(tp)).collect()
            }
            None => Vec::new(),
        };
        holders.into_iter().map(move |id| (node, id))
    }

    /// What a session's fetch has to read now; nothing if the session is gone.
    pub(super) fn reading(&self, (node, session): (NodeId, i32)) -> Reading {
        self.cache(node).map(|cache| cache.reading(session)).unwrap_or_default()
    }

    /// Remembers where the partitions were read.
    pub(super) fn read_at(&self, (node, session): (NodeId, i32), positions: &[Position]) {
        if let Some(mut cache) = self.cache(node) {
            cache.read_at(session, positions);
        }
    }

    /// See [`FetchSessionCache::positions`].
    pub(super) fn positions(&self, (node, session): (NodeId, i32)) -> Option<Vec<Position>> {
        self.cache(node)?.positions(session)
    }

    /// Makes the response from the result of a reading; `None`: no such node.
    pub(super) fn response(
        &self,
        node: NodeId,
        context: &Context,
        reading: Reading,
        result: ReadResult,
        now_ms: i64,
    ) -> Option<BuiltResponse> {
        let as_of = reading.as_of;
        let Context::Full { by_topic_ids } = *context else {
            // A large reading is not kept while the response is made.
            drop(reading);
            return Some(self.cache(node)?.response(context, as_of, result, None, now_ms));
        };
        let session = FetchSession::new(&reading.partitions, by_topic_ids, &result, now_ms);
        let made = self
            .cache(node)?
            .response(context, as_of, result, Some(session), now_ms);
        // Changes before this need no report: the session's first fetch reads every partition.
        for some in reading.partitions.chunks(HELD_AT_ONCE) {
            if !self.cache(node)?.hold(made.response.session_id, some) {
                break;
            }
        }
        Some(made)
    }

    /// Replaces the cache of a node.
    #[cfg(test)]
    pub(super) fn set_cache(&self, node: NodeId, cache: FetchSessionCache) {
        *self.cache(node).unwrap() = cache;
    }
}
