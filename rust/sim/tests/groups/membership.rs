//! Joining, leaving, expiring, being fenced.

use fletchlog_api::ErrorCode;

use super::*;

#[test]
fn two_members_share_by_range_and_the_one_that_stays_gets_everything() {
    let c = cluster(&[("t", 5)]);
    let mut a = c.member(&["t"], &[("client.id", "a")]);
    c.settle(&mut [&mut a]);
    assert_eq!((assigned(&a).len(), generation(&a)), (5, 1));
    assert_eq!(
        events(&mut a),
        [RebalanceEvent::Assigned(tps(&[
            ("t", 0),
            ("t", 1),
            ("t", 2),
            ("t", 3),
            ("t", 4)
        ]))]
    );
    let mut b = c.member(&["t"], &[("client.id", "b")]);
    c.settle(&mut [&mut a, &mut b]);
    assert_eq!(
        (assigned(&a), assigned(&b)),
        (
            vec!["t-0".into(), "t-1".into(), "t-2".into()],
            vec!["t-3".into(), "t-4".into()]
        )
    );
    assert_eq!((generation(&a), generation(&b)), (2, 2));
    let all = tps(&[("t", 0), ("t", 1), ("t", 2), ("t", 3), ("t", 4)]);
    assert_eq!(
        events(&mut a),
        [
            RebalanceEvent::Revoked(all.clone()),
            RebalanceEvent::Assigned(all[..3].to_vec())
        ]
    );
    assert_eq!(events(&mut b), [RebalanceEvent::Assigned(all[3..].to_vec())]);
    a.close(1000, &mut || false).unwrap();
    assert_eq!(events(&mut a), [RebalanceEvent::Revoked(all[..3].to_vec())]);
    c.settle(&mut [&mut b]);
    assert_eq!((assigned(&b).len(), generation(&b)), (5, 3));
}

#[test]
fn members_with_round_robin_and_sticky_get_what_those_assignors_deal() {
    for strategy in [
        "roundrobin",
        "sticky",
        "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    ] {
        let c = cluster(&[("t1", 3), ("t2", 3)]);
        let config = |id| [("client.id", id), ("partition.assignment.strategy", strategy)];
        let mut a = c.member(&["t1", "t2"], &config("a"));
        let mut b = c.member(&["t1", "t2"], &config("b"));
        c.settle(&mut [&mut a, &mut b]);
        assert_shared(&[&a, &b], 6);
        assert_eq!((assigned(&a).len(), assigned(&b).len()), (3, 3), "{strategy}");
        if strategy != "sticky" {
            assert_eq!(assigned(&a), ["t1-0", "t1-2", "t2-1"]);
        }
    }
}

#[test]
fn sticky_members_keep_theirs_when_one_leaves() {
    let c = cluster(&[("t", 9)]);
    let config = |id| [("client.id", id), ("partition.assignment.strategy", "sticky")];
    let mut members = ["a", "b", "c"].map(|id| c.member(&["t"], &config(id)));
    c.settle(&mut members.iter_mut().collect::<Vec<_>>());
    let before: Vec<Vec<String>> = members.iter().map(assigned).collect();
    let [mut a, mut b, mut gone] = members;
    gone.close(1000, &mut || false).unwrap();
    c.settle(&mut [&mut a, &mut b]);
    assert_shared(&[&a, &b], 9);
    for (member, before) in [(&a, &before[0]), (&b, &before[1])] {
        assert!(
            before.iter().all(|tp| assigned(member).contains(tp)),
            "{before:?} -> {:?}",
            assigned(member)
        );
    }
}

#[test]
fn a_member_whose_process_died_is_missed_after_its_session() {
    let c = cluster(&[("t", 2)]);
    let mut a = c.member(&["t"], &[("client.id", "a"), ("session.timeout.ms", "10000")]);
    let mut b = c.member(&["t"], &[("client.id", "b")]);
    c.settle(&mut [&mut a, &mut b]);
    drop(a);
    c.clock.advance(9_000);
    for _ in 0..10 {
        poll(&mut b).unwrap();
    }
    assert_eq!(assigned(&b).len(), 1);
    c.clock.advance(1_001);
    c.settle(&mut [&mut b]);
    assert_eq!((assigned(&b).len(), generation(&b) > 1), (2, true));
}

#[test]
fn a_member_that_does_not_poll_for_max_poll_interval_loses_its_partitions_and_comes_back() {
    let c = cluster(&[("t", 2)]);
    let slow = [("client.id", "a"), ("max.poll.interval.ms", "30000")];
    let mut a = c.member(&["t"], &slow);
    let mut b = c.member(&["t"], &[("client.id", "b"), ("max.poll.interval.ms", "30000")]);
    c.settle(&mut [&mut a, &mut b]);
    events(&mut a);
    for _ in 0..12 {
        c.clock.advance(3_000);
        for _ in 0..4 {
            poll(&mut b).unwrap();
        }
    }
    assert_eq!(assigned(&b).len(), 2, "the group went on without a");
    c.settle(&mut [&mut a, &mut b]);
    assert_shared(&[&a, &b], 2);
    let heard = events(&mut a);
    assert_eq!(
        heard.first(),
        Some(&RebalanceEvent::Lost(tps(&[("t", 0)]))),
        "{heard:?}"
    );
    assert_eq!(
        heard.last(),
        Some(&RebalanceEvent::Assigned(tps(&[("t", 0)]))),
        "{heard:?}"
    );
}

