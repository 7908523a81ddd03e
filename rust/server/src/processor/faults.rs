//! What the rules of the listener do to requests, responses and connections.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api::NodeId;
use fletchlog_faults::{Action, Answered, Arrived, BLACK_HOLE, Exchange, HANDSHAKE_FAILURE, Step, Then, Wait};

use super::Processor;
use crate::apis::Peer;
use crate::completions::{Completion, ConnectionId};
use crate::sockets::Sockets;

/// The reason for closing a connection because of a rule.
pub(super) const FAULT: &str = "a rule for faults says so";
/// Interval between the pieces of a slow response.
const PIECE_MS: i64 = 100;

/// What waits for a time, or until a rule is released.
enum Held {
    /// A request. It is carried out even if its connection has been closed meanwhile, as one that is late in the network.
    Request(Arc<Peer>, Step),
    /// A response.
    Response(Answered),
    /// The rest of a slow response.
    Pieces(Bytes, usize, Then),
}

/// What the rules hold back. Nothing is here while there are no rules.
#[derive(Default)]
pub(super) struct HeldBack {
    of: HashMap<ConnectionId, Held>,
    /// When to go on (monotonic ms).
    times: BTreeSet<(i64, ConnectionId)>,
}

impl HeldBack {
    /// When the next one goes on.
    pub(super) fn next_ms(&self) -> Option<i64> {
        self.times.first().map(|(when_ms, _)| *when_ms)
    }
}

impl<S: Sockets> Processor<S> {
    /// Whether a new connection may stay, and its number.
    pub(super) fn may_stay(&self, socket: &mut S::Socket, node: NodeId) -> (u64, bool) {
        let (number, action) = self.shared.faults.connected(node);
        if action == Some(Action::TlsFailure) {
            // It may fail: the connection is closed anyway.
            let _ = socket.write(&HANDSHAKE_FAILURE);
        }
        (number, action.is_none())
    }

    /// Does with a request what the rules decide; `false`: it is carried out as it is.
    pub(super) fn decided(&mut self, id: ConnectionId, frame: &Bytes) -> bool {
        if !self.shared.faults.is_active() {
            return false;
        }
        let Some(channel) = self.channels.get_mut(id.slot) else {
            return false;
        };
        let Some(Arrived { exchange, wait, step }) =
            self.shared.faults.arrived(channel.number, channel.peer.node(), frame)
        else {
            return false;
        };
        channel.exchange = Some(exchange);
        let peer = Arc::clone(&channel.peer);
        match wait {
            Wait::No => self.step(id, peer, step),
            Wait::Ms(ms) => self.hold(id, Held::Request(peer, step), ms),
            Wait::Release(rule) => {
                self.held.of.insert(id, Held::Request(peer, step));
                let completions = Arc::clone(&self.shared.completions);
                let resume = move || completions.push(id, Completion::Released);
                self.shared.faults.on_release(rule, Box::new(resume));
            }
        }
        true
    }

    fn hold(&mut self, id: ConnectionId, held: Held, ms: i64) {
        self.held.of.insert(id, held);
        self.held
            .times
            .insert((self.clock.monotonic_ms().saturating_add(ms), id));
    }

    /// Goes on with what waited until now.
    pub(super) fn resume_due(&mut self, now_ms: i64) {
        while let Some((when_ms, id)) = self.held.times.first().copied()
            && when_ms <= now_ms
        {
            self.held.times.pop_first();
            self.contained(Some(id.slot), |processor| processor.resume(id));
        }
    }

    /// Goes on with what was held back.
    pub(super) fn resume(&mut self, id: ConnectionId) {
        match self.held.of.remove(&id) {
            Some(Held::Request(peer, step)) => self.step(id, peer, step),
            Some(Held::Response(answered)) if self.is_open(id) => self.respond(id, answered),
            Some(Held::Pieces(rest, size, then)) if self.is_open(id) => self.piece(id, rest, size, then),
            _ => {}
        }
    }

