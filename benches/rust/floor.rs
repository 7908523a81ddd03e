//! Prints the floors of this machine and our rates against them, in one run, as one line of JSON.
//!
//! `cargo run --release -p fletchlog-benches --example floor -- [records]` (default 10,000,000). Rates are millions of
//! ten-byte records a second on one core, the best of five rounds; the rounds of all candidates take turns, so that a
//! busy machine slows all of them alike.
#![allow(missing_docs, clippy::print_stdout)]

#[path = "file_batches.rs"]
mod file_batches;
#[path = "floor_pass.rs"]
mod floor_pass;
#[path = "floor_ours.rs"]
mod ours;

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use bytes::Bytes;
use fletchlog_arrow::{Column, RowsBuilder};
use fletchlog_records::crc::crc32c;
use fletchlog_records::{BatchIter, TimeRange};

use file_batches::{each_batch, int};

fn main() -> std::io::Result<()> {
    let records = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(10_000_000usize);
    let segment = floor_pass::segment(records);
    let spans = ours::spans(&segment);
    let rows = floor_pass::rows(records);
    let mut at_once = tempfile::tempfile()?;
    at_once.write_all(&segment)?;
    let (by_batch, of_other_thread) = (written_by_batch(&segment)?, written_by_batch(&segment)?);
    let (mut flat, mut other_flat) = (floor_pass::Flat::default(), floor_pass::Flat::default());
    let mut builder = RowsBuilder::of(Column::of_kafka(false), TimeRange::ALL);
    let mut some = [Column::Offset, Column::Value].map(|column| RowsBuilder::of(&[column], TimeRange::ALL));
    let names = [
        "decode_floor",
        "scan",
        "walk",
        "poll_decode",
        "encode_floor",
        "encode_floor_warm",
        "build",
        "scan_offset",
        "scan_value",
        "scan_floor",
        "scan_floor_one_write",
        "scan_floor_2_threads",
    ];
    let mut best = [0.0f64; 12];
    for _ in 0..5 {
        for (i, best) in best.iter_mut().enumerate() {
            let start = Instant::now();
            let done = match i {
                0 => floor_pass::decode_floor(&segment, &mut flat),
                1 => ours::scan(&segment, &mut builder),
                2 => ours::walk(&segment),
                3 => ours::poll_decode(&spans, &mut builder),
                4 | 5 => {
                    black_box(floor_pass::encode_floor(&rows, i == 5));
                    records
                }
                6 => ours::build(&rows),
                9 => scan_floor(&by_batch, &mut flat)?,
                10 => scan_floor(&at_once, &mut flat)?,
                11 => std::thread::scope(|scope| {
                    let other = scope.spawn(|| scan_floor(&of_other_thread, &mut other_flat));
                    let here = scan_floor(&by_batch, &mut flat)?;
                    let there = other.join().map_err(|_| std::io::Error::other("a thread panicked"))??;
                    Ok::<_, std::io::Error>(here + there)
                })?,
                _ => ours::scan(&segment, &mut some[i - 7]),
            };
            assert_eq!(done, if i == 11 { 2 * records } else { records });
            #[allow(clippy::cast_precision_loss)]
            let rate = done as f64 / start.elapsed().as_secs_f64() / 1e6;
            *best = best.max(rate);
        }
    }
    let rates: Vec<String> = names
        .iter()
        .zip(best)
        .map(|(name, rate)| format!("\"{name}\": {rate:.1}"))
        .collect();
    println!(
        "{{\"records\": {records}, \"value_bytes\": {}, \"million_records_per_s\": {{{}}}, \"scan_to_floor\": {:.3}, \
         \"poll_decode_to_floor\": {:.3}, \"build_to_floor\": {:.3}}}",
        floor_pass::VALUE_SIZE,
        rates.join(", "),
        best[1] / best[0],
        best[3] / best[0],
        best[6] / best[4],
    );
    Ok(())
}

/// A file that was written as a log is.
fn written_by_batch(segment: &Bytes) -> std::io::Result<File> {
    let mut file = tempfile::tempfile()?;
    for batch in BatchIter::new(segment.clone()) {
        file.write_all(batch.map_err(std::io::Error::other)?.bytes())?;
    }
    Ok(file)
}

/// What no scan can do without, and nothing else: reads a file once, checks each batch's CRC, and stores as many offsets, timestamps,
/// ends and value bytes as there are records, without looking at the records; returns how many. The page cache holds a file in pieces
/// as large as its writes: `scan_floor` reads one that was written batch by batch, as a log is, `scan_floor_one_write` one that was
/// written at once; `scan_floor_2_threads`: two threads, each with such a file of its own, both together.
fn scan_floor(file: &File, flat: &mut floor_pass::Flat) -> std::io::Result<usize> {
    let room = floor_pass::BATCH_ROWS + 8192;
    for column in [&mut flat.offsets, &mut flat.timestamps] {
        column.resize(room, 0);
    }
    flat.ends.resize(room, 0);
    flat.values.resize(room * floor_pass::VALUE_SIZE, 0);
    let (mut rows, mut records) = (0, 0);
    each_batch(file, |batch| {
        assert_eq!(int(batch, 17) as u32, crc32c(&batch[21..]), "CRC");
        let count = int(batch, 57) as usize;
        if rows + count > floor_pass::BATCH_ROWS {
            rows = 0;
        }
        let base = records as i64;
        let offsets = &mut flat.offsets[rows..rows + count];
        offsets.iter_mut().zip(base..).for_each(|(to, offset)| *to = offset);
        flat.timestamps[rows..rows + count].fill(base);
        let ends = &mut flat.ends[rows..rows + count];
        ends.iter_mut()
            .zip((0..).step_by(floor_pass::VALUE_SIZE))
            .for_each(|(to, end)| *to = end);
        let values = &mut flat.values[rows * floor_pass::VALUE_SIZE..(rows + count) * floor_pass::VALUE_SIZE];
        values.copy_from_slice(&batch[61..61 + count * floor_pass::VALUE_SIZE]);
        rows += count;
        records += count;
    })?;
    Ok(records)
}
