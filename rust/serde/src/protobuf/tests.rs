#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{Array, BinaryArray};
use arrow_schema::DataType;
use proptest::prelude::*;

use super::{ProtobufReader, ProtobufWriter, Source, compile, parse};
use crate::decode::Rows;
use crate::{Decoded, ReadValue, SchemaError, decode, encode};

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

/// Strings everywhere from where they can be taken back.
const TEXTS: &str = r#"
    syntax = "proto3";
    package p;
    message M {
        string s = 1;
        oneof one { string a = 2; int32 b = 3; Inner m = 4; }
        map<string, string> d = 5;
        Inner i = 6;
        repeated string r = 7;
    }
    message Inner { string t = 1; }
"#;

fn descriptors(text: &str) -> Vec<u8> {
    compile(
        BTreeMap::from([("m.proto".to_owned(), Source::Text(text.to_owned()))]),
        "m.proto",
    )
    .unwrap()
}

fn reader(text: &str) -> ProtobufReader {
    ProtobufReader::new(&descriptors(text), "p.M", None).unwrap()
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
fn a_string_that_is_taken_back_must_be_utf8_too() {
    let reader = reader(TEXTS);
    let cases: [&[u8]; 6] = [
        // a string that is replaced, two members of a oneof that others replace, a message that gets another string
        b"\x0a\x01?\x0a\x01x",
        b"\x12\x01?\x18\x05",
        b"\x22\x03\x0a\x01?\x18\x05",
        b"\x32\x03\x0a\x01?\x32\x03\x0a\x01x",
        // an entry whose key comes again, an entry with a field that is unknown
        b"\x2a\x06\x0a\x01k\x12\x01?\x2a\x06\x0a\x01k\x12\x01x",
        b"\x2a\x08\x0a\x01k\x12\x01?\x18\x01",
    ];
    for case in cases {
        let bad: Vec<u8> = case
            .iter()
            .map(|byte| if *byte == b'?' { 0xff } else { *byte })
            .collect();
        let read = read(&reader, vec![case, &bad, case]);
        assert_eq!(read.reasons.len(), 1, "{case:?}");
        assert_eq!(read.reasons[0].0, 1);
        assert!(
            read.reasons[0].1.to_string().contains("not UTF-8"),
            "{}",
            read.reasons[0].1
        );
    }
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
    let error = ProtobufReader::new(&descriptors(&wide), "p.M", None)
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
    assert!(ProtobufReader::new(&descriptors(&deep), "p.M", None).is_err());
    let own = "syntax = \"proto2\"; package p; message M { map<int32, M> a = 1; }";
    let error = ProtobufReader::new(&descriptors(own), "p.M", None)
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
        let texts = BTreeMap::from([("m.proto".to_owned(), Source::Text(text.to_owned()))]);
        compile(texts, "m.proto").unwrap_err().to_string()
    };
    assert!(refused("message M {\n  optional int32 a = 1\n}").contains("m.proto:3"));
    assert!(refused("import \"other.proto\";").contains("import 'other.proto' not found"));
    assert!(refused("message M { optional N n = 1; }").contains("N"));
    assert!(refused(&"message M {".repeat(100_000)).contains("levels"));
    assert!(refused("edition = \"2023\";").starts_with("not a Protobuf schema: m.proto"));
}

#[test]
fn a_file_is_compiled_from_its_text_and_from_what_was_parsed_of_it() {
    let files = |parsed: &str| {
        let bytes = parse(parsed, "in.proto").unwrap();
        let text = "syntax = \"proto3\"; import \"in.proto\"; package p; message M { q.In i = 1; }";
        let text = Source::Text(text.to_owned());
        BTreeMap::from([
            ("in.proto".to_owned(), Source::Descriptor(bytes)),
            ("m.proto".to_owned(), text),
        ])
    };
    let made = compile(
        files("package q; message In { optional Of o = 1; } message Of {}"),
        "m.proto",
    )
    .unwrap();
    assert!(ProtobufReader::new(&made, "p.M", None).is_ok());
    assert!(
        compile(files("package q;"), "m.proto")
            .unwrap_err()
            .to_string()
            .contains("q.In")
    );
    assert!(
        parse("message M {\n optional }", "m.proto")
            .unwrap_err()
            .to_string()
            .contains("m.proto:2")
    );
    let mut broken = files("package q;");
    broken.insert("in.proto".to_owned(), Source::Descriptor(vec![0x0a, 5, 1]));
    assert!(compile(broken, "m.proto").is_err());
}

