//! A client's sockets, and its transport over them.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, IoSlice, Read, Result, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fletchlog_api::transport::{Waker, node_of_connection};
use fletchlog_api::{Clock, Completion, Config, NodeId, Ready, Request, Response, Transport};
use fletchlog_net::{ConnectionSettings, SocketEvent, Sockets, TcpTransport, bootstrap_servers};

use super::super::network::{Net, SharedNet, fetched, lock};
use super::super::scheduler::{ActorId, Scheduler};
use super::pipes::{PipeId, Side, WatcherId};
use super::server::{HOST, node_of_port, port_of};

/// One end of a connection.
pub(super) struct Socket {
    pub net: SharedNet,
    pub id: PipeId,
    pub side: Side,
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        lock(&self.net).pipes.read(self.id, self.side, into)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut net = lock(&self.net);
        let (written, answered) = net.pipes.write(self.id, self.side, bytes);
        net.note_lost();
        let Net { pipes, memory, .. } = &mut *net;
        for (batches, answers) in answered {
            memory.answered(&batches, &answers, &pipes.pending());
        }
        written
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> Result<usize> {
        self.write(
            &slices
                .iter()
                .flat_map(|slice| slice.iter().copied())
                .collect::<Vec<u8>>(),
        )
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        lock(&self.net).pipes.close(self.id, self.side);
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of connection {}", self.side, self.id)
    }
}

/// Waits for sockets in virtual time.
pub(super) struct Watch {
    pub net: SharedNet,
    pub scheduler: Arc<Scheduler>,
    pub actor: ActorId,
    pub watcher: WatcherId,
    pub woken: Arc<AtomicBool>,
}

/// Waits longer than a run are split into parts of this length, ms.
const LONG_MS: i64 = 60_000;

impl Watch {
    /// Waits for a change, at most for `timeout`.
    pub fn wait(&self, timeout: Duration) {
        let has_changes = lock(&self.net).pipes.has_changes(self.watcher);
        if has_changes || timeout.is_zero() || self.woken.swap(false, Ordering::AcqRel) {
            return;
        }
        let ms = i64::try_from(timeout.as_millis()).unwrap_or(LONG_MS).clamp(1, LONG_MS);
        self.scheduler.wait(self.actor, self.scheduler.now() + ms, true);
        self.woken.store(false, Ordering::Release);
    }

    /// A function that ends the wait.
    pub fn waker(&self) -> Waker {
        let (woken, scheduler, actor) = (self.woken.clone(), self.scheduler.clone(), self.actor);
        Arc::new(move || {
            woken.store(true, Ordering::Release);
            scheduler.notify(actor);
        })
    }
}

/// The node of a connection. Those to bootstrap.servers, which are the nodes in their order, are -1, -2, ..
fn address(connection: NodeId) -> NodeId {
    if connection < 0 {
        -connection
    } else {
        node_of_connection(connection)
    }
}

struct ClientSockets(Watch);

impl Sockets for ClientSockets {
    type Socket = Socket;

    fn connect(&mut self, address: SocketAddr, token: usize) -> Result<Socket> {
        let net = self.0.net.clone();
        let node = node_of_port(address.port()).ok_or_else(|| Error::from(ErrorKind::ConnectionRefused))?;
        let id = lock(&net).pipes.connect(self.0.watcher, token, node);
        Ok(Socket {
            net,
            id,
            side: Side::Client,
        })
    }

    fn connected(socket: &Socket) -> Result<()> {
        lock(&socket.net).pipes.connected(socket.id)
    }

    fn forget(&mut self, _socket: &mut Socket) {}

    fn wait(&mut self, timeout: Duration, events: &mut Vec<SocketEvent>) -> Result<()> {
        self.0.wait(timeout);
        let changes = lock(&self.0.net).pipes.take_changes(self.0.watcher);
        events.extend(changes.into_iter().map(|change| SocketEvent {
            token: change.token,
            may_have_ended: change.has_ended,
        }));
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.0.waker()
    }

