//! What holds for every served API: a new one is in these tests by its row in the table.

mod largest;
mod panics;
mod requests;
