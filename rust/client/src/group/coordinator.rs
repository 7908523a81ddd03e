//! The facade: one turn of the group's client, and the search for the coordinator. Kafka: `ConsumerCoordinator`,
//! `AbstractCoordinator`, 2.6.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::transport::coordinator_connection;
use fletchlog_api::{
    Completion, Config, CoordinatorType, ErrorCode, Failure, FindCoordinatorRequest, NodeId, Request, Response, TopicId,
};
use fletchlog_records::TopicPartition;

use super::ConsumerGroupMetadata;
use super::consumer_membership::ConsumerMembership;
use super::membership::{Membership, State};
use super::offsets::{Offsets, OperationId};
use crate::ClientError;
use crate::assignor::{Assignor, Racks};
use crate::consumer::RebalanceEvent;
use crate::consumer::consumer_network_client::ConsumerNetworkClient;
use crate::consumer::subscription_state::SubscriptionState;
use crate::net::RequestId;

/// Properties of a member.
#[derive(Debug)]
pub(super) struct Settings {
    pub group_id: Arc<str>,
    pub client_id: Arc<str>,
    pub group_instance_id: Option<Arc<str>>,
    pub session_timeout_ms: i32,
    pub heartbeat_interval_ms: i64,
    /// max.poll.interval.ms, which is also the rebalance timeout.
    pub max_poll_interval_ms: i32,
    pub retry_backoff_ms: i64,
    pub assignors: Vec<Assignor>,
    /// Version of the subscriptions and assignments that are written.
    pub protocol_version: i16,
    /// client.rack, if the release sends it.
    pub rack: Option<Arc<str>>,
    /// Whether the leader looks at racks (KIP-881).
    pub rack_aware: bool,
    /// auto.commit.interval.ms under enable.auto.commit.
    pub auto_commit_interval_ms: Option<i64>,
}

impl Settings {
    /// Kafka: the protocol is cooperative only if every assignor is.
    pub fn is_cooperative(&self) -> bool {
        self.assignors.iter().all(|assignor| assignor.is_cooperative())
    }
}

/// What an outstanding request was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    FindCoordinator,
    Join,
    Sync,
    Heartbeat,
    Leave,
    Operation(OperationId),
}

/// What is known of the topics that a leader assigns.
#[derive(Clone, Copy)]
pub struct GroupTopics<'a> {
    /// Number of partitions of a topic, if it is known.
    pub partitions: &'a dyn Fn(&str) -> Option<i32>,
    /// Racks of its replicas, by partition.
    pub racks: &'a dyn Fn(&str) -> &'a [Racks],
    /// No metadata request for new topics is pending. Kafka: `ConsumerNetworkClient#ensureFreshMetadata`.
    pub are_fresh: bool,
    /// Name of a topic, if its id is known.
    pub name: &'a dyn Fn(&TopicId) -> Option<Arc<str>>,
    /// Version of the metadata.
    pub version: u64,
}

/// The group's coordinator, if known.
#[derive(Debug, Default)]
struct Lookup {
    node: Option<NodeId>,
    in_flight: bool,
    retry_at_ms: i64,
}

/// The assignment that applies as soon as the listener has received what it loses.
#[derive(Debug)]
pub(super) struct NextAssignment {
    pub partitions: Vec<TopicPartition>,
    /// The new ones among them, if a generation assigned them.
    pub added: Option<Vec<TopicPartition>>,
}

/// The client of one group: membership, rebalances, heartbeats, offsets. It never waits; see the seam in `group/mod.rs`.
///
/// A consumer without subscribe() uses it for offsets only; its commits carry generation -1.
#[derive(Debug)]
pub struct ConsumerCoordinator {
    pub(super) settings: Settings,
    pub(super) membership: Membership,
    /// The member of a consumer group: under group.protocol=consumer, in place of `membership`.
    pub(super) consumer: Option<ConsumerMembership>,
    pub(super) offsets: Offsets,
    pub(super) events: Vec<RebalanceEvent>,
    /// There is a listener: a rebalance waits until it has received its events.
    listens: bool,
    pub(super) next_assignment: Option<NextAssignment>,
    pub(super) outstanding: BTreeMap<RequestId, Purpose>,
    lookup: Lookup,
    /// An error after which the group is closed to this member (fenced, refused); every poll returns it.
    fatal: Option<ClientError>,
}

/// From this release on a session lasts 45 s by default, and the cooperative assignor is offered after range (KIP-735,
/// KIP-726; spec 7.1).
const NEW_DEFAULTS: (u32, u32) = (3, 0);

