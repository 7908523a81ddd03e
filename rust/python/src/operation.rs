//! Calls of the engine that are awaited: where others sleep, they are suspended, and their thread does other work.
//!
//! The engine waits in loops that look, wait and ask an interrupt callback (`fletchlog_api::waiting`). An awaited call runs such a loop on a
//! stack of its own; the callback suspends it there, with everything that it knows, and [`Operation::step`] resumes it later. So the blocking
//! and the awaited form of a method are the same code, in the engine and here:
//!
//! ```text
//! step()  -> method(args) -> awaited(call): runs `call` on a stack ---- done --------------------------> method converts the result
//!                                                   |
//!                                                   +---- waits: method ends with an exception that step() drops; step() returns ms
//! step()  -> resumes `call` ---- waits again: returns ms
//!                |
//!                +---- done -> method(args) again -> awaited(call): returns the result of the first call -> method converts it
//! ```
//! Python never runs on these stacks: its own checks of the stack would fail there.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use fletchlog_api::waiting;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::errors::Failure;
use crate::fork::Stop;
use crate::gate::gate;
use crate::logging;

/// What a stack may hold, in bytes of address space: only pages that were used take memory.
const STACK_SIZE: usize = 1 << 20;
/// How many unused stacks are kept.
const SPARE_STACKS: usize = 256;

static SPARE: Mutex<Vec<DefaultStack>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The outcome of a call, `Result<T, Failure>` of its own `T`.
type Outcome = Box<dyn Any + Send>;

/// A call on its stack.
struct Suspended {
    /// Resumed with whether the call is to stop, as after Ctrl-C; yields how long it waits at most.
    stack: Coroutine<bool, Duration, Outcome>,
}

// SAFETY: a coroutine is not `Send` because its stack may hold values that are not. Here the stack holds a closure that is `Send`, and the
// frames of one call of the engine, suspended in its interrupt callback. The engine calls that callback with no lock held, so no guard of a
// lock is on the stack, and it has no other values of one thread: its types are `Send`, and it uses thread-local variables within an expression.
unsafe impl Send for Suspended {}

impl Suspended {
    fn new<T: Send + 'static>(
        call: impl FnOnce(Stop<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<Self, Failure> {
        let spare = lock(&SPARE).pop();
        let stack = spare.map_or_else(|| DefaultStack::new(STACK_SIZE), Ok);
        let stack =
            stack.map_err(|error| Failure::state(format!("there is no memory for another waiting call: {error}")))?;
        let stack = Coroutine::with_stack(
            stack,
            move |yielder: &corosensei::Yielder<bool, Duration>, stops: bool| {
                let mut stops = stops;
                let mut stop = || {
                    if !stops && let Some(limit) = waiting::take_wanted() {
                        stops = yielder.suspend(limit);
                    }
                    stops
                };
                let outcome = catch_unwind(AssertUnwindSafe(|| call(&mut stop)))
                    .unwrap_or_else(|panic| Err(Failure::panic(&*panic)));
                Box::new(outcome) as Outcome
            },
        );
        Ok(Self { stack })
    }

    /// Runs the call until it waits or ends.
    fn resume(&mut self, stops: bool) -> CoroutineResult<Duration, Outcome> {
        logging::emit_after(|| waiting::suspending(|| self.stack.resume(stops)))
    }

    /// Keeps the stack of a call that has ended.
    fn recycle(self) {
        let mut spare = lock(&SPARE);
        if spare.len() < SPARE_STACKS {
            spare.push(self.stack.into_stack());
        }
    }

    /// Makes the call end as it does after Ctrl-C.
    fn end(mut self) {
        while let CoroutineResult::Yield(_) = self.resume(true) {}
        self.recycle();
    }
}

enum State {
    New,
    Waits(Suspended, Duration),
    Done(Outcome),
    /// Its outcome was taken, or it was given up.
    Over,
}

/// The call of an [`Operation`].
struct Call {
    pid: u32,
    state: Mutex<State>,
}

impl Call {
    fn take(&self) -> State {
        std::mem::replace(&mut *lock(&self.state), State::Over)
    }

    fn set(&self, state: State) {
        *lock(&self.state) = state;
    }

    /// Runs the call until it waits or ends; false: it waits.
    fn drive(&self, py: Python<'_>, mut suspended: Suspended) -> bool {
        let (suspended, came) = py.detach(move || {
            let came = suspended.resume(false);
            (suspended, came)
        });
        match came {
            CoroutineResult::Yield(limit) => {
                self.set(State::Waits(suspended, limit));
                false
            }
            CoroutineResult::Return(outcome) => {
                suspended.recycle();
                self.set(State::Done(outcome));
                true
            }
        }
    }

