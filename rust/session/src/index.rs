//! Where everything in a session is: read once from its blocks, and further as the file grows.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_protocol::header::RequestHeader;
use fletchlog_protocol::tree::{Node, Side, Tree};
use fletchlog_protocol::{ApiKey, Reader};
use rustc_hash::FxHashMap;

use crate::body::{ApiVersion, response_tree};
use crate::event::{self, Event, State};
use crate::file::Source;
use crate::format::{BLOCK_HEAD, BlockHead, SessionError};

/// The outcome of a request of which no more is known.
const PENDING: &str = "pending";

/// A connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// Its number, from 1.
    pub number: u64,
    /// The node that its client reached; -1: a proxy did not know it yet.
    pub node: i32,
    /// Address of the client.
    pub peer: Arc<str>,
    /// Address that the client used.
    pub listener: Arc<str>,
    /// Name of the user; `None`: the client did not authenticate.
    pub principal: Option<Arc<str>>,
    /// client.id of its first request that has one.
    pub client_id: Option<Arc<str>>,
    /// What its ApiVersions request says.
    pub software_name: Option<Arc<str>>,
    /// The same.
    pub software_version: Option<Arc<str>>,
    /// When it was opened, us since the epoch.
    pub opened_us: i64,
    /// When it was closed; `None`: it was open when the recording ended.
    pub closed_us: Option<i64>,
    /// Why the broker or the proxy closed it; `None`: the client did, or it was open.
    pub close_reason: Option<Arc<str>>,
    /// Exchanges before it.
    pub(crate) before: usize,
}

/// Where an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) block: u32,
    pub(crate) at: u32,
}

/// A request and what became of it, without bodies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// Number of the request, from 1, over all connections in the order of arrival.
    pub number: u64,
    /// Its connection.
    pub connection: u64,
    /// Key of the API; -1: not recorded.
    pub api_key: i16,
    /// The API's version; -1: not recorded.
    pub version: i16,
    /// The client's number of the request.
    pub correlation_id: i32,
    /// client.id.
    pub client_id: Option<Arc<str>>,
    /// When it had arrived, us since the epoch.
    pub arrived_us: i64,
    /// When its response was ready; `None`: it had none.
    pub answered_us: Option<i64>,
    /// Bytes of the request with its header, without its size.
    pub request_bytes: u64,
    /// The same of the response; `None`: there was none.
    pub response_bytes: Option<u64>,
    /// "pending", "answered", "without response" (acks=0), "closed", "client gone", or what a rule did.
    pub outcome: Arc<str>,
    /// The rule that applied to it.
    pub fault: Option<Arc<str>>,
    pub(crate) request: At,
    pub(crate) response: Option<At>,
}

#[derive(Debug)]
struct BlockAt {
    at: u64,
    length: usize,
}

/// What was read of a file.
#[derive(Debug, Default)]
pub(crate) struct Index {
    blocks: Vec<BlockAt>,
    /// Where the next block begins.
    pub(crate) end: u64,
    /// There are bytes behind the last whole block.
    pub(crate) is_cut: bool,
    /// The recording was ended.
    pub(crate) has_ended: bool,
    pub(crate) dropped: (u64, u64),
    pub(crate) connections: BTreeMap<u64, Connection>,
    /// By number, ascending.
    pub(crate) exchanges: Vec<Exchange>,
    pub(crate) cluster_id: Option<Arc<str>>,
    /// Names of topics, by id.
    pub(crate) topics: BTreeMap<[u8; 16], Arc<str>>,
    texts: FxHashMap<Box<str>, Arc<str>>,
}

/// What an event changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Connection(u64),
    /// The exchange at this place has its outcome.
    Exchange(usize),
}

impl Index {
    /// Reads the blocks that the file has beyond those that are known. Returns what has changed, in the order of the events, if `notes`.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged in front of its end.
    pub(crate) fn read_on(&mut self, path: &Path, source: &Source, notes: bool) -> Result<Vec<Change>, SessionError> {
        let mut changes = Vec::new();
        while let Some((length, raw)) = read_block(path, source, self.end)? {
            let number = u32::try_from(self.blocks.len()).unwrap_or(u32::MAX);
            self.blocks.push(BlockAt { at: self.end, length });
            let read = self.block(number, &raw, notes.then_some(&mut changes));
            read.map_err(|what| SessionError::Damaged {
                path: path.to_owned(),
                at: self.end,
                what,
            })?;
            self.end += length as u64;
        }
        self.is_cut = !source
            .read(self.end, 1)
            .map_err(|source| io_error(path, source))?
            .is_empty();
        Ok(changes)
    }

