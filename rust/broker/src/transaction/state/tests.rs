use super::*;

const NOW: i64 = 1000;
const TIMEOUT: i32 = 60_000;

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
    match from.init(expected, TIMEOUT, NOW, || Ok(99))? {
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
    assert!(metadata(7, i16::MAX, TransactionState::Ongoing).fence(NOW).is_err());
}

#[test]
fn an_open_transaction_is_aborted_under_the_next_epoch_before_a_producer_gets_the_id() {
    let mut open = metadata(7, 3, TransactionState::Ongoing);
    open.partitions.insert(tp(0));
    let Ok(Init::Fenced(fenced)) = open.init(None, TIMEOUT, NOW, || Ok::<_, ErrorCode>(99)) else {
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
        empty.add_partitions((8, 3), &[tp(0)], NOW),
        Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING)
    );
    assert_eq!(
        empty.add_partitions((7, 2), &[tp(0)], NOW),
        Err(ErrorCode::PRODUCER_FENCED)
    );
    assert_eq!(
        empty.add_partitions((7, 4), &[tp(0)], NOW),
        Err(ErrorCode::PRODUCER_FENCED)
    );
    let open = empty.add_partitions((7, 3), &[tp(0)], NOW).unwrap().unwrap();
    assert_eq!((open.state, open.start_ms), (TransactionState::Ongoing, NOW));
    // The same again is not written; another one does not restart the time-out.
    assert_eq!(open.add_partitions((7, 3), &[tp(0)], NOW + 5), Ok(None));
    let more = open.add_partitions((7, 3), &[tp(0), tp(1)], NOW + 5).unwrap().unwrap();
    assert_eq!(
        (more.start_ms, more.last_update_ms, more.partitions.len()),
        (NOW, NOW + 5, 2)
    );
    for state in [TransactionState::PrepareCommit, TransactionState::PrepareAbort] {
        let busy = metadata(7, 3, state).add_partitions((7, 3), &[tp(0)], NOW);
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
            let answer = match metadata(7, 3, state).end((7, 3), committed, NOW) {
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
            metadata(7, 3, state).end((7, 2), true, NOW),
            Err(ErrorCode::PRODUCER_FENCED)
        );
        assert_eq!(
            metadata(7, 3, state).end((8, 3), true, NOW),
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
