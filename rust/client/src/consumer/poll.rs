//! poll(): when fetches are built, written and read (spec 7.4). Kafka: `KafkaConsumer#poll`, `pollForFetches`,
//! `ConsumerNetworkClient#poll`, `transmitSends`.

use std::sync::Arc;

use super::consumer::Consumer;
use super::consumer_network_client::Wait;
use super::consumer_state::ConsumerState;
use super::decision_table::NetworkRead;
use super::fetch_collector::{Collected, Collector};
use super::settings::FetchOrder;
use super::trace::{TraceEvent, TraceKind};
use super::{Interrupt, PolledRecords};
use crate::ClientError;
use crate::group::{ConsumerCoordinator, GroupTopics};

/// Limit of network turns between two polls (where Kafka has a heartbeat thread). The usual number is far lower: one
/// turn per request and response. The limit ends the loop if a peer never stops responding.
const SETTLE_TURNS: usize = 10_000;

impl Consumer {
    /// Returns buffered records, fetching as Kafka does (spec 7.3-7.5). Waits at most `timeout_ms` if there are none.
    /// From release 3.2 on it may return earlier without records, when a position moved past records that users never
    /// see.
    ///
    /// The next fetch is always sent after the records were taken from the queue and before they are returned.
    ///
    /// # Errors
    /// `IllegalState` without subscription or assignment; `Interrupted`, `Wakeup` (no position has moved); the errors
    /// of the table of spec 7.7, if no record was taken before; errors of the group; `Kafka` with KAFKA_STORAGE_ERROR
    /// if a log could not be read twice and no other partition has records: no position has moved, and the next poll
    /// tries again.
    pub fn poll(&mut self, timeout_ms: i64, interrupt: Interrupt<'_>) -> Result<PolledRecords, ClientError> {
        self.poll_at_most(None, timeout_ms, interrupt)
    }

    /// As [`Self::poll`], with the limit `most` instead of max.poll.records, if given.
    ///
    /// # Errors
    /// As [`Self::poll`].
    pub fn poll_at_most(
        &mut self,
        most: Option<usize>,
        timeout_ms: i64,
        interrupt: Interrupt<'_>,
    ) -> Result<PolledRecords, ClientError> {
        self.ensure_open()?;
        if timeout_ms < 0 {
            return Err(ClientError::IllegalArgument(format!(
                "a poll cannot wait {timeout_ms} ms; 0 or more"
            )));
        }
        if self.state.subs.has_no_subscription_or_assignment() {
            return Err(ClientError::IllegalState(
                "the consumer has neither a subscription nor an assignment; call subscribe() or assign() first"
                    .to_owned(),
            ));
        }
        if let Some(deferred) = self.deferred.take() {
            return Err(deferred);
        }
        self.state.trace.start_poll();
        self.net.keep_alive();
        self.fetches.metrics.poll_begins(self.net.now_ms());
        self.net.begin_poll();
        self.state.subs.forget_log_failures();
        let records = self.poll_as_member(
            most.unwrap_or(self.state.settings.max_poll_records),
            timeout_ms,
            interrupt,
        );
        self.net.end_poll();
        self.state.metadata.let_backoff_pass();
        self.missing
            .report(&self.state.metadata, &self.state.subs, &mut self.state.trace);
        let records = records?;
        if !records.runs.is_empty() {
            self.fetches.metrics.returned(records.count(), records.bytes());
        }
        self.state
            .trace
            .push(|| TraceEvent::new(TraceKind::Return).records(records.count()));
        Ok(records)
    }

    /// Sends the heartbeats itself during the poll; between two polls the transport sends them.
    fn poll_as_member(
        &mut self,
        max_records: usize,
        timeout_ms: i64,
        interrupt: Interrupt<'_>,
    ) -> Result<PolledRecords, ClientError> {
        if let Some(coordinator) = &mut self.coordinator {
            let now_ms = self.net.now_ms();
            coordinator.take_heartbeats_over(&mut self.net, &mut self.state.subs, now_ms)?;
        }
        let records = self.poll_for_records(max_records, timeout_ms, interrupt);
        if let Some(coordinator) = &self.coordinator {
            coordinator.hand_heartbeats_over(&mut self.net);
        }
        records
    }

