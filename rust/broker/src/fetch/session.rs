//! Fetch sessions, KIP-227 (spec 6.6). Kafka: `FetchSession`, `FetchSessionCache`, `FullFetchContext`,
//! `IncrementalFetchContext`.

use fletchlog_api::{ErrorCode, FetchPartition, FetchPartitionResponse, FetchResponse};
use fletchlog_records::TopicPartition;
use rustc_hash::FxHashMap;

/// Kafka: `FetchSessionCache` evicts a session unused for this long, and lets a larger one push out a smaller one that
/// is older than this.
const EVICTION_MS: i64 = 120_000;
/// Full fetch that asks for a session.
const INITIAL_EPOCH: i32 = 0;
/// No session, or the end of one.
const FINAL_EPOCH: i32 = -1;
const INVALID_SESSION_ID: i32 = 0;
/// Up to so many listed partitions are searched for one by one: comparing is some ten times cheaper than indexing.
const SEARCHED: usize = 8;

/// How the answer to a fetch is made.
#[derive(Debug)]
pub(crate) enum Context {
    /// Every partition is answered, nothing is remembered.
    Sessionless,
    /// Every partition is answered, and a session is made of them.
    Full(Vec<FetchPartition>),
    /// Only what has changed is answered.
    Incremental(i32),
}

/// A context and the partitions to read, in order.
#[derive(Debug)]
pub(crate) struct NewContext {
    pub(crate) context: Context,
    pub(crate) partitions: Vec<FetchPartition>,
}

/// A partition in a session, with what was last sent.
#[derive(Debug, Clone)]
struct CachedPartition {
    request: FetchPartition,
    /// -1: never sent, or last sent with an error; either way the next answer has it.
    high_watermark: i64,
    log_start_offset: i64,
}

#[derive(Debug)]
struct Session {
    epoch: i32,
    partitions: Vec<CachedPartition>,
    created_ms: i64,
    last_used_ms: i64,
}

/// The sessions of one node.
#[derive(Debug)]
pub(crate) struct FetchSessionCache {
    slots: usize,
    next_id: i32,
    sessions: FxHashMap<i32, Session>,
}

fn next_epoch(epoch: i32) -> i32 {
    if epoch < 0 {
        FINAL_EPOCH
    } else {
        epoch.checked_add(1).unwrap_or(1)
    }
}

impl FetchSessionCache {
    /// An empty cache.
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            slots,
            next_id: 1,
            sessions: FxHashMap::default(),
        }
    }

    /// Kafka: `FetchManager#newContext`.
    pub(crate) fn new_context(
        &mut self,
        id: i32,
        epoch: i32,
        partitions: Vec<FetchPartition>,
        forgotten: &[TopicPartition],
        now_ms: i64,
    ) -> Result<NewContext, ErrorCode> {
        if epoch == FINAL_EPOCH || epoch == INITIAL_EPOCH {
            self.sessions.remove(&id);
            let partitions = without_repeats(partitions);
            let context = if epoch == FINAL_EPOCH {
                Context::Sessionless
            } else {
                Context::Full(partitions.clone())
            };
            return Ok(NewContext { context, partitions });
        }
        let session = self
            .sessions
            .get_mut(&id)
            .ok_or(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)?;
        if session.epoch != epoch {
            return Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        session.update(partitions, forgotten);
        if session.partitions.is_empty() {
            self.sessions.remove(&id);
            return Ok(NewContext {
                context: Context::Sessionless,
                partitions: Vec::new(),
            });
        }
        session.epoch = next_epoch(epoch);
        session.last_used_ms = now_ms;
        let partitions = session.partitions.iter().map(|p| p.request.clone()).collect();
        Ok(NewContext {
            context: Context::Incremental(id),
            partitions,
        })
    }

    /// Makes the response out of the results of all partitions of the context.
    pub(crate) fn response(
        &mut self,
        context: &Context,
        results: Vec<FetchPartitionResponse>,
        now_ms: i64,
    ) -> FetchResponse {
        let (session_id, partitions) = match context {
            Context::Sessionless => (INVALID_SESSION_ID, results),
            Context::Full(requested) => (self.create(requested, &results, now_ms), results),
            // Its client may have started anew on another connection while the fetch waited.
            Context::Incremental(id) => match self.sessions.get_mut(id) {
                Some(session) => {
                    session.last_used_ms = now_ms;
                    (*id, session.select(results))
                }
                None => (INVALID_SESSION_ID, results),
            },
        };
        FetchResponse {
            error: ErrorCode::NONE,
            session_id,
            partitions,
        }
    }

    /// A session of these partitions in request order; 0 if there is no room for it.
    fn create(&mut self, requested: &[FetchPartition], results: &[FetchPartitionResponse], now_ms: i64) -> i32 {
        if self.sessions.len() >= self.slots && !self.evict_for(requested.len(), now_ms) {
            return INVALID_SESSION_ID;
        }
        let sent: FxHashMap<&TopicPartition, &FetchPartitionResponse> = results.iter().map(|r| (&r.tp, r)).collect();
        let partitions = requested
            .iter()
            .map(|request| CachedPartition {
                high_watermark: sent.get(&request.tp).map_or(-1, |r| r.high_watermark),
                log_start_offset: sent.get(&request.tp).map_or(-1, |r| r.log_start_offset),
                request: request.clone(),
            })
            .collect();
        while self.sessions.contains_key(&self.next_id) {
            self.next_id = self.next_id.checked_add(1).unwrap_or(1);
        }
        let id = self.next_id;
        self.next_id = id.checked_add(1).unwrap_or(1);
        let session = Session {
            epoch: next_epoch(INITIAL_EPOCH),
            partitions,
            created_ms: now_ms,
            last_used_ms: now_ms,
        };
        self.sessions.insert(id, session);
        id
    }

    /// Kafka: `FetchSessionCache#tryEvict`: the least recently used session if it is stale, else a smaller one that has
    /// been there long enough.
    fn evict_for(&mut self, size: usize, now_ms: i64) -> bool {
        let stale = self
            .sessions
            .iter()
            .map(|(&id, s)| (s.last_used_ms, id))
            .min()
            .filter(|&(last_used, _)| now_ms.saturating_sub(last_used) > EVICTION_MS);
        let smaller = || {
            self.sessions
                .iter()
                .filter(|(_, s)| now_ms.saturating_sub(s.created_ms) > EVICTION_MS)
                .map(|(&id, s)| (s.partitions.len(), id))
                .min()
                .filter(|&(smallest, _)| size > smallest)
                .map(|(_, id)| id)
        };
        match stale.map(|(_, id)| id).or_else(smaller) {
            Some(id) => self.sessions.remove(&id).is_some(),
            None => false,
        }
    }
}

