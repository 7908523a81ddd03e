//! The facade: a sender on a thread of its own. Kafka: `KafkaProducer`.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use fletchlog_api::transport::Waker;
use fletchlog_api::{Clock, Config, OffsetAndMetadata, Transport};
use fletchlog_records::TopicPartition;

use super::config::ProducerConfig;
use super::future::{OnDecided, RecordFuture, lock};
use super::send;
use super::sender::Sender;
use super::shared::Shared;
use super::trace::TraceEvent;
use super::transaction;
use super::waiter::Waiter;
use super::{ProducerRecord, RecordColumns};
use crate::ClientError;
use crate::consumer::Interrupt;
use crate::group::ConsumerGroupMetadata;
use crate::metrics::Metric;
use crate::random::seed_of;

/// One producer. Thread-safe. A background thread (started with the first record, never at import) runs the sender; in a producer made by
/// [`Producer::stepped`] the calls run it.
pub struct Producer {
    pub(super) shared: Arc<Shared>,
    /// `None` once the thread owns it.
    pub(super) sender: Mutex<Option<Sender>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The sender runs within calls, never in a thread.
    stepped: bool,
}

impl Producer {
    /// A producer with `Scope::Producer` properties; refuses conflicts as Kafka does (spec 9.1).
    ///
    /// # Errors
    /// `Config` for contradicting properties.
    pub fn new(config: Config, transport: Box<dyn Transport>, clock: Arc<dyn Clock>) -> Result<Self, ClientError> {
        let config = Arc::new(ProducerConfig::new(&config)?);
        let seed = seed_of(&*clock);
        let shared = Arc::new(Shared::new(config, clock, seed));
        let sender = Sender::new(shared.clone(), transport, seed);
        Ok(Self {
            shared,
            sender: Mutex::new(Some(sender)),
            thread: Mutex::new(None),
            stepped: false,
        })
    }

    /// A producer without a thread, for deterministic tests and simulations: its sender runs only within calls, and time
    /// passes only in [`Transport::wait`].
    ///
    /// # Errors
    /// As [`Producer::new`].
    pub fn stepped(config: Config, transport: Box<dyn Transport>, clock: Arc<dyn Clock>) -> Result<Self, ClientError> {
        let mut producer = Self::new(config, transport, clock)?;
        producer.stepped = true;
        Ok(producer)
    }

    pub(super) fn is_stepped(&self) -> bool {
        self.stepped
    }

    /// Starts the sender's thread if it does not run yet.
    pub(super) fn start(&self) -> Result<(), ClientError> {
        if self.stepped {
            return Ok(());
        }
        let Some(sender) = lock(&self.sender).take() else {
            return Ok(());
        };
        let thread = std::thread::Builder::new()
            .name(format!("fletchlog-producer {}", self.shared.config.client_id))
            .spawn(move || sender.run())
            .map_err(|e| ClientError::IllegalState(format!("the producer's thread could not be started: {e}")))?;
        *lock(&self.thread) = Some(thread);
        Ok(())
    }

    /// Queues one record.
    ///
    /// # Errors
    /// Wrong partition or timestamp, unknown topic, closed producer, `Interrupted`. Errors that Java reports on the future are on the
    /// future: too large, no memory or metadata within max.block.ms, the broker's refusal.
    pub fn send(&self, record: &ProducerRecord<'_>, interrupt: Interrupt<'_>) -> Result<RecordFuture, ClientError> {
        self.send_with(record, None, interrupt)
    }

    /// Queues one record; `on_decided` is called with its outcome, unless this call fails.
    ///
    /// # Errors
    /// Those of [`Producer::send`].
    pub fn send_with(
        &self,
        record: &ProducerRecord<'_>,
        on_decided: Option<OnDecided>,
        interrupt: Interrupt<'_>,
    ) -> Result<RecordFuture, ClientError> {
        self.start()?;
        send::send(&mut self.waiter(interrupt), record, on_decided)
    }

    /// Queues one record if that needs no waiting, which is the usual case. Otherwise, or if the record cannot be queued, returns `None`
    /// and leaves `on_decided` as it is: [`Producer::send_with`] then waits or returns the error.
    pub fn try_send_with(
        &self,
        record: &ProducerRecord<'_>,
        on_decided: &mut Option<OnDecided>,
    ) -> Option<RecordFuture> {
        send::try_queue(&self.shared, record, |accumulator, id, timestamp| {
            accumulator.future_of_last(id, timestamp, on_decided.take())
        })
    }

