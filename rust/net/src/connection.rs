//! One connection to a node, without I/O and without a clock: requests in, bytes out; bytes in, responses out. Kafka: `NetworkClient`,
//! `InFlightRequests`.
//!
//! ```text
//! opened -> ApiVersions 4 -> (UNSUPPORTED_VERSION: ApiVersions as served, or 0) -> ready: requests and responses, in order
//! ```
//! A request that is sent before the connection is ready waits in it. Responses arrive in the order of the requests. A response with the
//! number of another request, or without a request, is an error, and every error ends the connection.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api::{Failure, Request, Response};
use fletchlog_protocol::header::{RequestHeader, ResponseHeader, response_header_version};
use fletchlog_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, ProduceResponse, SaslAuthenticateRequest, SaslAuthenticateResponse,
    SaslHandshakeResponse,
};
use fletchlog_protocol::{ApiKey, Message, Reader, WireError, Writer, frame};
use fletchlog_records::ErrorCode;
use fletchlog_records::planted;

use crate::address_book::{AddressBook, Destination};
use crate::authenticator::{Authenticator, Next};
use crate::framer::{BadSize, Framer};
use crate::sasl::{Sasl, Token};
use crate::versions::{FinalizedFeatures, Versions, next_api_versions};

/// Most bytes of a response: no batch is larger than a request may be (socket.request.max.bytes), which is 100 MiB by default. The bytes
/// that a fetch asks for are added to this.
const MAX_ANSWER: usize = 100 * 1024 * 1024;

/// The name of the client's software (KIP-511).
const SOFTWARE: (&str, &str) = ("fletchlog", env!("CARGO_PKG_VERSION"));

/// A request that awaits its response.
#[derive(Debug)]
struct InFlight {
    /// Its number on this connection.
    wire_id: i32,
    /// Its number at the client; `None`: it is the connection's own.
    id: Option<i32>,
    api: ApiKey,
    version: i16,
    /// Most bytes of its response.
    limit: usize,
}

/// The response to a request of the client, or why there is none.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) id: i32,
    pub(crate) result: Result<Response, Failure>,
    /// The pause that the node asks for, in ms (KIP-219).
    pub(crate) throttle_ms: i32,
}

/// The protocol state of one connection: versions, authentication, requests in flight, bytes to write.
#[derive(Debug)]
pub(crate) struct Connection {
    client_id: Arc<str>,
    /// What the node compares with itself; `None`: it is not asked to.
    destination: Option<Destination>,
    framer: Framer,
    /// `None` until the connection is ready.
    versions: Option<Versions>,
    /// `None` without SASL.
    authenticator: Option<Authenticator>,
    /// How long the session that has just begun may last, as the node reported.
    session_lifetime_ms: Option<i64>,
    was_authenticated: bool,
    unsent: VecDeque<(i32, Request)>,
    /// The node asked for a pause: nothing is sent meanwhile.
    is_paused: bool,
    in_flight: VecDeque<InFlight>,
    next_wire_id: i32,
    output: VecDeque<Bytes>,
    /// Bytes put into the output and bytes written, since the start.
    queued: u64,
    written: u64,
    /// Requests that get no response (acks=0), each with the number of written bytes at which it is done.
    silent: VecDeque<(u64, i32)>,
    answers: VecDeque<Answer>,
}

impl Connection {
    /// A connection that has just been opened: it first asks for the node's versions.
    ///
    /// # Errors
    /// The client's id does not fit into a header.
    pub(crate) fn new(
        client_id: Arc<str>,
        sasl: Option<Arc<Sasl>>,
        destination: Option<Destination>,
    ) -> Result<Self, WireError> {
        let mut connection = Self {
            client_id,
            destination,
            framer: Framer::default(),
            versions: None,
            authenticator: sasl.map(Authenticator::new),
            session_lifetime_ms: None,
            was_authenticated: false,
            unsent: VecDeque::new(),
            is_paused: false,
            in_flight: VecDeque::new(),
            next_wire_id: 0,
            output: VecDeque::new(),
            queued: 0,
            written: 0,
            silent: VecDeque::new(),
            answers: VecDeque::new(),
        };
        connection.ask_for_versions(ApiKey::ApiVersions.max_version())?;
        Ok(connection)
    }

    /// True once the versions are known and the node has accepted the client: requests are sent at once.
    pub(crate) fn is_ready(&self) -> bool {
        self.versions.is_some() && self.authenticator.as_ref().is_none_or(Authenticator::is_complete)
    }

    /// True once it was ready, also while the client authenticates again.
    pub(crate) fn was_ready(&self) -> bool {
        self.is_ready() || self.was_authenticated
    }