    /// Whether a rule holds back the request or the response of a connection.
    pub(super) fn is_held(&self, slot: usize, serial: u64) -> bool {
        self.held.of.contains_key(&ConnectionId { slot, serial })
    }

    fn is_open(&self, id: ConnectionId) -> bool {
        self.channels
            .get(id.slot)
            .is_some_and(|channel| channel.serial == id.serial)
    }

    fn step(&mut self, id: ConnectionId, peer: Arc<Peer>, step: Step) {
        match step {
            Step::Handle(frame) => self.handle(id, peer, frame),
            _ if !self.is_open(id) => {}
            Step::Answer(chunks) => self.answer(id.slot, chunks),
            Step::Close => self.close(id.slot, Some(FAULT)),
            Step::Nothing => {
                let exchange = self.channels.get(id.slot).and_then(|channel| channel.exchange.as_ref());
                let fault = exchange.and_then(Exchange::fault);
                self.record_response(id.slot, &[], BLACK_HOLE, fault);
                self.stay_silent(id);
            }
        }
    }

    /// The connection stays open without a response, until its client closes it.
    fn stay_silent(&mut self, id: ConnectionId) {
        if let Some(channel) = self.channels.get_mut(id.slot) {
            channel.connection.wait();
            if channel.connection.is_abandoned() {
                self.close(id.slot, None);
            }
        }
    }

    /// Sends a response as the rules decide.
    pub(super) fn answered(&mut self, slot: usize, exchange: Exchange, chunks: Vec<Bytes>) {
        let fault = exchange.fault();
        let answered = self.shared.faults.answered(exchange, chunks);
        self.record_response(slot, &answered.chunks, answered.outcome, fault);
        let Some(channel) = self.channels.get(slot) else {
            return;
        };
        let id = ConnectionId {
            slot,
            serial: channel.serial,
        };
        match answered.delay_ms {
            0 => self.respond(id, answered),
            ms => self.hold(id, Held::Response(answered), ms),
        }
    }

    fn respond(&mut self, id: ConnectionId, answered: Answered) {
        match (answered.then, answered.bytes_per_second) {
            (Then::Nothing, _) => self.stay_silent(id),
            (then, Some(rate)) if !answered.chunks.is_empty() => {
                let a_second = usize::try_from(1000 / PIECE_MS).unwrap_or(1);
                let size = usize::try_from(rate).unwrap_or(usize::MAX).div_ceil(a_second);
                self.piece(id, answered.chunks.concat().into(), size, then);
            }
            (then, _) => self.last(id, answered.chunks, then),
        }
    }

    /// Sends the next piece of a slow response.
    fn piece(&mut self, id: ConnectionId, mut rest: Bytes, size: usize, then: Then) {
        if rest.len() <= size {
            return self.last(id, vec![rest], then);
        }
        let piece = rest.split_to(size);
        if let Some(channel) = self.channels.get_mut(id.slot) {
            channel.connection.part(piece);
            self.shared.apis.unsent().add(channel.connection.unsent());
            self.write(id.slot);
        }
        self.hold(id, Held::Pieces(rest, size, then), PIECE_MS);
    }

    /// Sends the last bytes of a response.
    fn last(&mut self, id: ConnectionId, chunks: Vec<Bytes>, then: Then) {
        if let Some(channel) = self.channels.get_mut(id.slot)
            && then == Then::Close
        {
            channel.closing = Some(FAULT.to_owned());
        }
        self.send(id.slot, chunks);
    }

    /// The connection is closed: what becomes of its request, and of what was held back for it. A request that is held is still carried out.
    pub(super) fn forget_held(&mut self, id: ConnectionId, number: u64, exchange: Option<Exchange>, by_broker: bool) {
        if let Some(exchange) = exchange {
            self.shared
                .faults
                .ended(&exchange, if by_broker { super::CLOSED } else { super::CLIENT_GONE });
        }
        self.shared.faults.disconnected(number);
        if !matches!(self.held.of.get(&id), Some(Held::Request(..))) {
            self.held.of.remove(&id);
        }
    }
}
