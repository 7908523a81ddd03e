//! Spec 11.3 (FetcherTest) and 11.4 (FetchCollectorTest, CompletedFetchTest): one topic "A", records 1-3, 4-5, 6-8.

use bytes::BytesMut;
use fletchlog_api::{Clock, ErrorCode};
use fletchlog_protocol::messages::fetch_response::AbortedTransaction;
use fletchlog_records::control::{ControlType, EndTxnMarker, build_marker};
use fletchlog_records::{BatchBuilder, BatchParams};

use super::fake_broker::{FakeBroker, FakeLog, Net, batch, batch_of};
use super::*;
use crate::ClientError;

/// "A" with batches at offsets 1-3, 4-5, 6-8.
fn three_batches() -> FakeBroker {
    let broker = FakeBroker::default();
    let mut log = FakeLog {
        start: 1,
        ..FakeLog::default()
    };
    [3, 2, 3].into_iter().for_each(|n| log.append(&batch(n)));
    broker.state().logs.insert(tp("A"), log);
    broker
}

fn one_batch_per_fetch(broker: &FakeBroker, more: &[(&str, &str)]) -> Consumer {
    let mut c = consumer(
        broker,
        &[&[("max.partition.fetch.bytes", "1"), ("max.poll.records", "2")], more].concat(),
    );
    c.assign(&[tp("A")]).unwrap();
    c
}

fn fetches(broker: &FakeBroker) -> usize {
    broker
        .take_net()
        .iter()
        .filter(|n| matches!(n, Net::Fetch { .. }))
        .count()
}

/// "A" with these batches back to back from offset 0.
fn log_of(batches: &[bytes::Bytes]) -> FakeBroker {
    let broker = FakeBroker::default();
    let mut log = FakeLog::default();
    batches.iter().for_each(|b| log.append(b));
    broker.state().logs.insert(tp("A"), log);
    broker
}

fn txn(producer_id: i64, records: usize) -> bytes::Bytes {
    batch_of(
        records,
        &BatchParams {
            producer_id,
            producer_epoch: 0,
            base_sequence: 0,
            transactional: true,
            ..BatchParams::default()
        },
    )
}

pub(super) fn marker(producer_id: i64, control_type: ControlType) -> bytes::Bytes {
    build_marker(
        0,
        producer_id,
        0,
        0,
        1_700_000_000_000,
        EndTxnMarker {
            control_type,
            coordinator_epoch: 0,
        },
    )
}

#[test]
fn max_poll_records_cuts_a_fetch_and_no_request_is_sent_while_its_partition_is_buffered() {
    let broker = three_batches();
    let mut c = one_batch_per_fetch(&broker, &[]);
    assert_eq!(offsets(&poll(&mut c)), [1, 2]);
    assert_eq!(fetches(&broker), 1);
    assert_eq!(offsets(&poll(&mut c)), [3]);
    assert_eq!(fetches(&broker), 1);
    assert_eq!(offsets(&poll(&mut c)), [4, 5]);
    assert_eq!(
        fetches(&broker),
        0,
        "the fetch ended at the boundary: its end was not looked behind"
    );
    assert_eq!(c.position(&tp("A"), 0, &mut || false).unwrap(), 6);
    assert_eq!(offsets(&poll(&mut c)), [6, 7]);
}

#[test]
fn data_of_a_paused_partition_is_kept_and_returned_after_resume_without_a_request() {
    let broker = three_batches();
    let mut c = one_batch_per_fetch(&broker, &[]);
    assert_eq!(offsets(&poll(&mut c)), [1, 2]);
    broker.take_net();
    c.pause(&[tp("A")]).unwrap();
    assert_eq!(poll(&mut c).count(), 0);
    assert_eq!(poll(&mut c).count(), 0);
    assert_eq!(c.paused(), [tp("A")]);
    c.resume(&[tp("A")]).unwrap();
    assert_eq!(offsets(&poll(&mut c)), [3]);
    assert_eq!(fetches(&broker), 1, "only the prefetch of the last poll");
}

