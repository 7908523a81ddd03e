//! What the bytes of a segment cost without a log: prints one line of JSON, seconds on one core.
//!
//! `cargo run --release -p fletchlog-arrow --example segment -- FILE`. `read`: the file read 1 MiB at a time. `read_crc`: the same, and
//! each batch's CRC. `write`: its batches written one by one into a new file beside it, as a log is.
#![allow(missing_docs, clippy::print_stdout)]

use std::fs::File;
use std::hint::black_box;
use std::io::{Error, Result};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use bytes::Bytes;
use fletchlog_records::BatchIter;
use fletchlog_records::crc::crc32c;

/// Bytes of a read, as a scan's.
const READ: usize = 1 << 20;

fn main() -> Result<()> {
    let path = std::env::args()
        .nth(1)
        .ok_or_else(|| Error::other("the path of a segment is missing"))?;
    let batches: Vec<Bytes> = BatchIter::new(std::fs::read(&path)?.into())
        .map(|batch| batch.map(|batch| batch.bytes().clone()).map_err(Error::other))
        .collect::<Result<_>>()?;
    let beside = Path::new(&path).parent().unwrap_or(Path::new("."));
    let timed = |pass: &dyn Fn() -> Result<()>| {
        let start = Instant::now();
        pass().map(|()| start.elapsed().as_secs_f64())
    };
    println!(
        "{{\"read\": {}, \"read_crc\": {}, \"write\": {}}}",
        timed(&|| read(&path, false))?,
        timed(&|| read(&path, true))?,
        timed(&|| write(beside, &batches))?
    );
    Ok(())
}

fn read(path: &str, crc: bool) -> Result<()> {
    let file = File::open(path)?;
    let mut buffer = vec![0; READ];
    let mut position = 0;
    loop {
        let read = file.read_at(&mut buffer, position)?;
        let mut rest = &buffer[..read];
        while let Some(header) = rest.first_chunk::<21>() {
            let int = |at: usize| i32::from_be_bytes(header[at..at + 4].try_into().unwrap_or_default());
            let Some(batch) = usize::try_from(int(8)).ok().and_then(|size| rest.get(..12 + size)) else {
                break;
            };
            if crc && int(17).cast_unsigned() != crc32c(&batch[21..]) {
                return Err(Error::other("a batch has a wrong CRC"));
            }
            rest = &rest[batch.len()..];
        }
        black_box(&buffer);
        if read == rest.len() {
            return Ok(());
        }
        position += (read - rest.len()) as u64;
    }
}

fn write(dir: &Path, batches: &[Bytes]) -> Result<()> {
    let file = tempfile::tempfile_in(dir)?;
    let mut position = 0;
    for batch in batches {
        file.write_all_at(batch, position)?;
        position += batch.len() as u64;
    }
    Ok(())
}
