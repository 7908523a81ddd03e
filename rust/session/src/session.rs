//! Reads a session: what is in it in order, and messages when they are asked for.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use fletchlog_protocol::header::{RequestHeader, ResponseHeader, response_header_version};
use fletchlog_protocol::tree::{Side, Tree};
use fletchlog_protocol::{self as protocol, ApiKey, Reader};

use crate::body::{ApiVersion, response_tree};
use crate::event::{self, Event, State};
use crate::file::Source;
use crate::format::{Head, MAGIC, SessionError, VERSION};
use crate::index::{At, Change, Connection, Exchange, Index, io_error};

/// Bytes in which a header ends.
const LARGEST_HEAD: usize = 4 * 1024;
/// Unpacked blocks that are kept.
const KEPT_BLOCKS: usize = 8;

/// What a session consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A connection was opened.
    Connection(Connection),
    /// A request, with what became of it.
    Exchange(Exchange),
}

/// A message of an exchange.
#[derive(Debug, Clone)]
pub struct Message {
    /// Its API.
    pub api: ApiKey,
    /// The version of its bytes.
    pub version: i16,
    /// Its fields.
    pub tree: Tree,
    /// Its records are the headers of batches alone.
    pub is_stripped: bool,
}

/// A session. Thread-safe.
#[derive(Debug)]
pub struct Session {
    path: PathBuf,
    source: Source,
    head: Head,
    index: Mutex<Index>,
    /// Unpacked blocks, the newest last.
    blocks: Mutex<VecDeque<(u32, Bytes)>>,
}

/// A message of an exchange as the struct of its API.
#[derive(Debug)]
pub(crate) struct Body<T> {
    pub(crate) message: T,
    /// Its records are the headers of batches alone.
    pub(crate) is_stripped: bool,
}

impl Session {
    /// Opens a file and reads where everything is in it.
    ///
    /// # Errors
    /// It cannot be read, is no session, is of a later version, or is damaged. A file that is cut, or is still written, is read up to its last
    /// whole block.
    pub fn open(path: &Path) -> Result<Self, SessionError> {
        let source = Source::open(path).map_err(|source| io_error(path, source))?;
        let bytes = source.read(0, LARGEST_HEAD).map_err(|source| io_error(path, source))?;
        if !bytes.starts_with(MAGIC) {
            return Err(SessionError::NotASession(path.to_owned()));
        }
        let (head, length) = Head::decode(&bytes).ok_or_else(|| SessionError::Damaged {
            path: path.to_owned(),
            at: 0,
            what: "its header is cut or changed".to_owned(),
        })?;
        if head.version != VERSION {
            return Err(SessionError::Version {
                path: path.to_owned(),
                version: head.version,
                writer: head.writer,
            });
        }
        let mut index = Index::default();
        index.end = length as u64;
        index.read_on(path, &source, false)?;
        Ok(Self {
            path: path.to_owned(),
            source,
            head,
            index: Mutex::new(index),
            blocks: Mutex::default(),
        })
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What its header says.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The id of the cluster: that of the header, or of the first Metadata response.
    pub fn cluster_id(&self) -> Option<Arc<str>> {
        match self.head.cluster_id.as_str() {
            "" => self.index().cluster_id.clone(),
            known => Some(known.into()),
        }
    }

    /// Whether bytes follow the last whole block.
    pub fn is_cut(&self) -> bool {
        self.index().is_cut
    }

    /// Whether the recording was ended; false: it continues, or its process was killed.
    pub fn has_ended(&self) -> bool {
        self.index().has_ended
    }

    /// Requests that were not recorded, and bodies that were left out, for lack of room.
    pub fn dropped(&self) -> (u64, u64) {
        self.index().dropped
    }

    /// Number of exchanges.
    pub fn exchanges(&self) -> usize {
        self.index().exchanges.len()
    }

    /// An exchange, by its place in the order of arrival.
    pub fn exchange(&self, place: usize) -> Option<Exchange> {
        self.index().exchanges.get(place).cloned()
    }

    /// The place of the exchange with this number.
    pub fn place_of(&self, number: u64) -> Option<usize> {
        self.index()
            .exchanges
            .binary_search_by_key(&number, |exchange| exchange.number)
            .ok()
    }

    /// All connections, by number.
    pub fn connections(&self) -> Vec<Connection> {
        self.index().connections.values().cloned().collect()
    }

    /// A connection.
    pub fn connection(&self, number: u64) -> Option<Connection> {
        self.index().connections.get(&number).cloned()
    }

    /// Names of topics by their ids, as far as responses have them.
    pub fn topics(&self) -> Vec<([u8; 16], Arc<str>)> {
        self.index()
            .topics
            .iter()
            .map(|(id, name)| (*id, Arc::clone(name)))
            .collect()
    }

    /// The name of a topic.
    pub fn topic(&self, id: &[u8; 16]) -> Option<Arc<str>> {
        self.index().topics.get(id).cloned()
    }

    /// Everything in order: a connection in front of its requests.
    pub fn items(&self) -> Vec<Place> {
        let index = self.index();
        let mut opened: Vec<(usize, u64)> = index.connections.values().map(|c| (c.before, c.number)).collect();
        opened.sort_unstable();
        let mut opened = opened.into_iter().peekable();
        let mut places = Vec::with_capacity(opened.len() + index.exchanges.len());
        for place in 0..index.exchanges.len() {
            while let Some((_, number)) = opened.next_if(|(before, _)| *before <= place) {
                places.push(Place::Connection(number));
            }
            places.push(Place::Exchange(place));
        }
        places.extend(opened.map(|(_, number)| Place::Connection(number)));
        places
    }

    /// Reads what was written since the last call: connections that were opened or closed, exchanges that have their outcome.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn read_on(&self) -> Result<Vec<Item>, SessionError> {
        let mut index = self.index();
        let changes = index.read_on(&self.path, &self.source, true)?;
        let item = |change: Change| match change {
            Change::Connection(number) => index.connections.get(&number).cloned().map(Item::Connection),
            Change::Exchange(place) => index.exchanges.get(place).cloned().map(Item::Exchange),
        };
        Ok(changes.into_iter().filter_map(item).collect())
    }

