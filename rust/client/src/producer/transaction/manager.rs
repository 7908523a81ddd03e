//! The state machine of a transactional producer. Every method is called under the producer's lock.

use std::collections::BTreeSet;
use std::sync::Arc;

use fletchlog_api::{CoordinatorType, NodeId, OffsetAndMetadata};
use fletchlog_records::TopicPartition;

use super::errors::{abortable, aborted, fatal, is_unknown_id};
use super::request::{Kind, Queue, RequestResult, TxnRequest};
use super::state::State;
use crate::ClientError;
use crate::group::ConsumerGroupMetadata;
use crate::producer::config::ProducerConfig;
use crate::producer::metadata::PartitionId;

pub(crate) const NO_PRODUCER: (i64, i16) = (-1, -1);
/// The end of the error text of requests that an abort drops.
const BEFORE_ADDED: &str = "this was added to it";

/// A call whose outcome was not returned to the user: it was interrupted or has timed out.
#[derive(Debug)]
struct PendingTransition {
    result: Arc<RequestResult>,
    state: State,
    operation: &'static str,
}

/// The state of one producer's transactions: partitions, queued requests, and the call that waits.
#[derive(Debug)]
pub(crate) struct TransactionManager {
    pub(super) transactional_id: Arc<str>,
    pub(super) timeout_ms: i32,
    pub(super) retry_backoff_ms: i64,
    pub(super) state: State,
    last_error: Option<ClientError>,
    /// Partitions to be added; below: those being added, and those that were added.
    pub(super) new_partitions: BTreeSet<PartitionId>,
    pub(super) pending_partitions: BTreeSet<PartitionId>,
    pub(super) partitions: BTreeSet<PartitionId>,
    pub(super) queue: Queue,
    pub(super) in_flight: bool,
    /// A partition or a group was added: EndTxn is needed.
    pub(super) started: bool,
    /// Something may have been added: the response to such a request was lost.
    pub(super) maybe_started: bool,
    pub(super) epoch_bump_required: bool,
    pending: Option<PendingTransition>,
    /// The cluster's level of transaction.version that the producer knows how to use: how its next transaction ends.
    transaction_version: i16,
    /// The open transaction is of version 2: requests with records or offsets add to it, its end raises the epoch. Kafka:
    /// `isTransactionV2Enabled`.
    is_version_2: bool,
    pub(super) transaction_coordinator: Option<NodeId>,
    /// The group that it coordinates, and its node.
    pub(super) group_coordinator: Option<(Arc<str>, NodeId)>,
    progress: bool,
    /// Why the request that is sent again was refused; cleared by the next response, except of FindCoordinator.
    pub(super) last_refusal: Option<String>,
}

impl TransactionManager {
    /// `None` without transactional.id.
    pub(crate) fn of(config: &ProducerConfig) -> Option<Self> {
        let id = config.transactional_id.clone()?;
        Some(Self::new(id, config.transaction_timeout_ms, config.retry_backoff_ms))
    }

    pub(crate) fn new(transactional_id: Arc<str>, timeout_ms: i32, retry_backoff_ms: i64) -> Self {
        Self {
            transactional_id,
            timeout_ms,
            retry_backoff_ms,
            state: State::Uninitialized,
            last_error: None,
            new_partitions: BTreeSet::new(),
            pending_partitions: BTreeSet::new(),
            partitions: BTreeSet::new(),
            queue: Queue::default(),
            in_flight: false,
            started: false,
            maybe_started: false,
            epoch_bump_required: false,
            pending: None,
            transaction_version: 0,
            is_version_2: false,
            transaction_coordinator: None,
            group_coordinator: None,
            progress: false,
            last_refusal: None,
        }
    }

    // ------------------------------------------------------------ the user's calls

    /// Kafka: `initializeTransactions`.
    pub(super) fn initialize(&mut self) -> Result<Arc<RequestResult>, ClientError> {
        self.transition("init_transactions", State::Initializing, |this| {
            this.check_no_error("init_transactions")?;
            this.transition_to(State::Initializing)?;
            let result = Arc::<RequestResult>::default();
            this.queue_init(NO_PRODUCER, &result);
            Ok(result)
        })
    }

