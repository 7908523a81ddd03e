//! `fletchlog.types.Listener`.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arrow_array::{Int16Array, Int64Array, StringArray, UInt64Array};
use fletchlog_broker::Broker as Engine;
use fletchlog_server::{Endpoint, ListenOptions, SocketServer};
use fletchlog_session::{Recorder, RecorderOptions};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use crate::convert::unpicklable;
use crate::errors::Failure;
use crate::fault_rules::plan_of;
use crate::fork::Shared;
use crate::table::Table;
use crate::trace::{columns, table};

#[doc = stub!(Listener)]
#[pyclass(frozen, module = "fletchlog.types")]
pub struct Listener {
    server: Shared<Arc<SocketServer>>,
    bootstrap: String,
}

impl Listener {
    /// Listens for clients of `broker`. `advertised` is `host` or `host:port`; `config` has the listener's properties,
    /// `record` says where its session is recorded.
    pub fn open(
        broker: &Arc<Engine>,
        host: &str,
        port: u16,
        advertised: Option<&str>,
        config: Vec<(String, String)>,
        record: Option<RecorderOptions>,
    ) -> Result<Arc<SocketServer>, Failure> {
        let options = ListenOptions {
            host: host.to_owned(),
            port,
            advertised: advertised.map(host_and_port).transpose()?,
            config,
            record,
        };
        let server = Arc::new(SocketServer::start(broker, &options)?);
        is_open(&server);
        Ok(server)
    }

    /// The handle of an open listener.
    pub fn new(server: Arc<SocketServer>) -> Self {
        let address = |e: &Endpoint| {
            if e.host.contains(':') {
                format!("[{}]:{}", e.host, e.port)
            } else {
                format!("{}:{}", e.host, e.port)
            }
        };
        let addresses: Vec<String> = server.endpoints().iter().map(address).collect();
        Self {
            bootstrap: addresses.join(","),
            server: Shared::new("listener", server),
        }
    }
}

/// What listens on ports: a listener or a proxy.
pub trait Ports: Send + Sync {
    /// The listening sockets.
    fn descriptors(&self) -> Vec<RawFd>;
}

impl Ports for SocketServer {
    fn descriptors(&self) -> Vec<RawFd> {
        self.descriptors()
    }
}

/// All listeners and proxies of this process.
static OPEN: Mutex<Vec<Weak<dyn Ports>>> = Mutex::new(Vec::new());

/// Notes a listener or a proxy that was opened.
pub fn is_open<T: Ports + 'static>(ports: &Arc<T>) {
    let ports: Weak<T> = Arc::downgrade(ports);
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|other| other.strong_count() > 0);
    open.push(ports);
}

/// From now on, forked children close the ports that they inherit.
pub fn close_in_forked_children(py: Python<'_>) -> PyResult<()> {
    static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
    let handler = wrap_pyfunction!(close_inherited, py)?;
    let when = [("after_in_child", handler)].into_py_dict(py)?;
    let register = py.import("os")?.getattr("register_at_fork")?;
    match IS_REGISTERED.swap(true, Ordering::Relaxed) {
        true => Ok(()),
        false => register.call((), Some(&when)).map(drop),
    }
}