/// From this release on subscriptions are written with generation and rack.
const SUBSCRIPTION_WITH_RACK: (u32, u32) = (3, 4);
/// From this release on assignors look at racks (KIP-881).
const RACK_AWARE: (u32, u32) = (3, 5);

/// session.timeout.ms, or the default of the selected release.
pub(crate) fn session_timeout_ms(config: &Config) -> i32 {
    if !config.is_explicit("session.timeout.ms") && config.release("fletchlog.consumer.version") >= NEW_DEFAULTS {
        45_000
    } else {
        config.int("session.timeout.ms")
    }
}

/// partition.assignment.strategy, or the default of the selected release.
fn assignors(config: &Config) -> Vec<Assignor> {
    let given: Vec<Assignor> = config
        .list("partition.assignment.strategy")
        .into_iter()
        .filter_map(Assignor::from_name)
        .collect();
    if config.is_explicit("partition.assignment.strategy") && !given.is_empty() {
        return given;
    }
    if config.release("fletchlog.consumer.version") >= NEW_DEFAULTS {
        vec![Assignor::Range, Assignor::CooperativeSticky]
    } else {
        vec![Assignor::Range]
    }
}

impl ConsumerCoordinator {
    /// `None` without group.id.
    pub fn new(config: &Config) -> Option<Self> {
        let group_id: Arc<str> = config.get("group.id")?.into();
        let group_instance_id: Option<Arc<str>> = config.get("group.instance.id").map(Arc::from);
        let release = config.release("fletchlog.consumer.version");
        let settings = Settings {
            group_id,
            client_id: config.text("client.id").into(),
            group_instance_id,
            session_timeout_ms: session_timeout_ms(config),
            heartbeat_interval_ms: i64::from(config.int("heartbeat.interval.ms")),
            max_poll_interval_ms: config.int("max.poll.interval.ms"),
            retry_backoff_ms: config.long("retry.backoff.ms"),
            assignors: assignors(config),
            protocol_version: if release >= SUBSCRIPTION_WITH_RACK { 3 } else { 1 },
            rack: config
                .get("client.rack")
                .filter(|rack| !rack.is_empty() && release >= SUBSCRIPTION_WITH_RACK)
                .map(Arc::from),
            rack_aware: release >= RACK_AWARE,
            auto_commit_interval_ms: config
                .boolean("enable.auto.commit")
                .then(|| i64::from(config.int("auto.commit.interval.ms"))),
        };
        Some(Self {
            settings,
            membership: Membership::default(),
            consumer: (config.text("group.protocol") == "consumer")
                .then(|| ConsumerMembership::new(config.get("group.remote.assignor").map(Arc::from))),
            offsets: Offsets::default(),
            events: Vec::new(),
            listens: false,
            next_assignment: None,
            outstanding: BTreeMap::new(),
            lookup: Lookup::default(),
            fatal: None,
        })
    }

    /// One turn: finds the coordinator, joins, syncs, sends heartbeats, commits by the timer. The auto commit takes the
    /// current positions, that is, what earlier polls returned (spec 7.12). There is none during a rebalance, which
    /// commits by itself. Kafka: `ConsumerCoordinator#poll`, `CommitRequestManager#maybeAutoCommitAsync`.
    ///
    /// # Errors
    /// A final refusal by the group (fenced, inconsistent protocol, invalid session timeout, ...): the same at every
    /// poll.
    pub fn poll(
        &mut self,
        net: &mut ConsumerNetworkClient,
        subs: &mut SubscriptionState,
        topics: GroupTopics<'_>,
        now_ms: i64,
    ) -> Result<(), ClientError> {
        self.check_fatal()?;
        if self.consumer.is_some() {
            self.consumer_turn(net, subs, topics, now_ms);
            if !self.is_revoking() {
                self.maybe_auto_commit(subs, now_ms);
            }
            return self.drive(net, subs, now_ms);
        }
        self.membership.subscribed = subs.has_auto_assigned_partitions();
        if self.membership.subscribed {
            self.check_poll_interval(net, now_ms);
            self.take_over(subs);
            if !self.has_events_for_listener() && self.rejoin_needed(subs, topics) {
                self.advance_rebalance(net, subs, topics, now_ms)?;
            }
        }
        if !self.rejoin_needed_or_pending() {
            self.maybe_auto_commit(subs, now_ms);
        }
        self.drive(net, subs, now_ms)
    }

