//! Batches that are too large are split.

use super::*;

/// Records of one batch, of which `rows` say whether they are rows or have futures; each future is asked for at once, and its callback
/// notes (number, offset).
fn send_batch(fixture: &Fixture, rows: &[bool], noted: &Arc<Mutex<Vec<(i32, i64)>>>) -> Vec<RecordFuture> {
    let mut futures = Vec::new();
    for (number, is_row) in (0i32..).zip(rows) {
        let record = ProducerRecord {
            topic: "t",
            partition: Some(0),
            timestamp: Some(i64::from(100 + number)),
            key: None,
            value: Some(&[1; 40]),
            headers: &[],
        };
        if *is_row {
            assert!(fixture.producer.try_send_row(&record));
            continue;
        }
        let noted = noted.clone();
        let mut call: Option<OnDecided> = Some(Box::new(move |outcome| {
            let offset = outcome.as_ref().map_or(-1, |metadata| metadata.offset);
            noted.lock().unwrap().push((number, offset));
        }));
        futures.push(fixture.producer.try_send_with(&record, &mut call).unwrap());
        assert!(call.is_none());
    }
    futures
}

const SPLITTING: &[(&str, &str)] = &[
    ("batch.size", "16384"),
    ("linger.ms", "10"),
    ("enable.idempotence", "false"),
    ("fletchlog.producer.version", "4.2"),
];

#[test]
fn the_futures_and_callbacks_of_a_split_batch_follow_their_records() {
    let mut fixture = Fixture::new(SPLITTING);
    let noted: Arc<Mutex<Vec<(i32, i64)>>> = Arc::default();
    let futures = send_batch(&fixture, &[false; 7], &noted);
    fixture.producer.run_for(10);
    fixture.turns();
    // The first split makes the same batch again, the second one pieces of 2, 2, 2 and 1.
    fixture.answer_produce(ErrorCode::MESSAGE_TOO_LARGE, -1);
    fixture.answer_produce(ErrorCode::MESSAGE_TOO_LARGE, -1);
    assert!(futures.iter().all(|future| future.try_result().is_none()));
    let late = noted.clone();
    assert!(futures[2].on_decided(Box::new(move |_| late.lock().unwrap().push((20, 0)))));
    fixture.answer_produce(ErrorCode::NONE, 50);
    fixture.answer_produce(ErrorCode::NONE, 60);
    fixture.answer_produce(ErrorCode::INVALID_RECORD, -1);
    fixture.answer_produce(ErrorCode::NONE, 70);
    let written: Vec<_> = futures.iter().map(|future| future.try_result().unwrap().ok()).collect();
    let at = |offset, timestamp| {
        Some(RecordMetadata {
            topic: Arc::from("t"),
            partition: 0,
            offset,
            timestamp,
        })
    };
    assert_eq!(
        written,
        [
            at(50, 100),
            at(51, 101),
            at(60, 102),
            at(61, 103),
            None,
            None,
            at(70, 106)
        ]
    );
    assert_eq!(code(&futures[4]), ErrorCode::INVALID_RECORD);
    assert_eq!(
        *noted.lock().unwrap(),
        [(0, 50), (1, 51), (2, 60), (20, 0), (3, 61), (4, -1), (5, -1), (6, 70)]
    );
    assert!(!futures[2].on_decided(Box::new(|_| {})), "it is decided");
}

#[test]
fn flush_reports_a_failed_piece_only_if_rows_are_in_it() {
    for (rows, reported) in [([0, 1, 6], false), ([0, 1, 3], true)] {
        let mut fixture = Fixture::new(SPLITTING);
        let is_row: Vec<bool> = (0..7).map(|number| rows.contains(&number)).collect();
        let futures = send_batch(&fixture, &is_row, &Arc::default());
        fixture.producer.run_for(10);
        fixture.turns();
        fixture.answer_produce(ErrorCode::MESSAGE_TOO_LARGE, -1);
        fixture.answer_produce(ErrorCode::MESSAGE_TOO_LARGE, -1);
        // Records 0 and 1, 2 and 3, 4 and 5, 6.
        fixture.answer_produce(ErrorCode::NONE, 0);
        fixture.answer_produce(ErrorCode::INVALID_RECORD, -1);
        fixture.answer_produce(ErrorCode::NONE, 2);
        fixture.answer_produce(ErrorCode::NONE, 4);
        assert_eq!(code(&futures[0]), ErrorCode::INVALID_RECORD);
        assert_eq!(fixture.producer.flush(&mut never).is_err(), reported, "rows {rows:?}");
        fixture.producer.flush(&mut never).unwrap();
    }
}
