//! What tests of several crates put in place of time. A development dependency only: nothing that ships contains it.

mod virtual_clock;

pub use virtual_clock::{START_MS, VirtualClock};
