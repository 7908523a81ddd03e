//! Control batches: transaction markers (spec 1.5).
//!
//! | part  | layout                                    |
//! |-------|-------------------------------------------|
//! | key   | version i16 (0), type i16                 |
//! | value | version i16 (0), coordinatorEpoch i32     |

use bytes::Bytes;

use crate::field::field;
use crate::{BatchBuilder, BatchParams, RecordCursor, RecordError, RecordsSlice};

/// Type in the key of a control record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlType {
    /// 0.
    Abort,
    /// 1.
    Commit,
    /// Any other type: skipped by readers.
    Other(i16),
}

impl ControlType {
    fn from_id(id: i16) -> Self {
        match id {
            0 => Self::Abort,
            1 => Self::Commit,
            other => Self::Other(other),
        }
    }

    fn id(self) -> i16 {
        match self {
            Self::Abort => 0,
            Self::Commit => 1,
            Self::Other(id) => id,
        }
    }
}

/// A transaction marker as read from a control record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndTxnMarker {
    /// COMMIT or ABORT.
    pub control_type: ControlType,
    /// Epoch of the transaction coordinator (-1 when the value is absent or too short to hold one).
    pub coordinator_epoch: i32,
}

/// Reads key and value of a control record. `None`: key shorter than 4 bytes or version < 0.
/// Kafka: `ControlRecordType#parse`, `EndTransactionMarker#deserialize`.
pub fn parse_control_record(key: &[u8], value: Option<&[u8]>) -> Option<EndTxnMarker> {
    if key.len() < 4 || i16::from_be_bytes(field(key, 0)) < 0 {
        return None;
    }
    let coordinator_epoch = match value {
        Some(value) if value.len() >= 6 => i32::from_be_bytes(field(value, 2)),
        _ => -1,
    };
    Some(EndTxnMarker {
        control_type: ControlType::from_id(i16::from_be_bytes(field(key, 2))),
        coordinator_epoch,
    })
}

/// The marker in the records of a control batch; `None` if they are of another kind, or there are none.
///
/// # Errors
/// A malformed record.
pub fn marker_in(records: &RecordsSlice) -> Result<Option<EndTxnMarker>, RecordError> {
    let record = RecordCursor::new().next(records)?;
    Ok(record.and_then(|record| parse_control_record(record.key.unwrap_or_default(), record.value)))
}

/// Builds a marker batch of one record.
pub fn build_marker(
    base_offset: i64,
    producer_id: i64,
    producer_epoch: i16,
    leader_epoch: i32,
    timestamp: i64,
    marker: EndTxnMarker,
) -> Bytes {
    let mut key = [0; 4];
    key[2..].copy_from_slice(&marker.control_type.id().to_be_bytes());
    let mut value = [0; 6];
    value[2..].copy_from_slice(&marker.coordinator_epoch.to_be_bytes());
    let mut builder = BatchBuilder::with_capacity(32);
    builder.append(timestamp, Some(&key), Some(&value), &[]);
    builder.build(&BatchParams {
        base_offset,
        producer_id,
        producer_epoch,
        leader_epoch,
        transactional: true,
        control: true,
        ..BatchParams::default()
    })
}
