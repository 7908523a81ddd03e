//! The callbacks of `Producer.send`: a Python thread calls them in the order in which the records were acknowledged or failed.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use fletchlog_api::waiting;
use fletchlog_client::ClientError;
use fletchlog_client::producer::{OnDecided, RecordMetadata};
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::record_metadata_to_py;
use crate::errors::Failure;
use crate::fork::Stop;
use crate::producer::RecordFuture;

/// How long a wait for callbacks sleeps before it looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

type Outcome = Result<RecordMetadata, ClientError>;

/// The arguments of a callback.
enum Given {
    /// `callback(metadata, exception)` of `send`.
    Outcome(Outcome),
    /// `callback(future)` of `add_done_callback`.
    Future(Py<RecordFuture>),
}

#[derive(Default)]
struct State {
    decided: VecDeque<(Given, Py<PyAny>)>,
    /// The thread that calls the callbacks, while it runs.
    caller: Option<ThreadId>,
    calling: bool,
    closed: bool,
    /// The thread runs, or is being started.
    started: bool,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, given: Given, callback: Py<PyAny>) {
        let mut state = self.lock();
        // After closing, no thread would call it.
        if !state.closed {
            state.decided.push_back((given, callback));
            self.changed.notify_all();
        }
    }

    /// Ends the previous call and waits for the next; `None` once closed and empty.
    fn next(&self) -> Option<(Given, Py<PyAny>)> {
        let mut state = self.lock();
        state.caller = Some(std::thread::current().id());
        state.calling = false;
        self.changed.notify_all();
        loop {
            if let Some(next) = state.decided.pop_front() {
                state.calling = true;
                return Some(next);
            }
            if state.closed {
                state.caller = None;
                self.changed.notify_all();
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether the caller must start the thread: true for the first caller.
    fn claim_start(&self) -> bool {
        !std::mem::replace(&mut self.lock().started, true)
    }

    /// The thread could not be started: the next callback tries again, and nothing waits for this thread.
    fn start_failed(&self) {
        self.lock().started = false;
        self.changed.notify_all();
    }

    /// Waits until all queued callbacks have returned, and with `ended` until the thread has ended. Called from a callback, it returns at
    /// once: it would wait for itself.
    fn settle(&self, ended: bool, stop: Stop<'_>) -> Result<(), Failure> {
        let mut state = self.lock();
        while state.started
            && state.caller != Some(std::thread::current().id())
            && (!state.decided.is_empty() || state.calling || (ended && state.caller.is_some()))
        {
            let mut waits = Some(state);
            let woken = waiting::wait(LOOK_AGAIN, |time| {
                let state = waits.take().filter(|_| !time.is_zero());
                let waited = state.map(|state| self.changed.wait_timeout(state, time));
                waited.is_some_and(|waited| !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out())
            });
            drop(waits);
            if !woken && stop() {
                return Err(ClientError::Interrupted.into());
            }
            state = self.lock();
        }
        Ok(())
    }
}

/// The callbacks of one producer.
pub struct Callbacks {
    /// The process that the thread runs in.
    pid: u32,
    queue: Arc<Queue>,
    thread: Mutex<Option<Py<CallbackThread>>>,
}

impl Default for Callbacks {
    /// No callbacks, and no thread yet.
    fn default() -> Self {
        Self {
            pid: std::process::id(),
            queue: Arc::default(),
            thread: Mutex::default(),
        }
    }
}

impl Callbacks {
    /// The function that the engine calls for a record with this callback. The first call starts the thread.
    pub fn on_decided(&self, py: Python<'_>, callback: &Bound<'_, PyAny>) -> PyResult<OnDecided> {
        ensure_callable(callback, "callback(metadata, exception)")?;
        self.start(py)?;
        let queue = Arc::clone(&self.queue);
        let callback = callback.clone().unbind();
        Ok(Box::new(move |outcome| {
            queue.push(Given::Outcome(outcome.clone()), callback)
        }))
    }

    /// The function that the engine calls when this future is done. The first call starts the thread.
    pub fn on_done(&self, future: &Bound<'_, RecordFuture>, callback: &Bound<'_, PyAny>) -> PyResult<OnDecided> {
        self.start(future.py())?;
        let queue = Arc::clone(&self.queue);
        let (future, callback) = (future.clone().unbind(), callback.clone().unbind());
        Ok(Box::new(move |_| queue.push(Given::Future(future), callback)))
    }

    /// Starts the thread unless another call has done so or is doing so. Callbacks wait in the queue meanwhile.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        if !self.queue.claim_start() {
            return Ok(());
        }
        let started = self.start_thread(py);
        let started = started.inspect_err(|_| self.queue.start_failed())?;
        *self.lock_thread() = Some(started);
        Ok(())
    }

    /// Holds no lock: Python's `Thread.start()` waits for the new thread, and releases the GIL meanwhile.
    fn start_thread(&self, py: Python<'_>) -> PyResult<Py<CallbackThread>> {
        let thread = Py::new(
            py,
            CallbackThread {
                queue: Arc::clone(&self.queue),
            },
        )?;
        let options = PyDict::new(py);
        options.set_item("target", thread.getattr(py, "run")?)?;
        options.set_item("name", "fletchlog-callbacks")?;
        options.set_item("daemon", true)?;
        let started = py.import("threading")?.getattr("Thread")?.call((), Some(&options))?;
        started.call_method0("start")?;
        // A daemon, so that a producer that is never closed does not keep the process alive; it ends before the
        // interpreter does.
        py.import("atexit")?
            .call_method1("register", (thread.getattr(py, "stop")?,))?;
        Ok(thread)
    }

    fn lock_thread(&self) -> MutexGuard<'_, Option<Py<CallbackThread>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all queued callbacks have returned. Called from a callback, it returns at once.
    pub fn settle(&self, stop: Stop<'_>) -> Result<(), Failure> {
        self.queue.settle(false, stop)
    }

    /// Waits until the last callbacks have returned and the thread has ended.
    pub fn close(&self, stop: Stop<'_>) -> Result<(), Failure> {
        self.queue.lock().closed = true;
        self.queue.changed.notify_all();
        self.queue.settle(true, stop)
    }

    /// Unregisters the thread, which the interpreter no longer needs to end.
    pub fn forget(&self, py: Python<'_>) -> PyResult<()> {
        let thread = self.lock_thread().take();
        if let Some(thread) = thread {
            py.import("atexit")?
                .call_method1("unregister", (thread.getattr(py, "stop")?,))?;
        }
        Ok(())
    }
}

