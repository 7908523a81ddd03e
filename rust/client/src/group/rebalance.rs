//! The steps of a rebalance: revoking, joining, assigning, syncing, taking over. Kafka: `AbstractCoordinator`,
//! `ConsumerCoordinator#onJoinPrepare / onJoinComplete`.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api::{ErrorCode, JoinGroupRequest, JoinGroupResponse, Request, SyncGroupRequest, SyncGroupResponse};
use fletchlog_protocol::local::JoinSender;
use fletchlog_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use fletchlog_protocol::messages::join_group_response::JoinGroupResponseMember;
use fletchlog_protocol::values::consumer_protocol::{PROTOCOL_TYPE, flattened};
use fletchlog_protocol::values::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, CooperativeStickyAssignorUserData, StickyAssignorUserData,
};
use fletchlog_protocol::{Value, WireError};
use fletchlog_records::TopicPartition;

use super::coordinator::{ConsumerCoordinator, GroupTopics, NextAssignment, Purpose};
use super::leader;
use super::membership::{NO_GENERATION, State, TopicSnapshot};
use super::offsets::Commit;
use crate::ClientError;
use crate::assignor::{Assignor, PartitionRacks, TopicCounts};
use crate::consumer::RebalanceEvent;
use crate::consumer::consumer_network_client::ConsumerNetworkClient;
use crate::consumer::subscription_state::SubscriptionState;
use crate::net::RequestId;

/// Version of JoinGroup to an in-process broker: this member does not know `skip_assignment` of version 9.
const JOIN_VERSION: i16 = 8;

impl ConsumerCoordinator {
    /// The generation has ended for this member: it joins again as a new one. Kafka: `resetGeneration...`.
    pub(super) fn reset_generation(&mut self) {
        if let State::Committing { operation, .. } = self.membership.state {
            // A later attempt would apply to a generation in which other members may own the partitions.
            self.cancel(operation);
        }
        self.membership.reset();
    }

    /// Whether the member has to (re)join or is doing so. Kafka: `ConsumerCoordinator#rejoinNeededOrPending`.
    pub(super) fn rejoin_needed(&mut self, subs: &SubscriptionState, topics: GroupTopics<'_>) -> bool {
        let looks_at_racks = self.looks_at_racks();
        let member = &mut self.membership;
        if member.state == State::Stable && !member.rejoin_needed {
            let partitions_changed = member.assigned_with.as_ref().is_some_and(|with| {
                with.iter().any(|(topic, was)| {
                    (topics.partitions)(topic) != was.partitions || looks_at_racks && (topics.racks)(topic) != was.racks
                })
            });
            let subscription = subs.subscription();
            let topics_changed = subscription.len() != member.joined_topics.len()
                || subscription.iter().any(|t| !member.joined_topics.contains(t));
            member.rejoin_needed = partitions_changed || topics_changed;
        }
        member.rejoin_needed || member.state != State::Stable
    }

    /// Whether this member joins again, as leader, when the racks of replicas change. Kafka: `ConsumerCoordinator.MetadataSnapshot`.
    fn looks_at_racks(&self) -> bool {
        self.settings.rack_aware && self.settings.rack.is_some()
    }

