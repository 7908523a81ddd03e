//! One node's fetch session, client side (spec 7.3). Kafka: `FetchSessionHandler`.

use std::sync::Arc;

use fletchlog_api::{ErrorCode, FetchRequest, FetchResponse, NO_TOPIC_ID, PartitionStates, TopicId, topic_id_of};
use fletchlog_protocol::local::FetchTopicIds;
use fletchlog_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use fletchlog_records::TopicPartition;
use rustc_hash::{FxHashMap, FxHashSet};

/// What is wanted of a partition.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// Id of its topic; [`NO_TOPIC_ID`] if it is not known.
    pub topic_id: TopicId,
    /// As the request has it.
    pub partition: FetchPartition,
}

/// The topics of a session's partitions by their ids. Kafka: `FetchSessionHandler#sessionTopicNames`.
#[derive(Debug, Default)]
struct SessionTopics {
    /// Topic name, and the number of the session's partitions with this id.
    names: FxHashMap<TopicId, (Arc<str>, usize)>,
    /// Partitions whose topic has no known id.
    without_id: usize,
}

impl SessionTopics {
    fn add(&mut self, topic: &Arc<str>, topic_id: TopicId) {
        if topic_id == NO_TOPIC_ID {
            self.without_id += 1;
            return;
        }
        self.names.entry(topic_id).or_insert_with(|| (Arc::clone(topic), 0)).1 += 1;
    }

    fn remove(&mut self, topic_id: TopicId) {
        if topic_id == NO_TOPIC_ID {
            self.without_id -= 1;
        } else if let Some((_, count)) = self.names.get_mut(&topic_id) {
            *count -= 1;
            if *count == 0 {
                self.names.remove(&topic_id);
            }
        }
    }
}

/// The client's view of the session: its partitions in the order in which they were added, with the last request's
/// values.
#[derive(Debug, Default)]
pub struct FetchSessionHandler {
    id: i32,
    epoch: i32,
    asked: PartitionStates<Wanted>,
    topics: SessionTopics,
    /// With an in-process broker: the partitions that were requested without the id of their topic.
    without_id: FxHashSet<TopicPartition>,
    /// With an in-process broker: the session uses topic ids.
    by_ids: bool,
    /// With an in-process broker: the request in flight uses ids and the session does not, or the reverse.
    refused: bool,
}

impl FetchSessionHandler {
    /// Builds a full request for what is wanted now, in this order, and remembers it.
    /// Kafka: `FetchSessionHandler.Builder#build`.
    pub fn build_full(&mut self, wanted: Vec<(TopicPartition, Wanted)>) -> FetchRequest {
        let topics = topics(&wanted);
        self.topics = SessionTopics::default();
        wanted
            .iter()
            .for_each(|(tp, wanted)| self.topics.add(&tp.topic, wanted.topic_id));
        self.asked = wanted.into_iter().collect();
        self.request(topics, &[], Vec::new())
    }

    /// Builds an incremental request and remembers what it requests: new partitions in the given order, then altered
    /// ones in session order; partitions no longer wanted are removed. `now` has what is wanted of every partition that
    /// may have changed since the last request; it may include unchanged ones. Returns `None`, and remembers nothing,
    /// if no partition would be left in the session. Kafka: `FetchSessionHandler.Builder#build`.
    pub fn build_incremental(&mut self, now: Vec<(TopicPartition, Option<Wanted>)>) -> Option<FetchRequest> {
        let mut added = Vec::new();
        let mut altered = Vec::new();
        let mut forgotten = Vec::new();
        for (tp, wanted) in now {
            match (self.asked.place(&tp), wanted) {
                (None, Some(wanted)) => added.push((tp, wanted)),
                (Some(place), None) => forgotten.push((place, tp)),
                (Some(place), Some(wanted)) if self.asked.get(&tp) != Some(&wanted) => {
                    altered.push((place, (tp, wanted)));
                }
                _ => {}
            }
        }
        if self.asked.len() + added.len() == forgotten.len() {
            return None;
        }
        altered.sort_unstable_by_key(|&(place, _)| place);
        forgotten.sort_unstable_by_key(|&(place, _)| place);
        let mut former_ids: Vec<(TopicPartition, TopicId)> = Vec::new();
        for (_, tp) in forgotten {
            if let Some(former) = self.asked.get(&tp).map(|former| former.topic_id) {
                self.topics.remove(former);
                self.asked.remove(&tp);
                former_ids.push((tp, former));
            }
        }
        let mut partitions = added;
        partitions.extend(altered.into_iter().map(|(_, altered)| altered));
        let topics = topics(&partitions);
        let mut replaced = Vec::new();
        for (tp, wanted) in partitions {
            if let Some(former) = self.asked.get(&tp).map(|former| former.topic_id) {
                if former != wanted.topic_id && former != NO_TOPIC_ID && wanted.topic_id != NO_TOPIC_ID {
                    replaced.push((former, tp.partition));
                }
                self.topics.remove(former);
            }
            self.topics.add(&tp.topic, wanted.topic_id);
            self.asked.insert(tp, wanted);
        }
        Some(self.request(topics, &former_ids, replaced))
    }

