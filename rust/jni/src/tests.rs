//! The readers without Java. What Spark gets of them is compared with the Python source in `tests/spark`.

use std::path::Path;
use std::sync::Arc;

use fletchlog_api::transport::SystemClock;
use fletchlog_api::{Config, Scope};
use fletchlog_broker::{Broker, OpenOptions};
use fletchlog_records::{BatchBuilder, BatchParams, TopicPartition};

use super::*;

/// Longs for the addresses of all columns.
const SLOTS: usize = 3 * 9;

/// A topic of one partition, a segment for each batch.
fn writer(path: &Path) -> Arc<Broker> {
    let options = OpenOptions {
        nodes: None,
        named_nodes: Vec::new(),
        read_only: false,
        config: Config::parse(Scope::Broker, []).unwrap(),
    };
    let broker = Broker::open(path, options, Arc::new(SystemClock::default())).unwrap();
    let config = [
        ("segment.bytes", "100"),
        ("retention.ms", "-1"),
        ("file.delete.delay.ms", "0"),
    ];
    let config = config.map(|(name, value)| (name.to_owned(), value.to_owned()));
    broker.create_topic("t", 1, &config).unwrap();
    broker
}

fn append(broker: &Broker, values: &[&str]) {
    let mut builder = BatchBuilder::with_capacity(256);
    for value in values {
        builder.append(1000, None, Some(value.as_bytes()), &[]);
    }
    let batch = builder.build(&BatchParams::default());
    broker.append_batches(&TopicPartition::new("t", 0), batch).unwrap();
}

fn reader(path: &Path, offsets: std::ops::Range<i64>, columns: i32) -> Reader {
    let range = Range::new(path.to_str().unwrap().to_owned(), "t", 0, offsets, false);
    Reader::new(range, Asked::new(columns, Vec::new()))
}

/// All answers until the end.
fn steps(reader: &mut Reader) -> Vec<Step> {
    let mut out = [0; SLOTS];
    let mut steps = Vec::new();
    loop {
        match reader.next(&mut out).unwrap() {
            Step::End => return steps,
            step => steps.push(step),
        }
    }
}

#[test]
fn rows_are_counted_as_they_are_decoded() {
    let directory = tempfile::tempdir().unwrap();
    let broker = writer(directory.path());
    append(&broker, &["a", "b", "c"]);
    append(&broker, &["d", "e"]);
    for columns in [0, 1 << 1, 0b11_1111] {
        let mut all = reader(directory.path(), 0..5, columns);
        assert_eq!(steps(&mut all), [Step::Rows(5)], "{columns:b}");
        let mut some = reader(directory.path(), 1..4, columns);
        assert_eq!(steps(&mut some), [Step::Rows(3)], "{columns:b}");
    }
}

#[test]
fn the_addresses_are_those_of_the_columns_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    append(&writer(directory.path()), &["ab", "", "cde"]);
    let mut out = [0; SLOTS];
    let mut reader = reader(directory.path(), 0..3, 0b110); // value, offset
    assert_eq!(reader.next(&mut out).unwrap(), Step::Rows(3));
    let [validity, ends, bytes, none, offsets, ..] = out;
    assert_eq!((validity, none), (0, 0));
    // SAFETY: the reader says that these are the buffers of three rows, and it lives.
    let (ends, bytes, offsets) = unsafe {
        (
            std::slice::from_raw_parts(ends as *const i32, 4),
            std::slice::from_raw_parts(bytes as *const u8, 5),
            std::slice::from_raw_parts(offsets as *const i64, 3),
        )
    };
    assert_eq!(
        (ends, bytes, offsets),
        (&[0, 2, 2, 5][..], &b"abcde"[..], &[0, 1, 2][..])
    );
}

#[test]
fn what_is_gone_is_reported_and_the_rest_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let broker = writer(directory.path());
    append(&broker, &["a", "b"]);
    append(&broker, &["c", "d"]);
    broker.delete_records(&TopicPartition::new("t", 0), Some(2)).unwrap();
    for columns in [0, 1 << 1] {
        let found = steps(&mut reader(directory.path(), 1..7, columns));
        let [Step::Lost(start), Step::Lost(end), Step::Rows(2)] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(start, "the log of t-0 starts at 2; offsets from 1 were to be read");
        assert_eq!(end, "the log of t-0 ends at 4; offsets up to 6 were to be read");
    }
    let range = Range::new(directory.path().to_str().unwrap().to_owned(), "gone", 3, 4..9, false);
    let lost = "gone-3 is gone; offsets 4 to 8 were to be read".to_owned();
    assert_eq!(
        steps(&mut Reader::new(range, Asked::new(0, Vec::new()))),
        [Step::Lost(lost)]
    );
}

#[test]
fn a_directory_that_was_made_anew_is_opened_anew() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("log");
    append(&writer(&path), &["a"]);
    assert_eq!(steps(&mut reader(&path, 0..1, 0)), [Step::Rows(1)]);
    std::fs::rename(&path, parent.path().join("old")).unwrap();
    append(&writer(&path), &["b", "c"]);
    assert_eq!(steps(&mut reader(&path, 0..2, 0)), [Step::Rows(2)]);
}

