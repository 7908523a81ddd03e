//! The outcome of one record. Kafka: `FutureRecordMetadata`.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fletchlog_api::Clock;

use super::RecordMetadata;
use crate::ClientError;
use crate::consumer::Interrupt;

/// How long a waiting call sleeps before it asks its interrupt callback: Ctrl-C must be seen within 100 ms.
pub(crate) const WAIT_SLICE_MS: i64 = 50;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// Wakes all threads that wait for a record of one producer.
pub(crate) struct Signal {
    clock: Arc<dyn Clock>,
    lock: Mutex<()>,
    decided: Condvar,
}

impl Signal {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            lock: Mutex::new(()),
            decided: Condvar::new(),
        })
    }
    pub(crate) fn notify(&self) {
        let _guard = lock(&self.lock);
        self.decided.notify_all();
    }
}

impl std::fmt::Debug for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signal")
    }
}

/// Called with the outcome of a record when it is decided, in the order in which Java calls the callbacks of a
/// producer. Called under the producer's lock: it must neither wait nor call the producer.
pub type OnDecided = Box<dyn FnOnce(&Result<RecordMetadata, ClientError>) + Send>;

/// Where the sender puts the outcome of one record.
pub(crate) struct OutcomeCell {
    signal: Arc<Signal>,
    decided: Mutex<Option<Result<RecordMetadata, ClientError>>>,
    on_decided: Mutex<Vec<OnDecided>>,
}

impl OutcomeCell {
    pub(crate) fn new(signal: &Arc<Signal>, on_decided: Option<OnDecided>) -> Arc<Self> {
        Arc::new(Self {
            signal: signal.clone(),
            decided: Mutex::new(None),
            on_decided: Mutex::new(on_decided.into_iter().collect()),
        })
    }
    /// The first decision is kept. The caller calls [`Signal::notify`] afterwards.
    pub(crate) fn decide(&self, outcome: Result<RecordMetadata, ClientError>) {
        let mut decided = lock(&self.decided);
        if decided.is_some() {
            return;
        }
        for on_decided in std::mem::take(&mut *lock(&self.on_decided)) {
            on_decided(&outcome);
        }
        *decided = Some(outcome);
    }
}

impl std::fmt::Debug for OutcomeCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutcomeCell")
            .field("decided", &self.decided)
            .finish_non_exhaustive()
    }
}

/// The outcome of one send. Cheap to clone; thread-safe.
#[derive(Debug, Clone)]
pub struct RecordFuture {
    cell: Arc<OutcomeCell>,
}

impl RecordFuture {
    pub(crate) fn new(cell: Arc<OutcomeCell>) -> Self {
        Self { cell }
    }
    /// The outcome if decided.
    pub fn try_result(&self) -> Option<Result<RecordMetadata, ClientError>> {
        lock(&self.cell.decided).clone()
    }
    /// Calls this with the outcome when it is decided, after what was given before it. False if it is decided already: then it is
    /// not called.
    pub fn on_decided(&self, call: OnDecided) -> bool {
        let decided = lock(&self.cell.decided);
        if decided.is_none() {
            lock(&self.cell.on_decided).push(call);
        }
        decided.is_none()
    }
    /// Waits at most `timeout_ms` (`None` = for ever) for the outcome.
    ///
    /// # Errors
    /// Why the record was not acknowledged; `Timeout` when it is still open after `timeout_ms` (it may still succeed);
    /// `Interrupted`.
    pub fn result(&self, timeout_ms: Option<i64>, interrupt: Interrupt<'_>) -> Result<RecordMetadata, ClientError> {
        let signal = &self.cell.signal;
        let start = signal.clock.monotonic_ms();
        loop {
            if let Some(outcome) = self.try_result() {
                return outcome;
            }
            let waited = signal.clock.monotonic_ms().saturating_sub(start);
            let left = timeout_ms.map_or(i64::MAX, |t| t.saturating_sub(waited));
            if left <= 0 {
                return Err(ClientError::Timeout(format!(
                    "the record is still undecided after {waited} ms; it may be acknowledged later, ask its future again"
                )));
            }
            {
                let guard = lock(&signal.lock);
                if self.try_result().is_none() {
                    drop(signal.decided.wait_timeout(guard, millis(left.min(WAIT_SLICE_MS))));
                }
            }
            if self.try_result().is_none() && interrupt() {
                return Err(ClientError::Interrupted);
            }
        }
    }
}
