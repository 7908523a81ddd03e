//! The classic group protocol (spec 8.7, 11.14) over the local transport, with a clock that stands still.
#![allow(clippy::unwrap_used, clippy::expect_used)] // The helpers of a test file are tests, too.

mod common;

#[path = "groups/brokers.rs"]
mod brokers;
#[path = "groups/joining.rs"]
mod joining;
#[path = "groups/leaving.rs"]
mod leaving;
#[path = "groups/member.rs"]
mod member;
#[path = "groups/offsets.rs"]
mod offsets;
#[path = "groups/rebalances.rs"]
mod rebalances;
#[path = "groups/static_members.rs"]
mod static_members;
