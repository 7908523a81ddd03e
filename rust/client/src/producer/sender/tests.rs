//! The sender over a wire whose answers the test gives by hand, on a clock that only waiting moves.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use fletchlog_api::{
    Clock, Completion, Config, Failure, FindCoordinatorResponse, InitProducerIdResponse, ProduceResponse, Ready,
    Response, Scope, StorageFailure,
};
use fletchlog_protocol::messages::find_coordinator_response::Coordinator;
use fletchlog_protocol::messages::produce_response::PartitionProduceResponse;

use fletchlog_testing::VirtualClock;

use super::*;
use crate::ClientError;
use crate::net::fixtures::{cluster, topic};
use crate::producer::{OnDecided, Producer, ProducerRecord, RecordFuture, RecordMetadata};

/// No call is interrupted.
fn never() -> bool {
    false
}

#[derive(Default)]
struct State {
    /// Unanswered, in the order of sending.
    sent: Vec<(NodeId, i32, Request)>,
    answers: VecDeque<Completion>,
    given_up: Vec<NodeId>,
    leader: NodeId,
    /// Takes no connection.
    refusing: Option<NodeId>,
}

#[derive(Clone)]
struct Wire {
    state: Arc<Mutex<State>>,
    time: Arc<VirtualClock>,
}

impl Transport for Wire {
    fn bootstrap(&self) -> Vec<NodeId> {
        vec![1]
    }
    fn ready(&mut self, node: NodeId) -> Ready {
        if self.state.lock().unwrap().refusing == Some(node) {
            return Ready::Failed(Failure::NotConnected("refused".into()));
        }
        Ready::Yes
    }
    fn send(&mut self, node: NodeId, correlation_id: i32, request: Request) {
        self.state.lock().unwrap().sent.push((node, correlation_id, request));
    }
    fn receive(&mut self, node: NodeId) -> Option<Completion> {
        let answers = &mut self.state.lock().unwrap().answers;
        let at = answers.iter().position(|a| a.node == node)?;
        answers.remove(at)
    }
    fn has_arrived(&mut self, node: NodeId) -> bool {
        self.state.lock().unwrap().answers.iter().any(|a| a.node == node)
    }
    fn wait(&mut self, timeout: Duration) -> bool {
        let arrived = !self.state.lock().unwrap().answers.is_empty();
        if !arrived {
            self.time.advance(i64::try_from(timeout.as_millis()).unwrap());
        }
        arrived
    }
    fn disconnect(&mut self, node: NodeId) {
        self.state.lock().unwrap().given_up.push(node);
    }
}

struct Fixture {
    producer: Producer,
    wire: Wire,
}

impl Fixture {
    /// A producer with the metadata of topic `t` (one partition, led by node 1 of 2).
    fn new(config: &[(&str, &str)]) -> Self {
        let time: Arc<VirtualClock> = Arc::default();
        let state = Arc::new(Mutex::new(State {
            leader: 1,
            ..State::default()
        }));
        let wire = Wire {
            state,
            time: time.clone(),
        };
        let mut all = vec![
            ("batch.size", "1"),
            ("retry.backoff.ms", "10"),
            ("fletchlog.trace", "true"),
        ];
        all.extend_from_slice(config);
        let config = Config::parse(Scope::Producer, all).unwrap();
        let producer = Producer::stepped(config, Box::new(wire.clone()), time).unwrap();
        producer.request_topic("t");
        producer.run_once(0);
        let mut fixture = Self { producer, wire };
        fixture.answer_metadata();
        fixture
    }

    fn send(&mut self, value: u8) -> RecordFuture {
        self.producer
            .send(
                &ProducerRecord {
                    topic: "t",
                    partition: Some(0),
                    timestamp: None,
                    key: None,
                    value: Some(&[value; 40]),
                    headers: &[],
                },
                &mut never,
            )
            .unwrap()
    }

    /// As a coroutine sends; to partition 0 of any topic.
    fn send_later(&mut self, topic: &str, value: &[u8]) -> RecordFuture {
        let record = ProducerRecord {
            topic,
            partition: Some(0),
            timestamp: None,
            key: None,
            value: Some(value),
            headers: &[("h", Some(b"1")), ("n", None)],
        };
        self.producer.send_later(&record, None).unwrap()
    }

