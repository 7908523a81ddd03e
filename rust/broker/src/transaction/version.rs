//! The levels of the feature transaction.version. Kafka: `TransactionVersion`.
//!
//! | level | records of `__transaction_state` | EndTxn and fencing |
//! |---|---|---|
//! | 0 | version 0 | keep the epoch; fencing raises it |
//! | 1 | version 1, with tagged fields | as 0 |
//! | 2 | version 1 | every end raises the epoch (KIP-890, part 2) |

/// A level of the feature, or what a client knows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TransactionVersion(i16);

impl TransactionVersion {
    /// Transactions that keep their epoch.
    pub(crate) const V0: Self = Self(0);
    /// Transactions whose end raises the epoch.
    pub(crate) const V2: Self = Self(2);

    /// A level.
    pub(crate) fn new(level: i16) -> Self {
        Self(level)
    }

    /// What a client knows: the rules of version 2, or only the older ones.
    pub(crate) fn of_client(knows_version_2: bool) -> Self {
        if knows_version_2 { Self::V2 } else { Self::V0 }
    }

    /// Its number.
    pub(crate) fn level(self) -> i16 {
        self.0
    }

    /// Whether the end of a transaction raises the epoch.
    pub(crate) fn supports_epoch_bump(self) -> bool {
        self.0 >= 2
    }

    /// The version of the values of `__transaction_state`. Kafka: `TransactionVersion#transactionLogValueVersion`.
    pub(crate) fn log_value_version(self) -> i16 {
        i16::from(self.0 >= 1)
    }
}
