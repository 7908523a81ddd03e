use super::*;

const NOW: i64 = 1000;
const TIMEOUT: i32 = 60_000;
const V0: TransactionVersion = TransactionVersion::V0;
const V2: TransactionVersion = TransactionVersion::V2;

fn new_id() -> Result<i64, ErrorCode> {
    Ok(99)
}

fn tp(partition: i32) -> TopicPartition {
    TopicPartition::new("t", partition)
}

fn metadata(producer_id: i64, epoch: i16, state: TransactionState) -> TransactionMetadata {
    TransactionMetadata {
        producer_epoch: epoch,
        timeout_ms: TIMEOUT,
        state,
        ..TransactionMetadata::new("id".into(), producer_id)
    }
}

fn ready(from: &TransactionMetadata, expected: Option<(i64, i16)>) -> Result<TransactionMetadata, ErrorCode> {
    match from.init(expected, TIMEOUT, NOW, V0, || Ok(99))? {
        Init::Ready(next) => Ok(next),
        Init::Fenced(_) => panic!("an open transaction is aborted first"),
    }
}

fn id_and_epoch(from: &TransactionMetadata, expected: Option<(i64, i16)>) -> Result<(i64, i16), ErrorCode> {
    ready(from, expected).map(|next| (next.producer_id, next.producer_epoch))
}

#[test]
fn a_new_id_starts_with_epoch_0_and_every_init_raises_it() {
    let new = TransactionMetadata::new("id".into(), 7);
    let first = ready(&new, None).unwrap();
    assert_eq!((first.producer_id, first.producer_epoch), (7, 0));
    assert_eq!(
        (first.state, first.start_ms, first.last_update_ms),
        (TransactionState::Empty, -1, NOW)
    );
    for state in [
        TransactionState::Empty,
        TransactionState::CompleteCommit,
        TransactionState::CompleteAbort,
    ] {
        assert_eq!(id_and_epoch(&metadata(7, 3, state), None), Ok((7, 4)), "{state:?}");
    }
    // A producer that comes back with an id that was forgotten meanwhile.
    assert_eq!(id_and_epoch(&new, Some((5, 9))), Ok((7, 0)));
}

#[test]
fn a_producer_that_names_its_epoch_must_be_the_current_one() {
    let current = metadata(7, 3, TransactionState::Empty);
    let bumped = ready(&current, Some((7, 3))).unwrap();
    assert_eq!((bumped.producer_epoch, bumped.last_producer_epoch), (4, 3));
    // Its answer was lost: asked again, it says the same.
    assert_eq!(id_and_epoch(&bumped, Some((7, 3))), Ok((7, 4)));
    assert_eq!(id_and_epoch(&bumped, Some((7, 2))), Err(ErrorCode::PRODUCER_FENCED));
    assert_eq!(id_and_epoch(&bumped, Some((6, 4))), Err(ErrorCode::PRODUCER_FENCED));
    // After an init without an epoch the older one is nobody's.
    let taken_over = ready(&bumped, None).unwrap();
    assert_eq!(id_and_epoch(&taken_over, Some((7, 4))), Err(ErrorCode::PRODUCER_FENCED));
}

#[test]
fn exhausted_epochs_give_a_new_producer_id() {
    let last = metadata(7, i16::MAX - 1, TransactionState::CompleteCommit);
    assert_eq!(
        id_and_epoch(&metadata(7, i16::MAX - 2, TransactionState::Empty), None),
        Ok((7, i16::MAX - 1))
    );
    assert_eq!(id_and_epoch(&last, None), Ok((99, 0)));
    let rotated = ready(&last, Some((7, i16::MAX - 1))).unwrap();
    assert_eq!((rotated.producer_id, rotated.producer_epoch), (99, 0));
    // Asked again with the old id and its last epoch: the answer was lost.
    assert_eq!(id_and_epoch(&rotated, Some((7, i16::MAX - 1))), Ok((99, 0)));
    assert_eq!(id_and_epoch(&rotated, Some((7, 3))), Err(ErrorCode::PRODUCER_FENCED));
    // A fenced transaction may have used the very last epoch.
    assert_eq!(
        id_and_epoch(&metadata(7, i16::MAX, TransactionState::CompleteAbort), None),
        Ok((99, 0))
    );
    assert!(
        metadata(7, i16::MAX, TransactionState::Ongoing)
            .fence(V0, NOW, new_id)
            .is_err()
    );
}

#[test]
fn an_open_transaction_is_aborted_under_the_next_epoch_before_a_producer_gets_the_id() {
    let mut open = metadata(7, 3, TransactionState::Ongoing);
    open.partitions.insert(tp(0));
    let Ok(Init::Fenced(fenced)) = open.init(None, TIMEOUT, NOW, V0, new_id) else {
        panic!("the transaction is open");
    };
    assert_eq!(
        (fenced.state, fenced.producer_epoch),
        (TransactionState::PrepareAbort, 4)
    );
    assert_eq!((fenced.last_producer_epoch, fenced.partitions.len()), (-1, 1));
    for state in [TransactionState::PrepareCommit, TransactionState::PrepareAbort] {
        assert_eq!(
            id_and_epoch(&metadata(7, 3, state), None),
            Err(ErrorCode::CONCURRENT_TRANSACTIONS)
        );
    }
}