    /// Queues one record without waiting for metadata or memory: for callers that must not wait, such as a coroutine. If it cannot be sent,
    /// the future has an error of [`Producer::send_with`], at the latest after max.block.ms. Later records of the same topic are queued
    /// behind it.
    ///
    /// # Errors
    /// A negative timestamp, a closed producer. Then `on_decided` is not called.
    pub fn send_later(
        &self,
        record: &ProducerRecord<'_>,
        on_decided: Option<OnDecided>,
    ) -> Result<RecordFuture, ClientError> {
        self.start()?;
        send::waiting::send_later(&self.shared, record, on_decided)
    }

    /// Queues one record as a row of [`Producer::send_columns`], if that needs no waiting. Returns false if it was not queued.
    pub fn try_send_row(&self, record: &ProducerRecord<'_>) -> bool {
        let queued = send::try_queue(&self.shared, record, |accumulator, id, _| {
            accumulator.batches[id].add_run(1)
        });
        queued.is_some()
    }

    /// Queues many records of one topic, in row order, with the same rules as `send` for each row.
    /// Errors name the first row that could not be queued, counted from `first`; rows before it are queued. Failures of queued
    /// rows are reported by `flush`. Returns the rows queued.
    ///
    /// # Errors
    /// Those of `send`, and those that `send` puts on the future.
    pub fn send_columns<C: RecordColumns>(
        &self,
        topic: &str,
        columns: &C,
        first: usize,
        interrupt: Interrupt<'_>,
    ) -> Result<usize, ClientError> {
        self.start()?;
        send::send_columns(&mut self.waiter(interrupt), topic, columns, first)
    }

    /// Makes everything queued ready and waits until it is decided. Returns the first failure of a `send_columns` row since the last flush,
    /// if any. It also waits for the pieces of a split batch, in every release. Java does so since 4.2; before, its flush returned at the
    /// split (KAFKA-19479).
    ///
    /// # Errors
    /// That failure; `Interrupted` (nothing is lost, flush again).
    pub fn flush(&self, interrupt: Interrupt<'_>) -> Result<(), ClientError> {
        self.flush_within(None, interrupt)
    }

    /// As [`Producer::flush`], in at most `timeout_ms`.
    ///
    /// # Errors
    /// Those of [`Producer::flush`]; `Timeout` (nothing is lost, the sender goes on).
    pub fn flush_within(&self, timeout_ms: Option<i64>, interrupt: Interrupt<'_>) -> Result<(), ClientError> {
        send::flush(&mut self.waiter(interrupt), timeout_ms)
    }

