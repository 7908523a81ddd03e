//! The outcome of a batch and of its records. Kafka: `ProduceRequestResult`, `FutureRecordMetadata`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fletchlog_api::Clock;
use fletchlog_records::TopicPartition;

use super::RecordMetadata;
use crate::ClientError;
use crate::consumer::Interrupt;

/// How long a waiting call sleeps before it asks its interrupt callback: Ctrl-C must be seen within 100 ms.
pub(crate) const WAIT_SLICE_MS: i64 = 50;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps until `condition` is notified, at most `ms`.
pub(crate) fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>, ms: i64) -> MutexGuard<'a, T> {
    let waited = condition.wait_timeout(guard, Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
    waited.unwrap_or_else(PoisonError::into_inner).0
}

/// Wakes all threads that wait for a record of one producer.
pub(crate) struct Signal {
    clock: Arc<dyn Clock>,
    /// Number of waiting threads.
    waiting: Mutex<usize>,
    decided: Condvar,
}

impl Signal {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            waiting: Mutex::new(0),
            decided: Condvar::new(),
        })
    }
    pub(crate) fn notify(&self) {
        // Notifying costs a system call even if no thread waits.
        if *lock(&self.waiting) > 0 {
            self.decided.notify_all();
        }
    }
    /// Sleeps until [`Self::notify`], at most `ms`; not at all if `is_over`.
    fn wait(&self, ms: i64, is_over: impl FnOnce() -> bool) {
        let mut waiting = lock(&self.waiting);
        if is_over() {
            return;
        }
        *waiting += 1;
        *wait(&self.decided, waiting, ms) -= 1;
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

/// One record of a batch: its index there, and the timestamp that it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub index: i32,
    pub timestamp: i64,
}

/// What became of a batch.
enum State {
    /// Undecided. The callbacks for the outcome, in the order in which they were given.
    Open(Vec<(Place, OnDecided)>),
    Written {
        tp: TopicPartition,
        /// -1 if unknown.
        base_offset: i64,
        /// -1: records keep the timestamp that they were given.
        log_append_time: i64,
    },
    Failed(ClientError),
    /// Its records are in other batches, listed by the index of each one's first record, ascending. Either a batch was cut into smaller
    /// ones, or a waiting record was put into a batch; then the index is 0 or negative. Kafka: `FutureRecordMetadata#chain`.
    Split(Vec<(i32, Arc<BatchResult>)>),
}

impl State {
    /// The outcome of a record; `None` while it is open.
    fn outcome(&self, at: Place) -> Option<Result<RecordMetadata, ClientError>> {
        match self {
            Self::Written {
                tp,
                base_offset,
                log_append_time,
            } => Some(Ok(RecordMetadata {
                topic: tp.topic.clone(),
                partition: tp.partition,
                offset: match base_offset {
                    ..0 => -1,
                    first => first.saturating_add(i64::from(at.index)),
                },
                timestamp: match log_append_time {
                    ..0 => at.timestamp,
                    time => *time,
                },
            })),
            Self::Failed(error) => Some(Err(error.clone())),
            Self::Open(_) | Self::Split(_) => None,
        }
    }
}

/// Where the sender puts the outcome of a batch, and where the futures of its records find it.
pub(crate) struct BatchResult {
    signal: Arc<Signal>,
    state: Mutex<State>,
}

