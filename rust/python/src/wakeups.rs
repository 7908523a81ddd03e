//! How threads of the engine wake an event loop: through a file descriptor, without the GIL.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fletchlog_api::transport::Waker;
use fletchlog_broker::Broker;
use pyo3::prelude::*;

use crate::errors::Failure;
use crate::gate::gate;

/// Something that may be woken.
struct Sleeper {
    token: u64,
    /// It is in [`Shared::woken`].
    is_woken: AtomicBool,
}

struct Shared {
    /// Who was woken since the last look, in order.
    woken: Mutex<Vec<Arc<Sleeper>>>,
    /// Has a byte to read while `woken` is not empty.
    reader: UnixStream,
    writer: UnixStream,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Sleeper>>> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, sleeper: &Arc<Sleeper>) {
        if sleeper.is_woken.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut woken = self.lock();
        woken.push(Arc::clone(sleeper));
        if woken.len() == 1 {
            // Fails only if nobody reads any more.
            let _ = (&self.writer).write(&[1]);
        }
    }
}

#[doc = stub!(_Wakeups)]
#[pyclass(frozen, module = "fletchlog._core", name = "_Wakeups")]
pub struct Wakeups {
    shared: Arc<Shared>,
}

impl Wakeups {
    /// A function that wakes the owner of this token. It never blocks, and may be called under any lock.
    pub fn waker(&self, token: u64) -> Waker {
        let shared = Arc::downgrade(&self.shared);
        let sleeper = Arc::new(Sleeper {
            token,
            is_woken: AtomicBool::new(false),
        });
        Arc::new(move || {
            if let Some(shared) = shared.upgrade() {
                shared.wake(&sleeper);
            }
        })
    }
}

#[pymethods]
impl Wakeups {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        let made = UnixStream::pair().and_then(|(reader, writer)| {
            reader.set_nonblocking(true)?;
            writer.set_nonblocking(true)?;
            Ok((reader, writer))
        });
        let (reader, writer) =
            made.map_err(|error| Failure::state(format!("no event loop can be woken: {error}")).into_py(py))?;
        let woken = Mutex::default();
        Ok(Self {
            shared: Arc::new(Shared { woken, reader, writer }),
        })
    }

    #[doc = stub!(_Wakeups.fileno)]
    fn fileno(&self) -> i32 {
        self.shared.reader.as_raw_fd()
    }

    #[doc = stub!(_Wakeups.take)]
    fn take(&self) -> Vec<u64> {
        // Holders of this lock need no GIL and never wait.
        let mut woken = self.shared.lock();
        let mut bytes = [0; 16];
        while matches!((&self.shared.reader).read(&mut bytes), Err(e) if e.kind() == ErrorKind::Interrupted) {}
        let woken = std::mem::take(&mut *woken);
        // Before their owners look: what comes later wakes them again.
        let take = |sleeper: Arc<Sleeper>| {
            sleeper.is_woken.store(false, Ordering::SeqCst);
            sleeper.token
        };
        woken.into_iter().map(take).collect()
    }
}

#[doc = stub!(_TimedWork)]
#[pyclass(frozen, module = "fletchlog._core", name = "_TimedWork")]
pub struct TimedWork {
    broker: Arc<Broker>,
    /// What the broker calls; it does so as long as this exists.
    waker: Mutex<Option<Waker>>,
}

impl TimedWork {
    /// That of this broker.
    pub fn new(broker: Arc<Broker>) -> Self {
        let waker = Mutex::default();
        Self { broker, waker }
    }
}

#[pymethods]
impl TimedWork {
    #[doc = stub!(_TimedWork.broker)]
    #[getter]
    fn broker(&self) -> usize {
        Arc::as_ptr(&self.broker).addr()
    }

    #[doc = stub!(_TimedWork.watch)]
    fn watch(&self, py: Python<'_>, wakeups: &Bound<'_, Wakeups>, token: u64) {
        let waker = wakeups.get().waker(token);
        py.detach(|| {
            self.broker.watch(&waker);
            *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker);
        });
    }

    #[doc = stub!(_TimedWork.is_closed)]
    #[getter]
    fn is_closed(&self) -> bool {
        self.broker.is_closed()
    }

    #[doc = stub!(_TimedWork.due_in_ms)]
    fn due_in_ms(&self, py: Python<'_>) -> Option<i64> {
        py.detach(|| self.broker.due_in_ms())
    }

    #[doc = stub!(_TimedWork.run)]
    fn run(&self, py: Python<'_>) -> PyResult<()> {
        gate(py, |_| {
            self.broker.run_due();
            Ok(())
        })
    }
}
