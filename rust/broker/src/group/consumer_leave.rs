//! Members of consumer groups leave, or are put out. Kafka: `GroupMetadataManager#consumerGroupFenceMembers`,
//! `#consumerGroupStaticMemberGroupLeave`, `#classicGroupLeaveToConsumerGroup`.

use std::collections::BTreeSet;
use std::sync::Arc;

use fletchlog_api::ErrorCode;
use fletchlog_protocol::messages::leave_group_request::MemberIdentity;

use super::consumer_change::Change;
use super::consumer_group::ConsumerGroup;
use super::consumer_member::CurrentAssignment;
use super::consumer_records::ConsumerRecord;
use super::coordinator::GroupCoordinator;
use super::state::Group;
use super::timers::Timer;

impl GroupCoordinator {
    /// A static member leaves and will come back: it keeps what it need not give up, and its session goes on.
    pub(super) fn leave_for_some_time(
        &self,
        group: &mut Group,
        id: &Arc<str>,
        away: CurrentAssignment,
    ) -> Result<(), ErrorCode> {
        let group_id = Arc::clone(&group.id);
        let consumer = group.consumer.as_deref_mut().ok_or(ErrorCode::GROUP_ID_NOT_FOUND)?;
        let mut change = Change::of(&group_id, consumer);
        change.apply(ConsumerRecord::Current(Arc::clone(id), Some(away)));
        self.commit_change(change)?;
        consumer.timers.cancel(id, Timer::Rebalance);
        Ok(())
    }

    /// Removes members. The group may become a classic one, if all others use the classic protocol.
    pub(super) fn fence_members(&self, group: &mut Group, ids: &[Arc<str>], now_ms: i64) -> Result<(), ErrorCode> {
        let Some(consumer) = group.consumer.as_deref().filter(|_| !ids.is_empty()) else {
            return Ok(());
        };
        if self.may_downgrade(consumer, ids) {
            self.downgrade(group, ids, now_ms)?;
            self.rebalance(group, now_ms);
            return Ok(());
        }
        let group_id = Arc::clone(&group.id);
        let Some(consumer) = group.consumer.as_deref_mut() else {
            return Ok(());
        };
        let mut change = Change::of(&group_id, consumer);
        let regexes: BTreeSet<Arc<str>> = ids
            .iter()
            .filter_map(|id| change.group.member(id)?.regex().cloned())
            .collect();
        for id in ids {
            change.apply(ConsumerRecord::Current(Arc::clone(id), None));
            change.apply(ConsumerRecord::Target(Arc::clone(id), None));
            change.apply(ConsumerRecord::Member(Arc::clone(id), None));
        }
        for regex in regexes {
            if change.group.users_of(&regex) == 0 {
                change.apply(ConsumerRecord::Regex(regex, None));
            }
        }
        let table = self.replicas.topic_table();
        self.bump(&mut change, &table, true, false);
        drop(table);
        if change.group.is_empty() {
            let epoch = change.group.epoch;
            change.apply(ConsumerRecord::TargetEpoch(Some((epoch, 0))));
        }
        self.commit_change(change)?;
        for id in ids {
            consumer.timers.forget(id);
            consumer.sessions.remove(id);
        }
        Ok(())
    }

    /// Puts out the members whose time has come.
    pub(super) fn expire_consumers(&self, group: &mut Group, now_ms: i64) {
        let Some(consumer) = group.consumer.as_deref_mut() else {
            return;
        };
        let mut due = consumer.timers.due(now_ms);
        let gone = consumer
            .sessions
            .iter()
            .filter(|(_, session)| now_ms >= session.deadline_ms());
        due.extend(gone.map(|(id, _)| (Arc::clone(id), Timer::Session)));
        if due.is_empty() {
            return;
        }
        for (id, timer) in &due {
            let why = match timer {
                Timer::Session => "was not heard of in time",
                Timer::Rebalance => "has not given up its partitions in time",
                Timer::Join => "has not joined again in time",
                Timer::Sync => "has not synced in time",
            };
            log::info!("member {id} of group {} {why} and is removed", group.id);
        }
        // Each is a change of its own, as in Kafka.
        for (id, _) in due {
            let is_member = group
                .consumer
                .as_deref()
                .is_some_and(|consumer| consumer.member(&id).is_some());
            if !is_member {
                if let Some(consumer) = group.consumer.as_deref_mut() {
                    consumer.timers.forget(&id);
                    consumer.sessions.remove(&id);
                }
                continue;
            }
            if self.fence_members(group, &[Arc::clone(&id)], now_ms).is_err() {
                // The log cannot be written: the timer is tried again later.
                if let Some(consumer) = group.consumer.as_deref_mut() {
                    consumer.timers.forget(&id);
                    consumer.sessions.remove(&id);
                    consumer
                        .timers
                        .set(&id, Timer::Session, now_ms.saturating_add(RETRY_MS));
                }
            }
        }
    }

    /// LeaveGroup to a consumer group: members of either protocol. Their errors, in the order of the request.
    pub(super) fn leave_consumer_group(
        &self,
        group: &mut Group,
        members: &[MemberIdentity],
        now_ms: i64,
    ) -> Result<Vec<Option<ErrorCode>>, ErrorCode> {
        let Some(consumer) = group.consumer.as_deref() else {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        };
        let (mut ids, mut seen): (Vec<Arc<str>>, BTreeSet<Arc<str>>) = Default::default();
        let mut judge = |leaving: &MemberIdentity| {
            let id = leaving_member(consumer, leaving)?;
            if seen.insert(Arc::clone(&id)) {
                ids.push(id);
            }
            Ok(())
        };
        let left = members.iter().map(|leaving| judge(leaving).err()).collect();
        self.fence_members(group, &ids, now_ms)?;
        Ok(left)
    }
}

/// How long a member stays that could not be removed because the log could not be written (ms).
const RETRY_MS: i64 = 1000;

fn leaving_member(group: &ConsumerGroup, leaving: &MemberIdentity) -> Result<Arc<str>, ErrorCode> {
    let by_id = || group.member(&leaving.member_id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID);
    let member = match &leaving.group_instance_id {
        None => by_id()?,
        Some(instance) => {
            let member = group.static_member(instance).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
            // An administrator removes a static member without knowing its id.
            if !leaving.member_id.is_empty() && leaving.member_id != member.id {
                return Err(ErrorCode::FENCED_INSTANCE_ID);
            }
            member
        }
    };
    Ok(Arc::clone(&member.id))
}
