//! Offsets that a transaction commits (spec 10.2): written at once, in effect once the commit marker is written. Kafka:
//! `GroupCoordinator#handleTxnCommitOffsets`, `OffsetMetadataManager#validateTransactionalOffsetCommit`.

use fletchlog_api::{ErrorCode, NodeId, OffsetAndMetadata, TxnOffsetCommitRequest, TxnOffsetCommitResponse};
use fletchlog_records::{BatchParams, TopicPartition};

use super::coordinator::{GroupCoordinator, check_generation};
use super::member::ClientLiveness;
use super::offsets::OffsetErrors;
use super::state::{Group, GroupState};
use crate::failures::Refused;
use crate::replica_manager::AddPartitionsToTxnManager;
use crate::topic_names::CONSUMER_OFFSETS;

impl GroupCoordinator {
    /// TxnOffsetCommit.
    pub(crate) fn txn_offset_commit(
        &self,
        node: NodeId,
        request: &TxnOffsetCommitRequest,
        client: &ClientLiveness,
        transactions: &impl AddPartitionsToTxnManager,
    ) -> TxnOffsetCommitResponse {
        let offsets: Vec<_> = request.offsets().collect();
        let commit = || -> Result<OffsetErrors, Refused> {
            self.replicas.for_writing("commit offsets")?;
            if !self.any_known(&offsets) {
                return Ok(self.all_refused(&offsets, ErrorCode::NONE));
            }
            self.check_group(node, &request.group_id)?;
            let partition = TopicPartition::new(CONSUMER_OFFSETS, self.partition_for(&request.group_id));
            let all = std::slice::from_ref(&partition);
            let producer = (request.producer_id, request.producer_epoch);
            let operation = request.operation;
            if operation.adds() {
                // The marker needs its directory, even if no offset is accepted.
                let made = self.replicas.controller().offsets_topic();
                made.map_err(|error| Refused::by(ErrorCode::COORDINATOR_NOT_AVAILABLE, &error))?;
            }
            let id = &request.transactional_id;
            let verified = transactions.in_transaction(id, producer, &partition, all, operation, || {
                self.tick(self.replicas.clock().monotonic_ms());
                let unknown = match request.knows_group_id_not_found {
                    true => ErrorCode::GROUP_ID_NOT_FOUND,
                    false => ErrorCode::ILLEGAL_GENERATION,
                };
                let simple = request.generation_id_or_member_epoch < 0;
                self.in_committing_group(&request.group_id, simple, unknown, |group| {
                    self.add_pending_offsets(group, request, &offsets, client.is_behind_socket())
                })
            });
            // Kafka: GroupCoordinator maps errors of the verification to errors that an offset commit can have.
            verified.map_err(|code| match code {
                ErrorCode::CONCURRENT_TRANSACTIONS if !operation.adds() => ErrorCode::COORDINATOR_NOT_AVAILABLE,
                code => code,
            })?
        };
        match commit() {
            Ok(errors) => request.answered(errors),
            Err(Refused { code, failure }) => TxnOffsetCommitResponse {
                failure,
                ..request.answered(self.all_refused(&offsets, code))
            },
        }
    }

    fn add_pending_offsets(
        &self,
        group: &mut Group,
        request: &TxnOffsetCommitRequest,
        offsets: &[(TopicPartition, OffsetAndMetadata)],
        with_ids: bool,
    ) -> Result<OffsetErrors, Refused> {
        match &group.consumer {
            Some(consumer) => self.check_consumer_txn_commit(consumer, request, offsets)?,
            None if group.share.is_some() => return Err(ErrorCode::GROUP_ID_NOT_FOUND.into()),
            None => check_committer(group, request)?,
        }
        let (errors, mut accepted) = self.accept_offsets(offsets, None);
        if with_ids || group.consumer.is_some() {
            self.add_topic_ids(&mut accepted);
        }
        let params = BatchParams {
            producer_id: request.producer_id,
            producer_epoch: request.producer_epoch,
            // Kafka writes 0 here; the sequence of a coordinator's batch is not checked.
            base_sequence: 0,
            transactional: true,
            ..BatchParams::default()
        };
        let written = self.write_offsets(group, accepted, &params)?;
        if !written.is_empty() {
            let written = written.into_iter().map(|(tp, offset)| (tp, Some(offset)));
            self.add_group_for_producer(group, request.producer_id).extend(written);
        }
        Ok(errors)
    }
}

/// A commit may come from a member of the current generation, or name no member. Older producers name none either,
/// so the group may have members (unlike with OffsetCommit).
fn check_committer(group: &Group, request: &TxnOffsetCommitRequest) -> Result<(), ErrorCode> {
    let simple = request.generation_id_or_member_epoch < 0;
    let anonymous = simple && request.member_id.is_empty() && request.group_instance_id.is_none();
    if anonymous || (simple && group.state == GroupState::Empty) {
        return Ok(());
    }
    let instance_id = request.group_instance_id.as_deref();
    check_generation(
        group,
        &request.member_id,
        instance_id,
        request.generation_id_or_member_epoch,
    )
}
