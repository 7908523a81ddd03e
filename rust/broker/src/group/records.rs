//! Groups and committed offsets as records of `__consumer_offsets` (spec 8.8; the layouts are in `protocol/values`). A null value is a
//! tombstone. Kafka: `GroupCoordinatorRecordHelpers`.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api::OffsetAndMetadata;
use fletchlog_protocol::topic_ids::NO_TOPIC_ID;
use fletchlog_protocol::values::group_metadata_value::MemberMetadata;
use fletchlog_protocol::values::{GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue};
use fletchlog_protocol::{Value, WireError};
use fletchlog_records::TopicPartition;

use super::member::Member;
use super::state::{CommittedOffset, Group};
use crate::replica_manager::CoordinatorRecord;

/// Versions that every broker since 2.3 reads.
const OFFSET_KEY: i16 = 1;
const GROUP_KEY: i16 = 2;
const GROUP_VALUE: i16 = 3;

/// The record of a committed offset; `None`: its tombstone.
pub(crate) fn offset_record(
    group: &Arc<str>,
    tp: &TopicPartition,
    offset: Option<&CommittedOffset>,
) -> Result<CoordinatorRecord, WireError> {
    let key = OffsetCommitKey {
        group: group.clone(),
        topic: tp.topic.clone(),
        partition: tp.partition,
    };
    let value = offset.map(|offset| {
        let value = OffsetCommitValue {
            offset: offset.value.offset,
            leader_epoch: offset.value.leader_epoch,
            metadata: offset.value.metadata.clone(),
            commit_timestamp: offset.commit_timestamp_ms,
            expire_timestamp: offset.expire_timestamp_ms.unwrap_or(-1),
            topic_id: offset.topic_id.unwrap_or(NO_TOPIC_ID),
        };
        value.encode(value.written_version())
    });
    Ok((key.encode(OFFSET_KEY)?, value.transpose()?))
}

/// Reads the value of a committed offset, whose record has the offset `record_offset`.
pub(crate) fn committed_offset(value: &[u8], record_offset: i64) -> Result<CommittedOffset, WireError> {
    let value = OffsetCommitValue::decode(Bytes::copy_from_slice(value))?;
    Ok(CommittedOffset {
        value: OffsetAndMetadata {
            offset: value.offset,
            leader_epoch: value.leader_epoch,
            metadata: value.metadata,
        },
        commit_timestamp_ms: value.commit_timestamp,
        record_offset,
        topic_id: Some(value.topic_id).filter(|id| *id != NO_TOPIC_ID),
        expire_timestamp_ms: Some(value.expire_timestamp).filter(|&t| t >= 0),
    })
}

/// The record of a group, with its members' assignments.
pub(crate) fn group_record(group: &Group, timestamp_ms: i64) -> Result<CoordinatorRecord, WireError> {
    let protocol = group.protocol.as_deref().unwrap_or("");
    let member = |member: &Member| MemberMetadata {
        member_id: member.id.clone(),
        group_instance_id: member.instance_id.clone(),
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
        rebalance_timeout: member.rebalance_timeout_ms,
        session_timeout: member.session_timeout_ms,
        subscription: Some(member.metadata(protocol)),
        assignment: Some(member.assignment.clone()),
    };
    let value = GroupMetadataValue {
        protocol_type: group.protocol_type.clone().unwrap_or_default(),
        generation: group.generation,
        protocol: group.protocol.clone(),
        leader: group.leader.clone(),
        current_state_timestamp: timestamp_ms,
        members: Some(group.members.iter().map(member).collect()),
    };
    Ok((group_tombstone(&group.id)?.0, Some(value.encode(GROUP_VALUE)?)))
}

/// The tombstone of a group.
pub(crate) fn group_tombstone(group: &Arc<str>) -> Result<CoordinatorRecord, WireError> {
    let key = GroupMetadataKey { group: group.clone() };
    Ok((key.encode(GROUP_KEY)?, None))
}

