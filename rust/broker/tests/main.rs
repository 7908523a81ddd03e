//! The broker by its requests and its directories.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::too_many_lines,
    reason = "a test fails by panicking, and may be one long list of cases"
)]

mod admin;
mod cleaner;
mod common;
mod crashes;
mod directory;
mod fetch_sessions;
mod fetch_vectors;
mod groups;
mod leaders;
mod live_reader;
mod nodes;
mod one_bad_log;
mod produce_fetch;
mod producer_ids;
mod retention;
mod set_clock;
mod slow_fsync;
mod threads;
mod transactions;
