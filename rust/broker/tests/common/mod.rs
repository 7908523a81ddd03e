//! What the broker's tests share: a client with one connection per node, batches of a size.

pub mod cut;
pub mod held_disk;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fletchlog_api::*;
use fletchlog_broker::{
    Alteration, Broker, BrokerError, ConfigChange, CreatedTopic, LocalTransport, NewTopic, OpenOptions,
};
use fletchlog_protocol::by_topic::in_runs;
use fletchlog_protocol::local::JoinSender;
use fletchlog_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use fletchlog_protocol::messages::fetch_response::PartitionData;
use fletchlog_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use fletchlog_protocol::messages::list_offsets_request::ListOffsetsPartition;
use fletchlog_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use fletchlog_protocol::messages::produce_response::PartitionProduceResponse;
use fletchlog_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use fletchlog_records::{BatchBuilder, BatchParams, TopicPartition};
pub use fletchlog_testing::{START_MS as START, VirtualClock};

pub fn options(nodes: Option<u32>, read_only: bool, config: &[(&str, &str)]) -> OpenOptions {
    OpenOptions {
        nodes,
        named_nodes: Vec::new(),
        read_only,
        config: Config::parse(Scope::Broker, config.iter().copied()).unwrap(),
    }
}

pub fn in_memory(nodes: u32) -> Arc<Broker> {
    Broker::in_memory(options(Some(nodes), false, &[]), VirtualClock::new()).unwrap()
}

pub fn open(path: &std::path::Path) -> Result<Arc<Broker>, BrokerError> {
    Broker::open(path, options(None, false, &[]), VirtualClock::new())
}

pub fn open_read_only(path: &std::path::Path) -> Result<Arc<Broker>, BrokerError> {
    Broker::open(path, options(None, true, &[]), VirtualClock::new())
}

pub fn tp(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition::new(topic, partition)
}

/// A batch of `count` records without key whose values have `len` bytes.
pub fn batch(count: usize, len: usize) -> Bytes {
    batch_with(count, len, &BatchParams::default())
}

pub fn batch_with(count: usize, len: usize, params: &BatchParams) -> Bytes {
    let mut builder = BatchBuilder::with_capacity(count * (len + 16));
    for _ in 0..count {
        builder.append(START, None, Some(&vec![b'v'; len]), &[]);
    }
    builder.build(params)
}

/// A batch of `count` records (the last one padded) with exactly `size` bytes.
pub fn batch_of_size(count: usize, size: usize) -> Bytes {
    for len in 0..size {
        let mut builder = BatchBuilder::with_capacity(size);
        for i in 0..count {
            let value = if i + 1 == count { len } else { 1 };
            builder.append(START, None, Some(&vec![b'v'; value]), &[]);
        }
        let built = builder.build(&BatchParams::default());
        if built.len() == size {
            return built;
        }
    }
    panic!("no batch of {count} records has {size} bytes");
}

/// A protocol that a member offers.
pub fn protocol(name: &str, metadata: impl Into<Bytes>) -> JoinGroupRequestProtocol {
    JoinGroupRequestProtocol {
        name: name.into(),
        metadata: metadata.into(),
    }
}

/// What a leader assigns to a member.
pub fn assigned(member_id: &Arc<str>, assignment: impl Into<Bytes>) -> SyncGroupRequestAssignment {
    SyncGroupRequestAssignment {
        member_id: member_id.clone(),
        assignment: assignment.into(),
    }
}

/// Who sends a JoinGroup of this version.
pub fn sender(version: i16) -> JoinSender {
    JoinSender {
        client_id: "c".into(),
        version,
        principal: None,
    }
}

pub fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden")
        .join(name)
}

/// One client.
pub struct Client {
    pub transport: LocalTransport,
    next: i32,
}

