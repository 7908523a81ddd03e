//! The n-th call of the disk fails, for every n and every kind of fault, until a run passes without meeting it
//! (reliability C12-C15, C18).

use crate::broker_workload::BrokerRun;
use crate::cleaner_run::CleanerRun;
use crate::course::Course;
use crate::crash_points::Violation;
use crate::sim_disk::{Fault, SimDisk};
use crate::workload::Run;

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// Calls that failed, one a run.
    pub met: usize,
    /// Runs in which the engine told of it; otherwise it went on without the file.
    pub told: usize,
}

/// A workload that goes on after a fault.
pub trait Survivor {
    /// How it went.
    fn course(&self) -> &Course;
    /// Power loss after it.
    ///
    /// # Errors
    /// The first promise that was not kept.
    fn lose_power(&self) -> Result<(), Violation>;
}

impl Survivor for Run {
    fn course(&self) -> &Course {
        &self.course
    }
    fn lose_power(&self) -> Result<(), Violation> {
        self.crash_after_failure(1).map(drop)
    }
}

impl Survivor for CleanerRun {
    fn course(&self) -> &Course {
        &self.course
    }
    fn lose_power(&self) -> Result<(), Violation> {
        self.crash_after_failure(2).map(drop)
    }
}

impl Survivor for BrokerRun {
    fn course(&self) -> &Course {
        &self.course
    }
    fn lose_power(&self) -> Result<(), Violation> {
        self.crash_after_failure(0).map(drop)
    }
}

/// Lets each call fail in each way. `run` makes a run on a disk prepared so.
///
/// # Errors
/// The first promise that was not kept.
pub fn every_fault<S: Survivor>(run: impl Fn(&dyn Fn(&SimDisk)) -> S) -> Result<Faults, Violation> {
    let mut faults = Faults::default();
    for fault in Fault::ALL {
        let mut call = 0;
        loop {
            let run = run(&|disk| disk.fail(call, fault));
            run.lose_power().map_err(|violation| Violation {
                what: format!("call {call} failed with {fault:?}: {}", violation.what),
                ..violation
            })?;
            let Some(failed) = run.course().failed_call() else {
                break;
            };
            faults.met += 1;
            faults.told += usize::from(run.course().told() > 0);
            call = failed + 1;
        }
    }
    Ok(faults)
}
