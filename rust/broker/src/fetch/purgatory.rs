//! Fetches that wait for data (spec 6.5). Kafka: `DelayedFetch`, `DelayedOperationPurgatory`.
//!
//! A waiting fetch is answered by the thread whose append completes it, with what the log holds at that moment, so the
//! answer does not depend on when the client looks. Its time-out is noticed by whoever looks first: the waiting client,
//! or an append to one of its partitions.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fletchlog_api::{FetchPartition, FetchResponse, Response};
use fletchlog_records::TopicPartition;
use rustc_hash::FxHashMap;

use super::FetchParams;
use super::read::{Position, Progress, ReadResult, progress, read_partitions};
use super::session::Context;
use crate::Broker;
use crate::sync::{Answer, lock};

/// A fetch and its first reading.
#[derive(Debug)]
pub(crate) struct DelayedFetch {
    params: FetchParams,
    context: Context,
    partitions: Vec<FetchPartition>,
    first: ReadResult,
    deadline_ms: i64,
}

impl DelayedFetch {
    /// Reads for the first time.
    pub(crate) fn new(
        broker: &Broker,
        params: FetchParams,
        context: Context,
        partitions: Vec<FetchPartition>,
        now_ms: i64,
    ) -> Self {
        let first = read_partitions(broker, &params, &partitions);
        Self {
            params,
            context,
            partitions,
            first,
            deadline_ms: now_ms.saturating_add(params.max_wait_ms),
        }
    }

    /// Kafka: `ReplicaManager#fetchMessages`: respond immediately if ...
    pub(crate) fn is_satisfied_at_once(&self) -> bool {
        self.params.max_wait_ms <= 0
            || self.partitions.is_empty()
            || self.first.bytes >= self.params.min_bytes
            || self.first.has_error
    }

    /// The answer from the first reading.
    pub(crate) fn into_response(self, broker: &Broker) -> FetchResponse {
        broker.fetch_response(self.params.node, &self.context, self.first.responses)
    }

    fn is_complete(&self, broker: &Broker) -> bool {
        let mut readable = 0i64;
        for position in &self.first.positions {
            match progress(broker, &self.params, position) {
                Progress::Answer => return true,
                Progress::Bytes(bytes) => readable = readable.saturating_add(bytes),
            }
            if readable >= self.params.min_bytes {
                return true;
            }
        }
        false
    }

    /// There is nothing to read at any of its positions.
    fn is_without_data(&self, broker: &Broker) -> bool {
        self.first
            .positions
            .iter()
            .all(|position| matches!(progress(broker, &self.params, position), Progress::Bytes(0)))
    }

    /// Reads again and answers.
    fn response(&self, broker: &Broker) -> FetchResponse {
        let again = read_partitions(broker, &self.params, &self.partitions);
        broker.fetch_response(self.params.node, &self.context, again.responses)
    }

    fn positions(&self) -> impl Iterator<Item = &Position> {
        self.first.positions.iter()
    }
}

#[derive(Debug)]
struct Watched {
    /// Taken by the thread that answers.
    fetch: Mutex<Option<DelayedFetch>>,
    answer: Arc<Answer>,
    deadline_ms: i64,
    tps: Vec<TopicPartition>,
}

impl Watched {
    fn try_complete(&self, broker: &Broker, timed_out: bool) -> bool {
        let mut slot = lock(&self.fetch);
        let done = match &*slot {
            None => return true,
            Some(fetch) => timed_out || fetch.is_complete(broker),
        };
        if done && let Some(fetch) = slot.take() {
            let response = Response::Fetch(fetch.response(broker));
            self.answer.complete(response, &broker.changes);
        }
        done
    }
}

/// The waiting fetches.
#[derive(Debug, Default)]
pub(crate) struct FetchPurgatory {
    waiting: Mutex<Waiting>,
    /// Its size, so that an append without waiting fetches takes no lock.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Waiting {
    by_id: FxHashMap<u64, Arc<Watched>>,
    by_partition: FxHashMap<TopicPartition, Vec<u64>>,
    last_id: u64,
}

