//! Tests of every served API: a row in the table is enough to include a new one.

mod largest;
mod panics;
mod requests;