    /// One step of a rebalance. Kafka: `AbstractCoordinator#joinGroupIfNeeded`.
    pub(super) fn advance_rebalance(
        &mut self,
        net: &mut ConsumerNetworkClient,
        subs: &mut SubscriptionState,
        topics: GroupTopics<'_>,
        now_ms: i64,
    ) -> Result<(), ClientError> {
        if self.coordinator(net, now_ms).is_none() {
            return Ok(());
        }
        match &self.membership.state {
            State::Stable if self.membership.needs_join_prepare => {
                let offsets = if self.auto_commit_enabled() {
                    subs.all_consumed()
                } else {
                    Vec::new()
                };
                if offsets.is_empty() {
                    return self.prepare_and_join(net, subs, now_ms);
                }
                let operation = self.start_commit(offsets, Commit::Last);
                let give_up_at_ms = now_ms + i64::from(self.settings.max_poll_interval_ms);
                self.membership.state = State::Committing {
                    operation,
                    give_up_at_ms,
                };
                Ok(())
            }
            &State::Committing {
                operation,
                give_up_at_ms,
            } => {
                let result = self.commit_result(operation);
                if result.is_none() && now_ms < give_up_at_ms {
                    return Ok(());
                }
                if let Some(Err(error)) = &result {
                    log::warn!(
                        "group {}: the commit before the rebalance failed: {error}",
                        self.settings.group_id
                    );
                }
                self.cancel(operation);
                self.membership.state = State::Stable;
                self.prepare_and_join(net, subs, now_ms)
            }
            State::Unjoined | State::Stable if now_ms >= self.membership.retry_at_ms => {
                self.prepare_and_join(net, subs, now_ms)
            }
            State::Leading { .. } if !topics.are_fresh => Ok(()),
            State::Leading { .. } => self.assign_as_leader(net, topics, now_ms),
            State::SyncDue { .. } => {
                self.send_sync(net, now_ms);
                Ok(())
            }
            State::Unjoined | State::Joining { .. } | State::Syncing { .. } | State::Stable => Ok(()),
        }
    }

    fn prepare_and_join(
        &mut self,
        net: &mut ConsumerNetworkClient,
        subs: &mut SubscriptionState,
        now_ms: i64,
    ) -> Result<(), ClientError> {
        if self.membership.needs_join_prepare {
            self.prepare_join(subs);
        }
        if self.has_events_for_listener() {
            return Ok(()); // The next turn joins.
        }
        self.send_join(net, subs, now_ms)
    }

    /// Revokes what the member must not own while the group rebalances. Kafka: `onJoinPrepare`.
    fn prepare_join(&mut self, subs: &mut SubscriptionState) {
        self.membership.needs_join_prepare = false;
        let assigned = subs.assigned_partitions();
        let is_lost = self.membership.generation == NO_GENERATION;
        let (kept, given_up): (Vec<_>, Vec<_>) = assigned
            .into_iter()
            .partition(|tp| !is_lost && self.settings.is_cooperative() && subs.subscription().contains(&tp.topic));
        self.membership.assigned_with = None;
        let _ = subs.group_subscribe(&[]);
        if given_up.is_empty() {
            return;
        }
        self.events.push(match is_lost {
            true => RebalanceEvent::Lost(given_up),
            false => RebalanceEvent::Revoked(given_up),
        });
        self.change_assignment(kept, None, subs);
    }

    /// Assigns these partitions and reports which of them are new. A listener first receives what it loses, while the
    /// former partitions are still assigned. Kafka: `invokePartitionsRevoked`, `invokePartitionsLost` come before
    /// `assignFromSubscribed`, `invokePartitionsAssigned` after it.
    pub(super) fn change_assignment(
        &mut self,
        partitions: Vec<TopicPartition>,
        added: Option<Vec<TopicPartition>>,
        subs: &mut SubscriptionState,
    ) {
        self.next_assignment = Some(NextAssignment { partitions, added });
        self.take_over(subs);
    }

    /// Applies the new assignment, unless a listener must first receive what it loses.
    pub(super) fn take_over(&mut self, subs: &mut SubscriptionState) {
        if self.has_events_for_listener() {
            return;
        }
        if let Some(next) = self.next_assignment.take() {
            subs.assign_from_subscribed(&next.partitions);
            self.events.extend(next.added.map(RebalanceEvent::Assigned));
        }
    }

