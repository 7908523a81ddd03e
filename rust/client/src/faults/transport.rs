//! The transport that holds, numbers and treats produce requests (spec 9.5.1).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fletchlog_api::{
    Clock, Completion, ErrorCode, Failure, InProcess, NodeId, ProduceRequest, ProduceResponse, Ready, Request,
    Response, Transport,
};
use fletchlog_protocol::messages::produce_response::PartitionProduceResponse;

use super::{Action, Faults};

/// A client counts as idle if it will send nothing within this time: what the recordings waited for.
const SILENCE: Duration = Duration::from_millis(60);
/// A wait for time alone returns this often, so that a client's new records are not kept waiting.
const SLICE: Duration = Duration::from_millis(10);

/// Wraps the connections of one client. Requests other than Produce are passed on at once, except behind an undecided
/// Produce of the same connection: a broker answers a connection in order.
pub struct FaultTransport {
    inner: Box<dyn Transport>,
    faults: Arc<Faults>,
    clock: Arc<dyn Clock>,
    connections: BTreeMap<NodeId, Connection>,
    /// The action whose time has not come; while it waits nothing else is treated.
    timer: Option<Timer>,
    /// When the client last sent or was answered anything.
    moved_ms: i64,
    /// The last answer was a fault, or an error of the broker.
    after_fault: bool,
    /// The client has nothing more to send: the next wait may treat a request.
    quiescent: bool,
}

#[derive(Default)]
struct Connection {
    /// Arrived from the client, not treated yet.
    held: VecDeque<Held>,
    /// For the client to read.
    answers: VecDeque<Completion>,
    /// Forwarded; what to do when the broker's answer is there.
    awaited: Option<Awaited>,
    /// A request on it was dropped: nothing moves any more.
    stuck: bool,
}

struct Held {
    correlation_id: i32,
    request: HeldRequest,
}

enum HeldRequest {
    Produce(u64, ProduceRequest),
    Other(Request),
}

struct Awaited {
    correlation_id: i32,
    number: u64,
    then: Then,
}

enum Then {
    Answer,
    /// After so many ms.
    AnswerLate(i64),
    Close,
    Stick,
    /// Answer this instead of (some of) what the broker said.
    Replace(Vec<(Arc<str>, PartitionProduceResponse)>),
}

struct Timer {
    at_ms: i64,
    node: NodeId,
    number: u64,
    then: Due,
}

enum Due {
    Treat(Action),
    Deliver(Completion),
}

impl Connection {
    /// The request at the front if it is not a Produce.
    fn take_unheld(&mut self) -> Option<(i32, Request)> {
        if matches!(self.held.front()?.request, HeldRequest::Produce(..)) {
            return None;
        }
        match self.held.pop_front()? {
            Held {
                correlation_id,
                request: HeldRequest::Other(request),
            } => Some((correlation_id, request)),
            Held { .. } => None,
        }
    }
}

fn is_among(partitions: &[(Arc<str>, PartitionProduceResponse)], topic: &Arc<str>, index: i32) -> bool {
    partitions.iter().any(|(name, p)| p.index == index && name == topic)
}

impl FaultTransport {
    /// Puts `faults` in front of `inner`. `clock` must be the producer's.
    pub fn new(inner: Box<dyn Transport>, faults: Arc<Faults>, clock: Arc<dyn Clock>) -> Self {
        let moved_ms = clock.monotonic_ms();
        Self {
            inner,
            faults,
            clock,
            connections: BTreeMap::new(),
            timer: None,
            moved_ms,
            after_fault: false,
            quiescent: false,
        }
    }

    fn connection(&mut self, node: NodeId) -> &mut Connection {
        self.connections.entry(node).or_default()
    }

    /// Takes the broker's answers and passes on what is no longer held back, until there is nothing left to pass on.
    fn pump(&mut self) {
        let nodes: Vec<NodeId> = self.connections.keys().copied().collect();
        for node in nodes {
            loop {
                let mut moved = false;
                while let Some(completion) = self.inner.receive(node) {
                    moved = true;
                    self.broker_answered(node, completion);
                }
                let connection = self.connection(node);
                let blocked = connection.stuck
                    || connection.awaited.is_some()
                    || self.timer.as_ref().is_some_and(|t| t.node == node);
                if !blocked && let Some((correlation_id, request)) = self.connection(node).take_unheld() {
                    moved = true;
                    self.inner.send(node, correlation_id, request);
                }
                if !moved {
                    break;
                }
            }
        }
    }

