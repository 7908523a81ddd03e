//! Looking at files without a broker: `fletchlog.inspect_segment` and `fletchlog.verify`.

use std::path::{Path, PathBuf};

use arrow_array::{BooleanArray, Int8Array, Int16Array, Int32Array, Int64Array, StringArray, UInt32Array, UInt64Array};
use fletchlog_api::Clock;
use fletchlog_api::transport::SystemClock;
use fletchlog_log::fs::{Fs, RealFs};
use fletchlog_log::verify::Problem;
use fletchlog_log::{BatchDescription, LogError, PartitionReport, inspect_segment as inspect, verify_partition};
use pyo3::prelude::*;

use crate::convert::{partition_report_class, problem_class, segment_inspection_class};
use crate::errors::Failure;
use crate::gate::gate;
use crate::table::Table;
use crate::trace::{column, table};

/// Every batch of a `.log` file, with what follows the last one.
#[pyfunction]
pub fn inspect_segment(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    let (size, batches, tail) = gate(py, |stop| {
        let mut batches = inspect(&RealFs::new(), &path)?;
        let mut rows = Vec::new();
        for batch in &mut batches {
            rows.push(batch?);
            // a segment may hold a gigabyte: answer Ctrl-C meanwhile
            if rows.len() % 1024 == 0 && stop() {
                return Err(Failure::interrupted());
            }
        }
        Ok((batches.size(), batch_table(&rows)?, batches.tail()))
    })?;
    segment_inspection_class(py)?.call1((path, size, batches, tail))
}

fn batch_table(rows: &[BatchDescription]) -> Result<Table, Failure> {
    let producer = |b: &BatchDescription| b.producer_id >= 0;
    table(vec![
        (
            "position",
            column::<UInt64Array, _>(rows.iter().map(|b| Some(b.position))),
        ),
        ("size", column::<UInt64Array, _>(rows.iter().map(|b| Some(b.size)))),
        ("magic", column::<Int8Array, _>(rows.iter().map(|b| Some(b.magic)))),
        (
            "base_offset",
            column::<Int64Array, _>(rows.iter().map(|b| Some(b.base_offset))),
        ),
        (
            "last_offset",
            column::<Int64Array, _>(rows.iter().map(|b| Some(b.last_offset))),
        ),
        (
            "records",
            column::<Int32Array, _>(rows.iter().map(|b| Some(b.records_count))),
        ),
        (
            "codec",
            column::<StringArray, _>(rows.iter().map(|b| Some(b.codec.as_str()))),
        ),
        (
            "timestamp_type",
            column::<Int8Array, _>(rows.iter().map(|b| Some(b.timestamp_type as i8))),
        ),
        (
            "base_timestamp",
            column::<Int64Array, _>(rows.iter().map(|b| Some(b.base_timestamp))),
        ),
        (
            "max_timestamp",
            column::<Int64Array, _>(rows.iter().map(|b| Some(b.max_timestamp))),
        ),
        (
            "producer_id",
            column::<Int64Array, _>(rows.iter().map(|b| producer(b).then_some(b.producer_id))),
        ),
        (
            "producer_epoch",
            column::<Int16Array, _>(rows.iter().map(|b| producer(b).then_some(b.producer_epoch))),
        ),
        (
            "base_sequence",
            column::<Int32Array, _>(rows.iter().map(|b| (b.base_sequence >= 0).then_some(b.base_sequence))),
        ),
        (
            "last_sequence",
            column::<Int32Array, _>(rows.iter().map(|b| (b.base_sequence >= 0).then_some(b.last_sequence))),
        ),
        (
            "leader_epoch",
            column::<Int32Array, _>(rows.iter().map(|b| Some(b.partition_leader_epoch))),
        ),
        (
            "transactional",
            column::<BooleanArray, _>(rows.iter().map(|b| Some(b.is_transactional))),
        ),
        (
            "control",
            column::<BooleanArray, _>(rows.iter().map(|b| Some(b.is_control))),
        ),
        (
            "marker",
            column::<StringArray, _>(rows.iter().map(|b| b.marker.map(|(kind, _)| marker_name(kind)))),
        ),
        ("crc", column::<UInt32Array, _>(rows.iter().map(|b| Some(b.crc)))),
        (
            "crc_valid",
            column::<BooleanArray, _>(rows.iter().map(|b| Some(b.crc_valid))),
        ),
        (
            "error",
            column::<StringArray, _>(rows.iter().map(|b| b.error.as_deref())),
        ),
    ])
}

fn marker_name(kind: i16) -> &'static str {
    match kind {
        0 => "abort",
        1 => "commit",
        _ => "other",
    }
}

/// Checks every partition of a broker's directory (or one partition's directory): batches, indexes, side files.
#[pyfunction]
pub fn verify(py: Python<'_>, directory: PathBuf) -> PyResult<Vec<Bound<'_, PyAny>>> {
    let reports = gate(py, |stop| {
        let fs = RealFs::new();
        let now_ms = SystemClock::default().now_ms();
        let mut reports = Vec::new();
        for dir in partition_directories(&fs, &directory)? {
            if stop() {
                return Err(Failure::interrupted());
            }
            let report = verify_partition(&fs, &dir, now_ms)?;
            reports.push((dir, report));
        }
        if reports.is_empty() {
            return Err(Failure::directory(format!(
                "{} holds no partition; give a broker's directory",
                directory.display()
            )));
        }
        Ok(reports)
    })?;
    reports
        .iter()
        .map(|(dir, report)| report_to_py(py, dir, report))
        .collect()
}

/// Partition directories: this one, those in it, those in its `node-N`.
fn partition_directories(fs: &dyn Fs, directory: &Path) -> Result<Vec<PathBuf>, LogError> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_path_buf()];
    while let Some(path) = open.pop() {
        let entries = fs.read_dir(&path).map_err(|source| LogError::Io {
            action: "list",
            path: path.clone(),
            source,
        })?;
        if entries
            .iter()
            .any(|entry| entry.name == "partition.metadata" || entry.name.ends_with(".log"))
        {
            found.push(path);
            continue;
        }
        let is_node = |path: &Path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("node-"))
        };
        if path == directory || is_node(&path) {
            open.extend(
                entries
                    .iter()
                    .filter(|entry| entry.is_dir)
                    .map(|entry| path.join(&entry.name)),
            );
        }
    }
    found.sort();
    Ok(found)
}

fn report_to_py<'py>(py: Python<'py>, dir: &Path, report: &PartitionReport) -> PyResult<Bound<'py, PyAny>> {
    let class = problem_class(py)?;
    let problems = |problems: &[Problem]| {
        problems
            .iter()
            .map(|p| class.call1((&p.path, p.position, &p.reason)))
            .collect::<PyResult<Vec<_>>>()
    };
    let name = dir
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let cuts: Vec<_> = report
        .would_cut
        .iter()
        .map(|cut| (&cut.path, cut.from, cut.size))
        .collect();
    partition_report_class(py)?.call1((
        dir,
        name,
        report.is_ok(),
        report.segments.len(),
        report.batches,
        report.records,
        problems(&report.damaged)?,
        problems(&report.index_problems)?,
        report.holes.clone(),
        report.producers.len(),
        report.open_transactions.clone(),
        cuts,
    ))
}
