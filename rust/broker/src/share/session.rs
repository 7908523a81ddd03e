//! Share sessions: which partitions a member fetches, bound to the connection that opened it (spec 14.8). Kafka: `ShareSessionCache`,
//! `ShareSession`, `CachedSharePartition`.

use std::sync::Arc;

use fletchlog_api::{ErrorCode, NodeId, PartitionStates, topic_by_id};
use fletchlog_records::TopicPartition;
use rustc_hash::FxHashMap;

/// A partition of a request, by the id of its topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TopicIdPartition {
    pub(crate) topic_id: [u8; 16],
    pub(crate) partition: i32,
}

impl TopicIdPartition {
    fn key(self) -> TopicPartition {
        TopicPartition::new(topic_by_id(self.topic_id), self.partition)
    }
}

/// The epoch that opens a session.
pub(crate) const INITIAL_EPOCH: i32 = 0;
/// The epoch that closes it.
pub(crate) const FINAL_EPOCH: i32 = -1;

/// The epoch of the next request. Kafka: `ShareRequestMetadata#nextEpoch`.
fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).filter(|next| *next > 0).unwrap_or(1)
}

/// A connection: the client's number and the node.
pub(crate) type ConnectionId = (u64, NodeId);

/// Whose session it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ShareSessionKey {
    pub(crate) node: NodeId,
    pub(crate) group_id: Arc<str>,
    pub(crate) member_id: Arc<str>,
}

/// A partition of a session.
#[derive(Debug, Clone)]
struct Cached {
    at: TopicIdPartition,
    /// The topic existed when the partition was added.
    was_known: bool,
    /// The next response has it, even without records.
    must_answer: bool,
}

#[derive(Debug)]
struct ShareSession {
    /// A session that replaces it has another one.
    number: u64,
    /// Of the next request.
    epoch: i32,
    connection: ConnectionId,
    partitions: PartitionStates<Cached>,
}

/// A partition that a fetch asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) at: TopicIdPartition,
    /// See [`Cached::was_known`].
    pub(crate) was_known: bool,
}

/// The sessions of all nodes.
#[derive(Debug)]
pub(crate) struct ShareSessionCache {
    sessions: FxHashMap<ShareSessionKey, ShareSession>,
    /// The session that was opened last over a connection.
    by_connection: FxHashMap<ConnectionId, ShareSessionKey>,
    /// How many sessions a group has; groups that have had one.
    members: FxHashMap<Arc<str>, usize>,
    /// group.share.max.share.sessions
    max_sessions: usize,
    last_number: u64,
}

/// What the closing of a connection ends.
#[derive(Debug, Default)]
pub(crate) struct Disconnected {
    /// The session, with its partitions.
    pub(crate) session: Option<(ShareSessionKey, Vec<TopicIdPartition>)>,
    /// A group that has no session left: its share partitions are dropped from memory.
    pub(crate) emptied_group: Option<Arc<str>>,
}

impl ShareSessionCache {
    /// No sessions, and room for this number.
    pub(crate) fn new(max_sessions: usize) -> Self {
        Self {
            sessions: FxHashMap::default(),
            by_connection: FxHashMap::default(),
            members: FxHashMap::default(),
            max_sessions,
            last_number: 0,
        }
    }

    /// Opens a session, in place of the member's earlier one.
    ///
    /// # Errors
    /// SHARE_SESSION_LIMIT_REACHED.
    pub(crate) fn open(
        &mut self,
        key: &ShareSessionKey,
        connection: ConnectionId,
        partitions: &[Asked],
    ) -> Result<(), ErrorCode> {
        self.remove(key);
        if self.sessions.len() >= self.max_sessions {
            return Err(ErrorCode::SHARE_SESSION_LIMIT_REACHED);
        }
        let cached = partitions.iter().map(|asked| {
            let cached = Cached {
                at: asked.at,
                was_known: asked.was_known,
                must_answer: false,
            };
            (asked.at.key(), cached)
        });
        self.last_number += 1;
        let session = ShareSession {
            number: self.last_number,
            epoch: next_epoch(INITIAL_EPOCH),
            connection,
            partitions: cached.collect(),
        };
        self.sessions.insert(key.clone(), session);
        self.by_connection.insert(connection, key.clone());
        *self.members.entry(Arc::clone(&key.group_id)).or_default() += 1;
        Ok(())
    }

    /// Checks the epoch of a request, and takes it. The final epoch is not taken: see [`Self::close`].
    ///
    /// # Errors
    /// SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
    pub(crate) fn take_epoch(&mut self, key: &ShareSessionKey, epoch: i32) -> Result<(), ErrorCode> {
        let session = self.sessions.get_mut(key).ok_or(ErrorCode::SHARE_SESSION_NOT_FOUND)?;
        if epoch == FINAL_EPOCH {
            return Ok(());
        }
        if session.epoch != epoch {
            return Err(ErrorCode::INVALID_SHARE_SESSION_EPOCH);
        }
        session.epoch = next_epoch(epoch);
        Ok(())
    }

