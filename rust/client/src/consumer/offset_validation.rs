//! Asking leaders whether positions still stand after a change of leader (KIP-320). Kafka: `Fetcher#validateOffsetsIfNeeded`,
//! `OffsetsForLeaderEpochClient`.

use std::collections::BTreeMap;

use fletchlog_api::{Completion, ErrorCode, NodeId, OffsetForLeaderEpochRequest, Request, Response};
use fletchlog_records::TopicPartition;

use super::metadata::Metadata;
use super::network_client::{ConsumerNetworkClient, RequestId};
use super::settings::Settings;
use super::subscription_state::{FetchPosition, SubscriptionState, Validated};
use super::trace::{Trace, TraceEvent, TraceKind};
use crate::ClientError;

/// Questions under way.
#[derive(Debug, Default)]
pub struct OffsetValidation {
    outstanding: BTreeMap<RequestId, Vec<(TopicPartition, FetchPosition)>>,
    failure: Option<ClientError>,
    /// Version of the metadata that the positions were last held against.
    checked_metadata: u64,
}

impl OffsetValidation {
    /// Holds the positions against the leaders, if those may have changed. Kafka: `validatePositionsOnMetadataChange`.
    pub fn refresh(&mut self, subs: &mut SubscriptionState, metadata: &Metadata) {
        if self.checked_metadata != metadata.version() {
            self.checked_metadata = metadata.version();
            subs.validate_positions(metadata);
        }
    }

    /// Queues one OffsetForLeaderEpoch per node for all positions that need it.
    ///
    /// # Errors
    /// `LogTruncation` when a log was cut below a position and auto.offset.reset is none; what may not be repeated.
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
        self.refresh(subs, metadata);
        if subs.has_all_fetch_positions() {
            return Ok(());
        }
        let now = net.now_ms();
        let mut by_node: BTreeMap<NodeId, Vec<(TopicPartition, FetchPosition)>> = BTreeMap::new();
        for (tp, position) in subs.partitions_needing_validation(now) {
            match position.leader {
                None => metadata.request_update(),
                Some(leader) if net.is_unavailable(leader.node) => {}
                Some(leader) => by_node.entry(leader.node).or_default().push((tp, position)),
            }
        }
        for (node, asked) in by_node {
            let partitions = asked
                .iter()
                .map(|(tp, p)| (tp.clone(), p.leader.map_or(-1, |l| l.epoch), p.epoch))
                .collect();
            subs.set_next_allowed_retry(
                asked.iter().map(|(tp, _)| tp),
                now.saturating_add(settings.request_timeout_ms),
            );
            let request = Request::OffsetForLeaderEpoch(OffsetForLeaderEpochRequest { partitions });
            self.outstanding.insert(net.send(node, request), asked);
        }
        Ok(())
    }

    /// Whether a completion answers a question.
    pub fn is_mine(&self, completion: &Completion) -> bool {
        self.outstanding.contains_key(&completion.correlation_id)
    }

    /// The callback.
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
            Ok(Response::OffsetForLeaderEpoch(response)) => response.partitions,
            _ => Vec::new(),
        };
        let mut diverged = BTreeMap::new();
        let mut retry = Vec::new();
        for (tp, position) in asked {
            let answer = answers.iter().find(|a| a.tp == tp);
            match answer {
                Some(end) if end.error == ErrorCode::NONE => {
                    let outcome = subs.maybe_complete_validation(&tp, position, end);
                    note(trace, &tp, position, outcome);
                    if let Validated::Diverged(at) = outcome {
                        diverged.insert(tp, (position.offset, at));
                    }
                }
                Some(end) if end.error == ErrorCode::TOPIC_AUTHORIZATION_FAILED => {
                    self.failure = Some(ClientError::kafka(end.error, &tp));
                }
                _ => retry.push(tp),
            }
        }
        if !diverged.is_empty() {
            self.failure = Some(ClientError::LogTruncation(diverged));
        }
        if !retry.is_empty() {
            subs.set_next_allowed_retry(&retry, now_ms.saturating_add(settings.retry_backoff_ms));
            metadata.request_update();
        }
    }
}

fn note(trace: &mut Trace, tp: &TopicPartition, position: FetchPosition, outcome: Validated) {
    let (at, why) = match outcome {
        Validated::Kept => return,
        Validated::Truncated(offset) => (offset, "the log was cut below the position: first offset that differs"),
        Validated::Reset(_) => (position.offset, "the log was cut below the position: reset by policy"),
        Validated::Diverged(_) => (
            position.offset,
            "the log was cut below the position and the policy is none",
        ),
    };
    log::warn!("{tp}: the log was cut below position {}: {outcome:?}", position.offset);
    trace.push(|| TraceEvent::of(TraceKind::Reset, tp).at(at).because(why));
}
