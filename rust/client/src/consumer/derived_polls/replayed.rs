//! One possible state of the recorded consumer, and the steps that lead to the next ones.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use fletchlog_api::{Clock, Completion, Failure, FetchRequest, FetchResponse, NodeId, Request, Response, Transport};
use fletchlog_records::TopicPartition;
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use super::rebuilt;
use super::recorded::{RecordedAssignment, RecordedFetch, RecordedReader};
use super::search::{DerivedCall, DerivedRun};
use crate::ClientError;
use crate::consumer::PolledRecords;
use crate::consumer::abstract_fetch::AbstractFetch;
use crate::consumer::consumer_network_client::ConsumerNetworkClient;
use crate::consumer::consumer_state::ConsumerState;
use crate::consumer::decision_table::NetworkRead;
use crate::consumer::fetch_buffer::FetchBuffer;
use crate::consumer::fetch_collector::Collector;
use crate::consumer::metadata::{ConsumerMetadata, Wanted};
use crate::consumer::settings::Settings;
use crate::consumer::subscription_state::SubscriptionState;
use crate::consumer::trace::Trace;

/// Most rebuilt responses that are kept to be delivered again.
const KEPT_RESPONSES: usize = 64;

/// A fetch that was sent before the group's assignment may arrive this much later: it has another connection.
const OVERTAKEN_US: i64 = 1_000_000;

/// What was recorded, shared by all states.
pub(super) struct Recording<'a> {
    pub(super) fetches: &'a [RecordedFetch],
    assignments: &'a [RecordedAssignment],
    limits: rebuilt::Limits,
    of_node: BTreeMap<NodeId, Vec<usize>>,
    responses: FxHashMap<usize, FetchResponse>,
    /// Batches with gaps, by partition, in offset order.
    gaps: FxHashMap<TopicPartition, Vec<(i64, i64)>>,
    net: ConsumerNetworkClient,
    /// A response is read only by a poll that finds nothing buffered.
    pub(super) is_lazy: bool,
}

impl<'a> Recording<'a> {
    /// The recording, and the consumer before its first poll.
    ///
    /// # Errors
    /// `Config` if two properties contradict each other.
    pub(super) fn new(
        reader: &'a RecordedReader,
        fetches: &'a [RecordedFetch],
    ) -> Result<(Self, Replayed), ClientError> {
        let mut settings = Settings::of(&reader.config)?;
        // No time passes here.
        settings.retry_backoff_ms = 0;
        let mut subs = SubscriptionState::new(&reader.config, settings.row.subscribe_order);
        let assigned = reader
            .assignments
            .first()
            .map_or(&[][..], |first| first.partitions.as_slice());
        match &reader.subscribed {
            Some(topics) => {
                subs.subscribe(topics)?;
                subs.assign_from_subscribed(assigned);
            }
            None => drop(subs.assign_from_user(assigned)?),
        }
        let mut leaders = FxHashMap::default();
        let mut of_node: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
        for (at, fetch) in fetches.iter().enumerate() {
            of_node.entry(fetch.node).or_default().push(at);
            for (tp, _) in &fetch.wanted {
                leaders.entry(tp.clone()).or_insert(fetch.node);
            }
        }
        let mut metadata = ConsumerMetadata::new(settings.retry_backoff_ms, settings.metadata_max_age_ms, false);
        metadata.set_wanted(Wanted::All);
        metadata.on_response(rebuilt::metadata_response(&leaders), 0);
        let subscribed = subs.has_auto_assigned_partitions();
        let read = settings
            .read_mode
            .network_read(settings.row, subscribed, settings.has_group_id);
        let net = ConsumerNetworkClient::new(
            Box::new(Nowhere),
            Arc::new(Stopped),
            settings.request_timeout_ms,
            settings.reconnect,
        );
        let replayed = Replayed {
            state: ConsumerState {
                settings,
                metadata,
                subs,
                buffer: FetchBuffer::default(),
                trace: Trace::new(false),
            },
            fetches: AbstractFetch::default(),
            assigned: 1,
            sent: BTreeMap::new(),
            unread: BTreeMap::new(),
            read_us: i64::MIN,
            deliveries: 0,
            has_just_read: false,
        };
        let recording = Self {
            fetches,
            assignments: &reader.assignments,
            limits: rebuilt::Limits::of(&replayed.state.settings),
            of_node,
            responses: FxHashMap::default(),
            gaps: gaps_of(fetches),
            net,
            is_lazy: read == NetworkRead::Lazy && !reader.reads_between_polls,
        };
        Ok((recording, replayed))
    }

