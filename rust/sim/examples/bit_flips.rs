//! Every bit of a 64 KiB segment and of its side files is flipped, one at a time, on every core: `make bit-flips`.
//!
//! `TIME_LIMIT` in seconds (default 600), `SEED` of the partition (default 0). Ends with one line; exit code 1 on a violation.

#![allow(clippy::print_stdout, reason = "a command that prints its result")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fletchlog_sim::bit_flips::Partition;

const SEGMENT: usize = 64 * 1024;

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number; give whole seconds or a seed"))
    })
}

fn main() -> ExitCode {
    let limit = Duration::from_secs(from_environment("TIME_LIMIT", 600));
    let seed = from_environment("SEED", 0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let start = Instant::now();
    let (next, counters) = (&AtomicUsize::new(0), &[const { AtomicUsize::new(0) }; 3]);
    let [reported, harmless, violations] = counters;
    let mut bits = 0;
    std::thread::scope(|scope| {
        let mut partitions: Vec<Partition> = Vec::new();
        for _ in 0..threads {
            match Partition::new(seed, SEGMENT) {
                Ok(partition) => partitions.push(partition),
                Err(what) => {
                    println!("{what}");
                    violations.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        bits = partitions
            .first()
            .map_or(0, |p| p.files.iter().map(|(_, bytes)| bytes * 8).sum());
        for partition in partitions {
            scope.spawn(move || {
                while start.elapsed() < limit {
                    let mut bit = next.fetch_add(1, Ordering::Relaxed);
                    let found = partition.files.iter().find(|(_, bytes)| {
                        let here = bit < bytes * 8;
                        bit -= if here { 0 } else { bytes * 8 };
                        here
                    });
                    let Some((path, _)) = found else { break };
                    let counter = match partition.flip(path, bit) {
                        Ok(true) => reported,
                        Ok(false) => harmless,
                        Err(what) => {
                            println!("{what}");
                            violations
                        }
                    };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let [reported, harmless, violations] =
        [reported, harmless, violations].map(|counter| counter.load(Ordering::Relaxed));
    println!(
        "bit-flips: {} of {bits} flips, {violations} violations ({reported} reported, {harmless} harmless; seed {seed}, {threads} threads, {:.0} s)",
        reported + harmless + violations,
        start.elapsed().as_secs_f64()
    );
    if violations == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
