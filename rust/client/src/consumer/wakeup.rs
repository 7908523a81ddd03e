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
    /// Makes the current call, or the next one that would block, return `Wakeup`; at once in-process. Thread-safe.
    pub fn wake(&self) {
        self.wanted.store(true, Ordering::Release);
        if let Some(waker) = &self.waker {
            waker();
        }
    }
}
