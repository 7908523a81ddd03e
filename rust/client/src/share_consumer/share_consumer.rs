//! The share consumer's calls. Kafka: `ShareConsumerImpl`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fletchlog_api::transport::Waker;
use fletchlog_api::{Clock, Config, Transport};
use fletchlog_records::TopicPartition;

use super::acknowledgements::AcknowledgeType;
use super::settings::{AcknowledgementMode, Settings};
use super::share_consume_request_manager::{CommitId, Completed, ShareConsumeRequestManager};
use super::share_in_flight_batch::{NodeAcknowledgements, ShareFetch};
use super::share_membership_manager::ShareMembershipManager;
use crate::ClientError;
use crate::consumer::consumer_network_client::{ConsumerNetworkClient, Wait};
use crate::consumer::metadata::{ConsumerMetadata, Wanted};
use crate::consumer::missing::MissingTopics;
use crate::consumer::{Interrupt, PolledRecords, WakeupHandle};
use crate::error::broker_closed;
use crate::metrics::Metric;

/// What became of acknowledgements of one partition. Kafka: the arguments of `AcknowledgementCommitCallback#onComplete`.
#[derive(Debug, Clone)]
pub struct AcknowledgementCommit {
    /// The partition.
    pub tp: TopicPartition,
    /// First and last offset of each run of records.
    pub offsets: Vec<(i64, i64)>,
    /// Whether the leader took them.
    pub result: Result<(), ClientError>,
}

/// The result of a commit for one partition.
pub type CommitResult = (TopicPartition, Result<(), ClientError>);

/// One share consumer. Not thread-safe; only its [`WakeupHandle`] may be used from other threads.
pub struct ShareConsumer {
    settings: Arc<Settings>,
    metadata: ConsumerMetadata,
    net: ConsumerNetworkClient,
    member: ShareMembershipManager,
    requests: ShareConsumeRequestManager,
    topics: Vec<Arc<str>>,
    missing: MissingTopics,
    /// The records that the application has.
    current: ShareFetch,
    /// There is a callback for acknowledgements.
    listens: bool,
    /// What the callback has not received yet.
    commits: Vec<AcknowledgementCommit>,
    /// Results of commits that a call waits for.
    results: Vec<(CommitId, CommitResult)>,
    next_commit: CommitId,
    /// An error that occurred after records were taken; the next poll returns it.
    deferred: Option<ClientError>,
    wakeup: Arc<AtomicBool>,
    closed: bool,
}

impl ShareConsumer {
    /// A share consumer with properties of a consumer.
    ///
    /// # Errors
    /// `InvalidGroupId` without group.id; `Config` for a property that a share consumer does not have.
    pub fn new(config: &Config, transport: Box<dyn Transport>, clock: Arc<dyn Clock>) -> Result<Self, ClientError> {
        let settings = Arc::new(Settings::of(config)?);
        let mut metadata = ConsumerMetadata::new(
            settings.retry_backoff_ms,
            settings.metadata_max_age_ms,
            settings.allow_auto_create_topics,
        );
        metadata.double_backoff_up_to(settings.retry_backoff_max_ms);
        let net = ConsumerNetworkClient::new(transport, clock, settings.request_timeout_ms, settings.reconnect);
        Ok(Self {
            metadata,
            net,
            member: ShareMembershipManager::new(Arc::clone(&settings)),
            settings,
            requests: ShareConsumeRequestManager::default(),
            topics: Vec::new(),
            missing: MissingTopics::default(),
            current: ShareFetch::default(),
            listens: false,
            commits: Vec::new(),
            results: Vec::new(),
            next_commit: 1,
            deferred: None,
            wakeup: Arc::new(AtomicBool::new(false)),
            closed: false,
        })
    }

