//! Time-outs of transactions, and ids that expire. Kafka: `TransactionCoordinator#abortTimedOutTransactions`,
//! `TransactionStateManager#removeExpiredTransactionalIds`. No thread does this: every call of the broker checks, and a waiting
//! client wakes up for it.

use std::sync::atomic::Ordering;

use super::coordinator::{Locked, TransactionCoordinator};
use super::state::TransactionState;
use crate::sync::is_due;

impl TransactionCoordinator {
    /// Does what is due. An id that another thread has locked is checked again the next time.
    pub(crate) fn tick(&self, now_ms: i64) {
        if self.replicas.is_read_only() {
            return;
        }
        if is_due(&self.next_timeout_check_ms, now_ms, self.timeout_check_ms) {
            let now_ms = self.replicas.clock().now_ms();
            self.for_each_unlocked(true, |_, transaction| self.abort_if_timed_out(transaction, now_ms));
        }
        if is_due(&self.next_expiry_check_ms, now_ms, self.expiry_check_ms) {
            let now_ms = self.replicas.clock().now_ms();
            self.for_each_unlocked(false, |id, transaction| {
                let expired = transaction
                    .get()
                    .is_some_and(|t| t.is_expired(now_ms, self.expiration_ms));
                if expired && self.append_transaction(id, None).is_ok() {
                    transaction.set(None);
                }
            });
        }
    }

    /// When open and unfinished transactions are checked next, on the monotonic clock.
    pub(crate) fn next_deadline(&self) -> Option<i64> {
        self.any_unfinished()
            .then(|| self.next_timeout_check_ms.load(Ordering::Relaxed))
    }

    /// Aborts a transaction that has been open for too long, under the next epoch; completes one that could not be completed before.
    fn abort_if_timed_out(&self, transaction: &mut Locked<'_>, now_ms: i64) {
        let Some(open) = transaction.get() else { return };
        if open.state == TransactionState::Ongoing {
            if !open.is_timed_out(now_ms) {
                return;
            }
            log::info!(
                "transaction {} was open for longer than {} ms and is aborted",
                open.transactional_id,
                open.timeout_ms
            );
            let new_id = || Ok(self.producer_ids.generate(&self.replicas)?);
            let fenced = open.fence(self.level(), now_ms, new_id);
            if fenced
                .and_then(|fenced| self.store_transaction(transaction, fenced))
                .is_err()
            {
                return;
            }
        }
        self.complete_transaction(transaction);
    }
}
