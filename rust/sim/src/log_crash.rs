//! Power loss at every storage operation of a partition's log, and the batches that must exist when it is reopened.

use fletchlog_log::{FetchBound, LogConfig, PartitionLog};
use fletchlog_records::BatchIter;

use crate::crash_points::{CrashPoints, Crashable, Given, Seen, Violation};
use crate::disk_state::{DiskState, Left};
use crate::log_workload::{Known, LogWorkload, PRODUCERS, Sent, append, batch, next_sequence, open};
use crate::rng::Rng;
use crate::sim_disk::SimDisk;

impl<const CUTS: bool> Crashable for LogWorkload<CUTS> {
    const AFTER_FAILURE: (usize, usize) = (4, 1);

    fn crash_at(&self, points: &CrashPoints<'_>) -> Result<usize, Violation> {
        let promised = |now| {
            // Those that may be in the log, in its order: what comes later takes the place of what was cut off.
            let sent: Vec<&Sent> = self.sent.iter().filter(|s| !is_gone(s, now)).collect();
            let acknowledged = sent.iter().take_while(|s| is_acknowledged(s, now)).count();
            let crash = Crash {
                config: &self.config,
                sent,
                acknowledged,
                known: self.known.iter().rfind(|k| k.at <= now).copied().unwrap_or_default(),
            };
            (acknowledged, crash)
        };
        points.check(Rng::new(self.course.seed() ^ 0xC0FF_EE00), promised, Crash::check)
    }
}

/// It must be in the log.
fn is_acknowledged(sent: &Sent, operations: u64) -> bool {
    let is_being_cut = sent.cut.is_some_and(|(begun, _)| begun <= operations);
    sent.acknowledged_at.is_some_and(|at| at <= operations) && !is_being_cut
}

/// It was cut off.
fn is_gone(sent: &Sent, operations: u64) -> bool {
    let done = sent.cut.and_then(|(_, done)| done);
    done.is_some_and(|at| at <= operations)
}

/// A log after a recovery.
struct Found {
    /// Number of batches found: always the first ones sent.
    kept: usize,
    /// Its end.
    end: i64,
}

/// A moment of a run, and the promises made by then.
struct Crash<'a> {
    config: &'a LogConfig,
    /// The batches that may be in the log.
    sent: Vec<&'a Sent>,
    /// Number of batches acknowledged: always the first ones sent.
    acknowledged: usize,
    known: Known,
}

impl Crash<'_> {
    /// Opens the log on a restarted disk and checks the promises.
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
        // Whatever a reader may have seen after the first recovery must survive a second power loss (reliability C2).
        let kept_again = self.recover_again(&end, seen)?;
        if kept_again < kept {
            return Err(format!(
                "{kept} batches after the first recovery, {kept_again} after a second power loss"
            ));
        }
        middle.map_or(Ok(()), |state| self.recover_again(&state, seen).map(drop))
    }

    /// Recovers again after a power loss during or after a recovery. Returns the number of batches found.
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
        open(disk, self.config, self.known, false)
    }

    /// Counts the sent batches in the log. They must be the first ones sent, complete, each at its offset.
    fn contents(&self, log: &PartitionLog) -> Result<Found, String> {
        let sent = &self.sent;
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
                let (epoch, of_batch) = (sent[kept].epoch, header.partition_leader_epoch);
                let (of_log, ends) = log.end_offset_for_epoch(epoch);
                if (of_batch, of_log) != (epoch, epoch) || ends <= header.last_offset() {
                    return Err(format!(
                        "epoch {epoch} wrote {found:?}; the batch has epoch {of_batch}, in the log epoch {of_log} ends at {ends}"
                    ));
                }
                kept += 1;
                offset = header.last_offset() + 1;
            }
        }
        let end = log.log_end_offset();
        Ok(Found { kept, end })
    }

    /// Checks that no batch is missing that was acknowledged or seen by a reader.
    fn check_promises(&self, found: &Found) -> Result<(), String> {
        let Found { kept, end } = *found;
        if kept < self.acknowledged {
            let lost = self.sent[kept].offsets;
            return Err(format!("acknowledged {lost:?} is lost; the log ends at {end}"));
        }
        if end < self.known.seen {
            let seen = self.known.seen;
            return Err(format!("readers saw everything below {seen}; the log ends at {end}"));
        }
        Ok(())
    }

    /// Checks that each producer's newest surviving batch is recognized as a repeat, and that each producer can continue.
    fn check_producers(&self, log: &PartitionLog, kept: usize) -> Result<(), String> {
        let sent = &self.sent[..kept];
        let epoch = log.latest_epoch().unwrap_or(0);
        for producer in 0..PRODUCERS {
            let last = sent.iter().rev().find(|s| s.producer == producer);
            if let Some(last) = last.filter(|s| s.offsets.0 >= log.log_start_offset()) {
                let info =
                    append(log, last.data.clone(), epoch).map_err(|e| format!("repeat of {:?}: {e}", last.offsets))?;
                if !info.duplicate || info.first_offset != last.offsets.0 {
                    return Err(format!("a repeat of {:?} was taken as new: {info:?}", last.offsets));
                }
            }
            let end = log.log_end_offset();
            let (data, _) = batch(producer, next_sequence(sent.iter().copied(), producer), 1, "after");
            let info = append(log, data, epoch).map_err(|e| format!("producer {producer} cannot go on: {e}"))?;
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
