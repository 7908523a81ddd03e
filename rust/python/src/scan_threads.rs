//! A scan in offset order on several threads. Each decodes a part of the log into Arrow batches, which are returned in the order of the
//! parts.
//!
//! Memory is bounded: at most [`AHEAD`] plus the number of threads parts are begun and not yet returned, each with a few batches.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use arrow_array::RecordBatch;
use fletchlog_arrow::RowsBuilder;
use fletchlog_log::FetchBound;
use fletchlog_log::scan::{Scan as LogScan, ScanOrder, ScanRange};
use fletchlog_records::TimeRange;

use crate::capsule::without_gil;
use crate::errors::Failure;
use crate::scan_builders::Lent;

/// Approximate bytes of the log in a part: about two batches. With 8 MiB the waiting batches would no longer fit into the caches.
pub const PART_BYTES: u64 = 4 << 20;
/// Number of parts queued for the next free thread.
const AHEAD: usize = 1;
/// Most batches of a part that wait to be returned: its thread blocks when they are as many.
const WAITING_BATCHES: usize = 4;

/// The parameters that all threads share.
#[derive(Clone)]
pub struct Work {
    /// Which records are visible.
    pub bound: FetchBound,
    /// Most rows in a batch.
    pub batch_rows: usize,
    /// Range of the records' timestamps.
    pub times: TimeRange,
}

/// A batch of a part; `None`: the part is read.
type Next = Result<Option<RecordBatch>, Failure>;

struct Part {
    range: ScanRange,
    batches: SyncSender<Next>,
}

/// The threads and the batches that they have read.
pub struct ScanThreads {
    /// Parts that have not begun.
    left: VecDeque<ScanRange>,
    /// Batches of the parts that have begun, in order.
    begun: VecDeque<Receiver<Next>>,
    /// `None`: the threads are to end.
    parts: Option<Sender<Part>>,
    /// The threads; joining one returns its builder.
    threads: Vec<JoinHandle<Lent>>,
    /// The process of the threads: a forked child does not have them.
    pid: u32,
}

impl ScanThreads {
    /// Starts the threads, each with a builder from `lend`; `None` if the system refuses the first.
    pub fn start(parts: Vec<ScanRange>, threads: usize, work: &Work, lend: impl Fn() -> Lent) -> Option<Self> {
        let (sender, receiver) = channel();
        let receiver = Arc::new(Mutex::new(receiver));
        let start = |_| {
            let (receiver, work, builder) = (Arc::clone(&receiver), work.clone(), lend());
            let thread = std::thread::Builder::new().name("fletchlog-scan".to_owned());
            thread.spawn(move || read_parts(&receiver, &work, builder)).ok()
        };
        let threads: Vec<_> = (0..threads.min(parts.len())).map_while(start).collect();
        let mut started = Self {
            left: parts.into(),
            begun: VecDeque::new(),
            parts: Some(sender),
            threads,
            pid: std::process::id(),
        };
        for _ in 0..started.threads.len() + AHEAD {
            started.begin_next();
        }
        (!started.threads.is_empty()).then_some(started)
    }

    fn begin_next(&mut self) {
        let (Some(range), Some(parts)) = (self.left.pop_front(), &self.parts) else {
            return;
        };
        let (sender, receiver) = sync_channel(WAITING_BATCHES);
        self.begun.push_back(receiver);
        // Without a thread to take it, the sender is dropped, which the receiver notices.
        let _ = parts.send(Part { range, batches: sender });
    }

    /// Waits for the next batch; `None` at the end.
    pub fn next(&mut self) -> Next {
        if self.pid != std::process::id() {
            return Err(Failure::forked("scan", self.pid));
        }
        while let Some(batches) = self.begun.front() {
            match batches.recv() {
                Ok(Ok(None)) => {
                    self.begun.pop_front();
                    self.begin_next();
                }
                Ok(next) => return next,
                // Its thread has panicked.
                Err(_) => return Err(Failure::broken("scan")),
            }
        }
        Ok(None)
    }
}

impl Drop for ScanThreads {
    fn drop(&mut self) {
        self.begun.clear(); // Unblocks threads that wait to send a batch.
        self.parts = None;
        let threads = std::mem::take(&mut self.threads);
        if self.pid != std::process::id() {
            return std::mem::forget(threads);
        }
        without_gil(|| {
            for thread in threads {
                let _ = thread.join();
            }
        });
    }
}

/// The work of a thread. Joining the thread returns its builder, so builders are returned one at a time.
fn read_parts(parts: &Mutex<Receiver<Part>>, work: &Work, mut builder: Lent) -> Lent {
    loop {
        let next = parts.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(part) = next else { return builder };
        read_part(&part, work, builder.get());
    }
}

/// Sends the batches of a part, then its end or its failure.
fn read_part(part: &Part, work: &Work, builder: &mut RowsBuilder) {
    let ranges = std::slice::from_ref(&part.range);
    let mut scan = LogScan::new(ranges, work.bound, ScanOrder::Offset).of_times(work.times);
    loop {
        let filled = fill_from_logs(&mut scan, builder, work.batch_rows);
        let is_read = builder.rows() == 0;
        if !is_read && part.batches.send(Ok(Some(builder.finish()))).is_err() {
            return;
        }
        let end = match filled {
            Err(failure) => Err(failure),
            Ok(()) if is_read => Ok(None),
            Ok(()) => continue,
        };
        let _ = part.batches.send(end);
        return;
    }
}

/// Appends rows until a batch is full or the scan ends.
pub fn fill_from_logs(scan: &mut LogScan, builder: &mut RowsBuilder, batch_rows: usize) -> Result<(), Failure> {
    while let Some(batch) = scan.next_batch()? {
        let room = builder.room(batch_rows, batch.slice);
        if room == 0 {
            break;
        }
        let rows = batch.in_turn(room);
        rows.and_then(|rows| builder.append_records(batch.tp, batch.slice, batch.cursor, rows, batch.start, batch.end))
            .map_err(|error| Failure::of_record(error, batch.tp, batch.slice.base_offset))?;
    }
    Ok(())
}
