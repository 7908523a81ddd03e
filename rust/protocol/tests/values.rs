//! The rules of values, one by one; bytes written down by hand or recorded.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_protocol::values::consumer_protocol::{TopicPartition, flattened};
use fletchlog_protocol::values::*;
use fletchlog_protocol::{Fault, Value, WireError};

fn decode<V: Value>(bytes: &[u8]) -> Result<V, WireError> {
    V::decode(Bytes::copy_from_slice(bytes))
}

fn fault<V: Value + std::fmt::Debug>(bytes: &[u8]) -> Fault {
    decode::<V>(bytes).unwrap_err().fault
}

fn of(topic: &str, partitions: &[i32]) -> TopicPartition {
    (Arc::from(topic), partitions.to_vec()).into()
}

fn full() -> ConsumerProtocolSubscription {
    ConsumerProtocolSubscription {
        topics: vec!["foo".into(), "bar".into()],
        user_data: Some(Bytes::from_static(&[7, 8])),
        owned_partitions: vec![of("foo", &[1, 0])],
        generation_id: 5,
        rack_id: Some("r1".into()),
    }
}

#[test]
fn a_subscription_has_the_bytes_of_the_table() {
    let bytes = full().encode(3).unwrap();
    let mut expected: Vec<u8> = vec![0, 3, 0, 0, 0, 2, 0, 3];
    expected.extend(b"foo");
    expected.extend([0, 3]);
    expected.extend(b"bar");
    expected.extend([0, 0, 0, 2, 7, 8]);
    expected.extend([0, 0, 0, 1, 0, 3]);
    expected.extend(b"foo");
    expected.extend([0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0]);
    expected.extend([0, 0, 0, 5, 0, 2]);
    expected.extend(b"r1");
    assert_eq!(bytes, expected);
}

#[test]
fn every_version_of_a_subscription_keeps_what_it_can_carry() {
    let carried = |version| decode::<ConsumerProtocolSubscription>(&full().encode(version).unwrap()).unwrap();
    assert_eq!(carried(3), full());
    let of_version_2 = ConsumerProtocolSubscription {
        rack_id: None,
        ..full()
    };
    assert_eq!(carried(2), of_version_2);
    let of_version_1 = ConsumerProtocolSubscription {
        generation_id: -1,
        ..of_version_2
    };
    assert_eq!(carried(1), of_version_1);
    let of_version_0 = ConsumerProtocolSubscription {
        owned_partitions: vec![],
        ..of_version_1
    };
    assert_eq!(carried(0), of_version_0);
    assert!(full().encode(4).is_err());
    let without = ConsumerProtocolSubscription {
        user_data: None,
        rack_id: None,
        ..full()
    };
    assert_eq!(decode(&without.encode(3).unwrap()), Ok(without));
}

#[test]
fn a_newer_subscription_is_read_as_the_newest_known_and_a_negative_version_is_refused() {
    let mut bytes = full().encode(3).unwrap().to_vec();
    bytes[1] = 9;
    bytes.extend([1, 2, 3]);
    assert_eq!(decode(&bytes), Ok(full()));
    bytes[0] = 0xff;
    assert_eq!(fault::<ConsumerProtocolSubscription>(&bytes), Fault::Version(-247));
    assert_eq!(fault::<ConsumerProtocolAssignment>(&bytes), Fault::Version(-247));
}

#[test]
fn a_count_that_cannot_be_true_is_refused_before_room_is_reserved() {
    let count = fault::<ConsumerProtocolSubscription>(&[0, 1, 0x7f, 0xff, 0xff, 0xff]);
    assert_eq!(
        count,
        Fault::Cut {
            wanted: 0x7fff_ffff,
            remaining: 0
        }
    );
    assert!(decode::<ConsumerProtocolSubscription>(&[0, 0, 0xff, 0xff, 0xff, 0xff]).is_err());
    assert!(decode::<ConsumerProtocolAssignment>(&[0]).is_err());
}

#[test]
fn text_of_a_value_is_utf_8() {
    let bytes = |byte| [0, 0, 0, 0, 0, 1, 0, 1, byte, 0xff, 0xff, 0xff, 0xff];
    let read: ConsumerProtocolSubscription = decode(&bytes(b'a')).unwrap();
    assert_eq!((read.topics, read.user_data), (vec!["a".into()], None));
    assert_eq!(fault::<ConsumerProtocolSubscription>(&bytes(0xff)), Fault::Text);
}

