//! The rules of reading and writing, one by one; bytes written down by hand.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_protocol::header::{RequestHeader, ResponseHeader, request_header_version, response_header_version};
use fletchlog_protocol::messages::describe_topic_partitions_request::Cursor;
use fletchlog_protocol::messages::fetch_response::{
    AbortedTransaction, FetchableTopicResponse, LeaderIdAndEpoch, PartitionData,
};
use fletchlog_protocol::messages::{
    ApiVersionsRequest, DescribeTopicPartitionsRequest, FetchRequest, FetchResponse, FindCoordinatorRequest,
    HeartbeatRequest, MetadataRequest, ProduceRequest, SyncGroupRequest,
};
use fletchlog_protocol::{ApiKey, Fault, IsolationLevel, Message, Reader, WireError, Writer, frame, schema_json};
use fletchlog_records::ErrorCode;

fn decode<M: Message>(bytes: &[u8], version: i16) -> Result<M, WireError> {
    M::decode(&mut Reader::new(Bytes::copy_from_slice(bytes)), version)
}

fn encode<M: Message>(message: &M, version: i16) -> Result<Vec<u8>, WireError> {
    let mut writer = Writer::new();
    message.encode(&mut writer, version)?;
    Ok(writer.into_chunks().concat())
}

fn header(bytes: &[u8]) -> Result<RequestHeader, WireError> {
    RequestHeader::decode(&mut Reader::new(Bytes::copy_from_slice(bytes)))
}

