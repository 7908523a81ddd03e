//! A client's connection and the one to its node. What a slow side has not taken is not read from the other one.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use fletchlog_protocol::ApiKey;
use fletchlog_protocol::header::request_header_version;
use mio::net::TcpStream;

use crate::end::End;
use crate::frames::{Piece, SIZE, Splitter};
use crate::rewrite::{Map, has_addresses, rewrite};

/// Most bytes that are read in one direction before the other connections have their turn.
const BYTES_A_TURN: usize = 1024 * 1024;

/// While more bytes wait for one side, nothing is read from the other one.
const MOST_QUEUED: usize = 512 * 1024;

/// Bytes of a request's head: api key, version, correlation id.
const REQUEST_HEAD: usize = 8;
/// Bytes of a response's head: correlation id.
const RESPONSE_HEAD: usize = 4;

/// A request without its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct InFlight {
    api_key: i16,
    version: i16,
    correlation_id: i32,
}

/// What the connection needs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// An event of one of its sockets.
    Wait,
    /// Another turn: bytes that have arrived are not read yet.
    Again,
    /// To be closed: both sides have ended.
    Close,
}

/// The two connections.
pub(crate) struct Link {
    /// No other link has it.
    pub(crate) serial: u64,
    pub(crate) client: End,
    /// `None`: the name of its node is being resolved, or no address was tried.
    pub(crate) server: Option<End>,
    pub(crate) is_connected: bool,
    /// Addresses of the node that were not tried.
    pub(crate) addresses: VecDeque<SocketAddr>,
    /// The node, for messages and TLS.
    pub(crate) host: String,
    requests: Splitter,
    responses: Splitter,
    in_flight: InFlights,
}

impl Link {
    /// A client that has connected to the port of this node.
    pub(crate) fn new(serial: u64, client: End, host: String) -> Self {
        Self {
            serial,
            client,
            server: None,
            is_connected: false,
            addresses: VecDeque::new(),
            host,
            requests: Splitter::new(REQUEST_HEAD),
            responses: Splitter::new(RESPONSE_HEAD),
            in_flight: InFlights::default(),
        }
    }

    /// The socket to the node.
    pub(crate) fn server_socket(&mut self) -> Option<&mut TcpStream> {
        self.server.as_mut().map(|server| &mut server.socket)
    }

