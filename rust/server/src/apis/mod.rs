//! The requests that are served, and the calls of the broker that handle them. Kafka: `KafkaApis#handle`, `ApiVersionManager`.
//!
//! One module for each part of the protocol. It converts wire messages to request values or calls of the broker, and results back. What a
//! request means is up to the broker.

mod acls;
mod api_versions;
mod authorization;
mod cluster;
mod configs;
mod consumer_groups;
mod features;
mod fetch;
mod group_admin;
mod group_offsets;
mod groups;
mod metadata;
mod offsets;
mod produce;
mod quorum;
mod replicas;
mod sasl;
mod security;
mod share_fetch;
mod share_groups;
mod topics;
mod transaction_admin;
mod transactions;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use bytes::Bytes;
use fletchlog_api as api;
use fletchlog_api::NodeId;
use fletchlog_broker::panics::place;
use fletchlog_broker::{Broker, Deferred, Outcome, Port, RefreshOnce, Ticket};
use fletchlog_protocol::by_topic::grouped;
use fletchlog_protocol::header::{RequestHeader, ResponseHeader, outline, response_header_version};
use fletchlog_protocol::{Message, Reader, WireError, frame};

use crate::authenticator::Authenticator;
use crate::endpoint::Endpoint;
use crate::limits::Limits;
use crate::security::Security;
use crate::stats::{LastRequest, RequestKind, Stats};
use crate::unsent::{Reserved, Unsent};

pub use api_versions::served_apis;

/// Encodes the broker's response.
pub(crate) type Respond = Box<dyn FnOnce(api::Response) -> Result<Vec<Bytes>, Unreadable> + Send>;

/// The outcome of handling a request.
pub(crate) enum Handled {
    /// The response's bytes, with the size in front.
    Answer(Vec<Bytes>),
    /// The broker responds later.
    Later(Ticket, Respond),
    /// The request has no response (acks=0).
    NoAnswer,
    /// The connection is to be closed, for this reason.
    Close(String),
    /// Send these bytes after a delay, then close the connection, for this reason.
    Refuse(Vec<Bytes>, String),
}

/// Why a request gets no response: the connection is closed, as in Kafka.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    /// Its bytes cannot be decoded, or its response cannot be encoded.
    #[error("{0}")]
    Wire(#[from] WireError),
    /// A request for which Kafka closes the connection, or a defect of the broker.
    #[error("{0}")]
    Refused(&'static str),
}

/// The client at the other end of a connection.
pub(crate) struct Peer {
    port: Port,
    address: SocketAddr,
    /// Name and version of its software.
    software: RwLock<Arc<str>>,
    /// Set on a listener with SASL.
    authenticator: Option<Mutex<Authenticator>>,
    /// The user's name, once the client has authenticated.
    user: OnceLock<String>,
}

impl Peer {
    /// The node that it is connected to.
    pub(crate) fn node(&self) -> NodeId {
        self.port.node()
    }

    /// A client that has just connected.
    pub(crate) fn new(port: Port, address: SocketAddr, authenticates: bool) -> Self {
        Self {
            authenticator: authenticates.then(|| Mutex::new(Authenticator::new())),
            user: OnceLock::new(),
            port,
            address,
            software: RwLock::new("".into()),
        }
    }

    /// The largest request that the client may send now.
    pub(crate) fn largest_request(&self, limits: &Limits) -> i32 {
        match self.authenticator.is_some() && self.user.get().is_none() {
            true => limits.sasl_server_max_receive_size.min(limits.socket_request_max_bytes),
            false => limits.socket_request_max_bytes,
        }
    }

    /// Takes the name in the client's certificate as the user, unless the listener has SASL.
    pub(crate) fn identify(&self, name: String) {
        if self.authenticator.is_none() {
            // It is set once for each connection.
            let _ = self.user.set(name);
        }
    }

    /// The user's name, once the client has authenticated.
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.get().map(String::as_str)
    }

    /// The client's address and, if known, its software: for the log.
    pub(crate) fn name(&self) -> String {
        let software = self.software.read().unwrap_or_else(PoisonError::into_inner);
        match &**software {
            "" => self.address.to_string(),
            software => format!("{} ({software})", self.address),
        }
    }
}

/// The served APIs of one listener.
pub(crate) struct Apis {
    broker: Arc<Broker>,
    clock: Arc<dyn api::Clock>,
    endpoints: Arc<[Endpoint]>,
    /// TLS and SASL of the listener.
    pub(crate) security: Security,
    unsent: Unsent,
    /// Most bytes of a response that can be far larger than its request.
    largest_answer: usize,
}