#[test]
fn every_field_has_its_place() {
    let response = FetchResponse {
        throttle_time_ms: 1,
        error_code: ErrorCode::CORRUPT_MESSAGE,
        session_id: 3,
        responses: vec![FetchableTopicResponse {
            topic: "t".into(),
            partitions: vec![PartitionData {
                partition_index: 4,
                error_code: ErrorCode::LEADER_NOT_AVAILABLE,
                high_watermark: 6,
                last_stable_offset: 7,
                log_start_offset: 8,
                current_leader: LeaderIdAndEpoch {
                    leader_id: 9,
                    leader_epoch: 10,
                },
                aborted_transactions: Some(vec![AbortedTransaction {
                    producer_id: 11,
                    first_offset: 12,
                }]),
                preferred_read_replica: 13,
                records: Some(Bytes::from_static(b"rec")),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    #[rustfmt::skip]
    let bytes = [
        &[0, 0, 0, 1, 0, 2, 0, 0, 0, 3][..],            // throttle time, error, session
        &[2, 2, b't', 2],                               // one topic, its name, one partition
        &[0, 0, 0, 4, 0, 5],                            // index, error
        &[0, 0, 0, 0, 0, 0, 0, 6],                      // high watermark
        &[0, 0, 0, 0, 0, 0, 0, 7],                      // last stable offset
        &[0, 0, 0, 0, 0, 0, 0, 8],                      // log start offset
        &[2, 0, 0, 0, 0, 0, 0, 0, 11],                  // one aborted transaction: producer id
        &[0, 0, 0, 0, 0, 0, 0, 12, 0],                  // first offset, no tags
        &[0, 0, 0, 13],                                 // preferred read replica
        &[4, b'r', b'e', b'c'],                         // records
        &[1, 1, 9, 0, 0, 0, 9, 0, 0, 0, 10, 0],         // one tag: 1, of 9 bytes: leader, epoch, no tags
        &[0, 0],                                        // no tags of the topic, of the response
    ]
    .concat();
    assert_eq!(encode(&response, 12).unwrap(), bytes);
    assert_eq!(decode::<FetchResponse>(&bytes, 12).unwrap(), response);
}

#[test]
fn defaults_are_those_of_kafka() {
    let request = FetchRequest::default();
    assert_eq!(
        (request.replica_id, request.max_bytes, request.session_epoch),
        (-1, i32::MAX, -1)
    );
    assert_eq!(request.cluster_id, None);
    // without a default of its own, what can be null begins empty; records begin as null
    assert_eq!(MetadataRequest::default().topics, Some(vec![]));
    assert!(MetadataRequest::default().allow_auto_topic_creation);
    assert_eq!(PartitionData::default().aborted_transactions, Some(vec![]));
    assert_eq!(PartitionData::default().records, None);
    // a field that the version has not gets its default
    let old = decode::<FetchRequest>(&[0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0, 8, 1, 0, 0, 0, 0], 4).unwrap();
    assert_eq!(
        (old.replica_id, old.max_bytes, old.isolation_level, old.session_epoch),
        (5, 8, IsolationLevel::ReadCommitted, -1)
    );
}

#[test]
fn a_negative_length_is_null_where_null_is_possible() {
    for negative in [[0xff; 4], [0xff, 0xff, 0xff, 0xfe], [0x80, 0, 0, 0]] {
        assert_eq!(decode::<MetadataRequest>(&negative, 1).unwrap().topics, None);
        let error = decode::<MetadataRequest>(&negative, 0).unwrap_err();
        assert_eq!((error.field, error.fault), ("MetadataRequest.topics", Fault::Null));
    }
    // compact: 0, and what Java's int takes for a negative number
    for null in [&[0][..], &[0xff, 0xff, 0xff, 0xff, 0x0f]] {
        let bytes = [null, &[1, 0, 0, 0]].concat();
        assert_eq!(decode::<MetadataRequest>(&bytes, 9).unwrap().topics, None, "{null:?}");
    }
    assert_eq!(header(b"\0\x12\0\0\0\0\0\x01\xff\xfe").unwrap().client_id, None);
    let error = decode::<FindCoordinatorRequest>(&[0xff, 0xfb], 0).unwrap_err();
    assert_eq!((error.field, error.fault), ("FindCoordinatorRequest.key", Fault::Null));
}

#[test]
fn a_struct_may_be_null() {
    let mut request = DescribeTopicPartitionsRequest {
        response_partition_limit: 3,
        ..Default::default()
    };
    assert_eq!(request.cursor, None);
    assert_eq!(encode(&request, 0).unwrap(), [1, 0, 0, 0, 3, 0xff, 0]);
    request.cursor = Some(Cursor {
        topic_name: "t".into(),
        partition_index: 1,
    });
    let bytes = [1, 0, 0, 0, 3, 1, 2, b't', 0, 0, 0, 1, 0, 0];
    assert_eq!(encode(&request, 0).unwrap(), bytes);
    assert_eq!(decode::<DescribeTopicPartitionsRequest>(&bytes, 0).unwrap(), request);
}

#[test]
fn lengths_beyond_the_end_are_errors() {
    let cut = |wanted, remaining| Fault::Cut { wanted, remaining };
    let fault = |bytes: &[u8], version| decode::<MetadataRequest>(bytes, version).unwrap_err().fault;
    let most = usize::try_from(i32::MAX).unwrap();
    assert_eq!(fault(&[0x7f, 0xff, 0xff, 0xff], 1), cut(most, 0));
    assert_eq!(fault(&[0, 0, 0, 3, 0, 0, 0, 0], 1), cut(3, 4)); // two strings at most fit in
    assert_eq!(fault(&[0x80, 0x80, 0x80, 0x80, 0x08, 0], 9), cut(most, 1)); // 2^31 - 1 as Java computes it
    assert_eq!(fault(&[0, 0, 0, 1, 0, 5, b'a'], 1), cut(5, 1));
    assert_eq!(fault(&[0, 0], 1), cut(4, 2));
    let records = decode::<ProduceRequest>(
        b"\xff\xff\0\x01\0\0\0\0\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\0\0\0\0\x09rec",
        3,
    );
    let error = records.unwrap_err();
    assert_eq!(
        error.to_string(),
        "ProduceRequest, field PartitionProduceData.records: 9 bytes or elements are announced, 3 bytes remain"
    );
}

#[test]
fn a_varint_of_six_bytes_is_an_error() {
    let error = decode::<MetadataRequest>(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x01], 9).unwrap_err();
    assert_eq!(error.fault, Fault::Varint);
    // five bytes that say one are fine: an empty array, then three flags and no tags
    assert_eq!(
        decode::<MetadataRequest>(&[0x81, 0x80, 0x80, 0x80, 0x00, 0, 0, 0, 0], 9)
            .unwrap()
            .topics,
        Some(vec![])
    );
}

#[test]
fn unknown_tags_are_skipped_in_any_order_and_twice() {
    let body = |tags: &[u8]| [&[2, b'n', 2, b'v'], tags].concat();
    for tags in [&[0][..], &[2, 9, 1, b'x', 3, 0], &[2, 9, 0, 9, 2, b'x', b'y']] {
        let request = decode::<ApiVersionsRequest>(&body(tags), 3).unwrap();
        assert_eq!(
            (&*request.client_software_name, &*request.client_software_version),
            ("n", "v")
        );
    }
    let error = decode::<ApiVersionsRequest>(&body(&[1, 9, 5, b'x']), 3).unwrap_err();
    assert_eq!(
        error.fault,
        Fault::Cut {
            wanted: 5,
            remaining: 1
        }
    );
    assert_eq!(
        header(b"\0\x12\0\x03\0\0\0\x07\0\x01c\x02\x63\x01a\x63\x01b")
            .unwrap()
            .correlation_id,
        7
    );
}

#[test]
fn what_follows_a_body_is_left_alone() {
    let mut reader = Reader::new(Bytes::from_static(&[0, 1, b'g', 0, 0, 0, 1, 0, 1, b'm', 9, 9, 9]));
    HeartbeatRequest::decode(&mut reader, 0).unwrap();
    assert_eq!(reader.remaining(), 3);
}

#[test]
fn what_is_not_utf_8_is_replaced_as_in_kafka() {
    let client_id = header(b"\0\x03\0\x01\0\0\0\x07\0\x02\xff\xfe").unwrap().client_id;
    assert_eq!(client_id.as_deref(), Some("\u{fffd}\u{fffd}"));
    let group: Arc<str> = decode::<HeartbeatRequest>(&[0, 2, b'g', 0x80, 0, 0, 0, 1, 0, 0], 0)
        .unwrap()
        .group_id;
    assert_eq!(&*group, "g\u{fffd}");
}

#[test]
fn a_string_has_32767_bytes_at_most() {
    let request = |len| FindCoordinatorRequest {
        key: "k".repeat(len).into(),
        ..Default::default()
    };
    for version in [0, 3] {
        let bytes = encode(&request(32767), version).unwrap();
        assert_eq!(
            decode::<FindCoordinatorRequest>(&bytes, version).unwrap(),
            request(32767)
        );
        assert_eq!(
            encode(&request(32768), version).unwrap_err().fault,
            Fault::Length(32768)
        );
    }
    let long = [&[0x81, 0x80, 0x02][..], &[b'k'; 32768], &[0, 0]].concat();
    assert_eq!(
        decode::<FindCoordinatorRequest>(&long, 3).unwrap_err().fault,
        Fault::Length(32768)
    );
    let error = encode(&request(1), 7).unwrap_err();
    assert_eq!(error.to_string(), "FindCoordinatorRequest: version 7 is not supported");
}

#[test]
fn what_a_version_cannot_carry_is_an_error_unless_it_may_be_ignored() {
    let ignorable = FetchRequest {
        rack_id: "r".into(),
        ..Default::default()
    };
    assert_eq!(encode(&ignorable, 4), encode(&FetchRequest::default(), 4));
    let batched = FindCoordinatorRequest {
        coordinator_keys: vec!["a".into()],
        ..Default::default()
    };
    let error = encode(&batched, 3).unwrap_err();
    assert_eq!(
        (error.field, error.fault),
        ("FindCoordinatorRequest.coordinator_keys", Fault::NotInVersion)
    );
    assert!(encode(&batched, 4).is_ok());
    let everything = MetadataRequest {
        topics: None,
        ..Default::default()
    };
    assert_eq!(encode(&everything, 0).unwrap_err().fault, Fault::Null);
    assert!(encode(&everything, 1).is_ok());
}

/// Whether the bytes lie inside the frame.
fn shares(frame: &Bytes, part: &Bytes) -> bool {
    frame.as_ptr_range().start <= part.as_ptr() && part.as_ptr_range().end <= frame.as_ptr_range().end
}

#[test]
fn records_and_bytes_are_never_copied_when_they_are_read() {
    let frame = Bytes::copy_from_slice(b"\xff\xff\0\x01\0\0\0\0\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\0\0\0\0\x03rec");
    let request = ProduceRequest::decode(&mut Reader::new(frame.clone()), 3).unwrap();
    let records = request.topic_data[0].partition_data[0].records.as_ref().unwrap();
    assert_eq!(records, "rec");
    assert!(shares(&frame, records));
    let frame = Bytes::copy_from_slice(b"\0\0\0\0\0\0\0\0\0\0\0\x01\0\x01m\0\0\0\x02as");
    let request = SyncGroupRequest::decode(&mut Reader::new(frame.clone()), 0).unwrap();
    assert!(shares(&frame, &request.assignments[0].assignment));
}

#[test]
fn large_records_are_chunks_of_their_own() {
    let partition = |len| PartitionData {
        records: Some(Bytes::from(vec![7; len])),
        ..Default::default()
    };
    let partitions = vec![partition(1024), partition(1023), partition(5000)];
    let sent: Vec<Bytes> = partitions
        .iter()
        .filter_map(|partition| partition.records.clone())
        .collect();
    let topic = FetchableTopicResponse {
        partitions,
        ..Default::default()
    };
    let response = FetchResponse {
        responses: vec![topic],
        ..Default::default()
    };
    for version in [4, 12, 18] {
        let mut writer = frame::begin();
        response.encode(&mut writer, version).unwrap();
        let chunks = frame::finish(writer).unwrap();
        let lens: Vec<_> = chunks.iter().map(Bytes::len).collect();
        assert_eq!(
            (chunks.len(), lens[1], lens[3]),
            (if version < 12 { 4 } else { 5 }, 1024, 5000),
            "v{version}"
        );
        assert_eq!(
            (chunks[1].as_ptr(), chunks[3].as_ptr()),
            (sent[0].as_ptr(), sent[2].as_ptr())
        );
        let whole = chunks.concat();
        let size = i32::from_be_bytes(whole[..4].try_into().unwrap());
        assert_eq!(usize::try_from(size).unwrap(), whole.len() - 4);
        assert_eq!(decode::<FetchResponse>(&whole[4..], version).unwrap(), response);
    }
}

#[test]
fn headers_follow_from_api_and_version() {
    let (fetch, api_versions) = (ApiKey::Fetch.code(), ApiKey::ApiVersions.code());
    assert_eq!(
        (request_header_version(fetch, 11), request_header_version(fetch, 12)),
        (1, 2)
    );
    assert_eq!(
        (response_header_version(fetch, 11), response_header_version(fetch, 12)),
        (0, 1)
    );
    // a client must understand the answer whatever the version
    assert_eq!(
        (
            request_header_version(api_versions, 99),
            response_header_version(api_versions, 99)
        ),
        (2, 0)
    );
    assert_eq!(request_header_version(api_versions, -1), 1);
    assert_eq!(request_header_version(999, 99), 1);
    let mut writer = Writer::new();
    ResponseHeader { correlation_id: 5 }.encode(&mut writer, 1);
    assert_eq!(writer.into_chunks().concat(), [0, 0, 0, 5, 0]);
    assert_eq!(
        header(b"\0\x01\0").unwrap_err().to_string(),
        "RequestHeader: 2 bytes or elements are announced, 1 bytes remain"
    );
}

#[test]
fn an_api_is_known_by_its_code() {
    for api in ApiKey::ALL {
        assert_eq!(ApiKey::from_code(api.code()), Some(*api));
    }
    assert!(ApiKey::ALL.is_sorted());
    assert_eq!((ApiKey::Fetch.code(), ApiKey::Fetch.name()), (1, "Fetch"));
    assert_eq!((ApiKey::Fetch.min_version(), ApiKey::Fetch.max_version()), (4, 18));
    assert_eq!(ApiKey::from_code(4), None); // between brokers
    assert_eq!(ApiKey::from_code(-1), None);
}

#[test]
fn the_tables_are_printed_in_kafkas_words() {
    let schema: serde_json::Value = serde_json::from_str(&schema_json()).unwrap();
    let messages = schema.as_array().unwrap();
    assert_eq!(messages.len(), 2 * ApiKey::ALL.len());
    let fetch = &messages[2];
    assert_eq!(
        (fetch["name"].as_str(), fetch["validVersions"].as_str()),
        (Some("FetchRequest"), Some("4-18"))
    );
    let expected = serde_json::json!({
        "name": "cluster_id", "type": "string", "versions": "12+", "nullableVersions": "12+", "tag": 0,
        "taggedVersions": "12+", "default": "null", "ignorable": true,
    });
    assert_eq!(fetch["fields"][0], expected);
    let topics = fetch["fields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|field| field["name"] == "topics")
        .unwrap();
    assert_eq!(
        (&topics["type"], &topics["fields"][0]["versions"]),
        (&"[]FetchTopic".into(), &"0-12".into())
    );
}
