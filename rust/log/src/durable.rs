//! How much of a log is on disk, and whose turn it is to sync more.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::sync::lock;

/// What is known to be on disk. One thread at a time syncs, on behalf of all waiting threads. Threads that arrive meanwhile
/// wait for the next turn, which one of them takes.
#[derive(Debug)]
pub(crate) struct Durable {
    state: Mutex<DurableState>,
    turn_over: Condvar,
}

#[derive(Debug)]
struct DurableState {
    /// Offsets below are in `.log` files on disk.
    log_end: i64,
    /// Offsets below need no recovery: their side files are on disk too.
    recovery_point: i64,
    /// A thread is syncing.
    syncing: bool,
}

impl Durable {
    pub fn new(recovery_point: i64) -> Self {
        Self {
            state: Mutex::new(DurableState {
                log_end: recovery_point,
                recovery_point,
                syncing: false,
            }),
            turn_over: Condvar::new(),
        }
    }

    /// Forgets what was known: everything below `recovery_point` is on disk.
    pub fn reset(&self, recovery_point: i64) {
        let mut state = lock(&self.state);
        (state.log_end, state.recovery_point) = (recovery_point, recovery_point);
    }

    /// Forgets what was known about `offset` and what is beyond.
    pub fn lower(&self, offset: i64) {
        let mut state = lock(&self.state);
        (state.log_end, state.recovery_point) = (state.log_end.min(offset), state.recovery_point.min(offset));
    }

    /// Offsets below are on disk.
    pub fn log_end(&self) -> i64 {
        lock(&self.state).log_end
    }

    pub fn recovery_point(&self) -> i64 {
        lock(&self.state).recovery_point
    }

    /// Waits for a turn to sync. Returns `None` once everything below `offset` is on disk.
    pub fn begin_sync(&self, offset: Option<i64>) -> Option<SyncTurn<'_>> {
        let mut state = lock(&self.state);
        loop {
            if offset.is_some_and(|offset| state.log_end >= offset) {
                return None;
            }
            if !state.syncing {
                state.syncing = true;
                return Some(SyncTurn { durable: self });
            }
            state = self.turn_over.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The right to sync. Dropping it passes it to the next thread.
pub(crate) struct SyncTurn<'a> {
    durable: &'a Durable,
}

impl SyncTurn<'_> {
    /// Offsets below were synced before.
    pub fn log_end(&self) -> i64 {
        lock(&self.durable.state).log_end
    }

    /// Notes that everything below `log_end` is on disk, with its side files if `side_files`.
    pub fn synced(&self, log_end: i64, side_files: bool) {
        let mut state = lock(&self.durable.state);
        state.log_end = log_end;
        if side_files {
            state.recovery_point = log_end;
        }
    }
}

impl Drop for SyncTurn<'_> {
    fn drop(&mut self) {
        lock(&self.durable.state).syncing = false;
        self.durable.turn_over.notify_all();
    }
}