#[test]
fn a_seek_discards_buffered_data() {
    let broker = three_batches();
    let mut c = one_batch_per_fetch(&broker, &[]);
    assert_eq!(offsets(&poll(&mut c)), [1, 2]);
    c.seek(&tp("A"), 7).unwrap();
    assert_eq!(offsets(&poll(&mut c)), [7, 8]);
    c.seek(&tp("A"), 2).unwrap();
    assert_eq!(offsets(&poll(&mut c)), [2, 3]);
}

#[test]
fn gaps_inside_a_batch_move_the_position_behind_the_last_record() {
    let mut builder = BatchBuilder::with_capacity(100);
    for delta in [0, 5, 15] {
        builder.append_at(delta, 0, None, Some(b"v"), &[]);
    }
    let broker = FakeBroker::default();
    let mut log = FakeLog {
        start: 15,
        ..FakeLog::default()
    };
    log.append_at(15, &builder.build(&BatchParams::default()));
    broker.state().logs.insert(tp("A"), log);
    let mut c = consumer(&broker, &[]);
    c.assign(&[tp("A")]).unwrap();
    assert_eq!(offsets(&poll(&mut c)), [15, 20, 30]);
    assert_eq!(c.position(&tp("A"), 0, &mut || false).unwrap(), 31);
    // A fetch in the middle gets the whole batch; lower offsets are skipped.
    for (from, expected) in [(16, vec![20, 30]), (20, vec![20, 30]), (21, vec![30])] {
        c.seek(&tp("A"), from).unwrap();
        assert_eq!(offsets(&poll(&mut c)), expected);
    }
}

#[test]
fn a_fetch_in_the_middle_of_a_dense_batch_skips_lower_offsets() {
    for compression in [
        fletchlog_records::Compression::None,
        fletchlog_records::Compression::Zstd,
    ] {
        let broker = log_of(&[
            batch_of(
                100,
                &BatchParams {
                    compression,
                    ..BatchParams::default()
                },
            ),
            batch(3),
        ]);
        let mut c = consumer(&broker, &[("max.poll.records", "7")]);
        c.assign(&[tp("A")]).unwrap();
        c.seek(&tp("A"), 95).unwrap();
        assert_eq!(offsets(&poll(&mut c)), [95, 96, 97, 98, 99, 100, 101]);
    }
}

#[test]
fn a_batch_whose_last_record_was_compacted_away_moves_the_position_past_it() {
    let mut bytes = BytesMut::from(&batch(3)[..]);
    bytes[23..27].copy_from_slice(&3i32.to_be_bytes()); // lastOffsetDelta
    let crc = fletchlog_records::crc::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    let broker = log_of(&[bytes.freeze()]);
    let mut c = consumer(&broker, &[]);
    c.assign(&[tp("A")]).unwrap();
    assert_eq!(offsets(&poll(&mut c)), [0, 1, 2]);
    assert_eq!(c.position(&tp("A"), 0, &mut || false).unwrap(), 4);
}

#[test]
fn a_batch_with_a_bad_crc_stops_the_partition_until_the_user_seeks_past_it() {
    let mut bad = BytesMut::from(&batch(1)[..]);
    let last = bad.len() - 2;
    bad[last] ^= 1;
    let broker = log_of(&[batch(2), bad.freeze(), batch(2)]);
    let mut c = consumer(&broker, &[]);
    c.assign(&[tp("A")]).unwrap();
    assert_eq!(offsets(&poll(&mut c)), [0, 1]);
    for _ in 0..3 {
        match c.poll(1000, &mut || false) {
            Err(ClientError::CorruptRecord { tp: at, offset: 2, .. }) => assert_eq!(at, tp("A")),
            other => panic!("{other:?}"),
        }
        assert_eq!(c.position(&tp("A"), 0, &mut || false).unwrap(), 2);
    }
    c.seek(&tp("A"), 3).unwrap();
    assert_eq!(offsets(&poll(&mut c)), [3, 4]);
    let mut unchecked = consumer(&broker, &[("check.crcs", "false")]);
    unchecked.assign(&[tp("A")]).unwrap();
    assert_eq!(offsets(&poll(&mut unchecked)), [0, 1, 2, 3, 4]);
}

