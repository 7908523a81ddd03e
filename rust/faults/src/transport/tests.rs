use fletchlog_api::transport::SystemClock;
use fletchlog_protocol::local::FetchTopicIds;
use fletchlog_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use fletchlog_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use fletchlog_protocol::messages::metadata_response::MetadataResponseTopic;
use fletchlog_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use fletchlog_protocol::messages::{
    FetchRequest, FetchResponse, HeartbeatRequest, HeartbeatResponse, MetadataRequest, MetadataResponse,
    ProduceRequest, ProduceResponse,
};
use fletchlog_protocol::topic_ids::topic_by_id;
use fletchlog_testing::{ScriptedTransport, Sent};

use super::*;
use crate::rules_of;

const ID: [u8; 16] = [7; 16];

/// A broker that answers, the rules before it, and the rules' numbers.
fn before(
    rules: &str,
    answer: impl FnMut(&Sent) -> Option<Response> + Send + 'static,
) -> (ScriptedTransport, FaultTransport) {
    let mut answer = answer;
    let clock = fletchlog_testing::VirtualClock::new();
    let broker = ScriptedTransport::new(Arc::clone(&clock), move |sent: &Sent| answer(sent).map(Ok));
    let faults = Faults::of_clients(Arc::new(SystemClock::default()));
    faults.record(true);
    for rule in rules_of(&format!("{{\"rules\": [{rules}]}}")).unwrap().0 {
        faults.add(rule, None);
    }
    let transport = FaultTransport::new(Box::new(broker.clone()), Arc::new(faults), clock, "c").unwrap();
    (broker, transport)
}

fn heartbeat(sent: &Sent) -> Option<Response> {
    matches!(sent.request, Request::Heartbeat(_))
        .then(HeartbeatResponse::default)
        .map(Response::Heartbeat)
}

fn beat(group: &str) -> Request {
    Request::Heartbeat(HeartbeatRequest {
        group_id: group.into(),
        ..Default::default()
    })
}

/// Takes what has arrived on a connection: the correlation id, and the error or that it is lost.
fn arrived(transport: &mut FaultTransport, node: NodeId) -> Vec<(i32, Option<ErrorCode>)> {
    let mut found = Vec::new();
    while let Some(completion) = transport.receive(node) {
        let error = match completion.result {
            Ok(Response::Heartbeat(response)) => Some(response.error_code),
            Ok(other) => panic!("{other:?}"),
            Err(_) => None,
        };
        found.push((completion.correlation_id, error));
    }
    found
}

