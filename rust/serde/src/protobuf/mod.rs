//! Protobuf: proto2, proto3 and editions.
//!
//! A message is a struct with its fields in the order of their declaration. Types: see [`plan`]; what bytes are taken: see [`wire`] and [`read`]. Every message of the
//! wire is read in place, field by field, into the columns, also when it comes in several parts: a row stays open until the outermost message ends.

mod compile;
mod descriptor;
mod indexes;
mod plan;
mod read;
#[cfg(test)]
mod tests;
mod wire;
mod write;

pub use compile::compile;
pub use read::ProtobufReader;
pub use write::ProtobufWriter;
