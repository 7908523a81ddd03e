//! `fletchlog.explain.session`: recorded sessions.

use std::path::PathBuf;
use std::sync::Arc;

use fletchlog_protocol::api_name;
use fletchlog_session::{Connection, Exchange, Item, Message, Place, Session as Engine, SessionError};
use pyo3::exceptions::{PyIndexError, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::errors::Failure;
use crate::gate::gate;
use crate::session_columns::columns_of;
use crate::session_fields::{message, topic_id};

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let variant = match error {
            SessionError::Io { .. } => "storage",
            SessionError::NotASession(_) | SessionError::Damaged { .. } => "damaged",
            SessionError::Version { .. } => "unsupported",
        };
        Self::of(variant, error.to_string())
    }
}

#[doc = stub!(Session)]
#[pyclass(frozen, module = "fletchlog.explain.session")]
pub struct Session {
    session: Arc<Engine>,
}

#[pymethods]
impl Session {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let session = gate(py, |_| Ok(Engine::open(&path)?))?;
        Ok(Self {
            session: Arc::new(session),
        })
    }

    #[doc = stub!(Session.path)]
    #[getter]
    fn path(&self) -> PathBuf {
        self.session.path().to_owned()
    }

    #[doc = stub!(Session.version)]
    #[getter]
    fn version(&self) -> u16 {
        self.session.head().version
    }

    #[doc = stub!(Session.writer)]
    #[getter]
    fn writer(&self) -> &str {
        &self.session.head().writer
    }

    #[doc = stub!(Session.cluster_id)]
    #[getter]
    fn cluster_id(&self) -> Option<String> {
        self.session.cluster_id().map(|id| id.to_string())
    }

    #[doc = stub!(Session.started_us)]
    #[getter]
    fn started_us(&self) -> i64 {
        self.session.head().started_us
    }

    #[doc = stub!(Session.has_values)]
    #[getter]
    fn has_values(&self) -> bool {
        self.session.head().keeps_records
    }

    #[doc = stub!(Session.is_cut)]
    #[getter]
    fn is_cut(&self) -> bool {
        self.session.is_cut()
    }

    #[doc = stub!(Session.has_ended)]
    #[getter]
    fn has_ended(&self) -> bool {
        self.session.has_ended()
    }

    #[doc = stub!(Session.dropped)]
    #[getter]
    fn dropped(&self) -> u64 {
        self.session.dropped().0
    }

    #[doc = stub!(Session.dropped_bodies)]
    #[getter]
    fn dropped_bodies(&self) -> u64 {
        self.session.dropped().1
    }

    #[doc = stub!(Session.connections)]
    #[getter]
    fn connections(&self) -> Vec<SessionConnection> {
        self.session.connections().into_iter().map(SessionConnection).collect()
    }

    #[doc = stub!(Session.topic_names)]
    #[getter]
    fn topic_names<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let names = PyDict::new(py);
        for (id, name) in self.session.topics() {
            names.set_item(topic_id(&id), &*name)?;
        }
        Ok(names)
    }

    #[doc = stub!(Session.exchange)]
    fn exchange(&self, number: u64) -> PyResult<SessionExchange> {
        let place = self.session.place_of(number);
        place
            .and_then(|place| self.at(place))
            .ok_or_else(|| PyKeyError::new_err(number))
    }

    #[doc = stub!(Session.read_on)]
    fn read_on(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let items = gate(py, |_| Ok(self.session.read_on()?))?;
        items.into_iter().map(|item| self.item(py, item)).collect()
    }

    #[doc = stub!(Session.columns)]
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let places = 0..self.session.exchanges();
        let exchanges = places.filter_map(|place| self.session.exchange(place));
        columns_of(py, exchanges.map(|exchange| (&*self.session, exchange)))
    }

    fn __len__(&self) -> usize {
        self.session.exchanges()
    }

    fn __getitem__(&self, at: isize) -> PyResult<SessionExchange> {
        let place = match at {
            0.. => at.try_into().ok(),
            _ => self.session.exchanges().checked_sub(at.unsigned_abs()),
        };
        place
            .and_then(|place| self.at(place))
            .ok_or_else(|| PyIndexError::new_err("a session has no exchange at this place"))
    }

    fn __iter__(slf: Bound<'_, Self>) -> SessionItems {
        let places = slf.get().session.items();
        SessionItems {
            session: slf.unbind(),
            places: std::sync::Mutex::new(places.into_iter()),
        }
    }

    fn __repr__(&self) -> String {
        let session = &self.session;
        format!(
            "<fletchlog.explain.session.Session: {} connections, {} requests in {}>",
            session.connections().len(),
            session.exchanges(),
            session.path().display()
        )
    }
}

