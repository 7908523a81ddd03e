//! A member of a consumer group (KIP-848) against scripted answers. A heartbeat is written as its epoch and what it says.

use fletchlog_api::*;
use fletchlog_protocol::messages::ConsumerGroupHeartbeatResponse;
use fletchlog_protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use fletchlog_records::TopicPartition;

use super::script::*;
use crate::ClientError;
use crate::consumer::RebalanceEvent;
use crate::group::Commit;

const CONSUMER: (&str, &str) = ("group.protocol", "consumer");

fn tp(partition: i32) -> TopicPartition {
    TopicPartition::new("t", partition)
}

fn answer_of(epoch: i32, partitions: Option<&[i32]>) -> Response {
    let assignment = |partitions: &[i32]| Assignment {
        topic_partitions: match partitions {
            [] => Vec::new(),
            some => vec![TopicPartitions {
                topic_id: TOPIC_ID,
                partitions: some.to_vec(),
            }],
        },
    };
    Response::ConsumerGroupHeartbeat(ConsumerGroupHeartbeatResponse {
        member_id: Some("m".into()),
        member_epoch: epoch,
        heartbeat_interval_ms: 5000,
        assignment: partitions.map(assignment),
        ..Default::default()
    })
}

fn refused(error_code: ErrorCode) -> Response {
    Response::ConsumerGroupHeartbeat(ConsumerGroupHeartbeatResponse {
        error_code,
        error_message: Some("because".into()),
        ..Default::default()
    })
}

/// A member with partitions 0 and 1 in epoch 2.
fn stable(config: &[(&str, &str)]) -> Member {
    let config: Vec<(&str, &str)> = std::iter::once(CONSUMER).chain(config.iter().copied()).collect();
    let mut member = Member::new(&config);
    member
        .answer(found())
        .answer(answer_of(2, Some(&[0, 1])))
        .answer(answer_of(2, None));
    let sent = member.turn().unwrap();
    assert_eq!(sent[0], "FindCoordinator");
    assert!(
        sent[1].starts_with("0 names [\"t\"]") && sent[1].ends_with(" owns []"),
        "{sent:?}"
    );
    assert_eq!(sent[2..], ["2 owns [0, 1]"]);
    assert_eq!(member.subs.assigned_partitions(), [tp(0), tp(1)]);
    assert_eq!(
        member.coordinator.take_events(),
        [RebalanceEvent::Assigned(vec![tp(0), tp(1)])]
    );
    member
}

#[test]
fn a_steady_member_sends_its_epoch_every_interval_of_the_coordinator_and_takes_the_next_epoch() {
    let mut member = stable(&[("group.remote.assignor", "range")]);
    member.advance(4999);
    assert!(member.turn().unwrap().is_empty());
    member.advance(1);
    member.answer(answer_of(3, None));
    assert_eq!(member.turn().unwrap(), ["2"]);
    member.advance(5000);
    member.answer(answer_of(3, None));
    assert_eq!(member.turn().unwrap(), ["3"]);
    assert_eq!(member.coordinator.group_metadata().generation_id, 3);
}

#[test]
fn what_moves_is_given_up_at_the_old_epoch_and_acknowledged_at_once_and_the_rest_keeps_its_position() {
    let mut member = stable(&[]);
    member.subs.seek(&tp(1), 5, None).unwrap();
    member.advance(5000);
    member.answer(answer_of(2, Some(&[1]))).answer(answer_of(3, None));
    assert_eq!(member.turn().unwrap(), ["2", "2 owns [1]"]);
    assert_eq!(
        member.coordinator.take_events(),
        [
            RebalanceEvent::Revoked(vec![tp(0)]),
            RebalanceEvent::Assigned(Vec::new())
        ]
    );
    assert_eq!(member.subs.assigned_partitions(), [tp(1)]);
    assert_eq!(member.subs.position(&tp(1)), Some(5));
    member.advance(5000);
    member.answer(answer_of(3, None));
    assert_eq!(member.turn().unwrap(), ["3"]);
}

