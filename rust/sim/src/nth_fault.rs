//! The n-th call of the disk fails, for every n and every kind of fault, until a run passes without meeting it
//! (reliability C12-C15, C18).

use crate::crash_points::{Crashable, Violation};
use crate::sim_disk::{Fault, SimDisk};

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// Calls that failed, one a run.
    pub met: usize,
    /// Runs in which the engine reported it; otherwise it continued without the file.
    pub reported: usize,
}

/// Lets each call of a run fail in each way, on a disk that `prepare` has given its other faults; then the power goes.
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
