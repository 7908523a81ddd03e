//! The member of a share group: heartbeats and what is assigned. Kafka: `ShareMembershipManager`, `ShareHeartbeatRequestManager`.
//!
//! ```text
//! Unsubscribed --subscribe--> Joining --answer--> Stable         any --leave--> Unsubscribed
//! Stable --fenced, unknown--> Joining (the assignment is lost)   any --refused--> Fatal
//! ```
//! The coordinator assigns partitions only when their state is initialised, which begins with the first member that wants them: so the answer
//! to a join may be empty, and the next heartbeats come early.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fletchlog_api::transport::HeartbeatPlan;
use fletchlog_api::{Completion, ErrorCode, Failure, Request, Response, TopicId};
use fletchlog_protocol::local::JoinSender;
use fletchlog_protocol::messages::{
    ConsumerGroupHeartbeatResponse, JOIN_GROUP_MEMBER_EPOCH, LEAVE_GROUP_MEMBER_EPOCH, ShareGroupHeartbeatRequest,
};
use fletchlog_records::TopicPartition;

use super::coordinator_request_manager::CoordinatorRequestManager;
use super::settings::Settings;
use super::topic_id_partition::TopicIdPartition;
use crate::ClientError;
use crate::consumer::consumer_network_client::ConsumerNetworkClient;
use crate::consumer::metadata::ConsumerMetadata;
use crate::net::RequestId;

/// State of the member. Kafka: `MemberState`.
#[derive(Debug, Clone)]
enum MemberState {
    Unsubscribed,
    Joining,
    Stable,
    /// The group refuses the member: every poll returns this.
    Fatal(ClientError),
}

/// The member's side of a share group.
#[derive(Debug)]
pub(super) struct ShareMembershipManager {
    settings: Arc<Settings>,
    coordinator: CoordinatorRequestManager,
    state: MemberState,
    /// Chosen by the member, and kept for its whole life.
    member_id: Arc<str>,
    epoch: i32,
    /// What the coordinator knows of the subscription.
    sent: Option<Vec<Arc<str>>>,
    /// What the coordinator has assigned last.
    target: BTreeMap<TopicId, Vec<i32>>,
    /// The part of it whose names are known.
    assigned: Vec<TopicIdPartition>,
    /// Version of the metadata in which names of the target were missing.
    unresolved_at: Option<u64>,
    interval_ms: i64,
    next_heartbeat_ms: i64,
    /// How long the next early heartbeat waits, until partitions are assigned.
    early_ms: i64,
    in_flight: Option<RequestId>,
    leave_in_flight: Option<RequestId>,
    last_poll_ms: Option<i64>,
}

/// Numbers the members whose broker is in this process, so that assignments are the same in each run.
static MEMBERS: AtomicU64 = AtomicU64::new(1);

fn new_member_id(is_in_process: bool) -> Arc<str> {
    if is_in_process {
        return format!("share-consumer-{:08x}", MEMBERS.fetch_add(1, Ordering::Relaxed)).into();
    }
    // Each `RandomState` has fresh keys, so its empty hash is a random number.
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random()).into()
}

impl ShareMembershipManager {
    pub fn new(settings: Arc<Settings>) -> Self {
        Self {
            coordinator: CoordinatorRequestManager::new(Arc::clone(&settings.group_id), settings.retry_backoff_ms),
            settings,
            state: MemberState::Unsubscribed,
            member_id: "".into(),
            epoch: JOIN_GROUP_MEMBER_EPOCH,
            sent: None,
            target: BTreeMap::new(),
            assigned: Vec::new(),
            unresolved_at: None,
            interval_ms: 0,
            next_heartbeat_ms: i64::MAX,
            early_ms: 0,
            in_flight: None,
            leave_in_flight: None,
            last_poll_ms: None,
        }
    }

    /// "" before it joins.
    pub fn member_id(&self) -> &Arc<str> {
        &self.member_id
    }

