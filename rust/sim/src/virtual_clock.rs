//! Time that moves only when it is advanced.

use std::sync::atomic::{AtomicI64, Ordering};

use fletchlog_api::Clock;

/// A clock that moves only with [`VirtualClock::advance`].
#[derive(Debug)]
pub struct VirtualClock {
    start_ms: i64,
    passed_ms: AtomicI64,
}

impl VirtualClock {
    /// A clock that starts at this wall time, in ms since the epoch.
    pub fn at(start_ms: i64) -> Self {
        Self {
            start_ms,
            passed_ms: AtomicI64::new(0),
        }
    }
    /// Lets time pass.
    pub fn advance(&self, ms: i64) {
        self.passed_ms.fetch_add(ms, Ordering::AcqRel);
    }
}

impl Clock for VirtualClock {
    fn now_ms(&self) -> i64 {
        self.start_ms.saturating_add(self.monotonic_ms())
    }
    fn monotonic_ms(&self) -> i64 {
        self.passed_ms.load(Ordering::Acquire)
    }
}