    /// Some turns without time passing.
    fn turns(&mut self) {
        (0..4).for_each(|_| self.producer.run_once(0));
    }

    fn unanswered(&self) -> Vec<(NodeId, &'static str)> {
        let name = |request: &Request| match request {
            Request::Produce(_) => "produce",
            Request::Metadata(_) => "metadata",
            Request::InitProducerId(_) => "init",
            Request::FindCoordinator(_) => "coordinator",
            _ => "other",
        };
        let state = self.wire.state.lock().unwrap();
        state
            .sent
            .iter()
            .map(|(node, _, request)| (*node, name(request)))
            .collect()
    }

    /// First value byte of each unanswered produce request (61 bytes of header, 6 of the record before its value).
    fn values(&self) -> Vec<u8> {
        let state = self.wire.state.lock().unwrap();
        let produced = state.sent.iter().filter_map(|(_, _, request)| match request {
            Request::Produce(produce) => {
                let records = produce.topic_data[0].partition_data[0].records.as_deref();
                records.map(|records| records[61 + 6])
            }
            _ => None,
        });
        produced.collect()
    }

    fn answer(&mut self, wanted: impl Fn(&Request) -> bool, result: Result<Response, Failure>) {
        let mut state = self.wire.state.lock().unwrap();
        let at = state.sent.iter().position(|(_, _, request)| wanted(request)).unwrap();
        let (node, correlation_id, _) = state.sent.remove(at);
        state.answers.push_back(Completion {
            node,
            correlation_id,
            result,
        });
        drop(state);
        self.turns();
    }

    fn answer_metadata(&mut self) {
        let leader = self.wire.state.lock().unwrap().leader;
        let response = cluster([1, 2], [topic("t", [(leader, leader)])]);
        self.answer(|r| matches!(r, Request::Metadata(_)), Ok(Response::Metadata(response)));
    }

    fn answer_init(&mut self, error: ErrorCode) {
        self.answer_init_with(error, None);
    }

    fn answer_init_with(&mut self, error: ErrorCode, failure: Option<StorageFailure>) {
        let response = InitProducerIdResponse {
            error_code: error,
            producer_id: 7,
            producer_epoch: 0,
            failure,
            ..Default::default()
        };
        self.answer(
            |r| matches!(r, Request::InitProducerId(_)),
            Ok(Response::InitProducerId(response)),
        );
    }

    fn answer_coordinator(&mut self, node: NodeId) {
        let response = FindCoordinatorResponse {
            coordinators: vec![Coordinator {
                node_id: node,
                ..Default::default()
            }],
            ..Default::default()
        };
        self.answer(
            |r| matches!(r, Request::FindCoordinator(_)),
            Ok(Response::FindCoordinator(response)),
        );
    }

    /// Answers the oldest produce request.
    fn answer_produce(&mut self, error: ErrorCode, base_offset: i64) {
        let answer = PartitionProduceResponse {
            base_offset,
            ..PartitionProduceResponse::refused(0, error)
        };
        let response = ProduceResponse::of([("t".into(), answer)]);
        self.answer(|r| matches!(r, Request::Produce(_)), Ok(Response::Produce(response)));
    }

    fn kinds(&self) -> Vec<TraceKind> {
        self.producer.trace().iter().map(|e| e.kind).collect()
    }
}

