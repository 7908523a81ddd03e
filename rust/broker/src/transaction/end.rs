//! How a transaction ends: EndTxn by the rules of each transaction.version, and the abort that fences a producer. Kafka:
//! `TransactionCoordinator#endTransaction`, `#endTransactionWithTV1`, `TransactionMetadata#prepareAbortOrCommit`.
//!
//! EndTxn of version 2, with the present epoch or as a retry with the one before (ITS = INVALID_TXN_STATE; every other epoch is
//! PRODUCER_FENCED):
//!
//! | state | commit | abort | commit again | abort again |
//! |---|---|---|---|---|
//! | Empty | ITS | ends | fenced | fenced |
//! | Ongoing | ends | ends | fenced | fenced |
//! | PrepareCommit | fenced | fenced | CONCURRENT_TRANSACTIONS | ITS |
//! | PrepareAbort | fenced | fenced | ITS | CONCURRENT_TRANSACTIONS |
//! | CompleteCommit | ITS | ends | the same answer | ITS |
//! | CompleteAbort | ITS | ends | ITS | the same answer |

use fletchlog_api::ErrorCode;
use fletchlog_records::ids::{NO_PRODUCER_EPOCH, NO_PRODUCER_ID};
use fletchlog_records::planted;

use super::state::{TransactionMetadata, TransactionState};
use super::version::TransactionVersion;

/// The last epoch that a client sees.
const LAST_EPOCH: i16 = i16::MAX - 1;

impl TransactionMetadata {
    /// EndTxn of a client that knows `version`; `None`: it has already ended in this way (a repeated request). `new_id` assigns a
    /// producer id.
    pub(crate) fn end<E: From<ErrorCode>>(
        &self,
        producer: (i64, i16),
        committed: bool,
        version: TransactionVersion,
        now_ms: i64,
        new_id: impl FnOnce() -> Result<i64, E>,
    ) -> Result<Option<Self>, E> {
        let ends = match version.supports_epoch_bump() {
            true => self.ends(producer, committed)?,
            false => self.ends_with_epoch_kept(producer, committed)?,
        };
        match ends {
            true => self.prepare_end(committed, version, now_ms, new_id).map(Some),
            false => Ok(None),
        }
    }

    /// False: it has already ended in this way.
    fn ends_with_epoch_kept(&self, producer: (i64, i16), committed: bool) -> Result<bool, ErrorCode> {
        self.check_producer(producer.0, producer.1)?;
        match (self.state, committed) {
            (TransactionState::Ongoing, _) => Ok(true),
            (TransactionState::CompleteCommit, true) | (TransactionState::CompleteAbort, false) => Ok(false),
            (TransactionState::PrepareCommit, true) | (TransactionState::PrepareAbort, false) => {
                Err(ErrorCode::CONCURRENT_TRANSACTIONS)
            }
            _ => Err(ErrorCode::INVALID_TXN_STATE),
        }
    }

    /// By the table of the module.
    fn ends(&self, (producer_id, epoch): (i64, i16), committed: bool) -> Result<bool, ErrorCode> {
        // The response that named a new producer id was lost.
        let after_last = self.previous_producer_id == producer_id && epoch == LAST_EPOCH && self.producer_epoch == 0;
        if self.producer_id != producer_id && !after_last {
            return Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING);
        }
        let after_bump = epoch.checked_add(1) == Some(self.producer_epoch);
        let (is_present, is_retry) = (epoch == self.producer_epoch, after_bump || after_last);
        let (state, is_valid) = match self.state {
            TransactionState::Ongoing | TransactionState::Empty => (None, is_present),
            TransactionState::PrepareCommit => (Some(true), after_bump),
            TransactionState::PrepareAbort => (Some(false), after_bump),
            TransactionState::CompleteCommit => (Some(true), is_present || is_retry),
            TransactionState::CompleteAbort => (Some(false), is_present || is_retry),
        };
        if !is_valid {
            return Err(ErrorCode::PRODUCER_FENCED);
        }
        match state {
            None if self.state == TransactionState::Ongoing => Ok(true),
            Some(ended) if is_retry && ended != committed => Err(ErrorCode::INVALID_TXN_STATE),
            Some(_) if is_retry && self.state.is_prepared() => Err(ErrorCode::CONCURRENT_TRANSACTIONS),
            Some(_) if is_retry => Ok(planted!("end-asked-for-again-ends-again")),
            // Nothing was added: there is nothing to commit.
            _ if committed => Err(ErrorCode::INVALID_TXN_STATE),
            _ => Ok(true),
        }
    }

    /// PrepareX. Of version 2 with the next epoch; one that no client may see gives way to another producer id with the markers.
    fn prepare_end<E>(
        &self,
        committed: bool,
        version: TransactionVersion,
        now_ms: i64,
        new_id: impl FnOnce() -> Result<i64, E>,
    ) -> Result<Self, E> {
        let mut next = Self {
            state: if committed {
                TransactionState::PrepareCommit
            } else {
                TransactionState::PrepareAbort
            },
            previous_producer_id: self.producer_id,
            next_producer_id: NO_PRODUCER_ID,
            last_update_ms: now_ms,
            client_version: version,
            ..self.clone()
        };
        if version.supports_epoch_bump() && !planted!("end-of-a-transaction-keeps-the-epoch") {
            next.last_producer_epoch = self.producer_epoch;
            next.producer_epoch = self.producer_epoch.saturating_add(1);
            if Self::is_exhausted(self.producer_epoch) {
                next.next_producer_id = new_id()?;
            }
            if self.state != TransactionState::Ongoing {
                next.start_ms = now_ms;
            }
        }
        Ok(next)
    }

    /// Aborts an open transaction under the next epoch, so that its producer can write no more. Of version 2, that is the abort
    /// which the producer itself would ask for. Kafka: `TransactionMetadata#prepareFenceProducerEpoch`.
    pub(crate) fn fence<E: From<ErrorCode>>(
        &self,
        level: TransactionVersion,
        now_ms: i64,
        new_id: impl FnOnce() -> Result<i64, E>,
    ) -> Result<Self, E> {
        let aborted = self.prepare_end(false, level, now_ms, new_id)?;
        if level.supports_epoch_bump() {
            let kept = planted!("time-out-keeps-the-epoch").then_some(self.producer_epoch);
            return Ok(Self {
                producer_epoch: kept.unwrap_or(aborted.producer_epoch),
                ..aborted
            });
        }
        let next = self.producer_epoch.checked_add(1);
        Ok(Self {
            producer_epoch: next.ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)?,
            last_producer_epoch: NO_PRODUCER_EPOCH,
            ..aborted
        })
    }
}
