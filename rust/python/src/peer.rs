//! The peer of a client: a broker in this process, or a cluster.

use std::io;
use std::sync::Arc;

use fletchlog_api::transport::SystemClock;
use fletchlog_api::{ClientClock, Clock, Config, Transport};
use fletchlog_broker::{Broker as Engine, LocalTransport};
use fletchlog_net::{Address, ConnectionSettings, TcpTransport, TokenSource, bootstrap_servers};
use pyo3::prelude::*;

use crate::errors::Failure;

/// The destination of a client's requests.
pub enum Peer {
    /// A broker in this process.
    Broker(Arc<Engine>),
    /// The bootstrap servers of a cluster, and the source of tokens for OAUTHBEARER.
    Cluster(Vec<Address>, Option<Arc<dyn TokenSource>>),
}

/// A client over sockets could not be made.
pub fn no_client(error: &io::Error) -> Failure {
    Failure::state(format!(
        "no client can be opened: {error}; each needs at least two open files: close clients, or raise the limit (ulimit -n)"
    ))
}

impl Peer {
    /// The cluster with these bootstrap servers.
    pub fn cluster(servers: &str, tokens: Option<Arc<dyn TokenSource>>) -> PyResult<Self> {
        let addresses = bootstrap_servers(servers).map_err(|bad| Failure::argument(bad.to_string()))?;
        Ok(Self::Cluster(addresses, tokens))
    }

    /// The clock of one client: the machine's; with a broker in this process, its wall clock.
    pub fn clock(&self) -> Arc<dyn Clock> {
        match self {
            Self::Broker(engine) => Arc::new(ClientClock::new(engine.clock())),
            Self::Cluster(..) => Arc::new(SystemClock::default()),
        }
    }

    /// The transport of one client. Nothing is connected yet.
    pub fn connect(&self, config: &Config, clock: &Arc<dyn Clock>) -> Result<Box<dyn Transport>, Failure> {
        match self {
            Self::Broker(engine) => Ok(Box::new(LocalTransport::new(Arc::clone(engine)))),
            Self::Cluster(addresses, tokens) => {
                let settings = ConnectionSettings::new(config, addresses.clone(), tokens.clone())?;
                let transport = TcpTransport::new(settings, Arc::clone(clock)).map_err(|error| no_client(&error))?;
                Ok(Box::new(transport))
            }
        }
    }

    /// Whether the broker is read-only.
    pub fn is_read_only(&self) -> bool {
        matches!(self, Self::Broker(engine) if engine.is_read_only())
    }
}
