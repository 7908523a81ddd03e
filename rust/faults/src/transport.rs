//! Rules before the transport of a client in this process.
//!
//! Requests meet the rules in the order in which they are sent. What becomes of a Produce is decided later if the broker is in this process
//! (spec 9.5.1): it is held until the client has nothing more to send. Then the oldest held one has its turn, its response is delivered, and
//! the next idle moment is awaited. So what happens is a function of configuration, calls and rules, not of timing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fletchlog_api::transport::{Heartbeat, HeartbeatPlan, Waker, node_of_connection};
use fletchlog_api::{
    Clock, Completion, ErrorCode, Failure, InProcess, LegacyGroupRequest, LegacyGroupResponse, NodeId, Ready, Request,
    Response, Transport, waiting,
};

use crate::faults::{Arrived, Exchange, Faults, Step, Then, Wait};
use crate::messages::{changed_request, chunks_of, frame_of, is_of_another_version, response_in};
use crate::plan::PlanError;

/// A client counts as idle if it will send nothing within this time: what the recordings waited for.
const SILENCE: Duration = Duration::from_millis(60);
/// A wait for time alone returns this often, so that a client's new records are not kept waiting.
const SLICE: Duration = Duration::from_millis(10);
/// The outcome of a request whose connection is lost before its turn.
const CONNECTION_LOST: &str = "connection lost";
/// The outcome of a request that the client has given up.
const CLIENT_GONE: &str = "client gone";

/// Wraps the connections of one client. A request waits while one before it on its connection is undecided: a broker answers a connection in
/// order. A request that waits when its connection is lost is not carried out.
pub struct FaultTransport {
    inner: Box<dyn Transport>,
    faults: Arc<Faults>,
    clock: Arc<dyn Clock>,
    client_id: Arc<str>,
    /// The broker is in another process: a Produce is not held until the client is idle.
    is_remote: bool,
    connections: BTreeMap<NodeId, Connection>,
    /// Number of the next request, over all connections.
    sent: u64,
    /// When the client last sent or was answered anything.
    moved_ms: i64,
    /// The last response was that of a rule, or has an error.
    after_fault: bool,
    /// The client has nothing more to send: the next wait may begin the turn of a request.
    quiescent: bool,
    /// What is called when a response can be taken, if anything.
    notify: Arc<Mutex<Option<Waker>>>,
}

#[derive(Default)]
struct Connection {
    /// Its number for the rules; 0: none yet.
    number: u64,
    /// Arrived from the client, and not begun.
    held: VecDeque<Held>,
    /// Sent to the broker, in order.
    awaited: VecDeque<Awaited>,
    /// What the first request, or its response, waits for.
    pause: Option<Pause>,
    /// For the client to read.
    answers: VecDeque<Completion>,
    /// A request on it got no response: nothing moves any more.
    stuck: bool,
    /// It is closed, and the client has not read that yet: what it sends is lost.
    closed: bool,
    /// A response asked for a pause until then (monotonic ms).
    throttled_until_ms: i64,
}

struct Held {
    sent: u64,
    correlation_id: i32,
    request: Request,
    exchange: Option<Exchange>,
    wait: Wait,
    step: Step,
    /// A Produce that waits until the client is idle.
    has_turn: bool,
}

struct Awaited {
    correlation_id: i32,
    exchange: Option<Exchange>,
    is_silent: bool,
    /// Nothing else is sent on the connection before its response.
    blocks: bool,
}

struct Pause {
    until: Until,
    has_turn: bool,
    then: Due,
}

enum Until {
    /// Monotonic ms.
    Ms(i64),
    Released(Arc<AtomicBool>),
}

enum Due {
    Carry(Box<Held>),
    Deliver(Completion),
}

impl Held {
    /// Whether a rule says what happens.
    fn has_rule(&self) -> bool {
        self.wait != Wait::No
            || !matches!(self.step, Step::Handle(_))
            || self.exchange.as_ref().is_some_and(Exchange::is_changed)
    }
}