    fn response(&mut self, at: usize) -> Option<FetchResponse> {
        let recorded = self.fetches[at].response.as_ref()?;
        if self.responses.len() > KEPT_RESPONSES {
            self.responses.clear();
        }
        let rebuilt = self.responses.entry(at);
        Some(
            rebuilt
                .or_insert_with(|| rebuilt::fetch_response(recorded, self.limits))
                .clone(),
        )
    }

    /// Whether first and last offset of a run are known: compaction left no gaps of unknown places there.
    fn is_exact(&self, tp: &TopicPartition, first: i64, last: i64) -> bool {
        let Some(gaps) = self.gaps.get(tp) else { return true };
        let around = |offset: i64| {
            let at = gaps.partition_point(|(base, _)| *base <= offset);
            at.checked_sub(1).map(|at| gaps[at]).filter(|(_, end)| offset <= *end)
        };
        around(first).is_none() && around(last).is_none_or(|(_, end)| end == last)
    }
}

fn gaps_of(fetches: &[RecordedFetch]) -> FxHashMap<TopicPartition, Vec<(i64, i64)>> {
    let mut gaps: FxHashMap<TopicPartition, Vec<(i64, i64)>> = FxHashMap::default();
    for partition in fetches
        .iter()
        .filter_map(|f| f.response.as_ref())
        .flat_map(|r| &r.partitions)
    {
        let gapped =
            |b: &&super::recorded::RecordedBatch| !b.control && i64::from(b.records) <= b.last_offset - b.base_offset;
        let found = partition
            .batches
            .iter()
            .filter(gapped)
            .map(|b| (b.base_offset, b.last_offset));
        let found: Vec<_> = found.collect();
        if !found.is_empty() {
            gaps.entry(partition.tp.clone()).or_default().extend(found);
        }
    }
    for of in gaps.values_mut() {
        of.sort_unstable();
        of.dedup();
    }
    gaps
}

/// What one poll did.
pub(super) struct Polled {
    pub(super) runs: Vec<DerivedRun>,
    /// Indices of the recorded fetches that it sent.
    pub(super) sent: Vec<usize>,
}

/// A fetch that is not the recorded one.
pub(super) struct Difference {
    /// Index of the recorded fetch; `None`: the poll failed, or nothing more was recorded of the node.
    pub(super) at: Option<usize>,
    pub(super) why: String,
    /// Number of partitions that differ.
    pub(super) partitions: usize,
}

/// A possible state of the consumer.
#[derive(Clone)]
pub(super) struct Replayed {
    state: ConsumerState,
    fetches: AbstractFetch,
    /// Number of assignments so far.
    assigned: usize,
    /// Number of recorded fetches of each node that were sent.
    sent: BTreeMap<NodeId, usize>,
    /// The fetch in flight of each node.
    unread: BTreeMap<NodeId, usize>,
    /// When the newest response that was read was ready.
    read_us: i64,
    /// Which responses were read, in which order.
    deliveries: u64,
    /// A response was read, and no poll has looked since.
    has_just_read: bool,
}

impl Replayed {
    /// Nodes whose response can be read now, that of the oldest one first.
    pub(super) fn readable(&self, of: &Recording<'_>) -> Vec<NodeId> {
        if of.is_lazy && !self.has_just_read && !self.is_empty() {
            return Vec::new();
        }
        let ready_us = |at: usize| of.fetches[at].response.as_ref().map_or(i64::MAX, |r| r.at_us);
        let mut nodes: Vec<_> = self.unread.iter().map(|(&node, &at)| (ready_us(at), node)).collect();
        nodes.retain(|&(at_us, node)| at_us < i64::MAX || self.next_of(of, node).is_some());
        nodes.sort_unstable();
        nodes.into_iter().map(|(_, node)| node).collect()
    }

    /// No fetch is left of which records may be returned.
    fn is_empty(&self) -> bool {
        let buffer = &self.state.buffer;
        buffer.next_in_line.as_ref().is_none_or(|f| f.consumed) && !buffer.has_available_fetches(&self.state.subs)
    }

    fn next_of(&self, of: &Recording<'_>, node: NodeId) -> Option<usize> {
        let sent = self.sent.get(&node).copied().unwrap_or(0);
        of.of_node.get(&node)?.get(sent).copied()
    }

