//! `fletchlog.types.Transaction`: the context manager over a producer's begin, commit and abort.

use pyo3::prelude::*;

use crate::convert::unpicklable;
use crate::producer::Producer;

#[doc = stub!(Transaction)]
#[pyclass(frozen, generic, module = "fletchlog.types")]
pub struct Transaction {
    producer: Py<Producer>,
}

impl Transaction {
    /// A transaction that has not begun.
    pub fn new(producer: Py<Producer>) -> Self {
        Self { producer }
    }
}

#[pymethods]
impl Transaction {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let producer = self.producer.bind(py).repr()?;
        Ok(format!("<fletchlog.types.Transaction of {producer}>"))
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<Producer>> {
        self.producer
            .get()
            .engine()
            .call(py, |producer, _| producer.begin_transaction())?;
        Ok(self.producer.clone_ref(py))
    }

    #[pyo3(signature = (_class, exception, _traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        exception: Option<&Bound<'_, PyAny>>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let producer = self.producer.get();
        let Some(exception) = exception else {
            return producer._commit_if_open(py);
        };
        let aborted = producer._abort_if_open(py);
        if let Err(error) = aborted {
            // the block's own exception is the one to raise
            let note = format!("the transaction could not be aborted: {error}");
            exception.call_method1(pyo3::intern!(py, "add_note"), (note,))?;
        }
        Ok(())
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("Transaction", "the directory's path and the configuration"))
    }
}
