//! The state machine by itself: transitions, the order of its requests, the table of answers.

mod version_2;

use std::iter::repeat;
use std::sync::Arc;

use fletchlog_api::*;
use fletchlog_protocol::messages::find_coordinator_response::Coordinator;
use fletchlog_records::TopicPartition;

use super::answers::NewId;
use super::manager::TransactionManager;
use super::request::{Kind, RequestResult, TxnRequest};
use super::state::State;
use crate::ClientError;
use crate::group::ConsumerGroupMetadata;

const PRODUCER: (i64, i16) = (7, 0);
const BACKOFF: i64 = 100;

fn group() -> ConsumerGroupMetadata {
    ConsumerGroupMetadata {
        group_id: "g".into(),
        generation_id: -1,
        member_id: "".into(),
        group_instance_id: None,
    }
}

fn offsets() -> Vec<(TopicPartition, OffsetAndMetadata)> {
    let at = |offset| OffsetAndMetadata {
        offset,
        leader_epoch: -1,
        metadata: "".into(),
    };
    vec![
        (TopicPartition::new("t", 0), at(1)),
        (TopicPartition::new("t", 1), at(2)),
    ]
}

/// Initialised, its coordinators known, inside a transaction.
fn in_transaction() -> TransactionManager {
    let mut manager = TransactionManager::new("id".into(), 60_000, BACKOFF);
    let result = manager.initialize().unwrap();
    let init = next(&mut manager);
    let new = answer(&mut manager, init, ErrorCode::NONE);
    assert_eq!(
        new,
        Some(NewId {
            id: PRODUCER,
            bumped: false
        })
    );
    assert!(result.outcome().unwrap().is_ok());
    result.acknowledge();
    manager.begin().unwrap();
    manager.transaction_coordinator = Some(1);
    manager.group_coordinator = Some(("g".into(), 1));
    manager
}

fn next(manager: &mut TransactionManager) -> TxnRequest {
    let request = manager.next_request(false).expect("a request is due");
    manager.sent();
    request
}

fn commit_answer(
    offsets: &[(TopicPartition, OffsetAndMetadata)],
    codes: impl IntoIterator<Item = ErrorCode>,
) -> Response {
    let request = TxnOffsetCommitRequest {
        topics: TxnOffsetCommitRequest::topics_of(offsets.iter().cloned()),
        ..Default::default()
    };
    Response::TxnOffsetCommit(request.answered(codes))
}

/// Answers a request with this code for everything in it.
fn answer(manager: &mut TransactionManager, request: TxnRequest, code: ErrorCode) -> Option<NewId> {
    let tps = |n: usize| (0..n).map(|p| TopicPartition::new("t", i32::try_from(p).unwrap()));
    let response = match &request.kind {
        Kind::FindCoordinator { .. } => Response::FindCoordinator(FindCoordinatorResponse {
            coordinators: vec![Coordinator {
                error_code: code,
                node_id: 1,
                ..Default::default()
            }],
            ..Default::default()
        }),
        Kind::InitProducerId { .. } => Response::InitProducerId(InitProducerIdResponse {
            error_code: code,
            producer_id: PRODUCER.0,
            producer_epoch: PRODUCER.1,
            ..Default::default()
        }),
        Kind::AddPartitionsToTxn { partitions } => {
            let request = AddPartitionsToTxnRequest {
                v3_and_below_topics: AddPartitionsToTxnRequest::topics_of(tps(partitions.len())),
                ..Default::default()
            };
            Response::AddPartitionsToTxn(request.answered(repeat(code)))
        }
        Kind::AddOffsetsToTxn { .. } => Response::AddOffsetsToTxn(AddOffsetsToTxnResponse {
            error_code: code,
            ..Default::default()
        }),
        Kind::TxnOffsetCommit { offsets, .. } => commit_answer(offsets, repeat(code)),
        Kind::EndTxn { .. } => Response::EndTxn(EndTxnResponse {
            error_code: code,
            ..Default::default()
        }),
    };
    manager.answered(request, &response, PRODUCER, 0)
}

