//! Records of `__consumer_offsets` (spec 8.8). Kafka: `GroupCoordinatorRecordHelpers`, `OffsetCommitKey`, ...
//!
//! | record | key | value |
//! |---|---|---|
//! | offset commit | i16 1 (0), group, topic STRING, partition i32 | i16 3: offset i64, leaderEpoch i32, metadata STRING, commitTimestamp i64 |
//! | ... with an expiry of its own | the same | i16 1: offset i64, metadata STRING, commitTimestamp, expireTimestamp i64 |
//! | group | i16 2, group STRING | i16 3: protocolType STRING, generation i32, protocol, leader NULLABLE STRING, timestamp i64, members |
//!
//! STRING = i16 length + UTF-8 (-1 null), BYTES = i32 length + bytes, ARRAY = i32 count. A null value is a tombstone.
//! Member = id, instance id NULLABLE, client id, client host STRING, rebalance and session time-out i32, subscription,
//! assignment BYTES.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api::OffsetAndMetadata;
use fletchlog_records::TopicPartition;

use super::state::{CommittedOffset, Group};
use crate::fields::{Reader, put_bytes, put_nullable, put_string};

/// A key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Key {
    /// A committed offset.
    Offset(Arc<str>, TopicPartition),
    /// A group.
    Group(Arc<str>),
    /// A key of a version that is not read here (KIP-848 groups, newer ones).
    Other(i16),
}

/// The content of a group record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupValue {
    pub(crate) protocol_type: Arc<str>,
    pub(crate) generation: i32,
    pub(crate) protocol: Option<Arc<str>>,
    pub(crate) leader: Option<Arc<str>>,
    pub(crate) timestamp_ms: Option<i64>,
    pub(crate) members: Vec<MemberValue>,
}

/// A member of a group record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberValue {
    pub(crate) id: Arc<str>,
    pub(crate) instance_id: Option<Arc<str>>,
    pub(crate) client_id: Arc<str>,
    pub(crate) client_host: Arc<str>,
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) session_timeout_ms: i32,
    pub(crate) subscription: Bytes,
    pub(crate) assignment: Bytes,
}

/// Reads a key; `None`: it is not a key.
pub(crate) fn parse_key(key: &[u8]) -> Option<Key> {
    let mut r = Reader::new(key);
    Some(match r.i16()? {
        0 | 1 => Key::Offset(
            r.string()?,
            TopicPartition {
                topic: r.string()?,
                partition: r.i32()?,
            },
        ),
        2 => Key::Group(r.string()?),
        other => Key::Other(other),
    })
}

/// Reads the value of an offset commit, versions 0 to 4, whose record has the offset `record_offset`.
pub(crate) fn parse_offset(value: &[u8], record_offset: i64) -> Option<CommittedOffset> {
    let mut r = Reader::new(value);
    let version = r.i16()?;
    if !(0..=4).contains(&version) {
        return None;
    }
    let offset = r.i64()?;
    let leader_epoch = if version >= 3 { r.i32()? } else { -1 };
    let metadata = if version >= 4 { r.compact_string()? } else { r.string()? };
    let commit_timestamp_ms = r.i64()?;
    let expire_timestamp_ms = if version == 1 {
        Some(r.i64()?).filter(|&t| t >= 0)
    } else {
        None
    };
    Some(CommittedOffset {
        value: OffsetAndMetadata {
            offset,
            leader_epoch,
            metadata,
        },
        commit_timestamp_ms,
        record_offset,
        expire_timestamp_ms,
    })
}

/// Reads the value of a group, versions 0 to 4.
pub(crate) fn parse_group(value: &[u8]) -> Option<GroupValue> {
    let mut r = Reader::new(value);
    let version = r.i16().filter(|version| (0..=4).contains(version))?;
    let flexible = version >= 4;
    let mut group = GroupValue {
        protocol_type: r.nullable(flexible)??,
        generation: r.i32()?,
        protocol: r.nullable(flexible)?,
        leader: r.nullable(flexible)?,
        timestamp_ms: if version >= 2 {
            Some(r.i64()?).filter(|&t| t >= 0)
        } else {
            None
        },
        members: Vec::new(),
    };
    for _ in 0..r.length(flexible, 4)?.unwrap_or(0) {
        group.members.push(parse_member(&mut r, version)?);
    }
    Some(group)
}

fn parse_member(r: &mut Reader<'_>, version: i16) -> Option<MemberValue> {
    let flexible = version >= 4;
    let id = r.nullable(flexible)??;
    let instance_id = if version >= 3 { r.nullable(flexible)? } else { None };
    let (client_id, client_host) = (r.nullable(flexible)??, r.nullable(flexible)??);
    let rebalance = if version >= 1 { r.i32()? } else { -1 };
    let session_timeout_ms = r.i32()?;
    let member = MemberValue {
        id,
        instance_id,
        client_id,
        client_host,
        // As the record is loaded. Kafka: `GroupMetadataManager#replay`.
        rebalance_timeout_ms: if rebalance == -1 { session_timeout_ms } else { rebalance },
        session_timeout_ms,
        subscription: r.bytes(flexible)?,
        assignment: r.bytes(flexible)?,
    };
    if flexible {
        r.skip_tags()?;
    }
    Some(member)
}