impl Connection {
    /// Whether nothing can begin on it.
    fn is_blocked(&self) -> bool {
        self.stuck || self.pause.is_some() || self.awaited.iter().any(|awaited| awaited.blocks)
    }

    /// The first request, if it can begin without a turn.
    fn take_free(&mut self) -> Option<Held> {
        let first = self.held.front()?;
        if self.is_blocked() || first.has_turn || first.has_rule() && !self.awaited.is_empty() {
            return None;
        }
        self.held.pop_front()
    }

    /// Number of the first request, if it waits for its turn and nothing else.
    fn waits_for_turn(&self) -> Option<u64> {
        let first = self.held.front().filter(|held| held.has_turn)?;
        let is_next = self.awaited.is_empty() || !first.has_rule();
        (is_next && !self.is_blocked()).then_some(first.sent)
    }
}

impl FaultTransport {
    /// Puts rules before `inner`. `clock` must be the client's; `client_id` is what selects it.
    ///
    /// # Errors
    /// A rule is about the bytes of a socket.
    pub fn new(
        inner: Box<dyn Transport>,
        faults: Arc<Faults>,
        clock: Arc<dyn Clock>,
        client_id: &str,
    ) -> Result<Self, PlanError> {
        faults.attach()?;
        Ok(Self {
            is_remote: inner.bootstrap().iter().all(|node| *node < 0),
            inner,
            faults,
            moved_ms: clock.monotonic_ms(),
            clock,
            client_id: client_id.into(),
            connections: BTreeMap::new(),
            sent: 0,
            after_fault: false,
            quiescent: false,
            notify: Arc::default(),
        })
    }

    fn connection(&mut self, node: NodeId) -> &mut Connection {
        self.connections.entry(node).or_default()
    }

    /// What the rules say about a request that the client has just sent.
    fn decided(&mut self, node: NodeId, correlation_id: i32, request: Request) -> Held {
        self.sent += 1;
        let mut held = Held {
            sent: self.sent,
            correlation_id,
            has_turn: !self.is_remote && matches!(request, Request::Produce(_)),
            request,
            exchange: None,
            wait: Wait::No,
            step: Step::Handle(Bytes::new()),
        };
        if !self.faults.is_active() {
            return held;
        }
        let asked = node_of_connection(node);
        let faults = Arc::clone(&self.faults);
        let connection = self.connection(node);
        if connection.number == 0 {
            connection.number = faults.connected(asked).0;
        }
        let number = connection.number;
        let Some(frame) = frame_of(&held.request, self.is_remote, &self.client_id, correlation_id) else {
            return held;
        };
        if let Some(Arrived { exchange, wait, step }) = self.faults.arrived(number, asked, &frame) {
            (held.exchange, held.wait) = (Some(exchange), wait);
            held.step = match step {
                // No bytes: the request is the one that the client sent.
                Step::Handle(same) if same.as_ptr() == frame.as_ptr() => Step::Handle(Bytes::new()),
                step => step,
            };
        }
        held
    }

    /// Takes the broker's responses and passes on what is not held back, until there is nothing left to pass on.
    fn pump(&mut self) {
        let nodes: Vec<NodeId> = self.connections.keys().copied().collect();
        for node in nodes {
            loop {
                let mut moved = self.end_pause(node, false);
                while let Some(completion) = self.inner.receive(node) {
                    moved = true;
                    self.broker_answered(node, completion);
                }
                while let Some(held) = self.connection(node).take_free() {
                    moved = true;
                    self.begin(node, held);
                }
                if !moved {
                    break;
                }
            }
        }
    }