    /// The raw bytes of a block.
    ///
    /// # Errors
    /// The file has changed.
    pub(crate) fn raw(&self, path: &Path, source: &Source, block: u32) -> Result<Bytes, SessionError> {
        let known = usize::try_from(block).ok().and_then(|block| self.blocks.get(block));
        let at = known.map_or(self.end, |block| block.at);
        match read_block(path, source, at)? {
            Some((length, raw)) if known.is_some_and(|known| known.length == length) => Ok(raw),
            _ => Err(SessionError::Damaged {
                path: path.to_owned(),
                at,
                what: "the file was changed after it was opened".to_owned(),
            }),
        }
    }

    fn block(&mut self, block: u32, raw: &Bytes, mut changes: Option<&mut Vec<Change>>) -> Result<(), String> {
        let mut now_us = i64::from_be_bytes(*raw.first_chunk().ok_or("a block is too short")?);
        let mut at = 8;
        while at < raw.len() {
            let event::Read { after_us, event, place } =
                event::read(raw, at).ok_or_else(|| format!("no event begins at byte {at} of the unpacked block"))?;
            now_us = now_us.saturating_add(after_us);
            let place_in_file = At {
                block,
                at: u32::try_from(at).unwrap_or(u32::MAX),
            };
            let change = self.event(now_us, place_in_file, raw, event);
            if let (Some(changes), Some(change)) = (changes.as_deref_mut(), change) {
                changes.push(change);
            }
            at = place.end;
        }
        Ok(())
    }

    fn event(&mut self, now_us: i64, at: At, raw: &Bytes, event: Event<'_>) -> Option<Change> {
        match event {
            Event::Opened {
                connection,
                node,
                peer,
                listener,
            } => {
                let opened = Connection {
                    number: connection,
                    node,
                    peer: peer.into(),
                    listener: self.text(listener),
                    principal: None,
                    client_id: None,
                    software_name: None,
                    software_version: None,
                    opened_us: now_us,
                    closed_us: None,
                    close_reason: None,
                    before: self.exchanges.len(),
                };
                self.connections.insert(connection, opened);
                Some(Change::Connection(connection))
            }
            Event::Principal { connection, principal } => {
                let principal = self.text(principal);
                self.connections.get_mut(&connection)?.principal = Some(principal);
                None
            }
            Event::Closed { connection, reason } => {
                let reason = (!reason.is_empty()).then(|| self.text(reason));
                let closed = self.connections.get_mut(&connection)?;
                (closed.closed_us, closed.close_reason) = (Some(now_us), reason);
                Some(Change::Connection(connection))
            }
            Event::Request {
                connection,
                number,
                size,
                state,
                frame,
            } => {
                // Numbers of a hostile file may repeat.
                if self.exchanges.last().is_some_and(|last| last.number >= number) {
                    return None;
                }
                let exchange = self.exchange(now_us, at, (connection, number, size), state, &raw.slice_ref(frame));
                self.exchanges.push(exchange);
                None
            }
            Event::Response { .. } => self.response(now_us, at, raw, event),
            Event::Dropped { requests, bodies } => {
                self.dropped = (
                    self.dropped.0.saturating_add(requests),
                    self.dropped.1.saturating_add(bodies),
                );
                None
            }
            Event::End => {
                self.has_ended = true;
                None
            }
            Event::Unknown => None,
        }
    }

    fn response(&mut self, now_us: i64, at: At, raw: &Bytes, event: Event<'_>) -> Option<Change> {
        let Event::Response {
            number,
            size,
            state,
            outcome,
            fault,
            frame,
        } = event
        else {
            return None;
        };
        let place = self
            .exchanges
            .binary_search_by_key(&number, |exchange| exchange.number)
            .ok()?;
        let outcome = self.text(outcome);
        let fault = (!fault.is_empty()).then(|| self.text(fault));
        let exchange = self.exchanges.get_mut(place)?;
        exchange.answered_us = size.map(|_| now_us);
        exchange.response_bytes = size;
        (exchange.outcome, exchange.fault) = (outcome, fault);
        exchange.response = matches!(state, State::Whole | State::Stripped).then_some(at);
        let of = ApiVersion {
            key: exchange.api_key,
            version: exchange.version,
        };
        self.learn(of, &raw.slice_ref(frame));
        Some(Change::Exchange(place))
    }