/// Key of a committed offset, version 1.
pub(crate) fn offset_key(group: &str, tp: &TopicPartition) -> Vec<u8> {
    let mut out = 1i16.to_be_bytes().to_vec();
    put_string(&mut out, group);
    put_string(&mut out, &tp.topic);
    out.extend_from_slice(&tp.partition.to_be_bytes());
    out
}

/// Value of a committed offset: version 3, or 1 for one with an expiry of its own.
pub(crate) fn offset_value(offset: &CommittedOffset) -> Vec<u8> {
    let version: i16 = if offset.expire_timestamp_ms.is_some() { 1 } else { 3 };
    let mut out = version.to_be_bytes().to_vec();
    out.extend_from_slice(&offset.value.offset.to_be_bytes());
    if version >= 3 {
        out.extend_from_slice(&offset.value.leader_epoch.to_be_bytes());
    }
    put_string(&mut out, &offset.value.metadata);
    out.extend_from_slice(&offset.commit_timestamp_ms.to_be_bytes());
    if let Some(expire_timestamp_ms) = offset.expire_timestamp_ms {
        out.extend_from_slice(&expire_timestamp_ms.to_be_bytes());
    }
    out
}

/// Key of a group, version 2.
pub(crate) fn group_key(group: &str) -> Vec<u8> {
    let mut out = 2i16.to_be_bytes().to_vec();
    put_string(&mut out, group);
    out
}

/// Value of a group, version 3, with its members' assignments.
pub(crate) fn group_value(group: &Group, timestamp_ms: i64) -> Vec<u8> {
    let mut out = 3i16.to_be_bytes().to_vec();
    put_string(&mut out, group.protocol_type.as_deref().unwrap_or(""));
    out.extend_from_slice(&group.generation.to_be_bytes());
    put_nullable(&mut out, group.protocol.as_deref());
    put_nullable(&mut out, group.leader.as_deref());
    out.extend_from_slice(&timestamp_ms.to_be_bytes());
    out.extend_from_slice(&i32::try_from(group.members.len()).unwrap_or(i32::MAX).to_be_bytes());
    for member in &group.members {
        put_string(&mut out, &member.id);
        put_nullable(&mut out, member.instance_id.as_deref());
        put_string(&mut out, &member.client_id);
        put_string(&mut out, &member.client_host);
        out.extend_from_slice(&member.rebalance_timeout_ms.to_be_bytes());
        out.extend_from_slice(&member.session_timeout_ms.to_be_bytes());
        put_bytes(&mut out, &member.metadata(group.protocol.as_deref().unwrap_or("")));
        put_bytes(&mut out, &member.assignment);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
            .collect()
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
        assert_eq!(
            parse_key(&hex(OFFSET_KEY)),
            Some(Key::Offset("grp-0".into(), tp.clone()))
        );
        assert_eq!(offset_key("grp-0", &tp), hex(OFFSET_KEY));
        assert_eq!(parse_key(&hex(GROUP_KEY)), Some(Key::Group("grp-0".into())));
        assert_eq!(group_key("grp-0"), hex(GROUP_KEY));
        assert_eq!(parse_key(&hex("000500056772702d32")), Some(Key::Other(5)));
        assert_eq!(parse_key(&hex("0001000567")), None);
    }

    #[test]
    fn an_offset_of_a_4_x_broker_is_read() {
        let offset = parse_offset(&hex(OFFSET_VALUE_V4), 0).unwrap();
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
            expire_timestamp_ms: None,
        };
        let bytes = offset_value(&offset);
        assert_eq!(bytes, hex("0003000000000000002affffffff00016d0000000000000007"));
        assert_eq!(parse_offset(&bytes, 9), Some(offset));
    }

    #[test]
    fn an_empty_group_has_the_bytes_of_a_real_broker() {
        let read = parse_group(&hex(GROUP_VALUE)).unwrap();
        assert_eq!((&*read.protocol_type, read.generation), ("consumer", 2));
        let mut group = Group::new("grp-0".into());
        group.protocol_type = Some("consumer".into());
        group.generation = 2;
        assert_eq!(group_value(&group, read.timestamp_ms.unwrap()), hex(GROUP_VALUE));
    }

    #[test]
    fn hostile_bytes_are_no_records() {
        for value in ["", "00", "0003", "000300", "0004000000000000001100000000ff", "7fff0000"] {
            assert_eq!(parse_offset(&hex(value), 0), None, "{value}");
            assert_eq!(parse_group(&hex(value)), None, "{value}");
        }
    }
}
