//! What a share consumer sends, in which order, and what it makes of the answers.

mod leader;

use fletchlog_api::ErrorCode;
use fletchlog_records::TopicPartition;

use super::{AcknowledgeType, AcknowledgementCommit};
use crate::ClientError;
use leader::Member;

const EXPLICIT: &[(&str, &str)] = &[("share.acknowledgement.mode", "explicit")];

fn tp(partition: i32) -> TopicPartition {
    TopicPartition::new("t", partition)
}

/// Partition, first and last offset of each run, error.
type Outcome = (i32, Vec<(i64, i64)>, Option<ErrorCode>);

fn results(commits: Vec<AcknowledgementCommit>) -> Vec<Outcome> {
    let one = |commit: AcknowledgementCommit| {
        let code = match commit.result {
            Ok(()) => None,
            Err(ClientError::Kafka { code, .. }) => Some(code),
            Err(other) => panic!("{other}"),
        };
        (commit.tp.partition, commit.offsets, code)
    };
    commits.into_iter().map(one).collect()
}

#[test]
fn a_member_joins_gets_its_partitions_early_and_opens_a_session() {
    let mut member = Member::new(&[]);
    assert_eq!(member.poll(1500), "");
    let log = member.log();
    let join = [
        "heartbeat 0 Some(\"t\")",
        "heartbeat 2 None",
        "heartbeat 2 None",
        "fetch 0 0 1",
        "heartbeat 3 None",
    ];
    assert_eq!(
        log[..5],
        join,
        "the answers 2 [], 2, 3 [0, 1]; the last one acknowledges"
    );
    assert_eq!(
        log[5..],
        ["fetch 1", "fetch 2"],
        "one at a time, while nothing is acquired"
    );
    member.transport.clock.advance(5000);
    member.poll(0);
    assert!(member.log().contains(&"heartbeat 3 None".to_owned()));
}

#[test]
fn the_next_poll_accepts_with_its_fetch() {
    let mut member = Member::joined(&[]);
    member.acquires(0, &[(0, 3, 1)]);
    member.acquires(1, &[(5, 6, 1), (7, 7, 2)]);
    assert_eq!(member.poll(1000), "0:0-3x1 1:5-6x1 1:7-7x2");
    let log = member.log();
    assert!(log.last().unwrap().starts_with("fetch"), "{log:?}");
    assert_eq!(member.consumer.acquisition_lock_timeout_ms(), Some(30_000));
    member.transport.clock.advance(400);
    assert_eq!(
        member.log(),
        Vec::<String>::new(),
        "nothing is fetched ahead once records were acquired"
    );
    member.acquires(0, &[(4, 4, 1)]);
    assert_eq!(member.poll(1000), "0:4-4x1");
    let log = member.log();
    assert!(log[0].ends_with(" 0:0-3=[1] 1:5-7=[1]"), "{log:?}");
}

#[test]
fn commits_and_fetches_count_in_the_same_epochs() {
    let mut member = Member::joined(&[]);
    member.consumer.listen(true);
    member.acquires(0, &[(0, 3, 1)]);
    member.poll(1000);
    let last = member.log().pop().unwrap();
    let epoch: i32 = last.split(' ').nth(1).unwrap().parse().unwrap();
    let committed = member.consumer.commit_sync(1000, &mut || false).unwrap();
    assert!(
        matches!(&committed[..], [(of, Ok(()))] if *of == tp(0)),
        "{committed:?}"
    );
    assert_eq!(member.log(), [format!("acknowledge {} 0:0-3=[1]", epoch + 1)]);
    assert_eq!(
        results(member.consumer.take_acknowledgement_commits()),
        [(0, vec![(0, 3)], None)]
    );
    assert!(
        member.consumer.commit_sync(1000, &mut || false).unwrap().is_empty(),
        "nothing to commit"
    );
    member.poll(0);
    assert_eq!(member.log(), [format!("fetch {}", epoch + 2)]);
}