#[cfg(test)]
mod tests {
    use fletchlog_protocol::values::ConsumerOffsetsKey;

    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
            .collect()
    }

    fn parse_key(bytes: &[u8]) -> Option<ConsumerOffsetsKey> {
        ConsumerOffsetsKey::decode(Bytes::copy_from_slice(bytes)).ok()
    }

    fn parse_group(bytes: &[u8]) -> Option<GroupMetadataValue> {
        GroupMetadataValue::decode(Bytes::copy_from_slice(bytes)).ok()
    }

    // Recorded from the __consumer_offsets of a 4.3.1 broker.
    const OFFSET_KEY: &str = "000100056772702d300006672d677a697000000000";
    const OFFSET_VALUE_V4: &str =
        "0004000000000000001100000000076d6574612d30000001a1fd1ad2e8010010349a9e4b24b34e17a1e174b138b6ec45";
    const GROUP_KEY: &str = "000200056772702d30";
    const GROUP_VALUE: &str = "00030008636f6e73756d657200000002ffffffff000001a1fd1ad2eb00000000";

    #[test]
    fn keys_are_those_of_a_real_broker() {
        let tp = TopicPartition::new("g-gzip", 0);
        let key = OffsetCommitKey {
            group: "grp-0".into(),
            topic: "g-gzip".into(),
            partition: 0,
        };
        assert_eq!(parse_key(&hex(OFFSET_KEY)), Some(ConsumerOffsetsKey::Offset(key)));
        assert_eq!(
            offset_record(&"grp-0".into(), &tp, None),
            Ok((hex(OFFSET_KEY).into(), None))
        );
        let key = GroupMetadataKey { group: "grp-0".into() };
        assert_eq!(parse_key(&hex(GROUP_KEY)), Some(ConsumerOffsetsKey::Group(key)));
        assert_eq!(group_tombstone(&"grp-0".into()), Ok((hex(GROUP_KEY).into(), None)));
        assert_eq!(
            parse_key(&hex("000900056772702d32")),
            Some(ConsumerOffsetsKey::Other(9))
        );
        assert_eq!(parse_key(&hex("0001000567")), None);
    }

    #[test]
    fn an_offset_of_a_4_x_broker_is_read() {
        let offset = committed_offset(&hex(OFFSET_VALUE_V4), 0).unwrap();
        assert_eq!(
            offset.value,
            OffsetAndMetadata {
                offset: 17,
                leader_epoch: 0,
                metadata: "meta-0".into()
            }
        );
        assert_eq!(offset.commit_timestamp_ms, 1_795_247_756_008);
    }

    #[test]
    fn an_offset_written_here_is_read_back_and_has_version_3() {
        let value = OffsetAndMetadata {
            offset: 42,
            leader_epoch: -1,
            metadata: "m".into(),
        };
        let offset = CommittedOffset {
            value,
            commit_timestamp_ms: 7,
            record_offset: 9,
            topic_id: None,
            expire_timestamp_ms: None,
        };
        let (_, bytes) = offset_record(&"g".into(), &TopicPartition::new("t", 0), Some(&offset)).unwrap();
        let bytes = bytes.unwrap();
        assert_eq!(bytes, hex("0003000000000000002affffffff00016d0000000000000007"));
        assert_eq!(committed_offset(&bytes, 9), Ok(offset));
    }

    #[test]
    fn an_empty_group_has_the_bytes_of_a_real_broker() {
        let read = parse_group(&hex(GROUP_VALUE)).unwrap();
        assert_eq!((&*read.protocol_type, read.generation), ("consumer", 2));
        let mut group = Group::new("grp-0".into());
        group.protocol_type = Some("consumer".into());
        group.generation = 2;
        let (_, written) = group_record(&group, read.current_state_timestamp).unwrap();
        assert_eq!(written.unwrap(), hex(GROUP_VALUE));
    }

    #[test]
    fn hostile_bytes_are_no_records() {
        for value in ["", "00", "0003", "000300", "0004000000000000001100000000ff", "7fff0000"] {
            assert!(committed_offset(&hex(value), 0).is_err(), "{value}");
            assert_eq!(parse_group(&hex(value)), None, "{value}");
        }
    }
}
