//! A client's connections over sockets. Kafka: `NetworkClient`, `Selector`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fletchlog_api::transport::{Heartbeat, HeartbeatPlan, Waker};
use fletchlog_api::{Clock, Completion, Config, ConfigError, Failure, NodeId, Ready, Request, Response, Transport};
use fletchlog_records::planted;

use crate::address_book::{Address, AddressBook};
use crate::channel::{Channel, SetUp};
use crate::heartbeat_thread::HeartbeatThread;
use crate::sasl::TokenSource;
use crate::security::Security;
use crate::sockets::{SocketEvent, Sockets, SystemSockets};
use crate::versions::FinalizedFeatures;

/// After this many connections that ended in the TLS handshake before the first response, the failure is final: it is no restart of a node.
const TLS_REFUSALS: u32 = 3;
/// The same without TLS: a connection that ends at the first request is weaker evidence, as nodes that restart one after another do that,
/// too.
const PLAIN_REFUSALS: u32 = 5;

/// The client.id of a client that sets none.
const NAMELESS: &str = "fletchlog";

/// How a client connects. Times in ms.
#[derive(Debug, Clone)]
pub struct ConnectionSettings {
    /// bootstrap.servers.
    pub bootstrap: Vec<Address>,
    /// client.id, in the header of every request.
    pub client_id: Arc<str>,
    /// request.timeout.ms: how long a node may take to report which versions it serves.
    pub request_timeout_ms: i64,
    /// socket.connection.setup.timeout.ms: how long one address may take; doubles with every failure of the node.
    pub setup_timeout_ms: i64,
    /// socket.connection.setup.timeout.max.ms.
    pub setup_timeout_max_ms: i64,
    /// metadata.cluster.check.enable: brokers are asked whether they are the node and the cluster that the client means.
    pub checks_cluster: bool,
    /// security.protocol and what belongs to it.
    pub(crate) security: Arc<Security>,
}

impl ConnectionSettings {
    /// The settings in the properties of a consumer or a producer. Reads the files that they name. `tokens`: for OAUTHBEARER.
    ///
    /// # Errors
    /// A file cannot be read, or the security properties contradict each other.
    pub fn new(
        config: &Config,
        bootstrap: Vec<Address>,
        tokens: Option<Arc<dyn TokenSource>>,
    ) -> Result<Self, ConfigError> {
        let client_id = config.text("client.id");
        Ok(Self {
            bootstrap,
            client_id: if client_id.is_empty() { NAMELESS } else { client_id }.into(),
            request_timeout_ms: i64::from(config.int("request.timeout.ms")),
            setup_timeout_ms: config.long("socket.connection.setup.timeout.ms"),
            setup_timeout_max_ms: config.long("socket.connection.setup.timeout.max.ms"),
            // A client that never begins anew could do nothing about the answer.
            checks_cluster: config.boolean("metadata.cluster.check.enable")
                && config.text("metadata.recovery.strategy") == "rebootstrap",
            security: Arc::new(Security::new(config, tokens)?),
        })
    }

    /// Kafka: `ClusterConnectionStates#connecting`; without the jitter, which spreads many clients of one broker.
    fn set_up(&self, failures: u32) -> SetUp {
        let doubled = self
            .setup_timeout_ms
            .saturating_mul(1_i64.checked_shl(failures.min(30)).unwrap_or(1));
        SetUp {
            connect_ms: doubled.min(self.setup_timeout_max_ms.max(self.setup_timeout_ms)),
            handshake_ms: self.request_timeout_ms,
        }
    }
}

