//! Positions that a lookup of the log's start or end must find. Kafka: `SubscriptionState#requestOffsetReset`,
//! `resetInitializingPositions`, `maybeSeekUnvalidated`.

use fletchlog_records::TopicPartition;

use super::{FetchState, PartitionState, ResetStrategy, SubscriptionState};
use crate::ClientError;
use crate::consumer::metadata::Leader;

impl SubscriptionState {
    /// Drops the position and requests a lookup. Kafka: `requestOffsetReset`.
    ///
    /// # Errors
    /// `IllegalState` if the partition is not assigned.
    pub fn request_offset_reset(&mut self, tp: &TopicPartition, strategy: ResetStrategy) -> Result<(), ClientError> {
        self.assigned_mut(tp)?.fetch_state = FetchState::AwaitReset {
            strategy,
            retry_at_ms: i64::MIN,
        };
        self.jumps += 1;
        Ok(())
    }

    /// Policy of `auto.offset.reset`; `None` = none.
    pub fn default_reset(&self) -> Option<ResetStrategy> {
        self.default_reset
    }

    /// Applies the policy to partitions without position. Kafka: `resetInitializingPositions`.
    ///
    /// # Errors
    /// `NoOffsetForPartition` when the policy is none.
    pub fn reset_initializing_positions(&mut self) -> Result<(), ClientError> {
        let Some(strategy) = self.default_reset else {
            let missing = self.initializing_partitions();
            return if missing.is_empty() {
                Ok(())
            } else {
                Err(ClientError::NoOffsetForPartition(missing))
            };
        };
        self.change_all(|_, state| {
            let initializing = state.fetch_state == FetchState::Initializing;
            if initializing {
                state.fetch_state = FetchState::AwaitReset {
                    strategy,
                    retry_at_ms: i64::MIN,
                };
            }
            initializing
        });
        Ok(())
    }

    /// Partitions whose lookup may be sent now, and its strategy, in assignment order.
    pub fn partitions_needing_reset(&self, now_ms: i64) -> Vec<(TopicPartition, ResetStrategy)> {
        self.assignment
            .iter()
            .filter_map(|(tp, state)| match state.fetch_state {
                FetchState::AwaitReset { strategy, retry_at_ms } if retry_at_ms <= now_ms => {
                    Some((tp.clone(), strategy))
                }
                _ => None,
            })
            .collect()
    }

    /// Sets when the lookups or validations of these partitions may be repeated. Kafka: `setNextAllowedRetry`.
    pub fn set_next_allowed_retry<'a>(&mut self, partitions: impl IntoIterator<Item = &'a TopicPartition>, at_ms: i64) {
        for tp in partitions {
            if let Some(PartitionState {
                fetch_state: FetchState::AwaitReset { retry_at_ms, .. } | FetchState::AwaitValidation { retry_at_ms },
                ..
            }) = self.assignment.get_mut(tp)
            {
                *retry_at_ms = at_ms;
            }
        }
    }

    /// Sets the position that a lookup found, unless the partition has got a position or another strategy since.
    /// Kafka: `maybeSeekUnvalidated`.
    pub fn maybe_seek(
        &mut self,
        tp: &TopicPartition,
        offset: i64,
        leader: Option<Leader>,
        asked: ResetStrategy,
    ) -> bool {
        self.is_waiting_for(tp, asked) && self.seek(tp, offset, leader).is_ok()
    }

    /// Whether the partition still waits for this lookup.
    pub fn is_waiting_for(&self, tp: &TopicPartition, asked: ResetStrategy) -> bool {
        matches!(self.state(tp), Some(PartitionState { fetch_state: FetchState::AwaitReset { strategy, .. }, .. }) if *strategy == asked)
    }
}
