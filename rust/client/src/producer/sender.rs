//! The sender: the first half of a turn drains the accumulator into requests, the second half reads the responses (spec 9.5). It never
//! waits itself: the caller (a thread, a test) waits between the halves. Kafka: `Sender`, `NetworkClient`.

mod answers;
mod thread;
mod transactional;

use std::sync::Arc;

use fletchlog_api::{ErrorCode, InitProducerIdRequest, MetadataRequest, NodeId, ProduceRequest, Request, Transport};
use fletchlog_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use fletchlog_records::planted;
use fletchlog_records::{Compression, TopicPartition};
use rustc_hash::FxHashMap;

use super::config::ProducerConfig;
use super::errors::expired;
use super::idempotence::Failure;
use super::producer_batch::BatchId;
use super::record_accumulator::past_delivery;
use super::send::waiting::{fail_waiting, place};
use super::shared::{Guarded, Shared};
use super::trace::TraceKind;
use super::transaction::TxnRequest;
use crate::ClientError;
use crate::error::broker_closed;
use crate::net::{InFlightRequest, NetworkClient};

/// How often the sender checks whether a test still keeps the producer from sending.
const HOLD_SLICE_MS: i64 = 5;

/// What a request was for.
#[derive(Debug)]
enum RequestKind {
    /// Its batches, in request order.
    Produce(Vec<BatchId>),
    /// acks=0: its batches, until they are decided, which is at once; the empty response only frees the connection.
    ProduceWithoutAck(Vec<BatchId>),
    Metadata,
    InitProducerId,
    Transactional(Box<TxnRequest>),
}

/// Turns queued batches into requests, and responses into outcomes.
pub(crate) struct Sender {
    shared: Arc<Shared>,
    config: Arc<ProducerConfig>,
    client: NetworkClient<RequestKind>,
    init_in_flight: bool,
    init_not_before_ms: i64,
    /// Why there is no producer id yet.
    id_refused: Option<String>,
    /// Consecutive turns, without any change, in which a node was ready but the stop rules blocked everything.
    idle_turns: usize,
    /// When nothing can be sent: the end of the next back-off, after which another partition may be sent.
    back_off_ends_at: i64,
}

impl Sender {
    pub(crate) fn new(shared: Arc<Shared>, mut transport: Box<dyn Transport>, seed: u64) -> Self {
        let is_remote = transport.in_process().is_none();
        let mut guard = shared.lock();
        guard.metadata.is_remote = is_remote;
        if let Some(state) = &mut guard.idempotence {
            state.first_goes_alone = is_remote;
        }
        drop(guard);
        let config = shared.config.clone();
        let client = NetworkClient::new(transport, config.max_in_flight, config.reconnect, seed);
        if let Some(waker) = client.waker() {
            shared.set_waker(waker);
        }
        Self {
            shared,
            config,
            client,
            init_in_flight: false,
            init_not_before_ms: 0,
            id_refused: None,
            idle_turns: 0,
            back_off_ends_at: i64::MAX,
        }
    }

    /// Whether nothing is on the wire and no connection is being opened.
    pub(crate) fn is_idle(&self) -> bool {
        self.client.is_idle()
    }

    /// As [`NetworkClient::wait`].
    pub(crate) fn wait(&mut self, ms: i64) -> bool {
        self.client.wait(ms)
    }

    /// Whether a response has arrived on some connection.
    pub(crate) fn has_answer(&mut self) -> bool {
        let mut busy = self.client.nodes_by_oldest(InFlightRequest::is_written).into_iter();
        busy.any(|node| self.client.has_arrived(node))
    }

    /// Sends what can be sent. Returns how many ms may pass before the next turn if nothing happens (0: none).
    pub(crate) fn send_half(&mut self) -> i64 {
        let shared = self.shared.clone();
        if self.client.is_closed() {
            let mut guard = shared.lock();
            shared.die(&mut guard, &broker_closed());
            return 0;
        }
        let held = self.client.in_process().is_some_and(|peer| !peer.begin_drain());
        self.pack();
        let mut wait = {
            let mut guard = shared.lock();
            let (placed, next_ms) = place(&shared, &mut guard);
            if placed {
                shared.made_progress(&mut guard);
            }
            let wait = if held && guard.is_open() {
                HOLD_SLICE_MS
            } else {
                self.turn(&mut guard)
            };
            wait.min(next_ms)
        };
        let mut guard = shared.lock();
        if guard.transactions().is_some_and(|t| t.take_progress()) {
            shared.made_progress(&mut guard);
        }
        drop(guard);
        let now = shared.now();
        self.client.write(now);
        if !held && let Some(peer) = self.client.in_process() {
            peer.end_drain();
        }
        let mut guard = shared.lock();
        if let Some(error) = self.client.take_fatal() {
            self.authentication_failed(&mut guard, &error);
        }
        guard.metadata.unreachable = self.client.last_failure();
        guard.metrics.requests = self.client.metrics();
        if self.config.acks == 0 && self.complete_without_ack(&mut guard) {
            shared.signal.notify();
            shared.made_progress(&mut guard);
        }
        let next_metadata_ms = self.maybe_send_metadata(&mut guard);
        wait = wait.min(next_metadata_ms);
        drop(guard);
        if next_metadata_ms == 0 {
            // A broker in this process executes the request in this call, so the lock is not held.
            self.client.write(now);
        }
        if self.is_idle() {
            wait
        } else {
            wait.min(self.config.request_timeout_ms.max(1))
        }
    }

