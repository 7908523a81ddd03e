//! Tests of the tables against a real Kafka, of the reader against hostile bytes, and of both against each other.
#![allow(clippy::unwrap_used, clippy::type_complexity)]

mod bytes_of_tables;
mod golden;
mod messages;