    fn send_join(
        &mut self,
        net: &mut ConsumerNetworkClient,
        subs: &SubscriptionState,
        now_ms: i64,
    ) -> Result<(), ClientError> {
        let Some(connection) = self.coordinator(net, now_ms) else {
            // The coordinator was lost while the commit was in flight.
            self.membership.back_to_join(now_ms);
            return Ok(());
        };
        let mut protocols = Vec::with_capacity(self.settings.assignors.len());
        for &assignor in &self.settings.assignors {
            let blob = self
                .subscription_blob(assignor, subs)
                .map_err(|e| ClientError::IllegalArgument(e.to_string()))?;
            protocols.push(JoinGroupRequestProtocol {
                name: Arc::from(assignor.name()),
                metadata: blob,
            });
        }
        let settings = &self.settings;
        let request = JoinGroupRequest {
            group_id: Arc::clone(&settings.group_id),
            session_timeout_ms: settings.session_timeout_ms,
            rebalance_timeout_ms: settings.max_poll_interval_ms,
            member_id: Arc::clone(&self.membership.member_id),
            group_instance_id: settings.group_instance_id.clone(),
            protocol_type: PROTOCOL_TYPE.into(),
            protocols,
            reason: None,
            sender: JoinSender {
                client_id: Arc::clone(&settings.client_id),
                version: JOIN_VERSION,
                principal: None,
            },
        };
        let id = net.send(connection, Request::JoinGroup(request));
        self.outstanding.insert(id, Purpose::Join);
        self.membership.joined_topics = subs.subscription().iter().cloned().collect();
        self.membership.state = State::Joining { request: id };
        Ok(())
    }

    fn subscription_blob(&self, assignor: Assignor, subs: &SubscriptionState) -> Result<Bytes, WireError> {
        let generation = self.membership.last_generation;
        let user_data = match assignor {
            Assignor::Sticky => {
                let data = StickyAssignorUserData {
                    previous_assignment: leader::by_topic(&self.membership.last_assignment),
                    generation,
                };
                Some(data.to_bytes()?)
            }
            Assignor::CooperativeSticky => Some(CooperativeStickyAssignorUserData { generation }.to_bytes()?),
            Assignor::Range | Assignor::RoundRobin => None,
        };
        let blob = ConsumerProtocolSubscription {
            topics: subs.subscription().to_vec(),
            user_data,
            owned_partitions: leader::by_topic(&subs.assigned_partitions()),
            generation_id: self.membership.generation,
            rack_id: self.settings.rack.clone(),
        };
        blob.encode(self.settings.protocol_version)
    }

    pub(super) fn on_join_response(
        &mut self,
        id: RequestId,
        response: JoinGroupResponse,
        subs: &mut SubscriptionState,
        now_ms: i64,
    ) -> Result<(), ClientError> {
        if self.membership.state != (State::Joining { request: id }) {
            return Ok(()); // The member has left or was reset since.
        }
        let retry_at_ms = now_ms + self.settings.retry_backoff_ms;
        match response.error_code {
            ErrorCode::NONE => return self.on_joined(response, subs, now_ms),
            ErrorCode::MEMBER_ID_REQUIRED => {
                self.membership.member_id = response.member_id;
                self.membership.back_to_join(now_ms);
            }
            ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::ILLEGAL_GENERATION => self.reset_generation(),
            ErrorCode::COORDINATOR_NOT_AVAILABLE | ErrorCode::NOT_COORDINATOR => {
                self.coordinator_unknown();
                self.membership.back_to_join(retry_at_ms);
            }
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS | ErrorCode::REBALANCE_IN_PROGRESS => {
                self.membership.back_to_join(retry_at_ms)
            }
            code => {
                self.membership.back_to_join(retry_at_ms);
                return Err(self.refused_for_good(code, "the coordinator refused the member"));
            }
        }
        Ok(())
    }

