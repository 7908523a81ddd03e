//! Power loss at every storage operation of seeded runs, until the time is over: `make crash-points`.
//!
//! `TIME_LIMIT` in seconds (default 60), `SEED` of the first run (default 0). Ends with one line; exit code 1 on a violation.

#![allow(clippy::print_stdout, reason = "a command that prints its result")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use fletchlog_sim::crash_points::Run;

/// Calls of the log in one run.
const STEPS: usize = 60;
/// Random images per crash point, besides the regular ones.
const RANDOM_IMAGES: usize = 4;

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number; give whole seconds or a seed"))
    })
}

fn main() -> ExitCode {
    let limit = Duration::from_secs(from_environment("TIME_LIMIT", 60));
    let first = from_environment("SEED", 0);
    let start = Instant::now();
    let (mut images, mut violations, mut seeds) = (0, 0, 0);
    while start.elapsed() < limit {
        let seed = first + seeds;
        let run = Run::new(seed, STEPS, None, None);
        if let Some(failure) = run.failure() {
            println!("seed {seed}: {failure}");
            violations += 1;
        }
        match run.crash_everywhere(RANDOM_IMAGES) {
            Ok(new) => images += new,
            Err(violation) => {
                println!("{violation:?}");
                violations += 1;
            }
        }
        seeds += 1;
    }
    println!(
        "crash-points: {images} images, {violations} violations ({seeds} seeds from {first}, {:.0} s)",
        start.elapsed().as_secs_f64()
    );
    if violations == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