    pub fn assigned(&self) -> &[TopicIdPartition] {
        &self.assigned
    }

    /// Joins, or tells the coordinator of the changed subscription with the next heartbeat. Kafka: `onSubscriptionUpdated`.
    pub fn subscribe(&mut self, net: &mut ConsumerNetworkClient) {
        if matches!(self.state, MemberState::Unsubscribed) {
            if self.member_id.is_empty() {
                self.member_id = new_member_id(net.is_in_process());
            }
            self.join(net);
        }
    }

    fn join(&mut self, net: &mut ConsumerNetworkClient) {
        self.state = MemberState::Joining;
        self.epoch = JOIN_GROUP_MEMBER_EPOCH;
        self.sent = None;
        self.target.clear();
        self.assigned.clear();
        self.unresolved_at = None;
        self.in_flight = None;
        self.next_heartbeat_ms = net.now_ms();
        // A broker in this process has initialised the state when it answers.
        self.early_ms = if net.is_in_process() {
            0
        } else {
            self.settings.retry_backoff_ms
        };
    }

    /// One turn: a heartbeat if it is due.
    ///
    /// # Errors
    /// The group refuses the member: the same at every poll.
    pub fn poll(
        &mut self,
        net: &mut ConsumerNetworkClient,
        metadata: &mut ConsumerMetadata,
        topics: &[Arc<str>],
    ) -> Result<(), ClientError> {
        let now_ms = net.now_ms();
        match &self.state {
            MemberState::Unsubscribed => return Ok(()),
            MemberState::Fatal(error) => return Err(error.clone()),
            MemberState::Joining | MemberState::Stable => {}
        }
        let last = self.last_poll_ms.replace(now_ms).unwrap_or(now_ms);
        if now_ms.saturating_sub(last) > self.settings.max_poll_interval_ms {
            log::warn!(
                "member {} of share group {} was not polled for {} ms, longer than max.poll.interval.ms, and leaves the group; raise max.poll.interval.ms or lower max.poll.records",
                self.member_id,
                self.settings.group_id,
                now_ms.saturating_sub(last)
            );
            self.send_leave(net);
            self.join(net);
        }
        if self.unresolved_at.is_some_and(|version| version != metadata.version()) {
            self.resolve(metadata);
        }
        if self.in_flight.is_none()
            && now_ms >= self.next_heartbeat_ms
            && let Some(connection) = self.coordinator.connection(net)
        {
            let request = self.heartbeat(topics);
            self.in_flight = Some(net.send(connection, Request::ShareGroupHeartbeat(request)));
        }
        Ok(())
    }

    /// The next heartbeat: everything in a join, afterwards only what has changed.
    fn heartbeat(&mut self, topics: &[Arc<str>]) -> ShareGroupHeartbeatRequest {
        let mut request = self.empty_heartbeat(self.epoch);
        if self.sent.as_deref() != Some(topics) {
            request.subscribed_topic_names = Some(topics.to_vec());
            self.sent = Some(topics.to_vec());
        }
        if matches!(self.state, MemberState::Joining) {
            request.rack_id.clone_from(&self.settings.rack);
        }
        request
    }

    fn empty_heartbeat(&self, member_epoch: i32) -> ShareGroupHeartbeatRequest {
        ShareGroupHeartbeatRequest {
            group_id: Arc::clone(&self.settings.group_id),
            member_id: Arc::clone(&self.member_id),
            member_epoch,
            sender: JoinSender {
                client_id: Arc::clone(&self.settings.client_id),
                ..Default::default()
            },
            ..Default::default()
        }
    }

    fn leave_heartbeat(&self) -> ShareGroupHeartbeatRequest {
        ShareGroupHeartbeatRequest {
            subscribed_topic_names: Some(Vec::new()),
            ..self.empty_heartbeat(LEAVE_GROUP_MEMBER_EPOCH)
        }
    }

