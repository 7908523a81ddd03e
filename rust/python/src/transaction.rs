//! `fletchlog.types.Transaction`: the context manager over a producer's begin, commit and abort.

use fletchlog_api::ErrorCode;
use fletchlog_client::ClientError;
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
            return producer.settled(py, |producer, stop| {
                // the block itself has ended the transaction
                if !producer.has_ongoing_transaction() {
                    return Ok(());
                }
                let committed = producer.commit_transaction(stop);
                if matches!(&committed, Err(ClientError::Kafka { code, .. }) if *code == ErrorCode::TRANSACTION_ABORTABLE)
                    && let Err(error) = producer.abort_transaction(stop)
                {
                    log::warn!("a transaction that had failed could not be aborted: {error}");
                }
                committed
            });
        };
        let aborted = producer.settled(py, |producer, stop| {
            if producer.has_ongoing_transaction() {
                producer.abort_transaction(stop)?;
            }
            Ok(())
        });
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
