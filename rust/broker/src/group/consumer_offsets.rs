//! Who may commit and read the offsets of a consumer group (spec 8.10). Kafka: `ConsumerGroup#validateOffsetCommit`,
//! `#validateOffsetFetch`.

use fletchlog_api::{ErrorCode, OffsetAndMetadata, TxnOffsetCommitRequest};
use fletchlog_records::TopicPartition;
use fletchlog_records::planted;

use super::consumer_group::ConsumerGroup;
use super::consumer_member::ConsumerGroupMember;
use super::coordinator::GroupCoordinator;

/// Who commits with OffsetCommit.
pub(super) struct Committer<'a> {
    pub(super) member_id: &'a str,
    pub(super) epoch: i32,
    /// The version of the request has member epochs: 9 or higher.
    pub(super) knows_member_epochs: bool,
}

impl GroupCoordinator {
    /// OffsetCommit: by a member, or by nobody while there are no members.
    pub(super) fn check_consumer_commit(
        &self,
        group: &ConsumerGroup,
        committer: &Committer<'_>,
        offsets: &[(TopicPartition, OffsetAndMetadata)],
    ) -> Result<(), ErrorCode> {
        if committer.epoch < 0 && group.is_empty() {
            return Ok(());
        }
        let member = group.member(committer.member_id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        if member.classic().is_none() && !committer.knows_member_epochs {
            return Err(ErrorCode::UNSUPPORTED_VERSION);
        }
        self.check_member_epoch(member, committer.epoch, offsets)
    }

    /// TxnOffsetCommit: an older producer names no member.
    pub(super) fn check_consumer_txn_commit(
        &self,
        group: &ConsumerGroup,
        request: &TxnOffsetCommitRequest,
        offsets: &[(TopicPartition, OffsetAndMetadata)],
    ) -> Result<(), ErrorCode> {
        let epoch = request.generation_id_or_member_epoch;
        let names_nobody = epoch == -1 && request.member_id.is_empty() && request.group_instance_id.is_none();
        if names_nobody || (epoch < 0 && group.is_empty()) {
            return Ok(());
        }
        let member = group.member(&request.member_id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        let checked = self.check_member_epoch(member, epoch, offsets);
        checked.map_err(|code| match code {
            ErrorCode::STALE_MEMBER_EPOCH if !request.knows_group_id_not_found => ErrorCode::ILLEGAL_GENERATION,
            code => code,
        })
    }

    /// The member's own epoch may commit any partition, an older one those that were the member's then already. Kafka:
    /// `ConsumerGroup#createAssignmentEpochValidator`.
    fn check_member_epoch(
        &self,
        member: &ConsumerGroupMember,
        epoch: i32,
        offsets: &[(TopicPartition, OffsetAndMetadata)],
    ) -> Result<(), ErrorCode> {
        let current = &member.current;
        if epoch == current.epoch || planted!("commit-of-another-epoch-accepted") {
            return Ok(());
        }
        if member.classic().is_some() {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        let table = self.replicas.topic_table();
        let was_its_own = |tp: &TopicPartition| {
            let Some(topic) = table.get(&tp.topic) else {
                return false;
            };
            let mut parts = [&current.assigned, &current.pending_revocation].into_iter();
            let since = parts.find_map(|part| part.get(&topic.record.id)?.get(&tp.partition));
            since.is_some_and(|since| *since <= epoch)
        };
        match epoch < current.epoch && offsets.iter().all(|(tp, _)| was_its_own(tp)) {
            true => Ok(()),
            false => Err(ErrorCode::STALE_MEMBER_EPOCH),
        }
    }
}

/// OffsetFetch: by a member in its epoch, or by nobody.
pub(super) fn check_consumer_fetch(
    group: &ConsumerGroup,
    member_id: Option<&str>,
    epoch: i32,
) -> Result<(), ErrorCode> {
    if member_id.is_none() && epoch < 0 {
        return Ok(());
    }
    let member = member_id
        .and_then(|id| group.member(id))
        .ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
    match member.classic() {
        _ if member.current.epoch == epoch => Ok(()),
        Some(_) => Err(ErrorCode::ILLEGAL_GENERATION),
        None => Err(ErrorCode::STALE_MEMBER_EPOCH),
    }
}
