use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::TimestampType;
use crate::varint::{write_varint, write_varlong};

/// A body of the given fields, in a record of the right length.
fn record(fields: &[&[u8]]) -> Vec<u8> {
    let body = fields.concat();
    let mut out = Vec::new();
    write_varint(&mut out, i32::try_from(body.len()).unwrap());
    out.extend_from_slice(&body);
    out
}

fn varint(value: i32) -> Vec<u8> {
    let mut out = Vec::new();
    write_varint(&mut out, value);
    out
}

fn slice(payload: Vec<u8>, count: i32) -> RecordsSlice {
    RecordsSlice {
        payload: Bytes::from(payload),
        count,
        base_offset: 0,
        base_timestamp: 0,
        max_timestamp: 0,
        timestamp_type: TimestampType::CreateTime,
        leader_epoch: -1,
        magic: 2,
        producer: (-1, -1, -1),
    }
}

fn refused(payload: Vec<u8>) -> String {
    let slice = slice(payload, 1);
    assert_eq!(parse_small(&slice.payload, 0), None);
    let mut cursor = RecordCursor::new();
    let first = cursor.next(&slice).unwrap_err();
    assert_eq!(cursor.next(&slice).unwrap_err(), first, "the error repeats");
    assert_eq!(cursor.walk(&slice, 9).unwrap_err(), first, "walking finds the same");
    assert_eq!((cursor.position(), cursor.returned()), (0, 0));
    first.to_string()
}

#[test]
fn malformed_records_are_refused_with_the_field_that_is_wrong() {
    let null = [1u8];
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (vec![], "fewer records"),
        (vec![0x80], "length of a record is cut off"),
        (
            vec![0x80, 0x80, 0x80, 0x80, 0x80, 0],
            "length of a record is cut off or too long",
        ),
        (varint(-1), "negative"),
        (varint(1), "beyond the end"),
        (record(&[]), "timestamp delta"),
        (record(&[&[0], &[0x80]]), "timestamp delta"),
        (record(&[&[0], &[0x80; 10], &[0]]), "timestamp delta"),
        (record(&[&[0, 0]]), "offset delta"),
        (record(&[&[0, 0, 0]]), "key"),
        (record(&[&[0, 0, 0], &varint(-2), &null, &[0]]), "key"),
        (record(&[&[0, 0, 0], &varint(9), &null, &[0]]), "key"),
        (record(&[&[0, 0, 0], &null]), "value"),
        (record(&[&[0, 0, 0], &null, &varint(-2), &[0]]), "value"),
        (record(&[&[0, 0, 0], &null, &varint(2), b"x"]), "value"),
        (record(&[&[0, 0, 0], &null, &null]), "number of headers"),
        (record(&[&[0, 0, 0], &null, &null, &varint(-1)]), "negative"),
        (record(&[&[0, 0, 0], &null, &null, &varint(1)]), "more headers"),
        (
            record(&[&[0, 0, 0], &null, &null, &varint(i32::MAX), b"xxxx"]),
            "more headers",
        ),
        (record(&[&[0, 0, 0], &null, &null, &[0], b"x"]), "does not end"),
        (
            record(&[&[0, 0, 0], &null, &null, &varint(1), &null, &null]),
            "header key is null",
        ),
        (
            record(&[&[0, 0, 0], &null, &null, &varint(1), &varint(5), b"h", &null]),
            "header key is longer",
        ),
        (
            record(&[&[0, 0, 0], &null, &null, &varint(1), &varint(1), &[0xff], &null]),
            "not UTF-8",
        ),
        (
            record(&[&[0, 0, 0], &null, &null, &varint(1), &varint(1), b"h", &varint(4)]),
            "header value",
        ),
        (
            record(&[&[0, 0, 0], &null, &null, &varint(1), &varint(1), b"h", &null, b"x"]),
            "does not end",
        ),
    ];
    for (payload, reason) in cases {
        let got = refused(payload.clone());
        assert!(got.contains(reason), "{payload:x?}: {got}");
    }
}

#[test]
fn walking_stops_before_a_malformed_record_and_then_reports_it() {
    let good = record(&[&[0, 0, 0], &[1], &[1], &[0]]);
    let mut payload = good.repeat(3);
    payload.extend_from_slice(&record(&[&[0, 0]]));
    let slice = slice(payload, 5);
    let mut cursor = RecordCursor::new();
    assert_eq!(cursor.walk(&slice, 2).unwrap(), Some((2, 0, 0)));
    assert_eq!(cursor.walk(&slice, 9).unwrap(), Some((1, 0, 0)));
    assert!(cursor.walk(&slice, 9).is_err());
    assert_eq!((cursor.returned(), cursor.position()), (3, 3 * good.len()));
    assert_eq!(cursor.walk(&slice, 0).unwrap(), None);
}

#[test]
fn attributes_of_a_record_are_not_looked_at() {
    let slice = slice(record(&[&[0xff, 0, 0], &[1], &[1], &[0]]), 1);
    assert!(RecordCursor::new().next(&slice).unwrap().is_some());
}

