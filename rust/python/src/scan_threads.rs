//! A scan in offset order on several threads: each decodes a part of the log into Arrow batches, which are handed out in the order of the
//! parts.
//!
//! Bounded memory: a part is begun only when the one that lies [`AHEAD`] and the number of threads before it is handed out, and each part
//! keeps a few batches.

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
use crate::scan::fill_from_logs;
use crate::scan_builders::Lent;

/// Bytes of the log that a part has, about: some two batches. With 8 MiB the batches that wait no longer fit into the caches.
pub const PART_BYTES: u64 = 4 << 20;
/// Parts that are begun before a thread is free for them.
const AHEAD: usize = 1;
/// Batches of a part that wait to be handed out: its thread waits when there are more.
const WAITING_BATCHES: usize = 4;

/// What each thread needs to know.
#[derive(Clone)]
pub struct Work {
    /// Which records are visible.
    pub bound: FetchBound,
    /// Rows of a batch at most.
    pub batch_rows: usize,
    /// Timestamps of the records.
    pub times: TimeRange,
}

/// A batch of a part; `None`: the part is read.
type Next = Result<Option<RecordBatch>, Failure>;

struct Part {
    range: ScanRange,
    batches: SyncSender<Next>,
}

/// The threads and what they have read.
pub struct ScanThreads {
    /// Parts that are not begun.
    left: VecDeque<ScanRange>,
    /// Batches of the parts that are, in order.
    begun: VecDeque<Receiver<Next>>,
    /// `None`: the threads have been asked to end.
    parts: Option<Sender<Part>>,
    /// With the memory that they give back.
    threads: Vec<JoinHandle<Lent>>,
    /// The process that has the threads: a forked child does not.
    pid: u32,
}

impl ScanThreads {
    /// Starts the threads, each with a builder of `lend`; `None` if the system gives none.
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
        // Without a thread to take it, its receiver finds that the sender is gone.
        let _ = parts.send(Part { range, batches: sender });
    }

    /// The next batch; waits for it. `None` at the end.
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
        self.begun.clear(); // A thread that waits to hand out a batch finds nobody.
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

/// The work of a thread. Its builder is given back where it is joined: one after the other.
fn read_parts(parts: &Mutex<Receiver<Part>>, work: &Work, mut builder: Lent) -> Lent {
    loop {
        let next = parts.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(part) = next else { return builder };
        read_part(&part, work, builder.get());
    }
}

/// Hands the batches of a part out, then its end or its failure.
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
