//! Fetches and acknowledgements: when they are sent to which node, and what becomes of the responses. A node has one request at a time.
//! Kafka: `ShareConsumeRequestManager`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fletchlog_api::{Completion, ErrorCode, Failure, NodeId, Request, Response, TopicId};
use fletchlog_protocol::messages::share_acknowledge_request::{self as acknowledge, AcknowledgePartition};
use fletchlog_protocol::messages::share_fetch_request::{self as fetch, FetchPartition};
use fletchlog_protocol::messages::share_fetch_response::PartitionData;
use fletchlog_protocol::messages::{
    ShareAcknowledgeRequest, ShareAcknowledgeResponse, ShareFetchRequest, ShareFetchResponse,
};

use super::acknowledgements::{AcknowledgementBatch, Acknowledgements};
use super::settings::{Settings, ShareAcquireMode};
use super::share_completed_fetch::{Acquired, ShareCompletedFetch};
use super::share_fetch_buffer::ShareFetchBuffer;
use super::share_in_flight_batch::NodeAcknowledgements;
use super::share_session_handler::{FINAL_EPOCH, ShareSessionHandler};
use super::topic_id_partition::{TopicIdPartition, by_topic};
use crate::ClientError;
use crate::consumer::consumer_network_client::ConsumerNetworkClient;
use crate::consumer::metadata::ConsumerMetadata;
use crate::metrics::ShareConsumerMetrics;
use crate::net::RequestId;

/// Acknowledgements by partition.
type ByPartition = BTreeMap<TopicIdPartition, Acknowledgements>;

/// Number of a `commit`.
pub(super) type CommitId = u64;

/// A ShareAcknowledge that waits for its turn.
#[derive(Debug)]
struct Waiting {
    acknowledgements: ByPartition,
    commit: Option<CommitId>,
    /// It closes the session.
    closes: bool,
}

/// What is known of one node.
#[derive(Debug, Default)]
struct Node {
    session: ShareSessionHandler,
    busy: Option<RequestId>,
    waiting: VecDeque<Waiting>,
    /// For the next fetch.
    with_fetch: ByPartition,
    /// After an error, no fetch is sent before this time.
    retry_at_ms: i64,
}

/// A request that has no response yet.
#[derive(Debug)]
struct InFlight {
    node: NodeId,
    acknowledgements: ByPartition,
    commit: Option<CommitId>,
    closes: bool,
    sent_ms: i64,
}

/// The result of the acknowledgements of a partition.
#[derive(Debug, Clone)]
pub(super) struct Completed {
    pub tip: TopicIdPartition,
    pub acknowledgements: Acknowledgements,
    pub result: Result<(), ClientError>,
    pub commit: Option<CommitId>,
}

/// Sends what fetches and acknowledges records.
#[derive(Debug, Default)]
pub(super) struct ShareConsumeRequestManager {
    nodes: BTreeMap<NodeId, Node>,
    in_flight: BTreeMap<RequestId, InFlight>,
    /// Whether records are wanted: until some were acquired. Kafka: `fetchMoreRecords`.
    fetch_more: bool,
    /// With a record limit: the node that is asked for records now. Kafka: `fetchRecordsNodeId`.
    asks_for_records: Option<NodeId>,
    /// The node that was asked last.
    asked_last: Option<NodeId>,
    pub buffer: ShareFetchBuffer,
    completed: Vec<Completed>,
    /// How long the last response locks records, ms.
    pub lock_timeout_ms: Option<i32>,
    /// An error that the next poll returns.
    failure: Option<ClientError>,
    pub metrics: ShareConsumerMetrics,
}

impl ShareConsumeRequestManager {
    /// Records are wanted. Kafka: `ShareConsumeRequestManager#fetch`.
    pub fn want_records(&mut self) {
        self.fetch_more = true;
    }

    /// The application has records: nothing is fetched before its next poll.
    pub fn want_no_records(&mut self) {
        self.fetch_more = false;
    }

