//! Walking the batches of a `.log` file by their headers, without reading their records (file rules of spec 1.1).
//! Kafka: `FileLogInputStream`.

use std::io;
use std::path::Path;

use bytes::Bytes;
use fletchlog_records::batch_header::{HEADER_SIZE_UP_TO_MAGIC, LOG_OVERHEAD, MIN_LENGTH_FIELD, RECORD_BATCH_OVERHEAD};
use fletchlog_records::planted;
use fletchlog_records::{BatchHeader, RecordBatch, RecordError, legacy};

use crate::LogError;
use crate::fs::File;

/// Header bytes read at once while batches are small: a page holds the headers of up to 58 one-record batches.
const CHUNK: usize = 4096;
/// Header bytes read at once while batches are large.
const ONE_HEADER: usize = 64;
/// A log is checked in pieces of this size (or of one batch, if larger): large enough to hide the system call, small
/// enough to stay in the cache between reading and checksumming.
const CHECK_CHUNK: usize = 512 * 1024;

/// A batch in a file. For v0/v1 entries `header` holds the equivalent v2 view.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchMeta {
    pub position: u64,
    pub header: BatchHeader,
}

impl BatchMeta {
    pub fn size(&self) -> u64 {
        self.header.size_in_bytes() as u64
    }
    pub fn end(&self) -> u64 {
        self.position + self.size()
    }
    pub fn last_offset(&self) -> i64 {
        self.header.last_offset()
    }
}

/// Which offsets the next batch of a segment may have. Offsets only increase, with gaps where compaction removed records. No
/// checksum covers a base offset: only this check detects a changed one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OffsetOrder {
    next: i64,
    end: i64,
}

impl OffsetOrder {
    /// Starts at the base offset of a segment and allows the offsets that fit its index (31 bits).
    pub fn of_segment(base: i64) -> Self {
        Self {
            next: base,
            end: base.saturating_add(1 << 31),
        }
    }

    /// Also requires offsets at or above this one.
    pub fn from(self, offset: i64) -> Self {
        Self {
            next: self.next.max(offset),
            ..self
        }
    }

    /// Also requires offsets below this one, where the next segment begins or the log ends.
    pub fn below(self, end: i64) -> Self {
        Self {
            end: self.end.min(end),
            ..self
        }
    }

    /// The lowest offset that the next batch may begin with.
    pub fn next(&self) -> i64 {
        self.next
    }

    /// Accepts the next batch, or returns why its offsets do not belong here.
    pub fn accept(&mut self, base_offset: i64, last_offset_delta: i32) -> Result<(), String> {
        if base_offset < self.next && !planted!("base-offsets-believed") {
            return Err(format!(
                "offset {base_offset} comes where {} or more belongs",
                self.next
            ));
        }
        let last = base_offset.checked_add(i64::from(last_offset_delta));
        match last.filter(|last| (base_offset..self.end).contains(last)) {
            Some(last) => {
                self.next = last + 1;
                Ok(())
            }
            None => Err(format!(
                "the batch at offset {base_offset} ends {last_offset_delta} offsets later, but must end below {}",
                self.end
            )),
        }
    }
}

/// Why a walk ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WalkEnd {
    /// At the end of the file.
    EndOfFile,
    /// At a batch that is longer than the rest of the file, or at fewer than 18 bytes.
    Partial,
    /// At a length field below the smallest entry: Kafka refuses such a file even after a clean stop.
    TooShort(String),
    /// At bytes that are not a batch, or whose checksum is wrong.
    Corrupt(String),
    /// At a batch whose offsets do not follow those before it, or do not belong to the segment.
    Disorder(String),
}

impl WalkEnd {
    pub fn reason(&self) -> &str {
        match self {
            Self::EndOfFile => "end of file",
            Self::Partial => "the last batch is incomplete",
            Self::TooShort(reason) | Self::Corrupt(reason) | Self::Disorder(reason) => reason,
        }
    }

    /// Returns an error if the walk ended at out-of-order offsets. For callers that ignore every other end.
    pub fn unless_disorder(&self, path: &Path, position: u64) -> Result<(), LogError> {
        match self {
            Self::Disorder(reason) => Err(LogError::damaged(
                path,
                position,
                format!("{reason}; run verify, or restore the file"),
            )),
            _ => Ok(()),
        }
    }
}

