//! A Python object store (`fletchlog.stores.Store`, over pyarrow) as the engine's [`ObjectStore`].
//!
//! The engine may hold a lock while it reads. So each request runs in its own thread, where no signal handler can run and wait for that
//! lock, and the thread that waits for the request does not hold the GIL.

use std::fmt;
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread::{Builder, scope};

use bytes::Bytes;
use fletchlog_log::fs::{Object, ObjectFs, ObjectStore};
use fletchlog_log::tiered::open_store;
use pyo3::exceptions::{PyFileNotFoundError, PyPermissionError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use std::sync::Arc;

use crate::engine_threads::call_python;
use crate::errors::Failure;
use crate::gate::gate;

/// The place that a path names (`fletchlog._place.Place`): its kind, and the path of the directory, the URI or the address.
pub fn place(py: Python<'_>, path: PathBuf) -> PyResult<(String, PathBuf)> {
    if !path.as_os_str().is_empty() && !path.as_os_str().as_encoded_bytes().contains(&b':') {
        return Ok(("directory".to_owned(), path));
    }
    let class = py.import("fletchlog._place")?.getattr("Place")?;
    let place = class.call1((path.as_os_str(),))?;
    Ok((place.getattr("kind")?.extract()?, place.getattr("name")?.extract()?))
}

/// Opens and lists a store. Returns it with its URI without secrets, for display.
pub fn open(py: Python<'_>, uri: &str, options: Option<&Bound<'_, PyAny>>) -> PyResult<(ObjectFs, String)> {
    let store = py.import("fletchlog.stores")?.call_method1("Store", (uri, options))?;
    let place: String = store.getattr("place")?.extract()?;
    let store = PyStore {
        store: store.unbind(),
        place: place.clone(),
    };
    let fs = gate(py, |_| {
        open_store(Arc::new(store), Path::new(&place)).map_err(|error| {
            let variant = match error.kind() {
                ErrorKind::NotFound | ErrorKind::InvalidData => "directory",
                _ => "storage",
            };
            Failure::of(variant, format!("{place}: {error}"))
        })
    })?;
    Ok((fs, place))
}

struct PyStore {
    store: Py<PyAny>,
    place: String,
}

impl fmt::Debug for PyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PyStore").field(&self.place).finish()
    }
}

/// Calls Python in a new thread. The caller does not hold the GIL: it came through [`gate`], or is a stream, which has released it.
fn apart<T: Send>(call: impl FnOnce(Python<'_>) -> PyResult<T> + Send) -> Result<T> {
    scope(|scope| {
        let thread = Builder::new().name("fletchlog-store".to_owned());
        let request = || {
            let answer = call_python(|py| call(py).map_err(|error| to_io(py, &error)));
            answer.unwrap_or_else(|| {
                Err(Error::other(
                    "the interpreter is ending: no request to the store is sent",
                ))
            })
        };
        let answer = thread.spawn_scoped(scope, request)?.join();
        answer.unwrap_or_else(|panic| Err(Error::other(Failure::panic(&*panic).to_string())))
    })
}

fn to_io(py: Python<'_>, error: &PyErr) -> Error {
    let kind = if error.is_instance_of::<PyFileNotFoundError>(py) {
        ErrorKind::NotFound
    } else if error.is_instance_of::<PyPermissionError>(py) {
        ErrorKind::PermissionDenied
    } else {
        ErrorKind::Other
    };
    Error::new(kind, error.value(py).to_string())
}

impl ObjectStore for PyStore {
    fn list(&self) -> Result<Vec<Object>> {
        apart(|py| {
            let listed: Vec<(String, u64, i64)> = self.store.call_method0(py, "list")?.extract(py)?;
            let object = |(key, len, modified_ms)| Object { key, len, modified_ms };
            Ok(listed.into_iter().map(object).collect())
        })
    }

    fn read(&self, object: &Object, range: Range<u64>) -> Result<Bytes> {
        apart(|py| {
            let arguments = (&object.key, object.len, range.start, range.end - range.start);
            let read: PyBackedBytes = self.store.call_method1(py, "read", arguments)?.extract(py)?;
            Ok(Bytes::copy_from_slice(&read))
        })
    }
}
