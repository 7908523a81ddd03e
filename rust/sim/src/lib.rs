//! Simulation and cross-crate tests.

pub mod checker;
pub mod crash_points;
pub mod exact_batch;
pub mod history;
pub mod rng;
pub mod sim_disk;
pub mod virtual_clock;
