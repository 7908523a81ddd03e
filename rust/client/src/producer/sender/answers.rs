//! The second half of a turn: responses, lost connections, and what becomes of each batch (spec 9.5).

use fletchlog_api::java_hash::{hash_map_order, table_size_for};
use fletchlog_api::{ErrorCode, InitProducerIdResponse, ProduceResponse, Response};
use fletchlog_protocol::messages::produce_response::PartitionProduceResponse;
use fletchlog_records::TopicPartition;
use fletchlog_records::planted;

use super::{RequestKind, Sender};
use crate::ClientError;
use crate::net::is_metadata_error;
use crate::net::{ClientResponse, InFlightRequest};
use crate::producer::errors::{is_fatal, reason, refused, understood, until_reopened};
use crate::producer::idempotence::Failure;
use crate::producer::producer_batch::BatchId;
use crate::producer::record_accumulator::past_delivery;
use crate::producer::shared::Guarded;
use crate::producer::trace::TraceKind;

const NO_ID: &str = "no producer id could be had";

impl Sender {
    /// Reads every response that has arrived, then checks for requests that took too long. Kafka: `NetworkClient#poll`.
    pub(crate) fn receive_half(&mut self) {
        let shared = self.shared.clone();
        let now = shared.now();
        let mut responses = Vec::new();
        for node in self.client.nodes_by_oldest(InFlightRequest::is_written) {
            loop {
                let arrived = self.client.receive(node, now);
                if arrived.is_empty() {
                    break;
                }
                responses.extend(arrived);
            }
        }
        responses.extend(self.client.handle_timed_out_requests(now));
        let disconnects = self.client.take_disconnects();
        if responses.is_empty() && !disconnects {
            return;
        }
        let mut guard = shared.lock();
        if disconnects {
            guard.metadata.request_update();
        }
        for response in responses {
            self.handle(&mut guard, response, now);
        }
        self.idle_turns = 0;
        guard.metrics.requests = self.client.metrics();
        shared.signal.notify();
        shared.made_progress(&mut guard);
    }

    fn handle(&mut self, guarded: &mut Guarded, response: ClientResponse<RequestKind>, now: i64) {
        match response.result {
            Ok(answer) => self.answered(guarded, response.kind, answer, now),
            Err(why) => self.lost(guarded, response.kind, &why, now),
        }
    }

    fn lost(&mut self, guarded: &mut Guarded, kind: RequestKind, why: &fletchlog_api::Failure, now: i64) {
        match kind {
            RequestKind::Produce(batches) => {
                let code = match why {
                    fletchlog_api::Failure::TimedOut if self.config.release.timeout_is_code_7 => {
                        ErrorCode::REQUEST_TIMED_OUT
                    }
                    fletchlog_api::Failure::UnsupportedVersion(_) => ErrorCode::UNSUPPORTED_VERSION,
                    _ => ErrorCode::NETWORK_EXCEPTION,
                };
                for id in in_map_order(guarded, batches) {
                    let answer = PartitionProduceResponse::refused(
                        guarded.tp_of(id).partition,
                        if planted!("lost-connection-acknowledges-its-batches") {
                            ErrorCode::NONE
                        } else {
                            code
                        },
                    );
                    self.complete_batch(guarded, id, &answer, now);
                }
            }
            RequestKind::ProduceWithoutAck(_) => {}
            RequestKind::Metadata => guarded.metadata.failed_update(now),
            RequestKind::InitProducerId => {
                self.init_in_flight = false;
                self.init_not_before_ms = now.saturating_add(self.config.retry_backoff_ms);
            }
            RequestKind::Transactional(request) => self.transactional_answer(guarded, *request, None, now),
        }
    }

