//! The interface between clients and broker: a request value goes in, a completion comes out.

use std::sync::Arc;
use std::time::Duration;

use crate::ErrorCode;
use fletchlog_protocol::messages::ConsumerGroupHeartbeatResponse;

use crate::{LegacyGroupRequest, LegacyGroupResponse, Request, Response, SettableClock};

/// A broker node's id. A client has a separate connection to its group coordinator, numbered [`coordinator_connection`] as Kafka's Java
/// client does.
pub type NodeId = i32;

/// Connection id of the coordinator that lives on `node` (Kafka: `Integer.MAX_VALUE - node.id`).
pub fn coordinator_connection(node: NodeId) -> NodeId {
    i32::MAX - node
}

/// The node behind a connection id.
pub fn node_of_connection(connection: NodeId) -> NodeId {
    if connection > i32::MAX / 2 {
        i32::MAX - connection
    } else {
        connection
    }
}

/// Why a request gets no response. All but [`Failure::UnsupportedVersion`] end its connection. Kafka: `ChannelState`,
/// `ClientResponse#versionMismatch`, `#authenticationException`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The node closed the connection, or it broke.
    #[error("the connection was closed before the answer came")]
    Disconnected,
    /// No response within request.timeout.ms.
    #[error("no answer came within request.timeout.ms")]
    TimedOut,
    /// There was no connection to the node: no such host, refused, not open within
    /// socket.connection.setup.timeout.ms.
    #[error("no connection to the node: {0}")]
    NotConnected(Arc<str>),
    /// TLS could not be set up: one side does not accept the other's certificate, or does not speak TLS. A retry is useless. Kafka:
    /// `SslAuthenticationException`.
    #[error("{0}")]
    SslAuthentication(Arc<str>),
    /// The node refused the credentials. A retry is useless. Kafka: `SaslAuthenticationException`.
    #[error("{0}")]
    SaslAuthentication(Arc<str>),
    /// The node serves no version of this request that can carry it. A retry is useless.
    #[error("not supported by the node: {0}")]
    UnsupportedVersion(Arc<str>),
    /// The node is another one than the client meant, or of another cluster. Kafka: REBOOTSTRAP_REQUIRED in ApiVersions (KIP-1242).
    #[error("at this address is another node, or another cluster (REBOOTSTRAP_REQUIRED)")]
    RebootstrapRequired,
    /// The response cannot be decoded.
    #[error("an answer that cannot be read: {0}")]
    Malformed(Arc<str>),
}

/// Whether a request can be sent on a connection now. Kafka: `ConnectionState`, `NetworkClient#ready`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ready {
    /// Yes.
    Yes,
    /// It is being opened: connecting, TLS, authentication, versions. [`Transport::wait`] ends when that changes.
    Connecting,
    /// It is open, but its node asked for a pause, which lasts this many ms more (KIP-219).
    Throttled(i64),
    /// It could not be opened, or was lost while no request was outstanding. Reported once: the next call starts another
    /// attempt, so the client waits for its back-off (reconnect.backoff.ms) before it calls again.
    Failed(Failure),
}

/// The response to one request. A lost connection completes every request outstanding on it, oldest first.
#[derive(Debug)]
pub struct Completion {
    /// Connection (node) it belongs to.
    pub node: NodeId,
    /// The number given to `send`.
    pub correlation_id: i32,
    /// The response, or why there is none.
    pub result: Result<Response, Failure>,
}

/// Ends the wait of another thread: see [`Transport::waker`].
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// One client's connections, which behave like sockets. Requests of one connection are handled and answered in order.
pub trait Transport: Send {
    /// The nodes to ask before the first Metadata response, in the order in which they were given. Never empty. Kafka:
    /// `Metadata#bootstrap`.
    fn bootstrap(&self) -> Vec<NodeId>;
    /// Whether a request can be sent on a connection. Opens the connection if it is not open; never waits. In the same process there is
    /// nothing to open.
    fn ready(&mut self, node: NodeId) -> Ready {
        let _ = node;
        Ready::Yes
    }
    /// Puts one request on the wire of a connection that is [`Ready::Yes`].
    fn send(&mut self, node: NodeId, correlation_id: i32, request: Request);
    /// Takes the oldest completion of that connection which has arrived; never waits.
    fn receive(&mut self, node: NodeId) -> Option<Completion>;
    /// True if `receive(node)` would return something now; never waits.
    fn has_arrived(&mut self, node: NodeId) -> bool;
    /// Waits until a response has arrived on any connection, or a connection that [`Transport::ready`] is opening is ready or has failed;
    /// at most `timeout`. Returns true if that happened.
    fn wait(&mut self, timeout: Duration) -> bool;
    /// The address of a node, for messages; `None`: it is in this process, or not known.
    fn address(&self, node: NodeId) -> Option<String> {
        let _ = node;
        None
    }
    /// The level of the feature transaction.version, as the newest ApiVersions response of a node reports it; 0 before the first one. Kafka:
    /// `ApiVersions#getFinalizedFeaturesInfo`.
    fn transaction_version(&self) -> i16 {
        0
    }
    /// A function with which another thread ends the current or next [`Transport::wait`] early. Without one, clients check every 50 ms.
    fn waker(&self) -> Option<Waker> {
        None
    }
    /// For a client whose owner has no thread that waits: from now on `notify` is called, by any thread, when a [`Transport::wait`] would end
    /// early. It must not block. A transport over sockets returns a file descriptor instead, which is readable then.
    fn watch(&mut self, notify: Waker) -> Option<i32> {
        let _ = notify;
        None
    }
    /// The client gives up every request outstanding on a connection (a request time-out) and will open it again. Responses that still
    /// arrive for them are ignored by correlation id.
    fn disconnect(&mut self, node: NodeId) {
        let _ = node;
    }
    /// A poll ends, and the client is a member of a group: from now on the transport sends its heartbeats. In the same process
    /// [`InProcess::keep_alive`] does.
    fn begin_heartbeats(&mut self, plan: HeartbeatPlan) {
        let _ = plan;
    }
    /// A poll begins: the client sends its own heartbeats. Returns the last heartbeat that was answered meanwhile, if any.
    fn end_heartbeats(&mut self) -> Option<Heartbeat> {
        None
    }
    /// The other side, if it is in this process.
    fn in_process(&mut self) -> Option<&mut dyn InProcess> {
        None
    }
}