enum Parsed {
    Batch(BatchHeader),
    /// This many bytes are needed.
    Needs(usize),
    End(WalkEnd),
}

/// Parses the header at the start of `head`; `left`: bytes from there to the end of the file.
fn parse(head: &[u8], left: u64) -> Parsed {
    if left == 0 {
        return Parsed::End(WalkEnd::EndOfFile);
    }
    if left <= HEADER_SIZE_UP_TO_MAGIC as u64 {
        return Parsed::End(WalkEnd::Partial);
    }
    let Some(prefix) = head.get(..HEADER_SIZE_UP_TO_MAGIC) else {
        return Parsed::Needs(RECORD_BATCH_OVERHEAD);
    };
    let length = i32::from_be_bytes([prefix[8], prefix[9], prefix[10], prefix[11]]);
    if length < MIN_LENGTH_FIELD {
        return Parsed::End(WalkEnd::TooShort(format!(
            "length field {length} is below {MIN_LENGTH_FIELD}, the smallest entry"
        )));
    }
    let size = LOG_OVERHEAD as u64 + u64::from(length.unsigned_abs());
    if size > left {
        return Parsed::End(WalkEnd::Partial);
    }
    let magic = i8::from_be_bytes([prefix[16]]);
    if magic >= 2 {
        if size < RECORD_BATCH_OVERHEAD as u64 {
            return Parsed::End(WalkEnd::Corrupt(format!(
                "a batch of {size} bytes is below its header of {RECORD_BATCH_OVERHEAD}"
            )));
        }
        let Some(header) = head.get(..RECORD_BATCH_OVERHEAD) else {
            return Parsed::Needs(RECORD_BATCH_OVERHEAD);
        };
        return match BatchHeader::parse(header) {
            Ok(header) => Parsed::Batch(header),
            Err(e) => Parsed::End(WalkEnd::Corrupt(e.to_string())),
        };
    }
    let Some(needed) = legacy::header_size(magic).filter(|needed| size >= *needed as u64) else {
        return Parsed::End(WalkEnd::Corrupt(format!("magic {magic} with {size} bytes is no batch")));
    };
    match head.get(..needed) {
        Some(head) => Parsed::Batch(legacy::header(head)),
        None => Parsed::Needs(RECORD_BATCH_OVERHEAD),
    }
}

fn accept(order: &mut Option<OffsetOrder>, header: &BatchHeader) -> Result<(), String> {
    let take = |order: &mut OffsetOrder| order.accept(header.base_offset, header.last_offset_delta);
    order.as_mut().map_or(Ok(()), take)
}

/// Bytes needed to read the offsets of a batch in any format.
pub(crate) const OFFSETS_SIZE: usize = 27;

/// Returns base offset, last offset delta and size of the batch at the start of `head`, which may hold only part of it.
/// `None`: too few bytes, or not a batch.
pub(crate) fn offsets_in(head: &[u8]) -> Option<(i64, i32, usize)> {
    let head = head.first_chunk::<OFFSETS_SIZE>()?;
    let [b0, b1, b2, b3, b4, b5, b6, b7, l0, l1, l2, l3, ..] = *head;
    let base_offset = i64::from_be_bytes([b0, b1, b2, b3, b4, b5, b6, b7]);
    let length = i32::from_be_bytes([l0, l1, l2, l3]);
    let size = LOG_OVERHEAD + usize::try_from(length).ok().filter(|_| length >= MIN_LENGTH_FIELD)?;
    // Before v2 an entry has a single offset, that of its last record.
    let delta = match i8::from_be_bytes([head[16]]) {
        2.. => i32::from_be_bytes([head[23], head[24], head[25], head[26]]),
        _ => 0,
    };
    Some((base_offset, delta, size))
}

/// Walks headers from a position up to `end` (the readable length of the file).
pub(crate) struct HeaderWalk<'a> {
    file: &'a dyn File,
    position: u64,
    end: u64,
    order: Option<OffsetOrder>,
    buffer: [u8; CHUNK],
    buffered: std::ops::Range<u64>,
    read_ahead: usize,
}

impl<'a> HeaderWalk<'a> {
    pub fn new(file: &'a dyn File, position: u64, end: u64) -> Self {
        Self {
            file,
            position,
            end,
            order: None,
            buffer: [0; CHUNK],
            buffered: 0..0,
            read_ahead: ONE_HEADER,
        }
    }