impl Session {
    /// Listed partitions are updated in place or appended; then the forgotten ones go. Kafka: `FetchSession#update`.
    fn update(&mut self, listed: Vec<FetchPartition>, forgotten: &[TopicPartition]) {
        if !listed.is_empty() {
            let mut index = (listed.len() > SEARCHED).then(|| self.index());
            for request in listed {
                let known = match &index {
                    Some(index) => index.get(&request.tp).copied(),
                    None => self.partitions.iter().position(|p| p.request.tp == request.tp),
                };
                match known {
                    Some(i) => self.partitions[i].request = request,
                    None => {
                        if let Some(index) = &mut index {
                            index.insert(request.tp.clone(), self.partitions.len());
                        }
                        self.partitions.push(CachedPartition {
                            request,
                            high_watermark: -1,
                            log_start_offset: -1,
                        });
                    }
                }
            }
        }
        if !forgotten.is_empty() {
            self.partitions.retain(|p| !forgotten.contains(&p.request.tp));
        }
    }

    fn index(&self) -> FxHashMap<TopicPartition, usize> {
        let tps = self.partitions.iter().map(|p| p.request.tp.clone());
        tps.zip(0..).collect()
    }

    /// What of `results` is sent; partitions with data go to the end of the session's order.
    /// Kafka: `IncrementalFetchContext#updateAndGenerateResponseData`, `CachedPartition#maybeUpdateResponseData`.
    fn select(&mut self, results: Vec<FetchPartitionResponse>) -> Vec<FetchPartitionResponse> {
        let index = self.index();
        let mut sent = Vec::with_capacity(results.len());
        let mut moved = vec![false; self.partitions.len()];
        let mut at_end = Vec::new();
        for result in results {
            let Some(&i) = index.get(&result.tp) else { continue };
            let cached = &mut self.partitions[i];
            let changed = !result.records.is_empty()
                || result.error != ErrorCode::NONE
                || cached.high_watermark != result.high_watermark
                || cached.log_start_offset != result.log_start_offset;
            // After an error the partition is sent once more when the error has gone.
            cached.high_watermark = if result.error == ErrorCode::NONE {
                result.high_watermark
            } else {
                -1
            };
            cached.log_start_offset = result.log_start_offset;
            if changed {
                if !result.records.is_empty() {
                    moved[i] = true;
                    at_end.push(cached.clone());
                }
                sent.push(result);
            }
        }
        if !at_end.is_empty() {
            let mut i = 0;
            self.partitions.retain(|_| {
                i += 1;
                !moved[i - 1]
            });
            self.partitions.append(&mut at_end);
        }
        sent
    }
}

/// A partition named twice is read once, at its first place with its last values (spec 6.1).
fn without_repeats(partitions: Vec<FetchPartition>) -> Vec<FetchPartition> {
    let mut index: FxHashMap<TopicPartition, usize> = FxHashMap::default();
    let mut once: Vec<FetchPartition> = Vec::with_capacity(partitions.len());
    for partition in partitions {
        match index.get(&partition.tp) {
            Some(&i) => once[i] = partition,
            None => {
                index.insert(partition.tp.clone(), once.len());
                once.push(partition);
            }
        }
    }
    once
}
