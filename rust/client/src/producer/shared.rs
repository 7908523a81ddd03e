//! The lock between the users' threads and the sender, and how each side waits for the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use fletchlog_api::Clock;
use fletchlog_api::transport::Waker;

use super::core::Core;
use super::future::{Signal, WAIT_SLICE_MS, lock, millis};
use super::send::closed;
use super::send::waiting::{WaitingRecords, fail_waiting};
use crate::ClientError;

/// How many times [`Shared::lock_soon`] tries to get the lock.
const SPINS: u32 = 100;

/// [`Core`] behind its lock, with the condition variables of the waiting threads.
pub(crate) struct Shared {
    core: Mutex<Guarded>,
    pub clock: Arc<dyn Clock>,
    pub signal: Arc<Signal>,
    /// Records whose callers do not wait. Locked after the core, or alone.
    pub waiting: WaitingRecords,
    /// Whether the sender is parked, with nothing on the wire. Locked last.
    parked: Mutex<bool>,
    work: Condvar,
    /// Users park here: for metadata, memory, decisions.
    progress: Condvar,
    /// Users park here until what they flush is decided.
    decided: Condvar,
    /// A user parks here until a good part of the memory is free.
    room: Condvar,
    /// There is something new for the sender.
    wake: AtomicBool,
    /// The sender waits for a response; `waker` can end that wait.
    receiving: AtomicBool,
    waker: OnceLock<Waker>,
}

/// What the lock guards: the core and a counter that grows when something happened.
pub(crate) struct Guarded {
    pub core: Core,
    progress: u64,
    /// A user waits for room.
    room_wanted: bool,
    /// A user waits until every batch with a lower serial is decided.
    decision_wanted: Option<u64>,
    /// Number of users that wait for progress: notifying costs a system call even if there are none.
    waiting: usize,
}

/// How a user's call waits for the sender.
pub(crate) trait Pause {
    /// Lets the sender work for at most `ms`; returns early when anything has happened since `seen`. An error ends the
    /// call.
    fn pause(&mut self, shared: &Shared, seen: u64, ms: i64) -> Result<(), ClientError>;
    /// As [`Pause::pause`], but need not return before every batch with a serial below `mark` is decided: waking the user for each batch
    /// costs as much as sending it.
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
            clock: core.clock.clone(),
            signal: core.signal.clone(),
            waiting: WaitingRecords::default(),
            core: Mutex::new(Guarded {
                core,
                progress: 0,
                room_wanted: false,
                decision_wanted: None,
                waiting: 0,
            }),
            parked: Mutex::new(false),
            work: Condvar::new(),
            progress: Condvar::new(),
            decided: Condvar::new(),
            room: Condvar::new(),
            wake: AtomicBool::new(false),
            receiving: AtomicBool::new(false),
            waker: OnceLock::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Guarded> {
        lock(&self.core)
    }

    /// The lock, or `None` if another thread holds it for more than a few microseconds, as a turn of the sender does.
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

    /// Sets the callback that ends the sender's wait for a response early.
    pub(crate) fn set_waker(&self, waker: Waker) {
        let _ = self.waker.set(waker);
    }

    /// Makes the sender take another turn. Needs no lock of the core.
    pub(crate) fn wake_sender(&self) {
        if self.wake.swap(true, Ordering::SeqCst) {
            return;
        }
        if self.receiving.load(Ordering::SeqCst) {
            if let Some(waker) = self.waker.get() {
                waker();
            }
        } else if *lock(&self.parked) {
            self.work.notify_one();
        }
    }
    /// Whether the sender was woken since it last asked.
    pub(crate) fn take_wake(&self) -> bool {
        self.wake.swap(false, Ordering::SeqCst)
    }
    /// The sender begins or stops waiting for responses.
    pub(crate) fn set_receiving(&self, receiving: bool) {
        self.receiving.store(receiving, Ordering::SeqCst);
    }
    /// The sender sleeps until it is woken, at most `ms`. It checks `wake` under the lock that [`Self::wake_sender`] takes after setting
    /// it, so no wake-up is lost.
    pub(crate) fn park(&self, ms: i64) {
        let mut parked = lock(&self.parked);
        if self.take_wake() {
            return;
        }
        *parked = true;
        let mut parked = if ms == i64::MAX {
            self.work.wait(parked).unwrap_or_else(PoisonError::into_inner)
        } else {
            let waited = self.work.wait_timeout(parked, millis(ms));
            waited.unwrap_or_else(PoisonError::into_inner).0
        };
        *parked = false;
        self.take_wake();
    }

    /// Accepts no more records; queued ones are still sent.
    pub(crate) fn begin_close(&self, guard: &mut Guarded) {
        guard.core.closing = true;
        guard.core.accumulator.closed = true;
        if let Some(error) = closed(&guard.core) {
            self.waiting.close(error);
        }
        self.wake_sender();
    }
    /// Fails everything undecided.
    pub(crate) fn fail_all(&self, guard: &mut Guarded, error: &ClientError) {
        guard.core.abort_all(error);
        fail_waiting(self, &mut guard.core, error);
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
        self.wake_sender();
        let slice = millis(ms.min(WAIT_SLICE_MS));
        let waited = self.room.wait_timeout(guard, slice);
        let (mut guard, _) = waited.unwrap_or_else(PoisonError::into_inner);
        guard.core.accumulator.memory_waiters -= 1;
    }
    /// A user sleeps until every batch with a serial below `mark` is decided, at most one slice; if they already are, until something has
    /// happened since `seen`.
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
    /// A user sleeps until something has happened since `seen`, at most one slice.
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

/// The sender can do nothing more: everything undecided, and every later call, fails with this.
pub(crate) fn end(shared: &Shared, guard: &mut Guarded, error: &ClientError) {
    guard.core.die(error);
    shared.waiting.close(error.clone());
    fail_waiting(shared, &mut guard.core, error);
    shared.made_progress(guard);
}
