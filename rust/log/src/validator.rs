//! What a leader checks before it appends, and how the stored batch differs from the sent one (spec 2.1-2.4). Kafka:
//! `ProduceRequest#validateRecords`, `UnifiedLog#analyzeAndValidateRecords`, `LogValidator`.

use bytes::{Bytes, BytesMut};
use fletchlog_records::batch::set_max_timestamp;
use fletchlog_records::control::{EndTxnMarker, marker_in};
use fletchlog_records::{
    BatchHeader, BatchIter, Compression, DECOMPRESSION_LIMIT, ErrorCode, RecordBatch, RecordCursor, RecordError,
    RecordsSlice, TimestampType, TopicPartition, rebuild,
};

use crate::{AppendError, AppendOrigin, LogConfig};

/// A batch ready to be written, except for its offsets and leader epoch.
#[derive(Debug)]
pub(crate) struct ValidBatch {
    /// Where it starts in the data.
    pub start: usize,
    /// As stored; base offset and leader epoch are assigned later.
    pub header: BatchHeader,
    /// The marker of a control batch.
    pub marker: Option<EndTxnMarker>,
}

/// All batches of one append, back to back.
#[derive(Debug)]
pub(crate) struct ValidRecords {
    pub data: BytesMut,
    pub batches: Vec<ValidBatch>,
}

/// A refusal whose log start offset is not filled in yet.
pub(crate) struct Invalid {
    code: ErrorCode,
    message: String,
    record_errors: Vec<(i32, String)>,
    /// Found by the log itself: the response carries the log start offset (spec 2.1).
    by_log: bool,
}

impl Invalid {
    fn request(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            record_errors: Vec::new(),
            by_log: false,
        }
    }

    fn log(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            by_log: true,
            ..Self::request(code, message)
        }
    }

    pub fn into_refused(self, log_start_offset: i64) -> AppendError {
        let Self {
            code,
            message,
            record_errors,
            by_log,
        } = self;
        AppendError::Refused {
            code,
            message,
            record_errors,
            log_start_offset: if by_log { log_start_offset } else { -1 },
        }
    }
}

/// Validates what one produce request carried for a partition. Does not need the log, so it runs outside its lock.
pub(crate) fn validate(
    records: Bytes,
    origin: AppendOrigin,
    config: &LogConfig,
    tp: &TopicPartition,
    now_ms: i64,
) -> Result<ValidRecords, Invalid> {
    let (first, rest) = match origin.is_client() {
        true => (only_batch(&records)?, Vec::new()),
        false => all_batches(&records)?,
    };
    if rest.is_empty() {
        let (plan, header) = check_batch(&first, origin, config, tp, now_ms)?;
        let size = first.bytes().len();
        drop(first);
        let data = match plan.rebuilt {
            Some(data) => data,
            None => in_place(records, size, &plan, header)?,
        };
        let header = parse_stored(&data)?;
        check_size(&header, config)?;
        return Ok(ValidRecords {
            data,
            batches: vec![ValidBatch {
                start: 0,
                header,
                marker: plan.marker,
            }],
        });
    }
    let mut data = BytesMut::with_capacity(records.len());
    let mut batches = Vec::with_capacity(rest.len() + 1);
    for batch in std::iter::once(first).chain(rest) {
        let (plan, header) = check_batch(&batch, origin, config, tp, now_ms)?;
        let stored = match plan.rebuilt {
            Some(data) => data,
            None => in_place(batch.bytes().clone(), batch.bytes().len(), &plan, header)?,
        };
        let header = parse_stored(&stored)?;
        check_size(&header, config)?;
        batches.push(ValidBatch {
            start: data.len(),
            header,
            marker: plan.marker,
        });
        data.extend_from_slice(&stored);
    }
    Ok(ValidRecords { data, batches })
}

