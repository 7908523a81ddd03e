//! Locks that survive a panic of another holder, a counter to wait on, and a cell that is answered once.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fletchlog_api::Response;

/// Locks. After a panic of its holder a lock is taken over: what was being changed may be half done in memory. What this crate
/// keeps in logs and in the metadata file is written before memory changes, and a log fences itself if the panic came out of
/// it; so at worst a group, a session or a table of topics lags behind until the broker is opened again.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True for one caller when the time has come, and then sets the next.
pub(crate) fn is_due(next_ms: &AtomicI64, now_ms: i64, interval_ms: i64) -> bool {
    let due_ms = next_ms.load(Ordering::Relaxed);
    now_ms >= due_ms
        && next_ms
            .compare_exchange(
                due_ms,
                now_ms.saturating_add(interval_ms),
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
}

/// A counter of changes that threads can wait on.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    version: Mutex<u64>,
    changed: Condvar,
}

impl Changes {
    /// The count now.
    pub(crate) fn version(&self) -> u64 {
        *lock(&self.version)
    }

    /// Something changed: wakes every waiting thread.
    pub(crate) fn notify(&self) {
        *lock(&self.version) += 1;
        self.changed.notify_all();
    }

    /// Waits until the count differs from `seen`; false after `timeout`.
    pub(crate) fn wait(&self, seen: u64, timeout: Duration) -> bool {
        let guard = lock(&self.version);
        let (guard, _) = self
            .changed
            .wait_timeout_while(guard, timeout, |version| *version == seen)
            .unwrap_or_else(PoisonError::into_inner);
        *guard != seen
    }
}

/// The place where a waiting request's answer will be.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Number of the waiting fetch in the purgatory; 0 for other requests.
    fetch_id: u64,
    response: Mutex<Option<Response>>,
}

impl Answer {
    /// The answer of a waiting fetch.
    pub(crate) fn of_fetch(fetch_id: u64) -> Self {
        Self {
            fetch_id,
            ..Self::default()
        }
    }

    /// See [`Answer::of_fetch`].
    pub(crate) fn fetch_id(&self) -> u64 {
        self.fetch_id
    }

    /// Gives the answer and wakes whoever waits.
    pub(crate) fn complete(&self, response: Response, changes: &Changes) {
        *lock(&self.response) = Some(response);
        changes.notify();
    }

    /// Takes the answer if it is there.
    pub(crate) fn take(&self) -> Option<Response> {
        lock(&self.response).take()
    }
}
