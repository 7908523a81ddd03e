//! Protobuf: proto2, proto3 and editions.
//!
//! A message is a struct with its fields in the order of their declaration. Types: see [`plan`]; what bytes are taken: see [`wire`] and [`read`]. Every message of the
//! wire is read in place, field by field, into the columns, also when it comes in several parts: a row stays open until the outermost message ends.

mod close;
mod compile;
mod descriptor;
mod entries;
mod indexes;
mod plan;
mod read;
mod reader;
#[cfg(test)]
mod tests;
mod timestamp;
mod wire;
mod write;

pub use compile::{Source, compile, parse};
pub use reader::ProtobufReader;
#[cfg(test)]
pub(crate) use wire::put_varint;
pub use write::ProtobufWriter;
