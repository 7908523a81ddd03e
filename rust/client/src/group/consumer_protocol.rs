//! The turns of a member of a consumer group (KIP-848, spec 8.13): heartbeats, and the steps from one assignment to the next. Kafka:
//! `ConsumerHeartbeatRequestManager`, `AbstractMembershipManager#maybeReconcile`.
//!
//! Partitions that stay are read on while others move. What Java's background thread does between two polls is done by the next poll, in
//! this order: give partitions up (committed before, under enable.auto.commit), take the new ones, acknowledge.

use std::sync::Arc;

use fletchlog_api::transport::HeartbeatPlan;
use fletchlog_api::{ErrorCode, Request, TopicId};
use fletchlog_protocol::messages::ConsumerGroupHeartbeatResponse;
use fletchlog_records::TopicPartition;
use rustc_hash::FxHashSet;

use super::consumer_membership::{Assignment, ConsumerMembership, MemberState, Subscribed};
use super::coordinator::{ConsumerCoordinator, GroupTopics, Purpose};
use super::offsets::Commit;
use crate::ClientError;
use crate::consumer::RebalanceEvent;
use crate::consumer::TopicPattern;
use crate::consumer::consumer_network_client::ConsumerNetworkClient;
use crate::consumer::subscription_state::SubscriptionState;
use crate::net::RequestId;

impl ConsumerCoordinator {
    /// One turn of the member. Kafka: `ConsumerMembershipManager#poll`.
    pub(super) fn consumer_turn(
        &mut self,
        net: &mut ConsumerNetworkClient,
        subs: &mut SubscriptionState,
        topics: GroupTopics<'_>,
        now_ms: i64,
    ) {
        if !subs.has_auto_assigned_partitions() {
            return;
        }
        self.leave_after_max_poll_interval(net, subs, now_ms);
        self.take_over(subs);
        if self.has_events_for_listener() {
            return;
        }
        let Some(member) = &mut self.consumer else { return };
        match member.state {
            MemberState::Unsubscribed => {
                let is_in_process = net.is_in_process();
                member.join(&self.settings.client_id, is_in_process, now_ms);
            }
            MemberState::Reconciling => self.reconcile(subs, topics, now_ms),
            // A topic of the target was not known: it may be now.
            MemberState::Acknowledging | MemberState::Stable
                if member.unresolved_at.is_some_and(|version| version != topics.version) =>
            {
                self.reconcile(subs, topics, now_ms);
            }
            _ => {}
        }
    }

    /// max.poll.interval.ms has passed between two polls: the partitions are lost, and the member joins again. Kafka:
    /// `onStalePollTimerExpired`, `transitionToStale`.
    fn leave_after_max_poll_interval(
        &mut self,
        net: &mut ConsumerNetworkClient,
        subs: &mut SubscriptionState,
        now_ms: i64,
    ) {
        let Some(member) = &mut self.consumer else { return };
        let last = member.last_poll_ms.replace(now_ms).unwrap_or(now_ms);
        let passed_ms = now_ms.saturating_sub(last);
        if passed_ms <= i64::from(self.settings.max_poll_interval_ms) || member.state == MemberState::Unsubscribed {
            return;
        }
        log::warn!(
            "member {} of group {} was not polled for {passed_ms} ms, longer than max.poll.interval.ms, and leaves the group; raise max.poll.interval.ms or lower max.poll.records",
            member.member_id,
            self.settings.group_id,
        );
        self.send_consumer_leave(net, now_ms);
        self.lose_partitions(subs, now_ms);
    }

    /// The member has no place in the group any more: its partitions are lost, then it joins again. Kafka: `transitionToFenced`.
    fn lose_partitions(&mut self, subs: &mut SubscriptionState, now_ms: i64) {
        let Some(member) = &mut self.consumer else { return };
        let commit = member.commit.take();
        member.rejoin(now_ms);
        if let Some((operation, _)) = commit {
            self.cancel(operation);
        }
        self.fail_commits();
        let lost = subs.assigned_partitions();
        if !lost.is_empty() {
            self.events.push(RebalanceEvent::Lost(lost));
            self.change_assignment(Vec::new(), None, subs);
        }
    }