    /// Flushes, ends an open transaction (at most `timeout_ms` in all) and stops the sender. Idempotent. Records that are undecided then
    /// fail with `Closed`. With `None` it ends, too: records fail after delivery.timeout.ms, and a transaction that cannot be ended within
    /// max.block.ms after that is left to transaction.timeout.ms (Java waits for ever).
    ///
    /// # Errors
    /// The first failure of a `send_columns` row since the last flush; `Interrupted` (the sender continues to close).
    pub fn close(&self, timeout_ms: Option<i64>, interrupt: Interrupt<'_>) -> Result<(), ClientError> {
        let start = self.shared.now();
        let mut waiter = self.waiter(interrupt);
        self.shared.begin_close(&mut *waiter.lock()?);
        if lock(&self.sender).take().is_some() {
            // The thread never ran: there is nothing to wait for.
            self.shared.lock().close(None);
        }
        loop {
            let (seen, left) = {
                let mut guard = waiter.lock()?;
                if guard.is_closed() {
                    break;
                }
                let waited = self.shared.now().saturating_sub(start);
                let left = timeout_ms.map_or(i64::MAX, |t| t.saturating_sub(waited));
                if left <= 0 {
                    self.shared.fail_all(&mut guard, &forced());
                    guard.close(None);
                    self.shared.wake_sender();
                    break;
                }
                (guard.progress(), left)
            };
            waiter.settle(u64::MAX, seen, left)?;
        }
        let mut guard = self.shared.lock();
        self.shared.fail_all(&mut guard, &forced());
        guard.accumulator.unseen.report();
        let failure = guard.accumulator.run_failure.take();
        drop(guard);
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // The thread has seen `closed`, or will see it after the response that it waits for.
            if thread.is_finished() || timeout_ms.is_none() {
                let _ = thread.join();
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Registers the transactional.id: ends a transaction that an earlier producer with this id left open, and fences that producer. Call
    /// it once, before the first transaction.
    ///
    /// # Errors
    /// `IllegalState` without transactional.id or when called twice; `Timeout` after max.block.ms (call it again);
    /// PRODUCER_FENCED, INVALID_TRANSACTION_TIMEOUT and others of the coordinator; `Interrupted`.
    pub fn init_transactions(&self, interrupt: Interrupt<'_>) -> Result<(), ClientError> {
        self.start()?;
        transaction::init_transactions(&mut self.waiter(interrupt))
    }

    /// Opens a transaction; nothing is sent yet.
    ///
    /// # Errors
    /// `IllegalState` before `init_transactions` or inside a transaction; an earlier error of the producer.
    pub fn begin_transaction(&self) -> Result<(), ClientError> {
        transaction::begin_transaction(&self.shared)
    }

    /// Adds the offsets to the transaction: they are committed for the group when, and only if, the transaction commits.
    ///
    /// # Errors
    /// `IllegalState` outside a transaction; `CommitFailed` when the group has moved on (abort); `Timeout`; those of the
    /// coordinators; `Interrupted`.
    pub fn send_offsets_to_transaction(
        &self,
        offsets: &[(TopicPartition, OffsetAndMetadata)],
        group: &ConsumerGroupMetadata,
        interrupt: Interrupt<'_>,
    ) -> Result<(), ClientError> {
        transaction::send_offsets_to_transaction(&mut self.waiter(interrupt), offsets, group)
    }

    /// Sends everything queued, waits until it is acknowledged, and commits.
    ///
    /// # Errors
    /// TRANSACTION_ABORTABLE when a record failed (abort); `Timeout` after max.block.ms (the outcome is open: call it
    /// again); PRODUCER_FENCED; `IllegalState`; `Interrupted` (call it again).
    pub fn commit_transaction(&self, interrupt: Interrupt<'_>) -> Result<(), ClientError> {
        transaction::end_transaction(&mut self.waiter(interrupt), true)
    }

    /// Drops what was not sent yet and aborts.
    ///
    /// # Errors
    /// `Timeout` (call it again); PRODUCER_FENCED; `IllegalState`; `Interrupted`.
    pub fn abort_transaction(&self, interrupt: Interrupt<'_>) -> Result<(), ClientError> {
        transaction::end_transaction(&mut self.waiter(interrupt), false)
    }

    /// Whether a transaction is open, being ended, or failed and not aborted yet.
    pub fn has_ongoing_transaction(&self) -> bool {
        let mut guard = self.shared.lock();
        guard.transactions().is_some_and(|t| t.has_ongoing_transaction())
    }

    /// For calls that are suspended instead of sleeping (`fletchlog_api::waiting`): `notify` wakes them, and must not block.
    pub fn watch(&self, notify: Waker) {
        self.shared.set_watcher(notify);
    }

    fn waiter<'a, 'b>(&'a self, interrupt: Interrupt<'b>) -> Waiter<'a, 'b> {
        Waiter {
            shared: &self.shared,
            producer: self,
            interrupt,
        }
    }

    /// Number of partitions of a topic; requests its metadata if necessary.
    ///
    /// # Errors
    /// Unknown topic; no metadata within max.block.ms.
    pub fn partitions_for(&self, topic: &str, interrupt: Interrupt<'_>) -> Result<i32, ClientError> {
        self.start()?;
        let id = send::topic(&mut self.waiter(interrupt), topic)?;
        Ok(self.shared.lock().metadata.topic(id).count())
    }

    /// (producer id, epoch), once known.
    pub fn producer_id(&self) -> Option<(i64, i16)> {
        self.shared.lock().producer_id()
    }

    /// Counts and measurements since the producer was created, under the names of Kafka's metrics.
    pub fn metrics(&self) -> Vec<Metric> {
        let guard = self.shared.lock();
        guard.metrics.read(guard.accumulator.failed_records)
    }

    /// What the producer did so far, when `fletchlog.trace` is on; empty otherwise.
    pub fn trace(&self) -> Vec<TraceEvent> {
        self.shared.lock().trace.events()
    }
}

fn forced() -> ClientError {
    ClientError::Closed(
        "the producer was closed before the record was acknowledged; close with a longer timeout, or flush first"
            .to_owned(),
    )
}

/// A producer that is dropped without `close` sends what is queued; no call waits for that.
impl Drop for Producer {
    fn drop(&mut self) {
        self.shared.begin_close(&mut self.shared.lock());
    }
}
