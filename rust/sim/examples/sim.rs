//! Seeds of the simulation on every core, until the time is over: `make sim`.
//!
//! `TIME_LIMIT` in seconds (default 600), `SEEDS` at most (default 10,000), `SEED` of the first (default 0; with `SEEDS=1` the only
//! one). Every hundredth seed runs twice and must give the same history. Ends with one line; exit code 1 on an anomaly.

#![allow(clippy::print_stdout, reason = "a command that prints its result")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fletchlog_sim::simulation;

/// One seed in so many runs twice.
const TWICE_EVERY: u64 = 100;

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number; give whole seconds, or a seed"))
    })
}

fn main() -> ExitCode {
    let limit = Duration::from_secs(from_environment("TIME_LIMIT", 600));
    let first = from_environment("SEED", 0);
    let seeds = from_environment("SEEDS", 10_000);
    let start = Instant::now();
    let (next, done, bad, ops) = (
        AtomicU64::new(0),
        AtomicU64::new(0),
        AtomicU64::new(0),
        AtomicU64::new(0),
    );
    let work = || loop {
        let n = next.fetch_add(1, Ordering::Relaxed);
        if n >= seeds || start.elapsed() >= limit {
            return;
        }
        let seed = first + n;
        let report = simulation::run(seed);
        done.fetch_add(1, Ordering::Relaxed);
        ops.fetch_add(report.history.ops.len() as u64, Ordering::Relaxed);
        let mut wrong = report.anomalies.len() + report.surprises.len();
        if wrong > 0 {
            println!("{}replay: SEED={seed} SEEDS=1 make sim\n", report.explain());
        }
        if seed.is_multiple_of(TWICE_EVERY)
            && simulation::run(seed).history.fingerprint() != report.history.fingerprint()
        {
            println!("seed {seed}: its second run gave another history");
            wrong += 1;
        }
        bad.fetch_add(wrong as u64, Ordering::Relaxed);
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
    let anomalies = bad.into_inner();
    println!(
        "sim: {} seeds, {anomalies} anomalies ({} operations, seeds from {first}, {:.0} s)",
        done.into_inner(),
        ops.into_inner(),
        start.elapsed().as_secs_f64()
    );
    if anomalies == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
