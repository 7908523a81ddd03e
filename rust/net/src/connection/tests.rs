use fletchlog_api as api;
use fletchlog_api::{CoordinatorType, FindCoordinatorRequest, HeartbeatRequest, ProduceRequest};
use fletchlog_protocol::header::ResponseHeader;
use fletchlog_protocol::local::FetchTopicIds;
use fletchlog_protocol::messages::api_versions_response::ApiVersion;
use fletchlog_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use fletchlog_protocol::messages::list_offsets_request::ListOffsetsPartition;
use fletchlog_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use fletchlog_protocol::messages::{
    FetchResponse, FindCoordinatorResponse, HeartbeatResponse, ListGroupsResponse, MetadataResponse, fetch_response,
};

use super::*;

const VERSIONS: i16 = 18;

/// A node without I/O: reads what the connection writes, and answers.
struct Node {
    connection: Connection,
    book: AddressBook,
}

impl Node {
    fn new() -> Self {
        Self {
            connection: Connection::new("me".into(), None, None).unwrap(),
            book: AddressBook::new(Vec::new()),
        }
    }

    /// The node that the client means.
    fn meant(destination: Destination) -> Self {
        Self {
            connection: Connection::new("me".into(), None, Some(destination)).unwrap(),
            ..Self::new()
        }
    }

    /// One whose versions the connection knows.
    fn ready(ranges: &[(ApiKey, i16, i16)]) -> Self {
        let mut node = Self::new();
        let header = node.requests().remove(0);
        assert_eq!((header.api_key, header.api_version), (VERSIONS, 5));
        node.answer(header.correlation_id, 0, 5, &served(ErrorCode::NONE, ranges))
            .unwrap();
        assert!(node.connection.is_ready());
        node
    }

    /// Headers of what was written since the last call.
    fn requests(&mut self) -> Vec<RequestHeader> {
        self.request_bodies().into_iter().map(|(header, _)| header).collect()
    }

    /// Headers and bodies of what was written since the last call.
    fn request_bodies(&mut self) -> Vec<(RequestHeader, Bytes)> {
        let mut bytes = Vec::new();
        while self.connection.has_output() {
            let mut slices = Vec::new();
            self.connection.output(&mut slices);
            let chunk = slices[0].to_vec();
            self.connection.written(chunk.len());
            bytes.extend(chunk);
        }
        let mut requests = Vec::new();
        let mut rest = &bytes[..];
        while let Some((size, tail)) = rest.split_first_chunk::<4>() {
            let (payload, tail) = tail.split_at(u32::from_be_bytes(*size) as usize);
            let payload = Bytes::copy_from_slice(payload);
            let mut reader = Reader::new(payload.clone());
            let header = RequestHeader::decode(&mut reader).unwrap();
            requests.push((header, payload.slice(payload.len() - reader.remaining()..)));
            rest = tail;
        }
        requests
    }

    fn answer(&mut self, id: i32, header: i16, version: i16, message: &impl Message) -> Result<(), Failure> {
        let mut writer = frame::begin();
        ResponseHeader { correlation_id: id }.encode(&mut writer, header);
        message.encode(&mut writer, version).unwrap();
        self.feed(&frame::finish(writer).unwrap().concat())
    }

    fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        while !bytes.is_empty() {
            let room = self.connection.room();
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            self.connection.received(count, &mut self.book)?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    fn send(&mut self, id: i32, request: Request) {
        self.connection.send(id, request);
    }

    fn answers(&mut self) -> Vec<(i32, Result<Response, Failure>)> {
        std::iter::from_fn(|| self.connection.take_answer())
            .map(|a| (a.id, a.result))
            .collect()
    }
}

fn served(error_code: ErrorCode, ranges: &[(ApiKey, i16, i16)]) -> ApiVersionsResponse {
    let range = |&(api, min_version, max_version): &(ApiKey, i16, i16)| ApiVersion {
        api_key: api.code(),
        min_version,
        max_version,
    };
    ApiVersionsResponse {
        error_code,
        api_keys: ranges.iter().map(range).collect(),
        ..Default::default()
    }
}

fn heartbeat() -> Request {
    Request::Heartbeat(HeartbeatRequest {
        group_id: "g".into(),
        generation_id: 1,
        member_id: "m".into(),
        group_instance_id: None,
    })
}

fn produce(acks: i16) -> Request {
    Request::Produce(ProduceRequest {
        transactional_id: None,
        acks,
        timeout_ms: 1,
        topic_data: vec![TopicProduceData {
            name: "t".into(),
            partition_data: vec![PartitionProduceData {
                index: 0,
                records: Some(Bytes::from_static(&[7; 2000])),
            }],
            ..Default::default()
        }],
        ..Default::default()
    })
}

const BEAT: (ApiKey, i16, i16) = (ApiKey::Heartbeat, 0, 4);
const SEND: (ApiKey, i16, i16) = (ApiKey::Produce, 0, 13);

#[test]
fn requests_wait_for_the_versions_and_go_out_in_order_at_the_newest_common_one() {
    let mut node = Node::new();
    node.send(7, heartbeat());
    node.send(8, produce(1));
    let asked = node.requests();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0].client_id.as_deref(), Some("me"));
    node.answer(
        asked[0].correlation_id,
        0,
        5,
        &served(ErrorCode::NONE, &[(ApiKey::Heartbeat, 0, 2), SEND]),
    )
    .unwrap();
    let sent: Vec<_> = node.requests().iter().map(|h| (h.api_key, h.api_version)).collect();
    assert_eq!(sent, [(12, 2), (0, 11)]);
}

