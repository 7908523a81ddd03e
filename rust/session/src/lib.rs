//! Recorded sessions (`.fltrace`): what clients asked a listener or a proxy for, when, and what they got.
//!
//! ```text
//! socket thread -> Recorder (a bounded queue) -> writer thread: body (without records and secrets) -> event -> block -> file
//! file -> Index (connections, exchanges, where their bytes are) -> Session (one exchange after the other, bodies when they are asked for)
//!                                                              -> Columns (all requests as tables)
//! ```
//!
//! The bytes of the file are drawn in [`format`](mod@format). A server gives the recorder its frames as they are, so recording costs it a
//! lock and a reference to each frame; only large records are taken out at once, see `capture`.

mod batches;
mod body;
mod capture;
mod columns;
mod event;
mod fetch_sessions;
mod file;
pub mod format;
mod index;
mod recorder;
mod sensitive;
mod session;
mod writer;

pub use batches::{Batch, batches_of};
pub use body::Bodies;
pub use columns::{Columns, NONE, Table};
pub use format::SessionError;
pub use index::{Connection, Exchange};
pub use recorder::{Recorded, Recorder, RecorderOptions};
pub use session::{Item, Message, Place, Session};

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
