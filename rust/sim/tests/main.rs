//! What needs several crates: the recordings of a real Kafka, faults, crashes, simulation.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::too_many_lines,
    reason = "a test fails by panicking, and may be one long list of cases"
)]

mod bit_flips;
mod broker_disk;
mod checkpoint_flips;
mod crash_points;
mod deleted_segments;
mod dropped_segments;
mod failed_append;
mod failed_close;
mod failed_open;
mod fuzz_corpus;
mod groups;
mod history_checker;
mod legacy;
mod lost_end;
mod poll_allocations;
mod poll_traces;
mod producer_batches;
mod producer_disk;
mod producer_faults;
mod producer_harness;
mod producer_properties;
mod producer_threads;
mod server_assignors;
mod sim_disk;
mod simulation;
mod topic_alteration;
mod topic_creation;
mod topic_deletion;
mod transactions;
mod waiting_fetch;
