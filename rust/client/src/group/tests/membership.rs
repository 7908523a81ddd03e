//! Being a member: heartbeats, rebalances, leaving.

use fletchlog_api::transport::coordinator_connection;
use fletchlog_api::*;

use super::script::*;
use crate::consumer::RebalanceEvent;
use crate::group::Commit;

#[test]
fn heartbeats_go_out_every_interval_and_a_moved_coordinator_is_found_again_without_a_rejoin() {
    let mut member = Member::stable(&[]);
    member.advance(2_999);
    assert_eq!(member.coordinator.next_deadline_ms(member.now()), 3_000);
    assert!(member.turn().unwrap().is_empty());
    member.advance(1);
    member
        .answer(heartbeat_answer(ErrorCode::NOT_COORDINATOR))
        .answer(found())
        .answer(heartbeat_answer(ErrorCode::NONE));
    assert_eq!(member.turn().unwrap(), ["Heartbeat"]);
    member.advance(3_000);
    assert_eq!(member.turn().unwrap(), ["FindCoordinator", "Heartbeat"]);
    assert_eq!(member.subs.assigned_partitions(), [tp()]);
}

#[test]
fn a_rebalance_revokes_commits_first_and_rejoins_with_the_same_id() {
    let mut member = Member::stable(&[("enable.auto.commit", "true"), ("auto.commit.interval.ms", "60000")]);
    member.coordinator.take_events();
    member.subs.seek(&tp(), 5, None).unwrap();
    member.advance(3_000);
    member
        .answer(heartbeat_answer(ErrorCode::REBALANCE_IN_PROGRESS))
        .answer(commit_answer(ErrorCode::NONE))
        .answer(joined(2))
        .answer(synced());
    assert_eq!(
        member.turn().unwrap(),
        ["Heartbeat", "OffsetCommit 1", "JoinGroup \"m\"", "SyncGroup"]
    );
    assert_eq!(
        member.coordinator.take_events(),
        [
            RebalanceEvent::Revoked(vec![tp()]),
            RebalanceEvent::Assigned(vec![tp()])
        ]
    );
    assert_eq!(member.subs.position(&tp()), None, "an eager rebalance drops positions");
}

/// A turn, and what the listener receives after it, with what is assigned at that moment.
fn heard(member: &mut Member) -> (Vec<String>, Vec<RebalanceEvent>, usize) {
    let sent = member.turn().unwrap();
    let assigned = member.subs.assigned_partitions().len();
    (sent, member.coordinator.take_events(), assigned)
}

/// Kafka: `ConsumerCoordinator#onJoinPrepare` calls the listener before `assignFromSubscribed`.
#[test]
fn a_listener_hears_of_its_partitions_while_they_are_assigned_and_the_join_waits_for_it() {
    let mut member = Member::stable(&[]);
    member.coordinator.take_events();
    member.coordinator.listen(true);
    member.subs.seek(&tp(), 5, None).unwrap();
    member.advance(3_000);
    member.answer(heartbeat_answer(ErrorCode::REBALANCE_IN_PROGRESS));
    let revoked = vec![RebalanceEvent::Revoked(vec![tp()])];
    assert_eq!(heard(&mut member), (vec!["Heartbeat".to_owned()], revoked, 1));
    assert_eq!(member.subs.position(&tp()), Some(5));

    let commit = member
        .coordinator
        .start_commit(member.subs.all_consumed(), Commit::Sync);
    let now = member.now();
    member.answer(commit_answer(ErrorCode::NONE));
    member.coordinator.drive(&mut member.net, &member.subs, now).unwrap();
    member.network().unwrap(); // sends it
    member.network().unwrap(); // reads the answer
    assert_eq!(
        kind(&member.last_sent().1),
        "OffsetCommit 1",
        "in the generation that owned it"
    );
    assert!(matches!(member.coordinator.commit_result(commit), Some(Ok(()))));

    member.answer(joined(2)).answer(synced());
    let assigned = vec![RebalanceEvent::Assigned(vec![tp()])];
    let sent = ["JoinGroup \"m\"", "SyncGroup"].map(str::to_owned).to_vec();
    assert_eq!(heard(&mut member), (sent, assigned, 1));
    assert_eq!(member.subs.position(&tp()), None, "an eager rebalance drops positions");
}

#[test]
fn a_listener_of_a_cooperative_member_hears_what_moves_before_it_takes_the_new_assignment_over() {
    const COOPERATIVE: &str = "cooperative-sticky";
    let mut member = Member::new(&[("partition.assignment.strategy", COOPERATIVE)]);
    member.coordinator.listen(true);
    member
        .answer(found())
        .answer(joined_with(COOPERATIVE, 1))
        .answer(synced_with(COOPERATIVE, &[tp()]));
    assert_eq!(heard(&mut member).1, [RebalanceEvent::Assigned(vec![tp()])]);

    member.advance(3_000);
    member
        .answer(heartbeat_answer(ErrorCode::REBALANCE_IN_PROGRESS))
        .answer(joined_with(COOPERATIVE, 2))
        .answer(synced_with(COOPERATIVE, &[]));
    let (sent, events, assigned) = heard(&mut member);
    assert_eq!(sent, ["Heartbeat", "JoinGroup \"m\"", "SyncGroup"]);
    assert_eq!((events, assigned), (vec![RebalanceEvent::Revoked(vec![tp()])], 1));

    // It hears of the assignment, and only then joins again so that the partition can move.
    assert_eq!(heard(&mut member), (vec![], vec![RebalanceEvent::Assigned(vec![])], 0));
    member
        .answer(joined_with(COOPERATIVE, 3))
        .answer(synced_with(COOPERATIVE, &[]));
    assert_eq!(heard(&mut member).0, ["JoinGroup \"m\"", "SyncGroup"]);
}

