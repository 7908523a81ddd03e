//! A seeded workload on one partition's log, and the promises made to it.
//!
//! When a disk call fails, the workload continues like a careful client: it repeats the batch, and reopens a fenced log.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_log::config::Durability;
use fletchlog_log::{AppendError, AppendInfo, AppendOrigin, LogConfig, LogError, OpenMode, PartitionLog};
use fletchlog_records::{BatchBuilder, BatchParams, TopicPartition};

use crate::course::{Course, Workload};
use crate::rng::Rng;
use crate::sim_disk::SimDisk;

pub(crate) const DIR: &str = "/data/t-0";
pub(crate) const NOW_MS: i64 = 1_700_000_000_000;
/// Producers of the workload; each numbers its batches.
pub(crate) const PRODUCERS: usize = 3;
/// The call that fails, the refusal that follows, and the call after reopening.
const ATTEMPTS: usize = 3;

/// One batch that was passed to the log.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub producer: usize,
    pub data: Bytes,
    pub crc: u32,
    /// The leader epoch.
    pub epoch: i32,
    /// First and last offset that it has or would get.
    pub offsets: (i64, i64),
    /// Number of operations when its append returned; `None`: it never returned.
    pub acknowledged_at: Option<u64>,
    /// Number of operations when it began to be cut off, and when that was done.
    pub cut: Option<(u64, Option<u64>)>,
}

/// What else a caller knows from operation `at` on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Known {
    pub at: u64,
    /// Checkpoints that a broker keeps.
    pub recovery_point: i64,
    pub log_start: i64,
    /// Readers have seen everything below.
    pub seen: i64,
}

/// One run of the workload. `CUTS`: now and then the end of the log is cut off, as an unclean election does.
#[derive(Debug)]
pub struct LogWorkload<const CUTS: bool = false> {
    pub(crate) config: LogConfig,
    pub(crate) sent: Vec<Sent>,
    pub(crate) known: Vec<Known>,
    pub(crate) course: Course,
    /// The leader epoch: each cut begins a new one.
    epoch: i32,
}

pub(crate) fn config(rng: &mut Rng) -> LogConfig {
    LogConfig {
        segment_bytes: 700 + i32::try_from(rng.below(600)).unwrap_or(0),
        index_interval_bytes: 150,
        segment_index_bytes: 200,
        durability: Durability::Fsync,
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    }
}

pub(crate) fn open(
    disk: &SimDisk,
    config: &LogConfig,
    known: Known,
    clean_shutdown: bool,
) -> Result<PartitionLog, LogError> {
    let mode = OpenMode::Write {
        clean_shutdown,
        recovery_point: known.recovery_point,
        log_start_offset: known.log_start,
    };
    let tp = TopicPartition::new("t", 0);
    PartitionLog::open(Arc::new(disk.clone()), Path::new(DIR), tp, config.clone(), mode, NOW_MS)
}

pub(crate) fn append(log: &PartitionLog, data: Bytes, epoch: i32) -> Result<AppendInfo, AppendError> {
    log.append_as_leader(data, epoch, AppendOrigin::Client, NOW_MS)
}

impl<const CUTS: bool> Workload for LogWorkload<CUTS> {
    /// The state after the creation of a topic.
    const DIR: &str = DIR;

    fn begin(seed: u64, rng: &mut Rng) -> Self {
        Self {
            config: config(rng),
            sent: Vec::new(),
            known: vec![Known::default()],
            course: Course::new(seed),
            epoch: 0,
        }
    }

    fn work(&mut self, disk: &SimDisk, rng: &mut Rng, steps: usize) -> Result<(), String> {
        let mut log = self.reopen(disk, false)?;
        for _ in 0..steps {
            match rng.below(if CUTS { 22 } else { 20 }) {
                20.. => log = self.cut(disk, log, rng)?,
                3 => log = self.restart(disk, &log)?,
                4 => self.repeat(disk, &mut log, rng)?,
                5.. => self.append(disk, &mut log, rng)?,
                step => {
                    if let Err(error) = self.maintain(disk, &log, step, rng) {
                        self.excuse(disk, &error)?;
                        log = self.reopen(disk, false)?;
                    }
                }
            }
            let seen = log.high_watermark();
            self.learn(disk, |known| known.seen = seen);
        }
        Ok(())
    }