    /// Delivers the response of a node.
    pub(super) fn deliver(&mut self, of: &mut Recording<'_>, node: NodeId) {
        let Some(at) = self.unread.remove(&node) else { return };
        let result = match of.response(at) {
            Some(response) => Ok(Response::Fetch(response)),
            None => Err(Failure::Disconnected),
        };
        if let Some(response) = &of.fetches[at].response {
            self.read_us = self.read_us.max(response.at_us);
        }
        let mut hasher = FxHasher::default();
        (self.deliveries, at).hash(&mut hasher);
        self.deliveries = hasher.finish();
        self.has_just_read = true;
        let completion = Completion {
            node,
            correlation_id: 0,
            result,
        };
        self.fetches.on_completion(completion, &mut self.state, 0);
    }

    /// Nodes without a fetch in flight whose next fetch lists partitions that have no position yet, the next one first.
    pub(super) fn nodes_to_place(&self, of: &Recording<'_>) -> Vec<NodeId> {
        let idle = of.of_node.keys().filter(|node| !self.unread.contains_key(node));
        let mut found: Vec<(usize, NodeId)> = idle.filter_map(|&node| Some((self.next_of(of, node)?, node))).collect();
        found.retain(|&(at, _)| of.fetches[at].wanted.iter().any(|(tp, _)| self.lacks_position(tp)));
        found.sort_unstable();
        found.into_iter().map(|(_, node)| node).collect()
    }

    fn lacks_position(&self, tp: &TopicPartition) -> bool {
        self.state.subs.is_assigned(tp) && self.state.subs.position(tp).is_none()
    }

    /// Gives partitions without a position the one that the next fetch of these nodes has: a lookup found it.
    pub(super) fn place(&mut self, of: &Recording<'_>, nodes: &[NodeId]) {
        for &node in nodes {
            let Some(at) = self.next_of(of, node) else { continue };
            for (tp, offset) in &of.fetches[at].wanted {
                if self.lacks_position(tp) {
                    self.seek(tp, *offset);
                }
            }
        }
    }

    fn seek(&mut self, tp: &TopicPartition, offset: i64) {
        let leader = self.state.metadata.leader(tp);
        // Only of an assigned partition.
        let _ = self.state.subs.seek(tp, offset, leader);
    }

    /// One poll: takes records, and builds the fetches that go out before they are returned.
    pub(super) fn poll(&mut self, of: &mut Recording<'_>, max: usize) -> Result<Polled, Difference> {
        let collector = Collector {
            state: &mut self.state,
            now_ms: 0,
        };
        let collected = collector.collect(max).map_err(|error| Difference {
            at: None,
            why: format!("the poll fails: {error}"),
            partitions: usize::MAX,
        })?;
        self.has_just_read = false;
        let records = PolledRecords {
            runs: collected.runs,
            in_order: false,
        };
        let runs = records.row_order().into_iter().map(|at| &records.runs[at]);
        let runs = runs.map(|run| DerivedRun {
            tp: run.tp.clone(),
            first_offset: run.first_offset,
            last_offset: run.last_offset,
            count: run.count,
            exact: of.is_exact(&run.tp, run.first_offset, run.last_offset),
        });
        let runs: Vec<DerivedRun> = runs.collect();
        self.fetches.send_fetches(&mut self.state, &mut of.net);
        let mut sent = Vec::new();
        for (node, request) in of.net.take_unsent() {
            let Request::Fetch(request) = request else { continue };
            let Some(at) = self.next_of(of, node) else {
                return Err(Difference {
                    at: None,
                    why: "it would send a fetch that was not recorded".to_owned(),
                    partitions: usize::MAX,
                });
            };
            self.compare(of.assignments, &of.fetches[at], &request)
                .map_err(|(why, partitions)| Difference {
                    at: Some(at),
                    why,
                    partitions,
                })?;
            *self.sent.entry(node).or_default() += 1;
            self.unread.insert(node, at);
            sent.push(at);
        }
        Ok(Polled { runs, sent })
    }