/// What keeps a member in its group between two polls. Times are monotonic ms. Kafka: `Heartbeat`, `AbstractCoordinator.HeartbeatThread`.
#[derive(Debug, Clone)]
pub struct HeartbeatPlan {
    /// group.id.
    pub group_id: Arc<str>,
    /// The heartbeat: Heartbeat, or ConsumerGroupHeartbeat, whose epoch is that of the last response.
    pub request: Request,
    /// The request that leaves the group; `None`: the member only stops its heartbeats.
    pub leave: Option<Request>,
    /// When the first one is due.
    pub next_ms: i64,
    /// heartbeat.interval.ms.
    pub interval_ms: i64,
    /// retry.backoff.ms: the wait after a heartbeat without a response.
    pub retry_backoff_ms: i64,
    /// When max.poll.interval.ms has passed since the last poll: the member leaves the group.
    pub leave_at_ms: i64,
}

/// A heartbeat that was sent for a member.
#[derive(Debug, Clone, PartialEq)]
pub struct Heartbeat {
    /// When, monotonic ms.
    pub sent_ms: i64,
    /// The error code in the coordinator's response; COORDINATOR_NOT_AVAILABLE: there was none.
    pub error: ErrorCode,
    /// The last response of a consumer group with an assignment, else the last one.
    pub response: Option<ConsumerGroupHeartbeatResponse>,
}

/// What only a peer in the same process can do for its client; a transport over sockets has no such peer. A response that the peer can give
/// at once has arrived when `send` returns.
pub trait InProcess {
    /// Reports to the cluster that this client is alive, in place of a heartbeat thread; cheap.
    fn keep_alive(&mut self) {}
    /// A poll begins. A fetch that waits only because there is nothing to read is answered now, so that the order of polls does not depend
    /// on the time between two of them.
    fn begin_poll(&mut self) {}
    /// A producer is about to check for records to send. False: it must not send yet (a test collects records). When true, the producer
    /// calls [`InProcess::end_drain`] after it has sent what it found.
    fn begin_drain(&mut self) -> bool {
        true
    }
    /// The records found since [`InProcess::begin_drain`] are sent.
    fn end_drain(&mut self) {}
    /// The client has nothing more to send before its next [`Transport::wait`] ends. Scripted faults act only then
    /// (spec 9.5.1).
    fn quiescent(&mut self) {}
    /// True once the broker was closed: no request gets a response any more.
    fn is_closed(&mut self) -> bool {
        false
    }
    /// One operation on the registry of a legacy group, for which Kafka has no request; `None` if there is no registry.
    fn legacy_group(&mut self, request: &LegacyGroupRequest) -> Option<LegacyGroupResponse> {
        let _ = request;
        None
    }
}

/// Time. Wall clock in ms since the epoch and a monotonic ms clock; virtual in simulations.
pub trait Clock: Send + Sync {
    /// Wall clock, ms since the epoch.
    fn now_ms(&self) -> i64;
    /// Monotonic ms since some start.
    fn monotonic_ms(&self) -> i64;
    /// Monotonic ms of the machine, which no test sets: for the time-outs of sockets and of clients in this process.
    fn machine_ms(&self) -> i64 {
        self.monotonic_ms()
    }
    /// How long a thread has to sleep until [`Clock::monotonic_ms`] is `deadline_ms`; 0 when it has passed. `None`: until the clock is
    /// set, because it is stopped.
    fn until(&self, deadline_ms: i64) -> Option<Duration> {
        let left_ms = deadline_ms.saturating_sub(self.monotonic_ms());
        Some(Duration::from_millis(u64::try_from(left_ms).unwrap_or(0)))
    }
    /// Calls `notify` after the clock was set, stopped or started, in the thread that did it, as long as `notify` has another owner. It
    /// must not block. A thread that sleeps for the time of [`Clock::until`] has to be woken then.
    fn watch(&self, notify: &Waker) {
        let _ = notify;
    }
    /// This clock, if it can be set.
    fn settable(&self) -> Option<&SettableClock> {
        None
    }
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self {
            start: std::time::Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
    }
    fn monotonic_ms(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

/// The machine's time in us, which never goes back: the wall clock at its start, and the monotonic clock from there on. For the record of
/// what happened on connections.
#[derive(Debug, Clone, Copy)]
pub struct MicrosClock {
    start: std::time::Instant,
    start_us: i64,
}

impl Default for MicrosClock {
    fn default() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            start: std::time::Instant::now(),
            start_us: since.map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX)),
        }
    }
}

impl MicrosClock {
    /// Us since the epoch.
    pub fn now_us(&self) -> i64 {
        let passed = i64::try_from(self.start.elapsed().as_micros()).unwrap_or(i64::MAX);
        self.start_us.saturating_add(passed)
    }
}