    fn on_joined(
        &mut self,
        response: JoinGroupResponse,
        subs: &mut SubscriptionState,
        now_ms: i64,
    ) -> Result<(), ClientError> {
        let JoinGroupResponse {
            generation_id,
            protocol_name,
            leader,
            member_id,
            members,
            ..
        } = response;
        let protocol_name = protocol_name.unwrap_or_default();
        let Some(assignor) = self
            .settings
            .assignors
            .iter()
            .copied()
            .find(|a| *a.name() == *protocol_name)
        else {
            self.membership.back_to_join(now_ms);
            return Err(self.refused_for_good(
                ErrorCode::INCONSISTENT_GROUP_PROTOCOL,
                &format!("the group chose the assignor {protocol_name:?}, which this member did not offer"),
            ));
        };
        self.membership.generation = generation_id;
        self.membership.protocol_name = Some(protocol_name);
        self.membership.next_heartbeat_ms = now_ms + self.settings.heartbeat_interval_ms;
        let is_leader = leader == member_id;
        self.membership.member_id = member_id;
        self.membership.state = if is_leader {
            self.lead(assignor, &members, subs, now_ms)?
        } else {
            State::SyncDue {
                assignments: Vec::new(),
            }
        };
        Ok(())
    }

    fn lead(
        &mut self,
        assignor: Assignor,
        members: &[JoinGroupResponseMember],
        subs: &mut SubscriptionState,
        now_ms: i64,
    ) -> Result<State, ClientError> {
        let subscriptions = leader::subscriptions(assignor, members).map_err(|e| {
            self.membership.back_to_join(now_ms + self.settings.retry_backoff_ms);
            ClientError::kafka(
                ErrorCode::INCONSISTENT_GROUP_PROTOCOL,
                format_args!(
                    "group {}: a member sent an unreadable subscription: {e}",
                    self.settings.group_id
                ),
            )
        })?;
        // The result is not needed: the leader uses what the metadata has.
        let _ = subs.group_subscribe(&leader::group_topics(&subscriptions));
        Ok(State::Leading {
            assignor,
            subscriptions,
        })
    }

    /// Assigns the topics that are known once the metadata is fresh; one that appears later makes the group rebalance.
    /// Kafka: `ConsumerCoordinator#onLeaderElected`.
    fn assign_as_leader(
        &mut self,
        net: &mut ConsumerNetworkClient,
        topics: GroupTopics<'_>,
        now_ms: i64,
    ) -> Result<(), ClientError> {
        let State::Leading {
            assignor,
            subscriptions,
        } = &self.membership.state
        else {
            return Ok(());
        };
        let names = leader::group_topics(subscriptions);
        let looks_at_racks = self.looks_at_racks();
        let snapshot = |topic: &Arc<str>| TopicSnapshot {
            partitions: (topics.partitions)(topic),
            racks: if looks_at_racks {
                (topics.racks)(topic).to_vec()
            } else {
                Vec::new()
            },
        };
        let with = names.iter().map(|t| (Arc::clone(t), snapshot(t))).collect();
        let counts: TopicCounts = names
            .iter()
            .filter_map(|t| Some((Arc::clone(t), (topics.partitions)(t)?)))
            .collect();
        let racks: PartitionRacks = if self.settings.rack_aware {
            names
                .iter()
                .map(|t| (Arc::clone(t), (topics.racks)(t).to_vec()))
                .collect()
        } else {
            PartitionRacks::new()
        };
        let dealt = assignor.assign(&counts, &racks, subscriptions);
        let assignments = leader::encoded(dealt, self.settings.protocol_version)
            .map_err(|e| ClientError::IllegalArgument(e.to_string()))?;
        self.membership.assigned_with = Some(with);
        self.membership.state = State::SyncDue { assignments };
        self.send_sync(net, now_ms);
        Ok(())
    }