#[test]
fn a_node_that_refuses_the_newest_version_of_api_versions_is_asked_again_in_the_one_it_names_or_in_0() {
    for (ranges, next) in [(vec![(ApiKey::ApiVersions, 0, 3)], 3), (vec![], 0)] {
        let mut node = Node::new();
        let id = node.requests()[0].correlation_id;
        // Whatever was asked, the refusal has the layout of version 0.
        node.answer(id, 0, 0, &served(ErrorCode::UNSUPPORTED_VERSION, &ranges))
            .unwrap();
        let again = node.requests().remove(0);
        assert_eq!((again.api_key, again.api_version), (VERSIONS, next));
        node.answer(again.correlation_id, 0, next, &served(ErrorCode::NONE, &[BEAT]))
            .unwrap();
        assert!(node.connection.is_ready());
    }
}

#[test]
fn a_node_is_told_which_one_the_client_means_and_says_if_it_is_another() {
    let asked = |node: &mut Node| {
        let (header, body) = node.request_bodies().remove(0);
        let request = ApiVersionsRequest::decode(&mut Reader::new(body), header.api_version).unwrap();
        (header.correlation_id, (request.cluster_id, request.node_id))
    };
    assert_eq!(asked(&mut Node::new()).1, (None, -1));
    let meant = || Destination {
        cluster_id: "c".into(),
        node_id: 3,
    };
    let mut node = Node::meant(meant());
    let (id, ids) = asked(&mut node);
    assert_eq!(ids, (Some("c".into()), 3));
    let refused = node.answer(id, 0, 5, &served(ErrorCode::REBOOTSTRAP_REQUIRED, &[]));
    assert_eq!(refused, Err(Failure::RebootstrapRequired));
    // A node of an older release is asked again without.
    let mut node = Node::meant(meant());
    let older = served(ErrorCode::UNSUPPORTED_VERSION, &[(ApiKey::ApiVersions, 0, 4)]);
    let (id, _) = asked(&mut node);
    node.answer(id, 0, 0, &older).unwrap();
    assert_eq!(asked(&mut node).1, (None, -1));
}

#[test]
fn a_node_that_refuses_every_version_or_names_none_ends_the_connection() {
    let mut node = Node::new();
    let id = node.requests()[0].correlation_id;
    let refused = node.answer(
        id,
        0,
        0,
        &served(ErrorCode::UNSUPPORTED_VERSION, &[(ApiKey::ApiVersions, 0, 9)]),
    );
    assert!(matches!(refused, Err(Failure::UnsupportedVersion(_))), "{refused:?}");
    let mut node = Node::new();
    let id = node.requests()[0].correlation_id;
    let refused = node.answer(id, 0, 5, &served(ErrorCode::INVALID_REQUEST, &[]));
    assert!(
        matches!(&refused, Err(Failure::Malformed(why)) if why.contains("42")),
        "{refused:?}"
    );
}

