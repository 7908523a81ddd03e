//! Opening and closing a listener. Kafka: `SocketServer`.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use fletchlog_api::transport::Waker;
use fletchlog_api::{ConfigError, NodeId};
use fletchlog_broker::Broker;
use fletchlog_faults::Faults;
use fletchlog_session::{Recorder, RecorderOptions};
use mio::net::TcpListener;
use rustix::process::{Resource, getrlimit};

use crate::apis::Apis;
use crate::completions::Completions;
use crate::endpoint::{Endpoint, listener_config};
use crate::limits::Limits;
use crate::processor::{Processor, Shared};
use crate::recording::Recording;
use crate::request_handler_pool::RequestHandlerPool;
use crate::security::Security;
use crate::sockets::{BACKLOG, Sockets, SystemSockets, WAKER, bound};
use crate::stats::Stats;

/// Where to listen.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// Name or address of the interface.
    pub host: String,
    /// Port of the first node; the others follow. 0: a free one for each.
    pub port: u16,
    /// The host under which clients reach the listener, and the port of the first node if it differs. `None`: `host` and the port that is
    /// listened on.
    pub advertised: Option<(String, Option<u16>)>,
    /// Properties of this listener, which override the broker's.
    pub config: Vec<(String, String)>,
    /// Where the session of its clients is recorded; the id of the cluster is filled in. `None`: nowhere.
    pub record: Option<RecorderOptions>,
}

/// Why a listener could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
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
    /// No address is known that clients could connect to.
    #[error(
        "{0} means every interface of this machine, which no client can connect to: say with `advertised` under which host name clients reach it"
    )]
    Wildcard(String),
    /// The ports of the later nodes would be above 65535.
    #[error("{nodes} nodes need {nodes} ports, and there are fewer from {port} on")]
    Ports {
        /// Nodes of the broker.
        nodes: usize,
        /// The first port.
        port: u16,
    },
    /// A property is unknown, not one of a listener, or has a value that cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The file of the session cannot be created.
    #[error("cannot record into {}: {source}; name a file in a directory that exists and may be written", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// No thread or no descriptor is available.
    #[error("cannot start the listener: {0}")]
    Start(std::io::Error),
}

/// An open listener: one port for each node of a broker. Thread-safe. Dropping it closes it.
pub struct SocketServer {
    shared: Arc<Shared>,
    endpoints: Vec<Endpoint>,
    descriptors: Arc<[AtomicI32]>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// What the broker's clock calls after a change, as long as this exists.
    _clock_changed: Waker,
}

impl std::fmt::Debug for SocketServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SocketServer")
            .field("endpoints", &self.endpoints)
            .finish_non_exhaustive()
    }
}

impl SocketServer {
    /// Listens for clients of `broker`. They can connect as soon as it returns.
    ///
    /// # Errors
    /// The address does not exist, is in use, or cannot be advertised; a property is wrong.
    pub fn start(broker: &Arc<Broker>, options: &ListenOptions) -> Result<Self, ListenError> {
        let config = listener_config(broker.config(), &options.config)?;
        let security = Security::new(&config)?;
        let limits = Limits::new(&config)?.of_process(getrlimit(Resource::Nofile).current);
        let nodes = broker.nodes();
        let mut listeners = Vec::with_capacity(nodes.len());
        let mut endpoints = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            let beyond = || ListenError::Ports {
                nodes: nodes.len(),
                port: options.port,
            };
            let nth = u16::try_from(index).map_err(|_| beyond())?;
            let port = match options.port {
                0 => 0,
                first => first.checked_add(nth).ok_or_else(beyond)?,
            };
            let (listener, address) = bind(&options.host, port)?;
            endpoints.push(endpoint(options, *node, nth, address)?);
            listeners.push(listener);
        }
        let poll = mio::Poll::new().map_err(ListenError::Start)?;
        let waker = waker(&poll).map_err(ListenError::Start)?;
        let sockets = SystemSockets::new(poll, listeners).map_err(ListenError::Start)?;
        let descriptors = sockets.descriptors();
        let pool = RequestHandlerPool::new(limits.num_io_threads, limits.queued_max_requests);
        let recording = options
            .record
            .as_ref()
            .map(|record| recording(broker, record, &endpoints));
        let recording = recording.transpose()?;
        let of_broker = (limits, security, recording);
        let shared = shared(broker, of_broker, options.config.clone(), &endpoints, waker);
        let completions = Arc::clone(&shared.completions);
        let clock_changed: Waker = Arc::new(move || completions.wake());
        broker.clock().watch(&clock_changed);
        broker.begin_to_listen();
        let processor = Processor::new(sockets, Arc::clone(&shared), nodes, pool);
        let thread = std::thread::Builder::new()
            .name("fletchlog-net".to_owned())
            .spawn(move || processor.run())
            .map_err(ListenError::Start)?;
        Ok(Self {
            shared,
            endpoints,
            descriptors,
            thread: Mutex::new(Some(thread)),
            _clock_changed: clock_changed,
        })
    }

    /// Waits until the responses that are ready have been written, as far as the sockets accept them, and connections that have been idle
    /// for too long were closed: for a thread that has set the broker's clock ahead.
    pub fn settle(&self) {
        self.shared.settle();
    }

    /// The address of each node for clients.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// The listening sockets, until the listener is closed. A forked child inherits them and must close them, or the ports stay in use.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let all = self
            .descriptors
            .iter()
            .map(|descriptor| descriptor.load(Ordering::Acquire));
        match self.shared.closing.load(Ordering::Acquire) {
            true => Vec::new(),
            false => all.filter(|descriptor| *descriptor >= 0).collect(),
        }
    }

    /// The rules for faults of its clients' requests, and the record of these.
    pub fn faults(&self) -> &Arc<Faults> {
        &self.shared.faults
    }

    /// Waits until the listener has done what follows from the nodes that have stopped or started so far: the connections of stopped nodes
    /// are closed and new ones are refused, those that have started accept. Returns at once for a listener that is closed.
    ///
    /// # Errors
    /// The port of a node that has started cannot be used again.
    pub fn follow_nodes(&self) -> Result<(), ListenError> {
        self.shared.settle();
        let mut failure = self.shared.node_failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.take().map_or(Ok(()), |error| Err(ListenError::Start(error)))
    }

    /// The listener's counters.
    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }

    /// Stops accepting and reading, sends the responses of requests in progress (for at most a second), and closes every connection.
    /// Requests that wait for data or for other members get no response. The broker stays open. Idempotent.
    pub fn close(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.shared.closing.store(true, Ordering::Release);
        self.shared.completions.wake();
        if let Some(thread) = thread {
            // Its panic was reported when it happened.
            let _ = thread.join();
        }
        if let Some(recording) = &self.shared.recording {
            recording.recorder.close();
        }
    }

    /// The recorder of its clients' session, if there is one.
    pub fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.shared.recording.as_ref().map(|recording| &recording.recorder)
    }
}

