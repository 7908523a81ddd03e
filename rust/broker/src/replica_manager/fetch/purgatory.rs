//! Fetches that wait for data (spec 6.5). Kafka: `DelayedFetch`, `DelayedOperationPurgatory`.
//!
//! A waiting fetch is completed by the thread whose append satisfies it, with what the log holds at that moment, so the response does
//! not depend on when the client checks. Its time-out is noticed by the next caller that checks: the waiting client, or an append to
//! one of its partitions.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fletchlog_api::{ErrorCode, FetchResponse, NodeId, Response};
use fletchlog_records::TopicPartition;
use rustc_hash::{FxHashMap, FxHashSet};

use super::read::{PartitionResponse, Position, Progress, ReadResult, is_unknown_error, progress, read_partitions};
use super::session::Reading;
use super::session_cache::{Context, NewContext};
use super::{FetchParams, top_level};
use crate::panics::{contained, place};
use crate::partition::Partition;
use crate::replica_manager::ReplicaManager;
use crate::sync::{Answer, Mutex, Rank};

/// A fetch and its first reading.
#[derive(Debug)]
pub(crate) struct DelayedFetch {
    params: FetchParams,
    context: Context,
    reading: Reading,
    first: ReadResult,
    deadline_ms: i64,
    /// While it waits: the partitions that did not exist when it began to wait.
    unknown: FxHashSet<TopicPartition>,
}

impl DelayedFetch {
    /// Does the first reading.
    pub(crate) fn new(replicas: &ReplicaManager, params: FetchParams, new: NewContext, now_ms: i64) -> Self {
        let NewContext { context, reading } = new;
        Self {
            deadline_ms: now_ms.saturating_add(params.max_wait_ms),
            first: read_partitions(replicas, &params, &reading.partitions),
            params,
            context,
            reading,
            unknown: FxHashSet::default(),
        }
    }

    /// The session whose partitions it reads.
    fn session(&self) -> Option<(NodeId, i32)> {
        match self.context {
            Context::Incremental(id) => Some((self.params.node, id)),
            _ => None,
        }
    }

    /// Kafka: `ReplicaManager#fetchMessages`: respond immediately if ... (`KafkaApis#handleFetchRequest`: if none exists)
    pub(crate) fn is_satisfied_at_once(&self) -> bool {
        self.params.max_wait_ms <= 0
            || (!self.reading.has_clean && self.first.responses.iter().all(is_unknown))
            || self.first.bytes >= self.params.min_bytes
            || self.first.has_error
            || self.first.diverges
            || self.first.is_elsewhere
    }

    /// The response from the first reading.
    pub(crate) fn into_response(self, replicas: &ReplicaManager) -> FetchResponse {
        replicas.fetch_response(self.params.node, &self.context, self.reading, self.first)
    }

    /// The name of its first partition.
    fn name(&self) -> String {
        let first = self.first.positions.first();
        first.map(|position| position.tp.to_string()).unwrap_or_default()
    }

    /// Begins to wait for the partitions that exist.
    fn begin_to_wait(&mut self) {
        let unknown = self.first.responses.iter().filter(|p| is_unknown(p));
        self.unknown = unknown.map(|(tp, _)| tp.clone()).collect();
    }

    /// The positions of the first reading, without those of clean partitions (`session.rs`), at which nothing can be read. `None`:
    /// the session is gone.
    fn positions(&self, replicas: &ReplicaManager) -> Option<Cow<'_, [Position]>> {
        let Some(session) = self.session() else {
            return Some(Cow::Borrowed(&self.first.positions));
        };
        let mut positions = replicas.fetches.positions(session)?;
        positions.retain(|position| !self.unknown.contains(&position.tp));
        Some(Cow::Owned(positions))
    }

    fn is_complete(&self, replicas: &ReplicaManager) -> bool {
        let Some(positions) = self.positions(replicas) else {
            return true;
        };
        let mut readable = 0i64;
        for position in &*positions {
            match progress(replicas, &self.params, position) {
                Progress::Answer => return true,
                Progress::Bytes(bytes) => readable = readable.saturating_add(bytes),
            }
            if readable >= self.params.min_bytes {
                return true;
            }
        }
        false
    }

    /// Whether there is nothing to read at any of its positions.
    fn is_without_data(&self, replicas: &ReplicaManager) -> bool {
        self.positions(replicas).is_none_or(|positions| {
            let mut all = positions.iter();
            all.all(|position| matches!(progress(replicas, &self.params, position), Progress::Bytes(0)))
        })
    }

    /// Reads again and makes the response. Partitions that did not exist at first have the same result as then.
    fn response(self, replicas: &ReplicaManager) -> FetchResponse {
        let latest = self.session().map(|session| replicas.fetches.reading(session));
        let reading = latest.unwrap_or(self.reading);
        let known = reading.partitions.iter().filter(|p| !self.unknown.contains(&p.tp));
        let mut again = read_partitions(replicas, &self.params, known);
        // All of these existed when it began to wait; in Kafka the read of one that was removed fails, also if it was asked for by id, without
        // aborted transactions.
        for (_, gone) in again.responses.iter_mut().filter(|p| is_unknown(p)) {
            gone.error_code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
            (gone.error_message, gone.aborted_transactions) = (None, None);
        }
        let unknown = self.first.responses.into_iter();
        again
            .responses
            .extend(unknown.filter(|(tp, _)| self.unknown.contains(tp)));
        replicas.fetch_response(self.params.node, &self.context, reading, again)
    }

    /// The keys whose changes can complete it: its session, or the partitions that it lists.
    fn keys(&self) -> Vec<Key> {
        match self.context {
            Context::Incremental(id) => vec![Key::Session(self.params.node, id)],
            _ => {
                let tps = self.first.positions.iter().map(|p| p.tp.clone());
                tps.map(Key::Partition).collect()
            }
        }
    }
}