/// Exactly one batch of magic 2; an incomplete second one and fewer than 17 stray bytes are left out (spec 2.1.1).
fn only_batch(records: &Bytes) -> Result<RecordBatch, Invalid> {
    let mut batches = BatchIter::new(records.clone());
    let first = match batches.next() {
        None => {
            return Err(Invalid::request(
                ErrorCode::INVALID_RECORD,
                "a produce request must carry one whole record batch for a partition, found none",
            ));
        }
        Some(Err(e)) => return Err(corrupt(&e, records)),
        Some(Ok(batch)) => batch,
    };
    if first.header().magic != 2 {
        let message = format!("record batches must have magic 2, found {}", first.header().magic);
        return Err(Invalid::request(ErrorCode::INVALID_RECORD, message));
    }
    match batches.next() {
        None => Ok(first),
        Some(Ok(_)) => Err(Invalid::request(
            ErrorCode::INVALID_RECORD,
            "a produce request must carry one record batch for a partition, found more",
        )),
        Some(Err(e)) => Err(Invalid::request(ErrorCode::CORRUPT_MESSAGE, e.to_string())),
    }
}

/// A first batch that cannot be parsed: an old format is not accepted, anything else is corrupt.
fn corrupt(error: &RecordError, records: &Bytes) -> Invalid {
    let code = match records.get(16) {
        Some(0 | 1) if !matches!(error, RecordError::Corrupt { .. }) => ErrorCode::INVALID_RECORD,
        _ => ErrorCode::CORRUPT_MESSAGE,
    };
    Invalid::request(code, error.to_string())
}

fn all_batches(records: &Bytes) -> Result<(RecordBatch, Vec<RecordBatch>), Invalid> {
    let mut batches = BatchIter::new(records.clone());
    let first = match batches.next() {
        None => {
            return Err(Invalid::log(
                ErrorCode::INVALID_RECORD,
                "nothing to append: no whole record batch",
            ));
        }
        Some(first) => first.map_err(|e| Invalid::log(ErrorCode::CORRUPT_MESSAGE, e.to_string()))?,
    };
    let rest: Result<Vec<_>, _> = batches.collect();
    let rest = rest.map_err(|e| Invalid::log(ErrorCode::CORRUPT_MESSAGE, e.to_string()))?;
    if let Some(old) = std::iter::once(&first)
        .chain(&rest)
        .find(|batch| batch.header().magic != 2)
    {
        return Err(Invalid::log(
            ErrorCode::INVALID_RECORD,
            format!("record batches must have magic 2, found {}", old.header().magic),
        ));
    }
    Ok((first, rest))
}

/// What must be done with a valid batch.
struct Plan {
    timestamp_type: TimestampType,
    max_timestamp: i64,
    marker: Option<EndTxnMarker>,
    rebuilt: Option<BytesMut>,
}

fn check_size(header: &BatchHeader, config: &LogConfig) -> Result<(), Invalid> {
    let size = header.size_in_bytes();
    if usize::try_from(config.max_message_bytes).is_ok_and(|max| size > max) {
        let message = format!(
            "a batch of {size} bytes is larger than max.message.bytes = {}; send smaller batches or raise it",
            config.max_message_bytes
        );
        return Err(Invalid::request(ErrorCode::MESSAGE_TOO_LARGE, message));
    }
    Ok(())
}

