//! Prints all tables of messages as JSON, and in a second line those of values of records, for `judges/interop/test_11_wire_schema.py`.
#![allow(clippy::print_stdout, reason = "it is what it is for")]

fn main() {
    println!("{}", fletchlog_protocol::schema_json());
    println!("{}", fletchlog_protocol::value_schema_json());
}