    /// Joins the group with these topics (replaces the subscription). No topics: `unsubscribe`.
    ///
    /// # Errors
    /// `IllegalArgument` for an empty name; `Closed`.
    pub fn subscribe(&mut self, topics: &[Arc<str>], interrupt: Interrupt<'_>) -> Result<(), ClientError> {
        self.ensure_open()?;
        if topics.is_empty() {
            return self.unsubscribe(interrupt);
        }
        if topics.iter().any(|topic| topic.trim().is_empty()) {
            return Err(ClientError::IllegalArgument(
                "a topic to subscribe to has an empty name".to_owned(),
            ));
        }
        let mut topics = topics.to_vec();
        topics.sort();
        topics.dedup();
        if topics != self.topics {
            self.topics.clone_from(&topics);
            self.metadata.want(Wanted::Topics(topics));
        }
        self.member.subscribe(&mut self.net);
        Ok(())
    }

    /// Subscribed topics.
    pub fn subscription(&self) -> Vec<Arc<str>> {
        self.topics.clone()
    }

    /// Leaves the group. What is acknowledged is sent, everything else is released. Waits for default.api.timeout.ms at most.
    ///
    /// # Errors
    /// `Interrupted` or `Wakeup` while it waited; `Closed`.
    pub fn unsubscribe(&mut self, interrupt: Interrupt<'_>) -> Result<(), ClientError> {
        self.ensure_open()?;
        let deadline = self.net.now_ms().saturating_add(self.settings.default_api_timeout_ms);
        self.topics.clear();
        self.member.leave(&mut self.net);
        self.end_sessions(deadline, interrupt)
    }

    /// Sends what is acknowledged, and closes the sessions, which releases everything else.
    fn end_sessions(&mut self, deadline: i64, interrupt: Interrupt<'_>) -> Result<(), ClientError> {
        self.net.begin_poll(); // A fetch that waits for records is answered.
        let acknowledged = self.current.take_acknowledged();
        self.requests.acknowledge_with_fetch(acknowledged);
        self.current = ShareFetch::default();
        self.requests.close_sessions();
        let mut outcome = Ok(());
        while (!self.requests.is_idle() || self.member.is_leaving()) && self.net.now_ms() < deadline && outcome.is_ok()
        {
            self.send();
            outcome = self.turn(deadline, &mut *interrupt);
        }
        self.net.end_poll();
        self.requests.reset();
        outcome
    }

    /// Returns acquired records. Under the implicit mode it accepts those of the last poll first. Waits at most `timeout_ms` if there are none.
    /// `most` limits the number; acknowledgements then wait until the buffer is empty.
    ///
    /// # Errors
    /// `IllegalState` without a subscription, and under the explicit mode if a record of the last poll is not acknowledged; `Interrupted`,
    /// `Wakeup`; errors of the group; `Kafka` with CORRUPT_MESSAGE for a batch that cannot be read: its records were rejected.
    pub fn poll(
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
        self.acknowledge_if_implicit();
        if self.topics.is_empty() {
            return Err(ClientError::IllegalState(
                "the share consumer has no subscription; call subscribe() first".to_owned(),
            ));
        }
        self.ensure_all_acknowledged()?;
        if let Some(deferred) = self.deferred.take() {
            return Err(deferred);
        }
        let acknowledged = self.current.take_acknowledged();
        self.requests.acknowledge_with_fetch(acknowledged);
        self.requests.metrics.fetches.poll_begins(self.net.now_ms());
        self.net.keep_alive();
        self.net.begin_poll();
        self.member.take_heartbeats_over(&mut self.net, &mut self.metadata);
        let records = self.poll_for_records(most, timeout_ms, interrupt);
        self.member.hand_heartbeats_over(&mut self.net);
        self.net.end_poll();
        self.metadata.let_backoff_pass();
        self.missing.report(&self.metadata);
        if let Ok(records) = &records
            && !records.runs.is_empty()
        {
            self.requests.metrics.fetches.returned(records.count(), records.bytes());
        }
        records
    }

    /// Counts and measurements since the consumer was created, under the names of Kafka's metrics.
    pub fn metrics(&self) -> Vec<Metric> {
        self.requests.metrics.read(&self.net.metrics())
    }

    fn acknowledge_if_implicit(&mut self) {
        if self.settings.acknowledgement_mode == AcknowledgementMode::Implicit {
            self.current.acknowledge_rest(AcknowledgeType::Accept);
        }
    }

