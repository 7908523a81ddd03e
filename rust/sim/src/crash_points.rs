//! Power loss at every storage operation of a partition's log (reliability C1, C2; rules R1-R11).
//!
//! A seeded workload runs once on a [`SimDisk`] that keeps its state in front of every operation. From each of those states the
//! disk comes up in several ways; the log is opened on it, and what was promised must be there. The recovery is crashed as well.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_log::config::Durability;
use fletchlog_log::partition_log::{AppendInfo, AppendOrigin, FetchBound, OpenMode, PartitionLog};
use fletchlog_log::{AppendError, LogConfig, LogError};
use fletchlog_records::{BatchBuilder, BatchIter, BatchParams, TopicPartition};

use crate::rng::Rng;
use crate::sim_disk::{DiskState, Left, Lie, SimDisk};

const DIR: &str = "/data/t-0";
const NOW_MS: i64 = 1_700_000_000_000;
/// Producers of the workload; each numbers its batches.
const PRODUCERS: usize = 3;

/// One batch that was handed to the log.
#[derive(Debug, Clone)]
struct Sent {
    producer: usize,
    data: Bytes,
    /// First and last offset it has, or would get.
    offsets: (i64, i64),
    /// Operations when its append returned; `None`: it never did.
    acknowledged_at: Option<u64>,
}

/// What a caller knows besides: checkpoints that a broker keeps, valid from so many operations on.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    at: u64,
    recovery_point: i64,
    log_start: i64,
}

/// One run of the workload.
#[derive(Debug)]
pub struct Run {
    seed: u64,
    config: LogConfig,
    sent: Vec<Sent>,
    known: Vec<Known>,
    history: Vec<DiskState>,
    /// The error that ended it, with a failing disk.
    failure: Option<String>,
}

/// What was found wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Replays the run.
    pub seed: u64,
    /// Operations before the crash.
    pub crash_at: u64,
    /// What.
    pub what: String,
}

fn config(rng: &mut Rng) -> LogConfig {
    LogConfig {
        segment_bytes: 700 + i32::try_from(rng.below(600)).unwrap_or(0),
        index_interval_bytes: 150,
        segment_index_bytes: 200,
        durability: Durability::Fsync,
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    }
}

fn open(disk: &SimDisk, config: &LogConfig, known: Known, clean_shutdown: bool) -> Result<PartitionLog, LogError> {
    let mode = OpenMode::Write {
        clean_shutdown,
        recovery_point: known.recovery_point,
        log_start_offset: known.log_start,
    };
    let tp = TopicPartition::new("t", 0);
    PartitionLog::open(Arc::new(disk.clone()), Path::new(DIR), tp, config.clone(), mode, NOW_MS)
}

fn append(log: &PartitionLog, data: Bytes) -> Result<AppendInfo, AppendError> {
    log.append_as_leader(data, 0, AppendOrigin::Client, NOW_MS)
}

/// A disk whose partition directory is there, as the creation of a topic leaves it.
fn new_disk() -> SimDisk {
    SimDisk::with_dirs(&[Path::new(DIR)])
}

impl Run {
    /// Runs the workload of a seed. `steps` calls of the log at most.
    pub fn new(seed: u64, steps: usize, lie: Option<Lie>, fail: Option<(u64, io::ErrorKind)>) -> Self {
        let disk = new_disk();
        if let Some(lie) = lie {
            disk.lie(lie);
        }
        if let Some((operation, kind)) = fail {
            disk.fail(operation, kind);
        }
        disk.record();
        let mut rng = Rng::new(seed);
        let mut run = Self {
            seed,
            config: config(&mut rng),
            sent: Vec::new(),
            known: vec![Known::default()],
            history: Vec::new(),
            failure: None,
        };
        if let Err(error) = run.work(&disk, &mut rng, steps) {
            run.failure = Some(error);
        }
        run.history = disk.history();
        run
    }

    fn work(&mut self, disk: &SimDisk, rng: &mut Rng, steps: usize) -> Result<(), String> {
        let text = |e: LogError| e.to_string();
        let mut log = open(disk, &self.config, Known::default(), false).map_err(text)?;
        for _ in 0..steps {
            match rng.below(20) {
                0 => {
                    let recovery_point = log.flush().map_err(text)?;
                    self.learn(disk, |known| known.recovery_point = recovery_point);
                }
                1 => {
                    log.roll(NOW_MS).map_err(text)?;
                }
                2 => {
                    let span = usize::try_from(log.log_end_offset() - log.log_start_offset()).unwrap_or(0);
                    let to = log.log_start_offset() + i64::try_from(rng.below(span / 2 + 1)).unwrap_or(0);
                    // A broker writes its checkpoint before it answers; from here on either start is right.
                    let log_start = log.delete_records(Some(to)).map_err(text)?;
                    self.learn(disk, |known| known.log_start = log_start);
                    log.delete_old_segments(NOW_MS).map_err(text)?;
                }
                3 => {
                    log.close().map_err(text)?;
                    let recovery_point = log.log_end_offset();
                    self.learn(disk, |known| known.recovery_point = recovery_point);
                    let known = self.known[self.known.len() - 1];
                    log = open(disk, &self.config, known, true).map_err(text)?;
                }
                4 => self.repeat(&log, rng)?,
                _ => self.append(disk, &log, rng)?,
            }
        }
        Ok(())
    }

