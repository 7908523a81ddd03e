//! What a response means for the transaction. Kafka: `TransactionManager.TxnRequestHandler` and its subclasses.
//!
//! | code | InitProducerId | AddPartitionsToTxn | AddOffsetsToTxn | TxnOffsetCommit | EndTxn |
//! |---|---|---|---|---|---|
//! | 15, 16 | look up the coordinator, again | same | same | same (7, too) | same |
//! | 14, 51 and other retriable ones | again | again (3, too; 51 after 20 ms for the first) | again | again (3, too) | again |
//! | 47, 90 | fatal: fenced | fatal | fatal | fatal | fatal |
//! | 49, 59 | fatal | abortable, new epoch | abortable, new epoch | fatal | abortable, new epoch |
//! | 22, 25, 69, 113 | | | | abortable (CommitFailed) | |
//! | 30, 82 | | | 30 abortable | abortable | |
//! | 29, 55, others of a partition | | abortable | | | |
//! | 120 | abortable | abortable | abortable | abortable | abortable (of an abort: fatal) |
//! | any, with a storage failure that lasts until the broker is reopened | fatal | fatal | fatal | fatal | fatal |
//! | 48, 53, anything else | fatal | 48, 53 fatal | fatal | fatal | fatal (48: the end of an abort of a transaction of which no addition was acknowledged) |
//!
//! While a transaction is being aborted nothing is added to it: requests that would be sent again fail instead.

use fletchlog_api::{
    AddPartitionsToTxnResponse, CoordinatorType, EndTxnResponse, ErrorCode, Response, StorageFailure,
    TxnOffsetCommitResponse,
};

use super::errors::fenced;
use super::manager::TransactionManager;
use super::request::{Kind, TxnRequest};
use super::state::State;
use crate::ClientError;
use crate::producer::errors::{reason, until_reopened};

/// The first AddPartitionsToTxn of a transaction may arrive while the previous transaction is still being completed, which takes very
/// little time. Kafka: `ADD_PARTITIONS_RETRY_BACKOFF_MS`.
const ADD_PARTITIONS_RETRY_BACKOFF_MS: i64 = 20;

/// The producer has a new id or epoch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NewId {
    pub id: (i64, i16),
    /// Sequences restart.
    pub bumped: bool,
}

impl TransactionManager {
    /// The connection was lost before the response arrived, or before the request was sent.
    pub(crate) fn disconnected(&mut self, request: TxnRequest, now: i64) {
        let adds = matches!(
            request.kind,
            Kind::AddPartitionsToTxn { .. } | Kind::AddOffsetsToTxn { .. }
        );
        self.maybe_started |= adds && self.in_flight;
        self.in_flight = false;
        self.look_up_coordinator(&request);
        self.retry(request, now, self.retry_backoff_ms);
    }

    fn retry(&mut self, mut request: TxnRequest, now: i64, backoff_ms: i64) {
        request.not_before_ms = now.saturating_add(backoff_ms);
        self.queue_again(request);
    }

