//! Requests made of what has changed are those that looking at every partition makes (spec 7.3).

use std::collections::BTreeMap;

use bytes::Bytes;
use fletchlog_api::*;
use fletchlog_protocol::messages::fetch_request::FetchPartition;
use fletchlog_protocol::messages::fetch_response::PartitionData;
use fletchlog_testing::{ScriptedTransport, Sent};
use proptest::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::super::abstract_fetch::AbstractFetch;
use super::super::consumer_network_client::ConsumerNetworkClient;
use super::super::consumer_state::ConsumerState;
use super::super::fetch_buffer::FetchBuffer;
use super::super::metadata::{ConsumerMetadata, Leader, Wanted};
use super::super::settings::{FetchOrder, Settings};
use super::super::subscription_state::{PartitionState, ResetStrategy, SubscriptionState};
use super::super::timestamp_collector::is_at_end;
use super::super::trace::{Trace, TraceKind};
use super::*;
use crate::net::fixtures::{cluster, topic};

const PARTITIONS: i32 = 70; // Enough for a hash set of 128 buckets, and for smaller ones when few may be fetched.
const BACKOFF_MS: i64 = 1000;

/// One node's session as spec 6.6 and 7.3 describe it.
#[derive(Debug, Default)]
struct Expected {
    id: i32,
    epoch: i32,
    order: Vec<TopicPartition>,
    asked: FxHashMap<TopicPartition, FetchPartition>,
    in_flight: Option<i32>,
}

/// A partition of a request.
type Asked = (TopicPartition, FetchPartition);

fn tp_of(topic: &Arc<str>, partition: i32) -> TopicPartition {
    TopicPartition::new(Arc::clone(topic), partition)
}

fn listed(request: &FetchRequest) -> Vec<Asked> {
    assert!(request.topics.iter().all(|topic| topic.topic_id == NO_TOPIC_ID));
    let partitions = request.partitions();
    partitions
        .map(|(topic, p)| (tp_of(topic, p.partition), p.clone()))
        .collect()
}

fn forgotten(request: &FetchRequest) -> Vec<TopicPartition> {
    request.forgotten().map(|(topic, p)| tp_of(topic, p)).collect()
}

impl Expected {
    fn build(&mut self, wanted: Vec<Asked>) -> (Vec<Asked>, Vec<TopicPartition>) {
        let known: FxHashMap<_, _> = wanted.iter().cloned().collect();
        if self.epoch == 0 {
            self.order = wanted.iter().map(|(tp, _)| tp.clone()).collect();
            self.asked = known;
            return (wanted, Vec::new());
        }
        let mut listed: Vec<_> = wanted
            .iter()
            .filter(|(tp, _)| !self.order.contains(tp))
            .cloned()
            .collect();
        let (kept, gone): (Vec<_>, Vec<_>) = self.order.drain(..).partition(|tp| known.contains_key(tp));
        let altered = kept.iter().filter(|tp| self.asked.get(tp) != known.get(tp));
        let altered: Vec<_> = altered.map(|tp| (tp.clone(), known[tp].clone())).collect();
        self.order = kept;
        self.order.extend(listed.iter().map(|(tp, _)| tp.clone()));
        self.asked = known;
        listed.extend(altered);
        (listed, gone)
    }
}

