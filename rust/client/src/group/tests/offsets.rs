//! Commits, and looking up what is committed.

use fletchlog_api::*;
use fletchlog_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};

use super::script::*;
use crate::group::{Commit, ConsumerCoordinator};

#[test]
fn a_commit_is_repeated_after_the_backoff_only_if_the_caller_wants_that() {
    let mut member = Member::stable(&[]);
    let patient = member.coordinator.start_commit(offsets(), Commit::Sync);
    member
        .answer(commit_answer(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS))
        .answer(commit_answer(ErrorCode::NONE));
    assert_eq!(member.turn().unwrap(), ["OffsetCommit 1"]);
    assert!(member.coordinator.commit_result(patient).is_none());
    assert_eq!(member.coordinator.next_deadline_ms(member.now()), 100);
    member.advance(100);
    assert_eq!(member.turn().unwrap(), ["OffsetCommit 1"]);
    assert!(matches!(member.coordinator.commit_result(patient), Some(Ok(()))));
    assert!(
        member.coordinator.commit_result(patient).is_none(),
        "a result is given once"
    );
    let once = member.coordinator.start_commit(offsets(), Commit::Once);
    member.lose_connection();
    member.turn().unwrap();
    let result = member.coordinator.commit_result(once).unwrap();
    assert_eq!(code_of(result), ErrorCode::NETWORK_EXCEPTION);
}

#[test]
fn an_auto_commit_that_fails_for_a_moment_is_repeated_after_the_backoff_with_the_positions_of_then() {
    let mut member = Member::stable(&[("enable.auto.commit", "true"), ("auto.commit.interval.ms", "1000")]);
    member.subs.seek(&tp(), 5, None).unwrap();
    member.advance(1_000);
    member
        .answer(commit_answer(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS))
        .answer(commit_answer(ErrorCode::NONE));
    assert_eq!(member.turn().unwrap(), ["OffsetCommit 1"]);
    member.subs.seek(&tp(), 6, None).unwrap();
    member.advance(100);
    assert_eq!(member.turn().unwrap(), ["OffsetCommit 1"]);
    let Request::OffsetCommit(commit) = member.last_sent().1 else {
        panic!()
    };
    assert_eq!(commit.offsets().next().unwrap().1.offset, 6);
    member.advance(999);
    assert!(member.turn().unwrap().is_empty());
}

#[test]
fn the_timer_commits_nothing_while_the_member_has_to_rejoin() {
    let mut member = Member::stable(&[("enable.auto.commit", "true"), ("auto.commit.interval.ms", "5000")]);
    member.subs.seek(&tp(), 5, None).unwrap();
    member.advance(3_000);
    member.lose_connection(); // Of the heartbeat.
    assert_eq!(member.turn().unwrap(), ["Heartbeat"]);
    member.subs.subscribe(&["t".into(), "u".into()]).unwrap();
    member.advance(3_000);
    member
        .answer(found())
        .answer(heartbeat_answer(ErrorCode::NONE))
        .answer(commit_answer(ErrorCode::NONE));
    assert_eq!(
        member.turn().unwrap(),
        ["FindCoordinator", "Heartbeat", "OffsetCommit 1", "JoinGroup \"m\""]
    );
    assert_eq!(
        member.coordinator.next_deadline_ms(member.now()),
        i64::MAX,
        "only the answer helps"
    );
}

#[test]
fn committed_offsets_are_asked_for_again_while_a_transaction_commits_them() {
    let mut member = Member::stable(&[]);
    let answer = |error_code, partitions: &[OffsetFetchResponsePartitions]| {
        let topic = OffsetFetchResponseTopics {
            name: tp().topic,
            partitions: partitions.to_vec(),
            ..Default::default()
        };
        let group = OffsetFetchResponseGroup {
            topics: vec![topic],
            error_code,
            ..Default::default()
        };
        Response::OffsetFetch(OffsetFetchResponse {
            groups: vec![group],
            ..Default::default()
        })
    };
    let committed = |committed| [OffsetFetchResponsePartitions::of(tp().partition, committed)];
    let lookup = member.coordinator.start_fetch_committed(vec![tp()]);
    member
        .answer(answer(
            ErrorCode::NONE,
            &committed(Err(ErrorCode::UNSTABLE_OFFSET_COMMIT)),
        ))
        .answer(answer(ErrorCode::NONE, &committed(Ok(None))));
    member.turn().unwrap();
    assert!(member.coordinator.committed_result(lookup).is_none());
    member.advance(100);
    member.turn().unwrap();
    assert_eq!(
        member.coordinator.committed_result(lookup).unwrap().unwrap(),
        [(tp(), None)]
    );
    let refused = member.coordinator.start_fetch_committed(vec![tp()]);
    member.answer(answer(ErrorCode::INVALID_GROUP_ID, &[]));
    member.turn().unwrap();
    let result = member.coordinator.committed_result(refused).unwrap();
    assert_eq!(code_of(result), ErrorCode::INVALID_GROUP_ID);
}

#[test]
fn without_group_id_there_is_no_coordinator_and_assign_needs_no_membership() {
    assert!(ConsumerCoordinator::new(&Config::parse(Scope::Consumer, []).unwrap()).is_none());
    let mut member = Member::new(&[]);
    member.subs.unsubscribe();
    member.subs.assign_from_user(&[tp()]).unwrap();
    assert!(member.turn().unwrap().is_empty());
    assert!(!member.coordinator.rejoin_needed_or_pending());
    assert_eq!(member.coordinator.next_deadline_ms(0), i64::MAX);
    member.coordinator.start_commit(offsets(), Commit::Sync);
    member.answer(found()).answer(commit_answer(ErrorCode::NONE));
    assert_eq!(member.turn().unwrap(), ["FindCoordinator", "OffsetCommit -1"]);
}

#[test]
fn the_last_commit_of_a_member_leaves_out_topics_that_are_gone_and_commitsync_repeats_it() {
    let mut member = Member::stable(&[]);
    let last = member.coordinator.start_commit(offsets(), Commit::Last);
    member.answer(commit_answer(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
    assert_eq!(
        member.turn().unwrap(),
        ["OffsetCommit 1"],
        "and the metadata have no topic"
    );
    assert!(matches!(member.coordinator.commit_result(last), Some(Ok(()))));

    let sync = member.coordinator.start_commit(offsets(), Commit::Sync);
    for _ in 0..3 {
        member.answer(commit_answer(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
        assert_eq!(member.turn().unwrap(), ["OffsetCommit 1"]);
        member.advance(100);
    }
    assert!(member.coordinator.commit_result(sync).is_none());
    let why = member.coordinator.last_refusal(sync).unwrap();
    assert!(
        why.contains("t-0") && why.contains("UNKNOWN_TOPIC_OR_PARTITION"),
        "{why}"
    );
}
