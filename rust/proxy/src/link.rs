//! A client's connection and the one to its node. What a slow side has not taken is not read from the other one.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use fletchlog_faults::{Arrived, Faults, Step, Wait};
use fletchlog_protocol::ApiKey;
use fletchlog_protocol::header::request_header_version;
use fletchlog_session::Recorder;
use mio::net::TcpStream;

use crate::end::End;
use crate::frames::{Piece, SIZE, Splitter};
use crate::responses::{Kind, Responses, Waiting};
use crate::rewrite::{Found, has_addresses, table};
use crate::seen::Seen;
use crate::tail::Tail;

/// Most bytes that are read in one direction before the other connections have their turn.
const BYTES_A_TURN: usize = 1024 * 1024;

/// While more bytes wait for one side, nothing is read from the other one.
const MOST_QUEUED: usize = 512 * 1024;

/// Bytes of a request's head: api key, version, correlation id.
const REQUEST_HEAD: usize = 8;
/// Bytes of a response's head: correlation id.
const RESPONSE_HEAD: usize = 4;

/// A connection: its slot, and a number that no other connection has.
pub(crate) type LinkId = (usize, u64);

/// What a link needs of the proxy.
pub(crate) struct Context<'a> {
    pub(crate) found: &'a mut dyn Found,
    pub(crate) faults: &'a Faults,
    /// The session that is recorded.
    pub(crate) recorder: Option<&'a Recorder>,
    /// Called when a rule releases the request that it holds.
    pub(crate) resume: &'a dyn Fn() -> Box<dyn FnOnce() + Send>,
    /// Monotonic ms.
    pub(crate) now_ms: i64,
}

/// What the connection needs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// An event of one of its sockets, or its time.
    Wait,
    /// Another turn: bytes that have arrived are not read yet.
    Again,
    /// To be closed: both sides have ended, or a rule says so.
    Close,
}

/// What says which response belongs to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestId {
    pub(crate) api_key: i16,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
}

/// A request that a rule holds back. Nothing behind it is read.
struct Held {
    id: RequestId,
    has_response: bool,
    seen: Seen,
    step: Step,
    /// When it goes on; `None`: when it is released.
    until_ms: Option<i64>,
}

/// The two connections.
pub(crate) struct Link {
    /// No other link has it.
    pub(crate) serial: u64,
    /// The number of the connection for rules.
    pub(crate) number: u64,
    /// The node, as far as responses have named it; -1: unknown.
    pub(crate) node: i32,
    pub(crate) client: End,
    /// `None`: the name of its node is being resolved, or no address was tried.
    pub(crate) server: Option<End>,
    pub(crate) is_connected: bool,
    /// Addresses of the node that were not tried.
    pub(crate) addresses: VecDeque<SocketAddr>,
    /// The node, for messages and TLS.
    pub(crate) host: String,
    requests: Splitter,
    /// The head of the request that is being collected.
    collected: Option<RequestId>,
    held: Option<Held>,
    /// A rule has ended the requests of this connection: nothing more is read of them.
    is_mute: bool,
    arriving: Splitter,
    /// The Fetch response that passes.
    tail: Option<Tail>,
    responses: Responses,
}

impl Link {
    /// A client that has connected to the port of this node.
    pub(crate) fn new(id: (u64, u64), node: i32, client: End, host: String) -> Self {
        let (serial, number) = id;
        Self {
            serial,
            number,
            node,
            client,
            server: None,
            is_connected: false,
            addresses: VecDeque::new(),
            host,
            requests: Splitter::new(REQUEST_HEAD),
            collected: None,
            held: None,
            is_mute: false,
            arriving: Splitter::new(RESPONSE_HEAD),
            tail: None,
            responses: Responses::default(),
        }
    }

    /// The socket to the node.
    pub(crate) fn server_socket(&mut self) -> Option<&mut TcpStream> {
        self.server.as_mut().map(|server| &mut server.socket)
    }

    /// When it needs a turn without an event (monotonic ms).
    pub(crate) fn next_ms(&self) -> Option<i64> {
        let held_ms = self.held.as_ref().and_then(|held| held.until_ms);
        [held_ms, self.responses.next_ms()].into_iter().flatten().min()
    }

    /// The rule that holds its request was released.
    pub(crate) fn release(&mut self, now_ms: i64) {
        if let Some(held) = self.held.as_mut().filter(|held| held.until_ms.is_none()) {
            held.until_ms = Some(now_ms);
        }
    }