impl BatchResult {
    pub(crate) fn new(signal: &Arc<Signal>) -> Arc<Self> {
        Arc::new(Self {
            signal: signal.clone(),
            state: Mutex::new(State::Open(Vec::new())),
        })
    }
    /// The batch is in the log. The caller calls [`Signal::notify`] afterwards, as after [`Self::failed`].
    pub(crate) fn written(&self, tp: &TopicPartition, base_offset: i64, log_append_time: i64) {
        self.decide(State::Written {
            tp: tp.clone(),
            base_offset,
            log_append_time,
        });
    }
    /// The batch will not be in the log, or it is unknown whether it will. Returns the number of callbacks.
    pub(crate) fn failed(&self, error: &ClientError) -> usize {
        self.decide(State::Failed(error.clone()))
    }
    /// Sets the outcome and calls the callbacks. Returns their number. Later decisions are ignored.
    fn decide(&self, outcome: State) -> usize {
        let mut state = lock(&self.state);
        let State::Open(waiting) = &mut *state else { return 0 };
        let mut waiting = std::mem::take(waiting);
        // A stable sort: callbacks of the same record keep their order.
        waiting.sort_by_key(|(at, _)| at.index);
        // Before the callbacks: a record is decided even if one of them panics.
        *state = outcome;
        let callbacks = waiting.len();
        for (at, call) in waiting {
            let Some(outcome) = state.outcome(at) else { continue };
            let called = catch_unwind(AssertUnwindSafe(|| call(&outcome)));
            if called.is_err() {
                log::error!(
                    "a callback for the outcome of a record panicked; the outcome and the other callbacks are not affected"
                );
            }
        }
        callbacks
    }
    /// The records continue in other batches, given by the index of each one's first record, ascending, from 0. Returns the results of
    /// those. One batch with all records has this result: a batch may be "split" into itself any number of times, and results that refer to
    /// each other would then be a list of any length.
    pub(crate) fn split(self: &Arc<Self>, firsts: &[i32]) -> Vec<Arc<Self>> {
        if firsts.len() == 1 {
            return vec![Arc::clone(self)];
        }
        let pieces: Vec<_> = firsts.iter().map(|&first| (first, Self::new(&self.signal))).collect();
        let results = pieces.iter().map(|(_, piece)| piece.clone()).collect();
        self.continue_in(pieces);
        results
    }
    /// The only record of this result is in a batch now, and shares its outcome.
    pub(crate) fn continue_as(&self, record: &RecordFuture) {
        self.continue_in(vec![(-record.at.index, record.result.clone())]);
    }
    /// Kafka: `FutureRecordMetadata#chain`.
    fn continue_in(&self, pieces: Vec<(i32, Arc<Self>)>) {
        let mut state = lock(&self.state);
        if let State::Open(waiting) = &mut *state {
            for (at, call) in std::mem::take(waiting) {
                if let Some((first, piece)) = piece_of(&pieces, at.index) {
                    let index = at.index - first;
                    piece.call_when_decided(Place { index, ..at }, call);
                }
            }
            *state = State::Split(pieces);
        }
    }
    /// Makes `call` a callback for the outcome of a record, unless the batch is already decided or split.
    pub(crate) fn call_when_decided(&self, at: Place, call: OnDecided) {
        if let State::Open(waiting) = &mut *lock(&self.state) {
            waiting.push((at, call));
        }
    }
}

/// The piece of a split batch that contains the record.
fn piece_of(pieces: &[(i32, Arc<BatchResult>)], index: i32) -> Option<&(i32, Arc<BatchResult>)> {
    pieces[..pieces.partition_point(|(first, _)| *first <= index)].last()
}

impl std::fmt::Debug for BatchResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &*lock(&self.state) {
            State::Open(_) => "BatchResult: open",
            State::Written { .. } => "BatchResult: written",
            State::Failed(_) => "BatchResult: failed",
            State::Split(_) => "BatchResult: split",
        })
    }
}

/// The outcome of one send. Cheap to make and to clone: the records of a batch share it. Thread-safe.
#[derive(Debug, Clone)]
pub struct RecordFuture {
    result: Arc<BatchResult>,
    at: Place,
}