#[test]
fn transitions_are_those_of_the_table() {
    use State::*;
    let all = [
        Uninitialized,
        Initializing,
        Ready,
        InTransaction,
        CommittingTransaction,
        AbortingTransaction,
        AbortableError,
        FatalError,
    ];
    let allowed: &[(State, &[State])] = &[
        (Uninitialized, &[]),
        (
            Initializing,
            &[Uninitialized, CommittingTransaction, AbortingTransaction],
        ),
        (Ready, &[Initializing, CommittingTransaction, AbortingTransaction]),
        (InTransaction, &[Ready]),
        (CommittingTransaction, &[InTransaction]),
        (AbortingTransaction, &[InTransaction, AbortableError]),
        (AbortableError, &[InTransaction, CommittingTransaction, AbortableError]),
        (FatalError, &all),
    ];
    for (target, sources) in allowed {
        for source in all {
            assert_eq!(
                source.may_become(*target),
                sources.contains(&source),
                "{source} -> {target}"
            );
        }
    }
}

/// What an answer led to.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Outcome {
    Again,
    /// After the coordinator was looked up.
    LookUp,
    Abortable,
    /// The epoch rises with the abort.
    AbortableBump,
    Fatal,
}

fn outcome(manager: &TransactionManager, result: &RequestResult) -> Outcome {
    match manager.state {
        State::FatalError => {
            assert!(result.outcome().unwrap().is_err());
            Outcome::Fatal
        }
        State::AbortableError => {
            assert!(result.outcome().unwrap().is_err());
            if manager.epoch_bump_required {
                Outcome::AbortableBump
            } else {
                Outcome::Abortable
            }
        }
        _ => {
            assert!(result.outcome().is_none());
            if manager.queue.has(|kind| matches!(kind, Kind::FindCoordinator { .. })) {
                Outcome::LookUp
            } else {
                Outcome::Again
            }
        }
    }
}

/// A manager whose next request is of the wanted kind.
fn about_to(kind: &str) -> (TransactionManager, TxnRequest) {
    let mut manager = match kind {
        "InitProducerId" => {
            let mut manager = TransactionManager::new("id".into(), 60_000, BACKOFF);
            manager.initialize().unwrap();
            manager.transaction_coordinator = Some(1);
            manager
        }
        _ => in_transaction(),
    };
    match kind {
        "AddPartitionsToTxn" => manager.maybe_add_partition(0),
        "AddOffsetsToTxn" => drop(manager.send_offsets(offsets(), group()).unwrap()),
        "TxnOffsetCommit" => {
            manager.send_offsets(offsets(), group()).unwrap();
            let add = next(&mut manager);
            answer(&mut manager, add, ErrorCode::NONE);
        }
        "EndTxn" => {
            manager.started = true;
            manager.begin_commit().unwrap();
        }
        _ => {}
    }
    let request = next(&mut manager);
    (manager, request)
}

