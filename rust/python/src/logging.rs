//! The engine's log records as Python's: `fletchlog_client::group` becomes the logger `fletchlog.client.group`.
//!
//! The engine logs with its locks held, and a Python handler may do anything: call the same broker, wait for another thread. So a record is
//! only queued where it is logged, and delivered to Python where no lock is held:
//!
//! | logged                       | delivered                                                                |
//! |------------------------------|--------------------------------------------------------------------------|
//! | inside a call from Python    | by the same thread, at the end of the call and at every check for Ctrl-C |
//! | on the engine's own threads  | by a thread started for it, or by the next call from Python that ends    |

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use log::{Level, Log, Metadata, Record};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::capsule::Gil;
use crate::engine_threads::call_python;
use crate::once::once;

static PYTHON: PyOnceLock<pyo3_log::Logger> = PyOnceLock::new();
/// The callable that gets the lines instead of Python's `logging`.
static RECEIVER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// A queued log record.
struct Line {
    level: Level,
    target: String,
    file: Option<&'static str>,
    line: Option<u32>,
    message: String,
}

impl Line {
    fn of(record: &Record<'_>) -> Self {
        Self {
            level: record.level(),
            target: record.target().replacen("fletchlog_", "fletchlog::", 1),
            file: record.file_static(),
            line: record.line(),
            message: record.args().to_string(),
        }
    }

    fn emit(self) {
        let _gil = Gil::hold();
        // A process that is ending no longer logs.
        Python::try_attach(|py| {
            // Handles may be dropped while an exception is set: handlers must not see it, and it must stay set.
            let pending = PyErr::take(py);
            // An exception of a handler must not appear in the next Python call.
            if let Some(raised) = self.hand_over(py).err().or_else(|| PyErr::take(py)) {
                raised.write_unraisable(py, None);
            }
            if let Some(pending) = pending {
                pending.restore(py);
            }
        });
    }

    fn hand_over(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(receiver) = RECEIVER.get(py) {
            return receiver.call1(py, (&self.message,)).map(drop);
        }
        // Only with the first line: importing `logging` takes longer than starting the engine.
        let python = once(py, &PYTHON, || {
            let logger = pyo3_log::Logger::new(py, pyo3_log::Caching::Loggers)?;
            Ok(logger.filter(log::LevelFilter::Info))
        })?;
        python.log(
            &Record::builder()
                .args(format_args!("{}", self.message))
                .level(self.level)
                .target(&self.target)
                .file_static(self.file)
                .line(self.line)
                .build(),
        );
        Ok(())
    }
}

#[doc = stub!(log_to)]
#[pyfunction]
pub fn log_to(py: Python<'_>, receiver: Py<PyAny>) -> PyResult<()> {
    let taken = RECEIVER.set(py, receiver);
    taken.map_err(|_| PyRuntimeError::new_err("log_to was called before"))
}

thread_local! {
    /// Number of nested calls from Python in this thread.
    static CALLS: Cell<usize> = const { Cell::new(0) };
    /// Lines that these calls have logged.
    static LINES: RefCell<VecDeque<Line>> = const { RefCell::new(VecDeque::new()) };
    /// This thread is delivering lines; lines logged by the handlers' own calls are delivered after them.
    static EMITTING: Cell<bool> = const { Cell::new(false) };
}

/// Lines that the engine's own threads have logged.
struct Behind {
    lines: VecDeque<Line>,
    /// The process whose thread delivers the lines. A forked child has no such thread.
    emitter: Option<u32>,
}

static BEHIND: Mutex<Behind> = Mutex::new(Behind {
    lines: VecDeque::new(),
    emitter: None,
});
/// Whether [`BEHIND`] may hold lines; checked without its lock.
static ANY_BEHIND: AtomicBool = AtomicBool::new(false);

fn behind() -> MutexGuard<'static, Behind> {
    BEHIND.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Behind {
    fn push(&mut self, line: Line) {
        let pid = std::process::id();
        if self.emitter.is_some_and(|emitter| emitter != pid) {
            self.lines.clear();
            self.emitter = None;
        }
        self.lines.push_back(line);
        ANY_BEHIND.store(true, Ordering::Release);
        if self.emitter.is_none() {
            let thread = std::thread::Builder::new().name("fletchlog-log".to_owned());
            // Without the thread, the next call from Python delivers the lines.
            self.emitter = thread.spawn(emit_behind).ok().map(|_| pid);
        }
    }

    fn pop(&mut self) -> Option<Line> {
        let line = self.lines.pop_front();
        ANY_BEHIND.store(!self.lines.is_empty(), Ordering::Release);
        line
    }
}

/// The thread that delivers the lines of the engine's threads. It ends when no line is left.
fn emit_behind() {
    // The thread attaches before it takes a line: while it waits for the GIL, a call that ends can still deliver the line.
    while call_python(|_| emit()).is_some() {
        let mut behind = behind();
        if behind.lines.is_empty() {
            behind.emitter = None;
            return;
        }
    }
}

/// Runs a call from Python, then delivers the lines logged. Needs no GIL; no lock may be held.
pub fn emit_after<R>(call: impl FnOnce() -> R) -> R {
    CALLS.set(CALLS.get() + 1);
    let result = call();
    CALLS.set(CALLS.get() - 1);
    emit();
    result
}

/// Delivers the lines logged so far. Needs no GIL; no lock may be held.
pub fn emit() {
    if EMITTING.get() {
        return;
    }
    EMITTING.set(true);
    loop {
        let own = LINES.with_borrow_mut(VecDeque::pop_front);
        let next = own.or_else(|| ANY_BEHIND.load(Ordering::Acquire).then(|| behind().pop()).flatten());
        let Some(line) = next else { break };
        line.emit();
    }
    EMITTING.set(false);
}

/// The logger of the engine, which queues the records.
struct Notes;

impl Log for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        let line = Line::of(record);
        if CALLS.get() > 0 {
            LINES.with_borrow_mut(|lines| lines.push_back(line));
        } else {
            behind().push(line);
        }
    }

    fn flush(&self) {}
}

/// Installs the bridge once per process. The level is checked for each record, so `logging.setLevel` works at any time; the engine logs
/// only coarse events.
pub fn install() {
    // a second import keeps the first one's logger
    if log::set_logger(&Notes).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
}
