//! Workloads, and the course of a run.

use std::fmt::Display;
use std::path::Path;

use crate::disk_state::DiskState;
use crate::rng::Rng;
use crate::sim_disk::SimDisk;

/// A sequence of calls given by a seed, on a disk that may fail, with the promises that the calls made.
pub trait Workload: Sized {
    /// The directory that exists at the start.
    const DIR: &str;

    /// The state before the first call.
    fn begin(seed: u64, rng: &mut Rng) -> Self;

    /// Makes `steps` calls.
    ///
    /// # Errors
    /// A failure that no fault of the disk explains.
    fn work(&mut self, disk: &SimDisk, rng: &mut Rng, steps: usize) -> Result<(), String>;

    /// The course of the run.
    fn course(&self) -> &Course;

    /// The course of the run, to change it.
    fn course_mut(&mut self) -> &mut Course;

    /// A run of `steps` calls, on a disk to which `prepare` may add faults.
    fn run(seed: u64, steps: usize, prepare: impl FnOnce(&SimDisk)) -> Self {
        let disk = SimDisk::with_dirs(&[Path::new(Self::DIR)]);
        prepare(&disk);
        disk.record();
        let mut rng = Rng::new(seed);
        let mut run = Self::begin(seed, &mut rng);
        let result = run.work(&disk, &mut rng, steps);
        run.course_mut().end(&disk, result);
        run
    }
}

/// The seed, the disk states and the errors of a run.
#[derive(Debug)]
pub struct Course {
    /// The number that replays the run.
    seed: u64,
    /// The disk before every operation.
    history: Vec<DiskState>,
    failed: Option<(u64, u64)>,
    reported: usize,
    violation: Option<String>,
}

impl Course {
    /// The course of a run that begins.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            history: Vec::new(),
            failed: None,
            reported: 0,
            violation: None,
        }
    }

    /// The number that replays the run.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Records an error that the engine reported. It is allowed only if the disk has failed, and at most `attempts` times.
    pub(crate) fn excuse(&mut self, disk: &SimDisk, error: &dyn Display, attempts: usize) -> Result<(), String> {
        self.reported += 1;
        match disk.failed() {
            Some(_) if self.reported <= attempts => Ok(()),
            _ => Err(error.to_string()),
        }
    }

    /// Ends the run.
    pub(crate) fn end(&mut self, disk: &SimDisk, result: Result<(), String>) {
        self.violation = result.err();
        self.failed = disk.failed();
        self.history = disk.history();
    }

    /// The disk before every operation.
    pub(crate) fn history(&self) -> &[DiskState] {
        &self.history
    }

    /// Operations on the disk.
    pub fn operations(&self) -> usize {
        self.history.len()
    }

    /// The first `count` states of the disk after the call that failed, and the last one.
    pub(crate) fn after_failure(&self, count: usize) -> Vec<DiskState> {
        let failed = self.failed.map_or(0, |(_, operations)| operations);
        let from = self.history.partition_point(|state| state.operations() < failed);
        let states = self.history[from..].iter().take(count).chain(self.history.last());
        states.cloned().collect()
    }

    /// The failure that no fault explains, if any.
    pub fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    /// The number of the call that failed.
    pub fn failed_call(&self) -> Option<u64> {
        self.failed.map(|(call, _)| call)
    }

    /// Errors that the engine reported.
    pub fn reported(&self) -> usize {
        self.reported
    }
}
