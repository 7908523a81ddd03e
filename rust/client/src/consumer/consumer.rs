//! The consumer's calls: subscription, assignment, seeking, pausing, closing. Kafka: `KafkaConsumer` (2.6).
//! Polling is in `poll.rs`, positions and commits in `positions.rs`, lookups by time in `offsets_for_times.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fletchlog_api::transport::Waker;
use fletchlog_api::{Clock, Config, OffsetAndMetadata, Transport};
use fletchlog_records::TopicPartition;

use super::abstract_fetch::AbstractFetch;
use super::consumer_network_client::ConsumerNetworkClient;
use super::consumer_state::ConsumerState;
use super::fetch_buffer::FetchBuffer;
use super::metadata::ConsumerMetadata;
use super::missing::Missing;
use super::offset_lookup::Lookup;
use super::offset_reset::OffsetReset;
use super::offset_validation::OffsetValidation;
use super::settings::Settings;
use super::subscription_state::{ResetStrategy, SubscriptionState, not_assigned};
use super::trace::{Trace, TraceEvent, TraceKind};
use super::wakeup::WakeupHandle;
use super::{Interrupt, RebalanceEvent};
use crate::ClientError;
use crate::error::broker_closed;
use crate::group::{Commit, CommittedLookup, ConsumerCoordinator, ConsumerGroupMetadata};
use crate::metrics::Metric;

/// One consumer. Not thread-safe (the binding guards it); only its [`WakeupHandle`] may be used from other threads.
pub struct Consumer {
    pub(super) state: ConsumerState,
    pub(super) net: ConsumerNetworkClient,
    pub(super) fetches: AbstractFetch,
    pub(super) resets: OffsetReset,
    pub(super) validation: OffsetValidation,
    pub(super) lookup: Option<Lookup>,
    pub(super) committed_lookup: Option<CommittedLookup>,
    /// In a replay: the committed offsets of the recorded run, used instead of those of the group.
    pub(super) committed_before: BTreeMap<TopicPartition, OffsetAndMetadata>,
    pub(super) coordinator: Option<ConsumerCoordinator>,
    /// Version of the metadata that the pattern was last matched against.
    pub(super) matched_metadata: u64,
    pub(super) wakeup: Arc<AtomicBool>,
    pub(super) missing: Missing,
    /// An error that occurred after records were taken; the next poll returns it.
    pub(super) deferred: Option<ClientError>,
    /// When the close is to be over, once everything that must precede the leave is done.
    close_deadline: Option<i64>,
    closed: bool,
}

impl Consumer {
    /// A consumer with `Scope::Consumer` properties.
    ///
    /// # Errors
    /// `Config` if two properties contradict each other.
    pub fn new(config: Config, transport: Box<dyn Transport>, clock: Arc<dyn Clock>) -> Result<Self, ClientError> {
        let settings = Settings::of(&config)?;
        let mut metadata = ConsumerMetadata::new(
            settings.retry_backoff_ms,
            settings.metadata_max_age_ms,
            settings.allow_auto_create_topics,
        );
        metadata.double_backoff_up_to(settings.retry_backoff_max_ms);
        let net = ConsumerNetworkClient::new(transport, clock, settings.request_timeout_ms, settings.reconnect);
        Ok(Self {
            state: ConsumerState {
                metadata,
                subs: SubscriptionState::new(&config, settings.row.subscribe_order),
                buffer: FetchBuffer::default(),
                trace: Trace::new(settings.trace),
                settings,
            },
            net,
            fetches: AbstractFetch::default(),
            resets: OffsetReset::default(),
            validation: OffsetValidation::default(),
            lookup: None,
            committed_lookup: None,
            committed_before: BTreeMap::new(),
            coordinator: ConsumerCoordinator::new(&config),
            matched_metadata: 0,
            wakeup: Arc::new(AtomicBool::new(false)),
            missing: Missing::default(),
            deferred: None,
            close_deadline: None,
            closed: false,
        })
    }

