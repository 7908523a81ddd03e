//! Reads the records of one `.log` file without a broker, for `fletchlog dump --records`. Changes nothing.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use fletchlog_arrow::{Column, RowsBuilder};
use fletchlog_log::LogError;
use fletchlog_log::fs::{Fs, RealFs};
use fletchlog_records::{BatchIter, DECOMPRESSION_LIMIT, RecordCursor, TimeRange, TopicPartition, next_batch_size};
use pyo3::prelude::*;

use crate::errors::Failure;
use crate::gate::gate;
use crate::scan_arguments::in_unit;
use crate::table::Table;

/// No further batch is read once keys, values and headers have this many bytes: compressed batches expand.
const MOST_PAYLOAD: usize = 16 << 20;
/// Bytes read at a time: a few hundred batches of a default producer. A batch that is larger is read whole.
const READ_BYTES: usize = 4 << 20;

#[doc = stub!(segment_records)]
#[pyfunction]
pub fn segment_records(
    py: Python<'_>,
    path: PathBuf,
    topic: &str,
    partition: i32,
    position: u64,
) -> PyResult<(Table, Option<u64>)> {
    gate(py, |_| {
        let tp = TopicPartition::new(topic, partition);
        let columns = in_unit(Column::of_kafka(true), "ms")?;
        let mut builder = RowsBuilder::of(&columns, TimeRange::ALL);
        let mut batches = BatchIter::new(read(&path, position)?);
        while builder.payload_bytes() < MOST_PAYLOAD
            && let Some(batch) = batches.next().transpose()?
        {
            let place = |e| Failure::from(e).at(&tp, batch.header().base_offset);
            batch.ensure_valid().map_err(place)?;
            if batch.header().is_control() {
                continue;
            }
            let slice = batch.records(DECOMPRESSION_LIMIT).map_err(place)?;
            builder
                .append_records(&tp, &slice, &mut RecordCursor::new(), usize::MAX, i64::MIN, i64::MAX)
                .map_err(place)?;
        }
        let done = u64::try_from(batches.position()).unwrap_or(0);
        Ok((
            Table::new(builder.finish()),
            (done > 0).then(|| position.saturating_add(done)),
        ))
    })
}

/// Bytes from `position` on, with at least one whole batch if one exists.
fn read(path: &Path, position: u64) -> Result<Bytes, Failure> {
    let failed = |action: &'static str| {
        move |source| LogError::Io {
            action,
            path: path.to_path_buf(),
            source,
        }
    };
    let file = RealFs::new().open(path, false, false).map_err(failed("open"))?;
    let mut wanted = READ_BYTES;
    loop {
        let bytes = file.read_at(position, wanted).map_err(failed("read"))?;
        match next_batch_size(&bytes)? {
            Some(size) if size > wanted => wanted = size,
            _ => return Ok(bytes),
        }
    }
}
