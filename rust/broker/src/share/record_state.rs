//! The state of a record in flight (spec 14.5). Kafka: `RecordState`, `InFlightState`, `AcknowledgeType`.
//!
//! | from | event | to |
//! |---|---|---|
//! | Available | acquired | Acquired, one more delivery |
//! | Acquired | accept | Acknowledged |
//! | Acquired | reject, gap | Archived; a rejected record with a dead-letter topic: Archiving first |
//! | Acquired | release, end of the lock, end of the session | Available, or as a rejected record if its deliveries are used up |
//! | Acquired | renew | Acquired |

use std::sync::Arc;

/// The state of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordState {
    Available,
    Acquired,
    Acknowledged,
    Archiving,
    Archived,
}

impl RecordState {
    const ALL: [Self; 5] = [
        Self::Available,
        Self::Acquired,
        Self::Acknowledged,
        Self::Archiving,
        Self::Archived,
    ];

    /// The state with this id in the log of states.
    pub(crate) fn from_id(id: i8) -> Option<Self> {
        usize::try_from(id).ok().and_then(|id| Self::ALL.get(id).copied())
    }

    /// Its id in the log of states.
    pub(crate) fn id(self) -> i8 {
        self as i8
    }

    /// Kafka's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Available => "Available",
            Self::Acquired => "Acquired",
            Self::Acknowledged => "Acknowledged",
            Self::Archiving => "Archiving",
            Self::Archived => "Archived",
        }
    }

    /// Whether the record is done. Kafka: `SharePartition#isStateTerminal`.
    pub(crate) fn is_terminal(self) -> bool {
        matches!(self, Self::Acknowledged | Self::Archived)
    }
}

/// What a client says about a record. Kafka: `AcknowledgeType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcknowledgeType {
    /// There is no record at the offset, or none for the client.
    Gap,
    Accept,
    Release,
    Reject,
    Renew,
}

impl AcknowledgeType {
    /// The type with this id; `None`: unknown.
    pub(crate) fn from_id(id: i8) -> Option<Self> {
        [Self::Gap, Self::Accept, Self::Release, Self::Reject, Self::Renew]
            .get(usize::try_from(id).ok()?)
            .copied()
    }
}

/// A record in flight, or all records of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InFlightState {
    pub(crate) state: RecordState,
    /// How many times it was acquired.
    pub(crate) deliveries: u16,
    /// The member that has acquired it.
    pub(crate) member: Option<Arc<str>>,
    /// When the lock of an acquired record ends (monotonic ms).
    pub(crate) locked_until_ms: i64,
}

/// [`InFlightState::locked_until_ms`] of a record without a lock.
pub(crate) const NO_LOCK: i64 = i64::MAX;

impl InFlightState {
    /// Of a record that no member has.
    pub(crate) fn free(state: RecordState, deliveries: u16) -> Self {
        Self {
            state,
            deliveries,
            member: None,
            locked_until_ms: NO_LOCK,
        }
    }

    /// Of a record that was acquired for the first time.
    pub(crate) fn acquired(member: &Arc<str>, locked_until_ms: i64) -> Self {
        Self {
            state: RecordState::Acquired,
            deliveries: 1,
            member: Some(Arc::clone(member)),
            locked_until_ms,
        }
    }

    /// Called when an available record is acquired.
    pub(crate) fn acquire(&mut self, member: &Arc<str>, locked_until_ms: i64) {
        self.state = RecordState::Acquired;
        self.deliveries = self.deliveries.saturating_add(1);
        self.member = Some(Arc::clone(member));
        self.locked_until_ms = locked_until_ms;
    }

    /// Puts the record into a state in which no member has it.
    pub(crate) fn leave(&mut self, state: RecordState) {
        *self = Self::free(state, self.deliveries);
    }

    /// Whether this member has acquired it.
    pub(crate) fn is_of(&self, member: &str) -> bool {
        self.member.as_deref() == Some(member)
    }
}
