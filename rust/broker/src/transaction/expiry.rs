//! Time-outs of transactions, and ids that expire. Kafka: `TransactionCoordinator#abortTimedOutTransactions`,
//! `TransactionStateManager#removeExpiredTransactionalIds`. No thread does this: every call of the broker checks, and a waiting
//! client wakes up for it.

use super::coordinator::{Locked, TransactionCoordinator};
use super::state::TransactionState;

impl TransactionCoordinator {
    /// Does what is due. An id that another thread has locked is checked again the next time.
    pub(crate) fn tick(&self, now_ms: i64) {
        if self.replicas.is_read_only() {
            return;
        }
        if let Some(_running) = self.timeout_check.begin(now_ms, self.timeout_check_ms) {
            let now_ms = self.replicas.clock().now_ms();
            self.for_each_unlocked(true, |_, transaction| self.abort_if_timed_out(transaction, now_ms));
        }
        if let Some(_running) = self.expiry_check.begin(now_ms, self.expiry_check_ms) {
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
        self.any_unfinished().then(|| self.timeout_check.next_ms())
    }

    /// When ids that may have expired are checked next. No waiting client can see the difference.
    pub(crate) fn next_expiry_check(&self) -> Option<i64> {
        self.any_known().then(|| self.expiry_check.next_ms())
    }

    /// Whether a thread is doing timed work.
    pub(crate) fn is_checking(&self) -> bool {
        self.timeout_check.is_running() || self.expiry_check.is_running()
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
