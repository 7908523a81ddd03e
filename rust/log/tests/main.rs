//! The log, on simulated and on real file systems.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::too_many_lines,
    reason = "a test fails by panicking, and may be one long list of cases"
)]

mod append_and_read;
mod cleaner;
mod cleaner_crash;
mod cleaner_golden;
mod common;
mod concurrency;
mod crash;
mod faults;
mod fsync_threads;
mod golden_directories;
mod idempotence;
mod list_offsets_vectors;
mod max_decompressed;
mod model;
mod object_store;
mod offset_order;
mod old_formats;
mod panics;
mod produce_vectors;
mod read_only;
mod real_fs;
mod recovery_vectors;
mod retention;
mod scan;
mod tiered_storage;
mod truncate;
mod verify;