#[test]
fn control_batches_are_skipped_and_a_position_moves_over_them() {
    let broker = log_of(&[
        batch(2),
        marker(1, ControlType::Abort),
        batch(3),
        marker(1, ControlType::Commit),
    ]);
    let mut c = consumer(&broker, &[]);
    c.assign(&[tp("A")]).unwrap();
    assert_eq!(offsets(&poll(&mut c)), [0, 1, 3, 4, 5]);
    assert_eq!(c.position(&tp("A"), 0, &mut || false).unwrap(), 7);
}

#[test]
fn read_committed_returns_only_what_was_committed() {
    // Offsets: 1: 0-1, 2: 2-3, abort(1): 4, 1: 5-6, commit(2): 7, abort(1): 8, plain: 9.
    let broker = log_of(&[
        txn(1, 2),
        txn(2, 2),
        marker(1, ControlType::Abort),
        txn(1, 2),
        marker(2, ControlType::Commit),
        marker(1, ControlType::Abort),
        batch(1),
    ]);
    broker.log("A", |log| {
        log.aborted = vec![
            AbortedTransaction {
                producer_id: 1,
                first_offset: 5,
            },
            AbortedTransaction {
                producer_id: 1,
                first_offset: 0,
            },
        ];
    });
    let mut c = consumer(&broker, &[("isolation.level", "read_committed")]);
    c.assign(&[tp("A")]).unwrap();
    assert_eq!(offsets(&poll(&mut c)), [2, 3, 9]);
    assert_eq!(c.position(&tp("A"), 0, &mut || false).unwrap(), 10);
    let mut all = consumer(&broker, &[]);
    all.assign(&[tp("A")]).unwrap();
    assert_eq!(offsets(&poll(&mut all)), [0, 1, 2, 3, 5, 6, 9]);
}

#[test]
fn a_position_that_moves_without_records_ends_the_poll_only_from_3_2_on() {
    for (version, early) in [("2.6", false), ("3.1", false), ("3.2", true), ("4.3", true)] {
        let broker = log_of(&[txn(1, 4), marker(1, ControlType::Abort)]);
        broker.log("A", |log| {
            log.aborted = vec![AbortedTransaction {
                producer_id: 1,
                first_offset: 0,
            }]
        });
        let mut c = consumer(
            &broker,
            &[
                ("isolation.level", "read_committed"),
                ("fletchlog.consumer.version", version),
            ],
        );
        c.assign(&[tp("A")]).unwrap();
        let before = fletchlog_api::Clock::monotonic_ms(&*broker.clock);
        assert_eq!(poll(&mut c).count(), 0);
        let waited = fletchlog_api::Clock::monotonic_ms(&*broker.clock) - before;
        assert_eq!(waited < 1000, early, "{version} waited {waited} ms");
        assert_eq!(c.position(&tp("A"), 0, &mut || false).unwrap(), 5);
    }
}

#[test]
fn a_position_out_of_range_follows_the_policy() {
    let broker = three_batches();
    let mut c = one_batch_per_fetch(&broker, &[]);
    c.seek(&tp("A"), 100).unwrap();
    assert_eq!(offsets(&poll(&mut c)), [1, 2]);

    let mut c = one_batch_per_fetch(&broker, &[("auto.offset.reset", "none")]);
    c.seek(&tp("A"), 100).unwrap();
    match c.poll(1000, &mut || false) {
        Err(ClientError::OffsetOutOfRange(at)) => assert_eq!(at, std::collections::BTreeMap::from([(tp("A"), 100)])),
        other => panic!("{other:?}"),
    }
    c.seek(&tp("A"), 4).unwrap();
    assert_eq!(offsets(&poll(&mut c)), [4, 5]);
}

