//! One node's fetch session, client side (spec 7.3). Kafka: `FetchSessionHandler`.

use fletchlog_api::{ErrorCode, FetchPartition, FetchResponse};
use fletchlog_records::TopicPartition;
use rustc_hash::{FxHashMap, FxHashSet};

/// What a request carries for its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRequest {
    /// Session id, 0 none.
    pub session_id: i32,
    /// 0 full, n > 0 incremental.
    pub session_epoch: i32,
    /// Partitions in wire order.
    pub partitions: Vec<FetchPartition>,
    /// Partitions to take out of the session.
    pub forgotten: Vec<TopicPartition>,
}

/// The session as the client knows it: its partitions in the order in which they entered, with what was last asked.
#[derive(Debug, Default)]
pub struct FetchSessionHandler {
    id: i32,
    epoch: i32,
    order: Vec<TopicPartition>,
    asked: FxHashMap<TopicPartition, FetchPartition>,
}

impl FetchSessionHandler {
    /// Turns what is wanted now into a request and remembers it. A full request lists everything in the given order; an
    /// incremental one the new partitions in the given order, then the altered ones in session order, and takes out those
    /// that are not wanted. Kafka: `FetchSessionHandler.Builder#build`.
    pub fn build(&mut self, wanted: Vec<FetchPartition>) -> SessionRequest {
        let (session_id, session_epoch) = (self.id, self.epoch);
        if session_epoch == 0 {
            self.order = wanted.iter().map(|p| p.tp.clone()).collect();
            self.asked = wanted.iter().map(|p| (p.tp.clone(), p.clone())).collect();
            return SessionRequest {
                session_id,
                session_epoch,
                partitions: wanted,
                forgotten: Vec::new(),
            };
        }
        let mut next: FxHashMap<&TopicPartition, &FetchPartition> = wanted.iter().map(|p| (&p.tp, p)).collect();
        let mut altered = Vec::new();
        let mut forgotten = Vec::new();
        let asked = &mut self.asked;
        self.order.retain(|tp| match next.remove(tp) {
            Some(wanted) => {
                if asked.get(tp) != Some(wanted) {
                    asked.insert(tp.clone(), wanted.clone());
                    altered.push(wanted.clone());
                }
                true
            }
            None => {
                asked.remove(tp);
                forgotten.push(tp.clone());
                false
            }
        });
        let mut partitions: Vec<FetchPartition> = wanted.iter().filter(|p| next.contains_key(&p.tp)).cloned().collect();
        for added in &partitions {
            self.order.push(added.tp.clone());
            self.asked.insert(added.tp.clone(), added.clone());
        }
        partitions.append(&mut altered);
        SessionRequest {
            session_id,
            session_epoch,
            partitions,
            forgotten,
        }
    }

    /// Whether the request under way was a full one.
    pub fn is_full(&self) -> bool {
        self.epoch == 0
    }

    /// The offset asked for, `None` for a partition that is not in the session.
    pub fn fetch_offset(&self, tp: &TopicPartition) -> Option<i64> {
        self.asked.get(tp).map(|p| p.fetch_offset)
    }

    /// Judges an answer. `Err` says why it has to be thrown away; the next request then is a full one.
    /// Kafka: `FetchSessionHandler#handleResponse`.
    pub fn handle_response(&mut self, response: &FetchResponse) -> Result<(), String> {
        if response.error != ErrorCode::NONE {
            if response.error == ErrorCode::FETCH_SESSION_ID_NOT_FOUND {
                self.id = 0;
            }
            self.epoch = 0;
            return Err(format!("the broker answered {}", response.error));
        }
        let extra = response.partitions.iter().find(|p| !self.asked.contains_key(&p.tp));
        if self.is_full() {
            let answered: FxHashSet<&TopicPartition> = response.partitions.iter().map(|p| &p.tp).collect();
            let omitted = self.order.iter().find(|tp| !answered.contains(tp));
            if let Some(tp) = extra.map(|p| &p.tp).or(omitted) {
                self.id = 0;
                return Err(format!(
                    "the answer to a full fetch has one partition too many or too few: {tp}"
                ));
            }
        } else if let Some(p) = extra {
            self.epoch = 0;
            return Err(format!("the answer holds {}, which is not in the session", p.tp));
        }
        if response.session_id == 0 {
            (self.id, self.epoch) = (0, 0);
        } else if self.is_full() {
            (self.id, self.epoch) = (response.session_id, 1);
        } else {
            self.epoch = if self.epoch == i32::MAX { 1 } else { self.epoch + 1 };
        }
        Ok(())
    }

