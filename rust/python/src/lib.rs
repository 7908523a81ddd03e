//! The PyO3 binding: declares `fletchlog._core`. Every method is extract -> gate(engine call) -> wrap.
//!
//! One rule for locks: while Python runs, or the GIL is taken or released, a thread holds no lock of the binding or the engine that another
//! thread may wait for. Otherwise a thread with the GIL that waits for the lock and a thread with the lock that waits for the GIL block the
//! whole process; and a signal handler, a callback, a log handler or a finalizer that calls the same object waits for its own thread. So
//! - the engine checks for Ctrl-C ([`gate`]) with no lock held, or runs beside the thread that checks ([`gate::beside`]), and its
//!   log records are delivered to Python later ([`logging`]),
//! - callbacks are queued and called by their own thread ([`callbacks`]), rebalance listeners after the call,
//! - the file system of an object store is called in a thread beside the one that reads ([`store`]),
//! - a Python object that is replaced is dropped after the lock is released; one that the engine drops is dropped by PyO3 when it
//!   is next attached,
//! - a lock that is held during any of this is only tried, never waited for ([`fork::Exclusive`]),
//! - a thread that keeps the GIL in the engine only tries locks too ([`fork::Shared::at_once`]).

// `stub!`, the docstrings.
include!(concat!(env!("OUT_DIR"), "/stub.rs"));

mod acls;
pub mod assignors;
pub mod broker;
pub mod callbacks;
pub mod capsule;
mod client_arguments;
mod clock;
pub mod cluster;
mod cluster_scan;
pub mod config;
pub mod consumer;
pub mod convert;
mod derived_polls;
mod deserializers;
mod engine_threads;
pub mod errors;
pub mod fault_rules;
pub mod fork;
pub mod gate;
mod groups;
pub mod inspect;
mod interop;
pub mod legacy;
pub mod listener;
pub mod logging;
mod named_tuple;
mod new_topics;
mod oauth;
mod object_to_value;
mod object_values;
mod offsets;
mod once;
pub mod operation;
mod peer;
pub mod producer;
pub mod protobuf_columns;
mod proxy;
mod read_to_end;
pub mod records;
pub mod request_order;
pub mod scan;
mod scan_arguments;
mod scan_builders;
mod scan_records;
mod scan_tail;
mod scan_threads;
mod scan_typed;
pub mod segment_records;
pub mod session;
mod session_columns;
mod session_fields;
pub mod share_consumer;
mod share_state;
mod store;
pub mod table;
mod time;
pub mod topic_pattern;
pub mod trace;
pub mod transaction;
pub mod value_columns;
pub mod value_formats;
mod value_to_object;
pub mod wakeups;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

/// The compiled part of fletchlog. Use it through the package `fletchlog`.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // Checked before the first class is made: classes are made once per process.
    if !capsule::in_main_interpreter(module.py()) {
        return Err(PyImportError::new_err(
            "fletchlog works in the main interpreter only: its threads would attach to the wrong one. Import it in the main \
             interpreter or in a process of its own, not in a subinterpreter",
        ));
    }
    fork::watch_forks();
    logging::install();
    engine_threads::register(module)?;
    value_formats::register(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<broker::Broker>()?;
    module.add_class::<clock::Clock>()?;
    module.add_class::<cluster::Cluster>()?;
    module.add_class::<consumer::Consumer>()?;
    module.add_class::<legacy::LegacyConsumer>()?;
    module.add_class::<legacy::LegacyStream>()?;
    module.add_class::<fault_rules::FaultRules>()?;
    module.add_class::<listener::Listener>()?;
    module.add_class::<operation::Operation>()?;
    module.add_class::<producer::Producer>()?;
    module.add_class::<producer::RecordFuture>()?;
    module.add_class::<producer::ArrowRows>()?;
    module.add_class::<producer::Unsent>()?;
    module.add_class::<proxy::Proxy>()?;
    module.add_class::<records::RecordIterator>()?;
    module.add_class::<records::Records>()?;
    module.add_class::<read_to_end::RecordsToEnd>()?;
    module.add_class::<scan::Scan>()?;
    module.add_class::<scan_records::ScanRecords>()?;
    module.add_class::<session::Session>()?;
    module.add_class::<session::SessionConnection>()?;
    module.add_class::<session::SessionExchange>()?;
    module.add_class::<session::SessionItems>()?;
    module.add_class::<share_consumer::ShareConsumer>()?;
    module.add_class::<table::Table>()?;
    module.add_class::<transaction::Transaction>()?;
    module.add_class::<wakeups::TimedWork>()?;
    module.add_class::<wakeups::Wakeups>()?;
    module.add_function(wrap_pyfunction!(assignors::assign, module)?)?;
    module.add_function(wrap_pyfunction!(assignors::assign_legacy, module)?)?;
    module.add_function(wrap_pyfunction!(assignors::assign_uniform, module)?)?;
    module.add_function(wrap_pyfunction!(config::config_table, module)?)?;
    module.add_function(wrap_pyfunction!(derived_polls::derive_polls, module)?)?;
    module.add_function(wrap_pyfunction!(errors::error_classes, module)?)?;
    module.add_function(wrap_pyfunction!(inspect::clean_offsets, module)?)?;
    module.add_function(wrap_pyfunction!(inspect::inspect_segment, module)?)?;
    module.add_function(wrap_pyfunction!(inspect::partition_directories, module)?)?;
    module.add_function(wrap_pyfunction!(inspect::segment_files, module)?)?;
    module.add_function(wrap_pyfunction!(inspect::verify, module)?)?;
    module.add_function(wrap_pyfunction!(logging::log_to, module)?)?;
    module.add_function(wrap_pyfunction!(protobuf_columns::protobuf_descriptors, module)?)?;
    module.add_function(wrap_pyfunction!(protobuf_columns::protobuf_file, module)?)?;
    module.add_function(wrap_pyfunction!(protobuf_columns::protobuf_reader, module)?)?;
    module.add_function(wrap_pyfunction!(protobuf_columns::protobuf_writer, module)?)?;
    module.add_function(wrap_pyfunction!(request_order::decision_rows, module)?)?;
    module.add_function(wrap_pyfunction!(request_order::hash_buckets, module)?)?;
    module.add_function(wrap_pyfunction!(request_order::parse_release, module)?)?;
    module.add_function(wrap_pyfunction!(request_order::java_hash, module)?)?;
    module.add_function(wrap_pyfunction!(session::exchange_columns, module)?)?;
    module.add_function(wrap_pyfunction!(listener::served_apis, module)?)?;
    module.add_function(wrap_pyfunction!(segment_records::segment_records, module)?)?;
    module.add_function(wrap_pyfunction!(topic_pattern::find_topics, module)?)
}
