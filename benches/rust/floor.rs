//! Prints the floors of this machine and our rates against them, in one run, as one line of JSON.
//!
//! `cargo run --release -p fletchlog-arrow --example floor -- [records]` (default 10,000,000). Rates are millions of
//! ten-byte records a second on one core, the best of five rounds; the rounds of all candidates take turns, so that a
//! busy machine slows all of them alike.
#![allow(missing_docs, clippy::print_stdout)]

#[path = "floor_pass.rs"]
mod floor_pass;
#[path = "floor_ours.rs"]
mod ours;

use std::hint::black_box;
use std::time::Instant;

use fletchlog_arrow::{Column, RowsBuilder};
use fletchlog_records::TimeRange;

fn main() {
    let records = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(10_000_000usize);
    let segment = floor_pass::segment(records);
    let spans = ours::spans(&segment);
    let rows = floor_pass::rows(records);
    let mut flat = floor_pass::Flat::default();
    let mut builder = RowsBuilder::new(false);
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
    ];
    let mut best = [0.0f64; 9];
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
                _ => ours::scan(&segment, &mut some[i - 7]),
            };
            assert_eq!(done, records);
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
}
