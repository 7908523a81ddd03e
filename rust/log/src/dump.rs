//! Inspecting one `.log` file, batch by batch. Changes nothing. Kafka's counterpart: `DumpLogSegments`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_records::control::{EndTxnMarker, parse_control_record};
use fletchlog_records::{DECOMPRESSION_LIMIT, RecordBatch, RecordCursor, RecordError, TimestampType};

use crate::LogError;
use crate::batch_walk::{BatchMeta, HeaderWalk, WalkEnd, check};
use crate::fs::{File, Fs, open_to_read};

/// One batch of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the header fields of spec 1.1
pub struct BatchDescription {
    /// Byte position in the file.
    pub position: u64,
    /// Bytes.
    pub size: u64,
    pub magic: i8,
    pub base_offset: i64,
    pub last_offset: i64,
    /// The count in the header; 1 for an entry of an older format.
    pub records_count: i32,
    /// none, gzip, snappy, lz4, zstd, or the unknown id.
    pub codec: String,
    pub timestamp_type: TimestampType,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub last_sequence: i32,
    pub partition_leader_epoch: i32,
    pub is_transactional: bool,
    pub is_control: bool,
    /// When the cleaner may drop its tombstones.
    pub delete_horizon_ms: Option<i64>,
    /// Transaction marker of a control batch.
    pub marker: Option<EndTxnMarker>,
    pub crc: u32,
    /// Whether the stored checksum is right.
    pub crc_valid: bool,
    /// Why the records inside cannot be read.
    pub error: Option<String>,
}

/// The batches of a segment in file order. After the last, [`SegmentBatches::tail`] says why they end there.
#[derive(Debug)]
pub struct SegmentBatches {
    path: PathBuf,
    file: Arc<dyn File>,
    size: u64,
    position: u64,
    tail: Option<WalkEnd>,
}

/// Opens a `.log` file for inspection.
pub fn inspect_segment(fs: &dyn Fs, path: &Path) -> Result<SegmentBatches, LogError> {
    let file = open_to_read(fs, path)?;
    let size = file.len().map_err(|e| LogError::io("stat", path, e))?;
    Ok(SegmentBatches {
        path: path.to_path_buf(),
        file,
        size,
        position: 0,
        tail: None,
    })
}

impl SegmentBatches {
    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// After the last batch: the position where batches end and why, unless that is the end of the file.
    pub fn tail(&self) -> Option<(u64, String)> {
        self.tail
            .as_ref()
            .filter(|end| **end != WalkEnd::EndOfFile)
            .map(|end| (self.position, end.reason().to_string()))
    }

    pub(crate) fn next_batch(&mut self) -> Result<Option<(BatchMeta, BatchDescription)>, LogError> {
        if self.tail.is_some() {
            return Ok(None);
        }
        let io = |e| LogError::io("read", &self.path, e);
        let batch = match HeaderWalk::new(&*self.file, self.position, self.size)
            .next()
            .map_err(io)?
        {
            Ok(batch) => batch,
            Err(end) => {
                self.tail = Some(end);
                return Ok(None);
            }
        };
        let bytes = self
            .file
            .read_at(batch.position, batch.header.size_in_bytes())
            .map_err(io)?;
        if bytes.len() < batch.header.size_in_bytes() {
            self.tail = Some(WalkEnd::Partial);
            return Ok(None);
        }
        self.position = batch.end();
        Ok(Some((batch, describe(&batch, &bytes))))
    }
}

impl Iterator for SegmentBatches {
    type Item = Result<BatchDescription, LogError>;
    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_batch();
        if next.is_err() {
            self.tail = Some(WalkEnd::Corrupt("the file cannot be read".to_string()));
        }
        next.transpose().map(|next| next.map(|(_, description)| description))
    }
}

/// Walks all records. Returns the marker of a control batch.
fn records(bytes: &Bytes) -> Result<Option<EndTxnMarker>, RecordError> {
    let Some(batch) = RecordBatch::parse(bytes)? else {
        return Ok(None);
    };
    let slice = batch.records(DECOMPRESSION_LIMIT)?;
    let mut cursor = RecordCursor::new();
    let mut marker = None;
    let last_offset = batch.header().last_offset();
    while let Some(record) = cursor.next(&slice)? {
        if record.offset > last_offset {
            let offset = record.offset;
            let reason = format!("a record has offset {offset}, beyond the last one of its batch, {last_offset}");
            return Err(slice.invalid(&reason));
        }
        if batch.header().is_control() && marker.is_none() {
            marker = parse_control_record(record.key.unwrap_or_default(), record.value);
        }
    }
    Ok(marker)
}

fn describe(batch: &BatchMeta, bytes: &Bytes) -> BatchDescription {
    let header = &batch.header;
    let checked = check(header, bytes);
    let read = records(bytes);
    let crc_valid = checked.is_ok();
    let error = checked
        .err()
        .or_else(|| read.as_ref().err().cloned())
        .map(|e| e.to_string());
    BatchDescription {
        position: batch.position,
        size: batch.size(),
        magic: header.magic,
        base_offset: header.base_offset,
        last_offset: header.last_offset(),
        records_count: if header.magic < 2 { 1 } else { header.records_count },
        codec: header
            .compression()
            .map_or_else(|| (header.attributes & 7).to_string(), |codec| codec.name().to_string()),
        timestamp_type: header.timestamp_type(),
        base_timestamp: header.base_timestamp,
        max_timestamp: header.max_timestamp,
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        last_sequence: header.last_sequence(),
        partition_leader_epoch: header.partition_leader_epoch,
        is_transactional: header.is_transactional(),
        is_control: header.is_control(),
        delete_horizon_ms: header.has_delete_horizon().then_some(header.base_timestamp),
        marker: read.ok().flatten(),
        crc: header.crc,
        crc_valid,
        error,
    }
}
