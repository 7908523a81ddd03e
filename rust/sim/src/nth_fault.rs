//! The n-th disk call fails, for every n and every kind of fault, until n exceeds the calls of a run (reliability C12-C15, C18).

use crate::crash_points::{Crashable, Violation};
use crate::sim_disk::{Fault, SimDisk};

/// The counts of the runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// Calls that failed, one in each run.
    pub met: usize,
    /// Runs in which the engine reported it; otherwise it continued without the file.
    pub reported: usize,
}

/// Makes each call of a run fail in each way, then cuts the power. `prepare` may add other faults to the disk.
///
/// # Errors
/// The first promise that was not kept.
pub fn every_fault<W: Crashable>(seed: u64, steps: usize, prepare: impl Fn(&SimDisk)) -> Result<Faults, Violation> {
    let mut faults = Faults::default();
    for fault in Fault::ALL {
        let mut call = 0;
        loop {
            let run = W::run(seed, steps, |disk| {
                prepare(disk);
                disk.fail(call, fault);
            });
            run.crash_after_failure().map_err(|violation| Violation {
                what: format!("call {call} failed with {fault:?}: {}", violation.what),
                ..violation
            })?;
            let Some(failed) = run.course().failed_call() else {
                break;
            };
            faults.met += 1;
            faults.reported += usize::from(run.course().reported() > 0);
            call = failed + 1;
        }
    }
    Ok(faults)
}
