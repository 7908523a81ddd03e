//! The transaction coordinator by its requests (spec 10, KIP-98).

pub mod client;
mod cuts;
mod files;
mod offsets;
mod partitions;
mod producers;
mod version_2;
