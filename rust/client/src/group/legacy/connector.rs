//! Registration, rebalance and commits of one legacy consumer. Kafka: `ZookeeperConsumerConnector.ZKRebalancerListener`.
//!
//! | at a step, the registry says           | done                                                                    |
//! |----------------------------------------|-------------------------------------------------------------------------|
//! | unknown member (the session expired)   | stop without commit, register again, rebalance                          |
//! | a generation other than the settled one| stop, commit, release; then the rows below                              |
//! | another consumer owns what is wanted   | try again when it is free; an attempt counts every rebalance.backoff.ms |
//! | what is wanted is free                 | claim all of it, warn about own idle threads, start                     |
//! | the settled generation                 | commit if the timer says so                                             |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fletchlog_api::{Clock, Config, ErrorCode, LegacyGroupAction, LegacyGroupResponse, Transport};
use fletchlog_records::TopicPartition;

use super::registry::Registry;
use super::settings::{Settings, engine_config};
use super::stream::StreamCell;
use super::{Owners, TransportFactory};
use crate::ClientError;
use crate::assignor::legacy_range::{ConsumerThreadId, LegacyAssignment, StreamCounts, WarnAbout};
use crate::assignor::{legacy_range, legacy_round_robin};
use crate::consumer::Consumer;

#[derive(Debug)]
struct State {
    registry: Registry,
    cells: Vec<Arc<StreamCell>>,
    registered: bool,
    closed: bool,
    /// Generation in which all claims were made.
    settled: Option<i32>,
    rebalance: Option<Rebalance>,
    next_commit_ms: i64,
    /// Error of a step that another consumer ran for this one.
    failure: Option<ClientError>,
}

/// A rebalance in progress: nothing is read and nothing owned.
#[derive(Debug, Clone, Copy)]
struct Rebalance {
    generation: i32,
    attempts: i32,
    next_attempt_ms: i64,
}

/// State shared by [`super::LegacyConsumer`] and its streams. Lock order: `state`, then one engine at a time.
pub(super) struct Connector {
    settings: Settings,
    engine_config: Config,
    transports: TransportFactory,
    clock: Arc<dyn Clock>,
    cluster_id: Arc<str>,
    state: Mutex<State>,
}

impl Connector {
    pub fn new(config: &Config, transports: TransportFactory, clock: Arc<dyn Clock>) -> Result<Self, ClientError> {
        let settings = Settings::of(config, clock.now_ms())?;
        let (group, consumer) = (Arc::clone(&settings.group_id), Arc::clone(&settings.consumer_id));
        let mut registry = Registry::new(transports(), Arc::clone(&clock), group, consumer, settings.timeout_ms);
        let cluster_id = registry.cluster_id()?;
        let state = State {
            registry,
            cells: Vec::new(),
            registered: false,
            closed: false,
            settled: None,
            rebalance: None,
            next_commit_ms: i64::MAX,
            failure: None,
        };
        Ok(Self {
            engine_config: engine_config(config)?,
            settings,
            transports,
            clock,
            cluster_id,
            state: Mutex::new(state),
        })
    }

    pub fn consumer_id(&self) -> &str {
        &self.settings.consumer_id
    }

    pub fn consumer_timeout_ms(&self) -> i64 {
        self.settings.consumer_timeout_ms
    }

    pub fn now_ms(&self) -> i64 {
        self.clock.monotonic_ms()
    }

    pub fn transport(&self) -> Box<dyn Transport> {
        (self.transports)()
    }

    pub fn same_group(&self, other: &Connector) -> bool {
        self.cluster_id == other.cluster_id && self.settings.group_id == other.settings.group_id
    }

    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Ignores a panic of another thread: every step begins by asking the registry, so the state can be used.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ensure_open(&self, state: &State) -> Result<(), ClientError> {
        if state.closed {
            return Err(ClientError::Closed(format!(
                "the legacy consumer {} was shut down; make a new one",
                self.settings.consumer_id
            )));
        }
        Ok(())
    }