#[derive(Debug, Clone)]
enum Step {
    Assign(Vec<i32>),
    Seek(i32, i64),
    Reset(i32),
    Pause(Vec<i32>),
    Resume(Vec<i32>),
    /// Leader of partition p: (p + shift) % nodes + 1; every such one has none.
    Leaders {
        nodes: i32,
        shift: i32,
        missing: Option<i32>,
    },
    Send,
    /// Answer of a node: which of the session's partitions are in it, and how it fails.
    Answer(NodeId, Vec<bool>, Failure),
    /// So many answers are taken from the queue; the position moves on, the partition goes to the end.
    Take(usize, bool),
    Ends(i32, i64),
    Wait,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Failure {
    None,
    NoSession,
    Session(ErrorCode),
    Disconnected,
}

fn step() -> impl Strategy<Value = Step> {
    let partition = || 0..PARTITIONS;
    let some = || prop::collection::vec(0..PARTITIONS, 0..6);
    let assigned = prop_oneof![
        prop::collection::vec(partition(), 1..8),
        Just((0..PARTITIONS).collect()),
        (1..PARTITIONS).prop_map(|n| (0..n).collect()),
    ];
    let failure = prop_oneof![
        12 => Just(Failure::None),
        1 => Just(Failure::NoSession),
        1 => Just(Failure::Session(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)),
        1 => Just(Failure::Session(ErrorCode::INVALID_FETCH_SESSION_EPOCH)),
        1 => Just(Failure::Disconnected),
    ];
    prop_oneof![
        1 => assigned.prop_map(Step::Assign),
        3 => (partition(), 0..3i64).prop_map(|(p, offset)| Step::Seek(p, offset)),
        1 => partition().prop_map(Step::Reset),
        2 => some().prop_map(Step::Pause),
        2 => some().prop_map(Step::Resume),
        1 => (1..4i32, 0..3i32, prop::option::weighted(0.2, 2..6i32))
            .prop_map(|(nodes, shift, missing)| Step::Leaders { nodes, shift, missing }),
        12 => Just(Step::Send),
        10 => (1..4i32, prop::collection::vec(prop::bool::weighted(0.2), 1..20), failure)
            .prop_map(|(node, which, failure)| Step::Answer(node, which, failure)),
        8 => (1..60usize, prop::bool::weighted(0.8)).prop_map(|(n, rotates)| Step::Take(n, rotates)),
        1 => (partition(), 0..9i64).prop_map(|(p, end)| Step::Ends(p, end)),
        1 => Just(Step::Wait),
    ]
}

struct Client {
    state: ConsumerState,
    net: ConsumerNetworkClient,
    fetches: AbstractFetch,
    /// Events that were looked at.
    traced: usize,
    /// Which partitions are left out, and why, by the trace.
    left_out: BTreeMap<TopicPartition, String>,
    transport: ScriptedTransport,
    sessions: BTreeMap<NodeId, Expected>,
    next_session: i32,
    asks_for_metadata: bool,
}

fn t(partition: i32) -> TopicPartition {
    TopicPartition::new("test", partition)
}

impl Client {
    fn new(version: &str, order: &str, trace: bool) -> Self {
        let properties = [
            ("fletchlog.consumer.version", version),
            ("fletchlog.fetch.order", order),
        ];
        let config = Config::parse(Scope::Consumer, properties).unwrap();
        let settings = Settings::of(&config).unwrap();
        let transport = ScriptedTransport::default();
        let mut client = Self {
            state: ConsumerState {
                subs: SubscriptionState::new(&config, settings.row.subscribe_order),
                buffer: FetchBuffer::default(),
                metadata: ConsumerMetadata::new(i64::MAX / 4, i64::MAX / 2, false),
                trace: Trace::new(trace),
                settings,
            },
            net: ConsumerNetworkClient::new(
                Box::new(transport.clone()),
                transport.clock.clone(),
                i64::MAX / 4,
                crate::net::Reconnect {
                    backoff: crate::backoff::ExponentialBackoff::new(BACKOFF_MS, BACKOFF_MS),
                    rebootstrap_after_ms: None,
                },
            ),
            fetches: AbstractFetch::default(),
            traced: 0,
            left_out: BTreeMap::new(),
            sessions: BTreeMap::new(),
            next_session: 0,
            asks_for_metadata: false,
            transport,
        };
        client.state.metadata.set_wanted(Wanted::Topics(vec![t(0).topic]));
        client.take(&Step::Leaders {
            nodes: 2,
            shift: 0,
            missing: None,
        });
        client.take(&Step::Assign((0..PARTITIONS).collect()));
        client
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Assign(partitions) => {
                let partitions: Vec<_> = partitions.iter().copied().map(t).collect();
                self.state.subs.assign_from_user(&partitions).unwrap();
                for tp in &partitions {
                    if self.state.subs.position(tp).is_none() {
                        let _ = self.state.subs.seek(tp, 0, None);
                    }
                }
                let kept: FxHashSet<_> = partitions.iter().collect();
                self.state
                    .buffer
                    .retain(|tp| kept.contains(tp), &mut self.state.subs, &mut self.state.trace);
            }
            Step::Seek(p, offset) => drop(self.state.subs.seek(&t(*p), *offset, None)),
            Step::Reset(p) => drop(self.state.subs.request_offset_reset(&t(*p), ResetStrategy::Latest)),
            Step::Pause(partitions) => partitions.iter().for_each(|p| drop(self.state.subs.pause(&t(*p)))),
            Step::Resume(partitions) => partitions.iter().for_each(|p| drop(self.state.subs.resume(&t(*p)))),
            Step::Leaders { nodes, shift, missing } => {
                let of = |p: i32| match missing {
                    Some(every) if p % every == 0 => -1,
                    _ => (p + shift) % nodes + 1,
                };
                let topic = topic("test", (0..PARTITIONS).map(|p| (of(p), -1)));
                let response = cluster(1..=*nodes, [topic]);
                self.state
                    .metadata
                    .on_response(response, self.transport.clock.monotonic_ms());
                self.asks_for_metadata = false;
            }
            Step::Send => self.send(),
            Step::Answer(node, which, failure) => {
                self.answer(*node, which, *failure);
                if matches!(failure, Failure::NoSession | Failure::Session(_)) {
                    // A second answer in a row that cannot be used is followed by a pause.
                    self.transport.clock.advance(self.state.settings.retry_backoff_ms);
                }
            }
            Step::Take(count, rotates) => {
                for _ in 0..*count {
                    let Some(mut fetch) = self.state.buffer.queue.pop_front() else {
                        break;
                    };
                    fetch.consumed = true;
                    if fetch.size > 0 {
                        self.state.subs.advance(&fetch.tp, fetch.fetch_offset + 1, 0);
                        if *rotates {
                            self.state.subs.move_partition_to_end(&fetch.tp);
                        }
                    }
                    self.state.buffer.finished(&fetch.tp);
                    self.state.buffer.next_in_line = Some(fetch);
                }
            }
            Step::Ends(p, end) => self.state.subs.update_ends(&t(*p), *end, *end),
            Step::Wait => self.transport.clock.advance(BACKOFF_MS + 1),
        }
    }

