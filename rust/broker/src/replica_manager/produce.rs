//! The produce path: what is decided about a request before its batches reach the log (spec 2.1, step 1).
//! Kafka: `KafkaApis#handleProduceRequest`, `ReplicaManager#appendRecords`.

use std::cell::LazyCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;

use bytes::Bytes;
use fletchlog_api::{ErrorCode, NodeId, ProduceRequest, ProduceResponse, TransactionSupportedOperation};
use fletchlog_log::{AppendError, AppendInfo, AppendOrigin, PartitionLog};
use fletchlog_protocol::messages::produce_request::PartitionProduceData;
use fletchlog_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, PartitionProduceResponse, TopicProduceResponse,
};
use fletchlog_records::batch_header::{ATTRIBUTES_POSITION, MAGIC_POSITION, TRANSACTIONAL_MASK};
use fletchlog_records::{BatchHeader, TopicPartition};

use super::ReplicaManager;
use super::acks::Appended;
use crate::BrokerError;
use crate::directory::NO_LEADER;
use crate::partition::Partition;
use crate::sync::Answer;

/// Asks the transaction coordinator whether a producer may write to a partition. Kafka: `AddPartitionsToTxnManager`, which returns 47
/// where the coordinator returns PRODUCER_FENCED.
pub(crate) trait AddPartitionsToTxnManager {
    /// Runs `append` if the partition belongs to the producer's open transaction, or is added to it, with `all` of its request. The
    /// transaction cannot end meanwhile, so what is appended is below its marker (KIP-890).
    ///
    /// # Errors
    /// INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE, TRANSACTION_ABORTABLE,
    /// COORDINATOR_NOT_AVAILABLE if the addition could not be written.
    fn in_transaction<T>(
        &self,
        transactional_id: &str,
        producer: (i64, i16),
        partition: &TopicPartition,
        all: &[TopicPartition],
        operation: TransactionSupportedOperation,
        append: impl FnOnce() -> T,
    ) -> Result<T, ErrorCode>;
}

/// What is done with the connection after a produce request.
pub(crate) enum Produced {
    /// The response is sent (without partitions for acks=0).
    Answered(ProduceResponse),
    /// The response comes when the records are on all replicas in sync, or after the request's time-out.
    Later(Arc<Answer>),
    /// acks=0 and something failed: the broker can only close the connection.
    CloseConnection,
}

impl ReplicaManager {
    /// A Produce request to `node`.
    pub(crate) fn produce(
        &self,
        node: NodeId,
        request: ProduceRequest,
        transactions: &impl AddPartitionsToTxnManager,
    ) -> Produced {
        let (acks, operation, timeout_ms) = (request.acks, request.operation, request.timeout_ms);
        let mut waiting: Vec<Appended> = Vec::new();
        self.logs
            .maybe_cleanup_logs(self.clock().now_ms(), &|p| self.partition_changed(p));
        // Kafka refuses the whole request when any batch is transactional and the request names no transactional id.
        let has_transactional = |p: &PartitionProduceData| p.records.as_deref().is_some_and(is_transactional);
        let transactional = request.partitions().any(|(_, p)| has_transactional(p));
        let id = request.transactional_id.as_deref();
        let no_id = transactional && id.is_none();
        if !no_id {
            self.open_logs(node, acks, &request);
        }
        // What the request adds to its transaction, if anything. Kafka: `ReplicaManager#maybeSendPartitionsToTransactionCoordinator`.
        let named: Vec<_> = request
            .partitions()
            .filter(|(_, p)| operation.adds() && has_transactional(p))
            .map(|(topic, p)| TopicPartition::new(Arc::clone(topic), p.index))
            .collect();
        let may_write = |tp: &TopicPartition| self.partition_to_write(node, acks, tp).is_ok();
        let to_add = LazyCell::new(|| named.into_iter().filter(may_write).collect());
        let mut one = |topic: &Arc<str>, place, PartitionProduceData { index, records }| {
            if no_id {
                return refused(index, (ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED, None));
            }
            let tp = TopicPartition::new(Arc::clone(topic), index);
            // Kafka never responds to null records. Here they count as empty, and empty records are refused.
            let records = records.unwrap_or_default();
            let size = records.len();
            let answer = self.append(
                node,
                acks,
                (&tp, place),
                size,
                &mut waiting,
                |partition, log| match id {
                    Some(id) if is_transactional(&records) => {
                        self.append_transactional((id, &to_add), operation, transactions, partition, log, records)
                    }
                    _ => Ok(self.append_to(partition, log, records, AppendOrigin::Client)),
                },
            );
            answer.unwrap_or_else(|refusal| {
                self.metrics.produced(refusal.0, 0, 0);
                PartitionProduceResponse {
                    current_leader: self.leader_to_ask(&tp, refusal.0),
                    ..refused(index, refusal)
                }
            })
        };
        let topics = (0..).zip(request.topic_data).map(|(at, topic)| TopicProduceResponse {
            partition_responses: (0..)
                .zip(topic.partition_data)
                .map(|(nth, p)| one(&topic.name, (at, nth), p))
                .collect(),
            name: topic.name,
            topic_id: topic.topic_id,
        });
        let response = ProduceResponse {
            responses: topics.collect(),
            ..Default::default()
        };
        match acks {
            0 if response.partitions().any(|(_, p)| p.error_code != ErrorCode::NONE) => Produced::CloseConnection,
            0 => Produced::Answered(ProduceResponse::default()),
            _ if waiting.is_empty() => Produced::Answered(response),
            _ => Produced::Later(self.delay_produce(node, response, waiting, timeout_ms)),
        }
    }

