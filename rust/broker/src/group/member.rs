//! A member of a group and whether its client is alive. Kafka: `MemberMetadata`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use bytes::Bytes;
use fletchlog_api::{JoinGroupRequest, JoinGroupResponse, Response, SyncGroupResponse};
use fletchlog_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use fletchlog_protocol::values::group_metadata_value::MemberMetadata;

use super::consumer_member::ConsumerGroupMember;
use crate::sync::{Answer, Changes};

/// Where the client of a member is, which decides how its death is detected.
#[derive(Debug, Clone)]
enum Presence {
    /// In this process: the member lives as long as the client's transport exists.
    Transport(Arc<Transport>),
    /// Behind a socket, with the time of its last request (monotonic ms). Kafka: `ClassicGroupMember#hasSatisfiedHeartbeat`.
    Heartbeats(i64),
}

/// The client that sends a request. Kafka: `RequestContext`.
#[derive(Debug)]
pub(crate) struct ClientLiveness {
    /// As Kafka shows it, `/` and the address; or [`IN_PROCESS`].
    host: Arc<str>,
    /// `None`: it is behind a socket.
    transport: Option<Arc<Transport>>,
    /// Tells its connections from those of other clients.
    number: u64,
}

/// See [`ClientLiveness::number`].
static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);

/// The connections of a client in this process, and when it last did something (monotonic ms).
///
/// They replace the heartbeat thread of Kafka's clients: as long as the transport exists and the client does something at least every
/// max.poll.interval.ms, its members live; a client that ends without leaving loses its members after session.timeout.ms.
#[derive(Debug)]
pub(crate) struct Transport {
    pub(super) last_seen_ms: AtomicI64,
    pub(super) gone: AtomicBool,
}

impl Transport {
    /// Of a client that did something at this time.
    pub(super) fn new(now_ms: i64) -> Self {
        Self {
            last_seen_ms: AtomicI64::new(now_ms),
            gone: AtomicBool::new(false),
        }
    }
}

