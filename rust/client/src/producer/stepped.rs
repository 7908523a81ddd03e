//! A producer without a thread: its sender runs only within calls, on the given clock. For deterministic tests and
//! simulations; applications use [`super::Producer`].

use std::sync::Arc;

use fletchlog_api::{Clock, Config, OffsetAndMetadata, Transport};
use fletchlog_records::TopicPartition;

use super::config::ProducerConfig;
use super::core::Core;
use super::future::{OnDecided, RecordFuture};
use super::send;
use super::sender::Sender;
use super::shared::{Pause, Shared};
use super::trace::TraceEvent;
use super::transaction;
use super::{ProducerRecord, RecordColumns};
use crate::ClientError;
use crate::group::ConsumerGroupMetadata;

/// See the module. Time passes only in [`Transport::wait`].
pub struct SteppedProducer {
    shared: Arc<Shared>,
    sender: Sender,
}

/// A call that waits lets the sender take turns.
impl Pause for Sender {
    fn pause(&mut self, _shared: &Shared, _seen: u64, ms: i64) -> Result<(), ClientError> {
        turn(self, ms);
        Ok(())
    }
}

/// One turn, with a wait of at most `limit_ms` in its middle.
fn turn(sender: &mut Sender, limit_ms: i64) {
    let wait = sender.send_half().min(limit_ms);
    if wait > 0 && !sender.has_answer() {
        sender.wait(wait);
    }
    sender.receive_half();
}

impl SteppedProducer {
    /// As [`super::Producer::new`].
    ///
    /// # Errors
    /// As [`super::Producer::new`].
    pub fn new(config: Config, transport: Box<dyn Transport>, clock: Arc<dyn Clock>) -> Result<Self, ClientError> {
        let config = Arc::new(ProducerConfig::new(&config)?);
        let shared = Arc::new(Shared::new(Core::new(config.clone(), clock)));
        let sender = Sender::new(shared.clone(), config, transport);
        Ok(Self { shared, sender })
    }

    /// Queues one record; the sender takes turns only if metadata or memory is missing.
    ///
    /// # Errors
    /// As [`super::Producer::send`].
    pub fn send(&mut self, record: &ProducerRecord<'_>) -> Result<RecordFuture, ClientError> {
        self.send_with(record, None)
    }

    /// As [`super::Producer::send_with`].
    ///
    /// # Errors
    /// As [`super::Producer::send`].
    pub fn send_with(
        &mut self,
        record: &ProducerRecord<'_>,
        on_decided: Option<OnDecided>,
    ) -> Result<RecordFuture, ClientError> {
        send::send(&self.shared, &mut self.sender, record, on_decided)
    }

    /// As [`super::Producer::send_columns`].
    ///
    /// # Errors
    /// As [`super::Producer::send_columns`].
    pub fn send_columns<C: RecordColumns>(&mut self, topic: &str, columns: &C) -> Result<usize, ClientError> {
        send::send_columns(&self.shared, &mut self.sender, topic, columns)
    }

    /// Asks for a topic's metadata without waiting for it.
    #[cfg(test)]
    pub(crate) fn request_topic(&mut self, topic: &str) {
        self.shared.lock().core.metadata.request_topic(topic);
    }

    /// One turn of the sender, with a wait of at most `limit_ms` in its middle.
    pub fn run_once(&mut self, limit_ms: i64) {
        turn(&mut self.sender, limit_ms);
    }

    /// Turns until `ms` of the clock have passed.
    pub fn run_for(&mut self, ms: i64) {
        let end = self.now().saturating_add(ms);
        while self.now() < end {
            let left = end.saturating_sub(self.now());
            self.run_once(left);
        }
    }

    /// Turns until every record queued so far is decided.
    ///
    /// # Errors
    /// The first failure of a `send_columns` row since the last flush.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        send::flush(&self.shared, &mut self.sender)
    }

    /// As [`super::Producer::init_transactions`].
    ///
    /// # Errors
    /// As [`super::Producer::init_transactions`].
    pub fn init_transactions(&mut self) -> Result<(), ClientError> {
        transaction::init_transactions(&self.shared, &mut self.sender)
    }

    /// As [`super::Producer::begin_transaction`].
    ///
    /// # Errors
    /// As [`super::Producer::begin_transaction`].
    pub fn begin_transaction(&mut self) -> Result<(), ClientError> {
        transaction::begin_transaction(&self.shared)
    }

    /// As [`super::Producer::send_offsets_to_transaction`].
    ///
    /// # Errors
    /// As [`super::Producer::send_offsets_to_transaction`].
    pub fn send_offsets_to_transaction(
        &mut self,
        offsets: &[(TopicPartition, OffsetAndMetadata)],
        group: &ConsumerGroupMetadata,
    ) -> Result<(), ClientError> {
        transaction::send_offsets_to_transaction(&self.shared, &mut self.sender, offsets, group)
    }

    /// Commits (`true`) or aborts, as [`super::Producer::commit_transaction`] and
    /// [`super::Producer::abort_transaction`].
    ///
    /// # Errors
    /// As these.
    pub fn end_transaction(&mut self, committed: bool) -> Result<(), ClientError> {
        transaction::end_transaction(&self.shared, &mut self.sender, committed)
    }

    /// Turns until no request is on the wire: after a fatal error or an expiry some still are.
    pub fn run_until_idle(&mut self) {
        while !self.sender.is_idle() {
            self.run_once(i64::MAX);
        }
    }

    /// Records are queued or undecided.
    pub fn has_incomplete(&self) -> bool {
        self.shared.lock().core.accumulator.has_incomplete()
    }

    /// (producer id, epoch), once known.
    pub fn producer_id(&self) -> Option<(i64, i16)> {
        self.shared.lock().core.producer_id()
    }

    /// What the producer did so far, when `fletchlog.trace` is on.
    pub fn trace(&self) -> Vec<TraceEvent> {
        self.shared.lock().core.trace.events()
    }

    fn now(&self) -> i64 {
        self.shared.lock().core.now()
    }
}
