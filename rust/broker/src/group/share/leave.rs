//! Members of share groups leave, or are put out. Kafka: `GroupMetadataManager#shareGroupFenceMember`.
//!
//! What they have in flight stays with their share sessions (spec 14.1).

use std::sync::Arc;

use fletchlog_api::ErrorCode;

use super::super::consumer_change::Change;
use super::super::coordinator::GroupCoordinator;
use super::super::state::Group;
use super::super::timers::Timer;
use super::group::ShareGroup;
use super::records::ShareRecord;

/// When a member that could not be removed is tried again.
const RETRY_MS: i64 = 1000;

impl GroupCoordinator {
    /// Removes a member.
    pub(super) fn fence_share_member(
        &self,
        group_id: &Arc<str>,
        group: &mut ShareGroup,
        id: &Arc<str>,
    ) -> Result<(), ErrorCode> {
        let mut change = Change::of(group_id, group);
        change.apply(ShareRecord::Current(Arc::clone(id), None));
        change.apply(ShareRecord::Target(Arc::clone(id), None));
        change.apply(ShareRecord::Member(Arc::clone(id), None));
        self.bump_share_group(&mut change);
        if change.group.is_empty() {
            let epoch = change.group.epoch;
            change.apply(ShareRecord::TargetEpoch(Some((epoch, 0))));
        }
        self.commit_change(change)?;
        group.forget(id);
        Ok(())
    }

    /// Puts out the members whose sessions are over, each by a change of its own.
    pub(crate) fn expire_share_members(&self, group: &mut Group, now_ms: i64) {
        let group_id = Arc::clone(&group.id);
        let Some(share) = group.share.as_deref_mut() else {
            return;
        };
        let mut due: Vec<Arc<str>> = share.timers.due(now_ms).into_iter().map(|(id, _)| id).collect();
        let sessions = share.sessions.iter();
        let over = sessions.filter(|(_, session)| now_ms >= session.deadline_ms());
        due.extend(over.map(|(id, _)| Arc::clone(id)));
        for id in due {
            if share.member(&id).is_none() {
                share.forget(&id);
                continue;
            }
            log::info!("member {id} of group {group_id} was not heard of in time and is removed");
            if self.fence_share_member(&group_id, share, &id).is_err() {
                // The log cannot be written.
                share.forget(&id);
                share.timers.set(&id, Timer::Session, now_ms.saturating_add(RETRY_MS));
            }
        }
    }
}
