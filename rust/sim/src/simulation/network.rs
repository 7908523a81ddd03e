//! The network between clients and broker: requests and responses are delayed, are lost with their connection, arrive twice, and reach
//! nodes that are paused or down. Order is kept within one connection, as in TCP.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use fletchlog_api::transport::{coordinator_connection, node_of_connection};
use fletchlog_api::{Completion, Failure, FetchResponse, InProcess, NodeId, Request, Response, Transport};
use fletchlog_broker::{Broker, Feature, LocalTransport};
use fletchlog_faults::Faults as ListenerFaults;
use fletchlog_protocol::ApiKey;
use fletchlog_records::{BatchIter, TopicPartition};

use super::members::Members;
use super::memory::{Batch, Memory, batches_of};
use super::plan::Plan;
use super::port::{Asked, Connection, Fate, Port, Underway};
use super::recorder::Moment;
use super::scheduler::{ActorId, Scheduler};
use super::share_tap::{SharedTap, tap};
use super::sockets::Pipes;
use crate::rng::Rng;
use crate::share_history::ShareHistory;

/// How often the broker is checked for responses to waiting requests, ms.
const LOOK_MS: i64 = 20;

/// How often each fault happens in a thousand messages, and how long messages take.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    /// The connection is closed before the request is handled.
    pub close_before: usize,
    /// The request is handled, but the connection is closed instead of a response.
    pub close_after: usize,
    /// Nothing arrives on the connection until the client closes it.
    pub silence: usize,
    /// A batch arrives a second time.
    pub twice: usize,
    /// A message takes a long time.
    pub slow: usize,
    /// Usual longest time of a message, ms.
    pub latency_ms: usize,
}

pub(super) struct Net {
    me: Weak<Mutex<Net>>,
    scheduler: Arc<Scheduler>,
    rng: Rng,
    /// The broker's nodes are 1 to this number.
    pub nodes: NodeId,
    pub faults: Faults,
    pub members: Members,
    /// The connections, in a run over sockets.
    pub pipes: Pipes,
    /// The rules for faults of the listener, in a run over sockets.
    pub listener_faults: Option<Arc<ListenerFaults>>,
    broker: Option<Arc<Broker>>,
    /// The level of transaction.version when the broker went down.
    transaction_version: i16,
    ports: Vec<Port>,
    /// Paused nodes, and the time until which they handle nothing.
    paused: BTreeMap<NodeId, i64>,
    /// Delivers requests from closed connections.
    late: Option<LocalTransport>,
    /// The batches of these requests without a response, by correlation id.
    late_asked: BTreeMap<i32, Vec<Batch>>,
    looking: bool,
    moment: Moment,
    /// Fetches that have reached consumers.
    pub fetches: Vec<Fetched>,
    /// The batches that the broker must remember.
    pub memory: Memory,
    /// Requests that reached the broker.
    pub requests: u64,
    /// What the share group and the broker say to each other.
    pub shares: SharedTap,
    /// How the share group ended.
    pub share_end: ShareHistory,
}

/// Records that reached a process: the process, the partition, the moment of the request, and the first and last offset.
pub(super) type Fetched = (u32, TopicPartition, u64, (i64, i64));

pub(super) fn fetched(process: u32, moment: u64, response: &FetchResponse) -> impl Iterator<Item = Fetched> {
    response.partitions().filter_map(move |(topic, answer)| {
        let mut batches = BatchIter::new(answer.records.clone()?).map_while(Result::ok);
        let first = batches.next()?;
        let last = batches.last().unwrap_or_else(|| first.clone());
        let offsets = (first.header().base_offset, last.header().last_offset());
        let tp = TopicPartition::new(Arc::clone(topic), answer.partition_index);
        Some((process, tp, moment, offsets))
    })
}

fn sequenced(request: &Request) -> Vec<Batch> {
    match request {
        Request::Produce(produce) => batches_of(produce),
        _ => Vec::new(),
    }
}

pub(super) type SharedNet = Arc<Mutex<Net>>;