    /// A request of these partitions that forgets others, with the ids that the session had for their topics. It can use ids if those of
    /// all topics of the session are known. Kafka: `FetchRequestData#canUseTopicIds`, `#toForget`, `#toReplace`.
    fn request(
        &self,
        topics: Vec<FetchTopic>,
        forgotten: &[(TopicPartition, TopicId)],
        replaced: Vec<(TopicId, i32)>,
    ) -> FetchRequest {
        let by_ids = self.topics.without_id == 0 && forgotten.iter().all(|(_, id)| *id != NO_TOPIC_ID);
        let runs = forgotten.chunk_by(|(a, id), (b, other)| a.topic == b.topic && id == other);
        let forgotten = runs.map(|run| ForgottenTopic {
            topic: Arc::clone(&run[0].0.topic),
            topic_id: run[0].1,
            partitions: run.iter().map(|(tp, _)| tp.partition).collect(),
        });
        FetchRequest {
            session_id: self.id,
            session_epoch: self.epoch,
            topics,
            forgotten_topics_data: forgotten.collect(),
            topic_ids: FetchTopicIds { by_ids, replaced },
            ..Default::default()
        }
    }

    /// Replaces the topic ids of a response with names. An id that the session does not know stays in place of the
    /// name. Returns whether the response had names already. Kafka: `FetchResponse#responseData`.
    pub fn name_topics(&self, response: &mut FetchResponse) -> bool {
        let mut has_names = false;
        for topic in &mut response.responses {
            let id = topic_id_of(&topic.topic);
            has_names |= id.is_none() && !topic.partitions.is_empty();
            if let Some((name, _)) = id.and_then(|id| self.topics.names.get(&id)) {
                topic.topic = Arc::clone(name);
            }
        }
        has_names
    }

    /// Records whether the request that was just built can use topic ids. A broker refuses a request that differs from
    /// its session in this, with FETCH_SESSION_TOPIC_ID_ERROR. Requests to an in-process broker carry only names, so
    /// the client does this check. Kafka: `FetchSessionHandler.Builder#build` (`canUseTopicIds`),
    /// `FetchManager#newContext` (spec 7.3).
    pub fn note_topic_ids(&mut self, request: &FetchRequest, without_id: FxHashSet<TopicPartition>) {
        let incremental = request.session_epoch > 0;
        let mut forgotten = request
            .forgotten()
            .map(|(topic, p)| TopicPartition::new(Arc::clone(topic), p));
        let forgets = incremental && forgotten.any(|tp| self.without_id.contains(&tp));
        let by_ids = without_id.is_empty() && !forgets;
        self.refused = incremental && by_ids != self.by_ids;
        if !incremental {
            self.by_ids = by_ids;
        }
        self.without_id = without_id;
    }

    /// Whether the request in flight is refused because of topic ids.
    pub fn is_refused(&self) -> bool {
        self.refused
    }

    /// Partitions of the session, in session order.
    pub fn partitions(&self) -> impl Iterator<Item = &TopicPartition> {
        self.asked.iter().map(|(tp, _)| tp)
    }

    /// Whether the request in flight is a full one or, if none is in flight, the next one must be.
    pub fn is_full(&self) -> bool {
        self.epoch == 0
    }

    /// The requested offset; `None` for a partition that is not in the session.
    pub fn fetch_offset(&self, tp: &TopicPartition) -> Option<i64> {
        self.asked.get(tp).map(|asked| asked.partition.fetch_offset)
    }

