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
