//! Connections of a client to a real cluster: [`TcpTransport`] implements [`fletchlog_api::Transport`] over sockets. Kafka:
//! `NetworkClient`, `Selector`.
//!
//! The thread that polls (or the producer's) drives the sockets; a helper thread keeps a member in its group between two polls
//! (`heartbeat_thread`). A remote node is not trusted: lengths are checked against the bytes that have arrived, and malformed bytes close
//! the connection with a reason.
//!
//! ```text
//! TcpTransport    which node, which socket; when to open, to read, to give up       (tcp_transport)
//!   Channel       one socket: all addresses of a name, set-up time-out, TLS, bytes  (channel, security)
//!     Connection  bytes <-> requests and responses, no I/O: versions, order, limits (connection, versions, framer)
//!       Authenticator   SASL: who the client is                                     (authenticator, sasl)
//! AdminClient     calls that wait for their responses: topics, groups               (admin_client)
//!   AddressBook   node ids -> host and port, from the responses that name them      (address_book)
//! ```

pub mod address_book;
pub mod admin_client;
mod authenticator;
mod channel;
mod connection;
mod framer;
mod heartbeat_thread;
mod sasl;
mod security;
mod sockets;
mod tcp_transport;
mod versions;

pub use address_book::{Address, BadAddress, bootstrap_servers};
pub use admin_client::{AdminClient, AdminError, CommittedAndEnd, Description, PartitionOffsets, TopicOffsets};
pub use sasl::{Token, TokenSource};
pub use sockets::{SocketEvent, Sockets, SystemSockets};
pub use tcp_transport::{ConnectionSettings, TcpTransport};