impl Drop for SocketServer {
    fn drop(&mut self) {
        self.close();
    }
}

/// Serves clients of `broker` over these sockets, which have a listener for each node. Everything runs in the caller's thread, also disk
/// I/O, so that a simulation is deterministic. Ends when waiting for the sockets fails; `waker` ends their wait. `started` is called first,
/// with the rules for faults of the listener.
///
/// # Errors
/// A property is wrong.
pub fn serve_over<S: Sockets>(
    broker: &Arc<Broker>,
    endpoints: &[Endpoint],
    sockets: S,
    waker: Waker,
    started: impl FnOnce(&Arc<Faults>),
) -> Result<(), ListenError> {
    let config = broker.config();
    let (limits, security) = (Limits::new(config)?, Security::new(config)?);
    broker.clock().watch(&waker);
    let shared = shared(
        broker,
        (limits, security, None),
        Vec::new(),
        endpoints,
        Arc::clone(&waker),
    );
    started(&shared.faults);
    let nodes = endpoints.iter().map(|endpoint| endpoint.node).collect();
    Processor::new(sockets, shared, nodes, RequestHandlerPool::new(0, 1)).run();
    Ok(())
}

/// Creates the file of the session.
fn recording(broker: &Arc<Broker>, record: &RecorderOptions, endpoints: &[Endpoint]) -> Result<Recording, ListenError> {
    // A broker that cannot say its id is closed.
    let cluster_id = broker.cluster_id().ok().flatten();
    let options = RecorderOptions {
        cluster_id: cluster_id.as_deref().unwrap_or("").to_owned(),
        ..record.clone()
    };
    let recorder = Recorder::start(&options).map_err(|source| ListenError::Record {
        path: record.path.clone(),
        source,
    })?;
    Ok(Recording::new(recorder, endpoints))
}

fn shared(
    broker: &Arc<Broker>,
    (limits, security, recording): (Limits, Security, Option<Recording>),
    config: Vec<(String, String)>,
    endpoints: &[Endpoint],
    waker: Waker,
) -> Arc<Shared> {
    let apis = Apis::new(Arc::clone(broker), endpoints.to_vec(), &limits, security);
    let of_names = Arc::clone(broker);
    // A broker that cannot say it is closed, and answers nothing.
    let names = move |id: &[u8; 16]| of_names.topic_name(*id).ok().flatten();
    let faults = Arc::new(Faults::new(broker.clock(), Arc::new(names)));
    Arc::new(Shared::new(
        apis,
        faults,
        recording,
        limits,
        config,
        Arc::new(Completions::new(waker)),
    ))
}

fn waker(poll: &mio::Poll) -> std::io::Result<Waker> {
    let waker = mio::Waker::new(poll.registry(), WAKER)?;
    Ok(Arc::new(move || {
        if let Err(error) = waker.wake() {
            log::error!("the listener's thread could not be woken: {error}");
        }
    }))
}

/// Binds the first address of `host` that can be bound.
fn bind(host: &str, port: u16) -> Result<(TcpListener, SocketAddr), ListenError> {
    let failed = |source| ListenError::Address {
        host: host.to_owned(),
        port,
        source,
    };
    let mut last = std::io::Error::other("the name has no address");
    for address in (host, port).to_socket_addrs().map_err(failed)? {
        match bind_to(address) {
            Ok(bound) => return Ok(bound),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

fn bind_to(address: SocketAddr) -> std::io::Result<(TcpListener, SocketAddr)> {
    let socket = bound(address)?;
    socket.listen(BACKLOG)?;
    let listener = TcpListener::from_std(socket.into());
    let address = listener.local_addr()?;
    Ok((listener, address))
}

fn endpoint(options: &ListenOptions, node: NodeId, nth: u16, bound: SocketAddr) -> Result<Endpoint, ListenError> {
    let (host, port) = match &options.advertised {
        Some((host, port)) => (
            host.clone(),
            port.map_or(bound.port(), |first| first.saturating_add(nth)),
        ),
        None => (options.host.clone(), bound.port()),
    };
    if host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified()) {
        return Err(ListenError::Wildcard(host));
    }
    Ok(Endpoint { node, host, port })
}