impl Drop for Callbacks {
    fn drop(&mut self) {
        // In a forked child the lock may be held forever.
        if self.pid == std::process::id() {
            self.queue.lock().closed = true;
            self.queue.changed.notify_all();
        }
    }
}

/// The functions that the thread runs, and that ends it.
#[pyclass(frozen, module = "fletchlog._core")]
struct CallbackThread {
    queue: Arc<Queue>,
}

#[pymethods]
impl CallbackThread {
    fn run(&self, py: Python<'_>) {
        while let Some((given, callback)) = py.detach(|| self.queue.next()) {
            if let Err(raised) = call(py, given, &callback) {
                raised.write_unraisable(py, Some(callback.bind(py)));
            }
        }
    }

    fn stop(&self, py: Python<'_>) {
        py.detach(|| {
            let mut state = self.queue.lock();
            state.closed = true;
            let uncalled = std::mem::take(&mut state.decided);
            drop(state);
            drop(uncalled);
            self.queue.changed.notify_all();
            // A running callback may take long, and no thread can interrupt it.
            let _ = self.queue.settle(true, &mut || false);
        });
    }
}

/// Refuses an object that cannot be called with these arguments.
pub fn ensure_callable(callback: &Bound<'_, PyAny>, so: &str) -> PyResult<()> {
    if callback.is_callable() {
        return Ok(());
    }
    let given = callback.get_type().name()?;
    let failure = Failure::argument(format!("callback must be callable as {so}, not {given}"));
    Err(failure.into_py(callback.py()))
}

fn call(py: Python<'_>, given: Given, callback: &Py<PyAny>) -> PyResult<()> {
    let outcome = match given {
        Given::Future(future) => return callback.call1(py, (future,)).map(drop),
        Given::Outcome(outcome) => outcome,
    };
    let (metadata, error) = match outcome {
        Ok(metadata) => (Some(record_metadata_to_py(py, &metadata)?), None),
        Err(error) => (None, Some(Failure::from(error).into_py(py))),
    };
    let error = error.map(|error| error.into_value(py).into_bound(py).cast_into::<PyBaseException>());
    callback.call1(py, (metadata, error.transpose()?)).map(drop)
}