    fn course(&self) -> &Course {
        &self.course
    }

    fn course_mut(&mut self) -> &mut Course {
        &mut self.course
    }
}

impl<const CUTS: bool> LogWorkload<CUTS> {
    fn maintain(&mut self, disk: &SimDisk, log: &PartitionLog, step: usize, rng: &mut Rng) -> Result<(), LogError> {
        match step {
            0 => {
                let recovery_point = log.flush()?;
                self.learn(disk, |known| known.recovery_point = recovery_point);
            }
            1 => {
                log.roll(NOW_MS)?;
            }
            _ => {
                let span = usize::try_from(log.log_end_offset() - log.log_start_offset()).unwrap_or(0);
                let to = log.log_start_offset() + i64::try_from(rng.below(span / 2 + 1)).unwrap_or(0);
                // A broker writes its checkpoint before it responds; from here on either log start is right.
                let log_start = log.delete_records(Some(to))?;
                self.learn(disk, |known| known.log_start = log_start);
                log.delete_old_segments(NOW_MS)?;
            }
        }
        Ok(())
    }

    fn excuse(&mut self, disk: &SimDisk, error: &dyn Display) -> Result<(), String> {
        self.course.excuse(disk, error, ATTEMPTS)
    }

    fn reopen(&mut self, disk: &SimDisk, clean_shutdown: bool) -> Result<PartitionLog, String> {
        let known = self.known[self.known.len() - 1];
        match open(disk, &self.config, known, clean_shutdown) {
            Ok(log) => Ok(log),
            Err(error) => {
                self.excuse(disk, &error)?;
                // The marker of the clean stop was removed.
                self.reopen(disk, false)
            }
        }
    }

    fn restart(&mut self, disk: &SimDisk, log: &PartitionLog) -> Result<PartitionLog, String> {
        match log.close() {
            Ok(()) => {
                let recovery_point = log.log_end_offset();
                self.learn(disk, |known| known.recovery_point = recovery_point);
                self.reopen(disk, true)
            }
            Err(error) => {
                self.excuse(disk, &error)?;
                self.reopen(disk, false)
            }
        }
    }

    fn learn(&mut self, disk: &SimDisk, change: impl FnOnce(&mut Known)) {
        let mut known = self.known[self.known.len() - 1];
        change(&mut known);
        known.at = disk.operations();
        self.known.push(known);
    }

    /// Repeats an append until it is acknowledged.
    fn append_at_last(
        &mut self,
        disk: &SimDisk,
        log: &mut PartitionLog,
        data: &Bytes,
    ) -> Result<(AppendInfo, bool), String> {
        let mut again = false;
        loop {
            match append(log, data.clone(), self.epoch) {
                Ok(info) => return Ok((info, again)),
                Err(AppendError::Log(LogError::Fenced { cause, .. })) => {
                    self.excuse(disk, &cause)?;
                    *log = self.reopen(disk, false)?;
                }
                Err(error) => self.excuse(disk, &error)?,
            }
            let seen = log.high_watermark();
            self.learn(disk, |known| known.seen = seen);
            again = true;
        }
    }

