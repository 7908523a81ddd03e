//! snappy in the framing of snappy-java ("xerial").
//!
//! | bytes | content                                             |
//! |-------|-----------------------------------------------------|
//! | 8     | magic 82 53 4E 41 50 50 59 00                       |
//! | 4     | version i32 (1)                                     |
//! | 4     | lowest compatible version i32 (1)                   |
//! | 4 + n | length i32, raw snappy block; repeated to the end   |
//!
//! A payload without the magic is one raw block, as other clients write it.

use std::cell::RefCell;

use snap::raw::{Decoder, Encoder, decompress_len, max_compress_len};

use super::decode::{DecodeError, make_room};
use crate::field::field;

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const HEADER_SIZE: usize = 16;
/// snappy-java's default input block.
const BLOCK_SIZE: usize = 32 * 1024;
/// A raw block cannot expand further: three bytes copy at most 64.
const MAX_EXPANSION: usize = 64;

thread_local! {
    // The encoder's table has 32 KiB, twice what a batch has. Beside it, room for the largest output of a block, kept because
    // clearing it for each block takes time.
    static ENCODER: RefCell<(Encoder, Vec<u8>)> = RefCell::new((Encoder::new(), vec![0; max_compress_len(BLOCK_SIZE)]));
}

#[allow(clippy::expect_used, reason = "blocks of 32 KiB fit every bound of the encoder")]
pub(super) fn compress(input: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&1i32.to_be_bytes());
    out.extend_from_slice(&1i32.to_be_bytes());
    for block in input.chunks(BLOCK_SIZE) {
        ENCODER.with_borrow_mut(|(encoder, room)| {
            let size = encoder.compress(block, room).expect("the output has the bound's size");
            let length = i32::try_from(size).expect("a block is small");
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(&room[..size]);
        });
    }
}

pub(super) fn decompress(input: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::new();
    if !input.starts_with(&MAGIC) {
        append_block(input, limit, &mut out)?;
        return Ok(out);
    }
    let mut rest = skip_header(input)?;
    while !rest.is_empty() {
        if rest.starts_with(&MAGIC) {
            // Streams written one after the other.
            rest = skip_header(rest)?;
            continue;
        }
        if rest.len() < 4 {
            return Err("the length of a block is cut off".into());
        }
        let length = i32::from_be_bytes(field(rest, 0));
        let block = usize::try_from(length).ok().and_then(|length| rest[4..].get(..length));
        let Some(block) = block else {
            return Err(DecodeError::Malformed(format!(
                "a block declares {length} bytes where {} are left",
                rest.len() - 4
            )));
        };
        append_block(block, limit, &mut out)?;
        rest = &rest[4 + block.len()..];
    }
    Ok(out)
}

fn skip_header(stream: &[u8]) -> Result<&[u8], DecodeError> {
    let Some(rest) = stream.get(HEADER_SIZE..) else {
        return Err("the stream header is cut off".into());
    };
    let version = i32::from_be_bytes(field(stream, 8));
    if version < 1 {
        return Err(DecodeError::Malformed(format!("stream version {version} is not known")));
    }
    Ok(rest)
}

fn append_block(block: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let malformed = |error: snap::Error| DecodeError::Malformed(error.to_string());
    let size = decompress_len(block).map_err(malformed)?;
    if size > block.len().saturating_mul(MAX_EXPANSION) {
        return Err(DecodeError::Malformed(format!(
            "a block of {} bytes claims to hold {size}",
            block.len()
        )));
    }
    let at = out.len();
    if size > limit - at {
        return Err(DecodeError::Limit);
    }
    make_room(out, size, limit);
    out.resize(at + size, 0);
    let written = Decoder::new().decompress(block, &mut out[at..]).map_err(malformed)?;
    out.truncate(at + written);
    Ok(())
}
