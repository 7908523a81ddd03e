//! A lookup of offsets that moves no position, and its responses (spec 5, 7.12).

use std::collections::BTreeMap;

use fletchlog_api::{Completion, ErrorCode, ListOffsetsResponse, Response};
use fletchlog_records::TopicPartition;

use super::OffsetAndTimestamp;
use super::leader_questions::LeaderQuestions;
use super::metadata::ConsumerMetadata;
use crate::ClientError;

/// A call in progress: partitions to be requested (`open`), requested and answered.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    /// Timestamp and earliest time of the next attempt.
    pub(super) open: BTreeMap<TopicPartition, (i64, i64)>,
    pub(super) questions: LeaderQuestions<i64>,
    pub(super) found: BTreeMap<TopicPartition, Option<OffsetAndTimestamp>>,
}

impl Lookup {
    pub fn owns(&self, completion: &Completion) -> bool {
        self.questions.owns(completion)
    }

    pub fn on_completion(&mut self, completion: Completion, metadata: &mut ConsumerMetadata, retry_at_ms: i64) {
        let asked = self.questions.answered(&completion);
        let response: ListOffsetsResponse = match completion.result {
            Ok(Response::ListOffsets(response)) => response,
            _ => Default::default(),
        };
        let answers = response.by_partition();
        for (tp, timestamp) in asked {
            match answers.get(&(&*tp.topic, tp.partition)).map(|a| (a.error_code, a)) {
                Some((ErrorCode::NONE, a)) => {
                    let found = a.found().map(|offset| OffsetAndTimestamp {
                        offset,
                        timestamp: a.timestamp,
                        leader_epoch: a.leader_epoch,
                    });
                    self.found.insert(tp, found);
                }
                Some((ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT, _)) => {
                    self.found.insert(tp, None);
                }
                Some((error, _)) if !error.is_retriable() => {
                    let failure = ClientError::kafka(error, format_args!("lookup of an offset of {tp}"));
                    self.questions.fail(failure);
                }
                // Java retries until the time-out when a log cannot be read.
                Some((error, a)) if a.error_message.is_some() => {
                    let why = a.error_message.as_deref().unwrap_or_default();
                    self.questions.fail(ClientError::unreadable(&tp, error, why));
                }
                _ => {
                    metadata.request_update();
                    self.open.insert(tp, (timestamp, retry_at_ms));
                }
            }
        }
    }
}
