//! Power loss and failing calls while a compacted log is written and cleaned (reliability C1, C2, C12, C15, C21).
//!
//! Whatever happens meanwhile: records that a cleaning must not remove exist, records that it removed do not come back once it has
//! returned, and no record changes.

use std::collections::BTreeMap;
use std::fmt::Display;

use bytes::Bytes;
use fletchlog_log::config::Durability;
use fletchlog_log::{AppendError, CleanerOptions, FetchBound, LogConfig, PartitionLog};
use fletchlog_records::{BatchBuilder, BatchIter, BatchParams, RecordCursor};

use crate::course::{Course, Workload};
use crate::log_workload::{DIR, Known, NOW_MS, append, open};
use crate::rng::Rng;
use crate::sim_disk::SimDisk;

/// The call that fails, the refusal that follows, and the call after reopening.
const ATTEMPTS: usize = 3;
const KEYS: usize = 6;

/// The records that a reader gets: key and value by offset.
pub(crate) type Records = BTreeMap<i64, (Bytes, Option<Bytes>)>;

/// The expected state from operation `at` on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Moment {
    pub at: u64,
    /// These records exist.
    must: Records,
    /// No other records exist.
    may: Records,
    /// The log ends here or later.
    pub end: i64,
    /// The value that a broker would checkpoint.
    pub recovery_point: i64,
}

/// One run: appends of keyed records and cleanings, in an order given by a seed.
#[derive(Debug)]
pub struct CleanerWorkload {
    pub(crate) config: LogConfig,
    pub(crate) moments: Vec<Moment>,
    pub(crate) course: Course,
    /// The value that a broker would checkpoint.
    clean_to: i64,
}

fn config(rng: &mut Rng) -> LogConfig {
    LogConfig {
        segment_bytes: 400 + i32::try_from(rng.below(300)).unwrap_or(0),
        index_interval_bytes: 150,
        segment_index_bytes: 200,
        durability: Durability::Fsync,
        file_delete_delay_ms: 0,
        cleanup_compact: true,
        cleanup_delete: false,
        delete_retention_ms: [0, 86_400_000][rng.below(2)],
        ..LogConfig::default()
    }
}

/// All records of the log.
pub(crate) fn records(log: &PartitionLog) -> Result<Records, String> {
    let mut found = Records::new();
    let mut offset = log.log_start_offset();
    loop {
        let at = |e: &dyn Display| format!("read at {offset}: {e}");
        let read = log
            .read(offset, 1 << 20, true, FetchBound::LogEnd)
            .map_err(|e| at(&e))?;
        if read.records.is_empty() {
            return Ok(found);
        }
        let mut next = offset;
        for batch in BatchIter::new(read.records) {
            let batch = batch.map_err(|e| at(&e))?;
            let slice = batch.records(usize::MAX).map_err(|e| at(&e))?;
            let mut cursor = RecordCursor::new();
            while let Some(record) = cursor.next(&slice).map_err(|e| at(&e))? {
                let bytes = Bytes::copy_from_slice;
                let key_and_value = (bytes(record.key.unwrap_or_default()), record.value.map(bytes));
                if found.insert(record.offset, key_and_value).is_some() {
                    return Err(format!("offset {} is there twice", record.offset));
                }
            }
            next = batch.header().next_offset();
        }
        offset = next;
    }
}

/// The records that a cleaning below a bound must keep.
fn must_stay(records: &Records, bound: i64) -> Records {
    let stays = |(offset, (key, value)): &(&i64, &(Bytes, Option<Bytes>))| {
        let mut later = records.range(*offset + 1..bound.max(*offset + 1));
        let replaced = later.any(|(_, (other, _))| other == key);
        **offset >= bound || value.is_some() && !replaced
    };
    let left = records.iter().filter(stays);
    left.map(|(offset, record)| (*offset, record.clone())).collect()
}

impl Moment {
    pub(crate) fn known(&self) -> Known {
        Known {
            recovery_point: self.recovery_point,
            ..Known::default()
        }
    }

    pub(crate) fn holds(&self, found: &Records) -> Result<(), String> {
        let is_in = |all: &Records, (offset, record): (&i64, &(Bytes, Option<Bytes>))| all.get(offset) == Some(record);
        if let Some(lost) = self.must.iter().find(|r| !is_in(found, *r)) {
            return Err(format!("{lost:?} is lost; there is {found:?}"));
        }
        if let Some(extra) = found.iter().find(|r| !is_in(&self.may, *r)) {
            return Err(format!("{extra:?} should not be there"));
        }
        Ok(())
    }
}

impl Workload for CleanerWorkload {
    const DIR: &str = DIR;

    fn begin(seed: u64, rng: &mut Rng) -> Self {
        Self {
            config: config(rng),
            moments: vec![Moment::default()],
            course: Course::new(seed),
            clean_to: 0,
        }
    }