    /// Sends pending commits and lookups of committed offsets, and a heartbeat if it is due.
    ///
    /// # Errors
    /// As `poll`.
    pub fn drive(
        &mut self,
        net: &mut ConsumerNetworkClient,
        subs: &SubscriptionState,
        now_ms: i64,
    ) -> Result<(), ClientError> {
        self.check_fatal()?;
        match self.consumer {
            Some(_) => self.consumer_heartbeat_if_due(net, subs, now_ms),
            None => self.heartbeat_if_due(net, now_ms),
        }
        self.send_operations(net, subs, now_ms);
        Ok(())
    }

    /// Takes a completion. Returns whether it is of one of this coordinator's requests.
    ///
    /// # Errors
    /// As `poll`.
    pub fn on_completion(
        &mut self,
        completion: Completion,
        subs: &mut SubscriptionState,
        now_ms: i64,
    ) -> Result<bool, ClientError> {
        let Some(purpose) = self.outstanding.remove(&completion.correlation_id) else {
            return Ok(false);
        };
        let Completion {
            correlation_id, result, ..
        } = completion;
        match (purpose, result) {
            (Purpose::FindCoordinator, result) => self.on_coordinator_found(result.ok(), now_ms)?,
            (Purpose::Leave, _) => self.membership.leave_in_flight = None,
            (Purpose::Heartbeat, Err(Failure::UnsupportedVersion(why))) => {
                let what = format!("{why}: the cluster knows no groups of group.protocol=consumer; use classic");
                return Err(self.refused_for_good(ErrorCode::UNSUPPORTED_VERSION, &what));
            }
            (purpose, Err(_)) => {
                self.coordinator_unknown();
                self.on_lost(purpose, correlation_id, now_ms);
            }
            (Purpose::Join, Ok(Response::JoinGroup(response))) => {
                self.on_join_response(correlation_id, response, subs, now_ms)?
            }
            (Purpose::Sync, Ok(Response::SyncGroup(response))) => {
                self.on_sync_response(correlation_id, &response, subs, now_ms)?
            }
            (Purpose::Heartbeat, Ok(Response::Heartbeat(answered))) => {
                self.on_heartbeat_response(answered.error_code, now_ms)?
            }
            (Purpose::Heartbeat, Ok(Response::ConsumerGroupHeartbeat(answered))) => {
                self.on_consumer_answer(correlation_id, &answered, subs, now_ms)?
            }
            (Purpose::Operation(id), Ok(response)) => self.on_operation_response(id, response, now_ms),
            (_, Ok(other)) => {
                return Err(ClientError::IllegalState(format!(
                    "the coordinator answered {purpose:?} with {other:?}"
                )));
            }
        }
        Ok(true)
    }

    fn on_lost(&mut self, purpose: Purpose, id: RequestId, now_ms: i64) {
        match purpose {
            Purpose::Join | Purpose::Sync => self
                .membership
                .on_rebalance_request_lost(id, now_ms + self.settings.retry_backoff_ms),
            Purpose::Heartbeat if self.consumer.is_some() => self.consumer_heartbeat_failed(now_ms),
            Purpose::Heartbeat => self.heartbeat_failed(now_ms),
            Purpose::Operation(operation) => self.operation_lost(operation, now_ms),
            Purpose::FindCoordinator | Purpose::Leave => {}
        }
    }

    /// Whether the member has to (re)join, or is doing so (spec 7.4): then a poll takes no records after its network
    /// turn.
    pub fn rejoin_needed_or_pending(&self) -> bool {
        self.membership.subscribed && (self.membership.rejoin_needed || self.membership.state != State::Stable)
    }

    /// Whether positions are being committed before partitions are revoked: by an eager rebalance, or by a member of a consumer group. Until it
    /// ends the positions must not move: that commit may be repeated, and would undo a later one.
    pub fn is_revoking(&self) -> bool {
        if let Some(member) = &self.consumer {
            return member.commit.is_some();
        }
        !self.settings.is_cooperative() && matches!(self.membership.state, State::Committing { .. })
    }

    /// Time (monotonic ms, after `now_ms`) of the next turn that has something to do; `i64::MAX` if only a response can
    /// help. What is due at `now_ms` was done by the turn before.
    pub fn next_deadline_ms(&self, now_ms: i64) -> i64 {
        let known = self.lookup.node.is_some();
        let operations = self.offsets.next_retry_ms();
        let is_member = self
            .consumer
            .as_ref()
            .is_some_and(ConsumerMembership::wants_coordinator);
        let wanted = is_member || self.membership.wants_coordinator() || operations < i64::MAX;
        let lookup = if wanted && !known && !self.lookup.in_flight {
            self.lookup.retry_at_ms
        } else {
            i64::MAX
        };
        let operations = if known { operations } else { i64::MAX };
        let auto_commit = match self.offsets.auto_commit_at_ms {
            Some(due_at) if !self.rejoin_needed_or_pending() && !self.is_revoking() => due_at,
            _ => i64::MAX,
        };
        let membership = match &self.consumer {
            Some(member) if known => member.heartbeat_due_at_ms(),
            _ => self.membership.next_deadline_ms(now_ms, known),
        };
        auto_commit
            .min(operations)
            .min(lookup)
            .min(membership)
            .max(now_ms.saturating_add(1))
    }