    /// Handles a response. `producer`: the producer's id and epoch.
    pub(crate) fn answered(
        &mut self,
        request: TxnRequest,
        response: &Response,
        producer: (i64, i16),
        now: i64,
    ) -> Option<NewId> {
        self.in_flight = false;
        if !matches!(request.kind, Kind::FindCoordinator { .. }) {
            self.last_refusal = None;
        }
        if self.state == State::FatalError {
            // Another response was fatal; the waiting call gets that error.
            if let Some(error) = self.error("the request was answered too late") {
                self.fail(&request.result, error);
            }
            return None;
        }
        match (&request.kind, response) {
            (Kind::FindCoordinator { .. }, Response::FindCoordinator(found)) => match found.coordinator_node() {
                Ok(node) => self.coordinator_found(&request, node),
                Err(error) => self.refused(request, error, None, now),
            },
            (Kind::InitProducerId { producer: had }, Response::InitProducerId(response)) => {
                if response.error_code != ErrorCode::NONE {
                    self.refused(request, response.error_code, response.failure.as_ref(), now);
                    return None;
                }
                let bumped = had.0 >= 0;
                if bumped {
                    self.complete_transaction();
                }
                if let Err(error) = self.transition_to(State::Ready) {
                    self.transition_to_fatal_error(error);
                    return None;
                }
                self.update_version();
                self.done(&request.result);
                return Some(NewId {
                    id: (response.producer_id, response.producer_epoch),
                    bumped,
                });
            }
            (Kind::AddPartitionsToTxn { .. }, Response::AddPartitionsToTxn(response)) => {
                self.partitions_added(request, response, now);
            }
            (Kind::AddOffsetsToTxn { offsets, group }, Response::AddOffsetsToTxn(added))
                if added.error_code == ErrorCode::NONE =>
            {
                self.started = true;
                let (offsets, group) = (offsets.clone(), group.clone());
                // The call ends only when the offsets are written.
                let kind = Kind::TxnOffsetCommit { offsets, group };
                self.queue_again(TxnRequest::new(kind, request.result));
            }
            (Kind::TxnOffsetCommit { .. }, Response::TxnOffsetCommit(response)) => {
                self.offsets_written(request, response, now);
            }
            (Kind::EndTxn { .. }, Response::EndTxn(response)) => return self.ended(request, response, producer, now),
            (Kind::AddOffsetsToTxn { .. }, Response::AddOffsetsToTxn(refused)) => {
                self.refused(request, refused.error_code, refused.failure.as_ref(), now);
            }
            (kind, response) => {
                let text = format!("the coordinator answered {kind:?} with {response:?}");
                self.fatal_error(&request, ClientError::IllegalState(text));
            }
        }
        None
    }

    fn ended(
        &mut self,
        request: TxnRequest,
        response: &EndTxnResponse,
        producer: (i64, i16),
        now: i64,
    ) -> Option<NewId> {
        let aborts = matches!(request.kind, Kind::EndTxn { committed: false, .. });
        match response.error_code {
            ErrorCode::NONE if matches!(request.kind, Kind::EndTxn { bumps_epoch: true, .. }) => {
                let id = (response.producer_id, response.producer_epoch);
                self.end_of_transaction(&request.result, id);
                return Some(NewId { id, bumped: true });
            }
            ErrorCode::NONE => self.end_of_transaction(&request.result, producer),
            // The request whose response was lost added nothing: there is no transaction.
            ErrorCode::INVALID_TXN_STATE if aborts && !self.started => {
                self.end_of_transaction(&request.result, producer);
            }
            // There is nothing left to abort; the producer continues with a new id (KIP-360).
            error if aborts && is_forgotten(error) => self.queue_init(producer, &request.result),
            error => self.refused(request, error, response.failure.as_ref(), now),
        }
        None
    }

    fn coordinator_found(&mut self, request: &TxnRequest, node: i32) {
        match &request.kind {
            Kind::FindCoordinator {
                key_type: CoordinatorType::Group,
                key,
            } => self.group_coordinator = Some((key.clone(), node)),
            _ => self.transaction_coordinator = Some(node),
        }
        self.done(&request.result);
    }

