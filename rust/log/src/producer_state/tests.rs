use fletchlog_records::control::{ControlType, EndTxnMarker};

use super::*;

const PID: i64 = 1;

fn header(epoch: i16, sequence: i32, base_offset: i64, count: i32) -> BatchHeader {
    BatchHeader {
        base_offset,
        batch_length: 49,
        partition_leader_epoch: 0,
        magic: 2,
        crc: 0,
        attributes: 0,
        last_offset_delta: count - 1,
        base_timestamp: 0,
        max_timestamp: 1000,
        producer_id: PID,
        producer_epoch: epoch,
        base_sequence: sequence,
        records_count: count,
    }
}

fn transactional(producer_id: i64, base_offset: i64, last_offset: i64) -> BatchHeader {
    let count = i32::try_from(last_offset - base_offset + 1).unwrap();
    BatchHeader {
        attributes: 0x10,
        producer_id,
        base_sequence: -1,
        ..header(0, 0, base_offset, count)
    }
}

fn marker(producer_id: i64, epoch: i16, offset: i64) -> BatchHeader {
    BatchHeader {
        attributes: 0x30,
        producer_id,
        base_sequence: -1,
        ..header(epoch, 0, offset, 1)
    }
}

fn end(control_type: ControlType, coordinator_epoch: i32) -> Option<EndTxnMarker> {
    Some(EndTxnMarker {
        control_type,
        coordinator_epoch,
    })
}

#[derive(Default)]
struct State {
    manager: ProducerStateManager,
    offset: i64,
    strict: bool,
}

impl State {
    fn apply(
        &mut self,
        header: &BatchHeader,
        marker: Option<EndTxnMarker>,
        origin: AppendOrigin,
    ) -> Result<Vec<AbortedTxn>, i16> {
        let mut pending = PendingAppend::default();
        self.manager
            .check(&mut pending, header, marker, origin, self.strict)
            .map_err(|refusal| refusal.code.code())?;
        Ok(self.manager.commit(pending))
    }

    /// A batch of `count` records from the producer; answers Kafka's code, 0 if accepted.
    fn send(&mut self, epoch: i16, sequence: i32, count: i32) -> i16 {
        let header = header(epoch, sequence, self.offset, count);
        match self.apply(&header, None, AppendOrigin::Client) {
            Ok(_) => {
                self.offset += i64::from(count);
                0
            }
            Err(code) => code,
        }
    }

    fn duplicate(&self, epoch: i16, sequence: i32, count: i32) -> Option<i64> {
        self.manager
            .get(PID)?
            .find_duplicate_batch(&header(epoch, sequence, -1, count))
            .map(|batch| batch.first_offset())
    }
}

#[test]
fn sequences_follow_each_other() {
    let mut state = State::default();
    assert_eq!([state.send(0, 0, 1), state.send(0, 1, 1)], [0, 0]);
    assert_eq!(state.send(0, 1, 1), 45);
    assert_eq!(state.send(0, 5, 1), 45);
    assert_eq!(state.send(1, 0, 1), 0);
    assert_eq!(state.send(0, 0, 1), 47);
    assert_eq!(state.send(2, 3, 1), 45);
}

#[test]
fn an_unknown_producer_starts_anywhere_unless_that_is_forbidden() {
    let mut state = State::default();
    assert_eq!(state.send(5, 17, 1), 0);
    let mut state = State {
        strict: true,
        ..State::default()
    };
    assert_eq!(state.send(5, 17, 1), 59);
    assert_eq!(state.send(5, 0, 1), 0);
    assert_eq!(state.send(5, 2, 1), 45);
    assert_eq!(state.send(6, 2, 1), 45);
    // Known by a marker alone: no batch is remembered.
    state
        .apply(
            &marker(PID, 7, 10),
            end(ControlType::Commit, 0),
            AppendOrigin::Coordinator,
        )
        .unwrap();
    assert_eq!(state.send(7, 3, 1), 59);
    assert_eq!(state.send(7, 0, 1), 0);
}