#[test]
fn records_fetched_before_an_error_are_returned_before_it() {
    let broker = three_batches().with("B", 0, 1, 3);
    broker.log("B", |log| {
        log.fetch_errors.push_back(ErrorCode::TOPIC_AUTHORIZATION_FAILED)
    });
    let mut c = consumer(&broker, &[]);
    c.assign(&[tp("A"), tp("B")]).unwrap();
    assert_eq!(poll(&mut c).count(), 8);
    match c.poll(1000, &mut || false) {
        Err(ClientError::Kafka {
            code: ErrorCode::TOPIC_AUTHORIZATION_FAILED,
            message,
        }) => assert!(message.contains("B-0")),
        other => panic!("{other:?}"),
    }
    assert_eq!(token(&poll(&mut c)), "B3");
}

#[test]
fn an_error_that_a_newer_leader_explains_asks_for_metadata_and_tries_again() {
    use ErrorCode as E;
    for error in [
        E::NOT_LEADER_OR_FOLLOWER,
        E::REPLICA_NOT_AVAILABLE,
        E::KAFKA_STORAGE_ERROR,
        E::FENCED_LEADER_EPOCH,
        E::OFFSET_NOT_AVAILABLE,
        E::UNKNOWN_TOPIC_OR_PARTITION,
    ] {
        let broker = three_batches();
        broker.log("A", |log| log.fetch_errors.push_back(error));
        let mut c = consumer(&broker, &[]);
        c.assign(&[tp("A")]).unwrap();
        assert_eq!(poll(&mut c).count(), 8, "{error}");
        broker.clock.advance(100); // retry.backoff.ms since the first metadata
        assert_eq!(poll(&mut c).count(), 0);
        assert_eq!(
            broker.take_net().iter().filter(|n| **n == Net::Metadata).count(),
            2,
            "{error}"
        );
    }
}

#[test]
fn other_errors_of_a_fetch_are_reported_as_the_table_says() {
    use ErrorCode as E;
    for error in [E::UNKNOWN_LEADER_EPOCH, E::UNKNOWN_SERVER_ERROR] {
        let broker = three_batches();
        broker.log("A", |log| log.fetch_errors.push_back(error));
        let mut c = consumer(&broker, &[]);
        c.assign(&[tp("A")]).unwrap();
        assert_eq!(poll(&mut c).count(), 8, "{error}");
    }
    for (error, illegal_state) in [(E::CORRUPT_MESSAGE, false), (E::INVALID_REQUEST, true)] {
        let broker = three_batches();
        broker.log("A", |log| log.fetch_errors.push_back(error));
        let mut c = consumer(&broker, &[]);
        c.assign(&[tp("A")]).unwrap();
        match c.poll(1000, &mut || false) {
            Err(ClientError::IllegalState(_)) if illegal_state => {}
            Err(ClientError::CorruptRecord { tp: at, offset: 1, .. }) if !illegal_state => assert_eq!(at, tp("A")),
            other => panic!("{other:?}"),
        }
        assert_eq!(
            poll(&mut c).count(),
            8,
            "an answer without bytes is dropped with its error"
        );
    }
}

#[test]
fn an_error_rotates_its_partition() {
    let broker = ["A", "B", "C"]
        .iter()
        .fold(FakeBroker::default(), |b, t| b.with(t, 0, 1, 3));
    let mut c = consumer(&broker, &[]);
    c.assign(&abc()).unwrap();
    c.seek(&tp("A"), 99).unwrap();
    assert_eq!(poll(&mut c).count(), 6);
    let order: Vec<String> = c.assignment().iter().map(ToString::to_string).collect();
    assert_eq!(
        order,
        ["A-0", "B-0", "C-0"],
        "A for its error, then B and C as they were drained"
    );
}

