//! What the members of a share group and the broker said to each other in a run, in the order in which the broker saw it, for
//! [`crate::checker`].

use std::fmt;
use std::sync::Arc;

use fletchlog_api::IsolationLevel;

use crate::history::{Partition, Value};

/// The rules of the group in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShareGroup {
    /// share.delivery.count.limit
    pub max_deliveries: i16,
    /// share.record.lock.duration.ms
    pub lock_ms: i64,
    /// share.isolation.level
    pub isolation: IsolationLevel,
    /// Every released record is persisted, so that a count is not lower after a restart.
    pub keeps_counts: bool,
}

/// Offsets of a partition, the last one included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Offsets {
    /// The partition.
    pub partition: Partition,
    /// The first offset.
    pub first: i64,
    /// The last offset.
    pub last: i64,
}

/// Kafka's ids of acknowledgement types.
pub mod kind {
    /// There is no record.
    pub const GAP: i8 = 0;
    /// The record was processed.
    pub const ACCEPT: i8 = 1;
    /// It is to be delivered again.
    pub const RELEASE: i8 = 2;
    /// It is not to be delivered again.
    pub const REJECT: i8 = 3;
    /// Its lock begins anew.
    pub const RENEW: i8 = 4;
}

/// Records of a response that a member has acquired. The position of the event is that of the response.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Acquisition {
    /// The member.
    pub member: Arc<str>,
    /// The records.
    pub offsets: Offsets,
    /// Their delivery count.
    pub deliveries: i16,
    /// The events before it may have happened.
    pub since: usize,
    /// The earliest and the latest time of it, monotonic ms.
    pub between_ms: (i64, i64),
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ShareEvent {
    /// Records were acquired.
    Acquired(Acquisition),
    /// The broker received an acknowledgement of this type.
    Acknowledging(Arc<str>, Offsets, i8),
    /// The broker answered, without an error, the one that it received when there were so many events.
    Acknowledged(Arc<str>, Offsets, i8, usize),
    /// A client was told that its acknowledgement has taken effect.
    Confirmed(Arc<str>, Offsets, i8),
    /// What the member has may be released from now on: its session or connection ends.
    Ended(Arc<str>),
    /// The broker received a fetch of the member, and nobody has seen its answer: it may have acquired any records.
    Unanswered(Arc<str>),
    /// No record is acquired: the broker restarts, or another leader begins.
    Restarted,
    /// From now on leaders may change at any time.
    Unsettled,
    /// A poll returned a record, with its delivery count.
    Polled(Arc<str>, Partition, i64, Value, i16),
}

/// What `__share_group_state` holds of a partition at the end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stored {
    /// The partition.
    pub partition: Partition,
    /// The start offset.
    pub start: i64,
    /// First and last offset, state and delivery count.
    pub states: Vec<(i64, i64, i8, i16)>,
}

/// The share group of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ShareHistory {
    /// Its rules; `None`: the run has none.
    pub group: Option<ShareGroup>,
    /// The events.
    pub events: Vec<ShareEvent>,
    /// What is persisted after a last member has taken everything that was left. Empty: there was no such member.
    pub stored: Vec<Stored>,
    /// That member found everything.
    pub is_drained: bool,
}

impl ShareHistory {
    /// The events of an offset, and the ends of sessions and leaders meanwhile, one per line.
    pub fn excerpt(&self, partition: Partition, offset: i64) -> String {
        let concerns = |event: &ShareEvent| match event {
            ShareEvent::Acquired(acquired) => acquired.offsets.has(partition, offset),
            ShareEvent::Acknowledging(_, of, _)
            | ShareEvent::Acknowledged(_, of, ..)
            | ShareEvent::Confirmed(_, of, _) => of.has(partition, offset),
            ShareEvent::Polled(_, of, at, ..) => (*of, *at) == (partition, offset),
            ShareEvent::Ended(_) | ShareEvent::Unanswered(_) | ShareEvent::Restarted | ShareEvent::Unsettled => false,
        };
        let first = self.events.iter().position(concerns).unwrap_or(self.events.len());
        let last = self.events.iter().rposition(concerns).unwrap_or(first);
        let is_end = |event: &ShareEvent| {
            matches!(
                event,
                ShareEvent::Ended(_) | ShareEvent::Unanswered(_) | ShareEvent::Restarted | ShareEvent::Unsettled
            )
        };
        let events = self
            .events
            .iter()
            .enumerate()
            .filter(|(at, event)| concerns(event) || ((first..last).contains(at) && is_end(event)));
        events.map(|(at, event)| format!("    {at:>5} {event}\n")).collect()
    }
}

impl Offsets {
    /// Whether an offset is among them.
    pub fn has(&self, partition: Partition, offset: i64) -> bool {
        self.partition == partition && (self.first..=self.last).contains(&offset)
    }
}

impl fmt::Display for Offsets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{} {} to {}", self.partition, self.first, self.last)
    }
}

impl fmt::Display for ShareEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquired(of) => {
                let Acquisition {
                    member,
                    offsets,
                    deliveries,
                    since,
                    between_ms: (from, to),
                } = of;
                write!(
                    f,
                    "{member} has acquired {offsets}, delivery {deliveries}, after event {since}, between {from} and {to} ms"
                )
            }
            Self::Acknowledging(member, offsets, kind) => write!(f, "{member} acknowledges {offsets} as {kind}"),
            Self::Acknowledged(member, offsets, kind, _) => {
                write!(f, "{member} has acknowledged {offsets} as {kind}")
            }
            Self::Confirmed(member, offsets, kind) => {
                write!(f, "{member} knows that {offsets} are acknowledged as {kind}")
            }
            Self::Ended(member) => write!(f, "a session of {member} ends"),
            Self::Unanswered(member) => write!(f, "a fetch of {member} has no answer"),
            Self::Restarted => f.write_str("all leaders begin anew"),
            Self::Unsettled => f.write_str("leaders may change at any time"),
            Self::Polled(member, partition, offset, value, deliveries) => {
                write!(
                    f,
                    "{member} gets {value} of p{partition} at {offset}, delivery {deliveries}"
                )
            }
        }
    }
}
