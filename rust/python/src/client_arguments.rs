//! The arguments of a client: a place of records and a configuration.

use std::path::PathBuf;

use fletchlog_api::config_table::keys;
use fletchlog_api::{Config, Scope};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::broker::Broker;
use crate::cluster::Cluster;
use crate::convert::{as_dict, config_from_py, describe};
use crate::errors::Failure;
use crate::oauth::{CALLBACK, split_callback, token_source};
use crate::peer::Peer;
use crate::store::place;

/// The prefix of a list of servers given in place of a broker.
const SCHEME: &str = "kafka://";

/// The arguments of a client: a configuration with bootstrap.servers may be given in place of a broker.
pub type Arguments<'a, 'py> = (Option<&'a Bound<'py, PyAny>>, Option<&'a Bound<'py, PyAny>>);

/// What a producer or a consumer is made of.
pub struct Client {
    pub peer: Peer,
    pub config: Config,
    /// The broker of a directory or of an object store that was opened for this client, and is closed with it.
    pub owned: Option<Py<PyAny>>,
}

impl Client {
    /// Reads the arguments; `group` is group.id. A consumer without `group.id` commits nothing, so it opens a directory for reading; every other client for writing.
    pub fn from_py(
        py: Python<'_>,
        scope: Scope,
        source: Option<&Bound<'_, PyAny>>,
        config: Option<&Bound<'_, PyAny>>,
        group: Option<&str>,
    ) -> PyResult<Self> {
        let (source, config) = arguments(source, config)?;
        let (mut source, mut config) = (source.cloned(), with_group(py, config, group)?);
        if let Some(Ok(cluster)) = source.as_ref().map(|source| source.cast::<Cluster>()) {
            let (servers, properties) = cluster.get().given(py);
            config = with_properties_of_cluster(scope, properties.as_ref(), config)?;
            source = servers;
        }
        let (properties, callback) = split_callback(config.as_ref())?;
        let config = config_from_py(scope, properties.as_ref())?.with_client_id();
        let reads = scope == Scope::Consumer && config.get("group.id").is_none_or(str::is_empty);
        let owned = match &source {
            Some(source) => opened(py, source, reads)?,
            None => None,
        };
        let peer = peer_of(py, owned.as_ref().or(source.as_ref()), &config, callback)?;
        Ok(Self {
            peer,
            config,
            owned: owned.map(Bound::unbind),
        })
    }
}

/// The properties of a client of a cluster: those of the `Cluster` that such a client has, replaced by its own.
fn with_properties_of_cluster<'py>(
    scope: Scope,
    given: Option<&Bound<'py, PyAny>>,
    own: Option<Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(given) = given.map(as_dict).transpose()?.flatten() else {
        return Ok(own);
    };
    let properties = PyDict::new(given.py());
    for (name, value) in given.iter() {
        let text = name.extract::<String>()?;
        if text == CALLBACK || keys(scope).iter().any(|key| key.name == text) {
            properties.set_item(name, value)?;
        }
    }
    let Some(own) = own else {
        return Ok(Some(properties.into_any()));
    };
    let Some(dict) = as_dict(&own)? else {
        return Ok(Some(own));
    };
    if dict.contains("bootstrap.servers")? {
        return Err(both("a Cluster").into());
    }
    properties.update(dict.as_mapping())?;
    Ok(Some(properties.into_any()))
}

/// The broker of a directory or of an object store, if `source` is the name of one.
fn opened<'py>(py: Python<'py>, source: &Bound<'py, PyAny>, reads: bool) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Ok(path) = source.extract::<PathBuf>() else {
        return Ok(None);
    };
    if place(py, path)?.0 == "cluster" {
        return Ok(None);
    }
    let options = PyDict::new(py);
    options.set_item("read_only", reads)?;
    let module = py.import("fletchlog._place")?;
    module.call_method("opened", (source,), Some(&options)).map(Some)
}

/// The configuration with this group.id, unless it has another one.
fn with_group<'py>(
    py: Python<'py>,
    config: Option<&Bound<'py, PyAny>>,
    group: Option<&str>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(group) = group else {
        return Ok(config.cloned());
    };
    let properties = PyDict::new(py);
    if let Some(config) = config {
        let Some(given) = as_dict(config)? else {
            return Ok(Some(config.clone()));
        };
        properties.update(given.as_mapping())?;
    }
    let own = properties.get_item("group.id")?;
    if own.is_some_and(|own| own.extract::<String>().is_ok_and(|own| own != group)) {
        return Err(Failure::argument("group= and group.id name two groups: give one of them").into());
    }
    properties.set_item("group.id", group)?;
    Ok(Some(properties.into_any()))
}

/// Refuses keyword arguments that a client does not have, such as the properties of kafka-python.
pub fn refuse_keywords(client: &str, scope: Scope, others: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    let Some((name, _)) = others.and_then(|others| others.iter().next()) else {
        return Ok(());
    };
    let name = name.extract::<String>()?;
    let property = name.replace('_', ".");
    let known = keys(scope).iter().any(|key| key.name == property);
    let property = if known { &property } else { "NAME" };
    Err(PyTypeError::new_err(format!(
        "{client}() got an unexpected keyword argument '{name}'; properties have Kafka's names, in a mapping: {client}(place, {{\"{property}\": ...}})"
    )))
}

/// Closes the broker that was opened for a client.
pub fn close_owned(py: Python<'_>, owned: Option<&Py<PyAny>>) -> PyResult<()> {
    match owned {
        Some(broker) => broker.call_method0(py, "close").map(drop),
        None => Ok(()),
    }
}

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
                "a client needs a place: a Broker, a Cluster, a directory, \"kafka://HOST:PORT\", or bootstrap.servers in its configuration",
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
        return Err(Failure::argument(format!(
            "expected a Broker, a Cluster, {SCHEME}HOST:PORT, the path of a directory or the URI of an object store, got {}",
            describe(broker)
        ))
        .into());
    };
    let text = text.to_cow()?;
    if !text.starts_with(SCHEME) {
        return Err(Failure::argument(format!("`{text}` is no cluster: expected {SCHEME}HOST:PORT")).into());
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
