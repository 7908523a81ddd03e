//! What the producer did, event by event (`fletchlog.trace`). No event is built when it is off.

use std::sync::Arc;

use fletchlog_api::NodeId;
use fletchlog_records::TopicPartition;

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
#[derive(Debug, Default)]
pub(crate) struct Trace {
    events: Option<Vec<TraceEvent>>,
}

impl Trace {
    pub(crate) fn new(on: bool) -> Self {
        Self {
            events: on.then(Vec::new),
        }
    }
    /// Builds and keeps an event when tracing is on.
    #[inline]
    pub(crate) fn add(&mut self, event: impl FnOnce() -> TraceEvent) {
        if let Some(events) = &mut self.events {
            events.push(event());
        }
    }
    pub(crate) fn is_on(&self) -> bool {
        self.events.is_some()
    }
    pub(crate) fn events(&self) -> Vec<TraceEvent> {
        self.events.clone().unwrap_or_default()
    }
}