#[test]
fn sequences_wrap_after_the_largest() {
    let mut state = State::default();
    assert_eq!(state.send(0, i32::MAX, 1), 0);
    assert_eq!(state.send(0, 1, 1), 45);
    assert_eq!(state.send(0, 0, 1), 0);
    let mut state = State {
        offset: 2000,
        ..State::default()
    };
    assert_eq!(state.send(0, i32::MAX - 10, 21), 0);
    let batch = state.manager.get(PID).unwrap().last_batch().unwrap();
    assert_eq!(
        (batch.first_seq(), batch.last_seq, batch.offset_delta),
        (i32::MAX - 10, 9, 20)
    );
    assert_eq!((batch.first_offset(), batch.last_offset), (2000, 2020));
    assert_eq!(state.duplicate(0, i32::MAX - 10, 21), Some(2000));
}

#[test]
fn the_newest_five_batches_are_recognised() {
    let mut state = State::default();
    for sequence in (0..14).step_by(2) {
        assert_eq!(state.send(0, sequence, 2), 0);
    }
    for sequence in [12, 10, 8, 6, 4] {
        assert_eq!(state.duplicate(0, sequence, 2), Some(i64::from(sequence)), "{sequence}");
    }
    assert_eq!((state.duplicate(0, 2, 2), state.duplicate(0, 0, 2)), (None, None));
    // Other boundaries, another epoch.
    assert_eq!(
        (
            state.duplicate(0, 12, 1),
            state.duplicate(0, 13, 1),
            state.duplicate(0, 10, 4)
        ),
        (None, None, None)
    );
    assert_eq!(state.duplicate(1, 12, 2), None);
    // A new epoch forgets them.
    assert_eq!(state.send(1, 0, 1), 0);
    assert_eq!(state.duplicate(0, 12, 2), None);
}

#[test]
fn after_a_marker_only_sequence_0_is_accepted() {
    let mut state = State::default();
    state
        .apply(
            &marker(PID, 2, 0),
            end(ControlType::Commit, 0),
            AppendOrigin::Coordinator,
        )
        .unwrap();
    assert_eq!(state.send(2, 17, 1), 45);
    assert_eq!(state.send(2, 0, 1), 0);
    assert_eq!(state.send(2, 1, 1), 0);
    // A marker with a larger epoch clears what is remembered.
    state
        .apply(
            &marker(PID, 3, 9),
            end(ControlType::Abort, 0),
            AppendOrigin::Coordinator,
        )
        .unwrap();
    assert_eq!(state.manager.get(PID).unwrap().last_seq(), -1);
    assert_eq!(state.send(3, 2, 1), 45);
    assert_eq!(state.send(2, 2, 1), 47);
    assert_eq!(state.send(3, 0, 1), 0);
}

#[test]
fn a_marker_ends_the_open_transaction_and_keeps_the_window() {
    let mut state = State {
        offset: 9,
        ..State::default()
    };
    assert_eq!(state.send(0, 0, 1), 0);
    let first = BatchHeader {
        attributes: 0x10,
        ..header(0, 1, 16, 5)
    };
    state.apply(&first, None, AppendOrigin::Client).unwrap();
    assert_eq!(state.manager.first_unstable_offset(), Some(16));
    let second = BatchHeader {
        attributes: 0x10,
        ..header(0, 6, 21, 1)
    };
    state.apply(&second, None, AppendOrigin::Client).unwrap();
    assert_eq!(state.manager.first_unstable_offset(), Some(16));
    // Not outside of it.
    assert_eq!(state.apply(&header(0, 7, 22, 1), None, AppendOrigin::Client), Err(48));
    let aborted = state
        .apply(
            &marker(PID, 0, 40),
            end(ControlType::Commit, 0),
            AppendOrigin::Coordinator,
        )
        .unwrap();
    assert_eq!((aborted, state.manager.first_unstable_offset()), (vec![], None));
    assert_eq!(state.duplicate(0, 1, 5), Some(16));
    assert_eq!(state.duplicate(0, 0, 1), Some(9));
}