    /// Kafka: `beginTransaction`.
    pub(super) fn begin(&mut self) -> Result<(), ClientError> {
        self.check_not_pending("begin_transaction")?;
        self.check_no_error("begin_transaction")?;
        self.transition_to(State::InTransaction)
    }

    /// Kafka: `beginCommit`.
    pub(super) fn begin_commit(&mut self) -> Result<Arc<RequestResult>, ClientError> {
        self.transition("commit_transaction", State::CommittingTransaction, |this| {
            this.check_no_error("commit_transaction")?;
            this.transition_to(State::CommittingTransaction)?;
            Ok(this.begin_completing(true))
        })
    }

    /// Kafka: `beginAbort`.
    pub(crate) fn begin_abort(&mut self, producer: (i64, i16)) -> Result<Arc<RequestResult>, ClientError> {
        self.transition("abort_transaction", State::AbortingTransaction, |this| {
            if this.state != State::AbortableError {
                this.check_no_error("abort_transaction")?;
            }
            let forgotten = this.last_error.as_ref().is_some_and(is_unknown_id);
            this.transition_to(State::AbortingTransaction)?;
            this.new_partitions.clear();
            // Queued additions no longer matter. In Java they delay the end of the transaction for as long as they are refused, which is
            // for ever if a topic was deleted.
            for request in this.queue.take(Kind::is_addition) {
                this.fail(&request.result, aborted(BEFORE_ADDED));
            }
            if forgotten {
                // EndTxn would be refused: the producer continues with a new id at once (KIP-360).
                let result = Arc::<RequestResult>::default();
                this.queue_init(producer, &result);
                return Ok(result);
            }
            Ok(this.begin_completing(false))
        })
    }

    fn begin_completing(&mut self, committed: bool) -> Arc<RequestResult> {
        self.queue_new_partitions();
        let result = Arc::<RequestResult>::default();
        let bumps_epoch = self.is_version_2;
        let kind = Kind::EndTxn { committed, bumps_epoch };
        self.queue.push(TxnRequest::new(kind, Arc::clone(&result)));
        result
    }

    /// Kafka: `sendOffsetsToTransaction`.
    pub(super) fn send_offsets(
        &mut self,
        offsets: Vec<(TopicPartition, OffsetAndMetadata)>,
        group: ConsumerGroupMetadata,
    ) -> Result<Arc<RequestResult>, ClientError> {
        const OPERATION: &str = "send_offsets_to_transaction";
        self.check_not_pending(OPERATION)?;
        self.check_no_error(OPERATION)?;
        if self.state != State::InTransaction {
            return Err(ClientError::IllegalState(format!(
                "{OPERATION}: no transaction is open (state {}); call begin_transaction first",
                self.state
            )));
        }
        let result = Arc::<RequestResult>::default();
        let kind = if self.is_version_2 {
            self.started = true;
            Kind::TxnOffsetCommit { offsets, group }
        } else {
            Kind::AddOffsetsToTxn { offsets, group }
        };
        self.queue.push(TxnRequest::new(kind, Arc::clone(&result)));
        Ok(result)
    }

    /// Starts a call that leads to `state`. If the call is repeated before its outcome was returned, it continues to wait for that outcome.
    /// Kafka: `handleCachedTransactionRequestResult`.
    fn transition(
        &mut self,
        operation: &'static str,
        state: State,
        start: impl FnOnce(&mut Self) -> Result<Arc<RequestResult>, ClientError>,
    ) -> Result<Arc<RequestResult>, ClientError> {
        if let Some(pending) = &self.pending {
            if pending.result.is_acked() {
                self.pending = None;
            } else if pending.state == state {
                return Ok(Arc::clone(&pending.result));
            } else {
                return Err(still_pending(operation, pending.operation));
            }
        }
        let result = start(self)?;
        self.pending = Some(PendingTransition {
            result: Arc::clone(&result),
            state,
            operation,
        });
        Ok(result)
    }

    /// Kafka: `throwIfPendingState`.
    fn check_not_pending(&mut self, operation: &str) -> Result<(), ClientError> {
        match &self.pending {
            Some(pending) if !pending.result.is_acked() => Err(still_pending(operation, pending.operation)),
            _ => {
                self.pending = None;
                Ok(())
            }
        }
    }

