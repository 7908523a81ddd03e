//! The second world: clients and listener are the ones that ship, from `TcpTransport` to `Processor`, over sockets in memory
//! ([`pipes`]) that split, delay, stall and break what is written.

mod client;
mod flow;
mod pipes;
mod server;
mod tap;

pub(super) use client::connect;
pub(super) use pipes::Pipes;
pub(super) use server::run as serve;