    fn answered(&mut self, guarded: &mut Guarded, kind: RequestKind, response: Response, now: i64) {
        match (kind, response) {
            (RequestKind::Produce(batches), Response::Produce(response)) => {
                self.produced(guarded, batches, &response, now);
            }
            (RequestKind::Metadata, Response::Metadata(response)) if self.client.handle_metadata(&response) => {
                guarded.metadata.update(&response, now);
            }
            (RequestKind::InitProducerId, Response::InitProducerId(response)) => {
                self.initialized(guarded, response, now)
            }
            (RequestKind::Produce(batches), _) => self.produced(guarded, batches, &ProduceResponse::default(), now),
            (RequestKind::Metadata, _) => guarded.metadata.failed_update(now),
            (RequestKind::InitProducerId, _) => self.init_in_flight = false,
            (RequestKind::Transactional(request), response) => {
                self.transactional_answer(guarded, *request, Some(&response), now);
            }
            (RequestKind::ProduceWithoutAck(_), _) => {}
        }
    }

    fn initialized(&mut self, guarded: &mut Guarded, response: InitProducerIdResponse, now: i64) {
        self.init_in_flight = false;
        let Some(state) = &mut guarded.idempotence else { return };
        self.id_refused = None;
        if response.error_code == ErrorCode::NONE {
            state.set_id(
                (response.producer_id, response.producer_epoch),
                &mut guarded.accumulator.batches,
            );
            return;
        }
        match response.failure.as_ref().filter(|failure| failure.until_reopened) {
            Some(failure) => state.set_fatal(until_reopened(NO_ID, failure)),
            None if response.error_code.is_retriable() => {
                let reason = reason(response.error_code, response.failure.as_ref());
                self.id_refused = Some(format!("{NO_ID}: {reason}"));
                self.init_not_before_ms = now.saturating_add(self.config.retry_backoff_ms);
            }
            None => state.set_fatal(ClientError::kafka(response.error_code, NO_ID)),
        }
    }

    fn produced(&mut self, guarded: &mut Guarded, batches: Vec<BatchId>, response: &ProduceResponse, now: i64) {
        let mut open = batches;
        for (topic, answer) in response.partitions() {
            let is_of = |tp: &TopicPartition| tp.partition == answer.index && tp.topic == *topic;
            let at = open.iter().position(|&id| is_of(guarded.tp_of(id)));
            if let Some(at) = at {
                self.complete_batch(guarded, open.remove(at), answer, now);
            }
        }
        // The response does not contain these partitions.
        for id in open {
            let answer =
                PartitionProduceResponse::refused(guarded.tp_of(id).partition, ErrorCode::UNKNOWN_SERVER_ERROR);
            self.complete_batch(guarded, id, &answer, now);
        }
    }

    /// Kafka: `Sender#completeBatch`, in its order: split, retry, duplicate, failure, success; then unmute.
    fn complete_batch(&mut self, guarded: &mut Guarded, id: BatchId, answer: &PartitionProduceResponse, now: i64) {
        let code = understood(answer.error_code, self.config.release);
        let tp = &guarded.tp_of(id).clone();
        let record = answer.record_errors.first();
        let detail = record.map(|error| {
            let text = error.batch_index_error_message.as_deref().unwrap_or_default();
            format!("record {}: {text}", error.batch_index)
        });
        let detail = detail.as_deref().or(answer.error_message.as_deref());
        let batch = &mut guarded.accumulator.batches[id];
        batch.on_wire = false;
        let (partition, was_done, node) = (batch.partition, batch.done, None);
        if code == ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER && !was_done {
            guarded.trace(TraceKind::RefusedOutOfOrder, id, node, -1, Some(code));
        }
        if code == ErrorCode::NONE || code == ErrorCode::DUPLICATE_SEQUENCE_NUMBER {
            self.succeed(guarded, id, code, answer);
        } else if code == ErrorCode::MESSAGE_TOO_LARGE && guarded.accumulator.batches[id].count() > 1 && !was_done {
            guarded.trace(TraceKind::Split, id, node, -1, Some(code));
            guarded
                .accumulator
                .split_and_reenqueue(id, &tp.topic, guarded.idempotence.as_mut());
        } else if self.can_retry(guarded, id, code, answer, now) {
            guarded.trace(TraceKind::Retried, id, node, -1, Some(code));
            guarded.metrics.retried += i64::from(guarded.accumulator.batches[id].count());
            let failure = detail.map_or_else(|| code.message().to_owned(), |d| format!("{}: {d}", code.message()));
            guarded.accumulator.batches[id].last_failure = Some(failure.into());
            guarded.accumulator.reenqueue(id, guarded.idempotence.as_ref(), now);
            guarded.trace(TraceKind::Reenqueued, id, node, -1, None);
        } else {
            self.fail(guarded, id, code, &refused(code, tp, detail));
        }
        if is_metadata_error(answer.error_code) {
            guarded.metadata.request_update();
        }
        if self.config.max_in_flight == 1 && guarded.accumulator.unmute(partition) {
            guarded.trace(TraceKind::Unmuted, id, node, -1, None);
        }
        guarded.accumulator.batches.remove_if_unused(id);
    }

