//! LZ4 frames as Kafka writes and reads them. Kafka: `Lz4BlockOutputStream`, `Lz4BlockInputStream`.
//!
//! | bytes | content                                                                               |
//! |-------|---------------------------------------------------------------------------------------|
//! | 4     | magic 0x184D2204, little endian                                                       |
//! | 1     | FLG: bits 7-6 version 01, 5 blocks independent, 4 block checksums, 3 content size, 2 content checksum, 1-0 zero |
//! | 1     | BD: bits 6-4 largest block (4 = 64 KiB .. 7 = 4 MiB), the others zero                  |
//! | 8     | content size, if flagged (skipped)                                                    |
//! | 1     | second byte of xxh32 over FLG .. content size                                         |
//! | 4 + n | block: length u32 little endian, bit 31 = stored raw; [xxh32 of the bytes, if flagged] |
//! | 4     | end mark: length 0; [content checksum, if flagged: ignored]                           |

use std::cell::RefCell;

use lz4_flex::block::{DecompressError, compress_into, decompress_into, get_maximum_output_size};
use twox_hash::XxHash32;

use super::decode::{DecodeError, make_room};
use crate::field::field;

const MAGIC: u32 = 0x184D_2204;
/// Version 01, independent blocks.
const FLG: u8 = 0x60;
/// Blocks of at most 64 KiB.
const BD: u8 = 0x40;
const BLOCK_SIZE: usize = 64 * 1024;
/// Bit 31 of a block's length: the bytes are not compressed.
const STORED: u32 = 0x8000_0000;
/// One byte of a match length extends it by at most 255.
const MAX_EXPANSION: usize = 255;

thread_local! {
    // Room for the largest output of a block, kept because clearing it for each block takes time.
    static PACKED: RefCell<Vec<u8>> = RefCell::new(vec![0; get_maximum_output_size(BLOCK_SIZE)]);
    // A frame does not say how large its blocks become, and clearing room for the largest one for each of them costs as much
    // as decompressing a small batch.
    static BLOCK: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

#[allow(clippy::cast_possible_truncation, reason = "the second byte is wanted")]
fn header_checksum(descriptor: &[u8]) -> u8 {
    (XxHash32::oneshot(0, descriptor) >> 8) as u8
}

#[allow(clippy::expect_used, reason = "blocks of 64 KiB fit every bound of the encoder")]
pub(super) fn compress(input: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&[FLG, BD, header_checksum(&[FLG, BD])]);
    for block in input.chunks(BLOCK_SIZE) {
        PACKED.with_borrow_mut(|room| {
            let size = compress_into(block, room).expect("the output has the bound's size");
            let (bytes, stored) = if size < block.len() {
                (&room[..size], 0)
            } else {
                (block, STORED)
            };
            let length = u32::try_from(bytes.len()).expect("a block is small") | stored;
            // Including the length before it and the end mark after it.
            out.reserve(4 + bytes.len() + 4);
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(bytes);
        });
    }
    out.extend_from_slice(&0u32.to_le_bytes());
}

/// Takes the next `n` bytes.
fn take<'a>(rest: &mut &'a [u8], n: usize, what: &str) -> Result<&'a [u8], DecodeError> {
    match rest.split_at_checked(n) {
        Some((head, tail)) => {
            *rest = tail;
            Ok(head)
        }
        None => Err(DecodeError::Malformed(format!("{what} is cut off"))),
    }
}

/// What the frame header says of the blocks.
struct Frame {
    max_block: usize,
    block_checksums: bool,
}

fn read_header(rest: &mut &[u8], magic: i8) -> Result<Frame, DecodeError> {
    if u32::from_le_bytes(field(take(rest, 4, "the frame header")?, 0)) != MAGIC {
        return Err("the frame magic is wrong".into());
    }
    let descriptor_at = *rest;
    let [flg, bd] = field(take(rest, 2, "the frame header")?, 0);
    if flg >> 6 != 1 {
        return Err(DecodeError::Malformed(format!("frame version {} is not 1", flg >> 6)));
    }
    if flg & 0x03 != 0 || bd & 0x8f != 0 {
        return Err("reserved bits of the frame header are set".into());
    }
    if flg & 0x20 == 0 {
        return Err("blocks that depend on each other are not supported".into());
    }
    let max_block = match bd >> 4 {
        code @ 4..=7 => 1usize << (8 + 2 * code),
        code => {
            return Err(DecodeError::Malformed(format!(
                "block size code {code} is none of 4..7"
            )));
        }
    };
    if flg & 0x08 != 0 {
        take(rest, 8, "the content size")?;
    }
    let descriptor = &descriptor_at[..descriptor_at.len() - rest.len()];
    let [stored] = field(take(rest, 1, "the frame header")?, 0);
    // Clients of message format v0 hashed the wrong bytes, so their byte says nothing (KIP-57).
    if magic > 0 && stored != header_checksum(descriptor) {
        return Err("the frame header's checksum is wrong".into());
    }
    Ok(Frame {
        max_block,
        block_checksums: flg & 0x10 != 0,
    })
}

/// What follows the end mark is ignored, as by Kafka's reader.
pub(super) fn decompress(input: &[u8], magic: i8, limit: usize) -> Result<Vec<u8>, DecodeError> {
    let mut rest = input;
    let frame = read_header(&mut rest, magic)?;
    let mut out = Vec::new();
    loop {
        let length = u32::from_le_bytes(field(take(&mut rest, 4, "the length of a block")?, 0));
        let size = usize::try_from(length & !STORED).unwrap_or(usize::MAX);
        if size == 0 {
            return Ok(out);
        }
        if size > frame.max_block {
            return Err(DecodeError::Malformed(format!(
                "a block of {size} bytes exceeds the frame's {}",
                frame.max_block
            )));
        }
        let block = take(&mut rest, size, "a block")?;
        if frame.block_checksums {
            let stored = u32::from_le_bytes(field(take(&mut rest, 4, "the checksum of a block")?, 0));
            if stored != XxHash32::oneshot(0, block) {
                return Err("the checksum of a block is wrong".into());
            }
        }
        let at = out.len();
        let room = limit - at;
        if length & STORED != 0 {
            if size > room {
                return Err(DecodeError::Limit);
            }
            make_room(&mut out, size, limit);
            out.extend_from_slice(block);
            continue;
        }
        append_block(block, frame.max_block, limit, &mut out)?;
    }
}

/// Decompresses a block of at most `max_block` bytes.
fn append_block(block: &[u8], max_block: usize, limit: usize, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let (at, room) = (out.len(), limit - out.len());
    let most = max_block.min(block.len().saturating_mul(MAX_EXPANSION));
    let result = if most.min(room) <= BLOCK_SIZE {
        BLOCK.with_borrow_mut(|scratch| {
            if scratch.is_empty() {
                scratch.resize(BLOCK_SIZE, 0);
            }
            let written = decompress_into(block, &mut scratch[..most.min(room)])?;
            make_room(out, written, limit);
            out.extend_from_slice(&scratch[..written]);
            Ok(())
        })
    } else {
        make_room(out, most.min(room), limit);
        out.resize(at + most.min(room), 0);
        decompress_into(block, &mut out[at..]).map(|written| out.truncate(at + written))
    };
    result.map_err(|error| match error {
        DecompressError::OutputTooSmall { .. } if room < most => DecodeError::Limit,
        error => DecodeError::Malformed(error.to_string()),
    })
}
