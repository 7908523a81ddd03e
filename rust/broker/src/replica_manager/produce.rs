//! The produce path: what is decided about a request before its batches reach the log (spec 2.1, step 1).
//! Kafka: `KafkaApis#handleProduceRequest`, `ReplicaManager#appendRecords`.

use bytes::Bytes;
use fletchlog_api::{ErrorCode, NodeId, ProducePartitionResponse, ProduceRequest, ProduceResponse};
use fletchlog_log::{AppendError, AppendInfo, AppendOrigin, PartitionLog};
use fletchlog_records::batch_header::{ATTRIBUTES_POSITION, MAGIC_POSITION, TRANSACTIONAL_MASK};
use fletchlog_records::{BatchHeader, TopicPartition};

use super::ReplicaManager;
use crate::BrokerError;
use crate::partition::Partition;

/// Asks the transaction coordinator whether a producer may write to a partition. Kafka: `AddPartitionsToTxnManager`, which
/// answers 47 where the coordinator says PRODUCER_FENCED.
pub(crate) trait AddPartitionsToTxnManager {
    /// Runs `append` if the partition belongs to the producer's open transaction. The transaction cannot end meanwhile, so
    /// what is appended is below its marker (KIP-890).
    ///
    /// # Errors
    /// INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
    fn in_transaction<T>(
        &self,
        transactional_id: &str,
        producer: (i64, i16),
        partition: &TopicPartition,
        append: impl FnOnce() -> T,
    ) -> Result<T, ErrorCode>;
}