    /// Checks a response. `Err` has the reason why it must be discarded; the next request is then a full one.
    /// Kafka: `FetchSessionHandler#handleResponse`.
    pub fn handle_response(&mut self, response: &FetchResponse) -> Result<(), String> {
        if response.error_code != ErrorCode::NONE {
            if response.error_code == ErrorCode::FETCH_SESSION_ID_NOT_FOUND {
                self.id = 0;
            }
            self.epoch = 0;
            return Err(format!("the broker answered {}", response.error_code));
        }
        if self.refused {
            self.epoch = 0;
            return Err(format!("refused: {}", ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR));
        }
        let partitions = || {
            let partitions = response.partitions();
            partitions.map(|(topic, p)| TopicPartition::new(Arc::clone(topic), p.partition_index))
        };
        let extra = partitions().find(|tp| !self.asked.contains(tp));
        if self.is_full() {
            let answered: FxHashSet<TopicPartition> = partitions().collect();
            let omitted = self.partitions().find(|tp| !answered.contains(tp)).cloned();
            if let Some(tp) = extra.or(omitted) {
                self.id = 0;
                return Err(format!(
                    "the answer to a full fetch has one partition too many or too few: {}",
                    shown(&tp)
                ));
            }
        } else if let Some(tp) = extra {
            self.epoch = 0;
            return Err(format!("the answer holds {}, which is not in the session", shown(&tp)));
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

/// The partitions in their order: only consecutive ones of a topic share its entry, since the order is that of the response. Kafka:
/// `FetchRequest.Builder#build`.
fn topics(partitions: &[(TopicPartition, Wanted)]) -> Vec<FetchTopic> {
    let runs = partitions.chunk_by(|(a, _), (b, _)| a.topic == b.topic);
    let topic = |run: &[(TopicPartition, Wanted)]| FetchTopic {
        topic: Arc::clone(&run[0].0.topic),
        topic_id: run[0].1.topic_id,
        partitions: run.iter().map(|(_, wanted)| wanted.partition.clone()).collect(),
    };
    runs.map(topic).collect()
}

/// The partition, for messages. It has no name if the response had a topic id that was not requested.
fn shown(tp: &TopicPartition) -> String {
    match topic_id_of(&tp.topic) {
        Some(id) => format!(
            "partition {} of topic id {:032x}",
            tp.partition,
            u128::from_be_bytes(id)
        ),
        None => tp.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use fletchlog_api::topic_by_id;
    use fletchlog_protocol::messages::fetch_response::PartitionData;

    use super::*;

    type AllWanted = Vec<(TopicPartition, Wanted)>;

    /// With the ids of topics; 0: not known.
    fn with_ids(list: &[(&str, i32, i64, u8)]) -> AllWanted {
        let partition = |&(topic, partition, fetch_offset, id): &(&str, i32, i64, u8)| {
            let wanted = Wanted {
                topic_id: [id; 16],
                partition: FetchPartition {
                    partition,
                    fetch_offset,
                    partition_max_bytes: 100,
                    ..Default::default()
                },
            };
            (TopicPartition::new(topic, partition), wanted)
        };
        list.iter().map(partition).collect()
    }

    fn wanted(list: &[(&str, i32, i64)]) -> AllWanted {
        let without: Vec<_> = list.iter().map(|&(topic, p, offset)| (topic, p, offset, 0)).collect();
        with_ids(&without)
    }

    /// As a caller without information about changes does.
    fn build(h: &mut FetchSessionHandler, wanted: AllWanted) -> FetchRequest {
        if h.is_full() {
            return h.build_full(wanted);
        }
        let gone: Vec<TopicPartition> = h.partitions().cloned().collect();
        let gone = gone
            .into_iter()
            .filter(|tp| wanted.iter().all(|(other, _)| other != tp))
            .map(|tp| (tp, None));
        let now = wanted
            .iter()
            .map(|(tp, wanted)| (tp.clone(), Some(wanted.clone())))
            .chain(gone);
        h.build_incremental(now.collect()).unwrap()
    }

    fn names(request: &FetchRequest) -> Vec<String> {
        let partitions = request.partitions();
        partitions
            .map(|(topic, p)| format!("{topic}-{}", p.partition))
            .collect()
    }

    fn forgotten(request: &FetchRequest) -> Vec<TopicPartition> {
        let forgotten = request.forgotten();
        forgotten
            .map(|(topic, p)| TopicPartition::new(Arc::clone(topic), p))
            .collect()
    }

    fn answer(session_id: i32, error: ErrorCode, partitions: &[(&str, i32)]) -> FetchResponse {
        let partitions = partitions
            .iter()
            .map(|&(t, p)| {
                let partition = PartitionData {
                    partition_index: p,
                    ..Default::default()
                };
                (TopicPartition::new(t, p), partition)
            })
            .collect();
        FetchResponse {
            error_code: error,
            session_id,
            ..FetchResponse::of(partitions)
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
        assert_eq!(names(&request), ["bar-0", "foo-1"]);
        assert!(forgotten(&request).is_empty());
    }

    #[test]
    fn altered_partitions_go_in_session_order_whatever_order_is_wanted() {
        let mut h = established();
        let request = build(&mut h, wanted(&[("foo", 1, 12), ("foo", 0, 1)]));
        assert_eq!(names(&request), ["foo-0", "foo-1"]);
    }

    #[test]
    fn partitions_that_are_not_wanted_are_forgotten_and_come_back_as_new() {
        let mut h = established();
        let request = build(&mut h, wanted(&[("foo", 1, 10)]));
        assert_eq!(
            (request.topics.len(), forgotten(&request)),
            (0, vec![TopicPartition::new("foo", 0)])
        );
        h.handle_response(&answer(123, ErrorCode::NONE, &[])).unwrap();
        let request = build(&mut h, wanted(&[("foo", 0, 0), ("foo", 1, 11)]));
        assert_eq!(
            (request.session_epoch, names(&request)),
            (2, vec!["foo-0".to_owned(), "foo-1".to_owned()])
        );
        assert_eq!(h.fetch_offset(&TopicPartition::new("foo", 1)), Some(11));
    }

    #[test]
    fn what_is_not_listed_stays_as_it_was_and_nothing_wanted_makes_no_request() {
        let mut h = established();
        let none = |p: i32| (TopicPartition::new("foo", p), None);
        assert_eq!(h.build_incremental(vec![none(0), none(1)]), None);
        let request = h.build_incremental(vec![none(1)]).unwrap();
        assert_eq!(
            (names(&request).len(), forgotten(&request)),
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

    /// A session by ids with these partitions of foo (1) and bar (2).
    fn established_by_ids() -> FetchSessionHandler {
        let mut h = FetchSessionHandler::default();
        let all = with_ids(&[("foo", 0, 0, 1), ("foo", 1, 0, 1), ("bar", 0, 0, 2)]);
        assert!(build(&mut h, all).topic_ids.by_ids);
        let (foo, bar) = (topic_by_id([1; 16]), topic_by_id([2; 16]));
        let mut response = answer(123, ErrorCode::NONE, &[(&bar, 0), (&foo, 1), (&foo, 0)]);
        h.name_topics(&mut response);
        let partitions = response.partitions();
        let named: Vec<String> = partitions
            .map(|(topic, p)| format!("{topic}-{}", p.partition_index))
            .collect();
        assert_eq!(named, ["bar-0", "foo-1", "foo-0"]);
        h.handle_response(&response).unwrap();
        h
    }

    #[test]
    fn a_request_goes_by_ids_while_those_of_all_topics_are_known() {
        let mut h = established_by_ids();
        let request = build(
            &mut h,
            with_ids(&[("foo", 0, 0, 1), ("foo", 1, 5, 0), ("bar", 0, 0, 2)]),
        );
        assert_eq!(
            (request.topic_ids.by_ids, names(&request)),
            (false, vec!["foo-1".to_owned()])
        );
        let refused = answer(0, ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR, &[]);
        assert!(h.handle_response(&refused).is_err());
        let request = build(&mut h, with_ids(&[("foo", 0, 0, 1), ("foo", 1, 5, 1)]));
        assert_eq!(
            (request.session_id, request.session_epoch, request.topic_ids.by_ids),
            (123, 0, true)
        );
    }

    #[test]
    fn a_topic_that_was_made_anew_is_asked_for_by_its_new_id_and_forgotten_by_its_former_one() {
        let mut h = established_by_ids();
        let request = build(
            &mut h,
            with_ids(&[("bar", 0, 0, 2), ("foo", 0, 0, 3), ("baz", 0, 0, 4)]),
        );
        assert_eq!(names(&request), ["baz-0", "foo-0"]);
        let foo = |p| TopicPartition::new("foo", p);
        assert_eq!(forgotten(&request), [foo(1)]);
        assert_eq!(request.forgotten_topics_data[0].topic_id, [1; 16]);
        assert_eq!(request.topic_ids.replaced, [([1; 16], 0)]);
        assert!(request.topic_ids.by_ids);
        let mut late = answer(123, ErrorCode::NONE, &[(&topic_by_id([1; 16]), 0)]);
        h.name_topics(&mut late);
        let refused = h.handle_response(&late).unwrap_err();
        assert!(refused.contains("of topic id "), "of the former topic: {refused}");
    }

    #[test]
    fn a_partition_that_had_no_id_is_forgotten_by_name() {
        let mut h = FetchSessionHandler::default();
        assert!(
            !build(&mut h, with_ids(&[("foo", 0, 0, 1), ("bar", 0, 0, 0)]))
                .topic_ids
                .by_ids
        );
        let by_names = answer(123, ErrorCode::NONE, &[("foo", 0), ("bar", 0)]);
        h.handle_response(&by_names).unwrap();
        let request = build(&mut h, with_ids(&[("foo", 0, 0, 1)]));
        assert_eq!((request.topic_ids.by_ids, forgotten(&request).len()), (false, 1));
        h.handle_response(&answer(123, ErrorCode::NONE, &[])).unwrap();
        assert!(
            build(&mut h, with_ids(&[("foo", 0, 1, 1)])).topic_ids.by_ids,
            "which its session refuses"
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
