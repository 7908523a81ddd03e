//! Times from Python, by one rule. A duration is an int of milliseconds, as the names `..._ms` say, or a `datetime.timedelta`. A point in
//! time is an int of milliseconds since 1970 or a `datetime.datetime` with a zone. A datetime without one is refused: Python takes it for
//! local time, Arrow and Spark for UTC. A float is refused: its unit would be unclear. Only `RecordFuture.result(timeout=)` takes seconds,
//! as all Python futures do.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyFloat};

use crate::convert::describe;
use crate::errors::Failure;
use crate::once::once;

/// How long to wait, in milliseconds, not negative.
#[derive(Debug, Clone, Copy)]
pub struct Wait(pub i64);

/// How long to wait, given in seconds; in milliseconds, not negative.
#[derive(Debug, Clone, Copy)]
pub struct Seconds(pub i64);

/// The time of a record, in milliseconds since 1970: the millisecond in which a datetime lies.
#[derive(Debug, Clone, Copy)]
pub struct Moment(pub i64);

/// The start of a range of times, in milliseconds since 1970: the first millisecond that is not before a datetime.
#[derive(Debug, Clone, Copy)]
pub struct TimeBound(pub i64);

fn class<'py>(py: Python<'py>, cell: &'static PyOnceLock<Py<PyAny>>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    once(py, cell, || py.import("datetime")?.getattr(name).map(Bound::unbind)).map(|class| class.bind(py).clone())
}

/// `datetime.timedelta`.
pub fn timedelta_class(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    class(py, &CLASS, "timedelta")
}

/// `datetime.datetime`.
pub fn datetime_class(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    class(py, &CLASS, "datetime")
}

/// `datetime.date`.
pub fn date_class(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    class(py, &CLASS, "date")
}

/// `datetime.UTC`.
fn utc(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static ZONE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    class(py, &ZONE, "UTC")
}

/// 1970 without a zone.
pub fn naive_epoch(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static EPOCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let epoch = once(py, &EPOCH, || Ok(datetime_class(py)?.call1((1970, 1, 1))?.unbind()))?;
    Ok(epoch.bind(py).clone())
}

/// 1970 in UTC.
pub fn utc_epoch(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static EPOCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let epoch = once(py, &EPOCH, || {
        Ok(datetime_class(py)?.call1((1970, 1, 1, 0, 0, 0, 0, utc(py)?))?.unbind())
    })?;
    Ok(epoch.bind(py).clone())
}

/// A timedelta in microseconds.
pub fn microseconds(delta: &Bound<'_, PyAny>) -> PyResult<i64> {
    let part = |name| delta.getattr(name)?.extract::<i64>();
    let (days, seconds, micros) = (part("days")?, part("seconds")?, part("microseconds")?);
    // At most 999,999,999 days: 8.64e19 would not fit, so it is cut at 292,000 years.
    let seconds = days.saturating_mul(86_400).saturating_add(seconds);
    Ok(seconds.saturating_mul(1_000_000).saturating_add(micros))
}

/// Rounds up to whole milliseconds: a wait of a microsecond must not become 0.
fn up(micros: i64) -> i64 {
    micros.div_euclid(1000) + i64::from(micros.rem_euclid(1000) > 0)
}

fn too_large(value: &Bound<'_, PyAny>, error: PyErr, expected: &str) -> PyErr {
    if error.is_instance_of::<PyOverflowError>(value.py()) {
        return Failure::argument(format!(
            "{} is out of range: {expected} are from {} to {}",
            describe(value),
            i64::MIN,
            i64::MAX
        ))
        .into();
    }
    PyTypeError::new_err(format!("expected {expected}, got {}", describe(value)))
}

fn not_negative(ms: i64) -> PyResult<i64> {
    if ms < 0 {
        return Err(Failure::argument(format!("a wait of {ms} ms is negative; give 0 or more milliseconds")).into());
    }
    Ok(ms)
}

impl FromPyObject<'_, '_> for Wait {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let value = &*value;
        if value.is_instance(&timedelta_class(value.py())?)? {
            return not_negative(up(microseconds(value)?)).map(Self);
        }
        if value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyBool>() {
            return Err(PyTypeError::new_err(format!(
                "expected milliseconds as an int (1500), or a datetime.timedelta (timedelta(seconds=1.5)), got {}",
                describe(value)
            )));
        }
        let ms = value
            .extract::<i64>()
            .map_err(|error| too_large(value, error, "milliseconds as an int, or a datetime.timedelta"))?;
        not_negative(ms).map(Self)
    }
}

impl FromPyObject<'_, '_> for Seconds {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let value = &*value;
        if value.is_instance(&timedelta_class(value.py())?)? {
            return not_negative(up(microseconds(value)?)).map(Self);
        }
        let seconds = number_of_seconds(value)?;
        if seconds.is_nan() || seconds < 0.0 {
            return Err(Failure::argument(format!("timeout is {seconds}; give 0 or more seconds")).into());
        }
        Ok(Self(rounded_up(seconds * 1000.0)))
    }
}

