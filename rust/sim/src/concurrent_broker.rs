//! Several threads on one broker at once, each with its own topic, and power loss at every operation (reliability C1, C2). They share the
//! metadata, the checkpoints, a group, the producer ids and the coordinator's log.
//!
//! As with [`ConcurrentWorkload`](crate::concurrent_workload::ConcurrentWorkload) a seed does not replay a run.

use std::borrow::Cow;
use std::sync::Arc;

use crate::broker_crash::Crash;
use crate::broker_workload::{BrokerWorkload, Model, open};
use crate::concurrent_workload::together;
use crate::course::{Course, Workload};
use crate::crash_points::{CrashPoints, Crashable, Violation};
use crate::rng::Rng;
use crate::sim_disk::SimDisk;

/// Each thread's topic.
const NAMES: [&[&str]; 3] = [&["a"], &["b"], &["c"]];

/// One run of the workload.
pub struct ConcurrentBrokerWorkload {
    threads: Vec<BrokerWorkload>,
    course: Course,
}

impl Workload for ConcurrentBrokerWorkload {
    const DIR: &str = BrokerWorkload::DIR;

    fn begin(seed: u64, _: &mut Rng) -> Self {
        Self {
            threads: NAMES.map(|names| BrokerWorkload::of(seed, names, false)).into(),
            course: Course::new(seed),
        }
    }

    /// Each thread makes `steps` requests.
    fn work(&mut self, disk: &SimDisk, rng: &mut Rng, steps: usize) -> Result<(), String> {
        let broker = open(disk).map_err(|e| e.to_string())?;
        disk.give_way();
        together(self.threads.iter_mut().map(|thread| {
            let (mut broker, mut rng) = (Arc::clone(&broker), rng.fork());
            move || thread.use_broker(disk, &mut rng, &mut broker, steps)
        }))
    }

    fn course(&self) -> &Course {
        &self.course
    }

    fn course_mut(&mut self) -> &mut Course {
        &mut self.course
    }
}

impl Crashable for ConcurrentBrokerWorkload {
    const AFTER_FAILURE: (usize, usize) = (2, 0);

    fn crash_at(&self, points: &CrashPoints<'_>) -> Result<usize, Violation> {
        let promised = |now| {
            let (mut answered, mut before, mut after) = (0, Model::new(), Model::new());
            for BrokerWorkload { moments, .. } in &self.threads {
                let of_thread = moments.partition_point(|(at, _)| *at <= now) - 1;
                answered += of_thread;
                before.add(&moments[of_thread].1);
                after.add(&moments[(of_thread + 1).min(moments.len() - 1)].1);
            }
            let (before, after) = (Cow::Owned(before), Cow::Owned(after));
            (
                answered,
                Crash {
                    answered,
                    before,
                    after,
                },
            )
        };
        points.check(Rng::new(self.course.seed() ^ 0xB20C_FEED), promised, Crash::check)
    }
}

impl Model {
    /// Adds the expected state of other topics.
    fn add(&mut self, other: &Self) {
        let other = other.clone();
        self.topics.extend(other.topics);
        self.records.extend(other.records);
        self.committed.extend(other.committed);
        self.leaders.extend(other.leaders);
        self.producer_id = self.producer_id.max(other.producer_id);
    }
}