    fn exchange(&mut self, now_us: i64, at: At, numbers: (u64, u64, u64), state: State, frame: &Bytes) -> Exchange {
        let (connection, number, size) = numbers;
        let mut reader = Reader::of_trees(frame.clone());
        let header = match state {
            State::Nothing => None,
            _ => RequestHeader::decode(&mut reader).ok(),
        };
        let header = header.unwrap_or(RequestHeader {
            api_key: -1,
            api_version: -1,
            correlation_id: -1,
            client_id: None,
        });
        let client_id = header.client_id.as_deref().map(|id| self.text(id));
        let software = (header.api_key == ApiKey::ApiVersions.code())
            .then(|| Tree::decode(ApiKey::ApiVersions, Side::Request, &mut reader, header.api_version).ok())
            .flatten();
        if let Some(opened) = self.connections.get_mut(&connection) {
            if opened.client_id.is_none() {
                opened.client_id.clone_from(&client_id);
            }
            if let Some(tree) = software.filter(|_| header.api_version >= 3) {
                let text = |field| tree.get(field).and_then(Node::text).cloned();
                opened.software_name = text("client_software_name");
                opened.software_version = text("client_software_version");
            }
        }
        Exchange {
            number,
            connection,
            api_key: header.api_key,
            version: header.api_version,
            correlation_id: header.correlation_id,
            client_id,
            arrived_us: now_us,
            answered_us: None,
            request_bytes: size,
            response_bytes: None,
            outcome: self.text(PENDING),
            fault: None,
            request: at,
            response: None,
        }
    }

    /// Takes names of topics and the id of the cluster from responses.
    fn learn(&mut self, of: ApiVersion, frame: &Bytes) {
        let is_known = |api: ApiKey| of.key == api.code();
        if !is_known(ApiKey::Metadata) && !is_known(ApiKey::CreateTopics) && !is_known(ApiKey::DescribeTopicPartitions)
        {
            return;
        }
        let Some((_, _, tree, _)) = response_tree(of, frame) else {
            return;
        };
        if let (None, Some(Node::String(id))) = (&self.cluster_id, tree.get("cluster_id")) {
            self.cluster_id = Some(Arc::clone(id));
        }
        for topic in tree.get("topics").map(Node::elements).unwrap_or_default() {
            if let Node::Struct(topic) = topic
                && let (Some(Node::Uuid(id)), Some(Node::String(name))) = (topic.get("topic_id"), topic.get("name"))
                && *id != [0; 16]
                && !name.is_empty()
            {
                self.topics.insert(*id, Arc::clone(name));
            }
        }
    }

    /// A text of which there are many equal ones.
    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        self.texts.insert(text.into(), Arc::clone(&new));
        new
    }
}

pub(crate) fn io_error(path: &Path, source: std::io::Error) -> SessionError {
    SessionError::Io {
        path: path.to_owned(),
        source,
    }
}

/// The block at `at`: its bytes in the file, and the raw ones. `None`: it is not whole, so the file ends here, or is being written.
fn read_block(path: &Path, source: &Source, at: u64) -> Result<Option<(usize, Bytes)>, SessionError> {
    let damaged = |what: String| SessionError::Damaged {
        path: path.to_owned(),
        at,
        what,
    };
    let read = |at, count| source.read(at, count).map_err(|source| io_error(path, source));
    let head = read(at, BLOCK_HEAD)?;
    let Some(bytes) = head.first_chunk::<BLOCK_HEAD>() else {
        return Ok(None);
    };
    let block = BlockHead::decode(bytes);
    if let Some(fault) = block.fault() {
        return Err(damaged(fault));
    }
    let frame = read(at + BLOCK_HEAD as u64, block.length)?;
    if frame.len() < block.length {
        return Ok(None);
    }
    let raw = block.raw(bytes, &frame).map_err(damaged)?;
    Ok(Some((BLOCK_HEAD + block.length, raw.into())))
}
