//! The requests of a transaction, queued or on the wire, and the outcome that a user's call waits for. Kafka: `TxnRequestHandler`,
//! `TransactionalRequestResult`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use fletchlog_api::{CoordinatorType, OffsetAndMetadata};
use fletchlog_records::TopicPartition;

use crate::ClientError;
use crate::group::ConsumerGroupMetadata;
use crate::producer::metadata::PartitionId;

/// The kind of a request, with its contents.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    FindCoordinator {
        key_type: CoordinatorType,
        key: Arc<str>,
    },
    /// With the id and epoch that the producer has, for a bump; -1, -1 the first time.
    InitProducerId {
        producer: (i64, i16),
    },
    AddPartitionsToTxn {
        partitions: Vec<PartitionId>,
    },
    AddOffsetsToTxn {
        offsets: Vec<(TopicPartition, OffsetAndMetadata)>,
        group: ConsumerGroupMetadata,
    },
    /// The offsets that are not acknowledged yet.
    TxnOffsetCommit {
        offsets: Vec<(TopicPartition, OffsetAndMetadata)>,
        group: ConsumerGroupMetadata,
    },
    EndTxn {
        committed: bool,
        /// The response contains the id and epoch with which the producer goes on (version 2).
        bumps_epoch: bool,
    },
}

impl Kind {
    /// Whether it adds partitions or offsets to the transaction, or looks up the coordinator for that: of no use once the transaction is
    /// aborted.
    pub(super) fn is_addition(&self) -> bool {
        matches!(
            self,
            Self::AddPartitionsToTxn { .. }
                | Self::AddOffsetsToTxn { .. }
                | Self::TxnOffsetCommit { .. }
                | Self::FindCoordinator {
                    key_type: CoordinatorType::Group,
                    ..
                }
        )
    }
    /// Lower goes first. Kafka: `TransactionManager.Priority`.
    fn priority(&self) -> u8 {
        match self {
            Self::FindCoordinator { .. } => 0,
            Self::InitProducerId { .. } => 1,
            Self::AddPartitionsToTxn { .. } | Self::AddOffsetsToTxn { .. } | Self::TxnOffsetCommit { .. } => 2,
            Self::EndTxn { .. } => 3,
        }
    }
}

/// One request, queued or on the wire.
#[derive(Debug)]
pub(crate) struct TxnRequest {
    pub kind: Kind,
    pub result: Arc<RequestResult>,
    /// Not sent before (monotonic ms).
    pub not_before_ms: i64,
}

impl TxnRequest {
    pub(crate) fn new(kind: Kind, result: Arc<RequestResult>) -> Self {
        Self {
            kind,
            result,
            not_before_ms: i64::MIN,
        }
    }

    /// The coordinator that it goes to; `None`: any node.
    pub(crate) fn coordinator_type(&self) -> Option<CoordinatorType> {
        match self.kind {
            Kind::FindCoordinator { .. } => None,
            Kind::TxnOffsetCommit { .. } => Some(CoordinatorType::Group),
            _ => Some(CoordinatorType::Transaction),
        }
    }
}

/// Requests to be sent, by priority, then in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Queue(Vec<TxnRequest>);

impl Queue {
    pub(super) fn push(&mut self, request: TxnRequest) {
        let priority = request.kind.priority();
        let at = self.0.partition_point(|queued| queued.kind.priority() <= priority);
        self.0.insert(at, request);
    }
    /// Puts a request back that could not be sent: it stays the first of its kind.
    pub(super) fn put_back(&mut self, request: TxnRequest) {
        let priority = request.kind.priority();
        let at = self.0.partition_point(|queued| queued.kind.priority() < priority);
        self.0.insert(at, request);
    }
    pub(super) fn first(&self) -> Option<&TxnRequest> {
        self.0.first()
    }
    pub(super) fn pop(&mut self) -> Option<TxnRequest> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }
    pub(super) fn drain(&mut self) -> Vec<TxnRequest> {
        std::mem::take(&mut self.0)
    }
    /// Takes out the requests of these kinds.
    pub(super) fn take(&mut self, wanted: impl Fn(&Kind) -> bool) -> Vec<TxnRequest> {
        self.0.extract_if(.., |request| wanted(&request.kind)).collect()
    }
    pub(super) fn has(&self, wanted: impl Fn(&Kind) -> bool) -> bool {
        self.0.iter().any(|request| wanted(&request.kind))
    }
}

/// The outcome of a user's call; several requests may lead to it.
#[derive(Debug, Default)]
pub(crate) struct RequestResult {
    outcome: OnceLock<Result<(), ClientError>>,
    acked: AtomicBool,
}

impl RequestResult {
    pub(super) fn done(&self) {
        let _ = self.outcome.set(Ok(()));
    }
    pub(super) fn fail(&self, error: ClientError) {
        let _ = self.outcome.set(Err(error));
    }
    pub(super) fn outcome(&self) -> Option<Result<(), ClientError>> {
        self.outcome.get().cloned()
    }
    /// The outcome was returned to the user.
    pub(super) fn acknowledge(&self) {
        self.acked.store(true, Ordering::Relaxed);
    }
    pub(super) fn is_acked(&self) -> bool {
        self.acked.load(Ordering::Relaxed)
    }
}