    fn succeed(&mut self, guarded: &mut Guarded, id: BatchId, code: ErrorCode, answer: &PartitionProduceResponse) {
        let duplicate = code == ErrorCode::DUPLICATE_SEQUENCE_NUMBER;
        let base_offset = if duplicate { -1 } else { answer.base_offset };
        let kind = if duplicate {
            TraceKind::AcknowledgedAsDuplicate
        } else {
            TraceKind::Acknowledged
        };
        guarded.trace(kind, id, None, base_offset, None);
        if let Some(state) = &mut guarded.idempotence {
            state.completed(id, base_offset, &guarded.accumulator.batches);
        }
        guarded.complete(id, base_offset, answer.log_append_time_ms);
    }

    /// Kafka: `Sender#canRetry`, `TransactionManager#canRetry`.
    fn can_retry(
        &self,
        guarded: &mut Guarded,
        id: BatchId,
        code: ErrorCode,
        answer: &PartitionProduceResponse,
        now: i64,
    ) -> bool {
        let batches = &mut guarded.accumulator.batches;
        let batch = &batches[id];
        if batch.done
            || batch.attempts >= self.config.retries
            || past_delivery(batch, self.config.delivery_timeout_ms, now)
        {
            return false;
        }
        let Some(state) = &mut guarded.idempotence else {
            return code.is_retriable();
        };
        match code {
            ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER => state.on_out_of_order(id, batches),
            ErrorCode::UNKNOWN_PRODUCER_ID => state.on_unknown_producer(id, answer.log_start_offset, batches),
            other => other.is_retriable(),
        }
    }

    fn fail(&mut self, guarded: &mut Guarded, id: BatchId, code: ErrorCode, error: &ClientError) {
        let was_done = guarded.accumulator.batches[id].done;
        if was_done && self.config.release.late_error_ignored {
            return;
        }
        if let Some(state) = &mut guarded.idempotence {
            if is_fatal(code) {
                state.set_fatal(error.clone());
            }
            let failure = match code {
                ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER => Failure::OutOfOrder,
                ErrorCode::UNKNOWN_PRODUCER_ID => Failure::UnknownProducerId,
                _ => Failure::Other,
            };
            let adjust = guarded.accumulator.batches[id].attempts < self.config.retries;
            state.failed(id, failure, adjust, error, &mut guarded.accumulator.batches);
        }
        if !was_done {
            guarded.trace(TraceKind::Failed, id, None, -1, Some(code));
            guarded.accumulator.fail(id, error);
        }
    }
}

/// The batches of a lost request in the walk order of Java's `new HashMap(size)` over their partitions.
fn in_map_order(guarded: &Guarded, batches: Vec<BatchId>) -> Vec<BatchId> {
    if batches.len() < 2 {
        return batches;
    }
    let keys: Vec<TopicPartition> = batches.iter().map(|&id| guarded.tp_of(id).clone()).collect();
    let order = hash_map_order(&keys, table_size_for(keys.len()));
    order
        .iter()
        .filter_map(|tp| keys.iter().position(|key| key == tp))
        .map(|at| batches[at])
        .collect()
}
