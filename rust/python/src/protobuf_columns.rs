//! Readers and writers of Protobuf, and schemas as text, for `fletchlog.serde.Protobuf`.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_serde::protobuf::{self, ProtobufReader, ProtobufWriter};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::gate::gate;
use crate::value_columns::{ValueReader, ValueWriter};

#[doc = stub!(protobuf_reader)]
#[pyfunction]
#[pyo3(signature = (descriptors, message, *, indexes_of = None))]
pub fn protobuf_reader(
    py: Python<'_>,
    descriptors: &[u8],
    message: &str,
    indexes_of: Option<&[u8]>,
) -> PyResult<ValueReader> {
    let reader = gate(py, |_| Ok(ProtobufReader::new(descriptors, message, indexes_of)?))?;
    Ok(ValueReader::new(Arc::new(reader)))
}

#[doc = stub!(protobuf_writer)]
#[pyfunction]
#[pyo3(signature = (descriptors, message, *, indexed = false))]
pub fn protobuf_writer(py: Python<'_>, descriptors: &[u8], message: &str, indexed: bool) -> PyResult<ValueWriter> {
    let writer = gate(py, |_| Ok(ProtobufWriter::new(descriptors, message, indexed)?))?;
    Ok(ValueWriter::new(Arc::new(writer)))
}

/// A .proto file: its text, or the bytes of its descriptor.
#[derive(FromPyObject)]
pub enum Source {
    /// proto2 or proto3.
    Text(String),
    /// A serialised `FileDescriptorProto`.
    Descriptor(Vec<u8>),
}

#[doc = stub!(protobuf_file)]
#[pyfunction]
pub fn protobuf_file<'py>(py: Python<'py>, text: &str, name: &str) -> PyResult<Bound<'py, PyBytes>> {
    let file = gate(py, |_| Ok(protobuf::parse(text, name)?))?;
    Ok(PyBytes::new(py, &file))
}

#[doc = stub!(protobuf_descriptors)]
#[pyfunction]
pub fn protobuf_descriptors<'py>(
    py: Python<'py>,
    files: BTreeMap<String, Source>,
    name: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let files = files.into_iter().map(|(name, source)| match source {
        Source::Text(text) => (name, protobuf::Source::Text(text)),
        Source::Descriptor(bytes) => (name, protobuf::Source::Descriptor(bytes)),
    });
    let files = files.collect();
    let set = gate(py, |_| Ok(protobuf::compile(files, name)?))?;
    Ok(PyBytes::new(py, &set))
}