    /// `append_batches`.
    pub(crate) fn append_one(&self, tp: &TopicPartition, records: Bytes) -> Result<(i64, i64, i64), BrokerError> {
        self.for_writing("produce")?;
        let partition = self.partition(tp)?;
        let answer = if partition.leader() == NO_LEADER {
            let text = format!("{tp} has no leader: all nodes of its replicas are stopped; start one of them");
            refused(tp.partition, (ErrorCode::NOT_LEADER_OR_FOLLOWER, Some(text)))
        } else if self.is_under_min_isr(&partition) {
            refused(tp.partition, (ErrorCode::NOT_ENOUGH_REPLICAS, None))
        } else if is_transactional(&records) {
            refused(tp.partition, (ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED, None))
        } else if let Err(refusal) = check_topic(tp) {
            refused(tp.partition, refusal)
        } else {
            // A log that cannot be opened is reported as an error of its own that names the file, not as a refusal of the batch.
            let log = self.log_of(&partition)?;
            self.answer(
                &partition,
                records.len(),
                self.append_to(&partition, log, records, AppendOrigin::Client),
            )
        };
        if answer.error_code == ErrorCode::NONE {
            return Ok((answer.base_offset, answer.log_append_time_ms, answer.log_start_offset));
        }
        let text = answer.error_message.as_deref().unwrap_or(answer.error_code.message());
        let of_record = |error: &BatchIndexAndErrorMessage| {
            let reason = error.batch_index_error_message.as_deref().unwrap_or_default();
            format!("; record {}: {reason}", error.batch_index)
        };
        let records: String = answer.record_errors.iter().map(of_record).collect();
        let message = format!("{tp} refused the batch: {text}{records}");
        Err(BrokerError::kafka(answer.error_code, message))
    }

    /// Appends, with `write`, the data for one partition of a Produce request with these `acks` to `node`. What has to wait until it is on
    /// all replicas in sync is added to `waiting`, with its place in the response.
    fn append(
        &self,
        node: NodeId,
        acks: i16,
        (tp, place): (&TopicPartition, (usize, usize)),
        size: usize,
        waiting: &mut Vec<Appended>,
        write: impl FnOnce(&Partition, &PartitionLog) -> Result<Result<AppendInfo, AppendError>, Refusal>,
    ) -> Result<PartitionProduceResponse, Refusal> {
        let partition = self.partition_to_write(node, acks, tp)?;
        let log = self.log_of(&partition).map_err(with_text)?;
        if acks == ALL && self.is_under_min_isr(&partition) {
            let code = ErrorCode::NOT_ENOUGH_REPLICAS;
            self.metrics.produced(code, 0, 0);
            return Ok(PartitionProduceResponse {
                log_start_offset: log.log_start_offset(),
                ..refused(tp.partition, (code, None))
            });
        }
        let appended = write(&partition, log)?;
        let end = appended.as_ref().ok().map(|info| info.last_offset + 1);
        let answer = self.answer(&partition, size, appended);
        if let (ALL, true, Some(end)) = (acks, partition.is_held(), end) {
            waiting.push(Appended { place, partition, end });
        }
        Ok(answer)
    }