/// Whether the partition does not exist. A fetch does not wait for a missing partition to be created.
fn is_unknown((_, partition): &PartitionResponse) -> bool {
    is_unknown_error(partition.error_code)
}

/// What fetches wait for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Partition(TopicPartition),
    Session(NodeId, i32),
}

#[derive(Debug)]
struct Watched {
    /// Taken by the thread that completes it.
    fetch: Mutex<Option<DelayedFetch>>,
    answer: Arc<Answer>,
    deadline_ms: i64,
    /// The node that was asked.
    node: NodeId,
    keys: Vec<Key>,
}

impl Watched {
    fn try_complete(&self, replicas: &ReplicaManager, timed_out: bool) -> bool {
        let mut slot = self.fetch.lock();
        let done = match &*slot {
            None => return true,
            Some(fetch) => timed_out || fetch.is_complete(replicas),
        };
        if done && let Some(fetch) = slot.take() {
            place(|| format!("answer of a fetch of {}", fetch.name()));
            let response = Response::Fetch(fetch.response(replicas));
            self.answer.complete(response, &replicas.changes);
        }
        done
    }

    /// Completes it with an error, after a defect in completing it. It no longer waits.
    fn fail(&self, replicas: &ReplicaManager) {
        drop(self.fetch.lock().take());
        let response = Response::Fetch(top_level(ErrorCode::UNKNOWN_SERVER_ERROR));
        self.answer.complete(response, &replicas.changes);
    }
}

/// The waiting fetches.
#[derive(Debug)]
pub(crate) struct FetchPurgatory {
    waiting: Mutex<Waiting>,
    /// Number of waiting fetches, so that an append without waiting fetches takes no lock.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Waiting {
    by_id: FxHashMap<u64, Arc<Watched>>,
    by_key: FxHashMap<Key, BTreeSet<u64>>,
    /// (deadline in ms, id) of each.
    by_deadline: BTreeSet<(i64, u64)>,
    last_id: u64,
}

impl Default for FetchPurgatory {
    fn default() -> Self {
        Self {
            waiting: Mutex::new(Rank::FetchPurgatory, Waiting::default()),
            count: AtomicUsize::new(0),
        }
    }
}

impl FetchPurgatory {
    /// Number of waiting fetches.
    pub(crate) fn size(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Kafka: `tryCompleteElseWatch`: watched first, then tried, so that no append falls between.
    pub(crate) fn watch(&self, replicas: &ReplicaManager, mut fetch: DelayedFetch) -> Arc<Answer> {
        fetch.begin_to_wait();
        if let Some(session) = fetch.session() {
            replicas.fetches.read_at(session, &fetch.first.positions);
        }
        // A full fetch whose response opens a session may evict another session, and then completes that session's fetch.
        let rank = match fetch.session() {
            Some(_) => Rank::DelayedFetchOfSession,
            None => Rank::DelayedFetch,
        };
        let keys = fetch.keys();
        let (id, watched) = {
            let mut waiting = self.waiting.lock();
            waiting.last_id += 1;
            let id = waiting.last_id;
            let watched = Arc::new(Watched {
                deadline_ms: fetch.deadline_ms,
                node: fetch.params.node,
                keys,
                fetch: Mutex::new(rank, Some(fetch)),
                answer: Arc::new(Answer::of_fetch(id)),
            });
            for key in &watched.keys {
                waiting.by_key.entry(key.clone()).or_default().insert(id);
            }
            waiting.by_deadline.insert((watched.deadline_ms, id));
            waiting.by_id.insert(id, watched.clone());
            self.count.store(waiting.by_id.len(), Ordering::SeqCst);
            (id, watched)
        };
        self.try_complete(replicas, id, &watched, false);
        watched.answer.clone()
    }

    /// Called after a change of a partition, which is in these sessions: completes the fetches that were waiting for it, except those to
    /// the node `but`. Those that had timed out before are completed with the data that exists.
    pub(crate) fn check(
        &self,
        replicas: &ReplicaManager,
        partition: &Partition,
        sessions: &[(NodeId, i32)],
        but: Option<NodeId>,
    ) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let sessions = sessions.iter().map(|(node, id)| Key::Session(*node, *id));
        let listed = partition.fetched_as().map(|tp| Key::Partition(tp.clone()));
        self.check_keys(replicas, listed.into_iter().chain(sessions), but);
    }

