//! What was recorded, as the search looks it up.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fletchlog_api::{Clock, Completion, FetchResponse, MetadataResponse, NodeId, Request, Transport};
use fletchlog_records::TopicPartition;
use rustc_hash::{FxHashMap, FxHashSet};

use super::rebuilt;
use super::recorded::{
    RecordedAssignment, RecordedBatch, RecordedCommit, RecordedFetch, RecordedReader, RecordedTopics,
};
use super::replayed::Replayed;
use crate::ClientError;
use crate::consumer::abstract_fetch::AbstractFetch;
use crate::consumer::consumer_network_client::ConsumerNetworkClient;
use crate::consumer::consumer_state::ConsumerState;
use crate::consumer::decision_table::NetworkRead;
use crate::consumer::fetch_buffer::FetchBuffer;
use crate::consumer::metadata::{ConsumerMetadata, Wanted};
use crate::consumer::settings::Settings;
use crate::consumer::subscription_state::SubscriptionState;
use crate::consumer::trace::Trace;

/// Most rebuilt responses that are kept to be delivered again.
const KEPT_RESPONSES: usize = 64;

/// Where a fetch lists a partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listing {
    /// Index of the fetch.
    pub(super) at: usize,
    /// Its node.
    pub(super) node: NodeId,
    /// The fetch asks for it; false: it takes it out of the session.
    pub(super) wanted: bool,
}

/// What was recorded, shared by all states.
pub(super) struct Recording<'a> {
    pub(super) fetches: &'a [RecordedFetch],
    pub(super) assignments: &'a [RecordedAssignment],
    pub(super) commits: &'a [RecordedCommit],
    pub(super) topics: &'a [RecordedTopics],
    lookups: &'a [(i64, TopicPartition)],
    limits: rebuilt::Limits,
    pub(super) of_node: BTreeMap<NodeId, Vec<usize>>,
    /// Of each fetch, which one of its node it is.
    turns: Vec<usize>,
    /// Where each partition is listed, in the order of the fetches.
    listings: FxHashMap<TopicPartition, Vec<Listing>>,
    /// Partitions that are fetched from more than one node.
    pub(super) moving: Vec<TopicPartition>,
    /// All nodes that were asked, or named as a follower.
    nodes: Vec<NodeId>,
    responses: FxHashMap<usize, FetchResponse>,
    /// Batches with gaps, by partition, in offset order.
    gaps: FxHashMap<TopicPartition, Vec<(i64, i64)>>,
    pub(super) net: ConsumerNetworkClient,
    /// Another thread sends the fetches.
    pub(super) is_background: bool,
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
                subs.assign_from_response(assigned);
            }
            None => drop(subs.assign_from_user(assigned)?),
        }
        let mut leaders = FxHashMap::default();
        let mut of_node: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
        let mut turns = Vec::with_capacity(fetches.len());
        for (at, fetch) in fetches.iter().enumerate() {
            let all = of_node.entry(fetch.node).or_default();
            turns.push(all.len());
            all.push(at);
            for (tp, _) in &fetch.wanted {
                leaders.entry(tp.clone()).or_insert(fetch.node);
            }
        }
        let nodes = nodes_of(fetches);
        let mut metadata = ConsumerMetadata::new(settings.retry_backoff_ms, settings.metadata_max_age_ms, false);
        metadata.set_wanted(Wanted::All);
        metadata.on_response(rebuilt::metadata_response(&leaders, &nodes), 0);
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
        let state = ConsumerState {
            settings,
            metadata,
            subs,
            buffer: FetchBuffer::default(),
            trace: Trace::new(false),
        };
        let limits = rebuilt::Limits::of(&state.settings);
        let replayed = Replayed::new(state, AbstractFetch::default(), Rc::new(leaders));
        let listings = listings_of(fetches);
        let recording = Self {
            fetches,
            assignments: &reader.assignments,
            commits: &reader.commits,
            topics: &reader.topics,
            lookups: &reader.lookups,
            limits,
            of_node,
            turns,
            moving: moving(&listings),
            listings,
            nodes,
            responses: FxHashMap::default(),
            gaps: gaps_of(fetches),
            net,
            is_background: reader.fetches_in_background,
            is_lazy: read == NetworkRead::Lazy && !reader.reads_between_polls && !reader.fetches_in_background,
        };
        Ok((recording, replayed))
    }

    /// The fetches of a node, in their order.
    pub(super) fn of(&self, node: NodeId) -> &[usize] {
        self.of_node.get(&node).map_or(&[], Vec::as_slice)
    }

    /// Where a partition is listed next, after so many fetches of each node.
    pub(super) fn next_listings<'b>(
        &'b self,
        tp: &TopicPartition,
        sent: &'b BTreeMap<NodeId, usize>,
    ) -> impl Iterator<Item = &'b Listing> {
        let all = self.listings.get(tp).map_or(&[][..], Vec::as_slice);
        let sent_of = |node: NodeId| sent.get(&node).copied().unwrap_or(0);
        let unsent = self.of_node.iter().filter_map(move |(&node, of)| of.get(sent_of(node)));
        let first = unsent.min().copied().unwrap_or(usize::MAX);
        let from = all.partition_point(|listing| listing.at < first);
        all[from..].iter().filter(move |l| self.turns[l.at] >= sent_of(l.node))
    }

    /// Number of the newest fetch that was sent and lists a partition, 0 if none does.
    pub(super) fn last_listed(&self, tp: &TopicPartition, sent: &BTreeMap<NodeId, usize>) -> u64 {
        let all = self.listings.get(tp).map_or(&[][..], Vec::as_slice);
        let was_sent = |l: &&Listing| l.wanted && self.turns[l.at] < sent.get(&l.node).copied().unwrap_or(0);
        let newest = all.iter().rev().find(was_sent);
        newest.map_or(0, |listing| self.fetches[listing.at].number)
    }

    /// The offset that the session of a node has of a partition; `None`: it is not in it.
    pub(super) fn in_session(&self, tp: &TopicPartition, node: NodeId, sent: &BTreeMap<NodeId, usize>) -> Option<i64> {
        let sent = sent.get(&node).copied().unwrap_or(0);
        let all = self.listings.get(tp).map_or(&[][..], Vec::as_slice);
        let newest = all.iter().rev().find(|l| l.node == node && self.turns[l.at] < sent)?;
        let asked = self.fetches[newest.at].wanted.iter().find(|(listed, _)| listed == tp);
        asked.filter(|_| newest.wanted).map(|(_, offset)| *offset)
    }

    /// Partitions whose offsets were looked up between two times.
    pub(super) fn looked_up(&self, from_us: i64, to_us: i64) -> impl Iterator<Item = &TopicPartition> {
        let between = self
            .lookups
            .iter()
            .filter(move |(at_us, _)| (from_us..=to_us).contains(at_us));
        between.map(|(_, tp)| tp)
    }

    /// Metadata with these leaders.
    pub(super) fn metadata(&self, leaders: &FxHashMap<TopicPartition, NodeId>) -> MetadataResponse {
        rebuilt::metadata_response(leaders, &self.nodes)
    }

    pub(super) fn response(&mut self, at: usize) -> Option<FetchResponse> {
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
    pub(super) fn is_exact(&self, tp: &TopicPartition, first: i64, last: i64) -> bool {
        let Some(gaps) = self.gaps.get(tp) else { return true };
        let around = |offset: i64| {
            let at = gaps.partition_point(|(base, _)| *base <= offset);
            at.checked_sub(1).map(|at| gaps[at]).filter(|(_, end)| offset <= *end)
        };
        around(first).is_none() && around(last).is_none_or(|(_, end)| end == last)
    }
}

