//! gzip (RFC 1952): one member is written, any number in a row is read.

use std::io::{Read, Write};

use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;

use super::decode::{DecodeError, make_room};

/// Smallest member: 10 bytes of header, an empty deflate block of 2, 8 of trailer.
const MIN_MEMBER: usize = 20;
/// Least bytes read at a time, so that small payloads do not grow byte by byte.
const SMALLEST_STEP: usize = 4096;

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

fn read_member(decoder: &mut GzDecoder<&[u8]>, limit: usize, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let malformed = |error: std::io::Error| DecodeError::Malformed(error.to_string());
    loop {
        let room = limit - out.len();
        if room == 0 {
            // Full to the limit: any further byte is too much.
            let more = decoder.read(&mut [0]).map_err(malformed)?;
            return if more == 0 { Ok(()) } else { Err(DecodeError::Limit) };
        }
        make_room(out, room.min(SMALLEST_STEP), limit);
        let step = room.min(out.capacity() - out.len());
        let allowed = u64::try_from(step).unwrap_or(u64::MAX);
        if decoder.by_ref().take(allowed).read_to_end(out).map_err(malformed)? < step {
            return Ok(());
        }
    }
}

/// Bytes after a member that do not begin another one are ignored, as Java's reader ignores them.
pub(super) fn decompress(mut input: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::with_capacity(input.len().saturating_mul(3).min(limit));
    loop {
        let mut decoder = GzDecoder::new(input);
        read_member(&mut decoder, limit, &mut out)?;
        input = decoder.into_inner();
        if input.len() < MIN_MEMBER || !input.starts_with(&[0x1f, 0x8b, 0x08]) {
            return Ok(out);
        }
    }
}