    fn ensure_all_acknowledged(&self) -> Result<(), ClientError> {
        match self.current.first_unacknowledged() {
            None => Ok(()),
            Some((tp, offset)) => Err(ClientError::IllegalState(format!(
                "{tp} at offset {offset} is not acknowledged: with share.acknowledgement.mode=explicit every record is acknowledged before the next poll"
            ))),
        }
    }

    fn poll_for_records(
        &mut self,
        most: Option<usize>,
        timeout_ms: i64,
        interrupt: Interrupt<'_>,
    ) -> Result<PolledRecords, ClientError> {
        let deadline = self.net.now_ms().saturating_add(timeout_ms);
        loop {
            self.take_wakeup()?;
            self.ensure_open()?;
            self.member.poll(&mut self.net, &mut self.metadata, &self.topics)?;
            if let Some(records) = self.collect(most)? {
                return Ok(records);
            }
            if let Some(failure) = self.requests.take_failure() {
                return Err(failure);
            }
            self.requests.want_records();
            self.send();
            self.turn_until(deadline, self.member.next_deadline_ms(), &mut *interrupt)?;
            if self.net.now_ms() >= deadline {
                let records = self.collect(most)?;
                self.send();
                self.transmit()?;
                return Ok(records.unwrap_or_default());
            }
        }
    }

    /// What can be returned now: renewed records first, then acquired ones.
    fn collect(&mut self, most: Option<usize>) -> Result<Option<PolledRecords>, ClientError> {
        let mut runs = Vec::new();
        if self.current.has_renewed() {
            self.requests.want_no_records();
            runs = self.current.take_renewed().map_err(|error| ClientError::Kafka {
                code: fletchlog_api::ErrorCode::CORRUPT_MESSAGE,
                message: error.to_string(),
            })?;
        } else if !self.requests.buffer.is_empty() {
            let max = usize::try_from(self.settings.max_poll_records).unwrap_or(1);
            let collected = self.requests.buffer.collect(self.settings.reading, max, most);
            runs = collected.runs;
            for batch in collected.fetch.into_batches() {
                self.current.add(batch);
            }
            if let Some(failure) = collected.failure {
                if runs.is_empty() {
                    return Err(failure);
                }
                self.deferred = Some(failure);
            }
        }
        if runs.is_empty() {
            // Gaps and rejected batches go out with the next fetch.
            let gaps = self.current.take_acknowledged();
            self.requests.acknowledge_with_fetch(gaps);
            return Ok(None);
        }
        // What was acknowledged does not wait for the next fetch, which comes only after these records.
        if most.is_none() {
            let waiting = self.requests.take_with_fetch();
            self.requests.acknowledge_now(waiting, None);
        }
        self.send();
        self.transmit()?;
        Ok(Some(PolledRecords { runs, in_order: true }))
    }

    /// Acknowledges the records of a partition from offset `first` to `last` that the application has; sent with the next poll or commit.
    /// A later call replaces an earlier one.
    ///
    /// # Errors
    /// `IllegalState` under the implicit mode, or if there is no such record: it was not returned by the last poll, or is acknowledged.
    pub fn acknowledge(
        &mut self,
        tp: &TopicPartition,
        first: i64,
        last: i64,
        kind: AcknowledgeType,
    ) -> Result<(), ClientError> {
        self.ensure_open()?;
        if self.settings.acknowledgement_mode == AcknowledgementMode::Implicit {
            return Err(ClientError::IllegalState(
                "acknowledge() needs share.acknowledgement.mode=explicit: under implicit the next poll accepts all records".to_owned(),
            ));
        }
        if self.current.acknowledge(tp, first, last, kind) == 0 {
            return Err(ClientError::IllegalState(format!(
                "{tp} at offset {first} cannot be acknowledged: it is not among the records that polls returned and that are not acknowledged yet"
            )));
        }
        Ok(())
    }

