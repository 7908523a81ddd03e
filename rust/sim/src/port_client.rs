//! A client behind a socket, without the socket: requests of the newest versions to a broker of one node, whose answers are there at once.

use std::sync::{Arc, Mutex, PoisonError};

use fletchlog_api::{
    EndTxnRequest, ErrorCode, InitProducerIdRequest, OffsetAndMetadata, OffsetCommitRequest, OffsetFetchRequest,
    ProduceRequest, Request, Response, TransactionSupportedOperation, TxnOffsetCommitRequest,
};
use fletchlog_broker::{Broker, Outcome, Port};
use fletchlog_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use fletchlog_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use fletchlog_records::{BatchBuilder, BatchParams, TopicPartition};

/// The time-out of its transactions, ms.
pub(crate) const TRANSACTION_TIMEOUT_MS: i32 = 60_000;

/// A producer id and its epoch.
pub(crate) type ProducerIdAndEpoch = (i64, i16);

/// A client, with one connection.
pub(crate) struct PortClient(Port);

/// A member of a consumer group; `id` is "" and `epoch` -1 for a commit that names none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Committer<'a> {
    pub group: &'a str,
    pub id: &'a str,
    pub epoch: i32,
}

/// A transactional producer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transactional<'a> {
    pub id: &'a str,
    pub producer: ProducerIdAndEpoch,
}

fn checked<T>(code: ErrorCode, value: T) -> Result<T, ErrorCode> {
    match code {
        ErrorCode::NONE => Ok(value),
        code => Err(code),
    }
}

/// The answer was another, or the connection was closed.
const NO_ANSWER: ErrorCode = ErrorCode::NETWORK_EXCEPTION;

impl PortClient {
    pub(crate) fn new(broker: &Arc<Broker>) -> Self {
        Self(broker.connect(1, "/127.0.0.1"))
    }

    /// The answer, if it is there at once.
    pub(crate) fn ask(&self, request: Request) -> Result<Response, ErrorCode> {
        match self.0.handle(request) {
            Outcome::Now(response) => Ok(response),
            Outcome::Later(ticket) => {
                let arrived = Arc::new(Mutex::new(None));
                let receive = Arc::clone(&arrived);
                ticket
                    .on_ready(move |response| *receive.lock().unwrap_or_else(PoisonError::into_inner) = Some(response));
                let response = arrived.lock().unwrap_or_else(PoisonError::into_inner).take();
                response.ok_or(NO_ANSWER)
            }
            Outcome::After(_) | Outcome::Close => Err(NO_ANSWER),
        }
    }

    pub(crate) fn heartbeat(
        &self,
        request: ConsumerGroupHeartbeatRequest,
    ) -> Result<ConsumerGroupHeartbeatResponse, ErrorCode> {
        match self.ask(Request::ConsumerGroupHeartbeat(request))? {
            Response::ConsumerGroupHeartbeat(response) => checked(response.error_code, response),
            _ => Err(NO_ANSWER),
        }
    }

    /// OffsetCommit of one partition, with a member epoch.
    pub(crate) fn commit(&self, by: Committer<'_>, tp: &TopicPartition, offset: i64) -> Result<(), ErrorCode> {
        let request = OffsetCommitRequest {
            group_id: by.group.into(),
            generation_id_or_member_epoch: by.epoch,
            member_id: by.id.into(),
            topics: OffsetCommitRequest::topics_of([(tp.clone(), plain(offset))]),
            knows_group_id_not_found: true,
            ..Default::default()
        };
        match self.ask(Request::OffsetCommit(request))? {
            Response::OffsetCommit(response) => {
                let code = response.errors().next().map(|(_, code)| code);
                checked(code.unwrap_or(NO_ANSWER), ())
            }
            _ => Err(NO_ANSWER),
        }
    }

    /// The committed offset of a partition.
    pub(crate) fn committed(&self, group: &str, tp: &TopicPartition) -> Result<Option<i64>, ErrorCode> {
        let request = OffsetFetchRequest::of(group.into(), Some(std::slice::from_ref(tp)), false);
        match self.ask(Request::OffsetFetch(request))? {
            Response::OffsetFetch(response) => {
                let (_, committed) = response.offsets()?.next().ok_or(NO_ANSWER)?;
                Ok(committed?.map(|value| value.offset))
            }
            _ => Err(NO_ANSWER),
        }
    }

