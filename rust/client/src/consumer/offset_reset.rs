//! Looking up where partitions without a position begin (spec 7.4 `resolvePositions`, 7.12). Kafka: `OffsetFetcher`,
//! `Fetcher#resetOffsetsIfNeeded`.

use std::collections::BTreeMap;

use fletchlog_api::{
    Completion, ErrorCode, IsolationLevel, ListOffsetsRequest, NodeId, Request, Response, list_offsets,
};
use fletchlog_records::TopicPartition;

use super::metadata::Metadata;
use super::network_client::{ConsumerNetworkClient, RequestId};
use super::settings::Settings;
use super::subscription_state::{ResetStrategy, SubscriptionState};
use super::trace::{Trace, TraceEvent, TraceKind};
use crate::ClientError;

/// Lookups under way.
#[derive(Debug, Default)]
pub struct OffsetReset {
    outstanding: BTreeMap<RequestId, Vec<(TopicPartition, ResetStrategy)>>,
    failure: Option<ClientError>,
}

impl OffsetReset {
    /// Queues one ListOffsets per node for all partitions awaiting a reset that are not in a lookup under way.
    ///
    /// # Errors
    /// What the last lookup failed with, if it may not be repeated.
    pub fn send(
        &mut self,
        subs: &mut SubscriptionState,
        metadata: &mut Metadata,
        net: &mut ConsumerNetworkClient,
        settings: &Settings,
    ) -> Result<(), ClientError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let now = net.now_ms();
        let mut by_node: BTreeMap<NodeId, Vec<(TopicPartition, i32, ResetStrategy)>> = BTreeMap::new();
        for (tp, strategy) in subs.partitions_needing_reset(now) {
            match metadata.leader(&tp) {
                None => metadata.request_update(),
                Some(leader) if net.is_unavailable(leader.node) => {}
                Some(leader) => by_node
                    .entry(leader.node)
                    .or_default()
                    .push((tp, leader.epoch, strategy)),
            }
        }
        for (node, list) in by_node {
            let partitions = list
                .iter()
                .map(|(tp, epoch, strategy)| (tp.clone(), *epoch, timestamp_of(*strategy)))
                .collect();
            let asked: Vec<(TopicPartition, ResetStrategy)> =
                list.into_iter().map(|(tp, _, strategy)| (tp, strategy)).collect();
            let tps: Vec<TopicPartition> = asked.iter().map(|(tp, _)| tp.clone()).collect();
            subs.set_next_allowed_retry(&tps, now.saturating_add(settings.request_timeout_ms));
            let request = list_offsets_request(settings.isolation_level, partitions);
            self.outstanding.insert(net.send(node, request), asked);
        }
        Ok(())
    }

    /// Whether a completion answers a lookup.
    pub fn is_mine(&self, completion: &Completion) -> bool {
        self.outstanding.contains_key(&completion.correlation_id)
    }

    /// The callback: positions are set where nothing has happened since.
    pub fn on_completion(
        &mut self,
        completion: Completion,
        subs: &mut SubscriptionState,
        metadata: &mut Metadata,
        settings: &Settings,
        trace: &mut Trace,
        now_ms: i64,
    ) {
        let Some(asked) = self.outstanding.remove(&completion.correlation_id) else {
            return;
        };
        let answers = match completion.result {
            Ok(Response::ListOffsets(response)) => response.partitions,
            _ => Vec::new(),
        };
        let mut retry = Vec::new();
        for (tp, strategy) in asked {
            match answers.iter().find(|a| a.tp == tp) {
                Some(a) if a.error == ErrorCode::NONE && a.offset >= 0 => {
                    if subs.maybe_seek(&tp, a.offset, metadata.leader(&tp), strategy) {
                        trace.push(|| {
                            TraceEvent::of(TraceKind::Reset, &tp)
                                .at(a.offset)
                                .because(format!("{strategy:?} offset looked up"))
                        });
                    }
                }
                Some(a) if a.error == ErrorCode::TOPIC_AUTHORIZATION_FAILED => {
                    self.failure = Some(ClientError::kafka(a.error, &tp))
                }
                other => {
                    log::debug!(
                        "lookup of the {strategy:?} offset of {tp} will be repeated: {}",
                        other.map_or(ErrorCode::NETWORK_EXCEPTION, |a| a.error)
                    );
                    retry.push(tp);
                }
            }
        }
        if !retry.is_empty() {
            subs.set_next_allowed_retry(&retry, now_ms.saturating_add(settings.retry_backoff_ms));
            metadata.request_update();
        }
    }
}

/// The special timestamp of an end.
pub(super) fn timestamp_of(strategy: ResetStrategy) -> i64 {
    match strategy {
        ResetStrategy::Earliest => list_offsets::EARLIEST_TIMESTAMP,
        ResetStrategy::Latest => list_offsets::LATEST_TIMESTAMP,
    }
}

/// A ListOffsets request.
pub(super) fn list_offsets_request(
    isolation_level: IsolationLevel,
    partitions: Vec<(TopicPartition, i32, i64)>,
) -> Request {
    Request::ListOffsets(ListOffsetsRequest {
        isolation_level,
        partitions,
    })
}
