//! Staying in the group and leaving it: heartbeats, the poll interval, LeaveGroup. Kafka: `AbstractCoordinator.HeartbeatThread`,
//! `maybeLeaveGroup`.

use std::sync::Arc;

use fletchlog_api::transport::HeartbeatPlan;
use fletchlog_api::{ErrorCode, HeartbeatRequest, LeaveGroupRequest, Request};
use fletchlog_protocol::messages::leave_group_request::MemberIdentity;

use super::coordinator::{ConsumerCoordinator, Purpose};
use super::membership::{NO_GENERATION, State};
use crate::ClientError;
use crate::consumer::RebalanceEvent;
use crate::consumer::consumer_network_client::ConsumerNetworkClient;
use crate::consumer::subscription_state::SubscriptionState;

impl ConsumerCoordinator {
    /// Leaves the group if max.poll.interval.ms has passed between two polls. In Kafka the heartbeat thread does so.
    pub(super) fn check_poll_interval(&mut self, net: &mut ConsumerNetworkClient, now_ms: i64) {
        let last = self.membership.last_poll_ms.replace(now_ms).unwrap_or(now_ms);
        if now_ms.saturating_sub(last) > i64::from(self.settings.max_poll_interval_ms)
            && self.membership.state != State::Unjoined
        {
            log::warn!(
                "member {} of group {} was not polled for {} ms, longer than max.poll.interval.ms, and leaves the group; raise max.poll.interval.ms or lower max.poll.records",
                self.membership.member_id,
                self.settings.group_id,
                now_ms.saturating_sub(last)
            );
            self.send_leave(net, now_ms);
            self.reset_generation();
        }
    }

    /// A poll begins: the member sends heartbeats itself again, and takes the result of those sent since the last poll.
    ///
    /// # Errors
    /// As `poll`.
    pub fn take_heartbeats_over(
        &mut self,
        net: &mut ConsumerNetworkClient,
        subs: &mut SubscriptionState,
        now_ms: i64,
    ) -> Result<(), ClientError> {
        let Some(last) = net.end_heartbeats() else {
            return Ok(());
        };
        if let (Some(_), Some(response)) = (&self.consumer, &last.response) {
            return self.on_consumer_heartbeat(response, last.sent_ms, subs, now_ms);
        }
        if !self.membership.is_stable() {
            return Ok(());
        }
        self.membership.next_heartbeat_ms = last.sent_ms + self.settings.heartbeat_interval_ms;
        self.on_heartbeat_response(last.error, now_ms)
    }

    /// The poll ends: the transport sends the heartbeats until the next one. Kafka: the heartbeat thread.
    pub fn hand_heartbeats_over(&self, net: &mut ConsumerNetworkClient) {
        if let Some(member) = &self.consumer {
            if let Some(plan) = self.consumer_heartbeat_plan(member) {
                net.begin_heartbeats(plan);
            }
            return;
        }
        let Some(last_poll_ms) = self.membership.last_poll_ms.filter(|_| self.membership.is_stable()) else {
            return;
        };
        net.begin_heartbeats(HeartbeatPlan {
            group_id: Arc::clone(&self.settings.group_id),
            request: Request::Heartbeat(self.heartbeat()),
            leave: self
                .leave_request(Some("consumer poll timeout has expired."))
                .map(Request::LeaveGroup),
            next_ms: self.membership.next_heartbeat_ms,
            interval_ms: self.settings.heartbeat_interval_ms,
            retry_backoff_ms: self.settings.retry_backoff_ms,
            leave_at_ms: last_poll_ms.saturating_add(i64::from(self.settings.max_poll_interval_ms)),
        });
    }

    fn heartbeat(&self) -> HeartbeatRequest {
        HeartbeatRequest {
            group_id: Arc::clone(&self.settings.group_id),
            generation_id: self.membership.generation,
            member_id: Arc::clone(&self.membership.member_id),
            group_instance_id: self.settings.group_instance_id.clone(),
        }
    }

    /// Sends a heartbeat if one is due. Kafka: `AbstractCoordinator#pollHeartbeat` and the heartbeat thread.
    pub(super) fn heartbeat_if_due(&mut self, net: &mut ConsumerNetworkClient, now_ms: i64) {
        if now_ms < self.membership.heartbeat_due_at_ms() {
            return;
        }
        let Some(connection) = self.coordinator(net, now_ms) else {
            return;
        };
        let id = net.send(connection, Request::Heartbeat(self.heartbeat()));
        self.outstanding.insert(id, Purpose::Heartbeat);
        self.membership.heartbeat_in_flight = true;
        self.membership.next_heartbeat_ms = now_ms + self.settings.heartbeat_interval_ms;
    }