#[test]
fn explicit_acknowledgements_are_sent_with_the_next_fetch() {
    let mut member = Member::joined(EXPLICIT);
    member.acquires(0, &[(0, 3, 1)]);
    member.poll(1000);
    member.log();
    let refused = member.consumer.poll(None, 0, &mut || false).unwrap_err();
    assert!(
        matches!(&refused, ClientError::IllegalState(why) if why.contains("t-0 at offset 0")),
        "{refused}"
    );
    assert_eq!(member.log(), Vec::<String>::new(), "nothing was sent");
    let mut acknowledge = |first, last, kind| member.consumer.acknowledge(&tp(0), first, last, kind);
    acknowledge(0, 0, AcknowledgeType::Accept).unwrap();
    acknowledge(1, 1, AcknowledgeType::Accept).unwrap();
    acknowledge(1, 1, AcknowledgeType::Release).unwrap();
    acknowledge(2, 3, AcknowledgeType::Reject).unwrap();
    acknowledge(4, 4, AcknowledgeType::Accept).unwrap_err();
    member.poll(0);
    assert!(member.log()[0].ends_with(" 0:0-3=[1, 2, 3, 3]"));
    member
        .consumer
        .acknowledge(&tp(0), 0, 0, AcknowledgeType::Accept)
        .unwrap_err();
}

#[test]
fn a_renewed_record_is_returned_again() {
    let mut member = Member::joined(EXPLICIT);
    member.acquires(0, &[(0, 3, 2)]);
    member.poll(1000);
    member.log();
    member
        .consumer
        .acknowledge(&tp(0), 1, 2, AcknowledgeType::Renew)
        .unwrap();
    member.accepts(0, 0);
    member.accepts(3, 3);
    assert_eq!(member.poll(1000), "0:1-2x2");
    let log = member.log();
    assert!(
        log.len() == 1 && log[0].ends_with(" 0:0-3=[1, 4, 4, 1] renews"),
        "{log:?}"
    );
    member.consumer.poll(None, 0, &mut || false).unwrap_err();
    member.accepts(1, 2);
    assert_eq!(member.poll(0), "");
    assert!(member.log()[0].ends_with(" 0:1-2=[1]"), "a normal fetch");
}

#[test]
fn a_late_acknowledgement_is_reported_and_nothing_else_happens() {
    let mut member = Member::joined(&[]);
    member.consumer.listen(true);
    member.acquires(0, &[(0, 1, 1)]);
    member.acquires(1, &[(0, 1, 1)]);
    member.poll(1000);
    member
        .state()
        .acknowledge_errors
        .insert(1, ErrorCode::INVALID_RECORD_STATE);
    let committed = member.consumer.commit_sync(1000, &mut || false).unwrap();
    let late = Some(ErrorCode::INVALID_RECORD_STATE);
    let failed: Vec<i32> = committed
        .iter()
        .filter(|(_, r)| r.is_err())
        .map(|(tp, _)| tp.partition)
        .collect();
    assert_eq!((committed.len(), failed), (2, vec![1]));
    let commits = results(member.consumer.take_acknowledgement_commits());
    assert_eq!(commits, [(0, vec![(0, 1)], None), (1, vec![(0, 1)], late)]);
    member.acquires(1, &[(0, 1, 2)]);
    assert_eq!(member.poll(1000), "1:0-1x2");
}

#[test]
fn another_session_is_opened_after_122_and_what_waited_for_the_old_one_fails() {
    let mut member = Member::joined(&[]);
    member.consumer.listen(true);
    member.acquires(0, &[(0, 1, 1)]);
    member.poll(1000);
    member.log();
    member.state().refuses.push_back(ErrorCode::SHARE_SESSION_NOT_FOUND);
    assert_eq!(member.poll(150), "");
    let log = member.log();
    assert!(log[0].ends_with(" 0:0-1=[1]"), "{log:?}");
    assert_eq!(log[1], "fetch 0 0 1", "all partitions again");
    let lost = Some(ErrorCode::SHARE_SESSION_NOT_FOUND);
    assert_eq!(
        results(member.consumer.take_acknowledgement_commits()),
        [(0, vec![(0, 1)], lost)]
    );
}

#[test]
fn a_close_sends_what_is_acknowledged_and_leaves() {
    let mut member = Member::joined(EXPLICIT);
    member.acquires(0, &[(0, 3, 1)]);
    member.poll(1000);
    member.log();
    member.accepts(0, 1);
    member.consumer.close(1000, &mut || false).unwrap();
    let gone = ["acknowledge -1 0:0-1=[1]", "heartbeat -1 Some(\"\")"];
    assert_eq!(member.log(), gone, "the other records are released");
    member.consumer.close(1000, &mut || false).unwrap();
    assert!(matches!(
        member.consumer.poll(None, 0, &mut || false),
        Err(ClientError::Closed(_))
    ));

    let mut implicit = Member::joined(&[]);
    implicit.acquires(0, &[(0, 3, 1)]);
    implicit.poll(1000);
    implicit.log();
    implicit.consumer.close(1000, &mut || false).unwrap();
    assert_eq!(
        implicit.log()[0],
        "acknowledge -1",
        "records of the last poll are not accepted"
    );
}

