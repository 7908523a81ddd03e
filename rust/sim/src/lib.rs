//! Simulation and cross-crate tests.

pub mod exact_batch;
pub mod virtual_clock;
