//! What older versions say elsewhere: a message has one shape in memory, whatever version is on the wire.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_protocol::messages::find_coordinator_response::Coordinator;
use fletchlog_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use fletchlog_protocol::messages::{
    AddPartitionsToTxnRequest, FindCoordinatorRequest, FindCoordinatorResponse, OffsetCommitRequest,
    OffsetFetchRequest, OffsetFetchResponse, TxnOffsetCommitRequest,
};
use fletchlog_protocol::{CoordinatorType, Message, OffsetAndMetadata, Reader, Writer};
use fletchlog_records::{ErrorCode, TopicPartition};

/// Sends a message at a version, and reads it there.
fn sent<M: Message>(message: M, version: i16) -> M {
    let mut writer = Writer::new();
    message.for_version(version).encode(&mut writer, version).unwrap();
    let mut reader = Reader::new(Bytes::from(writer.into_chunks().concat()));
    M::decode(&mut reader, version).unwrap().of_version(version)
}

fn tp(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition::new(topic, partition)
}

fn committed(offset: i64) -> OffsetAndMetadata {
    OffsetAndMetadata {
        offset,
        leader_epoch: -1,
        metadata: "m".into(),
    }
}

#[test]
fn a_lookup_of_one_coordinator_has_the_same_shape_in_every_version() {
    for version in 0..=FindCoordinatorRequest::MAX_VERSION {
        let lookup = FindCoordinatorRequest::of(CoordinatorType::Group, "g".into());
        assert_eq!(sent(lookup.clone(), version), lookup, "{version}");
        for (error_code, found) in [
            (ErrorCode::NONE, Ok(7)),
            (ErrorCode::NOT_COORDINATOR, Err(ErrorCode::NOT_COORDINATOR)),
        ] {
            let response = FindCoordinatorResponse {
                coordinators: vec![Coordinator {
                    key: "g".into(),
                    node_id: 7,
                    host: "h".into(),
                    port: 9,
                    error_code,
                    error_message: Some("why".into()),
                }],
                ..Default::default()
            };
            let read = sent(response.clone(), version);
            assert_eq!(read.coordinator_node(), found, "{version}");
            let (read, sent) = (&read.coordinators[0], &response.coordinators[0]);
            assert_eq!((&read.host, read.port), (&sent.host, sent.port), "{version}");
            let key = if version < 4 { "" } else { "g" };
            assert_eq!(&*read.key, key, "{version}");
            let text = match (version, error_code) {
                (0, _) => "",
                (1..4, ErrorCode::NONE) => "NONE",
                _ => "why",
            };
            assert_eq!(read.error_message.as_deref(), Some(text), "{version}");
        }
    }
    assert_eq!(
        FindCoordinatorResponse::default().coordinator_node(),
        Err(ErrorCode::COORDINATOR_NOT_AVAILABLE)
    );
}

#[test]
fn offsets_of_one_group_have_the_same_shape_in_every_version() {
    let partitions = [tp("t", 1), tp("u", 0), tp("t", 0)];
    for version in 1..=9 {
        let request = OffsetFetchRequest::of("g".into(), Some(&partitions), true);
        let expected = OffsetFetchRequest::of("g".into(), Some(&partitions), version >= 7);
        assert_eq!(sent(request, version), expected, "{version}");
        if version >= 2 {
            let all = OffsetFetchRequest::of("g".into(), None, false);
            assert_eq!(sent(all.clone(), version), all, "{version}");
        }
        let value = committed(5);
        let response = OffsetFetchResponse {
            groups: vec![OffsetFetchResponseGroup {
                group_id: "g".into(),
                topics: vec![OffsetFetchResponseTopics {
                    name: "t".into(),
                    partitions: vec![
                        OffsetFetchResponsePartitions::of(0, Ok(Some(&value))),
                        OffsetFetchResponsePartitions::of(1, Ok(None)),
                        OffsetFetchResponsePartitions::of(2, Err(ErrorCode::UNSTABLE_OFFSET_COMMIT)),
                    ],
                    ..Default::default()
                }],
                error_code: ErrorCode::NONE,
            }],
            ..Default::default()
        };
        let read: Vec<_> = sent(response, version).offsets().unwrap().collect();
        let expected = [
            (tp("t", 0), Ok(Some(value))),
            (tp("t", 1), Ok(None)),
            (tp("t", 2), Err(ErrorCode::UNSTABLE_OFFSET_COMMIT)),
        ];
        assert_eq!(read, expected, "{version}");
    }
}

#[test]
fn a_group_that_cannot_be_read_has_an_error_instead_of_offsets() {
    let refused = OffsetFetchResponse {
        groups: vec![OffsetFetchResponseGroup {
            error_code: ErrorCode::NOT_COORDINATOR,
            ..Default::default()
        }],
        ..Default::default()
    };
    for version in 2..=9 {
        let read = sent(refused.clone(), version);
        assert_eq!(read.offsets().err(), Some(ErrorCode::NOT_COORDINATOR), "{version}");
    }
    let none = OffsetFetchResponse::default();
    assert_eq!(none.offsets().err(), Some(ErrorCode::UNKNOWN_SERVER_ERROR));
}

#[test]
fn a_commit_knows_from_its_version_which_error_an_unknown_group_has() {
    for version in 2..=9 {
        let commit = OffsetCommitRequest {
            topics: OffsetCommitRequest::topics_of([(tp("t", 0), committed(1))]),
            ..Default::default()
        };
        assert_eq!(
            sent(commit, version).knows_group_id_not_found,
            version >= 9,
            "{version}"
        );
    }
}

#[test]
fn partitions_of_a_topic_go_together_and_errors_come_back_in_that_order() {
    let asked = [tp("t", 1), tp("u", 0), tp("t", 0)];
    let nested = [tp("t", 1), tp("t", 0), tp("u", 0)];
    let codes = [
        ErrorCode::NONE,
        ErrorCode::REBALANCE_IN_PROGRESS,
        ErrorCode::NOT_COORDINATOR,
    ];
    let expected: Vec<_> = nested.iter().cloned().zip(codes).collect();
    let add = AddPartitionsToTxnRequest {
        v3_and_below_topics: AddPartitionsToTxnRequest::topics_of(asked.clone()),
        ..Default::default()
    };
    assert_eq!(add.partitions().collect::<Vec<_>>(), nested);
    assert_eq!(add.answered(codes).errors().collect::<Vec<_>>(), expected);
    let offsets = asked.map(|tp| (tp, committed(3)));
    let stored: Vec<_> = nested.map(|tp| (tp, committed(3))).into();
    let commit = OffsetCommitRequest {
        topics: OffsetCommitRequest::topics_of(offsets.clone()),
        ..Default::default()
    };
    assert_eq!(commit.offsets().collect::<Vec<_>>(), stored);
    assert_eq!(commit.answered(codes).errors().collect::<Vec<_>>(), expected);
    let commit = TxnOffsetCommitRequest {
        topics: TxnOffsetCommitRequest::topics_of(offsets),
        ..Default::default()
    };
    assert_eq!(commit.offsets().collect::<Vec<_>>(), stored);
    assert_eq!(commit.answered(codes).errors().collect::<Vec<_>>(), expected);
    assert!(Arc::ptr_eq(
        &commit.topics[0].name,
        &commit.answered(codes).topics[0].name
    ));
}