impl RecordFuture {
    /// `on_decided` is called with the outcome.
    #[inline]
    pub(crate) fn new(result: Arc<BatchResult>, at: Place, on_decided: Option<OnDecided>) -> Self {
        if let Some(call) = on_decided {
            result.call_when_decided(at, call);
        }
        Self { result, at }
    }
    /// The batch that the record is in now, and its place there.
    fn current(&self) -> (Arc<BatchResult>, Place) {
        let (mut result, mut at) = (self.result.clone(), self.at);
        loop {
            let piece = match &*lock(&result.state) {
                State::Split(pieces) => piece_of(pieces, at.index).cloned(),
                _ => None,
            };
            let Some((first, piece)) = piece else {
                return (result, at);
            };
            (result, at.index) = (piece, at.index - first);
        }
    }
    /// The outcome if decided.
    pub fn try_result(&self) -> Option<Result<RecordMetadata, ClientError>> {
        let (result, at) = self.current();
        let state = lock(&result.state);
        state.outcome(at)
    }
    /// Calls `call` with the outcome when it is decided, after the callbacks given before. Returns false, and never calls it, if the
    /// outcome is already decided.
    pub fn on_decided(&self, call: OnDecided) -> bool {
        loop {
            let (result, at) = self.current();
            match &mut *lock(&result.state) {
                State::Open(waiting) => {
                    waiting.push((at, call));
                    return true;
                }
                // Split after `current` returned.
                State::Split(_) => {}
                State::Written { .. } | State::Failed(_) => return false,
            }
        }
    }
    /// Waits at most `timeout_ms` (`None` = for ever) for the outcome.
    ///
    /// # Errors
    /// Why the record was not acknowledged; `Timeout` when it is still open after `timeout_ms` (it may still succeed);
    /// `Interrupted`.
    pub fn result(&self, timeout_ms: Option<i64>, interrupt: Interrupt<'_>) -> Result<RecordMetadata, ClientError> {
        let signal = &self.result.signal;
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
            signal.wait(left.min(WAIT_SLICE_MS), || self.try_result().is_some());
            if self.try_result().is_none() && interrupt() {
                return Err(ClientError::Interrupted);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use fletchlog_api::transport::SystemClock;

    use super::*;

    #[test]
    fn a_callback_that_panics_leaves_the_outcome_and_the_other_callbacks_alone() {
        let signal = Signal::new(Arc::new(SystemClock::default()));
        let result = BatchResult::new(&signal);
        let at = |index| Place { index, timestamp: 5 };
        let seen = Arc::new(AtomicI64::new(-1));
        let note = seen.clone();
        result.call_when_decided(at(0), Box::new(|_| panic!("out of thin air")));
        result.call_when_decided(
            at(1),
            Box::new(move |outcome| note.store(outcome.as_ref().map_or(-2, |at| at.offset), Ordering::SeqCst)),
        );
        result.written(&TopicPartition::new("t", 0), 10, -1);
        assert_eq!(seen.load(Ordering::SeqCst), 11);
        let future = RecordFuture::new(result.clone(), at(0), None);
        assert_eq!(future.try_result().unwrap().unwrap().offset, 10);
        assert!(!future.on_decided(Box::new(|_| ())), "it is decided");
    }

    /// A release before 4.2 splits a batch that a topic refuses into batches of batch.size, until delivery.timeout.ms.
    #[test]
    fn a_batch_that_is_split_into_itself_keeps_its_result() {
        let signal = Signal::new(Arc::new(SystemClock::default()));
        let result = BatchResult::new(&signal);
        let calls = Arc::new(AtomicI64::new(0));
        let counted = calls.clone();
        let called = Box::new(move |_: &Result<RecordMetadata, ClientError>| {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let future = RecordFuture::new(result.clone(), Place { index: 1, timestamp: 5 }, Some(called));
        let mut last = result;
        for _ in 0..1_000_000 {
            last = last.split(&[0]).remove(0);
        }
        assert!(Arc::ptr_eq(&last, &future.result));
        let pieces = last.split(&[0, 1]);
        pieces[1].written(&TopicPartition::new("t", 0), 10, -1);
        assert_eq!(future.try_result().unwrap().unwrap().offset, 10);
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    }
}
