//! One transactional id and its transitions. Kafka: `TransactionMetadata`, `TransactionState`.
//!
//! | state | id | leaves by |
//! |---|---|---|
//! | Empty | 0 | a partition is added -> Ongoing; InitProducerId -> Empty; EndTxn of version 2, abort -> PrepareAbort; expiry |
//! | Ongoing | 1 | EndTxn -> PrepareX, of version 2 with the next epoch; InitProducerId or time-out -> PrepareAbort with the next epoch |
//! | PrepareCommit, PrepareAbort | 2, 3 | all markers written -> CompleteX |
//! | CompleteCommit, CompleteAbort | 4, 5 | as Empty |
//!
//! EndTxn itself is in `end.rs`. A transition yields the new metadata; it takes effect once it is written.

use std::collections::BTreeSet;
use std::sync::Arc;

use fletchlog_api::ErrorCode;
use fletchlog_records::TopicPartition;
use fletchlog_records::ids::{NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP};

use super::version::TransactionVersion;

/// State of a transactional id. Kafka's Dead is an id that is not in the table; PrepareEpochFence is never seen, as fencing
/// and aborting are one step here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionState {
    Empty,
    Ongoing,
    PrepareCommit,
    PrepareAbort,
    CompleteCommit,
    CompleteAbort,
}

impl TransactionState {
    const ALL: [Self; 6] = [
        Self::Empty,
        Self::Ongoing,
        Self::PrepareCommit,
        Self::PrepareAbort,
        Self::CompleteCommit,
        Self::CompleteAbort,
    ];

    /// The state with this id; `None` for Dead and unknown ones.
    pub(crate) fn from_id(id: i8) -> Option<Self> {
        usize::try_from(id).ok().and_then(|id| Self::ALL.get(id).copied())
    }
    /// Its id in the log.
    pub(crate) fn id(self) -> i8 {
        self as i8
    }
    /// Kafka's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Ongoing => "Ongoing",
            Self::PrepareCommit => "PrepareCommit",
            Self::PrepareAbort => "PrepareAbort",
            Self::CompleteCommit => "CompleteCommit",
            Self::CompleteAbort => "CompleteAbort",
        }
    }
    /// Whether a state has this name.
    pub(crate) fn is_name(name: &str) -> bool {
        Self::ALL.iter().any(|state| state.name() == name)
    }
    /// True if the outcome is decided and markers are missing.
    pub(crate) fn is_prepared(self) -> bool {
        matches!(self, Self::PrepareCommit | Self::PrepareAbort)
    }
}

/// A transactional id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TransactionMetadata {
    pub(crate) transactional_id: Arc<str>,
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    /// The id before the last transition.
    pub(crate) previous_producer_id: i64,
    /// The epoch before the last bump of which the producer learns, so that a repeated request is recognised. Not in the log.
    pub(crate) last_producer_epoch: i16,
    /// The id that takes over when the markers are written, because the epochs of this one are used up; only of version 2.
    pub(crate) next_producer_id: i64,
    pub(crate) timeout_ms: i32,
    pub(crate) state: TransactionState,
    /// In PrepareX those that still lack their marker.
    pub(crate) partitions: BTreeSet<TopicPartition>,
    pub(crate) start_ms: i64,
    pub(crate) last_update_ms: i64,
    /// What the client of the last addition or end knows; of a fence, the broker's level.
    pub(crate) client_version: TransactionVersion,
}

/// What InitProducerId leads to.
#[derive(Debug)]
pub(crate) enum Init {
    /// The producer gets this id and epoch.
    Ready(TransactionMetadata),
    /// An open transaction is aborted first; the producer has to ask again.
    Fenced(TransactionMetadata),
}

impl TransactionMetadata {
    /// A new transactional id; the epoch becomes 0 with the first [`Self::init`].
    pub(crate) fn new(transactional_id: Arc<str>, producer_id: i64) -> Self {
        Self {
            transactional_id,
            producer_id,
            producer_epoch: NO_PRODUCER_EPOCH,
            previous_producer_id: NO_PRODUCER_ID,
            last_producer_epoch: NO_PRODUCER_EPOCH,
            next_producer_id: NO_PRODUCER_ID,
            timeout_ms: 0,
            state: TransactionState::Empty,
            partitions: BTreeSet::new(),
            start_ms: NO_TIMESTAMP,
            last_update_ms: NO_TIMESTAMP,
            client_version: TransactionVersion::V0,
        }
    }

    /// Kafka: `TransactionMetadata#isEpochExhausted`: the last epoch is kept for fencing.
    pub(super) fn is_exhausted(epoch: i16) -> bool {
        epoch >= i16::MAX - 1
    }

