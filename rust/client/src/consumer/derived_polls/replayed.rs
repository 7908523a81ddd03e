//! One possible state of the recorded consumer, and the steps that lead to the next ones.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use fletchlog_api::{Completion, Failure, NodeId, Request, Response};
use fletchlog_records::TopicPartition;
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use super::derived::{DerivedCall, DerivedRun};
use super::recording::Recording;
use crate::consumer::PolledRecords;
use crate::consumer::abstract_fetch::AbstractFetch;
use crate::consumer::completed_fetch::CompletedFetch;
use crate::consumer::consumer_state::ConsumerState;
use crate::consumer::fetch_collector::Collector;

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
    pub(super) state: ConsumerState,
    pub(super) fetches: AbstractFetch,
    /// Leaders of partitions.
    pub(super) leaders: Rc<FxHashMap<TopicPartition, NodeId>>,
    /// Number of assignments so far.
    pub(super) assigned: usize,
    /// Number of commits whose positions were reached, or that are passed over.
    committed: usize,
    /// Number of Metadata requests whose topics are the assigned ones.
    pub(super) narrowed: usize,
    /// Number of recorded fetches of each node that were sent.
    pub(super) sent: BTreeMap<NodeId, usize>,
    /// The fetch in flight of each node.
    pub(super) unread: BTreeMap<NodeId, usize>,
    /// When the newest response that was read was ready.
    pub(super) read_us: i64,
    /// Which responses were read, in which order.
    deliveries: u64,
    /// A response was read, and no poll has looked since.
    has_just_read: bool,
    /// A poll was made whose fetches another thread has yet to send.
    pub(super) owes_fetches: bool,
    /// A response was put into the empty buffer, for which a poll may have waited.
    woken: bool,
    /// The last poll saw a part of a response alone: the next one may come before fetches are sent.
    pub(super) polls_again: bool,
}

impl Replayed {
    /// Before the first poll.
    pub(super) fn new(
        state: ConsumerState,
        fetches: AbstractFetch,
        leaders: Rc<FxHashMap<TopicPartition, NodeId>>,
    ) -> Self {
        Self {
            state,
            fetches,
            leaders,
            assigned: 1,
            committed: 0,
            narrowed: 0,
            sent: BTreeMap::new(),
            unread: BTreeMap::new(),
            read_us: i64::MIN,
            deliveries: 0,
            has_just_read: false,
            owes_fetches: false,
            woken: false,
            polls_again: false,
        }
    }

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
    pub(super) fn is_empty(&self) -> bool {
        let buffer = &self.state.buffer;
        buffer.next_in_line.as_ref().is_none_or(|f| f.consumed) && !buffer.has_available_fetches(&self.state.subs)
    }

    pub(super) fn next_of(&self, of: &Recording<'_>, node: NodeId) -> Option<usize> {
        let sent = self.sent.get(&node).copied().unwrap_or(0);
        of.of(node).get(sent).copied()
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
        self.woken = self.is_empty();
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
        found.retain(|&(_, node)| !self.places(of, node).is_empty());
        found.sort_unstable();
        found.into_iter().map(|(_, node)| node).collect()
    }

    /// Positions of partitions without one as the next fetch of a node has them, or its session.
    fn places(&self, of: &Recording<'_>, node: NodeId) -> Vec<(TopicPartition, i64)> {
        let Some(fetch) = self.next_of(of, node).map(|at| &of.fetches[at]) else {
            return Vec::new();
        };
        let listed = fetch.wanted.iter().filter(|(tp, _)| self.lacks_position(tp)).cloned();
        let mut places: Vec<_> = listed.collect();
        if fetch.full || !self.state.subs.has_auto_assigned_partitions() || self.state.subs.has_all_fetch_positions() {
            return places;
        }
        let lacking = self.state.subs.iter().filter(|(_, state)| state.position().is_none());
        let unlisted =
            lacking.filter(|(tp, _)| places.iter().all(|(listed, _)| listed != *tp) && !fetch.forgotten.contains(tp));
        let kept = unlisted.filter_map(|(tp, _)| Some((tp.clone(), of.in_session(tp, node, &self.sent)?)));
        let kept: Vec<_> = kept.collect();
        places.extend(kept);
        places
    }

    fn lacks_position(&self, tp: &TopicPartition) -> bool {
        self.state.subs.is_assigned(tp) && self.state.subs.position(tp).is_none()
    }