    /// Joins the group with these topics (replaces the subscription). No topics: `unsubscribe`.
    ///
    /// # Errors
    /// `InvalidGroupId` without group.id; `IllegalState` under assign() or a pattern; `IllegalArgument` for an empty name.
    pub fn subscribe(&mut self, topics: &[Arc<str>]) -> Result<(), ClientError> {
        self.ensure_open()?;
        self.ensure_group("subscribe")?;
        if topics.is_empty() {
            return self.unsubscribe();
        }
        if topics.iter().any(|t| t.trim().is_empty()) {
            return Err(ClientError::IllegalArgument(
                "a topic to subscribe to has an empty name".to_owned(),
            ));
        }
        self.state.subs.subscribe(topics)?;
        let given: Vec<_> = topics.iter().map(|t| TopicPartition::new(Arc::clone(t), -1)).collect();
        self.state
            .trace
            .called("subscribe", given.iter().map(|tp| (tp, -1)), -1);
        self.state.buffer.retain(
            |tp| topics.contains(&tp.topic),
            &mut self.state.subs,
            &mut self.state.trace,
        );
        self.want_metadata();
        Ok(())
    }

    /// Joins the group with every topic whose whole name matches the regular expression.
    ///
    /// # Errors
    /// `InvalidGroupId` without group.id; `IllegalState` under assign() or topics; `IllegalArgument` for a bad expression.
    pub fn subscribe_pattern(&mut self, pattern: &str) -> Result<(), ClientError> {
        self.ensure_open()?;
        self.ensure_group("subscribe")?;
        if pattern.is_empty() {
            return Err(ClientError::IllegalArgument(
                "the pattern to subscribe to is empty".to_owned(),
            ));
        }
        self.state.subs.subscribe_pattern(pattern)?;
        let given = TopicPartition::new(pattern, -1);
        self.state.trace.called("subscribe_pattern", [(&given, -1)], -1);
        self.matched_metadata = self.state.metadata.version();
        self.want_metadata();
        Ok(())
    }

    /// Assigns exactly these partitions, without the help of a group. No partitions: `unsubscribe`. The same set again
    /// changes nothing; otherwise the order is computed anew, and partitions that stay keep their positions and pauses
    /// (spec 7.2).
    ///
    /// # Errors
    /// `IllegalState` under subscribe(); `IllegalArgument` for an empty topic or a negative partition.
    pub fn assign(&mut self, partitions: &[TopicPartition]) -> Result<(), ClientError> {
        self.ensure_open()?;
        if partitions.is_empty() {
            return self.unsubscribe();
        }
        if let Some(tp) = partitions
            .iter()
            .find(|tp| tp.topic.trim().is_empty() || tp.partition < 0)
        {
            return Err(ClientError::IllegalArgument(format!(
                "cannot assign topic {:?} partition {}: a name and a partition from 0 are needed",
                tp.topic, tp.partition
            )));
        }
        self.state.subs.ensure_user_assignable()?;
        if let Some(coordinator) = &mut self.coordinator {
            // No rebalance follows that would commit the removed partitions.
            coordinator.maybe_auto_commit(&self.state.subs, self.net.now_ms());
        }
        self.state.subs.assign_from_user(partitions)?;
        self.state
            .trace
            .called("assign", partitions.iter().map(|tp| (tp, -1)), -1);
        let ConsumerState {
            buffer, subs, trace, ..
        } = &mut self.state;
        let assigned: rustc_hash::FxHashSet<&TopicPartition> = partitions.iter().collect();
        buffer.retain(|tp| assigned.contains(tp), subs, trace);
        self.want_metadata();
        Ok(())
    }

    /// Ends the subscription or assignment. Does not commit.
    ///
    /// # Errors
    /// `Closed`.
    pub fn unsubscribe(&mut self) -> Result<(), ClientError> {
        self.ensure_open()?;
        if let Some(coordinator) = &mut self.coordinator {
            let now = self.net.now_ms();
            coordinator.leave(&mut self.net, &mut self.state.subs, now);
        }
        self.state.subs.unsubscribe();
        self.state.trace.called("unsubscribe", [], -1);
        self.state
            .buffer
            .retain(|_| false, &mut self.state.subs, &mut self.state.trace);
        if self
            .coordinator
            .as_ref()
            .is_some_and(ConsumerCoordinator::leave_pending)
        {
            // Sent now, so that the other members do not wait for this member's time-out. Kafka: `maybeLeaveGroup`
            // polls the network.
            self.read_net(None)?;
        }
        Ok(())
    }

