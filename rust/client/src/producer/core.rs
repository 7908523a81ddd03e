//! What the users' threads and the sender share, behind one lock: metadata, accumulator, sequences, partitioner, outcomes.

use std::sync::Arc;

use fletchlog_api::{Clock, ErrorCode};
use fletchlog_records::{Header, TopicPartition};

use super::config::ProducerConfig;
use super::future::{BatchResult, OnDecided, Place, RecordFuture, Signal};
use super::idempotence::Idempotence;
use super::metadata::{PartitionId, ProducerMetadata, TopicId};
use super::partitioner::{TopicPartitioner, partition_for_key};
use super::producer_batch::BatchId;
use super::record_accumulator::RecordAccumulator;
use super::trace::{Trace, TraceEvent, TraceKind};
use super::transaction::{RequestResult, TransactionManager};
use crate::ClientError;
use crate::metrics::ProducerMetrics;
use crate::random::{Random, seed_of};

/// A record on its way into a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'a> {
    pub partition: Option<i32>,
    pub timestamp: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [Header<'a>],
}

/// What became of an append.
pub(crate) enum Append {
    /// The last record of this batch.
    Done(BatchId),
    /// buffer.memory is used up.
    NoMemory,
}

/// What happens to the transaction of a producer that is being closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenTransactionAtClose {
    /// There is none, or it could not be ended.
    Nothing,
    /// It is being ended; the ms left before the producer gives up.
    Ending(i64),
    /// Its abort has just begun.
    Aborted,
}

fn transactions(config: &ProducerConfig) -> Option<TransactionManager> {
    let id = config.transactional_id.clone()?;
    Some(TransactionManager::new(
        id,
        config.transaction_timeout_ms,
        config.retry_backoff_ms,
    ))
}

/// State of one producer, shared by the users' threads and the sender behind one lock.
pub(crate) struct Core {
    pub config: Arc<ProducerConfig>,
    pub clock: Arc<dyn Clock>,
    /// Seed of everything random.
    pub seed: u64,
    pub metadata: ProducerMetadata,
    pub accumulator: RecordAccumulator,
    pub idempotence: Option<Idempotence>,
    pub trace: Trace,
    pub signal: Arc<Signal>,
    pub closing: bool,
    pub closed: bool,
    /// When closing began to wait only for the end of the transaction.
    pub ending_since_ms: Option<i64>,
    /// Why the sender's thread ended without being asked to.
    pub dead: Option<ClientError>,
    /// Number of failures that no retry fixes, and the last of them.
    pub fatal_count_and_last: (u64, Option<ClientError>),
    /// Which node does not respond, and why.
    pub unreachable: Option<String>,
    /// First failure of a `send_columns` row since the last flush.
    pub run_failure: Option<ClientError>,
    pub metrics: ProducerMetrics,
    partitioners: Vec<TopicPartitioner>,
    random: Random,
}

impl Core {
    pub(crate) fn new(config: Arc<ProducerConfig>, clock: Arc<dyn Clock>) -> Self {
        let seed = seed_of(&*clock);
        Self {
            metadata: ProducerMetadata::new(config.retry_backoff_ms, config.metadata_max_age_ms),
            accumulator: RecordAccumulator::new(config.clone(), seed),
            idempotence: config
                .idempotent
                .then(|| Idempotence::new(config.release, transactions(&config))),
            trace: Trace::new(config.trace),
            signal: Signal::new(clock.clone()),
            closing: false,
            closed: false,
            ending_since_ms: None,
            dead: None,
            fatal_count_and_last: (0, None),
            unreachable: None,
            run_failure: None,
            metrics: ProducerMetrics::default(),
            partitioners: Vec::new(),
            random: Random::new(seed),
            seed,
            config,
            clock,
        }
    }

    pub(crate) fn now(&self) -> i64 {
        self.clock.monotonic_ms()
    }

    /// The partition that a batch goes to.
    pub(super) fn tp_of(&self, batch: BatchId) -> &TopicPartition {
        &self.metadata.partition(self.accumulator.batches[batch].partition).tp
    }

    // ------------------------------------------------------------ append

    fn partitioner(&mut self, topic: TopicId) -> &mut TopicPartitioner {
        if topic >= self.partitioners.len() {
            self.partitioners.resize_with(topic + 1, TopicPartitioner::default);
        }
        &mut self.partitioners[topic]
    }

    /// Whether the partitioner, not the record, chooses the partition of such a row.
    #[inline]
    pub(crate) fn is_free(&self, partition: Option<i32>, key: Option<&[u8]>) -> bool {
        partition.is_none() && (key.is_none() || self.config.ignore_keys) && !self.config.round_robin
    }