#[test]
fn what_a_rule_holds_blocks_its_connection_alone_and_the_order_stays() {
    let (broker, mut transport) = before(r#"{"group": "held", "hold": true}"#, heartbeat);
    transport.send(1, 10, beat("held"));
    transport.send(1, 11, beat("behind"));
    transport.send(2, 12, beat("elsewhere"));
    assert_eq!(arrived(&mut transport, 2), [(12, Some(ErrorCode::NONE))]);
    assert_eq!(arrived(&mut transport, 1), []);
    assert_eq!(broker.take_sent().len(), 1);
    transport.faults.release(1);
    let both = [(10, Some(ErrorCode::NONE)), (11, Some(ErrorCode::NONE))];
    assert_eq!(arrived(&mut transport, 1), both);
}

#[test]
fn a_late_response_comes_at_its_time_and_those_behind_it_come_later() {
    let (broker, mut transport) = before(r#"{"group": "late", "delay_response_ms": 30}"#, heartbeat);
    transport.send(1, 10, beat("late"));
    transport.send(1, 11, beat("behind"));
    assert_eq!(broker.take_sent().len(), 1, "it is carried out at once");
    broker.clock.advance(29);
    assert_eq!(arrived(&mut transport, 1), []);
    broker.clock.advance(1);
    let both = [(10, Some(ErrorCode::NONE)), (11, Some(ErrorCode::NONE))];
    assert_eq!(arrived(&mut transport, 1), both);
}

#[test]
fn an_error_comes_after_a_delay_and_the_request_is_not_carried_out() {
    let rule = r#"{"api": "Heartbeat", "nth": 1, "delay_ms": 20, "error": "REBALANCE_IN_PROGRESS"}"#;
    let (broker, mut transport) = before(rule, heartbeat);
    transport.send(1, 10, beat("g"));
    assert_eq!(arrived(&mut transport, 1), []);
    broker.clock.advance(20);
    assert_eq!(
        arrived(&mut transport, 1),
        [(10, Some(ErrorCode::REBALANCE_IN_PROGRESS))]
    );
    assert!(broker.take_sent().is_empty());
}

#[test]
fn a_connection_that_is_closed_takes_the_requests_behind_with_it() {
    let (broker, mut transport) = before(r#"{"group": "lost", "lose_response": true}"#, heartbeat);
    transport.send(1, 10, beat("lost"));
    transport.send(1, 11, beat("behind"));
    assert_eq!(arrived(&mut transport, 1), [(10, None), (11, None)]);
    assert_eq!(broker.take_sent().len(), 1);
    transport.disconnect(1);
    transport.send(1, 12, beat("again"));
    assert_eq!(arrived(&mut transport, 1), [(12, Some(ErrorCode::NONE))]);
    let rows = transport.faults.requests();
    let seen: Vec<_> = rows.iter().map(|row| (row.outcome, row.request.connection)).collect();
    let expected = [("response lost", 1), ("connection lost", 1), ("answered", 2)];
    assert_eq!(seen, expected);
}

#[test]
fn a_response_that_asks_for_a_pause_is_obeyed() {
    let (broker, mut transport) = before(r#"{"group": "g", "throttle_time_ms": 40}"#, heartbeat);
    transport.send(1, 10, beat("g"));
    let Some(Completion {
        result: Ok(response), ..
    }) = transport.receive(1)
    else {
        panic!("no response");
    };
    assert!(matches!(response, Response::Heartbeat(beat) if beat.throttle_time_ms == 40));
    assert_eq!(transport.ready(1), Ready::Throttled(40));
    assert_eq!(transport.ready(2), Ready::Yes);
    broker.clock.advance(40);
    assert_eq!(transport.ready(1), Ready::Yes);
}

#[test]
fn a_produce_waits_until_the_client_is_idle_and_what_is_behind_it_waits_too() {
    let answer = |sent: &Sent| match sent.request {
        Request::Produce(_) => Some(Response::Produce(ProduceResponse::default())),
        _ => heartbeat(sent),
    };
    let (broker, mut transport) = before("", answer);
    let produce = Request::Produce(ProduceRequest {
        acks: 1,
        topic_data: vec![TopicProduceData {
            name: "t".into(),
            partition_data: vec![PartitionProduceData {
                index: 3,
                records: Some(Bytes::new()),
            }],
            ..Default::default()
        }],
        ..Default::default()
    });
    transport.send(1, 10, produce);
    transport.send(1, 11, beat("behind"));
    let long = Duration::from_secs(1);
    transport.wait(long);
    assert!(broker.take_sent().is_empty(), "it may still send");
    transport.quiescent();
    transport.wait(long);
    assert_eq!(broker.take_sent().len(), 2);
    assert_eq!(transport.faults.requests()[0].batches[0].partition, 3);
}

fn fetch(topic_ids: FetchTopicIds) -> Request {
    let partition = |partition| FetchPartition {
        partition,
        ..Default::default()
    };
    Request::Fetch(FetchRequest {
        max_wait_ms: 500,
        session_epoch: 0,
        topics: vec![FetchTopic {
            topic: "t".into(),
            topic_id: ID,
            partitions: vec![partition(0), partition(1)],
        }],
        topic_ids,
        ..Default::default()
    })
}

/// Both partitions of a Fetch, under the name that the request's version has for the topic.
fn fetched(topic: &Arc<str>) -> Response {
    let partition = |partition_index| PartitionData {
        partition_index,
        high_watermark: 9,
        records: Some(Bytes::from_static(b"records")),
        ..Default::default()
    };
    Response::Fetch(FetchResponse {
        responses: vec![FetchableTopicResponse {
            topic: Arc::clone(topic),
            partitions: vec![partition(0), partition(1)],
            ..Default::default()
        }],
        ..Default::default()
    })
}

#[test]
fn an_error_in_one_partition_of_a_fetch_leaves_the_other_by_names_and_by_ids() {
    for (is_remote, topic) in [(false, "t".into()), (true, topic_by_id(ID))] {
        let of_broker = Arc::clone(&topic);
        let answer = move |sent: &Sent| match sent.request {
            Request::Fetch(_) => Some(fetched(&of_broker)),
            _ => Some(Response::Metadata(MetadataResponse {
                topics: vec![MetadataResponseTopic {
                    name: Some("t".into()),
                    topic_id: ID,
                    ..Default::default()
                }],
                ..Default::default()
            })),
        };
        let rule = r#"{"api": "Fetch", "topic": "t", "partition": 1, "error": "NOT_LEADER_OR_FOLLOWER"}"#;
        let (broker, mut transport) = before(rule, answer);
        transport.is_remote = is_remote;
        // The names of topics come from Metadata.
        transport.send(1, 9, Request::Metadata(MetadataRequest::default()));
        assert!(transport.receive(1).is_some());
        let by_ids = is_remote;
        transport.send(
            1,
            10,
            fetch(FetchTopicIds {
                by_ids,
                ..Default::default()
            }),
        );
        let Some(Completion {
            result: Ok(Response::Fetch(response)),
            ..
        }) = transport.receive(1)
        else {
            panic!("no response");
        };
        let mut seen: Vec<_> = response
            .partitions()
            .map(|(name, p)| (name, p.partition_index, p.error_code))
            .collect();
        seen.sort_by_key(|(_, partition, _)| *partition);
        let expected = [
            (&topic, 0, ErrorCode::NONE),
            (&topic, 1, ErrorCode::NOT_LEADER_OR_FOLLOWER),
        ];
        assert_eq!(seen, expected);
        let sent = broker.take_sent();
        let Some(Request::Fetch(asked)) = sent.last().map(|sent| &sent.request) else {
            panic!("{sent:?}");
        };
        assert_eq!(
            (asked.max_wait_ms, &*asked.topics[0].topic, asked.topic_ids.by_ids),
            (0, "t", by_ids)
        );
        let row = transport.faults.requests().pop().unwrap();
        assert_eq!(row.request.topics, [("t".into(), vec![0, 1])]);
        assert_eq!(row.request.version, if is_remote { 18 } else { 12 });
    }
}

#[test]
fn a_response_that_names_topics_unlike_its_version_is_left_as_it_is() {
    let (_, mut transport) = before(
        r#"{"api": "Fetch", "handled": true, "error": "NOT_LEADER_OR_FOLLOWER"}"#,
        |_: &Sent| Some(fetched(&"t".into())),
    );
    transport.is_remote = true;
    transport.send(
        1,
        10,
        fetch(FetchTopicIds {
            by_ids: true,
            ..Default::default()
        }),
    );
    let Some(Completion {
        result: Ok(Response::Fetch(response)),
        ..
    }) = transport.receive(1)
    else {
        panic!("no response");
    };
    assert!(
        response
            .partitions()
            .all(|(name, p)| &**name == "t" && p.records.is_some())
    );
}

#[test]
fn rules_about_bytes_and_clients_in_the_process_exclude_each_other() {
    let faults = Arc::new(Faults::new(
        Arc::new(SystemClock::default()),
        Arc::new(|_: &[u8; 16]| None),
    ));
    let rule = || rules_of(r#"{"rules": [{"cut_after_bytes": 4}]}"#).unwrap().0;
    faults.check(&rule()).unwrap();
    let number = faults.add(rule().remove(0), None);
    let client = || {
        let broker = ScriptedTransport::default();
        let clock = Arc::clone(&broker.clock);
        FaultTransport::new(Box::new(broker), Arc::clone(&faults), clock, "")
    };
    let refused = client().err().unwrap().to_string();
    assert!(
        refused.contains("rule 1") && refused.contains("cut_after_bytes"),
        "{refused}"
    );
    faults.clear(Some(number));
    let open = client().unwrap();
    assert!(faults.check(&rule()).is_err());
    drop(open);
    faults.check(&rule()).unwrap();
}
