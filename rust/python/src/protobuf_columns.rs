//! Readers and writers of Protobuf, and schemas as text, for `fletchlog.serde.Protobuf`.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_serde::protobuf::{ProtobufReader, ProtobufWriter, compile};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::gate::gate;
use crate::value_columns::{ValueReader, ValueWriter};

#[doc = stub!(protobuf_reader)]
#[pyfunction]
#[pyo3(signature = (descriptors, message, *, indexed = false))]
pub fn protobuf_reader(py: Python<'_>, descriptors: &[u8], message: &str, indexed: bool) -> PyResult<ValueReader> {
    let reader = gate(py, |_| Ok(ProtobufReader::new(descriptors, message, indexed)?))?;
    Ok(ValueReader::new(Arc::new(reader)))
}

#[doc = stub!(protobuf_writer)]
#[pyfunction]
#[pyo3(signature = (descriptors, message, *, indexed = false))]
pub fn protobuf_writer(py: Python<'_>, descriptors: &[u8], message: &str, indexed: bool) -> PyResult<ValueWriter> {
    let writer = gate(py, |_| Ok(ProtobufWriter::new(descriptors, message, indexed)?))?;
    Ok(ValueWriter::new(Arc::new(writer)))
}

#[doc = stub!(protobuf_descriptors)]
#[pyfunction]
pub fn protobuf_descriptors<'py>(
    py: Python<'py>,
    texts: BTreeMap<String, String>,
    name: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let set = gate(py, |_| Ok(compile(texts, name)?))?;
    Ok(PyBytes::new(py, &set))
}
