//! Requests to the leaders of partitions: one per node. What was asked is kept until the response, and asked again if
//! that failed. Kafka: what `Fetcher#resetOffsetsAsync` and `#validateOffsetsAsync` have in common.

use std::collections::BTreeMap;

use fletchlog_api::{Completion, NodeId, Request};
use fletchlog_records::TopicPartition;

use super::consumer_network_client::ConsumerNetworkClient;
use super::consumer_state::ConsumerState;
use super::metadata::{ConsumerMetadata, Leader};
use crate::ClientError;
use crate::net::RequestId;

/// Requests in flight; `T` is what was asked of a partition.
#[derive(Debug)]
pub(super) struct LeaderQuestions<T> {
    outstanding: BTreeMap<RequestId, Vec<(TopicPartition, T)>>,
    failure: Option<ClientError>,
}

impl<T> Default for LeaderQuestions<T> {
    fn default() -> Self {
        Self {
            outstanding: BTreeMap::new(),
            failure: None,
        }
    }
}

impl<T: Clone> LeaderQuestions<T> {
    /// Returns, once, the error of an earlier request that must not be repeated.
    pub fn take_failure(&mut self) -> Result<(), ClientError> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Makes the next [`LeaderQuestions::take_failure`] return this error.
    pub fn fail(&mut self, failure: ClientError) {
        self.failure = Some(failure);
    }

    /// Queues one request per node; returns the partitions requested now. If a partition has no leader, metadata is
    /// requested instead; if its leader was lost recently, the partition waits for a later call.
    pub fn ask(
        &mut self,
        questions: Vec<(TopicPartition, Option<Leader>, T)>,
        request: impl Fn(&[(TopicPartition, Leader, T)]) -> Request,
        metadata: &mut ConsumerMetadata,
        net: &mut ConsumerNetworkClient,
    ) -> Vec<TopicPartition> {
        let mut by_node: BTreeMap<NodeId, Vec<(TopicPartition, Leader, T)>> = BTreeMap::new();
        for (tp, leader, what) in questions {
            match leader {
                None => metadata.request_update(),
                Some(leader) if net.is_unavailable(leader.node) => {}
                Some(leader) => by_node.entry(leader.node).or_default().push((tp, leader, what)),
            }
        }
        let mut sent = Vec::new();
        for (node, asked) in by_node {
            let id = net.send(node, request(&asked));
            sent.extend(asked.iter().map(|(tp, ..)| tp.clone()));
            let asked = asked.into_iter().map(|(tp, _, what)| (tp, what)).collect();
            self.outstanding.insert(id, asked);
        }
        sent
    }

    /// The partitions whose response has not arrived.
    pub fn unanswered(&self) -> impl Iterator<Item = &TopicPartition> {
        self.outstanding.values().flatten().map(|(tp, _)| tp)
    }

    /// Whether a completion is of one of these requests.
    pub fn owns(&self, completion: &Completion) -> bool {
        self.outstanding.contains_key(&completion.correlation_id)
    }

    /// Removes and returns the partitions of a completed request; empty if the request is not one of these.
    pub fn answered(&mut self, completion: &Completion) -> Vec<(TopicPartition, T)> {
        self.outstanding.remove(&completion.correlation_id).unwrap_or_default()
    }
}

/// Lets these partitions be asked again after retry.backoff.ms, and requests metadata, which may be out of date.
pub(super) fn ask_again(partitions: &[TopicPartition], state: &mut ConsumerState, now_ms: i64) {
    if !partitions.is_empty() {
        let retry_at_ms = now_ms.saturating_add(state.settings.retry_backoff_ms);
        state.subs.set_next_allowed_retry(partitions, retry_at_ms);
        state.metadata.request_update();
    }
}