impl ClientLiveness {
    /// A client in this process that has just connected.
    pub(crate) fn new(now_ms: i64) -> Self {
        Self {
            host: Arc::from(IN_PROCESS),
            transport: Some(Arc::new(Transport::new(now_ms))),
            number: LAST_NUMBER.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// A client behind a socket: its members live by their own requests, and a lost connection changes nothing.
    /// `host` as Kafka shows it: `/` and the address.
    pub(crate) fn of_wire(host: &str) -> Self {
        Self {
            host: Arc::from(host),
            transport: None,
            number: LAST_NUMBER.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Tells its connections from those of other clients.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Records that it did something.
    pub(crate) fn seen(&self, now_ms: i64) {
        if let Some(transport) = &self.transport {
            transport.last_seen_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Records that its transport was dropped.
    pub(crate) fn disconnected(&self, now_ms: i64) {
        self.seen(now_ms);
        if let Some(transport) = &self.transport {
            transport.gone.store(true, Ordering::Relaxed);
        }
    }

    /// When its transport was dropped, if it was.
    pub(crate) fn gone_since_ms(&self) -> Option<i64> {
        let transport = self.transport.as_ref()?;
        let gone = transport.gone.load(Ordering::Relaxed);
        gone.then(|| transport.last_seen_ms.load(Ordering::Relaxed))
    }

    /// True if it is another process.
    pub(crate) fn is_behind_socket(&self) -> bool {
        self.transport.is_none()
    }

    /// As Kafka shows it: `/` and the address.
    pub(crate) fn host(&self) -> &Arc<str> {
        &self.host
    }

    /// The session of a member of it, if it is in this process.
    pub(crate) fn session(&self, session_timeout_ms: i32, rebalance_timeout_ms: i32) -> Option<Session> {
        Some(Session::Client {
            transport: Arc::clone(self.transport.as_ref()?),
            session_timeout_ms,
            rebalance_timeout_ms,
        })
    }

    fn presence(&self, now_ms: i64) -> Presence {
        match &self.transport {
            Some(transport) => Presence::Transport(transport.clone()),
            None => Presence::Heartbeats(now_ms),
        }
    }
}

/// The host of a member in this process. In a group's record it marks the members that ended with the process that wrote it.
pub(crate) const IN_PROCESS: &str = "in-process";

/// How long a new member is kept in its first join (ms): until that is complete, nothing shows whether its client is alive. Kafka:
/// `GroupCoordinatorConfig#CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS`.
const NEW_MEMBER_JOIN_TIMEOUT_MS: i64 = 5 * 60 * 1000;

/// When a member is removed, unless its client does something before that.
#[derive(Debug, Clone)]
pub(crate) enum Session {
    /// At this time (monotonic ms).
    Until(i64),
    /// This long after its client did something.
    Client {
        /// The client's.
        transport: Arc<Transport>,
        /// session.timeout.ms.
        session_timeout_ms: i32,
        /// max.poll.interval.ms.
        rebalance_timeout_ms: i32,
    },
}

impl Session {
    /// When the member is removed.
    pub(crate) fn deadline_ms(&self) -> i64 {
        match self {
            Session::Until(ms) => *ms,
            Session::Client {
                transport,
                session_timeout_ms,
                rebalance_timeout_ms,
            } => {
                let gone = transport.gone.load(Ordering::Relaxed);
                let alive_ms = *rebalance_timeout_ms.max(session_timeout_ms);
                let timeout_ms = if gone { *session_timeout_ms } else { alive_ms };
                let last_seen_ms = transport.last_seen_ms.load(Ordering::Relaxed);
                last_seen_ms.saturating_add(i64::from(timeout_ms))
            }
        }
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
    pub(crate) protocols: Vec<JoinGroupRequestProtocol>,
    pub(crate) assignment: Bytes,
    pub(crate) joining: Option<Arc<Answer>>,
    pub(crate) syncing: Option<Arc<Answer>>,
    pub(crate) client_host: Arc<str>,
    /// Waits in its first join. Kafka: `ClassicGroupMember#isNew`.
    pub(crate) is_new: bool,
    presence: Presence,
}

impl Member {
    /// A member as its join describes it.
    pub(crate) fn new(id: Arc<str>, request: &JoinGroupRequest, client: &ClientLiveness, now_ms: i64) -> Self {
        Self {
            id,
            instance_id: request.group_instance_id.clone(),
            client_id: request.sender.client_id.clone(),
            session_timeout_ms: request.session_timeout_ms,
            rebalance_timeout_ms: request.rebalance_timeout_ms,
            protocols: request.protocols.clone(),
            assignment: Bytes::new(),
            joining: None,
            syncing: None,
            client_host: client.host.clone(),
            is_new: true,
            presence: client.presence(now_ms),
        }
    }

    /// A member of an earlier run of the broker, as the group's record describes it. The session of a member behind a socket begins
    /// again; a member inside that process has ended with it. Kafka: `GroupMetadataManager#replay` of `GroupMetadataValue`,
    /// `#onLoaded`.
    pub(crate) fn loaded(value: MemberMetadata, protocol: &Arc<str>, now_ms: i64) -> Self {
        let mut member = Self {
            rebalance_timeout_ms: value.rebalance_timeout_ms(),
            id: value.member_id,
            instance_id: value.group_instance_id,
            client_id: value.client_id,
            session_timeout_ms: value.session_timeout,
            protocols: vec![JoinGroupRequestProtocol {
                name: protocol.clone(),
                metadata: value.subscription.unwrap_or_default(),
            }],
            assignment: value.assignment.unwrap_or_default(),
            joining: None,
            syncing: None,
            client_host: value.client_host,
            is_new: false,
            presence: Presence::Heartbeats(i64::MIN),
        };
        if member.is_behind_socket() {
            member.reschedule_heartbeat(now_ms);
        }
        member
    }

    /// A member of the classic protocol in a consumer group, which becomes a classic one; its session begins again. Kafka:
    /// `ClassicGroup#fromConsumerGroup`.
    pub(crate) fn downgraded(
        member: &ConsumerGroupMember,
        assignment: Bytes,
        session: Option<&Session>,
        now_ms: i64,
    ) -> Self {
        let metadata = &member.metadata;
        let protocols = member
            .classic_protocols()
            .iter()
            .map(|protocol| JoinGroupRequestProtocol {
                name: protocol.name.clone(),
                metadata: protocol.metadata.clone(),
            });
        Self {
            id: member.id.clone(),
            instance_id: metadata.instance_id.clone(),
            client_id: metadata.client_id.clone(),
            session_timeout_ms: member.classic().map_or(0, |classic| classic.session_timeout_ms),
            rebalance_timeout_ms: metadata.rebalance_timeout_ms,
            protocols: protocols.collect(),
            assignment,
            joining: None,
            syncing: None,
            client_host: metadata.client_host.clone(),
            is_new: false,
            presence: match session {
                Some(Session::Client { transport, .. }) => Presence::Transport(transport.clone()),
                _ => Presence::Heartbeats(now_ms),
            },
        }
    }

    /// True if its client is another process.
    pub(crate) fn is_behind_socket(&self) -> bool {
        *self.client_host != *IN_PROCESS
    }

    /// The same member, whose client in this process was known before.
    pub(crate) fn continued(self, before: Option<&Self>) -> Self {
        match before.map(|before| &before.presence) {
            Some(Presence::Transport(transport)) => Self {
                presence: Presence::Transport(Arc::clone(transport)),
                ..self
            },
            _ => self,
        }
    }

    /// False if its client was in the process of an earlier run.
    pub(crate) fn may_be_alive(&self) -> bool {
        self.is_behind_socket() || matches!(self.presence, Presence::Transport(_))
    }

    /// A later join of the same member. Kafka: `GroupMetadata#updateMember`.
    pub(crate) fn update(&mut self, request: &JoinGroupRequest, client: &ClientLiveness, now_ms: i64) {
        self.protocols.clone_from(&request.protocols);
        self.session_timeout_ms = request.session_timeout_ms;
        self.rebalance_timeout_ms = request.rebalance_timeout_ms;
        self.belongs_to(client, now_ms);
    }

    /// Records that a request of this member came from this client.
    pub(crate) fn belongs_to(&mut self, client: &ClientLiveness, now_ms: i64) {
        if !matches!((&client.transport, &self.presence), (None, Presence::Heartbeats(_))) {
            self.presence = client.presence(now_ms);
        }
    }

    /// Restarts its session time-out. Kafka: `rescheduleClassicGroupMemberHeartbeat`.
    pub(crate) fn reschedule_heartbeat(&mut self, now_ms: i64) {
        if let Presence::Heartbeats(last_ms) = &mut self.presence {
            *last_ms = now_ms;
        }
    }

    /// Kafka: `MemberMetadata#matches`: same protocols in the same order with the same metadata.
    pub(crate) fn matches(&self, protocols: &[JoinGroupRequestProtocol]) -> bool {
        self.protocols == protocols
    }

    /// Its metadata for a protocol.
    pub(crate) fn metadata(&self, protocol: &str) -> Bytes {
        self.protocols
            .iter()
            .find(|offered| &*offered.name == protocol)
            .map(|offered| offered.metadata.clone())
            .unwrap_or_default()
    }

    /// Its session; `None` while it waits in a join or sync, as it is not removed then. A new member behind a socket has some minutes
    /// for its first join. Kafka: `ClassicGroupMember#hasSatisfiedHeartbeat`.
    pub(crate) fn session(&self) -> Option<Session> {
        let waits = self.joining.is_some() || self.syncing.is_some();
        match &self.presence {
            Presence::Heartbeats(last_ms) if self.is_new => {
                Some(Session::Until(last_ms.saturating_add(NEW_MEMBER_JOIN_TIMEOUT_MS)))
            }
            _ if waits => None,
            Presence::Heartbeats(last_ms) => {
                let timeout_ms = i64::from(self.session_timeout_ms);
                Some(Session::Until(last_ms.saturating_add(timeout_ms)))
            }
            Presence::Transport(transport) => Some(Session::Client {
                transport: transport.clone(),
                session_timeout_ms: self.session_timeout_ms,
                rebalance_timeout_ms: self.rebalance_timeout_ms,
            }),
        }
    }

    /// Completes a waiting join.
    pub(crate) fn answer_join(&mut self, response: JoinGroupResponse, changes: &Changes) {
        if let Some(answer) = self.joining.take() {
            answer.complete(Response::JoinGroup(response), changes);
        }
    }

    /// Completes a waiting sync; false: no sync waits.
    pub(crate) fn answer_sync(&mut self, response: SyncGroupResponse, changes: &Changes) -> bool {
        let Some(answer) = self.syncing.take() else {
            return false;
        };
        answer.complete(Response::SyncGroup(response), changes);
        true
    }
}