    fn send(&mut self) {
        self.state.subs.validate_positions(&self.state.metadata);
        let left_out = self.expected_left_out();
        let expected = self.expected();
        self.fetches.send_fetches(&mut self.state, &mut self.net);
        if self.state.trace.is_on() {
            let events = self.state.trace.events();
            let new = || events[self.traced..].iter().filter(|e| e.kind == TraceKind::Skip);
            let each = |gone| {
                new().flat_map(move |e| {
                    e.partitions
                        .iter()
                        .filter(move |p| p.gone == gone)
                        .map(move |p| (p, &e.text))
                })
            };
            for (p, why) in each(true) {
                assert_eq!(self.left_out.remove(&p.tp).as_deref(), Some(&**why), "{}", p.tp);
            }
            for (p, why) in each(false) {
                let before = self.left_out.insert(p.tp.clone(), why.to_string());
                assert_eq!(before, None, "{}: reported again", p.tp);
            }
            self.traced = events.len();
            assert_eq!(self.left_out, left_out);
        }
        self.net.try_send(&self.state.metadata);
        self.net.net_poll(&mut self.state.metadata, None).unwrap();
        let fetch = |sent: Sent| match sent.request {
            Request::Fetch(fetch) => Some((sent.correlation_id, sent.node, fetch)),
            _ => None,
        };
        let mut sent: Vec<_> = self.transport.take_sent().into_iter().filter_map(fetch).collect();
        sent.sort_by_key(|(id, ..)| *id);
        for (id, node, _) in &sent {
            self.sessions.entry(*node).or_default().in_flight = Some(*id);
        }
        let sent: Vec<_> = sent
            .into_iter()
            .map(|(_, node, r)| (node, r.session_id, r.session_epoch, listed(&r), forgotten(&r)))
            .collect();
        assert_eq!(sent, expected);
        let asks = self
            .state
            .metadata
            .time_to_next_update(self.transport.clock.monotonic_ms())
            < i64::MAX / 3;
        assert_eq!(asks, self.asks_for_metadata);
    }

    /// Why each partition that the next request will not list is left out, looking at every partition.
    fn expected_left_out(&self) -> BTreeMap<TopicPartition, String> {
        let buffered = self.state.buffer.counted();
        let blocking = |tp: &&TopicPartition| self.state.subs.is_fetchable(tp);
        let leader = |tp: &TopicPartition| self.state.subs.state(tp)?.leader().map(|leader| leader.node);
        let leading: FxHashSet<NodeId> = buffered.keys().filter(blocking).filter_map(leader).collect();
        let by_time = self.state.settings.fetch_order == FetchOrder::Timestamp;
        let why = |tp: &TopicPartition, state: &PartitionState| {
            let Some(position) = state.position() else {
                return Some("no position yet");
            };
            if state.is_paused() {
                return Some("paused");
            }
            if buffered.contains_key(tp) {
                return Some("the last fetch is still buffered");
            }
            let Some(node) = leader(tp) else {
                return Some("the leader is not known");
            };
            if let Some(session) = self.sessions.get(&node).filter(|s| s.in_flight.is_some()) {
                let asked = session.asked.get(tp).is_some_and(|p| p.fetch_offset == position);
                return (!asked).then_some("a fetch to the leader is under way");
            }
            if self.net.is_unavailable(node) {
                return Some("the connection to the leader was lost a moment ago");
            }
            let blocked = self.state.settings.row.buffered_node && !by_time && leading.contains(&node);
            blocked.then_some("the leader also leads a buffered partition")
        };
        let all = self.state.subs.iter();
        all.filter_map(|(tp, state)| Some((tp.clone(), why(tp, state)?.to_owned())))
            .collect()
    }

