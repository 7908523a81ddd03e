//! Looking up where partitions without a position begin (spec 7.4 `resolvePositions`, 7.12). Kafka: `OffsetFetcher`,
//! `Fetcher#resetOffsetsIfNeeded`.

use fletchlog_api::{
    Completion, ErrorCode, IsolationLevel, ListOffsetsRequest, ListOffsetsResponse, Request, Response,
};
use fletchlog_protocol::messages::list_offsets_request::ListOffsetsPartition;
use fletchlog_records::TopicPartition;

use super::consumer_network_client::ConsumerNetworkClient;
use super::consumer_state::ConsumerState;
use super::leader_questions::{LeaderQuestions, ask_again};
use super::metadata::Leader;
use super::subscription_state::ResetStrategy;
use super::trace::{TraceEvent, TraceKind};
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
    pub fn send(&mut self, state: &mut ConsumerState, net: &mut ConsumerNetworkClient) -> Result<(), ClientError> {
        let ConsumerState {
            subs,
            metadata,
            settings,
            ..
        } = state;
        self.questions.take_failure()?;
        let wanted = subs.partitions_needing_reset(net.now_ms());
        let questions = wanted.into_iter().map(|(tp, strategy)| {
            let leader = metadata.leader(&tp);
            (tp, leader, strategy)
        });
        let now_ms = net.wall_ms();
        let request = |asked: &[(TopicPartition, Leader, ResetStrategy)]| {
            let lookups = asked
                .iter()
                .map(|(tp, leader, strategy)| (tp, *leader, timestamp_of(*strategy, now_ms)));
            list_offsets_request(settings.isolation_level, lookups)
        };
        let questions = questions.collect();
        let asked = self.questions.ask(questions, request, metadata, net);
        subs.set_next_allowed_retry(&asked, net.now_ms().saturating_add(settings.request_timeout_ms));
        Ok(())
    }

    /// Whether a completion is of a lookup.
    pub fn owns(&self, completion: &Completion) -> bool {
        self.questions.owns(completion)
    }

    /// The callback: sets positions that have not been changed since the request.
    pub fn on_completion(&mut self, completion: Completion, state: &mut ConsumerState, now_ms: i64) {
        let asked = self.questions.answered(&completion);
        let response: ListOffsetsResponse = match completion.result {
            Ok(Response::ListOffsets(response)) => response,
            _ => Default::default(),
        };
        let mut retry = Vec::new();
        let answers = response.by_partition();
        for (tp, strategy) in asked {
            let answer = answers.get(&(&*tp.topic, tp.partition));
            match answer.map(|answer| (answer.error_code, answer.found())) {
                Some((ErrorCode::NONE, Some(offset))) => {
                    let leader = state
                        .metadata
                        .leader(&tp)
                        .filter(|_| state.settings.row.reset_with_leader);
                    if state.subs.maybe_seek(&tp, offset, leader, strategy) {
                        state.trace.push(|| {
                            TraceEvent::of(TraceKind::Place, &tp)
                                .at(offset)
                                .because(format!("{strategy:?} offset looked up"))
                        });
                    }
                }
                // No record is that new: read from the log end.
                Some((ErrorCode::NONE, None)) if matches!(strategy, ResetStrategy::ByDuration(_)) => {
                    if state.subs.is_waiting_for(&tp, strategy) {
                        let _ = state.subs.request_offset_reset(&tp, ResetStrategy::Latest);
                    }
                }
                Some((error @ ErrorCode::TOPIC_AUTHORIZATION_FAILED, _)) => {
                    self.questions.fail(ClientError::kafka(error, &tp));
                }
                _ => {
                    log::debug!(
                        "lookup of the {strategy:?} offset of {tp} will be repeated: {}",
                        answer.map_or(ErrorCode::NETWORK_EXCEPTION, |answer| answer.error_code)
                    );
                    if let Some(answer) = answer {
                        state
                            .subs
                            .log_failed(&tp, answer.error_code, answer.error_message.as_deref());
                    }
                    retry.push(tp);
                }
            }
        }
        ask_again(&retry, state, now_ms);
    }
}

/// The timestamp to look up: a special value for a log start or end.
fn timestamp_of(strategy: ResetStrategy, now_ms: i64) -> i64 {
    match strategy {
        ResetStrategy::Earliest => ListOffsetsRequest::EARLIEST_TIMESTAMP,
        ResetStrategy::Latest => ListOffsetsRequest::LATEST_TIMESTAMP,
        ResetStrategy::ByDuration(ms) => now_ms.saturating_sub(ms).max(0),
    }
}

/// A ListOffsets request: the timestamp of each partition, for its leader.
pub(super) fn list_offsets_request<'a>(
    isolation_level: IsolationLevel,
    partitions: impl IntoIterator<Item = (&'a TopicPartition, Leader, i64)>,
) -> Request {
    let partitions = partitions.into_iter().map(|(tp, leader, timestamp)| {
        let partition = ListOffsetsPartition {
            partition_index: tp.partition,
            current_leader_epoch: leader.epoch,
            timestamp,
        };
        (tp.topic.clone(), partition)
    });
    Request::ListOffsets(ListOffsetsRequest::for_consumer(isolation_level, partitions))
}