    fn send_leave(&mut self, net: &mut ConsumerNetworkClient) {
        // A join whose answer has not come may have made it a member.
        if self.epoch <= JOIN_GROUP_MEMBER_EPOCH && self.sent.is_none() {
            return;
        }
        if let Some(connection) = self.coordinator.connection(net) {
            let request = Request::ShareGroupHeartbeat(self.leave_heartbeat());
            self.leave_in_flight = Some(net.send(connection, request));
        }
    }

    /// Leaves the group. Kafka: `leaveGroup`.
    pub fn leave(&mut self, net: &mut ConsumerNetworkClient) {
        net.end_heartbeats();
        self.send_leave(net);
        self.join(net);
        self.state = MemberState::Unsubscribed;
        self.next_heartbeat_ms = i64::MAX;
        self.last_poll_ms = None;
    }

    pub fn is_leaving(&self) -> bool {
        self.leave_in_flight.is_some()
    }

    /// Whether the completion is of one of these requests.
    pub fn owns(&self, completion: &Completion) -> bool {
        let id = completion.correlation_id;
        self.in_flight == Some(id) || self.leave_in_flight == Some(id) || self.coordinator.owns(id)
    }

    /// Takes the response of one of these requests.
    pub fn on_completion(
        &mut self,
        completion: Completion,
        net: &mut ConsumerNetworkClient,
        metadata: &mut ConsumerMetadata,
    ) {
        let (id, now_ms) = (completion.correlation_id, net.now_ms());
        if self.coordinator.owns(id) {
            if let Err(code) = self.coordinator.on_response(completion.result.as_ref().ok(), now_ms) {
                self.refuse(code, "the coordinator of the group could not be found");
            }
            return;
        }
        if self.leave_in_flight == Some(id) {
            self.leave_in_flight = None;
            return;
        }
        self.in_flight = None;
        match completion.result {
            Ok(Response::ShareGroupHeartbeat(answer)) => self.on_answer(&answer.into(), now_ms, net, metadata),
            Err(Failure::UnsupportedVersion(why)) => self.refuse(
                ErrorCode::UNSUPPORTED_VERSION,
                &format!("{why}: the cluster has no share groups (Kafka 4.2 or later has)"),
            ),
            _ => {
                self.coordinator.mark_unknown();
                self.retry(now_ms);
            }
        }
    }

    /// A heartbeat had no answer that helps: the next one says everything that the lost one said.
    fn retry(&mut self, now_ms: i64) {
        self.sent = None;
        self.next_heartbeat_ms = now_ms.saturating_add(self.settings.retry_backoff_ms);
    }

    /// Kafka: `onHeartbeatSuccess`, `onErrorResponse`.
    fn on_answer(
        &mut self,
        answer: &ConsumerGroupHeartbeatResponse,
        sent_ms: i64,
        net: &mut ConsumerNetworkClient,
        metadata: &mut ConsumerMetadata,
    ) {
        let now_ms = net.now_ms();
        if !matches!(self.state, MemberState::Joining | MemberState::Stable) {
            return;
        }
        match answer.error_code {
            ErrorCode::NONE => self.on_success(answer, sent_ms, now_ms, metadata),
            ErrorCode::COORDINATOR_NOT_AVAILABLE | ErrorCode::NOT_COORDINATOR => {
                self.coordinator.mark_unknown();
                self.retry(now_ms);
            }
            // The assignment is lost; the sessions and what they have acquired are not.
            ErrorCode::FENCED_MEMBER_EPOCH | ErrorCode::UNKNOWN_MEMBER_ID => self.join(net),
            code if code.is_retriable() => self.retry(now_ms),
            ErrorCode::GROUP_ID_NOT_FOUND => self.refuse(
                ErrorCode::GROUP_ID_NOT_FOUND,
                "a group of another type has this group.id, which is no share group: choose another one",
            ),
            code => {
                let why = answer.error_message.as_deref().unwrap_or("no more is known");
                self.refuse(code, &format!("the coordinator refused the member: {why}"));
            }
        }
    }

