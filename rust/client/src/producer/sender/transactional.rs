//! The turn of a transactional producer: one request of its transaction at a time, and no records meanwhile. Kafka:
//! `Sender#maybeSendAndPollTransactionalRequest`.

use fletchlog_api::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest, FindCoordinatorRequest, InitProducerIdRequest,
    Request, Response, TransactionSupportedOperation, TxnOffsetCommitRequest,
};

use super::{RequestKind, Sender};
use crate::producer::shared::Guarded;
use crate::producer::transaction::{Kind, NO_PRODUCER, TxnRequest};

impl Sender {
    /// `Some(wait)`: no records may be sent in this turn. `None`: they may, or the producer has no transactions.
    pub(super) fn transactional_turn(&mut self, guarded: &mut Guarded, now: i64) -> Option<i64> {
        let transactions = guarded.transactions()?;
        if transactions.has_in_flight_request() {
            return Some(i64::MAX);
        }
        if let Some(reason) = transactions.abort_reason()
            && guarded.accumulator.has_incomplete()
        {
            guarded.accumulator.abort_undrained(&reason);
        }
        let has_incomplete = guarded.accumulator.has_incomplete();
        let transactions = guarded.transactions()?;
        let request = transactions.next_request(has_incomplete);
        guarded.accumulator.completing = guarded.transactions()?.is_completing();
        self.send_transactional(guarded, request?, now)
    }

    fn send_transactional(&mut self, guarded: &mut Guarded, request: TxnRequest, now: i64) -> Option<i64> {
        if request.not_before_ms > now {
            let wait = request.not_before_ms - now;
            guarded.transactions()?.put_back(request);
            return Some(wait);
        }
        let known = match request.coordinator_type() {
            None => self.client.least_loaded_ready_node(now),
            Some(_) => guarded.transactions()?.coordinator(&request),
        };
        let node = match known {
            Some(node) if self.client.ready(node, now) => node,
            // The node may be down, and another one the coordinator. Kafka: `NetworkClientUtils#awaitReady`,
            // `Sender#maybeFindCoordinatorAndRetry`.
            Some(node)
                if request.coordinator_type().is_some() && self.client.connection_failure(node, now).is_some() =>
            {
                guarded.transactions()?.disconnected(request, now);
                return Some(0);
            }
            Some(node) => {
                let wait = self.client.connection_delay(node, now);
                guarded.transactions()?.put_back(request);
                return Some(wait);
            }
            None => {
                let transactions = guarded.transactions()?;
                let lookup = request.coordinator_type().is_some();
                if lookup {
                    transactions.look_up_coordinator(&request);
                }
                transactions.put_back(request);
                return Some(if lookup { 0 } else { self.client.nodes_delay(now) });
            }
        };
        let message = message(guarded, &request.kind)?;
        guarded.transactions()?.sent();
        self.send(node, RequestKind::Transactional(Box::new(request)), message);
        Some(i64::MAX)
    }

    /// Handles a response, or `None` if the connection was lost before it arrived.
    pub(super) fn transactional_answer(
        &mut self,
        guarded: &mut Guarded,
        request: TxnRequest,
        response: Option<&Response>,
        now: i64,
    ) {
        let producer = guarded.producer_id().unwrap_or(NO_PRODUCER);
        let level = self.client.transaction_version();
        let Some(transactions) = guarded.transactions() else {
            return;
        };
        if self.config.release.knows_transaction_version_2 {
            transactions.set_transaction_version(level);
        }
        let Some(response) = response else {
            return transactions.disconnected(request, now);
        };
        let new_id = transactions.answered(request, response, producer, now);
        if let (Some(new_id), Some(state)) = (new_id, &mut guarded.idempotence) {
            state.set_transactional_id(&new_id);
            if new_id.bumped {
                guarded.trace_bump();
            }
        }
        self.take_fatal(guarded);
    }

    /// What is fatal for the transaction is fatal for the producer.
    fn take_fatal(&self, guarded: &mut Guarded) {
        let fatal = guarded.transactions().and_then(|t| t.fatal());
        if let (Some(error), Some(state)) = (fatal, &mut guarded.idempotence) {
            state.set_fatal(error);
        }
    }
}

/// What the broker does about partitions that were not added to the transaction.
pub(super) fn operation(guarded: &mut Guarded) -> TransactionSupportedOperation {
    match guarded.transactions() {
        Some(transactions) if transactions.is_version_2() => TransactionSupportedOperation::AddPartition,
        _ => TransactionSupportedOperation::default(),
    }
}

/// The message of a request.
fn message(guarded: &mut Guarded, kind: &Kind) -> Option<Request> {
    let (producer_id, producer_epoch) = guarded.producer_id().unwrap_or(NO_PRODUCER);
    let operation = operation(guarded);
    let (transactional_id, timeout_ms) = guarded.transactions()?.identity();
    Some(match kind {
        Kind::FindCoordinator { key_type, key } => {
            Request::FindCoordinator(FindCoordinatorRequest::of(*key_type, key.clone()))
        }
        Kind::InitProducerId { producer } => Request::InitProducerId(InitProducerIdRequest {
            transactional_id: Some(transactional_id),
            transaction_timeout_ms: timeout_ms,
            producer_id: producer.0,
            producer_epoch: producer.1,
            ..Default::default()
        }),
        Kind::AddPartitionsToTxn { partitions } => Request::AddPartitionsToTxn(AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: transactional_id,
            v3_and_below_producer_id: producer_id,
            v3_and_below_producer_epoch: producer_epoch,
            v3_and_below_topics: AddPartitionsToTxnRequest::topics_of(
                partitions.iter().map(|&p| guarded.metadata.partition(p).tp.clone()),
            ),
            ..Default::default()
        }),
        Kind::AddOffsetsToTxn { group, .. } => Request::AddOffsetsToTxn(AddOffsetsToTxnRequest {
            transactional_id,
            producer_id,
            producer_epoch,
            group_id: group.group_id.clone(),
        }),
        Kind::TxnOffsetCommit { offsets, group } => Request::TxnOffsetCommit(TxnOffsetCommitRequest {
            transactional_id,
            group_id: group.group_id.clone(),
            producer_id,
            producer_epoch,
            generation_id_or_member_epoch: group.generation_id,
            member_id: group.member_id.clone(),
            group_instance_id: group.group_instance_id.clone(),
            topics: TxnOffsetCommitRequest::topics_of(offsets.iter().cloned()),
            operation,
            ..Default::default()
        }),
        &Kind::EndTxn { committed, bumps_epoch } => Request::EndTxn(EndTxnRequest {
            transactional_id,
            producer_id,
            producer_epoch,
            committed,
            bumps_epoch,
        }),
    })
}
