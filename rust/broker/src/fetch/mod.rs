//! The fetch path (spec 6). Kafka: `KafkaApis#handleFetchRequest`, `ReplicaManager#fetchMessages`.

mod purgatory;
mod read;
mod session;

pub(crate) use purgatory::FetchPurgatory;
pub(crate) use read::check_leader_epoch;
pub(crate) use session::FetchSessionCache;

use std::sync::Arc;

use fletchlog_api::{ErrorCode, FetchPartitionResponse, FetchRequest, FetchResponse, NodeId};

use crate::Broker;
use crate::sync::{Answer, lock};
use purgatory::DelayedFetch;
use session::{Context, NewContext};

/// An answer now, or the place where it will be.
#[derive(Debug)]
pub(crate) enum Fetched {
    /// At once.
    Now(FetchResponse),
    /// When enough has arrived or the time is over.
    Later(Arc<Answer>),
}

/// The parts of a fetch that are the same for all partitions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FetchParams {
    pub(crate) node: NodeId,
    pub(crate) max_wait_ms: i64,
    pub(crate) min_bytes: i64,
    pub(crate) max_bytes: usize,
    pub(crate) isolation: fletchlog_api::IsolationLevel,
}

impl Broker {
    /// A Fetch request to `node`.
    pub(crate) fn fetch(&self, node: NodeId, request: FetchRequest) -> Fetched {
        let now_ms = self.clock.monotonic_ms();
        // 6.1: the broker's own limit caps the request's, and min_bytes is never more than that.
        let max_bytes = request.max_bytes.min(self.config.int("fetch.max.bytes")).max(0);
        let params = FetchParams {
            node,
            max_wait_ms: i64::from(request.max_wait_ms),
            min_bytes: i64::from(request.min_bytes.min(max_bytes)),
            max_bytes: usize::try_from(max_bytes).unwrap_or(0),
            isolation: request.isolation_level,
        };
        let Some(sessions) = self.sessions_of(node) else {
            return Fetched::Now(top_level(ErrorCode::NOT_LEADER_OR_FOLLOWER));
        };
        let NewContext { context, partitions } = match lock(sessions).new_context(
            request.session_id,
            request.session_epoch,
            request.partitions,
            &request.forgotten,
            now_ms,
        ) {
            Ok(new) => new,
            Err(error) => return Fetched::Now(top_level(error)),
        };
        let delayed = DelayedFetch::new(self, params, context, partitions, now_ms);
        if delayed.is_satisfied_at_once() {
            return Fetched::Now(delayed.into_response(self));
        }
        Fetched::Later(self.purgatory.watch(self, delayed))
    }

    /// Fetch sessions live per node.
    fn sessions_of(&self, node: NodeId) -> Option<&std::sync::Mutex<FetchSessionCache>> {
        self.sessions.get(usize::try_from(node.checked_sub(1)?).ok()?)
    }

    /// The response to `results` in this context; the session remembers what it was told.
    pub(crate) fn fetch_response(
        &self,
        node: NodeId,
        context: &Context,
        results: Vec<FetchPartitionResponse>,
    ) -> FetchResponse {
        match self.sessions_of(node) {
            Some(sessions) => lock(sessions).response(context, results, self.clock.monotonic_ms()),
            None => top_level(ErrorCode::NOT_LEADER_OR_FOLLOWER),
        }
    }
}

/// Errors of the whole request carry session id 0 and no partitions (spec 6.6).
fn top_level(error: ErrorCode) -> FetchResponse {
    FetchResponse {
        error,
        session_id: 0,
        partitions: Vec::new(),
    }
}