    /// Gives partitions without a position the one that the next fetch of these nodes has: a lookup found it.
    pub(super) fn place(&mut self, of: &Recording<'_>, nodes: &[NodeId]) {
        for &node in nodes {
            for (tp, offset) in self.places(of, node) {
                self.seek(&tp, offset);
            }
        }
    }

    pub(super) fn seek(&mut self, tp: &TopicPartition, offset: i64) {
        let leader = self.state.metadata.leader(tp);
        // Only of an assigned partition.
        let _ = self.state.subs.seek(tp, offset, leader);
    }

    /// Takes the records of one poll that sees all that has arrived.
    pub(super) fn collect(&mut self, of: &Recording<'_>, max: usize) -> Result<Vec<DerivedRun>, Difference> {
        self.woken = false;
        self.polls_again = false;
        self.take(of, max)
    }

    /// Takes the records of a poll that waited for a response and was woken by the first of its partitions, of which it saw these.
    pub(super) fn collect_first(
        &mut self,
        of: &Recording<'_>,
        max: usize,
        partitions: usize,
    ) -> Result<Vec<DerivedRun>, Difference> {
        let behind = self.state.buffer.queue.split_off(partitions);
        let runs = self.take(of, max);
        self.state.buffer.queue.extend(behind);
        self.woken = false;
        self.polls_again = true;
        runs
    }

    /// How many partitions of a response may have arrived when a waiting poll was woken, beside all of them.
    pub(super) fn partly_arrived(&self) -> std::ops::Range<usize> {
        1..if self.woken { self.state.buffer.queue.len() } else { 1 }
    }

    fn take(&mut self, of: &Recording<'_>, max: usize) -> Result<Vec<DerivedRun>, Difference> {
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
        self.owes_fetches = true;
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
        Ok(runs.collect())
    }

