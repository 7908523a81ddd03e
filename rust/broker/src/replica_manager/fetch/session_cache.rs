//! The fetch sessions of a node, KIP-227 (spec 6.6). Kafka: `FetchSessionCache`, `FullFetchContext`.

use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use fletchlog_api::{ErrorCode, FetchRequest, FetchResponse};
use fletchlog_records::TopicPartition;
use rustc_hash::FxHashMap;

use super::read::{Position, ReadResult};
use super::session::{FetchSession, Reading, next_epoch};
use crate::uuid;

/// Kafka: `FetchSessionCache` evicts a session unused for this long, and lets a larger one push out a smaller one that
/// is older than this.
const EVICTION_MS: i64 = 120_000;
/// Full fetch that asks for a session.
const INITIAL_EPOCH: i32 = 0;
/// No session, or the end of one.
const FINAL_EPOCH: i32 = -1;
const INVALID_SESSION_ID: i32 = 0;

/// How the response to a fetch is made.
#[derive(Debug)]
pub(crate) enum Context {
    /// The response has every partition; nothing is remembered.
    Sessionless,
    /// The response has every partition, and a session of them is opened.
    Full {
        /// Kafka: `FetchSession#usesTopicIds`.
        by_topic_ids: bool,
    },
    /// The response has only what has changed in the session with this id.
    Incremental(i32),
}

/// A context and what is read for it.
#[derive(Debug)]
pub(crate) struct NewContext {
    pub(crate) context: Context,
    pub(crate) reading: Reading,
}

/// A response, and the session that was evicted for the one it opens.
#[derive(Debug)]
pub(crate) struct BuiltResponse {
    pub(crate) response: FetchResponse,
    pub(crate) evicted: Option<i32>,
}

/// The sessions of one node.
#[derive(Debug)]
pub(crate) struct FetchSessionCache {
    slots: usize,
    /// True if [`Self::changed`] is called after every change; otherwise each fetch reads all partitions.
    reports_changes: bool,
    sessions: FxHashMap<i32, FetchSession>,
    /// Sessions that a partition is in.
    holders: FxHashMap<TopicPartition, BTreeSet<i32>>,
}

impl FetchSessionCache {
    /// The number of sessions.
    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// An empty cache. `reports_changes`: the caller calls [`Self::changed`] after every change of a partition.
    pub(crate) fn new(slots: usize, reports_changes: bool) -> Self {
        Self {
            slots,
            reports_changes,
            sessions: FxHashMap::default(),
            holders: FxHashMap::default(),
        }
    }

