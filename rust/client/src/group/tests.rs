//! The coordinator's client against scripted answers: errors, retries, lost connections. Whole groups are tested with a real
//! broker in `rust/sim/tests/groups`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fletchlog_api::transport::coordinator_connection;
use fletchlog_api::*;
use fletchlog_records::TopicPartition;

use super::protocol;
use super::*;
use crate::ClientError;
use crate::consumer::metadata::Metadata;
use crate::consumer::network_client::ConsumerNetworkClient;
use crate::consumer::subscription_state::SubscriptionState;
use crate::consumer::{RebalanceEvent, SubscribeOrder};

type Answers = Arc<Mutex<VecDeque<Option<Response>>>>;
type Sent = Arc<Mutex<Vec<(NodeId, Request)>>>;

/// Answers the requests in order with what the test has queued: a response, or `None` for a lost connection. Without a queued
/// answer a request stays unanswered.
struct Script {
    answers: Answers,
    sent: Sent,
    arrived: VecDeque<Completion>,
}

impl Transport for Script {
    fn send(&mut self, node: NodeId, correlation_id: i32, request: Request) {
        self.sent.lock().unwrap().push((node, request));
        if let Some(answer) = self.answers.lock().unwrap().pop_front() {
            let result = answer.ok_or(Disconnected);
            self.arrived.push_back(Completion {
                node,
                correlation_id,
                result,
            });
        }
    }
    fn receive(&mut self, node: NodeId) -> Option<Completion> {
        let at = self.arrived.iter().position(|c| c.node == node)?;
        self.arrived.remove(at)
    }
    fn has_arrived(&mut self, node: NodeId) -> bool {
        self.arrived.iter().any(|c| c.node == node)
    }
    fn wait(&mut self, _: Duration) -> bool {
        !self.arrived.is_empty()
    }
}

struct Time(AtomicI64);

impl Clock for Time {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
    fn monotonic_ms(&self) -> i64 {
        self.now_ms()
    }
}

struct Member {
    coordinator: ConsumerCoordinator,
    net: ConsumerNetworkClient,
    subs: SubscriptionState,
    metadata: Metadata,
    time: Arc<Time>,
    answers: Answers,
    sent: Sent,
}

fn tp() -> TopicPartition {
    TopicPartition::new("t", 0)
}

impl Member {
    fn new(config: &[(&str, &str)]) -> Self {
        let given = [
            ("group.id", "g"),
            ("client.id", "c"),
            ("auto.offset.reset", "earliest"),
            ("enable.auto.commit", "false"),
        ];
        let config = Config::parse(Scope::Consumer, given.into_iter().chain(config.iter().copied())).unwrap();
        let (answers, sent) = (Answers::default(), Sent::default());
        let time = Arc::new(Time(AtomicI64::new(0)));
        let script = Script {
            answers: Arc::clone(&answers),
            sent: Arc::clone(&sent),
            arrived: VecDeque::new(),
        };
        let mut subs = SubscriptionState::new(&config, SubscribeOrder::Sorted);
        subs.subscribe(&["t".into()]).unwrap();
        Self {
            coordinator: ConsumerCoordinator::new(&config).unwrap(),
            net: ConsumerNetworkClient::new(Box::new(script), Arc::clone(&time) as Arc<dyn Clock>, 30_000, 0),
            subs,
            metadata: Metadata::new(100, 300_000, true),
            time,
            answers,
            sent,
        }
    }

    fn answer(&self, response: Response) -> &Self {
        self.answers.lock().unwrap().push_back(Some(response));
        self
    }

    fn lose_connection(&self) {
        self.answers.lock().unwrap().push_back(None);
    }

    fn advance(&self, ms: i64) {
        self.time.0.fetch_add(ms, Ordering::SeqCst);
    }

    fn now(&self) -> i64 {
        self.time.now_ms()
    }

    /// Turns until nothing more is sent; the kinds of the requests that were.
    fn turn(&mut self) -> Result<Vec<String>, ClientError> {
        self.sent.lock().unwrap().clear();
        for _ in 0..10 {
            let now = self.now();
            self.coordinator
                .poll(&mut self.net, &mut self.subs, &|t| (t == "t").then_some(1), &[], now)?;
            self.network()?;
        }
        Ok(self
            .sent
            .lock()
            .unwrap()
            .iter()
            .map(|(_, request)| kind(request))
            .collect())
    }

