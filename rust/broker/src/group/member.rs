//! A member of a group and whether its client is alive. Kafka: `MemberMetadata`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use bytes::Bytes;
use fletchlog_api::{JoinGroupRequest, JoinGroupResponse, Response, SyncGroupResponse};

use crate::sync::{Answer, Changes};

/// Whether a client is there, and when it was last heard of (monotonic ms).
///
/// It replaces the heartbeat thread of Kafka's clients: as long as the connection exists and the client does something
/// at least every max.poll.interval.ms, its members live; a client that has gone without leaving is missed after
/// session.timeout.ms.
#[derive(Debug)]
pub(crate) struct ClientLiveness {
    last_seen_ms: AtomicI64,
    gone: AtomicBool,
}

impl ClientLiveness {
    /// A client that has just connected.
    pub(crate) fn new(now_ms: i64) -> Self {
        Self {
            last_seen_ms: AtomicI64::new(now_ms),
            gone: AtomicBool::new(false),
        }
    }

    /// It did something.
    pub(crate) fn seen(&self, now_ms: i64) {
        self.last_seen_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Its transport was dropped.
    pub(crate) fn disconnected(&self, now_ms: i64) {
        self.last_seen_ms.store(now_ms, Ordering::Relaxed);
        self.gone.store(true, Ordering::Relaxed);
    }

    /// When its transport was dropped, if it was.
    pub(crate) fn gone_since_ms(&self) -> Option<i64> {
        self.gone
            .load(Ordering::Relaxed)
            .then(|| self.last_seen_ms.load(Ordering::Relaxed))
    }
}

/// How long a member lives without being heard of.
#[derive(Debug)]
pub(crate) struct Session {
    client: Arc<ClientLiveness>,
    session_timeout_ms: i32,
    rebalance_timeout_ms: i32,
}

impl Session {
    /// When the member is missed, unless it is heard of before.
    pub(crate) fn deadline_ms(&self) -> i64 {
        let timeout = if self.client.gone.load(Ordering::Relaxed) {
            self.session_timeout_ms
        } else {
            self.rebalance_timeout_ms.max(self.session_timeout_ms)
        };
        self.client
            .last_seen_ms
            .load(Ordering::Relaxed)
            .saturating_add(i64::from(timeout))
    }
}

/// A member.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) id: Arc<str>,
    pub(crate) instance_id: Option<Arc<str>>,
    pub(crate) client_id: Arc<str>,
    pub(crate) session_timeout_ms: i32,
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) protocols: Vec<(Arc<str>, Bytes)>,
    pub(crate) assignment: Bytes,
    pub(crate) joining: Option<Arc<Answer>>,
    pub(crate) syncing: Option<Arc<Answer>>,
    client: Arc<ClientLiveness>,
}

impl Member {
    /// A member as its join describes it.
    pub(crate) fn new(id: Arc<str>, request: &JoinGroupRequest, client: &Arc<ClientLiveness>) -> Self {
        Self {
            id,
            instance_id: request.group_instance_id.clone(),
            client_id: request.client_id.clone(),
            session_timeout_ms: request.session_timeout_ms,
            rebalance_timeout_ms: request.rebalance_timeout_ms,
            protocols: request.protocols.clone(),
            assignment: Bytes::new(),
            joining: None,
            syncing: None,
            client: client.clone(),
        }
    }

    /// A later join of the same member. Kafka: `GroupMetadata#updateMember`.
    pub(crate) fn update(&mut self, request: &JoinGroupRequest, client: &Arc<ClientLiveness>) {
        self.protocols.clone_from(&request.protocols);
        self.session_timeout_ms = request.session_timeout_ms;
        self.rebalance_timeout_ms = request.rebalance_timeout_ms;
        self.client = client.clone();
    }

    /// Another request of this member came over this connection.
    pub(crate) fn heard_from(&mut self, client: &Arc<ClientLiveness>) {
        self.client = client.clone();
    }

    /// Kafka: `MemberMetadata#matches`: same protocols in the same order with the same metadata.
    pub(crate) fn matches(&self, protocols: &[(Arc<str>, Bytes)]) -> bool {
        self.protocols == protocols
    }

    /// Its metadata for a protocol.
    pub(crate) fn metadata(&self, protocol: &str) -> Bytes {
        self.protocols
            .iter()
            .find(|(name, _)| &**name == protocol)
            .map(|(_, m)| m.clone())
            .unwrap_or_default()
    }

    /// Its session, unless it waits in a join or sync: it is kept then (Kafka: `MemberMetadata#shouldKeepAlive`).
    pub(crate) fn session(&self) -> Option<Session> {
        let waits = self.joining.is_some() || self.syncing.is_some();
        (!waits).then(|| Session {
            client: self.client.clone(),
            session_timeout_ms: self.session_timeout_ms,
            rebalance_timeout_ms: self.rebalance_timeout_ms,
        })
    }

    /// Answers a waiting join.
    pub(crate) fn answer_join(&mut self, response: JoinGroupResponse, changes: &Changes) {
        if let Some(answer) = self.joining.take() {
            answer.complete(Response::JoinGroup(response), changes);
        }
    }

    /// Answers a waiting sync.
    pub(crate) fn answer_sync(&mut self, response: SyncGroupResponse, changes: &Changes) {
        if let Some(answer) = self.syncing.take() {
            answer.complete(Response::SyncGroup(response), changes);
        }
    }
}