    /// Begins a request: what it waits for, then what happens to it.
    fn begin(&mut self, node: NodeId, mut held: Held) {
        let until = match std::mem::replace(&mut held.wait, Wait::No) {
            Wait::No => return self.carry_out(node, held),
            Wait::Ms(ms) => Until::Ms(self.clock.monotonic_ms().saturating_add(ms)),
            Wait::Release(rule) => {
                let released = Arc::new(AtomicBool::new(false));
                let (flag, notify) = (Arc::clone(&released), Arc::clone(&self.notify));
                let resume = move || {
                    flag.store(true, Ordering::Release);
                    let notify = notify.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    if let Some(notify) = notify {
                        notify();
                    }
                };
                self.faults.on_release(rule, Box::new(resume));
                Until::Released(released)
            }
        };
        self.connection(node).pause = Some(Pause {
            // A barrier holds its connection alone.
            has_turn: held.has_turn && matches!(until, Until::Ms(_)),
            until,
            then: Due::Carry(Box::new(held)),
        });
    }

    /// Goes on with what waited until now. That of a Produce ends only when the client is idle.
    fn end_pause(&mut self, node: NodeId, is_idle: bool) -> bool {
        let now_ms = self.clock.monotonic_ms();
        let is_over = |pause: &mut Pause| match &pause.until {
            Until::Ms(at_ms) => *at_ms <= now_ms && (is_idle || !pause.has_turn),
            Until::Released(released) => released.load(Ordering::Acquire),
        };
        let Some(pause) = self.connection(node).pause.take_if(is_over) else {
            return false;
        };
        match pause.then {
            Due::Carry(held) => self.carry_out(node, *held),
            Due::Deliver(completion) => self.connection(node).answers.push_back(completion),
        }
        true
    }

    fn carry_out(&mut self, node: NodeId, held: Held) {
        let correlation_id = held.correlation_id;
        match (held.step, held.exchange) {
            (Step::Handle(frame), exchange) => {
                let request = match frame.is_empty() {
                    true => held.request,
                    false => changed_request(held.request, &frame),
                };
                let awaited = Awaited {
                    correlation_id,
                    blocks: held.has_turn || exchange.as_ref().is_some_and(Exchange::is_changed),
                    is_silent: matches!(&request, Request::Produce(produce) if produce.acks == 0),
                    exchange,
                };
                self.connection(node).awaited.push_back(awaited);
                self.inner.send(node, correlation_id, request);
            }
            (Step::Answer(chunks), Some(exchange)) => {
                let Some(response) = response_in(&exchange.header, &chunks) else {
                    return self.close(node, correlation_id, Some(&exchange));
                };
                self.faults.answered(exchange, chunks);
                self.connection(node).answers.push_back(Completion {
                    node,
                    correlation_id,
                    result: Ok(response),
                });
            }
            (Step::Close, exchange) => self.close(node, correlation_id, exchange.as_ref()),
            (Step::Nothing | Step::Answer(_), _) => self.connection(node).stuck = true,
        }
    }

    fn broker_answered(&mut self, node: NodeId, completion: Completion) {
        let correlation_id = completion.correlation_id;
        let connection = self.connections.entry(node).or_default();
        let is_first = connection
            .awaited
            .front()
            .is_some_and(|awaited| awaited.correlation_id == correlation_id);
        let first = is_first.then(|| connection.awaited.pop_front()).flatten();
        let Some(awaited) = first else {
            connection.answers.push_back(completion);
            return;
        };
        let response = match completion.result {
            Ok(response) => response,
            Err(failure) => {
                let is_lost = !matches!(failure, Failure::UnsupportedVersion(_));
                if let Some(exchange) = &awaited.exchange {
                    self.faults.ended(exchange, "closed");
                }
                let result = Err(failure);
                connection.answers.push_back(Completion { result, ..completion });
                if is_lost {
                    self.lose(node);
                }
                return;
            }
        };
        if let Response::Metadata(metadata) = &response {
            for topic in &metadata.topics {
                if let Some(name) = &topic.name {
                    self.faults.learn(topic.topic_id, name);
                }
            }
        }
        match awaited.exchange {
            Some(exchange) => self.treat(node, correlation_id, exchange, response, awaited.is_silent),
            None => connection.answers.push_back(Completion {
                node,
                correlation_id,
                result: Ok(response),
            }),
        }
    }