    /// Assigned partitions, in assignment order (the order that decides requests).
    pub fn assignment(&self) -> Vec<TopicPartition> {
        self.state.subs.assigned_partitions()
    }

    /// Subscribed topics.
    pub fn subscription(&self) -> Vec<Arc<str>> {
        self.state.subs.subscription().to_vec()
    }

    /// The next poll of this partition starts at `offset`. The offset is not checked against the log: if it is outside,
    /// auto.offset.reset applies with the next fetch.
    ///
    /// # Errors
    /// `IllegalArgument` for a negative offset, `IllegalState` if the partition is not assigned.
    pub fn seek(&mut self, tp: &TopicPartition, offset: i64) -> Result<(), ClientError> {
        self.ensure_seekable(tp, offset)?;
        self.state.subs.seek(tp, offset, self.state.metadata.leader(tp))?;
        self.state.trace.called("seek", [(tp, offset)], -1);
        Ok(())
    }

    /// Seeks to a committed offset. If it has a leader epoch, the log is checked for truncation before it is read from
    /// there. Kafka: `KafkaConsumer#seek(TopicPartition, OffsetAndMetadata)`.
    ///
    /// # Errors
    /// As for `seek`.
    pub fn seek_committed(&mut self, tp: &TopicPartition, committed: &OffsetAndMetadata) -> Result<(), ClientError> {
        self.ensure_seekable(tp, committed.offset)?;
        let (offset, epoch) = (committed.offset, committed.leader_epoch);
        self.state
            .subs
            .seek_unvalidated(tp, offset, epoch, self.state.metadata.leader(tp))?;
        self.state.trace.called("seek", [(tp, offset)], epoch);
        Ok(())
    }

    fn ensure_seekable(&mut self, tp: &TopicPartition, offset: i64) -> Result<(), ClientError> {
        self.ensure_open()?;
        if offset < 0 {
            return Err(ClientError::IllegalArgument(format!(
                "cannot seek {tp} to {offset}: an offset is 0 or more"
            )));
        }
        Ok(())
    }

    /// Sets the result of the first lookup of these partitions' committed offsets. A replay uses it to begin where the
    /// recorded run began; the group may have committed more since.
    pub fn begin_from_committed(&mut self, offsets: impl IntoIterator<Item = (TopicPartition, OffsetAndMetadata)>) {
        self.committed_before.extend(offsets);
    }

    /// Seeks these partitions (all assigned ones if empty) to the log start, lazily.
    ///
    /// # Errors
    /// `IllegalState` if a partition is not assigned; then none has moved.
    pub fn seek_to_beginning(&mut self, partitions: &[TopicPartition]) -> Result<(), ClientError> {
        self.request_reset(partitions, ResetStrategy::Earliest, "seek_to_beginning")
    }

    /// Seeks these partitions (all assigned ones if empty) to the log end (the last stable offset under
    /// read_committed), lazily.
    ///
    /// # Errors
    /// `IllegalState` if a partition is not assigned; then none has moved.
    pub fn seek_to_end(&mut self, partitions: &[TopicPartition]) -> Result<(), ClientError> {
        self.request_reset(partitions, ResetStrategy::Latest, "seek_to_end")
    }

    fn request_reset(
        &mut self,
        partitions: &[TopicPartition],
        strategy: ResetStrategy,
        method: &'static str,
    ) -> Result<(), ClientError> {
        self.ensure_open()?;
        self.ensure_assigned(partitions)?;
        let all = if partitions.is_empty() {
            self.state.subs.assigned_partitions()
        } else {
            partitions.to_vec()
        };
        self.state.trace.called(method, all.iter().map(|tp| (tp, -1)), -1);
        for tp in &all {
            self.state.subs.request_offset_reset(tp, strategy)?;
            self.state
                .trace
                .push(|| TraceEvent::of(TraceKind::Place, tp).because(format!("{strategy:?} offset asked for")));
        }
        Ok(())
    }

    /// Stops fetching these partitions; buffered data is kept.
    ///
    /// # Errors
    /// `IllegalState` if a partition is not assigned; then none is paused.
    pub fn pause(&mut self, partitions: &[TopicPartition]) -> Result<(), ClientError> {
        self.ensure_open()?;
        self.ensure_assigned(partitions)?;
        self.state
            .trace
            .called("pause", partitions.iter().map(|tp| (tp, -1)), -1);
        partitions.iter().try_for_each(|tp| self.state.subs.pause(tp))
    }

