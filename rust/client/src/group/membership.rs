//! State of a member of a group. Kafka: `AbstractCoordinator.MemberState`, `Generation`.
//!
//! ```text
//!  Unjoined --prepare--> Joining --leader--> Leading --metadata known--> SyncDue --> Syncing --> Stable
//!  Stable --rejoin, auto commit--> Committing --committed or too late--> Joining    (follower: Joining --> SyncDue)
//!  Joining, Syncing --error or lost--> Unjoined (the member id is kept, except after 22 and 25)
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fletchlog_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use fletchlog_records::TopicPartition;

use super::offsets::OperationId;
use crate::assignor::{Assignor, Racks, Subscriptions};
use crate::net::RequestId;

/// "No generation".
pub(super) const NO_GENERATION: i32 = -1;

/// State of the member. Kafka: `AbstractCoordinator.MemberState`, with more states for what it waits for.
#[derive(Debug, PartialEq)]
pub(super) enum State {
    /// Not in a generation.
    Unjoined,
    /// Still stable; positions are being committed before the partitions are revoked.
    Committing { operation: OperationId, give_up_at_ms: i64 },
    /// JoinGroup sent.
    Joining { request: RequestId },
    /// Chosen as the leader; the topics' partitions may not all be known yet.
    Leading {
        assignor: Assignor,
        subscriptions: Subscriptions,
    },
    /// SyncGroup to be sent with these assignments (a follower has none).
    SyncDue {
        assignments: Vec<SyncGroupRequestAssignment>,
    },
    /// SyncGroup sent.
    Syncing { request: RequestId },
    /// Has an assignment.
    Stable,
}

/// The member's side of a group.
#[derive(Debug)]
pub(super) struct Membership {
    pub state: State,
    pub generation: i32,
    pub member_id: Arc<str>,
    /// The assignor that the group chose for this generation. A broker checks that it is its own choice (KIP-559).
    pub protocol_name: Option<Arc<str>>,
    pub rejoin_needed: bool,
    /// Whether a group assigns partitions (subscribe), as of the last poll.
    pub subscribed: bool,
    pub next_heartbeat_ms: i64,
    pub heartbeat_in_flight: bool,
    pub leave_in_flight: Option<RequestId>,
    pub needs_join_prepare: bool,
    /// No join before this time, after a failure.
    pub retry_at_ms: i64,
    pub last_poll_ms: Option<i64>,
    pub joined_topics: BTreeSet<Arc<str>>,
    /// As leader: the topics that the assignment was computed with. Kafka: `ConsumerCoordinator.MetadataSnapshot`.
    pub assigned_with: Option<BTreeMap<Arc<str>, TopicSnapshot>>,
    /// The last assignment, for the sticky assignor.
    pub last_assignment: Vec<TopicPartition>,
    pub last_generation: i32,
}

/// What is remembered of a topic that was assigned.
#[derive(Debug, PartialEq, Eq)]
pub struct TopicSnapshot {
    /// Number of partitions, if it was known.
    pub partitions: Option<i32>,
    /// Racks of its replicas, if this member has a rack.
    pub racks: Vec<Racks>,
}

impl Default for Membership {
    fn default() -> Self {
        Self {
            state: State::Unjoined,
            generation: NO_GENERATION,
            member_id: "".into(),
            protocol_name: None,
            rejoin_needed: true,
            subscribed: false,
            next_heartbeat_ms: i64::MAX,
            heartbeat_in_flight: false,
            leave_in_flight: None,
            needs_join_prepare: true,
            retry_at_ms: i64::MIN,
            last_poll_ms: None,
            joined_topics: BTreeSet::new(),
            assigned_with: None,
            last_assignment: Vec::new(),
            last_generation: NO_GENERATION,
        }
    }
}

impl Membership {
    /// Whether the member is in a generation with an assignment: then commits may carry it.
    pub fn is_stable(&self) -> bool {
        matches!(self.state, State::Stable | State::Committing { .. })
    }

    pub fn wants_coordinator(&self) -> bool {
        self.subscribed && (self.rejoin_needed || !self.is_stable())
    }

    /// When the next heartbeat is due; `i64::MAX` while one is in flight, and outside a generation.
    pub fn heartbeat_due_at_ms(&self) -> i64 {
        let in_generation = self.is_stable() || matches!(self.state, State::Syncing { .. });
        if in_generation && !self.heartbeat_in_flight {
            self.next_heartbeat_ms
        } else {
            i64::MAX
        }
    }

    pub fn next_deadline_ms(&self, now_ms: i64, coordinator_known: bool) -> i64 {
        if !self.subscribed || !coordinator_known {
            return i64::MAX;
        }
        let step = match &self.state {
            State::Unjoined => self.retry_at_ms.max(now_ms),
            State::Committing { give_up_at_ms, .. } => *give_up_at_ms,
            State::SyncDue { .. } => now_ms,
            State::Stable if self.rejoin_needed => now_ms,
            State::Joining { .. } | State::Leading { .. } | State::Syncing { .. } | State::Stable => i64::MAX,
        };
        self.heartbeat_due_at_ms().min(step)
    }

    /// The join or sync was lost with its connection.
    pub fn on_rebalance_request_lost(&mut self, id: RequestId, retry_at_ms: i64) {
        let waited_for = match self.state {
            State::Joining { request } | State::Syncing { request } => request == id,
            _ => false,
        };
        if waited_for {
            self.back_to_join(retry_at_ms);
        }
    }

    /// Schedules a new join with the same member id.
    pub fn back_to_join(&mut self, retry_at_ms: i64) {
        self.state = State::Unjoined;
        self.rejoin_needed = true;
        self.retry_at_ms = retry_at_ms;
    }

    /// Drops the membership: the member joins as a new one.
    pub fn reset(&mut self) {
        self.generation = NO_GENERATION;
        self.member_id = "".into();
        self.state = State::Unjoined;
        self.rejoin_needed = true;
        self.needs_join_prepare = true;
        self.next_heartbeat_ms = i64::MAX;
        self.assigned_with = None;
    }
}