#[test]
fn an_answer_with_a_partition_nobody_asked_for_is_thrown_away_and_the_next_request_is_a_full_one() {
    let broker = three_batches();
    broker.state().uninvited = Some(tp("Z"));
    let mut c = consumer(&broker, &[]);
    c.assign(&[tp("A")]).unwrap();
    assert_eq!(poll(&mut c).count(), 8);
    let full: Vec<bool> = broker
        .take_net()
        .iter()
        .filter_map(|n| {
            if let Net::Fetch { full, .. } = n {
                Some(*full)
            } else {
                None
            }
        })
        .collect();
    assert_eq!(full[..2], [true, true]);
}

#[test]
fn a_lost_session_and_a_lost_connection_are_survived() {
    for error in [
        Some(ErrorCode::FETCH_SESSION_ID_NOT_FOUND),
        Some(ErrorCode::INVALID_FETCH_SESSION_EPOCH),
        None,
    ] {
        let broker = three_batches();
        let mut c = one_batch_per_fetch(&broker, &[]);
        assert_eq!(offsets(&poll(&mut c)), [1, 2]);
        match error {
            Some(error) => broker.state().session_errors.push_back(error),
            None => broker.state().disconnects = 1,
        }
        let all: Vec<i64> = (0..5).flat_map(|_| offsets(&poll(&mut c))).collect();
        assert_eq!(all, [3, 4, 5, 6, 7, 8]);
        let full = broker
            .take_net()
            .iter()
            .filter(|n| matches!(n, Net::Fetch { full: true, .. }))
            .count();
        assert_eq!(full, 2, "{error:?}");
    }
}

#[test]
fn a_fetch_that_is_longer_than_max_poll_records_by_nothing_is_consumed_by_the_next_poll() {
    let broker = log_of(&[batch(500)]);
    let mut c = consumer(&broker, &[]);
    c.assign(&[tp("A")]).unwrap();
    assert_eq!(poll(&mut c).count(), 500);
    assert!(c.state.buffer.next_in_line.as_ref().is_some_and(|f| !f.consumed));
    assert_eq!(c.poll(0, &mut || false).unwrap().count(), 0);
    assert!(c.state.buffer.next_in_line.as_ref().is_none_or(|f| f.consumed));
}

#[test]
fn a_fetch_that_began_before_its_first_record_returns_from_the_first_record_on() {
    let broker = FakeBroker::default();
    let mut log = FakeLog {
        start: 5,
        ..FakeLog::default()
    };
    log.append_at(10, &batch(11));
    broker.state().logs.insert(tp("A"), log);
    let mut c = consumer(&broker, &[("max.poll.records", "10")]);
    c.assign(&[tp("A")]).unwrap();
    assert_eq!(offsets(&poll(&mut c)), (10..20).collect::<Vec<_>>());
    assert_eq!(offsets(&poll(&mut c)), [20]);
}

#[test]
fn buffered_data_of_partitions_that_are_given_up_is_dropped() {
    for order in ["partition", "kip-387"] {
        let broker = ["A", "B", "C"]
            .iter()
            .fold(FakeBroker::default(), |b, t| b.with(t, 0, 1, 3));
        let mut c = consumer(&broker, &[("max.poll.records", "1"), ("fletchlog.fetch.order", order)]);
        c.assign(&abc()).unwrap();
        assert_eq!(token(&poll(&mut c)), "A1");
        c.assign(&[tp("C")]).unwrap();
        assert!(c.state.buffer.buffered_partitions().all(|t| *t == tp("C")));
        assert_eq!(
            [poll(&mut c), poll(&mut c)].iter().map(token).collect::<Vec<_>>(),
            ["C1", "C1"]
        );
        c.unsubscribe().unwrap();
        assert_eq!(c.state.buffer.buffered_partitions().count(), 0);
    }
}

