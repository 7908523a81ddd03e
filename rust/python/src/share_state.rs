//! `Broker.share_state`: the records of a topic that a share group is not done with, as a table.

use arrow_array::{Int16Array, Int32Array, Int64Array, StringArray};
use fletchlog_broker::ShareRecordState;

use crate::errors::Failure;
use crate::table::Table;
use crate::trace::{columns, table};

/// A row for each range of records.
pub fn share_state_table(rows: &[ShareRecordState]) -> Result<Table, Failure> {
    table(columns!(rows.iter(), row => {
        "partition": Int32Array = Some(row.partition),
        "first_offset": Int64Array = Some(row.first_offset),
        "last_offset": Int64Array = Some(row.last_offset),
        "state": StringArray = Some(row.state),
        "member_id": StringArray = row.member_id.as_deref(),
        "delivery_count": Int16Array = Some(i16::try_from(row.delivery_count).unwrap_or(i16::MAX)),
        "lock_left_ms": Int64Array = row.lock_left_ms,
    }))
}
