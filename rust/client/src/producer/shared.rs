//! The lock between the users' threads and the sender, and the two ways to wait behind it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

use super::core::Core;
use super::future::{WAIT_SLICE_MS, lock, millis};
use crate::ClientError;

/// How often a call that does not wait tries to get the lock.
const SPINS: u32 = 100;

/// [`Core`] behind its lock, with the condition variables of the waiting threads.
pub(crate) struct Shared {
    core: Mutex<Guarded>,
    /// The sender parks here.
    work: Condvar,
    /// Users park here: for metadata, memory, decisions.
    progress: Condvar,
    /// Users park here until what they flush is decided.
    decided: Condvar,
    /// A user parks here until a good part of the memory is free.
    room: Condvar,
    /// The sender has something new to look at.
    wake: AtomicBool,
}

/// What the lock guards: the core and a counter that grows when something happened.
pub(crate) struct Guarded {
    pub core: Core,
    progress: u64,
    /// A user waits for room.
    room_wanted: bool,
    /// A user waits until every batch with a lower serial is decided.
    decision_wanted: Option<u64>,
    /// The sender sleeps, and how many users wait for progress: waking nobody takes a system call too.
    parked: bool,
    waiting: usize,
}

/// How a user's call waits for the sender.
pub(crate) trait Pause {
    /// Lets the sender work for at most `ms`; returns early when anything has happened since `seen`. An error ends the
    /// call.
    fn pause(&mut self, shared: &Shared, seen: u64, ms: i64) -> Result<(), ClientError>;
    /// As [`Pause::pause`]; what happens before every batch with a serial below `mark` is decided may go unnoticed: waking the user for
    /// each batch costs as much as sending it.
    fn settle(&mut self, shared: &Shared, mark: u64, seen: u64, ms: i64) -> Result<(), ClientError> {
        let _ = mark;
        self.pause(shared, seen, ms)
    }
    /// Lets a sender that runs by itself free the memory of many batches, for at most `ms`: waking the user for each
    /// batch costs more than the batch itself.
    fn rest(&mut self, shared: &Shared, ms: i64) -> Result<(), ClientError> {
        let _ = (shared, ms);
        Ok(())
    }
}

impl Shared {
    pub(crate) fn new(core: Core) -> Self {
        Self {
            core: Mutex::new(Guarded {
                core,
                progress: 0,
                room_wanted: false,
                decision_wanted: None,
                parked: false,
                waiting: 0,
            }),
            work: Condvar::new(),
            progress: Condvar::new(),
            decided: Condvar::new(),
            room: Condvar::new(),
            wake: AtomicBool::new(false),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Guarded> {
        lock(&self.core)
    }

    /// The lock, unless another thread holds it for long: a few microseconds, which a turn of the sender takes.
    pub(crate) fn lock_soon(&self) -> Option<MutexGuard<'_, Guarded>> {
        for _ in 0..SPINS {
            match self.core.try_lock() {
                Ok(guard) => return Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        None
    }

    /// Makes the sender look again. It tests `wake` under the lock before it parks, so it cannot miss a caller that
    /// holds the lock.
    pub(crate) fn wake_sender_locked(&self, held: &mut Guarded) {
        if !self.wake.swap(true, Ordering::AcqRel) && held.parked {
            self.work.notify_one();
        }
    }
    /// Whether the sender was woken since it last asked.
    pub(crate) fn take_wake(&self) -> bool {
        self.wake.swap(false, Ordering::AcqRel)
    }
    /// The sender sleeps until it is woken, at most `ms`.
    pub(crate) fn park(&self, ms: i64) {
        let mut guard = self.lock();
        if self.take_wake() {
            return;
        }
        guard.parked = true;
        let mut guard = if ms == i64::MAX {
            self.work.wait(guard).unwrap_or_else(PoisonError::into_inner)
        } else {
            let waited = self.work.wait_timeout(guard, millis(ms));
            waited.unwrap_or_else(PoisonError::into_inner).0
        };
        guard.parked = false;
        self.take_wake();
    }

    /// Wakes every waiting user.
    pub(crate) fn made_progress(&self, held: &mut Guarded) {
        held.progress = held.progress.wrapping_add(1);
        if held.waiting > 0 {
            self.progress.notify_all();
        }
        if held.room_wanted && held.core.accumulator.has_room() {
            held.room_wanted = false;
            self.room.notify_all();
        }
        let accumulator = &held.core.accumulator;
        if held
            .decision_wanted
            .is_some_and(|mark| accumulator.all_decided_below(mark))
        {
            held.decision_wanted = None;
            self.decided.notify_all();
        }
    }
    /// A user sleeps until there is room for many batches, at most one slice.
    pub(crate) fn wait_room(&self, ms: i64) {
        let mut guard = self.lock();
        if guard.core.accumulator.has_room() {
            return;
        }
        guard.room_wanted = true;
        // A waiter makes everything sendable.
        guard.core.accumulator.memory_waiters += 1;
        self.wake_sender_locked(&mut guard);
        let slice = millis(ms.min(WAIT_SLICE_MS));
        let waited = self.room.wait_timeout(guard, slice);
        let (mut guard, _) = waited.unwrap_or_else(PoisonError::into_inner);
        guard.core.accumulator.memory_waiters -= 1;
    }
    /// A user sleeps until every batch with a serial below `mark` is decided, at most one slice; if they are, until something happened
    /// since `seen`.
    pub(crate) fn wait_decided(&self, mark: u64, seen: u64, ms: i64) {
        let mut guard = self.lock();
        if guard.core.accumulator.all_decided_below(mark) {
            drop(guard);
            return self.wait_progress(seen, ms);
        }
        let wanted = guard.decision_wanted.map_or(mark, |other| other.min(mark));
        guard.decision_wanted = Some(wanted);
        drop(self.decided.wait_timeout(guard, millis(ms.min(WAIT_SLICE_MS))));
    }
    /// A user sleeps until something happened since `seen`, at most one slice.
    pub(crate) fn wait_progress(&self, seen: u64, ms: i64) {
        let mut guard = self.lock();
        if guard.progress == seen {
            guard.waiting += 1;
            let waited = self.progress.wait_timeout(guard, millis(ms.min(WAIT_SLICE_MS)));
            let (mut guard, _) = waited.unwrap_or_else(PoisonError::into_inner);
            guard.waiting -= 1;
        }
    }
}

impl Guarded {
    pub(crate) fn progress(&self) -> u64 {
        self.progress
    }
}
