//! The cooperative protocol: a member that keeps a partition goes on reading it.

use super::*;

const COOPERATIVE: (&str, &str) = ("partition.assignment.strategy", "cooperative-sticky");

#[test]
fn only_the_partitions_that_move_are_revoked_and_positions_of_the_others_are_kept() {
    let c = cluster(&[("t", 4)]);
    for partition in 0..4 {
        c.produce("t", partition, 10);
    }
    let mut a = c.member(&["t"], &[("client.id", "a"), COOPERATIVE]);
    let mut read = 0;
    while read < 40 {
        read += poll_some(&mut a)
            .iter()
            .map(|(_, first, last)| last - first + 1)
            .sum::<i64>();
    }
    let mut b = c.member(&["t"], &[("client.id", "b"), COOPERATIVE]);
    events(&mut a);
    for _ in 0..8 {
        for _ in 0..6 {
            let from_a = poll(&mut a).unwrap();
            assert_eq!(from_a.count(), 0, "a read again what it had read: {from_a:?}");
            poll(&mut b).unwrap();
            assert!(
                a.assignment().iter().all(|tp| !b.assignment().contains(tp)),
                "two owners"
            );
        }
        assert!(a.assignment().len() >= 2, "a gave up more than it had to");
        c.clock.advance(3000);
    }
    assert_shared(&[&a, &b], 4);
    assert_eq!(
        (assigned(&a), assigned(&b)),
        (vec!["t-0".into(), "t-1".into()], vec!["t-2".into(), "t-3".into()])
    );
    let heard: Vec<RebalanceEvent> = events(&mut a)
        .into_iter()
        .filter(|e| !matches!(e, RebalanceEvent::Assigned(tps) if tps.is_empty()))
        .collect();
    assert_eq!(heard, [RebalanceEvent::Revoked(tps(&[("t", 2), ("t", 3)]))]);
    let gained: Vec<RebalanceEvent> = events(&mut b)
        .into_iter()
        .filter(|e| !matches!(e, RebalanceEvent::Assigned(tps) if tps.is_empty()))
        .collect();
    assert_eq!(gained, [RebalanceEvent::Assigned(tps(&[("t", 2), ("t", 3)]))]);
}

#[test]
fn with_an_eager_assignor_in_the_list_the_protocol_is_eager() {
    let c = cluster(&[("t", 2)]);
    let both = ("partition.assignment.strategy", "range,cooperative-sticky");
    let mut a = c.member(&["t"], &[("client.id", "a"), both]);
    let mut b = c.member(&["t"], &[("client.id", "b"), both]);
    c.settle(&mut [&mut a]);
    events(&mut a);
    c.settle(&mut [&mut a, &mut b]);
    assert_eq!(
        events(&mut a).first(),
        Some(&RebalanceEvent::Revoked(tps(&[("t", 0), ("t", 1)])))
    );
    assert_shared(&[&a, &b], 2);
}