    /// The context of an incremental fetch. Kafka: `FetchManager#newContext`.
    pub(crate) fn next_context(&mut self, request: &FetchRequest, now_ms: i64) -> Result<NewContext, ErrorCode> {
        let (id, epoch) = (request.session_id, request.session_epoch);
        let session = self
            .sessions
            .get_mut(&id)
            .ok_or(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)?;
        if session.epoch != epoch {
            return Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        if session.uses_topic_ids != request.topic_ids.by_ids {
            return Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        for (topic, partition) in request.partitions() {
            let tp = TopicPartition::new(Arc::clone(topic), partition.partition);
            if session.ask(&tp, partition) {
                hold(&mut self.holders, &tp, id);
            }
        }
        for (topic, partition) in request.forgotten() {
            let tp = TopicPartition::new(Arc::clone(topic), partition);
            if session.forget(&tp) {
                release(&mut self.holders, &tp, id);
            }
        }
        if session.partitions.is_empty() {
            self.remove(id);
            return Ok(NewContext {
                context: Context::Sessionless,
                reading: Reading::default(),
            });
        }
        session.read_with(request.isolation_level);
        session.epoch = next_epoch(epoch);
        session.last_used_ms = now_ms;
        Ok(NewContext {
            context: Context::Incremental(id),
            reading: session.reading(self.reports_changes),
        })
    }

    /// Notes that a partition has changed or was removed: its sessions read it with their next fetch. Returns the ids of these
    /// sessions.
    pub(crate) fn changed(&mut self, tp: &TopicPartition) -> Vec<i32> {
        let holders: Vec<i32> = self.holders.get(tp).into_iter().flatten().copied().collect();
        for id in &holders {
            if let Some(session) = self.sessions.get_mut(id) {
                session.note_change(tp);
            }
        }
        holders
    }

    /// What a session's fetch has to read now; nothing if the session is gone.
    pub(crate) fn reading(&self, id: i32) -> Reading {
        let session = self.sessions.get(&id);
        session.map(|s| s.reading(self.reports_changes)).unwrap_or_default()
    }

    /// Remembers where the partitions were read.
    pub(crate) fn read_at(&mut self, id: i32, positions: &[Position]) {
        if let Some(session) = self.sessions.get_mut(&id) {
            for position in positions {
                session.read_at(position);
            }
        }
    }

    /// The last read positions of the partitions in which a waiting fetch of the session may find something; `None`: the session is
    /// gone.
    pub(crate) fn positions(&self, id: i32) -> Option<Vec<Position>> {
        let session = self.sessions.get(&id)?;
        Some(
            session
                .dirty(self.reports_changes)
                .map(|cached| cached.at.clone())
                .collect(),
        )
    }

    /// Makes the response from the result of a reading that has the changes up to number `as_of`. `session`: the one that a full fetch
    /// opens; its partitions have to be registered afterwards ([`Self::hold`]).
    pub(crate) fn response(
        &mut self,
        context: &Context,
        as_of: u64,
        result: ReadResult,
        session: Option<FetchSession>,
        now_ms: i64,
    ) -> BuiltResponse {
        let mut evicted = None;
        let (session_id, partitions) = match context {
            Context::Sessionless => (INVALID_SESSION_ID, result.responses),
            Context::Full { .. } => {
                let id = session.map_or(INVALID_SESSION_ID, |session| self.create(session, now_ms, &mut evicted));
                (id, result.responses)
            }
            // Its client may have started anew on another connection while the fetch waited.
            Context::Incremental(id) => match self.sessions.get_mut(id) {
                Some(session) => {
                    session.last_used_ms = now_ms;
                    (*id, session.select(result, as_of))
                }
                None => (INVALID_SESSION_ID, result.responses),
            },
        };
        let response = FetchResponse {
            session_id,
            ..FetchResponse::of(partitions)
        };
        BuiltResponse { response, evicted }
    }

    /// Adds a session; returns its id, 0 if there is no room for it.
    fn create(&mut self, session: FetchSession, now_ms: i64, evicted: &mut Option<i32>) -> i32 {
        if self.sessions.len() >= self.slots {
            *evicted = self.evict_for(session.partitions.len(), now_ms);
            if evicted.is_none() {
                return INVALID_SESSION_ID;
            }
        }
        let id = self.new_id();
        self.sessions.insert(id, session);
        id
    }

    /// Registers these partitions of the session, so that [`Self::changed`] reaches it; false: the session is gone.
    pub(crate) fn hold(&mut self, id: i32, partitions: &[Position]) -> bool {
        let is_there = self.sessions.contains_key(&id);
        if is_there {
            partitions.iter().for_each(|p| hold(&mut self.holders, &p.tp, id));
        }
        is_there
    }

    /// Random, so that a client that outlives this broker does not find another client's session in the next broker. Kafka:
    /// `FetchSessionCache#newSessionId`.
    fn new_id(&self) -> i32 {
        loop {
            let id = uuid::random_positive();
            if !self.sessions.contains_key(&id) {
                return id;
            }
        }
    }

    pub(crate) fn remove(&mut self, id: i32) {
        if let Some(session) = self.sessions.remove(&id) {
            for (tp, _) in session.partitions.iter() {
                release(&mut self.holders, tp, id);
            }
        }
    }

    /// Kafka: `FetchSessionCache#tryEvict`: the least recently used session if it is stale, else a smaller one that is old enough.
    fn evict_for(&mut self, size: usize, now_ms: i64) -> Option<i32> {
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
        let id = stale.map(|(_, id)| id).or_else(smaller)?;
        self.remove(id);
        Some(id)
    }
}

fn hold(holders: &mut FxHashMap<TopicPartition, BTreeSet<i32>>, tp: &TopicPartition, id: i32) {
    match holders.get_mut(tp) {
        Some(ids) => {
            ids.insert(id);
        }
        None => {
            holders.insert(tp.clone(), BTreeSet::from([id]));
        }
    }
}

fn release(holders: &mut FxHashMap<TopicPartition, BTreeSet<i32>>, tp: &TopicPartition, id: i32) {
    if let Some(ids) = holders.get_mut(tp) {
        ids.remove(&id);
        if ids.is_empty() {
            holders.remove(tp);
        }
    }
}

/// What a request without a session, or one that opens a session, asks for; `None`: it is an incremental one.
pub(crate) fn full_context(request: &FetchRequest) -> Option<NewContext> {
    let opens = match request.session_epoch {
        FINAL_EPOCH => false,
        INITIAL_EPOCH => true,
        _ => return None,
    };
    let context = match opens {
        false => Context::Sessionless,
        true => Context::Full {
            by_topic_ids: request.topic_ids.by_ids,
        },
    };
    let reading = Reading {
        partitions: without_repeats(request),
        ..Reading::default()
    };
    Some(NewContext { context, reading })
}

/// A partition named twice is read once, at its first place with its last values (spec 6.1).
fn without_repeats(request: &FetchRequest) -> Vec<Position> {
    let mut places: FxHashMap<(&str, i32), usize> = FxHashMap::default();
    let mut once: Vec<Position> = Vec::with_capacity(request.partitions().count());
    for (topic, partition) in request.partitions() {
        let position = Position::unread(topic, partition);
        match places.entry((topic, partition.partition)) {
            Entry::Occupied(place) => once[*place.get()] = position,
            Entry::Vacant(place) => {
                place.insert(once.len());
                once.push(position);
            }
        }
    }
    once
}
