//! What tests of several crates put in place of time and of connections. A development dependency only: nothing that ships contains it.

mod scripted_transport;
mod virtual_clock;
mod watched_transport;

pub use scripted_transport::{Answer, Peer, ScriptedTransport, Sent, Wire};
pub use virtual_clock::{START_MS, VirtualClock};
pub use watched_transport::{Watch, Watched, WatchedTransport};
