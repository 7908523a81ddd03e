//! Runs a slice of every crash and fault suite and stops at the first violation (exit code 1): `make mutants` plants bugs and asks
//! whether they are found. `PLANTED` may also name a [`Lie`] of the disk.

#![allow(clippy::print_stdout, reason = "a command that prints its result")]

use std::process::ExitCode;

use fletchlog_sim::broker_workload::BrokerWorkload;
use fletchlog_sim::cleaner_workload::CleanerWorkload;
use fletchlog_sim::concurrent_broker::ConcurrentBrokerWorkload;
use fletchlog_sim::concurrent_workload::ConcurrentWorkload;
use fletchlog_sim::crash_points::{Crashable, Violation};
use fletchlog_sim::group_workload::GroupWorkload;
use fletchlog_sim::log_workload::LogWorkload;
use fletchlog_sim::nth_fault::every_fault;
use fletchlog_sim::share_workload::ShareWorkload;
use fletchlog_sim::sim_disk::{Lie, SimDisk};
use fletchlog_sim::simulation::{self, Between};
use fletchlog_sim::transaction_workload::TransactionWorkload;

/// Seeds of the simulation: what the cleaner does wrongly is seen only there.
const SEEDS: u64 = 300;

/// What is run of one workload.
struct Slice<'a> {
    /// What it works on.
    of: &'a str,
    /// Crashed at every operation: the first so many seeds, calls in each, random images.
    crashed: (u64, usize, usize),
    /// With a fault, of which there is one for each call: these seeds, calls in each.
    faulty: (&'a [u64], usize),
}

fn lie() -> Option<Lie> {
    let wanted = std::env::var("PLANTED").ok()?;
    Lie::ALL
        .into_iter()
        .find(|lie| format!("{lie:?}").split('(').next() == Some(&wanted))
}

/// Returns how many images and faults there were.
fn hunt<W: Crashable>(slice: &Slice<'_>) -> Result<usize, (String, Violation)> {
    let lie = lie();
    let prepare = |disk: &SimDisk| lie.into_iter().for_each(|lie| disk.lie(lie));
    let mut looked_at = 0;
    let (seeds, steps, random_images) = slice.crashed;
    for seed in 0..seeds {
        let images = W::run(seed, steps, prepare).crash_everywhere(random_images);
        looked_at += images.map_err(|v| (format!("crash-points of {}", slice.of), v))?;
    }
    let (seeds, steps) = slice.faulty;
    for &seed in seeds {
        let faults = every_fault::<W>(seed, steps, prepare);
        looked_at += faults.map_err(|v| (format!("nth-fault of {}", slice.of), v))?.met;
    }
    Ok(looked_at)
}

fn hunt_all() -> Result<usize, (String, Violation)> {
    let log = hunt::<LogWorkload>(&Slice {
        of: "a log",
        crashed: (6, 60, 4),
        faulty: (&[0, 1], 16),
    })?;
    let cut = hunt::<LogWorkload<true>>(&Slice {
        of: "a log whose end is cut off",
        crashed: (4, 60, 3),
        faulty: (&[1], 24),
    })?;
    let compacted = hunt::<CleanerWorkload>(&Slice {
        of: "a compacted log",
        crashed: (12, 60, 4),
        // Runs in which a batch finds no room, and another one does.
        faulty: (&[2, 8], 16),
    })?;
    let broker = hunt::<BrokerWorkload>(&Slice {
        of: "a broker",
        crashed: (4, 30, 2),
        // The first of them makes a topic again.
        faulty: (&[2, 0, 3], 12),
    })?;
    let groups = hunt::<GroupWorkload>(&Slice {
        of: "a broker with consumer groups",
        crashed: (4, 30, 1),
        faulty: (&[3], 6),
    })?;
    let transactions = hunt::<TransactionWorkload>(&Slice {
        of: "a broker with transactions",
        crashed: (4, 30, 1),
        faulty: (&[3], 6),
    })?;
    let shares = hunt::<ShareWorkload>(&Slice {
        of: "a broker with a share group",
        crashed: (4, 30, 1),
        faulty: (&[3], 5),
    })?;
    // What threads do at once is never twice the same.
    let on_log = hunt::<ConcurrentWorkload>(&Slice {
        of: "a log that threads share",
        crashed: (300, 8, 1),
        faulty: (&[], 0),
    })?;
    let on_broker = hunt::<ConcurrentBrokerWorkload>(&Slice {
        of: "a broker that threads share",
        crashed: (40, 12, 0),
        faulty: (&[], 0),
    })?;
    Ok(log + cut + on_log + on_broker + compacted + broker + groups + transactions + shares)
}

/// Of whole runs, whose disk keeps what it says: what is wrong in the first that is not clean.
fn simulate() -> Option<String> {
    let reports = (0..SEEDS).map(|seed| simulation::run(seed, Between::Calls));
    let wrong = reports.into_iter().find(|report| !report.is_clean())?;
    let (surprise, anomaly) = (wrong.surprises.first(), wrong.anomalies.first());
    let what = surprise
        .cloned()
        .or_else(|| Some(format!("{}: {}", anomaly?.class, anomaly?.what)));
    Some(format!("simulation, seed {}: {}", wrong.seed, what.unwrap_or_default()))
}

fn main() -> ExitCode {
    match hunt_all() {
        Ok(looked_at) => match simulate() {
            Some(what) => {
                println!("{what}");
                ExitCode::FAILURE
            }
            None => {
                println!("nothing found in {looked_at} images and faults and {SEEDS} seeds of the simulation");
                ExitCode::SUCCESS
            }
        },
        Err((suite, violation)) => {
            println!("{suite}: {violation:?}");
            ExitCode::FAILURE
        }
    }
}
