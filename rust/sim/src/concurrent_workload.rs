//! Several threads on one partition's log at once: appends, repeats of each other's batches, flushes, rolls; and power loss at every
//! operation (reliability C1, C2).
//!
//! The system schedules the threads, so a seed does not replay a run. At every call the disk yields to other threads, which makes rare
//! interleavings more likely.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use fletchlog_log::{AppendError, AppendInfo, FetchBound, LogConfig, PartitionLog};
use fletchlog_records::BatchIter;

use crate::course::{Course, Workload};
use crate::crash_points::{CrashPoints, Crashable, Seen, Violation, check_recovery};
use crate::disk_state::DiskState;
use crate::log_workload::{DIR, Known, NOW_MS, PRODUCERS, append, batch, config, open};
use crate::rng::Rng;
use crate::sim_disk::SimDisk;

/// A batch: first and last offset, checksum.
type Batch = (i64, i64, u32);

/// One run of the workload.
#[derive(Debug)]
pub struct ConcurrentWorkload {
    config: LogConfig,
    promised: Vec<Promise>,
    course: Course,
}

/// A promise to a thread, made after at most `at` operations.
#[derive(Debug, Clone, Copy)]
struct Promise {
    at: u64,
    what: What,
}

#[derive(Debug, Clone, Copy)]
enum What {
    /// An append or a repeat was acknowledged.
    Batch(Batch),
    /// A flush returned this recovery point.
    Flushed(i64),
}

/// State shared by the threads.
struct Threads<'a> {
    disk: &'a SimDisk,
    log: &'a PartitionLog,
    /// The batch that each producer is sending or sent last.
    newest: Mutex<Vec<Option<(Bytes, u32)>>>,
    promised: Mutex<Vec<Promise>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs each in its own thread, all at once. Returns the first error, if any.
pub(crate) fn together<F: FnOnce() -> Result<(), String> + Send>(
    threads: impl Iterator<Item = F>,
) -> Result<(), String> {
    let results: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let started: Vec<_> = threads.map(|thread| scope.spawn(thread)).collect();
        let panicked = |_| Err("a thread has panicked".to_owned());
        started.into_iter().map(|t| t.join().unwrap_or_else(panicked)).collect()
    });
    results.into_iter().collect()
}

impl Threads<'_> {
    fn promise(&self, what: What) {
        let at = self.disk.operations();
        lock(&self.promised).push(Promise { at, what });
    }

    fn acknowledged(&self, info: &AppendInfo, crc: u32) {
        self.promise(What::Batch((info.first_offset, info.last_offset, crc)));
    }

    fn work(&self, producer: usize, steps: usize, rng: &mut Rng) -> Result<(), String> {
        let mut sequence = 0;
        for step in 0..steps {
            match rng.below(20) {
                0 => {
                    let recovery_point = self.log.flush().map_err(|e| e.to_string())?;
                    self.promise(What::Flushed(recovery_point));
                }
                1 => drop(self.log.roll(NOW_MS).map_err(|e| e.to_string())?),
                2..6 => self.repeat(rng.below(PRODUCERS))?,
                _ => {
                    let records = 1 + rng.below(3);
                    let (data, crc) = batch(producer, sequence, records, &format!("{producer}-{step}"));
                    lock(&self.newest)[producer] = Some((data.clone(), crc));
                    let info = append(self.log, data, 0).map_err(|e| e.to_string())?;
                    self.acknowledged(&info, crc);
                    sequence += i32::try_from(records).unwrap_or(0);
                }
            }
        }
        Ok(())
    }

    /// Repeats a batch, like a client that has lost the response or did not wait for it.
    fn repeat(&self, producer: usize) -> Result<(), String> {
        let newest = lock(&self.newest)[producer].clone();
        let Some((data, crc)) = newest else { return Ok(()) };
        match append(self.log, data, 0) {
            Ok(info) => self.acknowledged(&info, crc),
            // The batch is older than those that the log remembers.
            Err(AppendError::Refused { .. }) => {}
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }
}

