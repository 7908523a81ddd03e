//! One node's fetch session, client side (spec 7.3). Kafka: `FetchSessionHandler`.

use fletchlog_api::{ErrorCode, FetchPartition, FetchResponse, PartitionStates};
use fletchlog_records::TopicPartition;
use rustc_hash::FxHashSet;

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

/// The client's view of the session: its partitions in the order in which they were added, with the last request's
/// values.
#[derive(Debug, Default)]
pub struct FetchSessionHandler {
    id: i32,
    epoch: i32,
    asked: PartitionStates<FetchPartition>,
    /// Of the partitions, those that were asked for without the id of their topic.
    without_id: FxHashSet<TopicPartition>,
    /// The session goes by topic ids.
    by_ids: bool,
    /// The request under way does not go by what the session goes by: it is refused.
    refused: bool,
}

impl FetchSessionHandler {
    /// A full request for what is wanted now, in this order; remembers it. Kafka: `FetchSessionHandler.Builder#build`.
    pub fn build_full(&mut self, wanted: Vec<FetchPartition>) -> SessionRequest {
        self.asked = wanted.iter().map(|p| (p.tp.clone(), p.clone())).collect();
        self.request(wanted, Vec::new())
    }

    /// An incremental request, which also remembers what it asks: the new partitions in the given order, then the
    /// altered ones in session order; partitions no longer wanted are taken out. `now` gives what is wanted of every
    /// partition that may have changed since the last request; it may include unchanged ones. `None` if no partition
    /// would be left in the session; then nothing is remembered. Kafka: `FetchSessionHandler.Builder#build`.
    pub fn build_incremental(&mut self, now: Vec<(TopicPartition, Option<FetchPartition>)>) -> Option<SessionRequest> {
        let mut added = Vec::new();
        let mut altered = Vec::new();
        let mut forgotten = Vec::new();
        for (tp, wanted) in now {
            match (self.asked.place(&tp), wanted) {
                (None, Some(wanted)) => added.push(wanted),
                (Some(place), None) => forgotten.push((place, tp)),
                (Some(place), Some(wanted)) if self.asked.get(&tp) != Some(&wanted) => altered.push((place, wanted)),
                _ => {}
            }
        }
        if self.asked.len() + added.len() == forgotten.len() {
            return None;
        }
        altered.sort_unstable_by_key(|&(place, _)| place);
        forgotten.sort_unstable_by_key(|&(place, _)| place);
        let forgotten: Vec<TopicPartition> = forgotten.into_iter().map(|(_, tp)| tp).collect();
        for tp in &forgotten {
            self.asked.remove(tp);
        }
        let mut partitions = added;
        partitions.extend(altered.into_iter().map(|(_, wanted)| wanted));
        for wanted in &partitions {
            self.asked.insert(wanted.tp.clone(), wanted.clone());
        }
        Some(self.request(partitions, forgotten))
    }

    fn request(&self, partitions: Vec<FetchPartition>, forgotten: Vec<TopicPartition>) -> SessionRequest {
        SessionRequest {
            session_id: self.id,
            session_epoch: self.epoch,
            partitions,
            forgotten,
        }
    }

    /// Notes whether the request that was just built can go by topic ids. One that does not go by what its session goes by is
    /// refused with FETCH_SESSION_TOPIC_ID_ERROR. Requests of ours carry names alone, so the client does that broker's part.
    /// Kafka: `FetchSessionHandler.Builder#build` (`canUseTopicIds`), `FetchManager#newContext` (spec 7.3).
    pub fn note_topic_ids(&mut self, request: &SessionRequest, without_id: FxHashSet<TopicPartition>) {
        let incremental = request.session_epoch > 0;
        let forgets = incremental && request.forgotten.iter().any(|tp| self.without_id.contains(tp));
        let by_ids = without_id.is_empty() && !forgets;
        self.refused = incremental && by_ids != self.by_ids;
        if !incremental {
            self.by_ids = by_ids;
        }
        self.without_id = without_id;
    }

    /// Whether the request under way is refused because of topic ids.
    pub fn is_refused(&self) -> bool {
        self.refused
    }

    /// Partitions of the session, in session order.
    pub fn partitions(&self) -> impl Iterator<Item = &TopicPartition> {
        self.asked.iter().map(|(tp, _)| tp)
    }