    /// Nothing can be sent now, and waiting does not help: waiting calls and batches that were never sent fail with this error. A later
    /// send tries again, except with a transactional producer. Kafka: `TransactionManager#authenticationFailed`.
    fn authentication_failed(&self, guarded: &mut Guarded, error: &ClientError) {
        guarded.metadata.fatal_error(error.clone());
        guarded.accumulator.abort_undrained(error);
        if let Some(transactions) = guarded.transactions() {
            transactions.transition_to_fatal_error(error.clone());
        }
        fail_waiting(&self.shared, guarded, error);
        self.shared.made_progress(guarded);
    }

    /// Compresses what this turn will drain, without the lock: users append meanwhile.
    fn pack(&self) {
        if self.config.compression == Compression::None {
            return;
        }
        let mut batches = self.shared.lock().accumulator.take_unpacked_heads();
        if batches.is_empty() {
            return;
        }
        for batch in &mut batches {
            batch.pack(&self.config);
        }
        let accumulator = &mut self.shared.lock().accumulator;
        for batch in batches {
            accumulator.give_back(batch);
        }
    }

    fn turn(&mut self, guarded: &mut Guarded) -> i64 {
        let now = self.shared.now();
        let no_records = match self.idempotence_turn(guarded, now) {
            Some(wait) => Some(wait),
            None => self.transactional_turn(guarded, now),
        };
        let Some(wait) = no_records else {
            return self.produce_turn(guarded, now);
        };
        // Java does not check delivery.timeout.ms here: its records wait as long as the id, or the transaction's partitions, are refused.
        // Here they fail in time.
        if !planted!("records-wait-for-an-id-for-ever") {
            self.expire(guarded, now);
        }
        wait.min(self.next_expiry(guarded).saturating_sub(now)).max(0)
    }

    /// Resolves sequences, bumps the epoch, requests an id. `Some(wait)`: no records may be sent in this turn.
    fn idempotence_turn(&mut self, guarded: &mut Guarded, now: i64) -> Option<i64> {
        let state = guarded.idempotence.as_mut()?;
        state.maybe_resolve_sequences();
        if let Some(error) = state.fatal().cloned() {
            if guarded.accumulator.has_incomplete() {
                guarded.accumulator.abort_all(&error);
            }
            return Some(i64::MAX);
        }
        if state.transactions.is_some() {
            return None;
        }
        if state.maybe_bump(&mut guarded.accumulator.batches) {
            guarded.trace_bump();
        }
        if guarded.producer_id().is_some() {
            return None;
        }
        if self.init_in_flight || guarded.metadata.is_update_due(now) {
            return Some(i64::MAX);
        }
        if self.init_not_before_ms > now {
            return Some(self.init_not_before_ms - now);
        }
        let Some(node) = self.client.least_loaded_ready_node(now) else {
            return Some(self.client.nodes_delay(now));
        };
        self.init_in_flight = true;
        let request = InitProducerIdRequest {
            transactional_id: None,
            transaction_timeout_ms: i32::MAX,
            producer_id: -1,
            producer_epoch: -1,
            ..Default::default()
        };
        self.send(node, RequestKind::InitProducerId, Request::InitProducerId(request));
        Some(i64::MAX)
    }

