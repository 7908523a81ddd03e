//! Prints all tables of messages as JSON, for `judges/interop/test_11_wire_schema.py`.
#![allow(clippy::print_stdout, reason = "it is what it is for")]

fn main() {
    println!("{}", fletchlog_protocol::schema_json());
}
