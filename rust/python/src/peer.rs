//! The peer of a client: a broker in this process, or a cluster.

use std::sync::Arc;

use fletchlog_api::{Clock, Config, Transport};
use fletchlog_broker::{Broker as Engine, LocalTransport};
use fletchlog_net::{Address, ConnectionSettings, TcpTransport, TokenSource, bootstrap_servers};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::broker::Broker;
use crate::convert::{as_dict, describe};
use crate::errors::Failure;
use crate::oauth::token_source;

/// The prefix of a list of servers given in place of a broker.
const SCHEME: &str = "kafka://";

/// The destination of a client's requests.
pub enum Peer {
    /// A broker in this process.
    Broker(Arc<Engine>),
    /// The bootstrap servers of a cluster, and the source of tokens for OAUTHBEARER.
    Cluster(Vec<Address>, Option<Arc<dyn TokenSource>>),
}

/// The arguments of a client: a configuration with bootstrap.servers may be given in place of a broker.
pub type Arguments<'a, 'py> = (Option<&'a Bound<'py, PyAny>>, Option<&'a Bound<'py, PyAny>>);

/// Distinguishes `(broker, config)` from `(config,)`.
pub fn arguments<'a, 'py>(
    broker: Option<&'a Bound<'py, PyAny>>,
    config: Option<&'a Bound<'py, PyAny>>,
) -> PyResult<Arguments<'a, 'py>> {
    Ok(match (broker, config) {
        (Some(only), None) if as_dict(only)?.is_some() => (None, Some(only)),
        both => both,
    })
}

impl Peer {
    /// The peer that a client's arguments name: a `Broker`, `"kafka://HOST:PORT,..."`, or only bootstrap.servers. `callback`: `oauth_cb`.
    pub fn of(
        py: Python<'_>,
        broker: Option<&Bound<'_, PyAny>>,
        config: &Config,
        callback: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let tokens = token_source(py, config, callback)?;
        let servers = config.get("bootstrap.servers").filter(|list| !list.is_empty());
        let Some(broker) = broker.filter(|broker| !broker.is_none()) else {
            let servers = servers.ok_or_else(|| {
                Failure::argument(
                    "a client needs a broker: fletchlog.Broker(PATH), \"kafka://HOST:PORT\", or bootstrap.servers in its configuration",
                )
            })?;
            return Self::cluster(servers, tokens);
        };
        if let Ok(local) = broker.cast::<Broker>() {
            if servers.is_some() {
                return Err(both("a Broker of this process").into());
            }
            return Ok(Self::Broker(local.get().engine()?));
        }
        let Ok(text) = broker.cast::<PyString>() else {
            return Err(PyTypeError::new_err(format!(
                "expected a Broker or \"{SCHEME}HOST:PORT\", got {}",
                describe(broker)
            )));
        };
        let text = text.to_cow()?;
        if !text.starts_with(SCHEME) {
            return Err(Failure::argument(format!(
                "`{text}` is no cluster: expected \"{SCHEME}HOST:PORT\". A directory is opened with fletchlog.Broker(PATH)"
            ))
            .into());
        }
        if servers.is_some() {
            return Err(both(&text).into());
        }
        Self::cluster(&text, tokens)
    }

    fn cluster(servers: &str, tokens: Option<Arc<dyn TokenSource>>) -> PyResult<Self> {
        let addresses = bootstrap_servers(servers).map_err(|bad| Failure::argument(bad.to_string()))?;
        Ok(Self::Cluster(addresses, tokens))
    }

    /// The transport of one client. Nothing is connected yet.
    pub fn connect(&self, config: &Config, clock: &Arc<dyn Clock>) -> Result<Box<dyn Transport>, Failure> {
        match self {
            Self::Broker(engine) => Ok(Box::new(LocalTransport::new(Arc::clone(engine)))),
            Self::Cluster(addresses, tokens) => {
                let settings = ConnectionSettings::new(config, addresses.clone(), tokens.clone())?;
                let transport = TcpTransport::new(settings, Arc::clone(clock));
                let transport =
                    transport.map_err(|error| Failure::state(format!("no sockets can be watched: {error}")))?;
                Ok(Box::new(transport))
            }
        }
    }

    /// Whether the broker is read-only.
    pub fn is_read_only(&self) -> bool {
        matches!(self, Self::Broker(engine) if engine.is_read_only())
    }
}

fn both(given: &str) -> Failure {
    Failure::argument(format!(
        "bootstrap.servers names one cluster and the first argument is {given}: give one of the two"
    ))
}