    /// These go out with the next fetch of their node.
    pub fn acknowledge_with_fetch(&mut self, all: Vec<NodeAcknowledgements>) {
        for of in all {
            let node = self.nodes.entry(of.node).or_default();
            node.with_fetch.entry(of.tip).or_default().merge(&of.acknowledgements);
        }
    }

    /// These go out as soon as their node has no request. Kafka: `commitAsync`, `commitSync`.
    pub fn acknowledge_now(&mut self, all: Vec<NodeAcknowledgements>, commit: Option<CommitId>) {
        let mut by_node: BTreeMap<NodeId, ByPartition> = BTreeMap::new();
        for of in all {
            let of_node = by_node.entry(of.node).or_default();
            of_node.entry(of.tip).or_default().merge(&of.acknowledgements);
        }
        for (id, acknowledgements) in by_node {
            let node = self.nodes.entry(id).or_default();
            node.waiting.push_back(Waiting {
                acknowledgements,
                commit,
                closes: false,
            });
        }
    }

    /// Takes what waits for the next fetch: a commit sends it now.
    pub fn take_with_fetch(&mut self) -> Vec<NodeAcknowledgements> {
        let mut taken = Vec::new();
        for (&node, of) in &mut self.nodes {
            let of_node = std::mem::take(&mut of.with_fetch).into_iter();
            taken.extend(of_node.map(|(tip, acknowledgements)| NodeAcknowledgements {
                node,
                tip,
                acknowledgements,
            }));
        }
        taken
    }

    /// Closes every session, behind what waits. Kafka: `acknowledgeOnClose`.
    pub fn close_sessions(&mut self) {
        self.fetch_more = false;
        self.buffer.clear();
        for node in self.nodes.values_mut() {
            node.waiting.push_back(Waiting {
                acknowledgements: std::mem::take(&mut node.with_fetch),
                commit: None,
                closes: true,
            });
        }
    }

    /// Forgets the nodes, whose sessions are closed.
    pub fn reset(&mut self) {
        *self = Self {
            completed: std::mem::take(&mut self.completed),
            lock_timeout_ms: self.lock_timeout_ms,
            metrics: std::mem::take(&mut self.metrics),
            ..Self::default()
        };
    }