impl Client {
    pub fn new(broker: &Arc<Broker>) -> Self {
        Self {
            transport: LocalTransport::new(broker.clone()),
            next: 0,
        }
    }
    pub fn send(&mut self, node: i32, request: Request) -> i32 {
        self.next += 1;
        self.transport.send(node, self.next, request);
        self.next
    }
    /// The answer that is there now.
    pub fn take(&mut self, node: i32) -> Option<Response> {
        self.transport
            .receive(node)
            .map(|c| c.result.expect("connection closed"))
    }
    pub fn ask(&mut self, node: i32, request: Request) -> Response {
        self.send(node, request);
        self.take(node).expect("answered at once")
    }
    pub fn produce(&mut self, node: i32, tp: &TopicPartition, records: Bytes, acks: i16) -> PartitionProduceResponse {
        let request = ProduceRequest {
            transactional_id: None,
            acks,
            timeout_ms: 1000,
            topic_data: topic_data([(tp.clone(), records)]),
            ..Default::default()
        };
        let Response::Produce(mut response) = self.ask(node, Request::Produce(request)) else {
            panic!()
        };
        response.responses[0].partition_responses.remove(0)
    }
    pub fn fetch(&mut self, node: i32, request: FetchRequest) -> FetchResponse {
        let Response::Fetch(response) = self.ask(node, Request::Fetch(request)) else {
            panic!()
        };
        response
    }
    /// The error and the offset.
    pub fn list_offset(&mut self, node: i32, tp: &TopicPartition, timestamp: i64) -> (ErrorCode, i64) {
        let partition = ListOffsetsPartition {
            partition_index: tp.partition,
            timestamp,
            ..Default::default()
        };
        let request =
            ListOffsetsRequest::for_consumer(IsolationLevel::ReadUncommitted, [(tp.topic.clone(), partition)]);
        let Response::ListOffsets(answer) = self.ask(node, Request::ListOffsets(request)) else {
            panic!()
        };
        let found = &answer.topics[0].partitions[0];
        (found.error_code, found.offset)
    }
    pub fn wait_fetch(&mut self, node: i32, timeout_ms: u64) -> Option<FetchResponse> {
        self.transport.wait(Duration::from_millis(timeout_ms));
        match self.take(node)? {
            Response::Fetch(response) => Some(response),
            other => panic!("{other:?}"),
        }
    }
}

/// One batch for each partition.
pub fn topic_data(batches: impl IntoIterator<Item = (TopicPartition, Bytes)>) -> Vec<TopicProduceData> {
    let data = |(tp, records): (TopicPartition, Bytes)| {
        let index = tp.partition;
        let records = Some(records);
        (tp.topic, PartitionProduceData { index, records })
    };
    let topic = |(name, partition_data)| TopicProduceData {
        name,
        partition_data,
        ..Default::default()
    };
    in_runs(batches.into_iter().map(data)).into_iter().map(topic).collect()
}

/// Sessionless, no waiting, Kafka's default limits.
pub fn fetch_of(partitions: &[(&TopicPartition, i64, i32)]) -> FetchRequest {
    FetchRequest {
        max_wait_ms: 0,
        min_bytes: 1,
        max_bytes: 52_428_800,
        isolation_level: IsolationLevel::ReadUncommitted,
        session_epoch: -1,
        topics: fetch_topics(partitions.iter().map(|(tp, offset, max)| {
            let partition = FetchPartition {
                fetch_offset: *offset,
                partition_max_bytes: *max,
                ..Default::default()
            };
            ((*tp).clone(), partition)
        })),
        ..Default::default()
    }
}

/// Partitions of a request in this order.
pub fn fetch_topics(partitions: impl IntoIterator<Item = (TopicPartition, FetchPartition)>) -> Vec<FetchTopic> {
    let numbered = partitions.into_iter().map(|(tp, asked)| {
        let partition = tp.partition;
        (tp.topic, FetchPartition { partition, ..asked })
    });
    let topic = |(topic, partitions)| FetchTopic {
        topic,
        partitions,
        ..Default::default()
    };
    in_runs(numbered).into_iter().map(topic).collect()
}

/// A partition of an answer.
pub fn nth(response: &FetchResponse, n: usize) -> &PartitionData {
    response.partitions().nth(n).unwrap().1
}

/// (topic, bytes) per partition of an answer.
pub fn sizes(response: &FetchResponse) -> Vec<(String, usize)> {
    let partitions = response.partitions();
    partitions.map(|(topic, p)| (topic.to_string(), p.size())).collect()
}

/// One topic or resource at a time.
pub trait OneAtATime {
    fn create_topic_with(&self, name: &str, new: &NewTopic) -> Result<CreatedTopic, BrokerError>;
    fn replace_config(
        &self,
        resource: &ConfigResource,
        config: &[(String, Option<String>)],
        validate_only: bool,
    ) -> Result<(), BrokerError>;
}

impl OneAtATime for Broker {
    fn create_topic_with(&self, name: &str, new: &NewTopic) -> Result<CreatedTopic, BrokerError> {
        self.create_topics(&[(name, new)])?.remove(0)
    }

    fn replace_config(
        &self,
        resource: &ConfigResource,
        config: &[(String, Option<String>)],
        validate_only: bool,
    ) -> Result<(), BrokerError> {
        let alteration = Alteration {
            resource: resource.clone(),
            change: ConfigChange::All(config.to_vec()),
        };
        self.alter_configs(&[alteration], validate_only)?.remove(0)
    }
}
