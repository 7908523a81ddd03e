//! Kafka's protocol over TCP, in front of an embedded broker. Kafka: `SocketServer`, `KafkaApis`.
//!
//! ```text
//! socket -> Processor (one thread: accept, read, write, time-outs) -> Connection (frames; one request in progress)
//!        -> RequestHandlerPool -> Apis (wire message -> request value or verb of the broker -> wire message) -> Processor
//! ```

mod apis;
mod authenticator;
mod completions;
pub mod connection;
mod endpoint;
pub mod limits;
mod memory_pool;
mod processor;
mod recording;
mod request_handler_pool;
mod security;
mod socket_server;
mod sockets;
pub mod stats;
#[cfg(test)]
mod tests;
mod unsent;

pub use apis::served_apis;
pub use endpoint::Endpoint;
pub use socket_server::{ListenError, ListenOptions, SocketServer, serve_over};
pub use sockets::{SocketEvent, Sockets};