    fn broker_answered(&mut self, node: NodeId, completion: Completion) {
        let now = self.clock.monotonic_ms();
        let faults = self.faults.clone();
        let connection = self.connections.entry(node).or_default();
        let Some(awaited) = connection
            .awaited
            .take_if(|a| a.correlation_id == completion.correlation_id)
        else {
            connection.answers.push_back(completion);
            return;
        };
        if completion.result.is_err() {
            connection.answers.push_back(completion);
            self.lose(node);
            return;
        }
        if let (Ok(Response::Produce(response)), Then::Answer | Then::Close | Then::Stick) =
            (&completion.result, &awaited.then)
        {
            faults.answered(awaited.number, response);
        }
        match awaited.then {
            Then::Answer => connection.answers.push_back(completion),
            Then::AnswerLate(ms) => {
                self.timer = Some(Timer {
                    at_ms: now.saturating_add(ms),
                    node,
                    number: awaited.number,
                    then: Due::Deliver(completion),
                });
            }
            Then::Close => self.close(node, completion.correlation_id),
            Then::Stick => connection.stuck = true,
            Then::Replace(replaced) => {
                let mut partitions = replaced;
                if let Ok(Response::Produce(response)) = completion.result {
                    for (topic, answer) in response.partitions() {
                        if !is_among(&partitions, topic, answer.index) {
                            partitions.push((Arc::clone(topic), answer.clone()));
                        }
                    }
                }
                self.answer(
                    node,
                    awaited.number,
                    completion.correlation_id,
                    ProduceResponse::of(partitions),
                );
            }
        }
    }

    fn answer(&mut self, node: NodeId, number: u64, correlation_id: i32, response: ProduceResponse) {
        self.faults.answered(number, &response);
        let result = Ok(Response::Produce(response));
        self.connection(node).answers.push_back(Completion {
            node,
            correlation_id,
            result,
        });
    }

    /// The connection is closed: the request treated and everything behind it get no answer.
    fn close(&mut self, node: NodeId, correlation_id: i32) {
        self.connection(node).answers.push_back(Completion {
            node,
            correlation_id,
            result: Err(Failure::Disconnected),
        });
        self.lose(node);
    }

    fn lose(&mut self, node: NodeId) {
        let faults = self.faults.clone();
        let connection = self.connection(node);
        connection.stuck = false;
        for held in std::mem::take(&mut connection.held) {
            if let HeldRequest::Produce(number, _) = held.request {
                faults.lost(number);
            }
            connection.answers.push_back(Completion {
                node,
                correlation_id: held.correlation_id,
                result: Err(Failure::Disconnected),
            });
        }
    }

    /// (number, node) of the oldest produce request that can be treated.
    fn oldest(&self) -> Option<(u64, NodeId)> {
        self.connections
            .iter()
            .filter(|(_, c)| !c.stuck && c.awaited.is_none())
            .filter_map(|(&node, c)| match c.held.front()?.request {
                HeldRequest::Produce(number, _) => Some((number, node)),
                HeldRequest::Other(_) => None,
            })
            .min()
    }

    /// How long the next request waits, so that the client is as idle as in the recordings. Some timers of the client
    /// are not visible in how long it waits: the back-off between metadata requests, and that of one partition while
    /// others keep all requests of its node in flight. They run after a fault, so a scripted fault and the answer after
    /// it come no sooner than in the recordings. Seeded faults are not compared with recordings and do not wait.
    fn silence_left(&self, number: u64) -> Option<Duration> {
        if !self.faults.is_scripted() || (self.faults.action(number) == Action::Ok && !self.after_fault) {
            return None;
        }
        let since = self.clock.monotonic_ms().saturating_sub(self.moved_ms);
        let since = Duration::from_millis(u64::try_from(since).unwrap_or(0));
        SILENCE.checked_sub(since).filter(|left| !left.is_zero())
    }

    /// Records what an answer reports to the client.
    fn note_answer(&mut self, completion: &Completion) {
        self.moved_ms = self.clock.monotonic_ms();
        self.after_fault = match &completion.result {
            Err(_) => true,
            Ok(Response::Produce(response)) => response.partitions().any(|(_, p)| p.error_code != ErrorCode::NONE),
            Ok(_) => self.after_fault,
        };
    }

