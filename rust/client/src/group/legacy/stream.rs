//! One stream: a thread's share of a topic. Kafka: `KafkaStream`, 0.8.2.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fletchlog_api::Transport;
use fletchlog_records::TopicPartition;

use super::connector::Connector;
use super::watch;
use crate::ClientError;
use crate::assignor::legacy_range::ConsumerThreadId;
use crate::consumer::{Consumer, Interrupt, PolledRecords};

/// How long a stream locks its engine: a rebalance waits no longer than that. Also how often the interrupt callback is
/// called.
const SLICE_MS: i64 = 50;

/// State shared by the consumer and a stream.
#[derive(Debug)]
pub(super) struct StreamCell {
    pub thread: ConsumerThreadId,
    pub topic: Arc<str>,
    pub engine: Mutex<Consumer>,
}

impl StreamCell {
    pub fn engine(&self) -> MutexGuard<'_, Consumer> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream of one topic, to be polled by one thread; may be moved to another.
pub struct LegacyStream {
    connector: Arc<Connector>,
    cell: Arc<StreamCell>,
    /// The connection that an idle stream waits on.
    idle: Option<Box<dyn Transport>>,
}

impl LegacyStream {
    pub(super) fn new(connector: Arc<Connector>, cell: Arc<StreamCell>) -> Self {
        Self {
            connector,
            cell,
            idle: None,
        }
    }

    /// `<consumerId>-<i>`.
    pub fn thread_id(&self) -> &str {
        &self.cell.thread.id
    }

    /// The topic.
    pub fn topic(&self) -> &str {
        &self.cell.topic
    }

    /// The partitions that this stream reads now; empty while it is idle or the group rebalances.
    pub fn assignment(&self) -> Vec<TopicPartition> {
        let mut assigned = self.cell.engine().assignment();
        assigned.sort();
        assigned
    }

    /// Whether the consumer was shut down.
    pub fn is_closed(&self) -> bool {
        self.connector.is_closed()
    }

    /// Returns records of this stream's partitions, each in offset order; waits at most `timeout_ms` if there are none.
    /// Takes part in the group's rebalances. Returned records count as consumed: the next commit covers them.
    ///
    /// # Errors
    /// `Closed` after shutdown; `Kafka` with REBALANCE_IN_PROGRESS if other consumers did not release their partitions
    /// within rebalance.max.retries attempts (the next polls continue to try); `Interrupted`; errors of a consumer's
    /// poll.
    pub fn poll(&mut self, timeout_ms: i64, interrupt: Interrupt<'_>) -> Result<PolledRecords, ClientError> {
        self.take(timeout_ms, None, interrupt)
    }

    /// The next record; `None` after the consumer's shutdown. Only returned records count as consumed.
    /// Kafka: `ConsumerIterator#next`.
    ///
    /// # Errors
    /// `Timeout` if no record arrived within consumer.timeout.ms: the stream can still be read. Otherwise as
    /// [`Self::poll`].
    pub fn next(&mut self, interrupt: Interrupt<'_>) -> Result<Option<PolledRecords>, ClientError> {
        let timeout_ms = self.connector.consumer_timeout_ms();
        match self.take(timeout_ms, Some(1), interrupt) {
            Ok(records) if records.count() > 0 => Ok(Some(records)),
            Ok(_) => Err(ClientError::Timeout(format!(
                "no record of {} came to {} within {timeout_ms} ms (consumer.timeout.ms)",
                self.cell.topic, self.cell.thread.id
            ))),
            Err(ClientError::Closed(_)) if self.is_closed() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// See [`Self::poll`]; at most `most` records instead of max.poll.records.
    fn take(
        &mut self,
        timeout_ms: i64,
        most: Option<usize>,
        interrupt: Interrupt<'_>,
    ) -> Result<PolledRecords, ClientError> {
        let deadline = self.connector.now_ms().saturating_add(timeout_ms.max(0));
        loop {
            if !self.connector.step()? {
                watch::settle(&self.connector);
            }
            let left = (deadline - self.connector.now_ms()).max(0);
            let slice = left.min(SLICE_MS);
            {
                let mut engine = self.cell.engine();
                if !engine.assignment().is_empty() {
                    // The callback is called below, without the lock: it may call the consumer, whose shutdown needs
                    // the engine.
                    let records = engine.poll_at_most(most, slice, &mut || false)?;
                    if records.count() > 0 {
                        return Ok(records);
                    }
                } else if slice > 0 {
                    drop(engine);
                    self.idle
                        .get_or_insert_with(|| self.connector.transport())
                        .wait(Duration::from_millis(slice.unsigned_abs()));
                }
            }
            if interrupt() {
                return Err(ClientError::Interrupted);
            }
            if self.connector.now_ms() >= deadline {
                return Ok(PolledRecords::default());
            }
        }
    }
}

impl std::fmt::Debug for LegacyStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LegacyStream")
            .field("thread_id", &self.cell.thread.id)
            .field("topic", &self.cell.topic)
            .finish_non_exhaustive()
    }
}
