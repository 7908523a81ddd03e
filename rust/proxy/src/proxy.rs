//! Opening and closing a proxy.

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use fletchlog_api::transport::{SystemClock, Waker};
use fletchlog_api::{Clock, Config, ConfigError};
use fletchlog_faults::Faults;
use fletchlog_session::{Recorder, RecorderOptions};
use fletchlog_tls::{ClientTls, ServerTls};

use crate::relay::{Descriptors, Names, Ports, Relay, Shared, Tls, WAKER};
use crate::resolver::Resolver;

/// Where a proxy listens, and for which cluster.
#[derive(Debug, Clone)]
pub struct ProxyOptions {
    /// The cluster's bootstrap servers. A connection to the proxy's first port goes to one of them, in turn.
    pub servers: Vec<(String, u16)>,
    /// Name or address of the interface.
    pub host: String,
    /// The port for the bootstrap servers; the nodes get the next free ones. 0: free ones for all.
    pub port: u16,
    /// The host under which clients reach the proxy; `None`: `host`.
    pub advertised: Option<String>,
    /// Properties of a client: with a `security.protocol` of TLS the proxy speaks TLS with the nodes.
    pub nodes: Config,
    /// Properties of a broker: with a `security.protocol` of TLS the proxy speaks TLS with its clients.
    pub listener: Config,
    /// Where the session of its clients is recorded; `None`: nowhere.
    pub record: Option<RecorderOptions>,
}

/// Why a proxy could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The address cannot be resolved or bound.
    #[error("cannot listen on {host}:{port}: {source}")]
    Address {
        /// As requested.
        host: String,
        /// As requested.
        port: u16,
        /// The system's error.
        source: std::io::Error,
    },
    /// No thread or no descriptor is available.
    #[error("cannot start the proxy: {0}")]
    Start(std::io::Error),
    /// No address is known that clients could connect to.
    #[error(
        "{0} means every interface of this machine, which no client can connect to: say with `advertised` under which host name clients reach it"
    )]
    Wildcard(String),
    /// The file of the session cannot be created.
    #[error("cannot record into {}: {source}; name a file in a directory that exists and may be written", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A property of TLS cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// An open proxy. Thread-safe. Dropping it closes it.
pub struct Proxy {
    bootstrap: String,
    shared: Arc<Shared>,
    descriptors: Descriptors,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy")
            .field("bootstrap", &self.bootstrap)
            .finish_non_exhaustive()
    }
}

/// Whether a `security.protocol` has TLS.
fn speaks_tls(config: &Config) -> bool {
    matches!(config.text("security.protocol"), "SSL" | "SASL_SSL")
}

impl Proxy {
    /// Listens. Clients can connect as soon as it returns; whether the cluster can be reached shows with the first of them.
    ///
    /// # Errors
    /// The address does not exist, is in use, or cannot be advertised; a property is wrong.
    pub fn start(options: ProxyOptions) -> Result<Self, ProxyError> {
        let tls = Tls {
            listener: speaks_tls(&options.listener)
                .then(|| ServerTls::new(&options.listener))
                .transpose()?,
            nodes: speaks_tls(&options.nodes)
                .then(|| ClientTls::new(&options.nodes))
                .transpose()?,
        };
        let advertised = options.advertised.unwrap_or_else(|| options.host.clone());
        if advertised
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_unspecified())
        {
            return Err(ProxyError::Wildcard(advertised));
        }
        let poll = mio::Poll::new().map_err(ProxyError::Start)?;
        let registry = poll.registry().try_clone().map_err(ProxyError::Start)?;
        let wakes = mio::Waker::new(&registry, WAKER).map_err(ProxyError::Start)?;
        let waker: Waker = Arc::new(move || {
            if let Err(error) = wakes.wake() {
                log::error!("the proxy's thread could not be woken: {error}");
            }
        });
        let listen = (options.host.clone(), options.port);
        let (names, descriptors) = (Names::default(), Descriptors::default());
        let known = Arc::clone(&names);
        let opened = Ports::open(
            registry,
            listen,
            advertised.clone(),
            options.servers,
            names,
            Arc::clone(&descriptors),
        );
        let (ports, bound) = opened.map_err(|source| ProxyError::Address {
            host: options.host,
            port: options.port,
            source,
        })?;
        let recorder = options.record.as_ref().map(recorder).transpose()?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let name_of = move |id: &[u8; 16]| known.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned();
        let shared = Arc::new(Shared {
            closing: AtomicBool::new(false),
            faults: Arc::new(Faults::new(Arc::clone(&clock), Arc::new(name_of))),
            clock,
            recorder,
            waker: Arc::clone(&waker),
            released: Mutex::default(),
        });
        let resolver = Resolver::new(Arc::clone(&waker));
        let relay = Relay::new(poll, ports, tls, resolver, Arc::clone(&shared));
        let thread = std::thread::Builder::new()
            .name("fletchlog-proxy".to_owned())
            .spawn(move || relay.run())
            .map_err(ProxyError::Start)?;
        let bootstrap = match advertised.contains(':') {
            true => format!("[{advertised}]:{bound}"),
            false => format!("{advertised}:{bound}"),
        };
        Ok(Self {
            bootstrap,
            shared,
            descriptors,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// `host:port` of the port for the bootstrap servers.
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// The listening sockets, until the proxy is closed. A forked child inherits them and must close them, or the ports stay in use. Never waits:
    /// there are none while another thread opens one.
    pub fn descriptors(&self) -> Vec<RawFd> {
        if self.shared.closing.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.descriptors
            .try_lock()
            .map_or_else(|_| Vec::new(), |open| open.clone())
    }

    /// The rules for faults of its clients' requests, and the record of these. The time of delays is the machine's.
    pub fn faults(&self) -> &Arc<Faults> {
        &self.shared.faults
    }

    /// Closes every port and every connection. Idempotent.
    pub fn close(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.shared.closing.store(true, Ordering::Release);
        (self.shared.waker)();
        if let Some(thread) = thread {
            // Its panic was reported when it happened.
            let _ = thread.join();
        }
        if let Some(recorder) = &self.shared.recorder {
            recorder.close();
        }
    }

    /// The recorder of its clients' session, if there is one.
    pub fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.shared.recorder.as_ref()
    }
}

/// Creates the file of the session.
fn recorder(options: &RecorderOptions) -> Result<Arc<Recorder>, ProxyError> {
    Recorder::start(options).map_err(|source| ProxyError::Record {
        path: options.path.clone(),
        source,
    })
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.close();
    }
}
