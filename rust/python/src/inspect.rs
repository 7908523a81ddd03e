//! Inspection of files without a broker: `fletchlog.files.inspect_segment` and `fletchlog.files.verify`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use arrow_array::{BooleanArray, Int8Array, Int16Array, Int32Array, Int64Array, StringArray, UInt32Array, UInt64Array};
use fletchlog_api::Clock;
use fletchlog_api::transport::SystemClock;
use fletchlog_log::checkpoint::read_offset_checkpoint;
use fletchlog_log::file_name::{CLEANER_CHECKPOINT, LOG, PARTITION_METADATA};
use fletchlog_log::fs::{DirEntry, Fs, RealFs};
use fletchlog_log::verify::Problem;
use fletchlog_log::{
    BatchDescription, LogError, OffsetCheckpoints, PartitionReport, inspect_segment as inspect, verify_partition,
};
use fletchlog_records::TopicPartition;
use fletchlog_records::control::ControlType;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::{
    cut_class, partition_report_class, problem_class, producer_state_class, segment_inspection_class,
    segment_report_class,
};
use crate::errors::Failure;
use crate::gate::gate;
use crate::table::Table;
use crate::trace::{columns, table};

#[doc = stub!(inspect_segment)]
#[pyfunction]
pub fn inspect_segment(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    let (size, batches, tail) = gate(py, |stop| {
        let mut batches = inspect(&RealFs::new(), &path)?;
        let mut rows = Vec::new();
        for batch in &mut batches {
            rows.push(batch?);
            // a segment may have a gigabyte, so check for Ctrl-C
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
    table(columns!(rows.iter(), b => {
        "position": UInt64Array = Some(b.position),
        "size": UInt64Array = Some(b.size),
        "magic": Int8Array = Some(b.magic),
        "base_offset": Int64Array = Some(b.base_offset),
        "last_offset": Int64Array = Some(b.last_offset),
        "records": Int32Array = Some(b.records_count),
        "codec": StringArray = Some(b.codec.as_str()),
        "timestamp_type": Int8Array = Some(b.timestamp_type as i8),
        "base_timestamp": Int64Array = Some(b.base_timestamp),
        "max_timestamp": Int64Array = Some(b.max_timestamp),
        "producer_id": Int64Array = producer(b).then_some(b.producer_id),
        "producer_epoch": Int16Array = producer(b).then_some(b.producer_epoch),
        "base_sequence": Int32Array = (b.base_sequence >= 0).then_some(b.base_sequence),
        "last_sequence": Int32Array = (b.base_sequence >= 0).then_some(b.last_sequence),
        "leader_epoch": Int32Array = Some(b.partition_leader_epoch),
        "transactional": BooleanArray = Some(b.is_transactional),
        "control": BooleanArray = Some(b.is_control),
        "marker": StringArray = b.marker.map(|marker| marker_name(marker.control_type)),
        "crc": UInt32Array = Some(b.crc),
        "crc_valid": BooleanArray = Some(b.crc_valid),
        "error": StringArray = b.error.as_deref(),
    }))
}

fn marker_name(kind: ControlType) -> &'static str {
    match kind {
        ControlType::Abort => "abort",
        ControlType::Commit => "commit",
        ControlType::Other(_) => "other",
    }
}

#[doc = stub!(verify)]
#[pyfunction]
pub fn verify(py: Python<'_>, directory: PathBuf) -> PyResult<Vec<Bound<'_, PyAny>>> {
    let reports = gate(py, |stop| {
        let fs = RealFs::new();
        let now_ms = SystemClock::default().now_ms();
        let (mut reports, mut checkpoints) = (Vec::new(), OffsetCheckpoints::default());
        for dir in find_partitions(&fs, &directory)? {
            if stop() {
                return Err(Failure::interrupted());
            }
            let report = verify_partition(&fs, &dir, now_ms, &mut checkpoints)?;
            reports.push((dir, report));
        }
        if reports.is_empty() {
            return Err(no_partition(&directory));
        }
        Ok(reports)
    })?;
    reports
        .iter()
        .map(|(dir, report)| report_to_py(py, dir, report))
        .collect()
}

#[doc = stub!(partition_directories)]
#[pyfunction]
pub fn partition_directories(py: Python<'_>, directory: PathBuf) -> PyResult<Vec<(PathBuf, u64)>> {
    gate(py, |_| {
        let fs = RealFs::new();
        let mut found = Vec::new();
        for path in find_partitions(&fs, &directory)? {
            let bytes = segments(&fs, &path)?.iter().map(|entry| entry.len).sum();
            found.push((path, bytes));
        }
        if found.is_empty() {
            return Err(no_partition(&directory));
        }
        Ok(found)
    })
}

#[doc = stub!(segment_files)]
#[pyfunction]
pub fn segment_files(py: Python<'_>, directory: PathBuf) -> PyResult<Vec<PathBuf>> {
    gate(py, |_| {
        let mut files: Vec<_> = segments(&RealFs::new(), &directory)?
            .into_iter()
            .map(|entry| directory.join(entry.name))
            .collect();
        files.sort();
        Ok::<_, Failure>(files)
    })
}

/// The `.log` files of a directory.
fn segments(fs: &dyn Fs, directory: &Path) -> Result<Vec<DirEntry>, LogError> {
    let mut entries = list(fs, directory)?;
    entries.retain(|entry| entry.name.ends_with(LOG));
    Ok(entries)
}

fn list(fs: &dyn Fs, directory: &Path) -> Result<Vec<DirEntry>, LogError> {
    fs.read_dir(directory).map_err(|source| LogError::Io {
        action: "list",
        path: directory.to_path_buf(),
        source,
    })
}

#[doc = stub!(clean_offsets)]
#[pyfunction]
pub fn clean_offsets(py: Python<'_>, log_dir: PathBuf) -> PyResult<BTreeMap<(String, i32), i64>> {
    let offsets = gate(py, |_| {
        let found = read_offset_checkpoint(&RealFs::new(), &log_dir.join(CLEANER_CHECKPOINT))?;
        Ok::<_, Failure>(found)
    })?;
    let row = |(tp, offset): (TopicPartition, i64)| ((tp.topic.to_string(), tp.partition), offset);
    Ok(offsets.into_iter().map(row).collect())
}

fn no_partition(directory: &Path) -> Failure {
    Failure::directory(format!(
        "{} holds no partition; give a broker's directory",
        directory.display()
    ))
}

/// Partition directories: the directory itself, those in it, and those in its `node-N`.
fn find_partitions(fs: &dyn Fs, directory: &Path) -> Result<Vec<PathBuf>, LogError> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_path_buf()];
    while let Some(path) = open.pop() {
        let entries = list(fs, &path)?;
        if entries
            .iter()
            .any(|entry| entry.name == PARTITION_METADATA || entry.name.ends_with(LOG))
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
    let cuts = report.would_cut.iter();
    let cuts = cuts
        .map(|cut| cut_class(py)?.call1((&cut.path, cut.from, cut.size, &cut.reason)))
        .collect::<PyResult<Vec<_>>>()?;
    let segments = report.segments.iter();
    let segments = segments
        .map(|s| {
            let row = (
                &s.path,
                s.base_offset,
                s.next_offset,
                s.size,
                s.batches,
                s.records,
                s.max_timestamp,
            );
            segment_report_class(py)?.call1(row)
        })
        .collect::<PyResult<Vec<_>>>()?;
    let producers = report.producers.iter();
    let producers = producers
        .map(|p| {
            let row = (
                p.producer_id,
                p.epoch,
                p.last_sequence,
                p.last_offset,
                p.last_timestamp,
                p.expired,
            );
            producer_state_class(py)?.call1(row)
        })
        .collect::<PyResult<Vec<_>>>()?;
    // A tuple of arguments has at most twelve.
    let more = PyDict::new(py);
    more.set_item("log_start_offset", report.log_start_offset)?;
    more.set_item("log_end_offset", report.log_end_offset)?;
    more.set_item("segment_reports", segments)?;
    more.set_item("producer_states", producers)?;
    let fields = (
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
    );
    partition_report_class(py)?.call(fields, Some(&more))
}
