//! A transactional producer that sends one request at a time.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api::*;
use fletchlog_broker::Broker;
use fletchlog_protocol::messages::fetch_response::AbortedTransaction;
use fletchlog_records::control::{ControlType, parse_control_record};
use fletchlog_records::{BatchBuilder, BatchIter, BatchParams, RecordCursor, TopicPartition};

use crate::common::{Client, START, VirtualClock, fetch_of, options, topic_data};

/// A producer after InitProducerId.
pub struct Txn {
    pub client: Client,
    pub id: Arc<str>,
    pub producer_id: i64,
    pub epoch: i16,
    /// Next sequence per partition.
    pub sequences: Vec<(TopicPartition, i32)>,
    /// Transactions of version 2: the broker adds partitions, and every end raises the epoch.
    pub version_2: bool,
}

pub const NO_ID: (i64, i16) = (-1, -1);

/// A broker in memory whose clock is returned, with topic `t` of 3 partitions.
pub fn broker(config: &[(&str, &str)]) -> (Arc<Broker>, Arc<VirtualClock>) {
    let clock = VirtualClock::new();
    let broker = Broker::in_memory(options(Some(1), false, config), clock.clone()).unwrap();
    broker.create_topic("t", 3, &[]).unwrap();
    (broker, clock)
}

pub fn init(
    client: &mut Client,
    id: &str,
    timeout_ms: i32,
    (producer_id, producer_epoch): (i64, i16),
) -> Result<(i64, i16), i16> {
    let request = InitProducerIdRequest {
        transactional_id: Some(id.into()),
        transaction_timeout_ms: timeout_ms,
        producer_id,
        producer_epoch,
        ..Default::default()
    };
    let Response::InitProducerId(response) = client.ask(1, Request::InitProducerId(request)) else {
        panic!()
    };
    match response.error_code {
        ErrorCode::NONE => Ok((response.producer_id, response.producer_epoch)),
        error => Err(error.code()),
    }
}

impl Txn {
    /// A producer that has initialised; asks again while an older transaction is aborted.
    pub fn new(broker: &Arc<Broker>, id: &str) -> Self {
        Self::with_timeout(broker, id, 60_000)
    }

    pub fn with_timeout(broker: &Arc<Broker>, id: &str, timeout_ms: i32) -> Self {
        let mut client = Client::new(broker);
        let (producer_id, epoch) = match init(&mut client, id, timeout_ms, NO_ID) {
            Err(51) => init(&mut client, id, timeout_ms, NO_ID).unwrap(),
            other => other.unwrap(),
        };
        Self {
            client,
            id: id.into(),
            producer_id,
            epoch,
            sequences: Vec::new(),
            version_2: false,
        }
    }

    /// The same with transactions of version 2.
    pub fn of_version_2(broker: &Arc<Broker>, id: &str) -> Self {
        Self {
            version_2: true,
            ..Self::new(broker, id)
        }
    }

    fn operation(&self) -> TransactionSupportedOperation {
        match self.version_2 {
            true => TransactionSupportedOperation::AddPartition,
            false => TransactionSupportedOperation::DefaultError,
        }
    }