    /// Kafka: `createMessageStreams`, once.
    pub fn register(&self, topic_count: &[(&str, i32)]) -> Result<Vec<Arc<StreamCell>>, ClientError> {
        let mut state = self.lock();
        self.ensure_open(&state)?;
        if state.registered {
            return Err(ClientError::IllegalState(format!(
                "the legacy consumer {} has created its streams already; name all topics in one call, or make another consumer",
                self.settings.consumer_id
            )));
        }
        if topic_count.is_empty() {
            return Err(ClientError::IllegalArgument(
                "name at least one topic with its number of streams".to_owned(),
            ));
        }
        let mut topics = BTreeSet::new();
        let mut cells = Vec::new();
        for &(topic, streams) in topic_count {
            if streams < 1 {
                return Err(ClientError::IllegalArgument(format!(
                    "{streams} streams of topic {topic:?}; ask for at least 1"
                )));
            }
            if topic.trim().is_empty() || !topics.insert(topic) {
                return Err(ClientError::IllegalArgument(format!(
                    "topic {topic:?} is empty or named twice"
                )));
            }
            for i in 0..streams {
                let id = format!("{}-{i}", self.settings.consumer_id).into();
                let thread = ConsumerThreadId {
                    consumer: Arc::clone(&self.settings.consumer_id),
                    id,
                };
                let engine = Mutex::new(Consumer::new(
                    self.engine_config.clone(),
                    self.transport(),
                    Arc::clone(&self.clock),
                )?);
                cells.push(Arc::new(StreamCell {
                    thread,
                    topic: topic.into(),
                    engine,
                }));
            }
        }
        state.cells.clone_from(&cells);
        self.join(&mut state)?;
        state.registered = true;
        state.next_commit_ms = self
            .settings
            .auto_commit_interval_ms
            .map_or(i64::MAX, |interval| self.now_ms() + interval);
        Ok(cells)
    }

    fn join(&self, state: &mut State) -> Result<LegacyGroupResponse, ClientError> {
        let mut streams: BTreeMap<Arc<str>, i32> = BTreeMap::new();
        for cell in &state.cells {
            *streams.entry(Arc::clone(&cell.topic)).or_default() += 1;
        }
        let streams = streams.into_iter().collect();
        let action = LegacyGroupAction::Register {
            session_timeout_ms: self.settings.session_timeout_ms,
            streams,
        };
        let view = state.registry.step(action)?;
        if view.error != ErrorCode::NONE {
            return Err(ClientError::kafka(
                view.error,
                format_args!(
                    "consumer id {} is used by another consumer of the group; give each its own consumer.id, or leave it out",
                    self.settings.consumer_id
                ),
            ));
        }
        Ok(view)
    }

    /// Runs one step of the table. Returns whether this consumer has settled in the group's generation.
    pub fn step(&self) -> Result<bool, ClientError> {
        let mut state = self.lock();
        self.ensure_open(&state)?;
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        self.step_locked(&mut state)
    }

    /// As `step`, run by another consumer: an error is kept for this consumer's own next step.
    pub fn step_quietly(&self) -> bool {
        let mut state = self.lock();
        if state.closed || !state.registered {
            return true;
        }
        match self.step_locked(&mut state) {
            Ok(settled) => settled,
            Err(error) => {
                state.failure.get_or_insert(error);
                true
            }
        }
    }

    fn step_locked(&self, state: &mut State) -> Result<bool, ClientError> {
        let mut view = state.registry.step(LegacyGroupAction::View)?;
        if view.error == ErrorCode::UNKNOWN_MEMBER_ID {
            log::warn!(
                "the session of legacy consumer {} has expired; it joins its group again",
                self.settings.consumer_id
            );
            // Others own the partitions by now: a commit would overwrite theirs. Kafka: `resetState`.
            self.stop(state, false);
            state.settled = None;
            state.rebalance = None;
            view = self.join(state)?;
        }
        if state.settled == Some(view.generation) {
            if self.now_ms() >= state.next_commit_ms {
                self.commit_by_timer(state);
            }
            return Ok(true);
        }
        self.rebalance(state, view)
    }