impl Apis {
    /// Serves a broker whose nodes are reached at these endpoints.
    pub(crate) fn new(broker: Arc<Broker>, endpoints: Vec<Endpoint>, limits: &Limits, security: Security) -> Self {
        Self {
            security,
            clock: broker.clock(),
            unsent: Unsent::new(limits.queued_max_request_bytes),
            largest_answer: limits
                .queued_max_request_bytes
                .max(usize::try_from(limits.socket_request_max_bytes).unwrap_or(0)),
            broker,
            endpoints: endpoints.into(),
        }
    }

    /// Memory of the responses that clients have not received yet.
    pub(crate) fn unsent(&self) -> &Unsent {
        &self.unsent
    }

    /// The broker that handles the requests.
    pub(crate) fn broker(&self) -> &Arc<Broker> {
        &self.broker
    }

    /// Handles one request. Keep the second value until the response is counted in [`Unsent`].
    pub(crate) fn handle(&self, peer: &Peer, frame: Bytes, stats: &Stats) -> (Handled, Option<Reserved>) {
        let mut reserved = None;
        let handled = self.handle_frame(peer, frame, stats, &mut reserved);
        let reserved = match &handled {
            Handled::Answer(chunks) => reserved.map(|reserved| reserved.of(chunks)),
            _ => None,
        };
        (handled, reserved)
    }

    fn handle_frame(&self, peer: &Peer, frame: Bytes, stats: &Stats, reserved: &mut Option<Reserved>) -> Handled {
        if let Some(handled) = self.handle_bare_token(peer, &frame) {
            return handled;
        }
        let bytes = frame.len();
        let mut reader = Reader::new(frame.clone());
        let header = match RequestHeader::decode(&mut reader) {
            Ok(header) => header,
            Err(error) => return Handled::Close(format!("{}: {error}", outline(frame))),
        };
        let (key, version) = (header.api_key, header.api_version);
        let Some((api, handler)) = api_versions::handler(key, version) else {
            return Handled::Close(format!("{}: {}", outline(frame), api_versions::why_not_served(key)));
        };
        let kind = RequestKind {
            api: api.name(),
            version,
            client: peer.software.read().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        let request = LastRequest {
            time_ms: self.clock.now_ms(),
            kind,
            client_id: header.client_id.as_deref().unwrap_or_default().to_owned(),
            address: peer.address,
        };
        stats.request(request, bytes);
        let mut call = Call {
            apis: self,
            peer,
            header,
            reader,
            reserved,
            asked: Asked::default(),
        };
        let id = call.header.correlation_id;
        let _refresh_once = RefreshOnce::begin();
        place(|| format!("request {id}"));
        let handled = call.pass(api, handler);
        let handled = handled.and_then(|handled| call.after_writes(&frame, handler, handled));
        place(|| format!("request {id}, handled"));
        handled.unwrap_or_else(|error| Handled::Close(format!("{}: {error}", outline(frame))))
    }
}

/// Handles one kind of request.
pub(crate) type Handler = fn(&mut Call<'_>) -> Result<Handled, Unreadable>;

/// A request and its sender.
pub(crate) struct Call<'a> {
    apis: &'a Apis,
    peer: &'a Peer,
    header: RequestHeader,
    reader: Reader,
    /// Reserved memory for the records that are read for the response.
    reserved: &'a mut Option<Reserved>,
    asked: Asked,
}

/// What the broker was asked for at once.
#[derive(Default)]
struct Asked {
    /// Number of requests so far.
    count: Cell<usize>,
    /// Responses that wait for records of a coordinator, by the number of their request.
    deferred: RefCell<BTreeMap<usize, Deferred>>,
    /// What takes the place of responses, by the number of their request.
    instead: RefCell<BTreeMap<usize, api::Response>>,
}

impl Call<'_> {
    /// The request's message, in the shape of its newest version.
    fn message<M: Message>(&mut self) -> Result<M, Unreadable> {
        let version = self.header.api_version;
        Ok(M::decode(&mut self.reader, version)?.of_version(version))
    }

    fn room(&self) -> Room {
        Room(self.apis.largest_answer)
    }

    fn version(&self) -> i16 {
        self.header.api_version
    }

    fn broker(&self) -> &Arc<Broker> {
        &self.apis.broker
    }

    /// Responds at once.
    fn answer<M: Message>(&self, message: M) -> Result<Handled, Unreadable> {
        Ok(Handled::Answer(encode(&self.header, message)?))
    }

    /// Asks the broker for something to which it always responds at once. A coordinator's response may have to wait
    /// ([`Call::after_writes`]).
    fn ask_now(&self, request: api::Request) -> Result<api::Response, Unreadable> {
        let nth = self.asked.count.replace(self.asked.count.get() + 1);
        if let Some(response) = self.asked.instead.borrow_mut().remove(&nth) {
            return Ok(response);
        }
        match self.peer.port.handle(request) {
            Outcome::Now(response) => Ok(response),
            Outcome::After(deferred) => {
                let response = deferred.response.clone();
                self.asked.deferred.borrow_mut().insert(nth, deferred);
                Ok(response)
            }
            Outcome::Later(_) | Outcome::Close => Err(CLOSED),
        }
    }