    /// Kafka: `maybeFailWithError`.
    fn check_no_error(&self, operation: &str) -> Result<(), ClientError> {
        self.error(operation).map_or(Ok(()), Err)
    }

    /// The error of a call while the producer is in an error state.
    pub(super) fn error(&self, operation: &str) -> Option<ClientError> {
        let cause = self.last_error.as_ref()?;
        match self.state {
            State::AbortableError => Some(abortable(operation, cause)),
            State::FatalError => Some(fatal(operation, cause)),
            _ => None,
        }
    }

    // ------------------------------------------------------------ records

    /// Kafka: `maybeAddPartition`, `failIfNotReadyForSend`.
    pub(crate) fn check_ready_for_send(&self) -> Result<(), ClientError> {
        self.check_no_error("send")?;
        match self.state {
            State::InTransaction => Ok(()),
            State::Uninitialized | State::Initializing => Err(ClientError::IllegalState(
                "send: a producer with a transactional.id sends nothing before init_transactions has returned"
                    .to_owned(),
            )),
            state => Err(ClientError::IllegalState(format!(
                "send: no transaction is open (state {state}); call begin_transaction first"
            ))),
        }
    }

    /// A record was queued for the partition.
    pub(crate) fn maybe_add_partition(&mut self, partition: PartitionId) {
        if self.is_version_2 {
            self.started = true;
            self.partitions.insert(partition);
        } else if !self.partitions.contains(&partition) && !self.pending_partitions.contains(&partition) {
            self.new_partitions.insert(partition);
        }
    }

    /// Kafka: `isSendToPartitionAllowed`.
    pub(crate) fn is_send_allowed(&self, partition: PartitionId) -> bool {
        self.state != State::FatalError && self.partitions.contains(&partition)
    }

    // ------------------------------------------------------------ the sender's questions

