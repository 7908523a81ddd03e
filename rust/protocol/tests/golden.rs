//! Requests and answers of a real Kafka 4.3.1 and 4.4.0 (tests/golden/wire/vectors.jsonl, vectors-4.4.jsonl): every byte comes back, every field is the
//! one that Kafka's own message definitions say.

use std::path::Path;

use bytes::Bytes;
use fletchlog_protocol::header::{RequestHeader, ResponseHeader, request_header_version, response_header_version};
use fletchlog_protocol::tree::{Side, Tree};
use fletchlog_protocol::{ApiKey, Reader, Writer};
use serde_json::Value;

use crate::bytes_of_tables::{Walk, hex, plain_name, unhex};
use crate::messages::{Kind, kinds};

fn steps() -> Vec<Value> {
    let wire = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/wire");
    let read = |name: &str| std::fs::read_to_string(wire.join(name)).unwrap();
    let text = read("vectors.jsonl") + &read("vectors-4.4.jsonl");
    let mut steps: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for step in steps.iter_mut().filter(|step| step["api"] == "TxnOffsetCommit") {
        // Release 4.4 has another name for this field.
        if let Some(id) = step["request"].as_object_mut().unwrap().remove("GenerationId") {
            step["request"]["GenerationIdOrMemberEpoch"] = id;
        }
    }
    steps
}

fn code(step: &Value, name: &str) -> i16 {
    i16::try_from(step[name].as_i64().unwrap()).unwrap()
}

/// The body that a header leaves.
fn body(frame: &Bytes, reader: &Reader) -> Bytes {
    frame.slice(frame.len() - reader.remaining()..)
}

/// Reads a body as a tree and writes it again.
fn check_tree(what: &str, api: ApiKey, side: Side, version: i16, body: &Bytes) {
    let mut reader = Reader::of_trees(body.clone());
    let tree = Tree::decode(api, side, &mut reader, version).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(reader.remaining(), 0, "{what}: bytes left");
    let mut writer = Writer::new();
    tree.encode(api, side, &mut writer, version)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(hex(&writer.into_chunks().concat()), hex(body), "{what}: the tree again");
}

/// Decodes a body, encodes it again, and compares every field with what was recorded.
fn check(what: &str, kind: Kind, version: i16, flexible: bool, body: &Bytes, expected: &Value) {
    let (chunks, left) = (kind.again)(body.clone(), version).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(left, 0, "{what}: bytes left");
    assert_eq!(hex(&chunks.concat()), hex(body), "{what}: encoded again");
    let mut walk = Walk {
        rest: body,
        version,
        flexible,
    };
    let found = walk.structure(kind.table);
    assert_eq!(walk.rest, b"", "{what}: bytes left by the table");
    same(what, &found, expected);
}

/// Compares what the table gave with what was recorded; "*" is a masked value.
fn same(path: &str, found: &Value, expected: &Value) {
    match (found, expected) {
        (_, Value::String(masked)) if masked == "*" => (),
        (Value::Object(found), Value::Object(expected)) => {
            let names: Vec<_> = expected.keys().map(|name| plain_name(name)).collect();
            let mut sorted = names.clone();
            sorted.sort();
            assert_eq!(found.keys().cloned().collect::<Vec<_>>(), sorted, "{path}: names");
            for (name, (kafka, value)) in names.iter().zip(expected) {
                same(&format!("{path}.{kafka}"), &found[name], value);
            }
        }
        (Value::Array(found), Value::Array(expected)) => {
            assert_eq!(found.len(), expected.len(), "{path}: length");
            for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
                same(&format!("{path}[{at}]"), found, expected);
            }
        }
        (Value::String(found), Value::Array(batches)) => same_batches(path, &unhex(found), batches),
        (found, expected) => assert_eq!(found, expected, "{path}"),
    }
}

