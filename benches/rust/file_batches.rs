//! A file read once, batch by batch: what both floors of reading do.
#![allow(missing_docs)]

use std::fs::File;
use std::io::{Error, Result};
use std::os::unix::fs::FileExt;

/// Bytes of a read.
const READ: usize = 1 << 20;

/// The number of four bytes at a place of a batch.
pub fn int(batch: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(batch[at..at + 4].try_into().unwrap_or_default())
}

/// Reads a file of whole batches and calls `take` with each.
///
/// # Errors
/// Those of the reads; a batch that is cut or larger than a read.
pub fn each_batch(file: &File, mut take: impl FnMut(&[u8])) -> Result<()> {
    let mut buffer = vec![0; READ];
    let mut position = 0;
    loop {
        let read = file.read_at(&mut buffer, position)?;
        let mut rest = &buffer[..read];
        while rest.len() >= 61
            && let Some(batch) = usize::try_from(int(rest, 8))
                .ok()
                .and_then(|size| rest.get(..12 + size))
        {
            take(batch);
            rest = &rest[batch.len()..];
        }
        if read == 0 {
            return Ok(());
        }
        if read == rest.len() {
            return Err(Error::other("a batch is cut, or larger than a read"));
        }
        position += (read - rest.len()) as u64;
    }
}
