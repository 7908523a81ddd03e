//! How a run of a workload went.

use std::fmt::Display;

use crate::disk_state::DiskState;
use crate::sim_disk::SimDisk;

/// What a run leaves besides its promises.
#[derive(Debug)]
pub struct Course {
    /// Replays the run.
    seed: u64,
    /// The disk in front of every operation.
    history: Vec<DiskState>,
    failed: Option<(u64, u64)>,
    told: usize,
    violation: Option<String>,
}

impl Course {
    /// Of a run that begins.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            history: Vec::new(),
            failed: None,
            told: 0,
            violation: None,
        }
    }

    /// The number that replays the run.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Notes an error that the engine told of. It is right only if the disk has failed, and `attempts` times at the most.
    pub(crate) fn excuse(&mut self, disk: &SimDisk, error: &dyn Display, attempts: usize) -> Result<(), String> {
        self.told += 1;
        match disk.failed() {
            Some(_) if self.told <= attempts => Ok(()),
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

    /// Errors that the engine told of.
    pub fn told(&self) -> usize {
        self.told
    }
}