    fn learn(&mut self, disk: &SimDisk, change: impl FnOnce(&mut Known)) {
        let mut known = self.known[self.known.len() - 1];
        change(&mut known);
        known.at = disk.operations();
        self.known.push(known);
    }

    fn append(&mut self, disk: &SimDisk, log: &PartitionLog, rng: &mut Rng) -> Result<(), String> {
        let producer = rng.below(PRODUCERS);
        let records = 1 + rng.below(4);
        let sequence = next_sequence(&self.sent, producer);
        let data = batch(
            producer,
            sequence,
            records,
            &format!("{}-{}", self.seed, self.sent.len()),
        );
        let first = log.log_end_offset();
        self.sent.push(Sent {
            producer,
            data: data.clone(),
            offsets: (first, first + i64::try_from(records).unwrap_or(0) - 1),
            acknowledged_at: None,
        });
        let info = append(log, data).map_err(|e| e.to_string())?;
        let sent = self.sent.last_mut().ok_or("nothing sent")?;
        if (info.first_offset, info.last_offset) != sent.offsets || info.duplicate {
            return Err(format!("appended at {info:?}, expected {:?}", sent.offsets));
        }
        sent.acknowledged_at = Some(disk.operations());
        Ok(())
    }

    /// The newest batch again, as after a lost acknowledgement.
    fn repeat(&self, log: &PartitionLog, rng: &mut Rng) -> Result<(), String> {
        let producer = rng.below(PRODUCERS);
        let Some(last) = self.sent.iter().rev().find(|s| s.producer == producer) else {
            return Ok(());
        };
        let info = append(log, last.data.clone()).map_err(|e| e.to_string())?;
        if !info.duplicate && last.offsets.0 >= log.log_start_offset() {
            return Err(format!("a repeat of {:?} was appended again at {info:?}", last.offsets));
        }
        Ok(())
    }

    /// The error that ended the run, with a failing disk.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Operations of the run.
    pub fn operations(&self) -> u64 {
        self.history.last().map_or(0, DiskState::operations)
    }

    /// Crashes at every operation, in several ways each, and checks. Returns how many different images there were.
    ///
    /// # Errors
    /// The first promise that was not kept.
    pub fn crash_everywhere(&self, random_images: usize) -> Result<usize, Violation> {
        self.crash_at(&self.history, random_images)
    }

    /// As [`Run::crash_everywhere`], after the last operation only.
    ///
    /// # Errors
    /// The first promise that was not kept.
    pub fn crash_at_end(&self, random_images: usize) -> Result<usize, Violation> {
        self.crash_at(&self.history[self.history.len() - 1..], random_images)
    }

    fn crash_at(&self, states: &[DiskState], random_images: usize) -> Result<usize, Violation> {
        let mut rng = Rng::new(self.seed ^ 0xC0FF_EE00);
        let mut seen = HashSet::new();
        for state in states {
            for image in crash(state, &mut rng, random_images) {
                // The same disk can be right after one acknowledgement and wrong after the next.
                let acknowledged = self.sent.iter().filter(|s| is_acknowledged(s, state)).count();
                if seen.insert((image.state().fingerprint(), acknowledged)) {
                    self.check(state, &image, &mut rng).map_err(|what| Violation {
                        seed: self.seed,
                        crash_at: state.operations(),
                        what,
                    })?;
                }
            }
        }
        Ok(seen.len())
    }

    /// Opens the log on a disk that came up again and holds it against what was promised.
    fn check(&self, crashed: &DiskState, image: &SimDisk, rng: &mut Rng) -> Result<(), String> {
        let known = self
            .known
            .iter()
            .rfind(|k| k.at <= crashed.operations())
            .copied()
            .unwrap_or_default();
        image.record();
        let log = open(image, &self.config, known, false).map_err(|e| format!("cannot be opened: {e}"))?;
        let recovery = image.history();
        let kept = self.check_contents(crashed, &log)?;
        self.check_producers(&log, kept)?;
        drop(log);
        // What a reader may have seen after the first recovery must survive a second power loss (R8).
        for state in crash_in_recovery(&recovery, rng) {
            let finished = state.operations() == recovery.last().map_or(0, DiskState::operations);
            let again = state.image(Left::Nothing);
            let log = open(&again, &self.config, known, false).map_err(|e| format!("second recovery: {e}"))?;
            let kept_again = self
                .check_contents(crashed, &log)
                .map_err(|e| format!("second recovery: {e}"))?;
            if finished && kept_again < kept {
                return Err(format!(
                    "{kept} batches after the first recovery, {kept_again} after a second power loss"
                ));
            }
        }
        Ok(())
    }