    /// Kafka: `Sender#sendProducerData`.
    fn produce_turn(&mut self, guarded: &mut Guarded, now: i64) -> i64 {
        let check = guarded.accumulator.ready(&guarded.metadata, now);
        for &id in &check.heads {
            if !std::mem::replace(&mut guarded.accumulator.batches[id].ready_traced, true) {
                guarded.trace(TraceKind::Ready, id, None, -1, None);
            }
        }
        if check.unknown_leaders {
            guarded.metadata.request_update();
        }
        let due = self.client.metadata_go_first(guarded.metadata.is_update_due(now), now);
        let mut wait = check.next_check_ms;
        if self.back_off_ends_at <= now {
            self.idle_turns = 0;
        }
        self.back_off_ends_at = i64::MAX;
        let (mut sent, mut most_led) = (false, 0);
        for &node in &check.nodes {
            let can_send = !due && self.client.ready(node, now);
            guarded.accumulator.note_node(node, now, can_send);
            if !can_send {
                wait = wait.min(self.client.connection_delay(node, now));
                continue;
            }
            most_led = most_led.max(guarded.metadata.led_by(node).len());
            let batches = guarded
                .accumulator
                .drain(&guarded.metadata, node, guarded.idempotence.as_mut(), now);
            if !batches.is_empty() {
                sent = true;
                self.send_produce(guarded, node, batches);
            }
        }
        let expired = self.expire(guarded, now);
        // Java takes the next turn at once while any node is ready, so it spins while a stop rule blocks everything. The drain index moves
        // with each turn, so another partition may be sent. After one round over all partitions only a response or the end of a back-off
        // helps.
        self.idle_turns = if sent || most_led == 0 { 0 } else { self.idle_turns + 1 };
        if sent || expired || (1..=most_led).contains(&self.idle_turns) {
            return 0;
        }
        if self.idle_turns > 0 {
            let left = guarded.accumulator.next_back_off_end_ms(now);
            self.back_off_ends_at = now.saturating_add(left);
            wait = wait.min(left);
        }
        wait.min(self.next_expiry(guarded).saturating_sub(now)).max(0)
    }

    fn send_produce(&mut self, guarded: &mut Guarded, node: NodeId, batches: Vec<BatchId>) {
        let mut topic_data: Vec<TopicProduceData> = Vec::new();
        let now = self.shared.now();
        let mut records = 0;
        for (at, &id) in batches.iter().enumerate() {
            guarded.trace(TraceKind::Drained, id, Some(node), -1, None);
            let batch = &mut guarded.accumulator.batches[id];
            batch.on_wire = true;
            let (partition, bytes) = (batch.partition, batch.records.bytes());
            records += i64::from(batch.count());
            guarded
                .metrics
                .queue_time
                .add(now.saturating_sub(batch.created_ms).max(0));
            guarded
                .metrics
                .batch_size
                .add(i64::try_from(bytes.len()).unwrap_or(i64::MAX));
            let TopicPartition {
                topic,
                partition: index,
            } = &guarded.metadata.partition(partition).tp;
            let records = Some(bytes);
            let data = PartitionProduceData { index: *index, records };
            match topic_data.last_mut().filter(|last| last.name == *topic) {
                Some(last) => last.partition_data.push(data),
                None => topic_data.push(of_topic(guarded, topic, &batches[at..], data)),
            }
            if self.config.max_in_flight == 1 {
                guarded.accumulator.mute(partition);
                guarded.trace(TraceKind::Muted, id, Some(node), -1, None);
            }
            guarded.trace(TraceKind::Sent, id, Some(node), -1, None);
        }
        guarded.metrics.records.add(records);
        let kind = if self.config.acks == 0 {
            RequestKind::ProduceWithoutAck(batches)
        } else {
            RequestKind::Produce(batches)
        };
        let request = ProduceRequest {
            transactional_id: self.config.transactional_id.clone(),
            acks: self.config.acks,
            operation: transactional::operation(guarded),
            timeout_ms: i32::try_from(self.config.request_timeout_ms).unwrap_or(i32::MAX),
            topic_data,
        };
        self.send(node, kind, Request::Produce(request));
    }

    fn send(&mut self, node: NodeId, kind: RequestKind, request: Request) {
        let id = self.client.next_correlation_id();
        self.client
            .send(node, id, kind, request, self.config.request_timeout_ms);
    }

    /// Every batch on the wire, oldest request first per node.
    fn batches_on_wire(&self) -> impl Iterator<Item = BatchId> {
        let batches = self.client.requests().flat_map(|request| match &request.kind {
            RequestKind::Produce(batches) => batches.as_slice(),
            _ => &[],
        });
        batches.copied()
    }

