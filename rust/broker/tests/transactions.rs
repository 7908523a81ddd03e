//! The transaction coordinator by its requests (spec 10, KIP-98).
#![allow(clippy::unwrap_used, clippy::expect_used)] // Helpers of tests; clippy.toml covers test functions only.

mod common;

#[path = "transactions/client.rs"]
mod client;
#[path = "transactions/files.rs"]
mod files;
#[path = "transactions/offsets.rs"]
mod offsets;
#[path = "transactions/partitions.rs"]
mod partitions;
#[path = "transactions/producers.rs"]
mod producers;