    /// One step from what the member has to what the coordinator has assigned. Kafka: `maybeReconcile`.
    fn reconcile(&mut self, subs: &mut SubscriptionState, topics: GroupTopics<'_>, now_ms: i64) {
        let Some(member) = &mut self.consumer else { return };
        if std::mem::take(&mut member.applying) {
            // The listener has received everything.
            member.state = MemberState::Acknowledging;
            member.next_heartbeat_ms = now_ms;
            return;
        }
        let (resolved, is_complete) = resolve(&member.target, topics);
        let partitions: Vec<TopicPartition> = resolved
            .iter()
            .flat_map(|(_, partitions)| partitions)
            .cloned()
            .collect();
        member.unresolved_at = (!is_complete).then_some(topics.version);
        let owned: FxHashSet<TopicPartition> = subs.assigned_partitions().into_iter().collect();
        let wanted: FxHashSet<&TopicPartition> = partitions.iter().collect();
        let mut revoked: Vec<TopicPartition> = owned.iter().filter(|tp| !wanted.contains(tp)).cloned().collect();
        revoked.sort();
        let added: Vec<TopicPartition> = partitions.iter().filter(|tp| !owned.contains(tp)).cloned().collect();
        if revoked.is_empty() && added.is_empty() && !is_complete {
            return; // Until the metadata have the other topics.
        }
        if !revoked.is_empty() && !self.is_committed_before_revocation(subs, now_ms) {
            return;
        }
        if let Some(member) = &mut self.consumer {
            member.owned = resolved
                .into_iter()
                .map(|(id, partitions)| (id, partitions.iter().map(|tp| tp.partition).collect()))
                .collect();
            member.applying = true;
        }
        if !revoked.is_empty() {
            self.events.push(RebalanceEvent::Revoked(revoked));
        }
        self.change_assignment(partitions, Some(added), subs);
        if !self.has_events_for_listener() {
            self.reconcile(subs, topics, now_ms);
        }
    }

    /// Commits the positions before partitions are given up, under enable.auto.commit; false: not yet. Kafka:
    /// `signalReconciliationStarted`, `autoCommitSyncBeforeRebalance`.
    fn is_committed_before_revocation(&mut self, subs: &SubscriptionState, now_ms: i64) -> bool {
        let commit = self.consumer.as_ref().and_then(|member| member.commit);
        let Some((operation, give_up_at_ms)) = commit else {
            let offsets = subs.all_consumed();
            if !self.auto_commit_enabled() || offsets.is_empty() {
                return true;
            }
            let operation = self.start_commit(offsets, Commit::Last);
            if let Some(member) = &mut self.consumer {
                let give_up_at_ms = now_ms.saturating_add(i64::from(self.settings.max_poll_interval_ms));
                member.commit = Some((operation, give_up_at_ms));
            }
            return false;
        };
        let result = self.commit_result(operation);
        if result.is_none() && now_ms < give_up_at_ms {
            return false;
        }
        if let Some(Err(error)) = &result {
            log::warn!(
                "group {}: the commit before partitions are given up failed: {error}",
                self.settings.group_id
            );
        }
        self.cancel(operation);
        if let Some(member) = &mut self.consumer {
            member.commit = None;
        }
        true
    }

    /// Sends a heartbeat if one is due, or if the subscription has changed.
    pub(super) fn consumer_heartbeat_if_due(
        &mut self,
        net: &mut ConsumerNetworkClient,
        subs: &SubscriptionState,
        now_ms: i64,
    ) {
        // A join, or what is acknowledged, waits for the listener.
        if !subs.has_auto_assigned_partitions() || self.has_events_for_listener() || self.next_assignment.is_some() {
            return;
        }
        let subscribed = match subs.pattern().map(TopicPattern::pattern) {
            Some(pattern) => Subscribed::Regex(pattern.into()),
            None => Subscribed::Names(subs.subscription().to_vec()),
        };
        let Some(member) = &self.consumer else { return };
        let is_changed = member.is_member() && member.in_flight.is_none() && member.sent.as_ref() != Some(&subscribed);
        if now_ms < member.heartbeat_due_at_ms() && !is_changed {
            return;
        }
        let Some(connection) = self.coordinator(net, now_ms) else {
            return;
        };
        let Some(member) = &mut self.consumer else { return };
        let request = member.heartbeat(&self.settings, subscribed);
        let id = net.send(connection, Request::ConsumerGroupHeartbeat(request));
        self.outstanding.insert(id, Purpose::Heartbeat);
        member.in_flight = Some(id);
        member.next_heartbeat_ms = now_ms.saturating_add(member.interval_ms);
    }

    /// As [`Self::on_consumer_heartbeat`], unless the member has been reset since it was sent.
    pub(super) fn on_consumer_answer(
        &mut self,
        id: RequestId,
        answer: &ConsumerGroupHeartbeatResponse,
        subs: &mut SubscriptionState,
        now_ms: i64,
    ) -> Result<(), ClientError> {
        match self
            .consumer
            .as_ref()
            .is_some_and(|member| member.in_flight == Some(id))
        {
            true => self.on_consumer_heartbeat(answer, now_ms, subs, now_ms),
            false => Ok(()),
        }
    }