    /// Fails batches past delivery.timeout.ms: queued ones first, then those on the wire. True if there were any.
    fn expire(&mut self, guarded: &mut Guarded, now: i64) -> bool {
        let mut late = guarded.accumulator.take_expired(now);
        late.extend(self.batches_on_wire().filter(|&id| {
            let batch = &guarded.accumulator.batches[id];
            !batch.done && past_delivery(batch, self.config.delivery_timeout_ms, now)
        }));
        if late.is_empty() {
            return false;
        }
        // A batch that was never sent waited behind a failed batch of its partition.
        let failed: FxHashMap<_, _> = late
            .iter()
            .map(|&id| &guarded.accumulator.batches[id])
            .filter_map(|batch| Some((batch.partition, batch.last_failure.clone()?)))
            .collect();
        for id in late {
            let batch = &guarded.accumulator.batches[id];
            let tp = guarded.metadata.partition(batch.partition).tp.clone();
            let waited = now.saturating_sub(batch.created_ms);
            let cause = batch.last_failure.clone();
            let cause = cause.or_else(|| failed.get(&batch.partition).cloned());
            let cause = cause.or_else(|| self.not_sent_because(guarded));
            let cause = cause.or_else(|| self.client.last_failure().map(Arc::from));
            let error = expired(&tp, batch.count(), waited, cause.as_deref());
            guarded.trace(TraceKind::Expired, id, None, -1, Some(ErrorCode::REQUEST_TIMED_OUT));
            if let Some(state) = &mut guarded.idempotence {
                let batches = &mut guarded.accumulator.batches;
                state.failed(id, Failure::Other, false, &error, batches);
                if batches[id].in_retry {
                    state.mark_unresolved(id, batches);
                }
            }
            guarded.accumulator.fail(id, &error);
            guarded.accumulator.batches.remove_if_unused(id);
        }
        self.shared.signal.notify();
        true
    }

    /// Why no batch can be sent, if there is a reason.
    fn not_sent_because(&self, guarded: &Guarded) -> Option<Arc<str>> {
        let state = guarded.idempotence.as_ref()?;
        match &state.transactions {
            Some(transactions) => transactions.last_refusal().map(Arc::from),
            None => self.id_refused.as_deref().map(Arc::from),
        }
    }

    fn next_expiry(&self, guarded: &Guarded) -> i64 {
        let on_wire = self
            .batches_on_wire()
            .map(|id| &guarded.accumulator.batches[id])
            .filter(|batch| !batch.done)
            .map(|batch| batch.created_ms.saturating_add(self.config.delivery_timeout_ms))
            .min();
        guarded.accumulator.next_expiry_ms().min(on_wire.unwrap_or(i64::MAX))
    }

    /// acks=0: what was sent counts as delivered. True if anything was decided.
    fn complete_without_ack(&mut self, guarded: &mut Guarded) -> bool {
        let mut batches = Vec::new();
        for request in self.client.requests_mut() {
            if let RequestKind::ProduceWithoutAck(sent) = &mut request.kind {
                batches.append(sent);
            }
        }
        for &id in &batches {
            guarded.trace(TraceKind::Acknowledged, id, None, -1, None);
            guarded.complete(id, -1, -1);
            let partition = guarded.accumulator.batches[id].partition;
            guarded.accumulator.batches[id].on_wire = false;
            guarded.accumulator.batches.remove_if_unused(id);
            guarded.accumulator.unmute(partition);
        }
        !batches.is_empty()
    }

    /// Sends a Metadata request when one is due. Returns the ms until the next one may be sent, or 0 if one must be written now: a poll in
    /// Java ends after it has written, and nodes are ready again. Kafka: `DefaultMetadataUpdater#maybeUpdate`, `Selector#poll`.
    fn maybe_send_metadata(&mut self, guarded: &mut Guarded) -> i64 {
        let now = self.shared.now();
        if guarded.metadata.is_in_progress() {
            return i64::MAX;
        }
        let left = guarded.metadata.time_to_next_update(now);
        if left > 0 {
            return left;
        }
        let Some(node) = self.client.node_for_metadata(now) else {
            return self.client.nodes_delay(now);
        };
        let request = MetadataRequest::for_topics(Some(guarded.metadata.topic_names()), true);
        guarded.metadata.start_request();
        self.send(node, RequestKind::Metadata, Request::Metadata(request));
        0
    }
}

/// A topic's entry in a request with its first batch, and with room for the others of `batches` that go into this entry.
fn of_topic(guarded: &Guarded, name: &Arc<str>, batches: &[BatchId], first: PartitionProduceData) -> TopicProduceData {
    let is_of = |id: &&BatchId| guarded.tp_of(**id).topic == *name;
    let mut partition_data = Vec::with_capacity(batches.iter().take_while(is_of).count());
    partition_data.push(first);
    TopicProduceData {
        name: Arc::clone(name),
        partition_data,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests;