fn check_batch(
    batch: &RecordBatch,
    origin: AppendOrigin,
    config: &LogConfig,
    tp: &TopicPartition,
    now_ms: i64,
) -> Result<(Plan, BatchHeader), Invalid> {
    let header = *batch.header();
    if origin.is_client() && header.base_offset != 0 {
        return Err(Invalid::log(
            ErrorCode::INVALID_RECORD,
            format!(
                "the base offset of a sent batch must be 0, found {}",
                header.base_offset
            ),
        ));
    }
    check_size(&header, config)?;
    batch
        .ensure_valid()
        .map_err(|e| Invalid::request(ErrorCode::CORRUPT_MESSAGE, e.to_string()))?;
    check_header(&header, origin)?;
    let codec = header.compression();
    let Some(codec) = codec else {
        return Err(Invalid::log(
            ErrorCode::UNKNOWN_SERVER_ERROR,
            format!("unknown compression codec {}", header.attributes & 7),
        ));
    };
    let slice = batch.records(DECOMPRESSION_LIMIT).map_err(|e| malformed(&e))?;

    let marker = if header.is_control() {
        marker_in(&slice).map_err(|e| malformed(&e))?
    } else {
        None
    };
    let max_timestamp = check_records(&header, &slice, config, tp, now_ms)?;

    let (timestamp_type, max_timestamp) = match config.message_timestamp_type {
        TimestampType::LogAppendTime => (TimestampType::LogAppendTime, now_ms),
        _ => (TimestampType::CreateTime, max_timestamp),
    };
    let target = config.compression_type.unwrap_or(codec);
    let rebuilt = (codec != target && !header.is_control()).then(|| {
        let mut batch = rebuild(&header, &slice.payload, target, config.compression_level);
        set_max_timestamp(&mut batch, timestamp_type, max_timestamp);
        batch
    });
    Ok((
        Plan {
            timestamp_type,
            max_timestamp,
            marker,
            rebuilt,
        },
        header,
    ))
}

/// Records that cannot be read are invalid. What cannot be decompressed fails in Kafka's own reading: `Compression#wrapForInput`.
fn malformed(error: &RecordError) -> Invalid {
    let code = match error {
        RecordError::Decompression { .. } => ErrorCode::UNKNOWN_SERVER_ERROR,
        _ => ErrorCode::INVALID_RECORD,
    };
    Invalid::log(code, error.to_string())
}

/// Checks every record; returns the highest timestamp, -1 without one. Kafka: `LogValidator#validateRecord`.
fn check_records(
    header: &BatchHeader,
    slice: &RecordsSlice,
    config: &LogConfig,
    tp: &TopicPartition,
    now_ms: i64,
) -> Result<i64, Invalid> {
    let mut max_timestamp = -1;
    let mut errors = RecordErrors::default();
    let mut cursor = RecordCursor::new();
    let mut index = 0;
    let mut misplaced = None;
    let needs_keys = config.cleanup_compact && !header.is_control();
    let too_large = config.first_too_large(header, slice);
    let is_too_large = |index| too_large.is_some_and(|(at, _)| at == index);
    while index < slice.count && misplaced.is_none() && !is_too_large(index) {
        let visited = cursor.visit(slice, usize::MAX, |offset, timestamp, has_key| {
            if is_too_large(index) {
                return false;
            }
            let delta = offset - header.base_offset;
            if delta != i64::from(index) {
                misplaced = Some(delta);
                return false;
            }
            if needs_keys && !has_key {
                errors.null_key(index, tp);
            } else if let Some(error) = timestamp_error(header, timestamp, index, config, now_ms) {
                errors.timestamp(index, error);
            }
            max_timestamp = max_timestamp.max(timestamp);
            index += 1;
            true
        });
        visited.map_err(|e| malformed(&e))?;
    }
    if let Some((at, limit)) = too_large.filter(|(at, _)| *at == index) {
        return Err(malformed(&slice.too_large(at, limit)));
    }
    if let Some(delta) = misplaced {
        let message = format!("record {index} has offset delta {delta}, expected {index}");
        // Kafka would rewrite compressed records with other deltas, and fails at that (recorded).
        let code = match header.compression() {
            None | Some(Compression::None) => ErrorCode::INVALID_RECORD,
            Some(_) => ErrorCode::UNKNOWN_SERVER_ERROR,
        };
        return Err(Invalid::log(code, message));
    }
    errors.into_result().map(|()| max_timestamp)
}

