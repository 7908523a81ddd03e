//! Positions: reading, seeking, and what is known of them (spec 7.12). Kafka: `SubscriptionState#position`, `#seek`,
//! `#allConsumed`.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::{IsolationLevel, OffsetAndMetadata};
use fletchlog_records::TopicPartition;

use super::{FetchState, PartitionState, SubscriptionState};
use crate::ClientError;
use crate::consumer::metadata::Leader;

impl SubscriptionState {
    /// Position of an assigned partition that has one.
    pub fn position(&self, tp: &TopicPartition) -> Option<i64> {
        self.state(tp).and_then(PartitionState::position)
    }

    /// Moves the position after records of a buffered fetch were taken or skipped. The buffer records when that fetch is
    /// finished, and only then the position decides a request.
    pub fn advance(&mut self, tp: &TopicPartition, offset: i64, leader_epoch: i32) {
        if let Some(state) = self.assignment.get_mut(tp) {
            state.position = offset;
            state.position_epoch = leader_epoch;
        }
    }

    /// Sets a position, by hand or by a lookup; it needs no validation. `leader`: the partition's leader in the last
    /// metadata.
    ///
    /// # Errors
    /// `IllegalState` if the partition is not assigned.
    pub fn seek(&mut self, tp: &TopicPartition, offset: i64, leader: Option<Leader>) -> Result<(), ClientError> {
        let state = self.assigned_mut(tp)?;
        state.fetch_state = FetchState::Fetching;
        state.position = offset;
        state.position_epoch = -1;
        state.leader = leader;
        self.jumps += 1;
        Ok(())
    }

    /// Whether every assigned partition has a valid position.
    pub fn has_all_fetch_positions(&self) -> bool {
        self.count().0 == self.assignment.len()
    }

    /// Partitions that have neither a position nor a pending lookup, in assignment order.
    pub fn initializing_partitions(&self) -> Vec<TopicPartition> {
        self.assignment
            .iter()
            .filter(|(_, s)| s.fetch_state == FetchState::Initializing)
            .map(|(tp, _)| tp.clone())
            .collect()
    }

    /// Positions of all partitions that have one: what a commit without offsets commits. Kafka: `allConsumed`.
    pub fn all_consumed(&self) -> Vec<(TopicPartition, OffsetAndMetadata)> {
        let none: Arc<str> = Arc::from("");
        self.assignment
            .iter()
            .filter_map(|(tp, s)| {
                let offset = s.position()?;
                Some((
                    tp.clone(),
                    OffsetAndMetadata {
                        offset,
                        leader_epoch: s.position_epoch,
                        metadata: none.clone(),
                    },
                ))
            })
            .collect()
    }

    /// Sets the log ends from a response.
    pub fn update_ends(&mut self, tp: &TopicPartition, high_watermark: i64, last_stable_offset: i64) {
        if let Some(state) = self.assignment.get_mut(tp) {
            let known = |end: i64| Some(end).filter(|&end| end >= 0);
            let ends = (
                known(high_watermark).or(state.high_watermark),
                known(last_stable_offset).or(state.last_stable_offset),
            );
            if ends != (state.high_watermark, state.last_stable_offset) {
                (state.high_watermark, state.last_stable_offset) = ends;
                self.changed.insert(tp);
            }
        }
    }

    /// How far the position of each partition is behind the end of its log, as of the last fetch.
    /// Kafka: `SubscriptionState#partitionLag`.
    pub fn lags(&self, isolation_level: IsolationLevel) -> BTreeMap<TopicPartition, i64> {
        let lag = |state: &PartitionState| {
            let end = state.end_offset(isolation_level)?;
            Some(end.saturating_sub(state.position()?).max(0))
        };
        self.iter()
            .filter_map(|(tp, state)| Some((tp.clone(), lag(state)?)))
            .collect()
    }
}