impl FetchPurgatory {
    /// Kafka: `tryCompleteElseWatch`: watched first, then tried, so that no append falls between.
    pub(crate) fn watch(&self, broker: &Broker, fetch: DelayedFetch) -> Arc<Answer> {
        let tps: Vec<TopicPartition> = fetch.positions().map(|p| p.request.tp.clone()).collect();
        let (id, watched) = {
            let mut waiting = lock(&self.waiting);
            waiting.last_id += 1;
            let id = waiting.last_id;
            let watched = Arc::new(Watched {
                deadline_ms: fetch.deadline_ms,
                tps,
                fetch: Mutex::new(Some(fetch)),
                answer: Arc::new(Answer::of_fetch(id)),
            });
            for tp in &watched.tps {
                match waiting.by_partition.get_mut(tp) {
                    Some(ids) => ids.push(id),
                    None => drop(waiting.by_partition.insert(tp.clone(), vec![id])),
                }
            }
            waiting.by_id.insert(id, watched.clone());
            self.count.store(waiting.by_id.len(), Ordering::SeqCst);
            (id, watched)
        };
        if watched.try_complete(broker, false) {
            self.forget(id);
        }
        watched.answer.clone()
    }

    /// Something about `tp` has changed: answers the fetches that were waiting for it. Those whose time was over before
    /// are answered with what there is.
    pub(crate) fn check(&self, broker: &Broker, tp: &TopicPartition) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let now_ms = broker.clock.monotonic_ms();
        let candidates: Vec<(u64, Arc<Watched>)> = {
            let waiting = lock(&self.waiting);
            let ids = waiting.by_partition.get(tp).map_or(&[][..], Vec::as_slice);
            ids.iter()
                .filter_map(|id| Some((*id, waiting.by_id.get(id)?.clone())))
                .collect()
        };
        for (id, watched) in candidates {
            if watched.try_complete(broker, now_ms >= watched.deadline_ms) {
                self.forget(id);
            }
        }
    }

    /// Answers the fetches whose time is over; with `look` also those that can be completed (read-only: the writer is
    /// another process and tells nobody).
    pub(crate) fn expire(&self, broker: &Broker, now_ms: i64, look: bool) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let candidates: Vec<(u64, Arc<Watched>)> = lock(&self.waiting)
            .by_id
            .iter()
            .filter(|(_, w)| look || now_ms >= w.deadline_ms)
            .map(|(id, w)| (*id, w.clone()))
            .collect();
        for (id, watched) in candidates {
            if watched.try_complete(broker, now_ms >= watched.deadline_ms) {
                self.forget(id);
            }
        }
    }

    /// When the next fetch times out.
    pub(crate) fn next_deadline(&self) -> Option<i64> {
        lock(&self.waiting).by_id.values().map(|w| w.deadline_ms).min()
    }

    /// Answers a fetch as if its time were over, if there is nothing to read for it; one that has data and waits for
    /// fetch.min.bytes stays.
    pub(crate) fn answer_if_without_data(&self, broker: &Broker, answer: &Answer) {
        let id = answer.fetch_id();
        let Some(watched) = lock(&self.waiting).by_id.get(&id).cloned() else {
            return;
        };
        let idle = lock(&watched.fetch)
            .as_ref()
            .is_some_and(|fetch| fetch.is_without_data(broker));
        if watched.try_complete(broker, idle) {
            self.forget(id);
        }
    }

    /// Drops a fetch whose client has gone.
    pub(crate) fn cancel(&self, answer: &Answer) {
        self.forget(answer.fetch_id());
    }

    fn forget(&self, id: u64) {
        let mut waiting = lock(&self.waiting);
        if let Some(watched) = waiting.by_id.remove(&id) {
            for tp in &watched.tps {
                // The place stays: the next fetch of the session waits for the same partitions.
                if let Some(ids) = waiting.by_partition.get_mut(tp) {
                    ids.retain(|other| *other != id);
                }
            }
        }
        self.count.store(waiting.by_id.len(), Ordering::SeqCst);
    }
}