    /// Fetches them again.
    ///
    /// # Errors
    /// `IllegalState` if a partition is not assigned; then none is resumed.
    pub fn resume(&mut self, partitions: &[TopicPartition]) -> Result<(), ClientError> {
        self.ensure_open()?;
        self.ensure_assigned(partitions)?;
        self.state
            .trace
            .called("resume", partitions.iter().map(|tp| (tp, -1)), -1);
        partitions.iter().try_for_each(|tp| self.state.subs.resume(tp))
    }

    /// Paused partitions.
    pub fn paused(&self) -> Vec<TopicPartition> {
        self.state.subs.paused_partitions()
    }

    /// What a transactional producer needs to commit this consumer's offsets; `None` without group.id.
    pub fn group_metadata(&self) -> Option<ConsumerGroupMetadata> {
        self.coordinator.as_ref().map(ConsumerCoordinator::group_metadata)
    }

    /// Makes a blocking call of another thread return `Wakeup`.
    pub fn wakeup_handle(&self) -> WakeupHandle {
        WakeupHandle::new(Arc::clone(&self.wakeup), self.net.waker())
    }

    /// See [`Transport::watch`].
    pub fn watch(&mut self, notify: Waker) -> Option<i32> {
        self.net.watch(notify)
    }

    /// Partitions gained and lost since the last call of this method, in order: what rebalance listeners receive.
    pub fn take_rebalance_events(&mut self) -> Vec<RebalanceEvent> {
        self.coordinator
            .as_mut()
            .map(ConsumerCoordinator::take_events)
            .unwrap_or_default()
    }