#[test]
fn an_old_coordinator_is_fenced() {
    let mut state = State::default();
    state
        .apply(
            &marker(PID, 0, 0),
            end(ControlType::Abort, 2),
            AppendOrigin::Coordinator,
        )
        .unwrap();
    assert_eq!(
        state.apply(
            &marker(PID, 0, 1),
            end(ControlType::Abort, 1),
            AppendOrigin::Coordinator
        ),
        Err(52)
    );
    assert_eq!(
        state.apply(
            &marker(PID, -1, 1),
            end(ControlType::Abort, 2),
            AppendOrigin::Coordinator
        ),
        Err(47)
    );
    assert!(
        state
            .apply(
                &marker(PID, 0, 1),
                end(ControlType::Abort, 2),
                AppendOrigin::Coordinator
            )
            .is_ok()
    );
}

#[test]
fn aborted_transactions_know_the_stable_offset_that_follows_them() {
    // Kafka: UnifiedLogTest, four producers.
    let mut state = State::default();
    let step = |state: &mut State, h: BatchHeader, m| state.apply(&h, m, AppendOrigin::Coordinator).unwrap();
    for (producer, first, last) in [(1, 0, 4), (2, 8, 12), (3, 36, 40)] {
        step(&mut state, transactional(producer, first, last), None);
    }
    let txn = |producer_id, first_offset, last_offset, last_stable_offset| AbortedTxn {
        producer_id,
        first_offset,
        last_offset,
        last_stable_offset,
    };
    assert_eq!(
        step(&mut state, marker(1, 0, 29), end(ControlType::Abort, 0)),
        [txn(1, 0, 29, 8)]
    );
    assert_eq!(state.manager.first_unstable_offset(), Some(8));
    assert_eq!(
        step(&mut state, marker(2, 0, 74), end(ControlType::Abort, 0)),
        [txn(2, 8, 74, 36)]
    );
    assert_eq!(
        step(&mut state, marker(3, 0, 80), end(ControlType::Abort, 0)),
        [txn(3, 36, 80, 81)]
    );
    assert_eq!(state.manager.first_unstable_offset(), None);
}

#[test]
fn silent_producers_expire_but_not_inside_a_transaction() {
    let mut state = State::default();
    assert_eq!(state.send(0, 0, 1), 0);
    state
        .apply(&transactional(2, 5, 5), None, AppendOrigin::Coordinator)
        .unwrap();
    state.manager.remove_expired(1000 + 99, 100);
    assert!(state.manager.get(PID).is_some());
    state.manager.remove_expired(1000 + 100, 100);
    assert!(state.manager.get(PID).is_none());
    assert!(state.manager.get(2).is_some());
    // Forgotten: any sequence again.
    assert_eq!(state.send(0, 2, 1), 0);
}

#[test]
fn a_snapshot_keeps_the_newest_batch_and_the_open_transaction() {
    let mut state = State::default();
    for sequence in 0..3 {
        assert_eq!(state.send(0, sequence, 1), 0);
    }
    state
        .apply(&transactional(2, 3, 4), None, AppendOrigin::Coordinator)
        .unwrap();
    state
        .apply(&marker(3, 4, 5), end(ControlType::Commit, 6), AppendOrigin::Coordinator)
        .unwrap();
    let entries = state.manager.to_snapshot();
    let markers_only = entries.iter().find(|entry| entry.producer_id == 3).unwrap();
    assert_eq!(
        (
            markers_only.last_offset,
            markers_only.offset_delta,
            markers_only.last_sequence
        ),
        (-1, 0, -1)
    );
    let loaded = State {
        manager: ProducerStateManager::from_snapshot(&entries, 1000, 100),
        ..State::default()
    };
    assert_eq!(loaded.manager.first_unstable_offset(), Some(3));
    assert_eq!((loaded.duplicate(0, 2, 1), loaded.duplicate(0, 1, 1)), (Some(2), None));
    state.manager.keep_newest_batches();
    assert_eq!(state.manager.to_snapshot(), loaded.manager.to_snapshot());
}

