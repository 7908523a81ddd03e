//! What a poll costs, in the build as it is: nanoseconds per poll, the best of some rounds, as one line of JSON.
//! `benches/python/trace_cost.py` compares it with tracing off, on, and with a build that has no hooks at all.
//!
//! `trace_cost [--trace] [ROUNDS]`
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss)]

use std::sync::Arc;
use std::time::Instant;

use fletchlog_api::{Config, Scope};
use fletchlog_broker::{Broker, LocalTransport, OpenOptions};
use fletchlog_client::Consumer;
use fletchlog_records::{BatchBuilder, BatchParams, TopicPartition};
use fletchlog_sim::virtual_clock::VirtualClock;

const VALUE: &[u8] = b"0123456789";
const RECORDS_PER_BATCH: usize = 500;

struct Case {
    name: &'static str,
    partitions: i32,
    batches: usize,
    per_poll: usize,
}

/// Full polls; a record at a time, where the poll itself is all there is; many partitions and many fetches.
const CASES: [Case; 3] = [
    Case {
        name: "500 of 10 partitions",
        partitions: 10,
        batches: 40,
        per_poll: 500,
    },
    Case {
        name: "1 of 10 partitions",
        partitions: 10,
        batches: 2,
        per_poll: 1,
    },
    Case {
        name: "50 of 200 partitions",
        partitions: 200,
        batches: 2,
        per_poll: 50,
    },
];

fn filled(case: &Case, clock: &Arc<VirtualClock>) -> (Arc<Broker>, Vec<TopicPartition>) {
    let options = OpenOptions {
        nodes: Some(1),
        read_only: false,
        config: Config::parse(Scope::Broker, []).unwrap(),
    };
    let broker = Broker::in_memory(options, Arc::clone(clock) as _).unwrap();
    broker.create_topic("t", case.partitions, &[]).unwrap();
    let partitions: Vec<_> = (0..case.partitions).map(|p| TopicPartition::new("t", p)).collect();
    for tp in &partitions {
        for _ in 0..case.batches {
            let mut builder = BatchBuilder::with_capacity(1 << 16);
            for _ in 0..RECORDS_PER_BATCH {
                builder.append(1_700_000_000_000, None, Some(VALUE), &[]);
            }
            broker
                .append_batches(tp, builder.build(&BatchParams::default()))
                .unwrap();
        }
    }
    (broker, partitions)
}

/// Nanoseconds per poll of reading everything once.
fn round(
    case: &Case,
    broker: &Arc<Broker>,
    partitions: &[TopicPartition],
    clock: &Arc<VirtualClock>,
    trace: bool,
) -> f64 {
    let per_poll = case.per_poll.to_string();
    let properties = [
        ("auto.offset.reset", "earliest"),
        ("max.poll.records", per_poll.as_str()),
        ("max.partition.fetch.bytes", "16384"),
        ("fletchlog.trace", if trace { "true" } else { "false" }),
    ];
    let config = Config::parse(Scope::Consumer, properties).unwrap();
    let transport = Box::new(LocalTransport::new(Arc::clone(broker)));
    let mut consumer = Consumer::new(config, transport, Arc::clone(clock) as _).unwrap();
    consumer.assign(partitions).unwrap();
    let all = partitions.len() * case.batches * RECORDS_PER_BATCH;
    let (mut seen, mut polls) = (0, 0u32);
    let began = Instant::now();
    while seen < all {
        let polled = consumer.poll(1000, &mut || false).unwrap();
        seen += polled
            .runs
            .iter()
            .flat_map(|run| &run.spans)
            .map(|span| span.count)
            .sum::<usize>();
        polls += 1;
    }
    began.elapsed().as_nanos() as f64 / f64::from(polls)
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let trace = words.iter().any(|word| word == "--trace");
    let rounds: u32 = words.iter().find_map(|word| word.parse().ok()).unwrap_or(20);
    let clock = Arc::new(VirtualClock::at(1_700_000_000_000));
    let found: Vec<String> = CASES
        .iter()
        .map(|case| {
            let (broker, partitions) = filled(case, &clock);
            let best = (0..rounds)
                .map(|_| round(case, &broker, &partitions, &clock, trace))
                .fold(f64::INFINITY, f64::min);
            format!("\"{}\": {best:.1}", case.name)
        })
        .collect();
    println!("{{{}}}", found.join(", "));
}
