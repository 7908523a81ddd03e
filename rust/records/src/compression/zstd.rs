//! Zstandard: one frame is written, any number in a row is read; frames need not state their content size.

use std::cell::RefCell;
use std::io::Cursor;

use ::zstd::zstd_safe::{
    CCtx, DCtx, InBuffer, OutBuffer, ResetDirective, compress_bound, get_error_name, get_frame_content_size,
};

use super::decode::{DecodeError, make_room};

/// Kafka's default level.
const DEFAULT_LEVEL: i32 = 3;
/// A context that grew beyond this for one frame (a large window) is not kept.
const MAX_KEPT_CONTEXT: usize = 8 << 20;

thread_local! {
    // Setting up a context, of about 100 KiB, is as much work as a small batch: each thread keeps one of each kind.
    static COMPRESSOR: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

#[allow(
    clippy::expect_used,
    reason = "fails for lack of memory only: the output has the bound's size"
)]
pub(super) fn compress(input: &[u8], level: Option<i32>, out: &mut Vec<u8>) {
    out.reserve(compress_bound(input.len()));
    let mut tail = Cursor::new(&mut *out);
    tail.set_position(u64::try_from(tail.get_ref().len()).unwrap_or(u64::MAX));
    COMPRESSOR.with_borrow_mut(|kept| {
        let context = kept.get_or_insert_with(CCtx::create);
        let level = level.unwrap_or(DEFAULT_LEVEL);
        context
            .compress(&mut tail, input, level)
            .map_err(get_error_name)
            .expect("zstd compresses into enough room");
        if context.sizeof() > MAX_KEPT_CONTEXT {
            *kept = None;
        }
    });
}

pub(super) fn decompress(input: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let context = kept.get_or_insert_with(DCtx::create);
        let decoded = decompress_with(context, input, limit);
        if decoded.is_err() || context.sizeof() > MAX_KEPT_CONTEXT {
            *kept = None;
        }
        decoded
    })
}

/// The output is full to the limit: only frames without content may follow.
fn ends_here(context: &mut DCtx<'static>, mut source: InBuffer<'_>, end: usize) -> Result<(), DecodeError> {
    loop {
        let read = source.pos();
        let mut spare = [0u8; 1];
        let mut sink = OutBuffer::around(&mut spare[..]);
        let hint = context
            .decompress_stream(&mut sink, &mut source)
            .map_err(|code| DecodeError::Malformed(get_error_name(code).to_owned()))?;
        if sink.pos() > 0 {
            return Err(DecodeError::Limit);
        }
        if hint == 0 && source.pos() == end {
            return Ok(());
        }
        if source.pos() == read {
            return Err("the frame is cut off".into());
        }
    }
}

fn decompress_with(context: &mut DCtx<'static>, input: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
    let malformed = |code: usize| DecodeError::Malformed(get_error_name(code).to_owned());
    context.reset(ResetDirective::SessionOnly).map_err(malformed)?;
    // A stated size is trusted within the limit; a hostile one costs only address space.
    let stated = get_frame_content_size(input)
        .ok()
        .flatten()
        .and_then(|size| usize::try_from(size).ok());
    let guess = stated.unwrap_or_else(|| input.len().saturating_mul(4).max(4096));
    let mut out: Vec<u8> = Vec::with_capacity(guess.min(limit));
    let mut source = InBuffer::around(input);
    loop {
        let (read, written) = (source.pos(), out.len());
        let mut sink = OutBuffer::around_pos(&mut out, written);
        let hint = context.decompress_stream(&mut sink, &mut source).map_err(malformed)?;
        if out.len() > limit {
            return Err(DecodeError::Limit);
        }
        if hint == 0 && source.pos() == input.len() {
            return Ok(out);
        }
        if out.len() == out.capacity() {
            if out.len() == limit {
                return ends_here(context, source, input.len()).map(|()| out);
            }
            let more = (limit - out.len()).min(4096);
            make_room(&mut out, more, limit);
        } else if source.pos() == read && out.len() == written {
            return Err("the frame is cut off".into());
        }
    }
}
