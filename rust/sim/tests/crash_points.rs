//! Reliability C1, C2, C12, C15: a slice of `make crash-points`.

use std::io::ErrorKind;

use fletchlog_sim::crash_points::Run;
use fletchlog_sim::sim_disk::Lie;

/// Calls of the log in one run.
const STEPS: usize = 60;

#[test]
fn what_was_acknowledged_survives_a_power_loss_at_every_operation() {
    let mut images = 0;
    for seed in 0..6 {
        let run = Run::new(seed, STEPS, None, None);
        assert_eq!(run.failure(), None, "seed {seed}");
        images += run
            .crash_everywhere(4)
            .unwrap_or_else(|violation| panic!("{violation:?}"));
    }
    assert!(images > 3_000, "{images} images");
}

/// The suite notices what it is there for.
#[test]
fn a_disk_or_program_that_skips_a_sync_is_found_out() {
    for lie in [Lie::DirectorySync, Lie::FileSync(".log")] {
        let found = (0..20).any(|seed| Run::new(seed, STEPS, Some(lie), None).crash_everywhere(0).is_err());
        assert!(found, "{lie:?} went unnoticed");
    }
}

#[test]
fn whatever_operation_fails_what_was_acknowledged_is_there_after_a_restart() {
    let operations = Run::new(7, STEPS, None, None).operations();
    for kind in [ErrorKind::Other, ErrorKind::StorageFull] {
        let mut failures = 0;
        for operation in 0..operations {
            let run = Run::new(7, STEPS, None, Some((operation, kind)));
            failures += usize::from(run.failure().is_some());
            if let Err(violation) = run.crash_at_end(2) {
                panic!("operation {operation} failed with {kind:?}: {violation:?}");
            }
        }
        assert!(failures > 50, "only {failures} of {operations} failures were told");
    }
}
