//! Power loss while a compacted log is written and cleaned: the records that must and must not exist when it is reopened.

use std::path::Path;

use fletchlog_log::{LogConfig, OffsetCheckpoints, verify_partition};

use crate::cleaner_workload::{CleanerWorkload, Moment, Records, records};
use crate::crash_points::{CrashPoints, Crashable, Seen, Violation, check_recovery};
use crate::disk_state::DiskState;
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

/// A moment of a run at which the power fails.
struct Crash<'a> {
    config: &'a LogConfig,
    moment: &'a Moment,
}

impl Crash<'_> {
    fn check(&self, image: DiskState, rng: &mut Rng, seen: &mut Seen<Records>) -> Result<(), String> {
        let given = (self.moment.recovery_point, 0);
        let look = |disk: &SimDisk| self.look(disk);
        check_recovery(image, given, rng, seen, look, |found| self.moment.holds(found))
    }

    /// Opens the log and checks its files. Returns its records.
    fn look(&self, disk: &SimDisk) -> Result<Records, String> {
        let log = open(disk, self.config, self.moment.known(), false).map_err(|e| format!("cannot be opened: {e}"))?;
        let (end, promised) = (log.log_end_offset(), self.moment.end);
        if end < promised {
            return Err(format!("the log ends at {end}, and ended at {promised}"));
        }
        let found = records(&log)?;
        let report = verify_partition(disk, Path::new(DIR), NOW_MS, &mut OffsetCheckpoints::default())
            .map_err(|e| e.to_string())?;
        // Only damage is an error: a torn snapshot is ignored, and stays until its segment is removed.
        if !report.damaged.is_empty() {
            return Err(format!("verify: {:?}", report.damaged));
        }
        Ok(found)
    }
}