    /// It is closed: what becomes of its requests. `by_proxy`: not by the client.
    pub(crate) fn end(&mut self, faults: &Faults, recorder: Option<&Recorder>, (by_proxy, why): (bool, &str)) {
        let outcome = if by_proxy { "closed" } else { "client gone" };
        let held = self.held.take().map(|held| held.seen);
        for seen in self.responses.unanswered().chain(held) {
            seen.ended(faults, recorder, outcome);
        }
        faults.disconnected(self.number);
        if let Some(recorder) = recorder {
            recorder.closed(self.number, why);
        }
    }

    /// Reads, writes and rewrites what can be.
    ///
    /// # Errors
    /// Why the link is to be closed.
    pub(crate) fn pump(&mut self, cx: &mut Context<'_>) -> Result<Turn, String> {
        let Some(mut server) = self.server.take_if(|_| self.is_connected) else {
            return Ok(Turn::Wait);
        };
        let done = self.relay(&mut server, cx);
        self.server = Some(server);
        done
    }

    fn relay(&mut self, server: &mut End, cx: &mut Context<'_>) -> Result<Turn, String> {
        let is_due = |held: &mut Held| held.until_ms.is_some_and(|until_ms| until_ms <= cx.now_ms);
        if let Some(held) = self.held.take_if(is_due) {
            self.step(server, cx, (held.id, held.has_response), held.seen, held.step);
        }
        let up = self.up(server, cx).map_err(|failed| failed.of("the client"))?;
        let down = self.down(server, cx).map_err(|failed| failed.of("the node"))?;
        if self.client.has_ended && self.held.is_none() && server.queued() == 0 {
            server.shut();
        }
        if server.has_ended && self.client.queued() == 0 && !self.responses.is_paused() {
            self.client.shut();
        }
        let has_all = server.has_ended && self.responses.next_ms().is_none();
        let is_answered = has_all || self.client.is_shut() || self.responses.is_silent();
        let is_over = self.client.has_ended && self.held.is_none() && is_answered;
        if (is_over || self.responses.is_closing()) && self.client.queued() == 0 {
            return Ok(Turn::Close);
        }
        Ok(if up || down { Turn::Again } else { Turn::Wait })
    }

    /// No further request is carried out.
    fn is_deaf(&self) -> bool {
        self.is_mute || self.responses.is_silent() || self.responses.is_closing()
    }

    /// Moves requests to the node; true: there are more, and others should have their turn.
    fn up(&mut self, server: &mut End, cx: &mut Context<'_>) -> Result<bool, Failed> {
        let mut left = BYTES_A_TURN;
        server.flush()?;
        loop {
            while !self.is_deaf() && self.held.is_none() {
                let Some(piece) = self.requests.next().map_err(Failed::Content)? else {
                    break;
                };
                self.request(server, cx, piece).map_err(Failed::Content)?;
            }
            server.flush()?;
            let is_full = server.queued() > MOST_QUEUED && !self.requests.collects();
            if !self.client.can_read || is_full || self.held.is_some() {
                return Ok(false);
            }
            if left == 0 {
                return Ok(true);
            }
            let count = self.client.read(self.requests.room())?.unwrap_or(0);
            // A client that is not listened to is read all the same: it may close the connection.
            self.requests.filled(if self.is_deaf() { 0 } else { count });
            left = left.saturating_sub(count);
            if count == 0 {
                self.requests.trim();
            }
        }
    }

    fn request(&mut self, server: &mut End, cx: &mut Context<'_>, piece: Piece) -> Result<(), String> {
        match piece {
            Piece::Head(head) => self.head(&head, cx.recorder.is_some() || cx.faults.is_active()),
            Piece::Bytes(bytes) => {
                if !server.has_ended {
                    server.push(bytes);
                }
                Ok(())
            }
            Piece::Frame(frame) => {
                let Some(id) = self.collected.take() else { return Ok(()) };
                let request = frame.slice(SIZE..);
                let has_response = id.api_key != ApiKey::Produce.code() || acks(&request, id.version) != Some(0);
                let recorded = cx
                    .recorder
                    .and_then(|recorder| recorder.request(self.number, &request, false));
                let decided = cx
                    .faults
                    .is_active()
                    .then(|| cx.faults.arrived(self.number, self.node, &request));
                let Some(Arrived { exchange, wait, step }) = decided.flatten() else {
                    let seen = Seen {
                        exchange: None,
                        recorded,
                    };
                    self.step(server, cx, (id, has_response), seen, Step::Handle(request));
                    return Ok(());
                };
                let seen = Seen {
                    exchange: Some(exchange),
                    recorded,
                };
                let until_ms = match wait {
                    Wait::No => {
                        self.step(server, cx, (id, has_response), seen, step);
                        return Ok(());
                    }
                    Wait::Ms(ms) => Some(cx.now_ms.saturating_add(ms)),
                    Wait::Release(_) => None,
                };
                self.held = Some(Held {
                    id,
                    has_response,
                    seen,
                    step,
                    until_ms,
                });
                if let Wait::Release(rule) = wait {
                    cx.faults.on_release(rule, (cx.resume)());
                }
                Ok(())
            }
        }
    }

