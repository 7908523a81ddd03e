//! What the producer did, event by event (`fletchlog.trace`). No event is built when it is off.

use std::sync::Arc;

use fletchlog_api::{Clock, ErrorCode, NodeId};
use fletchlog_records::TopicPartition;

use super::producer_batch::{ProducerBatch, ProducerIdAndEpoch};

/// What happened to a batch, in the order of a batch's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TraceKind {
    /// The accumulator found it sendable (full, lingered, flushed, memory short, closing).
    Ready,
    /// Taken out of its queue for a request.
    Drained,
    /// Its partition takes no further batch until this one is decided (in-flight 1).
    Muted,
    /// Put on the wire.
    Sent,
    /// Its partition may be drained again.
    Unmuted,
    /// The broker appended it.
    Acknowledged,
    /// Code 46: the broker already had it, at an offset that it no longer knows. (A duplicate of one of the newest five batches is
    /// acknowledged as if it were new; a client cannot see the difference.)
    AcknowledgedAsDuplicate,
    /// Refused or lost; it will be sent again.
    Retried,
    /// Back in its queue.
    Reenqueued,
    /// Code 45: the broker missed the batch before it.
    RefusedOutOfOrder,
    /// Too large: cut into smaller batches.
    Split,
    /// Failed: delivery.timeout.ms passed.
    Expired,
    /// Failed with the broker's or the client's error.
    Failed,
    /// The producer's epoch was raised and sequences restart.
    EpochBump,
}

impl TraceKind {
    /// The name shown in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Drained => "drained",
            Self::Muted => "muted",
            Self::Sent => "sent",
            Self::Unmuted => "unmuted",
            Self::Acknowledged => "acknowledged",
            Self::AcknowledgedAsDuplicate => "acknowledged-as-duplicate",
            Self::Retried => "retried",
            Self::Reenqueued => "re-enqueued",
            Self::RefusedOutOfOrder => "refused-out-of-order",
            Self::Split => "split",
            Self::Expired => "expired",
            Self::Failed => "failed",
            Self::EpochBump => "epoch-bump",
        }
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceEvent {
    /// Monotonic ms of the producer's clock.
    pub time_ms: i64,
    /// What happened.
    pub kind: TraceKind,
    /// Partition; `None` for an epoch bump.
    pub tp: Option<TopicPartition>,
    /// Node of the request, if the event has one.
    pub node: Option<NodeId>,
    /// Number of the batch, from 0 in the order of creation; -1 for an epoch bump.
    pub batch: i64,
    /// Records in it.
    pub records: i32,
    /// Producer id, epoch, base sequence (-1 if none).
    pub producer: (i64, i16, i32),
    /// Attempts that have failed so far.
    pub attempts: i32,
    /// Base offset of an acknowledgement, -1 otherwise.
    pub base_offset: i64,
    /// Kafka's name of the error, if any.
    pub error: Option<Arc<str>>,
}

/// The collected events.
pub(crate) struct Trace {
    clock: Arc<dyn Clock>,
    events: Option<Vec<TraceEvent>>,
}

impl Trace {
    pub(crate) fn new(on: bool, clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            events: on.then(Vec::new),
        }
    }
    pub(crate) fn is_on(&self) -> bool {
        self.events.is_some()
    }
    /// Something happened to a batch.
    pub(crate) fn add(
        &mut self,
        kind: TraceKind,
        batch: &ProducerBatch,
        tp: TopicPartition,
        node: Option<NodeId>,
        base_offset: i64,
        error: Option<ErrorCode>,
    ) {
        let (id, epoch) = batch.id_and_epoch();
        self.push(TraceEvent {
            tp: Some(tp),
            node,
            batch: i64::try_from(batch.serial).unwrap_or(-1),
            records: batch.count(),
            producer: (id, epoch, batch.base_sequence()),
            attempts: batch.attempts,
            base_offset,
            error: error.map(|e| Arc::from(e.name())),
            ..self.event(kind)
        });
    }
    /// The epoch was raised.
    pub(crate) fn bumped(&mut self, (id, epoch): ProducerIdAndEpoch) {
        self.push(TraceEvent {
            producer: (id, epoch, -1),
            ..self.event(TraceKind::EpochBump)
        });
    }
    fn event(&self, kind: TraceKind) -> TraceEvent {
        TraceEvent {
            time_ms: self.clock.monotonic_ms(),
            kind,
            tp: None,
            node: None,
            batch: -1,
            records: 0,
            producer: (-1, -1, -1),
            attempts: 0,
            base_offset: -1,
            error: None,
        }
    }
    fn push(&mut self, event: TraceEvent) {
        if let Some(events) = &mut self.events {
            events.push(event);
        }
    }
    pub(crate) fn events(&self) -> Vec<TraceEvent> {
        self.events.clone().unwrap_or_default()
    }
}