    /// Sends the fetches that are due after a poll. Returns the indices of the recorded ones.
    pub(super) fn send(&mut self, of: &mut Recording<'_>) -> Result<Vec<usize>, Difference> {
        self.owes_fetches = false;
        self.follow_leaders(of);
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
            self.compare(of, &of.fetches[at], &request)
                .map_err(|(why, partitions)| Difference {
                    at: Some(at),
                    why,
                    partitions,
                })?;
            *self.sent.entry(node).or_default() += 1;
            self.unread.insert(node, at);
            sent.push(at);
        }
        Ok(sent)
    }

    /// Takes away partitions of topics that the next Metadata request does not name. Returns whether there is one.
    pub(super) fn narrow(&mut self, of: &Recording<'_>) -> bool {
        let Some(asked) = of.topics.get(self.narrowed) else {
            return false;
        };
        self.narrowed += 1;
        let names = |tp: &TopicPartition| asked.topics.contains(&tp.topic);
        let all = self.state.subs.assigned_partitions();
        let left: Vec<TopicPartition> = all.iter().filter(|tp| names(tp)).cloned().collect();
        if left.len() < all.len() {
            self.assign_by_user(&left);
        }
        true
    }

    /// The program assigns these partitions.
    pub(super) fn assign_by_user(&mut self, assigned: &[TopicPartition]) {
        // No group gives partitions here.
        let _ = self.state.subs.assign_from_user(assigned);
        let kept: FxHashSet<&TopicPartition> = assigned.iter().collect();
        let state = &mut self.state;
        state
            .buffer
            .retain(|tp| kept.contains(tp), &mut state.subs, &mut state.trace);
    }

    /// Number of the newest fetch that was sent to a node, 0 if none was.
    pub(super) fn last_sent(&self, of: &Recording<'_>, node: NodeId) -> u64 {
        let sent = self.sent.get(&node).copied().unwrap_or(0);
        let newest = sent.checked_sub(1).and_then(|last| of.of(node).get(last));
        newest.map_or(0, |&at| of.fetches[at].number)
    }

    /// Whether offsets of other partitions than those of the calls were looked up between the last fetch that was sent to a node and
    /// the next one.
    pub(super) fn looked_up_others(&self, of: &Recording<'_>, node: NodeId, calls: &[DerivedCall]) -> bool {
        let sent = self.sent.get(&node).copied().unwrap_or(0);
        let at_us = |at: usize| of.of(node).get(at).map(|&at| of.fetches[at].at_us);
        let (from_us, to_us) = (sent.checked_sub(1).and_then(at_us), at_us(sent));
        let mut found = of.looked_up(from_us.unwrap_or(i64::MIN), to_us.unwrap_or(i64::MAX));
        found.any(|tp| calls.iter().all(|call| call.tp != *tp))
    }

    /// When the first commit arrived whose positions are not reached.
    pub(super) fn next_commit(&self, of: &Recording<'_>) -> Option<i64> {
        of.commits.get(self.committed).map(|commit| commit.at_us)
    }

    /// Goes past the commits of the present positions.
    pub(super) fn reach_commits(&mut self, of: &Recording<'_>) {
        while let Some(commit) = of.commits.get(self.committed) {
            let is_here = |(tp, offset): &(TopicPartition, i64)| self.state.subs.position(tp) == Some(*offset);
            if commit.at_us < self.read_us || !commit.offsets.iter().all(is_here) {
                return;
            }
            self.committed += 1;
        }
    }

    /// Passes over the commits until this time.
    pub(super) fn pass_commits(&mut self, of: &Recording<'_>, until_us: i64) {
        while self.next_commit(of).is_some_and(|at_us| at_us < until_us) {
            self.committed += 1;
        }
    }

    /// Number of commits whose positions are not reached.
    pub(super) fn commits_left(&self, of: &Recording<'_>) -> usize {
        of.commits.len().saturating_sub(self.committed)
    }

    /// Whether each assigned partition was in a fetch with at least this number.
    pub(super) fn was_listed_since(&self, of: &Recording<'_>, fetch: u64) -> bool {
        let mut assigned = self.state.subs.iter();
        assigned.all(|(tp, _)| of.last_listed(tp, &self.sent) >= fetch)
    }

    /// Nothing is buffered and nothing is paused: what comes is decided by the responses to come.
    pub(super) fn is_plain(&self) -> bool {
        self.is_empty() && !self.state.subs.iter().any(|(_, of)| of.is_paused())
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

    /// Takes the next assignment of the group. `polled`: a poll between the revocation and the assignment discarded what was buffered.
    pub(super) fn assign(&mut self, of: &Recording<'_>, polled: bool) {
        let Some(next) = of.assignments.get(self.assigned) else {
            return;
        };
        if !next.keeps_positions {
            self.state.subs.assign_from_subscribed(&[]);
        }
        if polled {
            // Nothing is assigned: nothing is returned, and nothing fails.
            let _ = self.take(of, 1);
            self.owes_fetches = false;
        }
        self.state.subs.assign_from_response(&next.partitions);
        self.assigned += 1;
    }

    /// Whether the next assignment takes all partitions away first, and some of them have something buffered.
    pub(super) fn may_discard(&self, of: &Recording<'_>) -> bool {
        of.assignments
            .get(self.assigned)
            .is_some_and(|next| !next.keeps_positions)
            && !self.is_empty()
    }

    /// Nodes without a fetch in flight.
    pub(super) fn idle_nodes(&self, of: &Recording<'_>) -> Vec<NodeId> {
        let nodes = of.of_node.keys().copied();
        nodes.filter(|node| !self.unread.contains_key(node)).collect()
    }

    /// Partitions of which a fetch is not read to its end, in the order of the buffer.
    pub(super) fn buffered(&self) -> Vec<TopicPartition> {
        let unread = self.unread_fetches().filter(|f| f.size > 0);
        unread.map(|f| f.tp.clone()).collect()
    }

    fn unread_fetches(&self) -> impl Iterator<Item = &CompletedFetch> {
        let buffer = &self.state.buffer;
        let next = buffer.next_in_line.iter().filter(|f| !f.consumed);
        next.chain(&buffer.queue)
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
            committed,
            narrowed,
            owes_fetches,
            woken,
            polls_again,
            ..
        } = self;
        (
            deliveries,
            has_just_read,
            assigned,
            committed,
            narrowed,
            owes_fetches,
            woken,
            polls_again,
        )
            .hash(&mut hasher);
        for (tp, of) in state.subs.iter() {
            (tp, of.position(), of.is_paused()).hash(&mut hasher);
        }
        for fetch in self.unread_fetches() {
            (&fetch.tp, fetch.fetch_offset, fetch.next_fetch_offset, fetch.size).hash(&mut hasher);
        }
        (sent, unread).hash(&mut hasher);
        hasher.finish()
    }
}
