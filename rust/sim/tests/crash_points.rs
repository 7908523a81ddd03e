//! Reliability C1, C2, C12-C15, C18: a slice of `make crash-points`.

use fletchlog_sim::cleaner_run::CleanerRun;
use fletchlog_sim::crash_points::Violation;
use fletchlog_sim::nth_fault::{Faults, every_fault};
use fletchlog_sim::sim_disk::Lie;
use fletchlog_sim::workload::Run;

/// Calls of the log in one run.
const STEPS: usize = 60;

fn with_every_fault(seed: u64, steps: usize, lie: Option<Lie>) -> Result<Faults, Violation> {
    every_fault(|fail| {
        Run::new(seed, steps, |disk| {
            fail(disk);
            lie.into_iter().for_each(|lie| disk.lie(lie));
        })
    })
}

#[test]
fn what_was_acknowledged_survives_a_power_loss_at_every_operation() {
    let mut images = 0;
    for seed in 0..6 {
        let run = Run::new(seed, STEPS, |_| ());
        images += run
            .crash_everywhere(4)
            .unwrap_or_else(|violation| panic!("{violation:?}"));
    }
    assert!(images > 3_000, "{images} images");
}

#[test]
fn whatever_call_fails_every_batch_is_there_once_when_the_client_has_repeated_it() {
    let faults = with_every_fault(7, 24, None).unwrap_or_else(|violation| panic!("{violation:?}"));
    assert!(faults.met > 400 && faults.told > 200, "{faults:?}");
}

#[test]
fn a_power_loss_at_every_operation_of_a_compacted_log_takes_and_brings_back_nothing() {
    let mut images = 0;
    for seed in 0..2 {
        let run = CleanerRun::new(seed, STEPS, |_| ());
        images += run
            .crash_everywhere(4)
            .unwrap_or_else(|violation| panic!("{violation:?}"));
    }
    assert!(images > 1_000, "{images} images");
}

#[test]
fn whatever_call_fails_a_compacted_log_holds_what_it_must() {
    let faults = every_fault(|fail| CleanerRun::new(7, 16, fail)).unwrap_or_else(|violation| panic!("{violation:?}"));
    assert!(faults.met > 300 && faults.told > 150, "{faults:?}");
}

/// The suites notice what they are there for. What only small replaced files suffer from is the broker's suite's to find.
#[test]
fn a_disk_or_program_that_breaks_a_promise_is_found_out() {
    for lie in Lie::ALL {
        if matches!(lie, Lie::ReplaceSync | Lie::ReplaceInPlace) {
            continue;
        }
        let found = (0..20).any(|seed| {
            let crashed = || Run::new(seed, STEPS, |disk| disk.lie(lie)).crash_everywhere(0);
            crashed().is_err() || with_every_fault(seed, 8, Some(lie)).is_err()
        });
        assert!(found, "{lie:?} went unnoticed");
    }
}
