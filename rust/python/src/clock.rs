//! `fletchlog.types.Clock`.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use fletchlog_api::Clock as ApiClock;
use fletchlog_api::{ConfigError, SettableClock};
use fletchlog_broker::{Broker as Engine, BrokerError};
use fletchlog_server::SocketServer;
use pyo3::prelude::*;

use crate::convert::unpicklable;
use crate::errors::Failure;
use crate::fork::Shared;
use crate::time::ahead;

/// The listeners of a broker.
pub type Listeners = Arc<Mutex<Vec<Weak<SocketServer>>>>;

#[doc = stub!(Clock)]
#[pyclass(frozen, module = "fletchlog.types")]
pub struct Clock {
    inner: Shared<Handle>,
}

/// A clock without its broker: a program that keeps it does not keep the broker open.
struct Handle {
    clock: Arc<dyn ApiClock>,
    broker: Weak<Engine>,
    listeners: Listeners,
}

impl Handle {
    fn broker(&self) -> Result<Arc<Engine>, Failure> {
        let broker = self.broker.upgrade().filter(|broker| !broker.is_closed());
        broker.ok_or_else(|| Failure::closed("broker"))
    }

    fn settable(&self) -> Result<&SettableClock, Failure> {
        let cannot = || {
            BrokerError::from(ConfigError::Conflict(
                "the clock of this broker cannot be set".to_owned(),
            ))
        };
        self.clock.settable().ok_or_else(|| cannot().into())
    }

    /// Waits until the listeners have done what is due.
    fn settle(&self) {
        let listeners: Vec<_> = {
            let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
            listeners.iter().filter_map(Weak::upgrade).collect()
        };
        for listener in listeners {
            listener.settle();
        }
    }
}

impl Clock {
    /// The clock of this broker, which has these listeners.
    pub fn new(broker: &Arc<Engine>, listeners: &Listeners) -> Self {
        let handle = Handle {
            clock: broker.clock(),
            broker: Arc::downgrade(broker),
            listeners: Arc::clone(listeners),
        };
        Self {
            inner: Shared::new("clock", handle),
        }
    }
}

#[pymethods]
impl Clock {
    #[doc = stub!(Clock.advance)]
    #[pyo3(signature = (seconds=None, *, milliseconds=None, minutes=None, hours=None, days=None))]
    fn advance(
        &self,
        py: Python<'_>,
        seconds: Option<Bound<'_, PyAny>>,
        milliseconds: Option<Bound<'_, PyAny>>,
        minutes: Option<Bound<'_, PyAny>>,
        hours: Option<Bound<'_, PyAny>>,
        days: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let by_ms = ahead([
            ("seconds", 1000.0, seconds),
            ("milliseconds", 1.0, milliseconds),
            ("minutes", 60_000.0, minutes),
            ("hours", 3_600_000.0, hours),
            ("days", 86_400_000.0, days),
        ])?;
        self.inner.call(py, |clock, stop| {
            clock.broker()?.advance(by_ms, stop)?;
            clock.settle();
            Ok::<_, Failure>(())
        })
    }

    #[doc = stub!(Clock.freeze)]
    fn freeze(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.call(py, |clock, _| {
            clock.broker()?;
            clock.settable()?.freeze();
            Ok::<_, Failure>(())
        })
    }

    #[doc = stub!(Clock.resume)]
    fn resume(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.call(py, |clock, _| {
            clock.broker()?;
            clock.settable()?.resume();
            Ok::<_, Failure>(())
        })
    }

    #[doc = stub!(Clock.is_frozen)]
    #[getter]
    fn is_frozen(&self, py: Python<'_>) -> PyResult<bool> {
        self.inner
            .call(py, |clock, _| Ok::<_, Failure>(clock.settable()?.is_frozen()))
    }

    #[doc = stub!(Clock.now_ms)]
    #[getter]
    fn now_ms(&self, py: Python<'_>) -> PyResult<i64> {
        self.inner.call(py, |clock, _| Ok::<_, Failure>(clock.clock.now_ms()))
    }

    fn __repr__(&self) -> String {
        let Ok(handle) = self.inner.get() else {
            return "<fletchlog.types.Clock: of another process>".to_owned();
        };
        let state = match handle.clock.settable().is_some_and(SettableClock::is_frozen) {
            true => "frozen",
            false => "running",
        };
        format!("<fletchlog.types.Clock: {state}>")
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("Clock", "the broker that it belongs to"))
    }
}
