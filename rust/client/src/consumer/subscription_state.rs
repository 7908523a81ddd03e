//! Subscription, assignment, positions: the only order state of the consumer. Kafka: `SubscriptionState`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::config_table::{BY_DURATION, parse_duration_ms};
use fletchlog_api::{Config, IsolationLevel, PartitionStates};
use fletchlog_records::TopicPartition;

use super::decision_table::SubscribeOrder;
use super::metadata::{Leader, Wanted};
use super::topic_pattern::TopicPattern;
use crate::ClientError;
use fetch_failures::FetchFailure;
use order::distinct;
use preferred_replica::PreferredReplica;

/// A policy of `auto.offset.reset`, also used for a seek to the start or end of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetStrategy {
    /// Log start.
    Earliest,
    /// Log end.
    Latest,
    /// The first record that is at most this many ms old at the time of the lookup; the log end if there is none.
    /// Kafka: `AutoOffsetResetStrategy.StrategyType#BY_DURATION`.
    ByDuration(i64),
}

impl ResetStrategy {
    /// The policy of auto.offset.reset; `None` if that is none.
    fn of(config: &Config) -> Option<Self> {
        match config.text("auto.offset.reset") {
            "earliest" => Some(Self::Earliest),
            "none" => None,
            other => match other.strip_prefix(BY_DURATION).and_then(parse_duration_ms) {
                Some(ms) => Some(Self::ByDuration(ms)),
                None => Some(Self::Latest),
            },
        }
    }
}

/// Fetch state of a partition. Kafka: `SubscriptionState.FetchStates`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchState {
    /// Assigned, no position yet.
    Initializing,
    /// Has a position.
    Fetching,
    /// Waits for a lookup; not before `retry_at_ms`.
    AwaitReset {
        /// Which end.
        strategy: ResetStrategy,
        /// Earliest time of the next attempt.
        retry_at_ms: i64,
    },
    /// Has a position that may have been cut off; waits for the leader's response. It is asked not before
    /// `retry_at_ms`.
    AwaitValidation {
        /// Earliest time of the next attempt.
        retry_at_ms: i64,
    },
}

/// One partition's state. Kafka: `TopicPartitionState`.
#[derive(Debug, Clone)]
pub struct PartitionState {
    fetch_state: FetchState,
    position: i64,
    position_epoch: i32,
    /// The leader for which the position was last considered valid, and from which records are fetched.
    /// Kafka: `FetchPosition.currentLeader`.
    leader: Option<Leader>,
    paused: bool,
    high_watermark: Option<i64>,
    last_stable_offset: Option<i64>,
    /// The follower that is read in place of the leader.
    preferred: Option<PreferredReplica>,
    /// Its fetches are refused: see [`SubscriptionState::fetch_failed`].
    backs_off: bool,
}

impl Default for PartitionState {
    fn default() -> Self {
        Self {
            fetch_state: FetchState::Initializing,
            position: -1,
            position_epoch: -1,
            leader: None,
            paused: false,
            high_watermark: None,
            last_stable_offset: None,
            preferred: None,
            backs_off: false,
        }
    }
}

impl PartitionState {
    /// The position, if it has a valid one.
    pub fn position(&self) -> Option<i64> {
        (self.fetch_state == FetchState::Fetching).then_some(self.position)
    }
    /// The leader that is asked for records at the position.
    pub fn leader(&self) -> Option<Leader> {
        self.leader
    }
    /// Whether it may be fetched: it has a position, is not paused, and its fetches are not refused.
    pub fn is_fetchable(&self) -> bool {
        self.fetch_state == FetchState::Fetching && !self.paused && !self.backs_off
    }
    /// Whether its next fetch waits for retry.backoff.ms.
    pub fn backs_off(&self) -> bool {
        self.backs_off
    }
    /// Whether the user paused it.
    pub fn is_paused(&self) -> bool {
        self.paused
    }
    /// The end of what may be read: last stable offset or high watermark of the last response.
    /// Kafka: `SubscriptionState#partitionEndOffset`.
    pub fn end_offset(&self, isolation_level: IsolationLevel) -> Option<i64> {
        match isolation_level {
            IsolationLevel::ReadCommitted => self.last_stable_offset,
            _ => self.high_watermark,
        }
    }
}

/// How partitions are chosen.
#[derive(Debug, Clone)]
enum Subscription {
    None,
    Topics,
    Pattern(TopicPattern),
    UserAssigned,
}