    /// Notes the head of a request. It passes as it is, unless rules have to see all of it.
    fn head(&mut self, head: &[u8], is_seen: bool) -> Result<(), String> {
        let i16_at = |at: usize| i16::from_be_bytes([head[at], head[at + 1]]);
        let id = RequestId {
            api_key: i16_at(SIZE),
            version: i16_at(SIZE + 2),
            correlation_id: i32::from_be_bytes([head[SIZE + 4], head[SIZE + 5], head[SIZE + 6], head[SIZE + 7]]),
        };
        if id.api_key == ApiKey::SaslHandshake.code() && id.version == 0 {
            let why = "SaslHandshake of version 0, whose tokens are no requests; use a client of Kafka 1.0 or newer";
            return Err(why.to_owned());
        }
        if is_seen {
            self.collected = Some(id);
            self.requests.collect();
            return Ok(());
        }
        let has_response = match (id.api_key == ApiKey::Produce.code()).then(|| acks(&head[SIZE..], id.version)) {
            None => true,
            Some(Some(acks)) => acks != 0,
            // The head is too short. All of a request without acks is one that the node will not be able to read either.
            Some(None) if self.requests.ask_for_more() => return Ok(()),
            Some(None) => true,
        };
        if has_response {
            self.responses.expect(id, Kind::Remote, None);
        }
        self.requests.pass();
        Ok(())
    }

    /// Does with a request what the rules have decided.
    fn step(
        &mut self,
        server: &mut End,
        cx: &mut Context<'_>,
        (id, has_response): (RequestId, bool),
        seen: Seen,
        step: Step,
    ) {
        match step {
            Step::Handle(request) if has_response => {
                self.forward(server, (id, true), Some(seen), request);
            }
            Step::Handle(request) => {
                self.forward(server, (id, false), None, request);
                self.responses.without_response(cx, &mut self.client, seen);
            }
            Step::Answer(chunks) => self.responses.expect(id, Kind::Local(chunks), Some(seen)),
            Step::Close => {
                self.is_mute = true;
                self.responses.expect(id, Kind::Close, Some(seen));
            }
            Step::Nothing => {
                self.is_mute = true;
                self.responses.expect(id, Kind::Silence, Some(seen));
            }
        }
    }

    /// Sends a request, which has no size in front, to the node.
    fn forward(&mut self, server: &mut End, of: (RequestId, bool), seen: Option<Seen>, request: Bytes) {
        if server.has_ended {
            return;
        }
        if let (id, true) = of {
            self.responses.expect(id, Kind::Remote, seen);
        }
        let size = i32::try_from(request.len()).unwrap_or(i32::MAX);
        server.push(Bytes::copy_from_slice(&size.to_be_bytes()));
        server.push(request);
    }

    /// Moves responses to the client; true: there are more, and others should have their turn.
    fn down(&mut self, server: &mut End, cx: &mut Context<'_>) -> Result<bool, Failed> {
        let mut left = BYTES_A_TURN;
        self.responses.send_late(cx, &mut self.client);
        if !self.arriving.is_within_frame() {
            self.responses.settle(cx, &mut self.client);
        }
        self.client.flush()?;
        loop {
            while !self.responses.is_paused() {
                let Some(piece) = self.arriving.next().map_err(Failed::Content)? else {
                    break;
                };
                self.response(cx, piece).map_err(Failed::Content)?;
            }
            self.client.flush()?;
            let is_full = self.client.queued() > MOST_QUEUED && !self.arriving.collects();
            if !server.can_read || is_full || self.responses.is_paused() {
                return Ok(false);
            }
            if left == 0 {
                return Ok(true);
            }
            let count = server.read(self.arriving.room())?.unwrap_or(0);
            self.arriving.filled(count);
            left = left.saturating_sub(count);
            if count == 0 {
                self.arriving.trim();
            }
        }
    }

