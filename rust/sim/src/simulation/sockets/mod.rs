//! The simulation over sockets: the production code of clients and listener, from `TcpTransport` to `Processor`, over sockets in memory
//! ([`pipes`]) that split, delay, stall and lose the written bytes.

mod client;
mod flow;
mod pipes;
mod server;
mod tap;

pub(super) use client::connect;
pub(super) use pipes::Pipes;
pub(super) use server::run as serve;
