//! The sender's thread. Kafka: `Sender#run`.

use super::{Guarded, Sender};
use crate::ClientError;
use crate::producer::shared::Shared;
use crate::producer::transaction::NO_PRODUCER;

/// Wakes waiting users with an error if the thread ends without having been closed.
struct WakeOnDrop<'a>(&'a Shared);

impl Drop for WakeOnDrop<'_> {
    fn drop(&mut self) {
        let mut guard = self.0.lock();
        if !guard.is_closed() {
            let error = ClientError::IllegalState("the producer's thread has failed; make a new producer".to_owned());
            self.0.die(&mut guard, &error);
        }
        self.0.made_progress(&mut guard);
    }
}

impl Sender {
    /// Runs turns until the producer is closed. It sleeps on the accumulator when nothing is on the wire, on the transport otherwise.
    pub(crate) fn run(mut self) {
        let shared = self.shared.clone();
        let wake = WakeOnDrop(&shared);
        let mut ending_since_ms = None;
        loop {
            let wait = self.send_half();
            if wait > 0 {
                if self.is_idle() {
                    let left = self.time_to_close(&mut ending_since_ms);
                    if left == 0 {
                        break;
                    }
                    shared.park(wait.min(left));
                } else {
                    self.wait_for_answer(wait);
                }
            }
            self.receive_half();
            if shared.lock().is_closed() {
                break;
            }
        }
        drop(wake);
    }

    /// When closing and everything is decided: marks the producer as closed and returns 0. Otherwise returns the ms until the next call. An
    /// open transaction is ended first.
    fn time_to_close(&self, ending_since_ms: &mut Option<i64>) -> i64 {
        let mut guard = self.shared.lock();
        if guard.is_open() || guard.accumulator.has_undrained() || !self.shared.waiting.is_empty() {
            return i64::MAX;
        }
        if let Some(left) = self.end_open_transaction(&mut guard, ending_since_ms) {
            return left;
        }
        guard.close(None);
        self.shared.made_progress(&mut guard);
        0
    }

    /// Ends an open transaction, or returns `None` if there is none, or it cannot be ended. Kafka: `Sender#run`, which waits for ever; here
    /// the wait for a coordinator that keeps refusing ends after max.block.ms.
    fn end_open_transaction(&self, guarded: &mut Guarded, since_ms: &mut Option<i64>) -> Option<i64> {
        let producer = guarded.producer_id().unwrap_or(NO_PRODUCER);
        let transactions = guarded.transactions().filter(|t| t.has_ongoing_transaction())?;
        let (now, max_ms) = (self.shared.now(), self.config.max_block_ms);
        let waited = now.saturating_sub(*since_ms.get_or_insert(now));
        if waited >= max_ms {
            let refusal = transactions.last_refusal().unwrap_or("no answer");
            log::warn!(
                "the producer is closed with its transaction open, which could not be ended within {max_ms} ms (max.block.ms): {refusal}; it is aborted after transaction.timeout.ms"
            );
            return None;
        }
        if transactions.is_completing() {
            return Some(max_ms.saturating_sub(waited));
        }
        log::info!("the producer is closed with a transaction open, which is aborted");
        if let Err(error) = transactions.begin_abort(producer) {
            log::warn!("the open transaction could not be aborted: {error}");
            return None;
        }
        self.shared.wake_sender();
        Some(i64::MAX)
    }

    /// Waits for a response, a connection, a wake-up or the end of `ms`. A transport may return early.
    fn wait_for_answer(&mut self, ms: i64) {
        let shared = self.shared.clone();
        let end = shared.now().saturating_add(ms);
        let mut left = ms;
        shared.set_receiving(true);
        while left > 0 && !shared.take_wake() {
            if self.wait(left) || self.has_answer() {
                break;
            }
            left = end.saturating_sub(shared.now());
        }
        shared.set_receiving(false);
    }
}
