//! What the bytes of a segment cost without a log: prints one line of JSON, seconds on one core.
//!
//! `cargo run --release -p fletchlog-benches --example segment -- FILE`. `read`: the file read 1 MiB at a time. `read_crc`: the same, and
//! each batch's CRC. `write`: its batches written one by one into a new file beside it, as a log is.
#![allow(missing_docs, clippy::print_stdout)]

#[path = "file_batches.rs"]
mod file_batches;

use std::fs::File;
use std::hint::black_box;
use std::io::{Error, Result};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use bytes::Bytes;
use fletchlog_records::BatchIter;
use fletchlog_records::crc::crc32c;

use file_batches::{each_batch, int};

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
    each_batch(&File::open(path)?, |batch| {
        assert!(!crc || int(batch, 17).cast_unsigned() == crc32c(&batch[21..]), "CRC");
        black_box(batch);
    })
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
