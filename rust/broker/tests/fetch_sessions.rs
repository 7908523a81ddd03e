//! Fetch sessions: order, rotation, epochs, cache (spec 6.6, 11.13), and the order of a request's partitions (6.1).

use std::sync::Arc;

use crate::common::*;
use fletchlog_api::*;
use fletchlog_broker::Broker;
use fletchlog_protocol::messages::fetch_request::ForgottenTopic;

fn broker_with(topics: &[(&str, usize)]) -> Arc<Broker> {
    let broker = in_memory(1);
    for (topic, batches) in topics {
        broker.create_topic(topic, 1, &[]).unwrap();
        for _ in 0..*batches {
            broker.append_batches(&tp(topic, 0), batch(1, 10)).unwrap();
        }
    }
    broker
}

fn full(topics: &[(&str, i64)]) -> FetchRequest {
    let tps: Vec<_> = topics.iter().map(|(t, _)| tp(t, 0)).collect();
    let partitions: Vec<_> = tps
        .iter()
        .zip(topics)
        .map(|(tp, (_, offset))| (tp, *offset, 1 << 20))
        .collect();
    FetchRequest {
        session_epoch: 0,
        ..fetch_of(&partitions)
    }
}

fn incremental(session_id: i32, session_epoch: i32, listed: &[(&str, i64)], forgotten: &[&str]) -> FetchRequest {
    FetchRequest {
        session_id,
        session_epoch,
        forgotten_topics_data: forgotten.iter().map(|t| forget(t)).collect(),
        ..full(listed)
    }
}

fn forget(topic: &str) -> ForgottenTopic {
    ForgottenTopic {
        topic: topic.into(),
        partitions: vec![0],
        ..Default::default()
    }
}

fn names(response: &FetchResponse) -> Vec<&str> {
    response.partitions().map(|(topic, _)| &**topic).collect()
}

fn with_data(response: &FetchResponse) -> Vec<&str> {
    let partitions = response.partitions();
    partitions
        .filter(|(_, p)| p.size() > 0)
        .map(|(topic, _)| &**topic)
        .collect()
}

