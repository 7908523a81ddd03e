//! Asking leaders whether positions are still valid after a change of leader (KIP-320).
//! Kafka: `Fetcher#validateOffsetsIfNeeded`, `OffsetsForLeaderEpochClient`.

use std::collections::BTreeMap;

use fletchlog_api::{
    Completion, ErrorCode, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, Request, Response,
};
use fletchlog_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use fletchlog_records::TopicPartition;

use super::consumer_network_client::ConsumerNetworkClient;
use super::consumer_state::ConsumerState;
use super::leader_questions::{LeaderQuestions, ask_again};
use super::metadata::{ConsumerMetadata, Leader};
use super::subscription_state::{FetchPosition, SubscriptionState, Validated};
use super::trace::{Trace, TraceEvent, TraceKind};
use crate::ClientError;

/// Validation requests in flight.
#[derive(Debug, Default)]
pub struct OffsetValidation {
    questions: LeaderQuestions<FetchPosition>,
    /// Versions at the last check: of the metadata, and of the positions that were set other than by reading.
    checked: (u64, u64),
}

impl OffsetValidation {
    /// Checks the positions against the leaders, if either may have changed.
    /// Kafka: `validatePositionsOnMetadataChange`; up to release 2.6 `prepareFetchRequests` does this itself, which gives a
    /// looked-up position its leader.
    pub fn refresh(&mut self, subs: &mut SubscriptionState, metadata: &ConsumerMetadata) {
        let versions = (metadata.version(), subs.jumps());
        if self.checked != versions {
            self.checked = versions;
            subs.validate_positions(metadata);
        }
    }

    /// Queues one OffsetForLeaderEpoch per node for all positions that need it.
    ///
    /// # Errors
    /// `LogTruncation` if a log was cut below a position and auto.offset.reset is none; errors that must not be
    /// retried.
    pub fn send(&mut self, state: &mut ConsumerState, net: &mut ConsumerNetworkClient) -> Result<(), ClientError> {
        let ConsumerState {
            subs,
            metadata,
            settings,
            ..
        } = state;
        self.questions.take_failure()?;
        self.refresh(subs, metadata);
        if subs.has_all_fetch_positions() {
            return Ok(());
        }
        let questions = subs.partitions_needing_validation(net.now_ms());
        let questions = questions
            .into_iter()
            .map(|(tp, position)| (tp, position.leader, position))
            .collect();
        let request = |asked: &[(TopicPartition, Leader, FetchPosition)]| {
            let partitions = asked.iter().map(|(tp, leader, position)| {
                let partition = OffsetForLeaderPartition {
                    partition: tp.partition,
                    current_leader_epoch: leader.epoch,
                    leader_epoch: position.epoch,
                };
                (tp.topic.clone(), partition)
            });
            Request::OffsetForLeaderEpoch(OffsetForLeaderEpochRequest::for_consumer(partitions))
        };
        let asked = self.questions.ask(questions, request, metadata, net);
        subs.set_next_allowed_retry(&asked, net.now_ms().saturating_add(settings.request_timeout_ms));
        Ok(())
    }

    /// Whether a completion is of a validation request.
    pub fn owns(&self, completion: &Completion) -> bool {
        self.questions.owns(completion)
    }

    /// The callback of a validation request.
    pub fn on_completion(&mut self, completion: Completion, state: &mut ConsumerState, now_ms: i64) {
        let asked = self.questions.answered(&completion);
        let response: OffsetForLeaderEpochResponse = match completion.result {
            Ok(Response::OffsetForLeaderEpoch(response)) => response,
            _ => Default::default(),
        };
        let mut diverged = BTreeMap::new();
        let mut retry = Vec::new();
        let answers = response.by_partition();
        for (tp, position) in asked {
            match answers.get(&(&*tp.topic, tp.partition)).copied() {
                Some(end) if end.error_code == ErrorCode::NONE => {
                    let outcome = state.subs.maybe_complete_validation(&tp, position, end);
                    note(&mut state.trace, &tp, position, outcome);
                    if let Validated::Diverged(at) = outcome {
                        diverged.insert(tp, (position.offset, at));
                    }
                }
                Some(end) if end.error_code == ErrorCode::TOPIC_AUTHORIZATION_FAILED => {
                    self.questions.fail(ClientError::kafka(end.error_code, &tp));
                }
                other => {
                    if let Some(answer) = other {
                        state
                            .subs
                            .log_failed(&tp, answer.error_code, answer.error_message.as_deref());
                    }
                    retry.push(tp);
                }
            }
        }
        if !diverged.is_empty() {
            self.questions.fail(ClientError::LogTruncation(diverged));
        }
        ask_again(&retry, state, now_ms);
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
    trace.push(|| TraceEvent::of(TraceKind::Place, tp).at(at).because(why));
}
