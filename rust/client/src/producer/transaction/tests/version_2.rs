//! The state machine on a cluster of transaction.version 2 (spec 10.4).

use super::*;

/// The epoch that the end of a transaction leads to.
const NEXT: (i64, i16) = (7, 1);

/// Initialised on a cluster of this level, its coordinators known, inside a transaction.
fn on_level(level: i16) -> TransactionManager {
    let mut manager = TransactionManager::new("id".into(), 60_000, BACKOFF);
    manager.set_transaction_version(level);
    manager.initialize().unwrap().acknowledge();
    manager.transaction_coordinator = Some(1);
    manager.group_coordinator = Some(("g".into(), 1));
    let init = next(&mut manager);
    answer(&mut manager, init, ErrorCode::NONE);
    manager.begin().unwrap();
    manager
}

/// Ends the transaction, and takes the response of a broker of this version of EndTxn.
fn end(manager: &mut TransactionManager, committed: bool) -> Option<NewId> {
    let result = if committed {
        manager.begin_commit().unwrap()
    } else {
        manager.begin_abort(PRODUCER).unwrap()
    };
    let request = next(manager);
    let Kind::EndTxn { bumps_epoch, .. } = request.kind else {
        panic!("{:?}", request.kind);
    };
    let (producer_id, producer_epoch) = if bumps_epoch { NEXT } else { (-1, -1) };
    let response = Response::EndTxn(EndTxnResponse {
        producer_id,
        producer_epoch,
        ..Default::default()
    });
    let new = manager.answered(request, &response, PRODUCER, 0);
    result.acknowledge();
    new
}

const BUMPED: Option<NewId> = Some(NewId { id: NEXT, bumped: true });

#[test]
fn nothing_is_added_and_each_end_leads_to_a_new_epoch() {
    for committed in [true, false] {
        let mut manager = on_level(2);
        manager.maybe_add_partition(0);
        assert!(manager.is_send_allowed(0) && !manager.is_send_allowed(1));
        assert!(
            manager.next_request(false).is_none(),
            "the produce request adds the partition"
        );
        assert_eq!(end(&mut manager, committed), BUMPED);
        assert_eq!(manager.state, State::Ready);
        assert!(!manager.is_send_allowed(0), "its first record in the next transaction");
    }
}

#[test]
fn offsets_are_sent_at_once_and_are_reason_enough_for_an_end() {
    let mut manager = on_level(2);
    let sent = manager.send_offsets(offsets(), group()).unwrap();
    let request = next(&mut manager);
    assert!(
        matches!(request.kind, Kind::TxnOffsetCommit { .. }),
        "{:?}",
        request.kind
    );
    answer(&mut manager, request, ErrorCode::NONE);
    assert!(sent.outcome().unwrap().is_ok());
    assert_eq!(end(&mut manager, true), BUMPED);
}

#[test]
fn a_transaction_without_anything_sends_nothing_and_keeps_its_version() {
    let mut manager = on_level(2);
    manager.set_transaction_version(1);
    let commit = manager.begin_commit().unwrap();
    assert!(manager.next_request(false).is_none());
    assert!(commit.outcome().unwrap().is_ok());
    assert!(manager.is_version_2());
}

#[test]
fn the_abort_raises_the_epoch_by_itself_whatever_failed() {
    let mut manager = on_level(2);
    manager.maybe_add_partition(0);
    manager.batch_failed(ClientError::Timeout("expired".into()));
    assert_eq!(manager.state, State::AbortableError);
    assert_eq!(end(&mut manager, false), BUMPED);
    assert_eq!(manager.state, State::Ready, "no InitProducerId");
    let mut manager = on_level(2);
    manager.maybe_add_partition(0);
    manager.abortable_with_bump(ClientError::Timeout("unknown".into()));
    assert_eq!(end(&mut manager, false), BUMPED);
    assert_eq!(manager.state, State::Ready);
}

#[test]
fn an_end_whose_response_is_lost_is_repeated_as_it_was() {
    let mut manager = on_level(2);
    manager.maybe_add_partition(0);
    manager.begin_commit().unwrap();
    let request = next(&mut manager);
    manager.set_transaction_version(1);
    manager.disconnected(request, 0);
    let lookup = next(&mut manager);
    answer(&mut manager, lookup, ErrorCode::NONE);
    let again = next(&mut manager);
    let expected = Kind::EndTxn {
        committed: true,
        bumps_epoch: true,
    };
    assert_eq!(format!("{:?}", again.kind), format!("{expected:?}"));
}

#[test]
fn a_raised_level_counts_from_the_next_transaction_on_which_has_an_epoch_of_its_own() {
    let mut manager = on_level(1);
    manager.maybe_add_partition(0);
    manager.set_transaction_version(2);
    let add = next(&mut manager);
    assert!(matches!(add.kind, Kind::AddPartitionsToTxn { .. }));
    answer(&mut manager, add, ErrorCode::NONE);
    assert_eq!(end(&mut manager, true), None);
    assert_eq!(manager.state, State::Initializing);
    let init = next(&mut manager);
    assert!(matches!(init.kind, Kind::InitProducerId { producer: PRODUCER }));
    assert!(answer(&mut manager, init, ErrorCode::NONE).is_some_and(|new| new.bumped));
    manager.begin().unwrap();
    manager.maybe_add_partition(0);
    assert!(manager.is_send_allowed(0) && manager.next_request(false).is_none());
}

#[test]
fn a_lowered_level_counts_from_the_next_transaction_on() {
    let mut manager = on_level(2);
    manager.maybe_add_partition(0);
    manager.set_transaction_version(1);
    assert!(manager.is_send_allowed(0));
    assert_eq!(end(&mut manager, true), BUMPED);
    manager.begin().unwrap();
    manager.maybe_add_partition(0);
    let add = next(&mut manager);
    assert!(matches!(add.kind, Kind::AddPartitionsToTxn { .. }));
    answer(&mut manager, add, ErrorCode::NONE);
    assert_eq!(end(&mut manager, true), None);
    assert_eq!(manager.state, State::Ready);
}