    /// Whether the coordinator of the group resolves patterns, not the consumer.
    pub fn resolves_patterns(&self) -> bool {
        self.consumer.is_some()
    }

    /// Whether the target has topics whose names this version of the metadata does not have.
    pub fn wants_names_of(&self, version: u64) -> bool {
        self.consumer
            .as_ref()
            .is_some_and(|member| member.unresolved_at == Some(version))
    }

    /// Takes the answer of a heartbeat. Kafka: `onSuccess`, `onErrorResponse`.
    pub(super) fn on_consumer_heartbeat(
        &mut self,
        answer: &ConsumerGroupHeartbeatResponse,
        sent_ms: i64,
        subs: &mut SubscriptionState,
        now_ms: i64,
    ) -> Result<(), ClientError> {
        let Some(member) = &mut self.consumer else {
            return Ok(());
        };
        member.in_flight = None;
        if member.state == MemberState::Unsubscribed {
            return Ok(());
        }
        match answer.error_code {
            ErrorCode::NONE => {
                member.on_answer(answer, sent_ms);
                return Ok(());
            }
            ErrorCode::COORDINATOR_NOT_AVAILABLE | ErrorCode::NOT_COORDINATOR => {
                self.coordinator_unknown();
                self.consumer_heartbeat_failed(now_ms);
            }
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS => self.consumer_heartbeat_failed(now_ms),
            ErrorCode::FENCED_MEMBER_EPOCH | ErrorCode::UNKNOWN_MEMBER_ID => self.lose_partitions(subs, now_ms),
            code if code.is_retriable() => self.consumer_heartbeat_failed(now_ms),
            code => {
                let why = answer.error_message.as_deref().unwrap_or("no more is known");
                member.reset();
                let lost = subs.assigned_partitions();
                let error = self.refused_for_good(code, &format!("the coordinator refused the member: {why}"));
                if !lost.is_empty() {
                    self.events.push(RebalanceEvent::Lost(lost));
                    self.change_assignment(Vec::new(), None, subs);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// A heartbeat had no answer that helps: the next one comes sooner and says everything that the lost one said.
    pub(super) fn consumer_heartbeat_failed(&mut self, now_ms: i64) {
        if let Some(member) = &mut self.consumer {
            member.in_flight = None;
            member.sent = None;
            member.acknowledges = false;
            member.next_heartbeat_ms = now_ms.saturating_add(self.settings.retry_backoff_ms);
        }
    }

    /// Leaves the group. Kafka: `leaveGroup`.
    pub(super) fn send_consumer_leave(&mut self, net: &mut ConsumerNetworkClient, now_ms: i64) {
        let Some(member) = &self.consumer else { return };
        if member.state == MemberState::Unsubscribed {
            return;
        }
        let request = Request::ConsumerGroupHeartbeat(member.leave_heartbeat(&self.settings));
        let Some(connection) = self.coordinator(net, now_ms) else {
            return;
        };
        let id = net.send(connection, request);
        self.outstanding.insert(id, Purpose::Leave);
        self.membership.leave_in_flight = Some(id);
    }

    /// What keeps the member in its group until the next poll.
    pub(super) fn consumer_heartbeat_plan(&self, member: &ConsumerMembership) -> Option<HeartbeatPlan> {
        let last_poll_ms = member.last_poll_ms.filter(|_| member.is_member())?;
        let limit_ms = i64::from(self.settings.max_poll_interval_ms);
        Some(HeartbeatPlan {
            group_id: Arc::clone(&self.settings.group_id),
            request: Request::ConsumerGroupHeartbeat(member.empty_heartbeat(&self.settings, member.epoch)),
            leave: Some(Request::ConsumerGroupHeartbeat(member.leave_heartbeat(&self.settings))),
            next_ms: member.next_heartbeat_ms,
            interval_ms: member.interval_ms,
            retry_backoff_ms: self.settings.retry_backoff_ms,
            leave_at_ms: last_poll_ms.saturating_add(limit_ms),
        })
    }
}

/// The partitions of an assignment by topic, as far as the names of the topics are known; and whether all are.
fn resolve(assignment: &Assignment, topics: GroupTopics<'_>) -> (Vec<(TopicId, Vec<TopicPartition>)>, bool) {
    let mut resolved = Vec::new();
    for (id, partitions) in assignment {
        if let Some(name) = (topics.name)(id) {
            let of_topic = partitions.iter().map(|&p| TopicPartition::new(Arc::clone(&name), p));
            resolved.push((*id, of_topic.collect()));
        }
    }
    let is_complete = resolved.len() == assignment.len();
    (resolved, is_complete)
}
