//! Ending a call from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fletchlog_api::transport::Waker;

/// Ends the blocking call of a consumer in another thread. Kafka: `KafkaConsumer#wakeup`.
#[derive(Clone)]
pub struct WakeupHandle {
    wanted: Arc<AtomicBool>,
    waker: Option<Waker>,
}

impl WakeupHandle {
    /// Of a consumer that checks `wanted` when `waker` ends its wait.
    pub(crate) fn new(wanted: Arc<AtomicBool>, waker: Option<Waker>) -> Self {
        Self { wanted, waker }
    }

    /// Makes the current call, or the next one that would block, return `Wakeup`; at once in-process. Thread-safe.
    pub fn wake(&self) {
        self.wanted.store(true, Ordering::Release);
        if let Some(waker) = &self.waker {
            waker();
        }
    }
}
