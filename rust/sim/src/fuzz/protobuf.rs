//! Protobuf: whatever the bytes, a column of values decodes to as many rows, malformed ones leave nothing, and what was decoded is encoded and decoded as it was.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use arrow_array::{Array, BinaryArray};
use fletchlog_serde::protobuf::{ProtobufReader, ProtobufWriter, Source, compile};
use fletchlog_serde::{decode, encode};

const SCHEMA: &str = r#"
syntax = "proto2";
import "google/protobuf/timestamp.proto";
message M {
  optional int32 a = 1; optional sint64 b = 2; optional string c = 3; optional bytes d = 4; optional E e = 5;
  repeated int32 f = 6 [packed = true]; repeated fixed64 g = 7; repeated string h = 8; repeated E i = 9;
  map<string, Inner> j = 10; map<int32, E> k = 11; map<bool, int64> l = 12;
  optional Inner m = 13; repeated Inner n = 14; optional group O = 15 { optional float p = 1; repeated group Q = 2 { optional bool r = 1; } }
  optional google.protobuf.Timestamp s = 16; repeated google.protobuf.Timestamp t = 17;
  oneof u { int32 v = 18; Inner w = 19; E x = 20; string y = 21; }
}
message Inner { optional double a = 1; optional uint32 b = 2; map<string, bytes> c = 3; oneof d { bool e = 4; google.protobuf.Timestamp f = 5; } }
enum E { ZERO = 0; ONE = 1; LESS = -1; }
"#;

static FORMAT: LazyLock<(ProtobufReader, ProtobufWriter)> = LazyLock::new(|| {
    let texts = BTreeMap::from([("m.proto".to_owned(), Source::Text(SCHEMA.to_owned()))]);
    let descriptors = compile(texts, "m.proto").unwrap();
    let reader = ProtobufReader::new(&descriptors, "M", None).unwrap();
    (reader, ProtobufWriter::new(&descriptors, "M", false).unwrap())
});

/// A value; it is decoded whole, cut in two, and twice behind itself.
pub(super) fn protobuf(data: &[u8]) {
    let (reader, writer) = &*FORMAT;
    let (front, back) = data.split_at(data.len() / 2);
    let twice = data.repeat(2);
    let values = BinaryArray::from(vec![Some(data), Some(front), None, Some(back), Some(&twice[..])]);
    let decoded = decode(reader, &values).unwrap();
    assert_eq!(decoded.column.len(), values.len());
    for row in 0..values.len() {
        let is_malformed = decoded.reasons.iter().any(|(malformed, _)| *malformed == row);
        assert_eq!(decoded.column.is_null(row), is_malformed || values.is_null(row));
    }
    let encoded = encode(writer, &decoded.column).unwrap();
    let again = decode(reader, &encoded.column).unwrap();
    assert!(again.reasons.is_empty(), "{:?}", again.reasons);
    let once_more = encode(writer, &again.column).unwrap();
    assert!(once_more.reasons.is_empty(), "{:?}", once_more.reasons);
    assert_eq!(&encoded.column, &once_more.column);
}