    /// InitProducerId. `expected`: the id and epoch that the producer has sent; `level`: the broker's; `new_id` assigns a new id. Kafka:
    /// `TransactionCoordinator#prepareInitProducerIdTransit`, `TransactionMetadata#prepareIncrementProducerEpoch`.
    pub(crate) fn init<E: From<ErrorCode>>(
        &self,
        expected: Option<(i64, i16)>,
        timeout_ms: i32,
        now_ms: i64,
        level: TransactionVersion,
        new_id: impl FnOnce() -> Result<i64, E>,
    ) -> Result<Init, E> {
        if expected.is_some_and(|expected| !self.may_be(expected)) {
            return Err(ErrorCode::PRODUCER_FENCED.into());
        }
        match self.state {
            TransactionState::PrepareCommit | TransactionState::PrepareAbort => {
                return Err(ErrorCode::CONCURRENT_TRANSACTIONS.into());
            }
            TransactionState::Ongoing => return Ok(Init::Fenced(self.fence(level, now_ms, new_id)?)),
            TransactionState::Empty | TransactionState::CompleteCommit | TransactionState::CompleteAbort => {}
        }
        let mut next = Self {
            previous_producer_id: self.producer_id,
            timeout_ms,
            state: TransactionState::Empty,
            partitions: BTreeSet::new(),
            start_ms: NO_TIMESTAMP,
            last_update_ms: now_ms,
            ..self.clone()
        };
        let epoch = self.producer_epoch;
        if Self::is_exhausted(epoch) && expected.is_none_or(|(_, expected)| expected == epoch) {
            next.producer_id = new_id()?;
            next.producer_epoch = 0;
            next.last_producer_epoch = if expected.is_some() { epoch } else { NO_PRODUCER_EPOCH };
            return Ok(Init::Ready(next));
        }
        match expected {
            Some((_, expected)) if epoch != NO_PRODUCER_EPOCH && expected != epoch => {
                // The response to an earlier request was lost: send the same response again.
                if expected != self.last_producer_epoch {
                    return Err(ErrorCode::PRODUCER_FENCED.into());
                }
            }
            _ => {
                next.last_producer_epoch = if expected.is_some() { epoch } else { NO_PRODUCER_EPOCH };
                next.producer_epoch = epoch.checked_add(1).ok_or(ErrorCode::PRODUCER_FENCED)?;
            }
        }
        Ok(Init::Ready(next))
    }

    /// Whether the producer id can belong to this transactional id; its epoch is compared later.
    fn may_be(&self, (producer_id, epoch): (i64, i16)) -> bool {
        self.producer_epoch == NO_PRODUCER_EPOCH
            || producer_id == self.producer_id
            || (producer_id == self.previous_producer_id && Self::is_exhausted(epoch))
    }

    pub(super) fn check_producer(&self, producer_id: i64, producer_epoch: i16) -> Result<(), ErrorCode> {
        if self.producer_id != producer_id {
            Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING)
        } else if self.producer_epoch != producer_epoch {
            Err(ErrorCode::PRODUCER_FENCED)
        } else {
            Ok(())
        }
    }

    /// Adds partitions; `None`: they all belong to the transaction already.
    /// Kafka: `TransactionCoordinator#handleAddPartitionsToTransaction`.
    pub(crate) fn add_partitions(
        &self,
        (producer_id, producer_epoch): (i64, i16),
        partitions: &[TopicPartition],
        client_version: TransactionVersion,
        now_ms: i64,
    ) -> Result<Option<Self>, ErrorCode> {
        self.check_producer(producer_id, producer_epoch)?;
        if self.state.is_prepared() {
            return Err(ErrorCode::CONCURRENT_TRANSACTIONS);
        }
        let ongoing = self.state == TransactionState::Ongoing;
        if ongoing && partitions.iter().all(|tp| self.partitions.contains(tp)) {
            return Ok(None);
        }
        let mut next = self.clone();
        next.previous_producer_id = self.producer_id;
        next.partitions.extend(partitions.iter().cloned());
        next.state = TransactionState::Ongoing;
        next.last_update_ms = now_ms;
        next.client_version = client_version;
        if !ongoing {
            next.start_ms = now_ms;
        }
        Ok(Some(next))
    }

    /// Every marker is written. Kafka: `TransactionMetadata#prepareComplete`.
    pub(crate) fn complete(&self, now_ms: i64) -> Self {
        let mut next = Self {
            state: if self.state == TransactionState::PrepareCommit {
                TransactionState::CompleteCommit
            } else {
                TransactionState::CompleteAbort
            },
            previous_producer_id: self.producer_id,
            partitions: BTreeSet::new(),
            last_update_ms: now_ms,
            ..self.clone()
        };
        if self.next_producer_id >= 0 && self.client_version.supports_epoch_bump() {
            next.producer_id = self.next_producer_id;
            next.producer_epoch = 0;
        }
        next.next_producer_id = NO_PRODUCER_ID;
        next
    }

    /// Whether the producer may write to the partition in the transaction that is open; TRANSACTION_ABORTABLE: it was not added.
    /// Kafka: `TransactionCoordinator#handleVerifyPartitionsInTransaction`.
    pub(crate) fn verify(
        &self,
        (producer_id, producer_epoch): (i64, i16),
        partition: &TopicPartition,
    ) -> Result<(), ErrorCode> {
        self.check_producer(producer_id, producer_epoch)?;
        if self.state.is_prepared() {
            return Err(ErrorCode::CONCURRENT_TRANSACTIONS);
        }
        if self.state == TransactionState::Ongoing && self.partitions.contains(partition) {
            Ok(())
        } else {
            Err(ErrorCode::TRANSACTION_ABORTABLE)
        }
    }

    /// True if it is open, or decided while markers are missing.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.state == TransactionState::Ongoing || self.state.is_prepared()
    }

    /// True if it has been open for longer than its time-out.
    pub(crate) fn is_timed_out(&self, now_ms: i64) -> bool {
        self.state == TransactionState::Ongoing && now_ms > self.start_ms.saturating_add(i64::from(self.timeout_ms))
    }

    /// True if it has been idle for so long that the id is to be removed. Kafka: `TransactionStateManager#shouldExpire`.
    pub(crate) fn is_expired(&self, now_ms: i64, expiration_ms: i64) -> bool {
        !self.is_unfinished() && self.last_update_ms.saturating_add(expiration_ms) <= now_ms
    }
}

#[cfg(test)]
mod tests;
