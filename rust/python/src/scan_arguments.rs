//! The arguments of `Broker.scan` and `Cluster.scan`.

use fletchlog_arrow::Column;
use fletchlog_log::FetchBound;
use fletchlog_log::scan::{ScanError, ScanOrder};
use fletchlog_records::TimeRange;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::convert::{describe, long, names_from_py, number_from_py};
use crate::errors::Failure;
use crate::time::TimeBound;

/// The records to read, and how.
pub struct Wanted<'a> {
    /// One partition; `None`: all of the topic.
    pub partition: Option<i32>,
    /// First offset; `None`: the log start.
    pub start_offset: Option<i64>,
    /// End (exclusive); `None`: the current end of the log.
    pub end_offset: Option<i64>,
    /// Rows per batch.
    pub batch_rows: usize,
    /// Columns of the batches, in this order.
    pub columns: Vec<Column>,
    /// read_uncommitted or read_committed.
    pub isolation_level: &'a str,
    /// offset or timestamp.
    pub order: &'a str,
    /// Range of the records' timestamps.
    pub times: TimeRange,
    /// Number of threads that decode.
    pub threads: usize,
    /// Only the last records of each partition.
    pub tail: Option<u64>,
}

/// The given number, else the number of cores.
pub fn threads_from_py(threads: Option<i64>) -> Result<usize, Failure> {
    match threads {
        Some(threads) => number_from_py::<u16>("threads", threads, 1).map(usize::from),
        None => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
    }
}

/// Up to where a reader of this isolation level sees a log.
pub fn bound_of(isolation_level: &str) -> Result<FetchBound, Failure> {
    match isolation_level {
        "read_uncommitted" => Ok(FetchBound::HighWatermark),
        "read_committed" => Ok(FetchBound::LastStableOffset),
        other => Err(Failure::argument(format!(
            "isolation_level is `{other}`; expected read_uncommitted or read_committed"
        ))),
    }
}

impl Wanted<'_> {
    /// Validates the arguments. Returns the bound and the order.
    pub fn checked(&self) -> Result<(FetchBound, ScanOrder), Failure> {
        let bound = bound_of(self.isolation_level)?;
        let order = match self.order {
            "offset" => ScanOrder::Offset,
            "timestamp" => ScanOrder::Timestamp,
            other => {
                return Err(Failure::argument(format!(
                    "order is `{other}`; expected offset or timestamp"
                )));
            }
        };
        for (name, offset) in [("start_offset", self.start_offset), ("end_offset", self.end_offset)] {
            if let Some(offset) = offset.filter(|offset| *offset < 0) {
                return Err(Failure::argument(format!("{name} is {offset}; offsets start at 0")));
            }
        }
        if self.tail.is_some() && (self.start_offset.is_some() || self.times != TimeRange::ALL) {
            let text = "tail is the last records before end_offset; it goes with neither start_offset nor start_time and end_time";
            return Err(Failure::argument(text));
        }
        if let (Some(start), Some(end)) = (self.start_offset, self.end_offset)
            && start > end
        {
            return Err(ScanError::Backwards { start, end }.into());
        }
        Ok((bound, order))
    }

    /// The time (ms) with which to look up the first offset; `None`: all. A lookup never finds records without a timestamp (-1).
    pub fn start_time(&self) -> Option<i64> {
        Some(self.times.first).filter(|time| *time >= 0)
    }
}

/// Kafka's columns with the timestamp in this unit.
///
/// # Errors
/// The unit does not exist.
pub fn in_unit(columns: &[Column], timestamp_unit: &str) -> Result<Vec<Column>, Failure> {
    let timestamp = match timestamp_unit {
        "us" => Column::Timestamp,
        "ms" => Column::TimestampMillis,
        other => {
            return Err(Failure::argument(format!(
                "timestamp_unit is `{other}`; expected us or ms"
            )));
        }
    };
    let of_unit = |column: &Column| match column {
        Column::Timestamp => timestamp,
        other => *other,
    };
    Ok(columns.iter().map(of_unit).collect())
}

/// The requested columns, in their order; all if none are given.
pub fn columns_from_py(
    columns: Option<&Bound<'_, PyAny>>,
    include_headers: bool,
    timestamp_unit: &str,
) -> PyResult<Vec<Column>> {
    let Some(columns) = columns else {
        return Ok(in_unit(Column::of_kafka(include_headers), timestamp_unit)?);
    };
    let all = || Column::ALL.map(Column::name).join(", ");
    let mut found = Vec::new();
    for name in names_from_py("column", columns)? {
        let Some(column) = Column::ALL.into_iter().find(|column| column.name() == &*name) else {
            let text = format!("columns: there is no column `{name}`; the columns are {}", all());
            return Err(Failure::argument(text).into());
        };
        if found.contains(&column) {
            return Err(Failure::argument(format!("columns names `{name}` twice; name each column once")).into());
        }
        found.push(column);
    }
    if found.is_empty() {
        return Err(Failure::argument(format!("columns is empty; name one or more of {}", all())).into());
    }
    if include_headers && !found.contains(&Column::Headers) {
        let text = "include_headers is True, but columns does not name `headers`; add it to columns, or leave include_headers out";
        return Err(Failure::argument(text).into());
    }
    Ok(in_unit(&found, timestamp_unit)?)
}

/// The times from `start_time` until before `end_time`.
pub fn times_from_py(start: Option<&Bound<'_, PyAny>>, end: Option<&Bound<'_, PyAny>>) -> PyResult<TimeRange> {
    let start = start.map(|time| time_from_py("start_time", time)).transpose()?;
    let end = end.map(|time| time_from_py("end_time", time)).transpose()?;
    if let (Some(start), Some(end)) = (start, end)
        && start > end
    {
        let text = format!("start_time is {start} and end_time {end} (ms); a range does not end before it starts");
        return Err(Failure::argument(text).into());
    }
    Ok(TimeRange::new(start, end))
}

/// Milliseconds since 1970: an int, or a datetime.
fn time_from_py(name: &str, time: &Bound<'_, PyAny>) -> PyResult<i64> {
    if let Ok(milliseconds) = long(time) {
        return Ok(milliseconds);
    }
    let Some(TimeBound(milliseconds)) = TimeBound::of_datetime(time)? else {
        let text = format!(
            "{name}: expected datetime or int (ms since 1970), got {}",
            describe(time)
        );
        return Err(PyTypeError::new_err(text));
    };
    Ok(milliseconds)
}
