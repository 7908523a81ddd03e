//! Decoding, walking and building ten-byte records, each beside its floor.
//!
//! `cargo bench -p fletchlog-arrow --bench records`
#![allow(missing_docs)]

#[path = "floor_pass.rs"]
mod floor_pass;
#[path = "floor_ours.rs"]
mod ours;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const RECORDS: usize = 2_000_000;

fn decode(c: &mut Criterion) {
    let segment = floor_pass::segment(RECORDS);
    let spans = ours::spans(&segment);
    let mut group = c.benchmark_group("decode");
    group.throughput(Throughput::Elements(RECORDS as u64)).sample_size(20);
    let mut flat = floor_pass::Flat::default();
    group.bench_function("floor", |b| b.iter(|| floor_pass::decode_floor(&segment, &mut flat)));
    let mut builder = fletchlog_arrow::RowsBuilder::of(
        fletchlog_arrow::Column::of_kafka(false),
        fletchlog_records::TimeRange::ALL,
    );
    group.bench_function("scan", |b| b.iter(|| ours::scan(&segment, &mut builder)));
    group.bench_function("walk", |b| b.iter(|| ours::walk(&segment)));
    group.bench_function("poll decode", |b| b.iter(|| ours::poll_decode(&spans, &mut builder)));
    group.finish();
}

fn encode(c: &mut Criterion) {
    let mut group = c.benchmark_group("encode");
    group.throughput(Throughput::Elements(RECORDS as u64)).sample_size(20);
    let rows = floor_pass::rows(RECORDS);
    group.bench_function("floor", |b| b.iter(|| floor_pass::encode_floor(&rows, false)));
    group.bench_function("floor, warm", |b| b.iter(|| floor_pass::encode_floor(&rows, true)));
    group.bench_function("build", |b| b.iter(|| ours::build(&rows)));
    group.finish();
}

criterion_group!(benches, decode, encode);
criterion_main!(benches);