    /// Cuts off the batches from one on.
    fn cut(&mut self, disk: &SimDisk, mut log: PartitionLog, rng: &mut Rng) -> Result<PartitionLog, String> {
        let start = log.log_start_offset();
        let left = self.sent.iter().filter(|s| s.cut.is_none() && s.offsets.0 >= start);
        let firsts: Vec<i64> = left.map(|s| s.offsets.0).collect();
        if firsts.is_empty() {
            return Ok(log);
        }
        let offset = firsts[rng.below(firsts.len())];
        let begun = disk.operations();
        let is_cut = |sent: &&mut Sent| sent.offsets.0 >= offset && sent.cut.is_none_or(|(_, done)| done.is_none());
        let note = |sent: &mut Vec<Sent>, done| {
            sent.iter_mut().filter(is_cut).for_each(|s| s.cut = Some((begun, done)));
        };
        note(&mut self.sent, None);
        // A broker lowers its checkpoint first.
        self.learn(disk, |known| {
            known.recovery_point = known.recovery_point.min(offset);
            known.seen = known.seen.min(offset);
        });
        while let Err(error) = log.truncate_to(offset, NOW_MS) {
            self.excuse(disk, &error)?;
            log = self.reopen(disk, false)?;
            // A broker does not cut again what has its length.
            if log.log_end_offset() == offset && rng.chance(500) {
                break;
            }
        }
        note(&mut self.sent, Some(disk.operations()));
        self.epoch += 1;
        match log.log_end_offset() {
            end if end == offset => Ok(log),
            end => Err(format!("cut at {offset}, the log ends at {end}")),
        }
    }

    fn append(&mut self, disk: &SimDisk, log: &mut PartitionLog, rng: &mut Rng) -> Result<(), String> {
        let producer = rng.below(PRODUCERS);
        let records = 1 + rng.below(4);
        let sequence = next_sequence(self.sent.iter().filter(|s| s.cut.is_none()), producer);
        let value = format!("{}-{}", self.course.seed(), self.sent.len());
        let (data, crc) = batch(producer, sequence, records, &value);
        let first = log.log_end_offset();
        let offsets = (first, first + i64::try_from(records).unwrap_or(0) - 1);
        self.sent.push(Sent {
            producer,
            data: data.clone(),
            crc,
            epoch: self.epoch,
            offsets,
            acknowledged_at: None,
            cut: None,
        });
        let (info, again) = self.append_at_last(disk, log, &data)?;
        if (info.first_offset, info.last_offset) != offsets || info.duplicate && !again {
            return Err(format!("appended at {info:?}, expected {offsets:?}"));
        }
        if let Some(sent) = self.sent.last_mut() {
            sent.acknowledged_at = Some(disk.operations());
        }
        Ok(())
    }

    /// Repeats a producer's newest batch, as after a lost acknowledgement.
    fn repeat(&mut self, disk: &SimDisk, log: &mut PartitionLog, rng: &mut Rng) -> Result<(), String> {
        let producer = rng.below(PRODUCERS);
        let mut left = self.sent.iter().rev().filter(|s| s.cut.is_none());
        let newest = left.find(|s| s.producer == producer).cloned();
        let Some(last) = newest else { return Ok(()) };
        if last.offsets.0 < log.log_start_offset() {
            return Ok(());
        }
        let (info, _) = self.append_at_last(disk, log, &last.data)?;
        if !info.duplicate || info.first_offset != last.offsets.0 {
            return Err(format!("a repeat of {:?} was answered {info:?}", last.offsets));
        }
        Ok(())
    }
}

pub(crate) fn next_sequence<'a>(sent: impl Iterator<Item = &'a Sent>, producer: usize) -> i32 {
    let records = sent
        .filter(|s| s.producer == producer)
        .map(|s| s.offsets.1 - s.offsets.0 + 1)
        .sum::<i64>();
    i32::try_from(records).unwrap_or(i32::MAX)
}

/// Makes a batch. Returns it with its checksum.
pub(crate) fn batch(producer: usize, sequence: i32, records: usize, value: &str) -> (Bytes, u32) {
    /// The checksum in a v2 header.
    const CRC: std::ops::Range<usize> = 17..21;
    let mut builder = BatchBuilder::with_capacity(256);
    for i in 0..records {
        let value = format!("{value}-{i}-{}", "x".repeat(i * 17));
        builder.append(NOW_MS + i64::from(sequence), None, Some(value.as_bytes()), &[]);
    }
    let data = builder.build(&BatchParams {
        producer_id: 1000 + i64::try_from(producer).unwrap_or(0),
        producer_epoch: 0,
        base_sequence: sequence,
        ..BatchParams::default()
    });
    let crc = data[CRC].iter().fold(0, |crc, byte| crc << 8 | u32::from(*byte));
    (data, crc)
}