    /// If a coordinator's response has to wait for its records, so does this one. What is sent after the time-out is made by the same handler.
    fn after_writes(&mut self, frame: &Bytes, handler: Handler, handled: Handled) -> Result<Handled, Unreadable> {
        let deferred = std::mem::take(self.asked.deferred.get_mut());
        let Some((_, last)) = deferred.last_key_value() else {
            return Ok(handled);
        };
        let Handled::Answer(in_time) = handled else {
            return Ok(handled);
        };
        let (ticket, is_refused) = (last.ticket.clone(), last.is_refused());
        let refusals = deferred.into_iter().map(|(nth, deferred)| (nth, deferred.refused));
        let mut reader = Reader::new(frame.clone());
        let mut again = Call {
            apis: self.apis,
            peer: self.peer,
            header: RequestHeader::decode(&mut reader)?,
            reader,
            reserved: &mut None,
            asked: Asked {
                instead: RefCell::new(refusals.collect()),
                ..Asked::default()
            },
        };
        let Handled::Answer(too_late) = handler(&mut again)? else {
            return Err(OTHER_KIND);
        };
        let answer = move |_| match is_refused() {
            true => Ok(too_late),
            false => Ok(in_time),
        };
        Ok(Handled::Later(ticket, Box::new(answer)))
    }

    /// Asks the broker, and responds with the message that `respond` makes of its response, now or later.
    fn ask<M: Message>(
        &self,
        request: api::Request,
        respond: impl FnOnce(api::Response) -> Result<M, Unreadable> + Send + 'static,
    ) -> Result<Handled, Unreadable> {
        let header = RequestHeader {
            client_id: None,
            ..self.header.clone()
        };
        let encoded = move |response| {
            place(|| format!("answer {}", header.correlation_id));
            encode(&header, respond(response)?)
        };
        Ok(match self.peer.port.handle(request) {
            Outcome::Now(response) => Handled::Answer(encoded(response)?),
            Outcome::Later(ticket) => Handled::Later(ticket, Box::new(encoded)),
            Outcome::After(deferred) => Handled::Later(deferred.ticket, Box::new(encoded)),
            Outcome::Close => return Err(CLOSED),
        })
    }
}

/// Bytes left for a response whose entries may be a thousand times larger than the entries of the request, which may also be repeated.
struct Room(usize);

impl Room {
    /// Takes room for one entry of about this many bytes.
    fn take(&mut self, bytes: usize) -> Result<(), Unreadable> {
        self.0 = self.0.checked_sub(bytes).ok_or(TOO_LARGE)?;
        Ok(())
    }
}

/// The response would be too large.
const TOO_LARGE: Unreadable = Unreadable::Refused(
    "its answer would be larger than queued.max.request.bytes and socket.request.max.bytes; it has to ask for less at a time",
);

/// The broker has no response.
const CLOSED: Unreadable =
    Unreadable::Refused("it has no answer: the broker is closed, or refused a record that was sent with acks=0");

/// The broker's response is of another kind.
const OTHER_KIND: Unreadable = Unreadable::Refused("the broker's answer is not that of the request, which is a defect");

/// The value of one kind of [`api::Response`].
macro_rules! response {
    ($kind:ident, $response:expr) => {
        match $response {
            fletchlog_api::Response::$kind(response) => Ok(response),
            _ => Err($crate::apis::OTHER_KIND),
        }
    };
}
use response;

/// The frame of a response, which has the shape of its newest version.
fn encode<M: Message>(header: &RequestHeader, message: M) -> Result<Vec<Bytes>, Unreadable> {
    let mut writer = frame::begin();
    let version = response_header_version(header.api_key, header.api_version);
    let correlation_id = header.correlation_id;
    ResponseHeader { correlation_id }.encode(&mut writer, version);
    let version = header.api_version;
    message.for_version(version).encode(&mut writer, version)?;
    Ok(frame::finish(writer)?)
}

/// Groups values by topic. Topics are in the order of their first value.
fn by_topic<V>(values: impl IntoIterator<Item = (Arc<str>, V)>) -> impl Iterator<Item = (Arc<str>, Vec<V>)> {
    grouped(values).into_iter()
}

/// The items that occur more than once.
fn repeated<T: Eq + Hash + Clone>(all: impl IntoIterator<Item = T>) -> HashSet<T> {
    let mut seen = HashSet::new();
    all.into_iter().filter(|one| !seen.insert(one.clone())).collect()
}