impl Session {
    fn at(&self, place: usize) -> Option<SessionExchange> {
        let exchange = self.session.exchange(place)?;
        Some(SessionExchange {
            session: Arc::clone(&self.session),
            exchange,
        })
    }

    fn item(&self, py: Python<'_>, item: Item) -> PyResult<Py<PyAny>> {
        Ok(match item {
            Item::Connection(connection) => Py::new(py, SessionConnection(connection))?.into_any(),
            Item::Exchange(exchange) => {
                let session = Arc::clone(&self.session);
                Py::new(py, SessionExchange { session, exchange })?.into_any()
            }
        })
    }
}

#[doc = stub!(_SessionItems)]
#[pyclass(frozen, module = "fletchlog._core", name = "_SessionItems")]
pub struct SessionItems {
    session: Py<Session>,
    places: std::sync::Mutex<std::vec::IntoIter<Place>>,
}

#[pymethods]
impl SessionItems {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let next = || {
            self.places
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .next()
        };
        let session = self.session.get();
        while let Some(place) = next() {
            let item = match place {
                Place::Connection(number) => session.session.connection(number).map(Item::Connection),
                Place::Exchange(place) => session.session.exchange(place).map(Item::Exchange),
            };
            if let Some(item) = item {
                return session.item(py, item).map(Some);
            }
        }
        Ok(None)
    }
}

#[doc = stub!(SessionConnection)]
#[pyclass(frozen, module = "fletchlog.explain.session")]
pub struct SessionConnection(Connection);

#[pymethods]
impl SessionConnection {
    #[doc = stub!(SessionConnection.number)]
    #[getter]
    fn number(&self) -> u64 {
        self.0.number
    }

    #[doc = stub!(SessionConnection.node)]
    #[getter]
    fn node(&self) -> i32 {
        self.0.node
    }

    #[doc = stub!(SessionConnection.peer)]
    #[getter]
    fn peer(&self) -> &str {
        &self.0.peer
    }

    #[doc = stub!(SessionConnection.listener)]
    #[getter]
    fn listener(&self) -> &str {
        &self.0.listener
    }

    #[doc = stub!(SessionConnection.principal)]
    #[getter]
    fn principal(&self) -> Option<&str> {
        self.0.principal.as_deref()
    }

    #[doc = stub!(SessionConnection.client_id)]
    #[getter]
    fn client_id(&self) -> Option<&str> {
        self.0.client_id.as_deref()
    }

    #[doc = stub!(SessionConnection.software_name)]
    #[getter]
    fn software_name(&self) -> Option<&str> {
        self.0.software_name.as_deref()
    }

    #[doc = stub!(SessionConnection.software_version)]
    #[getter]
    fn software_version(&self) -> Option<&str> {
        self.0.software_version.as_deref()
    }

    #[doc = stub!(SessionConnection.opened_us)]
    #[getter]
    fn opened_us(&self) -> i64 {
        self.0.opened_us
    }

    #[doc = stub!(SessionConnection.closed_us)]
    #[getter]
    fn closed_us(&self) -> Option<i64> {
        self.0.closed_us
    }

    #[doc = stub!(SessionConnection.close_reason)]
    #[getter]
    fn close_reason(&self) -> Option<&str> {
        self.0.close_reason.as_deref()
    }

    fn __repr__(&self) -> String {
        let client = self.0.client_id.as_deref().unwrap_or("a client without id");
        format!("<connection {} of {client} at {}>", self.0.number, self.0.peer)
    }
}

#[doc = stub!(SessionExchange)]
#[pyclass(frozen, module = "fletchlog.explain.session")]
pub struct SessionExchange {
    session: Arc<Engine>,
    exchange: Exchange,
}

impl SessionExchange {
    fn message<'py>(
        &self,
        py: Python<'py>,
        read: impl Fn(&Engine, &Exchange) -> Result<Option<Message>, SessionError> + Send + Sync,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let read = read(&self.session, &self.exchange).map_err(|error| Failure::from(error).into_py(py))?;
        read.map(|read| message(py, &self.session, &read)).transpose()
    }
}

