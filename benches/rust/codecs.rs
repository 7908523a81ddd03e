//! Prints what each codec alone can do on this machine, as one line of JSON: millions of 100-byte records a second on one core.
//!
//! `cargo run --release -p fletchlog-benches --example codecs -- [records]` (default 1,000,000). The records of a full 16 KiB batch are
//! compressed at a time, at Kafka's default level; best of five rounds, the rounds take turns. The values are those of
//! `benches/python/compression.py`.
#![allow(missing_docs, clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use fletchlog_records::{BatchBuilder, Compression};

const CODECS: [(&str, Compression); 4] = [
    ("gzip", Compression::Gzip),
    ("snappy", Compression::Snappy),
    ("lz4", Compression::Lz4),
    ("zstd", Compression::Zstd),
];

/// The records of full batches, uncompressed.
fn batches(records: usize) -> Vec<Vec<u8>> {
    let mut batches = Vec::new();
    let mut builder = BatchBuilder::with_capacity(16_384);
    for i in 0..records {
        let mut value = format!("user-{:07}, item-{:06}, {}", i * 7919, i * 31, "x".repeat(80)).into_bytes();
        value.truncate(100);
        if builder
            .append_within(16_384, 1_700_000_000_000, None, Some(&value), &[])
            .is_none()
        {
            batches.push(builder.build(&fletchlog_records::BatchParams::default())[61..].to_vec());
            builder.append(1_700_000_000_000, None, Some(&value), &[]);
        }
    }
    batches.push(builder.build(&fletchlog_records::BatchParams::default())[61..].to_vec());
    batches
}

fn main() {
    let records = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(1_000_000usize);
    let batches = batches(records);
    let mut best = [0.0f64; CODECS.len()];
    for _ in 0..5 {
        for (best, (_, codec)) in best.iter_mut().zip(CODECS) {
            let start = Instant::now();
            let mut out = Vec::new();
            for batch in &batches {
                out.clear();
                codec.compress(batch, None, &mut out);
                black_box(&out);
            }
            #[allow(clippy::cast_precision_loss)]
            let rate = records as f64 / start.elapsed().as_secs_f64() / 1e6;
            *best = best.max(rate);
        }
    }
    let rates: Vec<String> = CODECS
        .iter()
        .zip(best)
        .map(|((name, _), rate)| format!("\"{name}\": {rate:.2}"))
        .collect();
    println!("{{{}}}", rates.join(", "));
}