#[test]
fn replay_accepts_what_was_accepted_once() {
    let mut state = State::default();
    state
        .apply(&header(1, 0, 0, 1), None, AppendOrigin::Replication)
        .unwrap();
    // A gap and an older epoch.
    state
        .apply(&header(1, 3, 1, 1), None, AppendOrigin::Replication)
        .unwrap();
    state
        .apply(&header(0, 0, 2, 1), None, AppendOrigin::Replication)
        .unwrap();
    assert_eq!(state.manager.get(PID).unwrap().producer_epoch, 0);
}

#[test]
fn a_producer_that_was_not_verified_continues_a_transaction_but_opens_none() {
    let mut state = State::default();
    let batch = |epoch, sequence, offset| BatchHeader {
        attributes: 0x10,
        ..header(epoch, sequence, offset, 1)
    };
    let unverified = AppendOrigin::UnverifiedClient;
    assert_eq!(state.apply(&batch(0, 0, 0), None, unverified), Err(48));
    // Without a transaction there is nothing to verify.
    assert!(state.apply(&header(0, 0, 0, 1), None, unverified).is_ok());
    assert!(state.apply(&batch(0, 1, 1), None, AppendOrigin::Client).is_ok());
    assert!(state.apply(&batch(0, 2, 2), None, unverified).is_ok());
    // The transaction of an older epoch is not this producer's, and the marker ends the permission.
    assert_eq!(state.apply(&batch(1, 0, 3), None, unverified), Err(48));
    let marker = marker(PID, 0, 3);
    assert!(
        state
            .apply(&marker, end(ControlType::Commit, 0), AppendOrigin::Coordinator)
            .is_ok()
    );
    assert_eq!(state.apply(&batch(0, 3, 4), None, unverified), Err(48));
    // An older epoch is refused without asking anybody.
    assert!(state.apply(&batch(1, 0, 4), None, AppendOrigin::Client).is_ok());
    assert_eq!(state.apply(&batch(0, 0, 5), None, unverified), Err(47));
}

#[test]
fn a_batch_behind_one_that_waits_for_its_verification_is_refused() {
    let mut state = State::default();
    let batch = |epoch, sequence, offset| BatchHeader {
        attributes: 0x10,
        ..header(epoch, sequence, offset, 1)
    };
    let unverified = AppendOrigin::UnverifiedClient;
    assert_eq!(state.apply(&batch(0, 3, 0), None, unverified), Err(48));
    state.manager.note_unverified(&batch(0, 3, 0), unverified, 1000);
    // The lowest sequence of the newest epoch counts.
    for (epoch, sequence) in [(0, 2), (0, 4)] {
        state
            .manager
            .note_unverified(&batch(epoch, sequence, 0), unverified, 1000);
    }
    assert_eq!(state.apply(&header(0, 3, 0, 1), None, AppendOrigin::Client), Err(45));
    assert_eq!(state.apply(&batch(0, 3, 0), None, AppendOrigin::Client), Err(45));
    let mut forgotten = state.manager.clone();
    forgotten.remove_expired(1000 + 99, 100);
    assert!(forgotten.check_verified_sequence(&batch(0, 3, 0)).is_err());
    forgotten.remove_expired(1000 + 100, 100);
    assert!(forgotten.check_verified_sequence(&batch(0, 3, 0)).is_ok());
    // The batch itself is appended, and nothing waits after it.
    assert!(state.apply(&batch(0, 2, 0), None, AppendOrigin::Client).is_ok());
    assert!(state.apply(&batch(0, 3, 1), None, unverified).is_ok());
    // A batch of a newer epoch takes the place of an older one that waits.
    state.manager.note_unverified(&batch(1, 9, 2), unverified, 1000);
    state.manager.note_unverified(&batch(2, 5, 2), unverified, 1000);
    state.manager.note_unverified(&batch(1, 0, 2), unverified, 1000);
    assert_eq!(state.apply(&header(2, 6, 2, 1), None, AppendOrigin::Client), Err(45));
    // A marker ends the waiting too.
    let marker = marker(PID, 2, 2);
    assert!(
        state
            .apply(&marker, end(ControlType::Abort, 0), AppendOrigin::Coordinator)
            .is_ok()
    );
    assert!(state.manager.check_verified_sequence(&batch(2, 6, 3)).is_ok());
}