    fn response(&mut self, cx: &mut Context<'_>, piece: Piece) -> Result<(), String> {
        match piece {
            Piece::Bytes(bytes) => match &mut self.tail {
                None => self.client.push(bytes),
                Some(tail) => {
                    let pieces = tail.pass(bytes, cx.found);
                    let pieces = pieces.map_err(|error| format!("a large Fetch response: {error}"))?;
                    pieces.into_iter().for_each(|piece| self.client.push(piece));
                    self.tail.take_if(|tail| tail.is_over());
                }
            },
            Piece::Head(head) => {
                let correlation_id = i32::from_be_bytes([head[SIZE], head[SIZE + 1], head[SIZE + 2], head[SIZE + 3]]);
                let Waiting { id, seen, .. } = self.responses.next(correlation_id)?;
                if seen.is_none() && id.api_key == ApiKey::Fetch.code() {
                    let size = self.arriving.announced();
                    self.tail = table(id.api_key).and_then(|table| Tail::of(&table, id.version, size));
                }
                if self.tail.is_some() {
                    self.arriving.pass();
                } else if has_addresses(id.api_key, id.version) || seen.is_some() {
                    self.responses.begin(id, seen);
                    self.arriving.collect();
                } else {
                    self.arriving.pass();
                }
            }
            Piece::Frame(frame) => self.responses.arrived(cx, &mut self.client, frame)?,
        }
        if !self.arriving.is_within_frame() {
            self.responses.settle(cx, &mut self.client);
        }
        Ok(())
    }
}

/// Why a transfer failed.
enum Failed {
    Socket(io::Error),
    Content(String),
}

impl Failed {
    fn of(self, whose: &str) -> String {
        match self {
            Self::Socket(error) => format!("connection of {whose}: {error}"),
            Self::Content(error) => format!("bytes of {whose}: {error}"),
        }
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

/// The acks of a Produce request, from its first bytes; `None`: they are too few.
fn acks(head: &[u8], version: i16) -> Option<i16> {
    let i16_at = |at: usize| Some(i16::from_be_bytes([*head.get(at)?, *head.get(at + 1)?]));
    let text = |length: i16| usize::try_from(length).unwrap_or(0);
    // Behind api key, version and correlation id: the client id, which is never compact.
    let mut at = REQUEST_HEAD + 2 + text(i16_at(REQUEST_HEAD)?);
    if request_header_version(ApiKey::Produce.code(), version) < 2 {
        at += 2 + text(i16_at(at)?);
        return i16_at(at);
    }
    let tags = unsigned_varint(head, &mut at)?;
    for _ in 0..tags {
        unsigned_varint(head, &mut at)?;
        let size = unsigned_varint(head, &mut at)?;
        at = at.checked_add(size)?;
    }
    let transactional_id = unsigned_varint(head, &mut at)?;
    i16_at(at.checked_add(transactional_id.saturating_sub(1))?)
}

fn unsigned_varint(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let mut value = 0;
    for shift in (0..35).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use fletchlog_protocol::header::RequestHeader;
    use fletchlog_protocol::messages::ProduceRequest;
    use fletchlog_protocol::{Message, frame};

    use super::*;

    #[test]
    fn the_acks_of_every_version_are_found_in_as_few_bytes_as_possible() {
        for version in ProduceRequest::MIN_VERSION..=ProduceRequest::MAX_VERSION {
            for (client_id, transactional_id) in [(None, None), (Some("c"), Some("t")), (Some("client"), None)] {
                for given in [0, 1, -1] {
                    let header = RequestHeader {
                        api_key: ProduceRequest::API_KEY,
                        api_version: version,
                        correlation_id: 7,
                        client_id: client_id.map(Into::into),
                    };
                    let request = ProduceRequest {
                        transactional_id: transactional_id.map(Into::into),
                        acks: given,
                        ..Default::default()
                    };
                    let mut writer = frame::begin();
                    header.encode(&mut writer).unwrap();
                    request.encode(&mut writer, version).unwrap();
                    let bytes = frame::finish(writer).unwrap().concat().split_off(SIZE);
                    assert_eq!(acks(&bytes, version), Some(given));
                    let needed = (0..bytes.len())
                        .find(|count| acks(&bytes[..*count], version).is_some())
                        .unwrap();
                    assert!(acks(&bytes[..needed], version) == Some(given) && needed < bytes.len());
                }
            }
        }
    }
}