    fn partitions_added(&mut self, request: TxnRequest, response: &AddPartitionsToTxnResponse, now: i64) {
        let answers: Vec<_> = response.errors().collect();
        let per_partition = |code: ErrorCode| {
            matches!(
                code,
                ErrorCode::NONE | ErrorCode::TOPIC_AUTHORIZATION_FAILED | ErrorCode::OPERATION_NOT_ATTEMPTED
            )
        };
        if let Some((_, code)) = answers.iter().find(|(_, code)| !per_partition(*code)) {
            if !is_retriable(&request.kind, *code) {
                self.forget_pending(&request);
            }
            return self.refused(request, *code, response.failure.as_ref(), now);
        }
        self.forget_pending(&request);
        let failed: Vec<String> = answers
            .iter()
            .filter(|(_, code)| *code != ErrorCode::NONE)
            .map(|(tp, code)| format!("{tp} {code}"))
            .collect();
        if failed.is_empty() {
            if let Kind::AddPartitionsToTxn { partitions } = &request.kind {
                self.partitions.extend(partitions.iter().copied());
            }
            self.started = true;
            self.done(&request.result);
        } else {
            let code = answers
                .iter()
                .map(|(_, code)| *code)
                .find(|code| *code == ErrorCode::TOPIC_AUTHORIZATION_FAILED)
                .unwrap_or(ErrorCode::OPERATION_NOT_ATTEMPTED);
            let message = format!(
                "partitions could not be added to the transaction: {}",
                failed.join(", ")
            );
            self.abortable_error(&request, ClientError::Kafka { code, message });
        }
    }

    /// Its partitions are no longer pending, whether they were added or not: records of partitions that were added before can be sent.
    fn forget_pending(&mut self, request: &TxnRequest) {
        if let Kind::AddPartitionsToTxn { partitions } = &request.kind {
            self.pending_partitions
                .retain(|partition| !partitions.contains(partition));
        }
    }

    fn offsets_written(&mut self, mut request: TxnRequest, response: &TxnOffsetCommitResponse, now: i64) {
        let (answers, failure) = (response.errors().collect::<Vec<_>>(), response.failure.as_ref());
        let failed = |code: &ErrorCode| *code != ErrorCode::NONE;
        if let Some((_, code)) = answers
            .iter()
            .find(|(_, code)| failed(code) && !is_retriable(&request.kind, *code))
        {
            return self.refused(request, *code, failure, now);
        }
        let open: Vec<_> = answers.iter().filter(|(_, c)| failed(c)).map(|(tp, _)| tp).collect();
        if open.is_empty() {
            return self.done(&request.result);
        }
        if let Kind::TxnOffsetCommit { offsets, .. } = &mut request.kind {
            offsets.retain(|(tp, _)| open.contains(&tp));
        }
        // The remaining offsets are sent again; a coordinator that has moved is looked up once.
        let moved = answers.iter().map(|(_, code)| *code).find(|code| is_moved(*code));
        let code = moved.unwrap_or(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
        self.refused(request, code, failure, now);
        if let (None, Some((tp, code))) = (failure, answers.iter().find(|(_, code)| failed(code))) {
            self.last_refusal = Some(format!("TxnOffsetCommit was refused for {tp}: {}", code.message()));
        }
    }

    /// Handles an error code, by the table of the module.
    fn refused(&mut self, request: TxnRequest, code: ErrorCode, failure: Option<&StorageFailure>, now: i64) {
        let what = format!("{} of {} was refused", name(&request.kind), self.transactional_id);
        if let Some(failure) = failure.filter(|failure| failure.until_reopened) {
            return self.fatal_error(&request, until_reopened(&what, failure));
        }
        if is_moved(code) {
            self.look_up_coordinator(&request);
        }
        if is_retriable(&request.kind, code) {
            let first = matches!(request.kind, Kind::AddPartitionsToTxn { .. }) && self.partitions.is_empty();
            let backoff_ms = if first && code == ErrorCode::CONCURRENT_TRANSACTIONS {
                self.retry_backoff_ms.min(ADD_PARTITIONS_RETRY_BACKOFF_MS)
            } else {
                self.retry_backoff_ms
            };
            self.last_refusal = Some(format!("{what}: {}", reason(code, failure)));
            return self.retry(request, now, backoff_ms);
        }
        let error = ClientError::kafka(code, what);
        match (code, &request.kind) {
            (ErrorCode::INVALID_PRODUCER_EPOCH | ErrorCode::PRODUCER_FENCED, _) => {
                let error = fenced(&self.transactional_id);
                self.fatal_error(&request, error);
            }
            (code, Kind::AddPartitionsToTxn { .. } | Kind::AddOffsetsToTxn { .. } | Kind::EndTxn { .. })
                if is_forgotten(code) =>
            {
                self.require_epoch_bump();
                self.abortable_error(&request, error);
            }
            (code, Kind::TxnOffsetCommit { .. }) if is_of_another_member(code) => {
                let text = format!(
                    "the offsets of the transaction do not belong to a current member of the group ({code}): abort, poll() the consumer and process what it returns"
                );
                self.abortable_error(&request, ClientError::CommitFailed(text));
            }
            (ErrorCode::TRANSACTION_ABORTABLE, Kind::EndTxn { committed: false, .. }) => {
                self.fatal_error(&request, error);
            }
            (ErrorCode::FENCED_INSTANCE_ID, Kind::TxnOffsetCommit { .. })
            | (
                ErrorCode::GROUP_AUTHORIZATION_FAILED,
                Kind::FindCoordinator { .. } | Kind::AddOffsetsToTxn { .. } | Kind::TxnOffsetCommit { .. },
            )
            | (ErrorCode::TRANSACTION_ABORTABLE, _) => self.abortable_error(&request, error),
            (
                ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED | ErrorCode::INVALID_TXN_STATE,
                Kind::AddPartitionsToTxn { .. },
            ) => self.fatal_error(&request, error),
            (_, Kind::AddPartitionsToTxn { .. }) => self.abortable_error(&request, error),
            _ => self.fatal_error(&request, error),
        }
    }

    fn fatal_error(&mut self, request: &TxnRequest, error: ClientError) {
        self.fail(&request.result, error.clone());
        self.transition_to_fatal_error(error);
    }

    fn abortable_error(&mut self, request: &TxnRequest, error: ClientError) {
        self.fail(&request.result, error.clone());
        if matches!(request.kind, Kind::FindCoordinator { .. }) {
            // The call that needs this coordinator fails with the reason itself.
            for waiting in self.queue.take(|kind| matches!(kind, Kind::TxnOffsetCommit { .. })) {
                self.fail(&waiting.result, error.clone());
            }
        }
        self.transition_to_abortable_error(error);
    }
}

/// Whether the coordinator must be looked up again.
fn is_moved(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::COORDINATOR_NOT_AVAILABLE | ErrorCode::NOT_COORDINATOR | ErrorCode::REQUEST_TIMED_OUT
    )
}