/// What is done with the connection after a produce request.
pub(crate) enum Produced {
    /// The answer goes out (without partitions for acks=0).
    Answered(ProduceResponse),
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
        let acks = request.acks;
        self.logs
            .maybe_cleanup_logs(self.clock().now_ms(), &|p| self.partition_changed(p));
        // Kafka refuses the whole request when any batch is transactional and the request names no transactional id.
        let transactional = request.partitions.iter().any(|(_, records)| is_transactional(records));
        let partitions: Vec<ProducePartitionResponse> = request
            .partitions
            .into_iter()
            .map(|(tp, records)| {
                let id = request.transactional_id.as_deref();
                let outcome = if transactional && id.is_none() {
                    Err(refused(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
                } else {
                    self.append(Some(node), acks, &tp, records, |partition, log, records| match id {
                        Some(id) if is_transactional(&records) => {
                            self.append_transactional(id, transactions, partition, log, records)
                        }
                        _ => Ok(self.append_to(partition, log, records, AppendOrigin::Client)),
                    })
                };
                outcome.unwrap_or_else(|response| *response).of(tp)
            })
            .collect();
        if acks == 0 {
            if partitions.iter().any(|p| p.error != ErrorCode::NONE) {
                return Produced::CloseConnection;
            }
            return Produced::Answered(ProduceResponse { partitions: Vec::new() });
        }
        Produced::Answered(ProduceResponse { partitions })
    }

    /// `append_batches`.
    pub(crate) fn append_one(&self, tp: &TopicPartition, records: Bytes) -> Result<(i64, i64, i64), BrokerError> {
        self.for_writing("produce")?;
        let partition = self.partition(tp)?;
        if !crate::topics::is_internal(&tp.topic) {
            // A log that cannot be opened is an error of its own, with the file, not a refusal of the batch.
            self.log_of(&partition)?;
        }
        let outcome = if is_transactional(&records) {
            Err(refused(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        } else {
            self.append(None, -1, tp, records, |partition, log, records| {
                Ok(self.append_to(partition, log, records, AppendOrigin::Client))
            })
        };
        match outcome {
            Ok(done) => Ok((done.base_offset, done.log_append_time_ms, done.log_start_offset)),
            Err(failed) => {
                let text = failed
                    .error_message
                    .clone()
                    .unwrap_or_else(|| failed.error.message().to_owned());
                let records: String = failed
                    .record_errors
                    .iter()
                    .map(|(index, reason)| format!("; record {index}: {reason}"))
                    .collect();
                Err(BrokerError::kafka(
                    failed.error,
                    format!("{tp} refused the batch: {text}{records}"),
                ))
            }
        }
    }

    fn append(
        &self,
        node: Option<NodeId>,
        acks: i16,
        tp: &TopicPartition,
        records: Bytes,
        write: impl FnOnce(&Partition, &PartitionLog, Bytes) -> Written,
    ) -> Result<Outcome, Box<Outcome>> {
        if let Err(error) = self.for_writing("produce") {
            return Err(refused_with(error.code(), error.to_string()));
        }
        let partition = self.partition(tp).map_err(|e| refused(e.code()))?;
        if node.is_some_and(|node| node != partition.leader()) {
            return Err(refused(ErrorCode::NOT_LEADER_OR_FOLLOWER));
        }
        if !(-1..=1).contains(&acks) {
            return Err(refused(ErrorCode::INVALID_REQUIRED_ACKS));
        }
        if crate::topics::is_internal(&tp.topic) {
            return Err(refused_with(
                ErrorCode::INVALID_TOPIC_EXCEPTION,
                format!("`{}` is the broker's own topic; clients do not produce to it", tp.topic),
            ));
        }
        let log = self
            .log_of(&partition)
            .map_err(|e| refused_with(e.code(), e.to_string()))?;
        let appended = write(&partition, log, records)?;
        let what = || format!("append to {tp}");
        match appended {
            Ok(info) => {
                self.failures.succeeded(what);
                if !info.duplicate {
                    self.partition_changed(&partition);
                }
                Ok(Outcome {
                    error: ErrorCode::NONE,
                    base_offset: info.first_offset,
                    log_append_time_ms: info.log_append_time_ms,
                    log_start_offset: info.log_start_offset,
                    record_errors: Vec::new(),
                    error_message: None,
                })
            }
            Err(AppendError::Refused {
                code,
                message,
                record_errors,
                log_start_offset,
            }) => Err(Box::new(Outcome {
                error: code,
                base_offset: -1,
                log_append_time_ms: -1,
                log_start_offset,
                record_errors,
                error_message: Some(message),
            })),
            Err(AppendError::Log(error)) => {
                let error = BrokerError::Log(error);
                self.failures.failed(what(), &error);
                Err(refused_with(error.code(), error.to_string()))
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

    /// A batch that continues the transaction its partition knows of is appended at once; for one that opens it the
    /// coordinator is asked.
    fn append_transactional(
        &self,
        transactional_id: &str,
        transactions: &impl AddPartitionsToTxnManager,
        partition: &Partition,
        log: &PartitionLog,
        records: Bytes,
    ) -> Written {
        let unverified = self.append_to(partition, log, records.clone(), AppendOrigin::UnverifiedClient);
        let (Err(AppendError::Refused { code, .. }), Ok(header)) = (&unverified, BatchHeader::parse(&records)) else {
            return Ok(unverified);
        };
        if *code != ErrorCode::INVALID_TXN_STATE {
            return Ok(unverified);
        }
        let producer = (header.producer_id, header.producer_epoch);
        let appended = transactions.in_transaction(transactional_id, producer, partition.tp(), || {
            self.append_to(partition, log, records, AppendOrigin::Client)
        });
        // An older client does not retry CONCURRENT_TRANSACTIONS of a produce request. Kafka: ReplicaManager.
        appended.map_err(|code| match code {
            ErrorCode::CONCURRENT_TRANSACTIONS => refused(ErrorCode::NOT_ENOUGH_REPLICAS),
            ErrorCode::INVALID_TXN_STATE => {
                refused_with(code, "the partition was not added to the transaction".to_owned())
            }
            code => refused(code),
        })
    }
}

/// What came of writing a batch, or an answer without writing it.
type Written = Result<Result<AppendInfo, AppendError>, Box<Outcome>>;

/// One partition's answer without its name.
#[derive(Debug)]
struct Outcome {
    error: ErrorCode,
    base_offset: i64,
    log_append_time_ms: i64,
    log_start_offset: i64,
    record_errors: Vec<(i32, String)>,
    error_message: Option<String>,
}

impl Outcome {
    fn of(self, tp: TopicPartition) -> ProducePartitionResponse {
        ProducePartitionResponse {
            tp,
            error: self.error,
            base_offset: self.base_offset,
            log_append_time_ms: self.log_append_time_ms,
            log_start_offset: self.log_start_offset,
            record_errors: self.record_errors,
            error_message: self.error_message,
        }
    }
}

fn refused(error: ErrorCode) -> Box<Outcome> {
    Box::new(Outcome {
        error,
        base_offset: -1,
        log_append_time_ms: -1,
        log_start_offset: -1,
        record_errors: Vec::new(),
        error_message: None,
    })
}

fn refused_with(error: ErrorCode, message: String) -> Box<Outcome> {
    let mut outcome = refused(error);
    outcome.error_message = Some(message);
    outcome
}

/// Kafka: `RequestUtils#hasTransactionalRecords`, which looks at the first batch of a partition.
fn is_transactional(records: &[u8]) -> bool {
    let attributes = records.get(ATTRIBUTES_POSITION..).and_then(<[u8]>::first_chunk);
    records.get(MAGIC_POSITION) == Some(&2)
        && attributes.is_some_and(|bytes| i16::from_be_bytes(*bytes) & TRANSACTIONAL_MASK != 0)
}
