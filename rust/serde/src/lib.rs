//! Values of records as typed Arrow columns and back: a whole column in one call, without an object per value.
//!
//! A format reads and writes one value at a time ([`ReadValue`], [`WriteColumn`]); [`decode`] and [`encode`] go over a column. A value that cannot be
//! read leaves a null and a reason, and nothing of it in the columns.
//!
//! Values come from anybody. No value panics, overflows the stack or takes memory beyond a multiple of its size that its schema bounds.

pub mod avro;
mod column;
pub mod confluent;
mod decode;
pub mod description;
mod encode;
pub mod json;
mod keep;
mod list;
mod primitive;
pub mod protobuf;
mod reason;
mod reused;
mod value;
mod varint;

pub use column::Column;
pub use decode::{Decoded, ReadValue, decode};
pub use encode::{Encoded, WriteColumn, WriteValue, encode};
pub use list::{ListReader, ListWriter};
pub use primitive::Primitive;
pub use reason::{Reason, SchemaError};
pub use value::{Value, read_one};