    /// Whether a request of a session has no response yet, or waits.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.nodes.values().all(|node| node.waiting.is_empty())
    }

    /// Whether acknowledgements of this commit have no result yet.
    pub fn is_committing(&self, commit: CommitId) -> bool {
        let waits = |node: &Node| node.waiting.iter().any(|waiting| waiting.commit == Some(commit));
        self.nodes.values().any(waits) || self.in_flight.values().any(|sent| sent.commit == Some(commit))
    }

    /// The time for a commit is over: what waits is not sent.
    pub fn give_up(&mut self, commit: CommitId, why: &ClientError) {
        for node in self.nodes.values_mut() {
            let (given_up, waiting) = std::mem::take(&mut node.waiting)
                .into_iter()
                .partition(|waiting| waiting.commit == Some(commit));
            node.waiting = waiting;
            let given_up: VecDeque<Waiting> = given_up;
            for waiting in given_up {
                complete(&mut self.completed, waiting.acknowledgements, waiting.commit, why);
            }
        }
    }

    /// Results of acknowledgements, oldest first.
    pub fn take_completed(&mut self) -> Vec<Completed> {
        let completed = std::mem::take(&mut self.completed);
        let failed = completed.iter().filter(|of| of.result.is_err());
        self.metrics.acknowledgements_failed += failed.map(|of| of.acknowledgements.count()).sum::<u64>();
        completed
    }

    /// An error that a poll has to return.
    pub fn take_failure(&mut self) -> Option<ClientError> {
        self.failure.take()
    }

    /// When a fetch that waits after an error may be sent; `None`: none waits.
    pub fn next_deadline_ms(&self, now_ms: i64) -> Option<i64> {
        let waits = |node: &&Node| self.fetch_more && node.busy.is_none() && node.retry_at_ms > now_ms;
        self.nodes.values().filter(waits).map(|node| node.retry_at_ms).min()
    }

    /// Sends what can be sent. `wanted`: the assigned partitions. Kafka: `poll`, `processAcknowledgements`.
    pub fn send(
        &mut self,
        net: &mut ConsumerNetworkClient,
        metadata: &mut ConsumerMetadata,
        settings: &Settings,
        member_id: &Arc<str>,
        wanted: &[TopicIdPartition],
    ) {
        let member = Member { settings, member_id };
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        for id in ids {
            self.send_acknowledgements(id, net, metadata, member);
        }
        if !self.fetch_more || member_id.is_empty() {
            return;
        }
        let mut by_leader: BTreeMap<NodeId, Vec<TopicIdPartition>> = BTreeMap::new();
        for tip in wanted {
            match metadata.leader(&tip.tp) {
                Some(leader) => by_leader.entry(leader.node).or_default().push(tip.clone()),
                None => metadata.request_update(),
            }
        }
        for &id in by_leader.keys() {
            self.nodes.entry(id).or_default();
        }
        if settings.acquire_mode == ShareAcquireMode::RecordLimit && self.asks_for_records.is_none() {
            self.choose_node(&by_leader, net.now_ms());
        }
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        for id in ids {
            let of_node = by_leader.remove(&id).unwrap_or_default();
            self.send_fetch(id, &of_node, net, metadata, member);
        }
    }

    /// With a record limit one node is asked for records at a time, in turn: together they could acquire more than the limit.
    fn choose_node(&mut self, by_leader: &BTreeMap<NodeId, Vec<TopicIdPartition>>, now_ms: i64) {
        let is_free = |id: &&NodeId| {
            let node = self.nodes.get(*id);
            node.is_some_and(|node| node.busy.is_none() && now_ms >= node.retry_at_ms)
        };
        let after = |id: &&NodeId| self.asked_last.is_none_or(|last| **id > last);
        let free = || by_leader.keys().filter(is_free);
        let chosen = free().find(after).or_else(|| free().next()).copied();
        self.asks_for_records = chosen;
        self.asked_last = chosen.or(self.asked_last);
    }

    /// Sends the first ShareAcknowledge that waits for this node.
    fn send_acknowledgements(
        &mut self,
        id: NodeId,
        net: &mut ConsumerNetworkClient,
        metadata: &ConsumerMetadata,
        member: Member<'_>,
    ) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        while node.busy.is_none()
            && let Some(mut waiting) = node.waiting.pop_front()
        {
            let moved = move_out(&mut waiting.acknowledgements, |tip| {
                metadata.leader(&tip.tp).is_some_and(|leader| leader.node != id)
            });
            let why = refused(ErrorCode::NOT_LEADER_OR_FOLLOWER, "the leader has moved");
            complete(&mut self.completed, moved, waiting.commit, &why);
            if node.session.is_new() {
                // A session cannot be opened by ShareAcknowledge, and the one with the acquisitions is gone.
                let why = refused(ErrorCode::SHARE_SESSION_NOT_FOUND, "the share session has ended");
                complete(&mut self.completed, waiting.acknowledgements, waiting.commit, &why);
                continue;
            }
            if waiting.acknowledgements.is_empty() && !waiting.closes {
                continue;
            }
            let epoch = if waiting.closes {
                FINAL_EPOCH
            } else {
                node.session.epoch()
            };
            let request = member.share_acknowledge(epoch, &waiting.acknowledgements);
            let request_id = net.send(id, Request::ShareAcknowledge(request));
            node.busy = Some(request_id);
            self.metrics.acknowledgements_sent += count(&waiting.acknowledgements);
            self.in_flight.insert(
                request_id,
                InFlight {
                    node: id,
                    acknowledgements: waiting.acknowledgements,
                    commit: waiting.commit,
                    closes: waiting.closes,
                    sent_ms: net.now_ms(),
                },
            );
        }
    }

    /// Sends a fetch to this node, which leads these partitions.
    fn send_fetch(
        &mut self,
        id: NodeId,
        wanted: &[TopicIdPartition],
        net: &mut ConsumerNetworkClient,
        metadata: &ConsumerMetadata,
        member: Member<'_>,
    ) {
        let now_ms = net.now_ms();
        let is_limited = member.settings.acquire_mode == ShareAcquireMode::RecordLimit;
        let asks_for_records = !is_limited || self.asks_for_records == Some(id);
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.busy.is_some() || now_ms < node.retry_at_ms {
            return;
        }
        if wanted.is_empty() && (node.session.is_new() || !node.session.has_any()) && node.with_fetch.is_empty() {
            return;
        }
        let mut acknowledgements = std::mem::take(&mut node.with_fetch);
        if node.session.is_new() {
            // The first request of a session may not carry acknowledgements, and the session with the acquisitions is gone.
            let why = refused(ErrorCode::INVALID_SHARE_SESSION_EPOCH, "the share session has ended");
            complete(&mut self.completed, std::mem::take(&mut acknowledgements), None, &why);
            if wanted.is_empty() {
                return;
            }
        }
        let moved = move_out(&mut acknowledgements, |tip| {
            metadata.leader(&tip.tp).is_some_and(|leader| leader.node != id)
        });
        let why = refused(ErrorCode::NOT_LEADER_OR_FOLLOWER, "the leader has moved");
        complete(&mut self.completed, moved, None, &why);
        let mut change = node.session.change_to(wanted);
        // Naming a partition adds it to the session: one that is not wanted is only acknowledged.
        let given_up = acknowledgements.keys().filter(|tip| !node.session.has(tip));
        let given_up: Vec<_> = given_up
            .filter(|tip| !change.forgotten.contains(tip))
            .cloned()
            .collect();
        change.forgotten.extend(given_up);
        if !asks_for_records && change.added.is_empty() && change.forgotten.is_empty() && acknowledgements.is_empty() {
            return;
        }
        let request = member.share_fetch(change, &acknowledgements, asks_for_records);
        let request_id = net.send(id, Request::ShareFetch(request));
        node.busy = Some(request_id);
        self.metrics.acknowledgements_sent += count(&acknowledgements);
        self.in_flight.insert(
            request_id,
            InFlight {
                node: id,
                acknowledgements,
                commit: None,
                closes: false,
                sent_ms: now_ms,
            },
        );
    }

    /// Whether the completion is of one of these requests.
    pub fn owns(&self, completion: &Completion) -> bool {
        self.in_flight.contains_key(&completion.correlation_id)
    }

    /// Takes the response of one of these requests.
    pub fn on_completion(
        &mut self,
        completion: Completion,
        metadata: &mut ConsumerMetadata,
        settings: &Settings,
        now_ms: i64,
    ) {
        let Some(sent) = self.in_flight.remove(&completion.correlation_id) else {
            return;
        };
        if let Some(node) = self.nodes.get_mut(&sent.node) {
            node.busy = None;
        }
        if self.asks_for_records == Some(sent.node) {
            self.asks_for_records = None;
        }
        match completion.result {
            Ok(Response::ShareFetch(response)) => self.on_fetch(sent, response, metadata, settings, now_ms),
            Ok(Response::ShareAcknowledge(response)) => self.on_acknowledge(sent, response, metadata),
            Ok(_) => self.on_lost(
                sent,
                &Failure::Malformed("another response was expected".into()),
                settings,
                now_ms,
            ),
            Err(why) => self.on_lost(sent, &why, settings, now_ms),
        }
    }

    /// The request has no response. Kafka: `handleShareFetchFailure`, `handleShareAcknowledgeFailure`.
    fn on_lost(&mut self, sent: InFlight, why: &Failure, settings: &Settings, now_ms: i64) {
        if let Some(node) = self.nodes.get_mut(&sent.node) {
            node.session.on_failure();
            node.retry_at_ms = now_ms.saturating_add(settings.retry_backoff_ms);
        }
        self.buffer.forget(sent.node);
        let code = match why {
            Failure::TimedOut => ErrorCode::REQUEST_TIMED_OUT,
            _ => ErrorCode::NETWORK_EXCEPTION,
        };
        let why = refused(code, &why.to_string());
        complete(&mut self.completed, sent.acknowledgements, sent.commit, &why);
    }

    fn on_fetch(
        &mut self,
        mut sent: InFlight,
        response: ShareFetchResponse,
        metadata: &mut ConsumerMetadata,
        settings: &Settings,
        now_ms: i64,
    ) {
        let Some(node) = self.nodes.get_mut(&sent.node) else {
            return;
        };
        node.session.on_response(response.error_code);
        if response.error_code != ErrorCode::NONE {
            node.retry_at_ms = now_ms.saturating_add(settings.retry_backoff_ms);
            let why = response
                .error_message
                .as_deref()
                .unwrap_or(response.error_code.message());
            let error = refused(response.error_code, why);
            if is_fatal(response.error_code) {
                self.failure = Some(error.clone());
            } else {
                log::info!("node {}: {error}; another share session is opened", sent.node);
            }
            if response.error_code == ErrorCode::UNKNOWN_TOPIC_ID {
                metadata.request_update();
            }
            complete(&mut self.completed, sent.acknowledgements, None, &error);
            return;
        }
        if response.acquisition_lock_timeout_ms > 0 {
            self.lock_timeout_ms = Some(response.acquisition_lock_timeout_ms);
        }
        let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
        let size: usize = partitions
            .map(|of| of.records.as_ref().map_or(0, |records| records.len()))
            .sum();
        let of_fetches = &mut self.metrics.fetches;
        of_fetches.fetch_size.add(i64::try_from(size).unwrap_or(i64::MAX));
        of_fetches.fetch_latency.add(now_ms.saturating_sub(sent.sent_ms).max(0));
        let (mut has_records, mut has_errors) = (false, false);
        for topic in response.responses {
            for partition in topic.partitions {
                let at = (topic.topic_id, partition.partition_index);
                let Some(tip) = self.asked(&sent, at) else {
                    metadata.request_update();
                    continue;
                };
                if let Some(acknowledgements) = sent.acknowledgements.remove(&tip) {
                    let code = partition.acknowledge_error_code;
                    let why = partition.acknowledge_error_message.as_deref();
                    self.completed.push(Completed {
                        result: result_of(code, why, metadata),
                        tip: tip.clone(),
                        acknowledgements,
                        commit: None,
                    });
                }
                has_errors |= partition.error_code != ErrorCode::NONE;
                has_records |= !partition.acquired_records.is_empty();
                self.on_partition(sent.node, tip, partition, metadata);
            }
        }
        if has_records {
            self.fetch_more = false;
        } else if has_errors && let Some(node) = self.nodes.get_mut(&sent.node) {
            // Errors stay in the session and are answered at once.
            node.retry_at_ms = now_ms.saturating_add(settings.retry_backoff_ms);
        }
        let why = refused(
            ErrorCode::UNKNOWN_SERVER_ERROR,
            "the response does not name the partition",
        );
        complete(&mut self.completed, sent.acknowledgements, None, &why);
    }

    /// A partition of a request: it may have left the session and the metadata meanwhile.
    fn asked(&self, sent: &InFlight, (topic_id, partition): (TopicId, i32)) -> Option<TopicIdPartition> {
        let node = self.nodes.get(&sent.node);
        let of_session = node.and_then(|node| node.session.named(topic_id, partition));
        let named = |tip: &&TopicIdPartition| tip.topic_id == topic_id && tip.tp.partition == partition;
        let acknowledged = || sent.acknowledgements.keys().find(named);
        of_session.or_else(acknowledged).cloned()
    }

    /// Kafka: `ShareFetchCollector#initialize`, `#handleInitializeErrors`.
    fn on_partition(
        &mut self,
        node: NodeId,
        tip: TopicIdPartition,
        partition: PartitionData,
        metadata: &mut ConsumerMetadata,
    ) {
        match partition.error_code {
            ErrorCode::NONE => {}
            code @ (ErrorCode::TOPIC_AUTHORIZATION_FAILED | ErrorCode::CORRUPT_MESSAGE) => {
                let why = partition.error_message.as_deref().unwrap_or(code.message());
                self.failure = Some(refused(code, &format!("{}: {why}", tip.tp)));
            }
            code => {
                log::debug!("{}: {code:?} {:?}", tip.tp, partition.error_message);
                metadata.request_update();
            }
        }
        if partition.acquired_records.is_empty() {
            return;
        }
        let acquired = partition.acquired_records.iter().map(|range| Acquired {
            first: range.first_offset,
            last: range.last_offset,
            delivery_count: range.delivery_count,
        });
        self.buffer.add(ShareCompletedFetch {
            tip,
            node,
            records: partition.records.unwrap_or_default(),
            acquired: acquired.collect(),
        });
    }

    /// Kafka: `handleShareAcknowledgeSuccess`, `handleShareAcknowledgeCloseSuccess`.
    fn on_acknowledge(
        &mut self,
        mut sent: InFlight,
        response: ShareAcknowledgeResponse,
        metadata: &mut ConsumerMetadata,
    ) {
        if let Some(node) = self.nodes.get_mut(&sent.node) {
            node.session.on_response(response.error_code);
            if sent.closes {
                node.session.on_failure();
            }
        }
        if response.error_code != ErrorCode::NONE {
            let why = response
                .error_message
                .as_deref()
                .unwrap_or(response.error_code.message());
            let error = refused(response.error_code, why);
            complete(&mut self.completed, sent.acknowledgements, sent.commit, &error);
            return;
        }
        if response.acquisition_lock_timeout_ms > 0 {
            self.lock_timeout_ms = Some(response.acquisition_lock_timeout_ms);
        }
        for topic in response.responses {
            for partition in topic.partitions {
                let Some(tip) = self.asked(&sent, (topic.topic_id, partition.partition_index)) else {
                    continue;
                };
                if let Some(acknowledgements) = sent.acknowledgements.remove(&tip) {
                    self.completed.push(Completed {
                        result: result_of(partition.error_code, partition.error_message.as_deref(), metadata),
                        tip,
                        acknowledgements,
                        commit: sent.commit,
                    });
                }
            }
        }
        let why = refused(
            ErrorCode::UNKNOWN_SERVER_ERROR,
            "the response does not name the partition",
        );
        complete(&mut self.completed, sent.acknowledgements, sent.commit, &why);
    }
}

