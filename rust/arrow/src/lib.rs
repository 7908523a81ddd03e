//! Records to Arrow columns and back.
//!
//! [`export`] turns the records of batches into Arrow record batches with the columns of Spark's kafka source;
//! [`import`] reads the columns that a user wants to produce. Nothing here depends on brokers, consumers or files.

pub mod export;
pub mod import;

pub mod schema;

mod bytes_column;
mod columns;
mod constants;
mod decode;
mod headers;
mod pool;

pub use export::RowsBuilder;
pub use import::{ImportError, ProducerBatch};

pub use schema::{Column, schema_of};
