//! Power loss at every storage operation of a partition's log (reliability C1, C2; rules R1-R11).
//!
//! A [`Run`] keeps the disk's state in front of every operation. From each of those states the disk comes up in several ways; the
//! log is opened on it, and what was promised must be there. The recovery is crashed as well.

use fletchlog_log::partition_log::{FetchBound, PartitionLog};
use fletchlog_records::BatchIter;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::disk_state::{DiskState, Left};
use crate::rng::Rng;
use crate::sim_disk::SimDisk;
use crate::workload::{Known, PRODUCERS, Run, Sent, append, batch, next_sequence, open};

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

/// What was looked at already. `F` is what a recovery was found to leave.
pub(crate) struct Seen<F> {
    /// Images, those of crashed recoveries included.
    images: FxHashSet<u64>,
    /// Images that were checked for the promise of this number: a disk can be right after one acknowledgement and wrong after
    /// the next.
    checked: FxHashSet<(u64, usize)>,
    /// What came of images that held nothing unsynced, by fingerprint and what else the recovery depends on.
    recovered: FxHashMap<(u64, Given), F>,
}

/// What a recovery depends on besides the disk.
pub(crate) type Given = (i64, i64);

impl<F> Seen<F> {
    fn new() -> Self {
        Self {
            images: FxHashSet::default(),
            checked: FxHashSet::default(),
            recovered: FxHashMap::default(),
        }
    }

    /// Counts an image that is recovered from. What is known to come of it, if it holds nothing unsynced.
    pub(crate) fn meet(&mut self, image: &DiskState, given: Given) -> Option<&F> {
        let fingerprint = image.fingerprint();
        self.images.insert(fingerprint);
        self.recovered.get(&(fingerprint, given)).filter(|_| image.is_clean())
    }

    /// Everything about the recovery of an image was right.
    pub(crate) fn remember(&mut self, image: u64, given: Given, found: F) {
        self.recovered.insert((image, given), found);
    }
}

impl Run {
    /// Crashes at every operation, in several ways each, and checks. Returns how many different images there were, those of
    /// crashed recoveries included.
    ///
    /// # Errors
    /// The first promise that was not kept.
    pub fn crash_everywhere(&self, random_images: usize) -> Result<usize, Violation> {
        self.crash_at(self.course.history(), random_images)
    }

    /// As [`Run::crash_everywhere`], right after the call that failed, a few operations later, and at the end.
    ///
    /// # Errors
    /// The first promise that was not kept.
    pub fn crash_after_failure(&self, random_images: usize) -> Result<usize, Violation> {
        self.crash_at(&self.course.after_failure(4), random_images)
    }

    fn crash_at(&self, states: &[DiskState], random_images: usize) -> Result<usize, Violation> {
        let points = CrashPoints {
            seed: self.seed,
            violation: self.course.violation(),
            states,
            random_images,
        };
        let mut acknowledged = 0;
        let promised = |now| {
            while self.sent.get(acknowledged).is_some_and(|s| is_acknowledged(s, now)) {
                acknowledged += 1;
            }
            let crash = Crash {
                run: self,
                acknowledged,
                known: self.known.iter().rfind(|k| k.at <= now).copied().unwrap_or_default(),
            };
            (acknowledged, crash)
        };
        points.check(Rng::new(self.seed ^ 0xC0FF_EE00), promised, Crash::check)
    }
}

/// Where a run is crashed.
pub(crate) struct CrashPoints<'a> {
    pub seed: u64,
    /// What was wrong without a crash.
    pub violation: Option<&'a str>,
    pub states: &'a [DiskState],
    pub random_images: usize,
}

impl CrashPoints<'_> {
    /// Checks every image that is new for what was promised. `promised` tells what that is after so many operations, and its
    /// number; it is asked in order. Returns how many images there were.
    pub(crate) fn check<C, F>(
        &self,
        mut rng: Rng,
        mut promised: impl FnMut(u64) -> (usize, C),
        check: impl Fn(&C, DiskState, &mut Rng, &mut Seen<F>) -> Result<(), String>,
    ) -> Result<usize, Violation> {
        let violation = |crash_at, what: &str| Violation {
            seed: self.seed,
            crash_at,
            what: what.to_owned(),
        };
        if let Some(what) = self.violation {
            return Err(violation(0, what));
        }
        let mut seen = Seen::new();
        for state in self.states {
            let now = state.operations();
            let (number, crash) = promised(now);
            for image in images(state, &mut rng, self.random_images) {
                if seen.checked.insert((image.fingerprint(), number)) {
                    check(&crash, image, &mut rng, &mut seen).map_err(|what| violation(now, &what))?;
                }
            }
        }
        Ok(seen.images.len())
    }
}

fn is_acknowledged(sent: &Sent, operations: u64) -> bool {
    sent.acknowledged_at.is_some_and(|at| at <= operations)
}

/// What may be found next: all of it, still unsynced (the process was killed), nothing that was unsynced, a prefix, and random
/// parts.
pub fn images(state: &DiskState, rng: &mut Rng, random: usize) -> Vec<DiskState> {
    let mut images = vec![state.clone(), state.left(Left::Nothing)];
    let pending = state.pending();
    if pending.is_empty() {
        return images;
    }
    images.push(state.left(Left::Before(pending[rng.below(pending.len())])));
    images.extend((0..random).map(|_| {
        state.left(Left::Some(&mut || match rng.below(4) {
            0 => None,
            1 => Some(rng.bits()),
            _ => Some(u64::MAX),
        }))
    }));
    images
}