    /// The partition of a row that names one, has a key that decides, or is placed round-robin.
    fn fixed_partition(&mut self, topic: TopicId, row: &Row<'_>) -> Option<i32> {
        let count = self.metadata.topic(topic).count();
        if row.partition.is_some() {
            return row.partition;
        }
        if self.config.round_robin {
            self.partitioner(topic);
            let available = &self.metadata.topic(topic).available;
            return Some(self.partitioners[topic].round_robin(count, available));
        }
        match row.key {
            Some(key) if !self.config.ignore_keys => Some(partition_for_key(key, count)),
            _ => None,
        }
    }

    /// The partition that currently gets the null keys of a topic.
    pub(crate) fn sticky_partition(&mut self, topic: TopicId) -> i32 {
        self.partitioner(topic);
        let info = self.metadata.topic(topic);
        self.partitioners[topic].sticky(info.count(), &info.available, &mut self.random)
    }

    #[allow(
        clippy::cast_sign_loss,
        clippy::cast_possible_truncation,
        reason = "partitions are checked to be in range"
    )]
    pub(crate) fn partition_id(&self, topic: TopicId, partition: i32) -> PartitionId {
        self.metadata.topic(topic).partitions[partition as usize]
    }

    /// Queues one row whose partition, if explicit, exists. Kafka: `KafkaProducer#doSend`, `RecordAccumulator#append`.
    pub(crate) fn append(&mut self, topic: TopicId, row: &Row<'_>) -> Append {
        if self.config.release.built_in_partitioner {
            self.append_built_in(topic, row)
        } else {
            self.append_sticky(topic, row)
        }
    }

    /// Up to 3.2: any record that needs a new batch on the sticky partition, even one with a key, moves the sticky partition (KIP-480).
    fn append_sticky(&mut self, topic: TopicId, row: &Row<'_>) -> Append {
        let fixed = self.fixed_partition(topic, row);
        let partition = fixed.unwrap_or_else(|| self.sticky_partition(topic));
        let mut id = self.partition_id(topic, partition);
        if let Some((batch, _)) = self.try_append(id, row) {
            return Append::Done(batch);
        }
        self.partitioner(topic);
        let info = self.metadata.topic(topic);
        self.partitioners[topic].on_new_batch(partition, info.count(), &info.available, &mut self.random);
        if fixed.is_none() {
            let moved = self.sticky_partition(topic);
            id = self.partition_id(topic, moved);
            if let Some((batch, _)) = self.try_append(id, row) {
                return Append::Done(batch);
            }
        }
        self.append_to_new_batch(topic, id, row)
            .map_or(Append::NoMemory, |(batch, _)| Append::Done(batch))
    }

    #[inline]
    fn try_append(&mut self, id: PartitionId, row: &Row<'_>) -> Option<(BatchId, usize)> {
        self.accumulator
            .try_append(id, row.timestamp, row.key, row.value, row.headers)
    }

    /// 3.3+: the partition is left after batch.size bytes, when its batches are complete (KIP-794).
    fn append_built_in(&mut self, topic: TopicId, row: &Row<'_>) -> Append {
        let fixed = self.fixed_partition(topic, row);
        loop {
            let partition = fixed.unwrap_or_else(|| self.sticky_partition(topic));
            let id = self.partition_id(topic, partition);
            if fixed.is_none() && self.note_appended(topic, id, 0) {
                continue;
            }
            let (batch, grown) = match self.try_append(id, row) {
                Some(appended) => appended,
                None => {
                    // The batch is complete now, so the partitioner may leave the partition before a new batch is created.
                    if fixed.is_none() && self.note_appended(topic, id, 0) {
                        continue;
                    }
                    match self.append_to_new_batch(topic, id, row) {
                        Some(appended) => appended,
                        None => return Append::NoMemory,
                    }
                }
            };
            if fixed.is_none() {
                self.note_appended(topic, id, grown);
            }
            return Append::Done(batch);
        }
    }

    /// KIP-794: bytes appended to the sticky partition.
    #[inline]
    pub(crate) fn produced(&self, topic: TopicId) -> usize {
        self.partitioners.get(topic).map_or(0, TopicPartitioner::produced)
    }

    /// KIP-794: gives the partitioner the queue lengths, without those of slow nodes.
    pub(crate) fn update_partitioner_load(&mut self) {
        if !self.config.release.built_in_partitioner || !self.config.adaptive {
            return;
        }
        for (topic, info) in self.metadata.topics() {
            if let Some(partitioner) = self.partitioners.get_mut(topic) {
                let (queues, complete) = self.accumulator.load(&self.metadata, &info.partitions);
                partitioner.update_load(&queues, complete);
            }
        }
    }

    /// KIP-794 accounting; true if the partitioner leaves the partition.
    #[inline]
    pub(crate) fn note_appended(&mut self, topic: TopicId, partition: PartitionId, bytes: usize) -> bool {
        let all_full = self.accumulator.all_full(partition);
        self.partitioners[topic].appended(bytes, self.config.batch_size.max(1), all_full)
    }

    fn append_to_new_batch(&mut self, topic: TopicId, id: PartitionId, row: &Row<'_>) -> Option<(BatchId, usize)> {
        let size = self.accumulator.buffer_size(row.key, row.value, row.headers);
        if !self.accumulator.has_memory(size) {
            return None;
        }
        let now = self.now();
        let name = self.metadata.topic(topic).name.clone();
        let added = self.accumulator.add_batch(id, &name, size, now);
        // A partition's first record in a transaction always opens a batch, so it always reaches this line.
        if let Some(transactions) = self.transactions() {
            transactions.maybe_add_partition(id);
        }
        let batch = &mut self.accumulator.batches[added];
        batch.try_append(row.timestamp, row.key, row.value, row.headers);
        Some((added, batch.estimated_size()))
    }

    // ------------------------------------------------------------ transactions

    /// (producer id, epoch), once known.
    pub fn producer_id(&self) -> Option<(i64, i16)> {
        self.idempotence.as_ref().and_then(Idempotence::id)
    }

    /// `None` for a producer without transactional.id.
    pub(crate) fn transactions(&mut self) -> Option<&mut TransactionManager> {
        self.idempotence.as_mut()?.transactions.as_mut()
    }

    /// A transactional producer sends inside a transaction only. Kafka: `TransactionManager#failIfNotReadyForSend`.
    pub(crate) fn check_ready_for_send(&self) -> Result<(), ClientError> {
        let transactions = self.idempotence.as_ref().and_then(|i| i.transactions.as_ref());
        transactions.map_or(Ok(()), TransactionManager::check_ready_for_send)
    }

    /// A record could not be queued: its transaction must not be committed without it.
    pub(crate) fn send_failed(&mut self, error: &ClientError) {
        let counts = matches!(
            error,
            ClientError::RecordTooLarge(_) | ClientError::BufferExhausted(_) | ClientError::Timeout(_)
        );
        if counts
            && self.config.release.failed_send_aborts
            && let Some(transactions) = self.transactions()
        {
            transactions.batch_failed(error.clone());
        }
    }

    /// A record of `send_later` failed, so only its future has the error: its transaction must not be committed without it, whatever the
    /// failure.
    pub(crate) fn waiting_failed(&mut self, error: &ClientError) {
        self.send_failed(error);
        let is_on_the_future = matches!(
            error,
            ClientError::RecordTooLarge(_) | ClientError::BufferExhausted(_) | ClientError::Timeout(_)
        );
        if !is_on_the_future && let Some(transactions) = self.transactions() {
            transactions.batch_failed(error.clone());
        }
    }

    /// Begins to abort the open transaction.
    pub(crate) fn begin_abort(&mut self) -> Result<Arc<RequestResult>, ClientError> {
        let producer = self.idempotence.as_ref().and_then(Idempotence::id).unwrap_or((-1, -1));
        match self.transactions() {
            Some(transactions) => transactions.begin_abort(producer),
            None => Ok(Arc::default()),
        }
    }

    /// Closing: ends an open transaction. Kafka: `Sender#run`, which waits for ever; here the wait for a coordinator that keeps refusing
    /// ends after max.block.ms.
    pub(crate) fn end_open_transaction(&mut self) -> OpenTransactionAtClose {
        let (now, max_ms) = (self.now(), self.config.max_block_ms);
        let since = self.ending_since_ms;
        match self.transactions() {
            Some(transactions) if transactions.has_ongoing_transaction() => {
                let left = since.map_or(max_ms, |since| max_ms.saturating_sub(now.saturating_sub(since)));
                if left <= 0 {
                    let refusal = transactions.last_refusal().unwrap_or("no answer");
                    log::warn!(
                        "the producer is closed with its transaction open, which could not be ended within {max_ms} ms (max.block.ms): {refusal}; it is aborted after transaction.timeout.ms"
                    );
                    return OpenTransactionAtClose::Nothing;
                }
                let completing = transactions.is_completing();
                self.ending_since_ms.get_or_insert(now);
                if completing {
                    return OpenTransactionAtClose::Ending(left);
                }
            }
            _ => return OpenTransactionAtClose::Nothing,
        }
        log::info!("the producer is closed with a transaction open, which is aborted");
        match self.begin_abort() {
            Ok(_) => OpenTransactionAtClose::Aborted,
            Err(error) => {
                log::warn!("the open transaction could not be aborted: {error}");
                OpenTransactionAtClose::Nothing
            }
        }
    }

    // ------------------------------------------------------------ outcomes

    /// Acknowledges a batch. False if it was decided already.
    pub(crate) fn complete(&mut self, id: BatchId, base_offset: i64, log_append_time: i64) -> bool {
        if self.accumulator.batches[id].done {
            return false;
        }
        if let Some(result) = self.accumulator.batches[id].result.take() {
            let partition = self.accumulator.batches[id].partition;
            result.written(&self.metadata.partition(partition).tp, base_offset, log_append_time);
        }
        self.accumulator.decided(id);
        true
    }

    /// Fails a batch. False if it was decided already.
    pub(crate) fn fail(&mut self, id: BatchId, error: &ClientError) -> bool {
        if self.accumulator.batches[id].done {
            return false;
        }
        let batch = &mut self.accumulator.batches[id];
        if let Some(result) = batch.result.take() {
            result.failed(error);
        }
        if !batch.runs.is_empty() {
            self.run_failure.get_or_insert_with(|| error.clone());
        }
        self.metrics.failed += i64::from(self.accumulator.batches[id].count());
        self.accumulator.decided(id);
        true
    }

    /// Nothing can be sent any more: everything undecided, and every later send, fails with this.
    pub(crate) fn die(&mut self, error: &ClientError) {
        self.dead.get_or_insert_with(|| error.clone());
        self.abort_all(error);
        self.closed = true;
    }

    /// Nothing can be sent now, and waiting does not help: waiting calls and batches that were never sent fail with this error. A later
    /// send tries again, except with a transactional producer. Kafka: `TransactionManager#authenticationFailed`, `Metadata#fatalError`.
    pub(crate) fn authentication_failed(&mut self, error: &ClientError) {
        self.fatal_count_and_last = (self.fatal_count_and_last.0 + 1, Some(error.clone()));
        self.abort_undrained(error);
        if let Some(transactions) = self.transactions() {
            transactions.transition_to_fatal_error(error.clone());
        }
    }

    /// Fails everything undecided, in the order of creation.
    pub(crate) fn abort_all(&mut self, error: &ClientError) {
        for id in self.accumulator.abort_all() {
            self.fail(id, error);
            self.accumulator.batches.remove_if_unused(id);
        }
        self.signal.notify();
    }

    /// Fails queued batches that were never on the wire.
    /// Kafka: `RecordAccumulator#abortUndrainedBatches`.
    pub(crate) fn abort_undrained(&mut self, error: &ClientError) {
        for id in self.accumulator.abort_undrained() {
            self.fail(id, error);
            self.accumulator.batches.remove_if_unused(id);
        }
        self.signal.notify();
    }

    /// The future of a record that never reached a batch.
    pub(crate) fn failed_record(
        &mut self,
        timestamp: i64,
        on_decided: Option<OnDecided>,
        error: &ClientError,
    ) -> RecordFuture {
        self.send_failed(error);
        let result = BatchResult::new(&self.signal);
        let at = Place { index: 0, timestamp };
        if let Some(call) = on_decided {
            result.call_when_decided(at, call);
        }
        result.failed(error);
        RecordFuture::new(result, at)
    }

    // ------------------------------------------------------------ trace

    /// Records an event about a batch if tracing is on.
    #[inline]
    pub(crate) fn trace(
        &mut self,
        kind: TraceKind,
        id: BatchId,
        node: Option<i32>,
        base_offset: i64,
        error: Option<ErrorCode>,
    ) {
        if !self.trace.is_on() {
            return;
        }
        let batch = &self.accumulator.batches[id];
        let ((producer_id, epoch), sequence) = batch.producer.unwrap_or(((-1, -1), -1));
        let event = TraceEvent {
            time_ms: self.clock.monotonic_ms(),
            kind,
            tp: Some(self.metadata.partition(batch.partition).tp.clone()),
            node,
            batch: i64::try_from(batch.serial).unwrap_or(-1),
            records: batch.count(),
            producer: (producer_id, epoch, sequence),
            attempts: batch.attempts,
            base_offset,
            error: error.map(|e| Arc::from(e.name())),
        };
        self.trace.add(|| event);
    }

    pub(crate) fn trace_bump(&mut self) {
        if let (true, Some((id, epoch))) = (self.trace.is_on(), self.idempotence.as_ref().and_then(Idempotence::id)) {
            let event = TraceEvent {
                time_ms: self.clock.monotonic_ms(),
                kind: TraceKind::EpochBump,
                tp: None,
                node: None,
                batch: -1,
                records: 0,
                producer: (id, epoch, -1),
                attempts: 0,
                base_offset: -1,
                error: None,
            };
            self.trace.add(|| event);
        }
    }
}