#[test]
fn a_member_that_leaves_between_the_heartbeat_and_the_rebalance_gives_nothing_up_twice() {
    let mut member = Member::stable(&[]);
    member.coordinator.take_events();
    member.coordinator.listen(true);
    member.advance(3_000);
    member.answer(heartbeat_answer(ErrorCode::REBALANCE_IN_PROGRESS));
    assert_eq!(heard(&mut member).1, [RebalanceEvent::Revoked(vec![tp()])]);
    assert_eq!(member.coordinator.leaving(&member.subs), None);
}

#[test]
fn an_unknown_member_loses_its_partitions_without_a_commit_and_joins_as_a_new_one() {
    for error in [ErrorCode::UNKNOWN_MEMBER_ID, ErrorCode::ILLEGAL_GENERATION] {
        let mut member = Member::stable(&[("enable.auto.commit", "true"), ("auto.commit.interval.ms", "60000")]);
        member.coordinator.take_events();
        member.subs.seek(&tp(), 5, None).unwrap();
        member.advance(3_000);
        member
            .answer(heartbeat_answer(error))
            .answer(joined(9))
            .answer(synced());
        assert_eq!(
            member.turn().unwrap(),
            ["Heartbeat", "JoinGroup \"\"", "SyncGroup"],
            "{error}"
        );
        assert_eq!(
            member.coordinator.take_events(),
            [RebalanceEvent::Lost(vec![tp()]), RebalanceEvent::Assigned(vec![tp()])]
        );
    }
}

#[test]
fn a_heartbeat_that_fails_is_repeated_after_the_backoff_wherever_the_coordinator_is_then() {
    let moved = Some(heartbeat_answer(ErrorCode::NOT_COORDINATOR));
    for failure in [None, moved] {
        let mut member = Member::stable(&[]);
        member.advance(3_000);
        match failure {
            None => member.lose_connection(),
            Some(answer) => _ = member.answer(answer),
        }
        member.answer(found()).answer(heartbeat_answer(ErrorCode::NONE));
        assert_eq!(member.turn().unwrap(), ["Heartbeat"]);
        member.advance(100); // retry.backoff.ms
        assert_eq!(member.turn().unwrap(), ["FindCoordinator", "Heartbeat"]);
        assert_eq!(member.coordinator.next_deadline_ms(member.now()), 6_100);
    }
}

#[test]
fn a_commit_before_a_rebalance_is_not_repeated_in_the_next_generation() {
    let mut member = Member::stable(&[("enable.auto.commit", "true"), ("auto.commit.interval.ms", "60000")]);
    member.subs.seek(&tp(), 5, None).unwrap();
    member.advance(3_000);
    member.answer(heartbeat_answer(ErrorCode::REBALANCE_IN_PROGRESS));
    member.lose_connection(); // Of the commit.
    member
        .answer(found())
        .answer(heartbeat_answer(ErrorCode::UNKNOWN_MEMBER_ID))
        .answer(joined(2))
        .answer(synced());
    assert_eq!(
        member.turn().unwrap(),
        [
            "Heartbeat",
            "OffsetCommit 1",
            "FindCoordinator",
            "Heartbeat",
            "JoinGroup \"\""
        ]
    );
    assert_eq!(member.turn().unwrap(), ["SyncGroup"]);
    member.advance(100); // retry.backoff.ms
    assert!(member.turn().unwrap().is_empty());
    assert_eq!(member.coordinator.group_metadata().generation_id, 2);
}

#[test]
fn an_answer_to_a_join_that_was_given_up_changes_nothing() {
    let mut member = Member::new(&[]);
    member.answer(found());
    assert_eq!(member.turn().unwrap().len(), 2, "the join is not answered");
    let now = member.now();
    member.coordinator.leave(&mut member.net, &mut member.subs, now);
    let late = Completion {
        node: coordinator_connection(3),
        correlation_id: 1,
        result: Ok(joined(1)),
    };
    assert!(member.coordinator.on_completion(late, &mut member.subs, now).unwrap());
    assert_eq!(member.coordinator.group_metadata().generation_id, -1);
    let strange = Completion {
        node: 1,
        correlation_id: 77,
        result: Ok(found()),
    };
    assert!(
        !member
            .coordinator
            .on_completion(strange, &mut member.subs, now)
            .unwrap()
    );
}

#[test]
fn leaving_sends_one_request_and_static_members_stay() {
    let mut member = Member::stable(&[]);
    member.answer(Response::LeaveGroup(LeaveGroupResponse::default()));
    let now = member.now();
    member.coordinator.leave(&mut member.net, &mut member.subs, now);
    assert!(member.coordinator.leave_pending());
    member.network().unwrap(); // Writes it.
    member.network().unwrap(); // Reads the answer.
    assert!(!member.coordinator.leave_pending());
    assert_eq!(kind(&member.last_sent().1), "LeaveGroup");
    assert_eq!(
        member.coordinator.take_events().last(),
        Some(&RebalanceEvent::Revoked(vec![tp()]))
    );
    let mut member = Member::stable(&[("group.instance.id", "i")]);
    member.coordinator.leave(&mut member.net, &mut member.subs, now);
    assert!(!member.coordinator.leave_pending());
}
