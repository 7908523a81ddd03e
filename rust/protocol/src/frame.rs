//! The size in front of every request and response.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 4 | size of what follows, big endian |
//! | 4 | size | header and body |

use bytes::Bytes;

use crate::error::{Fault, WireError};
use crate::writer::Writer;

/// Bytes of the size.
const SIZE_BYTES: usize = 4;

/// A writer that has left room for the size.
pub fn begin() -> Writer {
    let mut writer = Writer::new();
    writer.put(&[0; SIZE_BYTES]);
    writer
}

/// The chunks of a frame that [`begin`] started, with its size. An error if it is 2 GiB or more.
pub fn finish(mut writer: Writer) -> Result<Vec<Bytes>, WireError> {
    let len = writer.len().saturating_sub(SIZE_BYTES);
    let size = i32::try_from(len).map_err(|_| WireError::of("Frame", Fault::Length(len)))?;
    writer.overwrite(0, &size.to_be_bytes());
    Ok(writer.into_chunks())
}