    /// Makes poll return, without records, as soon as [`Consumer::take_rebalance_events`] has events. The rebalance
    /// continues with the next poll, so a listener can commit the partitions that it loses while they are still
    /// assigned, and seek before anything of its new partitions is read. Kafka runs listeners at the same points,
    /// inside poll.
    pub fn stop_for_rebalance(&mut self, on: bool) {
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.listen(on);
        }
    }

    /// Commits if enable.auto.commit is set, and leaves the group. Closing twice does nothing. The consumer is closed
    /// even if this returns an error. The time of [`Consumer::prepare_close`] counts.
    ///
    /// # Errors
    /// `Interrupted` while it waited. A failed commit is only logged, as in Kafka.
    pub fn close(&mut self, timeout_ms: i64, interrupt: Interrupt<'_>) -> Result<(), ClientError> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        self.ignore_wakeups();
        let deadline = self.net.now_ms().saturating_add(timeout_ms.max(0));
        let deadline = self.close_deadline.map_or(deadline, |prepared| prepared.min(deadline));
        let outcome = if self.net.is_closed() {
            Ok(()) // No caller is left to report to.
        } else {
            self.commit_and_leave(deadline, interrupt)
        };
        self.state.buffer = FetchBuffer::default();
        outcome
    }

    /// The first half of [`Consumer::close`]: commits if enable.auto.commit is set. Returns the events for the
    /// listener. The partitions stay assigned until the member leaves, so the listener can ask for their positions and
    /// commit them. Kafka: `ConsumerCoordinator#close`, `#onLeavePrepare`.
    ///
    /// # Errors
    /// `Interrupted` while it waited; [`Consumer::close`] then waits for nothing.
    pub fn prepare_close(
        &mut self,
        timeout_ms: i64,
        interrupt: Interrupt<'_>,
    ) -> Result<Vec<RebalanceEvent>, ClientError> {
        if self.closed || self.close_deadline.is_some() || self.net.is_closed() {
            return Ok(Vec::new());
        }
        self.ignore_wakeups();
        let now = self.net.now_ms();
        let deadline = now.saturating_add(timeout_ms.max(0));
        let committed = self.commit_before_leave(deadline, interrupt);
        self.close_deadline = Some(if committed.is_ok() { deadline } else { now });
        committed?;
        Ok(self.leaving_events())
    }

    /// The events for the listener before [`Consumer::unsubscribe`]; the partitions stay assigned until then.
    /// Kafka: `ConsumerCoordinator#onLeavePrepare`.
    pub fn leaving_events(&mut self) -> Vec<RebalanceEvent> {
        let mut events = self.take_rebalance_events();
        events.extend(self.coordinator.as_ref().and_then(|c| c.leaving(&self.state.subs)));
        events
    }

    /// Nobody wakes it from now on. Kafka: `ConsumerNetworkClient#disableWakeups`.
    fn ignore_wakeups(&mut self) {
        self.wakeup = Arc::default();
    }

    fn commit_before_leave(&mut self, deadline: i64, interrupt: Interrupt<'_>) -> Result<(), ClientError> {
        let Some(coordinator) = &mut self.coordinator else {
            return Ok(());
        };
        let offsets = self.state.subs.all_consumed();
        if coordinator.auto_commit_enabled() && !offsets.is_empty() {
            match self.commit_until(offsets, Commit::Last, deadline, interrupt) {
                Err(ClientError::Interrupted) => return Err(ClientError::Interrupted),
                Err(error) => log::warn!("the commit on close failed: {error}"),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn commit_and_leave(&mut self, deadline: i64, interrupt: Interrupt<'_>) -> Result<(), ClientError> {
        if self.close_deadline.is_none() {
            self.commit_before_leave(deadline, &mut *interrupt)?;
        }
        if let Some(coordinator) = &mut self.coordinator {
            let now = self.net.now_ms();
            coordinator.leave(&mut self.net, &mut self.state.subs, now);
        }
        while self
            .coordinator
            .as_ref()
            .is_some_and(ConsumerCoordinator::leave_pending)
            && self.net.now_ms() < deadline
        {
            self.wait_for_answers(deadline, &mut *interrupt)?;
        }
        Ok(())
    }

    /// How far the position of each partition is behind the end of its log (for read_committed: the last stable
    /// offset), as of the last fetch.
    pub fn end_offset_lag(&self) -> BTreeMap<TopicPartition, i64> {
        self.state.subs.lags(self.state.settings.isolation_level)
    }

    /// Counts and measurements since the consumer was created, under the names of Kafka's metrics.
    pub fn metrics(&self) -> Vec<Metric> {
        let lag_max = self.end_offset_lag().into_values().max();
        self.fetches.metrics.read(&self.net.metrics(), lag_max)
    }

    /// Number of records returned so far that were older than one returned before them, under
    /// `fletchlog.fetch.order=timestamp`; 0 otherwise.
    pub fn late_records(&self) -> u64 {
        self.state.buffer.by_time.late()
    }

    /// Which node was lost last and why, if it has sent no response since.
    pub fn last_connection_failure(&self) -> Option<String> {
        self.net.last_failure()
    }

    /// Every event so far, if `fletchlog.trace` is on.
    pub fn trace(&self) -> &[TraceEvent] {
        self.state.trace.events()
    }

    /// Whether `close` was called.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn ensure_open(&mut self) -> Result<(), ClientError> {
        if self.closed {
            return Err(ClientError::Closed(
                "this consumer is closed; make a new one".to_owned(),
            ));
        }
        if self.net.is_closed() {
            return Err(broker_closed());
        }
        Ok(())
    }

    pub(super) fn ensure_group(&self, call: &str) -> Result<(), ClientError> {
        if self.coordinator.is_none() {
            return Err(ClientError::InvalidGroupId(format!(
                "{call} needs a group: set group.id, or use assign() and keep offsets yourself"
            )));
        }
        Ok(())
    }

    fn ensure_assigned(&self, partitions: &[TopicPartition]) -> Result<(), ClientError> {
        match partitions.iter().find(|tp| !self.state.subs.is_assigned(tp)) {
            Some(tp) => Err(not_assigned(tp)),
            None => Ok(()),
        }
    }

    /// Requests the metadata that the subscription needs.
    pub(super) fn want_metadata(&mut self) {
        if let Some(wanted) = self.state.subs.take_metadata_request() {
            self.state.metadata.want(wanted);
        }
    }

    pub(super) fn take_wakeup(&self) -> Result<(), ClientError> {
        if self.wakeup.swap(false, Ordering::AcqRel) {
            Err(ClientError::Wakeup)
        } else {
            Ok(())
        }
    }
}

impl std::fmt::Debug for Consumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer")
            .field("assignment", &self.state.subs.assigned_partitions())
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}
