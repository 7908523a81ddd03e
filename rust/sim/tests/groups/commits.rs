//! Commits, their timing and their refusals (spec 7.12).

use fletchlog_api::transport::node_of_connection;
use fletchlog_api::{Completion, CoordinatorType, ErrorCode, NodeId, Request, Response};
use fletchlog_testing::{Watch, WatchedTransport};

use super::*;

const AUTO: [(&str, &str); 3] = [
    ("enable.auto.commit", "true"),
    ("auto.commit.interval.ms", "5000"),
    ("max.poll.records", "5"),
];

/// What the group has committed, asked by a stranger.
fn group_position(c: &Cluster, tp: &TopicPartition) -> Option<i64> {
    committed(&mut c.consumer(&[]), tp)
}

#[test]
fn auto_commit_commits_at_the_start_of_a_poll_what_earlier_polls_returned() {
    let c = cluster(&[("t", 1)]);
    let tp = TopicPartition::new("t", 0);
    c.produce("t", 0, 20);
    let mut a = c.member(&["t"], &AUTO);
    assert_eq!(poll_some(&mut a), [(tp.clone(), 0, 4)]);
    c.clock.advance(4_999);
    assert_eq!(poll_some(&mut a), [(tp.clone(), 5, 9)]);
    assert_eq!(group_position(&c, &tp), None, "the timer has not run out");
    c.clock.advance(1);
    assert_eq!(poll_some(&mut a), [(tp.clone(), 10, 14)]);
    assert_eq!(
        group_position(&c, &tp),
        Some(10),
        "records being returned by this poll are not committed by it"
    );
    c.clock.advance(4_999);
    poll_some(&mut a);
    assert_eq!(group_position(&c, &tp), Some(10));
}

#[test]
fn records_fetched_but_not_returned_are_not_committed() {
    let c = cluster(&[("t", 1)]);
    let tp = TopicPartition::new("t", 0);
    c.produce("t", 0, 5);
    let mut a = c.member(&["t"], &AUTO);
    // Polls that have joined and fetched, up to the one that would return the records.
    while a.assignment().is_empty() || a.position(&tp, 1000, &mut || false).is_err() {
        poll(&mut a).unwrap();
    }
    commit(&mut a).unwrap();
    assert_eq!(group_position(&c, &tp), Some(0));
}

#[test]
fn close_and_a_rebalance_commit_but_unsubscribe_does_not() {
    let c = cluster(&[("t", 1)]);
    let tp = TopicPartition::new("t", 0);
    c.produce("t", 0, 20);
    let mut a = c.member(&["t"], &AUTO);
    poll_some(&mut a);
    a.close(1000, &mut || false).unwrap();
    assert_eq!(group_position(&c, &tp), Some(5));

    let mut a = c.member(
        &["t"],
        &[&AUTO[..], &[("client.id", "a"), ("heartbeat.interval.ms", "1000")]].concat(),
    );
    assert_eq!(poll_some(&mut a), [(tp.clone(), 5, 9)]);
    let mut b = c.member(&["t"], &[("client.id", "b")]);
    for _ in 0..4 {
        poll(&mut b).unwrap();
    }
    c.clock.advance(1_000);
    a.pause(std::slice::from_ref(&tp)).unwrap();
    for _ in 0..6 {
        poll(&mut a).unwrap();
        poll(&mut b).unwrap();
    }
    assert_eq!(
        group_position(&c, &tp),
        Some(10),
        "before it gave the partition up, a committed"
    );
    b.close(1000, &mut || false).unwrap();
    c.settle(&mut [&mut a]);
    let at = group_position(&c, &tp);
    a.unsubscribe().unwrap();
    poll_without_subscription(&mut a);
    assert_eq!(group_position(&c, &tp), at);
}

fn poll_without_subscription(consumer: &mut Consumer) {
    assert!(matches!(poll(consumer), Err(ClientError::IllegalState(_))));
}

