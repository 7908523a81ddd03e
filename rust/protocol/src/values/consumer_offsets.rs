//! Keys and values of the records of `__consumer_offsets` (spec 8.8). Kafka: `GroupCoordinatorRecordHelpers`.
//!
//! The version of a key is the record's type: 0 and 1 an offset, 2 a group. A value of an unknown version is refused.

use bytes::Bytes;

use crate::error::WireError;
use crate::table::Value;

value! {
    OffsetCommitKey, offset_commit_key: versions 0 to 1, flexible from i16::MAX;
    OffsetCommitKey {
        group: Arc<str>, since(0);
        topic: Arc<str>, since(0);
        partition: i32, since(0);
    }
}

value! {
    OffsetCommitValue, offset_commit_value: versions 0 to 4, flexible from 4;
    OffsetCommitValue {
        offset: i64, since(0);
        leader_epoch: i32 = -1, since(3).ignorable();
        metadata: Arc<str>, since(0);
        commit_timestamp: i64, since(0);
        expire_timestamp: i64 = -1, between(1, 1).ignorable();
        topic_id: [u8; 16], since(4).tag(0).ignorable();
    }
}

value! {
    GroupMetadataKey, group_metadata_key: versions 2 to 2, flexible from i16::MAX;
    GroupMetadataKey {
        group: Arc<str>, since(2);
    }
}

// In Kafka's table the members and their bytes are never null; here null is read as well, as empty.
value! {
    GroupMetadataValue, group_metadata_value: versions 0 to 4, flexible from 4;
    GroupMetadataValue {
        protocol_type: Arc<str>, since(0);
        generation: i32, since(0);
        protocol: Option<Arc<str>>, since(0).nullable(0);
        leader: Option<Arc<str>>, since(0).nullable(0);
        current_state_timestamp: i64 = -1, since(2).ignorable();
        members: Option<Vec<MemberMetadata>>, since(0).nullable(0);
    }
    MemberMetadata {
        member_id: Arc<str>, since(0);
        group_instance_id: Option<Arc<str>> = None, since(3).nullable(3).ignorable();
        client_id: Arc<str>, since(0);
        client_host: Arc<str>, since(0);
        rebalance_timeout: i32 = -1, since(1).ignorable();
        session_timeout: i32, since(0);
        subscription: Option<Bytes>, since(0).nullable(0);
        assignment: Option<Bytes>, since(0).nullable(0);
    }
}

/// The key of a record. Kafka: `CoordinatorRecordType`.
#[derive(Debug, Clone, PartialEq)]
pub enum ConsumerOffsetsKey {
    /// A committed offset.
    Offset(OffsetCommitKey),
    /// A group.
    Group(GroupMetadataKey),
    /// A type that has no table here: groups of KIP-848, newer ones.
    Other(i16),
}

impl ConsumerOffsetsKey {
    /// Reads a key of any type.
    ///
    /// # Errors
    /// Bytes that are no key.
    pub fn decode(bytes: Bytes) -> Result<Self, WireError> {
        match bytes.first_chunk().map(|version| i16::from_be_bytes(*version)) {
            Some(OffsetCommitKey::MIN_VERSION..=OffsetCommitKey::MAX_VERSION) | None => {
                OffsetCommitKey::decode(bytes).map(Self::Offset)
            }
            Some(GroupMetadataKey::MIN_VERSION) => GroupMetadataKey::decode(bytes).map(Self::Group),
            Some(other) => Ok(Self::Other(other)),
        }
    }
}

impl OffsetCommitValue {
    /// The version that is written: 3, or 1 for an offset that expires at a time of its own. Kafka:
    /// `GroupCoordinatorRecordHelpers#newOffsetCommitRecord`.
    pub fn written_version(&self) -> i16 {
        if self.expire_timestamp == -1 { 3 } else { 1 }
    }
}

impl group_metadata_value::MemberMetadata {
    /// How long the member may take to rejoin: older versions do not say it, and then it is the session's time-out. Kafka:
    /// `GroupMetadataManager#replay`.
    pub fn rebalance_timeout_ms(&self) -> i32 {
        match self.rebalance_timeout {
            -1 => self.session_timeout,
            timeout => timeout,
        }
    }
}