    /// Whether a fetch is the recorded one; else the first difference in words, and the number of partitions that differ.
    fn compare(
        &self,
        assignments: &[RecordedAssignment],
        recorded: &RecordedFetch,
        built: &FetchRequest,
    ) -> Result<(), (String, usize)> {
        let wanted: Vec<(TopicPartition, i64)> = wanted_by(built);
        let forgotten: FxHashSet<TopicPartition> = forgotten_by(built);
        let recorded_forgotten: FxHashSet<TopicPartition> = recorded.forgotten.iter().cloned().collect();
        let full = built.session_epoch <= 0;
        if full != recorded.full {
            let words = |full: bool| {
                if full {
                    "a full one"
                } else {
                    "one that continues a session"
                }
            };
            return Err((format!("it is {}, and {} is due", words(recorded.full), words(full)), 1));
        }
        if assigned_at(assignments, self.assigned)
            .is_some_and(|at_us| at_us.saturating_add(OVERTAKEN_US) < recorded.at_us)
        {
            return Err(("the group has assigned anew before it".to_owned(), 1));
        }
        if self.assigned > 1 && assigned_at(assignments, self.assigned - 1).is_some_and(|at_us| at_us > recorded.at_us)
        {
            return Err(("the group assigned anew only after it".to_owned(), 1));
        }
        if self.read_us > recorded.at_us {
            return Err(("it was sent before the responses that it follows".to_owned(), 1));
        }
        let missing = recorded.wanted.iter().filter(|one| !wanted.contains(one));
        let missing: Vec<String> = missing
            .map(|(tp, offset)| format!("{tp} at {offset}: {}", self.state_of(tp, *offset)))
            .collect();
        let extra = wanted.iter().filter(|one| !recorded.wanted.contains(one));
        let extra: Vec<String> = extra.map(|(tp, offset)| format!("{tp} at {offset}")).collect();
        let differing = forgotten.symmetric_difference(&recorded_forgotten).count() + missing.len() + extra.len();
        if let Some(first) = missing.first() {
            return Err((format!("it asks for {first}"), differing));
        }
        if let Some(first) = extra.first() {
            return Err((format!("it does not ask for {first}, which is due"), differing));
        }
        if differing > 0 {
            return Err(("it takes other partitions out of the session".to_owned(), differing));
        }
        if wanted != recorded.wanted {
            return Err(("its partitions have another order".to_owned(), 1));
        }
        Ok(())
    }

    fn state_of(&self, tp: &TopicPartition, offset: i64) -> String {
        let subs = &self.state.subs;
        match subs.position(tp) {
            _ if !subs.is_assigned(tp) => "it is not assigned".to_owned(),
            None => "it has no position".to_owned(),
            Some(_) if subs.is_paused(tp) => "it is paused".to_owned(),
            Some(_) if self.state.buffer.is_buffered(tp) => "its last fetch is not read to its end".to_owned(),
            Some(at) if at != offset => format!("its position is {at}"),
            Some(_) => "it is in the session already".to_owned(),
        }
    }

    /// Whether the group has given another assignment, and whether the positions are those from which it is read on: the
    /// program has committed what it was returned.
    pub(super) fn may_assign(&self, of: &Recording<'_>) -> Option<bool> {
        let next = of.assignments.get(self.assigned)?;
        let fetches = of
            .of_node
            .keys()
            .filter_map(|&node| self.next_of(of, node))
            .map(|at| &of.fetches[at]);
        let fetches = fetches.filter(|fetch| fetch.at_us > next.at_us);
        let before = |(tp, offset): &(TopicPartition, i64)| Some((self.state.subs.position(tp)?, *offset));
        let compared: Vec<(i64, i64)> = fetches
            .flat_map(|fetch| fetch.wanted.iter().filter_map(before))
            .collect();
        Some(!compared.is_empty() && compared.iter().all(|(position, offset)| position == offset))
    }

    /// Takes the next assignment of the group.
    pub(super) fn assign(&mut self, of: &Recording<'_>) {
        let Some(next) = of.assignments.get(self.assigned) else {
            return;
        };
        if !next.keeps_positions {
            self.state.subs.assign_from_subscribed(&[]);
        }
        self.state.subs.assign_from_subscribed(&next.partitions);
        self.assigned += 1;
    }

    /// Number of the newest fetch that was sent and lists a partition, 0 if none does.
    pub(super) fn last_listed(&self, of: &Recording<'_>, tp: &TopicPartition) -> u64 {
        let sent = of
            .of_node
            .iter()
            .flat_map(|(node, all)| &all[..self.sent.get(node).copied().unwrap_or(0)]);
        let listing = sent
            .map(|&at| &of.fetches[at])
            .filter(|fetch| fetch.wanted.iter().any(|(listed, _)| listed == tp));
        listing.map(|fetch| fetch.number).max().unwrap_or(0)
    }

