//! Keys and values of coordinators' records, and what members put into JoinGroup and SyncGroup: whatever bytes there are, they are a value
//! or an error, and a value is the same after encoding and decoding it.

use bytes::Bytes;
use fletchlog_protocol::values::{
    ConsumerOffsetsKey, ConsumerProtocolAssignment, ShareGroupStateKey, StickyAssignorUserData,
};
use fletchlog_protocol::{Fault, Value};

macro_rules! values {
    ($($value:ident)*; $($later:ident)*) => {
        /// `[value u8] [version i16, fields]`
        pub(super) fn record_values(data: &[u8]) {
            const READERS: &[fn(Bytes)] = &[
                $(there_and_back::<fletchlog_protocol::values::$value>,)*
                any_key,
                without_version,
                $(there_and_back::<fletchlog_protocol::values::$later>,)*
                any_share_key,
            ];
            let Some((&choice, bytes)) = data.split_first() else { return };
            READERS[usize::from(choice) % READERS.len()](Bytes::copy_from_slice(bytes));
        }
    };
}

values! {
    OffsetCommitKey OffsetCommitValue GroupMetadataKey GroupMetadataValue
    ConsumerGroupMetadataKey ConsumerGroupMetadataValue
    ConsumerGroupPartitionMetadataKey
    ConsumerGroupMemberMetadataKey ConsumerGroupMemberMetadataValue
    ConsumerGroupTargetAssignmentMetadataKey ConsumerGroupTargetAssignmentMetadataValue
    ConsumerGroupTargetAssignmentMemberKey ConsumerGroupTargetAssignmentMemberValue
    ConsumerGroupCurrentMemberAssignmentKey ConsumerGroupCurrentMemberAssignmentValue
    ConsumerGroupRegularExpressionKey ConsumerGroupRegularExpressionValue
    TransactionLogKey TransactionLogValue
    ConsumerProtocolSubscription ConsumerProtocolAssignment
    StickyAssignorUserData CooperativeStickyAssignorUserData
    ;
    ShareSnapshotKey ShareSnapshotValue ShareUpdateKey ShareUpdateValue
    ShareGroupMetadataKey ShareGroupMetadataValue
    ShareGroupMemberMetadataKey ShareGroupMemberMetadataValue
    ShareGroupTargetAssignmentMetadataKey ShareGroupTargetAssignmentMetadataValue
    ShareGroupTargetAssignmentMemberKey ShareGroupTargetAssignmentMemberValue
    ShareGroupCurrentMemberAssignmentKey ShareGroupCurrentMemberAssignmentValue
    ShareGroupStatePartitionMetadataKey ShareGroupStatePartitionMetadataValue
}

/// Encodes a decoded value in its version, and checks that decoding and encoding it again gives the same bytes.
fn there_and_back<V: Value + PartialEq + std::fmt::Debug>(bytes: Bytes) {
    let Ok(value) = V::decode(bytes.clone()) else { return };
    let version = i16::from_be_bytes(*bytes.first_chunk().unwrap()).min(V::MAX_VERSION);
    assert!(version >= V::MIN_VERSION);
    let written = match value.encode(version) {
        // replacing invalid UTF-8 has made a text longer than a string can be
        Err(error) => return assert!(matches!(error.fault, Fault::Length(32768..)), "{error}"),
        Ok(written) => written,
    };
    let again = V::decode(written.clone()).unwrap();
    assert_eq!(again, value);
    assert!(
        again.encode(version).unwrap() == written,
        "{}: encoded differently",
        V::NAME
    );
}

/// Where the version says what the key is.
fn any_key(bytes: Bytes) {
    let version = bytes.first_chunk().map(|version| i16::from_be_bytes(*version));
    if let Ok(ConsumerOffsetsKey::Other(other)) = ConsumerOffsetsKey::decode(bytes) {
        assert_eq!(Some(other), version);
    }
}

/// The same in `__share_group_state`.
fn any_share_key(bytes: Bytes) {
    let version = bytes.first_chunk().map(|version| i16::from_be_bytes(*version));
    if let Ok(ShareGroupStateKey::Other(other)) = ShareGroupStateKey::decode(bytes) {
        assert_eq!(Some(other), version);
    }
}

/// What has no version in front, or may be no bytes at all.
fn without_version(bytes: Bytes) {
    let _ = ConsumerProtocolAssignment::of_member(bytes.clone());
    let _ = fletchlog_protocol::values::ConsumerProtocolSubscription::topics_of(bytes.clone());
    let _ = fletchlog_protocol::values::CooperativeStickyAssignorUserData::of_member(bytes.clone());
    let Ok(data) = StickyAssignorUserData::of_member(bytes) else {
        return;
    };
    let Ok(written) = data.to_bytes() else { return };
    assert_eq!(StickyAssignorUserData::of_member(written).unwrap(), data);
}
