//! Tests of the tables against a real Kafka, of the reader against hostile bytes, and of both against each other.
#![allow(clippy::unwrap_used, clippy::type_complexity, reason = "a test fails by panicking")]

mod bytes_of_tables;
mod conversions;
mod counting;
mod generated;
mod golden;
mod messages;
mod oracle;
mod properties;
mod rules;
mod values;
