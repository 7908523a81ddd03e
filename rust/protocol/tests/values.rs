//! The rules of values, one by one; bytes written down by hand or recorded.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_protocol::values::consumer_protocol::{TopicPartition, flattened};
use fletchlog_protocol::values::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, CooperativeStickyAssignorUserData, StickyAssignorUserData,
};
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