/// How many records these acknowledge.
fn count(acknowledgements: &ByPartition) -> u64 {
    acknowledgements.values().map(Acknowledgements::count).sum()
}

/// Who sends the requests.
#[derive(Clone, Copy)]
struct Member<'a> {
    settings: &'a Settings,
    member_id: &'a Arc<str>,
}

impl Member<'_> {
    /// A renewal fetches nothing: its limits are 0. So are those of a request that only changes the session or acknowledges.
    fn share_fetch(
        self,
        change: super::share_session_handler::SessionChange,
        acknowledgements: &ByPartition,
        asks_for_records: bool,
    ) -> ShareFetchRequest {
        let renews = acknowledgements.values().any(Acknowledgements::has_renewals);
        let unless_renewal = |value: i32| if renews || !asks_for_records { 0 } else { value };
        let settings = self.settings;
        let added = change.added.into_iter().map(|tip| {
            let acknowledged = acknowledgements.get(&tip);
            (tip, acknowledged)
        });
        let added: BTreeMap<TopicIdPartition, Option<&Acknowledgements>> = added
            .chain(acknowledgements.iter().map(|(tip, of)| (tip.clone(), Some(of))))
            .collect();
        let partition = |(tip, of): (TopicIdPartition, Option<&Acknowledgements>)| {
            let partition = FetchPartition {
                partition_index: tip.tp.partition,
                acknowledgement_batches: of.map(fetch_batches).unwrap_or_default(),
                ..Default::default()
            };
            (tip.topic_id, partition)
        };
        let topic = |(topic_id, partitions)| fetch::FetchTopic { topic_id, partitions };
        let forgotten = change.forgotten.iter().map(|tip| (tip.topic_id, tip.tp.partition));
        let forgotten = by_topic(forgotten).into_iter();
        ShareFetchRequest {
            group_id: Some(Arc::clone(&settings.group_id)),
            member_id: Some(Arc::clone(self.member_id)),
            share_session_epoch: change.epoch,
            max_wait_ms: unless_renewal(settings.fetch_max_wait_ms),
            min_bytes: unless_renewal(settings.fetch_min_bytes),
            max_bytes: unless_renewal(settings.fetch_max_bytes),
            max_records: unless_renewal(settings.max_poll_records),
            batch_size: unless_renewal(settings.max_poll_records),
            share_acquire_mode: settings.acquire_mode as i8,
            is_renew_ack: renews,
            topics: by_topic(added.into_iter().map(partition))
                .into_iter()
                .map(topic)
                .collect(),
            forgotten_topics_data: forgotten
                .map(|(topic_id, partitions)| fetch::ForgottenTopic { topic_id, partitions })
                .collect(),
            reader: None,
        }
    }

    fn share_acknowledge(self, epoch: i32, acknowledgements: &ByPartition) -> ShareAcknowledgeRequest {
        let partition = |(tip, of): (&TopicIdPartition, &Acknowledgements)| {
            let partition = AcknowledgePartition {
                partition_index: tip.tp.partition,
                acknowledgement_batches: acknowledge_batches(of),
            };
            (tip.topic_id, partition)
        };
        let topics = by_topic(acknowledgements.iter().map(partition)).into_iter();
        ShareAcknowledgeRequest {
            group_id: Some(Arc::clone(&self.settings.group_id)),
            member_id: Some(Arc::clone(self.member_id)),
            share_session_epoch: epoch,
            is_renew_ack: acknowledgements.values().any(Acknowledgements::has_renewals),
            topics: topics
                .map(|(topic_id, partitions)| acknowledge::AcknowledgeTopic { topic_id, partitions })
                .collect(),
            reader: None,
        }
    }
}