    fn network(&mut self) -> Result<(), ClientError> {
        let now = self.now();
        self.net.try_send(&self.metadata);
        self.net.net_poll(&mut self.metadata, None)?;
        for completion in self.net.take_done() {
            assert!(self.coordinator.on_completion(completion, &mut self.subs, now)?);
        }
        Ok(())
    }

    fn last_sent(&self) -> (NodeId, Request) {
        self.sent.lock().unwrap().last().unwrap().clone()
    }

    /// A member with an assignment.
    fn stable(config: &[(&str, &str)]) -> Self {
        let mut member = Self::new(config);
        member.answer(found()).answer(joined(1)).answer(synced());
        assert_eq!(
            member.turn().unwrap(),
            ["FindCoordinator", "JoinGroup \"\"", "SyncGroup"]
        );
        assert_eq!(member.subs.assigned_partitions(), [tp()]);
        member
    }
}

fn kind(request: &Request) -> String {
    match request {
        Request::FindCoordinator(_) => "FindCoordinator".into(),
        Request::JoinGroup(r) => format!("JoinGroup {:?}", r.member_id),
        Request::SyncGroup(_) => "SyncGroup".into(),
        Request::Heartbeat(_) => "Heartbeat".into(),
        Request::LeaveGroup(_) => "LeaveGroup".into(),
        Request::OffsetCommit(r) => format!("OffsetCommit {}", r.generation_id),
        Request::OffsetFetch(_) => "OffsetFetch".into(),
        other => format!("{other:?}"),
    }
}

fn found() -> Response {
    Response::FindCoordinator(FindCoordinatorResponse {
        error: ErrorCode::NONE,
        node: 3,
    })
}

fn join_answer(error: ErrorCode, generation_id: i32, members: Vec<JoinGroupMember>) -> Response {
    let (member_id, leader): (Arc<str>, Arc<str>) = ("m".into(), "m".into());
    Response::JoinGroup(JoinGroupResponse {
        error,
        generation_id,
        protocol_name: "range".into(),
        leader,
        member_id,
        members,
    })
}

/// Leader of a group of its own.
fn joined(generation: i32) -> Response {
    let metadata = protocol::Subscription {
        topics: vec!["t".into()],
        ..Default::default()
    }
    .encode(1)
    .unwrap();
    join_answer(
        ErrorCode::NONE,
        generation,
        vec![JoinGroupMember {
            member_id: "m".into(),
            group_instance_id: None,
            metadata,
        }],
    )
}

fn synced() -> Response {
    let assignment = protocol::Assignment {
        partitions: vec![tp()],
        user_data: None,
    }
    .encode(1)
    .unwrap();
    Response::SyncGroup(SyncGroupResponse {
        error: ErrorCode::NONE,
        assignment,
    })
}

fn sync_error(error: ErrorCode) -> Response {
    Response::SyncGroup(SyncGroupResponse {
        error,
        assignment: Bytes::new(),
    })
}

fn commit_answer(error: ErrorCode) -> Response {
    Response::OffsetCommit(OffsetCommitResponse {
        partitions: vec![(tp(), error)],
        error_message: None,
    })
}