    /// Whether too few replicas are in sync for acks=all. Kafka: `Partition#appendRecordsToLeader`.
    pub(crate) fn is_under_min_isr(&self, partition: &Partition) -> bool {
        partition.is_under_replicated()
            && partition
                .state()
                .is_under_min_isr(partition.config().min_insync_replicas)
    }

    /// The leader that a client should ask instead, if the error says so (KIP-951). Kafka: `KafkaApis#handleProduceRequest`.
    pub(super) fn leader_to_ask(&self, tp: &TopicPartition, error: ErrorCode) -> LeaderIdAndEpoch {
        let partition = (error == ErrorCode::NOT_LEADER_OR_FOLLOWER).then(|| self.partition(tp).ok());
        let Some(partition) = partition.flatten() else {
            return LeaderIdAndEpoch::default();
        };
        LeaderIdAndEpoch {
            leader_id: partition.leader(),
            leader_epoch: self.leader_epoch_of(&partition).unwrap_or(-1),
        }
    }

    /// The partition of a Produce request with these `acks` to `node`, if it may be written to.
    fn partition_to_write(&self, node: NodeId, acks: i16, tp: &TopicPartition) -> Result<Arc<Partition>, Refusal> {
        self.for_writing("produce").map_err(with_text)?;
        let partition = self.partition(tp).map_err(|error| (error.code(), None))?;
        if node != partition.leader() {
            return Err((ErrorCode::NOT_LEADER_OR_FOLLOWER, None));
        }
        if !(-1..=1).contains(&acks) {
            return Err((ErrorCode::INVALID_REQUIRED_ACKS, None));
        }
        check_topic(tp)?;
        Ok(partition)
    }

    /// Opens the logs that a request is the first to write to, on all cores: first records to many partitions then wait only for the
    /// file system, which creates the files of different directories at the same time. A log that cannot be opened is tried again by
    /// the append, which reports the reason.
    fn open_logs(&self, node: NodeId, acks: i16, request: &ProduceRequest) {
        let partitions: usize = request.topic_data.iter().map(|topic| topic.partition_data.len()).sum();
        if partitions < 2 * LOGS_A_THREAD {
            return;
        }
        let to_write = |(topic, partition): (&Arc<str>, &PartitionProduceData)| {
            let tp = TopicPartition::new(Arc::clone(topic), partition.index);
            self.partition_to_write(node, acks, &tp).ok()
        };
        let unopened = |partition: &Arc<Partition>| partition.opened_log().is_none();
        let new: Vec<_> = request.partitions().filter_map(to_write).filter(unopened).collect();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = cores.min(new.len() / LOGS_A_THREAD);
        if threads < 2 {
            return;
        }
        let next = AtomicUsize::new(0);
        let open = || {
            while let Some(partition) = new.get(next.fetch_add(1, Ordering::Relaxed)) {
                let _ = self.log_of(partition);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // If no other thread can be started, this one opens them all.
                let _ = Builder::new()
                    .name("fletchlog-open".to_owned())
                    .spawn_scoped(scope, open);
            }
            open();
        });
    }

    /// The response to an append of `size` bytes. Waiting fetches see what was appended.
    fn answer(
        &self,
        partition: &Partition,
        size: usize,
        appended: Result<AppendInfo, AppendError>,
    ) -> PartitionProduceResponse {
        let (messages, bytes) = match &appended {
            Ok(info) if !info.duplicate => (info.last_offset - info.first_offset + 1, size),
            _ => (0, 0),
        };
        let answer = self.answer_of(partition, appended);
        self.metrics.produced(answer.error_code, messages, bytes);
        answer
    }

    fn answer_of(&self, partition: &Partition, appended: Result<AppendInfo, AppendError>) -> PartitionProduceResponse {
        let tp = partition.tp();
        let what = || format!("append to {tp}");
        match appended {
            Ok(info) => {
                self.failures.succeeded(what);
                if !info.duplicate {
                    self.partition_changed(partition);
                }
                PartitionProduceResponse {
                    base_offset: info.first_offset,
                    log_append_time_ms: info.log_append_time_ms,
                    log_start_offset: info.log_start_offset,
                    ..refused(tp.partition, (ErrorCode::NONE, None))
                }
            }
            Err(AppendError::Refused {
                code,
                message,
                record_errors,
                log_start_offset,
            }) => PartitionProduceResponse {
                log_start_offset,
                record_errors: record_errors.into_iter().map(record_error).collect(),
                ..refused(tp.partition, (code, Some(message)))
            },
            Err(AppendError::Log(error)) => {
                let error = BrokerError::Log(error);
                self.failures.failed(what(), &error);
                refused(tp.partition, (error.code(), Some(error.to_string())))
            }
        }
    }

    fn append_to(
        &self,
        partition: &Partition,
        log: &PartitionLog,
        records: Bytes,
        origin: AppendOrigin,
    ) -> Result<AppendInfo, AppendError> {
        partition.append(self.logs.directory(), log, records, origin, self.clock().now_ms())
    }

    /// A batch that continues the transaction its partition knows of is appended at once; for a batch that opens a transaction, the
    /// coordinator is asked first.
    fn append_transactional(
        &self,
        (transactional_id, to_add): (
            &str,
            &LazyCell<Vec<TopicPartition>, impl FnOnce() -> Vec<TopicPartition>>,
        ),
        operation: TransactionSupportedOperation,
        transactions: &impl AddPartitionsToTxnManager,
        partition: &Partition,
        log: &PartitionLog,
        records: Bytes,
    ) -> Result<Result<AppendInfo, AppendError>, Refusal> {
        let unverified = self.append_to(partition, log, records.clone(), AppendOrigin::UnverifiedClient);
        let (Err(AppendError::Refused { code, .. }), Ok(header)) = (&unverified, BatchHeader::parse(&records)) else {
            return Ok(unverified);
        };
        match *code {
            ErrorCode::INVALID_TXN_STATE => {}
            // Kafka checks the epoch before it asks the coordinator, so the response has no log start.
            ErrorCode::INVALID_PRODUCER_EPOCH if header.is_transactional() => {
                return Err((ErrorCode::INVALID_PRODUCER_EPOCH, None));
            }
            _ => return Ok(unverified),
        }
        let producer = (header.producer_id, header.producer_epoch);
        let origin = match operation.adds() {
            true => AppendOrigin::AddedClient,
            false => AppendOrigin::Client,
        };
        let appended =
            transactions.in_transaction(transactional_id, producer, partition.tp(), to_add, operation, || {
                self.append_to(partition, log, records, origin)
            });
        // An older client does not retry CONCURRENT_TRANSACTIONS of a produce request. Kafka: ReplicaManager.
        appended.map_err(|code| match code {
            ErrorCode::CONCURRENT_TRANSACTIONS if !operation.adds() => (ErrorCode::NOT_ENOUGH_REPLICAS, None),
            ErrorCode::COORDINATOR_NOT_AVAILABLE => (ErrorCode::NOT_ENOUGH_REPLICAS, None),
            ErrorCode::INVALID_TXN_STATE => (code, Some("Partition was not added to the transaction".to_owned())),
            code => (code, None),
        })
    }
}

