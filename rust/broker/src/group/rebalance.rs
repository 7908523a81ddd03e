//! From one generation to the next. Kafka: `GroupMetadataManager#prepareRebalance`, `#completeClassicGroupJoin`,
//! `#expirePendingSync`.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api::{ErrorCode, JoinGroupResponse, SyncGroupResponse};

use super::coordinator::GroupCoordinator;
use super::state::{Group, GroupState, PendingJoin, PendingSync};

impl GroupCoordinator {
    /// Begins a rebalance if none is being prepared, and completes it if every member has joined.
    /// Kafka: `maybePrepareRebalance`, `prepareRebalance`.
    pub(super) fn rebalance(&self, group: &mut Group, now_ms: i64) {
        if group.state != GroupState::PreparingRebalance {
            if group.state == GroupState::CompletingRebalance {
                self.reset_assignments(group, ErrorCode::REBALANCE_IN_PROGRESS, now_ms);
            }
            group.pending_sync = None;
            group.pending_assignment = None;
            let timeout_ms = group.rebalance_timeout_ms();
            group.pending_join = Some(if group.state == GroupState::Empty {
                self.initial_join(timeout_ms, now_ms)
            } else {
                PendingJoin {
                    deadline_ms: now_ms.saturating_add(timeout_ms),
                    extend_until_ms: None,
                    new_member: false,
                }
            });
            self.transition(group, GroupState::PreparingRebalance);
        }
        self.try_complete_join(group, now_ms);
    }

    /// Kafka: `resetAndPropagateAssignmentWithError`.
    pub(super) fn reset_assignments(&self, group: &mut Group, error: ErrorCode, now_ms: i64) {
        for member in &mut group.members {
            member.assignment = Bytes::new();
            if member.answer_sync(sync_error(error), self.changes()) {
                member.reschedule_heartbeat(now_ms);
            }
        }
    }

    pub(super) fn transition(&self, group: &mut Group, state: GroupState) {
        group.state = state;
        group.state_timestamp_ms = Some(self.replicas.clock().now_ms());
    }

    /// Kafka: `DelayedJoin#tryComplete`, `InitialDelayedJoin#onComplete`.
    pub(super) fn try_complete_join(&self, group: &mut Group, now_ms: i64) {
        let Some(join) = group.pending_join else { return };
        match join.extend_until_ms {
            Some(until_ms) if now_ms >= join.deadline_ms => {
                if join.new_member && now_ms < until_ms {
                    let wait_ms = self.initial_delay_ms.min(until_ms.saturating_sub(now_ms));
                    group.pending_join = Some(PendingJoin {
                        deadline_ms: now_ms.saturating_add(wait_ms),
                        new_member: false,
                        ..join
                    });
                } else {
                    self.complete_join(group, now_ms);
                }
            }
            Some(_) => {}
            None if group.all_joined() || now_ms >= join.deadline_ms => self.complete_join(group, now_ms),
            None => {}
        }
    }

    /// Begins the next generation with the members that have joined. Kafka: `onCompleteJoin`.
    fn complete_join(&self, group: &mut Group, now_ms: i64) {
        // Static members are kept until their session ends.
        group.members.retain(|m| m.joining.is_some() || m.instance_id.is_some());
        let joined = |id: &str, group: &Group| group.member(id).is_some_and(|m| m.joining.is_some());
        if !group.leader.clone().is_some_and(|leader| joined(&leader, group)) {
            let next = group.members.iter().find(|m| m.joining.is_some()).map(|m| m.id.clone());
            if next.is_none() && !group.members.is_empty() {
                // Only static members that have not rejoined: continue to wait.
                let deadline_ms = now_ms.saturating_add(group.rebalance_timeout_ms());
                group.pending_join = Some(PendingJoin {
                    deadline_ms,
                    extend_until_ms: None,
                    new_member: false,
                });
                return;
            }
            group.leader = next;
        }
        group.pending_join = None;
        group.generation = group.generation.checked_add(1).unwrap_or(1);
        if group.members.is_empty() {
            group.protocol = None;
            group.leader = None;
            group.subscribed_topics = group.compute_subscribed_topics();
            self.transition(group, GroupState::Empty);
            // The failure is logged where the record is written; the group continues.
            drop(self.store_group(group));
            return;
        }
        group.protocol = group.select_protocol();
        group.subscribed_topics = group.compute_subscribed_topics();
        self.transition(group, GroupState::CompletingRebalance);
        self.answer_joins(group, now_ms);
    }

    /// Begins the sync phase, which ends after the rebalance time-out at the latest.
    fn answer_joins(&self, group: &mut Group, now_ms: i64) {
        let members: BTreeSet<Arc<str>> = group.members.iter().map(|m| m.id.clone()).collect();
        let deadline_ms = now_ms.saturating_add(group.rebalance_timeout_ms());
        group.pending_sync = Some(PendingSync { deadline_ms, members });
        let responses: Vec<JoinGroupResponse> = group.members.iter().map(|m| join_response(group, &m.id)).collect();
        for (member, response) in group.members.iter_mut().zip(responses) {
            member.answer_join(response, self.changes());
            member.reschedule_heartbeat(now_ms);
            member.is_new = false;
        }
    }

    /// Removes members that have not synced in time, and rebalances the group.
    pub(super) fn expire_pending_sync(&self, group: &mut Group, now_ms: i64) {
        let due = |sync: &&mut PendingSync| now_ms >= sync.deadline_ms;
        let Some(late) = group
            .pending_sync
            .as_mut()
            .filter(due)
            .map(|sync| std::mem::take(&mut sync.members))
        else {
            return;
        };
        for id in &late {
            log::info!(
                "member {id} of group {} has not synced in time and is removed",
                group.id
            );
        }
        group.remove_all(&late);
        self.rebalance(group, now_ms);
    }

    fn initial_join(&self, rebalance_timeout_ms: i64, now_ms: i64) -> PendingJoin {
        PendingJoin {
            deadline_ms: now_ms.saturating_add(self.initial_delay_ms.min(rebalance_timeout_ms)),
            extend_until_ms: Some(now_ms.saturating_add(rebalance_timeout_ms)),
            new_member: false,
        }
    }
}

pub(super) fn join_response(group: &Group, member_id: &Arc<str>) -> JoinGroupResponse {
    JoinGroupResponse {
        generation_id: group.generation,
        protocol_type: group.protocol_type.clone(),
        protocol_name: Some(group.protocol.clone().unwrap_or_default()),
        leader: group.leader.clone().unwrap_or_default(),
        member_id: member_id.clone(),
        members: if group.is_leader(member_id) {
            group.member_list()
        } else {
            Vec::new()
        },
        ..Default::default()
    }
}

pub(super) fn join_error(error_code: ErrorCode, member_id: Arc<str>) -> JoinGroupResponse {
    JoinGroupResponse {
        error_code,
        protocol_name: Some(Arc::default()),
        member_id,
        ..Default::default()
    }
}

pub(super) fn sync_error(error_code: ErrorCode) -> SyncGroupResponse {
    SyncGroupResponse {
        error_code,
        ..Default::default()
    }
}
