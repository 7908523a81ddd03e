//! Workloads, and how a run of one went.

use std::fmt::Display;
use std::path::Path;

use crate::disk_state::DiskState;
use crate::rng::Rng;
use crate::sim_disk::SimDisk;

/// Calls that a seed gives, on a disk that may fail; what they promised is kept with them.
pub trait Workload: Sized {
    /// The directory that is there before.
    const DIR: &str;

    /// In front of the first call.
    fn begin(seed: u64, rng: &mut Rng) -> Self;

    /// Makes so many calls.
    ///
    /// # Errors
    /// What went wrong and no fault of the disk explains.
    fn work(&mut self, disk: &SimDisk, rng: &mut Rng, steps: usize) -> Result<(), String>;

    /// How it went.
    fn course(&self) -> &Course;

    /// As above.
    fn course_mut(&mut self) -> &mut Course;

    /// A run of `steps` calls, on a disk that `prepare` may have given faults.
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

/// What a run leaves besides its promises.
#[derive(Debug)]
pub struct Course {
    /// Replays the run.
    seed: u64,
    /// The disk in front of every operation.
    history: Vec<DiskState>,
    failed: Option<(u64, u64)>,
    reported: usize,
    violation: Option<String>,
}

impl Course {
    /// Of a run that begins.
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

    /// Records an error that the engine reported. It is right only if the disk has failed, and `attempts` times at the
    /// most.
    pub(crate) fn excuse(&mut self, disk: &SimDisk, error: &dyn Display, attempts: usize) -> Result<(), String> {
        self.reported += 1;
        match disk.failed() {
            Some(_) if self.reported <= attempts => Ok(()),
            _ => Err(error.to_string()),
        }
    }

    /// The run is over.
    pub(crate) fn end(&mut self, disk: &SimDisk, result: Result<(), String>) {
        self.violation = result.err();
        self.failed = disk.failed();
        self.history = disk.history();
    }

    /// The disk in front of every operation.
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

    /// What went wrong that no fault explains.
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