#[test]
fn the_example_of_kip_387() {
    let broker = FakeBroker::default().with("A", 0, 1, 3).with("B", 0, 1, 2);
    let mut c = consumer(
        &broker,
        &[("max.poll.records", "2"), ("fletchlog.fetch.order", "kip-387")],
    );
    c.assign(&[tp("A"), tp("B")]).unwrap();
    let polls: Vec<String> = (0..3).map(|_| token(&poll(&mut c))).collect();
    assert_eq!(polls, ["A2", "B2", "A1"]);
}

#[test]
fn kip_387_keeps_paused_data_in_its_place_and_passes_over_it() {
    let broker = ["A", "B"].iter().fold(FakeBroker::default(), |b, t| b.with(t, 0, 1, 4));
    let mut c = consumer(
        &broker,
        &[("max.poll.records", "1"), ("fletchlog.fetch.order", "kip-387")],
    );
    c.assign(&[tp("A"), tp("B")]).unwrap();
    let mut polls: Vec<String> = (0..2).map(|_| token(&poll(&mut c))).collect();
    c.pause(&[tp("A")]).unwrap();
    polls.extend((0..2).map(|_| token(&poll(&mut c))));
    c.resume(&[tp("A")]).unwrap();
    polls.extend((0..4).map(|_| token(&poll(&mut c))));
    assert_eq!(polls, ["A1", "B1", "B1", "B1", "A1", "B1", "A1", "A1"]);
}

#[test]
fn a_batch_that_expands_beyond_the_limit_is_an_error_not_memory() {
    let params = BatchParams {
        compression: fletchlog_records::Compression::Gzip,
        ..BatchParams::default()
    };
    let broker = log_of(&[batch_of(1000, &params)]);
    let mut c = consumer(&broker, &[("fletchlog.decompression.limit.bytes", "1000")]);
    c.assign(&[tp("A")]).unwrap();
    assert!(matches!(
        c.poll(1000, &mut || false),
        Err(ClientError::CorruptRecord { offset: 0, .. })
    ));
}

#[test]
fn the_trace_says_why_a_partition_was_left_out() {
    let broker = ["A", "B"].iter().fold(FakeBroker::default(), |b, t| b.with(t, 0, 1, 3));
    let mut c = consumer(&broker, &[("max.poll.records", "4"), ("fletchlog.trace", "true")]);
    c.assign(&[tp("A"), tp("B")]).unwrap();
    assert_eq!(token(&poll(&mut c)), "A3+B1");
    let kinds: Vec<TraceKind> = c.trace().iter().map(|e| e.kind).collect();
    use TraceKind as K;
    for kind in [K::Poll, K::Ask, K::Answer, K::Take, K::Drained, K::Rotate] {
        assert!(kinds.contains(&kind), "{kind:?} in {kinds:?}");
    }
    let mut skips = c.trace().iter().filter(|e| e.kind == K::Skip);
    let why = skips
        .rfind(|e| e.partitions.iter().any(|p| !p.gone && p.tp == tp("B")))
        .unwrap();
    assert_eq!(why.text, "the last fetch is still buffered");
    let answer = c.trace().iter().find(|e| e.kind == K::Answer).unwrap();
    let queued = &answer.partitions[0];
    assert_eq!(
        (queued.batches, queued.records, queued.offset, answer.full),
        (1, 3, 0, Some(true))
    );
}