    /// Kafka: `syncedRebalance`, one attempt or the wait between two.
    fn rebalance(&self, state: &mut State, mut view: LegacyGroupResponse) -> Result<bool, ClientError> {
        let now_ms = self.now_ms();
        let mut rebalance = match state.rebalance {
            Some(under_way) if under_way.generation == view.generation => under_way,
            _ => {
                self.stop(state, self.settings.auto_commit_interval_ms.is_some());
                state.settled = None;
                view = state.registry.step(LegacyGroupAction::Release)?;
                Rebalance {
                    generation: view.generation,
                    attempts: 0,
                    next_attempt_ms: now_ms,
                }
            }
        };
        state.rebalance = Some(rebalance);
        let is_attempt = now_ms >= rebalance.next_attempt_ms;
        if is_attempt {
            rebalance.attempts += 1;
            rebalance.next_attempt_ms = now_ms + self.settings.backoff_ms;
        }
        let too_many = rebalance.attempts > self.settings.max_retries;
        state.rebalance = Some(Rebalance {
            attempts: if too_many { 0 } else { rebalance.attempts },
            ..rebalance
        });

        let assignment = match self.assign(&view) {
            Ok(assignment) => assignment,
            Err(error) if is_attempt => return Err(error),
            Err(_) => return Ok(false),
        };
        let wanted = self.wanted(state, &assignment);
        let owners = wanted
            .iter()
            .flat_map(|(cell, tps)| tps.iter().map(|tp| (tp.clone(), Arc::clone(&cell.thread.id))))
            .collect();
        let claim = LegacyGroupAction::Claim {
            generation: rebalance.generation,
            owners,
        };
        let claimed = state.registry.step(claim)?;
        if claimed.error == ErrorCode::NONE {
            for warning in assignment.warnings(WarnAbout::OwnThreads(&self.settings.consumer_id)) {
                log::warn!("{warning}");
            }
            for (cell, partitions) in &wanted {
                cell.engine().assign(partitions)?;
            }
            state.settled = Some(rebalance.generation);
            state.rebalance = None;
            return Ok(true);
        }
        if too_many {
            return Err(self.rebalance_failed(&wanted, &claimed));
        }
        Ok(false)
    }

    fn assign(&self, view: &LegacyGroupResponse) -> Result<LegacyAssignment, ClientError> {
        let members: StreamCounts = view
            .members
            .iter()
            .map(|m| (Arc::clone(&m.consumer_id), m.streams.iter().cloned().collect()))
            .collect();
        let topics = view.topics.iter().cloned().collect();
        let assigned = if self.settings.round_robin {
            legacy_round_robin(&topics, &members)
        } else {
            legacy_range(&topics, &members)
        };
        assigned.map_err(|e| ClientError::IllegalArgument(format!("group {}: {e}", self.settings.group_id)))
    }

    /// The partitions of each of this consumer's streams.
    fn wanted(&self, state: &State, assignment: &LegacyAssignment) -> Vec<(Arc<StreamCell>, Vec<TopicPartition>)> {
        let partitions = |cell: &StreamCell| {
            let numbers = assignment
                .threads
                .get(&cell.thread.id)
                .and_then(|topics| topics.get(&cell.topic));
            let tp = |&partition: &i32| TopicPartition {
                topic: Arc::clone(&cell.topic),
                partition,
            };
            numbers
                .map(|numbers| numbers.iter().map(tp).collect())
                .unwrap_or_default()
        };
        state
            .cells
            .iter()
            .map(|cell| (Arc::clone(cell), partitions(cell)))
            .collect()
    }