/// The consumer's subscription and assignment.
#[derive(Debug, Clone)]
pub struct SubscriptionState {
    subscription: Subscription,
    /// Topics in the order of subscribe(); under assign() the topics of the assignment.
    topics: Vec<Arc<str>>,
    /// Topics of all members, known to a group's leader only.
    group_topics: Vec<Arc<str>>,
    assignment: PartitionStates<PartitionState>,
    default_reset: Option<ResetStrategy>,
    subscribe_order: SubscribeOrder,
    jumps: u64,
    assignments: u64,
    /// Partitions whose position or fetchability may have changed, or the node that they are read from.
    changed: Changed,
    /// Number of partitions with a position and of partitions that may be fetched; `None`: to be counted anew.
    counted: Cell<Option<(usize, usize)>>,
    /// Some partition may have a preferred replica.
    prefers: bool,
    /// The wanted topics have changed since the last [`Self::take_metadata_request`].
    needs_metadata: bool,
    /// Logs that the broker could not read recently, and why.
    log_failures: BTreeMap<TopicPartition, ClientError>,
    fetch_failures: BTreeMap<TopicPartition, FetchFailure>,
}

impl SubscriptionState {
    /// Starts without subscription and assignment.
    pub fn new(config: &Config, subscribe_order: SubscribeOrder) -> Self {
        Self {
            subscription: Subscription::None,
            topics: Vec::new(),
            group_topics: Vec::new(),
            assignment: PartitionStates::default(),
            default_reset: ResetStrategy::of(config),
            subscribe_order,
            jumps: 0,
            assignments: 0,
            changed: Changed::Everything,
            counted: Cell::default(),
            prefers: false,
            needs_metadata: false,
            log_failures: BTreeMap::new(),
            fetch_failures: BTreeMap::new(),
        }
    }

    /// Increases when partitions are added or removed, and when a position is set other than by reading.
    pub fn jumps(&self) -> u64 {
        self.jumps
    }

    /// Increases with every new assignment.
    pub fn assignments(&self) -> u64 {
        self.assignments
    }

    /// Takes the partitions that may have been added or removed, or whose position or fetchability may have changed.
    pub fn take_changed(&mut self) -> Changed {
        std::mem::take(&mut self.changed)
    }

    // ---------------------------------------------------------------- subscription

    /// Subscribes to topics by name. Returns whether they differ from before.
    pub fn subscribe(&mut self, topics: &[Arc<str>]) -> Result<bool, ClientError> {
        if matches!(self.subscription, Subscription::Pattern(_) | Subscription::UserAssigned) {
            return Err(exclusive());
        }
        self.subscription = Subscription::Topics;
        Ok(self.change_topics(distinct(topics)))
    }

    /// Subscribes to topics by a pattern that must match the whole name.
    pub fn subscribe_pattern(&mut self, pattern: &str) -> Result<(), ClientError> {
        if matches!(self.subscription, Subscription::Topics | Subscription::UserAssigned) {
            return Err(exclusive());
        }
        self.subscription = Subscription::Pattern(TopicPattern::new(pattern)?);
        self.needs_metadata = true;
        Ok(())
    }

    /// Sets the topics that match the pattern. Returns whether they differ from before. Kafka: `subscribeFromPattern`.
    pub fn subscribe_from_pattern(&mut self, topics: Vec<Arc<str>>) -> bool {
        self.change_topics(distinct(&topics))
    }

    /// The pattern, under `subscribe_pattern`.
    pub fn pattern(&self) -> Option<&TopicPattern> {
        match &self.subscription {
            Subscription::Pattern(pattern) => Some(pattern),
            _ => None,
        }
    }

    /// Topics subscribed to by name or pattern, in the order of subscribe(); empty under assign().
    pub fn subscription(&self) -> &[Arc<str>] {
        if self.has_auto_assigned_partitions() {
            &self.topics
        } else {
            &[]
        }
    }

    /// Sets the topics of all members, so that the leader learns their partitions. Returns whether some are new.
    /// Kafka: `groupSubscribe`.
    pub fn group_subscribe(&mut self, topics: &[Arc<str>]) -> bool {
        let known = self.group_topics.clone();
        self.group_topics = distinct(topics);
        let new = self
            .group_topics
            .iter()
            .any(|t| !known.contains(t) && !self.topics.contains(t));
        self.needs_metadata |= new;
        new
    }

