//! What of a frame is recorded: Kafka's bytes without secrets, and of records the headers of their batches.

use bytes::Bytes;
use fletchlog_protocol::header::{RequestHeader, ResponseHeader, response_header_version};
use fletchlog_protocol::tree::{Node, Side, Tree};
use fletchlog_protocol::{ApiKey, Reader, Writer};

use crate::batches::headers_of;
use crate::event::State;
use crate::sensitive::{has_properties, is_secret, may_keep_bytes};

/// The field of records in every message.
const RECORDS: &str = "records";

/// Which API and version a request has, for its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ApiVersion {
    pub(crate) key: i16,
    pub(crate) version: i16,
}

impl ApiVersion {
    /// That of a request, from its first bytes.
    pub(crate) fn of_request(frame: &[u8]) -> Option<Self> {
        let [key, key_low, version, version_low] = *frame.first_chunk()?;
        Some(Self {
            key: i16::from_be_bytes([key, key_low]),
            version: i16::from_be_bytes([version, version_low]),
        })
    }
}

/// Decides what is kept.
#[derive(Debug, Clone, Copy)]
pub struct Bodies {
    /// Records are kept, with keys, values and headers.
    pub keeps_records: bool,
}

impl Bodies {
    /// A request, without its size.
    pub(crate) fn request(self, frame: &Bytes) -> (State, Bytes) {
        let mut reader = Reader::of_trees(frame.clone());
        let Ok(header) = RequestHeader::decode(&mut reader) else {
            return (State::Nothing, Bytes::new());
        };
        let of = ApiVersion {
            key: header.api_key,
            version: header.api_version,
        };
        let api = ApiKey::from_code(of.key);
        let Some((api, mut tree)) =
            api.and_then(|api| Some((api, Tree::decode(api, Side::Request, &mut reader, of.version).ok()?)))
        else {
            return (State::Header, encoded(|w| header.encode(w).ok()));
        };
        if !self.strip((api, Side::Request), &|_| false, &mut tree) {
            return (State::Whole, frame.slice(..frame.len() - reader.remaining()));
        }
        let bytes = encoded(|w| {
            header.encode(w).ok()?;
            tree.encode(api, Side::Request, w, of.version).ok()
        });
        (State::Stripped, bytes)
    }

    /// The response to a request, without its size. Records at `replaced`, ascending places in it, are headers of batches already.
    pub(crate) fn response(self, of: ApiVersion, frame: &Bytes, replaced: &[usize]) -> (State, Bytes) {
        let Some((api, version, mut tree, length)) = response_tree(of, frame) else {
            return (State::Nothing, Bytes::new());
        };
        let begin = frame.as_ptr() as usize;
        let is_replaced = |records: &Bytes| {
            let place = (records.as_ptr() as usize).wrapping_sub(begin);
            replaced.binary_search(&place).is_ok()
        };
        if !self.strip((api, Side::Response), &is_replaced, &mut tree) {
            return (State::Whole, frame.slice(..length));
        }
        let correlation_id = frame.first_chunk().map_or(0, |id| i32::from_be_bytes(*id));
        let bytes = encoded(|w| {
            ResponseHeader { correlation_id }.encode(w, response_header_version(of.key, version));
            tree.encode(api, Side::Response, w, version).ok()
        });
        (State::Stripped, bytes)
    }

    /// Takes out of a message what is not kept; whether there was any. `is_replaced`: whether it was taken out of records before.
    fn strip(self, of: (ApiKey, Side), is_replaced: &dyn Fn(&Bytes) -> bool, tree: &mut Tree) -> bool {
        let mut is_changed = false;
        for at in 0..tree.values.len() {
            let field = tree.table[at].name;
            if field == "value" && has_properties(of.0) && has_secret(of.1, tree) {
                tree.values[at] = Node::Null;
                is_changed = true;
                continue;
            }
            is_changed |= self.strip_node(of, is_replaced, field, &mut tree.values[at]);
        }
        is_changed
    }

    fn strip_node(
        self,
        of: (ApiKey, Side),
        is_replaced: &dyn Fn(&Bytes) -> bool,
        field: &str,
        node: &mut Node,
    ) -> bool {
        match node {
            Node::Bytes(bytes) if bytes.is_empty() => false,
            Node::Bytes(bytes) if field == RECORDS => {
                if !self.keeps_records && !is_replaced(bytes) {
                    *bytes = headers_of(bytes);
                }
                !self.keeps_records
            }
            Node::Bytes(bytes) if !may_keep_bytes(of.0, field) => {
                *bytes = Bytes::new();
                true
            }
            Node::Array(elements) => elements.iter_mut().fold(false, |changed, element| {
                self.strip_node(of, is_replaced, field, element) | changed
            }),
            Node::Struct(tree) => self.strip(of, is_replaced, tree),
            _ => false,
        }
    }
}

/// Whether the value of this property is a secret. A broker marks those that it describes.
fn has_secret(side: Side, property: &Tree) -> bool {
    match (side, property.get("is_sensitive"), property.get("name")) {
        (Side::Response, Some(marked), _) => *marked == Node::Bool(true),
        (Side::Response, None, _) => false,
        (Side::Request, _, Some(Node::String(name))) => is_secret(name),
        (Side::Request, ..) => true,
    }
}

/// A response with its API, the version that its bytes have, and its length. A broker that does not know the version of ApiVersions responds
/// with version 0. Kafka: `ApiVersionsRequest#getErrorResponse`.
pub(crate) fn response_tree(of: ApiVersion, frame: &Bytes) -> Option<(ApiKey, i16, Tree, usize)> {
    let api = ApiKey::from_code(of.key)?;
    let read = |version: i16| {
        let mut reader = Reader::of_trees(frame.clone());
        ResponseHeader::decode(&mut reader, response_header_version(of.key, version)).ok()?;
        let tree = Tree::decode(api, Side::Response, &mut reader, version).ok()?;
        Some((api, version, tree, frame.len() - reader.remaining()))
    };
    let fallback = || (api == ApiKey::ApiVersions).then(|| read(0)).flatten();
    read(of.version).or_else(fallback)
}

fn encoded(write: impl FnOnce(&mut Writer) -> Option<()>) -> Bytes {
    let mut writer = Writer::new();
    match write(&mut writer) {
        Some(()) => writer.into_chunks().concat().into(),
        None => Bytes::new(),
    }
}