#[test]
fn assign_with_a_group_commits_without_being_a_member_and_runs_the_timer() {
    let c = cluster(&[("t", 2)]);
    c.produce("t", 0, 20);
    let tp = TopicPartition::new("t", 0);
    let mut a = c.consumer(&AUTO);
    a.assign(std::slice::from_ref(&tp)).unwrap();
    assert_eq!(poll_some(&mut a), [(tp.clone(), 0, 4)]);
    c.clock.advance(5_000);
    a.assign(&tps(&[("t", 0), ("t", 1)])).unwrap();
    poll_some(&mut a);
    assert_eq!(
        group_position(&c, &tp),
        Some(5),
        "assign() commits what was read before it"
    );
    commit(&mut a).unwrap();
    assert_eq!(group_position(&c, &tp), Some(10));
    let mut next = c.consumer(&[]);
    next.assign(std::slice::from_ref(&tp)).unwrap();
    assert_eq!(poll_some(&mut next)[0].1, 10);
}

#[test]
fn a_stranger_cannot_commit_for_a_group_with_members() {
    let c = cluster(&[("t", 1)]);
    let mut a = c.member(&["t"], &[]);
    c.settle(&mut [&mut a]);
    let mut stranger = c.consumer(&[]);
    stranger.assign(&tps(&[("t", 0)])).unwrap();
    let offset = OffsetAndMetadata {
        offset: 3,
        leader_epoch: -1,
        metadata: "".into(),
    };
    let offsets = [(TopicPartition::new("t", 0), offset)];
    assert!(matches!(
        stranger.commit(Some(&offsets), 1000, &mut || false),
        Err(ClientError::CommitFailed(_))
    ));
    a.commit(Some(&offsets), 1000, &mut || false).unwrap();
    assert_eq!(group_position(&c, &offsets[0].0), Some(3));
}

#[test]
fn a_member_that_has_not_joined_or_is_rebalancing_cannot_commit() {
    let c = cluster(&[("t", 1)]);
    let offset = OffsetAndMetadata {
        offset: 1,
        leader_epoch: -1,
        metadata: "".into(),
    };
    let offsets = [(TopicPartition::new("t", 0), offset)];
    let mut a = c.member(&["t"], &[("client.id", "a")]);
    assert!(matches!(
        a.commit(Some(&offsets), 1000, &mut || false),
        Err(ClientError::CommitFailed(_))
    ));
    let mut b = c.member(&["t"], &[("client.id", "b")]);
    c.settle(&mut [&mut b]);
    for _ in 0..4 {
        poll(&mut a).unwrap(); // Its join waits for b.
    }
    let error = a.commit(Some(&offsets), 1000, &mut || false).unwrap_err();
    assert!(
        matches!(&error, ClientError::Kafka { code: ErrorCode::REBALANCE_IN_PROGRESS, message } if message.contains("poll()")),
        "{error:?}"
    );
}