#[test]
fn a_listener_hears_of_what_it_loses_while_it_is_assigned_and_the_acknowledgement_waits_for_it() {
    let mut member = stable(&[]);
    member.coordinator.listen(true);
    member.advance(5000);
    member.answer(answer_of(2, Some(&[1, 2])));
    assert_eq!(member.turn().unwrap(), ["2"]);
    assert_eq!(member.subs.assigned_partitions().len(), 2);
    assert_eq!(member.coordinator.take_events(), [RebalanceEvent::Revoked(vec![tp(0)])]);
    assert!(member.turn().unwrap().is_empty());
    assert_eq!(member.subs.assigned_partitions(), [tp(1), tp(2)]);
    assert_eq!(
        member.coordinator.take_events(),
        [RebalanceEvent::Assigned(vec![tp(2)])]
    );
    member.answer(answer_of(3, None));
    assert_eq!(member.turn().unwrap(), ["2 owns [1, 2]"]);
}

#[test]
fn positions_are_committed_with_the_epoch_before_partitions_are_given_up() {
    let mut member = stable(&[("enable.auto.commit", "true"), ("auto.commit.interval.ms", "60000")]);
    member.subs.seek(&tp(0), 5, None).unwrap();
    member.advance(5000);
    member
        .answer(answer_of(2, Some(&[1])))
        .answer(commit_answer(ErrorCode::NONE))
        .answer(answer_of(3, None));
    assert_eq!(member.turn().unwrap(), ["2", "OffsetCommit 2", "2 owns [1]"]);
}

#[test]
fn the_timer_commits_nothing_while_the_commit_before_a_revocation_is_repeated() {
    let mut member = stable(&[("enable.auto.commit", "true"), ("auto.commit.interval.ms", "6000")]);
    member.subs.seek(&tp(0), 5, None).unwrap();
    member.advance(5000);
    member
        .answer(answer_of(2, Some(&[1])))
        .answer(commit_answer(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS));
    assert_eq!(member.turn().unwrap(), ["2", "OffsetCommit 2"]);
    member.advance(1000);
    member.answer(commit_answer(ErrorCode::NONE)).answer(answer_of(3, None));
    assert_eq!(member.turn().unwrap(), ["OffsetCommit 2", "2 owns [1]"]);
}

#[test]
fn a_fenced_member_loses_its_partitions_and_joins_again_with_its_id() {
    for code in [ErrorCode::FENCED_MEMBER_EPOCH, ErrorCode::UNKNOWN_MEMBER_ID] {
        let mut member = stable(&[]);
        let id = member.coordinator.group_metadata().member_id;
        member.advance(5000);
        member
            .answer(refused(code))
            .answer(answer_of(7, Some(&[1])))
            .answer(answer_of(7, None));
        assert_eq!(member.turn().unwrap(), ["2", "0 names [\"t\"] owns []", "7 owns [1]"]);
        assert_eq!(
            member.coordinator.take_events(),
            [
                RebalanceEvent::Lost(vec![tp(0), tp(1)]),
                RebalanceEvent::Assigned(vec![tp(1)])
            ]
        );
        assert_eq!(member.coordinator.group_metadata().member_id, id);
    }
}

#[test]
fn a_refusal_for_good_is_returned_by_every_poll_with_the_reason() {
    let mut member = stable(&[]);
    member.advance(5000);
    member.answer(refused(ErrorCode::UNSUPPORTED_ASSIGNOR));
    let error = member.turn().unwrap_err();
    assert!(error.to_string().contains("because"), "{error}");
    assert_eq!(code_of(member.turn()), ErrorCode::UNSUPPORTED_ASSIGNOR);
    assert!(member.subs.assigned_partitions().is_empty());
}

#[test]
fn a_lost_heartbeat_is_repeated_with_the_subscription_and_a_moved_coordinator_is_found_again() {
    let mut member = stable(&[]);
    member.advance(5000);
    member
        .answer(refused(ErrorCode::NOT_COORDINATOR))
        .answer(found())
        .answer(answer_of(2, None));
    assert_eq!(member.turn().unwrap(), ["2", "FindCoordinator", "2 names [\"t\"]"]);
    member.advance(5000);
    member.lose_connection();
    member.answer(found()).answer(answer_of(2, None));
    let mut sent = member.turn().unwrap();
    member.advance(100);
    sent.extend(member.turn().unwrap());
    assert_eq!(sent, ["2", "FindCoordinator", "2 names [\"t\"]"]);
}

#[test]
fn a_changed_subscription_is_said_at_once() {
    let mut member = stable(&[]);
    member.subs.subscribe(&["t".into(), "u".into()]).unwrap();
    member.answer(answer_of(3, None));
    assert_eq!(member.turn().unwrap(), ["2 names [\"t\", \"u\"]"]);
    assert!(member.turn().unwrap().is_empty());
}