/// Fields of a batch's header and their sizes.
const BATCH: [(&str, usize); 13] = [
    ("baseOffset", 8),
    ("batchLength", 4),
    ("partitionLeaderEpoch", 4),
    ("magic", 1),
    ("crc", 4),
    ("attributes", 2),
    ("lastOffsetDelta", 4),
    ("baseTimestamp", 8),
    ("maxTimestamp", 8),
    ("producerId", 8),
    ("producerEpoch", 2),
    ("baseSequence", 4),
    ("recordCount", 4),
];

/// Records of an answer were recorded as batches.
fn same_batches(path: &str, mut records: &[u8], batches: &[Value]) {
    for batch in batches {
        if let Some(rest) = batch.get("partialOrOld") {
            assert_eq!(hex(records), rest.as_str().unwrap(), "{path}: cut batch");
            return;
        }
        let mut walk = Walk {
            rest: records,
            version: 0,
            flexible: false,
        };
        for (name, size) in BATCH {
            let bytes = walk.take(size);
            if let Some(expected) = batch[name].as_i64() {
                let expected = expected.to_be_bytes();
                assert_eq!(bytes, &expected[8 - size..], "{path}.{name}");
            }
        }
        let size = 12 + usize::try_from(batch["batchLength"].as_i64().unwrap()).unwrap();
        assert_eq!(
            hex(&records[61..size]),
            batch["records"].as_str().unwrap(),
            "{path}: records"
        );
        records = &records[size..];
    }
    assert_eq!(records, b"", "{path}: bytes behind the batches");
}

#[test]
fn every_recorded_request_is_decoded_field_by_field_and_encoded_to_the_same_bytes() {
    let steps = steps();
    for step in &steps {
        let (key, version) = (code(step, "key"), code(step, "version"));
        let api = ApiKey::from_code(key).unwrap();
        let [kind, _] = kinds(api);
        let what = format!("step {} {} v{version}", step["n"], kind.name);
        let frame = Bytes::from(unhex(step["requestHex"].as_str().unwrap()));
        let mut reader = Reader::new(frame.clone());
        let header = RequestHeader::decode(&mut reader).unwrap();
        let expected = RequestHeader {
            api_key: key,
            api_version: version,
            correlation_id: i32::try_from(step["n"].as_i64().unwrap()).unwrap(),
            client_id: Some("wirevec".into()),
        };
        assert_eq!(header, expected, "{what}");
        let body = body(&frame, &reader);
        let mut writer = Writer::new();
        header.encode(&mut writer).unwrap();
        assert_eq!(
            writer.into_chunks().concat(),
            frame[..frame.len() - body.len()],
            "{what}: header"
        );
        assert_eq!(api.name(), step["api"]);
        let flexible = request_header_version(key, version) == 2;
        check(&what, kind, version, flexible, &body, &step["request"]);
        check_tree(&what, api, Side::Request, version, &body);
    }
    assert_eq!(steps.len(), 1530);
}

#[test]
fn every_recorded_answer_is_decoded_field_by_field_and_encoded_to_the_same_bytes() {
    let mut answers = 0;
    for step in steps().iter().filter(|step| step["responseHex"].is_string()) {
        let (key, version) = (code(step, "key"), code(step, "version"));
        let api = ApiKey::from_code(key).unwrap();
        let [_, kind] = kinds(api);
        let what = format!("step {} {} v{version}", step["n"], kind.name);
        let frame = Bytes::from(unhex(step["responseHex"].as_str().unwrap()));
        let mut reader = Reader::new(frame.clone());
        let header_version = response_header_version(key, version);
        let header = ResponseHeader::decode(&mut reader, header_version).unwrap();
        assert_eq!(i64::from(header.correlation_id), step["n"].as_i64().unwrap(), "{what}");
        let body = body(&frame, &reader);
        let mut writer = Writer::new();
        header.encode(&mut writer, header_version);
        assert_eq!(
            writer.into_chunks().concat(),
            frame[..frame.len() - body.len()],
            "{what}: header"
        );
        let flexible = request_header_version(key, version) == 2;
        check(&what, kind, version, flexible, &body, &step["response"]);
        check_tree(&what, api, Side::Response, version, &body);
        answers += 1;
    }
    assert_eq!(answers, 1522);
}