#[test]
fn a_poll_does_not_wait_when_the_answer_that_it_handles_was_the_only_thing_on_its_way() {
    for version in ["2.4", "2.6", "3.1", "3.9", "4.3"] {
        // B is at its end long before A and C, so fetches of B alone are under way while they are handed out.
        let broker = FakeBroker::default()
            .with("A", 0, 9, 10)
            .with("B", 0, 2, 10)
            .with("C", 0, 9, 10);
        let more = [
            ("retry.backoff.ms", "100000"),
            ("max.poll.records", "7"),
            ("max.partition.fetch.bytes", "1"),
            ("fletchlog.consumer.version", version),
        ];
        let mut c = consumer(&broker, &more);
        c.assign(&abc()).unwrap();
        let (mut got, mut polls) = (0, 0);
        while got < 200 {
            got += c.poll(1_000_000, &mut || false).unwrap().count();
            polls += 1;
            assert!(polls < 200, "{version}");
            // What is held back for fetch.max.wait.ms is answered, and read when the next fetch is written.
            broker.clock.advance(30);
        }
        let waited = fletchlog_api::Clock::monotonic_ms(&*broker.clock);
        assert!(waited < 100_000, "{version} waited {waited} ms");
    }
}

/// Fetches of a poll of 1000 ms that gives nothing.
fn fetches_of_an_empty_poll(broker: &FakeBroker, c: &mut Consumer) -> usize {
    let began_ms = broker.clock.monotonic_ms();
    broker.take_net();
    assert_eq!(token(&poll(c)), "");
    assert!(broker.clock.monotonic_ms() >= began_ms + 1000);
    let net = broker.take_net();
    net.iter().filter(|sent| matches!(sent, Net::Fetch { .. })).count()
}

#[test]
fn a_partition_whose_fetches_are_refused_is_fetched_again_after_retry_backoff_ms() {
    for error in [
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode::UNKNOWN_SERVER_ERROR,
        ErrorCode::UNKNOWN_LEADER_EPOCH,
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
    ] {
        for order in ["partition", "kip-387", "timestamp"] {
            let broker = FakeBroker::default().with("A", 0, 1, 3);
            let mut c = consumer(
                &broker,
                &[("fletchlog.fetch.order", order), ("fetch.max.wait.ms", "5000")],
            );
            c.assign(&[tp("A")]).unwrap();
            c.seek(&tp("A"), 0).unwrap();
            broker.log("A", |log| log.fetch_errors.extend([error; 1000]));
            let fetches = fetches_of_an_empty_poll(&broker, &mut c);
            assert!((9..=12).contains(&fetches), "{error} {order}: {fetches}");
            broker.log("A", |log| log.fetch_errors.clear());
            assert_eq!(token(&poll(&mut c)), "A3", "{error} {order}");
        }
    }
}

#[test]
fn a_node_whose_answers_cannot_be_used_is_asked_again_after_retry_backoff_ms() {
    let broker = FakeBroker::default().with("A", 0, 1, 3);
    let mut c = consumer(&broker, &[]);
    c.assign(&[tp("A")]).unwrap();
    c.seek(&tp("A"), 0).unwrap();
    broker
        .state()
        .session_errors
        .extend([ErrorCode::UNKNOWN_SERVER_ERROR; 1000]);
    let fetches = fetches_of_an_empty_poll(&broker, &mut c);
    assert!((9..=12).contains(&fetches), "{fetches}");
    broker.state().session_errors.clear();
    assert_eq!(token(&poll(&mut c)), "A3");
}

#[test]
fn a_call_waits_while_a_partition_may_be_fetched_again() {
    let broker = FakeBroker::default().with("A", 0, 1, 3);
    let mut c = consumer(&broker, &[]);
    c.assign(&[tp("A")]).unwrap();
    c.seek(&tp("A"), 0).unwrap();
    broker.log("A", |log| {
        log.fetch_errors.extend([ErrorCode::UNKNOWN_TOPIC_OR_PARTITION; 1000]);
    });
    assert_eq!(token(&poll(&mut c)), "");
    broker.clock.advance(1_000);
    broker.log("A", |log| {
        log.lookup_errors.extend([ErrorCode::LEADER_NOT_AVAILABLE; 5])
    });
    let mut turns = 0;
    let ends = c.end_offsets(&[tp("A")], 10_000, &mut || {
        turns += 1;
        turns > 100
    });
    assert_eq!(ends.unwrap(), [(tp("A"), 3)]);
}