/// Kafka: `LogValidator#validateBatch`.
fn check_header(header: &BatchHeader, origin: AppendOrigin) -> Result<(), Invalid> {
    let invalid = |message: String| Err(Invalid::log(ErrorCode::INVALID_RECORD, message));
    let count = header.records_count;
    if count <= 0 || i64::from(header.last_offset_delta) + 1 != i64::from(count) {
        return invalid(format!(
            "the batch declares {count} records and a last offset delta of {}; a sent batch has one more record than that delta",
            header.last_offset_delta
        ));
    }
    if origin.is_client() && header.is_control() {
        return invalid("control batches are written by the broker alone".to_string());
    }
    if header.has_producer_id() && header.base_sequence < 0 && !header.is_control() && origin.is_client() {
        return invalid(format!(
            "a batch of producer {} must have a sequence, found {}",
            header.producer_id, header.base_sequence
        ));
    }
    Ok(())
}

/// Kafka: `LogValidator#validateTimestamp`. Limits are inclusive; differences wrap as Java's do.
fn timestamp_error(
    header: &BatchHeader,
    timestamp: i64,
    index: i32,
    config: &LogConfig,
    now_ms: i64,
) -> Option<String> {
    if config.message_timestamp_type != TimestampType::LogAppendTime && timestamp != -1 {
        let (before, after) = (
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
        );
        let age = now_ms.wrapping_sub(timestamp);
        if age > before || age.wrapping_neg() > after {
            let (from, to) = (now_ms.wrapping_sub(before), now_ms.wrapping_add(after));
            return Some(format!(
                "Timestamp {timestamp} of message with offset {index} is out of range. The timestamp should be within [{from}, {to}]"
            ));
        }
        None
    } else if header.timestamp_type() == TimestampType::LogAppendTime {
        Some(
            "Invalid timestamp type in message record. Producer should not set timestamp type to LogAppendTime."
                .to_string(),
        )
    } else {
        None
    }
}

/// All failing records of a batch: it is accepted or refused as a whole.
#[derive(Default)]
struct RecordErrors {
    errors: Vec<(i32, String)>,
    timestamp: bool,
}

impl RecordErrors {
    fn null_key(&mut self, index: i32, tp: &TopicPartition) {
        self.errors.push((
            index,
            format!("Compacted topic cannot accept message without key in topic partition {tp}"),
        ));
    }

    fn timestamp(&mut self, index: i32, message: String) {
        self.timestamp = true;
        self.errors.push((index, message));
    }

    fn into_result(self) -> Result<(), Invalid> {
        if self.errors.is_empty() {
            return Ok(());
        }
        let (code, message) = if self.timestamp {
            (
                ErrorCode::INVALID_TIMESTAMP,
                "One or more records have been rejected due to invalid timestamp".to_string(),
            )
        } else {
            let shown = self.errors.iter().take(3);
            let shown: Vec<String> = shown
                .map(|(index, message)| format!("RecordError(batchIndex={index}, message='{message}')"))
                .collect();
            (
                ErrorCode::INVALID_RECORD,
                format!(
                    "One or more records have been rejected due to {} record errors in total, and only showing the first three errors at most: [{}]",
                    self.errors.len(),
                    shown.join(", ")
                ),
            )
        };
        Err(Invalid {
            code,
            message,
            record_errors: self.errors,
            by_log: true,
        })
    }
}

/// The sent bytes themselves, copied only if they are shared.
fn in_place(records: Bytes, size: usize, plan: &Plan, header: BatchHeader) -> Result<BytesMut, Invalid> {
    let mut data = match records.try_into_mut() {
        Ok(mut data) => {
            data.truncate(size);
            data
        }
        Err(shared) => BytesMut::from(&shared[..size]),
    };
    if header.timestamp_type() != plan.timestamp_type || header.max_timestamp != plan.max_timestamp {
        set_max_timestamp(&mut data, plan.timestamp_type, plan.max_timestamp);
    }
    Ok(data)
}

fn parse_stored(data: &[u8]) -> Result<BatchHeader, Invalid> {
    BatchHeader::parse(data).map_err(|e| Invalid::log(ErrorCode::CORRUPT_MESSAGE, e.to_string()))
}
