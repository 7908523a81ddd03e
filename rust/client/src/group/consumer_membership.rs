//! State of a member of a consumer group (KIP-848, spec 8.13). Kafka: `ConsumerMembershipManager`,
//! `ConsumerHeartbeatRequestManager.HeartbeatState`.
//!
//! ```text
//! Unsubscribed --subscribe--> Joining --answer--> Reconciling --applied--> Acknowledging --answer--> Stable
//! Acknowledging, Stable --an answer with another assignment--> Reconciling
//! any but Unsubscribed --fenced--> Joining (the partitions are lost first)     any --leave--> Unsubscribed
//! ```

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fletchlog_api::TopicId;
use fletchlog_protocol::local::JoinSender;
use fletchlog_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use fletchlog_protocol::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, JOIN_GROUP_MEMBER_EPOCH, LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
};

use super::coordinator::Settings;
use super::offsets::OperationId;
use crate::net::RequestId;

/// State of the member. Kafka: `MemberState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemberState {
    /// Not in the group.
    Unsubscribed,
    /// The coordinator gives it an epoch with its next answer.
    Joining,
    /// Another assignment has come, and is not applied yet.
    Reconciling,
    /// The assignment is applied, and the coordinator does not know it yet.
    Acknowledging,
    /// It has what the coordinator has assigned.
    Stable,
}

/// Partitions by topic.
pub(super) type Assignment = BTreeMap<TopicId, Vec<i32>>;

/// What the members subscribe to: names, or a regular expression that the coordinator resolves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subscribed {
    Names(Vec<Arc<str>>),
    Regex(Arc<str>),
}

/// The member's side of a consumer group.
#[derive(Debug)]
pub(super) struct ConsumerMembership {
    pub state: MemberState,
    /// Chosen by the member, and kept for its whole life, also over leaving and joining again.
    pub member_id: Arc<str>,
    pub epoch: i32,
    /// group.remote.assignor.
    pub assignor: Option<Arc<str>>,
    /// What the coordinator has assigned last.
    pub target: Assignment,
    /// What the member has applied of it.
    pub owned: Assignment,
    /// Topics of the target whose names are not known, and the version of the metadata in which they were looked for.
    pub unresolved_at: Option<u64>,
    /// The commit before partitions are given up, and when it is given up itself.
    pub commit: Option<(OperationId, i64)>,
    /// The assignment is handed over: the listener's turn, if there is one.
    pub applying: bool,
    /// What the coordinator knows of the subscription.
    pub sent: Option<Subscribed>,
    pub interval_ms: i64,
    pub next_heartbeat_ms: i64,
    pub in_flight: Option<RequestId>,
    /// The heartbeat in flight reports to the coordinator what the member owns.
    pub acknowledges: bool,
    pub last_poll_ms: Option<i64>,
}

/// Numbers the members whose broker is in this process.
static MEMBERS: AtomicU64 = AtomicU64::new(1);

/// An id that no other member has. With a broker in this process it is a number, so that assignments are the same in each run.
fn new_member_id(client_id: &str, is_in_process: bool) -> Arc<str> {
    if is_in_process {
        return format!("{client_id}-{:08x}", MEMBERS.fetch_add(1, Ordering::Relaxed)).into();
    }
    // Each `RandomState` has fresh keys, so its empty hash is a random number.
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random()).into()
}

impl ConsumerMembership {
    pub fn new(assignor: Option<Arc<str>>) -> Self {
        Self {
            state: MemberState::Unsubscribed,
            member_id: "".into(),
            epoch: JOIN_GROUP_MEMBER_EPOCH,
            assignor,
            target: Assignment::new(),
            owned: Assignment::new(),
            unresolved_at: None,
            commit: None,
            applying: false,
            sent: None,
            interval_ms: 0,
            next_heartbeat_ms: i64::MAX,
            in_flight: None,
            acknowledges: false,
            last_poll_ms: None,
        }
    }

    /// It joins with its next heartbeat, which is due now. Kafka: `transitionToJoining`.
    pub fn join(&mut self, client_id: &str, is_in_process: bool, now_ms: i64) {
        if self.member_id.is_empty() {
            self.member_id = new_member_id(client_id, is_in_process);
        }
        self.rejoin(now_ms);
    }

    /// As [`Self::join`], with the id that it has.
    pub fn rejoin(&mut self, now_ms: i64) {
        self.reset();
        self.state = MemberState::Joining;
        self.next_heartbeat_ms = now_ms;
    }

    /// It has no place in the group.
    pub fn reset(&mut self) {
        *self = Self {
            member_id: Arc::clone(&self.member_id),
            last_poll_ms: self.last_poll_ms,
            interval_ms: self.interval_ms,
            ..Self::new(self.assignor.take())
        };
    }