    /// Topics whose metadata must be requested at once, if they changed since the last call of this method.
    pub fn take_metadata_request(&mut self) -> Option<Wanted> {
        std::mem::take(&mut self.needs_metadata).then(|| self.wanted_topics())
    }

    /// Topics whose metadata is wanted.
    pub fn wanted_topics(&self) -> Wanted {
        if matches!(self.subscription, Subscription::Pattern(_)) {
            return Wanted::All;
        }
        let all: Vec<Arc<str>> = self.topics.iter().chain(&self.group_topics).cloned().collect();
        Wanted::Topics(distinct(&all))
    }

    /// Whether a group assigns the partitions.
    pub fn has_auto_assigned_partitions(&self) -> bool {
        matches!(self.subscription, Subscription::Topics | Subscription::Pattern(_))
    }

    /// Whether there is neither a subscription nor an assignment.
    pub fn has_no_subscription_or_assignment(&self) -> bool {
        matches!(self.subscription, Subscription::None)
    }

    /// Ends the subscription or assignment.
    pub fn unsubscribe(&mut self) {
        self.subscription = Subscription::None;
        self.topics.clear();
        self.group_topics.clear();
        self.set_assignment(PartitionStates::default());
    }

    // ---------------------------------------------------------------- assignment (spec 7.2)

    /// # Errors
    /// `IllegalState` under a subscription.
    pub fn ensure_user_assignable(&self) -> Result<(), ClientError> {
        if self.has_auto_assigned_partitions() {
            Err(exclusive())
        } else {
            Ok(())
        }
    }

    /// Assigns exactly these partitions. Returns whether the set of topics changed. The same set again changes nothing
    /// at all; otherwise the order is computed anew, and partitions assigned before keep their states.
    /// Kafka: `assignFromUser`.
    pub fn assign_from_user(&mut self, partitions: &[TopicPartition]) -> Result<bool, ClientError> {
        self.ensure_user_assignable()?;
        self.subscription = Subscription::UserAssigned;
        let distinct_partitions = distinct(partitions);
        if distinct_partitions.len() == self.assignment.len()
            && distinct_partitions.iter().all(|tp| self.assignment.contains(tp))
        {
            return Ok(false);
        }
        self.replace_assignment(order::of_user(partitions.len(), &distinct_partitions));
        let topics: Vec<Arc<str>> = self.assignment.iter().map(|(tp, _)| tp.topic.clone()).collect();
        Ok(self.change_topics(distinct(&topics)))
    }

    /// Takes the group's assignment; the order of `partitions` does not matter. Partitions assigned before keep their
    /// states (none after an eager rebalance, which assigns nothing in between). Kafka: `assignFromSubscribed`.
    pub fn assign_from_subscribed(&mut self, partitions: &[TopicPartition]) {
        let ordered = order::of_group(self.subscribe_order, Some(&self.topics), partitions);
        self.replace_assignment(ordered);
    }

    /// The same of partitions in the order in which a response of the group has them.
    pub fn assign_from_response(&mut self, partitions: &[TopicPartition]) {
        let ordered = order::of_group(self.subscribe_order, None, partitions);
        self.replace_assignment(ordered);
    }

    fn replace_assignment(&mut self, ordered: Vec<TopicPartition>) {
        let mut old = std::mem::take(&mut self.assignment).into_states();
        let states = ordered.into_iter().map(|tp| {
            let state = old.remove(&tp).unwrap_or_default();
            (tp, state)
        });
        self.set_assignment(states.collect());
    }

    fn set_assignment(&mut self, assignment: PartitionStates<PartitionState>) {
        self.fetch_failures.retain(|tp, _| assignment.contains(tp));
        self.assignment = assignment;
        self.everything_changed();
        self.assignments += 1;
        self.jumps += 1;
    }

    fn change_topics(&mut self, topics: Vec<Arc<str>>) -> bool {
        let same = topics.len() == self.topics.len() && topics.iter().all(|t| self.topics.contains(t));
        self.topics = topics;
        self.needs_metadata |= !same && self.pattern().is_none();
        !same
    }

    /// Assigned partitions in assignment order.
    pub fn assigned_partitions(&self) -> Vec<TopicPartition> {
        self.assignment.iter().map(|(tp, _)| tp.clone()).collect()
    }