#[test]
fn a_changed_subscription_a_new_topic_of_a_pattern_and_new_members_topics_rebalance() {
    let c = cluster(&[("t1", 2), ("t2", 2)]);
    let mut a = c.member(&["t1"], &[("client.id", "a")]);
    c.settle(&mut [&mut a]);
    a.subscribe(&["t1".into(), "t2".into()]).unwrap();
    c.settle(&mut [&mut a]);
    assert_eq!(assigned(&a).len(), 4);
    // The leader has to learn about a topic that only the other member reads.
    let c = cluster(&[("t1", 2), ("t2", 2)]);
    let mut a = c.member(&["t1"], &[("client.id", "a")]);
    c.settle(&mut [&mut a]);
    let mut b = c.member(&["t2"], &[("client.id", "b")]);
    c.settle(&mut [&mut a, &mut b]);
    assert_eq!(
        (assigned(&a), assigned(&b)),
        (vec!["t1-0".into(), "t1-1".into()], vec!["t2-0".into(), "t2-1".into()])
    );
    let mut p = c.consumer(&[
        ("client.id", "p"),
        ("group.id", "pattern"),
        ("metadata.max.age.ms", "1000"),
    ]);
    p.subscribe_pattern("t.*").unwrap();
    c.settle(&mut [&mut p]);
    assert_eq!(assigned(&p).len(), 4);
    c.broker.create_topic("t3", 1, &[]).unwrap();
    c.settle(&mut [&mut p]);
    assert_eq!(assigned(&p).len(), 5);
}

#[test]
fn a_static_member_comes_back_without_a_rebalance_and_its_old_self_is_fenced() {
    let c = cluster(&[("t", 4)]);
    let config = |instance| {
        [
            ("group.instance.id", instance),
            ("session.timeout.ms", "60000"),
            ("heartbeat.interval.ms", "3000"),
        ]
    };
    let mut a = c.member(&["t"], &config("one"));
    let mut b = c.member(&["t"], &config("two"));
    c.settle(&mut [&mut a, &mut b]);
    let (before, at) = (assigned(&a), generation(&a));
    let mut again = c.member(&["t"], &config("one"));
    c.settle(&mut [&mut again, &mut b]);
    assert_eq!((assigned(&again), generation(&again)), (before, at));
    let fenced = (0..5).find_map(|_| {
        c.clock.advance(3000);
        poll(&mut a).err().or_else(|| poll(&mut a).err())
    });
    assert!(
        matches!(
            fenced,
            Some(ClientError::Kafka {
                code: ErrorCode::FENCED_INSTANCE_ID,
                ..
            })
        ),
        "{fenced:?}"
    );
}

#[test]
fn what_the_group_refuses_is_the_error_of_every_poll() {
    let c = cluster(&[("t", 1)]);
    let first_error = |consumer: &mut Consumer| (0..10).find_map(|_| poll(consumer).err()).unwrap();
    let mut short = c.member(&["t"], &[("session.timeout.ms", "5999"), ("group.id", "short")]);
    for _ in 0..2 {
        assert!(matches!(
            first_error(&mut short),
            ClientError::Kafka {
                code: ErrorCode::INVALID_SESSION_TIMEOUT,
                ..
            }
        ));
    }
    let mut range = c.member(&["t"], &[]);
    c.settle(&mut [&mut range]);
    let mut other = c.member(&["t"], &[("partition.assignment.strategy", "roundrobin")]);
    let error = first_error(&mut other);
    assert!(
        matches!(&error, ClientError::Kafka { code: ErrorCode::INCONSISTENT_GROUP_PROTOCOL, message } if message.contains("group g")),
        "{error:?}"
    );
}

#[test]
fn unsubscribing_leaves_at_once_and_subscribing_again_joins() {
    let c = cluster(&[("t", 2)]);
    let mut a = c.member(&["t"], &[("client.id", "a")]);
    let mut b = c.member(&["t"], &[("client.id", "b")]);
    c.settle(&mut [&mut a, &mut b]);
    a.unsubscribe().unwrap();
    assert!(a.assignment().is_empty());
    c.settle(&mut [&mut b]);
    assert_eq!(assigned(&b).len(), 2);
    a.subscribe(&["t".into()]).unwrap();
    c.settle(&mut [&mut a, &mut b]);
    assert_shared(&[&a, &b], 2);
}