/// The connections of one client to a cluster. Everything happens in the calling thread. Sockets never block it; only the system's name
/// resolver may, which a call that must not sleep asks in a thread.
///
/// A request that is sent while its connection is being opened waits for it.
pub struct TcpTransport<S: Sockets = SystemSockets> {
    settings: ConnectionSettings,
    clock: Arc<dyn Clock>,
    sockets: S,
    events: Vec<SocketEvent>,
    woken: Arc<AtomicBool>,
    book: AddressBook,
    channels: BTreeMap<NodeId, Channel<S>>,
    /// The node whose events have this token.
    tokens: BTreeMap<usize, NodeId>,
    next_token: usize,
    arrived: Arrived,
    /// Nodes whose names are being looked up, each with the requests that wait for it.
    resolving: BTreeMap<NodeId, Vec<(i32, Request)>>,
    /// Failures that `ready` still has to report.
    failed: BTreeMap<NodeId, Failure>,
    /// Failures in a row, per connection.
    failures: BTreeMap<NodeId, u32>,
    /// Number of connections that ended before the first response.
    refusals: u32,
    features: FinalizedFeatures,
    /// A connection is ready or has failed since the last wait.
    changed: bool,
    /// Runs once the client is a member of a group.
    heartbeats: Option<HeartbeatThread>,
    /// No thread could be started for them: reported once.
    lacks_heartbeats: bool,
    /// The last attempt to watch the sockets failed.
    is_unwatched: bool,
}

impl TcpTransport {
    /// Over the system's sockets. Opens nothing yet.
    ///
    /// # Errors
    /// The system cannot provide a selector (too few descriptors).
    pub fn new(settings: ConnectionSettings, clock: Arc<dyn Clock>) -> std::io::Result<Self> {
        Ok(Self::over(SystemSockets::new()?, settings, clock))
    }
}

