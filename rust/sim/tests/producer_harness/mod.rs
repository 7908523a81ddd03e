//! What the producer tests share: a clock that only waiting moves, the embedded broker behind it, and a recorder of what
//! went over the wire.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

pub mod cluster;
pub mod faults;
pub mod scenario;

use bytes::Bytes;
use fletchlog_api::{Config, NodeId, Request, Scope, Transport};
use fletchlog_client::ClientError;
use fletchlog_client::producer::{Producer, ProducerRecord, RecordFuture};
use fletchlog_faults::{FaultTransport, Faults};
use fletchlog_records::{BatchIter, RecordCursor};
use fletchlog_sim::stepped::never;
use fletchlog_testing::{VirtualClock, Watch, WatchedTransport};

/// The producer takes the broker for a remote one.
pub struct Remote;

impl Watch for Remote {
    const REMOTE: bool = true;
}

/// Waiting for nothing takes virtual time instead of real time.
pub fn virtual_wait<T: Transport>(inner: T, clock: &Arc<VirtualClock>) -> WatchedTransport<T, Remote> {
    WatchedTransport::on_clock(inner, Remote, clock, i64::MAX)
}

/// One record as it was sent or stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub offset: i64,
    pub value: Vec<u8>,
    pub producer_id: i64,
    pub epoch: i16,
    pub sequence: i32,
}

/// The records of a slice of batches.
pub fn records_of(bytes: &Bytes) -> Vec<Stored> {
    let mut found = Vec::new();
    for batch in BatchIter::new(bytes.clone()) {
        let batch = batch.unwrap();
        let header = *batch.header();
        let slice = batch.records(usize::MAX).unwrap();
        let mut cursor = RecordCursor::new();
        let mut sequence = header.base_sequence;
        while let Some(record) = cursor.next(&slice).unwrap() {
            found.push(Stored {
                offset: record.offset,
                value: record.value.unwrap_or_default().to_vec(),
                producer_id: header.producer_id,
                epoch: header.producer_epoch,
                sequence,
            });
            if sequence >= 0 {
                sequence += 1;
            }
        }
    }
    found
}

/// Batches of one produce request: (partition, records).
pub type SentRequest = Vec<(i32, Vec<Stored>)>;

/// Notes every produce request, in the order of sending.
#[derive(Clone, Default)]
struct Recorder {
    requests: Arc<Mutex<Vec<SentRequest>>>,
    init_producer_ids: Arc<AtomicI64>,
    /// Kafka's names of the requests, Metadata left out.
    names: Arc<Mutex<Vec<String>>>,
}

impl Watch for Recorder {
    fn sending(&mut self, _: NodeId, _: i32, request: &Request) {
        let name = format!("{request:?}");
        let name = name.split('(').next().unwrap_or_default();
        if name != "Metadata" {
            self.names.lock().unwrap().push(name.to_owned());
        }
        match request {
            Request::Produce(produce) => {
                let parts = produce
                    .partitions()
                    .map(|(_, p)| (p.index, records_of(p.records.as_ref().unwrap())))
                    .collect();
                self.requests.lock().unwrap().push(parts);
            }
            Request::InitProducerId(_) => drop(self.init_producer_ids.fetch_add(1, Ordering::SeqCst)),
            _ => {}
        }
    }
}

/// A producer on virtual time, faults in front of the broker, everything recorded.
pub struct Bench {
    pub producer: Producer,
    pub requests: Arc<Mutex<Vec<SentRequest>>>,
    pub init_producer_ids: Arc<AtomicI64>,
    pub faults: Arc<Faults>,
    /// What [`Bench::send`] sends to.
    pub topic: String,
    names: Arc<Mutex<Vec<String>>>,
    sent: usize,
    called_back: Arc<Mutex<Vec<usize>>>,
}

impl Bench {
    pub fn new<T: Transport + 'static>(
        broker: T,
        clock: &Arc<VirtualClock>,
        faults: Arc<Faults>,
        config: &[(&str, &str)],
    ) -> Self {
        let broker = Box::new(virtual_wait(broker, clock));
        let recorder = Recorder::default();
        let transport = FaultTransport::new(broker, faults.clone(), clock.clone(), "").unwrap();
        let transport = WatchedTransport::new(transport, recorder.clone());
        let config = Config::parse(Scope::Producer, config.iter().copied()).unwrap();
        let producer = Producer::stepped(config, Box::new(transport), clock.clone()).unwrap();
        Self {
            producer,
            requests: recorder.requests,
            init_producer_ids: recorder.init_producer_ids,
            faults,
            topic: "t".to_owned(),
            names: recorder.names,
            sent: 0,
            called_back: Arc::default(),
        }
    }

    /// Names of the requests since this was last asked.
    pub fn names(&self) -> Vec<String> {
        std::mem::take(&mut self.names.lock().unwrap())
    }

    /// Sends a value to a partition.
    pub fn send(&mut self, partition: i32, value: &[u8]) -> RecordFuture {
        let record = ProducerRecord {
            topic: &self.topic,
            partition: Some(partition),
            timestamp: None,
            key: None,
            value: Some(value),
            headers: &[],
        };
        let (number, called_back) = (self.sent, self.called_back.clone());
        self.sent += 1;
        self.producer
            .send_with(
                &record,
                Some(Box::new(move |_| called_back.lock().unwrap().push(number))),
                &mut never,
            )
            .unwrap()
    }

    /// Numbers of the records, by [`Bench::send`] from 0, in the order in which their outcomes were reported.
    pub fn called_back(&self) -> Vec<usize> {
        self.called_back.lock().unwrap().clone()
    }
}

/// The Java exception that a failure stands for.
pub fn java_name(error: &ClientError) -> String {
    let name = match error {
        ClientError::RecordTooLarge(_) => "RecordTooLargeException",
        ClientError::Timeout(_) => "TimeoutException",
        ClientError::Kafka { code, .. } => match code.name() {
            "UNKNOWN_SERVER_ERROR" => "UnknownServerException",
            "REQUEST_TIMED_OUT" => "TimeoutException",
            "NOT_LEADER_OR_FOLLOWER" => "NotLeaderOrFollowerException",
            "NETWORK_EXCEPTION" => "NetworkException",
            "INVALID_RECORD" => "InvalidRecordException",
            "INVALID_TIMESTAMP" => "InvalidTimestampException",
            "INVALID_TXN_STATE" => "InvalidTxnStateException",
            "PRODUCER_FENCED" => "ProducerFencedException",
            "INVALID_PRODUCER_EPOCH" => "InvalidProducerEpochException",
            "OUT_OF_ORDER_SEQUENCE_NUMBER" => "OutOfOrderSequenceException",
            "UNKNOWN_PRODUCER_ID" => "UnknownProducerIdException",
            other => return other.to_owned(),
        },
        other => return format!("{other:?}"),
    };
    name.to_owned()
}