    fn send_sync(&mut self, net: &mut ConsumerNetworkClient, now_ms: i64) {
        let Some(connection) = self.coordinator(net, now_ms) else {
            self.membership.back_to_join(now_ms);
            return;
        };
        let State::SyncDue { assignments } = std::mem::replace(&mut self.membership.state, State::Unjoined) else {
            return;
        };
        let request = SyncGroupRequest {
            group_id: Arc::clone(&self.settings.group_id),
            generation_id: self.membership.generation,
            member_id: Arc::clone(&self.membership.member_id),
            group_instance_id: self.settings.group_instance_id.clone(),
            protocol_type: Some(PROTOCOL_TYPE.into()),
            protocol_name: self.membership.protocol_name.clone(),
            assignments,
        };
        let id = net.send(connection, Request::SyncGroup(request));
        self.outstanding.insert(id, Purpose::Sync);
        self.membership.state = State::Syncing { request: id };
    }

    pub(super) fn on_sync_response(
        &mut self,
        id: RequestId,
        response: &SyncGroupResponse,
        subs: &mut SubscriptionState,
        now_ms: i64,
    ) -> Result<(), ClientError> {
        if self.membership.state != (State::Syncing { request: id }) {
            return Ok(());
        }
        match response.error_code {
            ErrorCode::NONE => return self.on_join_complete(response.assignment.clone(), subs, now_ms),
            ErrorCode::REBALANCE_IN_PROGRESS => self.membership.back_to_join(now_ms),
            ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::ILLEGAL_GENERATION => self.reset_generation(),
            ErrorCode::COORDINATOR_NOT_AVAILABLE | ErrorCode::NOT_COORDINATOR => {
                self.coordinator_unknown();
                self.membership.back_to_join(now_ms + self.settings.retry_backoff_ms);
            }
            code if code.is_retriable() => self.membership.back_to_join(now_ms + self.settings.retry_backoff_ms),
            code => {
                self.membership.back_to_join(now_ms + self.settings.retry_backoff_ms);
                return Err(self.refused_for_good(code, "the coordinator refused the member's sync"));
            }
        }
        Ok(())
    }

    /// Takes the assignment. Kafka: `onJoinComplete`.
    fn on_join_complete(&mut self, blob: Bytes, subs: &mut SubscriptionState, now_ms: i64) -> Result<(), ClientError> {
        let assigned = match ConsumerProtocolAssignment::of_member(blob) {
            Ok(assignment) => flattened(&assignment.assigned_partitions),
            Err(error) => {
                self.membership.back_to_join(now_ms + self.settings.retry_backoff_ms);
                let context = format_args!(
                    "group {}: the leader sent an unreadable assignment: {error}",
                    self.settings.group_id
                );
                return Err(ClientError::kafka(ErrorCode::INCONSISTENT_GROUP_PROTOCOL, context));
            }
        };
        self.membership.state = State::Stable;
        self.membership.needs_join_prepare = true;
        self.membership.rejoin_needed = false;
        self.membership.retry_at_ms = i64::MIN;
        if assigned.iter().any(|tp| !subs.subscription().contains(&tp.topic)) {
            // The subscription changed while the group was rebalancing.
            self.membership.rejoin_needed = true;
            return Ok(());
        }
        let owned: BTreeSet<TopicPartition> = subs.assigned_partitions().into_iter().collect();
        let wanted: BTreeSet<&TopicPartition> = assigned.iter().collect();
        let added: Vec<TopicPartition> = assigned.iter().filter(|tp| !owned.contains(tp)).cloned().collect();
        let revoked: Vec<TopicPartition> = owned.iter().filter(|tp| !wanted.contains(tp)).cloned().collect();
        if !revoked.is_empty() {
            // Cooperative: what moves is revoked now, and the rejoin lets the new owner have it.
            self.events.push(RebalanceEvent::Revoked(revoked));
            self.membership.rejoin_needed = true;
        }
        self.membership.last_assignment.clone_from(&assigned);
        self.membership.last_generation = self.membership.generation;
        self.change_assignment(assigned, Some(added), subs);
        self.restart_auto_commit_timer(now_ms);
        Ok(())
    }
}