    /// Whether the request under way is a full one, or, with none under way, the next one has to be.
    pub fn is_full(&self) -> bool {
        self.epoch == 0
    }

    /// The offset asked for, `None` for a partition that is not in the session.
    pub fn fetch_offset(&self, tp: &TopicPartition) -> Option<i64> {
        self.asked.get(tp).map(|p| p.fetch_offset)
    }

    /// Checks an answer. `Err` gives the reason why it must be discarded; the next request then is a full one. Kafka:
    /// `FetchSessionHandler#handleResponse`.
    pub fn handle_response(&mut self, response: &FetchResponse) -> Result<(), String> {
        if response.error != ErrorCode::NONE {
            if response.error == ErrorCode::FETCH_SESSION_ID_NOT_FOUND {
                self.id = 0;
            }
            self.epoch = 0;
            return Err(format!("the broker answered {}", response.error));
        }
        if self.refused {
            self.epoch = 0;
            return Err(format!("refused: {}", ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR));
        }
        let extra = response.partitions.iter().find(|p| !self.asked.contains(&p.tp));
        if self.is_full() {
            let answered: FxHashSet<&TopicPartition> = response.partitions.iter().map(|p| &p.tp).collect();
            let omitted = self.partitions().find(|tp| !answered.contains(tp)).cloned();
            if let Some(tp) = extra.map(|p| p.tp.clone()).or(omitted) {
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
                last_fetched_epoch: -1,
                partition_max_bytes: 100,
            })
            .collect()
    }

    /// As a caller without information about changes does.
    fn build(h: &mut FetchSessionHandler, wanted: Vec<FetchPartition>) -> SessionRequest {
        if h.is_full() {
            return h.build_full(wanted);
        }
        let gone: Vec<TopicPartition> = h.partitions().cloned().collect();
        let gone = gone
            .into_iter()
            .filter(|tp| wanted.iter().all(|p| p.tp != *tp))
            .map(|tp| (tp, None));
        let now = wanted.iter().map(|p| (p.tp.clone(), Some(p.clone()))).chain(gone);
        h.build_incremental(now.collect()).unwrap()
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
                error_message: None,
                high_watermark: 0,
                last_stable_offset: 0,
                log_start_offset: 0,
                diverging_epoch: None,
                aborted_transactions: None,
                preferred_read_replica: None,
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
        let request = build(&mut h, wanted(&[("foo", 0, 0), ("foo", 1, 10)]));
        assert_eq!((request.session_id, request.session_epoch), (0, 0));
        h.handle_response(&answer(123, ErrorCode::NONE, &[("foo", 0), ("foo", 1)]))
            .unwrap();
        h
    }

    #[test]
    fn an_incremental_request_lists_new_partitions_then_altered_ones_and_leaves_out_unchanged_ones() {
        let mut h = established();
        let request = build(&mut h, wanted(&[("foo", 0, 0), ("foo", 1, 12), ("bar", 0, 20)]));
        assert_eq!((request.session_id, request.session_epoch), (123, 1));
        assert_eq!(names(&request.partitions), ["bar-0", "foo-1"]);
        assert!(request.forgotten.is_empty());
    }

    #[test]
    fn altered_partitions_go_in_session_order_whatever_order_is_wanted() {
        let mut h = established();
        let request = build(&mut h, wanted(&[("foo", 1, 12), ("foo", 0, 1)]));
        assert_eq!(names(&request.partitions), ["foo-0", "foo-1"]);
    }

    #[test]
    fn partitions_that_are_not_wanted_are_forgotten_and_come_back_as_new() {
        let mut h = established();
        let request = build(&mut h, wanted(&[("foo", 1, 10)]));
        assert_eq!(
            (request.partitions.len(), request.forgotten),
            (0, vec![TopicPartition::new("foo", 0)])
        );
        h.handle_response(&answer(123, ErrorCode::NONE, &[])).unwrap();
        let request = build(&mut h, wanted(&[("foo", 0, 0), ("foo", 1, 11)]));
        assert_eq!(
            (request.session_epoch, names(&request.partitions)),
            (2, vec!["foo-0".to_owned(), "foo-1".to_owned()])
        );
        assert_eq!(h.fetch_offset(&TopicPartition::new("foo", 1)), Some(11));
    }

