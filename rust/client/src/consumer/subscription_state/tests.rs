use fletchlog_api::Scope;

use super::*;

fn state(order: SubscribeOrder) -> SubscriptionState {
    let config = Config::parse(Scope::Consumer, [("auto.offset.reset", "earliest")]).unwrap();
    SubscriptionState::new(&config, order)
}

fn tps(topic: &str, partitions: impl IntoIterator<Item = i32>) -> Vec<TopicPartition> {
    partitions.into_iter().map(|p| TopicPartition::new(topic, p)).collect()
}

fn names(list: &[TopicPartition]) -> String {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn assigned(given: &[TopicPartition]) -> String {
    let mut s = state(SubscribeOrder::Sorted);
    s.assign_from_user(given).unwrap();
    names(&s.assigned_partitions())
}

fn subscribed(order: SubscribeOrder, topics: &[&str], given: &[TopicPartition]) -> String {
    let mut s = state(order);
    let topics: Vec<Arc<str>> = topics.iter().map(|&t| Arc::from(t)).collect();
    s.subscribe(&topics).unwrap();
    s.assign_from_subscribed(given);
    names(&s.assigned_partitions())
}

#[test]
fn assign_orders_partitions_as_javas_hash_tables_walk() {
    let orders = [tps("orders", 0..3), tps("payments", 0..3)].concat();
    assert_eq!(
        assigned(&orders),
        "payments-0 payments-2 payments-1 orders-0 orders-1 orders-2"
    );
    assert_eq!(
        assigned(&[tps("A", [0]), tps("B", [0]), tps("C", [0])].concat()),
        "A-0 B-0 C-0"
    );
    assert_eq!(
        assigned(&[tps("C", [0]), tps("A", [0]), tps("B", [0]), tps("A", [0])].concat()),
        "A-0 B-0 C-0"
    );
    assert_eq!(
        assigned(&tps("test", 0..6)),
        "test-1 test-0 test-3 test-2 test-5 test-4"
    );
}

#[test]
fn subscribe_orders_partitions_by_release() {
    let abc = [tps("A", [0]), tps("B", [0]), tps("C", [0])].concat();
    let ops = [tps("orders", 0..3), tps("payments", 0..3)].concat();
    for order in [SubscribeOrder::HashSetThenMap, SubscribeOrder::SortedThenMap] {
        assert_eq!(subscribed(order, &["A", "B", "C"], &abc), "C-0 A-0 B-0");
        assert_eq!(
            subscribed(order, &["orders", "payments"], &ops),
            "orders-0 orders-1 orders-2 payments-0 payments-2 payments-1"
        );
        assert_eq!(
            subscribed(order, &["test"], &tps("test", 0..6)),
            "test-5 test-4 test-1 test-0 test-3 test-2"
        );
    }
    assert_eq!(
        subscribed(SubscribeOrder::Sorted, &["C", "B", "A"], &abc),
        "A-0 B-0 C-0"
    );
    assert_eq!(
        subscribed(SubscribeOrder::Sorted, &["topic"], &tps("topic", [10, 2, 1])),
        "topic-1 topic-2 topic-10"
    );
}

/// Partitions of one bucket are walked as they were given.
#[test]
fn an_assignment_of_a_response_has_the_order_of_the_response() {
    let given: Vec<TopicPartition> = [1, 2, 0, 5, 6, 3, 4, 9, 12, 13, 7, 14, 8, 15, 16, 17, 18, 19, 10, 11]
        .iter()
        .map(|number| TopicPartition::new(format!("topic{number}").as_str(), 0))
        .collect();
    let mut s = state(SubscribeOrder::HashSetThenMap);
    s.subscribe(
        &(0..20)
            .map(|number| Arc::from(format!("topic{number}")))
            .collect::<Vec<_>>(),
    )
    .unwrap();
    s.assign_from_response(&given);
    let order: Vec<String> = s
        .assigned_partitions()
        .iter()
        .map(|tp| tp.topic.replace("topic", ""))
        .collect();
    // The first fetch of a Java 2.6.3 with this assignment.
    assert_eq!(order.join(" "), "0 19 1 4 5 2 3 8 11 9 12 6 13 7 14 15 16 17 18 10");
}

#[test]
fn an_equal_assignment_changes_nothing_and_another_one_forgets_the_rotation_but_keeps_states() {
    let mut s = state(SubscribeOrder::Sorted);
    let abc = [tps("A", [0]), tps("B", [0]), tps("C", [0])].concat();
    assert!(s.assign_from_user(&abc).unwrap());
    s.seek(&abc[0], 7, None).unwrap();
    s.pause(&abc[1]).unwrap();
    s.move_partition_to_end(&abc[0]);
    assert!(!s.assign_from_user(&abc).unwrap());
    assert_eq!(names(&s.assigned_partitions()), "B-0 C-0 A-0");
    assert!(s.assign_from_user(&abc[..2]).unwrap());
    assert_eq!(names(&s.assigned_partitions()), "A-0 B-0");
    assert_eq!(s.position(&abc[0]), Some(7));
    assert!(s.is_paused(&abc[1]));
}

#[test]
fn dropping_everything_in_between_loses_positions_and_pauses() {
    let mut s = state(SubscribeOrder::Sorted);
    s.subscribe(&[Arc::from("t")]).unwrap();
    let t = tps("t", 0..2);
    s.assign_from_subscribed(&t);
    s.seek(&t[0], 5, None).unwrap();
    s.pause(&t[0]).unwrap();
    s.assign_from_subscribed(&t[..1]);
    assert_eq!((s.position(&t[0]), s.is_paused(&t[0])), (Some(5), true));
    s.assign_from_subscribed(&[]);
    s.assign_from_subscribed(&t);
    assert_eq!((s.position(&t[0]), s.is_paused(&t[0])), (None, false));
}

#[test]
fn the_ways_to_choose_partitions_exclude_each_other() {
    let mut s = state(SubscribeOrder::Sorted);
    s.assign_from_user(&tps("t", [0])).unwrap();
    assert!(matches!(
        s.subscribe(&[Arc::from("t")]),
        Err(ClientError::IllegalState(_))
    ));
    assert!(matches!(s.subscribe_pattern("t.*"), Err(ClientError::IllegalState(_))));
    s.unsubscribe();
    s.subscribe(&[Arc::from("t")]).unwrap();
    assert!(matches!(
        s.assign_from_user(&tps("t", [0])),
        Err(ClientError::IllegalState(_))
    ));
}

#[test]
fn a_late_lookup_does_not_overwrite_a_seek() {
    let mut s = state(SubscribeOrder::Sorted);
    let t = tps("t", [0]);
    s.assign_from_user(&t).unwrap();
    s.reset_initializing_positions().unwrap();
    assert_eq!(s.partitions_needing_reset(0).len(), 1);
    assert!(!s.maybe_seek(&t[0], 9, None, ResetStrategy::Latest));
    s.seek(&t[0], 3, None).unwrap();
    assert!(!s.maybe_seek(&t[0], 9, None, ResetStrategy::Earliest));
    assert_eq!(s.position(&t[0]), Some(3));
}

#[test]
fn policy_none_names_the_partitions_without_position() {
    let config = Config::parse(Scope::Consumer, [("auto.offset.reset", "none")]).unwrap();
    let mut s = SubscriptionState::new(&config, SubscribeOrder::Sorted);
    let t = tps("t", 0..2);
    s.assign_from_user(&t).unwrap();
    s.seek(&t[0], 1, None).unwrap();
    match s.reset_initializing_positions() {
        Err(ClientError::NoOffsetForPartition(missing)) => assert_eq!(missing, tps("t", [1])),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_partition_that_can_be_read_again_waits_no_longer_after_a_refusal() {
    let tp = TopicPartition::new("t", 0);
    let mut s = state(SubscribeOrder::Sorted);
    s.assign_from_user(std::slice::from_ref(&tp)).unwrap();
    s.seek(&tp, 0, None).unwrap();
    let fetchable = |s: &SubscriptionState| s.state(&tp).unwrap().is_fetchable();
    let error = fletchlog_api::ErrorCode::UNKNOWN_SERVER_ERROR;
    assert!(
        s.fetch_failed(&tp, error, 100) && fetchable(&s),
        "the first one is repeated at once"
    );
    assert!(!s.fetch_failed(&tp, error, 100) && !fetchable(&s));
    s.end_back_offs(99);
    assert!(!fetchable(&s));
    s.end_back_offs(100);
    assert!(fetchable(&s));
    // The former leader refuses, the new one answers.
    s.fetch_failed(&tp, error, 200);
    assert!(!fetchable(&s));
    s.fetch_succeeded(&tp);
    assert!(fetchable(&s));
    assert_eq!(s.first_back_off_end_ms(), None);
}
