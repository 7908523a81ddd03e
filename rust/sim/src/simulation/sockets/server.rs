//! The listener's sockets, and the actor that runs the listener.

use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use fletchlog_api::NodeId;
use fletchlog_broker::Broker;
use fletchlog_faults::{Faults, rules_of};
use fletchlog_server::connection::PeerEnd;
use fletchlog_server::{Endpoint, SocketEvent, Sockets, serve_over};

use super::super::network::{SharedNet, lock};
use super::super::world::Hand;
use super::client::{Socket, Watch};
use super::pipes::{LISTENER, Side};

/// The host of every node.
pub(super) const HOST: &str = "127.0.0.1";
/// Node n has the port `PORTS` + n.
const PORTS: u16 = 9_000;
/// Clients have ports from this one on.
const CLIENT_PORTS: u64 = 10_000;

pub(super) fn port_of(node: NodeId) -> u16 {
    u16::try_from(node).map_or(PORTS, |node| PORTS + node)
}

pub(super) fn node_of_port(port: u16) -> Option<NodeId> {
    port.checked_sub(PORTS).map(NodeId::from)
}

struct ListenerSockets {
    watch: Watch,
    /// The number of this listener in the run.
    which: u64,
    nodes: Vec<NodeId>,
}

impl Sockets for ListenerSockets {
    type Socket = Socket;

    fn accept(&mut self, listener: usize) -> Result<(Socket, SocketAddr)> {
        let node = self.nodes[listener];
        let Some(id) = lock(&self.watch.net).pipes.accept(node) else {
            return Err(ErrorKind::WouldBlock.into());
        };
        let port = u16::try_from(CLIENT_PORTS + id % CLIENT_PORTS).unwrap_or(0);
        let socket = Socket {
            net: self.watch.net.clone(),
            id,
            side: Side::Listener,
        };
        Ok((socket, (Ipv4Addr::LOCALHOST, port).into()))
    }

    fn watch(&mut self, socket: &mut Socket, token: usize) -> Result<()> {
        lock(&socket.net).pipes.watch(socket.id, token);
        Ok(())
    }

    fn forget(&mut self, _socket: &mut Socket) {}

    fn close_listeners(&mut self) {}

    fn close_listener(&mut self, listener: usize) -> Result<()> {
        lock(&self.watch.net).pipes.refuse(self.which, self.nodes[listener]);
        Ok(())
    }

    fn open_listener(&mut self, listener: usize) -> Result<()> {
        lock(&self.watch.net).pipes.accept_again(self.nodes[listener]);
        Ok(())
    }

    /// Fails once the broker has been killed.
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<SocketEvent>) -> Result<()> {
        self.watch.wait(timeout.unwrap_or(Duration::MAX));
        let mut net = lock(&self.watch.net);
        if !net.pipes.is_listening(self.which) {
            return Err(Error::other("the process was killed"));
        }
        let knocked = net.pipes.take_knocked();
        let listeners = (0..self.nodes.len()).filter(|&listener| knocked.contains(&self.nodes[listener]));
        events.extend(listeners.map(SocketEvent::Accept));
        let changes = net.pipes.take_changes(LISTENER);
        events.extend(changes.into_iter().map(|change| SocketEvent::Connection {
            token: change.token,
            is_writable: change.has_room,
            peer_end: match (change.has_ended, change.is_reset) {
                (_, true) => PeerEnd::Both,
                (true, false) => PeerEnd::Half,
                (false, false) => PeerEnd::Open,
            },
        }));
        Ok(())
    }
}

/// Serves whenever the broker is up, until the run ends.
pub(in super::super) fn run(hand: &mut Hand) {
    while !hand.world.is_over() {
        let broker = lock(&hand.world.net).broker();
        match broker {
            Some(broker) => serve(hand, &broker),
            // The broker is up again soon, or the run ends.
            None => hand.sleep(10),
        }
    }
}

fn serve(hand: &Hand, broker: &Arc<Broker>) {
    let net: &SharedNet = &hand.world.net;
    let which = lock(net).pipes.listen(hand.me);
    let endpoints = broker.nodes().into_iter().map(|node| Endpoint {
        node,
        host: HOST.to_owned(),
        port: port_of(node),
    });
    let endpoints: Vec<Endpoint> = endpoints.collect();
    let watch = Watch {
        net: net.clone(),
        scheduler: hand.world.scheduler.clone(),
        actor: hand.me,
        watcher: LISTENER,
        woken: Arc::default(),
    };
    let waker = watch.waker();
    let nodes = endpoints.iter().map(|endpoint| endpoint.node).collect();
    let sockets = ListenerSockets { watch, which, nodes };
    let started = |faults: &Arc<Faults>| {
        let plan = &hand.world.plan.listener_faults;
        let (rules, random) = rules_of(plan).unwrap_or_else(|e| panic!("{plan}: {e}"));
        if hand.in_chaos() {
            for rule in rules {
                faults.add(rule, None);
            }
            faults.set_random(random);
        }
        faults.record(true);
        lock(net).listener_faults = Some(Arc::clone(faults));
    };
    let served = serve_over(broker, &endpoints, sockets, waker, started);
    served.unwrap_or_else(|e| panic!("the listener: {e}"));
    lock(net).listener_ended();
}
