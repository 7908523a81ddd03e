//! The coordinator's client against scripted answers: errors, retries, lost connections. Whole groups are tested with a real
//! broker in `rust/sim/tests/groups`.

mod consumer_protocol;
mod joining;
mod membership;
mod offsets;
mod script;