fn code(future: &RecordFuture) -> ErrorCode {
    match future.try_result() {
        Some(Err(ClientError::Kafka { code, .. })) => code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn with_one_in_flight_a_partition_stays_muted_even_when_its_leader_moves() {
    let mut f = Fixture::new(&[
        ("max.in.flight.requests.per.connection", "1"),
        ("metadata.max.age.ms", "100"),
    ]);
    f.send(1);
    f.send(2);
    f.turns();
    assert_eq!((f.unanswered(), f.values()), (vec![(1, "produce")], vec![1]));
    f.wire.state.lock().unwrap().leader = 2;
    f.producer.run_for(100);
    f.turns();
    assert_eq!(f.unanswered(), [(1, "produce"), (2, "metadata")]);
    f.answer_metadata();
    assert_eq!(f.values(), [1], "node 2 is free, but the first is not decided");
    f.answer_produce(ErrorCode::NOT_LEADER_OR_FOLLOWER, -1);
    f.producer.run_for(10);
    f.turns();
    f.answer_metadata();
    assert_eq!((f.unanswered(), f.values()), (vec![(2, "produce")], vec![1]));
    f.answer_produce(ErrorCode::NONE, 0);
    assert_eq!(f.values(), [2]);
}

#[test]
fn the_trace_has_the_life_of_a_batch() {
    use TraceKind::{Acknowledged, Drained, Muted, Ready, Reenqueued, Retried, Sent, Unmuted};
    let mut f = Fixture::new(&[("max.in.flight.requests.per.connection", "1")]);
    f.send(1);
    f.turns();
    f.answer_produce(ErrorCode::NOT_ENOUGH_REPLICAS, -1);
    f.producer.run_for(10);
    f.turns();
    f.answer_produce(ErrorCode::NONE, 5);
    let attempt = [Ready, Drained, Muted, Sent];
    let expected: Vec<TraceKind> = [
        &attempt[..],
        &[Retried, Reenqueued, Unmuted],
        &attempt,
        &[Acknowledged, Unmuted],
    ]
    .concat();
    assert_eq!(f.kinds(), expected);
    let events = f.producer.trace();
    let last = events.iter().rev().find(|e| e.kind == Acknowledged).unwrap();
    assert_eq!(
        (last.base_offset, last.attempts, last.records, last.batch),
        (5, 1, 1, 0)
    );
}

#[test]
fn nothing_is_traced_when_it_is_off() {
    let mut f = Fixture::new(&[("fletchlog.trace", "false")]);
    f.send(1);
    f.turns();
    f.answer_produce(ErrorCode::NONE, 0);
    assert!(f.kinds().is_empty());
}

#[test]
fn a_producer_id_is_asked_for_again_after_the_back_off_and_a_refusal_is_fatal() {
    let mut f = Fixture::new(&[("enable.idempotence", "true")]);
    let first = f.send(1);
    f.turns();
    assert_eq!(f.unanswered(), [(1, "init")]);
    f.answer_init(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
    assert!(f.unanswered().is_empty(), "not before the back-off");
    f.producer.run_for(10);
    f.turns();
    f.answer_init(ErrorCode::NONE);
    assert_eq!((f.producer.producer_id(), f.values()), (Some((7, 0)), vec![1]));
    f.answer_produce(ErrorCode::NONE, 0);
    assert_eq!(first.try_result().unwrap().unwrap().offset, 0);

    let mut f = Fixture::new(&[("enable.idempotence", "true")]);
    let first = f.send(1);
    f.turns();
    f.answer_init(ErrorCode::UNSUPPORTED_VERSION);
    assert_eq!(code(&first), ErrorCode::UNSUPPORTED_VERSION);
    let later = f.send(2);
    f.turns();
    assert_eq!(code(&later), ErrorCode::UNSUPPORTED_VERSION);
}

#[test]
fn a_request_time_out_is_a_lost_connection_up_to_3_4_and_code_7_after() {
    for (release, expected) in [
        ("3.4", ErrorCode::NETWORK_EXCEPTION),
        ("3.5", ErrorCode::REQUEST_TIMED_OUT),
    ] {
        let config = [
            ("request.timeout.ms", "500"),
            ("retries", "0"),
            ("enable.idempotence", "false"),
            ("fletchlog.producer.version", release),
        ];
        let mut f = Fixture::new(&config);
        let futures = [f.send(1), f.send(2)];
        f.turns();
        f.producer.run_for(500);
        assert!(futures[0].try_result().is_none(), "500 ms are not more than 500 ms");
        f.producer.run_for(1);
        for future in &futures {
            assert_eq!(code(future), expected, "{release}");
        }
        assert_eq!(f.wire.state.lock().unwrap().given_up, [1]);
        f.answer_produce(ErrorCode::NONE, 0);
        assert_eq!(
            code(&futures[0]),
            expected,
            "an answer to a request that was given up is ignored"
        );
    }
}

#[test]
fn a_lost_connection_fails_its_requests_in_order_and_waits_before_it_is_opened_again() {
    let constant = [("reconnect.backoff.ms", "50"), ("reconnect.backoff.max.ms", "50")];
    let mut f = Fixture::new(&[("enable.idempotence", "true"), constant[0], constant[1]]);
    f.send(0);
    f.turns();
    f.answer_init(ErrorCode::NONE);
    f.send(1);
    f.turns();
    assert_eq!(
        f.values(),
        [0],
        "nothing follows the first one until it is acknowledged"
    );
    f.answer_produce(ErrorCode::NONE, 0);
    f.send(2);
    f.turns();
    assert_eq!(f.values(), [1, 2]);
    f.answer(|r| matches!(r, Request::Produce(_)), Err(Failure::Disconnected));
    f.producer.run_for(49);
    f.turns();
    assert_eq!(
        f.unanswered(),
        [(1, "produce"), (2, "metadata")],
        "node 1 is not opened yet; its second request is the one given up"
    );
    f.answer_metadata();
    f.wire.state.lock().unwrap().sent.clear();
    f.producer.run_for(1);
    f.turns();
    assert_eq!(f.values(), [1], "the first in flight goes alone");
    f.answer_produce(ErrorCode::NONE, 1);
    assert_eq!(f.values(), [2]);
}

#[test]
fn code_46_is_success_without_an_offset() {
    let mut f = Fixture::new(&[]);
    let future = f.send(1);
    f.turns();
    f.answer_produce(ErrorCode::DUPLICATE_SEQUENCE_NUMBER, -1);
    assert_eq!(future.try_result().unwrap().unwrap().offset, -1);
    assert!(f.kinds().contains(&TraceKind::AcknowledgedAsDuplicate));
}

#[test]
fn an_answer_that_leaves_the_partition_out_fails_it() {
    let mut f = Fixture::new(&[]);
    let future = f.send(1);
    f.turns();
    let nothing = ProduceResponse::default();
    f.answer(|r| matches!(r, Request::Produce(_)), Ok(Response::Produce(nothing)));
    assert_eq!(code(&future), ErrorCode::UNKNOWN_SERVER_ERROR);
}

#[test]
fn a_metadata_update_that_is_due_goes_before_records() {
    let mut f = Fixture::new(&[("max.in.flight.requests.per.connection", "2")]);
    (0..4).for_each(|value| drop(f.send(value)));
    f.turns();
    assert_eq!(f.values(), [0, 1]);
    f.producer.run_for(10);
    // The second node makes the metadata request independent of the first one's slots.
    f.answer_produce(ErrorCode::NOT_LEADER_OR_FOLLOWER, -1);
    assert_eq!(
        f.unanswered()[..2],
        [(1, "produce"), (2, "metadata")],
        "the update goes out before the slot is used again"
    );
}

#[test]
fn records_follow_a_metadata_request_at_once() {
    let mut f = Fixture::new(&[("metadata.max.age.ms", "100")]);
    f.wire.time.advance(100);
    let now = f.wire.time.monotonic_ms();
    f.send(1);
    (0..2).for_each(|_| f.producer.run_once(i64::MAX));
    let sent: Vec<_> = f.unanswered().into_iter().map(|(_, kind)| kind).collect();
    assert_eq!(sent, ["metadata", "produce"], "neither is answered");
    assert_eq!(f.wire.time.monotonic_ms(), now, "nothing was waited for");
}

#[test]
fn acks_0_is_decided_when_sent_and_survives_a_closed_connection() {
    let mut f = Fixture::new(&[("acks", "0")]);
    let future = f.send(1);
    f.turns();
    assert_eq!(future.try_result().unwrap().unwrap().offset, -1);
    f.answer(|r| matches!(r, Request::Produce(_)), Err(Failure::Disconnected));
    assert_eq!(future.try_result().unwrap().unwrap().offset, -1);
}

fn full_disk(until_reopened: bool) -> StorageFailure {
    StorageFailure {
        message: "cannot write /data/file: No space left on device".into(),
        until_reopened,
    }
}

#[test]
fn records_fail_in_time_while_a_producer_id_is_refused_and_the_reason_is_reported() {
    let times = [("request.timeout.ms", "100"), ("delivery.timeout.ms", "300")];
    let mut f = Fixture::new(&[("enable.idempotence", "true"), times[0], times[1]]);
    let start = f.wire.time.monotonic_ms();
    let future = f.send(1);
    f.turns();
    while future.try_result().is_none() {
        f.answer_init_with(ErrorCode::KAFKA_STORAGE_ERROR, Some(full_disk(false)));
        f.producer.run_for(10);
        f.turns();
    }
    assert_eq!(f.wire.time.monotonic_ms() - start, 300);
    let error = future.try_result().unwrap().unwrap_err();
    assert!(matches!(error, ClientError::Timeout(_)), "{error}");
    for part in [
        "delivery.timeout.ms",
        "no producer id",
        "/data/file: No space left on device",
    ] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    // With room again the producer goes on.
    f.answer_init(ErrorCode::NONE);
    let future = f.send(2);
    f.turns();
    f.answer_produce(ErrorCode::NONE, 0);
    assert_eq!(future.try_result().unwrap().unwrap().offset, 0);
}

#[test]
fn what_only_reopening_mends_is_not_asked_for_again() {
    let mut f = Fixture::new(&[("enable.idempotence", "true")]);
    let future = f.send(1);
    f.turns();
    f.answer_init_with(ErrorCode::KAFKA_STORAGE_ERROR, Some(full_disk(true)));
    f.producer.run_for(100);
    assert!(f.unanswered().is_empty());
    assert_eq!(code(&future), ErrorCode::KAFKA_STORAGE_ERROR);
}

#[test]
fn a_batch_that_expires_reports_how_its_last_attempt_failed() {
    let mut f = Fixture::new(&[("request.timeout.ms", "100"), ("delivery.timeout.ms", "300")]);
    let future = f.send(1);
    f.turns();
    while future.try_result().is_none() {
        f.answer_produce(ErrorCode::NOT_ENOUGH_REPLICAS, -1);
        f.producer.run_for(10);
        f.turns();
    }
    let error = future.try_result().unwrap().unwrap_err();
    assert!(
        error.to_string().contains(ErrorCode::NOT_ENOUGH_REPLICAS.message()),
        "{error}"
    );
}

#[test]
fn a_batch_that_expires_behind_one_that_failed_reports_how_that_failed() {
    let times = [("request.timeout.ms", "100"), ("delivery.timeout.ms", "300")];
    let mut f = Fixture::new(&[
        times[0],
        times[1],
        ("max.in.flight.requests.per.connection", "1"),
        ("batch.size", "1"),
    ]);
    let futures: Vec<_> = (0..3).map(|value| f.send(value)).collect();
    f.turns();
    while futures[2].try_result().is_none() {
        if f.unanswered().contains(&(1, "produce")) {
            f.answer_produce(ErrorCode::NOT_ENOUGH_REPLICAS, -1);
        }
        f.producer.run_for(10);
        f.turns();
    }
    for future in futures {
        let error = future.try_result().unwrap().unwrap_err().to_string();
        assert!(error.contains("1 record for "), "{error}");
        assert!(error.contains(ErrorCode::NOT_ENOUGH_REPLICAS.message()), "{error}");
    }
}

#[test]
fn a_connection_that_is_lost_again_and_again_is_left_alone_for_longer_each_time() {
    let mut f = Fixture::new(&[("reconnect.backoff.ms", "50"), ("reconnect.backoff.max.ms", "1000")]);
    let now = |f: &Fixture| f.wire.time.monotonic_ms();
    f.send(0);
    f.turns();
    for expected in [50, 100, 200, 400, 800, 1000] {
        let lost = now(&f);
        f.answer(|r| matches!(r, Request::Produce(_)), Err(Failure::Disconnected));
        while !f.unanswered().contains(&(1, "produce")) {
            // The other node answers meanwhile.
            if f.unanswered().contains(&(2, "metadata")) {
                f.answer_metadata();
            }
            f.producer.run_for(1);
            f.turns();
        }
        let waited = now(&f) - lost;
        assert!(
            (expected * 4 / 5..=expected * 6 / 5).contains(&waited),
            "{waited} of {expected}"
        );
    }
    f.answer_produce(ErrorCode::NONE, 0);
    f.send(1);
    f.turns();
    let lost = now(&f);
    f.answer(|r| matches!(r, Request::Produce(_)), Err(Failure::Disconnected));
    f.producer.run_for(60);
    f.turns();
    assert_eq!(f.values(), [1], "an answer has come since: {} ms", now(&f) - lost);
}

#[test]
fn a_coordinator_that_takes_no_connection_is_looked_up_again_after_the_back_off() {
    // A lost connection asks for metadata, too.
    let asked = |fixture: &Fixture| -> Vec<_> {
        fixture
            .unanswered()
            .into_iter()
            .filter(|(_, kind)| *kind != "metadata")
            .collect()
    };
    let mut fixture = Fixture::new(&[("transactional.id", "x")]);
    // It goes on without the call.
    let interrupted = fixture.producer.init_transactions(&mut || true);
    assert!(interrupted.is_err());
    fixture.turns();
    fixture.wire.state.lock().unwrap().refusing = Some(2);
    fixture.answer_coordinator(2);
    assert_eq!(asked(&fixture), [(1, "coordinator")]);
    // The cluster does not know yet that it is gone.
    fixture.answer_coordinator(2);
    assert_eq!(asked(&fixture), []);
    fixture.producer.run_for(10);
    fixture.turns();
    fixture.turns();
    assert_eq!(asked(&fixture), [(1, "coordinator")]);
    fixture.answer_coordinator(1);
    assert_eq!(asked(&fixture), []);
    fixture.producer.run_for(10);
    fixture.turns();
    fixture.turns();
    assert_eq!(asked(&fixture), [(1, "init")]);
    fixture.answer_init(ErrorCode::NONE);
    assert!(fixture.producer.init_transactions(&mut || true).is_ok());
}

/// Records of one batch, of which `rows` say whether they are rows or have futures; each future is asked for at once, and its callback
/// notes (number, offset).
fn send_batch(fixture: &Fixture, rows: &[bool], noted: &Arc<Mutex<Vec<(i32, i64)>>>) -> Vec<RecordFuture> {
    let mut futures = Vec::new();
    for (number, is_row) in (0i32..).zip(rows) {
        let record = ProducerRecord {
            topic: "t",
            partition: Some(0),
            timestamp: Some(i64::from(100 + number)),
            key: None,
            value: Some(&[1; 40]),
            headers: &[],
        };
        if *is_row {
            assert!(fixture.producer.try_send_row(&record));
            continue;
        }
        let noted = noted.clone();
        let mut call: Option<OnDecided> = Some(Box::new(move |outcome| {
            let offset = outcome.as_ref().map_or(-1, |metadata| metadata.offset);
            noted.lock().unwrap().push((number, offset));
        }));
        futures.push(fixture.producer.try_send_with(&record, &mut call).unwrap());
        assert!(call.is_none());
    }
    futures
}

const SPLITTING: &[(&str, &str)] = &[
    ("batch.size", "16384"),
    ("linger.ms", "10"),
    ("enable.idempotence", "false"),
    ("fletchlog.producer.version", "4.2"),
];

#[test]
fn the_futures_and_callbacks_of_a_split_batch_follow_their_records() {
    let mut fixture = Fixture::new(SPLITTING);
    let noted: Arc<Mutex<Vec<(i32, i64)>>> = Arc::default();
    let futures = send_batch(&fixture, &[false; 7], &noted);
    fixture.producer.run_for(10);
    fixture.turns();
    // The first split makes the same batch again, the second one pieces of 2, 2, 2 and 1.
    fixture.answer_produce(ErrorCode::MESSAGE_TOO_LARGE, -1);
    fixture.answer_produce(ErrorCode::MESSAGE_TOO_LARGE, -1);
    assert!(futures.iter().all(|future| future.try_result().is_none()));
    let late = noted.clone();
    assert!(futures[2].on_decided(Box::new(move |_| late.lock().unwrap().push((20, 0)))));
    fixture.answer_produce(ErrorCode::NONE, 50);
    fixture.answer_produce(ErrorCode::NONE, 60);
    fixture.answer_produce(ErrorCode::INVALID_RECORD, -1);
    fixture.answer_produce(ErrorCode::NONE, 70);
    let written: Vec<_> = futures.iter().map(|future| future.try_result().unwrap().ok()).collect();
    let at = |offset, timestamp| {
        Some(RecordMetadata {
            topic: Arc::from("t"),
            partition: 0,
            offset,
            timestamp,
        })
    };
    assert_eq!(
        written,
        [
            at(50, 100),
            at(51, 101),
            at(60, 102),
            at(61, 103),
            None,
            None,
            at(70, 106)
        ]
    );
    assert_eq!(code(&futures[4]), ErrorCode::INVALID_RECORD);
    assert_eq!(
        *noted.lock().unwrap(),
        [(0, 50), (1, 51), (2, 60), (20, 0), (3, 61), (4, -1), (5, -1), (6, 70)]
    );
    assert!(!futures[2].on_decided(Box::new(|_| {})), "it is decided");
}

#[test]
fn flush_reports_a_failed_piece_only_if_rows_are_in_it() {
    for (rows, reported) in [([0, 1, 6], false), ([0, 1, 3], true)] {
        let mut fixture = Fixture::new(SPLITTING);
        let is_row: Vec<bool> = (0..7).map(|number| rows.contains(&number)).collect();
        let futures = send_batch(&fixture, &is_row, &Arc::default());
        fixture.producer.run_for(10);
        fixture.turns();
        fixture.answer_produce(ErrorCode::MESSAGE_TOO_LARGE, -1);
        fixture.answer_produce(ErrorCode::MESSAGE_TOO_LARGE, -1);
        // Records 0 and 1, 2 and 3, 4 and 5, 6.
        fixture.answer_produce(ErrorCode::NONE, 0);
        fixture.answer_produce(ErrorCode::INVALID_RECORD, -1);
        fixture.answer_produce(ErrorCode::NONE, 2);
        fixture.answer_produce(ErrorCode::NONE, 4);
        assert_eq!(code(&futures[0]), ErrorCode::INVALID_RECORD);
        assert_eq!(fixture.producer.flush(&mut never).is_err(), reported, "rows {rows:?}");
        fixture.producer.flush(&mut never).unwrap();
    }
}

fn text_of(future: &RecordFuture) -> String {
    match future.try_result() {
        Some(Err(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn records_that_wait_are_sent_in_order_once_the_metadata_is_there_and_later_ones_go_behind_them() {
    let mut f = Fixture::new(&[("linger.ms", "0"), ("fletchlog.trace", "false")]);
    let time = f.wire.time.clone();
    let config = Config::parse(Scope::Producer, [("batch.size", "1"), ("enable.idempotence", "false")]).unwrap();
    f.producer = Producer::stepped(config, Box::new(f.wire.clone()), time).unwrap();
    let mut futures: Vec<_> = (1..=3).map(|value| f.send_later("t", &[value; 40])).collect();
    f.turns();
    assert_eq!(f.unanswered(), [(1, "metadata")]);
    assert!(futures[0].try_result().is_none());
    let order: Arc<Mutex<Vec<i64>>> = Arc::default();
    for future in &futures {
        let order = order.clone();
        let note: OnDecided = Box::new(move |outcome| order.lock().unwrap().push(outcome.as_ref().unwrap().offset));
        assert!(future.on_decided(note), "it waits");
    }
    assert!(
        f.producer
            .try_send_with(
                &ProducerRecord {
                    topic: "t",
                    partition: Some(0),
                    timestamp: None,
                    key: None,
                    value: Some(b"overtakes"),
                    headers: &[],
                },
                &mut None
            )
            .is_none()
    );
    f.answer_metadata();
    futures.push(f.send(4));
    f.turns();
    assert_eq!(f.values(), [1, 2, 3, 4]);
    for offset in 0..4 {
        f.answer_produce(ErrorCode::NONE, offset);
    }
    let offsets: Vec<_> = futures
        .iter()
        .map(|future| future.try_result().unwrap().unwrap().offset)
        .collect();
    assert_eq!(offsets, [0, 1, 2, 3]);
    assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
}

#[test]
fn records_that_one_turn_does_not_take_are_not_late() {
    let mut f = Fixture::new(&[]);
    let time = f.wire.time.clone();
    let config = Config::parse(
        Scope::Producer,
        [("max.block.ms", "500"), ("enable.idempotence", "false")],
    )
    .unwrap();
    f.producer = Producer::stepped(config, Box::new(f.wire.clone()), time.clone()).unwrap();
    let futures: Vec<_> = (0..20_000).map(|_| f.send_later("t", &[1; 40])).collect();
    f.turns();
    time.advance(499);
    f.answer_metadata();
    f.producer.run_once(0);
    time.advance(1);
    f.turns();
    let failed = futures
        .iter()
        .filter(|future| future.try_result().is_some_and(|outcome| outcome.is_err()));
    assert_eq!(failed.count(), 0);
}

#[test]
fn a_topic_that_is_not_there_fails_its_own_records_and_holds_back_no_other() {
    let mut f = Fixture::new(&[("max.block.ms", "500"), ("enable.idempotence", "false")]);
    let lost = f.send_later("nowhere", b"1");
    let sent = f.send_later("t", &[7; 40]);
    f.turns();
    assert_eq!(f.values(), [7]);
    f.answer_metadata();
    f.answer_produce(ErrorCode::NONE, 0);
    assert_eq!(sent.try_result().unwrap().unwrap().offset, 0);
    assert!(lost.try_result().is_none());
    f.producer.run_for(600);
    let text = text_of(&lost);
    assert!(
        text.contains("no metadata for topic nowhere after 500 ms (max.block.ms)"),
        "{text}"
    );
}

#[test]
fn what_keeps_a_record_that_waited_from_being_sent_is_on_its_future() {
    let mut f = Fixture::new(&[
        ("enable.idempotence", "false"),
        ("max.request.size", "1000"),
        ("acks", "1"),
    ]);
    let too_large = f.send_later("t", &[0; 2000]);
    let record = |partition, timestamp| ProducerRecord {
        topic: "t",
        partition: Some(partition),
        timestamp,
        key: None,
        value: None,
        headers: &[],
    };
    let elsewhere = f.producer.send_later(&record(9, None), None).unwrap();
    let past = f.producer.send_later(&record(0, Some(-1)), None);
    f.turns();
    assert!(text_of(&too_large).contains("max.request.size"));
    assert!(text_of(&elsewhere).contains("no partition 9"));
    assert!(matches!(past, Err(ClientError::IllegalArgument(_))));
    f.producer.close(Some(0), &mut never).unwrap();
    assert!(matches!(
        f.producer.send_later(&record(0, None), None),
        Err(ClientError::Closed(_))
    ));
}

/// A producer whose next record waits for max.block.ms at most.
fn with_memory_for_one_record() -> Fixture {
    Fixture::new(&[
        ("max.block.ms", "500"),
        ("enable.idempotence", "false"),
        ("buffer.memory", "200"),
        ("max.request.size", "200"),
    ])
}

#[test]
fn a_record_waits_for_memory_at_most_max_block_ms_and_another_one_is_sent_when_there_is_some() {
    let mut f = with_memory_for_one_record();
    let first = f.send_later("t", &[1; 40]);
    f.turns();
    let late = f.send_later("t", &[2; 40]);
    f.producer.run_for(600);
    assert!(
        text_of(&late).contains("no room for the record after 500 ms (max.block.ms)"),
        "{}",
        text_of(&late)
    );
    let second = f.send_later("t", &[3; 40]);
    f.turns();
    assert_eq!(f.values(), [1]);
    f.answer_produce(ErrorCode::NONE, 0);
    assert_eq!(f.values(), [3]);
    f.answer_produce(ErrorCode::NONE, 1);
    assert_eq!(first.try_result().unwrap().unwrap().offset, 0);
    assert_eq!(second.try_result().unwrap().unwrap().offset, 1);
}

#[test]
fn each_record_that_waits_for_memory_has_max_block_ms_of_its_own() {
    let mut f = with_memory_for_one_record();
    let first = f.send_later("t", &[1; 40]);
    f.turns();
    let early = f.send_later("t", &[2; 40]);
    f.producer.run_for(300);
    let later = f.send_later("t", &[3; 40]);
    f.producer.run_for(300);
    assert!(text_of(&early).contains("after 500 ms (max.block.ms)"));
    assert!(later.try_result().is_none());
    f.producer.run_for(300);
    assert!(text_of(&later).contains("after 500 ms (max.block.ms)"));
    assert!(
        first.try_result().is_none(),
        "it is in a batch: delivery.timeout.ms counts"
    );
}

#[test]
fn records_that_wait_when_the_producer_is_closed_fail() {
    let mut f = Fixture::new(&[("enable.idempotence", "false")]);
    let lost = f.send_later("nowhere", b"1");
    f.turns();
    f.producer.close(Some(100), &mut never).unwrap();
    assert!(text_of(&lost).contains("closed before"), "{}", text_of(&lost));
}
