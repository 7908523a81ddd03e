#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{Array, BinaryArray};
use arrow_schema::DataType;
use proptest::prelude::*;

use super::{ProtobufReader, ProtobufWriter, compile};
use crate::{Decoded, ReadValue, decode, encode};

const SCHEMA: &str = r#"
    syntax = "proto2";
    package p;
    message M {
        optional int32 a = 1;
        optional string b = 2;
        repeated Inner c = 3;
        map<string, Inner> d = 4;
        oneof one { int32 e = 5; Inner f = 6; Closed g = 7; }
        optional Inner h = 8;
        repeated sint32 i = 9;
    }
    message Inner { optional int32 x = 1; repeated int32 y = 2; }
    enum Closed { ZERO = 0; ONE = 1; }
"#;

fn descriptors(text: &str) -> Vec<u8> {
    compile(BTreeMap::from([("m.proto".to_owned(), text.to_owned())]), "m.proto").unwrap()
}

fn reader(text: &str) -> ProtobufReader {
    ProtobufReader::new(&descriptors(text), "p.M", false).unwrap()
}

fn read(reader: &dyn ReadValue, values: Vec<&[u8]>) -> Decoded {
    decode(reader, &BinaryArray::from_vec(values)).unwrap()
}

#[test]
fn a_malformed_value_leaves_nothing_of_itself() {
    let reader = reader(SCHEMA);
    // each is malformed behind an item of a list, an entry of a map, an open message and a member of a oneof
    let good: &[u8] = b"\x1a\x02\x10\x07\x22\x05\x0a\x01k\x12\x00\x32\x02\x08\x01\x42\x02\x10\x09";
    let bad = [good, b"\x08"].concat();
    let both = read(&reader, vec![&bad, good, &bad]);
    let alone = read(&reader, vec![good]);
    assert_eq!(both.reasons.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(both.column.slice(1, 1).to_data(), alone.column.to_data());
    assert!(both.column.is_null(0) && both.column.is_null(2));
}

#[test]
fn fields_that_are_left_out_are_skipped_and_still_clear_their_oneof() {
    let whole = reader(SCHEMA);
    let fields = [vec!["e".to_owned()], vec!["h".to_owned(), "x".to_owned()]];
    let pruned = whole.pruned(&fields).unwrap();
    let DataType::Struct(columns) = pruned.data_type() else {
        panic!()
    };
    assert_eq!(
        columns.iter().map(|field| field.name().as_str()).collect::<Vec<_>>(),
        ["e", "h"]
    );
    // e, then f, which clears it; e, then a number that is none of the closed enum g; a string that ends early
    let values: Vec<&[u8]> = vec![
        b"\x28\x05\x32\x00",
        b"\x28\x05\x38\x07\x42\x04\x10\x01\x08\x02",
        b"\x12\x05ab",
        b"\x12\x01\xff",
    ];
    let read = read(pruned.as_ref(), values);
    let rows = arrow_array::cast::AsArray::as_struct(read.column.as_ref());
    let e = arrow_array::cast::AsArray::as_primitive::<arrow_array::types::Int32Type>(rows.column(0));
    assert_eq!(e.iter().collect::<Vec<_>>(), [None, Some(5), None, None]);
    assert_eq!(read.reasons.len(), 1);
    assert_eq!(read.reasons[0].0, 2);
    assert!(whole.pruned(&[vec!["z".to_owned()]]).is_err());
    assert!(whole.pruned(&[vec!["a".to_owned(), "z".to_owned()]]).is_err());
}

#[test]
fn schemas_that_no_table_holds_are_refused() {
    let wide: String = (0..18)
        .map(|level| {
            format!(
                "message M{level} {{ optional M{0} a = 1; optional M{0} b = 2; }}",
                level + 1
            )
        })
        .collect();
    let wide = format!(
        "syntax = \"proto2\"; package p; message M {{ optional M0 a = 1; }} {wide} message M18 {{ optional int32 a = 1; }}"
    );
    let error = ProtobufReader::new(&descriptors(&wide), "p.M", false)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("the Protobuf message p.M has more than 100000 columns"),
        "{error}"
    );
    let deep: String = (0..150)
        .map(|level| format!("message M{level} {{ optional M{} a = 1; }}", level + 1))
        .collect();
    let deep = format!("syntax = \"proto2\"; package p; message M {{ optional M0 a = 1; }} {deep} message M150 {{}}");
    assert!(ProtobufReader::new(&descriptors(&deep), "p.M", false).is_err());
    let own = "syntax = \"proto2\"; package p; message M { map<int32, M> a = 1; }";
    let error = ProtobufReader::new(&descriptors(own), "p.M", false)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "the Protobuf message p.M contains itself; Arrow has no such type"
    );
}

#[test]
fn texts_that_are_no_schema_are_refused_with_their_line() {
    let refused = |text: &str| {
        let texts = BTreeMap::from([("m.proto".to_owned(), text.to_owned())]);
        compile(texts, "m.proto").unwrap_err().to_string()
    };
    assert!(refused("message M {\n  optional int32 a = 1\n}").contains("m.proto:3"));
    assert!(refused("import \"other.proto\";").contains("import 'other.proto' not found"));
    assert!(refused("message M { optional N n = 1; }").contains("N"));
    assert!(refused(&"message M {".repeat(100_000)).contains("levels"));
    assert!(refused("edition = \"2023\";").starts_with("not a Protobuf schema: m.proto"));
}

#[test]
fn descriptors_that_are_cut_short_are_refused_or_read() {
    let whole = descriptors(SCHEMA);
    for end in 0..whole.len() {
        let _ = ProtobufReader::new(&whole[..end], "p.M", true);
    }
}

proptest! {
    #[test]
    fn any_bytes_give_a_row_and_what_is_read_is_written_and_read_again(
        values in proptest::collection::vec(proptest::collection::vec(prop_oneof![0_u8..0x50, any::<u8>()], 0..40), 0..6)
    ) {
        let descriptors = descriptors(SCHEMA);
        let reader = Arc::new(ProtobufReader::new(&descriptors, "p.M", false).unwrap());
        let writer = ProtobufWriter::new(&descriptors, "p.M", false).unwrap();
        let read = decode(reader.as_ref(), &BinaryArray::from_iter_values(&values)).unwrap();
        prop_assert_eq!(read.column.len(), values.len());
        let written = encode(&writer, &read.column).unwrap();
        prop_assert!(written.reasons.is_empty());
        let again = decode(reader.as_ref(), &written.column).unwrap();
        prop_assert_eq!(&encode(&writer, &again.column).unwrap().column, &written.column);
    }
}