impl Workload for ConcurrentWorkload {
    const DIR: &str = DIR;

    fn begin(seed: u64, rng: &mut Rng) -> Self {
        Self {
            config: config(rng),
            promised: Vec::new(),
            course: Course::new(seed),
        }
    }

    /// Each thread makes `steps` calls.
    fn work(&mut self, disk: &SimDisk, rng: &mut Rng, steps: usize) -> Result<(), String> {
        let log = open(disk, &self.config, Known::default(), false).map_err(|e| e.to_string())?;
        disk.give_way();
        let threads = Threads {
            disk,
            log: &log,
            newest: Mutex::new(vec![None; PRODUCERS]),
            promised: Mutex::default(),
        };
        let producers = (0..PRODUCERS).map(|producer| {
            let (threads, mut rng) = (&threads, rng.fork());
            move || threads.work(producer, steps, &mut rng)
        });
        let result = together(producers);
        self.promised = threads.promised.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.promised.sort_by_key(|promise| promise.at);
        result
    }

    fn course(&self) -> &Course {
        &self.course
    }

    fn course_mut(&mut self) -> &mut Course {
        &mut self.course
    }
}

impl Crashable for ConcurrentWorkload {
    const AFTER_FAILURE: (usize, usize) = (4, 1);

    fn crash_at(&self, points: &CrashPoints<'_>) -> Result<usize, Violation> {
        let promised = |now| {
            let count = self.promised.partition_point(|promise| promise.at <= now);
            let promised = &self.promised[..count];
            (count, Crash { run: self, promised })
        };
        points.check(Rng::new(self.course.seed() ^ 0x7EAD_5EED), promised, Crash::check)
    }
}

/// A moment of a run, and the promises made by then.
struct Crash<'a> {
    run: &'a ConcurrentWorkload,
    promised: &'a [Promise],
}

impl Crash<'_> {
    fn check(&self, image: DiskState, rng: &mut Rng, seen: &mut Seen<BTreeMap<i64, Batch>>) -> Result<(), String> {
        let flushed = self.promised.iter().filter_map(|promise| match promise.what {
            What::Flushed(recovery_point) => Some(recovery_point),
            What::Batch(_) => None,
        });
        let recovery_point = flushed.max().unwrap_or(0);
        let known = Known {
            recovery_point,
            ..Known::default()
        };
        let look = |disk: &SimDisk| {
            let log = open(disk, &self.run.config, known, false).map_err(|e| format!("cannot be opened: {e}"))?;
            contents(&log)
        };
        check_recovery(image, (recovery_point, 0), rng, seen, look, |found| self.holds(found))
    }

    fn holds(&self, found: &BTreeMap<i64, Batch>) -> Result<(), String> {
        for promise in self.promised {
            if let What::Batch(batch) = promise.what
                && found.get(&batch.0) != Some(&batch)
            {
                let there = found.get(&batch.0);
                return Err(format!("{batch:?} was acknowledged; there is {there:?}"));
            }
        }
        Ok(())
    }
}

/// The batches by first offset; they must be contiguous.
fn contents(log: &PartitionLog) -> Result<BTreeMap<i64, Batch>, String> {
    let mut found = BTreeMap::new();
    let mut offset = log.log_start_offset();
    while offset < log.log_end_offset() {
        let read = log.read(offset, 1 << 20, true, FetchBound::LogEnd);
        let records = read.map_err(|e| e.to_string())?.records;
        if records.is_empty() {
            return Err(format!(
                "there is nothing at {offset}, and the log ends at {}",
                log.log_end_offset()
            ));
        }
        for batch in BatchIter::new(records) {
            let batch = batch.map_err(|e| format!("batch at {offset}: {e}"))?;
            let header = batch.header();
            if header.base_offset != offset {
                return Err(format!("at {offset} is a batch of {}", header.base_offset));
            }
            found.insert(offset, (offset, header.last_offset(), header.crc));
            offset = header.last_offset() + 1;
        }
    }
    Ok(found)
}