    #[test]
    fn what_is_not_told_stays_as_it_was_and_nothing_wanted_makes_no_request() {
        let mut h = established();
        let none = |p: i32| (TopicPartition::new("foo", p), None);
        assert_eq!(h.build_incremental(vec![none(0), none(1)]), None);
        let request = h.build_incremental(vec![none(1)]).unwrap();
        assert_eq!(
            (names(&request.partitions).len(), request.forgotten),
            (0, vec![TopicPartition::new("foo", 1)])
        );
        assert_eq!(h.fetch_offset(&TopicPartition::new("foo", 0)), Some(0));
    }

    /// Requests for foo-0 at 0, 1, ..: of which topics the ids are missing; the session's epoch and whether the answer is good.
    fn by_ids(without_id: &[&[&str]]) -> Vec<(i32, bool)> {
        let mut h = FetchSessionHandler::default();
        let rounds = without_id.iter().zip(0..).map(|(topics, offset)| {
            let mut partitions = vec![("foo", 0, offset)];
            partitions.extend(topics.contains(&"bar").then_some(("bar", 0, 0)));
            let request = build(&mut h, wanted(&partitions));
            let without = topics.iter().map(|&topic| TopicPartition::new(topic, 0));
            h.note_topic_ids(&request, without.collect());
            let answered: Vec<_> = partitions.iter().map(|&(topic, p, _)| (topic, p)).collect();
            let good = h.handle_response(&answer(123, ErrorCode::NONE, &answered)).is_ok();
            (request.session_epoch, good)
        });
        rounds.collect()
    }

    #[test]
    fn a_request_that_goes_by_names_in_a_session_of_ids_is_refused_and_the_next_begins_a_session() {
        let rounds = by_ids(&[&[], &[], &["foo"], &["foo"], &["foo"], &[], &[], &[]]);
        let (good, refused) = (|epoch| (epoch, true), |epoch| (epoch, false));
        assert_eq!(
            rounds,
            [
                good(0),
                good(1),
                refused(2),
                good(0),
                good(1),
                refused(2),
                good(0),
                good(1)
            ]
        );
    }

    #[test]
    fn what_had_no_id_when_it_was_asked_for_is_forgotten_by_name() {
        assert_eq!(
            by_ids(&[&["bar"], &[], &[]]),
            [(0, true), (1, true), (2, false)],
            "the request that forgets bar-0 still goes by names, the next one by ids"
        );
    }

    #[test]
    fn session_errors_lead_to_a_full_request() {
        let mut h = established();
        build(&mut h, wanted(&[("foo", 0, 0)]));
        assert!(
            h.handle_response(&answer(0, ErrorCode::INVALID_FETCH_SESSION_EPOCH, &[]))
                .is_err()
        );
        let request = build(&mut h, wanted(&[("foo", 0, 0)]));
        assert_eq!((request.session_id, request.session_epoch), (123, 0));
        assert!(
            h.handle_response(&answer(0, ErrorCode::FETCH_SESSION_ID_NOT_FOUND, &[]))
                .is_err()
        );
        let request = build(&mut h, wanted(&[("foo", 0, 0)]));
        assert_eq!((request.session_id, request.session_epoch), (0, 0));
    }

    #[test]
    fn a_full_answer_with_a_partition_missing_or_extra_is_rejected() {
        for partitions in [&[("foo", 0)][..], &[("foo", 0), ("foo", 1), ("bar", 0)][..]] {
            let mut h = FetchSessionHandler::default();
            build(&mut h, wanted(&[("foo", 0, 0), ("foo", 1, 10)]));
            assert!(h.handle_response(&answer(7, ErrorCode::NONE, partitions)).is_err());
            assert_eq!(build(&mut h, wanted(&[("foo", 0, 0)])).session_epoch, 0);
        }
    }

    #[test]
    fn a_broker_without_a_free_session_gets_full_requests() {
        let mut h = FetchSessionHandler::default();
        build(&mut h, wanted(&[("foo", 0, 0)]));
        h.handle_response(&answer(0, ErrorCode::NONE, &[("foo", 0)])).unwrap();
        assert_eq!(build(&mut h, wanted(&[("foo", 0, 5)])).session_epoch, 0);
    }
}