#[test]
fn answers_mean_what_the_table_says() {
    use ErrorCode as E;
    use Outcome::*;
    let all = [
        "InitProducerId",
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "TxnOffsetCommit",
        "EndTxn",
    ];
    let table: &[(E, [Outcome; 5])] = &[
        (E::NOT_COORDINATOR, [LookUp; 5]),
        (E::COORDINATOR_NOT_AVAILABLE, [LookUp; 5]),
        (E::COORDINATOR_LOAD_IN_PROGRESS, [Again; 5]),
        (E::CONCURRENT_TRANSACTIONS, [Again; 5]),
        (E::UNKNOWN_TOPIC_OR_PARTITION, [Fatal, Again, Fatal, Again, Fatal]),
        (E::INVALID_PRODUCER_EPOCH, [Fatal; 5]),
        (E::PRODUCER_FENCED, [Fatal; 5]),
        (E::TRANSACTIONAL_ID_AUTHORIZATION_FAILED, [Fatal; 5]),
        (E::INVALID_TXN_STATE, [Fatal; 5]),
        (
            E::INVALID_PRODUCER_ID_MAPPING,
            [Fatal, AbortableBump, AbortableBump, Fatal, AbortableBump],
        ),
        (
            E::UNKNOWN_PRODUCER_ID,
            [Fatal, AbortableBump, AbortableBump, Fatal, AbortableBump],
        ),
        (E::TOPIC_AUTHORIZATION_FAILED, [Fatal, Abortable, Fatal, Fatal, Fatal]),
        (E::OPERATION_NOT_ATTEMPTED, [Fatal, Abortable, Fatal, Fatal, Fatal]),
        (E::ILLEGAL_GENERATION, [Fatal, Abortable, Fatal, Abortable, Fatal]),
        (E::UNKNOWN_MEMBER_ID, [Fatal, Abortable, Fatal, Abortable, Fatal]),
        (E::FENCED_INSTANCE_ID, [Fatal, Abortable, Fatal, Abortable, Fatal]),
        (E::GROUP_ID_NOT_FOUND, [Fatal, Abortable, Fatal, Abortable, Fatal]),
        (E::STALE_MEMBER_EPOCH, [Fatal, Abortable, Fatal, Abortable, Fatal]),
        (
            E::GROUP_AUTHORIZATION_FAILED,
            [Fatal, Abortable, Abortable, Abortable, Fatal],
        ),
        (E::INVALID_TRANSACTION_TIMEOUT, [Fatal, Abortable, Fatal, Fatal, Fatal]),
        (E::UNKNOWN_SERVER_ERROR, [Fatal, Abortable, Fatal, Fatal, Fatal]),
    ];
    for (code, expected) in table {
        for (kind, expected) in all.iter().zip(expected) {
            let (mut manager, request) = about_to(kind);
            let result = Arc::clone(&request.result);
            answer(&mut manager, request, *code);
            assert_eq!(outcome(&manager, &result), *expected, "{kind} answered {code}");
        }
    }
    let (mut manager, request) = about_to("AddOffsetsToTxn");
    let result = Arc::clone(&request.result);
    answer(&mut manager, request, E::TRANSACTION_ABORTABLE);
    // From InitProducerId there is nothing to abort: the state stays, the call fails.
    assert_eq!(outcome(&manager, &result), Abortable);
    // Nobody waits for the search itself, but for what needs the coordinator.
    let (mut manager, request) = about_to("TxnOffsetCommit");
    let result = Arc::clone(&request.result);
    manager.disconnected(request, 0);
    let lookup = next(&mut manager);
    answer(&mut manager, lookup, E::GROUP_AUTHORIZATION_FAILED);
    let expected = Some(E::GROUP_AUTHORIZATION_FAILED);
    assert!(matches!(result.outcome(), Some(Err(ClientError::Kafka { code, .. })) if Some(code) == expected));
    // What cannot even be aborted is lost.
    let mut manager = in_transaction();
    manager.started = true;
    let result = manager.begin_abort(PRODUCER).unwrap();
    let request = next(&mut manager);
    answer(&mut manager, request, E::TRANSACTION_ABORTABLE);
    assert_eq!(outcome(&manager, &result), Fatal);
}

