//! Looking up where partitions without a position begin (spec 7.4 `resolvePositions`, 7.12). Kafka: `OffsetFetcher`,
//! `Fetcher#resetOffsetsIfNeeded`.

use fletchlog_api::{Completion, ErrorCode, IsolationLevel, ListOffsetsRequest, Request, Response, list_offsets};
use fletchlog_records::TopicPartition;

use super::consumer_network_client::ConsumerNetworkClient;
use super::leader_questions::{LeaderQuestions, ask_again};
use super::metadata::{ConsumerMetadata, Leader};
use super::settings::Settings;
use super::subscription_state::{ResetStrategy, SubscriptionState};
use super::trace::{Trace, TraceEvent, TraceKind};
use crate::ClientError;

/// Offset lookups in flight.
#[derive(Debug, Default)]
pub struct OffsetReset {
    questions: LeaderQuestions<ResetStrategy>,
}

impl OffsetReset {
    /// Queues one ListOffsets per node for all partitions that await a reset and are not being looked up.
    ///
    /// # Errors
    /// The error of the last lookup, if it must not be repeated.
    pub fn send(
        &mut self,
        subs: &mut SubscriptionState,
        metadata: &mut ConsumerMetadata,
        net: &mut ConsumerNetworkClient,
        settings: &Settings,
    ) -> Result<(), ClientError> {
        self.questions.take_failure()?;
        let wanted = subs.partitions_needing_reset(net.now_ms());
        let questions = wanted.into_iter().map(|(tp, strategy)| {
            let leader = metadata.leader(&tp);
            (tp, leader, strategy)
        });
        let now_ms = net.wall_ms();
        let request = |asked: &[(TopicPartition, Leader, ResetStrategy)]| {
            let lookup = |(tp, leader, strategy): &(TopicPartition, Leader, ResetStrategy)| {
                (tp.clone(), leader.epoch, timestamp_of(*strategy, now_ms))
            };
            list_offsets_request(settings.isolation_level, asked.iter().map(lookup).collect())
        };
        let questions = questions.collect();
        let asked = self.questions.ask(questions, request, metadata, net);
        subs.set_next_allowed_retry(&asked, net.now_ms().saturating_add(settings.request_timeout_ms));
        Ok(())
    }

    /// Whether a completion is of a lookup.
    pub fn is_mine(&self, completion: &Completion) -> bool {
        self.questions.is_mine(completion)
    }

    /// The callback: sets positions that have not been changed since the request.
    pub fn on_completion(
        &mut self,
        completion: Completion,
        subs: &mut SubscriptionState,
        metadata: &mut ConsumerMetadata,
        settings: &Settings,
        trace: &mut Trace,
        now_ms: i64,
    ) {
        let asked = self.questions.answered(&completion);
        let answers = match completion.result {
            Ok(Response::ListOffsets(response)) => response.partitions,
            _ => Vec::new(),
        };
        let mut retry = Vec::new();
        for (tp, strategy) in asked {
            match answers.iter().find(|a| a.tp == tp) {
                Some(a) if a.error == ErrorCode::NONE && a.offset >= 0 => {
                    let leader = metadata.leader(&tp).filter(|_| settings.row.reset_with_leader);
                    if subs.maybe_seek(&tp, a.offset, leader, strategy) {
                        trace.push(|| {
                            TraceEvent::of(TraceKind::Place, &tp)
                                .at(a.offset)
                                .because(format!("{strategy:?} offset looked up"))
                        });
                    }
                }
                // No record is that new: read from the log end.
                Some(a) if a.error == ErrorCode::NONE && matches!(strategy, ResetStrategy::ByDuration(_)) => {
                    if subs.is_waiting_for(&tp, strategy) {
                        let _ = subs.request_offset_reset(&tp, ResetStrategy::Latest);
                    }
                }
                Some(a) if a.error == ErrorCode::TOPIC_AUTHORIZATION_FAILED => {
                    self.questions.fail(ClientError::kafka(a.error, &tp));
                }
                other => {
                    log::debug!(
                        "lookup of the {strategy:?} offset of {tp} will be repeated: {}",
                        other.map_or(ErrorCode::NETWORK_EXCEPTION, |a| a.error)
                    );
                    if let Some(answer) = other {
                        subs.log_failed(&tp, answer.error, answer.error_message.as_deref());
                    }
                    retry.push(tp);
                }
            }
        }
        ask_again(&retry, subs, metadata, settings, now_ms);
    }
}

/// The timestamp to look up: a special value for a log start or end.
fn timestamp_of(strategy: ResetStrategy, now_ms: i64) -> i64 {
    match strategy {
        ResetStrategy::Earliest => list_offsets::EARLIEST_TIMESTAMP,
        ResetStrategy::Latest => list_offsets::LATEST_TIMESTAMP,
        ResetStrategy::ByDuration(ms) => now_ms.saturating_sub(ms).max(0),
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