#[test]
fn partitions_are_added_to_the_open_transaction_or_open_one() {
    let empty = metadata(7, 3, TransactionState::Empty);
    assert_eq!(
        empty.add_partitions((8, 3), &[tp(0)], V0, NOW),
        Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING)
    );
    assert_eq!(
        empty.add_partitions((7, 2), &[tp(0)], V0, NOW),
        Err(ErrorCode::PRODUCER_FENCED)
    );
    assert_eq!(
        empty.add_partitions((7, 4), &[tp(0)], V0, NOW),
        Err(ErrorCode::PRODUCER_FENCED)
    );
    let open = empty.add_partitions((7, 3), &[tp(0)], V0, NOW).unwrap().unwrap();
    assert_eq!((open.state, open.start_ms), (TransactionState::Ongoing, NOW));
    // The same again is not written; another one does not restart the time-out.
    assert_eq!(open.add_partitions((7, 3), &[tp(0)], V0, NOW + 5), Ok(None));
    let more = open
        .add_partitions((7, 3), &[tp(0), tp(1)], V0, NOW + 5)
        .unwrap()
        .unwrap();
    assert_eq!(
        (more.start_ms, more.last_update_ms, more.partitions.len()),
        (NOW, NOW + 5, 2)
    );
    for state in [TransactionState::PrepareCommit, TransactionState::PrepareAbort] {
        let busy = metadata(7, 3, state).add_partitions((7, 3), &[tp(0)], V0, NOW);
        assert_eq!(busy, Err(ErrorCode::CONCURRENT_TRANSACTIONS));
    }
}

/// The table of spec 10.2 for EndTxn: state, COMMIT, ABORT; 0 = it has ended so already, `None` = it ends now.
#[test]
fn end_txn_follows_the_table() {
    let table = [
        (TransactionState::Empty, Some(48), Some(48)),
        (TransactionState::Ongoing, None, None),
        (TransactionState::PrepareCommit, Some(51), Some(48)),
        (TransactionState::PrepareAbort, Some(48), Some(51)),
        (TransactionState::CompleteCommit, Some(0), Some(48)),
        (TransactionState::CompleteAbort, Some(48), Some(0)),
    ];
    for (state, commit, abort) in table {
        for (committed, expected) in [(true, commit), (false, abort)] {
            let answer = match metadata(7, 3, state).end((7, 3), committed, V0, NOW, new_id) {
                Ok(Some(next)) => {
                    assert_eq!(next.state == TransactionState::PrepareCommit, committed);
                    assert!(next.state.is_prepared());
                    None
                }
                Ok(None) => Some(0),
                Err(code) => Some(code.code()),
            };
            assert_eq!(answer, expected, "{state:?} commit={committed}");
        }
        assert_eq!(
            metadata(7, 3, state).end((7, 2), true, V0, NOW, new_id),
            Err(ErrorCode::PRODUCER_FENCED)
        );
        assert_eq!(
            metadata(7, 3, state).end((8, 3), true, V0, NOW, new_id),
            Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING)
        );
    }
}

#[test]
fn a_complete_transaction_has_no_partitions_and_keeps_its_start() {
    let mut prepared = metadata(7, 3, TransactionState::PrepareCommit);
    prepared.partitions.insert(tp(0));
    prepared.start_ms = NOW;
    let complete = prepared.complete(NOW + 1);
    assert_eq!(
        (complete.state, complete.start_ms),
        (TransactionState::CompleteCommit, NOW)
    );
    assert!(complete.partitions.is_empty());
    // transaction.version 2 had chosen the next id already.
    prepared.next_producer_id = 50;
    prepared.client_version = V2;
    let rotated = prepared.complete(NOW + 1);
    assert_eq!(
        (rotated.producer_id, rotated.producer_epoch, rotated.next_producer_id),
        (50, 0, -1)
    );
}

#[test]
fn time_out_and_expiry_are_exact() {
    let mut open = metadata(7, 3, TransactionState::Ongoing);
    open.start_ms = NOW;
    assert!(!open.is_timed_out(NOW + i64::from(TIMEOUT)));
    assert!(open.is_timed_out(NOW + i64::from(TIMEOUT) + 1));
    open.last_update_ms = NOW;
    assert!(!open.is_expired(NOW + 100, 100));
    let mut idle = metadata(7, 3, TransactionState::CompleteCommit);
    idle.last_update_ms = NOW;
    assert!(!idle.is_expired(NOW + 99, 100));
    assert!(idle.is_expired(NOW + 100, 100));
}