#[test]
fn a_retry_waits_for_the_back_off_and_the_first_partitions_only_a_moment() {
    for (kind, code, wait) in [
        ("AddPartitionsToTxn", ErrorCode::CONCURRENT_TRANSACTIONS, 20),
        ("AddPartitionsToTxn", ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, BACKOFF),
        ("EndTxn", ErrorCode::CONCURRENT_TRANSACTIONS, BACKOFF),
    ] {
        let (mut manager, request) = about_to(kind);
        answer(&mut manager, request, code);
        assert_eq!(next(&mut manager).not_before_ms, wait, "{kind} {code}");
    }
    let mut manager = in_transaction();
    manager.partitions.insert(9);
    manager.maybe_add_partition(0);
    let request = next(&mut manager);
    answer(&mut manager, request, ErrorCode::CONCURRENT_TRANSACTIONS);
    assert_eq!(next(&mut manager).not_before_ms, BACKOFF);
}

#[test]
fn only_the_offsets_that_failed_are_sent_again() {
    let (mut manager, request) = about_to("TxnOffsetCommit");
    let result = Arc::clone(&request.result);
    let response = commit_answer(&offsets(), [ErrorCode::NONE, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS]);
    manager.answered(request, &response, PRODUCER, 0);
    let again = next(&mut manager);
    let Kind::TxnOffsetCommit { offsets: open, .. } = &again.kind else {
        panic!("{:?}", again.kind);
    };
    assert_eq!(open, &offsets()[1..]);
    answer(&mut manager, again, ErrorCode::NONE);
    assert!(result.outcome().unwrap().is_ok());
}

#[test]
fn partitions_go_first_then_offsets_then_the_end_which_waits_for_the_records() {
    let mut manager = in_transaction();
    manager.send_offsets(offsets(), group()).unwrap();
    manager.maybe_add_partition(0);
    let result = manager.begin_commit().unwrap();
    // begin_commit has queued the new partitions behind the offsets that were asked for before them.
    let order: Vec<&str> = std::iter::from_fn(|| {
        let request = manager.next_request(true)?;
        let name = match request.kind {
            Kind::AddOffsetsToTxn { .. } => "offsets",
            Kind::AddPartitionsToTxn { .. } => "partitions",
            _ => "other",
        };
        answer(&mut manager, request, ErrorCode::NONE);
        Some(name)
    })
    .collect();
    assert_eq!(
        order,
        ["offsets", "partitions", "other"],
        "the last one is TxnOffsetCommit"
    );
    assert!(manager.next_request(true).is_none(), "records are undecided");
    let end = next(&mut manager);
    answer(&mut manager, end, ErrorCode::NONE);
    assert!(result.outcome().unwrap().is_ok());
    assert_eq!(manager.state, State::Ready);
}

#[test]
fn records_go_to_added_partitions_only() {
    let (mut manager, request) = about_to("AddPartitionsToTxn");
    assert!(!manager.is_send_allowed(0), "not before it is added");
    answer(&mut manager, request, ErrorCode::NONE);
    assert!(manager.is_send_allowed(0) && !manager.is_send_allowed(1));
    // A partition that is known is not added again.
    manager.maybe_add_partition(0);
    assert!(manager.next_request(false).is_none());
    manager.transition_to_fatal_error(ClientError::IllegalState("end".into()));
    assert!(!manager.is_send_allowed(0));
}

#[test]
fn a_fatal_error_reaches_every_caller_that_waits() {
    let (mut manager, request) = about_to("AddOffsetsToTxn");
    let sent = Arc::clone(&request.result);
    let commit = manager.begin_commit().unwrap();
    manager.transition_to_fatal_error(ClientError::kafka(ErrorCode::PRODUCER_FENCED, "test"));
    assert!(commit.outcome().unwrap().is_err());
    // The one on the wire learns it with its answer.
    assert!(sent.outcome().is_none());
    answer(&mut manager, request, ErrorCode::NONE);
    assert!(sent.outcome().unwrap().is_err());
    commit.acknowledge();
    assert!(manager.begin_commit().is_err() && manager.check_ready_for_send().is_err());
}