#[pymethods]
impl SessionExchange {
    #[doc = stub!(SessionExchange.number)]
    #[getter]
    fn number(&self) -> u64 {
        self.exchange.number
    }

    #[doc = stub!(SessionExchange.connection)]
    #[getter]
    fn connection(&self) -> u64 {
        self.exchange.connection
    }

    #[doc = stub!(SessionExchange.node)]
    #[getter]
    fn node(&self) -> i32 {
        self.session
            .connection(self.exchange.connection)
            .map_or(-1, |connection| connection.node)
    }

    #[doc = stub!(SessionExchange.client_id)]
    #[getter]
    fn client_id(&self) -> Option<&str> {
        self.exchange.client_id.as_deref()
    }

    #[doc = stub!(SessionExchange.software_name)]
    #[getter]
    fn software_name(&self) -> Option<String> {
        let connection = self.session.connection(self.exchange.connection)?;
        connection.software_name.map(|name| name.to_string())
    }

    #[doc = stub!(SessionExchange.software_version)]
    #[getter]
    fn software_version(&self) -> Option<String> {
        let connection = self.session.connection(self.exchange.connection)?;
        connection.software_version.map(|version| version.to_string())
    }

    #[doc = stub!(SessionExchange.api)]
    #[getter]
    fn api(&self) -> String {
        match self.exchange.api_key {
            -1 => String::new(),
            key => api_name(key).map_or_else(|| format!("API {key}"), str::to_owned),
        }
    }

    #[doc = stub!(SessionExchange.api_key)]
    #[getter]
    fn api_key(&self) -> i16 {
        self.exchange.api_key
    }

    #[doc = stub!(SessionExchange.version)]
    #[getter]
    fn version(&self) -> i16 {
        self.exchange.version
    }

    #[doc = stub!(SessionExchange.correlation_id)]
    #[getter]
    fn correlation_id(&self) -> i32 {
        self.exchange.correlation_id
    }

    #[doc = stub!(SessionExchange.arrived_us)]
    #[getter]
    fn arrived_us(&self) -> i64 {
        self.exchange.arrived_us
    }

    #[doc = stub!(SessionExchange.answered_us)]
    #[getter]
    fn answered_us(&self) -> Option<i64> {
        self.exchange.answered_us
    }

    #[doc = stub!(SessionExchange.request_bytes)]
    #[getter]
    fn request_bytes(&self) -> u64 {
        self.exchange.request_bytes
    }

    #[doc = stub!(SessionExchange.response_bytes)]
    #[getter]
    fn response_bytes(&self) -> Option<u64> {
        self.exchange.response_bytes
    }

    #[doc = stub!(SessionExchange.fault)]
    #[getter]
    fn fault(&self) -> Option<&str> {
        self.exchange.fault.as_deref()
    }

    #[doc = stub!(SessionExchange.outcome)]
    #[getter]
    fn outcome(&self) -> &str {
        &self.exchange.outcome
    }

    #[doc = stub!(SessionExchange.request)]
    #[getter]
    fn request<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.message(py, Engine::request)
    }

    #[doc = stub!(SessionExchange.response)]
    #[getter]
    fn response<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.message(py, Engine::response)
    }

    #[doc = stub!(SessionExchange.frame)]
    fn frame<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let frame = self.session.request_frame(&self.exchange);
        let frame = frame.map_err(|error| Failure::from(error).into_py(py))?;
        Ok(PyBytes::new(py, &frame))
    }

    fn __repr__(&self) -> String {
        let exchange = &self.exchange;
        let client = exchange.client_id.as_deref().unwrap_or("a client without id");
        format!(
            "<{}: {} {} by {client} on connection {}: {}>",
            exchange.number,
            self.api(),
            exchange.version,
            exchange.connection,
            exchange.outcome
        )
    }
}

#[doc = stub!(exchange_columns)]
#[pyfunction]
pub fn exchange_columns<'py>(
    py: Python<'py>,
    exchanges: Vec<PyRef<'py, SessionExchange>>,
) -> PyResult<Bound<'py, PyDict>> {
    let own = |each: PyRef<'_, SessionExchange>| (Arc::clone(&each.session), each.exchange.clone());
    let exchanges: Vec<_> = exchanges.into_iter().map(own).collect();
    columns_of(
        py,
        exchanges
            .iter()
            .map(|(session, exchange)| (&**session, exchange.clone())),
    )
}