    /// transactional.id and transaction.timeout.ms.
    pub(crate) fn identity(&self) -> (Arc<str>, i32) {
        (Arc::clone(&self.transactional_id), self.timeout_ms)
    }
    /// Whether requests with records or offsets add their partitions to the transaction (version 2).
    pub(crate) fn is_version_2(&self) -> bool {
        self.is_version_2
    }
    /// The level of transaction.version that the cluster has and the producer knows. It is in effect from the next transaction on.
    pub(crate) fn set_transaction_version(&mut self, level: i16) {
        self.transaction_version = level;
    }
    /// Why the producer can do nothing more.
    pub(crate) fn fatal(&self) -> Option<ClientError> {
        self.last_error.clone().filter(|_| self.state == State::FatalError)
    }
    /// Why the transaction makes no progress, if the coordinator gave a reason.
    pub(crate) fn last_refusal(&self) -> Option<&str> {
        self.last_refusal.as_deref()
    }
    pub(crate) fn has_in_flight_request(&self) -> bool {
        self.in_flight
    }
    /// Committing or aborting: everything queued is sendable.
    pub(crate) fn is_completing(&self) -> bool {
        matches!(self.state, State::CommittingTransaction | State::AbortingTransaction)
    }
    /// Why queued records that were never on the wire fail: they belong to a transaction that is, or has to be, aborted.
    pub(crate) fn abort_reason(&self) -> Option<ClientError> {
        match self.state {
            State::AbortableError => self.error("send"),
            State::AbortingTransaction => Some(aborted("this record was sent")),
            _ => None,
        }
    }
    /// A transaction is open, being ended, or has failed and is not ended yet: closing has to end it.
    pub(crate) fn has_ongoing_transaction(&self) -> bool {
        self.is_completing() || matches!(self.state, State::InTransaction | State::AbortableError)
    }
    /// Whether a user's call got an outcome since the last call of this method.
    pub(crate) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.progress)
    }

    /// The request to send now; EndTxn, and a new epoch, wait until no record is undecided. Kafka: `nextRequest`.
    pub(crate) fn next_request(&mut self, has_incomplete: bool) -> Option<TxnRequest> {
        self.queue_new_partitions();
        if !has_incomplete {
            self.end_without_coordinator();
        }
        let is_end = |request: &TxnRequest| matches!(request.kind, Kind::EndTxn { .. });
        let is_bump =
            |request: &TxnRequest| matches!(request.kind, Kind::InitProducerId { producer } if producer != NO_PRODUCER);
        loop {
            if has_incomplete && self.queue.first().is_some_and(|r| is_end(r) || is_bump(r)) {
                return None;
            }
            let request = self.queue.pop()?;
            let is_lookup = matches!(request.kind, Kind::FindCoordinator { .. });
            let aborting_goes_on = self.state == State::AbortableError && is_lookup;
            if !aborting_goes_on && let Some(error) = self.error("the request was not sent") {
                // Later requests fail as well: nothing else would wake the sender to complete them.
                self.fail(&request.result, error);
                continue;
            }
            return Some(request);
        }
    }

    /// If nothing was added and nothing will be, the coordinator has no transaction and need not even be found.
    fn end_without_coordinator(&mut self) {
        // A queued commit does not end a transaction that has failed.
        if !self.is_completing() || self.started || self.maybe_started || self.queue.has(Kind::is_addition) {
            return;
        }
        let is_end = |kind: &Kind| matches!(kind, Kind::EndTxn { .. });
        if !self.queue.has(is_end) {
            return;
        }
        // This drops lookups of a coordinator: the next request starts a new one.
        for request in self.queue.drain() {
            if is_end(&request.kind) {
                self.end_of_transaction(&request.result, NO_PRODUCER);
            }
        }
    }

    /// Queues a request after a response or after a lost connection.
    pub(super) fn queue_again(&mut self, request: TxnRequest) {
        if self.state == State::AbortingTransaction && request.kind.is_addition() {
            self.fail(&request.result, aborted(BEFORE_ADDED));
        } else {
            self.queue.push(request);
        }
    }

    /// Puts back a request that could not be sent in this turn.
    pub(crate) fn put_back(&mut self, request: TxnRequest) {
        self.queue.put_back(request);
    }
    pub(crate) fn sent(&mut self) {
        self.in_flight = true;
    }

    pub(crate) fn coordinator(&self, request: &TxnRequest) -> Option<NodeId> {
        match &request.kind {
            Kind::TxnOffsetCommit { group, .. } => self
                .group_coordinator
                .as_ref()
                .filter(|(id, _)| *id == group.group_id)
                .map(|(_, node)| *node),
            _ => self.transaction_coordinator,
        }
    }

    /// Discards the known coordinator of a request and looks it up again. Kafka: `lookupCoordinator`.
    pub(crate) fn look_up_coordinator(&mut self, request: &TxnRequest) {
        let (key_type, key) = match &request.kind {
            Kind::FindCoordinator { .. } => return,
            Kind::TxnOffsetCommit { group, .. } => {
                self.group_coordinator = None;
                (CoordinatorType::Group, Arc::clone(&group.group_id))
            }
            _ => {
                self.transaction_coordinator = None;
                (CoordinatorType::Transaction, Arc::clone(&self.transactional_id))
            }
        };
        let same = |kind: &Kind| matches!(kind, Kind::FindCoordinator { key_type: t, .. } if *t == key_type);
        if !self.queue.has(same) {
            let kind = Kind::FindCoordinator { key_type, key };
            self.queue_again(TxnRequest::new(kind, Arc::default()));
        }
    }

    // ------------------------------------------------------------ transitions

    fn queue_new_partitions(&mut self) {
        if self.new_partitions.is_empty() {
            return;
        }
        let partitions = std::mem::take(&mut self.new_partitions);
        self.pending_partitions.extend(partitions.iter().copied());
        let partitions = partitions.into_iter().collect();
        self.queue
            .push(TxnRequest::new(Kind::AddPartitionsToTxn { partitions }, Arc::default()));
    }

    pub(super) fn queue_init(&mut self, producer: (i64, i16), result: &Arc<RequestResult>) {
        let kind = Kind::InitProducerId { producer };
        self.queue.push(TxnRequest::new(kind, Arc::clone(result)));
    }

    pub(super) fn transition_to(&mut self, target: State) -> Result<(), ClientError> {
        if !self.state.may_become(target) {
            let hint = match (self.state, target) {
                (State::Uninitialized, _) => "call init_transactions first",
                (State::Ready, State::CommittingTransaction | State::AbortingTransaction) => {
                    "no transaction is open, call begin_transaction first"
                }
                (State::InTransaction, State::InTransaction) => "commit or abort the open transaction first",
                (_, State::Initializing) => "init_transactions is called once, before the first transaction",
                _ => "see the state",
            };
            return Err(ClientError::IllegalState(format!(
                "transactional.id {}: cannot go from {} to {target}: {hint}",
                self.transactional_id, self.state
            )));
        }
        self.state = target;
        self.last_error = None;
        Ok(())
    }

    /// Kafka: `transitionToAbortableError`. Ignored where nothing is left to abort.
    pub(super) fn transition_to_abortable_error(&mut self, error: ClientError) {
        if self.state.may_become(State::AbortableError) {
            self.state = State::AbortableError;
            self.last_error = Some(error);
        }
    }

    /// Kafka: `transitionToFatalError`; every waiting call fails.
    pub(crate) fn transition_to_fatal_error(&mut self, error: ClientError) {
        if self.state == State::FatalError {
            return;
        }
        self.state = State::FatalError;
        for request in self.queue.drain() {
            self.fail(&request.result, error.clone());
        }
        if let Some(pending) = &self.pending {
            pending.result.fail(error.clone());
        }
        self.progress = true;
        self.last_error = Some(error);
    }

    /// A batch has failed, or a record did not even get into one: the transaction cannot be committed any more.
    /// Kafka: `maybeTransitionToErrorState`.
    pub(crate) fn batch_failed(&mut self, error: ClientError) {
        if !self.is_completing() {
            self.require_epoch_bump();
        }
        self.transition_to_abortable_error(error);
    }

    /// The epoch has to rise before the next transaction. Kafka: `abortableErrorIfPossible`.
    pub(crate) fn abortable_with_bump(&mut self, error: ClientError) {
        self.require_epoch_bump();
        self.transition_to_abortable_error(error);
    }

    /// An end in version 2 raises the epoch by itself. Kafka: `needToTriggerEpochBumpFromClient`.
    pub(super) fn require_epoch_bump(&mut self) {
        self.epoch_bump_required |= !self.is_version_2;
    }

    /// Takes over the cluster's level for the next transaction. True: it begins version 2, so that it needs an epoch of its own. Kafka:
    /// `maybeUpdateTransactionV2Enabled`.
    pub(super) fn update_version(&mut self) -> bool {
        let was_version_2 = self.is_version_2;
        self.is_version_2 = self.transaction_version >= 2;
        self.is_version_2 && !was_version_2
    }

    /// The transaction has ended; if an epoch bump is due, the producer's next id is requested first.
    pub(super) fn end_of_transaction(&mut self, result: &Arc<RequestResult>, producer: (i64, i16)) {
        // A transaction to which nothing was added says nothing about the version: without its end there is no new epoch.
        let bump = self.epoch_bump_required || (producer != NO_PRODUCER && self.update_version());
        self.complete_transaction();
        if bump && producer != NO_PRODUCER {
            self.state = State::Initializing;
            self.queue_init(producer, result);
        } else {
            self.state = State::Ready;
            self.done(result);
        }
    }

    /// Kafka: `completeTransaction`.
    pub(super) fn complete_transaction(&mut self) {
        self.last_error = None;
        self.epoch_bump_required = false;
        self.started = false;
        self.maybe_started = false;
        self.new_partitions.clear();
        self.pending_partitions.clear();
        self.partitions.clear();
    }

    pub(super) fn done(&mut self, result: &RequestResult) {
        result.done();
        self.progress = true;
    }
    pub(super) fn fail(&mut self, result: &RequestResult, error: ClientError) {
        result.fail(error);
        self.progress = true;
    }
}

fn still_pending(operation: &str, earlier: &str) -> ClientError {
    ClientError::IllegalState(format!(
        "{operation} cannot be called: {earlier} has timed out or was interrupted; call {earlier} again to learn its outcome"
    ))
}
