//! The deserializers of a consumer. They run when a record is handed out by itself; columns stay bytes.

use std::sync::Arc;

use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::convert::{describe, topic_partition_class};
use crate::errors::errors_module;

/// The places of the fields in `fletchlog.types.Record`.
const TOPIC: usize = 0;
const PARTITION: usize = 1;
const OFFSET: usize = 2;
const KEY: usize = 5;
const VALUE: usize = 6;
const HEADERS: usize = 7;

/// What turns the bytes of keys and values into objects.
pub struct Deserializers {
    key: Option<Deserializer>,
    value: Option<Deserializer>,
    /// What a deserializer refuses is `None`.
    is_lenient: bool,
}

impl Deserializers {
    /// `None` without any.
    pub fn from_py(key: Option<&Bound<'_, PyAny>>, value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Arc<Self>>> {
        Self::of_scan(key, value, false)
    }

    /// The same; `is_lenient`: `None` takes the place of what cannot be deserialized.
    pub fn of_scan(
        key: Option<&Bound<'_, PyAny>>,
        value: Option<&Bound<'_, PyAny>>,
        is_lenient: bool,
    ) -> PyResult<Option<Arc<Self>>> {
        if key.is_none() && value.is_none() {
            return Ok(None);
        }
        Ok(Some(Arc::new(Self {
            key: key.map(|given| Deserializer::from_py("key", given)).transpose()?,
            value: value.map(|given| Deserializer::from_py("value", given)).transpose()?,
            is_lenient,
        })))
    }

    /// The fields of a record with its key and its value deserialized, the key first.
    ///
    /// # Errors
    /// `RecordDeserializationError` for an `Exception` of a deserializer; anything else that it raises, as it is.
    pub fn apply<'py>(&self, fields: Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyTuple>> {
        let py = fields.py();
        let mut changed: Vec<Bound<'py, PyAny>> = fields.iter().collect();
        for (place, name, deserializer) in [(KEY, "key", &self.key), (VALUE, "value", &self.value)] {
            let Some(deserializer) = deserializer else { continue };
            if changed[place].is_none() {
                continue;
            }
            let made = deserializer.of(&changed[place], &changed[HEADERS]);
            changed[place] = match made {
                Err(error) if self.is_lenient && error.is_instance_of::<PyException>(py) => py.None().into_bound(py),
                made => made.map_err(|error| of_record(&fields, name, place, error))?,
            };
        }
        PyTuple::new(py, changed)
    }
}

struct Deserializer {
    /// A function from bytes to an object.
    function: Py<PyAny>,
    /// The header that has the beginning of the bytes, where a record has it: see `serde.Confluent`.
    header: Option<String>,
}

impl Deserializer {
    /// The argument itself, or what `fletchlog.serde` makes of a deserializer of columns.
    fn from_py(column: &str, given: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = given.py();
        let has = |attribute| given.hasattr(attribute);
        if has(intern!(py, "decode"))? && has(intern!(py, "type"))? && !given.is_instance_of::<PyType>() {
            let serde = py.import("fletchlog.serde.outcome")?;
            return Ok(Self {
                function: serde.call_method1("of_bytes", (given,))?.unbind(),
                header: has(intern!(py, "with_headers"))?.then(|| format!("__{column}_schema_id")),
            });
        }
        if given.is_callable() && !is_class_of_serde(given)? {
            return Ok(Self {
                function: given.clone().unbind(),
                header: None,
            });
        }
        let name = format!("{column}_deserializer");
        Err(PyTypeError::new_err(format!(
            "{name} is called as {name}(bytes) and returns the object: give a function or an object of fletchlog.serde, such as serde.Json(), got {}",
            describe(given)
        )))
    }

    fn of<'py>(&self, data: &Bound<'py, PyAny>, headers: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let function = self.function.bind(data.py());
        if let Some(name) = &self.header {
            let headers: Vec<(String, Option<Bound<'py, PyAny>>)> = headers.extract()?;
            let last = headers
                .into_iter()
                .rev()
                .find(|(key, value)| key == name && value.is_some());
            if let Some((_, Some(begin))) = last {
                return function.call1((begin.add(data)?,));
            }
        }
        function.call1((data,))
    }
}

/// Whether a class of `fletchlog.serde` is given in place of an object of it.
pub fn is_class_of_serde(given: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = given.py();
    Ok(given.is_instance_of::<PyType>()
        && given.hasattr(intern!(py, "decode"))?
        && given.hasattr(intern!(py, "encode"))?)
}

/// The error for a record whose key or value cannot be deserialized.
fn of_record(fields: &Bound<'_, PyTuple>, name: &str, place: usize, error: PyErr) -> PyErr {
    let py = fields.py();
    if !error.is_instance_of::<PyException>(py) {
        return error;
    }
    let build = || {
        let field = |place: usize| fields.get_item(place);
        let tp = topic_partition_class(py)?.call1((field(TOPIC)?, field(PARTITION)?))?;
        let why = error.value(py);
        let message = format!(
            "the {name} of {tp} at offset {} cannot be deserialized: {}: {}; the iteration can be continued with the next record",
            field(OFFSET)?,
            why.get_type().name()?,
            why.str()?
        );
        let more = PyDict::new(py);
        more.set_item("topic_partition", tp)?;
        more.set_item("offset", field(OFFSET)?)?;
        more.set_item("column", name)?;
        more.set_item("data", field(place)?)?;
        let class = errors_module(py)?.getattr("RecordDeserializationError")?;
        Ok::<_, PyErr>(PyErr::from_value(class.call((message,), Some(&more))?))
    };
    match build() {
        Ok(made) => {
            made.set_cause(py, Some(error));
            made
        }
        Err(failed) => failed,
    }
}