fn offsets() -> Vec<(TopicPartition, OffsetAndMetadata)> {
    vec![(
        tp(),
        OffsetAndMetadata {
            offset: 7,
            leader_epoch: -1,
            metadata: "".into(),
        },
    )]
}

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
    let assignment = protocol::Assignment::decode(&sync.assignments[0].1).unwrap();
    assert_eq!(
        (sync.generation_id, &*sync.assignments[0].0, assignment.partitions),
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
fn heartbeats_go_out_every_interval_and_a_moved_coordinator_is_found_again_without_a_rejoin() {
    let mut member = Member::stable(&[]);
    member.advance(2_999);
    assert_eq!(member.coordinator.next_deadline_ms(member.now()), 3_000);
    assert!(member.turn().unwrap().is_empty());
    member.advance(1);
    member
        .answer(Response::Heartbeat(ErrorCode::NOT_COORDINATOR))
        .answer(found())
        .answer(Response::Heartbeat(ErrorCode::NONE));
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
        .answer(Response::Heartbeat(ErrorCode::REBALANCE_IN_PROGRESS))
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

#[test]
fn an_unknown_member_loses_its_partitions_without_a_commit_and_joins_as_a_new_one() {
    for error in [ErrorCode::UNKNOWN_MEMBER_ID, ErrorCode::ILLEGAL_GENERATION] {
        let mut member = Member::stable(&[("enable.auto.commit", "true"), ("auto.commit.interval.ms", "60000")]);
        member.coordinator.take_events();
        member.subs.seek(&tp(), 5, None).unwrap();
        member.advance(3_000);
        member
            .answer(Response::Heartbeat(error))
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
    fenced.answer(Response::Heartbeat(ErrorCode::FENCED_INSTANCE_ID));
    assert!(matches!(
        fenced.turn(),
        Err(ClientError::Kafka {
            code: ErrorCode::FENCED_INSTANCE_ID,
            ..
        })
    ));
    let now = fenced.now();
    assert!(fenced.coordinator.drive(&mut fenced.net, &fenced.subs, now).is_err());
}

#[test]
fn unreadable_blobs_are_errors_and_the_member_tries_again() {
    let mut member = Member::new(&[]);
    let garbage = JoinGroupMember {
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
        error: ErrorCode::NONE,
        assignment: Bytes::from_static(&[0]),
    });
    member.answer(joined(2)).answer(garbage);
    assert!(member.turn().unwrap_err().to_string().contains("unreadable assignment"));
    member.advance(100);
    member.answer(joined(3)).answer(synced());
    member.turn().unwrap();
    assert_eq!(member.subs.assigned_partitions(), [tp()]);
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
        correlation_id: 2,
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
fn leaving_tells_the_group_once_and_static_members_stay() {
    let mut member = Member::stable(&[]);
    member.answer(Response::LeaveGroup(ErrorCode::NONE));
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

#[test]
fn a_commit_is_repeated_after_the_backoff_only_if_the_caller_wants_that() {
    let mut member = Member::stable(&[]);
    let patient = member.coordinator.start_commit(offsets(), true);
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
    let once = member.coordinator.start_commit(offsets(), false);
    member.lose_connection();
    member.turn().unwrap();
    assert!(matches!(
        member.coordinator.commit_result(once),
        Some(Err(ClientError::Kafka {
            code: ErrorCode::NETWORK_EXCEPTION,
            ..
        }))
    ));
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
    assert_eq!(commit.offsets[0].1.offset, 6);
    member.advance(999);
    assert!(member.turn().unwrap().is_empty());
}

#[test]
fn committed_offsets_are_asked_for_again_while_a_transaction_commits_them() {
    let mut member = Member::stable(&[]);
    let answer = |error, partitions| Response::OffsetFetch(OffsetFetchResponse { error, partitions });
    let lookup = member.coordinator.start_fetch_committed(vec![tp()]);
    member
        .answer(answer(ErrorCode::UNSTABLE_OFFSET_COMMIT, vec![]))
        .answer(answer(ErrorCode::NONE, vec![(tp(), None)]));
    member.turn().unwrap();
    assert!(member.coordinator.committed_result(lookup).is_none());
    member.advance(100);
    member.turn().unwrap();
    assert_eq!(
        member.coordinator.committed_result(lookup).unwrap().unwrap(),
        [(tp(), None)]
    );
    let refused = member.coordinator.start_fetch_committed(vec![tp()]);
    member.answer(answer(ErrorCode::INVALID_GROUP_ID, vec![]));
    member.turn().unwrap();
    assert!(matches!(
        member.coordinator.committed_result(refused),
        Some(Err(ClientError::Kafka {
            code: ErrorCode::INVALID_GROUP_ID,
            ..
        }))
    ));
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
    member.coordinator.start_commit(offsets(), true);
    member.answer(found()).answer(commit_answer(ErrorCode::NONE));
    assert_eq!(member.turn().unwrap(), ["FindCoordinator", "OffsetCommit -1"]);
}