    fn poll_for_records(
        &mut self,
        max_records: usize,
        timeout_ms: i64,
        interrupt: Interrupt<'_>,
    ) -> Result<PolledRecords, ClientError> {
        let deadline = self.net.now_ms().saturating_add(timeout_ms);
        let read = self.state.settings.read_mode.network_read(
            self.state.settings.row,
            self.state.subs.has_auto_assigned_partitions(),
            self.state.settings.has_group_id,
        );
        match read {
            NetworkRead::Lazy => {}
            NetworkRead::AtPollStart => self.read_net(None)?,
            NetworkRead::Eager => self.settle()?,
        }
        let mut failed = false;
        loop {
            self.take_wakeup()?;
            self.ensure_open()?;
            self.coordinator_turn()?;
            if self
                .coordinator
                .as_ref()
                .is_some_and(ConsumerCoordinator::has_events_for_listener)
            {
                return Ok(PolledRecords::default());
            }
            self.state
                .trace
                .assignment(self.state.subs.assignments(), || self.state.subs.assigned_partitions());
            self.resolve_positions(deadline, &mut *interrupt)?;
            let mut got = self.collect_unless_revoking(max_records)?;
            if !self.ends_poll(&got) {
                self.send_fetches();
                let wait_ms = self.wait_for_records_ms(deadline);
                let wait = Some(Wait {
                    wait_ms,
                    interrupt: &mut *interrupt,
                    wakeup: &self.wakeup.clone(),
                });
                self.read_net_unless_available(wait)?;
                self.missing
                    .report(&self.state.metadata, &self.state.subs, &mut self.state.trace);
                if !self.rejoin_needed() {
                    got = self.collect_unless_revoking(max_records)?;
                }
            }
            if self.ends_poll(&got) {
                // An error from here on must not lose the records: their positions have moved.
                if let Err(error) = self.prefetch(read) {
                    self.deferred = Some(error);
                }
                return Ok(PolledRecords {
                    runs: got.runs,
                    in_order: self.state.settings.fetch_order == FetchOrder::Timestamp,
                });
            }
            // Try once more before the error: another partition may have its position now, or the failure may have
            // passed.
            let failure = self.state.subs.log_failure(None);
            self.state.subs.forget_log_failures();
            let fails_again = failure.is_some() && std::mem::replace(&mut failed, true);
            if let Some(error) = failure.filter(|_| fails_again || self.net.now_ms() >= deadline) {
                self.state
                    .trace
                    .push(|| TraceEvent::new(TraceKind::Error).because(error.to_string()));
                return Err(error);
            }
            if self.net.now_ms() >= deadline {
                return Ok(PolledRecords::default());
            }
        }
    }

    /// Whether the poll ends: there are records, or (from 3.2 on) a position moved without any.
    fn ends_poll(&self, got: &Collected) -> bool {
        !got.runs.is_empty() || (self.state.settings.row.early_return && got.position_moved)
    }

    /// Takes no records between the commit before a rebalance and the revocation of the committed partitions.
    /// Kafka: `SubscriptionState#markPendingRevocation`; before 3.2 the commit blocks.
    fn collect_unless_revoking(&mut self, max_records: usize) -> Result<Collected, ClientError> {
        match self.is_revoking() {
            true => Ok(Collected::default()),
            false => self.collect(max_records),
        }
    }

    fn is_revoking(&self) -> bool {
        self.coordinator.as_ref().is_some_and(ConsumerCoordinator::is_revoking)
    }

    fn collect(&mut self, max_records: usize) -> Result<Collected, ClientError> {
        let now_ms = self.net.now_ms();
        let state = &mut self.state;
        Collector { state, now_ms }.collect(max_records)
    }

