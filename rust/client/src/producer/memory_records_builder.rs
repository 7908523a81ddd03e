//! The records of a batch while they are collected, then their bytes. Kafka: `MemoryRecordsBuilder`.

use bytes::Bytes;
use fletchlog_records::batch_header::RECORD_BATCH_OVERHEAD;
use fletchlog_records::crc::crc32c;
use fletchlog_records::{BatchBuilder, BatchParams, Header};

use super::config::ProducerConfig;
use super::producer_batch::ProducerIdAndEpoch;

/// Kafka: `COMPRESSION_RATE_ESTIMATION_FACTOR`.
const RATE_ESTIMATION_FACTOR: f32 = 1.05;

/// The records of one batch.
#[derive(Debug)]
pub(crate) struct MemoryRecordsBuilder {
    buffer: Buffer,
    /// Size of the buffer: the batch is full when the next record would exceed it.
    pub write_limit: usize,
    /// Estimated compressed/uncompressed; `None` without compression.
    ratio: Option<f32>,
    pub actual_ratio: f32,
    pub count: i32,
    /// Largest encoded record.
    pub max_record_size: usize,
}

#[derive(Debug)]
enum Buffer {
    Open(BatchBuilder),
    /// A thread appends to it, or compresses it, without the lock; the estimated size, and whether it was full, before that.
    Lent(usize, bool),
    Closed(Bytes),
}

impl MemoryRecordsBuilder {
    pub(crate) fn new(write_limit: usize, ratio: Option<f32>, builder: BatchBuilder) -> Self {
        Self {
            buffer: Buffer::Open(builder),
            write_limit,
            ratio,
            actual_ratio: 1.0,
            count: 0,
            max_record_size: 0,
        }
    }

    /// Appends one record if its bytes and the estimated size so far are within the limit (spec 9.2: the first record always fits). Returns
    /// the bytes by which the estimated size grew.
    #[inline]
    pub(crate) fn append(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> Option<usize> {
        let Buffer::Open(builder) = &mut self.buffer else {
            return None;
        };
        let before = estimated(builder, self.ratio);
        let left = self.write_limit.saturating_sub(before);
        let size = builder.append_within(left, timestamp, key, value, headers)?;
        self.count += 1;
        self.max_record_size = self.max_record_size.max(size);
        Some(match self.ratio {
            None => size,
            ratio => estimated(builder, ratio) - before,
        })
    }

    /// Size as far as it is known: exact without compression or once closed. Kafka: `estimatedSizeInBytes`.
    #[inline]
    pub(crate) fn estimated_size(&self) -> usize {
        match &self.buffer {
            Buffer::Open(builder) => estimated(builder, self.ratio),
            Buffer::Lent(size, _) => *size,
            Buffer::Closed(bytes) => bytes.len(),
        }
    }

    /// Kafka: `MemoryRecordsBuilder#isFull`.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        match &self.buffer {
            Buffer::Open(builder) => builder.count() > 0 && self.write_limit <= estimated(builder, self.ratio),
            Buffer::Lent(_, full) => *full,
            Buffer::Closed(_) => true,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.buffer, Buffer::Open(_))
    }
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.buffer, Buffer::Lent(..))
    }
    /// Whether its records are still to be compressed.
    pub(crate) fn is_unpacked(&self) -> bool {
        self.ratio.is_some() && matches!(&self.buffer, Buffer::Open(builder) if !builder.is_packed())
    }

    /// Takes the records out, if they are there, for a thread that changes them without the lock; [`Self::take_back`] returns them.
    pub(crate) fn lend(&mut self) -> Option<Self> {
        if !self.is_open() {
            return None;
        }
        let buffer = Buffer::Lent(self.estimated_size(), self.is_full());
        let rest = Self { buffer, ..*self };
        Some(std::mem::replace(self, rest))
    }
    /// Ends the loan; false, and drops the records, if the batch was decided meanwhile.
    pub(crate) fn take_back(&mut self, lent: Self) -> bool {
        let is_lent = self.is_lent();
        if is_lent {
            *self = lent;
        }
        is_lent
    }

    /// Compresses the records. Returns the memory of the uncompressed ones, for reuse.
    pub(crate) fn pack(&mut self, config: &ProducerConfig) -> Option<BatchBuilder> {
        match &mut self.buffer {
            Buffer::Open(builder) => Some(builder.pack(config.compression, config.compression_level)),
            _ => None,
        }
    }

    /// Builds the bytes if they are not built yet. Returns the builder for reuse. Kafka: `MemoryRecordsBuilder#close`.
    pub(crate) fn close(&mut self, params: &BatchParams) -> Option<BatchBuilder> {
        let Buffer::Open(builder) = &mut self.buffer else {
            return None;
        };
        let (uncompressed, packed) = (builder.records_size(), builder.is_packed());
        let bytes = builder.build(params);
        #[allow(clippy::cast_precision_loss, reason = "Java divides floats here too")]
        if uncompressed > 0 {
            self.actual_ratio = bytes.len().saturating_sub(RECORD_BATCH_OVERHEAD) as f32 / uncompressed as f32;
        }
        match std::mem::replace(&mut self.buffer, Buffer::Closed(bytes)) {
            // A packed builder has no memory to reuse: the batch has it.
            Buffer::Open(builder) if !packed => Some(builder),
            _ => None,
        }
    }

    /// The bytes; empty until they are built.
    pub(crate) fn bytes(&self) -> Bytes {
        match &self.buffer {
            Buffer::Closed(bytes) => bytes.clone(),
            Buffer::Open(_) | Buffer::Lent(..) => Bytes::new(),
        }
    }
    /// Drops the records of a decided batch.
    pub(crate) fn release(&mut self) {
        self.buffer = Buffer::Closed(Bytes::new());
    }
    /// Gives built bytes other producer fields; a copy on the wire keeps the old ones.
    pub(crate) fn rewrite_producer(&mut self, id: ProducerIdAndEpoch, sequence: i32) {
        if let Buffer::Closed(bytes) = &mut self.buffer
            && bytes.len() >= RECORD_BATCH_OVERHEAD
        {
            *bytes = with_producer(bytes, id, sequence);
        }
    }
}

/// Kafka: `MemoryRecordsBuilder#estimatedBytesWritten`.
#[inline]
fn estimated(builder: &BatchBuilder, ratio: Option<f32>) -> usize {
    let used = builder.records_size();
    match ratio {
        None => RECORD_BATCH_OVERHEAD + used,
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "Java's (int) (used * ratio * 1.05f)"
        )]
        Some(ratio) => RECORD_BATCH_OVERHEAD + (used as f32 * ratio * RATE_ESTIMATION_FACTOR) as usize,
    }
}

/// A copy with other producer fields. Positions in the header (spec 1.1):
///
/// | at | size | field |
/// |---|---|---|
/// | 17 | 4 | crc (CRC-32C of 21..end) |
/// | 43 | 8 | producerId |
/// | 51 | 2 | producerEpoch |
/// | 53 | 4 | baseSequence |
fn with_producer(bytes: &Bytes, (id, epoch): ProducerIdAndEpoch, sequence: i32) -> Bytes {
    let mut copy = bytes.to_vec();
    copy[43..51].copy_from_slice(&id.to_be_bytes());
    copy[51..53].copy_from_slice(&epoch.to_be_bytes());
    copy[53..57].copy_from_slice(&sequence.to_be_bytes());
    let crc = crc32c(&copy[21..]);
    copy[17..21].copy_from_slice(&crc.to_be_bytes());
    Bytes::from(copy)
}
