//! Simulation and cross-crate tests.

pub mod crash_points;
pub mod exact_batch;
pub mod sim_disk;
pub mod virtual_clock;