    fn send_fetches(&mut self) -> usize {
        self.validation.refresh(&mut self.state.subs, &self.state.metadata);
        self.fetches.send_fetches(&mut self.state, &mut self.net)
    }

    /// Sends the fetch that goes out before the records of this poll are returned.
    fn prefetch(&mut self, read: NetworkRead) -> Result<(), ClientError> {
        if self.send_fetches() > 0 || self.net.has_pending() {
            match self.state.settings.fetch_order {
                FetchOrder::Partition | FetchOrder::Timestamp => self.transmit()?,
                FetchOrder::Kip387 => self.read_net(None)?,
            }
        }
        if read == NetworkRead::Eager {
            self.settle()?;
        }
        Ok(())
    }

    /// One turn of the group: join, sync, heartbeat, auto commit, rebalance. It commits what earlier polls returned.
    fn coordinator_turn(&mut self) -> Result<(), ClientError> {
        self.want_metadata();
        if self.coordinator.is_none() {
            return Ok(());
        }
        if self.coordinator.as_ref().is_some_and(|c| !c.resolves_patterns()) {
            self.match_pattern()?;
        }
        // The topics that match a pattern must be known before the member joins with them.
        // Kafka: `ConsumerCoordinator#poll`.
        if self.state.subs.pattern().is_some() && self.state.metadata.awaits_new_topics() {
            return Ok(());
        }
        let Self {
            coordinator: Some(coordinator),
            net,
            state: ConsumerState { subs, metadata, .. },
            ..
        } = self
        else {
            return Ok(());
        };
        let now = net.now_ms();
        let topics = GroupTopics {
            partitions: &|topic| metadata.partition_count(topic),
            racks: &|topic| metadata.racks(topic),
            are_fresh: !metadata.awaits_new_topics(),
            name: &|id| metadata.topic_name(id),
            version: metadata.version(),
        };
        coordinator.poll(net, subs, topics, now)?;
        if coordinator.wants_names_of(metadata.version()) {
            metadata.request_update();
        }
        self.want_metadata();
        Ok(())
    }

    /// Updates the topics that match the pattern. Kafka: `updatePatternSubscription`.
    fn match_pattern(&mut self) -> Result<(), ClientError> {
        let version = self.state.metadata.version();
        let Some(pattern) = self.state.subs.pattern().filter(|_| self.matched_metadata != version) else {
            return Ok(());
        };
        let metadata = &self.state.metadata;
        let hidden = |topic: &str| self.state.settings.exclude_internal_topics && metadata.is_internal(topic);
        let mut matched: Vec<Arc<str>> = Vec::new();
        for topic in metadata.topic_names().iter().filter(|topic| !hidden(topic)) {
            if pattern.is_match(topic)? {
                matched.push(Arc::clone(topic));
            }
        }
        self.matched_metadata = version;
        self.state.subs.subscribe_from_pattern(matched);
        Ok(())
    }

    fn rejoin_needed(&self) -> bool {
        self.state.subs.has_auto_assigned_partitions()
            && self
                .coordinator
                .as_ref()
                .is_some_and(ConsumerCoordinator::rejoin_needed_or_pending)
    }

    /// How long this turn may wait: until the poll ends, or the group or a missing position needs attention.
    pub(super) fn wait_ms(&mut self, deadline: i64) -> i64 {
        let now = self.net.now_ms();
        let mut wait = deadline.saturating_sub(now).min(self.net.poll_delay_ms());
        // A metadata request that is due now is sent anyway, or waits for a node.
        if let due_in @ 1.. = self.state.metadata.time_to_next_update(now) {
            wait = wait.min(due_in);
        }
        if let Some(coordinator) = &self.coordinator {
            wait = wait.min(coordinator.next_deadline_ms(now).saturating_sub(now));
        }
        if !self.state.subs.has_all_fetch_positions() || !self.net.has_pending() {
            wait = wait.min(self.state.settings.retry_backoff_ms);
        }
        wait.max(0)
    }