    /// Does with a response what the rules decide.
    fn treat(
        &mut self,
        node: NodeId,
        correlation_id: i32,
        mut exchange: Exchange,
        response: Response,
        is_silent: bool,
    ) {
        let is_another = is_of_another_version(&response, exchange.header.api_version);
        let header = exchange.header.clone();
        let changes = exchange.changes_response() && !is_another && !is_silent;
        let now_ms = self.clock.monotonic_ms();
        if let Some(ms) = exchange.throttle_ms() {
            self.connection(node).throttled_until_ms = now_ms.saturating_add(ms);
        }
        if is_another {
            exchange = exchange.without_change();
        }
        let chunks = match is_silent || is_another {
            true => Vec::new(),
            false => chunks_of(&header, &response),
        };
        let had_bytes = !chunks.is_empty();
        let answered = self.faults.answered(exchange, chunks);
        let result = match changes && had_bytes {
            true => response_in(&header, &answered.chunks).unwrap_or(response),
            false => response,
        };
        let completion = Completion {
            node,
            correlation_id,
            result: Ok(result),
        };
        match (answered.then, answered.delay_ms) {
            (Then::Close, _) => self.close(node, correlation_id, None),
            (Then::Nothing, _) => self.connection(node).stuck = true,
            (Then::Continue, 0) => self.connection(node).answers.push_back(completion),
            (Then::Continue, ms) => {
                self.connection(node).pause = Some(Pause {
                    until: Until::Ms(now_ms.saturating_add(ms)),
                    has_turn: !self.is_remote && matches!(completion.result, Ok(Response::Produce(_))),
                    then: Due::Deliver(completion),
                });
            }
        }
    }

    /// The connection is closed: this request and everything behind it get no response.
    fn close(&mut self, node: NodeId, correlation_id: i32, exchange: Option<&Exchange>) {
        if let Some(exchange) = exchange {
            self.faults.ended(exchange, "closed");
        }
        self.connection(node).answers.push_back(Completion {
            node,
            correlation_id,
            result: Err(Failure::Disconnected),
        });
        self.lose(node);
    }

    fn lose(&mut self, node: NodeId) {
        let faults = Arc::clone(&self.faults);
        let connection = self.connection(node);
        (connection.stuck, connection.closed) = (false, true);
        let awaited = connection.awaited.drain(..);
        let awaited: Vec<_> = awaited.map(|a| (a.correlation_id, a.exchange, CLIENT_GONE)).collect();
        let paused = match connection.pause.take().map(|pause| pause.then) {
            Some(Due::Carry(held)) => Some((held.correlation_id, held.exchange, CLIENT_GONE)),
            Some(Due::Deliver(completion)) => Some((completion.correlation_id, None, CLIENT_GONE)),
            None => None,
        };
        let held = connection.held.drain(..);
        let held: Vec<_> = held.map(|h| (h.correlation_id, h.exchange, CONNECTION_LOST)).collect();
        for (correlation_id, exchange, outcome) in awaited.into_iter().chain(paused).chain(held) {
            if let Some(exchange) = exchange {
                faults.ended(&exchange, outcome);
            }
            self.connection(node).answers.push_back(Completion {
                node,
                correlation_id,
                result: Err(Failure::Disconnected),
            });
        }
    }

    /// The client knows that a connection was closed: the next request opens it again.
    fn reopen(&mut self, node: NodeId) {
        let connection = self.connection(node);
        connection.closed = false;
        let number = std::mem::take(&mut connection.number);
        self.faults.disconnected(number);
    }

    /// (number, node) of the oldest Produce that can have its turn.
    fn oldest(&self) -> Option<(u64, NodeId)> {
        let waiting = self.connections.iter();
        let waiting = waiting.filter_map(|(&node, connection)| Some((connection.waits_for_turn()?, node)));
        waiting.min()
    }