/// Closes the listening sockets that the parent had. Nothing else of a listener or a proxy is touched: its locks and threads are the
/// parent's.
#[pyfunction]
fn close_inherited(py: Python<'_>) -> PyResult<()> {
    // Locked forever if the parent was opening one during the fork.
    let Ok(open) = OPEN.try_lock() else { return Ok(()) };
    let close = py.import("os")?.getattr("close")?;
    for ports in open.iter().filter_map(Weak::upgrade) {
        for descriptor in ports.descriptors() {
            // It fails if the descriptor is already closed.
            let _ = close.call1((descriptor,));
        }
        // Dropping the last reference would wait for a thread that this process does not have.
        std::mem::forget(ports);
    }
    Ok(())
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`.
fn host_and_port(text: &str) -> Result<(String, Option<u16>), Failure> {
    let bad = || Failure::argument(format!("advertised must be HOST or HOST:PORT, not `{text}`"));
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(bad)?;
            (host, port.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            Some(_) => (text, None),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(bad());
    }
    let port = port.map(|port| port.parse().map_err(|_| bad())).transpose()?;
    Ok((host.to_owned(), port))
}

#[pymethods]
impl Listener {
    #[doc = stub!(Listener.bootstrap)]
    #[getter]
    fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    #[doc = stub!(Listener.stats)]
    fn stats(&self, py: Python<'_>) -> PyResult<Table> {
        self.server.call(py, |server, _| statistics(server))
    }

    #[doc = stub!(Listener.last_requests)]
    fn last_requests(&self, py: Python<'_>) -> PyResult<Table> {
        self.server.call(py, |server, _| last_requests(server))
    }

    #[doc = stub!(Listener.faults)]
    #[getter]
    fn faults<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let faults = slf
            .get()
            .server
            .call(py, |server, _| Ok::<_, Failure>(Arc::clone(server.faults())))?;
        plan_of(py, &faults)
    }

    #[doc = stub!(Listener.recording)]
    #[getter]
    fn recording<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let recorder = self.server.get()?.recorder();
        recorder.map(|recorder| recording(py, recorder)).transpose()
    }

    #[doc = stub!(Listener.close)]
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.server.call(py, |server, _| {
            server.close();
            Ok::<_, Failure>(())
        })
    }

    fn __repr__(&self) -> String {
        format!("<fletchlog.types.Listener: {}>", self.bootstrap)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("Listener", "its `bootstrap`"))
    }
}

/// How far the recording of a session is.
pub fn recording<'py>(py: Python<'py>, recorder: &Recorder) -> PyResult<Bound<'py, PyDict>> {
    let state = PyDict::new(py);
    state.set_item("path", recorder.path())?;
    state.set_item("dropped", recorder.dropped())?;
    state.set_item("failure", recorder.failure())?;
    Ok(state)
}

/// What `record` and `record_values` of a call say.
pub fn record_options(record: Option<PathBuf>, record_values: bool) -> Result<Option<RecorderOptions>, Failure> {
    let Some(path) = record else {
        return match record_values {
            true => Err(Failure::argument(
                "record_values is for a session: say with record=FILE where it is recorded",
            )),
            false => Ok(None),
        };
    };
    Ok(Some(RecorderOptions {
        path,
        keeps_records: record_values,
        cluster_id: String::new(),
    }))
}

fn statistics(server: &SocketServer) -> Result<Table, Failure> {
    let rows = server.stats().requests();
    let requests = table(columns!(rows.iter(), row => {
        "api": StringArray = Some(row.0.api),
        "version": Int16Array = Some(row.0.version),
        "client": StringArray = Some(&row.0.client),
        "requests": UInt64Array = Some(row.1.requests),
        "bytes": UInt64Array = Some(row.1.bytes),
    }))?;
    let count = server.stats().connections();
    let connections = [
        ("connections.open", count.open),
        ("connections.accepted", count.accepted),
        ("connections.refused", count.refused),
        ("bytes.received", count.received),
        ("bytes.sent", count.sent),
    ];
    let metadata: HashMap<_, _> = connections
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_string()))
        .collect();
    Ok(requests.with_metadata(metadata))
}

fn last_requests(server: &SocketServer) -> Result<Table, Failure> {
    let rows = server.stats().last_requests();
    table(columns!(rows.iter(), row => {
        "time_ms": Int64Array = Some(row.time_ms),
        "api": StringArray = Some(row.kind.api),
        "version": Int16Array = Some(row.kind.version),
        "client": StringArray = Some(&row.kind.client),
        "client_id": StringArray = Some(&row.client_id),
        "address": StringArray = Some(row.address.to_string()),
    }))
}

#[doc = stub!(served_apis)]
#[pyfunction]
pub fn served_apis() -> Vec<(&'static str, i16, i16, i16)> {
    fletchlog_server::served_apis().collect()
}