#[test]
fn a_member_that_leaves_says_so_and_a_static_one_comes_back() {
    for (config, epoch) in [(&[][..], -1), (&[("group.instance.id", "i")][..], -2)] {
        let mut member = stable(config);
        let now = member.now();
        member.coordinator.leave(&mut member.net, &mut member.subs, now);
        assert_eq!(
            member.coordinator.take_events(),
            [RebalanceEvent::Revoked(vec![tp(0), tp(1)])]
        );
        assert!(member.coordinator.leave_pending());
        member.answer(answer_of(epoch, None));
        member.network().unwrap(); // Writes it.
        member.network().unwrap(); // Reads the answer.
        let said = format!("{epoch} names [] owns []");
        assert_eq!(kind(&member.last_sent().1), said);
        assert!(!member.coordinator.leave_pending());
        assert_eq!(member.coordinator.group_metadata().generation_id, -1);
    }
}

#[test]
fn a_member_that_was_not_polled_in_time_leaves_loses_its_partitions_and_joins_again() {
    let mut member = stable(&[("max.poll.interval.ms", "10000")]);
    member.turn().unwrap();
    member.advance(10_001);
    member
        .answer(answer_of(-1, None))
        .answer(answer_of(4, Some(&[0])))
        .answer(answer_of(4, None));
    let sent = member.turn().unwrap();
    assert_eq!(sent, ["-1 names [] owns []", "0 names [\"t\"] owns []", "4 owns [0]"]);
    assert_eq!(
        member.coordinator.take_events()[0],
        RebalanceEvent::Lost(vec![tp(0), tp(1)])
    );
}

#[test]
fn a_commit_with_an_old_epoch_is_repeated_with_the_new_one() {
    let mut member = stable(&[]);
    member.advance(5000);
    let id = member.coordinator.start_commit(offsets(), Commit::Sync);
    member
        .answer(answer_of(3, None))
        .answer(commit_answer(ErrorCode::STALE_MEMBER_EPOCH));
    assert_eq!(member.turn().unwrap(), ["2", "OffsetCommit 2"]);
    member.advance(100);
    member.answer(commit_answer(ErrorCode::NONE));
    assert_eq!(member.turn().unwrap(), ["OffsetCommit 3"]);
    assert!(matches!(member.coordinator.commit_result(id), Some(Ok(()))));
}

#[test]
fn a_consumer_without_a_place_in_the_group_cannot_commit() {
    let mut member = Member::new(&[CONSUMER]);
    member.answer(found());
    let id = member.coordinator.start_commit(offsets(), Commit::Sync);
    let now = member.now();
    for _ in 0..3 {
        member.coordinator.drive(&mut member.net, &member.subs, now).unwrap();
        member.network().unwrap();
    }
    let result = member.coordinator.commit_result(id);
    assert!(matches!(result, Some(Err(ClientError::CommitFailed(_)))), "{result:?}");
}

#[test]
fn a_pattern_is_the_coordinators_to_resolve() {
    let mut member = Member::new(&[CONSUMER]);
    member.subs.unsubscribe();
    member.subs.subscribe_pattern("t.*").unwrap();
    member
        .answer(found())
        .answer(answer_of(1, Some(&[])))
        .answer(answer_of(1, None));
    assert_eq!(
        member.turn().unwrap()[1..],
        ["0 names [] regex \"t.*\" owns []", "1 owns []"]
    );
    member.advance(5000);
    member.answer(answer_of(2, Some(&[0]))).answer(answer_of(2, None));
    assert_eq!(member.turn().unwrap(), ["1", "2 owns [0]"]);
    assert_eq!(member.subs.assigned_partitions(), [tp(0)]);
}

#[test]
fn a_commit_that_is_not_confirmed_when_the_partitions_are_lost_is_not_sent_with_the_next_epoch() {
    let mut member = stable(&[]);
    member.advance(5000);
    let id = member.coordinator.start_commit(offsets(), Commit::Sync);
    member
        .answer(refused(ErrorCode::FENCED_MEMBER_EPOCH))
        .answer(commit_answer(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS))
        .answer(answer_of(7, Some(&[1])))
        .answer(answer_of(7, None));
    let sent = member.turn().unwrap();
    assert_eq!(sent, ["2", "OffsetCommit 2", "0 names [\"t\"] owns []", "7 owns [1]"]);
    member.advance(100);
    assert!(member.turn().unwrap().is_empty());
    assert!(matches!(
        member.coordinator.commit_result(id),
        Some(Err(ClientError::CommitFailed(_)))
    ));
}