    pub(super) fn on_heartbeat_response(&mut self, error: ErrorCode, now_ms: i64) -> Result<(), ClientError> {
        self.membership.heartbeat_in_flight = false;
        let member = &mut self.membership;
        match error {
            ErrorCode::NONE => {}
            ErrorCode::COORDINATOR_NOT_AVAILABLE | ErrorCode::NOT_COORDINATOR => {
                self.coordinator_unknown();
                self.heartbeat_failed(now_ms);
            }
            // While the member joins or syncs, this error adds nothing.
            ErrorCode::REBALANCE_IN_PROGRESS if member.is_stable() => member.rejoin_needed = true,
            ErrorCode::ILLEGAL_GENERATION | ErrorCode::UNKNOWN_MEMBER_ID if member.is_stable() => {
                self.reset_generation()
            }
            ErrorCode::REBALANCE_IN_PROGRESS | ErrorCode::ILLEGAL_GENERATION | ErrorCode::UNKNOWN_MEMBER_ID => {}
            ErrorCode::FENCED_INSTANCE_ID => {
                self.reset_generation();
                return Err(self.refused_for_good(error, "another member uses this group.instance.id"));
            }
            other if other.is_retriable() => self.heartbeat_failed(now_ms),
            other => return Err(self.refused(other, "the coordinator refused a heartbeat")),
        }
        Ok(())
    }

    /// Schedules the next heartbeat sooner, because the session time-out is running. Kafka: `Heartbeat#failHeartbeat`.
    pub(super) fn heartbeat_failed(&mut self, now_ms: i64) {
        self.membership.heartbeat_in_flight = false;
        self.membership.next_heartbeat_ms = now_ms + self.settings.retry_backoff_ms;
    }

    /// Leaves the group, for unsubscribe and close. Static members stay until their session times out. Listeners
    /// receive the revoked partitions. Kafka: `onLeavePrepare`, `maybeLeaveGroup`.
    pub fn leave(&mut self, net: &mut ConsumerNetworkClient, subs: &mut SubscriptionState, now_ms: i64) {
        self.events.extend(self.leaving(subs));
        if subs.has_auto_assigned_partitions() {
            subs.assign_from_subscribed(&[]);
        }
        self.next_assignment = None;
        self.send_leave(net, now_ms);
        self.send_consumer_leave(net, now_ms);
        if let Some(member) = &mut self.consumer {
            member.reset();
            member.last_poll_ms = None;
        }
        self.reset_generation();
        self.membership.last_poll_ms = None;
    }

    /// The event for the listener of a member that leaves: the partitions that it loses; `None` if it has none.
    pub fn leaving(&self, subs: &SubscriptionState) -> Option<RebalanceEvent> {
        let assigned = match &self.next_assignment {
            // The other partitions were revoked already, or not taken over yet.
            Some(next) => {
                let is_new = |tp| next.added.as_ref().is_some_and(|added| added.contains(tp));
                next.partitions.iter().filter(|tp| !is_new(tp)).cloned().collect()
            }
            None => subs.assigned_partitions(),
        };
        if !subs.has_auto_assigned_partitions() || assigned.is_empty() {
            return None;
        }
        let is_member = match &self.consumer {
            Some(member) => member.is_member(),
            None => self.membership.generation != NO_GENERATION,
        };
        Some(if !is_member {
            RebalanceEvent::Lost(assigned)
        } else {
            RebalanceEvent::Revoked(assigned)
        })
    }

    fn send_leave(&mut self, net: &mut ConsumerNetworkClient, now_ms: i64) {
        let member = &self.membership;
        let is_dynamic = self.settings.group_instance_id.is_none();
        if !is_dynamic || member.member_id.is_empty() || member.state == State::Unjoined {
            return;
        }
        let Some(connection) = self.coordinator(net, now_ms) else {
            return;
        };
        let Some(request) = self.leave_request(None) else {
            return;
        };
        let id = net.send(connection, Request::LeaveGroup(request));
        self.outstanding.insert(id, Purpose::Leave);
        self.membership.leave_in_flight = Some(id);
    }

    /// `None`: a static member stays until its session times out.
    fn leave_request(&self, reason: Option<&str>) -> Option<LeaveGroupRequest> {
        let member = MemberIdentity {
            member_id: Arc::clone(&self.membership.member_id),
            group_instance_id: None,
            reason: reason.map(Into::into),
        };
        self.settings.group_instance_id.is_none().then(|| LeaveGroupRequest {
            group_id: Arc::clone(&self.settings.group_id),
            members: vec![member],
            ..Default::default()
        })
    }

    /// Whether a leave is in flight: close() waits for it.
    pub fn leave_pending(&self) -> bool {
        self.membership.leave_in_flight.is_some()
    }
}
