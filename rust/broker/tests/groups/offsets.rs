//! Committed offsets: when a commit is taken, and how long it is kept.

use fletchlog_api::*;

use super::member::*;
use crate::common::*;

#[test]
fn commits_are_accepted_by_group_state_and_membership() {
    let world = World::new(&[]);
    let mut simple = world.member();
    assert_eq!(simple.commit_as(7, "x", 1), ErrorCode::ILLEGAL_GENERATION);
    assert_eq!(simple.committed(), None);
    assert_eq!(simple.commit_as(-1, "", 5), ErrorCode::NONE);
    assert_eq!(simple.committed(), Some(5));
    let (mut a, _b) = two(&world);
    assert_eq!(simple.commit_as(-1, "", 6), ErrorCode::UNKNOWN_MEMBER_ID);
    let id = a.id.clone();
    assert_eq!(a.commit_as(1, &id, 6), ErrorCode::ILLEGAL_GENERATION);
    assert_eq!(a.commit_as(2, &id, 7), ErrorCode::NONE);
    let mut c = world.member();
    c.begin_join();
    assert_eq!(a.commit_as(2, &id, 8), ErrorCode::NONE, "while a rebalance is prepared");
    assert_eq!(simple.committed(), Some(8));
}

#[test]
fn a_commit_before_the_new_assignment_is_known_is_refused() {
    let world = World::new(&[]);
    let mut a = world.member();
    a.join();
    let id = a.id.clone();
    assert_eq!(a.commit_as(1, &id, 1), ErrorCode::REBALANCE_IN_PROGRESS);
}

#[test]
fn commits_of_unknown_partitions_or_with_long_metadata_are_refused_one_by_one() {
    let world = World::new(&[]);
    let mut member = world.member();
    let value = |len: usize| OffsetAndMetadata {
        offset: 1,
        leader_epoch: -1,
        metadata: "m".repeat(len).into(),
    };
    let request = OffsetCommitRequest {
        group_id: "g".into(),
        topics: OffsetCommitRequest::topics_of([
            (tp("t", 9), value(0)),
            (tp("t", 0), value(4097)),
            (tp("t", 1), value(4096)),
        ]),
        ..Default::default()
    };
    let Response::OffsetCommit(response) = member.client.ask(1, Request::OffsetCommit(request)) else {
        panic!()
    };
    let codes: Vec<i16> = response.errors().map(|(_, e)| e.code()).collect();
    assert_eq!(codes, [3, 12, 0]);
    assert_eq!(member.committed(), None);
}

#[test]
fn offsets_of_an_empty_group_expire_and_those_of_a_live_one_do_not() {
    let config = [
        ("offsets.retention.minutes", "20"),
        ("offsets.retention.check.interval.ms", "1000"),
    ];
    let world = World::new(&config);
    let (mut a, mut b) = two(&world);
    let (id, generation) = (a.id.clone(), a.generation);
    assert_eq!(a.commit_as(generation, &id, 9), ErrorCode::NONE);
    for _ in 0..40 {
        world.clock.advance(30_000);
        a.heartbeat();
        b.heartbeat();
    }
    assert_eq!(a.committed(), Some(9), "the group is in use");
    a.leave();
    b.leave();
    world.clock.advance(20 * 60_000 - 1);
    assert_eq!(a.committed(), Some(9));
    world.clock.advance(1000);
    assert_eq!(a.committed(), None);
}

#[test]
fn a_deleted_topic_takes_its_commits_with_it() {
    let world = World::new(&[]);
    let mut member = world.member();
    member.commit_as(-1, "", 5);
    world.broker.delete_topic("t").unwrap();
    world.broker.create_topic("t", 4, &[]).unwrap();
    assert_eq!(member.committed(), None);
}