fn fetch_batches(of: &Acknowledgements) -> Vec<fetch::AcknowledgementBatch> {
    let batch = |batch: AcknowledgementBatch| fetch::AcknowledgementBatch {
        first_offset: batch.first_offset,
        last_offset: batch.last_offset,
        acknowledge_types: batch.acknowledge_types,
    };
    of.batches().into_iter().map(batch).collect()
}

fn acknowledge_batches(of: &Acknowledgements) -> Vec<acknowledge::AcknowledgementBatch> {
    let batch = |batch: AcknowledgementBatch| acknowledge::AcknowledgementBatch {
        first_offset: batch.first_offset,
        last_offset: batch.last_offset,
        acknowledge_types: batch.acknowledge_types,
    };
    of.batches().into_iter().map(batch).collect()
}

/// Errors of a fetch that another session does not help against.
fn is_fatal(code: ErrorCode) -> bool {
    use ErrorCode as E;
    matches!(
        code,
        E::GROUP_AUTHORIZATION_FAILED | E::CLUSTER_AUTHORIZATION_FAILED | E::UNSUPPORTED_VERSION | E::INVALID_REQUEST
    )
}

/// Takes the partitions with this property out.
fn move_out(all: &mut ByPartition, is_moved: impl Fn(&TopicIdPartition) -> bool) -> ByPartition {
    let moved: Vec<TopicIdPartition> = all.keys().filter(|tip| is_moved(tip)).cloned().collect();
    let take = |tip: TopicIdPartition| all.remove(&tip).map(|of| (tip, of));
    moved.into_iter().filter_map(take).collect()
}

/// All of these have failed for one reason.
fn complete(completed: &mut Vec<Completed>, all: ByPartition, commit: Option<CommitId>, why: &ClientError) {
    completed.extend(all.into_iter().map(|(tip, acknowledgements)| Completed {
        tip,
        acknowledgements,
        result: Err(why.clone()),
        commit,
    }));
}

fn refused(code: ErrorCode, why: &str) -> ClientError {
    ClientError::Kafka {
        code,
        message: format!("{why} ({code:?})"),
    }
}

/// The result of a partition's acknowledgements.
fn result_of(code: ErrorCode, why: Option<&str>, metadata: &mut ConsumerMetadata) -> Result<(), ClientError> {
    if code == ErrorCode::NONE {
        return Ok(());
    }
    if code.is_retriable() {
        metadata.request_update(); // The leader may have moved.
    }
    Err(refused(code, why.unwrap_or(code.message())))
}
