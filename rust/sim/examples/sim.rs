//! Seeds of the simulation on every core, until the time is over: `make sim`.
//!
//! `TIME_LIMIT` in seconds (default 600), `SEEDS` at most (default 10,000), `SEED` of the first (default 0; with `SEEDS=1` the only
//! one), `WORLD=calls` or `WORLD=sockets` (default both: what is between clients and broker). Every hundredth seed runs twice and must
//! give the same history. Ends with one line for each world; exit code 1 on an anomaly.

#![allow(clippy::print_stdout, reason = "a command that prints its result")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fletchlog_sim::simulation::{self, Between};

/// One seed in so many runs twice.
const TWICE_EVERY: u64 = 100;

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number; give whole seconds, or a seed"))
    })
}

fn worlds() -> Vec<Between> {
    let Ok(wanted) = std::env::var("WORLD") else {
        return Between::ALL.to_vec();
    };
    let found = Between::ALL.into_iter().find(|between| between.name() == wanted);
    vec![found.unwrap_or_else(|| panic!("WORLD={wanted} is no world; give calls or sockets"))]
}

/// What runs of one world gave.
#[derive(Default)]
struct Figures {
    seeds: AtomicU64,
    bad: AtomicU64,
    ops: AtomicU64,
    requests: AtomicU64,
}

impl Figures {
    fn run(&self, seed: u64, between: Between) {
        let report = simulation::run(seed, between);
        let mut wrong = report.anomalies.len() + report.surprises.len();
        let replay = format!("SEED={seed} SEEDS=1 WORLD={} make sim", between.name());
        if wrong > 0 {
            println!("{}replay: {replay}\n", report.explain());
        }
        let history = report.history;
        if seed.is_multiple_of(TWICE_EVERY)
            && simulation::run(seed, between).history.fingerprint() != history.fingerprint()
        {
            println!("its second run gave another history: {replay}");
            wrong += 1;
        }
        self.seeds.fetch_add(1, Ordering::Relaxed);
        self.bad.fetch_add(wrong as u64, Ordering::Relaxed);
        self.ops.fetch_add(history.ops.len() as u64, Ordering::Relaxed);
        self.requests.fetch_add(report.requests, Ordering::Relaxed);
    }
}

fn main() -> ExitCode {
    let limit = Duration::from_secs(from_environment("TIME_LIMIT", 600));
    let first = from_environment("SEED", 0);
    let seeds = from_environment("SEEDS", 10_000);
    let start = Instant::now();
    let next = AtomicU64::new(0);
    let worlds: Vec<(Between, Figures)> = worlds().into_iter().map(|b| (b, Figures::default())).collect();
    let work = || loop {
        let n = next.fetch_add(1, Ordering::Relaxed);
        if n >= seeds || start.elapsed() >= limit {
            return;
        }
        for (between, figures) in &worlds {
            figures.run(first + n, *between);
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
    let mut anomalies = 0;
    for (between, figures) in worlds {
        let bad = figures.bad.into_inner();
        anomalies += bad;
        println!(
            "sim over {}: {} seeds, {bad} anomalies ({} operations, {} requests, seeds from {first}, {:.0} s)",
            between.name(),
            figures.seeds.into_inner(),
            figures.ops.into_inner(),
            figures.requests.into_inner(),
            start.elapsed().as_secs_f64()
        );
    }
    if anomalies == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