#[test]
fn only_incremental_answers_rotate_and_only_partitions_with_data_go_to_the_end() {
    // The vector of spec 6.6: one batch each, room for two, offsets never updated.
    let broker = broker_with(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
    let mut client = Client::new(&broker);
    let two = i32::try_from(2 * batch(1, 10).len()).unwrap();
    let limit = |mut r: FetchRequest| {
        r.max_bytes = two;
        r
    };
    let first = client.fetch(1, limit(full(&[("a", 0), ("b", 0), ("c", 0), ("d", 0)])));
    assert_eq!(
        (names(&first), with_data(&first)),
        (vec!["a", "b", "c", "d"], vec!["a", "b"])
    );
    let id = first.session_id;
    for (epoch, expected) in [(1, ["a", "b"]), (2, ["c", "d"]), (3, ["a", "b"]), (4, ["c", "d"])] {
        let next = client.fetch(1, limit(incremental(id, epoch, &[], &[])));
        assert_eq!(with_data(&next), expected, "epoch {epoch}");
    }
}

#[test]
fn a_partition_with_data_alone_moves_behind_the_others() {
    // [1,2,3], data in 2 only -> [1,3,2]
    let broker = broker_with(&[("p1", 0), ("p2", 1), ("p3", 0)]);
    let mut client = Client::new(&broker);
    let id = client.fetch(1, full(&[("p1", 0), ("p2", 0), ("p3", 0)])).session_id;
    assert_eq!(names(&client.fetch(1, incremental(id, 1, &[], &[]))), ["p2"]);
    for topic in ["p1", "p3"] {
        broker.append_batches(&tp(topic, 0), batch(1, 10)).unwrap();
    }
    assert_eq!(
        names(&client.fetch(1, incremental(id, 2, &[], &[]))),
        ["p1", "p3", "p2"]
    );
}

#[test]
fn a_session_keeps_to_topic_ids_or_to_names() {
    let broker = broker_with(&[("a", 1)]);
    let mut client = Client::new(&broker);
    let by_ids = |by, request| if by { with_ids(request) } else { request };
    for by in [true, false] {
        let id = client.fetch(1, by_ids(by, full(&[("a", 0)]))).session_id;
        let other = client.fetch(1, by_ids(!by, incremental(id, 1, &[], &[])));
        assert_eq!(
            (other.error_code, other.session_id),
            (ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR, 0)
        );
        // the epoch comes first, and the session is still there
        let wrong = client.fetch(1, by_ids(!by, incremental(id, 2, &[], &[])));
        assert_eq!(wrong.error_code, ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        assert_eq!(names(&client.fetch(1, by_ids(by, incremental(id, 1, &[], &[])))), ["a"]);
    }
}

#[test]
fn listed_partitions_are_updated_in_place_new_ones_appended_and_forgetting_wins() {
    let broker = broker_with(&[("t0", 1), ("t1", 1), ("t2", 1), ("t3", 1)]);
    let mut client = Client::new(&broker);
    let id = client.fetch(1, full(&[("t0", 0), ("t1", 0)])).session_id;
    let next = client.fetch(1, incremental(id, 1, &[("t2", 0), ("t1", 0)], &["t0"]));
    assert_eq!(names(&next), ["t1", "t2"]);
    let next = client.fetch(1, incremental(id, 2, &[("t3", 0)], &["t3"]));
    assert_eq!(names(&next), ["t1", "t2"]);
}

#[test]
fn a_partition_new_to_the_session_is_answered_even_without_data_and_then_left_out() {
    let broker = broker_with(&[("a", 0), ("b", 0)]);
    let mut client = Client::new(&broker);
    let id = client.fetch(1, full(&[("a", 0)])).session_id;
    assert_eq!(names(&client.fetch(1, incremental(id, 1, &[("b", 0)], &[]))), ["b"]);
    assert!(names(&client.fetch(1, incremental(id, 2, &[], &[]))).is_empty());
}

#[test]
fn a_partition_in_error_is_in_every_answer_and_once_more_after_the_error() {
    let broker = broker_with(&[("a", 1), ("b", 0)]);
    let mut client = Client::new(&broker);
    let id = client.fetch(1, full(&[("a", 5), ("b", 0)])).session_id;
    for epoch in [1, 2] {
        let next = client.fetch(1, incremental(id, epoch, &[], &[]));
        assert_eq!(
            (names(&next), nth(&next, 0).error_code),
            (vec!["a"], ErrorCode::OFFSET_OUT_OF_RANGE)
        );
    }
    let next = client.fetch(1, incremental(id, 3, &[("a", 1)], &[]));
    assert_eq!((names(&next), nth(&next, 0).error_code), (vec!["a"], ErrorCode::NONE));
    assert!(names(&client.fetch(1, incremental(id, 4, &[], &[]))).is_empty());
}

#[test]
fn partitions_that_do_not_exist_are_answered_last() {
    let broker = broker_with(&[("a", 1), ("b", 1)]);
    let mut client = Client::new(&broker);
    let response = client.fetch(1, full(&[("x", 0), ("a", 0), ("y", 0), ("b", 0)]));
    assert_eq!(names(&response), ["a", "b", "x", "y"]);
    assert_eq!(nth(&response, 3).error_code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
}

#[test]
fn a_partition_named_twice_is_served_once_with_its_last_values() {
    let broker = broker_with(&[("a", 3), ("b", 1)]);
    let response = Client::new(&broker).fetch(1, full(&[("a", 0), ("b", 0), ("a", 2)]));
    let one = batch(1, 10).len();
    assert_eq!(sizes(&response), [("a".to_owned(), one), ("b".to_owned(), one)]);
}

#[test]
fn a_used_session_outlives_an_idle_one_and_a_larger_pushes_out_an_old_smaller_one() {
    let clock = VirtualClock::new();
    let config = [("max.incremental.fetch.session.cache.slots", "2")];
    let broker = Broker::in_memory(options(None, false, &config), clock.clone()).unwrap();
    for topic in ["a", "b"] {
        broker.create_topic(topic, 1, &[]).unwrap();
    }
    let mut client = Client::new(&broker);
    let used = client.fetch(1, full(&[("a", 0)])).session_id;
    let idle = client.fetch(1, full(&[("a", 0)])).session_id;
    assert_eq!(client.fetch(1, full(&[("a", 0)])).session_id, 0, "no slot is free");
    clock.advance(100_000);
    assert_eq!(client.fetch(1, incremental(used, 1, &[], &[])).session_id, used);
    clock.advance(20_001);
    let third = client.fetch(1, full(&[("a", 0)])).session_id;
    assert_ne!(third, 0);
    assert_eq!(
        client.fetch(1, incremental(idle, 1, &[], &[])).error_code,
        ErrorCode::FETCH_SESSION_ID_NOT_FOUND
    );
    assert_eq!(client.fetch(1, incremental(used, 2, &[], &[])).session_id, used);
    // `used` is older than 120 s and smaller than the newcomer, though in use.
    assert_eq!(client.fetch(1, full(&[("a", 0)])).session_id, 0);
    assert_ne!(client.fetch(1, full(&[("a", 0), ("b", 0)])).session_id, 0);
    assert_eq!(
        client.fetch(1, incremental(used, 3, &[], &[])).error_code,
        ErrorCode::FETCH_SESSION_ID_NOT_FOUND
    );
    assert_eq!(client.fetch(1, incremental(third, 1, &[], &[])).session_id, third);
}

#[test]
fn sessions_of_one_node_mean_nothing_on_another() {
    let broker = in_memory(2);
    broker.create_topic("t", 2, &[]).unwrap();
    let mut client = Client::new(&broker);
    let id = client
        .fetch(
            1,
            FetchRequest {
                session_epoch: 0,
                ..fetch_of(&[(&tp("t", 0), 0, 1)])
            },
        )
        .session_id;
    let elsewhere = client.fetch(2, incremental(id, 1, &[], &[]));
    assert_eq!(elsewhere.error_code, ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
}

#[test]
fn a_waiting_incremental_fetch_rotates_when_it_is_answered() {
    let broker = broker_with(&[("a", 0), ("b", 0)]);
    let mut client = Client::new(&broker);
    let id = client.fetch(1, full(&[("a", 0), ("b", 0)])).session_id;
    client.send(
        1,
        Request::Fetch(FetchRequest {
            max_wait_ms: 1000,
            ..incremental(id, 1, &[], &[])
        }),
    );
    broker.append_batches(&tp("a", 0), batch(1, 10)).unwrap();
    assert_eq!(names(&client.wait_fetch(1, 0).unwrap()), ["a"]);
    broker.append_batches(&tp("b", 0), batch(1, 10)).unwrap();
    assert_eq!(names(&client.fetch(1, incremental(id, 2, &[], &[]))), ["b", "a"]);
}

#[test]
fn a_session_is_unknown_to_a_broker_that_did_not_open_it() {
    // Kafka: FetchSessionCache#newSessionId, a random id; a client that outlives the broker must not meet another's session.
    let opened = || {
        let broker = broker_with(&[("a", 1)]);
        let mut client = Client::new(&broker);
        let ids: Vec<i32> = (0..20).map(|_| client.fetch(1, full(&[("a", 0)])).session_id).collect();
        assert!(ids.iter().all(|&id| id > 0), "{ids:?}");
        (broker, ids)
    };
    let (_, before) = opened();
    let (broker, after) = opened();
    assert!(before.iter().all(|id| !after.contains(id)), "{before:?} {after:?}");
    let answer = Client::new(&broker).fetch(1, incremental(before[0], 1, &[], &[]));
    assert_eq!(answer.error_code, ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
}

#[test]
fn a_log_that_parts_from_what_a_client_has_is_reported_at_once_and_in_every_answer() {
    let broker = broker_with(&[("a", 2)]);
    let mut client = Client::new(&broker);
    let at = |fetch_offset, last_fetched_epoch| {
        let mut request = full(&[("a", fetch_offset)]);
        request.max_wait_ms = 10_000;
        request.topics[0].partitions[0].last_fetched_epoch = last_fetched_epoch;
        request
    };
    let mut answer = |request| {
        let response = client.fetch(1, request);
        let first = response.partitions().next();
        let p = first.map(|(_, p)| (p.error_code, p.diverging_epoch(), p.size()));
        (response.session_id, p)
    };
    let records = 2 * batch(1, 10).len();
    assert_eq!(answer(at(0, 0)).1, Some((ErrorCode::NONE, None, records)));
    assert_eq!(answer(at(0, -2)).1, Some((ErrorCode::NONE, None, records)));
    // An epoch that the log has not reached, whatever the offset.
    assert_eq!(answer(at(0, 1)).1, Some((ErrorCode::OFFSET_OUT_OF_RANGE, None, 0)));
    assert_eq!(answer(at(100, 1)).1, Some((ErrorCode::OFFSET_OUT_OF_RANGE, None, 0)));
    // Beyond the end of its epoch: no error, and not what the same offset without an epoch gives.
    let diverges = Some((ErrorCode::NONE, Some((0, 2)), 0));
    let (session, first) = answer(at(100, 0));
    assert_eq!(first, diverges);
    for epoch in 1..4 {
        assert_eq!(answer(incremental(session, epoch, &[], &[])).1, diverges);
    }
    assert_eq!(answer(at(100, -1)).1, Some((ErrorCode::OFFSET_OUT_OF_RANGE, None, 0)));
}

/// Whose topics' names are ids.
fn with_ids(mut request: FetchRequest) -> FetchRequest {
    request.topic_ids.by_ids = true;
    request
}

/// By its id, as the fetch names it.
fn by_id(broker: &Broker, topic: &str) -> Arc<str> {
    topic_by_id(broker.describe_topic(topic).unwrap().topic_id)
}

/// What an answer says of its partitions: topic, error, whether there are records.
fn outline(response: &FetchResponse) -> Vec<(&str, ErrorCode, bool)> {
    let partitions = response.partitions();
    partitions
        .map(|(topic, p)| (&**topic, p.error_code, p.size() > 0))
        .collect()
}

#[test]
fn a_session_by_topic_ids_keeps_ids_whichever_connection_asks_next() {
    let broker = broker_with(&[("a", 1), ("b", 0)]);
    let ids = ["a", "b"].map(|topic| by_id(&broker, topic));
    let (a, b, none) = (&*ids[0], &*ids[1], &*topic_by_id([9; 16]));
    // Each request from another connection.
    let fetch = |request| Client::new(&broker).fetch(1, with_ids(request));
    let first = fetch(full(&[(a, 0), (none, 0), (b, 0)]));
    let unknown = (none, ErrorCode::UNKNOWN_TOPIC_ID, false);
    assert_eq!(
        outline(&first),
        [(a, ErrorCode::NONE, true), (b, ErrorCode::NONE, false), unknown]
    );
    let id = first.session_id;
    broker.append_batches(&tp("b", 0), batch(1, 10)).unwrap();
    let next = fetch(incremental(id, 1, &[(a, 1)], &[]));
    assert_eq!(outline(&next), [(b, ErrorCode::NONE, true), unknown]);
    // Made again under its name: the id is nobody's.
    broker.delete_topic("b").unwrap();
    broker.create_topic("b", 1, &[]).unwrap();
    let again = &*by_id(&broker, "b");
    let next = fetch(incremental(id, 2, &[(again, 0)], &[none]));
    assert_eq!(
        outline(&next),
        [(again, ErrorCode::NONE, false), (b, ErrorCode::UNKNOWN_TOPIC_ID, false)]
    );
    let by_name = Client::new(&broker).fetch(1, full(&[(again, 0)]));
    assert_eq!(
        outline(&by_name),
        [(again, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, false)],
        "no topic has such a name"
    );
    // It can be forgotten all the same, and the topic of the same name stays.
    assert!(outline(&fetch(incremental(id, 3, &[], &[b]))).is_empty());
    broker.append_batches(&tp("b", 0), batch(1, 10)).unwrap();
    assert_eq!(
        outline(&fetch(incremental(id, 4, &[], &[]))),
        [(again, ErrorCode::NONE, true)]
    );
}

#[test]
fn a_wait_by_topic_id_ends_with_an_append_and_when_the_topic_is_gone() {
    for in_session in [false, true] {
        let broker = broker_with(&[("a", 0), ("b", 0)]);
        let ids = ["a", "b"].map(|topic| by_id(&broker, topic));
        let (a, b) = (&*ids[0], &*ids[1]);
        let waiting = |request| FetchRequest {
            max_wait_ms: 10_000,
            ..with_ids(request)
        };
        let mut client = Client::new(&broker);
        let id = client.fetch(1, with_ids(full(&[(a, 0), (b, 0)]))).session_id;
        let mut epoch = 0;
        let mut wait = |client: &mut Client, offset| {
            epoch += 1;
            let request = match in_session {
                true => incremental(id, epoch, &[(a, offset)], &[]),
                false => full(&[(a, offset), (b, 0)]),
            };
            client.send(1, Request::Fetch(waiting(request)));
        };
        wait(&mut client, 0);
        assert!(client.wait_fetch(1, 0).is_none());
        broker.append_batches(&tp("a", 0), batch(1, 10)).unwrap();
        let woken = client.wait_fetch(1, 0).unwrap();
        assert!(outline(&woken).contains(&(a, ErrorCode::NONE, true)), "{woken:?}");
        wait(&mut client, 1);
        assert!(client.wait_fetch(1, 0).is_none());
        broker.delete_topic("b").unwrap();
        let gone = client.wait_fetch(1, 0).unwrap();
        assert!(
            outline(&gone).contains(&(b, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, false)),
            "as recorded, though it was asked for by id: {gone:?}"
        );
    }
}