    /// Whether the node has reported which versions it serves.
    pub(crate) fn knows_versions(&self) -> bool {
        self.versions.is_some()
    }

    /// The levels of the cluster's features, as the node has reported them.
    pub(crate) fn features(&self) -> FinalizedFeatures {
        self.versions
            .as_ref()
            .map(|versions| versions.features)
            .unwrap_or_default()
    }

    /// Sends a request, now or when the connection is ready and not paused.
    pub(crate) fn send(&mut self, id: i32, request: Request) {
        self.unsent.push_back((id, request));
        self.write_unsent();
    }

    /// Queues requests instead of sending them, until [`Self::resume`]. Kafka: `ClusterConnectionStates#throttle`.
    pub(crate) fn pause(&mut self) {
        self.is_paused = true;
    }

    /// Sends the requests that were queued since [`Self::pause`].
    pub(crate) fn resume(&mut self) {
        self.is_paused = false;
        self.write_unsent();
    }

    fn write_unsent(&mut self) {
        while self.is_ready() && !self.is_paused {
            let Some((id, request)) = self.unsent.pop_front() else {
                return;
            };
            if let Err(failure) = self.write_request(id, request) {
                self.answers.push_back(Answer {
                    id,
                    result: Err(failure),
                    throttle_ms: 0,
                });
            }
        }
    }

    /// The oldest response that has not been taken.
    pub(crate) fn take_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// Ends the connection. Returns the client's numbers of the requests that get no response, oldest first.
    pub(crate) fn close(&mut self) -> Vec<i32> {
        let silent = self.silent.drain(..).map(|(_, id)| id);
        let in_flight = self.in_flight.drain(..).filter_map(|request| request.id);
        silent
            .chain(in_flight)
            .chain(self.unsent.drain(..).map(|(id, _)| id))
            .collect()
    }