    fn treat(&mut self, node: NodeId, action: Option<Action>) {
        let Some(Held {
            correlation_id,
            request: HeldRequest::Produce(number, request),
        }) = self.connection(node).held.pop_front()
        else {
            return;
        };
        let action = match action {
            Some(action) => action,
            None => {
                let action = self.faults.action(number);
                self.faults.treated(number, &action);
                action
            }
        };
        match action {
            Action::Ok => self.forward(node, correlation_id, number, request, Then::Answer),
            Action::LostAck => self.forward(node, correlation_id, number, request, Then::Close),
            Action::Drop { appended: true } => self.forward(node, correlation_id, number, request, Then::Stick),
            Action::Late(ms) => self.forward(node, correlation_id, number, request, Then::AnswerLate(ms)),
            Action::Disconnect => self.close(node, correlation_id),
            Action::Drop { appended: false } => self.connection(node).stuck = true,
            Action::Wait(ms, then) => {
                let at_ms = self.clock.monotonic_ms().saturating_add(ms);
                self.timer = Some(Timer {
                    at_ms,
                    node,
                    number,
                    then: Due::Treat(*then),
                });
                self.connection(node).held.push_front(Held {
                    correlation_id,
                    request: HeldRequest::Produce(number, request),
                });
            }
            Action::Refused {
                appended,
                code,
                log_start_offset,
                partition,
            } => {
                let refusal = |index| PartitionProduceResponse {
                    log_start_offset,
                    ..PartitionProduceResponse::refused(index, code)
                };
                let refused: Vec<_> = request
                    .partitions()
                    .filter(|(_, asked)| partition.is_none_or(|p| p == asked.index))
                    .map(|(topic, asked)| (Arc::clone(topic), refusal(asked.index)))
                    .collect();
                let mut request = request;
                if !appended {
                    for topic in &mut request.topic_data {
                        let name = &topic.name;
                        topic.partition_data.retain(|p| !is_among(&refused, name, p.index));
                    }
                    request.topic_data.retain(|topic| !topic.partition_data.is_empty());
                }
                if request.topic_data.is_empty() {
                    self.answer(node, number, correlation_id, ProduceResponse::of(refused));
                } else {
                    self.forward(node, correlation_id, number, request, Then::Replace(refused));
                }
            }
        }
    }

    fn forward(&mut self, node: NodeId, correlation_id: i32, number: u64, request: ProduceRequest, then: Then) {
        self.connection(node).awaited = Some(Awaited {
            correlation_id,
            number,
            then,
        });
        self.inner.send(node, correlation_id, Request::Produce(request));
    }

    /// Does what was put off until now.
    fn fire(&mut self) {
        let Some(timer) = self.timer.take() else { return };
        match timer.then {
            Due::Treat(action) => {
                let is_front =
                    self.connection(timer.node).held.front().is_some_and(
                        |h| matches!(h.request, HeldRequest::Produce(number, _) if number == timer.number),
                    );
                if is_front {
                    self.treat(timer.node, Some(action));
                }
            }
            Due::Deliver(completion) => {
                if let Ok(Response::Produce(response)) = &completion.result {
                    self.faults.answered(timer.number, response);
                }
                self.connection(timer.node).answers.push_back(completion);
            }
        }
    }

    fn any_answer(&self) -> bool {
        self.connections.values().any(|c| !c.answers.is_empty())
    }
}

impl Transport for FaultTransport {
    fn bootstrap(&self) -> Vec<NodeId> {
        self.inner.bootstrap()
    }

    fn ready(&mut self, node: NodeId) -> Ready {
        self.inner.ready(node)
    }

    fn transaction_version(&self) -> i16 {
        self.inner.transaction_version()
    }

    fn send(&mut self, node: NodeId, correlation_id: i32, request: Request) {
        let request = match request {
            Request::Produce(request) => HeldRequest::Produce(self.faults.arrived(node, &request), request),
            other => HeldRequest::Other(other),
        };
        self.moved_ms = self.clock.monotonic_ms();
        self.connection(node).held.push_back(Held {
            correlation_id,
            request,
        });
        self.pump();
    }

    fn receive(&mut self, node: NodeId) -> Option<Completion> {
        self.pump();
        let completion = self.connections.get_mut(&node)?.answers.pop_front()?;
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
        if !quiescent {
            self.inner.wait(timeout.min(SLICE));
        } else if let Some(timer) = &self.timer {
            let left = timer.at_ms.saturating_sub(self.clock.monotonic_ms());
            if let Ok(left @ 1..) = u64::try_from(left) {
                self.inner.wait(Duration::from_millis(left).min(timeout).min(SLICE));
            } else {
                self.fire();
            }
        } else if let Some((number, node)) = self.oldest() {
            if timeout <= SILENCE {
                self.inner.wait(timeout.min(SLICE));
            } else if let Some(left) = self.silence_left(number) {
                self.inner.wait(left.min(SLICE));
            } else {
                self.treat(node, None);
            }
        } else if self.connections.values().any(|c| c.stuck) {
            self.inner.wait(timeout.min(SLICE));
        } else {
            self.inner.wait(timeout);
        }
        self.pump();
        self.any_answer()
    }

    fn disconnect(&mut self, node: NodeId) {
        self.inner.disconnect(node);
        self.timer.take_if(|t| t.node == node);
        self.lose(node);
        let connection = self.connection(node);
        connection.awaited = None;
        // The client has given these up itself.
        connection.answers.clear();
    }

    fn in_process(&mut self) -> Option<&mut dyn InProcess> {
        Some(self)
    }
}

impl InProcess for FaultTransport {
    fn keep_alive(&mut self) {
        if let Some(peer) = self.inner.in_process() {
            peer.keep_alive();
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
}