    /// Ends the walk at the first batch whose offsets violate this order. Without this call the offsets are not checked.
    pub fn in_order(self, order: OffsetOrder) -> Self {
        Self {
            order: Some(order),
            ..self
        }
    }

    /// The position of the next batch; after the end, where the walk stopped.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next batch, or why there is none.
    pub fn next(&mut self) -> io::Result<Result<BatchMeta, WalkEnd>> {
        let left = self.end.saturating_sub(self.position);
        loop {
            let head = if self.buffered.contains(&self.position) {
                // Both differences are below CHUNK.
                let from = usize::try_from(self.position - self.buffered.start).unwrap_or(0);
                let to = usize::try_from(self.buffered.end - self.buffered.start).unwrap_or(0);
                &self.buffer[from..to]
            } else {
                &[]
            };
            match parse(head, left) {
                Parsed::End(end) => return Ok(Err(end)),
                Parsed::Batch(header) => {
                    if let Err(reason) = accept(&mut self.order, &header) {
                        return Ok(Err(WalkEnd::Disorder(reason)));
                    }
                    let batch = BatchMeta {
                        position: self.position,
                        header,
                    };
                    self.position = batch.end();
                    self.read_ahead = if batch.size() * 2 <= CHUNK as u64 {
                        CHUNK
                    } else {
                        ONE_HEADER
                    };
                    return Ok(Ok(batch));
                }
                Parsed::Needs(bytes) => {
                    // If the file was cut meanwhile, the missing bytes make this a partial batch.
                    if (head.len() as u64) < left.min(bytes as u64) {
                        let want = usize::try_from(left).unwrap_or(CHUNK).min(self.read_ahead.max(bytes));
                        let n = self.file.read_into(self.position, &mut self.buffer[..want])?;
                        self.buffered = self.position..self.position + n as u64;
                        if (n as u64) >= left.min(bytes as u64) {
                            continue;
                        }
                    }
                    return Ok(Err(WalkEnd::Partial));
                }
            }
        }
    }
}

/// Walks whole batches with their bytes, checking each completely (size and CRC). Kafka: `ensureValid` per batch.
pub(crate) struct CheckedWalk<'a> {
    file: &'a dyn File,
    position: u64,
    end: u64,
    order: Option<OffsetOrder>,
    chunk: Bytes,
}

impl<'a> CheckedWalk<'a> {
    pub fn new(file: &'a dyn File, position: u64, end: u64) -> Self {
        Self {
            file,
            position,
            end,
            order: None,
            chunk: Bytes::new(),
        }
    }

    /// As [`HeaderWalk::in_order`].
    pub fn in_order(self, order: OffsetOrder) -> Self {
        Self {
            order: Some(order),
            ..self
        }
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next valid batch and its bytes, or why there is none.
    pub fn next(&mut self) -> io::Result<Result<(BatchMeta, Bytes), WalkEnd>> {
        let left = self.end.saturating_sub(self.position);
        loop {
            let needed = match parse(&self.chunk, left) {
                Parsed::End(end) => return Ok(Err(end)),
                Parsed::Needs(bytes) => bytes,
                Parsed::Batch(header) if header.size_in_bytes() > self.chunk.len() => header.size_in_bytes(),
                Parsed::Batch(header) => {
                    let bytes = self.chunk.split_to(header.size_in_bytes());
                    if let Err(e) = check(&header, &bytes) {
                        return Ok(Err(WalkEnd::Corrupt(e.to_string())));
                    }
                    if let Err(reason) = accept(&mut self.order, &header) {
                        return Ok(Err(WalkEnd::Disorder(reason)));
                    }
                    let batch = BatchMeta {
                        position: self.position,
                        header,
                    };
                    self.position = batch.end();
                    return Ok(Ok((batch, bytes)));
                }
            };
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(needed.max(CHECK_CHUNK));
            let before = self.chunk.len();
            self.chunk = self.file.read_at(self.position, want)?;
            if self.chunk.len() <= before {
                return Ok(Err(WalkEnd::Partial));
            }
        }
    }
}

/// Checks a whole batch. The CRC does not cover the magic byte: like a file scan, this takes any magic >= 2 for v2.
pub(crate) fn check(header: &BatchHeader, bytes: &Bytes) -> Result<(), RecordError> {
    if header.magic < 2 {
        return RecordBatch::parse(bytes)?.map_or(Ok(()), |batch| batch.ensure_valid());
    }
    header.check_crc(bytes)
}
