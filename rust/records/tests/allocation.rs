//! Hostile bytes cost no more memory than the limit that the caller set.
#![allow(unsafe_code, missing_docs, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use fletchlog_records::batch_header::RECORD_BATCH_OVERHEAD;
use fletchlog_records::crc::crc32;
use fletchlog_records::{BatchBuilder, BatchParams, Compression, RecordBatch, RecordCursor, RecordError};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grow(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call is passed on as it is; only sizes are noted. The default `realloc` comes here.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's layout.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's layout.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's pointer and layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The counters are the process's: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

const CODECS: [Compression; 4] = [
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];

/// Bytes that Rust code has allocated at most during `work`, beyond what it had before.
fn peak<R>(work: impl FnOnce() -> R) -> (usize, R) {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = work();
    (PEAK.load(Ordering::Relaxed) - before, result)
}

/// Resident bytes of the process at most during `work`, beyond what it had before: C code (zstd) included.
#[cfg(target_os = "linux")]
fn resident_peak<R>(work: impl FnOnce() -> R) -> (usize, R) {
    let of = |name: &str| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
    };
    // Sets the high-water mark back to what is resident now.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = of("VmRSS:");
    let result = work();
    (of("VmHWM:").saturating_sub(before), result)
}

/// About 1 MiB that expands as far as the format can: one piece of 8 MiB of zeros after the other.
fn bomb(codec: Compression) -> Vec<u8> {
    let mut piece = Vec::new();
    codec.compress(&vec![0; 8 << 20], None, &mut piece);
    let (head, body, tail) = match codec {
        // Frames, members and streams may follow each other.
        Compression::Zstd | Compression::Gzip | Compression::Snappy => (vec![], piece, vec![]),
        // One frame of many blocks: header of 7 bytes, end mark of 4.
        _ => (piece[..7].to_vec(), piece[7..piece.len() - 4].to_vec(), vec![0; 4]),
    };
    let times = (1 << 20) / body.len() + 1;
    [head, body.repeat(times), tail].concat()
}

/// A batch with this payload, valid but for its checksum.
fn batch_around(codec: Compression, payload: &[u8]) -> RecordBatch {
    let mut builder = BatchBuilder::with_capacity(0);
    builder.append(0, None, None, &[]);
    let header = builder.build(&BatchParams {
        compression: codec,
        ..BatchParams::default()
    });
    let mut bytes = [&header[..RECORD_BATCH_OVERHEAD], payload].concat();
    let length = i32::try_from(bytes.len() - 12).unwrap();
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    RecordBatch::parse(&Bytes::from(bytes)).unwrap().unwrap()
}

/// A v1 wrapper with this payload, and its checksum.
fn wrapper_around(codec: Compression, payload: &[u8]) -> RecordBatch {
    let mut body = vec![1, codec as u8];
    body.extend_from_slice(&[0; 8]);
    body.extend_from_slice(&(-1i32).to_be_bytes());
    body.extend_from_slice(&i32::try_from(payload.len()).unwrap().to_be_bytes());
    body.extend_from_slice(payload);
    let mut bytes = 0i64.to_be_bytes().to_vec();
    bytes.extend_from_slice(&i32::try_from(body.len() + 4).unwrap().to_be_bytes());
    bytes.extend_from_slice(&crc32(&body).to_be_bytes());
    bytes.extend_from_slice(&body);
    RecordBatch::parse(&Bytes::from(bytes)).unwrap().unwrap()
}

#[test]
fn a_megabyte_that_expands_to_gigabytes_costs_the_limit() {
    const LIMIT: usize = 16 << 20;
    let _alone = ALONE.lock().unwrap();
    for codec in CODECS {
        let payload = bomb(codec);
        let mut batches = vec![batch_around(codec, &payload)];
        if codec != Compression::Zstd {
            batches.push(wrapper_around(codec, &payload));
        }
        for batch in batches {
            let magic = batch.header().magic;
            let (allocated, result) = peak(|| batch.records(LIMIT));
            assert!(
                matches!(result, Err(RecordError::DecompressionLimit { limit: LIMIT, .. })),
                "{codec:?} {result:?}"
            );
            // While a buffer grows, its old half is still there.
            assert!(allocated <= 2 * LIMIT, "{codec:?} v{magic} allocated {allocated} bytes");
            #[cfg(target_os = "linux")]
            {
                let (resident, result) = resident_peak(|| batch.records(LIMIT));
                assert!(result.is_err());
                assert!(
                    resident <= 2 * LIMIT + (16 << 20),
                    "{codec:?} v{magic}: {resident} resident bytes"
                );
                println!("{codec:?} v{magic}: limit {LIMIT}, allocated {allocated}, resident {resident}");
            }
        }
    }
}

/// A frame may ask for a window of 128 MiB, which is only address space until it is used.
#[test]
#[cfg(target_os = "linux")]
fn a_large_zstd_window_costs_no_more_than_what_is_in_it() {
    use std::io::Write;
    let _alone = ALONE.lock().unwrap();
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    encoder.window_log(27).unwrap();
    encoder.write_all(&[0; 4 << 20]).unwrap();
    let payload = encoder.finish().unwrap();
    let (resident, result) = resident_peak(|| Compression::Zstd.decompress(&payload, 2, 8 << 20, 0));
    assert_eq!(result.unwrap().len(), 4 << 20);
    assert!(resident <= 16 << 20, "{resident} resident bytes");
}

/// Entries of old formats are smaller than what remembers them: still a multiple of the limit, and a small one.
#[test]
fn many_tiny_entries_cost_a_small_multiple_of_their_bytes() {
    const LIMIT: usize = 4 << 20;
    let _alone = ALONE.lock().unwrap();
    let mut body = vec![1, 0];
    body.extend_from_slice(&[0; 8]);
    body.extend_from_slice(&[0xff; 8]);
    let mut entry = 0i64.to_be_bytes().to_vec();
    entry.extend_from_slice(&i32::try_from(body.len() + 4).unwrap().to_be_bytes());
    entry.extend_from_slice(&crc32(&body).to_be_bytes());
    entry.extend_from_slice(&body);
    let entries = entry.repeat(LIMIT / entry.len());
    let mut payload = Vec::new();
    Compression::Gzip.compress(&entries, None, &mut payload);
    let batch = wrapper_around(Compression::Gzip, &payload);
    let (allocated, result) = peak(|| batch.records(LIMIT));
    assert_eq!(usize::try_from(result.unwrap().count).unwrap(), LIMIT / entry.len());
    assert!(allocated <= 6 * LIMIT, "{allocated} bytes");
}

#[test]
fn lying_counts_allocate_nothing() {
    // A header that declares 2^31-1 records, or 2^31-1 bytes, over nothing.
    let _alone = ALONE.lock().unwrap();
    let mut builder = BatchBuilder::with_capacity(0);
    builder.append(0, None, None, &[]);
    let good = builder.build(&BatchParams::default());
    for at in [8, 57] {
        let mut bytes = good.to_vec();
        bytes[at..at + 4].copy_from_slice(&i32::MAX.to_be_bytes());
        let bytes = Bytes::from(bytes);
        let (most, ()) = peak(|| {
            if let Some(batch) = RecordBatch::parse(&bytes).unwrap() {
                let slice = batch.records(1 << 20).unwrap();
                assert_eq!(RecordCursor::new().walk(&slice, usize::MAX).unwrap(), Some((1, 0, 0)));
            }
        });
        assert!(most <= 4096, "{most}");
    }
}
