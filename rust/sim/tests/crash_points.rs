//! Reliability C1, C2, C12-C15, C18, M8 for a log, a compacted one and a whole directory: a slice of `make crash-points`.

use fletchlog_sim::broker_workload::BrokerWorkload;
use fletchlog_sim::cleaner_workload::CleanerWorkload;
use fletchlog_sim::concurrent_broker::ConcurrentBrokerWorkload;
use fletchlog_sim::concurrent_workload::ConcurrentWorkload;
use fletchlog_sim::course::Workload;
use fletchlog_sim::crash_points::Crashable;
use fletchlog_sim::group_workload::GroupWorkload;
use fletchlog_sim::log_workload::LogWorkload;
use fletchlog_sim::nth_fault::every_fault;
use fletchlog_sim::share_workload::ShareWorkload;
use fletchlog_sim::sim_disk::{Fault, Lie, SimDisk};
use fletchlog_sim::transaction_workload::TransactionWorkload;

/// Calls of the log in one run.
const STEPS: usize = 60;
/// Requests to the broker in one run.
const REQUESTS: usize = 30;

fn honest(_: &SimDisk) {}

/// Crashes the first so many seeds at every operation. Operations leave that many new images, the regular ones make up for repeats.
fn crash<W: Crashable>(seeds: u64, steps: usize, random_images: usize) {
    for seed in 0..seeds {
        let run = W::run(seed, steps, honest);
        let images = run
            .crash_everywhere(random_images)
            .unwrap_or_else(|violation| panic!("{violation:?}"));
        let operations = run.course().operations();
        assert!(
            operations > steps,
            "seed {seed}: {operations} operations of {steps} calls"
        );
        assert!(
            images >= operations,
            "seed {seed}: {images} images of {operations} operations"
        );
    }
}

/// Lets every call fail in every way: most operations in several, and the engine reports most of them.
fn fail<W: Crashable>(seed: u64, steps: usize) {
    let faults = every_fault::<W>(seed, steps, honest).unwrap_or_else(|violation| panic!("{violation:?}"));
    let operations = W::run(seed, steps, honest).course().operations();
    assert!(
        faults.met >= operations * 3 && faults.reported * 2 > faults.met,
        "{faults:?} of {operations} operations"
    );
}

#[test]
fn what_was_acknowledged_survives_a_power_loss_at_every_operation() {
    crash::<LogWorkload>(6, STEPS, 4);
}

#[test]
fn what_an_unclean_election_leaves_survives_a_power_loss_and_the_rest_does_not_come_back() {
    crash::<LogWorkload<true>>(4, STEPS, 3);
    fail::<LogWorkload<true>>(1, 24);
}

#[test]
fn a_power_loss_at_every_operation_of_a_compacted_log_takes_and_brings_back_nothing() {
    crash::<CleanerWorkload>(2, STEPS, 4);
}

/// Runs in which a power loss between the names of a cleaning took that of a segment behind it.
#[test]
fn a_power_loss_never_makes_a_compacted_segment_the_last_one() {
    for seed in [20_261_489, 20_261_713] {
        let run = CleanerWorkload::run(seed, STEPS, honest);
        run.crash_everywhere(4)
            .unwrap_or_else(|violation| panic!("{violation:?}"));
    }
}

#[test]
fn what_a_broker_answered_survives_a_power_loss_at_every_operation() {
    crash::<BrokerWorkload>(2, REQUESTS, 2);
}

#[test]
fn what_a_broker_answered_members_of_groups_survives_a_power_loss_at_every_operation() {
    crash::<GroupWorkload>(2, REQUESTS, 1);
}

#[test]
fn what_a_broker_answered_transactional_producers_survives_a_power_loss_at_every_operation() {
    crash::<TransactionWorkload>(2, REQUESTS, 1);
}

#[test]
fn what_a_broker_answered_members_of_a_share_group_survives_a_power_loss_at_every_operation() {
    crash::<ShareWorkload>(1, REQUESTS, 1);
}

#[test]
fn what_a_log_answered_threads_that_share_it_survives_a_power_loss_at_every_operation() {
    crash::<ConcurrentWorkload>(40, 8, 1);
}

#[test]
fn what_a_broker_answered_threads_that_share_it_survives_a_power_loss_at_every_operation() {
    crash::<ConcurrentBrokerWorkload>(2, 10, 1);
}

#[test]
fn whatever_call_fails_every_batch_is_there_once_when_the_client_has_repeated_it() {
    fail::<LogWorkload>(7, 24);
}

#[test]
fn whatever_call_fails_a_compacted_log_holds_what_it_must() {
    fail::<CleanerWorkload>(7, 16);
}

#[test]
fn whatever_call_fails_what_a_broker_answered_is_there() {
    fail::<BrokerWorkload>(3, 8);
}

#[test]
fn whatever_call_fails_a_group_is_as_it_was_answered() {
    fail::<GroupWorkload>(3, 6);
}

#[test]
fn whatever_call_fails_a_transaction_ends_as_it_was_answered() {
    fail::<TransactionWorkload>(3, 5);
}

#[test]
fn whatever_call_fails_a_share_group_is_as_it_was_answered() {
    fail::<ShareWorkload>(3, 5);
}

/// Every call of a run that makes a deleted topic again fails, the removal of its directories included, and the power goes twice.
#[test]
fn a_record_of_a_deleted_topic_does_not_come_back() {
    let steps = 12;
    let seed = (0..1_000)
        .find(|&seed| BrokerWorkload::run(seed, steps, honest).makes_a_topic_again())
        .unwrap();
    let mut call = 0;
    loop {
        let run = BrokerWorkload::run(seed, steps, |disk| disk.fail(call, Fault::Io));
        run.crash_after_failure()
            .unwrap_or_else(|violation| panic!("call {call}: {violation:?}"));
        let Some(failed) = run.course().failed_call() else {
            break;
        };
        call = failed + 1;
    }
}

/// The suites notice what they are there for. What only small replaced files suffer from is the broker's suite's to find.
#[test]
fn a_disk_or_program_that_breaks_a_promise_is_found_out() {
    for lie in Lie::ALL {
        if matches!(lie, Lie::ReplaceSync | Lie::ReplaceInPlace) {
            continue;
        }
        let found = (0..20).any(|seed| {
            let prepare = |disk: &SimDisk| disk.lie(lie);
            let crashed = <LogWorkload>::run(seed, STEPS, prepare).crash_everywhere(0);
            crashed.is_err() || every_fault::<LogWorkload>(seed, 8, prepare).is_err()
        });
        assert!(found, "{lie:?} went unnoticed");
    }
}

#[test]
fn small_files_that_are_not_replaced_atomically_are_found_out() {
    for lie in [Lie::ReplaceSync, Lie::ReplaceInPlace, Lie::DirectorySync] {
        let found = (0..10).any(|seed| {
            let run = BrokerWorkload::run(seed, REQUESTS, |disk| disk.lie(lie));
            run.crash_everywhere(1).is_err()
        });
        assert!(found, "{lie:?} went unnoticed");
    }
}
