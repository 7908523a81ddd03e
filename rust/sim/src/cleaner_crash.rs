//! Power loss while a compacted log is written and cleaned: what must be there, and what must not, when it is opened again.

use std::path::Path;

use fletchlog_log::partition_log::PartitionLog;
use fletchlog_log::{LogConfig, verify_partition};

use crate::cleaner_workload::{CleanerWorkload, Moment, Records, records};
use crate::crash_points::{CrashPoints, Crashable, Given, Seen, Violation, images};
use crate::disk_state::{DiskState, Left};
use crate::log_workload::{DIR, NOW_MS, open};
use crate::rng::Rng;
use crate::sim_disk::SimDisk;

impl Crashable for CleanerWorkload {
    const AFTER_FAILURE: (usize, usize) = (4, 2);

    fn crash_at(&self, points: &CrashPoints<'_>) -> Result<usize, Violation> {
        let promised = |now| {
            let number = self.moments.iter().rposition(|m| m.at <= now).unwrap_or(0);
            let moment = &self.moments[number];
            let config = &self.config;
            (number, Crash { config, moment })
        };
        points.check(Rng::new(self.course.seed() ^ 0xC1EA_4E12), promised, Crash::check)
    }
}

/// A moment of a run at which the power goes.
struct Crash<'a> {
    config: &'a LogConfig,
    moment: &'a Moment,
}

impl Crash<'_> {
    fn given(&self) -> Given {
        (self.moment.recovery_point, 0)
    }

    /// Opens the log on a disk that came up again, and after a power loss during that or after it.
    fn check(&self, image: DiskState, rng: &mut Rng, seen: &mut Seen<Records>) -> Result<(), String> {
        let (fingerprint, clean) = (image.fingerprint(), image.is_clean());
        if let Some(found) = seen.meet(&image, self.given()) {
            return self.moment.holds(found);
        }
        let disk = SimDisk::from(image);
        disk.record_one(rng.fork());
        let log = self.open(&disk)?;
        let (middle, end) = (disk.crash_point(), disk.state());
        let found = self.check_log(&disk, &log)?;
        drop(log);
        let again = |image: DiskState| {
            let disk = SimDisk::from(image);
            let log = self.open(&disk);
            log.and_then(|log| self.check_log(&disk, &log))
                .map_err(|e| format!("second recovery: {e}"))
        };
        let second = again(end.left(Left::Nothing))?;
        if second != found {
            return Err(format!(
                "after a recovery there was {found:?}, after a second one {second:?}"
            ));
        }
        if let Some(state) = middle {
            let mut all = images(&state, rng, 2);
            again(all.swap_remove(rng.below(all.len())))?;
        }
        if clean {
            seen.remember(fingerprint, self.given(), found);
        }
        Ok(())
    }

    /// What the log holds, which is right, in files that are.
    fn check_log(&self, disk: &SimDisk, log: &PartitionLog) -> Result<Records, String> {
        let found = records(log)?;
        self.moment.holds(&found)?;
        let report = verify_partition(disk, Path::new(DIR), NOW_MS).map_err(|e| e.to_string())?;
        // A snapshot that was torn is left out, and stays until its segment goes.
        if !report.damaged.is_empty() {
            return Err(format!("verify: {:?}", report.damaged));
        }
        Ok(found)
    }

    fn open(&self, disk: &SimDisk) -> Result<PartitionLog, String> {
        let log = open(disk, self.config, self.moment.known(), false).map_err(|e| format!("cannot be opened: {e}"))?;
        let (end, promised) = (log.log_end_offset(), self.moment.end);
        if end < promised {
            return Err(format!("the log ends at {end}, and ended at {promised}"));
        }
        Ok(log)
    }
}