impl<S: Sockets> TcpTransport<S> {
    /// Over these sockets. Opens nothing yet.
    pub fn over(sockets: S, settings: ConnectionSettings, clock: Arc<dyn Clock>) -> Self {
        Self {
            book: AddressBook::new(settings.bootstrap.clone()),
            settings,
            clock,
            sockets,
            events: Vec::new(),
            woken: Arc::default(),
            channels: BTreeMap::new(),
            tokens: BTreeMap::new(),
            next_token: 1,
            arrived: Arrived::default(),
            resolving: BTreeMap::new(),
            failed: BTreeMap::new(),
            failures: BTreeMap::new(),
            refusals: 0,
            features: FinalizedFeatures::default(),
            changed: false,
            heartbeats: None,
            lacks_heartbeats: false,
            is_unwatched: false,
        }
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// Begins to connect, or to look up the node's name first.
    fn open(&mut self, node: NodeId) -> Result<(), Failure> {
        let Some(address) = self.book.address_of(node) else {
            return Err(Failure::NotConnected(
                format!("no address of node {node} is known").into(),
            ));
        };
        let Some(resolved) = self.sockets.try_resolve(&address.host, address.port) else {
            self.resolving.entry(node).or_default();
            return Ok(());
        };
        let token = self.next_token;
        self.next_token += 1;
        let set_up = self.settings.set_up(self.failures.get(&node).copied().unwrap_or(0));
        let now_ms = self.clock.monotonic_ms();
        let destination = self.book.destination_of(node);
        let opened = Channel::open(
            (address, destination.filter(|_| self.settings.checks_cluster)),
            resolved,
            &self.settings,
            &mut self.sockets,
            token,
            set_up,
            now_ms,
        );
        let channel = opened.inspect_err(|failure| report_failure(&mut self.failures, node, failure))?;
        self.tokens.insert(token, node);
        self.channels.insert(node, channel);
        Ok(())
    }

    /// Opens the connections whose names are known by now.
    fn open_resolved(&mut self) {
        for (node, held) in std::mem::take(&mut self.resolving) {
            match self.open(node) {
                Ok(()) => held.into_iter().for_each(|(id, request)| self.put(node, id, request)),
                Err(failure) => {
                    self.changed = true;
                    if held.is_empty() {
                        self.failed.insert(node, failure.clone());
                    }
                    for (id, _) in held {
                        self.arrived.put(node, id, Err(failure.clone()));
                    }
                }
            }
        }
    }

    /// A connection is lost: its outstanding requests fail with the reason; if there are none, `ready` reports it.
    fn close(&mut self, node: NodeId, failure: Failure) {
        let Some(mut channel) = self.channels.remove(&node) else {
            return;
        };
        self.tokens.remove(&channel.token());
        let failure = self.refused(&channel, failure);
        channel.shut(&mut self.sockets);
        if channel.connection.was_ready() {
            log::debug!(
                "the connection to node {node} ({}) is closed: {failure}",
                channel.address()
            );
        } else {
            report_failure(&mut self.failures, node, &failure);
        }
        take_answers(&mut channel, node, &mut self.arrived, 0);
        let lost = channel.connection.close();
        if lost.is_empty() {
            self.failed.insert(node, failure.clone());
        }
        for id in lost
            .into_iter()
            .filter(|_| !planted!("lost-connection-loses-its-requests"))
        {
            self.arrived.put(node, id, Err(failure.clone()));
        }
        self.changed = true;
    }

    /// Makes the failure final when a node ends connection after connection before the first response: it refuses the client without an
    /// error. Kafka's clients retry for ever.
    fn refused(&mut self, channel: &Channel<S>, failure: Failure) -> Failure {
        let means_tls = matches!(failure, Failure::NotConnected(_)) && channel.is_in_tls();
        let means_sasl = failure == Failure::Disconnected && self.settings.security.sasl.is_none();
        if self.arrived.was_answered || !(means_tls || means_sasl && channel.connection.is_ready()) {
            return failure;
        }
        self.refusals += 1;
        let most = if means_tls { TLS_REFUSALS } else { PLAIN_REFUSALS };
        match &failure {
            _ if self.refusals < most => failure,
            Failure::NotConnected(why) => Failure::SslAuthentication(Arc::clone(why)),
            _ => {
                let address = channel.address();
                let why = format!(
                    "{address}: it closed the connection at the first request; it may expect SASL (security.protocol)"
                );
                Failure::SaslAuthentication(why.into())
            }
        }
    }

    /// One turn of the selector, at most `timeout` long: what can be read is read, what can be written is written.
    fn turn(&mut self, timeout: Duration) {
        let mut events = std::mem::take(&mut self.events);
        let waited = self.sockets.wait(timeout, &mut events);
        let was_unwatched = std::mem::replace(&mut self.is_unwatched, waited.is_err());
        if let Err(error) = waited {
            if !was_unwatched {
                log::error!("sockets cannot be watched: {error}");
            }
            return;
        }
        for event in events.drain(..) {
            // A channel that an earlier event closed has no token any more.
            if let Some(&node) = self.tokens.get(&event.token) {
                self.on_event(node, event.may_have_ended);
            }
        }
        self.events = events;
        if !self.resolving.is_empty() {
            self.open_resolved();
        }
        self.give_tokens();
        let now_ms = self.clock.monotonic_ms();
        let late = |channel: &Channel<S>| channel.deadline_ms().is_some_and(|deadline| deadline <= now_ms);
        let late: Vec<NodeId> = self
            .channels
            .iter()
            .filter(|(_, c)| late(c))
            .map(|(&node, _)| node)
            .collect();
        for node in late {
            let Some(channel) = self.channels.get_mut(&node) else {
                continue;
            };
            let outcome = channel.on_deadline(&mut self.sockets, now_ms);
            take_answers(channel, node, &mut self.arrived, now_ms);
            if let Err(failure) = outcome {
                self.close(node, failure);
            }
        }
    }

    /// Gives the token, if it has arrived, to the connections that wait for it.
    fn give_tokens(&mut self) {
        let Some(tokens) = self.settings.security.sasl.as_ref().and_then(|sasl| sasl.tokens()) else {
            return;
        };
        let waiting = self.channels.iter().filter(|(_, c)| c.connection.wants_token());
        let waiting: Vec<NodeId> = waiting.map(|(&node, _)| node).collect();
        if waiting.is_empty() {
            return;
        }
        let waker = self.sockets.waker();
        let token = tokens.get(&self.clock, move || waker());
        let Some(token) = token else {
            return;
        };
        for node in waiting {
            let Some(channel) = self.channels.get_mut(&node) else {
                continue;
            };
            if let Err(failure) = channel.give_token(token.clone()) {
                self.close(node, failure);
            }
        }
    }

    fn on_event(&mut self, node: NodeId, may_have_ended: bool) {
        let now_ms = self.clock.monotonic_ms();
        let Some(channel) = self.channels.get_mut(&node) else {
            return;
        };
        let was_ready = channel.connection.is_ready();
        let outcome = channel.on_event(may_have_ended, &mut self.sockets, &mut self.book, now_ms);
        if channel.connection.is_ready() && !was_ready {
            self.changed = true;
            self.features.update(channel.connection.features());
            if self.failures.remove(&node).is_some() {
                log::info!("node {node} ({}) is connected again", channel.address());
            }
        }
        take_answers(channel, node, &mut self.arrived, now_ms);
        if let Err(failure) = outcome {
            self.close(node, failure);
        }
    }

    /// Sends a request, and opens the connection first if necessary.
    fn put(&mut self, node: NodeId, id: i32, request: Request) {
        if let Some(held) = self.resolving.get_mut(&node) {
            held.push((id, request));
            return;
        }
        if !self.channels.contains_key(&node)
            && let Err(failure) = self.open(node)
        {
            self.arrived.put(node, id, Err(failure));
            return;
        }
        let Some(channel) = self.channels.get_mut(&node) else {
            self.resolving.entry(node).or_default().push((id, request));
            return;
        };
        let now_ms = self.clock.monotonic_ms();
        let begun = channel.go_on(now_ms);
        channel.connection.send(id, request);
        let outcome = begun.and_then(|()| channel.write());
        take_answers(channel, node, &mut self.arrived, now_ms);
        if let Err(failure) = outcome {
            self.close(node, failure);
        }
    }
}

/// Responses that the client has not taken yet.
#[derive(Default)]
struct Arrived {
    completions: BTreeMap<NodeId, VecDeque<Completion>>,
    /// Some node has responded, so the settings are right.
    was_answered: bool,
}

impl Arrived {
    fn put(&mut self, node: NodeId, id: i32, result: Result<Response, Failure>) {
        self.was_answered |= result.is_ok();
        self.completions.entry(node).or_default().push_back(Completion {
            node,
            correlation_id: id,
            result,
        });
    }

