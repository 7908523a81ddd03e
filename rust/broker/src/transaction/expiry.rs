//! What time does to transactions: time-outs, forgotten ids. Kafka: `TransactionCoordinator#abortTimedOutTransactions`,
//! `TransactionStateManager#removeExpiredTransactionalIds`. There is no thread: whoever calls the broker looks, and a client
//! that waits wakes up for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::coordinator::Transactions;
use super::state::TransactionState;
use crate::Broker;
use crate::sync::is_due;

impl Broker {
    /// Does what is due.
    pub(crate) fn tick_transactions(&self, now_ms: i64) {
        let coordinator = &self.transactions;
        if self.is_read_only() {
            return;
        }
        if is_due(&coordinator.next_timeout_check_ms, now_ms, coordinator.timeout_check_ms) {
            let mut transactions = coordinator.lock();
            self.abort_timed_out(&mut transactions);
        }
        if is_due(&coordinator.next_expiry_check_ms, now_ms, coordinator.expiry_check_ms) {
            let mut transactions = coordinator.lock();
            self.remove_expired_transactional_ids(&mut transactions);
        }
    }

    /// When an open or unfinished transaction is looked at next, on the monotonic clock.
    pub(crate) fn transaction_deadline(&self) -> Option<i64> {
        let coordinator = &self.transactions;
        coordinator
            .lock()
            .values()
            .any(|t| t.state == TransactionState::Ongoing || t.state.is_prepared())
            .then(|| coordinator.next_timeout_check_ms.load(Ordering::Relaxed))
    }

    /// Aborts what is open for too long, under the next epoch; finishes what could not be finished.
    fn abort_timed_out(&self, transactions: &mut Transactions) {
        let now_ms = self.clock.now_ms();
        let ids: Vec<Arc<str>> = transactions
            .values()
            .filter(|t| t.state.is_prepared() || t.is_timed_out(now_ms))
            .map(|t| t.transactional_id.clone())
            .collect();
        for id in ids {
            if let Some(open) = transactions.get(&id).filter(|t| t.state == TransactionState::Ongoing) {
                log::info!(
                    "transaction {id} was open for longer than {} ms and is aborted",
                    open.timeout_ms
                );
                let fenced = open
                    .fence(now_ms)
                    .map_err(Into::into)
                    .and_then(|fenced| self.store_transaction(transactions, fenced));
                if fenced.is_err() {
                    continue;
                }
            }
            self.complete_transaction(transactions, &id);
        }
    }

    fn remove_expired_transactional_ids(&self, transactions: &mut Transactions) {
        let now_ms = self.clock.now_ms();
        let expired: Vec<Arc<str>> = transactions
            .values()
            .filter(|t| t.is_expired(now_ms, self.transactions.expiration_ms))
            .map(|t| t.transactional_id.clone())
            .collect();
        for id in expired {
            if self.append_transaction(&id, None).is_ok() {
                transactions.remove(&id);
            }
        }
    }
}
