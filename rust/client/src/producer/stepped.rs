//! The turns of a producer without a thread ([`Producer::stepped`]).

use super::future::lock;
use super::producer::Producer;

impl Producer {
    /// One turn of the sender, with a wait of at most `limit_ms` between its halves.
    pub fn run_once(&self, limit_ms: i64) {
        if let Some(sender) = &mut *lock(&self.sender) {
            let wait = sender.send_half().min(limit_ms);
            if wait > 0 && !sender.has_answer() {
                sender.wait(wait);
            }
            sender.receive_half();
        }
    }

    /// Runs turns until `ms` of the clock have passed.
    pub fn run_for(&self, ms: i64) {
        let now = || self.shared.now();
        let end = now().saturating_add(ms);
        while now() < end {
            self.run_once(end.saturating_sub(now()));
        }
    }

    /// Runs turns until no request is on the wire: after a fatal error or an expiry some still are.
    pub fn run_until_idle(&self) {
        while lock(&self.sender).as_ref().is_some_and(|sender| !sender.is_idle()) {
            self.run_once(i64::MAX);
        }
    }

    /// Whether records are queued or undecided.
    pub fn has_incomplete(&self) -> bool {
        self.shared.lock().accumulator.has_incomplete()
    }

    /// Asks for a topic's metadata without waiting for it.
    #[cfg(test)]
    pub(crate) fn request_topic(&self, topic: &str) {
        self.shared.lock().metadata.request_topic(topic);
    }
}