#[test]
fn a_producer_of_one_batch_takes_forty_bytes_until_it_sends_more() {
    assert!(size_of::<(i64, Stored)>() <= 40);
    let is_small = |state: &State| matches!(state.manager.producers.get(&PID), Some(Stored::OneBatch(_)));
    let mut state = State::default();
    state.apply(&header(0, 0, 0, 3), None, AppendOrigin::Client).unwrap();
    assert!(is_small(&state));
    let entry = state.manager.get(PID).unwrap();
    assert_eq!(
        (entry.producer_epoch, entry.last_seq(), entry.last_timestamp),
        (0, 2, 1000)
    );
    assert!(entry.find_duplicate_batch(&header(0, 0, 0, 3)).is_some());
    state.apply(&header(0, 3, 3, 1), None, AppendOrigin::Client).unwrap();
    assert!(!is_small(&state));
    assert!(
        state
            .manager
            .get(PID)
            .unwrap()
            .find_duplicate_batch(&header(0, 0, 0, 3))
            .is_some()
    );
    // As after a reload.
    state.manager.keep_newest_batches();
    assert!(is_small(&state));
    assert_eq!(state.manager.get(PID).unwrap().last_seq(), 3);
    state.apply(&header(1, 0, 4, 1), None, AppendOrigin::Client).unwrap();
    assert!(!is_small(&state), "the epoch is not 0");
}

#[test]
fn a_marker_of_version_2_has_a_higher_epoch_than_its_transaction_but_may_come_twice() {
    let origin = AppendOrigin::BumpingCoordinator;
    let mut state = State::default();
    state
        .apply(&transactional(2, 0, 1), None, AppendOrigin::Client)
        .unwrap();
    let ending = |state: &mut State, epoch| {
        state
            .apply(&marker(2, epoch, 5), end(ControlType::Commit, 0), origin)
            .map(drop)
    };
    assert_eq!(ending(&mut state, 0), Err(47));
    assert_eq!(ending(&mut state, 1), Ok(()));
    assert_eq!(ending(&mut state, 1), Ok(()));
    assert_eq!(ending(&mut state, 0), Err(47));
    let entry = state.manager.get(2).unwrap();
    assert_eq!((entry.producer_epoch, entry.last_seq()), (1, -1));
}

#[test]
fn a_partition_that_the_broker_adds_begins_with_sequence_0() {
    let mut state = State::default();
    assert_eq!(
        state.apply(&header(0, 3, 0, 1), None, AppendOrigin::AddedClient),
        Err(45)
    );
    state
        .apply(&header(0, 0, 0, 1), None, AppendOrigin::AddedClient)
        .unwrap();
    state
        .apply(&header(0, 1, 1, 1), None, AppendOrigin::AddedClient)
        .unwrap();
    let ended = end(ControlType::Commit, 0);
    state
        .apply(&marker(PID, 1, 2), ended, AppendOrigin::BumpingCoordinator)
        .unwrap();
    assert_eq!(
        state.apply(&header(1, 2, 3, 1), None, AppendOrigin::AddedClient),
        Err(45)
    );
    state
        .apply(&header(1, 0, 3, 1), None, AppendOrigin::AddedClient)
        .unwrap();
}