pub(super) fn lock(net: &Mutex<Net>) -> MutexGuard<'_, Net> {
    net.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Net {
    pub fn new(scheduler: Arc<Scheduler>, mut rng: Rng, plan: &Plan, moment: Moment, shares: SharedTap) -> SharedNet {
        Arc::new_cyclic(|me: &Weak<Mutex<Self>>| {
            Mutex::new(Self {
                me: me.clone(),
                pipes: Pipes::new(
                    me.clone(),
                    scheduler.clone(),
                    rng.fork(),
                    plan.faults,
                    Arc::clone(&shares),
                ),
                listener_faults: None,
                scheduler,
                rng,
                faults: plan.faults,
                nodes: i32::try_from(plan.nodes).unwrap_or(1),
                members: Members::default(),
                broker: None,
                transaction_version: 0,
                ports: Vec::new(),
                paused: BTreeMap::new(),
                late: None,
                late_asked: BTreeMap::new(),
                looking: false,
                moment,
                fetches: Vec::new(),
                memory: Memory::default(),
                requests: 0,
                shares,
                share_end: ShareHistory::default(),
            })
        })
    }

    /// The transport of a client, which is this process in the history.
    pub fn connect(net: &SharedNet, actor: ActorId, process: u32) -> Box<dyn Transport> {
        let mut this = lock(net);
        this.ports.push(Port::new(actor, process));
        let port = this.ports.len() - 1;
        Box::new(SimTransport {
            net: net.clone(),
            scheduler: this.scheduler.clone(),
            port,
            actor,
        })
    }

    /// The broker is up.
    pub fn broker_up(&mut self, broker: Arc<Broker>) {
        self.broker = Some(broker);
    }

    /// The broker is down, and every connection is lost.
    pub fn broker_down(&mut self) {
        self.transaction_version = self.transaction_version();
        self.broker = None;
        self.late = None;
        let waiting = std::mem::take(&mut self.late_asked).into_values().flatten();
        self.memory.unanswered(waiting.collect());
        tap(&self.shares).restarted();
        self.pipes.kill_listener();
        self.note_lost();
        self.memory.restarted();
        for port in 0..self.ports.len() {
            self.ports[port].server = None;
            let nodes: Vec<NodeId> = self.ports[port].connections.keys().copied().collect();
            nodes.into_iter().for_each(|node| self.close(port, node));
        }
    }

    /// Batches whose connections were closed before their responses may be in the log.
    pub fn note_lost(&mut self) {
        let lost = self.pipes.take_lost();
        self.memory.unanswered(lost);
    }

    /// A listener has ended, or the run has. What rules for faults delayed may have been carried out after its client closed the connection.
    pub fn listener_ended(&mut self) {
        let faults = self.listener_faults.take();
        let requests = faults.iter().flat_map(|faults| faults.requests());
        let delays = |fault: &str| fault.contains("delay_ms") || fault.contains("hold");
        let late = requests.filter(|row| row.fault.as_deref().is_some_and(delays));
        let keys = late.filter_map(|row| ApiKey::ALL.iter().find(|key| key.name() == row.request.api));
        self.pipes.late.extend(keys.map(|key| key.code()));
    }

    /// Pauses a node until a time.
    pub fn pause(&mut self, node: NodeId, until_ms: i64) {
        self.paused.insert(node, until_ms);
        self.pipes.pause(node, until_ms);
    }

    /// As clients know it: the level of the feature.
    fn transaction_version(&self) -> i16 {
        let level = |broker: &Arc<Broker>| broker.finalized_level(Feature::TransactionVersion);
        self.broker.as_ref().map_or(self.transaction_version, level)
    }

    /// The broker, if it is up.
    pub fn broker(&self) -> Option<Arc<Broker>> {
        self.broker.clone()
    }

    pub fn scheduler(&self) -> Arc<Scheduler> {
        self.scheduler.clone()
    }

    /// The next moment of the history.
    pub fn moment(&self) -> u64 {
        self.moment.next()
    }

    /// Ends the faults, and the silence of connections.
    pub fn heal(&mut self) {
        self.faults = Faults {
            latency_ms: self.faults.latency_ms,
            ..Faults::default()
        };
        self.paused.clear();
        self.pipes.heal();
        for port in 0..self.ports.len() {
            let silent = |(&node, c): (&NodeId, &Connection)| c.silent.then_some(node);
            let nodes: Vec<NodeId> = self.ports[port].connections.iter().filter_map(silent).collect();
            nodes.into_iter().for_each(|node| self.close(port, node));
        }
    }

    fn later(&self, at_ms: i64, event: impl FnOnce(&mut Net) + Send + 'static) {
        let me = self.me.clone();
        self.scheduler.plan(
            at_ms,
            Box::new(move || {
                if let Some(net) = me.upgrade() {
                    event(&mut lock(&net));
                }
            }),
        );
    }

    fn latency(&mut self) -> i64 {
        let most = if self.rng.chance(self.faults.slow) {
            2_000
        } else {
            self.faults.latency_ms
        };
        1 + i64::try_from(self.rng.below(most + 1)).unwrap_or(0)
    }

    fn send(&mut self, port: usize, node: NodeId, id: i32, request: Request) {
        let now = self.scheduler.now();
        let latency = self.latency();
        let fate = if self.rng.chance(self.faults.close_before) {
            Fate::CloseBefore
        } else if self.rng.chance(self.faults.close_after) {
            Fate::CloseAfter
        } else {
            Fate::Arrives
        };
        let silence = self.rng.chance(self.faults.silence);
        let connection = self.ports[port].connection(node);
        connection.outstanding.push(id);
        connection.silent |= silence;
        if connection.silent {
            return;
        }
        let at = connection.last_request_ms.max(now + latency);
        connection.last_request_ms = at;
        let epoch = connection.epoch;
        connection.underway.push_back(Underway {
            epoch,
            id,
            fate,
            request,
        });
        self.later(at, move |net| net.arrive(port, node, epoch));
    }

    /// The oldest request of a connection arrives.
    fn arrive(&mut self, port: usize, node: NodeId, epoch: u64) {
        let now = self.scheduler.now();
        if let Some(&until) = self.paused.get(&node_of_connection(node)).filter(|&&until| until > now) {
            return self.later(until, move |net| net.arrive(port, node, epoch));
        }
        let Some(Underway { id, fate, request, .. }) = self.ports[port].connection(node).take_oldest(epoch) else {
            return;
        };
        let request = self.members.for_broker(request);
        let closed = self.ports[port].closed;
        let connection = self.ports[port].connection(node);
        if closed || connection.epoch != epoch {
            return self.arrive_late(node, request);
        }
        if connection.silent {
            return;
        }
        let Some(broker) = self.broker.clone().filter(|_| fate != Fate::CloseBefore) else {
            return self.close(port, node);
        };
        if matches!(request, Request::Produce(_)) && self.rng.chance(self.faults.twice) {
            let (at, again) = (now + self.latency(), request.clone());
            self.later(at, move |net| net.arrive_late(node, again));
        }
        self.requests += 1;
        let asked = Asked {
            node,
            epoch,
            fate,
            batches: sequenced(&request),
            moment: self.moment.next(),
        };
        tap(&self.shares).asked((port as u64, node), id, &request);
        let port = &mut self.ports[port];
        port.asked.insert(id, asked);
        port.server(broker).send(node, id, request);
        self.collect_all();
    }

    /// A batch arrives from a closed connection, or a second time.
    fn arrive_late(&mut self, node: NodeId, request: Request) {
        let Some(broker) = self.broker.clone() else { return };
        if !matches!(request, Request::Produce(_)) || self.rng.chance(500) {
            return;
        }
        let late = self.late.get_or_insert_with(|| LocalTransport::new(broker));
        let node = node_of_connection(node);
        let id = self.late_asked.last_key_value().map_or(0, |(last, _)| last + 1);
        self.late_asked.insert(id, sequenced(&request));
        late.send(node, id, request);
        // Also responses to earlier ones, which waited for replicas in sync.
        while let Some(completion) = late.receive(node) {
            let batches = self.late_asked.remove(&completion.correlation_id);
            if let (Some(batches), Ok(Response::Produce(response))) = (batches, &completion.result) {
                self.memory.answered(&batches, response, &[]);
            }
        }
        self.collect_all();
    }

    /// Sends the broker's responses to the clients.
    fn collect_all(&mut self) {
        let mut waiting = false;
        for port in 0..self.ports.len() {
            if !self.ports[port].asked.is_empty() {
                self.collect(port);
                waiting |= !self.ports[port].asked.is_empty();
            }
        }
        tap(&self.shares).observed();
        if waiting && !self.looking {
            self.looking = true;
            self.later(self.scheduler.now() + LOOK_MS, |net| {
                net.looking = false;
                net.collect_all();
            });
        }
    }

    fn collect(&mut self, port: usize) {
        for node in 1..=self.nodes {
            for server_id in [node, coordinator_connection(node)] {
                while let Some(completion) = self.ports[port].server.as_mut().and_then(|s| s.receive(server_id)) {
                    self.answered(port, completion);
                }
            }
        }
    }

    fn answered(&mut self, port: usize, completion: Completion) {
        let id = completion.correlation_id;
        let Some(asked) = self.ports[port].asked.remove(&id) else {
            return;
        };
        let (node, epoch) = (asked.node, asked.epoch);
        if let Ok(Response::Produce(response)) = &completion.result {
            self.memory.answered(&asked.batches, response, &[]);
        }
        if let Ok(response) = &completion.result {
            tap(&self.shares).answered((port as u64, node), id, response);
        }
        let (now, latency) = (self.scheduler.now(), self.latency());
        let silence = self.rng.chance(self.faults.silence);
        let connection = self.ports[port].connection(node);
        if connection.epoch != epoch || connection.silent {
            return;
        }
        let Ok(response) = completion.result else {
            return self.close(port, node);
        };
        if asked.fate == Fate::CloseAfter {
            return self.close(port, node);
        }
        if silence {
            connection.silent = true;
            return;
        }
        let at = connection.last_answer_ms.max(now + latency);
        connection.last_answer_ms = at;
        let response = self.members.rename(response);
        self.later(at, move |net| net.deliver(port, &asked, id, response));
    }

    /// The response to a request arrives.
    fn deliver(&mut self, port: usize, asked: &Asked, id: i32, response: Response) {
        let port = &mut self.ports[port];
        let (actor, process) = (port.actor, port.process);
        let connection = port.connection(asked.node);
        if connection.epoch != asked.epoch || connection.silent {
            return;
        }
        connection.outstanding.retain(|&other| other != id);
        if let Response::Fetch(fetch) = &response {
            self.fetches.extend(fetched(process, asked.moment, fetch));
        }
        connection.arrive(asked.node, id, Ok(response));
        self.scheduler.notify(actor);
    }

    /// The connection is lost, and the client is notified.
    fn close(&mut self, port: usize, node: NodeId) {
        let lost = self.reopen(port, node);
        let port = &mut self.ports[port];
        let connection = port.connection(node);
        lost.into_iter()
            .for_each(|id| connection.arrive(node, id, Err(Failure::Disconnected)));
        self.scheduler.notify(port.actor);
    }

    fn reopen(&mut self, port: usize, node: NodeId) -> Vec<i32> {
        let lost = self.ports[port].reopen(node);
        tap(&self.shares).ended((port as u64, node));
        lost
    }
}