#[test]
fn with_a_record_limit_one_node_at_a_time_is_asked_for_records() {
    let mut member = Member::new(&[("share.acquire.mode", "record_limit")]);
    member.state().leaders = vec![1, 2];
    assert_eq!(member.poll(1600), "");
    let fetches = |log: Vec<String>| -> Vec<String> {
        let mut log = log;
        log.retain(|request| request.starts_with("fetch"));
        log
    };
    let asked = ["fetch 0 0", "fetch 0 1 for no records", "fetch 1", "fetch 1"];
    assert_eq!(fetches(member.log())[..4], asked, "of each node in turn");
    // Of the node whose turn it is.
    member.acquires(0, &[(0, 1, 1)]);
    member.acquires(1, &[(0, 1, 1)]);
    let polled = member.poll(1000);
    assert!(polled == "0:0-1x1" || polled == "1:0-1x1", "{polled}");
    member.log();
    member.poll(400);
    let log = fetches(member.log());
    let acknowledges = log.iter().filter(|request| request.contains(":0-1=[1]"));
    assert_eq!(acknowledges.count(), 1, "{log:?}");
}

#[test]
fn a_close_is_not_woken_up() {
    let mut member = Member::joined(EXPLICIT);
    member.acquires(0, &[(0, 3, 1)]);
    member.poll(1000);
    member.log();
    member.accepts(0, 1);
    member.consumer.wakeup_handle().wake();
    member.consumer.close(1000, &mut || false).unwrap();
    let gone = ["acknowledge -1 0:0-1=[1]", "heartbeat -1 Some(\"\")"];
    assert_eq!(member.log(), gone);
}

#[test]
fn the_result_for_a_topic_that_is_no_more_subscribed_arrives() {
    let mut member = Member::joined(EXPLICIT);
    member.consumer.listen(true);
    member.acquires(0, &[(0, 1, 1)]);
    member.poll(1000);
    member.accepts(0, 1);
    member.consumer.subscribe(&["u".into()], &mut || false).unwrap();
    member.poll(1000);
    assert_eq!(
        results(member.consumer.take_acknowledgement_commits()),
        [(0, vec![(0, 1)], None)]
    );
}

#[test]
fn an_iteration_sends_its_acknowledgements_together() {
    let mut member = Member::joined(&[]);
    member.acquires(0, &[(0, 2, 1)]);
    let mut offsets = Vec::new();
    for _ in 0..3 {
        let polled = member.consumer.poll(Some(1), 1000, &mut || false).unwrap();
        assert_eq!(polled.count(), 1);
        offsets.push(polled.runs[0].first_offset);
    }
    assert_eq!(offsets, [0, 1, 2]);
    assert!(member.log().iter().all(|request| !request.contains('=')));
    let one = member.consumer.commit_sync(1000, &mut || false).unwrap();
    assert_eq!(one.len(), 1);
    let log = member.log();
    assert!(log.len() == 1 && log[0].ends_with(" 0:0-2=[1]"), "{log:?}");
}

#[test]
fn partitions_move_between_nodes_and_members() {
    let mut member = Member::joined(&[]);
    member.state().heartbeats.push_back((4, Some(vec![1])));
    member.transport.clock.advance(5000);
    member.poll(600);
    let log = member.log();
    assert!(log.iter().any(|request| request.ends_with("forgets [0]")), "{log:?}");
}

#[test]
fn a_share_consumer_needs_a_group_and_refuses_what_only_a_consumer_has() {
    use fletchlog_api::{Config, Scope};
    let made = |given: &[(&str, &str)]| {
        let config = Config::parse(Scope::Consumer, given.iter().copied()).unwrap();
        super::settings::Settings::of(&config)
            .map(|settings| settings.group_id)
            .map_err(|error| error.to_string())
    };
    assert!(made(&[]).unwrap_err().contains("group.id"));
    let refused = made(&[("group.id", "g"), ("auto.offset.reset", "earliest")]).unwrap_err();
    assert!(
        refused.contains("auto.offset.reset") && refused.contains("share.auto.offset.reset"),
        "{refused}"
    );
    assert_eq!(&*made(&[("group.id", "g")]).unwrap(), "g");
}
