//! What is kept of a frame until its event is written. A large frame of records is not kept: a server uses its memory again.
//!
//! ```text
//! Produce request   one piece: records are taken out at once
//! Fetch response    structure | records | structure | records ..: pieces of records are replaced by the headers of their batches, and
//!                   the length before each by theirs
//! any other frame   as it is, a reference to its bytes
//! ```

use bytes::{Bytes, BytesMut};
use fletchlog_protocol::ApiKey;

use crate::batches::headers_of;
use crate::body::{ApiVersion, Bodies};
use crate::event::State;

/// From this size on a frame of records is not kept.
const LARGE: usize = 32 * 1024;
/// Records of at least this size are a piece of a response. See [`fletchlog_protocol::Writer::into_chunks`].
const PIECE: usize = 1024;
/// Bytes of the size before a response.
const SIZE: usize = 4;

/// A frame, or what is left of it.
#[derive(Debug)]
pub(crate) enum Captured {
    /// Nothing: it may not be recorded, or there is no room.
    Nothing,
    /// All of a request.
    Request(Bytes),
    /// All of a response, in pieces, the size included. Records at these places (in all pieces together, without the size) have been
    /// replaced.
    Response(Vec<Bytes>, Vec<usize>),
    /// What is written.
    Ready(State, Bytes),
}

impl Captured {
    pub(crate) fn of_request(bodies: Bodies, of: ApiVersion, frame: &Bytes) -> Self {
        let has_records = of.key == ApiKey::Produce.code() && !bodies.keeps_records;
        match has_records && frame.len() >= LARGE {
            true => {
                let (state, bytes) = bodies.request(frame);
                Self::Ready(state, bytes)
            }
            false => Self::Request(frame.clone()),
        }
    }

    pub(crate) fn of_response(bodies: Bodies, of: ApiVersion, chunks: &[Bytes]) -> Self {
        let length: usize = chunks.iter().map(Bytes::len).sum();
        let has_records = [ApiKey::Fetch.code(), ApiKey::ShareFetch.code()].contains(&of.key) && !bodies.keeps_records;
        match chunks {
            _ if !has_records || length < LARGE => Self::Response(chunks.to_vec(), Vec::new()),
            [whole] => {
                let (state, bytes) = bodies.response(of, &whole.slice(SIZE.min(length)..), &[]);
                Self::Ready(state, bytes)
            }
            _ => {
                let (frame, places) = without_pieces_of_records(of, chunks);
                Self::Response(vec![frame], places)
            }
        }
    }

    /// Bytes of memory that it holds.
    pub(crate) fn held(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Request(frame) | Self::Ready(_, frame) => frame.len(),
            Self::Response(chunks, _) => chunks.iter().map(Bytes::len).sum(),
        }
    }
}

/// A response whose pieces of records are replaced, and the places of these. A piece whose length is not before it is left as it is.
fn without_pieces_of_records(of: ApiVersion, chunks: &[Bytes]) -> (Bytes, Vec<usize>) {
    let flexible = ApiKey::from_code(of.key).is_some_and(|api| of.version >= api.first_flexible_version());
    let (mut all, mut places) = (BytesMut::new(), Vec::new());
    for chunk in chunks {
        let before = length(chunk.len(), flexible);
        if chunk.len() < PIECE || !all.ends_with(&before) {
            all.extend_from_slice(chunk);
            continue;
        }
        let headers = headers_of(chunk);
        all.truncate(all.len() - before.len());
        all.extend_from_slice(&length(headers.len(), flexible));
        places.push(all.len().saturating_sub(SIZE));
        all.extend_from_slice(&headers);
    }
    (all.freeze(), places)
}

/// The length of records as a message has it.
fn length(bytes: usize, flexible: bool) -> Vec<u8> {
    if !flexible {
        return i32::try_from(bytes).unwrap_or(i32::MAX).to_be_bytes().to_vec();
    }
    let mut encoded = Vec::with_capacity(5);
    crate::format::put_uvarint(&mut encoded, bytes as u64 + 1);
    encoded
}

/// A response in one piece, without the size.
pub(crate) fn without_size(chunks: &[Bytes]) -> Bytes {
    let all = match chunks {
        [whole] => whole.clone(),
        _ => chunks.concat().into(),
    };
    all.slice(SIZE.min(all.len())..)
}
