//! What broker and clients agree on: request and response values, Kafka's error table, the table of every
//! configuration property, and the [`Transport`] between them. No I/O.

pub mod config_table;
pub mod error_code;
pub mod java_hash;
pub mod messages;
pub mod transport;

pub use config_table::{Config, ConfigError, Scope};
pub use error_code::ErrorCode;
pub use messages::*;
pub use transport::{Clock, Completion, Disconnected, NodeId, Transport};