    fn has(&self, node: NodeId) -> bool {
        self.completions.get(&node).is_some_and(|answers| !answers.is_empty())
    }

    fn is_empty(&self) -> bool {
        self.completions.values().all(VecDeque::is_empty)
    }
}

/// Counts the failure, and warns of the first one of a node: until the node is connected again, the others are repetitions.
fn report_failure(failures: &mut BTreeMap<NodeId, u32>, node: NodeId, failure: &Failure) {
    let count = failures.entry(node).or_default();
    let level = if *count > 0 {
        log::Level::Debug
    } else {
        log::Level::Warn
    };
    *count = count.saturating_add(1);
    log::log!(level, "node {node}: {failure}");
}

/// Moves responses to where the client takes them, and begins the pause that a response asks for.
fn take_answers<S: Sockets>(channel: &mut Channel<S>, node: NodeId, arrived: &mut Arrived, now_ms: i64) {
    while let Some(answer) = channel.connection.take_answer() {
        channel.pause(answer.throttle_ms, now_ms);
        arrived.put(node, answer.id, answer.result);
    }
}

impl<S: Sockets> Transport for TcpTransport<S> {
    fn bootstrap(&self) -> Vec<NodeId> {
        self.book.bootstrap_ids()
    }

    fn ready(&mut self, node: NodeId) -> Ready {
        self.turn(Duration::ZERO);
        if let Some(failure) = self.failed.remove(&node) {
            return Ready::Failed(failure);
        }
        if self.resolving.contains_key(&node) {
            return Ready::Connecting;
        }
        let Some(channel) = self.channels.get(&node) else {
            return match self.open(node) {
                Ok(()) => Ready::Connecting,
                Err(failure) => Ready::Failed(failure),
            };
        };
        if !channel.connection.is_ready() {
            return Ready::Connecting;
        }
        match channel.paused_ms(self.clock.monotonic_ms()) {
            ms if ms > 0 => Ready::Throttled(ms),
            _ => Ready::Yes,
        }
    }