#[test]
fn metadata_of_a_commit_that_is_too_large_is_refused_with_its_code() {
    let c = cluster(&[("t", 1)]);
    let mut a = c.consumer(&[]);
    let offset = OffsetAndMetadata {
        offset: 1,
        leader_epoch: -1,
        metadata: "x".repeat(4097).into(),
    };
    let error = a
        .commit(Some(&[(TopicPartition::new("t", 0), offset)]), 1000, &mut || false)
        .unwrap_err();
    assert!(
        matches!(
            error,
            ClientError::Kafka {
                code: ErrorCode::OFFSET_METADATA_TOO_LARGE,
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn a_member_that_was_removed_learns_it_from_its_commit_and_rejoins() {
    let c = cluster(&[("t", 2)]);
    let mut a = c.member(&["t"], &[("client.id", "a"), ("max.poll.interval.ms", "30000")]);
    let mut b = c.member(&["t"], &[("client.id", "b"), ("max.poll.interval.ms", "30000")]);
    c.settle(&mut [&mut a, &mut b]);
    events(&mut a);
    for _ in 0..12 {
        c.clock.advance(3_000);
        for _ in 0..4 {
            poll(&mut b).unwrap();
        }
    }
    assert_eq!(assigned(&b).len(), 2);
    match commit(&mut a) {
        Err(ClientError::CommitFailed(why)) => assert!(why.contains("max.poll.interval.ms"), "{why}"),
        other => panic!("{other:?}"),
    }
    c.settle(&mut [&mut a, &mut b]);
    assert_shared(&[&a, &b], 2);
    assert_eq!(events(&mut a).first(), Some(&RebalanceEvent::Lost(tps(&[("t", 0)]))));
}

/// The answer to the first lookup of committed offsets takes long.
#[derive(Default)]
struct LateFirstLookup {
    first: Option<i32>,
    released: bool,
}

impl Watch for LateFirstLookup {
    fn sending(&mut self, _: NodeId, correlation_id: i32, request: &Request) {
        if matches!(request, Request::OffsetFetch(_)) {
            self.first.get_or_insert(correlation_id);
        }
    }

    fn passes(&self, completion: &Completion) -> bool {
        self.released || Some(completion.correlation_id) != self.first
    }
}

#[test]
fn committed_offsets_that_were_asked_for_in_an_earlier_generation_are_no_position() {
    let c = cluster(&[("t", 1)]);
    let tp = TopicPartition::new("t", 0);
    c.produce("t", 0, 20);
    let connection = LocalTransport::new(Arc::clone(&c.broker));
    let connection = WatchedTransport::new(connection, LateFirstLookup::default());
    let mut late = c.consumer_over(Box::new(connection.clone()), &[("client.id", "z")]);
    late.subscribe(&["t".into()]).unwrap();
    c.settle(&mut [&mut late]);
    assert_eq!(
        (assigned(&late).len(), generation(&late)),
        (1, 1),
        "its position is asked for"
    );

    // Its answer is under way while another member has the partition, reads on, and commits.
    let mut other = c.member(&["t"], &[("client.id", "a"), ("max.poll.records", "7")]);
    c.settle(&mut [&mut late, &mut other]);
    assert_eq!((assigned(&late).len(), assigned(&other).len()), (0, 1));
    commit(&mut other).unwrap();
    other.close(1000, &mut || false).unwrap();
    let read = group_position(&c, &tp).unwrap();
    assert_eq!(read, 20);

    c.produce("t", 0, 1);
    connection.lock().watch.released = true;
    assert_eq!(poll_some(&mut late), [(tp.clone(), 20, 20)]);
    assert_eq!(generation(&late), 3);
}

/// Once the member hears that it has to give a partition up, the coordinator moves when the next commit is sent, and takes a time to load.
struct MovesCoordinator {
    broker: Arc<Broker>,
    has_less: bool,
    has_moved: bool,
}

impl Watch for MovesCoordinator {
    fn sending(&mut self, node: NodeId, _: i32, request: &Request) {
        if matches!(request, Request::OffsetCommit(_)) && self.has_less && !self.has_moved {
            self.has_moved = true;
            let to = 3 - node_of_connection(node);
            let moved = self.broker.move_coordinator(CoordinatorType::Group, "g", to, 300);
            moved.unwrap();
        }
    }

    fn arrived(&mut self, completion: &Completion) {
        if let Ok(Response::ConsumerGroupHeartbeat(beat)) = &completion.result
            && let Some(assignment) = &beat.assignment
        {
            let topics = assignment.topic_partitions.iter();
            self.has_less = topics.map(|topic| topic.partitions.len()).sum::<usize>() == 1;
        }
    }
}

#[test]
fn positions_do_not_move_while_the_commit_before_a_revocation_is_repeated() {
    let c = cluster(&[("t", 2)]);
    let all = tps(&[("t", 0), ("t", 1)]);
    all.iter().for_each(|tp| c.produce("t", tp.partition, 500));
    let watch = MovesCoordinator {
        broker: Arc::clone(&c.broker),
        has_less: false,
        has_moved: false,
    };
    let watched = WatchedTransport::new(LocalTransport::new(Arc::clone(&c.broker)), watch);
    let config = [
        ("group.protocol", "consumer"),
        ("enable.auto.commit", "true"),
        ("auto.commit.interval.ms", "40"),
        ("max.poll.records", "5"),
    ];
    let mut a = c.consumer_over(Box::new(watched.clone()), &config);
    a.subscribe(&["t".into()]).unwrap();
    poll_some(&mut a);
    let mut b = c.member(&["t"], &[("group.protocol", "consumer")]);
    (0..6).for_each(|_| drop(poll(&mut b).unwrap()));
    c.clock.advance(5_000);
    let mut returned = 0;
    for _ in 0..100 {
        let had_moved = watched.lock().watch.has_moved;
        let records = poll(&mut a).unwrap().count();
        let is_committing = had_moved && a.assignment().len() == 2;
        returned += if is_committing { records } else { 0 };
        c.clock.advance(20);
    }
    assert!(watched.lock().watch.has_moved, "no commit was refused");
    assert_eq!(a.assignment().len(), 1);
    assert_eq!(returned, 0, "records were returned while positions were committed");
}
