//! The fetch path (spec 6). Kafka: `KafkaApis#handleFetchRequest`, `ReplicaManager#fetchMessages`.

mod fetch_manager;
mod purgatory;
mod read;
mod session;
mod session_cache;
#[cfg(test)]
mod tests;

pub(crate) use fetch_manager::FetchManager;
pub(crate) use purgatory::FetchPurgatory;
pub(crate) use read::fetch_bound;

use std::sync::Arc;

use fletchlog_api::{ErrorCode, FetchRequest, FetchResponse, NodeId};
use fletchlog_records::planted;

use crate::partition::Partition;
use crate::replica_manager::{ReplicaManager, ShareWatchKey};
use crate::sync::Answer;
use purgatory::DelayedFetch;
use read::ReadResult;
use session::Reading;
use session_cache::Context;

/// A response now, or the place where it will arrive.
#[derive(Debug)]
pub(crate) enum Fetched {
    /// At once.
    Now(FetchResponse),
    /// When enough data has arrived, or after the time-out.
    Later(Arc<Answer>),
}

/// The parts of a fetch that are the same for all partitions.
#[derive(Debug, Clone)]
pub(crate) struct FetchParams {
    pub(crate) node: NodeId,
    pub(crate) by_topic_ids: bool,
    pub(crate) max_wait_ms: i64,
    pub(crate) min_bytes: i64,
    pub(crate) max_bytes: i64,
    pub(crate) isolation: fletchlog_api::IsolationLevel,
    /// Followers do not answer.
    pub(crate) leader_only: bool,
    /// The rack of a client that may be sent to a follower there; `None`: it is not.
    pub(crate) rack: Option<Arc<str>>,
}

impl ReplicaManager {
    /// A Fetch request to `node`.
    pub(crate) fn fetch(&self, node: NodeId, request: FetchRequest) -> Fetched {
        let now_ms = self.clock().monotonic_ms();
        // 6.1: the broker's own limit caps the request's, and min_bytes is never more than that.
        let max_bytes = request.max_bytes.min(self.config().int("fetch.max.bytes"));
        let params = FetchParams {
            node,
            by_topic_ids: request.topic_ids.by_ids,
            max_wait_ms: i64::from(request.max_wait_ms),
            min_bytes: i64::from(request.min_bytes.min(max_bytes)),
            max_bytes: i64::from(max_bytes),
            isolation: request.isolation_level,
            leader_only: request.topic_ids.leader_only,
            rack: Some(&request.rack_id)
                .filter(|rack| self.selects_replicas && !rack.is_empty())
                .cloned(),
        };
        let new = match self.fetches.new_context(node, &request, now_ms) {
            Ok(new) => new,
            Err(error) => return Fetched::Now(top_level(error)),
        };
        // The request is large, and all of it is in the context.
        drop(request);
        let delayed = DelayedFetch::new(self, params, new, now_ms);
        if delayed.is_satisfied_at_once() {
            return Fetched::Now(delayed.into_response(self));
        }
        Fetched::Later(self.purgatory.watch(self, delayed))
    }

    /// Completes waiting fetches that have timed out; a read-only broker checks all of them, as the writer is another process.
    pub(crate) fn expire_fetches(&self, now_ms: i64) {
        self.purgatory.expire(self, now_ms, self.is_read_only());
    }

    /// See [`FetchPurgatory::answer_if_without_data`].
    pub(crate) fn answer_if_without_data(&self, answer: &Answer) {
        self.purgatory.answer_if_without_data(self, answer);
    }

    /// The response to the result of a reading in this context; the session remembers what was sent.
    fn fetch_response(&self, node: NodeId, context: &Context, reading: Reading, result: ReadResult) -> FetchResponse {
        let now_ms = self.clock().monotonic_ms();
        let Some(made) = self.fetches.response(node, context, reading, result, now_ms) else {
            return top_level(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        };
        if let Some(id) = made.evicted {
            self.purgatory.check_session(self, node, id);
        }
        self.metrics.fetched(&made.response);
        made.response
    }

    /// To be called after every change of a partition that a fetch could see: its bounds, its segments, its end. Sessions read it
    /// again, and waiting fetches are completed if they can be now.
    pub(crate) fn partition_changed(&self, partition: &Partition) {
        self.partitions_changed([partition]);
    }

    /// As `partition_changed`, for several partitions at once: a fetch that this completes has the changes of all of them.
    pub(crate) fn partitions_changed<'a>(&self, partitions: impl IntoIterator<Item = &'a Partition>) {
        let note = |partition: &'a Partition| (partition, self.fetches.changed(partition));
        let noted: Vec<(&Partition, Vec<(NodeId, i32)>)> = partitions.into_iter().map(note).collect();
        for (partition, holders) in noted {
            self.purgatory.check(self, partition, &holders, None);
            self.share_changed(|| ShareWatchKey::Partition(partition.tp().clone()));
        }
    }

    /// To be called after the leader or the replicas of partitions have changed: waiting fetches that this refuses are completed, but at
    /// the new leader, as in Kafka. Kafka: `ReplicaManager#applyLocalFollowersDelta`, `#maybeCompleteDelayedFetch`.
    pub(crate) fn leaders_changed(&self, partitions: &[Arc<Partition>]) {
        for partition in partitions
            .iter()
            .filter(|_| !planted!("fetches-wait-at-the-former-leader"))
        {
            let holders = self.fetches.changed_on_all_nodes(partition);
            self.purgatory
                .check(self, partition, &holders, Some(partition.leader()));
        }
    }
}

/// Errors of the whole request carry session id 0 and no partitions (spec 6.6).
fn top_level(error: ErrorCode) -> FetchResponse {
    FetchResponse {
        error_code: error,
        ..Default::default()
    }
}
