//! Typed columns of `Broker.scan` and `Cluster.scan`: the engine reads bytes, `fletchlog.scans` decodes them batch by batch.

use std::sync::Arc;

use fletchlog_arrow::Column;
use pyo3::prelude::*;

use crate::deserializers::Deserializers;
use crate::scan_arguments::columns_from_py;

/// How a caller wants keys and values.
pub struct TypedArguments<'a, 'py> {
    /// The deserializer of the keys.
    pub key: Option<&'a Bound<'py, PyAny>>,
    /// The deserializer of the values.
    pub value: Option<&'a Bound<'py, PyAny>>,
    /// `raise`, `null` or `collect`.
    pub on_error: &'a str,
    /// Each field of a struct is a column.
    pub unnest: bool,
}

/// What decodes the rows of a scan.
pub struct Typed {
    /// A `fletchlog.scans._typed.ScanDecoder`.
    decoder: Py<PyAny>,
    /// The same for records one by one.
    deserializers: Option<Arc<Deserializers>>,
}

impl Typed {
    /// The decoder of columns.
    pub fn decoder(&self, py: Python<'_>) -> Py<PyAny> {
        self.decoder.clone_ref(py)
    }

    /// The deserializers of records.
    pub fn deserializers(&self) -> Option<Arc<Deserializers>> {
        self.deserializers.clone()
    }
}

impl TypedArguments<'_, '_> {
    /// The columns that the engine reads, and what decodes them; `None`: nothing is to be decoded.
    pub fn columns(
        &self,
        py: Python<'_>,
        columns: Option<&Bound<'_, PyAny>>,
        include_headers: bool,
        timestamp_unit: &str,
    ) -> PyResult<(Vec<Column>, Option<Typed>)> {
        if self.key.is_none() && self.value.is_none() && self.on_error == "raise" && !self.unnest {
            return Ok((columns_from_py(columns, include_headers, timestamp_unit)?, None));
        }
        let given = (self.key, self.value, self.on_error, self.unnest);
        let asked = (columns, include_headers, timestamp_unit);
        let decoder = py
            .import("fletchlog.scans._typed")?
            .call_method1("of_scan", (given, asked))?;
        let read = columns_from_py(Some(&decoder.getattr("reads")?), false, timestamp_unit)?;
        let typed = Typed {
            decoder: decoder.unbind(),
            deserializers: Deserializers::of_scan(self.key, self.value, self.on_error != "raise")?,
        };
        Ok((read, Some(typed)))
    }
}
