//! The simulation, fuzz targets and tests that involve several crates.

pub mod bit_flips;
mod broker_crash;
pub mod broker_workload;
pub mod checker;
mod cleaner_crash;
pub mod cleaner_workload;
pub mod concurrent_broker;
pub mod concurrent_workload;
pub mod course;
pub mod crash_points;
mod disk_fault;
pub mod disk_state;
pub mod exact_batch;
pub mod fuzz;
pub mod history;
mod log_crash;
pub mod log_workload;
pub mod nth_fault;
pub mod rng;
pub mod sim_disk;
pub mod simulation;
pub mod stepped;