    /// AddPartitionsToTxn: the codes.
    pub fn add(&mut self, partitions: &[TopicPartition]) -> Vec<i16> {
        let request = AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: self.id.clone(),
            v3_and_below_producer_id: self.producer_id,
            v3_and_below_producer_epoch: self.epoch,
            v3_and_below_topics: AddPartitionsToTxnRequest::topics_of(partitions.iter().cloned()),
            ..Default::default()
        };
        let Response::AddPartitionsToTxn(response) = self.client.ask(1, Request::AddPartitionsToTxn(request)) else {
            panic!()
        };
        let asked: Vec<_> = response.errors().map(|(tp, _)| tp).collect();
        assert_eq!(asked, partitions);
        response.errors().map(|(_, error)| error.code()).collect()
    }

    /// One transactional record: its offset, or the code.
    pub fn send(&mut self, tp: &TopicPartition, value: &str) -> Result<i64, i16> {
        let at = match self.sequences.iter().position(|(known, _)| known == tp) {
            Some(at) => at,
            None => {
                self.sequences.push((tp.clone(), 0));
                self.sequences.len() - 1
            }
        };
        let sent = self.send_with(tp, value, self.sequences[at].1, true);
        if sent.is_ok() {
            self.sequences[at].1 += 1;
        }
        sent
    }

    pub fn send_with(
        &mut self,
        tp: &TopicPartition,
        value: &str,
        sequence: i32,
        transactional: bool,
    ) -> Result<i64, i16> {
        let request = ProduceRequest {
            transactional_id: Some(self.id.clone()),
            acks: -1,
            timeout_ms: 1000,
            topic_data: topic_data([(tp.clone(), self.batch(value, sequence, transactional))]),
            operation: self.operation(),
        };
        let Response::Produce(response) = self.client.ask(1, Request::Produce(request)) else {
            panic!()
        };
        let answer = &response.responses[0].partition_responses[0];
        match answer.error_code {
            ErrorCode::NONE => Ok(answer.base_offset),
            error => Err(error.code()),
        }
    }

    /// One transactional record for each partition, the first of it, in one request: the codes.
    pub fn send_to_all(&mut self, partitions: &[TopicPartition], value: &str) -> Vec<i16> {
        let batches = partitions.iter().map(|tp| (tp.clone(), self.batch(value, 0, true)));
        let request = ProduceRequest {
            transactional_id: Some(self.id.clone()),
            acks: -1,
            timeout_ms: 1000,
            topic_data: topic_data(batches),
            operation: self.operation(),
        };
        let Response::Produce(response) = self.client.ask(1, Request::Produce(request)) else {
            panic!()
        };
        response
            .partitions()
            .map(|(_, answer)| answer.error_code.code())
            .collect()
    }

    pub fn batch(&self, value: &str, base_sequence: i32, transactional: bool) -> Bytes {
        let mut builder = BatchBuilder::with_capacity(64);
        builder.append(START, None, Some(value.as_bytes()), &[]);
        builder.build(&BatchParams {
            producer_id: self.producer_id,
            producer_epoch: self.epoch,
            base_sequence,
            transactional,
            ..BatchParams::default()
        })
    }

    /// Adds the partition and sends.
    pub fn write(&mut self, tp: &TopicPartition, value: &str) -> i64 {
        assert_eq!(self.add(std::slice::from_ref(tp)), [0]);
        self.send(tp, value).unwrap()
    }

    /// EndTxn: the code.
    pub fn end(&mut self, committed: bool) -> i16 {
        let request = EndTxnRequest {
            transactional_id: self.id.clone(),
            producer_id: self.producer_id,
            producer_epoch: self.epoch,
            committed,
            bumps_epoch: self.version_2,
        };
        let Response::EndTxn(response) = self.client.ask(1, Request::EndTxn(request)) else {
            panic!()
        };
        if self.version_2 && response.error_code == ErrorCode::NONE {
            (self.producer_id, self.epoch) = (response.producer_id, response.producer_epoch);
            self.sequences.clear();
        }
        response.error_code.code()
    }

    /// AddOffsetsToTxn: the code.
    pub fn add_offsets(&mut self, group: &str) -> i16 {
        let request = AddOffsetsToTxnRequest {
            transactional_id: self.id.clone(),
            producer_id: self.producer_id,
            producer_epoch: self.epoch,
            group_id: group.into(),
        };
        let Response::AddOffsetsToTxn(AddOffsetsToTxnResponse { error_code, .. }) =
            self.client.ask(1, Request::AddOffsetsToTxn(request))
        else {
            panic!()
        };
        error_code.code()
    }

    /// TxnOffsetCommit of one partition by a consumer without a group: the code.
    pub fn commit_offset(&mut self, group: &str, tp: &TopicPartition, offset: i64) -> i16 {
        self.commit_offset_as(group, tp, offset, -1, "")
    }

    pub fn commit_offset_as(
        &mut self,
        group: &str,
        tp: &TopicPartition,
        offset: i64,
        generation_id: i32,
        member_id: &str,
    ) -> i16 {
        let offset = OffsetAndMetadata {
            offset,
            leader_epoch: -1,
            metadata: "".into(),
        };
        let request = TxnOffsetCommitRequest {
            transactional_id: self.id.clone(),
            group_id: group.into(),
            producer_id: self.producer_id,
            producer_epoch: self.epoch,
            generation_id_or_member_epoch: generation_id,
            member_id: member_id.into(),
            group_instance_id: None,
            topics: TxnOffsetCommitRequest::topics_of([(tp.clone(), offset)]),
            operation: self.operation(),
            ..Default::default()
        };
        let Response::TxnOffsetCommit(response) = self.client.ask(1, Request::TxnOffsetCommit(request)) else {
            panic!()
        };
        response.errors().next().unwrap().1.code()
    }
}