    /// Called after a session was removed: its fetch need not wait any longer.
    pub(crate) fn check_session(&self, replicas: &ReplicaManager, node: NodeId, id: i32) {
        self.check_keys(replicas, [Key::Session(node, id)], None);
    }

    fn check_keys(&self, replicas: &ReplicaManager, keys: impl IntoIterator<Item = Key>, but: Option<NodeId>) {
        let now_ms = replicas.clock().monotonic_ms();
        // In the order in which they began to wait.
        let candidates: BTreeMap<u64, Arc<Watched>> = {
            let waiting = self.waiting.lock();
            let ids = keys.into_iter().filter_map(|key| waiting.by_key.get(&key)).flatten();
            ids.filter_map(|id| Some((*id, waiting.by_id.get(id)?.clone())))
                .filter(|(_, watched)| but != Some(watched.node))
                .collect()
        };
        for (id, watched) in candidates {
            self.try_complete(replicas, id, &watched, now_ms >= watched.deadline_ms);
        }
    }

    /// Completes the fetches that have timed out; with `look` also those that can be completed (read-only: the writer is another
    /// process and reports nothing).
    pub(crate) fn expire(&self, replicas: &ReplicaManager, now_ms: i64, look: bool) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let candidates: Vec<(u64, Arc<Watched>)> = {
            let waiting = self.waiting.lock();
            let due = if look { i64::MAX } else { now_ms };
            let ids = waiting.by_deadline.range(..=(due, u64::MAX)).map(|(_, id)| *id);
            ids.filter_map(|id| Some((id, waiting.by_id.get(&id)?.clone())))
                .collect()
        };
        for (id, watched) in candidates {
            self.try_complete(replicas, id, &watched, now_ms >= watched.deadline_ms);
        }
    }

    /// When the next fetch times out.
    pub(crate) fn next_deadline(&self) -> Option<i64> {
        self.waiting
            .lock()
            .by_deadline
            .first()
            .map(|(deadline_ms, _)| *deadline_ms)
    }

    /// Completes a fetch as if it had timed out, if there is nothing to read for it; a fetch that has data and waits for
    /// fetch.min.bytes stays.
    pub(crate) fn answer_if_without_data(&self, replicas: &ReplicaManager, answer: &Answer) {
        let id = answer.fetch_id();
        let Some(watched) = self.waiting.lock().by_id.get(&id).cloned() else {
            return;
        };
        let idle = watched
            .fetch
            .lock()
            .as_ref()
            .is_some_and(|fetch| fetch.is_without_data(replicas));
        self.try_complete(replicas, id, &watched, idle);
    }

    /// A panic fails only this fetch: the thread also completes fetches of other clients, or has appended records.
    fn try_complete(&self, replicas: &ReplicaManager, id: u64, watched: &Watched, timed_out: bool) {
        let completed = contained("a waiting fetch", || watched.try_complete(replicas, timed_out));
        if completed.is_none() {
            watched.fail(replicas);
        }
        if completed.unwrap_or(true) {
            self.forget(id);
        }
    }

    /// Drops a fetch whose client has disconnected.
    pub(crate) fn cancel(&self, answer: &Answer) {
        self.forget(answer.fetch_id());
    }

    fn forget(&self, id: u64) {
        let mut waiting = self.waiting.lock();
        if let Some(watched) = waiting.by_id.remove(&id) {
            waiting.by_deadline.remove(&(watched.deadline_ms, id));
            for key in &watched.keys {
                if let Some(ids) = waiting.by_key.get_mut(key) {
                    ids.remove(&id);
                    if ids.is_empty() {
                        waiting.by_key.remove(key);
                    }
                }
            }
        }
        self.count.store(waiting.by_id.len(), Ordering::SeqCst);
    }
}
