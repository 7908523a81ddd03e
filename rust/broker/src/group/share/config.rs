//! The properties of share groups. Kafka: `GroupCoordinatorConfig`, `ShareGroupConfigProvider`.

use super::super::coordinator::GroupCoordinator;

impl GroupCoordinator {
    /// After so many ms without a heartbeat a member is removed.
    pub(crate) fn share_session_timeout_ms(&self, group_id: &str) -> i32 {
        self.group_config(group_id, "share.session.timeout.ms")
    }

    /// Most members of a share group.
    pub(super) fn share_group_max_size(&self) -> usize {
        usize::try_from(self.replicas.config().int("group.share.max.size")).unwrap_or(usize::MAX)
    }
}