    /// Kafka: `ConsumerRebalanceFailedException`.
    fn rebalance_failed(
        &self,
        wanted: &[(Arc<StreamCell>, Vec<TopicPartition>)],
        view: &LegacyGroupResponse,
    ) -> ClientError {
        let mine: BTreeSet<&TopicPartition> = wanted.iter().flat_map(|(_, tps)| tps).collect();
        let held: Vec<String> = view
            .owners
            .iter()
            .filter(|(tp, _)| mine.contains(tp))
            .map(|(tp, thread)| format!("{tp} by {thread}"))
            .collect();
        ClientError::Kafka {
            code: ErrorCode::REBALANCE_IN_PROGRESS,
            message: format!(
                "{} can't rebalance after {} retries: still owned are {}; poll the streams of the owners, shut them down, or wait until their sessions expire",
                self.settings.consumer_id,
                self.settings.max_retries,
                if held.is_empty() {
                    "no partitions, but the group changes all the time".to_owned()
                } else {
                    held.join(", ")
                }
            ),
        }
    }

    /// Takes the partitions from all streams. Kafka: `closeFetchers`, `commitOffsets`.
    fn stop(&self, state: &State, commit: bool) {
        for cell in &state.cells {
            let mut engine = cell.engine();
            if engine.assignment().is_empty() {
                continue;
            }
            if commit && let Err(error) = engine.commit_last(self.settings.timeout_ms, &mut || false) {
                log::warn!(
                    "thread {}: the commit before the rebalance failed: {error}",
                    cell.thread.id
                );
            }
            if let Err(error) = engine.unsubscribe() {
                log::warn!("thread {}: {error}", cell.thread.id);
            }
        }
    }

    fn commit_by_timer(&self, state: &mut State) {
        if let Err(error) = self.commit_all(state) {
            log::warn!(
                "legacy consumer {}: auto commit failed: {error}",
                self.settings.consumer_id
            );
        }
        state.next_commit_ms = self
            .settings
            .auto_commit_interval_ms
            .map_or(i64::MAX, |interval| self.now_ms() + interval);
    }

    fn commit_all(&self, state: &State) -> Result<(), ClientError> {
        let mut outcome = Ok(());
        for cell in &state.cells {
            let mut engine = cell.engine();
            if !engine.assignment().is_empty() {
                let committed = engine.commit_last(self.settings.timeout_ms, &mut || false);
                outcome = outcome.and(committed);
            }
        }
        outcome
    }

    pub fn commit_offsets(&self) -> Result<(), ClientError> {
        let state = self.lock();
        self.ensure_open(&state)?;
        self.commit_all(&state)
    }

    pub fn owners(&self) -> Result<Owners, ClientError> {
        let mut state = self.lock();
        self.ensure_open(&state)?;
        if !state.registered {
            return Err(ClientError::IllegalState(
                "create_message_streams() first: this consumer has not joined its group".to_owned(),
            ));
        }
        let mut owners = Owners::new();
        for (tp, thread) in state.registry.step(LegacyGroupAction::View)?.owners {
            owners.entry(tp.topic).or_default().insert(tp.partition, thread);
        }
        Ok(owners)
    }

    /// Kafka: `shutdown`.
    pub fn shutdown(&self) -> Result<(), ClientError> {
        let mut state = self.lock();
        if std::mem::replace(&mut state.closed, true) {
            return Ok(());
        }
        // During a rebalance the streams have no partitions; a settled consumer owns what it commits.
        self.stop(&state, self.settings.auto_commit_interval_ms.is_some());
        let left = if state.registered {
            state.registry.step(LegacyGroupAction::Unregister).map(|_| ())
        } else {
            Ok(())
        };
        for cell in &state.cells {
            let closed = cell.engine().close(self.settings.timeout_ms, &mut || false);
            if let Err(error) = closed {
                log::warn!("thread {}: {error}", cell.thread.id);
            }
        }
        left
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector")
            .field("consumer_id", &self.settings.consumer_id)
            .finish_non_exhaustive()
    }
}