    fn for_heartbeats(&self) -> Result<Option<Self>> {
        Ok(None)
    }
}

/// The production transport. Fetches and requests that pass through it are recorded.
struct Recorded {
    transport: TcpTransport<ClientSockets>,
    net: SharedNet,
    process: u32,
    watcher: WatcherId,
    /// The last completion reported a lost connection.
    has_failed: bool,
    /// Requests without a response, by correlation id: the node and the moment of sending.
    asked: BTreeMap<i32, (NodeId, u64)>,
}

/// The transport of a client, which is this process in the history.
pub(in super::super) fn connect(
    net: &SharedNet,
    actor: ActorId,
    process: u32,
    config: &Config,
    clock: Arc<dyn Clock>,
) -> Box<dyn Transport> {
    let nodes = lock(net).nodes;
    let servers = (1..=nodes).map(|node| format!("{HOST}:{}", port_of(node)));
    let servers = servers.collect::<Vec<_>>().join(",");
    let addresses = bootstrap_servers(&servers).unwrap_or_else(|e| panic!("{servers}: {e}"));
    let settings = ConnectionSettings::new(config, addresses, None).unwrap_or_else(|e| panic!("{servers}: {e}"));
    let (watcher, scheduler) = {
        let mut net = lock(net);
        (net.pipes.watcher(actor), net.scheduler())
    };
    let sockets = ClientSockets(Watch {
        net: net.clone(),
        scheduler,
        actor,
        watcher,
        woken: Arc::default(),
    });
    Box::new(Recorded {
        transport: TcpTransport::over(sockets, settings, clock),
        net: net.clone(),
        process,
        watcher,
        has_failed: false,
        asked: BTreeMap::new(),
    })
}

impl Transport for Recorded {
    fn bootstrap(&self) -> Vec<NodeId> {
        self.transport.bootstrap()
    }

    fn ready(&mut self, node: NodeId) -> Ready {
        self.transport.ready(node)
    }

    fn transaction_version(&self) -> i16 {
        self.transport.transaction_version()
    }

    fn send(&mut self, node: NodeId, correlation_id: i32, request: Request) {
        let request = {
            let mut net = lock(&self.net);
            self.asked.insert(correlation_id, (node, net.moment()));
            net.members.for_broker(request)
        };
        self.transport.send(node, correlation_id, request);
    }

    fn receive(&mut self, node: NodeId) -> Option<Completion> {
        let completion = self.transport.receive(node)?;
        let asked = self.asked.remove(&completion.correlation_id);
        self.has_failed = completion.result.is_err();
        let mut net = lock(&self.net);
        if let (Some((_, moment)), Ok(Response::Fetch(fetch))) = (asked, &completion.result) {
            net.fetches.extend(fetched(self.process, moment, fetch));
        }
        Some(Completion {
            result: completion.result.map(|response| net.members.rename(response)),
            ..completion
        })
    }

    fn has_arrived(&mut self, node: NodeId) -> bool {
        self.transport.has_arrived(node)
    }

    fn wait(&mut self, timeout: Duration) -> bool {
        // A wait of zero would not let virtual time pass.
        self.transport.wait(timeout.max(Duration::from_millis(1)))
    }

    fn waker(&self) -> Option<Waker> {
        self.transport.waker()
    }

    /// Called when a request had no response in time, or after a lost connection was reported.
    fn disconnect(&mut self, node: NodeId) {
        let before = self.asked.len();
        self.asked.retain(|_, (to, _)| *to != node);
        let given_up = before - self.asked.len();
        let has_failed = std::mem::take(&mut self.has_failed);
        if given_up > 0 && !has_failed {
            lock(&self.net).pipes.give_up(self.watcher, address(node), given_up);
        }
        self.transport.disconnect(node);
    }
}