fn listings_of(fetches: &[RecordedFetch]) -> FxHashMap<TopicPartition, Vec<Listing>> {
    let mut listings: FxHashMap<TopicPartition, Vec<Listing>> = FxHashMap::default();
    for (at, fetch) in fetches.iter().enumerate() {
        let wanted = fetch.wanted.iter().map(|(tp, _)| (tp, true));
        for (tp, wanted) in wanted.chain(fetch.forgotten.iter().map(|tp| (tp, false))) {
            let node = fetch.node;
            listings
                .entry(tp.clone())
                .or_default()
                .push(Listing { at, node, wanted });
        }
    }
    listings
}

fn moving(listings: &FxHashMap<TopicPartition, Vec<Listing>>) -> Vec<TopicPartition> {
    let moves = |all: &&Vec<Listing>| all.iter().any(|listing| listing.node != all[0].node);
    let mut moving: Vec<_> = listings
        .iter()
        .filter(|(_, all)| moves(all))
        .map(|(tp, _)| tp.clone())
        .collect();
    moving.sort_unstable();
    moving
}

fn nodes_of(fetches: &[RecordedFetch]) -> Vec<NodeId> {
    let partitions = fetches
        .iter()
        .filter_map(|f| f.response.as_ref())
        .flat_map(|r| &r.partitions);
    let followers = partitions.map(|p| p.preferred_read_replica).filter(|&node| node >= 0);
    let nodes: FxHashSet<NodeId> = followers.chain(fetches.iter().map(|f| f.node)).collect();
    let mut nodes: Vec<NodeId> = nodes.into_iter().collect();
    nodes.sort_unstable();
    nodes
}

fn gaps_of(fetches: &[RecordedFetch]) -> FxHashMap<TopicPartition, Vec<(i64, i64)>> {
    let mut gaps: FxHashMap<TopicPartition, Vec<(i64, i64)>> = FxHashMap::default();
    for partition in fetches
        .iter()
        .filter_map(|f| f.response.as_ref())
        .flat_map(|r| &r.partitions)
    {
        let gapped = |b: &&RecordedBatch| !b.control && i64::from(b.records) <= b.last_offset - b.base_offset;
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