    fn on_success(
        &mut self,
        answer: &ConsumerGroupHeartbeatResponse,
        sent_ms: i64,
        now_ms: i64,
        metadata: &mut ConsumerMetadata,
    ) {
        self.state = MemberState::Stable;
        self.epoch = answer.member_epoch;
        self.interval_ms = i64::from(answer.heartbeat_interval_ms);
        self.next_heartbeat_ms = sent_ms.saturating_add(self.interval_ms);
        if let Some(assignment) = &answer.assignment {
            let topics = assignment.topic_partitions.iter();
            self.target = topics.map(|topic| (topic.topic_id, topic.partitions.clone())).collect();
            self.resolve(metadata);
            // Acknowledges the assignment.
            self.next_heartbeat_ms = now_ms;
        }
        if self.target.is_empty() && self.early_ms < self.interval_ms {
            self.next_heartbeat_ms = now_ms.saturating_add(self.early_ms);
            self.early_ms = self.early_ms.saturating_mul(2).max(self.settings.retry_backoff_ms);
        }
    }

    fn refuse(&mut self, code: ErrorCode, what: &str) {
        let what = format_args!("{what} (share group {})", self.settings.group_id);
        self.state = MemberState::Fatal(ClientError::kafka(code, what));
        self.assigned.clear();
    }

    /// Finds the names of the assigned topics.
    fn resolve(&mut self, metadata: &mut ConsumerMetadata) {
        let mut is_complete = true;
        self.assigned.clear();
        for (topic_id, partitions) in &self.target {
            let Some(name) = metadata.topic_name(topic_id) else {
                is_complete = false;
                continue;
            };
            let of_topic = partitions.iter().map(|&partition| TopicIdPartition {
                topic_id: *topic_id,
                tp: TopicPartition::new(Arc::clone(&name), partition),
            });
            self.assigned.extend(of_topic);
        }
        self.unresolved_at = (!is_complete).then_some(metadata.version());
        if !is_complete {
            metadata.request_update();
        }
    }

    /// When the next turn has something to do; `None`: only a response can help.
    pub fn next_deadline_ms(&self) -> Option<i64> {
        let is_member = matches!(self.state, MemberState::Joining | MemberState::Stable);
        if !is_member || self.in_flight.is_some() {
            return None;
        }
        match self.coordinator.is_known() {
            true => Some(self.next_heartbeat_ms),
            false => self
                .coordinator
                .next_deadline_ms()
                .map(|at| at.max(self.next_heartbeat_ms)),
        }
    }

    /// A poll begins: the member sends heartbeats itself again, and takes the result of those sent since the last poll.
    pub fn take_heartbeats_over(&mut self, net: &mut ConsumerNetworkClient, metadata: &mut ConsumerMetadata) {
        let Some(last) = net.end_heartbeats() else { return };
        match &last.response {
            Some(answer) if self.in_flight.is_none() => self.on_answer(answer, last.sent_ms, net, metadata),
            _ => {}
        }
    }

    /// The poll ends: the transport sends the heartbeats until the next one.
    pub fn hand_heartbeats_over(&self, net: &mut ConsumerNetworkClient) {
        let Some(last_poll_ms) = self.last_poll_ms.filter(|_| matches!(self.state, MemberState::Stable)) else {
            return;
        };
        net.begin_heartbeats(HeartbeatPlan {
            group_id: Arc::clone(&self.settings.group_id),
            request: Request::ShareGroupHeartbeat(self.empty_heartbeat(self.epoch)),
            leave: Some(Request::ShareGroupHeartbeat(self.leave_heartbeat())),
            next_ms: self.next_heartbeat_ms,
            interval_ms: self.interval_ms,
            retry_backoff_ms: self.settings.retry_backoff_ms,
            leave_at_ms: last_poll_ms.saturating_add(self.settings.max_poll_interval_ms),
        });
    }
}