    /// Sends what is acknowledged, and waits for the result of each partition. Under the implicit mode it accepts all records of the last poll.
    /// A partition whose result has not come in time has `Timeout`.
    ///
    /// # Errors
    /// `Interrupted`, `Wakeup`: what was sent may still take effect; `Closed`.
    pub fn commit_sync(&mut self, timeout_ms: i64, interrupt: Interrupt<'_>) -> Result<Vec<CommitResult>, ClientError> {
        let deadline = self.net.now_ms().saturating_add(timeout_ms.max(0));
        let commit = self.next_commit;
        self.next_commit += 1;
        if !self.begin_commit(Some(commit))? {
            return Ok(Vec::new());
        }
        self.net.begin_poll(); // A fetch that waits for records is answered.
        let mut outcome = Ok(());
        while outcome.is_ok() && self.requests.is_committing(commit) && self.net.now_ms() < deadline {
            self.send();
            outcome = self.turn(deadline, &mut *interrupt);
        }
        self.net.end_poll();
        outcome?;
        if self.requests.is_committing(commit) {
            let why = ClientError::Timeout(format!("the acknowledgements had no result within {timeout_ms} ms"));
            self.requests.give_up(commit, &why);
            self.take_completed();
        }
        let (results, others) = std::mem::take(&mut self.results)
            .into_iter()
            .partition(|(of, _)| *of == commit);
        self.results = others;
        let results: Vec<(CommitId, CommitResult)> = results;
        Ok(results.into_iter().map(|(_, result)| result).collect())
    }

    /// Sends what is acknowledged, and does not wait: the callback receives the results.
    ///
    /// # Errors
    /// `Closed`; a fatal error of the connection.
    pub fn commit_async(&mut self) -> Result<(), ClientError> {
        if self.begin_commit(None)? {
            self.send();
            self.transmit()?;
        }
        Ok(())
    }

    /// Whether there is anything to commit.
    fn begin_commit(&mut self, commit: Option<CommitId>) -> Result<bool, ClientError> {
        self.ensure_open()?;
        self.acknowledge_if_implicit();
        let mut all: Vec<NodeAcknowledgements> = self.requests.take_with_fetch();
        all.extend(self.current.take_acknowledged());
        let is_any = !all.is_empty();
        self.requests.acknowledge_now(all, commit);
        Ok(is_any)
    }

    /// Sets whether there is a callback for [`Self::take_acknowledgement_commits`].
    pub fn listen(&mut self, on: bool) {
        self.listens = on;
        if !on {
            self.commits.clear();
        }
    }

    /// Results of acknowledgements since the last call, in the order of the responses.
    pub fn take_acknowledgement_commits(&mut self) -> Vec<AcknowledgementCommit> {
        std::mem::take(&mut self.commits)
    }

    /// How long records are locked, ms, as of the last response. Kafka: `acquisitionLockTimeoutMs`.
    pub fn acquisition_lock_timeout_ms(&self) -> Option<i32> {
        self.requests.lock_timeout_ms
    }

    /// Sends what is acknowledged, releases everything else and leaves the group. Under the implicit mode the records of the last poll are not
    /// accepted. Closing twice does nothing.
    ///
    /// # Errors
    /// `Interrupted` while it waited. The consumer is closed all the same.
    pub fn close(&mut self, timeout_ms: i64, interrupt: Interrupt<'_>) -> Result<(), ClientError> {
        if std::mem::replace(&mut self.closed, true) || self.net.is_closed() {
            return Ok(());
        }
        // Nobody wakes it from now on. Kafka: `WakeupTrigger#disableWakeups`.
        self.wakeup = Arc::default();
        let deadline = self.net.now_ms().saturating_add(timeout_ms.max(0));
        let ended = self.end_sessions(deadline, &mut *interrupt);
        self.member.leave(&mut self.net);
        ended?;
        while self.member.is_leaving() && self.net.now_ms() < deadline {
            self.turn(deadline, &mut *interrupt)?;
        }
        Ok(())
    }

    /// Makes a blocking call of another thread return `Wakeup`.
    pub fn wakeup_handle(&self) -> WakeupHandle {
        WakeupHandle::new(Arc::clone(&self.wakeup), self.net.waker())
    }

    /// See [`Transport::watch`].
    pub fn watch(&mut self, notify: Waker) -> Option<i32> {
        self.net.watch(notify)
    }

