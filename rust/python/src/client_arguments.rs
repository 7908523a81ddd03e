//! The arguments of a client: a broker of this process or a cluster, and a configuration.

use fletchlog_api::Config;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::broker::Broker;
use crate::convert::{as_dict, describe};
use crate::errors::Failure;
use crate::oauth::token_source;
use crate::peer::Peer;

/// The prefix of a list of servers given in place of a broker.
const SCHEME: &str = "kafka://";

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

/// The peer that a client's arguments name: a `Broker`, `"kafka://HOST:PORT,..."`, or only bootstrap.servers. `callback`: `oauth_cb`.
pub fn peer_of(
    py: Python<'_>,
    broker: Option<&Bound<'_, PyAny>>,
    config: &Config,
    callback: Option<Py<PyAny>>,
) -> PyResult<Peer> {
    let tokens = token_source(py, config, callback)?;
    let servers = config.get("bootstrap.servers").filter(|list| !list.is_empty());
    let Some(broker) = broker.filter(|broker| !broker.is_none()) else {
        let servers = servers.ok_or_else(|| {
            Failure::argument(
                "a client needs a broker: fletchlog.Broker(PATH), \"kafka://HOST:PORT\", or bootstrap.servers in its configuration",
            )
        })?;
        return Peer::cluster(servers, tokens);
    };
    if let Ok(local) = broker.cast::<Broker>() {
        if servers.is_some() {
            return Err(both("a Broker of this process").into());
        }
        return Ok(Peer::Broker(local.get().engine()?));
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
    Peer::cluster(&text, tokens)
}

fn both(given: &str) -> Failure {
    Failure::argument(format!(
        "bootstrap.servers names one cluster and the first argument is {given}: give one of the two"
    ))
}