    /// How many of the sent batches the log holds: the first so many, whole, each at its offset, no acknowledged one missing.
    fn check_contents(&self, crashed: &DiskState, log: &PartitionLog) -> Result<usize, String> {
        let start = log.log_start_offset();
        let mut found = Vec::new();
        let mut offset = start;
        while offset < log.log_end_offset() {
            let read = log
                .read(offset, 1 << 20, true, FetchBound::LogEnd)
                .map_err(|e| format!("read at {offset}: {e}"))?;
            for batch in BatchIter::new(read.records) {
                let batch = batch.map_err(|e| format!("batch at {offset}: {e}"))?;
                let header = batch.header();
                if header.last_offset() < offset {
                    return Err(format!(
                        "at {offset} the log holds a batch that ends at {}",
                        header.last_offset()
                    ));
                }
                found.push((header.base_offset, header.last_offset(), header.crc));
                offset = header.last_offset() + 1;
            }
        }
        let expected = |s: &Sent| {
            let header = BatchIter::new(s.data.clone())
                .next()
                .and_then(Result::ok)
                .map(|b| b.header().crc);
            (s.offsets.0, s.offsets.1, header.unwrap_or_default())
        };
        let from = self
            .sent
            .iter()
            .position(|s| s.offsets.1 >= start)
            .unwrap_or(self.sent.len());
        let all: Vec<_> = self.sent[from..].iter().map(expected).collect();
        if found.len() > all.len() || found[..] != all[..found.len()] {
            return Err(format!("from {start} the log holds {found:?}, sent were {all:?}"));
        }
        let kept = from + found.len();
        match self.sent.iter().skip(kept).find(|s| is_acknowledged(s, crashed)) {
            Some(lost) => Err(format!(
                "acknowledged {:?} is lost; the log ends at {}",
                lost.offsets,
                log.log_end_offset()
            )),
            None => Ok(kept),
        }
    }

    /// Each producer's newest surviving batch is known as a repeat, and each can go on.
    fn check_producers(&self, log: &PartitionLog, kept: usize) -> Result<(), String> {
        for producer in 0..PRODUCERS {
            let last = self.sent[..kept].iter().rev().find(|s| s.producer == producer);
            if let Some(last) = last.filter(|s| s.offsets.0 >= log.log_start_offset()) {
                let info = append(log, last.data.clone()).map_err(|e| format!("repeat of {:?}: {e}", last.offsets))?;
                if !info.duplicate || info.first_offset != last.offsets.0 {
                    return Err(format!("a repeat of {:?} was taken as new: {info:?}", last.offsets));
                }
            }
            let end = log.log_end_offset();
            let sequence = next_sequence(&self.sent[..kept], producer);
            let info = append(log, batch(producer, sequence, 1, "after"))
                .map_err(|e| format!("producer {producer} cannot go on: {e}"))?;
            if info.first_offset != end {
                return Err(format!(
                    "the log ends at {end}, the next batch went to {}",
                    info.first_offset
                ));
            }
        }
        Ok(())
    }
}

fn is_acknowledged(sent: &Sent, crashed: &DiskState) -> bool {
    sent.acknowledged_at.is_some_and(|at| at <= crashed.operations())
}

fn next_sequence(sent: &[Sent], producer: usize) -> i32 {
    let records = sent
        .iter()
        .filter(|s| s.producer == producer)
        .map(|s| s.offsets.1 - s.offsets.0 + 1)
        .sum::<i64>();
    i32::try_from(records).unwrap_or(i32::MAX)
}

fn batch(producer: usize, sequence: i32, records: usize, value: &str) -> Bytes {
    let mut builder = BatchBuilder::with_capacity(256);
    for i in 0..records {
        let value = format!("{value}-{i}-{}", "x".repeat(i * 17));
        builder.append(NOW_MS + i64::from(sequence), None, Some(value.as_bytes()), &[]);
    }
    builder.build(&BatchParams {
        producer_id: 1000 + i64::try_from(producer).unwrap_or(0),
        producer_epoch: 0,
        base_sequence: sequence,
        ..BatchParams::default()
    })
}

/// The ways in which the disk may come up: killed process, nothing left, each prefix's end, and random parts.
fn crash(state: &DiskState, rng: &mut Rng, random: usize) -> Vec<SimDisk> {
    let mut images = vec![state.image(Left::All), state.image(Left::Nothing)];
    let pending = state.pending();
    if pending.is_empty() {
        return images;
    }
    images.push(state.image(Left::Before(pending[rng.below(pending.len())])));
    images.extend((0..random).map(|_| {
        state.image(Left::Some(&mut || match rng.below(4) {
            0 => None,
            1 => Some(rng.bits()),
            _ => Some(u64::MAX),
        }))
    }));
    images
}

/// Two moments of a recovery, one of them its end.
fn crash_in_recovery<'a>(recovery: &'a [DiskState], rng: &mut Rng) -> Vec<&'a DiskState> {
    let middle = &recovery[rng.below(recovery.len())];
    recovery.last().into_iter().chain([middle]).collect()
}