    fn send(&mut self) {
        let member_id = Arc::clone(self.member.member_id());
        self.requests.send(
            &mut self.net,
            &mut self.metadata,
            &self.settings,
            &member_id,
            self.member.assigned(),
        );
    }

    /// One turn of the network, which waits until `deadline` at most.
    fn turn(&mut self, deadline: i64, interrupt: Interrupt<'_>) -> Result<(), ClientError> {
        self.turn_until(deadline, None, interrupt)
    }

    /// As [`Self::turn`], also until the member has something to do: only a poll does that.
    fn turn_until(
        &mut self,
        deadline: i64,
        member_due_ms: Option<i64>,
        interrupt: Interrupt<'_>,
    ) -> Result<(), ClientError> {
        let wait_ms = self.wait_ms(deadline, member_due_ms);
        let wakeup = Arc::clone(&self.wakeup);
        self.net.try_send(&self.metadata);
        let wait = Wait {
            wait_ms,
            interrupt,
            wakeup: &wakeup,
        };
        self.net.net_poll(&mut self.metadata, Some(wait))?;
        self.run_callbacks();
        self.net.try_send(&self.metadata);
        Ok(())
    }

    /// Writes what was built, and waits for nothing.
    fn transmit(&mut self) -> Result<(), ClientError> {
        self.net.try_send(&self.metadata);
        self.net.net_poll(&mut self.metadata, None)
    }

    fn wait_ms(&mut self, deadline: i64, member_due_ms: Option<i64>) -> i64 {
        let now = self.net.now_ms();
        let mut until = deadline.min(now.saturating_add(self.net.poll_delay_ms()));
        if let due_in @ 1.. = self.metadata.time_to_next_update(now) {
            until = until.min(now.saturating_add(due_in));
        }
        let due = [member_due_ms, self.requests.next_deadline_ms(now)];
        until = due.into_iter().flatten().fold(until, i64::min);
        if !self.net.has_pending() {
            until = until.min(now.saturating_add(self.settings.retry_backoff_ms));
        }
        until.saturating_sub(now).max(0)
    }

    fn run_callbacks(&mut self) {
        for completion in self.net.take_done() {
            if self.requests.owns(&completion) {
                let now_ms = self.net.now_ms();
                self.requests
                    .on_completion(completion, &mut self.metadata, &self.settings, now_ms);
            } else if self.member.owns(&completion) {
                self.member.on_completion(completion, &mut self.net, &mut self.metadata);
            }
        }
        self.take_completed();
    }

    /// Distributes the results of acknowledgements. Kafka: `handleCompletedAcknowledgements`.
    fn take_completed(&mut self) {
        for done in self.requests.take_completed() {
            let Completed {
                tip,
                acknowledgements,
                result,
                commit,
            } = done;
            self.current.on_acknowledged(&tip, &acknowledgements, result.is_ok());
            let of_records = acknowledgements
                .iter()
                .filter(|(.., kind)| *kind != AcknowledgeType::Gap);
            let offsets: Vec<(i64, i64)> = of_records.map(|(first, last, _)| (first, last)).collect();
            if self.listens && !offsets.is_empty() {
                self.commits.push(AcknowledgementCommit {
                    tp: tip.tp.clone(),
                    offsets,
                    result: result.clone(),
                });
            }
            if let Some(commit) = commit {
                self.results.push((commit, (tip.tp, result)));
            }
        }
    }

    fn ensure_open(&mut self) -> Result<(), ClientError> {
        if self.closed {
            return Err(ClientError::Closed(
                "this share consumer is closed; make a new one".to_owned(),
            ));
        }
        if self.net.is_closed() {
            return Err(broker_closed());
        }
        Ok(())
    }

    fn take_wakeup(&self) -> Result<(), ClientError> {
        if self.wakeup.swap(false, Ordering::AcqRel) {
            Err(ClientError::Wakeup)
        } else {
            Ok(())
        }
    }
}

impl std::fmt::Debug for ShareConsumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShareConsumer")
            .field("topics", &self.topics)
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}