    /// Assigned partitions and their states, in assignment order.
    pub fn iter(&self) -> impl Iterator<Item = (&TopicPartition, &PartitionState)> {
        self.assignment.iter()
    }

    /// State of an assigned partition.
    pub fn state(&self, tp: &TopicPartition) -> Option<&PartitionState> {
        self.assignment.get(tp)
    }

    /// Whether it is assigned.
    pub fn is_assigned(&self, tp: &TopicPartition) -> bool {
        self.assignment.contains(tp)
    }

    /// Whether it may be fetched.
    pub fn is_fetchable(&self, tp: &TopicPartition) -> bool {
        self.state(tp).is_some_and(PartitionState::is_fetchable)
    }

    /// Whether it is assigned and paused.
    pub fn is_paused(&self, tp: &TopicPartition) -> bool {
        self.state(tp).is_some_and(PartitionState::is_paused)
    }

    /// A number that increases along the assignment order.
    pub fn place(&self, tp: &TopicPartition) -> Option<u64> {
        self.assignment.place(tp)
    }

    /// Number of partitions that may be fetched.
    pub fn num_fetchable(&self) -> usize {
        self.count().1
    }

    /// Number of partitions with a position and of partitions that may be fetched.
    fn count(&self) -> (usize, usize) {
        self.counted.get().unwrap_or_else(|| {
            let states = || self.assignment.iter().map(|(_, state)| state);
            let positions = states().filter(|s| s.fetch_state == FetchState::Fetching).count();
            let counted = (positions, states().filter(|s| s.is_fetchable()).count());
            self.counted.set(Some(counted));
            counted
        })
    }

    /// Moves the partition behind all others in the order. Kafka: `movePartitionToEnd`.
    pub fn move_partition_to_end(&mut self, tp: &TopicPartition) {
        self.assignment.move_to_end(tp);
    }

    // ---------------------------------------------------------------- pause

    /// Stops fetching.
    ///
    /// # Errors
    /// `IllegalState` if the partition is not assigned.
    pub fn pause(&mut self, tp: &TopicPartition) -> Result<(), ClientError> {
        self.assigned_mut(tp)?.paused = true;
        Ok(())
    }

    /// Fetches again.
    ///
    /// # Errors
    /// `IllegalState` if the partition is not assigned.
    pub fn resume(&mut self, tp: &TopicPartition) -> Result<(), ClientError> {
        self.assigned_mut(tp)?.paused = false;
        Ok(())
    }

    /// Paused partitions in assignment order.
    pub fn paused_partitions(&self) -> Vec<TopicPartition> {
        self.assignment
            .iter()
            .filter(|(_, s)| s.paused)
            .map(|(tp, _)| tp.clone())
            .collect()
    }

    /// The state of an assigned partition, for a change of its position or fetchability, which this records.
    fn assigned_mut(&mut self, tp: &TopicPartition) -> Result<&mut PartitionState, ClientError> {
        let state = self.assignment.get_mut(tp).ok_or_else(|| not_assigned(tp))?;
        self.changed.insert(tp);
        self.counted.set(None);
        Ok(state)
    }

    /// As `assigned_mut`, for all partitions; `change` returns whether it changed anything.
    fn change_all(&mut self, mut change: impl FnMut(&TopicPartition, &mut PartitionState) -> bool) {
        let mut changed = false;
        self.assignment.for_each_mut(|tp, state| changed |= change(tp, state));
        if changed {
            self.everything_changed();
        }
    }

    fn everything_changed(&mut self) {
        self.changed = Changed::Everything;
        self.counted.set(None);
    }
}

/// The error of every call that needs an assigned partition.
pub(super) fn not_assigned(tp: &TopicPartition) -> ClientError {
    ClientError::IllegalState(format!(
        "{tp} is not assigned to this consumer; assign it, or wait until the group has assigned it"
    ))
}

fn exclusive() -> ClientError {
    ClientError::IllegalState(
        "subscribing to topics, to a pattern and assigning partitions exclude each other; call unsubscribe() first"
            .to_owned(),
    )
}

mod changed;
mod fetch_failures;
mod log_failures;
mod order;
mod positions;
mod preferred_replica;
mod reset;
mod validation;
pub use changed::Changed;
pub use order::table_behind;
pub use validation::{FetchPosition, Validated};

#[cfg(test)]
mod tests;