    /// Sets whether a listener takes the events: then a rebalance waits for it, and the partitions that it loses stay
    /// assigned until then.
    pub fn listen(&mut self, on: bool) {
        self.listens = on;
    }

    /// Whether there is a listener, and events that it has not received.
    pub fn has_events_for_listener(&self) -> bool {
        self.listens && !self.events.is_empty()
    }

    /// Events for rebalance listeners since the last call, in order.
    pub fn take_events(&mut self) -> Vec<RebalanceEvent> {
        std::mem::take(&mut self.events)
    }

    /// Identity of this member. Before it joins and after it has left, the member id is "" and the generation -1.
    pub fn group_metadata(&self) -> ConsumerGroupMetadata {
        let (generation_id, member_id) = match &self.consumer {
            Some(member) if member.is_member() => (member.epoch, Arc::clone(&member.member_id)),
            _ => (self.membership.generation, Arc::clone(&self.membership.member_id)),
        };
        ConsumerGroupMetadata {
            group_id: Arc::clone(&self.settings.group_id),
            generation_id,
            member_id,
            group_instance_id: self.settings.group_instance_id.clone(),
        }
    }

    /// Whether close() must commit.
    pub fn auto_commit_enabled(&self) -> bool {
        self.settings.auto_commit_interval_ms.is_some()
    }

    /// Connection of the coordinator; starts a lookup if it is unknown.
    /// Kafka: `AbstractCoordinator#ensureCoordinatorReady`.
    pub(super) fn coordinator(&mut self, net: &mut ConsumerNetworkClient, now_ms: i64) -> Option<NodeId> {
        if let Some(node) = self.lookup.node {
            return Some(coordinator_connection(node));
        }
        if !self.lookup.in_flight && now_ms >= self.lookup.retry_at_ms {
            let Some(node) = net.least_loaded_node() else {
                self.lookup.retry_at_ms = now_ms + self.settings.retry_backoff_ms;
                return None;
            };
            let group_id = Arc::clone(&self.settings.group_id);
            let lookup = FindCoordinatorRequest::of(CoordinatorType::Group, group_id);
            let id = net.send(node, Request::FindCoordinator(lookup));
            self.outstanding.insert(id, Purpose::FindCoordinator);
            self.lookup.in_flight = true;
        }
        None
    }

    fn on_coordinator_found(&mut self, response: Option<Response>, now_ms: i64) -> Result<(), ClientError> {
        self.lookup.in_flight = false;
        let found = match response {
            Some(Response::FindCoordinator(found)) => found.coordinator_node(),
            _ => Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
        };
        match found {
            Ok(node) => {
                self.lookup.node = Some(node);
                // A heartbeat is due at once after the coordinator moved.
                self.membership.next_heartbeat_ms = self.membership.next_heartbeat_ms.min(now_ms);
                if let Some(member) = &mut self.consumer {
                    member.next_heartbeat_ms = member.next_heartbeat_ms.min(now_ms);
                }
                Ok(())
            }
            Err(error) => {
                self.lookup.retry_at_ms = now_ms + self.settings.retry_backoff_ms;
                match error.is_retriable() {
                    true => Ok(()),
                    false => Err(self.refused(error, "the coordinator of the group could not be found")),
                }
            }
        }
    }

    /// Kafka: `AbstractCoordinator#markCoordinatorUnknown`.
    pub(super) fn coordinator_unknown(&mut self) {
        self.lookup.node = None;
    }

    /// An error of Kafka's table that names the group.
    pub(super) fn refused(&self, code: ErrorCode, what: &str) -> ClientError {
        ClientError::kafka(code, format_args!("{what} (group {})", self.settings.group_id))
    }

    /// Like `refused`, and returned by every later poll.
    pub(super) fn refused_for_good(&mut self, code: ErrorCode, what: &str) -> ClientError {
        let error = self.refused(code, what);
        self.fatal = Some(error.clone());
        error
    }

    fn check_fatal(&self) -> Result<(), ClientError> {
        self.fatal.clone().map_or(Ok(()), Err)
    }
}
