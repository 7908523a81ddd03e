//! The sender over a transport whose answers the test gives by hand, on a clock that only waiting moves.

mod answers;
mod connections;
mod producer_id;
mod splitting;
mod turns;
mod waiting;

use std::sync::Mutex;

use fletchlog_api::{
    Clock, Config, Failure, FindCoordinatorResponse, InitProducerIdResponse, ProduceResponse, Ready, Response, Scope,
    StorageFailure,
};
use fletchlog_protocol::messages::find_coordinator_response::Coordinator;
use fletchlog_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use fletchlog_testing::{Answer, ScriptedTransport};

use super::*;
use crate::ClientError;
use crate::net::fixtures::{cluster, topic};
use crate::producer::{OnDecided, Producer, ProducerRecord, RecordFuture, RecordMetadata};

/// No call is interrupted.
fn never() -> bool {
    false
}

struct Fixture {
    producer: Producer,
    transport: ScriptedTransport,
    /// Who leads topic `t`, and since which epoch.
    leader: NodeId,
}

impl Fixture {
    /// A producer with the metadata of topic `t` (one partition, led by node 1 of 2).
    fn new(config: &[(&str, &str)]) -> Self {
        let transport = ScriptedTransport::default();
        let mut all = vec![
            ("batch.size", "1"),
            ("retry.backoff.ms", "10"),
            ("fletchlog.trace", "true"),
        ];
        all.extend_from_slice(config);
        let config = Config::parse(Scope::Producer, all).unwrap();
        let producer = Producer::stepped(config, Box::new(transport.clone()), transport.clock.clone()).unwrap();
        producer.request_topic("t");
        producer.run_once(0);
        let mut fixture = Self {
            producer,
            transport,
            leader: 1,
        };
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
        let wire = self.transport.wire();
        wire.sent.iter().map(|sent| (sent.node, name(&sent.request))).collect()
    }

    /// First value byte of each unanswered produce request (61 bytes of header, 6 of the record before its value).
    fn values(&self) -> Vec<u8> {
        let wire = self.transport.wire();
        let produced = wire.sent.iter().filter_map(|sent| match &sent.request {
            Request::Produce(produce) => {
                let records = produce.topic_data[0].partition_data[0].records.as_deref();
                records.map(|records| records[61 + 6])
            }
            _ => None,
        });
        produced.collect()
    }

    fn answer(&mut self, wanted: impl Fn(&Request) -> bool, result: Answer) {
        self.transport.answer_first(wanted, result);
        self.turns();
    }

    fn answer_metadata(&mut self) {
        let response = cluster([1, 2], [topic("t", [(self.leader, self.leader)])]);
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
        let response = ProduceResponse {
            responses: vec![TopicProduceResponse {
                name: "t".into(),
                partition_responses: vec![answer],
                ..Default::default()
            }],
            ..Default::default()
        };
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