#[test]
fn a_lost_connection_looks_the_coordinator_up_and_sends_again() {
    let (mut manager, request) = about_to("EndTxn");
    let result = Arc::clone(&request.result);
    manager.disconnected(request, 50);
    assert_eq!(outcome(&manager, &result), Outcome::LookUp);
    let lookup = next(&mut manager);
    assert!(matches!(lookup.kind, Kind::FindCoordinator { .. }));
    answer(&mut manager, lookup, ErrorCode::NONE);
    assert_eq!(manager.transaction_coordinator, Some(1));
    let again = next(&mut manager);
    assert_eq!(again.not_before_ms, 50 + BACKOFF);
    answer(&mut manager, again, ErrorCode::NONE);
    assert!(result.outcome().unwrap().is_ok());
}

#[test]
fn after_a_batch_has_failed_the_commit_behind_other_requests_fails_at_once() {
    let mut manager = in_transaction();
    manager.maybe_add_partition(0);
    let commit = manager.begin_commit().unwrap();
    manager.batch_failed(ClientError::Timeout("expired".into()));
    assert!(
        manager.next_request(false).is_none(),
        "the partitions are not added any more"
    );
    assert!(
        matches!(commit.outcome(), Some(Err(_))),
        "nothing would report it to the caller later"
    );
}