fn number_of_seconds(value: &Bound<'_, PyAny>) -> PyResult<f64> {
    value.extract::<f64>().map_err(|_| {
        PyTypeError::new_err(format!(
            "expected seconds as a number (1.5), or a datetime.timedelta, got {}",
            describe(value)
        ))
    })
}

/// Rounds up to whole milliseconds; what is less than a nanosecond beyond them comes from floating point: 16.1 s are 16,100.000000000002 ms.
#[allow(clippy::cast_possible_truncation)] // Larger numbers, and infinity, become the largest.
fn rounded_up(ms: f64) -> i64 {
    (ms - 1e-6).ceil() as i64
}

/// How far a clock is set ahead, in milliseconds: the sum of what is given, each with its unit and the milliseconds of that. Seconds may also be a
/// timedelta.
///
/// # Errors
/// Nothing is given, what is no number, a negative number, more than a hundred years.
pub fn ahead(given: [(&str, f64, Option<Bound<'_, PyAny>>); 5]) -> PyResult<i64> {
    /// A hundred years of 365 days: the broker stops for every check in between.
    const MOST_MS: i64 = 100 * 365 * 86_400_000;
    let mut sum: Option<i64> = None;
    for (unit, unit_ms, value) in given {
        let Some(value) = value else { continue };
        let refused = |why: &str| {
            let given = value.repr().map_or_else(|_| describe(&value), |text| text.to_string());
            Failure::argument(format!(
                "a clock is set ahead by 0 seconds to 100 years, got {unit}={given}: {why}"
            ))
        };
        let ms = milliseconds_ahead(&value, unit, unit_ms)?.ok_or_else(|| refused("it is no number"))?;
        if ms < 0 {
            return Err(refused("it cannot go back").into());
        }
        let all = sum.unwrap_or(0).saturating_add(ms);
        if all > MOST_MS {
            return Err(refused("use a smaller step").into());
        }
        sum = Some(all);
    }
    sum.ok_or_else(|| {
        PyTypeError::new_err(
            "expected seconds as a number (45) or a datetime.timedelta, or milliseconds=, minutes=, hours=, days=",
        )
    })
}

/// One of the numbers of [`ahead`], in milliseconds, -1 for a negative one; `None`: not a number.
fn milliseconds_ahead(value: &Bound<'_, PyAny>, unit: &str, unit_ms: f64) -> PyResult<Option<i64>> {
    if unit == "seconds" && value.is_instance(&timedelta_class(value.py())?)? {
        let micros = microseconds(value)?;
        return Ok(Some(if micros < 0 { -1 } else { up(micros) }));
    }
    let number = value
        .extract::<f64>()
        .ok()
        .filter(|_| !value.is_instance_of::<PyBool>());
    let number = number.ok_or_else(|| {
        let or = if unit == "seconds" {
            ", or a datetime.timedelta"
        } else {
            ""
        };
        PyTypeError::new_err(format!("expected {unit} as a number (45){or}, got {}", describe(value)))
    })?;
    // Rounded up, a small negative number would be 0.
    Ok((!number.is_nan()).then(|| if number < 0.0 { -1 } else { rounded_up(number * unit_ms) }))
}

/// A `datetime.datetime` as microseconds since 1970; `None` for anything else.
fn of_datetime(value: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    let py = value.py();
    let datetime = datetime_class(py)?;
    if !value.is_instance(&datetime)? {
        return Ok(None);
    }
    let offset = value.call_method0(intern!(py, "utcoffset")).map_err(|error| {
        // pandas' NaT is a datetime, and has none of its values.
        if !error.is_instance_of::<PyValueError>(py) {
            return error;
        }
        PyTypeError::new_err(format!("expected a time, got {}", describe(value)))
    })?;
    if offset.is_none() {
        let text = format!(
            "{} has no time zone; give it one: datetime.now(UTC), or .astimezone() if it is local time",
            value.repr()?
        );
        return Err(Failure::argument(text).into());
    }
    microseconds(&value.sub(utc_epoch(py)?)?).map(Some)
}

impl TimeBound {
    /// Converts a `datetime.datetime`; `None` for anything else.
    ///
    /// # Errors
    /// It has no time zone.
    pub fn of_datetime(value: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        Ok(of_datetime(value)?.map(|micros| Self(up(micros))))
    }
}

fn milliseconds(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    if value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err(format!(
            "expected milliseconds since 1970 as an int, or a datetime, got {}",
            describe(value)
        )));
    }
    let ms = value.extract::<i64>();
    ms.map_err(|error| too_large(value, error, "milliseconds since 1970 as an int, or a datetime"))
}

impl FromPyObject<'_, '_> for Moment {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        match of_datetime(&value)? {
            Some(micros) => Ok(Self(micros.div_euclid(1000))),
            None => milliseconds(&value).map(Self),
        }
    }
}

impl FromPyObject<'_, '_> for TimeBound {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        match Self::of_datetime(&value)? {
            Some(bound) => Ok(bound),
            None => milliseconds(&value).map(Self),
        }
    }
}