    /// The bytes of a request, header and body, without the size. Empty: they are not in the file.
    ///
    /// # Errors
    /// The file cannot be read, or was changed.
    pub fn request_frame(&self, exchange: &Exchange) -> Result<Bytes, SessionError> {
        Ok(self
            .frame(exchange.request)?
            .map_or_else(Bytes::new, |(_, frame)| frame))
    }

    /// The request of an exchange; `None`: its API or version is not known, or it is not in the file.
    ///
    /// # Errors
    /// The file cannot be read, or was changed.
    pub fn request(&self, exchange: &Exchange) -> Result<Option<Message>, SessionError> {
        let Some((state, frame)) = self.frame(exchange.request)? else {
            return Ok(None);
        };
        let read = || {
            let mut reader = Reader::of_trees(frame);
            let header = RequestHeader::decode(&mut reader).ok()?;
            let (api, version) = (ApiKey::from_code(header.api_key)?, header.api_version);
            let tree = Tree::decode(api, Side::Request, &mut reader, version).ok()?;
            Some(Message {
                api,
                version,
                tree,
                is_stripped: state == State::Stripped,
            })
        };
        Ok(read().filter(|_| matches!(state, State::Whole | State::Stripped)))
    }

    /// The response of an exchange; `None`: there is none, or it is not in the file.
    ///
    /// # Errors
    /// The file cannot be read, or was changed.
    pub fn response(&self, exchange: &Exchange) -> Result<Option<Message>, SessionError> {
        let Some(at) = exchange.response else { return Ok(None) };
        let Some((state, frame)) = self.frame(at)? else {
            return Ok(None);
        };
        let of = ApiVersion {
            key: exchange.api_key,
            version: exchange.version,
        };
        Ok(response_tree(of, &frame).map(|(api, version, tree, _)| Message {
            api,
            version,
            tree,
            is_stripped: state == State::Stripped,
        }))
    }

    /// The request of an exchange of this API; `None` as for [`Self::request`], or a field has a value that Kafka does not have.
    pub(crate) fn request_body<T: protocol::Message>(
        &self,
        exchange: &Exchange,
    ) -> Result<Option<Body<T>>, SessionError> {
        let read = |reader: &mut Reader| RequestHeader::decode(reader).is_ok();
        self.body(exchange, Some(exchange.request), read)
    }

    /// Its response, the same.
    pub(crate) fn response_body<T: protocol::Message>(
        &self,
        exchange: &Exchange,
    ) -> Result<Option<Body<T>>, SessionError> {
        let version = response_header_version(exchange.api_key, exchange.version);
        let read = |reader: &mut Reader| ResponseHeader::decode(reader, version).is_ok();
        self.body(exchange, exchange.response, read)
    }

    fn body<T: protocol::Message>(
        &self,
        exchange: &Exchange,
        at: Option<At>,
        header: impl FnOnce(&mut Reader) -> bool,
    ) -> Result<Option<Body<T>>, SessionError> {
        let frame = at.map(|at| self.frame(at)).transpose()?.flatten();
        let Some((state @ (State::Whole | State::Stripped), frame)) = frame else {
            return Ok(None);
        };
        let mut reader = Reader::new(frame);
        let message = header(&mut reader)
            .then(|| T::decode(&mut reader, exchange.version).ok())
            .flatten();
        let is_stripped = state == State::Stripped;
        Ok(message.map(|message| Body { message, is_stripped }))
    }

    /// The frame of an event.
    fn frame(&self, at: At) -> Result<Option<(State, Bytes)>, SessionError> {
        let raw = self.raw(at.block)?;
        let place = usize::try_from(at.at).unwrap_or(usize::MAX);
        Ok(event::read(&raw, place).and_then(|read| match read.event {
            Event::Request { state, frame, .. } | Event::Response { state, frame, .. } => {
                Some((state, raw.slice_ref(frame)))
            }
            _ => None,
        }))
    }

    fn raw(&self, block: u32) -> Result<Bytes, SessionError> {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, raw)) = blocks.iter().rev().find(|(number, _)| *number == block) {
            return Ok(raw.clone());
        }
        let raw = self.index().raw(&self.path, &self.source, block)?;
        if blocks.len() == KEPT_BLOCKS {
            blocks.pop_front();
        }
        blocks.push_back((block, raw.clone()));
        Ok(raw)
    }
}

/// A connection by its number, or an exchange by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Number of a connection.
    Connection(u64),
    /// Place of an exchange.
    Exchange(usize),
}