    fn send(&mut self, node: NodeId, correlation_id: i32, request: Request) {
        self.put(node, correlation_id, request);
    }

    fn receive(&mut self, node: NodeId) -> Option<Completion> {
        self.has_arrived(node);
        self.arrived.completions.get_mut(&node)?.pop_front()
    }

    fn has_arrived(&mut self, node: NodeId) -> bool {
        if !self.arrived.has(node) {
            self.turn(Duration::ZERO);
        }
        self.arrived.has(node)
    }

    fn wait(&mut self, timeout: Duration) -> bool {
        let ms = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
        let until_ms = self.clock.monotonic_ms().saturating_add(ms);
        let mut left = Duration::ZERO;
        loop {
            self.turn(left);
            if std::mem::take(&mut self.changed) || !self.arrived.is_empty() {
                return true;
            }
            let now_ms = self.clock.monotonic_ms();
            if self.woken.swap(false, Ordering::AcqRel) || now_ms >= until_ms {
                return false;
            }
            let deadlines = self.channels.values().filter_map(Channel::deadline_ms);
            let next_ms = deadlines.chain([until_ms]).min().unwrap_or(until_ms);
            left = Duration::from_millis(u64::try_from(next_ms.saturating_sub(now_ms)).unwrap_or(0).max(1));
        }
    }

    fn address(&self, node: NodeId) -> Option<String> {
        self.book.address_of(node).map(ToString::to_string)
    }

    fn transaction_version(&self) -> i16 {
        self.features.transaction_version
    }

    fn waker(&self) -> Option<Waker> {
        let (woken, waker) = (Arc::clone(&self.woken), self.sockets.waker());
        Some(Arc::new(move || {
            woken.store(true, Ordering::Release);
            waker();
        }))
    }

    fn watch(&mut self, _notify: Waker) -> Option<i32> {
        self.sockets.descriptor()
    }

    fn begin_heartbeats(&mut self, plan: HeartbeatPlan) {
        if self.heartbeats.is_none() {
            let mut settings = self.settings.clone();
            settings.bootstrap.splice(0..0, self.book.brokers().cloned());
            let sockets = self.sockets.for_heartbeats();
            let start =
                |sockets| HeartbeatThread::start(TcpTransport::over(sockets, settings, Arc::clone(&self.clock)));
            match sockets.and_then(|sockets| sockets.map(start).transpose()) {
                Ok(thread) => self.heartbeats = thread,
                Err(error) if !std::mem::replace(&mut self.lacks_heartbeats, true) => {
                    log::error!("no thread keeps the member in its group between two polls: {error}");
                }
                Err(_) => {}
            }
        }
        if let Some(thread) = &self.heartbeats {
            thread.begin(plan);
        }
    }

    fn end_heartbeats(&mut self) -> Option<Heartbeat> {
        self.heartbeats.as_ref()?.end()
    }

    fn disconnect(&mut self, node: NodeId) {
        self.arrived.completions.remove(&node);
        self.failed.remove(&node);
        self.resolving.remove(&node);
        if let Some(mut channel) = self.channels.remove(&node) {
            self.tokens.remove(&channel.token());
            channel.shut(&mut self.sockets);
        }
    }
}

impl<S: Sockets> std::fmt::Debug for TcpTransport<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpTransport")
            .field("bootstrap", &self.settings.bootstrap)
            .field("connections", &self.channels.keys())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