#[test]
fn values_say_their_message_by_the_file_with_which_they_were_written() {
    let new = descriptors("syntax = \"proto3\"; package p; message New {} message M { int32 a = 1; string b = 2; }");
    let old = descriptors("syntax = \"proto3\"; package p; message M { int32 a = 1; }");
    let first: &[u8] = b"\x00\x08\x05";
    let second: &[u8] = b"\x02\x02\x08\x05";
    for (written, good, bad) in [(&old, first, second), (&new, second, first)] {
        let reader = ProtobufReader::new(&new, "p.M", Some(written)).unwrap();
        let read = read(&reader, vec![good, bad]);
        assert_eq!(read.reasons.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [1]);
    }
    let error = ProtobufReader::new(&new, "p.New", Some(&old)).unwrap_err();
    assert!(matches!(error, SchemaError::Unresolvable(_)));
}

#[test]
fn descriptors_that_are_cut_short_are_refused_or_read() {
    let whole = descriptors(SCHEMA);
    for end in 0..whole.len() {
        let _ = ProtobufReader::new(&whole[..end], "p.M", Some(&whole[..end]));
    }
}

proptest! {
    #[test]
    fn strings_that_are_checked_at_the_end_give_what_each_alone_gives(
        values in proptest::collection::vec(proptest::collection::vec((0_usize..9, prop_oneof![b'a'..b'd', Just(0xff)]), 0..5), 0..5)
    ) {
        // fields of one string, or of none
        let part = |(field, byte): &(usize, u8)| match field {
            0 => vec![0x0a, 1, *byte],
            1 => vec![0x12, 1, *byte],
            2 => vec![0x18, 5],
            3 => vec![0x22, 3, 0x0a, 1, *byte],
            4 => vec![0x2a, 6, 0x0a, 1, b'k', 0x12, 1, *byte],
            5 => vec![0x2a, 8, 0x0a, 1, b'k', 0x12, 1, *byte, 0x18, 1],
            6 => vec![0x32, 3, 0x0a, 1, *byte],
            7 => vec![0x3a, 1, *byte],
            _ => vec![0x2a, 6, 0x12, 1, *byte, 0x0a, 1, b'm'],
        };
        let values: Vec<Vec<u8>> = values.iter().map(|parts| parts.iter().flat_map(part).collect()).collect();
        for schema in [TEXTS.to_owned(), TEXTS.replace("proto3", "proto2").replace("string s", "optional string s")
            .replace("Inner i", "optional Inner i").replace("string t", "optional string t")] {
            let reader = reader(&schema);
            let together = read(&reader, values.iter().map(Vec::as_slice).collect());
            let mut alone = Rows::new(reader.data_type(), values.len());
            values.iter().for_each(|value| alone.append(&reader, Some(value)));
            let alone = alone.finish(reader.data_type()).unwrap();
            prop_assert_eq!(together.column.to_data(), alone.column.to_data());
            prop_assert_eq!(together.reasons, alone.reasons);
        }
    }

    #[test]
    fn any_bytes_give_a_row_and_what_is_read_is_written_and_read_again(
        values in proptest::collection::vec(proptest::collection::vec(prop_oneof![0_u8..0x50, any::<u8>()], 0..40), 0..6)
    ) {
        let descriptors = descriptors(SCHEMA);
        let reader = Arc::new(ProtobufReader::new(&descriptors, "p.M", None).unwrap());
        let writer = ProtobufWriter::new(&descriptors, "p.M", false).unwrap();
        let read = decode(reader.as_ref(), &BinaryArray::from_iter_values(&values)).unwrap();
        prop_assert_eq!(read.column.len(), values.len());
        let written = encode(&writer, &read.column).unwrap();
        prop_assert!(written.reasons.is_empty());
        let again = decode(reader.as_ref(), &written.column).unwrap();
        prop_assert_eq!(&encode(&writer, &again.column).unwrap().column, &written.column);
    }
}