    /// How long the next request waits, so that the client is as idle as in the recordings. Some timers of the client
    /// are not visible in how long it waits: the back-off between metadata requests, and that of one partition while
    /// others keep all requests of its node in flight. They run after a fault, so a fault and the response after
    /// it come no sooner than in the recordings. Random faults are not compared with recordings and do not wait.
    fn silence_left(&self, node: NodeId) -> Option<Duration> {
        let has_rule = self.connections.get(&node)?.held.front()?.has_rule();
        if self.faults.are_random() || !has_rule && !self.after_fault {
            return None;
        }
        let since = self.clock.monotonic_ms().saturating_sub(self.moved_ms);
        let since = Duration::from_millis(u64::try_from(since).unwrap_or(0));
        SILENCE.checked_sub(since).filter(|left| !left.is_zero())
    }

    /// The turn of the first Produce of a connection.
    fn begin_turn(&mut self, node: NodeId) {
        if let Some(held) = self.connection(node).held.pop_front() {
            if let Some(exchange) = &held.exchange {
                self.faults.begin_turn(exchange);
            }
            self.begin(node, held);
        }
    }

    /// Records what a response reports to the client.
    fn note_answer(&mut self, completion: &Completion) {
        self.moved_ms = self.clock.monotonic_ms();
        self.after_fault = match &completion.result {
            Err(_) => true,
            Ok(Response::Produce(response)) => response.partitions().any(|(_, p)| p.error_code != ErrorCode::NONE),
            Ok(_) => self.after_fault,
        };
    }

    fn any_answer(&self) -> bool {
        self.connections.values().any(|c| !c.answers.is_empty())
    }

    /// When a pause for a time ends first, and whose it is; `turns`: that of a Produce in its turn.
    fn next_pause(&self, turns: bool) -> Option<(i64, NodeId)> {
        let pauses = self.connections.iter().filter_map(|(&node, connection)| {
            let pause = connection.pause.as_ref().filter(|pause| pause.has_turn == turns)?;
            match pause.until {
                Until::Ms(at_ms) => Some((at_ms, node)),
                Until::Released(_) => None,
            }
        });
        pauses.min()
    }

    fn left(&self, at_ms: i64) -> Duration {
        let left_ms = at_ms.saturating_sub(self.clock.monotonic_ms());
        Duration::from_millis(u64::try_from(left_ms).unwrap_or(0))
    }

    /// Waits at most this long, and not past the end of a pause. Returns whether anything has come.
    fn wait_inside(&mut self, timeout: Duration) -> bool {
        let mut timeout = timeout;
        if let Some((at_ms, _)) = self.next_pause(false) {
            let left = self.left(at_ms);
            waiting::at_most(left);
            timeout = timeout.min(left);
        }
        self.inner.wait(timeout)
    }

    /// Lets time pass, or begins a turn, in a client that has nothing more to send.
    fn wait_idle(&mut self, timeout: Duration) {
        if let Some((at_ms, node)) = self.next_pause(true) {
            let left = self.left(at_ms);
            if left.is_zero() {
                self.end_pause(node, true);
            } else {
                self.wait_inside(left.min(timeout).min(SLICE));
            }
        } else if let Some((_, node)) = self.oldest() {
            if timeout <= SILENCE {
                self.wait_inside(timeout.min(SLICE));
            } else if let Some(left) = self.silence_left(node) {
                self.wait_inside(left.min(SLICE));
            } else {
                self.begin_turn(node);
            }
        } else if self.connections.values().any(|c| c.stuck || c.pause.is_some()) {
            self.wait_inside(timeout.min(SLICE));
        } else {
            self.wait_inside(timeout);
        }
    }
}

impl Transport for FaultTransport {
    fn bootstrap(&self) -> Vec<NodeId> {
        self.inner.bootstrap()
    }

