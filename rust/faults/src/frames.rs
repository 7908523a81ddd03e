//! The bytes of requests and responses as trees, and back.

use bytes::{Bytes, BytesMut};
use fletchlog_protocol::header::{RequestHeader, ResponseHeader, response_header_version};
use fletchlog_protocol::tree::{Side, Tree};
use fletchlog_protocol::{ApiKey, Reader, Writer, frame};

/// Bytes of the size in front of a frame.
pub(crate) const SIZE: usize = 4;

/// A request with another body.
pub(crate) fn request_again(header: &RequestHeader, tree: &Tree, request: &Bytes) -> Bytes {
    let write = || {
        let mut writer = Writer::new();
        header.encode(&mut writer).ok()?;
        let api = ApiKey::from_code(header.api_key)?;
        tree.encode(api, Side::Request, &mut writer, header.api_version).ok()?;
        Some(writer.into_chunks().concat())
    };
    write().map_or_else(|| request.clone(), Bytes::from)
}

/// All bytes in one piece.
pub(crate) fn concat(chunks: impl AsRef<[Bytes]>) -> BytesMut {
    let mut all = BytesMut::with_capacity(chunks.as_ref().iter().map(Bytes::len).sum());
    chunks.as_ref().iter().for_each(|chunk| all.extend_from_slice(chunk));
    all
}

/// At most so many bytes.
pub(crate) fn first_bytes(chunks: &[Bytes], count: usize) -> Vec<Bytes> {
    let mut all = concat(chunks);
    all.truncate(count);
    vec![all.freeze()]
}

/// The message of a response, with its size in front; `None`: it cannot be read.
pub(crate) fn response_of(header: &RequestHeader, frame: Bytes) -> Option<(ApiKey, Tree)> {
    let api = ApiKey::from_code(header.api_key)?;
    let mut reader = Reader::of_trees(frame.slice(SIZE.min(frame.len())..));
    ResponseHeader::decode(&mut reader, response_header_version(header.api_key, header.api_version)).ok()?;
    let tree = Tree::decode(api, Side::Response, &mut reader, header.api_version).ok()?;
    Some((api, tree))
}

/// The frame of a response to a request.
pub(crate) fn encoded(header: &RequestHeader, response: &Tree) -> Option<Vec<Bytes>> {
    let api = ApiKey::from_code(header.api_key)?;
    let mut writer = frame::begin();
    let version = response_header_version(header.api_key, header.api_version);
    let correlation_id = header.correlation_id;
    ResponseHeader { correlation_id }.encode(&mut writer, version);
    response
        .encode(api, Side::Response, &mut writer, header.api_version)
        .ok()?;
    frame::finish(writer).ok()
}

/// Changes a response, if it can be read.
pub(crate) fn change(header: &RequestHeader, chunks: &mut Vec<Bytes>, change: impl FnOnce(ApiKey, &mut Tree)) {
    if let Some((api, mut response)) = response_of(header, concat(&chunks).freeze()) {
        change(api, &mut response);
        if let Some(changed) = encoded(header, &response) {
            *chunks = changed;
        }
    }
}
