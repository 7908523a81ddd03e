//! What the decoders share.

/// Why a payload could not be decompressed.
#[derive(Debug)]
pub(super) enum DecodeError {
    /// More than the limit.
    Limit,
    /// Malformed.
    Malformed(String),
}

impl From<&str> for DecodeError {
    fn from(reason: &str) -> Self {
        Self::Malformed(reason.to_owned())
    }
}

/// Makes room for `more` bytes, which may be at most `limit - out.len()`. The buffer doubles, but not beyond the limit:
/// together with the buffer that it replaces, it never takes twice the limit.
pub(super) fn make_room(out: &mut Vec<u8>, more: usize, limit: usize) {
    if out.capacity() - out.len() < more {
        out.reserve_exact(more.max(out.len()).min(limit - out.len()));
    }
}