/// A log after a recovery.
struct Found {
    /// Batches, the first so many.
    kept: usize,
    /// Its end.
    end: i64,
}

/// A moment of a run, and what was promised by then.
struct Crash<'a> {
    run: &'a Run,
    /// Batches acknowledged, the first so many.
    acknowledged: usize,
    known: Known,
}

impl Crash<'_> {
    /// Opens the log on a disk that came up again and holds it against what was promised.
    fn check(&self, image: DiskState, rng: &mut Rng, seen: &mut Seen<Found>) -> Result<(), String> {
        let (fingerprint, clean) = (image.fingerprint(), image.is_clean());
        if let Some(found) = seen.meet(&image, self.given()) {
            return self.check_promises(found);
        }
        let disk = SimDisk::from(image);
        disk.record_one(rng.fork());
        let log = self.open(&disk).map_err(|e| format!("cannot be opened: {e}"))?;
        let (middle, end) = (disk.crash_point(), disk.state());
        let found = self.contents(&log)?;
        self.check_promises(&found)?;
        self.check_producers(&log, found.kept)?;
        drop(log);
        let kept = found.kept;
        if clean {
            seen.remember(fingerprint, self.given(), found);
        }
        // What a reader may have seen after the first recovery must survive a second power loss (R8).
        let kept_again = self.recover_again(&end, seen)?;
        if kept_again < kept {
            return Err(format!(
                "{kept} batches after the first recovery, {kept_again} after a second power loss"
            ));
        }
        middle.map_or(Ok(()), |state| self.recover_again(&state, seen).map(drop))
    }

    /// The power goes during a recovery or after it. Returns how many batches are there.
    fn recover_again(&self, state: &DiskState, seen: &mut Seen<Found>) -> Result<usize, String> {
        let again = |e: String| format!("second recovery: {e}");
        let image = state.left(Left::Nothing);
        if let Some(found) = seen.meet(&image, self.given()) {
            return self.check_promises(found).map(|()| found.kept).map_err(again);
        }
        let log = self.open(&image.into()).map_err(|e| again(e.to_string()))?;
        let found = self.contents(&log).map_err(again)?;
        self.check_promises(&found).map(|()| found.kept).map_err(again)
    }

    fn given(&self) -> Given {
        (self.known.recovery_point, self.known.log_start)
    }

    fn open(&self, disk: &SimDisk) -> Result<PartitionLog, fletchlog_log::LogError> {
        open(disk, &self.run.config, self.known, false)
    }

    /// Which of the sent batches the log holds: the first so many, whole, each at its offset.
    fn contents(&self, log: &PartitionLog) -> Result<Found, String> {
        let sent = &self.run.sent;
        let start = log.log_start_offset();
        let from = sent.iter().position(|s| s.offsets.1 >= start).unwrap_or(sent.len());
        let mut kept = from;
        let mut offset = start;
        while offset < log.log_end_offset() {
            let read = log
                .read(offset, 1 << 20, true, FetchBound::LogEnd)
                .map_err(|e| format!("read at {offset}: {e}"))?;
            for batch in BatchIter::new(read.records) {
                let batch = batch.map_err(|e| format!("batch at {offset}: {e}"))?;
                let header = batch.header();
                let found = (header.base_offset, header.last_offset(), header.crc);
                let expected = sent.get(kept).map(|s| (s.offsets.0, s.offsets.1, s.crc));
                if Some(found) != expected {
                    return Err(format!("at {offset} the log holds {found:?}, sent was {expected:?}"));
                }
                kept += 1;
                offset = header.last_offset() + 1;
            }
        }
        let end = log.log_end_offset();
        Ok(Found { kept, end })
    }

    /// No acknowledged batch and none that a reader has seen is missing.
    fn check_promises(&self, found: &Found) -> Result<(), String> {
        let Found { kept, end } = *found;
        if kept < self.acknowledged {
            let lost = self.run.sent[kept].offsets;
            return Err(format!("acknowledged {lost:?} is lost; the log ends at {end}"));
        }
        if end < self.known.seen {
            let seen = self.known.seen;
            return Err(format!("readers saw everything below {seen}; the log ends at {end}"));
        }
        Ok(())
    }

    /// Each producer's newest surviving batch is known as a repeat, and each can go on.
    fn check_producers(&self, log: &PartitionLog, kept: usize) -> Result<(), String> {
        let sent = &self.run.sent[..kept];
        for producer in 0..PRODUCERS {
            let last = sent.iter().rev().find(|s| s.producer == producer);
            if let Some(last) = last.filter(|s| s.offsets.0 >= log.log_start_offset()) {
                let info = append(log, last.data.clone()).map_err(|e| format!("repeat of {:?}: {e}", last.offsets))?;
                if !info.duplicate || info.first_offset != last.offsets.0 {
                    return Err(format!("a repeat of {:?} was taken as new: {info:?}", last.offsets));
                }
            }
            let end = log.log_end_offset();
            let (data, _) = batch(producer, next_sequence(sent, producer), 1, "after");
            let info = append(log, data).map_err(|e| format!("producer {producer} cannot go on: {e}"))?;
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