/// Values below the last stable offset, aborted ones left out as a client does.
pub fn read_committed(broker: &Arc<Broker>, tp: &TopicPartition) -> Vec<String> {
    let mut client = Client::new(broker);
    let mut found = Vec::new();
    let mut next = 0;
    loop {
        let mut request = fetch_of(&[(tp, next, 1 << 20)]);
        request.isolation_level = IsolationLevel::ReadCommitted;
        let response = client.fetch(1, request).responses.remove(0).partitions.remove(0);
        assert_eq!(response.error_code, ErrorCode::NONE);
        let aborted = response.aborted_transactions.unwrap();
        let before = next;
        let mut skipping: Vec<i64> = Vec::new();
        for batch in BatchIter::new(response.records.unwrap()) {
            let batch = batch.unwrap();
            let header = *batch.header();
            next = header.next_offset();
            let starts =
                |a: &AbortedTransaction| a.producer_id == header.producer_id && a.first_offset <= header.last_offset();
            if header.is_control() {
                skipping.retain(|&id| id != header.producer_id);
                continue;
            }
            if aborted
                .iter()
                .any(|a| starts(a) && a.first_offset == header.base_offset)
            {
                skipping.push(header.producer_id);
            }
            if header.is_transactional() && skipping.contains(&header.producer_id) {
                continue;
            }
            found.extend(values(&batch));
        }
        if next == before {
            return found;
        }
    }
}

fn values(batch: &fletchlog_records::RecordBatch) -> Vec<String> {
    let slice = batch.records(1 << 20).unwrap();
    let mut cursor = RecordCursor::new();
    let mut found = Vec::new();
    while let Some(record) = cursor.next(&slice).unwrap() {
        found.push(String::from_utf8(record.value.unwrap_or_default().to_vec()).unwrap());
    }
    found
}

/// Every batch of a partition: "value" of data, "COMMIT epoch" and "ABORT epoch" of markers.
pub fn log_of(broker: &Arc<Broker>, tp: &TopicPartition) -> Vec<String> {
    let Ok(log) = broker.partition_log(tp) else {
        return Vec::new();
    };
    let data = log
        .read(log.log_start_offset(), 1 << 20, true, fletchlog_log::FetchBound::LogEnd)
        .unwrap();
    let mut found = Vec::new();
    for batch in BatchIter::new(data.records) {
        let batch = batch.unwrap();
        let slice = batch.records(1 << 20).unwrap();
        let mut cursor = RecordCursor::new();
        while let Some(record) = cursor.next(&slice).unwrap() {
            if !batch.header().is_control() {
                found.push(String::from_utf8_lossy(record.value.unwrap_or_default()).into_owned());
                continue;
            }
            let marker = parse_control_record(record.key.unwrap(), record.value).unwrap();
            let kind = match marker.control_type {
                ControlType::Commit => "COMMIT",
                _ => "ABORT",
            };
            found.push(format!("{kind} {}", batch.header().producer_epoch));
        }
    }
    found
}

/// State, epoch and number of partitions of a transactional id.
pub fn state(broker: &Arc<Broker>, id: &str) -> Option<(&'static str, i16, usize)> {
    let known = broker.transactions().unwrap();
    let found = known.iter().find(|t| &*t.transactional_id == id)?;
    Some((found.state, found.producer_epoch, found.partitions.len()))
}
