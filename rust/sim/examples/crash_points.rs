//! Power loss at every storage operation of seeded runs of a log (alone, compacted, shared by threads) and of a whole broker (alone,
//! shared, with groups, with transactions, with a share group), and the n-th call failing, on every core until the time is over: `make crash-points`.
//!
//! `TIME_LIMIT` in seconds (default 60), `SEED` of the first run (default 0). Ends with one line; exit code 1 on a violation.

#![allow(clippy::print_stdout, reason = "a command that prints its result")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fletchlog_sim::broker_workload::BrokerWorkload;
use fletchlog_sim::cleaner_workload::CleanerWorkload;
use fletchlog_sim::concurrent_broker::ConcurrentBrokerWorkload;
use fletchlog_sim::concurrent_workload::ConcurrentWorkload;
use fletchlog_sim::crash_points::{Crashable, Violation};
use fletchlog_sim::group_workload::GroupWorkload;
use fletchlog_sim::log_workload::LogWorkload;
use fletchlog_sim::nth_fault::every_fault;
use fletchlog_sim::share_workload::ShareWorkload;
use fletchlog_sim::transaction_workload::TransactionWorkload;

/// Calls of a log (compacted or not), requests to a broker, in one run.
const STEPS: (usize, usize) = (60, 30);
/// The same in runs with a fault, of which there is one for each call.
const FAULTY_STEPS: (usize, usize) = (20, 10);
/// Calls in each of the threads that share a log, requests in each of those that share a broker.
const STEPS_OF_A_THREAD: (usize, usize) = (20, 9);
/// Random images per crash point, besides the regular ones.
const RANDOM_IMAGES: usize = 4;
/// Of so many seeds one is a broker's, one that of its groups, one that of its transactions, one that of its share group, one a compacted log's, one a log's that
/// threads share and one a log's whose end is cut off; one in so many lets calls fail, and one is of a broker that threads share; one in so many lets calls of a compacted
/// log, of groups and of transactions fail.
const EVERY: (u64, u64, u64) = (16, 64, 256);

#[derive(Default)]
struct Results {
    seeds: AtomicU64,
    images: AtomicUsize,
    faults: AtomicUsize,
    violations: AtomicUsize,
}

impl Results {
    fn add(&self, counter: &AtomicUsize, result: Result<usize, Violation>) {
        match result {
            Ok(count) => {
                counter.fetch_add(count, Ordering::Relaxed);
            }
            Err(violation) => {
                println!("{violation:?}");
                self.violations.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn crash<W: Crashable>(&self, seed: u64, steps: usize) {
        self.add(
            &self.images,
            W::run(seed, steps, |_| ()).crash_everywhere(RANDOM_IMAGES),
        );
    }

    fn fail<W: Crashable>(&self, seed: u64, steps: usize) {
        let faults = every_fault::<W>(seed, steps, |_| ());
        self.add(&self.faults, faults.map(|faults| faults.met));
    }

    fn run(&self, seed: u64) {
        if seed % EVERY.1 == 1 {
            self.crash::<ConcurrentBrokerWorkload>(seed, STEPS_OF_A_THREAD.1);
        }
        if seed.is_multiple_of(EVERY.1) {
            self.fail::<LogWorkload>(seed, FAULTY_STEPS.0);
            self.fail::<LogWorkload<true>>(seed, FAULTY_STEPS.0);
            self.fail::<BrokerWorkload>(seed, FAULTY_STEPS.1);
        }
        if seed.is_multiple_of(EVERY.2) {
            self.fail::<CleanerWorkload>(seed, FAULTY_STEPS.0);
            self.fail::<GroupWorkload>(seed, FAULTY_STEPS.1);
            self.fail::<TransactionWorkload>(seed, FAULTY_STEPS.1);
            self.fail::<ShareWorkload>(seed, FAULTY_STEPS.1);
        }
        match seed % EVERY.0 {
            0 => self.crash::<BrokerWorkload>(seed, STEPS.1),
            1 => self.crash::<CleanerWorkload>(seed, STEPS.0),
            2 => self.crash::<ConcurrentWorkload>(seed, STEPS_OF_A_THREAD.0),
            3 => self.crash::<GroupWorkload>(seed, STEPS.1),
            4 => self.crash::<TransactionWorkload>(seed, STEPS.1),
            5 => self.crash::<LogWorkload<true>>(seed, STEPS.0),
            6 => self.crash::<ShareWorkload>(seed, STEPS.1),
            _ => self.crash::<LogWorkload>(seed, STEPS.0),
        }
    }
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number; give whole seconds or a seed"))
    })
}

fn main() -> ExitCode {
    let limit = Duration::from_secs(from_environment("TIME_LIMIT", 60));
    let first = from_environment("SEED", 0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let start = Instant::now();
    let results = Results::default();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while start.elapsed() < limit {
                    results.run(first + results.seeds.fetch_add(1, Ordering::Relaxed));
                }
            });
        }
    });
    let violations = results.violations.into_inner();
    println!(
        "crash-points: {} images, {violations} violations ({} faults; {} seeds from {first}, {threads} threads, {:.0} s)",
        results.images.into_inner(),
        results.faults.into_inner(),
        results.seeds.into_inner(),
        start.elapsed().as_secs_f64()
    );
    if violations == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
