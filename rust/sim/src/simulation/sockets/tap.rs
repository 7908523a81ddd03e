//! Observes a connection at the listener's end: the batches that the broker received, and its responses.

use std::collections::VecDeque;

use bytes::Bytes;
use fletchlog_api::{Request, Response};
use fletchlog_protocol::header::{RequestHeader, ResponseHeader, response_header_version};
use fletchlog_protocol::messages::{ProduceRequest, ProduceResponse};
use fletchlog_protocol::{ApiKey, Message, Reader, WireError};

use super::super::memory::{Batch, batches_of};

/// Batches, and the broker's response to them.
pub(in super::super) type Answered = (Vec<Batch>, ProduceResponse);

#[derive(Debug, Default)]
pub(super) struct Tap {
    input: Vec<u8>,
    /// Produce requests without a response.
    asked: VecDeque<(RequestHeader, Vec<Batch>)>,
    /// Requests of a share group without a response.
    shared: VecDeque<RequestHeader>,
    output: Vec<u8>,
    /// Number of bytes since the start that the socket took, and that were observed.
    taken: usize,
    seen: usize,
}

impl Tap {
    /// Observes bytes that the listener has read. Returns the API keys of the requests that they complete; `share` gets those of a share
    /// group.
    pub fn read(&mut self, bytes: &[u8], mut share: impl FnMut(i32, &Request)) -> Vec<i16> {
        self.input.extend(bytes);
        let mut keys = Vec::new();
        while let Some(frame) = take_frame(&mut self.input) {
            keys.extend(frame.first_chunk().map(|key| i16::from_be_bytes(*key)));
            if let Ok(Some((header, request))) = share_request_in(frame.clone()) {
                share(header.correlation_id, &request);
                self.shared.push_back(header);
            }
            self.asked.extend(batches_in(frame).ok().flatten());
        }
        keys
    }

    /// Observes bytes that the listener writes. The socket may take fewer of them; the others are offered again. `share` gets the responses
    /// to a share group.
    pub fn offered(&mut self, bytes: &[u8], mut share: impl FnMut(i32, &Response)) -> Vec<Answered> {
        let new = (self.seen - self.taken).min(bytes.len());
        self.output.extend(&bytes[new..]);
        self.seen = self.seen.max(self.taken + bytes.len());
        let mut answered = Vec::new();
        while let Some(frame) = take_frame(&mut self.output) {
            if let Some(header) = self.shared.front()
                && let Ok(Some(response)) = share_response_in(header, frame.clone())
            {
                share(header.correlation_id, &response);
                self.shared.pop_front();
            }
            if let Some((header, _)) = self.asked.front()
                && let Ok(Some(response)) = response_in(header, frame)
            {
                answered.extend(self.asked.pop_front().map(|(_, batches)| (batches, response)));
            }
        }
        answered
    }

    /// The batches that the broker has received and not answered.
    pub fn pending(&self) -> impl Iterator<Item = &Batch> {
        self.asked.iter().flat_map(|(_, batches)| batches)
    }

    /// The same; they are forgotten here.
    pub fn unanswered(&mut self) -> impl Iterator<Item = Batch> {
        std::mem::take(&mut self.asked)
            .into_iter()
            .flat_map(|(_, batches)| batches)
    }

    /// The socket has taken `count` bytes.
    pub fn taken(&mut self, count: usize) {
        self.taken += count;
    }
}

/// The payload of the first frame, if it is complete.
fn take_frame(bytes: &mut Vec<u8>) -> Option<Bytes> {
    let size = u32::from_be_bytes(*bytes.first_chunk()?);
    let end = 4 + usize::try_from(size).ok()?;
    (bytes.len() >= end).then(|| Bytes::from(bytes.drain(..end).skip(4).collect::<Vec<u8>>()))
}

/// The batches of a Produce request; `None`: it is another request, or gets no response.
fn batches_in(frame: Bytes) -> Result<Option<(RequestHeader, Vec<Batch>)>, WireError> {
    let mut reader = Reader::new(frame);
    let header = RequestHeader::decode(&mut reader)?;
    if header.api_key != ApiKey::Produce.code() {
        return Ok(None);
    }
    let request = ProduceRequest::decode(&mut reader, header.api_version)?;
    Ok((request.acks != 0).then(|| (header, batches_of(&request))))
}

/// A request of a share group; `None`: it is another one.
fn share_request_in(frame: Bytes) -> Result<Option<(RequestHeader, Request)>, WireError> {
    let mut reader = Reader::new(frame);
    let header = RequestHeader::decode(&mut reader)?;
    let version = header.api_version;
    let request = match ApiKey::from_code(header.api_key) {
        Some(ApiKey::ShareFetch) => Request::ShareFetch(Message::decode(&mut reader, version)?),
        Some(ApiKey::ShareAcknowledge) => Request::ShareAcknowledge(Message::decode(&mut reader, version)?),
        _ => return Ok(None),
    };
    Ok(Some((header, request)))
}

/// The response to this request; `None`: the frame is another request's response.
fn share_response_in(asked: &RequestHeader, frame: Bytes) -> Result<Option<Response>, WireError> {
    let mut reader = Reader::new(frame);
    let version = response_header_version(asked.api_key, asked.api_version);
    if ResponseHeader::decode(&mut reader, version)?.correlation_id != asked.correlation_id {
        return Ok(None);
    }
    let version = asked.api_version;
    Ok(Some(match asked.api_key == ApiKey::ShareFetch.code() {
        true => Response::ShareFetch(Message::decode(&mut reader, version)?),
        false => Response::ShareAcknowledge(Message::decode(&mut reader, version)?),
    }))
}

/// The response to this request; `None`: the frame is another request's response.
fn response_in(asked: &RequestHeader, frame: Bytes) -> Result<Option<ProduceResponse>, WireError> {
    let mut reader = Reader::new(frame);
    let version = response_header_version(asked.api_key, asked.api_version);
    if ResponseHeader::decode(&mut reader, version)?.correlation_id != asked.correlation_id {
        return Ok(None);
    }
    ProduceResponse::decode(&mut reader, asked.api_version).map(Some)
}