    /// InitProducerId of a transactional producer that knows no id.
    pub(crate) fn init(&self, transactional_id: &str) -> Result<ProducerIdAndEpoch, ErrorCode> {
        let request = InitProducerIdRequest {
            transactional_id: Some(transactional_id.into()),
            transaction_timeout_ms: TRANSACTION_TIMEOUT_MS,
            producer_id: -1,
            producer_epoch: -1,
            ..Default::default()
        };
        match self.ask(Request::InitProducerId(request))? {
            Response::InitProducerId(response) => {
                checked(response.error_code, (response.producer_id, response.producer_epoch))
            }
            _ => Err(NO_ANSWER),
        }
    }

    /// Produce 12 of one record: the broker adds the partition to the transaction. Returns the record's offset.
    pub(crate) fn produce(
        &self,
        by: Transactional<'_>,
        tp: &TopicPartition,
        sequence: i32,
        (time_ms, value): (i64, &str),
    ) -> Result<i64, ErrorCode> {
        let mut builder = BatchBuilder::with_capacity(128);
        builder.append(time_ms, None, Some(value.as_bytes()), &[]);
        let records = builder.build(&BatchParams {
            producer_id: by.producer.0,
            producer_epoch: by.producer.1,
            base_sequence: sequence,
            transactional: true,
            ..BatchParams::default()
        });
        let request = ProduceRequest {
            transactional_id: Some(by.id.into()),
            acks: -1,
            timeout_ms: 1000,
            topic_data: vec![TopicProduceData {
                name: Arc::clone(&tp.topic),
                partition_data: vec![PartitionProduceData {
                    index: tp.partition,
                    records: Some(records),
                }],
                ..Default::default()
            }],
            operation: TransactionSupportedOperation::AddPartition,
        };
        match self.ask(Request::Produce(request))? {
            Response::Produce(response) => {
                let answers = response.responses.first().map(|topic| &topic.partition_responses);
                let answer = answers.and_then(|answers| answers.first()).ok_or(NO_ANSWER)?;
                checked(answer.error_code, answer.base_offset)
            }
            _ => Err(NO_ANSWER),
        }
    }

    /// TxnOffsetCommit 5 of one partition: the broker adds the group to the transaction.
    pub(crate) fn commit_in(
        &self,
        by: Transactional<'_>,
        member: Committer<'_>,
        tp: &TopicPartition,
        offset: i64,
    ) -> Result<(), ErrorCode> {
        let request = TxnOffsetCommitRequest {
            transactional_id: by.id.into(),
            group_id: member.group.into(),
            producer_id: by.producer.0,
            producer_epoch: by.producer.1,
            generation_id_or_member_epoch: member.epoch,
            member_id: member.id.into(),
            topics: TxnOffsetCommitRequest::topics_of([(tp.clone(), plain(offset))]),
            operation: TransactionSupportedOperation::AddPartition,
            ..Default::default()
        };
        match self.ask(Request::TxnOffsetCommit(request))? {
            Response::TxnOffsetCommit(response) => {
                let code = response.errors().next().map(|(_, code)| code);
                checked(code.unwrap_or(NO_ANSWER), ())
            }
            _ => Err(NO_ANSWER),
        }
    }

    /// EndTxn 5. Returns the id and epoch with which the producer goes on.
    pub(crate) fn end(&self, by: Transactional<'_>, committed: bool) -> Result<ProducerIdAndEpoch, ErrorCode> {
        let request = EndTxnRequest {
            transactional_id: by.id.into(),
            producer_id: by.producer.0,
            producer_epoch: by.producer.1,
            committed,
            bumps_epoch: true,
        };
        match self.ask(Request::EndTxn(request))? {
            Response::EndTxn(response) => checked(response.error_code, (response.producer_id, response.producer_epoch)),
            _ => Err(NO_ANSWER),
        }
    }
}

fn plain(offset: i64) -> OffsetAndMetadata {
    OffsetAndMetadata {
        offset,
        leader_epoch: -1,
        metadata: "".into(),
    }
}