    fn work(&mut self, disk: &SimDisk, rng: &mut Rng, steps: usize) -> Result<(), String> {
        let mut log = self.reopen(disk, false)?;
        for _ in 0..steps {
            match rng.below(12) {
                0 => self.clean(disk, &mut log)?,
                1 => {
                    let rolled = log.roll(NOW_MS);
                    self.go_on(disk, &mut log, rolled)?;
                }
                2 => {
                    let flushed = log.flush();
                    let point = self.go_on(disk, &mut log, flushed)?;
                    self.learn(disk, &log, self.now().must.clone(), point)?;
                }
                3 => {
                    let closed = log.close();
                    let point = closed.is_ok().then(|| log.log_end_offset());
                    match closed {
                        Ok(()) => log = self.reopen(disk, true)?,
                        failed => drop(self.go_on(disk, &mut log, failed)?),
                    }
                    self.learn(disk, &log, self.now().must.clone(), point)?;
                }
                _ => self.append(disk, &mut log, rng)?,
            }
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

impl CleanerWorkload {
    fn now(&self) -> &Moment {
        &self.moments[self.moments.len() - 1]
    }

    /// Begins a moment with these expectations at the next operation.
    fn begin(&mut self, disk: &SimDisk, must: Records, may: Records) {
        let begun = Moment {
            at: disk.operations() + 1,
            must,
            may,
            ..self.now().clone()
        };
        self.moments.push(begun);
    }

    /// Checks that the log has at least the records in `must`. From now on it must have its current records.
    fn learn(
        &mut self,
        disk: &SimDisk,
        log: &PartitionLog,
        must: Records,
        recovery_point: Option<i64>,
    ) -> Result<(), String> {
        let found = records(log).or_else(|error| {
            self.course.excuse(disk, &error, ATTEMPTS)?;
            records(log)
        })?;
        let before = self.now();
        let may = before.may.clone();
        Moment {
            must,
            may,
            ..Moment::default()
        }
        .holds(&found)?;
        let learned = Moment {
            at: disk.operations(),
            end: log.log_end_offset(),
            recovery_point: recovery_point.unwrap_or(before.recovery_point),
            must: found.clone(),
            may: found,
        };
        self.moments.push(learned);
        Ok(())
    }

    fn reopen(&mut self, disk: &SimDisk, clean_shutdown: bool) -> Result<PartitionLog, String> {
        let opened = open(disk, &self.config, self.now().known(), clean_shutdown);
        opened.or_else(|error| {
            self.course.excuse(disk, &error, ATTEMPTS)?;
            // The marker of a clean stop was removed.
            self.reopen(disk, false)
        })
    }

    /// Reopens the log if the call failed.
    fn go_on<T, E: Display>(
        &mut self,
        disk: &SimDisk,
        log: &mut PartitionLog,
        result: Result<T, E>,
    ) -> Result<Option<T>, String> {
        match result {
            Ok(done) => Ok(Some(done)),
            Err(error) => {
                self.course.excuse(disk, &error, ATTEMPTS)?;
                *log = self.reopen(disk, false)?;
                Ok(None)
            }
        }
    }

    /// Appends a batch; if the disk is full, another one.
    fn append(&mut self, disk: &SimDisk, log: &mut PartitionLog, rng: &mut Rng) -> Result<(), String> {
        let first = log.log_end_offset();
        let mut with_new = Records::new();
        loop {
            let data = self.batch(first, rng, &mut with_new);
            self.begin(disk, self.now().must.clone(), with_new.clone());
            let appended = append(log, data, 0);
            match &appended {
                Err(error @ AppendError::Log(failure)) if failure.is_full() => {
                    self.course.excuse(disk, error, ATTEMPTS)?;
                    continue;
                }
                _ => {}
            }
            // A batch whose append failed may be in the reopened log.
            if self.go_on(disk, log, appended)?.is_some() || log.log_end_offset() > first {
                break;
            }
        }
        self.learn(disk, log, with_new, None)
    }

    /// A batch for this offset; `with_new` gets the records of the log with it.
    fn batch(&self, first: i64, rng: &mut Rng, with_new: &mut Records) -> Bytes {
        let mut builder = BatchBuilder::with_capacity(256);
        with_new.clone_from(&self.now().must);
        for offset in (first..).take(1 + rng.below(4)) {
            let key = Bytes::from(format!("key-{}", rng.below(KEYS)));
            let value = (!rng.chance(200)).then(|| Bytes::from(format!("{offset}-{}", "x".repeat(rng.below(60)))));
            builder.append(NOW_MS, Some(&key), value.as_deref(), &[]);
            with_new.insert(offset, (key, value));
        }
        builder.build(&BatchParams::default())
    }

    fn clean(&mut self, disk: &SimDisk, log: &mut PartitionLog) -> Result<(), String> {
        let due = log.cleanable(Some(self.clean_to), NOW_MS);
        let Some(due) = self.go_on(disk, log, due)? else {
            return Ok(());
        };
        let before = self.now().may.clone();
        let must = must_stay(&before, due.first_uncleanable_offset);
        self.begin(disk, must.clone(), before);
        let cleaned = log.clean(&due, &CleanerOptions::default(), NOW_MS, &mut || false);
        if let Some(stats) = self.go_on(disk, log, cleaned)? {
            self.clean_to = stats.end_offset;
        }
        self.learn(disk, log, must, None)
    }
}