    fn run<T: Send + 'static>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(Stop<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> PyResult<T> {
        if let State::New = &*lock(&self.state) {
        } else {
            return self.outcome(py);
        }
        let suspended = Suspended::new(call).map_err(|failure| failure.into_py(py))?;
        match self.drive(py, suspended) {
            true => self.outcome(py),
            false => Err(PyRuntimeError::new_err("this call waits")), // dropped by `step`
        }
    }

    fn outcome<T: 'static>(&self, py: Python<'_>) -> PyResult<T> {
        let State::Done(outcome) = self.take() else {
            return Err(Failure::state("this call has ended").into_py(py));
        };
        match outcome.downcast::<Result<T, Failure>>() {
            Ok(outcome) => outcome.map_err(|failure| failure.into_py(py)),
            Err(_) => Err(Failure::state("this is the outcome of another call").into_py(py)),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let State::Waits(suspended, _) = self.take() else {
            return;
        };
        if self.pid != std::process::id() {
            // The call is the parent's.
            std::mem::forget(suspended);
            return;
        }
        let mut suspended = Some(suspended);
        Python::try_attach(|py| {
            let suspended = suspended.take();
            py.detach(|| suspended.map(Suspended::end));
        });
        if let Some(suspended) = suspended {
            suspended.end();
        }
    }
}

thread_local! {
    /// The operation whose method this thread calls, until the method reaches the engine.
    static CURRENT: RefCell<Option<Arc<Call>>> = const { RefCell::new(None) };
}

/// Calls the engine: through the gate, or, inside [`Operation::step`], so that it is suspended where it would sleep. A method of Python may do so once.
///
/// # Errors
/// Those of the call.
pub fn awaited<T: Send + 'static>(
    py: Python<'_>,
    call: impl FnOnce(Stop<'_>) -> Result<T, Failure> + Send + 'static,
) -> PyResult<T> {
    match CURRENT.take() {
        Some(current) => current.run(py, call),
        None => gate(py, call),
    }
}

#[doc = stub!(_Operation)]
#[pyclass(frozen, module = "fletchlog._core", name = "_Operation")]
pub struct Operation {
    call: Arc<Call>,
    method: Py<PyAny>,
    arguments: Py<PyTuple>,
    keywords: Option<Py<PyDict>>,
    result: Mutex<Option<Py<PyAny>>>,
}

impl Operation {
    /// Calls the method, which begins the call of the engine or takes its outcome. Returns ms if that waits.
    fn call(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        CURRENT.set(Some(Arc::clone(&self.call)));
        let called = self.method.bind(py).call(
            self.arguments.bind(py),
            self.keywords.as_ref().map(|given| given.bind(py)),
        );
        CURRENT.take();
        if let State::Waits(_, limit) = &*lock(&self.call.state) {
            return Ok(Some(millis(*limit)));
        }
        self.call.take();
        *lock(&self.result) = Some(called?.unbind());
        Ok(None)
    }
}

#[pymethods]
impl Operation {
    #[new]
    #[pyo3(signature = (method, *arguments, **keywords))]
    fn new(method: Py<PyAny>, arguments: Py<PyTuple>, keywords: Option<Py<PyDict>>) -> Self {
        let call = Call {
            pid: std::process::id(),
            state: Mutex::new(State::New),
        };
        Self {
            call: Arc::new(call),
            method,
            arguments,
            keywords,
            result: Mutex::default(),
        }
    }

    #[doc = stub!(_Operation.step)]
    fn step(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        if self.call.pid != std::process::id() {
            return Err(Failure::forked("call", self.call.pid).into_py(py));
        }
        let state = self.call.take();
        match state {
            State::Waits(suspended, _) => {
                if !self.call.drive(py, suspended)
                    && let State::Waits(_, limit) = &*lock(&self.call.state)
                {
                    return Ok(Some(millis(*limit)));
                }
                self.call(py)
            }
            State::New => {
                self.call.set(State::New);
                self.call(py)
            }
            State::Done(_) | State::Over => Err(Failure::state("this call has ended").into_py(py)),
        }
    }

    #[doc = stub!(_Operation.result)]
    fn result(&self, py: Python<'_>) -> Py<PyAny> {
        lock(&self.result).take().unwrap_or_else(|| py.None())
    }

    #[doc = stub!(_Operation.cancel)]
    fn cancel(&self, py: Python<'_>) {
        if let State::Waits(suspended, _) = self.call.take() {
            py.detach(|| suspended.end());
        }
    }
}

fn millis(limit: Duration) -> u64 {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)
}