    fn ready(&mut self, node: NodeId) -> Ready {
        let until_ms = self.connections.get(&node).map_or(0, |c| c.throttled_until_ms);
        match until_ms.saturating_sub(self.clock.monotonic_ms()) {
            left_ms @ 1.. if until_ms > 0 => Ready::Throttled(left_ms),
            _ => self.inner.ready(node),
        }
    }

    fn address(&self, node: NodeId) -> Option<String> {
        self.inner.address(node)
    }

    fn transaction_version(&self) -> i16 {
        self.inner.transaction_version()
    }

    fn send(&mut self, node: NodeId, correlation_id: i32, request: Request) {
        let held = self.decided(node, correlation_id, request);
        self.moved_ms = self.clock.monotonic_ms();
        let connection = self.connection(node);
        connection.held.push_back(held);
        match connection.closed {
            true => self.lose(node),
            false => self.pump(),
        }
    }

    fn receive(&mut self, node: NodeId) -> Option<Completion> {
        self.pump();
        let connection = self.connections.get_mut(&node)?;
        let completion = connection.answers.pop_front()?;
        if connection.closed && completion.result.is_err() {
            self.reopen(node);
        }
        self.note_answer(&completion);
        Some(completion)
    }

    fn has_arrived(&mut self, node: NodeId) -> bool {
        self.pump();
        self.connections.get(&node).is_some_and(|c| !c.answers.is_empty())
    }

    fn wait(&mut self, timeout: Duration) -> bool {
        let quiescent = std::mem::take(&mut self.quiescent);
        self.pump();
        if self.any_answer() {
            return true;
        }
        let mut came = false;
        if self.is_remote {
            let is_paused = self.connections.values().any(|c| c.pause.is_some());
            came = self.wait_inside(if is_paused { timeout.min(SLICE) } else { timeout });
        } else if quiescent {
            self.wait_idle(timeout);
        } else {
            self.wait_inside(timeout.min(SLICE));
        }
        self.pump();
        came || self.any_answer()
    }

    /// None in the same process: there a new record does not end a wait, which could change whose turn it is.
    fn waker(&self) -> Option<Waker> {
        self.inner.waker().filter(|_| self.is_remote)
    }

    fn watch(&mut self, notify: Waker) -> Option<i32> {
        *self.notify.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&notify));
        self.inner.watch(notify)
    }

    fn disconnect(&mut self, node: NodeId) {
        self.inner.disconnect(node);
        self.lose(node);
        // The client has given these up itself.
        self.connection(node).answers.clear();
        self.reopen(node);
    }

    fn begin_heartbeats(&mut self, plan: HeartbeatPlan) {
        self.inner.begin_heartbeats(plan);
    }

    fn end_heartbeats(&mut self) -> Option<Heartbeat> {
        self.inner.end_heartbeats()
    }

    fn in_process(&mut self) -> Option<&mut dyn InProcess> {
        (!self.is_remote).then_some(self as &mut dyn InProcess)
    }
}

impl InProcess for FaultTransport {
    fn keep_alive(&mut self) {
        if let Some(peer) = self.inner.in_process() {
            peer.keep_alive();
        }
    }

    fn begin_poll(&mut self) {
        if let Some(peer) = self.inner.in_process() {
            peer.begin_poll();
        }
    }

    fn is_closed(&mut self) -> bool {
        self.inner.in_process().is_some_and(|peer| peer.is_closed())
    }

    fn quiescent(&mut self) {
        self.quiescent = true;
    }

    fn begin_drain(&mut self) -> bool {
        self.faults.begin_drain()
    }

    fn end_drain(&mut self) {
        self.faults.end_drain();
    }

    fn legacy_group(&mut self, request: &LegacyGroupRequest) -> Option<LegacyGroupResponse> {
        self.inner.in_process()?.legacy_group(request)
    }
}

impl Drop for FaultTransport {
    fn drop(&mut self) {
        let nodes: Vec<NodeId> = self.connections.keys().copied().collect();
        for node in nodes {
            self.lose(node);
            self.reopen(node);
        }
        self.faults.detach();
    }
}

#[cfg(test)]
mod tests;