/// Each takes more than eight times its bytes.
#[test]
fn many_topics_with_the_shortest_names_are_read() {
    let mut bytes = vec![0, 1, 0, 0, 0x75, 0x30];
    bytes.extend([0, 1, b'a'].repeat(30_000));
    bytes.extend([0xff; 4]);
    bytes.extend([0; 4]);
    assert_eq!(
        decode::<ConsumerProtocolSubscription>(&bytes).unwrap().topics.len(),
        30_000
    );
}

#[test]
fn the_topics_of_any_version_are_read_and_what_has_none_is_refused() {
    let topics_of = |bytes: &[u8]| ConsumerProtocolSubscription::topics_of(Bytes::copy_from_slice(bytes));
    let mut metadata = b"\0\x03\0\0\0\x02\0\x01a\0\x02bc".to_vec();
    assert!(topics_of(&metadata[..metadata.len() - 1]).is_err());
    metadata.extend(b"user data and what newer versions add");
    assert_eq!(topics_of(&metadata), Ok(vec!["a".into(), "bc".into()]));
    assert_eq!(topics_of(b"\0\0\xff\xff\xff\xff"), Ok(vec![]));
    // A real Kafka never answers a join with such a count.
    for bad in [&b""[..], b"m-a", b"\0\0\x7f\xff\xff\xff\0\0"] {
        assert!(topics_of(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn no_bytes_are_an_empty_assignment() {
    assert_eq!(
        ConsumerProtocolAssignment::of_member(Bytes::new()),
        Ok(ConsumerProtocolAssignment::default())
    );
    let assigned_partitions = vec![of("A", &[0]), of("B", &[2]), of("A", &[1])];
    let flat = flattened(&assigned_partitions);
    assert_eq!(
        flat,
        [("A", 0), ("B", 2), ("A", 1)].map(|(t, p)| fletchlog_records::TopicPartition::new(t, p))
    );
    let given = ConsumerProtocolAssignment {
        assigned_partitions,
        user_data: None,
    };
    assert_eq!(
        ConsumerProtocolAssignment::of_member(given.encode(1).unwrap()),
        Ok(given)
    );
}

#[test]
fn user_data_of_the_sticky_assignors_survives() {
    let given = StickyAssignorUserData {
        previous_assignment: vec![of("t", &[0, 4])],
        generation: 9,
    };
    let data = given.to_bytes().unwrap();
    assert_eq!(StickyAssignorUserData::of_member(data.clone()), Ok(given.clone()));
    let old = StickyAssignorUserData {
        generation: -1,
        ..given
    };
    assert_eq!(StickyAssignorUserData::of_member(data.slice(..data.len() - 4)), Ok(old));
    assert!(StickyAssignorUserData::of_member(data.slice(..data.len() - 1)).is_err());
    let given = CooperativeStickyAssignorUserData { generation: 3 };
    let data = given.to_bytes().unwrap();
    assert_eq!(&data[..], [0, 0, 0, 3]);
    assert_eq!(CooperativeStickyAssignorUserData::of_member(data.clone()), Ok(given));
    assert!(CooperativeStickyAssignorUserData::of_member(data.slice(..3)).is_err());
}

fn hex(text: &str) -> Vec<u8> {
    let digits = (0..text.len()).step_by(2);
    digits
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
        .collect()
}

/// Reads bytes of a real broker, which are written the same again.
fn recorded<V: Value + std::fmt::Debug>(text: &str, version: i16) -> V {
    let bytes = hex(text);
    assert_eq!(bytes[..2], version.to_be_bytes());
    let value: V = decode(&bytes).unwrap();
    assert_eq!(value.encode(version).unwrap(), bytes);
    value
}

#[test]
fn records_of_a_4_x_broker_are_read_and_written_again() {
    let offset: OffsetCommitValue = recorded(
        "0004000000000000001100000000076d6574612d30000001a1fd1ad2e8010010349a9e4b24b34e17a1e174b138b6ec45",
        4,
    );
    assert_eq!(
        (offset.offset, offset.leader_epoch, &*offset.metadata),
        (17, 0, "meta-0")
    );
    assert_eq!(offset.topic_id[..2], [0x34, 0x9a]);
    let group: GroupMetadataValue = recorded("00030008636f6e73756d657200000002ffffffff000001a1fd1ad2eb00000000", 3);
    assert_eq!(
        (&*group.protocol_type, group.generation, group.members),
        ("consumer", 2, Some(vec![]))
    );
    let transaction: TransactionLogValue = recorded(
        "0001000000000000001200010000ea60020306672d74786e020000000000135f5f636f6e73756d65725f6f666673657473020000000000000001a1fd1ad5cf000001a1fd1ad5c8020008000000000000001202020002",
        1,
    );
    assert_eq!(
        (
            transaction.previous_producer_id,
            transaction.next_producer_id,
            transaction.client_transaction_version
        ),
        (18, -1, 2)
    );
    assert_eq!(transaction.transaction_partitions.map(|topics| topics.len()), Some(2));
}

#[test]
fn a_key_says_by_its_version_what_it_is_of() {
    let key = |text| ConsumerOffsetsKey::decode(hex(text).into());
    for version in [0, 1] {
        let offset = OffsetCommitKey {
            group: "g".into(),
            topic: "t".into(),
            partition: 7,
        };
        let bytes = offset.encode(version).unwrap();
        assert_eq!(bytes[..2], version.to_be_bytes());
        assert_eq!(
            ConsumerOffsetsKey::decode(bytes),
            Ok(ConsumerOffsetsKey::Offset(offset))
        );
    }
    let group = GroupMetadataKey { group: "g".into() };
    assert_eq!(key("0002000167"), Ok(ConsumerOffsetsKey::Group(group)));
    let member = ConsumerGroupMemberMetadataKey {
        group_id: "g".into(),
        member_id: "m".into(),
    };
    assert_eq!(
        key("000500016700016d"),
        Ok(ConsumerOffsetsKey::ConsumerGroupMember(member))
    );
    assert_eq!(key("0009"), Ok(ConsumerOffsetsKey::Other(9)));
    assert_eq!(key("fffe"), Ok(ConsumerOffsetsKey::Other(-2)));
    for bad in [
        "",
        "00",
        "0002",
        "00020002",
        "0002ffff",
        "00020001ff",
        "0001000167000174000000",
    ] {
        assert!(key(bad).is_err(), "{bad}");
    }
}

/// Kafka's tables have no null there. Every negative length is null.
#[test]
fn null_members_bytes_and_partitions_of_records_are_read_as_empty() {
    let group: GroupMetadataValue = decode(&hex("0000000163000000020000fffeffffffff")).unwrap();
    assert_eq!((group.generation, group.leader, group.members), (2, None, None));
    let member = "000161_000162_000163_000000ff_ffffffff_fffffffe".replace('_', "");
    let group: GroupMetadataValue = decode(&hex(&format!("0000000163000000020000ffff00000001{member}"))).unwrap();
    let members = group.members.unwrap();
    assert_eq!((&members[0].subscription, &members[0].assignment), (&None, &None));
    assert_eq!(
        (members[0].session_timeout, members[0].rebalance_timeout_ms()),
        (255, 255)
    );
    let transaction = |partitions: &str| {
        let text = format!(
            "0000{}{}{}{partitions}{}",
            "00".repeat(8),
            "0000",
            "0000000001",
            "00".repeat(16)
        );
        decode::<TransactionLogValue>(&hex(&text))
            .unwrap()
            .transaction_partitions
    };
    assert_eq!(transaction("ffffffff"), None);
    assert_eq!(transaction("00000001000174fffffffe").unwrap()[0].partition_ids, None);
}

#[test]
fn values_of_records_in_an_unknown_version_are_refused() {
    for version in [-1, 5] {
        let bytes = [&i16::to_be_bytes(version)[..], &[0; 100]].concat();
        assert_eq!(fault::<OffsetCommitValue>(&bytes), Fault::Version(version));
        assert_eq!(fault::<GroupMetadataValue>(&bytes), Fault::Version(version));
        assert_eq!(fault::<TransactionLogValue>(&bytes), Fault::Version(version));
        assert_eq!(fault::<TransactionLogKey>(&bytes), Fault::Version(version));
    }
}

#[test]
fn an_offset_is_written_in_version_1_only_if_it_has_an_expiry() {
    let mut value = OffsetCommitValue {
        leader_epoch: 5,
        ..Default::default()
    };
    assert_eq!(value.written_version(), 3);
    value.expire_timestamp = 9;
    assert_eq!(value.written_version(), 1);
    let read: OffsetCommitValue = decode(&value.encode(1).unwrap()).unwrap();
    assert_eq!((read.leader_epoch, read.expire_timestamp), (-1, 9));
}
