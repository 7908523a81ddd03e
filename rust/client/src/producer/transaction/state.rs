//! The states and which may follow which. Kafka: `TransactionManager.State`.

use std::fmt;

/// State of a transactional producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Uninitialized,
    Initializing,
    Ready,
    InTransaction,
    CommittingTransaction,
    AbortingTransaction,
    AbortableError,
    FatalError,
}

impl State {
    /// Whether `target` may follow this state.
    ///
    /// | to | from |
    /// |---|---|
    /// | INITIALIZING | UNINITIALIZED, COMMITTING and ABORTING (an epoch bump follows) |
    /// | READY | INITIALIZING, COMMITTING, ABORTING |
    /// | IN_TRANSACTION | READY |
    /// | COMMITTING | IN_TRANSACTION |
    /// | ABORTING | IN_TRANSACTION, ABORTABLE_ERROR |
    /// | ABORTABLE_ERROR | IN_TRANSACTION, COMMITTING, ABORTABLE_ERROR |
    /// | FATAL_ERROR | any |
    pub(crate) fn may_become(self, target: Self) -> bool {
        match target {
            Self::Uninitialized => false,
            Self::Initializing => matches!(
                self,
                Self::Uninitialized | Self::CommittingTransaction | Self::AbortingTransaction
            ),
            Self::Ready => matches!(
                self,
                Self::Initializing | Self::CommittingTransaction | Self::AbortingTransaction
            ),
            Self::InTransaction => self == Self::Ready,
            Self::CommittingTransaction => self == Self::InTransaction,
            Self::AbortingTransaction => matches!(self, Self::InTransaction | Self::AbortableError),
            Self::AbortableError => matches!(
                self,
                Self::InTransaction | Self::CommittingTransaction | Self::AbortableError
            ),
            Self::FatalError => true,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uninitialized => "UNINITIALIZED",
            Self::Initializing => "INITIALIZING",
            Self::Ready => "READY",
            Self::InTransaction => "IN_TRANSACTION",
            Self::CommittingTransaction => "COMMITTING_TRANSACTION",
            Self::AbortingTransaction => "ABORTING_TRANSACTION",
            Self::AbortableError => "ABORTABLE_ERROR",
            Self::FatalError => "FATAL_ERROR",
        })
    }
}