    /// The connection was lost: the next request closes the old session and is a full one.
    pub fn handle_error(&mut self) {
        self.epoch = 0;
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use fletchlog_api::FetchPartitionResponse;

    use super::*;

    fn wanted(list: &[(&str, i32, i64)]) -> Vec<FetchPartition> {
        list.iter()
            .map(|&(topic, p, fetch_offset)| FetchPartition {
                tp: TopicPartition::new(topic, p),
                fetch_offset,
                current_leader_epoch: -1,
                partition_max_bytes: 100,
            })
            .collect()
    }

    fn names(list: &[FetchPartition]) -> Vec<String> {
        list.iter().map(|p| p.tp.to_string()).collect()
    }

    fn answer(session_id: i32, error: ErrorCode, partitions: &[(&str, i32)]) -> FetchResponse {
        let partitions = partitions
            .iter()
            .map(|&(t, p)| FetchPartitionResponse {
                tp: TopicPartition::new(t, p),
                error: ErrorCode::NONE,
                high_watermark: 0,
                last_stable_offset: 0,
                log_start_offset: 0,
                aborted_transactions: None,
                records: Bytes::new(),
            })
            .collect();
        FetchResponse {
            error,
            session_id,
            partitions,
        }
    }

    fn established() -> FetchSessionHandler {
        let mut h = FetchSessionHandler::default();
        let request = h.build(wanted(&[("foo", 0, 0), ("foo", 1, 10)]));
        assert_eq!((request.session_id, request.session_epoch), (0, 0));
        h.handle_response(&answer(123, ErrorCode::NONE, &[("foo", 0), ("foo", 1)]))
            .unwrap();
        h
    }

    #[test]
    fn an_incremental_request_lists_new_partitions_then_altered_ones_and_leaves_out_unchanged_ones() {
        let mut h = established();
        let request = h.build(wanted(&[("foo", 0, 0), ("foo", 1, 12), ("bar", 0, 20)]));
        assert_eq!((request.session_id, request.session_epoch), (123, 1));
        assert_eq!(names(&request.partitions), ["bar-0", "foo-1"]);
        assert!(request.forgotten.is_empty());
    }

    #[test]
    fn altered_partitions_go_in_session_order_whatever_order_is_wanted() {
        let mut h = established();
        let request = h.build(wanted(&[("foo", 1, 12), ("foo", 0, 1)]));
        assert_eq!(names(&request.partitions), ["foo-0", "foo-1"]);
    }

    #[test]
    fn partitions_that_are_not_wanted_are_forgotten_and_come_back_as_new() {
        let mut h = established();
        let request = h.build(wanted(&[("foo", 1, 10)]));
        assert_eq!(
            (request.partitions.len(), request.forgotten),
            (0, vec![TopicPartition::new("foo", 0)])
        );
        h.handle_response(&answer(123, ErrorCode::NONE, &[])).unwrap();
        let request = h.build(wanted(&[("foo", 0, 0), ("foo", 1, 11)]));
        assert_eq!(
            (request.session_epoch, names(&request.partitions)),
            (2, vec!["foo-0".to_owned(), "foo-1".to_owned()])
        );
        assert_eq!(h.fetch_offset(&TopicPartition::new("foo", 1)), Some(11));
    }

    #[test]
    fn session_errors_lead_to_a_full_request() {
        let mut h = established();
        h.build(wanted(&[("foo", 0, 0)]));
        assert!(
            h.handle_response(&answer(0, ErrorCode::INVALID_FETCH_SESSION_EPOCH, &[]))
                .is_err()
        );
        let request = h.build(wanted(&[("foo", 0, 0)]));
        assert_eq!((request.session_id, request.session_epoch), (123, 0));
        assert!(
            h.handle_response(&answer(0, ErrorCode::FETCH_SESSION_ID_NOT_FOUND, &[]))
                .is_err()
        );
        let request = h.build(wanted(&[("foo", 0, 0)]));
        assert_eq!((request.session_id, request.session_epoch), (0, 0));
    }

    #[test]
    fn a_full_answer_with_a_partition_missing_or_extra_is_rejected() {
        for partitions in [&[("foo", 0)][..], &[("foo", 0), ("foo", 1), ("bar", 0)][..]] {
            let mut h = FetchSessionHandler::default();
            h.build(wanted(&[("foo", 0, 0), ("foo", 1, 10)]));
            assert!(h.handle_response(&answer(7, ErrorCode::NONE, partitions)).is_err());
            assert_eq!(h.build(wanted(&[("foo", 0, 0)])).session_epoch, 0);
        }
    }

    #[test]
    fn a_broker_without_a_free_session_gets_full_requests() {
        let mut h = FetchSessionHandler::default();
        h.build(wanted(&[("foo", 0, 0)]));
        h.handle_response(&answer(0, ErrorCode::NONE, &[("foo", 0)])).unwrap();
        assert_eq!(h.build(wanted(&[("foo", 0, 5)])).session_epoch, 0);
    }
}
