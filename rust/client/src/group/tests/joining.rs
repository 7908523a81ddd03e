//! Joining: the requests up to an assignment, and what each error of them leads to.

use bytes::Bytes;
use fletchlog_api::transport::coordinator_connection;
use fletchlog_api::*;
use fletchlog_protocol::messages::join_group_response::JoinGroupResponseMember;
use fletchlog_protocol::values::ConsumerProtocolAssignment;
use fletchlog_protocol::values::consumer_protocol::flattened;

use super::script::*;
use crate::ClientError;
use crate::consumer::RebalanceEvent;

#[test]
fn a_member_joins_with_the_id_it_was_given_over_the_coordinators_own_connection() {
    let mut member = Member::new(&[]);
    member
        .answer(found())
        .answer(join_answer(ErrorCode::MEMBER_ID_REQUIRED, -1, vec![]))
        .answer(joined(4))
        .answer(synced());
    assert_eq!(
        member.turn().unwrap(),
        ["FindCoordinator", "JoinGroup \"\"", "JoinGroup \"m\"", "SyncGroup"]
    );
    let (node, request) = member.last_sent();
    assert_eq!(node, coordinator_connection(3));
    let Request::SyncGroup(sync) = request else {
        panic!("{request:?}")
    };
    let assignment = ConsumerProtocolAssignment::of_member(sync.assignments[0].assignment.clone()).unwrap();
    assert_eq!(
        (
            sync.generation_id,
            &*sync.assignments[0].member_id,
            flattened(&assignment.assigned_partitions)
        ),
        (4, "m", vec![tp()])
    );
    assert!(!member.coordinator.rejoin_needed_or_pending());
    let metadata = member.coordinator.group_metadata();
    assert_eq!(
        (&*metadata.member_id, metadata.generation_id, &*metadata.group_id),
        ("m", 4, "g")
    );
    assert_eq!(member.coordinator.take_events(), [RebalanceEvent::Assigned(vec![tp()])]);
}

#[test]
fn a_member_gives_its_partitions_up_at_once_and_a_leader_waits_for_the_topics() {
    let mut member = Member::stable(&[]);
    member.subs.subscribe(&["t".into(), "new".into()]).unwrap();
    member.topics_are_fresh = false;
    member.answer(joined(2)).answer(synced());
    assert_eq!(member.turn().unwrap(), ["JoinGroup \"m\""]);
    assert_eq!(member.subs.assigned_partitions(), []);
    member.topics_are_fresh = true;
    assert_eq!(member.turn().unwrap(), ["SyncGroup"]);
    assert_eq!(member.subs.assigned_partitions(), [tp()]);
}

#[test]
fn errors_of_join_and_sync_are_repeated_as_their_kind_asks() {
    // (answers before the one that works, requests up to it, waits for the backoff)
    let cases = [
        (
            join_answer(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, -1, vec![]),
            vec!["JoinGroup \"\""],
            true,
        ),
        (
            join_answer(ErrorCode::NOT_COORDINATOR, -1, vec![]),
            vec!["JoinGroup \"\"", "FindCoordinator"],
            true,
        ),
        (
            join_answer(ErrorCode::UNKNOWN_MEMBER_ID, -1, vec![]),
            vec!["JoinGroup \"\""],
            false,
        ),
    ];
    for (failure, requests, waits) in cases {
        let mut member = Member::new(&[]);
        member.answer(found()).answer(failure.clone());
        let refinds = requests.len() > 1;
        if refinds {
            member.answer(found());
        }
        member.answer(joined(1)).answer(synced());
        let mut sent = member.turn().unwrap();
        if waits {
            assert!(!sent.contains(&"SyncGroup".to_owned()), "{failure:?}: {sent:?}");
            member.advance(99);
            assert!(
                member.turn().unwrap().is_empty(),
                "{failure:?} was repeated before the backoff"
            );
            member.advance(1);
            sent.extend(member.turn().unwrap());
        }
        let expected: Vec<&str> = ["FindCoordinator"]
            .into_iter()
            .chain(requests)
            .chain(["JoinGroup \"\"", "SyncGroup"])
            .collect();
        assert_eq!(sent, expected, "{failure:?}");
    }
    for (failure, again) in [
        (ErrorCode::REBALANCE_IN_PROGRESS, "JoinGroup \"m\""),
        (ErrorCode::ILLEGAL_GENERATION, "JoinGroup \"\""),
    ] {
        let mut member = Member::new(&[]);
        member
            .answer(found())
            .answer(joined(1))
            .answer(sync_error(failure))
            .answer(joined(2))
            .answer(synced());
        assert_eq!(member.turn().unwrap()[3..], [again, "SyncGroup"], "{failure}");
    }
}

#[test]
fn a_lost_connection_is_a_lost_coordinator_and_the_member_id_is_kept() {
    let mut member = Member::new(&[]);
    member
        .answer(found())
        .answer(join_answer(ErrorCode::MEMBER_ID_REQUIRED, -1, vec![]))
        .lose_connection();
    member.answer(found()).answer(joined(1)).answer(synced());
    member.turn().unwrap();
    member.advance(100);
    assert_eq!(member.turn().unwrap(), ["JoinGroup \"m\"", "SyncGroup"]);
}

#[test]
fn what_is_refused_for_good_is_answered_by_every_later_call() {
    let mut member = Member::new(&[]);
    member
        .answer(found())
        .answer(join_answer(ErrorCode::GROUP_MAX_SIZE_REACHED, -1, vec![]));
    for _ in 0..2 {
        let error = member.turn().unwrap_err();
        assert!(
            matches!(&error, ClientError::Kafka { code: ErrorCode::GROUP_MAX_SIZE_REACHED, message } if message.contains("group g")),
            "{error:?}"
        );
    }
    let mut fenced = Member::stable(&[("group.instance.id", "i")]);
    fenced.advance(3_000);
    fenced.answer(heartbeat_answer(ErrorCode::FENCED_INSTANCE_ID));
    assert_eq!(code_of(fenced.turn()), ErrorCode::FENCED_INSTANCE_ID);
    let now = fenced.now();
    assert!(fenced.coordinator.drive(&mut fenced.net, &fenced.subs, now).is_err());
}

#[test]
fn unreadable_blobs_are_errors_and_the_member_tries_again() {
    let mut member = Member::new(&[]);
    let garbage = JoinGroupResponseMember {
        member_id: "m".into(),
        group_instance_id: None,
        metadata: Bytes::from_static(&[0, 1, 9]),
    };
    member
        .answer(found())
        .answer(join_answer(ErrorCode::NONE, 1, vec![garbage]));
    assert!(
        member
            .turn()
            .unwrap_err()
            .to_string()
            .contains("unreadable subscription")
    );
    member.advance(100);
    let garbage = Response::SyncGroup(SyncGroupResponse {
        assignment: Bytes::from_static(&[0]),
        ..Default::default()
    });
    member.answer(joined(2)).answer(garbage);
    assert!(member.turn().unwrap_err().to_string().contains("unreadable assignment"));
    member.advance(100);
    member.answer(joined(3)).answer(synced());
    member.turn().unwrap();
    assert_eq!(member.subs.assigned_partitions(), [tp()]);
}