    /// Calls of the program that would make the next fetch of a node the recorded one.
    pub(super) fn calls_for(&self, of: &mut Recording<'_>, node: NodeId, max: usize) -> Option<Vec<DerivedCall>> {
        let at = self.next_of(of, node)?;
        let recorded = &of.fetches[at];
        let mut after = self.clone();
        let collector = Collector {
            state: &mut after.state,
            now_ms: 0,
        };
        collector.collect(max).ok()?;
        after.fetches.send_fetches(&mut after.state, &mut of.net);
        let mut built = of.net.take_unsent().into_iter();
        let built = built.find_map(|(to, request)| match request {
            Request::Fetch(fetch) if to == node => Some(fetch),
            _ => None,
        });
        let (wanted, forgotten) = built
            .as_ref()
            .map(|b| (wanted_by(b), forgotten_by(b)))
            .unwrap_or_default();
        let number = recorded.number;
        let mut calls = Vec::new();
        for (tp, offset) in recorded.wanted.iter().filter(|one| !wanted.contains(one)) {
            if !self.state.subs.is_assigned(tp) {
                return None;
            }
            if self.state.subs.is_paused(tp) {
                calls.push(DerivedCall::new("resume", tp, -1, number));
            }
            if self.state.subs.position(tp) != Some(*offset) || self.state.buffer.is_buffered(tp) {
                calls.push(DerivedCall::new("seek", tp, *offset, number));
            }
        }
        let gone = recorded.forgotten.iter().filter(|tp| !forgotten.contains(tp));
        let left_out = wanted
            .iter()
            .map(|(tp, _)| tp)
            .filter(|tp| recorded.wanted.iter().all(|(other, _)| other != *tp));
        for tp in gone.chain(left_out) {
            if self.state.subs.is_paused(tp) {
                return None;
            }
            calls.push(DerivedCall::new("pause", tp, -1, number));
        }
        (!calls.is_empty()).then_some(calls)
    }

    /// Makes these calls.
    pub(super) fn call(&mut self, calls: &[DerivedCall]) {
        for call in calls {
            let outcome = match call.method {
                "seek" => {
                    self.seek(&call.tp, call.offset);
                    Ok(())
                }
                "pause" => self.state.subs.pause(&call.tp),
                _ => self.state.subs.resume(&call.tp),
            };
            debug_assert!(outcome.is_ok(), "calls are about assigned partitions");
        }
    }

    /// Nodes without a fetch in flight.
    pub(super) fn idle_nodes(&self, of: &Recording<'_>) -> Vec<NodeId> {
        let nodes = of.of_node.keys().copied();
        nodes.filter(|node| !self.unread.contains_key(node)).collect()
    }

    /// Partitions of which a fetch is not read to its end, in the order of the buffer.
    pub(super) fn buffered(&self) -> Vec<TopicPartition> {
        let buffer = &self.state.buffer;
        let next = buffer.next_in_line.iter().filter(|f| !f.consumed);
        next.chain(&buffer.queue)
            .filter(|f| f.size > 0)
            .map(|f| f.tp.clone())
            .collect()
    }

    /// Equal for equal states of the consumer.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = FxHasher::default();
        let Self {
            state,
            sent,
            unread,
            deliveries,
            has_just_read,
            assigned,
            ..
        } = self;
        (deliveries, has_just_read, assigned).hash(&mut hasher);
        for (tp, of) in state.subs.iter() {
            (tp, of.position(), of.is_paused()).hash(&mut hasher);
        }
        let next = state.buffer.next_in_line.iter().filter(|f| !f.consumed);
        for fetch in next.chain(&state.buffer.queue) {
            (&fetch.tp, fetch.fetch_offset, fetch.next_fetch_offset, fetch.size).hash(&mut hasher);
        }
        (sent, unread).hash(&mut hasher);
        hasher.finish()
    }
}

fn assigned_at(assignments: &[RecordedAssignment], at: usize) -> Option<i64> {
    Some(assignments.get(at)?.at_us)
}

fn wanted_by(request: &FetchRequest) -> Vec<(TopicPartition, i64)> {
    let wanted = request.partitions();
    wanted
        .map(|(topic, p)| (TopicPartition::new(Arc::clone(topic), p.partition), p.fetch_offset))
        .collect()
}

fn forgotten_by(request: &FetchRequest) -> FxHashSet<TopicPartition> {
    let forgotten = request.forgotten();
    forgotten
        .map(|(topic, partition)| TopicPartition::new(Arc::clone(topic), partition))
        .collect()
}

/// Connections to which nothing is sent: fetches are taken out before.
struct Nowhere;

impl Transport for Nowhere {
    fn bootstrap(&self) -> Vec<NodeId> {
        vec![0]
    }
    fn send(&mut self, _: NodeId, _: i32, _: Request) {}
    fn receive(&mut self, _: NodeId) -> Option<Completion> {
        None
    }
    fn has_arrived(&mut self, _: NodeId) -> bool {
        false
    }
    fn wait(&mut self, _: Duration) -> bool {
        false
    }
}

/// The time-outs of the recorded consumer are over: no time passes.
struct Stopped;

impl Clock for Stopped {
    fn now_ms(&self) -> i64 {
        0
    }
    fn monotonic_ms(&self) -> i64 {
        0
    }
}