#[test]
fn a_request_that_no_version_carries_is_answered_at_once_and_the_others_go_on() {
    let mut node = Node::ready(&[BEAT, (ApiKey::ListOffsets, 1, 1)]);
    node.send(1, produce(1));
    let committed_only = Request::ListOffsets(api::ListOffsetsRequest {
        isolation_level: api::IsolationLevel::ReadCommitted,
        ..Default::default()
    });
    node.send(2, committed_only);
    let partition = ListOffsetsPartition {
        timestamp: api::ListOffsetsRequest::MAX_TIMESTAMP,
        ..Default::default()
    };
    let greatest =
        api::ListOffsetsRequest::for_consumer(api::IsolationLevel::ReadUncommitted, [("t".into(), partition)]);
    node.send(3, Request::ListOffsets(greatest));
    let answers = node.answers();
    assert_eq!(answers.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(
        answers
            .iter()
            .all(|(_, r)| matches!(r, Err(Failure::UnsupportedVersion(_)))),
        "{answers:?}"
    );
    node.send(4, heartbeat());
    assert_eq!(node.requests().len(), 1);
}

#[test]
fn answers_split_at_any_byte_complete_their_requests_in_order() {
    for split in 0..30 {
        let mut node = Node::ready(&[BEAT]);
        node.send(5, heartbeat());
        node.send(6, heartbeat());
        let ids: Vec<_> = node.requests().iter().map(|h| h.correlation_id).collect();
        let mut bytes = Vec::new();
        for (id, error_code) in ids.into_iter().zip([ErrorCode::NONE, ErrorCode::REBALANCE_IN_PROGRESS]) {
            let mut writer = frame::begin();
            ResponseHeader { correlation_id: id }.encode(&mut writer, 1);
            let response = HeartbeatResponse {
                error_code,
                ..Default::default()
            };
            response.encode(&mut writer, 4).unwrap();
            bytes.extend(frame::finish(writer).unwrap().concat());
        }
        let split = split.min(bytes.len());
        node.feed(&bytes[..split]).unwrap();
        node.feed(&bytes[split..]).unwrap();
        let answers = node.answers();
        assert!(
            matches!(
                answers[..],
                [
                    (
                        5,
                        Ok(Response::Heartbeat(HeartbeatResponse {
                            error_code: ErrorCode::NONE,
                            ..
                        }))
                    ),
                    (
                        6,
                        Ok(Response::Heartbeat(HeartbeatResponse {
                            error_code: ErrorCode::REBALANCE_IN_PROGRESS,
                            ..
                        }))
                    )
                ]
            ),
            "{answers:?}"
        );
    }
}

#[test]
fn what_is_no_answer_to_the_oldest_request_ends_the_connection() {
    let beat = HeartbeatResponse::default();
    let mut node = Node::ready(&[BEAT]);
    assert!(
        matches!(node.answer(9, 1, 4, &beat), Err(Failure::Malformed(_))),
        "nothing was asked"
    );
    let mut node = Node::ready(&[BEAT]);
    node.send(1, heartbeat());
    let id = node.requests()[0].correlation_id;
    assert!(
        matches!(node.answer(id + 1, 1, 4, &beat), Err(Failure::Malformed(_))),
        "another number"
    );
    for cut in [
        vec![0, 0, 0, 4, 0, 0, 0, 1],
        vec![0x7f, 0xff, 0xff, 0xff],
        vec![0xff; 4],
        b"HTTP/1.1 400".to_vec(),
    ] {
        let mut node = Node::ready(&[BEAT]);
        node.send(1, heartbeat());
        let refused = node.feed(&cut);
        assert!(matches!(refused, Err(Failure::Malformed(_))), "{cut:?}: {refused:?}");
        assert_eq!(node.connection.close(), [1]);
    }
}

#[test]
fn an_answer_may_be_as_large_as_what_was_asked_for_and_no_larger() {
    let mut node = Node::ready(&[(ApiKey::Fetch, 4, 18)]);
    let fetch = Request::Fetch(api::FetchRequest {
        max_wait_ms: 0,
        min_bytes: 0,
        max_bytes: 1000,
        ..Default::default()
    });
    node.send(1, fetch);
    let limit = i32::try_from(MAX_ANSWER + 1000).unwrap();
    node.feed(&limit.to_be_bytes()).unwrap();
    let mut node = Node::ready(&[BEAT]);
    node.send(1, heartbeat());
    assert!(node.feed(&limit.to_be_bytes()).is_err());
}

#[test]
fn a_request_without_an_answer_is_done_with_its_last_byte() {
    let mut node = Node::ready(&[SEND, BEAT]);
    node.send(1, heartbeat());
    node.send(2, produce(0));
    let mut left: u64 = node.connection.queued - node.connection.written;
    while left > 1 {
        node.connection.written(1);
        left -= 1;
        assert!(node.answers().is_empty());
    }
    node.connection.written(1);
    assert!(matches!(&node.answers()[..], [(2, Ok(Response::Produce(p)))] if p.responses.is_empty()));
    assert_eq!(node.connection.close(), [1]);
}

#[test]
fn a_pause_holds_back_what_is_sent_meanwhile() {
    let mut node = Node::ready(&[BEAT]);
    node.connection.pause();
    node.send(1, heartbeat());
    assert!(node.requests().is_empty());
    node.connection.resume();
    assert_eq!(node.requests().len(), 1);
}

#[test]
fn a_closed_connection_names_every_request_without_an_answer() {
    let mut node = Node::ready(&[BEAT, SEND]);
    node.send(1, heartbeat());
    node.send(2, produce(0));
    node.connection.pause();
    node.send(3, heartbeat());
    assert_eq!(node.connection.close(), [2, 1, 3]);
}

#[test]
fn addresses_in_answers_go_into_the_book() {
    let mut node = Node::ready(&[(ApiKey::Metadata, 0, 13), (ApiKey::FindCoordinator, 0, 6)]);
    node.send(1, Request::Metadata(api::MetadataRequest::for_topics(None, false)));
    let id = node.requests()[0].correlation_id;
    let broker = |node_id, host: &str, port| fletchlog_protocol::messages::metadata_response::MetadataResponseBroker {
        node_id,
        host: host.into(),
        port,
        rack: None,
    };
    let response = MetadataResponse {
        brokers: vec![broker(2, "b", 2), broker(1, "a", 1), broker(3, "c", 70_000)],
        ..Default::default()
    };
    node.answer(id, 1, 13, &response).unwrap();
    let answers = node.answers();
    assert!(
        matches!(&answers[..], [(1, Ok(Response::Metadata(m)))] if m.nodes().eq([1, 2])),
        "{answers:?}"
    );
    assert_eq!(node.book.address_of(2).unwrap().to_string(), "b:2");
    for (port, error) in [(9, ErrorCode::NONE), (0, ErrorCode::COORDINATOR_NOT_AVAILABLE)] {
        let lookup = Request::FindCoordinator(FindCoordinatorRequest::of(CoordinatorType::Group, "g".into()));
        node.send(2, lookup);
        let id = node.requests()[0].correlation_id;
        let mut response = FindCoordinatorResponse::default();
        response
            .coordinators
            .push(fletchlog_protocol::messages::find_coordinator_response::Coordinator {
                node_id: 8,
                host: "d".into(),
                port,
                ..Default::default()
            });
        node.answer(id, 1, 6, &response).unwrap();
        let answers = node.answers();
        assert!(
            matches!(&answers[..], [(2, Ok(Response::FindCoordinator(f)))] if f.coordinators[0].error_code == error),
            "{answers:?}"
        );
    }
    assert_eq!(node.book.address_of(i32::MAX - 8).unwrap().to_string(), "d:9");
}

#[test]
fn a_fetch_says_where_the_client_is_and_the_answer_where_it_is_to_read() {
    let fetch = || {
        Request::Fetch(api::FetchRequest {
            max_wait_ms: 1,
            min_bytes: 1,
            max_bytes: 1,
            session_epoch: 0,
            rack_id: "r1".into(),
            ..Default::default()
        })
    };
    for (version, shown) in [(4, ""), (10, ""), (11, "r1"), (12, "r1")] {
        let mut node = Node::ready(&[(ApiKey::Fetch, 4, version)]);
        node.send(1, fetch());
        let (_, body) = node.request_bodies().remove(0);
        let read = fletchlog_protocol::messages::FetchRequest::decode(&mut Reader::new(body), version).unwrap();
        assert_eq!(&*read.rack_id, shown, "{version}");
    }
    let mut node = Node::ready(&[(ApiKey::Fetch, 4, 12)]);
    node.send(1, fetch());
    let id = node.requests()[0].correlation_id;
    let partition = |partition_index, preferred_read_replica| fetch_response::PartitionData {
        partition_index,
        preferred_read_replica,
        ..Default::default()
    };
    let response = FetchResponse {
        responses: vec![fetch_response::FetchableTopicResponse {
            topic: "t".into(),
            partitions: vec![partition(0, -1), partition(1, 7)],
            ..Default::default()
        }],
        ..Default::default()
    };
    node.answer(id, 1, 12, &response).unwrap();
    let (_, Ok(Response::Fetch(answer))) = node.answers().remove(0) else {
        panic!("no fetch");
    };
    let named: Vec<_> = answer.partitions().map(|(_, p)| p.preferred_read_replica()).collect();
    assert_eq!(named, [None, Some(7)]);
}

#[test]
fn an_answer_of_administration_asks_for_a_pause_too() {
    let mut node = Node::ready(&[(ApiKey::ListGroups, 0, 4)]);
    let request = fletchlog_protocol::messages::ListGroupsRequest::default();
    node.connection.send(5, request.into());
    let id = node.requests()[0].correlation_id;
    let response = ListGroupsResponse {
        throttle_time_ms: 70,
        ..Default::default()
    };
    node.answer(id, 1, 4, &response).unwrap();
    let answer = node.connection.take_answer().unwrap();
    assert_eq!((answer.id, answer.throttle_ms), (5, 70));
}

fn fetch_by_ids(by_ids: bool) -> Request {
    Request::Fetch(api::FetchRequest {
        max_wait_ms: 1,
        min_bytes: 1,
        max_bytes: 1,
        session_id: 5,
        session_epoch: 1,
        topics: vec![FetchTopic {
            topic: "t".into(),
            topic_id: [7; 16],
            partitions: vec![FetchPartition {
                partition: 3,
                fetch_offset: 9,
                partition_max_bytes: 10,
                ..Default::default()
            }],
        }],
        forgotten_topics_data: vec![ForgottenTopic {
            topic: "u".into(),
            topic_id: [8; 16],
            partitions: vec![0],
        }],
        topic_ids: FetchTopicIds {
            by_ids,
            replaced: vec![([6; 16], 3)],
            ..Default::default()
        },
        ..Default::default()
    })
}

#[test]
fn a_fetch_goes_by_topic_ids_where_the_node_serves_them_and_all_are_known() {
    for (served, by_topic_ids, version) in [(18, true, 18), (13, true, 13), (12, true, 12), (18, false, 12)] {
        let mut node = Node::ready(&[(ApiKey::Fetch, 4, served)]);
        node.send(1, fetch_by_ids(by_topic_ids));
        assert_eq!(node.requests()[0].api_version, version, "{served} {by_topic_ids}");
    }
    let mut node = Node::ready(&[(ApiKey::Fetch, 13, 18)]);
    node.send(1, fetch_by_ids(false));
    assert!(matches!(
        &node.answers()[..],
        [(1, Err(Failure::UnsupportedVersion(why)))] if why.contains("sends 4 to 12")
    ));
}

#[test]
fn a_fetch_by_topic_ids_names_nothing_and_forgets_what_a_former_topic_had() {
    let sent = |version| {
        let mut writer = frame::begin();
        fetch_by_ids(true).encode(&mut writer, version).unwrap();
        let body = Bytes::from(frame::finish(writer).unwrap().concat()).slice(4..);
        let sent = fletchlog_protocol::messages::FetchRequest::decode(&mut Reader::new(body), version).unwrap();
        let listed = sent.topics.into_iter().map(|t| (t.topic.to_string(), t.topic_id[0]));
        let forgotten = sent.forgotten_topics_data.into_iter();
        let forgotten = forgotten.map(|t| (t.topic.to_string(), t.topic_id[0], t.partitions));
        (listed.collect::<Vec<_>>(), forgotten.collect::<Vec<_>>())
    };
    let unnamed = String::new;
    let by_ids = vec![(unnamed(), 8, vec![0]), (unnamed(), 6, vec![3])];
    assert_eq!(sent(18), (vec![(unnamed(), 7)], by_ids));
    assert_eq!(
        sent(12),
        (vec![("t".to_owned(), 0)], vec![("u".to_owned(), 0, vec![0])])
    );
}

#[test]
fn an_answer_by_topic_ids_has_them_in_place_of_names() {
    let mut node = Node::ready(&[(ApiKey::Fetch, 4, 18)]);
    node.send(1, fetch_by_ids(true));
    let id = node.requests()[0].correlation_id;
    let response = FetchResponse {
        responses: vec![fetch_response::FetchableTopicResponse {
            topic_id: [7; 16],
            partitions: vec![fetch_response::PartitionData::default()],
            ..Default::default()
        }],
        ..Default::default()
    };
    node.answer(id, 1, 18, &response).unwrap();
    let (_, Ok(Response::Fetch(answer))) = node.answers().remove(0) else {
        panic!("no fetch");
    };
    assert_eq!(api::topic_id_of(&answer.responses[0].topic), Some([7; 16]));
}
