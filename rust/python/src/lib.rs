//! The PyO3 binding: declares `fletchlog._core`. Every method is extract -> gate(engine call) -> wrap.
//!
//! One rule for locks: nobody holds a lock that another thread may wait for, of the binding or of the engine, while Python
//! runs or the GIL is taken or let go. Otherwise a thread that has the GIL and wants the lock, and the one that has the lock
//! and wants the GIL, stop the whole process; and a signal handler, a callback, a log handler or a finalizer that calls the
//! same object waits for its own thread. So
//! - the engine asks for Ctrl-C ([`gate`]) with no lock held, and what it logs is handed to Python later ([`logging`]),
//! - callbacks are queued and called by a thread of their own ([`callbacks`]), rebalance listeners after the call,
//! - a Python object that is replaced is dropped after the lock; one that the engine drops is dropped by PyO3 when it is next
//!   attached,
//! - a lock that is held across any of this is only ever tried, never waited for ([`fork::Exclusive`]).

pub mod assignors;
pub mod broker;
pub mod callbacks;
pub mod capsule;
pub mod config;
pub mod consumer;
pub mod convert;
pub mod errors;
pub mod faults;
pub mod fork;
pub mod gate;
pub mod inspect;
mod interop;
pub mod json_lines;
pub mod legacy;
pub mod logging;
pub mod producer;
pub mod records;
pub mod scan;
pub mod segment_records;
pub mod table;
pub mod trace;
pub mod transaction;

use pyo3::prelude::*;

/// The compiled part of fletchlog. Use it through the package `fletchlog`.
#[pymodule]
mod _core {
    use super::*;
    #[pymodule_export]
    use crate::assignors::{assign, assign_legacy};
    #[pymodule_export]
    use crate::broker::Broker;
    #[pymodule_export]
    use crate::config::config_table;
    #[pymodule_export]
    use crate::consumer::Consumer;
    #[pymodule_export]
    use crate::errors::error_classes;
    #[pymodule_export]
    use crate::faults::{Faults, Held};
    #[pymodule_export]
    use crate::inspect::{inspect_segment, partition_directories, verify};
    #[pymodule_export]
    use crate::json_lines::json_lines;
    #[pymodule_export]
    use crate::legacy::{LegacyConsumer, LegacyStream};
    #[pymodule_export]
    use crate::producer::{Producer, RecordFuture};
    #[pymodule_export]
    use crate::records::{RecordIterator, Records};
    #[pymodule_export]
    use crate::scan::Scan;
    #[pymodule_export]
    use crate::segment_records::segment_records;
    #[pymodule_export]
    use crate::table::Table;
    #[pymodule_export]
    use crate::transaction::Transaction;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::logging::install(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