    /// Reads, writes and rewrites what can be. `map` gives the other address of an address.
    ///
    /// # Errors
    /// Why the link is to be closed.
    pub(crate) fn pump(&mut self, map: Map<'_>) -> Result<Turn, String> {
        let Some(server) = self.server.as_mut().filter(|_| self.is_connected) else {
            return Ok(Turn::Wait);
        };
        let in_flight = &mut self.in_flight;
        let drops = server.has_ended;
        let mut request = |splitter: &mut Splitter, piece| match in_flight.request(splitter, piece) {
            Ok(bytes) => Ok(bytes.filter(|_| !drops)),
            Err(error) => Err(error),
        };
        let up = transfer(&mut self.client, server, &mut self.requests, &mut request)
            .map_err(|failed| failed.of("the client"))?;
        let mut response = |splitter: &mut Splitter, piece| self.in_flight.response(splitter, piece, map);
        let down = transfer(server, &mut self.client, &mut self.responses, &mut response)
            .map_err(|failed| failed.of("the node"))?;
        if self.client.has_ended && server.queued() == 0 {
            server.shut();
        }
        if server.has_ended && self.client.queued() == 0 {
            self.client.shut();
        }
        if self.client.has_ended && (server.has_ended || self.client.is_shut()) && self.client.queued() == 0 {
            return Ok(Turn::Close);
        }
        Ok(if up || down { Turn::Again } else { Turn::Wait })
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

/// What to write for a piece.
type OnPiece<'a> = &'a mut dyn FnMut(&mut Splitter, Piece) -> Result<Option<Bytes>, String>;

/// Moves bytes of one direction; true: there are more, and others should have their turn.
fn transfer(from: &mut End, to: &mut End, splitter: &mut Splitter, on_piece: OnPiece<'_>) -> Result<bool, Failed> {
    let mut left = BYTES_A_TURN;
    to.flush()?;
    while from.can_read && !from.has_ended && (to.queued() <= MOST_QUEUED || splitter.collects()) {
        if left == 0 {
            return Ok(true);
        }
        let count = from.read(splitter.room())?.unwrap_or(0);
        splitter.filled(count);
        left = left.saturating_sub(count);
        while let Some(piece) = splitter.next().map_err(Failed::Content)? {
            if let Some(bytes) = on_piece(splitter, piece).map_err(Failed::Content)? {
                to.push(bytes);
            }
        }
        splitter.trim();
        to.flush()?;
    }
    Ok(false)
}

/// The requests that have no response yet, in their order: a node answers the requests of a connection one after the other.
#[derive(Debug, Default)]
struct InFlights {
    requests: VecDeque<InFlight>,
    /// The request whose response is being read.
    current: Option<InFlight>,
}

impl InFlights {
    /// Notes a request; it passes as it is.
    fn request(&mut self, splitter: &mut Splitter, piece: Piece) -> Result<Option<Bytes>, String> {
        let head = match piece {
            Piece::Bytes(bytes) | Piece::Frame(bytes) => return Ok(Some(bytes)),
            Piece::Head(head) => head,
        };
        let i16_at = |at: usize| i16::from_be_bytes([head[at], head[at + 1]]);
        let (api_key, version) = (i16_at(SIZE), i16_at(SIZE + 2));
        let correlation_id = i32::from_be_bytes([head[SIZE + 4], head[SIZE + 5], head[SIZE + 6], head[SIZE + 7]]);
        if api_key == ApiKey::SaslHandshake.code() && version == 0 {
            return Err(
                "SaslHandshake of version 0, whose tokens are no requests; use a client of Kafka 1.0 or newer"
                    .to_owned(),
            );
        }
        let has_response = match (api_key == ApiKey::Produce.code()).then(|| acks(&head[SIZE..], version)) {
            None => true,
            Some(Some(acks)) => acks != 0,
            // The head is too short.
            Some(None) => {
                if splitter.ask_for_more() {
                    return Ok(None);
                }
                // A request that the node will not be able to read either.
                true
            }
        };
        if has_response {
            self.requests.push_back(InFlight {
                api_key,
                version,
                correlation_id,
            });
        }
        splitter.pass();
        Ok(None)
    }

    /// Finds the request of a response, and replaces the addresses in it.
    fn response(&mut self, splitter: &mut Splitter, piece: Piece, map: Map<'_>) -> Result<Option<Bytes>, String> {
        match piece {
            Piece::Bytes(bytes) => Ok(Some(bytes)),
            Piece::Head(head) => {
                let correlation_id = i32::from_be_bytes([head[SIZE], head[SIZE + 1], head[SIZE + 2], head[SIZE + 3]]);
                let request = self.requests.pop_front();
                let request = request.filter(|request| request.correlation_id == correlation_id);
                let Some(request) = request else {
                    return Err(format!(
                        "a response with correlation id {correlation_id}, which is not that of the oldest request"
                    ));
                };
                self.current = Some(request);
                match has_addresses(request.api_key, request.version) {
                    true => splitter.collect(),
                    false => splitter.pass(),
                }
                Ok(None)
            }
            Piece::Frame(frame) => {
                let Some(request) = self.current.take() else {
                    return Ok(Some(frame));
                };
                let rewritten = rewrite(&frame[SIZE..], request.api_key, request.version, map);
                let rewritten = rewritten.map_err(|error| {
                    format!(
                        "a response to API {} of version {} cannot be read: {error}",
                        request.api_key, request.version
                    )
                })?;
                let Some(body) = rewritten else { return Ok(Some(frame)) };
                let size = i32::try_from(body.len()).map_err(|_| "a response of 2 GiB".to_owned())?;
                let mut whole = Vec::with_capacity(SIZE + body.len());
                whole.extend(size.to_be_bytes());
                whole.extend(body);
                Ok(Some(whole.into()))
            }
        }
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
        at = at.checked_add(unsigned_varint(head, &mut at)?)?;
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
