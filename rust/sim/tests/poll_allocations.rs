//! A poll allocates per batch, not per record: from the broker's log through the consumer to Arrow columns.
#![allow(unsafe_code, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use fletchlog_api::{Config, Scope};
use fletchlog_arrow::{Column, RowsBuilder};
use fletchlog_broker::{Broker, LocalTransport, OpenOptions};
use fletchlog_client::Consumer;
use fletchlog_records::{BatchBuilder, BatchParams, TimeRange, TopicPartition};
use fletchlog_testing::VirtualClock;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    // A thread that ends has no counter any more.
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
}

// SAFETY: every call is passed on as it is; only calls are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's layout.
        unsafe { System.alloc(layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's pointer and layout.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's pointer and layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BATCHES: usize = 64;
const BATCHES_PER_POLL: usize = 16;

/// Allocations of each poll, its rows taken as one Arrow batch, of a topic whose batches have so many records.
fn allocations_per_poll(records_per_batch: usize) -> Vec<usize> {
    let clock = VirtualClock::new();
    let options = OpenOptions {
        nodes: Some(1),
        named_nodes: Vec::new(),
        read_only: false,
        config: Config::parse(Scope::Broker, []).unwrap(),
    };
    let broker = Broker::in_memory(options, Arc::clone(&clock) as _).unwrap();
    broker.create_topic("t", 1, &[]).unwrap();
    let tp = TopicPartition::new("t", 0);
    for _ in 0..BATCHES {
        let mut builder = BatchBuilder::with_capacity(1 << 16);
        for i in 0..records_per_batch {
            builder.append(1_700_000_000_000, Some(&i.to_be_bytes()), Some(b"0123456789"), &[]);
        }
        broker
            .append_batches(&tp, builder.build(&BatchParams::default()))
            .unwrap();
    }
    let per_poll = (records_per_batch * BATCHES_PER_POLL).to_string();
    let properties = [
        ("auto.offset.reset", "earliest"),
        ("max.poll.records", per_poll.as_str()),
        ("max.partition.fetch.bytes", "52428800"),
    ];
    let config = Config::parse(Scope::Consumer, properties).unwrap();
    let mut consumer = Consumer::new(config, Box::new(LocalTransport::new(broker)), clock).unwrap();
    consumer.assign(std::slice::from_ref(&tp)).unwrap();
    let mut columns = RowsBuilder::of(Column::of_kafka(false), TimeRange::ALL);
    (0..BATCHES / BATCHES_PER_POLL)
        .map(|_| {
            let before = ALLOCATIONS.get();
            let polled = consumer.poll(1000, &mut || false).unwrap();
            for (tp, span) in polled.runs.iter().flat_map(|r| r.spans.iter().map(move |s| (&r.tp, s))) {
                columns.append_span(tp, span).unwrap();
            }
            let rows = columns.finish();
            assert_eq!(rows.num_rows(), records_per_batch * BATCHES_PER_POLL);
            ALLOCATIONS.get() - before
        })
        .collect()
}

#[test]
fn a_poll_allocates_per_batch_and_not_per_record() {
    let (few, many) = (allocations_per_poll(2), allocations_per_poll(2000));
    // The first poll looks up offsets and fetches; the last may send the next fetch. In between there is only handing out.
    for (few, many) in few.iter().zip(&many) {
        assert!(
            many.abs_diff(*few) <= BATCHES_PER_POLL,
            "{few} with 32 records, {many} with 32,000"
        );
    }
    assert!(many[0] > BATCHES_PER_POLL, "the first poll cannot do without: {many:?}");
    assert!(many[1] <= 8 * BATCHES_PER_POLL, "{many:?}");
}
