//! Runs a slice of every crash and fault suite and stops at the first violation (exit code 1): `make mutants` plants bugs and asks
//! whether they are found. `PLANTED` may also name a [`Lie`] of the disk.

#![allow(clippy::print_stdout, reason = "a command that prints its result")]

use std::process::ExitCode;

use fletchlog_sim::broker_workload::BrokerRun;
use fletchlog_sim::cleaner_run::CleanerRun;
use fletchlog_sim::crash_points::Violation;
use fletchlog_sim::nth_fault::every_fault;
use fletchlog_sim::sim_disk::{Lie, SimDisk};
use fletchlog_sim::simulation;
use fletchlog_sim::workload::Run;

/// Calls of a log, requests to a broker, in runs that crash at every operation.
const STEPS: (usize, usize) = (60, 30);
/// Seeds of the simulation: what the cleaner does wrongly is seen only there.
const SEEDS: u64 = 300;
/// In runs with a fault, of which there is one for each call.
const FAULTY_STEPS: (usize, usize) = (16, 12);

fn lie() -> Option<Lie> {
    let wanted = std::env::var("PLANTED").ok()?;
    Lie::ALL
        .into_iter()
        .find(|lie| format!("{lie:?}").split('(').next() == Some(&wanted))
}

fn hunt() -> Result<usize, (&'static str, Violation)> {
    let lie = lie();
    let tell = |disk: &SimDisk| lie.into_iter().for_each(|lie| disk.lie(lie));
    let mut looked_at = 0;
    for seed in 0..6 {
        let images = Run::new(seed, STEPS.0, tell).crash_everywhere(4);
        looked_at += images.map_err(|v| ("crash-points of a log", v))?;
    }
    for seed in 0..2 {
        let faults = every_fault(|fail| {
            Run::new(seed, FAULTY_STEPS.0, |disk| {
                tell(disk);
                fail(disk);
            })
        });
        looked_at += faults.map_err(|v| ("nth-fault of a log", v))?.met;
    }
    for seed in 0..6 {
        let images = CleanerRun::new(seed, STEPS.0, tell).crash_everywhere(4);
        looked_at += images.map_err(|v| ("crash-points of a compacted log", v))?;
    }
    // Runs in which a batch finds no room, and another one does.
    for seed in [2, 8] {
        let faults = every_fault(|fail| {
            CleanerRun::new(seed, FAULTY_STEPS.0, |disk| {
                tell(disk);
                fail(disk);
            })
        });
        looked_at += faults.map_err(|v| ("nth-fault of a compacted log", v))?.met;
    }
    for seed in 0..4 {
        let images = BrokerRun::new(seed, STEPS.1, tell).crash_everywhere(2);
        looked_at += images.map_err(|v| ("crash-points of a broker", v))?;
    }
    // The first of them makes a topic again.
    for seed in [0, 3] {
        let faults = every_fault(|fail| {
            BrokerRun::new(seed, FAULTY_STEPS.1, |disk| {
                tell(disk);
                fail(disk);
            })
        });
        looked_at += faults.map_err(|v| ("nth-fault of a broker", v))?.met;
    }
    Ok(looked_at)
}

/// Of whole runs, whose disk keeps what it says: what is wrong in the first that is not clean.
fn simulate() -> Option<String> {
    let reports = (0..SEEDS).map(simulation::run);
    let wrong = reports.into_iter().find(|report| !report.is_clean())?;
    let (surprise, anomaly) = (wrong.surprises.first(), wrong.anomalies.first());
    let what = surprise
        .cloned()
        .or_else(|| Some(format!("{}: {}", anomaly?.class, anomaly?.what)));
    Some(format!("simulation, seed {}: {}", wrong.seed, what.unwrap_or_default()))
}

fn main() -> ExitCode {
    match hunt() {
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
