//! Positions that a change of leader may have cut off (KIP-320). Kafka: `SubscriptionState#maybeValidatePosition`,
//! `maybeCompleteValidation`.

use fletchlog_protocol::messages::offset_for_leader_epoch_response::EpochEndOffset;
use fletchlog_records::TopicPartition;

use super::{FetchState, PartitionState, ResetStrategy, SubscriptionState};
use crate::ClientError;
use crate::consumer::metadata::{ConsumerMetadata, Leader};

/// A position as it was when the leader was asked about it. Kafka: `FetchPosition`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchPosition {
    /// Offset of the next record.
    pub offset: i64,
    /// Leader epoch of the record before it; -1 unknown.
    pub epoch: i32,
    /// The leader that was asked.
    pub leader: Option<Leader>,
}

/// Result of the validation of a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validated {
    /// The log still has what was read, or the position has changed since.
    Kept,
    /// The log was cut; reading continues here, at the first offset that differs.
    Truncated(i64),
    /// The log was cut and the first differing offset is unknown; reset by this policy.
    Reset(ResetStrategy),
    /// The log was cut and auto.offset.reset is none: the user decides. The first offset that differs, if known.
    Diverged(Option<i64>),
}

impl PartitionState {
    /// The position, valid or not.
    fn fetch_position(&self) -> FetchPosition {
        FetchPosition {
            offset: self.position,
            epoch: self.position_epoch,
            leader: self.leader,
        }
    }

    /// Sets the leader. The position must be validated if both sides have an epoch; without, there is nothing to
    /// compare. Kafka: `TopicPartitionState#validatePosition`.
    fn validate_at(&mut self, leader: Option<Leader>) {
        self.leader = leader;
        let comparable = self.position_epoch >= 0 && leader.is_some_and(|l| l.epoch >= 0);
        self.fetch_state = if comparable {
            FetchState::AwaitValidation { retry_at_ms: i64::MIN }
        } else {
            FetchState::Fetching
        };
    }
}

impl SubscriptionState {
    /// Sets a position that has the epoch of the record before it (a committed offset): the leader must confirm that it
    /// is still valid. Kafka: `seekUnvalidated`.
    ///
    /// # Errors
    /// `IllegalState` if the partition is not assigned.
    pub fn seek_unvalidated(
        &mut self,
        tp: &TopicPartition,
        offset: i64,
        leader_epoch: i32,
        leader: Option<Leader>,
    ) -> Result<(), ClientError> {
        let state = self.assigned_mut(tp)?;
        state.position = offset;
        state.position_epoch = leader_epoch;
        state.validate_at(leader);
        Ok(())
    }

    /// Requires validation of positions whose leader has changed. A position keeps its leader if the metadata has none:
    /// its topic may just not have been requested. Call after every change of the metadata.
    /// Kafka: `maybeValidatePositionForCurrentLeader`.
    pub fn validate_positions(&mut self, metadata: &ConsumerMetadata) {
        self.change_all(|tp, state| {
            let has_position = matches!(
                state.fetch_state,
                FetchState::Fetching | FetchState::AwaitValidation { .. }
            );
            let leader = metadata.leader(tp).filter(|&leader| state.leader != Some(leader));
            let changed = has_position && leader.is_some();
            if changed {
                state.validate_at(leader);
                state.preferred = None;
            }
            changed
        });
    }

    /// Positions that the leader may be asked about now, in assignment order.
    pub fn partitions_needing_validation(&self, now_ms: i64) -> Vec<(TopicPartition, FetchPosition)> {
        self.assignment
            .iter()
            .filter(
                |(_, s)| matches!(s.fetch_state, FetchState::AwaitValidation { retry_at_ms } if retry_at_ms <= now_ms),
            )
            .map(|(tp, s)| (tp.clone(), s.fetch_position()))
            .collect()
    }

    /// Applies a leader's response about `asked`. Kafka: `maybeCompleteValidation`.
    pub fn maybe_complete_validation(
        &mut self,
        tp: &TopicPartition,
        asked: FetchPosition,
        end: &EpochEndOffset,
    ) -> Validated {
        let policy = self.default_reset;
        let Some(state) = self.assignment.get(tp) else {
            return Validated::Kept;
        };
        if !matches!(state.fetch_state, FetchState::AwaitValidation { .. }) || state.fetch_position() != asked {
            return Validated::Kept;
        }
        let outcome = match (end.found(), policy) {
            (Some((_, end_offset)), _) if end_offset >= asked.offset => Validated::Kept,
            (found, None) => Validated::Diverged(found.map(|(_, end_offset)| end_offset)),
            (Some((_, end_offset)), Some(_)) => Validated::Truncated(end_offset),
            (None, Some(strategy)) => Validated::Reset(strategy),
        };
        if let Validated::Diverged(_) = outcome {
            return outcome;
        }
        let Ok(state) = self.assigned_mut(tp) else {
            return outcome;
        };
        match outcome {
            Validated::Kept => state.fetch_state = FetchState::Fetching,
            Validated::Truncated(offset) => {
                state.fetch_state = FetchState::Fetching;
                state.position = offset;
                state.position_epoch = end.leader_epoch;
            }
            Validated::Reset(strategy) => {
                state.fetch_state = FetchState::AwaitReset {
                    strategy,
                    retry_at_ms: i64::MIN,
                };
            }
            Validated::Diverged(_) => {}
        }
        outcome
    }
}
