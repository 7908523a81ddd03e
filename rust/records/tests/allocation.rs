//! Hostile bytes cost no more memory than the limit that the caller set.
#![allow(unsafe_code, missing_docs, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use fletchlog_records::{BatchBuilder, BatchParams, Compression, RecordBatch, RecordCursor, RecordError};

struct Counting;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on as it is; only sizes are noted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's layout.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's layout.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        LARGEST.fetch_max(new_size, Ordering::Relaxed);
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

/// The largest single allocation of `work`. One test holds all: the counter is the process's.
fn largest<R>(work: impl FnOnce() -> R) -> (usize, R) {
    LARGEST.store(0, Ordering::Relaxed);
    let result = work();
    (LARGEST.load(Ordering::Relaxed), result)
}

#[test]
fn bombs_and_lying_counts_allocate_within_the_limit() {
    const LIMIT: usize = 1 << 20;
    // 64 MiB of zeros in a few KiB to a few MiB.
    for compression in [
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let mut builder = BatchBuilder::with_capacity(0);
        builder.append(0, None, Some(&vec![0; 64 << 20]), &[]);
        let bomb = builder.build(&BatchParams {
            compression,
            ..BatchParams::default()
        });
        drop(builder);
        let batch = RecordBatch::parse(&bomb).unwrap().unwrap();
        let (most, result) = largest(|| batch.records(LIMIT));
        assert!(
            matches!(result, Err(RecordError::DecompressionLimit { .. })),
            "{compression:?}"
        );
        assert!(most <= 2 * LIMIT, "{compression:?} allocated {most} bytes at once");
    }

    // A header that declares 2^31-1 records, or 2^31-1 bytes, over nothing.
    let mut builder = BatchBuilder::with_capacity(0);
    builder.append(0, None, None, &[]);
    let good = builder.build(&BatchParams::default());
    for at in [8, 57] {
        let mut bytes = good.to_vec();
        bytes[at..at + 4].copy_from_slice(&i32::MAX.to_be_bytes());
        let bytes = Bytes::from(bytes);
        let (most, ()) = largest(|| {
            if let Some(batch) = RecordBatch::parse(&bytes).unwrap() {
                let slice = batch.records(LIMIT).unwrap();
                assert_eq!(RecordCursor::new().walk(&slice, usize::MAX).unwrap(), Some((1, 0, 0)));
            }
        });
        assert!(most <= 4096, "{most}");
    }
}
