//! What the users' threads and the sender share: one lock around what both change, and how each side waits for the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use fletchlog_api::transport::Waker;
use fletchlog_api::{Clock, ErrorCode, NodeId, waiting};
use fletchlog_records::TopicPartition;

use super::config::ProducerConfig;
use super::future::{Signal, lock, wait};
use super::idempotence::Idempotence;
use super::metadata::ProducerMetadata;
use super::producer_batch::{BatchId, ProducerIdAndEpoch};
use super::record_accumulator::RecordAccumulator;
use super::send::waiting::{WaitingRecords, fail_waiting};
use super::trace::{Trace, TraceKind};
use super::transaction::TransactionManager;
use crate::ClientError;
use crate::metrics::ProducerMetrics;

/// How many times [`Shared::lock_soon`] tries to get the lock.
const SPINS: u32 = 100;

/// [`Guarded`] behind its lock, with the condition variables of the waiting threads.
pub(crate) struct Shared {
    guarded: Mutex<Guarded>,
    pub config: Arc<ProducerConfig>,
    pub clock: Arc<dyn Clock>,
    pub signal: Arc<Signal>,
    /// Records whose callers do not wait. Locked after [`Guarded`], or alone.
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
    /// Wakes the calls that are suspended.
    watcher: Mutex<Option<Waker>>,
}

/// Whether the producer accepts records, and whether its sender still works.
#[derive(Debug)]
enum Closing {
    Open,
    /// Accepts no more records; queued ones are still sent.
    Begun,
    /// The sender has ended; the error if nobody asked it to.
    Closed(Option<ClientError>),
}

/// What the lock guards.
pub(crate) struct Guarded {
    pub metadata: ProducerMetadata,
    pub accumulator: RecordAccumulator,
    pub idempotence: Option<Idempotence>,
    pub trace: Trace,
    pub metrics: ProducerMetrics,
    closing: Closing,
    /// Grows when something happened.
    progress: u64,
    /// A user waits for room.
    room_wanted: bool,
    /// A user waits until every batch with a lower serial is decided.
    decision_wanted: Option<u64>,
    /// Number of users that wait for progress: notifying costs a system call even if there are none.
    waiting: usize,
    /// Calls are suspended until there is progress.
    suspended: bool,
}

impl Shared {
    /// `seed`: of everything random.
    pub(crate) fn new(config: Arc<ProducerConfig>, clock: Arc<dyn Clock>, seed: u64) -> Self {
        let signal = Signal::new(clock.clone());
        let guarded = Guarded {
            metadata: ProducerMetadata::new(config.retry_backoff_ms, config.metadata_max_age_ms),
            accumulator: RecordAccumulator::new(config.clone(), clock.clone(), signal.clone(), seed),
            idempotence: config
                .idempotent
                .then(|| Idempotence::new(config.release, TransactionManager::of(&config))),
            trace: Trace::new(config.trace, clock.clone()),
            metrics: ProducerMetrics::default(),
            closing: Closing::Open,
            progress: 0,
            room_wanted: false,
            decision_wanted: None,
            waiting: 0,
            suspended: false,
        };
        Self {
            guarded: Mutex::new(guarded),
            config,
            clock,
            signal,
            waiting: WaitingRecords::default(),
            parked: Mutex::new(false),
            work: Condvar::new(),
            progress: Condvar::new(),
            decided: Condvar::new(),
            room: Condvar::new(),
            wake: AtomicBool::new(false),
            receiving: AtomicBool::new(false),
            waker: OnceLock::new(),
            watcher: Mutex::default(),
        }
    }

    /// Sets what wakes the calls that are suspended.
    pub(crate) fn set_watcher(&self, notify: Waker) {
        *lock(&self.watcher) = Some(notify);
    }