#[test]
fn offsets_that_are_refused_do_not_hold_an_abort_back() {
    for kind in ["AddOffsetsToTxn", "TxnOffsetCommit"] {
        let (mut manager, request) = about_to(kind);
        manager.started = true;
        let offsets = Arc::clone(&request.result);
        answer(&mut manager, request, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
        assert!(manager.last_refusal().is_some_and(|text| text.contains(kind)));
        let abort = manager.begin_abort(PRODUCER).unwrap();
        let end = next(&mut manager);
        assert!(
            matches!(end.kind, Kind::EndTxn { committed: false, .. }),
            "{:?}",
            end.kind
        );
        assert!(matches!(
            offsets.outcome(),
            Some(Err(ClientError::TransactionAborted(_)))
        ));
        answer(&mut manager, end, ErrorCode::NONE);
        assert!(abort.outcome().unwrap().is_ok());
        assert_eq!(manager.last_refusal(), None);
    }
}

#[test]
fn a_storage_failure_that_lasts_ends_the_producer() {
    let (mut manager, request) = about_to("EndTxn");
    let result = Arc::clone(&request.result);
    let response = EndTxnResponse {
        error_code: ErrorCode::COORDINATOR_NOT_AVAILABLE,
        failure: Some(StorageFailure {
            message: "the log in /data is fenced; reopen the broker".into(),
            until_reopened: true,
        }),
        ..Default::default()
    };
    manager.answered(request, &Response::EndTxn(response), PRODUCER, 0);
    assert_eq!(manager.state, State::FatalError);
    let Some(Err(ClientError::Kafka { code, message })) = result.outcome() else {
        panic!("{:?}", result.outcome());
    };
    assert_eq!(code, ErrorCode::KAFKA_STORAGE_ERROR);
    assert!(message.contains("/data") && message.contains("reopen"), "{message}");
}

/// Sent over a connection that was lost.
fn lose(manager: &mut TransactionManager, request: TxnRequest) {
    manager.disconnected(request, 0);
    let lookup = next(manager);
    assert!(matches!(lookup.kind, Kind::FindCoordinator { .. }));
    answer(manager, lookup, ErrorCode::NONE);
}

#[test]
fn partitions_that_are_refused_do_not_hold_an_abort_back() {
    for on_the_wire in [false, true] {
        let (mut manager, request) = about_to("AddPartitionsToTxn");
        let abort = if on_the_wire {
            let abort = manager.begin_abort(PRODUCER).unwrap();
            answer(&mut manager, request, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
            abort
        } else {
            answer(&mut manager, request, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
            manager.begin_abort(PRODUCER).unwrap()
        };
        assert!(manager.next_request(false).is_none(), "nothing was added");
        assert!(abort.outcome().unwrap().is_ok());
        assert_eq!(manager.state, State::Ready);
    }
}

#[test]
fn an_addition_whose_answer_was_lost_may_have_begun_the_transaction_which_an_abort_ends() {
    for code in [ErrorCode::NONE, ErrorCode::INVALID_TXN_STATE] {
        for kind in ["AddPartitionsToTxn", "AddOffsetsToTxn"] {
            let (mut manager, request) = about_to(kind);
            lose(&mut manager, request);
            let abort = manager.begin_abort(PRODUCER).unwrap();
            let end = next(&mut manager);
            assert!(
                matches!(end.kind, Kind::EndTxn { committed: false, .. }),
                "{:?}",
                end.kind
            );
            answer(&mut manager, end, code);
            assert!(abort.outcome().unwrap().is_ok(), "{kind} {code}");
            assert_eq!(manager.state, State::Ready);
        }
    }
}

#[test]
fn an_abort_that_is_refused_is_fatal_if_something_was_added() {
    let (mut manager, request) = about_to("AddPartitionsToTxn");
    answer(&mut manager, request, ErrorCode::NONE);
    manager.begin_abort(PRODUCER).unwrap();
    let end = next(&mut manager);
    answer(&mut manager, end, ErrorCode::INVALID_TXN_STATE);
    assert_eq!(manager.state, State::FatalError);
}

#[test]
fn the_search_for_the_groups_coordinator_does_not_hold_an_abort_back() {
    for on_the_wire in [false, true] {
        let (mut manager, request) = about_to("TxnOffsetCommit");
        manager.started = true;
        answer(&mut manager, request, ErrorCode::NOT_COORDINATOR);
        let lookup = next(&mut manager);
        assert!(matches!(lookup.kind, Kind::FindCoordinator { .. }), "{:?}", lookup.kind);
        let abort = if on_the_wire {
            let abort = manager.begin_abort(PRODUCER).unwrap();
            answer(&mut manager, lookup, ErrorCode::COORDINATOR_NOT_AVAILABLE);
            abort
        } else {
            answer(&mut manager, lookup, ErrorCode::COORDINATOR_NOT_AVAILABLE);
            manager.begin_abort(PRODUCER).unwrap()
        };
        let end = next(&mut manager);
        assert!(
            matches!(end.kind, Kind::EndTxn { committed: false, .. }),
            "{:?}",
            end.kind
        );
        answer(&mut manager, end, ErrorCode::NONE);
        assert!(abort.outcome().unwrap().is_ok());
    }
}

#[test]
fn a_transaction_without_anything_ends_without_its_coordinator() {
    for commits in [false, true] {
        let (mut manager, request) = about_to("AddPartitionsToTxn");
        // Refused by a coordinator that has moved, then aborted: the new one is not found.
        answer(&mut manager, request, ErrorCode::NOT_COORDINATOR);
        let lookup = next(&mut manager);
        answer(&mut manager, lookup, ErrorCode::COORDINATOR_NOT_AVAILABLE);
        let mut ended = manager.begin_abort(PRODUCER).unwrap();
        if commits {
            assert!(manager.next_request(false).is_none());
            ended.acknowledge();
            manager.begin().unwrap();
            ended = manager.begin_commit().unwrap();
        }
        assert!(manager.next_request(false).is_none());
        assert!(ended.outcome().unwrap().is_ok());
        assert_eq!(manager.state, State::Ready);
    }
}

#[test]
fn a_commit_fails_when_the_only_addition_is_refused_for_good() {
    let (mut manager, request) = about_to("AddPartitionsToTxn");
    let commit = manager.begin_commit().unwrap();
    answer(&mut manager, request, ErrorCode::INVALID_PRODUCER_ID_MAPPING);
    assert!(manager.next_request(false).is_none());
    assert!(matches!(commit.outcome(), Some(Err(_))), "{:?}", commit.outcome());
    assert_eq!(manager.state, State::AbortableError);
}
