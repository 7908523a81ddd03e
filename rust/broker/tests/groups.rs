//! The classic group protocol (spec 8.7, 11.14) over the local transport, with a clock that stands still.

mod brokers;
mod commits;
mod joining;
mod leaving;
mod member;
mod offsets;
mod rebalances;
mod restart;
mod static_members;
mod wire;
