//! TLS for clients and listeners: its settings from the properties `ssl.*`, and the encryption of one connection. Kafka:
//! `DefaultSslEngineFactory`, `SslTransportLayer`. The protocol itself is rustls.
//!
//! ```text
//! ClientTls, ServerTls   from the properties: certificates, keys, versions; make a session per connection   (client, server)
//!   Session              one connection: bytes of the socket <-> bytes of Kafka's protocol                  (session)
//!   pem, stores          PEM text -> certificates and keys                                                  (pem, stores)
//!   failure              what went wrong, and what to do about it, in words                                 (failure)
//! ```

mod client;
mod failure;
mod pem;
mod principal;
mod server;
mod session;
mod stores;

pub use client::ClientTls;
pub use failure::TlsFailure;
pub use server::ServerTls;
pub use session::Session;

#[cfg(test)]
mod tests;