proptest! {
    /// The quick parser may pass, but where it answers it must answer as the thorough one.
    #[test]
    fn the_quick_parser_agrees_with_the_thorough_one(
        times in proptest::collection::vec(prop_oneof![-70i64..70, -9000i64..9000, any::<i64>()], 1..8),
        key in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..80)),
        value in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..80)),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
        pad in 0usize..20,
    ) {
        let mut payload = Vec::new();
        for (i, time) in times.iter().enumerate() {
            let (mut body, mut len) = (vec![0], Vec::new());
            write_varlong(&mut body, *time);
            write_varint(&mut body, i32::try_from(i * 40).unwrap());
            for field in [&key, &value] {
                write_varint(&mut body, field.as_ref().map_or(-1, |f| i32::try_from(f.len()).unwrap()));
                body.extend_from_slice(field.as_deref().unwrap_or_default());
            }
            body.push(0);
            write_varint(&mut len, i32::try_from(body.len()).unwrap());
            payload.extend_from_slice(&len);
            payload.extend_from_slice(&body);
        }
        payload.extend(std::iter::repeat_n(0, pad));
        for (at, byte) in damage {
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        for pos in 0..=payload.len() {
            if let Some(small) = parse_small(&payload, pos) {
                prop_assert_eq!(parse_record(&payload, pos), Ok(small));
            }
        }
    }

    #[test]
    fn any_bytes_give_records_or_an_error(payload in proptest::collection::vec(any::<u8>(), 0..200), count in 0..40i32) {
        let slice = slice(payload, count);
        let (mut cursor, mut walker) = (RecordCursor::new(), RecordCursor::new());
        let mut read = 0;
        while let Ok(Some(record)) = cursor.next(&slice) {
            prop_assert_eq!(record.headers().count(), record.header_count as usize);
            read += 1;
        }
        let walked = walker.walk(&slice, usize::MAX).ok().flatten().map_or(0, |(count, ..)| count);
        prop_assert_eq!(walked, read);
        prop_assert_eq!(walker.position(), cursor.position());
    }

    /// Records that lie alike are passed without being parsed: what a walk finds must be what parsing each finds.
    #[test]
    fn a_walk_over_records_that_lie_alike_finds_what_parsing_each_finds(
        kinds in proptest::collection::vec((
            prop_oneof![Just(None), (0usize..3).prop_map(Some), (60usize..70).prop_map(Some)],
            prop_oneof![Just(None), Just(Some(10usize)), (60usize..70).prop_map(Some), Just(Some(8200))],
            prop_oneof![Just(0i64), Just(-70), Just(8000), Just(9000), Just(1_000_000), Just(i64::MIN)],
            1usize..20,
        ), 1..4),
        damage in proptest::option::of((any::<proptest::sample::Index>(), any::<u8>())),
        base_offset in prop_oneof![Just(0), Just(i64::MAX - 1500), Just(i64::MIN)],
        cuts in (0i32..3, 1usize..30),
    ) {
        let mut payload = Vec::new();
        let mut count = 0;
        for (key, value, time, repeat) in kinds {
            for _ in 0..repeat {
                let mut body = vec![0];
                write_varlong(&mut body, time);
                write_varint(&mut body, count * 130);
                for length in [key, value] {
                    write_varint(&mut body, length.map_or(-1, |length| i32::try_from(length).unwrap()));
                    body.extend(std::iter::repeat_n(b'x', length.unwrap_or(0)));
                }
                body.push(0);
                write_varint(&mut payload, i32::try_from(body.len()).unwrap());
                payload.extend_from_slice(&body);
                count += 1;
            }
        }
        if let Some((at, byte)) = damage {
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        let slice = RecordsSlice { base_offset, ..slice(payload, (count - cuts.0).max(0)) };
        let (mut cursor, mut walker, mut visitor) = (RecordCursor::new(), RecordCursor::new(), RecordCursor::new());
        loop {
            let mut expected: Option<(usize, i64, i64)> = None;
            let (mut records, mut failure) = (Vec::new(), None);
            for _ in 0..cuts.1 {
                match cursor.next(&slice) {
                    Ok(None) => break,
                    Ok(Some(record)) => {
                        records.push((record.offset, record.timestamp, record.key.is_some()));
                        expected = Some(expected.map_or((1, record.offset, record.offset), |(walked, first, _)| {
                            (walked + 1, first, record.offset)
                        }));
                    }
                    Err(error) => {
                        failure = Some(error);
                        break;
                    }
                }
            }
            let mut visited = Vec::new();
            let passed = visitor.visit(&slice, cuts.1, |offset, timestamp, has_key| {
                visited.push((offset, timestamp, has_key));
                true
            });
            prop_assert_eq!(passed.is_err(), expected.is_none() && failure.is_some());
            prop_assert_eq!(&visited, &records);
            prop_assert_eq!((visitor.position(), visitor.returned()), (cursor.position(), cursor.returned()));
            let walked = walker.walk(&slice, cuts.1);
            prop_assert_eq!((walker.position(), walker.returned()), (cursor.position(), cursor.returned()));
            match (expected, failure) {
                (None, Some(error)) => {
                    prop_assert_eq!(walked, Err(error));
                    break;
                }
                (expected, _) => prop_assert_eq!(walked, Ok(expected)),
            }
            if expected.is_none() {
                break;
            }
        }
    }
}
