//! `json_lines`: the input of pyarrow's JSON reader, for `fletchlog.serde.Json`.

use arrow_array::BinaryArray;
use arrow_array::cast::AsArray;
use fletchlog_arrow::json_lines::JsonLines;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::capsule::arrow_from_py;
use crate::errors::Failure;
use crate::gate::gate;

/// The lines, and for each row that is not JSON its index and the reason.
type Lines<'py> = (Bound<'py, PyBytes>, Vec<(usize, String)>);

#[doc = stub!(json_lines)]
#[pyfunction]
pub fn json_lines<'py>(py: Python<'py>, data: &Bound<'py, PyAny>) -> PyResult<Lines<'py>> {
    let incoming = arrow_from_py(data)?;
    let out = gate(py, |_| {
        let mut out = JsonLines::default();
        for batch in incoming {
            out.append(first_column(&batch?)?);
        }
        Ok(out)
    })?;
    Ok((PyBytes::new(py, &out.lines), out.malformed))
}

fn first_column(batch: &arrow_array::RecordBatch) -> Result<&BinaryArray, Failure> {
    batch
        .columns()
        .first()
        .and_then(|column| column.as_binary_opt::<i32>())
        .ok_or_else(|| Failure::argument("json_lines needs data whose first column is binary"))
}
