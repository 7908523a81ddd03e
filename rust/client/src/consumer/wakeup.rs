//! Ending a call from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fletchlog_api::transport::Waker;

/// Ends the blocking call of a consumer in another thread. Kafka: `KafkaConsumer#wakeup`.
#[derive(Clone)]
pub struct WakeupHandle {
    pub(super) wanted: Arc<AtomicBool>,
    pub(super) waker: Option<Waker>,
}

impl WakeupHandle {
    /// The call going on, or the next one that would block, answers `Wakeup`. Thread-safe; at once in-process.
    pub fn wake(&self) {
        self.wanted.store(true, Ordering::Release);
        if let Some(waker) = &self.waker {
            waker();
        }
    }

    /// No call answers `Wakeup` for what was asked before.
    pub fn forget(&self) {
        self.wanted.store(false, Ordering::Release);
    }
}
