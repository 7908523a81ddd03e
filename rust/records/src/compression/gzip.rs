//! gzip (RFC 1952): one member is written, any number in a row is read.

use std::io::{Read, Write};

use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;

use super::DecodeError;

/// Smallest member: 10 bytes of header, an empty deflate block of 2, 8 of trailer.
const MIN_MEMBER: usize = 20;

/// Levels 1..9; -1, like no level, is zlib's default.
#[allow(clippy::expect_used, reason = "writing to memory does not fail")]
pub(super) fn compress(input: &[u8], level: Option<i32>, out: &mut Vec<u8>) {
    let level = match level.and_then(|level| u32::try_from(level).ok()) {
        Some(level) => flate2::Compression::new(level.min(9)),
        None => flate2::Compression::default(),
    };
    let mut encoder = GzEncoder::new(out, level);
    encoder
        .write_all(input)
        .and_then(|()| encoder.finish())
        .expect("writing to memory does not fail");
}

/// Bytes after a member that do not begin another one are ignored, as Java's reader ignores them.
pub(super) fn decompress(mut input: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::with_capacity(input.len().saturating_mul(3).min(limit));
    loop {
        let room = limit - out.len();
        let mut decoder = GzDecoder::new(input);
        // One byte more than allowed, to tell "exactly full" from "too much".
        let allowed = u64::try_from(room).unwrap_or(u64::MAX).saturating_add(1);
        let read = (&mut decoder).take(allowed).read_to_end(&mut out);
        let read = read.map_err(|error| DecodeError::Malformed(error.to_string()))?;
        if read > room {
            return Err(DecodeError::Limit);
        }
        input = decoder.into_inner();
        if input.len() < MIN_MEMBER || !input.starts_with(&[0x1f, 0x8b, 0x08]) {
            return Ok(out);
        }
    }
}