/// Whether the coordinator no longer has the producer id.
fn is_forgotten(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::INVALID_PRODUCER_ID_MAPPING | ErrorCode::UNKNOWN_PRODUCER_ID
    )
}

/// Whether the group has moved on from the member whose offsets these are.
fn is_of_another_member(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::UNKNOWN_MEMBER_ID
            | ErrorCode::ILLEGAL_GENERATION
            | ErrorCode::GROUP_ID_NOT_FOUND
            | ErrorCode::STALE_MEMBER_EPOCH
    )
}

fn is_retriable(kind: &Kind, code: ErrorCode) -> bool {
    match code {
        // The other requests name no topic.
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => {
            matches!(kind, Kind::AddPartitionsToTxn { .. } | Kind::TxnOffsetCommit { .. })
        }
        code => code.is_retriable(),
    }
}

fn name(kind: &Kind) -> &'static str {
    match kind {
        Kind::FindCoordinator { .. } => "FindCoordinator",
        Kind::InitProducerId { .. } => "InitProducerId",
        Kind::AddPartitionsToTxn { .. } => "AddPartitionsToTxn",
        Kind::AddOffsetsToTxn { .. } => "AddOffsetsToTxn",
        Kind::TxnOffsetCommit { .. } => "TxnOffsetCommit",
        Kind::EndTxn { .. } => "EndTxn",
    }
}
