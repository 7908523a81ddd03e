//! Time that moves only when it is advanced.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use fletchlog_api::Clock;

/// The wall time at which [`VirtualClock::new`] starts, ms since the epoch.
pub const START_MS: i64 = 1_700_000_000_000;

/// A clock that moves only with [`VirtualClock::advance`]: by the test, or by a transport that waits.
#[derive(Debug)]
pub struct VirtualClock {
    passed_ms: AtomicI64,
    /// The wall clock when the monotonic one is 0.
    wall_ms: AtomicI64,
}

impl Default for VirtualClock {
    fn default() -> Self {
        Self {
            passed_ms: AtomicI64::new(0),
            wall_ms: AtomicI64::new(START_MS),
        }
    }
}

impl VirtualClock {
    /// A clock that starts at [`START_MS`].
    pub fn new() -> Arc<Self> {
        Arc::default()
    }
    /// A clock that starts at this wall time, in ms since the epoch.
    pub fn at(wall_ms: i64) -> Arc<Self> {
        let clock = Self::default();
        clock.wall_ms.store(wall_ms, Ordering::Release);
        Arc::new(clock)
    }
    /// Lets time pass.
    pub fn advance(&self, ms: i64) {
        self.passed_ms.fetch_add(ms, Ordering::AcqRel);
    }
    /// Sets the wall clock ahead or back; no time passes.
    pub fn jump(&self, ms: i64) {
        self.wall_ms.fetch_add(ms, Ordering::AcqRel);
    }
}

impl Clock for VirtualClock {
    fn now_ms(&self) -> i64 {
        self.wall_ms.load(Ordering::Acquire).saturating_add(self.monotonic_ms())
    }
    fn monotonic_ms(&self) -> i64 {
        self.passed_ms.load(Ordering::Acquire)
    }
}