    /// Spec 7.3, looking at every partition.
    #[allow(clippy::type_complexity)]
    fn expected(&mut self) -> Vec<(NodeId, i32, i32, Vec<Asked>, Vec<TopicPartition>)> {
        let (subs, settings) = (&self.state.subs, &self.state.settings);
        let buffered: FxHashSet<TopicPartition> = self.state.buffer.counted().into_keys().collect();
        let leading: FxHashSet<NodeId> = buffered
            .iter()
            .filter(|tp| subs.is_fetchable(tp))
            .filter_map(|tp| subs.state(tp)?.leader())
            .map(|leader| leader.node)
            .collect();
        let by_time = settings.fetch_order == FetchOrder::Timestamp;
        let mut list: Vec<TopicPartition> = subs
            .iter()
            .filter(|(tp, state)| state.is_fetchable() && !buffered.contains(tp))
            .map(|(tp, _)| tp.clone())
            .collect();
        if settings.row.request_order == RequestOrder::HashSet {
            list = java_hash::hash_set_order(&list);
        }
        let mut wanted: Vec<(NodeId, Vec<Asked>)> = Vec::new();
        for tp in list {
            let Some(Leader { node, epoch }) = subs.state(&tp).and_then(PartitionState::leader) else {
                self.asks_for_metadata = true;
                continue;
            };
            let busy = self.sessions.get(&node).is_some_and(|s| s.in_flight.is_some());
            let blocked = settings.row.buffered_node && !by_time && leading.contains(&node);
            if busy || blocked || self.net.is_unavailable(node) {
                continue;
            }
            let partition = FetchPartition {
                partition: tp.partition,
                fetch_offset: subs.position(&tp).unwrap(),
                current_leader_epoch: epoch,
                partition_max_bytes: settings.max_partition_fetch_bytes,
                ..Default::default()
            };
            match wanted.iter_mut().find(|(n, _)| *n == node) {
                Some((_, list)) => list.push((tp, partition)),
                None => wanted.push((node, vec![(tp, partition)])),
            }
        }
        if by_time {
            let awaited = |(tp, _): &Asked| subs.state(tp).is_some_and(|state| !is_at_end(state, settings));
            wanted.retain(|(node, list)| !leading.contains(node) || list.iter().any(awaited));
        }
        let sessions = &mut self.sessions;
        let built = wanted.into_iter().map(|(node, wanted)| {
            let session = sessions.entry(node).or_default();
            let (listed, forgotten) = session.build(wanted);
            (node, session.id, session.epoch, listed, forgotten)
        });
        built.collect()
    }

    #[allow(clippy::too_many_lines, reason = "one walk over what is asked for")]
    fn answer(&mut self, node: NodeId, which: &[bool], failure: Failure) {
        let Some(session) = self.sessions.get_mut(&node) else {
            return;
        };
        let Some(correlation_id) = session.in_flight.take() else {
            return;
        };
        let full = session.epoch == 0;
        let answered = session
            .order
            .iter()
            .enumerate()
            .filter(|(i, _)| full || which[i % which.len()]);
        let partitions = answered.map(|(i, tp)| {
            let records = if which[i % which.len()] {
                Bytes::from_static(b"some")
            } else {
                Bytes::new()
            };
            let partition = PartitionData {
                partition_index: tp.partition,
                high_watermark: 5,
                last_stable_offset: 5,
                log_start_offset: 0,
                aborted_transactions: None,
                records: Some(records),
                ..Default::default()
            };
            (tp.clone(), partition)
        });
        let mut response = FetchResponse {
            session_id: session.id,
            ..FetchResponse::of(partitions.collect())
        };
        match failure {
            Failure::None if full => {
                self.next_session += 1;
                response.session_id = self.next_session;
                (session.id, session.epoch) = (self.next_session, 1);
            }
            Failure::None => session.epoch += 1,
            Failure::NoSession => {
                response.session_id = 0;
                (session.id, session.epoch) = (0, 0);
            }
            Failure::Session(error) => {
                (response.error_code, response.session_id) = (error, 0);
                response.responses.clear();
                session.epoch = 0;
                if error == ErrorCode::FETCH_SESSION_ID_NOT_FOUND {
                    session.id = 0;
                }
            }
            Failure::Disconnected => {
                session.epoch = 0;
                self.asks_for_metadata = true;
            }
        }
        let result = if failure == Failure::Disconnected {
            Err(fletchlog_api::Failure::Disconnected)
        } else {
            Ok(Response::Fetch(response))
        };
        self.transport.answer(node, correlation_id, result);
        self.net.net_poll(&mut self.state.metadata, None).unwrap();
        for completion in self.net.take_done() {
            self.fetches.on_completion(completion, &mut self.state, 0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn requests_are_those_of_looking_at_every_partition(
        version in prop::sample::select(vec!["2.6", "3.9", "4.1", "4.3"]),
        order in prop_oneof![5 => Just("partition"), 1 => Just("timestamp")],
        trace in prop::bool::weighted(0.5),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut client = Client::new(version, order, trace);
        for step in &steps {
            client.take(step);
        }
        client.take(&Step::Send);
    }
}