    /// Whether it has an epoch: then commits may carry it.
    pub fn is_member(&self) -> bool {
        self.epoch > JOIN_GROUP_MEMBER_EPOCH
    }

    pub fn wants_coordinator(&self) -> bool {
        self.state != MemberState::Unsubscribed
    }

    /// When the next heartbeat is due; `i64::MAX` while one is in flight, and outside the group.
    pub fn heartbeat_due_at_ms(&self) -> i64 {
        match self.in_flight.is_none() && self.state != MemberState::Unsubscribed {
            true => self.next_heartbeat_ms,
            false => i64::MAX,
        }
    }

    /// The next heartbeat: everything in a join, afterwards only what has changed.
    pub fn heartbeat(&mut self, settings: &Settings, subscribed: Subscribed) -> ConsumerGroupHeartbeatRequest {
        let joins = self.state == MemberState::Joining;
        let mut request = self.empty_heartbeat(settings, self.epoch);
        if joins {
            request.rebalance_timeout_ms = settings.max_poll_interval_ms;
            request.server_assignor.clone_from(&self.assignor);
            request.topic_partitions = Some(Vec::new());
        }
        self.acknowledges = self.state == MemberState::Acknowledging;
        if self.acknowledges {
            request.topic_partitions = Some(topic_partitions(&self.owned));
        }
        if joins || self.sent.as_ref() != Some(&subscribed) {
            let (names, regex) = match &subscribed {
                // Only version 1 has a regex. One that was sent before is taken back.
                Subscribed::Names(names) => {
                    let had_regex = matches!(self.sent, Some(Subscribed::Regex(_)));
                    (names.clone(), had_regex.then(|| Arc::from("")))
                }
                Subscribed::Regex(regex) => (Vec::new(), Some(Arc::clone(regex))),
            };
            request.subscribed_topic_names = Some(names);
            request.subscribed_topic_regex = regex;
            self.sent = Some(subscribed);
        }
        request
    }

    /// The heartbeat that changes nothing: for the time between two polls.
    pub fn empty_heartbeat(&self, settings: &Settings, member_epoch: i32) -> ConsumerGroupHeartbeatRequest {
        ConsumerGroupHeartbeatRequest {
            group_id: Arc::clone(&settings.group_id),
            member_id: Arc::clone(&self.member_id),
            member_epoch,
            instance_id: settings.group_instance_id.clone(),
            sender: JoinSender {
                client_id: Arc::clone(&settings.client_id),
                ..Default::default()
            },
            ..Default::default()
        }
    }

    /// The heartbeat that leaves: a static member for some time, as its next client takes its place. Kafka: `leaveGroupEpoch`.
    pub fn leave_heartbeat(&self, settings: &Settings) -> ConsumerGroupHeartbeatRequest {
        let epoch = match settings.group_instance_id {
            Some(_) => LEAVE_GROUP_STATIC_MEMBER_EPOCH,
            None => LEAVE_GROUP_MEMBER_EPOCH,
        };
        ConsumerGroupHeartbeatRequest {
            subscribed_topic_names: Some(Vec::new()),
            topic_partitions: Some(Vec::new()),
            ..self.empty_heartbeat(settings, epoch)
        }
    }

    /// Takes an answer without an error. Kafka: `onHeartbeatSuccess`.
    pub fn on_answer(&mut self, answer: &ConsumerGroupHeartbeatResponse, sent_ms: i64) {
        if self.state == MemberState::Unsubscribed {
            return;
        }
        self.epoch = answer.member_epoch;
        self.interval_ms = i64::from(answer.heartbeat_interval_ms);
        self.next_heartbeat_ms = sent_ms.saturating_add(self.interval_ms);
        if std::mem::take(&mut self.acknowledges) && self.state == MemberState::Acknowledging {
            self.state = MemberState::Stable;
        }
        if let Some(assignment) = &answer.assignment {
            let topics = assignment.topic_partitions.iter();
            let topics = topics.map(|topic| (topic.topic_id, topic.partitions.clone()));
            self.target = topics.collect();
            self.unresolved_at = None;
            self.state = MemberState::Reconciling;
        } else if self.state == MemberState::Joining {
            self.state = MemberState::Reconciling;
        }
    }
}

fn topic_partitions(assignment: &Assignment) -> Vec<TopicPartitions> {
    let topic = |(topic_id, partitions): (&TopicId, &Vec<i32>)| TopicPartitions {
        topic_id: *topic_id,
        partitions: partitions.clone(),
    };
    assignment.iter().map(topic).collect()
}
