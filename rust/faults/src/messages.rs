//! Requests and responses of a client in this process as bytes, which the rules are about, and back.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api::{Request, Response};
use fletchlog_protocol::header::{RequestHeader, ResponseHeader, response_header_version};
use fletchlog_protocol::topic_ids::topic_id_of;
use fletchlog_protocol::{ApiKey, Reader, Writer, frame};

use crate::frames::{SIZE, concat};

/// Newest version of Fetch that names topics by their names, as every client of a broker in this process does.
const NEWEST_FETCH_BY_NAME: i16 = 12;
/// First version of Fetch whose response has the addresses of leaders (KIP-951).
const FETCH_WITH_ADDRESSES: i16 = 16;

/// The frame of a request, without its size, in the newest version that fletchlog's clients use. `None`: it has no such bytes.
pub(crate) fn frame_of(request: &Request, is_remote: bool, client_id: &Arc<str>, correlation_id: i32) -> Option<Bytes> {
    let api = request.api();
    let (_, newest) = api.sent_versions();
    let api_version = match api {
        ApiKey::Fetch if !is_remote => NEWEST_FETCH_BY_NAME,
        _ => request.newest_version().min(newest),
    };
    let header = RequestHeader {
        api_key: api.code(),
        api_version,
        correlation_id,
        client_id: Some(Arc::clone(client_id)),
    };
    let mut writer = Writer::new();
    header.encode(&mut writer).ok()?;
    request.clone().encode(&mut writer, api_version).ok()?;
    Some(writer.into_chunks().concat().into())
}

/// A request of which a rule has changed the bytes. What the bytes do not have is that of the request before.
pub(crate) fn changed_request(before: Request, frame: &Bytes) -> Request {
    let read = || {
        let mut reader = Reader::new(frame.clone());
        let header = RequestHeader::decode(&mut reader).ok()?;
        Request::decode(before.api(), &mut reader, header.api_version).ok()
    };
    match (read(), before) {
        // Nothing is taken out of a Fetch: its session has more partitions than the request.
        (Some(Request::Fetch(changed)), Request::Fetch(mut fetch)) => {
            fetch.max_wait_ms = changed.max_wait_ms;
            Request::Fetch(fetch)
        }
        (Some(Request::Produce(mut changed)), Request::Produce(produce)) => {
            changed.operation = produce.operation;
            Request::Produce(changed)
        }
        (Some(Request::TxnOffsetCommit(mut changed)), Request::TxnOffsetCommit(commit)) => {
            changed.operation = commit.operation;
            Request::TxnOffsetCommit(changed)
        }
        (changed, before) => changed.unwrap_or(before),
    }
}

/// Whether a response names topics in another way than the version that its request is taken for.
pub(crate) fn is_of_another_version(response: &Response, version: i16) -> bool {
    let Response::Fetch(fetch) = response else { return false };
    let by_id = |topic: &Arc<str>| topic_id_of(topic).is_some();
    version > NEWEST_FETCH_BY_NAME && fetch.responses.iter().any(|topic| !by_id(&topic.topic))
}

/// The bytes of a response, the size in front; empty: it has none.
pub(crate) fn chunks_of(header: &RequestHeader, response: &Response) -> Vec<Bytes> {
    let version = header.api_version;
    let mut response = response.clone();
    if let Response::Fetch(fetch) = &mut response
        && version < FETCH_WITH_ADDRESSES
    {
        fetch.node_endpoints.clear();
    }
    let mut writer = frame::begin();
    ResponseHeader {
        correlation_id: header.correlation_id,
    }
    .encode(&mut writer, response_header_version(header.api_key, version));
    let encoded = response
        .encode(&mut writer, version)
        .and_then(|()| frame::finish(writer));
    encoded.unwrap_or_default()
}

/// The response in these bytes; `None`: it cannot be read.
pub(crate) fn response_in(header: &RequestHeader, chunks: &[Bytes]) -> Option<Response> {
    let bytes = concat(chunks).freeze();
    let mut reader = Reader::new(bytes.slice(SIZE.min(bytes.len())..));
    let version = header.api_version;
    ResponseHeader::decode(&mut reader, response_header_version(header.api_key, version)).ok()?;
    Response::decode(ApiKey::from_code(header.api_key)?, &mut reader, version).ok()
}
