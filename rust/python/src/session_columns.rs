//! The requests of a session as columns for numpy: the bytes of 64-bit integers in the byte order of the machine.

use arrow_buffer::Buffer;
use fletchlog_session::{Columns, Exchange, Session, Table};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::gate::gate;
use crate::session_fields::topic_id;

/// Requests between two checks for Ctrl-C.
const CHECKED: usize = 4096;

/// The columns of these requests, by table and name.
pub fn columns_of<'a, 'py>(
    py: Python<'py>,
    exchanges: impl Iterator<Item = (&'a Session, Exchange)> + Send,
) -> PyResult<Bound<'py, PyDict>> {
    let columns = gate(py, |stop| {
        let mut columns = Columns::new(topic_id);
        for (at, (session, exchange)) in exchanges.enumerate() {
            columns.add(session, &exchange)?;
            if at % CHECKED == 0 && stop() {
                break;
            }
        }
        Ok(columns)
    })?;
    let tables = PyDict::new(py);
    tables.set_item("texts", columns.texts.iter().map(|text| &**text).collect::<Vec<_>>())?;
    tables.set_item("lanes", columns.lanes)?;
    tables.set_item("wanted", columns.wanted)?;
    tables.set_item("lines", table(py, columns.lines)?)?;
    tables.set_item("fetches", table(py, columns.fetches)?)?;
    tables.set_item("named", table(py, columns.named)?)?;
    tables.set_item("got", table(py, columns.got)?)?;
    tables.set_item("batches", table(py, columns.batches)?)?;
    tables.set_item("heartbeats", table(py, columns.heartbeats)?)?;
    tables.set_item("commits", table(py, columns.commits)?)?;
    tables.set_item("positions", table(py, columns.positions)?)?;
    tables.set_item("shares", table(py, columns.shares)?)?;
    tables.set_item("acknowledged", table(py, columns.acknowledged)?)?;
    tables.set_item("acquired", table(py, columns.acquired)?)?;
    tables.set_item("types", columns.types)?;
    tables.set_item("throttled", table(py, columns.throttled)?)?;
    tables.set_item("failed", table(py, columns.failed)?)?;
    Ok(tables)
}

fn table<const N: usize>(py: Python<'_>, table: Table<N>) -> PyResult<Bound<'_, PyDict>> {
    let columns = PyDict::new(py);
    for (name, column) in table.names.iter().zip(table.columns) {
        columns.set_item(name, PyBytes::new(py, Buffer::from_vec(column).as_slice()))?;
    }
    Ok(columns)
}