/// acks of a request that waits for every replica in sync.
const ALL: i16 = -1;

/// Number of logs for which one more thread pays off.
const LOGS_A_THREAD: usize = 32;

fn with_text(error: BrokerError) -> Refusal {
    (error.code(), Some(error.to_string()))
}

/// Why a batch is refused before it reaches the log.
type Refusal = (ErrorCode, Option<String>);

fn check_topic(tp: &TopicPartition) -> Result<(), Refusal> {
    if crate::topic_names::is_internal(&tp.topic) {
        let text = format!("`{}` is the broker's own topic; clients do not produce to it", tp.topic);
        return Err((ErrorCode::INVALID_TOPIC_EXCEPTION, Some(text)));
    }
    Ok(())
}

/// The response for a partition to which nothing was appended.
fn refused(index: i32, (error_code, error_message): Refusal) -> PartitionProduceResponse {
    PartitionProduceResponse {
        error_message: error_message.map(Into::into),
        ..PartitionProduceResponse::refused(index, error_code)
    }
}

fn record_error((batch_index, reason): (i32, String)) -> BatchIndexAndErrorMessage {
    BatchIndexAndErrorMessage {
        batch_index,
        batch_index_error_message: Some(reason.into()),
    }
}

/// Kafka: `RequestUtils#hasTransactionalRecords`, which checks the first batch of a partition.
fn is_transactional(records: &[u8]) -> bool {
    let attributes = records.get(ATTRIBUTES_POSITION..).and_then(<[u8]>::first_chunk);
    records.get(MAGIC_POSITION) == Some(&2)
        && attributes.is_some_and(|bytes| i16::from_be_bytes(*bytes) & TRANSACTIONAL_MASK != 0)
}