    /// As [`Self::wait_ms`], for a turn that sends fetches and collects records: only until a partition may be fetched
    /// again, or held records may be returned. Other turns do neither, so once that time has come they would not wait
    /// at all.
    fn wait_for_records_ms(&mut self, deadline: i64) -> i64 {
        let wait = self.wait_ms(deadline);
        let due = [
            self.state.subs.first_back_off_end_ms(),
            self.state.buffer.by_time.held_until(),
        ];
        let now = self.net.now_ms();
        let due_in = due.into_iter().flatten().map(|at_ms| at_ms.saturating_sub(now)).min();
        due_in.map_or(wait, |due_in| wait.min(due_in).max(0))
    }

    /// `readNet` of spec 7.4. Kafka: `ConsumerNetworkClient#poll`.
    pub(super) fn read_net(&mut self, wait: Option<Wait<'_>>) -> Result<(), ClientError> {
        self.run_callbacks()?;
        self.turn_net(wait)
    }

    /// As `read_net`, but does not wait if a queued fetch can be returned. Unlike Java (spec 7.4), it does not wait
    /// either if a fetch was just answered without error and nothing else is pending: the next one can be sent, where
    /// Java waits for retry.backoff.ms.
    fn read_net_unless_available(&mut self, wait: Option<Wait<'_>>) -> Result<(), ClientError> {
        let answered = self.run_callbacks()?;
        let waits = self.is_revoking() || !self.state.buffer.has_available_fetches(&self.state.subs);
        let sends_next = answered && !self.net.has_pending();
        self.turn_net(wait.filter(|_| waits && !sends_next))
    }

    fn turn_net(&mut self, wait: Option<Wait<'_>>) -> Result<(), ClientError> {
        self.net.try_send(&self.state.metadata);
        self.net.net_poll(&mut self.state.metadata, wait)?;
        self.net.try_send(&self.state.metadata);
        self.run_callbacks().map(drop)
    }

    /// `transmit` of spec 7.4: may take a response from the socket, but runs no callback. Kafka: `transmitSends`.
    fn transmit(&mut self) -> Result<(), ClientError> {
        self.net.try_send(&self.state.metadata);
        self.net.net_poll(&mut self.state.metadata, None)
    }

    /// Does what Kafka's heartbeat thread does between two polls: reads everything that has arrived and writes
    /// everything left over. It never builds a fetch.
    pub(super) fn settle(&mut self) -> Result<(), ClientError> {
        for _ in 0..SETTLE_TURNS {
            self.net.let_answers_arrive();
            self.state.metadata.let_backoff_pass();
            if !self.net.can_progress(&self.state.metadata) {
                break;
            }
            self.read_net(None)?;
        }
        Ok(())
    }

    /// Runs the callbacks of all completions. Returns whether a fetch was answered without an error.
    fn run_callbacks(&mut self) -> Result<bool, ClientError> {
        let (mut answered, mut failure) = (false, Ok(()));
        for completion in self.net.take_done() {
            let now = self.net.now_ms();
            if self.fetches.owns(&completion) {
                answered |= self.fetches.on_completion(completion, &mut self.state, now);
            } else if self.resets.owns(&completion) {
                self.resets.on_completion(completion, &mut self.state, now);
            } else if self.validation.owns(&completion) {
                self.validation.on_completion(completion, &mut self.state, now);
            } else if let Some(lookup) = self.lookup.as_mut().filter(|l| l.owns(&completion)) {
                lookup.on_completion(
                    completion,
                    &mut self.state.metadata,
                    now.saturating_add(self.state.settings.retry_backoff_ms),
                );
            } else if let Some(coordinator) = &mut self.coordinator {
                let outcome = coordinator.on_completion(completion, &mut self.state.subs, now);
                if failure.is_ok() {
                    failure = outcome.map(|_| ());
                }
            }
        }
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.leave_out_deleted(&mut self.state.metadata);
        }
        failure.map(|()| answered)
    }
}