    /// Adds and forgets partitions; returns those of the session in the order of this epoch: rotated by it. Kafka: `ShareSession#update`,
    /// `PartitionRotateStrategy`.
    pub(crate) fn update(
        &mut self,
        key: &ShareSessionKey,
        epoch: i32,
        added: &[Asked],
        forgotten: &[TopicIdPartition],
    ) -> Vec<Asked> {
        let Some(session) = self.sessions.get_mut(key) else {
            return Vec::new();
        };
        for asked in added {
            let at = asked.at.key();
            if !session.partitions.contains(&at) {
                let cached = Cached {
                    at: asked.at,
                    was_known: asked.was_known,
                    must_answer: true,
                };
                session.partitions.insert(at, cached);
            }
        }
        for at in forgotten {
            session.partitions.remove(&at.key());
        }
        let mut all: Vec<Asked> = session.partitions.iter().map(|(_, cached)| cached.asked()).collect();
        if let Some(places) = usize::try_from(epoch)
            .ok()
            .and_then(|epoch| epoch.checked_rem(all.len()))
        {
            all.rotate_left(places);
        }
        all
    }

    /// The number of a member's session.
    pub(crate) fn number_of(&self, key: &ShareSessionKey) -> Option<u64> {
        self.sessions.get(key).map(|session| session.number)
    }

    fn of_number(&mut self, key: &ShareSessionKey, number: Option<u64>) -> Option<&mut ShareSession> {
        let session = self.sessions.get_mut(key);
        session.filter(|session| Some(session.number) == number)
    }

    /// Whether the session has moved on since the request with this epoch.
    pub(crate) fn has_moved_on(&mut self, key: &ShareSessionKey, number: Option<u64>, epoch: i32) -> bool {
        // Closed or replaced meanwhile: as in Kafka the fetch ends with what it has.
        let session = self.of_number(key, number);
        session.is_some_and(|session| session.epoch != next_epoch(epoch))
    }

    /// Whether a later response of the session has this partition: it has records or an error, had an error, or is new. Kafka:
    /// `CachedSharePartition#maybeUpdateResponseData`.
    pub(crate) fn must_answer(
        &mut self,
        key: &ShareSessionKey,
        number: Option<u64>,
        at: TopicIdPartition,
        has_records: bool,
        has_error: bool,
    ) -> bool {
        let at = at.key();
        let Some(session) = self.of_number(key, number) else {
            return has_records || has_error;
        };
        let Some(cached) = session.partitions.get_mut(&at) else {
            return has_records || has_error;
        };
        let must_answer = has_records || has_error || cached.must_answer;
        cached.must_answer = has_error;
        if has_records {
            session.partitions.move_to_end(&at);
        }
        must_answer
    }

    /// Closes a session; returns its partitions.
    pub(crate) fn close(&mut self, key: &ShareSessionKey) -> Vec<TopicIdPartition> {
        self.remove(key)
    }

    fn remove(&mut self, key: &ShareSessionKey) -> Vec<TopicIdPartition> {
        let Some(session) = self.sessions.remove(key) else {
            return Vec::new();
        };
        if let Some(members) = self.members.get_mut(&key.group_id) {
            *members = members.saturating_sub(1);
        }
        session.partitions.iter().map(|(_, cached)| cached.at).collect()
    }

    /// Whether a session was opened over a connection.
    pub(crate) fn has_opened(&self, connection: ConnectionId) -> bool {
        self.by_connection.contains_key(&connection)
    }

    /// Called when a connection has closed. Kafka: `ClientConnectionDisconnectListener#onDisconnect`.
    pub(crate) fn disconnected(&mut self, connection: ConnectionId) -> Disconnected {
        let Some(key) = self.by_connection.remove(&connection) else {
            return Disconnected::default();
        };
        // The member may have opened a session over another connection meanwhile.
        let is_its_own = self.sessions.get(&key).is_some_and(|s| s.connection == connection);
        let partitions = is_its_own.then(|| self.remove(&key));
        let is_empty = self.members.get(&key.group_id) == Some(&0);
        if is_empty {
            self.members.remove(&key.group_id);
        }
        Disconnected {
            emptied_group: is_empty.then(|| Arc::clone(&key.group_id)),
            session: partitions.map(|partitions| (key, partitions)),
        }
    }
}

impl Cached {
    fn asked(&self) -> Asked {
        Asked {
            at: self.at,
            was_known: self.was_known,
        }
    }
}
