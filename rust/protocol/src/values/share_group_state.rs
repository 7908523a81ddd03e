//! Keys and values of the records of `__share_group_state` (spec 14.4). Kafka: `ShareCoordinatorRecordHelpers`.
//!
//! The version of a key is the record's type: 0 a snapshot of a share partition's state, 1 what has changed since it.

use bytes::Bytes;

use crate::error::WireError;
use crate::table::Value;

value! {
    ShareSnapshotKey, share_snapshot_key: versions 0 to 0, flexible from i16::MAX;
    ShareSnapshotKey {
        group_id: Arc<str>, since(0);
        topic_id: [u8; 16], since(0);
        partition: i32, since(0);
    }
}

value! {
    ShareSnapshotValue, share_snapshot_value: versions 0 to 0, flexible from 0;
    ShareSnapshotValue {
        snapshot_epoch: i32, since(0);
        state_epoch: i32, since(0);
        leader_epoch: i32, since(0);
        start_offset: i64, since(0);
        delivery_complete_count: i32 = -1, since(0).tag(0);
        create_timestamp: i64, since(0);
        write_timestamp: i64, since(0);
        state_batches: Vec<StateBatch>, since(0);
    }
    StateBatch {
        first_offset: i64, since(0);
        last_offset: i64, since(0);
        delivery_state: i8, since(0);
        delivery_count: i16, since(0);
    }
}

value! {
    ShareUpdateKey, share_update_key: versions 1 to 1, flexible from i16::MAX;
    ShareUpdateKey {
        group_id: Arc<str>, since(1);
        topic_id: [u8; 16], since(1);
        partition: i32, since(1);
    }
}

value! {
    ShareUpdateValue, share_update_value: versions 0 to 0, flexible from 0;
    ShareUpdateValue {
        snapshot_epoch: i32, since(0);
        leader_epoch: i32, since(0);
        start_offset: i64, since(0);
        delivery_complete_count: i32 = -1, since(0).tag(0);
        state_batches: Vec<StateBatch>, since(0);
    }
    StateBatch {
        first_offset: i64, since(0);
        last_offset: i64, since(0);
        delivery_state: i8, since(0);
        delivery_count: i16, since(0);
    }
}

/// The key of a record. Kafka: `CoordinatorRecordType`.
#[derive(Debug, Clone, PartialEq)]
pub enum ShareGroupStateKey {
    /// The whole state.
    Snapshot(ShareSnapshotKey),
    /// A change of it.
    Update(ShareUpdateKey),
    /// A type that has no table here.
    Other(i16),
}

impl ShareGroupStateKey {
    /// Reads a key of any type.
    ///
    /// # Errors
    /// Bytes that are no key.
    pub fn decode(bytes: Bytes) -> Result<Self, WireError> {
        match bytes.first_chunk().map(|version| i16::from_be_bytes(*version)) {
            Some(ShareSnapshotKey::MIN_VERSION) | None => ShareSnapshotKey::decode(bytes).map(Self::Snapshot),
            Some(ShareUpdateKey::MIN_VERSION) => ShareUpdateKey::decode(bytes).map(Self::Update),
            Some(other) => Ok(Self::Other(other)),
        }
    }
}
