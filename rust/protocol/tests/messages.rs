//! All messages by API and all values, for tests that treat every one alike.

use std::ops::RangeInclusive;

use bytes::{BufMut, Bytes, BytesMut};
use fletchlog_protocol::{ApiKey, FieldSpec, Message, Reader, Value, WireError, Writer};

/// A request, a response or a value, as functions.
#[derive(Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    pub table: &'static [FieldSpec],
    /// How many times its size it may take of memory.
    pub memory_factor: usize,
    /// Decodes a body.
    pub decode: fn(Bytes, i16) -> Result<(), WireError>,
    /// Decodes a body and encodes it again; also what is left behind the body.
    pub again: fn(Bytes, i16) -> Result<(Vec<Bytes>, usize), WireError>,
}

fn again<M: Message>(body: Bytes, version: i16) -> Result<(Vec<Bytes>, usize), WireError> {
    let mut reader = Reader::new(body);
    let message = M::decode(&mut reader, version)?;
    let mut writer = Writer::new();
    message.encode(&mut writer, version)?;
    Ok((writer.into_chunks(), reader.remaining()))
}

fn kind<M: Message>() -> Kind {
    Kind {
        name: M::NAME,
        table: M::TABLE,
        memory_factor: 8,
        decode: |body, version| M::decode(&mut Reader::new(body), version).map(drop),
        again: again::<M>,
    }
}

macro_rules! kinds {
    ($($api:ident $request:ident $response:ident;)*) => {
        /// The request and the response of an API.
        pub fn kinds(api: ApiKey) -> [Kind; 2] {
            use fletchlog_protocol::messages::*;
            match api {
                $(ApiKey::$api => [kind::<$request>(), kind::<$response>()],)*
            }
        }
    };
}

fletchlog_protocol::for_each_api!(kinds);

/// A value, the versions that are decoded as they are, and the first flexible one.
pub type ValueKind = (Kind, RangeInclusive<i16>, i16);

/// The bytes of a value: its version and its fields.
fn versioned(fields: &Bytes, version: i16) -> Bytes {
    let mut bytes = BytesMut::with_capacity(2 + fields.len());
    bytes.put_i16(version);
    bytes.put_slice(fields);
    bytes.freeze()
}

fn value<V: Value>() -> ValueKind {
    let kind = Kind {
        name: V::NAME,
        table: V::TABLE,
        // the bytes are once more in memory than those of a message
        memory_factor: 16 + 1,
        decode: |fields, version| V::decode(versioned(&fields, version)).map(drop),
        again: |fields, version| {
            let bytes = V::decode(versioned(&fields, version))?.encode(version)?;
            assert_eq!(bytes[..2], version.to_be_bytes());
            Ok((vec![bytes.slice(2..)], 0))
        },
    };
    (kind, V::MIN_VERSION..=V::MAX_VERSION, V::FIRST_FLEXIBLE_VERSION)
}

/// All values.
pub fn values() -> Vec<ValueKind> {
    use fletchlog_protocol::values::*;
    vec![
        value::<ConsumerGroupCurrentMemberAssignmentKey>(),
        value::<ConsumerGroupCurrentMemberAssignmentValue>(),
        value::<ConsumerGroupMemberMetadataKey>(),
        value::<ConsumerGroupMemberMetadataValue>(),
        value::<ConsumerGroupMetadataKey>(),
        value::<ConsumerGroupMetadataValue>(),
        value::<ConsumerGroupRegularExpressionKey>(),
        value::<ConsumerGroupRegularExpressionValue>(),
        value::<ConsumerGroupTargetAssignmentMemberKey>(),
        value::<ConsumerGroupTargetAssignmentMemberValue>(),
        value::<ConsumerGroupTargetAssignmentMetadataKey>(),
        value::<ConsumerGroupTargetAssignmentMetadataValue>(),
        value::<ConsumerProtocolAssignment>(),
        value::<ConsumerProtocolSubscription>(),
        value::<CooperativeStickyAssignorUserData>(),
        value::<GroupMetadataKey>(),
        value::<GroupMetadataValue>(),
        value::<OffsetCommitKey>(),
        value::<OffsetCommitValue>(),
        value::<ShareGroupCurrentMemberAssignmentKey>(),
        value::<ShareGroupCurrentMemberAssignmentValue>(),
        value::<ShareGroupMemberMetadataKey>(),
        value::<ShareGroupMemberMetadataValue>(),
        value::<ShareGroupMetadataKey>(),
        value::<ShareGroupMetadataValue>(),
        value::<ShareGroupStatePartitionMetadataKey>(),
        value::<ShareGroupStatePartitionMetadataValue>(),
        value::<ShareGroupTargetAssignmentMemberKey>(),
        value::<ShareGroupTargetAssignmentMemberValue>(),
        value::<ShareGroupTargetAssignmentMetadataKey>(),
        value::<ShareGroupTargetAssignmentMetadataValue>(),
        value::<ShareSnapshotKey>(),
        value::<ShareSnapshotValue>(),
        value::<ShareUpdateKey>(),
        value::<ShareUpdateValue>(),
        value::<StickyAssignorUserData>(),
        value::<TransactionLogKey>(),
        value::<TransactionLogValue>(),
    ]
}
