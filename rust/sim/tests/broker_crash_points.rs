//! Reliability C1, C2, C12-C15, C18, M8 for a whole directory: a slice of `make crash-points`.

use fletchlog_sim::broker_workload::BrokerRun;
use fletchlog_sim::nth_fault::every_fault;
use fletchlog_sim::sim_disk::{Fault, Lie};

/// Requests in one run.
const STEPS: usize = 30;

#[test]
fn what_a_broker_answered_survives_a_power_loss_at_every_operation() {
    let mut images = 0;
    for seed in 0..2 {
        let run = BrokerRun::new(seed, STEPS, |_| ());
        images += run
            .crash_everywhere(2)
            .unwrap_or_else(|violation| panic!("{violation:?}"));
    }
    assert!(images > 800, "{images} images");
}

#[test]
fn whatever_call_fails_what_a_broker_answered_is_there() {
    let faults = every_fault(|fail| BrokerRun::new(3, 8, fail)).unwrap_or_else(|violation| panic!("{violation:?}"));
    assert!(faults.met > 300 && faults.told > 150, "{faults:?}");
}

/// The removal of a topic's directories fails, a topic of its name is made, and the power goes twice.
#[test]
fn a_record_of_a_deleted_topic_does_not_come_back() {
    for call in 220..270 {
        BrokerRun::new(0, 12, |disk| disk.fail(call, Fault::Io))
            .crash_after_failure(0)
            .unwrap_or_else(|violation| panic!("call {call}: {violation:?}"));
    }
}

#[test]
fn small_files_that_are_not_replaced_atomically_are_found_out() {
    for lie in [Lie::ReplaceSync, Lie::ReplaceInPlace, Lie::DirectorySync] {
        let found = (0..10).any(|seed| {
            BrokerRun::new(seed, STEPS, |disk| disk.lie(lie))
                .crash_everywhere(1)
                .is_err()
        });
        assert!(found, "{lie:?} went unnoticed");
    }
}
