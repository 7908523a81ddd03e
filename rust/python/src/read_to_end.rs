//! `Consumer.read_to_end`: polls up to the ends that the logs had when it was called.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use fletchlog_client::consumer::Until;
use pyo3::prelude::*;

use crate::consumer::Consumer;
use crate::convert::{some, unpicklable};
use crate::errors::Failure;
use crate::records::Records;

/// How long one poll waits. A poll may not notice that only records that nobody sees are left, such as the markers of transactions.
const POLL_MS: i64 = 100;

#[doc = stub!(RecordsToEnd)]
#[pyclass(frozen, generic, module = "fletchlog.types")]
pub struct RecordsToEnd {
    consumer: Py<Consumer>,
    ends: Until,
    timeout_ms: i64,
    /// Set when everything was read.
    is_over: Mutex<bool>,
}

impl RecordsToEnd {
    /// The records before these ends; a wait of more than `timeout_ms` for the next ones is an error.
    pub fn new(consumer: Py<Consumer>, ends: Until, timeout_ms: i64) -> Self {
        Self {
            consumer,
            ends,
            timeout_ms,
            is_over: Mutex::new(false),
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.lock().is_ok_and(|over| *over)
    }
}

#[pymethods]
impl RecordsToEnd {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[doc = stub!(RecordsToEnd.__next__)]
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Records>> {
        let until = Instant::now() + Duration::from_millis(self.timeout_ms.unsigned_abs());
        let consumer = self.consumer.bind(py).get();
        // The first poll only takes what is there: at the ends there is nothing to wait for.
        let mut wait_ms = 0;
        while !self.is_over() {
            let polled = consumer.poll_to(py, &self.ends, wait_ms)?;
            wait_ms = POLL_MS.min(self.timeout_ms);
            if polled.count() > 0 {
                return Ok(Some(consumer.records(polled)));
            }
            let behind = consumer.behind(py, &self.ends)?;
            if behind.is_empty() {
                if let Ok(mut over) = self.is_over.lock() {
                    *over = true;
                }
            } else if Instant::now() >= until {
                let text = format!(
                    "no records of {} within {} ms, and the end is not reached; the next step goes on waiting",
                    some(&behind),
                    self.timeout_ms
                );
                return Err(Failure::timeout(text).into());
            }
        }
        Ok(None)
    }

    fn __repr__(&self) -> String {
        let ends: Vec<_> = self.ends.iter().map(|(tp, end)| format!("{tp}[..{end}]")).collect();
        format!("<fletchlog.RecordsToEnd: {}>", some(&ends))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable(
            "RecordsToEnd",
            "the directory's path and the configuration",
        ))
    }
}