    fn wake_suspended(&self) {
        if let Some(notify) = &*lock(&self.watcher) {
            notify();
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Guarded> {
        lock(&self.guarded)
    }

    /// Monotonic ms.
    pub(crate) fn now(&self) -> i64 {
        self.clock.monotonic_ms()
    }

    /// The lock, or `None` if another thread holds it for more than a few microseconds, as a turn of the sender does.
    pub(crate) fn lock_soon(&self) -> Option<MutexGuard<'_, Guarded>> {
        for _ in 0..SPINS {
            match self.guarded.try_lock() {
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

    /// Makes the sender take another turn. Needs no lock of [`Guarded`].
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
        parked = if ms == i64::MAX {
            self.work.wait(parked).unwrap_or_else(PoisonError::into_inner)
        } else {
            wait(&self.work, parked, ms)
        };
        *parked = false;
        self.take_wake();
    }

    /// Accepts no more records; queued ones are still sent.
    pub(crate) fn begin_close(&self, guard: &mut Guarded) {
        if let Closing::Open = guard.closing {
            guard.closing = Closing::Begun;
        }
        guard.accumulator.closed = true;
        if let Err(error) = guard.check_open() {
            self.waiting.close(error);
        }
        self.wake_sender();
    }
    /// Fails everything undecided.
    pub(crate) fn fail_all(&self, guard: &mut Guarded, error: &ClientError) {
        guard.accumulator.abort_all(error);
        fail_waiting(self, guard, error);
    }
    /// The sender can do nothing more: everything undecided, and every later call, fails with this.
    pub(crate) fn die(&self, guard: &mut Guarded, error: &ClientError) {
        guard.close(Some(error.clone()));
        self.waiting.close(error.clone());
        self.fail_all(guard, error);
        guard.accumulator.unseen.report();
        self.made_progress(guard);
    }

    /// Wakes every waiting user.
    pub(crate) fn made_progress(&self, held: &mut Guarded) {
        held.progress = held.progress.wrapping_add(1);
        if held.waiting > 0 {
            self.progress.notify_all();
        }
        let mut wakes = std::mem::take(&mut held.suspended);
        if held.room_wanted && held.accumulator.has_room() {
            held.room_wanted = false;
            self.room.notify_all();
            wakes = true;
        }
        let accumulator = &held.accumulator;
        if held
            .decision_wanted
            .is_some_and(|mark| accumulator.all_decided_below(mark))
        {
            held.decision_wanted = None;
            self.decided.notify_all();
            wakes = true;
        }
        if wakes {
            self.wake_suspended();
        }
    }
    /// Sleeps until `condition` is notified, at most one slice; not at all in a call that is suspended instead.
    fn sleep<'a>(&'a self, condition: &Condvar, guard: MutexGuard<'a, Guarded>, ms: i64) -> MutexGuard<'a, Guarded> {
        let mut guard = Some(guard);
        waiting::wait(millis(ms), |time| {
            if !time.is_zero() {
                let ms = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
                guard = guard.take().map(|guard| wait(condition, guard, ms));
            }
            false
        });
        guard.unwrap_or_else(|| self.lock())
    }
    /// A user sleeps until there is room for many batches, at most one slice. Returns whether it waits: then the caller ends that with
    /// [`Self::end_wait_for_room`].
    pub(crate) fn wait_room(&self, ms: i64) -> bool {
        let mut guard = self.lock();
        if guard.accumulator.has_room() {
            return false;
        }
        guard.room_wanted = true;
        // A waiter makes everything sendable.
        guard.accumulator.memory_waiters += 1;
        self.wake_sender();
        drop(self.sleep(&self.room, guard, ms));
        true
    }
    /// See [`Self::wait_room`].
    pub(crate) fn end_wait_for_room(&self) {
        let waiters = &mut self.lock().accumulator.memory_waiters;
        *waiters = waiters.saturating_sub(1);
    }
    /// A user sleeps until every batch with a serial below `mark` is decided, at most one slice; if they already are, until something has
    /// happened since `seen`.
    pub(crate) fn wait_decided(&self, mark: u64, seen: u64, ms: i64) {
        let mut guard = self.lock();
        if guard.accumulator.all_decided_below(mark) {
            drop(guard);
            return self.wait_progress(seen, ms);
        }
        let wanted = guard.decision_wanted.map_or(mark, |other| other.min(mark));
        guard.decision_wanted = Some(wanted);
        drop(self.sleep(&self.decided, guard, ms));
    }
    /// A user sleeps until something has happened since `seen`, at most one slice.
    pub(crate) fn wait_progress(&self, seen: u64, ms: i64) {
        let mut guard = self.lock();
        if guard.progress == seen {
            guard.suspended |= waiting::suspends();
            guard.waiting += 1;
            self.sleep(&self.progress, guard, ms).waiting -= 1;
        }
    }
}

impl Guarded {
    pub(crate) fn progress(&self) -> u64 {
        self.progress
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.closing, Closing::Open)
    }
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.closing, Closing::Closed(_))
    }
    /// The error of a call after the producer was closed. Kafka: `KafkaProducer#throwIfProducerClosed`.
    pub(crate) fn check_open(&self) -> Result<(), ClientError> {
        match &self.closing {
            Closing::Open => Ok(()),
            Closing::Closed(Some(error)) => Err(error.clone()),
            Closing::Begun | Closing::Closed(None) => Err(ClientError::Closed(
                "the producer is closed; make a new one to send more".to_owned(),
            )),
        }
    }
    /// The sender has ended; `why`, if nobody asked it to.
    pub(crate) fn close(&mut self, why: Option<ClientError>) {
        if !matches!(self.closing, Closing::Closed(Some(_))) {
            self.closing = Closing::Closed(why);
        }
    }