    /// Room for bytes from the socket.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.framer.room()
    }

    /// Decodes responses after `count` bytes of the room were filled.
    ///
    /// # Errors
    /// The bytes are not the response to the oldest request: the connection is to be closed.
    pub(crate) fn received(&mut self, count: usize, book: &mut AddressBook) -> Result<(), Failure> {
        self.framer.received(count);
        loop {
            let limit = self.in_flight.front().map_or(MAX_ANSWER, |oldest| oldest.limit);
            let frame = self.framer.next(limit).map_err(|BadSize(size)| bad_size(size, limit))?;
            let Some(frame) = frame else {
                return Ok(());
            };
            let Some(asked) = (if planted!("answer-of-another-request") {
                self.in_flight.pop_back()
            } else {
                self.in_flight.pop_front()
            }) else {
                return Err(malformed("an answer without a request"));
            };
            if let Err(failure) = self.on_frame(&asked, frame, book) {
                self.in_flight.push_front(asked); // It has no response.
                return Err(failure);
            }
        }
    }

    fn on_frame(&mut self, asked: &InFlight, frame: Bytes, book: &mut AddressBook) -> Result<(), Failure> {
        let mut reader = Reader::new(frame.clone());
        let header_version = response_header_version(asked.api.code(), asked.version);
        let header = ResponseHeader::decode(&mut reader, header_version).map_err(malformed)?;
        if header.correlation_id != asked.wire_id && !planted!("answer-of-another-request") {
            return Err(malformed(format_args!(
                "an answer to request {}, not to request {}",
                header.correlation_id, asked.wire_id
            )));
        }
        let Some(id) = asked.id else {
            let body = frame.slice(frame.len() - reader.remaining()..);
            return match asked.api {
                ApiKey::ApiVersions => self.on_versions(asked.version, &body),
                _ => self.on_authentication(asked, body),
            };
        };
        let mut response = Response::decode(asked.api, &mut reader, asked.version).map_err(malformed)?;
        book.note_addresses(&mut response);
        self.answers.push_back(Answer {
            id,
            throttle_ms: response.client_throttle_ms(asked.version),
            result: Ok(response),
        });
        Ok(())
    }

    /// A node that does not know the version responds in version 0, with error 35. Kafka: `ApiVersionsResponse#parse`.
    fn on_versions(&mut self, asked: i16, body: &Bytes) -> Result<(), Failure> {
        let read = |version| ApiVersionsResponse::decode(&mut Reader::new(body.clone()), version);
        let response = match read(asked) {
            Ok(response) if response.error_code != ErrorCode::UNSUPPORTED_VERSION => response,
            _ => read(0).map_err(malformed)?,
        };
        let error = response.error_code;
        if error == ErrorCode::UNSUPPORTED_VERSION {
            let Some(version) = next_api_versions(&response, asked) else {
                return Err(Failure::UnsupportedVersion(
                    "it refuses every version of ApiVersions".into(),
                ));
            };
            return self.ask_for_versions(version).map_err(malformed);
        }
        if error == ErrorCode::REBOOTSTRAP_REQUIRED && self.destination.is_some() {
            return Err(Failure::RebootstrapRequired);
        }
        if error != ErrorCode::NONE {
            return Err(malformed(format_args!(
                "error {error} instead of the versions that it serves"
            )));
        }
        self.versions = Some(Versions::of(&response));
        self.authenticate()?;
        self.write_unsent();
        Ok(())
    }

    /// Begins an authentication, before the first request and before the session ends. Requests that are sent meanwhile wait.
    ///
    /// # Errors
    /// The node does not serve SaslHandshake.
    pub(crate) fn authenticate(&mut self) -> Result<(), Failure> {
        let Some(authenticator) = &mut self.authenticator else {
            return Ok(());
        };
        let request = authenticator.begin();
        self.write_own(ApiKey::SaslHandshake, &request)
    }

    fn on_authentication(&mut self, asked: &InFlight, body: Bytes) -> Result<(), Failure> {
        let Some(authenticator) = &mut self.authenticator else {
            return Err(malformed("an answer of SASL without SASL"));
        };
        let mut reader = Reader::new(body);
        let next = if asked.api == ApiKey::SaslHandshake {
            let response = SaslHandshakeResponse::decode(&mut reader, asked.version).map_err(malformed)?;
            authenticator.on_handshake(&response)?
        } else {
            let response = SaslAuthenticateResponse::decode(&mut reader, asked.version).map_err(malformed)?;
            authenticator.on_authenticate(&response)?
        };
        self.go_on(next)
    }

    fn go_on(&mut self, next: Next) -> Result<(), Failure> {
        match next {
            Next::WantToken => {}
            Next::Send(bytes) => {
                let request = SaslAuthenticateRequest {
                    auth_bytes: bytes.into(),
                };
                self.write_own(ApiKey::SaslAuthenticate, &request)?;
            }
            Next::Complete(lifetime_ms) => {
                self.was_authenticated = true;
                self.session_lifetime_ms = (lifetime_ms > 0).then_some(lifetime_ms);
                self.write_unsent();
            }
        }
        Ok(())
    }

    /// Whether it waits for [`Self::give_token`].
    pub(crate) fn wants_token(&self) -> bool {
        self.authenticator.as_ref().is_some_and(Authenticator::wants_token)
    }

    /// Takes the token that the authentication waits for, or why there is none.
    ///
    /// # Errors
    /// There is no token, or it cannot be sent: the connection is to be closed.
    pub(crate) fn give_token(&mut self, token: Result<Token, String>) -> Result<(), Failure> {
        match &mut self.authenticator {
            Some(authenticator) => {
                let next = authenticator.give_token(token)?;
                self.go_on(next)
            }
            None => Ok(()),
        }
    }

    /// How long the session that has just begun may last, ms; `None` if that was already returned, or if it never ends.
    pub(crate) fn take_session_lifetime(&mut self) -> Option<i64> {
        self.session_lifetime_ms.take()
    }

    /// Writes a request of the connection itself.
    fn write_own(&mut self, api: ApiKey, request: &impl Message) -> Result<(), Failure> {
        let version = self.version_of(api, i16::MAX)?;
        let wire_id = self.next_wire_id();
        let header = self.header(api, version, wire_id);
        self.write_frame(&header, |w| request.encode(w, version))?;
        self.in_flight.push_back(InFlight {
            wire_id,
            id: None,
            api,
            version,
            limit: MAX_ANSWER,
        });
        Ok(())
    }

    fn ask_for_versions(&mut self, version: i16) -> Result<(), WireError> {
        let request = ApiVersionsRequest {
            client_software_name: SOFTWARE.0.into(),
            client_software_version: SOFTWARE.1.into(),
            cluster_id: self.destination.as_ref().map(|meant| Arc::clone(&meant.cluster_id)),
            node_id: self.destination.as_ref().map_or(-1, |meant| meant.node_id),
        };
        let wire_id = self.next_wire_id();
        let mut writer = frame::begin();
        self.header(ApiKey::ApiVersions, version, wire_id).encode(&mut writer)?;
        request.encode(&mut writer, version)?;
        self.put(frame::finish(writer)?);
        self.in_flight.push_back(InFlight {
            wire_id,
            id: None,
            api: ApiKey::ApiVersions,
            version,
            limit: MAX_ANSWER,
        });
        Ok(())
    }

    fn header(&self, api: ApiKey, version: i16, wire_id: i32) -> RequestHeader {
        RequestHeader {
            api_key: api.code(),
            api_version: version,
            correlation_id: wire_id,
            client_id: Some(Arc::clone(&self.client_id)),
        }
    }

    fn next_wire_id(&mut self) -> i32 {
        let id = self.next_wire_id;
        self.next_wire_id = id.checked_add(1).unwrap_or(0);
        id
    }

    /// The version in which to send a request of an API, at most `newest`.
    fn version_of(&self, api: ApiKey, newest: i16) -> Result<i16, Failure> {
        let usable = self
            .versions
            .as_ref()
            .map_or(Ok(0), |versions| versions.usable(api, newest));
        usable.map_err(|why| Failure::UnsupportedVersion(why.into()))
    }

    /// Encodes a request at the version that the node serves; if no version can carry it, it fails at once.
    fn write_request(&mut self, id: i32, request: Request) -> Result<(), Failure> {
        let api = request.api();
        let version = self.version_of(api, request.newest_version())?;
        let unsupported = |why: &str| Failure::UnsupportedVersion(why.into());
        request.check_version(version).map_err(unsupported)?;
        let mut limit = MAX_ANSWER;
        let max_bytes = match &request {
            Request::Fetch(fetch) => fetch.max_bytes,
            Request::ShareFetch(fetch) => fetch.max_bytes,
            _ => 0,
        };
        limit = limit.saturating_add(usize::try_from(max_bytes).unwrap_or(0));
        let is_silent = matches!(&request, Request::Produce(produce) if produce.acks == 0);
        let wire_id = self.next_wire_id();
        let header = self.header(api, version, wire_id);
        self.write_frame(&header, |w| request.encode(w, version))?;
        if is_silent {
            self.silent.push_back((self.queued, id));
        } else {
            self.in_flight.push_back(InFlight {
                wire_id,
                id: Some(id),
                api,
                version,
                limit,
            });
        }
        Ok(())
    }

    fn write_frame(
        &mut self,
        header: &RequestHeader,
        body: impl FnOnce(&mut Writer) -> Result<(), WireError>,
    ) -> Result<(), Failure> {
        let mut writer = frame::begin();
        let encoded = header.encode(&mut writer).and_then(|()| body(&mut writer));
        let chunks = encoded.and_then(|()| frame::finish(writer));
        let unsupported = |error| format!("{error}, in version {}", header.api_version);
        self.put(chunks.map_err(|error| Failure::UnsupportedVersion(unsupported(error).into()))?);
        Ok(())
    }

    fn put(&mut self, chunks: Vec<Bytes>) {
        for chunk in chunks.into_iter().filter(|chunk| !chunk.is_empty()) {
            self.queued += chunk.len() as u64;
            self.output.push_back(chunk);
        }
    }

    /// Whether there is something to write.
    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Adds the bytes to write next.
    pub(crate) fn output<'a>(&'a self, slices: &mut Vec<IoSlice<'a>>) {
        slices.extend(self.output.iter().take(64).map(|chunk| IoSlice::new(chunk)));
    }

    /// `count` bytes of the output were written. A request that gets no response is done with its last byte.
    pub(crate) fn written(&mut self, mut count: usize) {
        self.written += count as u64;
        while let Some(first) = self.output.front_mut() {
            if count < first.len() {
                *first = first.slice(count..);
                break;
            }
            count -= first.len();
            self.output.pop_front();
        }
        while let Some(&(end, id)) = self.silent.front().filter(|(end, _)| *end <= self.written) {
            debug_assert!(end > 0);
            self.silent.pop_front();
            self.answers.push_back(Answer {
                id,
                result: Ok(Response::Produce(ProduceResponse::default())),
                throttle_ms: 0,
            });
        }
    }
}

fn malformed(what: impl ToString) -> Failure {
    Failure::Malformed(what.to_string().into())
}

fn bad_size(size: i32, limit: usize) -> Failure {
    let hint = match size.to_be_bytes() {
        // A TLS alert: the node did not understand what it read.
        [0x15, 3, ..] => {
            let what = "the broker speaks TLS on this port: set security.protocol to SSL or SASL_SSL";
            return Failure::SslAuthentication(what.into());
        }
        [b'H', b'T', b'T', b'P'] => "; this looks like an HTTP server",
        _ => "",
    };
    malformed(format_args!(
        "an answer of {size} bytes is announced, the limit is {limit}{hint}"
    ))
}

#[cfg(test)]
mod tests;