struct SimTransport {
    net: SharedNet,
    scheduler: Arc<Scheduler>,
    port: usize,
    actor: ActorId,
}

impl Transport for SimTransport {
    fn bootstrap(&self) -> Vec<NodeId> {
        vec![1]
    }
    fn transaction_version(&self) -> i16 {
        lock(&self.net).transaction_version()
    }
    fn send(&mut self, node: NodeId, correlation_id: i32, request: Request) {
        lock(&self.net).send(self.port, node, correlation_id, request);
    }

    fn receive(&mut self, node: NodeId) -> Option<Completion> {
        lock(&self.net).ports[self.port]
            .connections
            .get_mut(&node)?
            .arrived
            .pop_front()
    }

    fn has_arrived(&mut self, node: NodeId) -> bool {
        let net = lock(&self.net);
        net.ports[self.port]
            .connections
            .get(&node)
            .is_some_and(|c| !c.arrived.is_empty())
    }

    fn wait(&mut self, timeout: Duration) -> bool {
        let arrived = || lock(&self.net).ports[self.port].has_arrived();
        if arrived() {
            return true;
        }
        // Waits longer than a run are split into parts.
        let ms = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX).min(60_000);
        self.scheduler.wait(self.actor, self.scheduler.now() + ms.max(1), true);
        arrived()
    }

    fn disconnect(&mut self, node: NodeId) {
        let mut net = lock(&self.net);
        net.reopen(self.port, node);
        if let Some(connection) = net.ports[self.port].connections.get_mut(&node) {
            connection.arrived.clear();
        }
    }

    fn in_process(&mut self) -> Option<&mut dyn InProcess> {
        Some(self)
    }
}

impl InProcess for SimTransport {
    fn keep_alive(&mut self) {
        if let Some(server) = &mut lock(&self.net).ports[self.port].server {
            server.keep_alive();
        }
    }
}

impl Drop for SimTransport {
    fn drop(&mut self) {
        let mut net = lock(&self.net);
        let nodes: Vec<NodeId> = net.ports[self.port].connections.keys().copied().collect();
        net.ports[self.port].close();
        nodes
            .into_iter()
            .for_each(|node| tap(&net.shares).ended((self.port as u64, node)));
    }
}
