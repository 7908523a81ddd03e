//! `fletchlog.types.Proxy`.

use std::os::fd::RawFd;
use std::sync::Arc;

use fletchlog_api::{Config, Scope};
use fletchlog_net::Address;
use fletchlog_proxy::{Proxy as Engine, ProxyOptions};
use fletchlog_session::RecorderOptions;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::unpicklable;
use crate::errors::Failure;
use crate::fault_rules::plan_of;
use crate::fork::Shared;
use crate::listener::{Ports, close_in_forked_children, is_open, recording};

#[doc = stub!(Proxy)]
#[pyclass(frozen, module = "fletchlog.types")]
pub struct Proxy {
    inner: Shared<Arc<Engine>>,
}

impl Ports for Engine {
    fn descriptors(&self) -> Vec<RawFd> {
        self.descriptors()
    }
}

impl Proxy {
    /// Opens a proxy for the cluster with these bootstrap servers. `nodes` are the properties of a client of the cluster, `listen` is
    /// `host:port`, `listener` has the properties of the proxy's ports, `record` says where its session is recorded.
    pub fn open(
        py: Python<'_>,
        servers: &[Address],
        nodes: Config,
        listen: &str,
        advertised: Option<String>,
        listener: Vec<(String, String)>,
        record: Option<RecorderOptions>,
    ) -> PyResult<Self> {
        let (host, port) = host_and_port(listen)?;
        let options = ProxyOptions {
            servers: servers
                .iter()
                .map(|server| (server.host.to_string(), server.port))
                .collect(),
            host,
            port,
            advertised,
            nodes,
            listener: Config::parse(Scope::Broker, listener.iter().map(|(k, v)| (k.as_str(), v.as_str())))
                .map_err(Failure::from)?,
            record,
        };
        close_in_forked_children(py)?;
        let engine = crate::gate::gate(py, |_| {
            let engine = Arc::new(Engine::start(options)?);
            is_open(&engine);
            Ok(engine)
        })?;
        Ok(Self {
            inner: Shared::new("proxy", engine),
        })
    }
}

/// `host:port` or `[v6]:port`.
fn host_and_port(text: &str) -> Result<(String, u16), Failure> {
    let bad = || {
        Failure::argument(format!(
            "listen must be HOST:PORT, not `{text}`; port 0 is any free one"
        ))
    };
    let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    if host.is_empty() {
        return Err(bad());
    }
    Ok((host.to_owned(), port.parse().map_err(|_| bad())?))
}

#[pymethods]
impl Proxy {
    #[doc = stub!(Proxy.bootstrap)]
    #[getter]
    fn bootstrap(&self) -> PyResult<String> {
        Ok(self.inner.get()?.bootstrap().to_owned())
    }

    #[doc = stub!(Proxy.faults)]
    #[getter]
    fn faults<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        plan_of(py, self.inner.get()?.faults())
    }

    #[doc = stub!(Proxy.recording)]
    #[getter]
    fn recording<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let recorder = self.inner.get()?.recorder();
        recorder.map(|recorder| recording(py, recorder)).transpose()
    }

    #[doc = stub!(Proxy.close)]
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.call(py, |proxy, _| {
            proxy.close();
            Ok::<_, Failure>(())
        })
    }

    fn __repr__(&self) -> String {
        let bootstrap = self.inner.get().map_or("of another process", |proxy| proxy.bootstrap());
        format!("<fletchlog.types.Proxy: {bootstrap}>")
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("Proxy", "its `bootstrap`"))
    }
}
