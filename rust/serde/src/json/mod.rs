//! JSON values (RFC 8259) <-> Arrow columns.
//!
//! | Arrow type | JSON |
//! |---|---|
//! | null | null |
//! | bool, integers, floats | true and false, numbers |
//! | string, large string | string |
//! | decimal | string; a number is read, too |
//! | timestamp, date, time | string by ISO 8601; date and time also a number of days (date64: milliseconds) or units |
//! | duration | number of its unit |
//! | lists | array |
//! | struct | object: members that the type lacks are left out, fields that the object lacks are null, each may be there once |
//! | map | object, its keys from strings, each once |
//! | dictionary, view | as the type of its values |

mod check;
mod decimal;
mod infer;
mod iso8601;
mod left_out;
mod names;
mod node;
mod read;
mod scalar;
mod schema;
mod text;
mod write;

pub use check::refused;
pub use infer::decode_inferred;
pub use read::JsonReader;
pub use schema::{JsonSchema, JsonSchemaReader};
pub use write::{JsonSchemaWriter, JsonWriter};

#[cfg(test)]
mod tests;