/// The table of `end.rs` for EndTxn of version 2, with the present epoch and with the one before: the code, 0 = the same answer
/// again, `None` = it ends now.
#[test]
fn end_txn_of_version_2_follows_its_table() {
    let fenced = Some(90);
    let table = [
        (TransactionState::Empty, [Some(48), None, fenced, fenced]),
        (TransactionState::Ongoing, [None, None, fenced, fenced]),
        (TransactionState::PrepareCommit, [fenced, fenced, Some(51), Some(48)]),
        (TransactionState::PrepareAbort, [fenced, fenced, Some(48), Some(51)]),
        (TransactionState::CompleteCommit, [Some(48), None, Some(0), Some(48)]),
        (TransactionState::CompleteAbort, [Some(48), None, Some(48), Some(0)]),
    ];
    for (state, expected) in table {
        let known = metadata(7, 3, state);
        let asked = [((7, 3), true), ((7, 3), false), ((7, 2), true), ((7, 2), false)];
        let answers = asked.map(
            |(producer, committed)| match known.end(producer, committed, V2, NOW, new_id) {
                Ok(Some(next)) => {
                    assert_eq!((next.producer_epoch, next.last_producer_epoch), (4, 3));
                    assert_eq!(next.state == TransactionState::PrepareCommit, committed);
                    let began = if state == TransactionState::Ongoing { -1 } else { NOW };
                    assert_eq!((next.start_ms, next.client_version), (began, V2));
                    None
                }
                Ok(None) => Some(0),
                Err(code) => Some(code.code()),
            },
        );
        assert_eq!(answers, expected, "{state:?}");
        for (producer, code) in [((7, 1), 90), ((7, 4), 90), ((8, 3), 49)] {
            let refused = known.end(producer, false, V2, NOW, new_id).unwrap_err();
            assert_eq!(refused.code(), code, "{state:?} {producer:?}");
        }
    }
}

#[test]
fn the_last_epoch_gives_way_to_a_new_producer_id_with_the_end() {
    let last = metadata(7, i16::MAX - 1, TransactionState::Ongoing);
    let prepared = last.end((7, i16::MAX - 1), true, V2, NOW, new_id).unwrap().unwrap();
    assert_eq!(
        (prepared.producer_id, prepared.producer_epoch, prepared.next_producer_id),
        (7, i16::MAX, 99)
    );
    let busy = prepared.end((7, i16::MAX - 1), true, V2, NOW, new_id);
    assert_eq!(busy, Err(ErrorCode::CONCURRENT_TRANSACTIONS));
    let complete = prepared.complete(NOW);
    assert_eq!(
        (complete.producer_id, complete.producer_epoch, complete.next_producer_id),
        (99, 0, -1)
    );
    assert_eq!(
        (complete.previous_producer_id, complete.last_producer_epoch),
        (7, i16::MAX - 1)
    );
    // The answer was lost.
    assert_eq!(complete.end((7, i16::MAX - 1), true, V2, NOW, new_id), Ok(None));
    let other = complete.end((7, i16::MAX - 1), false, V2, NOW, new_id);
    assert_eq!(other, Err(ErrorCode::INVALID_TXN_STATE));
    let old = complete.end((7, 5), true, V2, NOW, new_id);
    assert_eq!(old, Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING));
    // An older client's end keeps the epoch, and so the id.
    let kept = last.end((7, i16::MAX - 1), true, V0, NOW, new_id).unwrap().unwrap();
    assert_eq!((kept.producer_epoch, kept.next_producer_id), (i16::MAX - 1, -1));
}

#[test]
fn a_fence_of_version_2_is_an_abort_that_its_producer_may_repeat() {
    let open = metadata(7, 3, TransactionState::Ongoing);
    let Ok(Init::Fenced(fenced)) = open.init(None, TIMEOUT, NOW, V2, new_id) else {
        panic!("the transaction is open");
    };
    assert_eq!(
        (fenced.state, fenced.producer_epoch),
        (TransactionState::PrepareAbort, 4)
    );
    let aborted = fenced.complete(NOW);
    assert_eq!(aborted.end((7, 3), false, V2, NOW, new_id), Ok(None));
    assert_eq!(
        aborted.end((7, 3), true, V2, NOW, new_id),
        Err(ErrorCode::INVALID_TXN_STATE)
    );
    // Its own old epoch counts as a retry of the bump; another producer gets the next one.
    assert_eq!(id_and_epoch(&aborted, Some((7, 3))), Ok((7, 4)));
    assert_eq!(id_and_epoch(&aborted, None), Ok((7, 5)));
    let last = metadata(7, i16::MAX - 1, TransactionState::Ongoing);
    let complete = last.fence(V2, NOW, new_id).unwrap().complete(NOW);
    assert_eq!((complete.producer_id, complete.producer_epoch), (99, 0));
}

#[test]
fn partitions_are_verified_only_while_they_are_in_the_transaction() {
    let mut open = metadata(7, 3, TransactionState::Ongoing);
    open.partitions.insert(tp(0));
    assert_eq!(open.verify((7, 3), &tp(0)), Ok(()));
    assert_eq!(open.verify((7, 3), &tp(1)), Err(ErrorCode::TRANSACTION_ABORTABLE));
    assert_eq!(open.verify((7, 2), &tp(0)), Err(ErrorCode::PRODUCER_FENCED));
    assert_eq!(open.verify((8, 3), &tp(0)), Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING));
    let added = metadata(7, 3, TransactionState::Empty).add_partitions((7, 3), &[tp(0)], V2, NOW);
    assert_eq!(added.unwrap().unwrap().client_version, V2);
}