    /// `None` for a producer without transactional.id.
    pub(crate) fn transactions(&mut self) -> Option<&mut TransactionManager> {
        self.idempotence.as_mut()?.transactions.as_mut()
    }
    /// A transactional producer sends inside a transaction only.
    pub(crate) fn check_transaction(&self) -> Result<(), ClientError> {
        let transactions = self.idempotence.as_ref().and_then(|i| i.transactions.as_ref());
        transactions.map_or(Ok(()), TransactionManager::check_ready_for_send)
    }
    /// The error of a record that is put into a batch now. Kafka: `KafkaProducer#doSend`.
    pub(crate) fn check_send(&self) -> Result<(), ClientError> {
        self.check_open()?;
        self.check_transaction()
    }
    /// `None` until the broker has given one.
    pub(crate) fn producer_id(&self) -> Option<ProducerIdAndEpoch> {
        self.idempotence.as_ref().and_then(Idempotence::id)
    }

    /// The partition that a batch goes to.
    pub(crate) fn tp_of(&self, batch: BatchId) -> &TopicPartition {
        self.metadata.tp_of(&self.accumulator.batches[batch])
    }

    /// Acknowledges a batch.
    pub(crate) fn complete(&mut self, id: BatchId, base_offset: i64, log_append_time: i64) {
        let tp = self.metadata.tp_of(&self.accumulator.batches[id]);
        self.accumulator.complete(id, tp, base_offset, log_append_time);
    }

    /// Records an event about a batch if tracing is on.
    #[inline]
    pub(crate) fn trace(
        &mut self,
        kind: TraceKind,
        id: BatchId,
        node: Option<NodeId>,
        base_offset: i64,
        error: Option<ErrorCode>,
    ) {
        if self.trace.is_on() {
            let batch = &self.accumulator.batches[id];
            let tp = self.metadata.tp_of(batch).clone();
            self.trace.add(kind, batch, tp, node, base_offset, error);
        }
    }
    /// Records that the epoch was raised.
    pub(crate) fn trace_bump(&mut self) {
        if let (true, Some(producer)) = (self.trace.is_on(), self.producer_id()) {
            self.trace.bumped(producer);
        }
    }
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