#[test]
fn a_topic_that_was_made_anew_is_read_anew() {
    let directory = tempfile::tempdir().unwrap();
    let broker = writer(directory.path());
    append(&broker, &["a", "b", "c"]);
    assert_eq!(steps(&mut reader(directory.path(), 0..3, 0)), [Step::Rows(3)]);
    broker.delete_topic("t").unwrap();
    broker.create_topic("t", 1, &[]).unwrap();
    append(&broker, &["d"]);
    let lost = "the log of t-0 ends at 1; offsets up to 2 were to be read".to_owned();
    let found = steps(&mut reader(directory.path(), 0..3, 0));
    assert_eq!(found, [Step::Lost(lost), Step::Rows(1)]);
}

#[test]
fn a_panic_is_an_error() {
    let failed = caught::<()>(|| panic!("of {}", "a test"));
    assert_eq!(failed, Err("internal error: of a test".to_owned()));
}

#[test]
fn a_missing_directory_is_an_error_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let failed = reader(&directory.path().join("nowhere"), 0..1, 0).next(&mut [0; SLOTS]);
    assert!(
        failed.as_ref().is_err_and(|text| text.contains("nowhere")),
        "{failed:?}"
    );
}

const ORDER: &str = r#"{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"},
    {"name": "customer", "type": {"type": "record", "name": "Customer", "fields": [{"name": "name", "type": "string"}, {"name": "vip", "type": "boolean"}]}}]}"#;

/// A reader of values in Avro, with these fields; Java expects this type.
fn typed(path: &Path, fields: &str, expected: &str, on_error: &str, columns: i32) -> Result<Reader, String> {
    let schema = serde_json::Value::from(ORDER);
    let described =
        format!(r#"{{"value": {{"reader": {{"format": "avro", "schema": {schema}}}, "on_error": "{on_error}"}}}}"#);
    let asked = format!(r#"{{"key": {{}}, "value": {{"fields": {fields}, "type": "{expected}"}}}}"#);
    let range = Range::new(path.to_str().unwrap().to_owned(), "t", 0, 0..9, false);
    Ok(Reader::new(
        range,
        Asked::new(columns, Typed::parse(&described, &asked)?),
    ))
}

#[test]
fn values_are_decoded_with_the_fields_that_are_asked_for_in_that_order() {
    let directory = tempfile::tempdir().unwrap();
    // 1, "ann", true; 2, "bo", false
    append(&writer(directory.path()), &["\u{2}\u{6}ann\u{1}", "\u{4}\u{4}bo\u{0}"]);
    let fields = r#"[["customer", "name"], ["id"]]"#;
    let expected = "struct<customer:struct<name:string>,id:bigint>";
    let mut reader = typed(directory.path(), fields, expected, "fail", 0b10).unwrap();
    let mut out = [0; SLOTS];
    assert!(matches!(reader.next(&mut out), Ok(Step::Lost(_))));
    assert_eq!(reader.next(&mut out), Ok(Step::Rows(2)));
    // value, customer, name, id: validity and two buffers each
    let (names, ids) = (out[8], out[10]);
    // SAFETY: the reader says that these are buffers of two rows, and it lives.
    let (names, ids) = unsafe {
        (
            std::slice::from_raw_parts(names as *const u8, 5),
            std::slice::from_raw_parts(ids as *const i64, 2),
        )
    };
    assert_eq!((names, ids), (&b"annbo"[..], &[1, 2][..]));
}

#[test]
fn a_type_that_java_does_not_expect_is_never_read() {
    let directory = tempfile::tempdir().unwrap();
    append(&writer(directory.path()), &["\u{2}\u{6}ann\u{1}"]);
    let mut reader = typed(directory.path(), r#"[["id"]]"#, "struct<id:int>", "fail", 0b10).unwrap();
    reader.next(&mut [0; SLOTS]).unwrap();
    let failed = reader.next(&mut [0; SLOTS]);
    assert_eq!(
        failed,
        Err("internal error: the column value is struct<id:bigint>, planned was struct<id:int>".to_owned())
    );
}

#[test]
fn what_cannot_be_decoded_fails_or_is_in_a_column() {
    let directory = tempfile::tempdir().unwrap();
    append(&writer(directory.path()), &["\u{2}\u{6}ann\u{1}", "?"]);
    let fields = r#"[["id"]]"#;
    let mut failing = typed(directory.path(), fields, "struct<id:bigint>", "fail", 0b10).unwrap();
    failing.next(&mut [0; SLOTS]).unwrap();
    let failed = failing.next(&mut [0; SLOTS]).unwrap_err();
    assert!(
        failed.starts_with("the value of t-0 at offset 1 cannot be decoded: "),
        "{failed}"
    );
    let mut with_column = typed(directory.path(), "[]", "", "collect", 0b1000_0000).unwrap();
    let mut out = [0; SLOTS];
    with_column.next(&mut out).unwrap();
    assert_eq!(with_column.next(&mut out), Ok(Step::Rows(2)));
    // SAFETY: the reader says that this is the validity of two rows, and it lives.
    let validity = unsafe { *(out[0] as *const u8) };
    assert_eq!(validity & 0b11, 0b10);
}
