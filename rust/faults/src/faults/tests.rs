use std::path::Path;

use fletchlog_api::transport::SystemClock;
use fletchlog_protocol::header::{ResponseHeader, response_header_version};
use fletchlog_protocol::messages::{ShareFetchRequest, share_fetch_request};
use fletchlog_protocol::{Message, Response, frame};
use fletchlog_records::ErrorCode;
use serde_json::Value;

use bytes::Bytes;
use fletchlog_protocol::header::RequestHeader;
use fletchlog_protocol::{ApiKey, Reader};

use super::*;
use crate::error_answers::errors_of;
use crate::frames::{SIZE, concat, response_of};
use crate::rules_of;

fn faults(rule: &str) -> Faults {
    let faults = Faults::new(Arc::new(SystemClock::default()), Arc::new(|_: &[u8; 16]| None));
    let (rules, random) = rules_of(&format!("{{\"rules\": [{rule}]}}")).unwrap();
    faults.set_random(random);
    for rule in rules {
        faults.add(rule, None);
    }
    faults
}

fn unhex(text: &str) -> Bytes {
    let digits = text.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).unwrap());
    digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// Requests and responses of a real Kafka, one of each API and version.
fn recorded() -> Vec<(Bytes, Option<Bytes>)> {
    let wire = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/wire");
    let read = |name: &str| std::fs::read_to_string(wire.join(name)).unwrap();
    let text = read("vectors.jsonl") + &read("vectors-4.4.jsonl");
    let step = |line: &str| {
        let step: Value = serde_json::from_str(line).unwrap();
        let response = step["responseHex"].as_str().map(unhex);
        (unhex(step["requestHex"].as_str().unwrap()), response)
    };
    text.lines().map(step).collect()
}

/// Every error in a response, and whether it can be decoded as a client decodes it.
fn errors_in(request: &Bytes, chunks: &[Bytes]) -> Vec<ErrorCode> {
    let header = RequestHeader::decode(&mut Reader::new(request.clone())).unwrap();
    let frame = concat(chunks).freeze();
    let (api, tree) = response_of(&header, frame.clone()).unwrap();
    let mut reader = Reader::new(frame.slice(SIZE..));
    ResponseHeader::decode(&mut reader, response_header_version(header.api_key, header.api_version)).unwrap();
    Response::decode(api, &mut reader, header.api_version).unwrap();
    assert_eq!(reader.remaining(), 0, "{api:?}");
    let mut errors = Vec::new();
    errors_of(&tree, header.api_version, &mut errors);
    errors
}

#[test]
fn every_api_can_refuse_and_its_response_is_one_of_its_version() {
    let faults = faults(r#"{"api": ["Produce"], "error": "REBALANCE_IN_PROGRESS"}"#);
    let all: Vec<&'static str> = ApiKey::ALL.iter().map(|api| api.name()).collect();
    faults.clear(None);
    let (mut rule, _) = rules_of(r#"{"rules": [{"api": "Produce", "error": "REBALANCE_IN_PROGRESS"}]}"#).unwrap();
    rule[0].selector.api = all;
    faults.add(rule.remove(0), None);
    let (mut refused, mut marked) = (0, 0);
    for (request, response) in recorded() {
        let Some(arrived) = faults.arrived(1, 1, &request) else {
            continue;
        };
        let header = arrived.exchange.header.clone();
        let what = format!("{header:?}");
        let (chunks, is_refused) = match arrived.step {
            Step::Answer(chunks) => (chunks, true),
            Step::Handle(_) => match response {
                // One with an error of its own for the version, which is encoded as another version.
                Some(response) if ApiKey::from_code(header.api_key).is_some() => {
                    let size = u32::try_from(response.len()).unwrap().to_be_bytes();
                    let given = vec![Bytes::copy_from_slice(&size), response];
                    (faults.answered(arrived.exchange, given).chunks, false)
                }
                _ => continue,
            },
            step => panic!("{what}: {step:?}"),
        };
        let errors = errors_in(&request, &chunks);
        match is_refused {
            true => assert_eq!(errors, [ErrorCode::REBALANCE_IN_PROGRESS], "{what}"),
            false => marked += usize::from(errors == [ErrorCode::REBALANCE_IN_PROGRESS]),
        }
        refused += usize::from(is_refused);
    }
    assert!(refused > 1400 && marked >= 10, "{refused} refused, {marked} marked");
}

#[test]
fn a_rule_counts_its_matches_and_the_first_one_whose_turn_it_is_applies() {
    let faults =
        faults(r#"{"api": "Heartbeat", "nth": 2, "times": 2, "close": "before"}, {"api": "Heartbeat", "delay_ms": 7}"#);
    // Heartbeat 0 of member m of group g in generation 1
    let heartbeat = Bytes::from_static(b"\0\x0c\0\0\0\0\0\x07\xff\xff\0\x01g\0\0\0\x01\0\x01m");
    let mut seen = Vec::new();
    for _ in 0..5 {
        let arrived = faults.arrived(1, 1, &heartbeat).unwrap();
        seen.push((arrived.wait, matches!(arrived.step, Step::Close)));
    }
    let (late, closed) = ((Wait::Ms(7), false), (Wait::No, true));
    assert_eq!(seen, [late, closed, closed, late, late]);
    let counts: Vec<_> = faults
        .report()
        .iter()
        .map(|report| (report.matched, report.applied))
        .collect();
    assert_eq!(counts, [(5, 2), (5, 3)]);
    faults.clear(Some(2));
    assert_eq!(faults.arrived(1, 1, &heartbeat).unwrap().wait, Wait::No);
    assert!(faults.is_active());
    faults.clear(None);
    assert!(!faults.is_active());
}

#[test]
fn random_faults_are_the_same_for_the_same_seed_whatever_comes_between() {
    let drawn = |seed: u64, others: bool| {
        let faults = Faults::new(Arc::new(SystemClock::default()), Arc::new(|_: &[u8; 16]| None));
        let (_, random) = rules_of(&format!("{{\"random\": {{\"seed\": {seed}, \"rate\": 0.3}}}}")).unwrap();
        faults.set_random(random);
        let of = |client: char| {
            Bytes::from(
                [
                    &b"\0\x0c\0\0\0\0\0\x07\0\x01"[..],
                    &[client as u8],
                    b"\0\x01g\0\0\0\x01\0\x01m",
                ]
                .concat(),
            )
        };
        for _ in 0..50 {
            faults.arrived(1, 1, &of('a')).unwrap();
            if others {
                faults.arrived(2, 1, &of('b')).unwrap();
            }
        }
        let a: Vec<Rule> = faults.drawn();
        let a = a
            .into_iter()
            .filter(|rule| rule.selector.client_id.as_ref().is_some_and(|id| id.0 == "a"));
        a.collect::<Vec<_>>()
    };
    assert_eq!(drawn(7, false), drawn(7, true));
    assert_ne!(drawn(7, false), drawn(8, false));
    assert!((5..30).contains(&drawn(7, false).len()));
}

// Heartbeat 0 of member m of group g in generation 1, and a response without error.
const HEARTBEAT: &[u8] = b"\0\x0c\0\0\0\0\0\x07\xff\xff\0\x01g\0\0\0\x01\0\x01m";
const BEATS: &[u8] = b"\0\0\0\x06\0\0\0\x07\0\0";

#[test]
fn held_requests_go_on_in_the_order_of_arrival_when_their_rule_is_released() {
    let faults = faults(r#"{"api": "Heartbeat", "hold": true}"#);
    let order = Arc::new(Mutex::new(Vec::new()));
    for number in 0..3 {
        let arrived = faults.arrived(1, 1, &Bytes::from_static(HEARTBEAT)).unwrap();
        assert_eq!(arrived.wait, Wait::Release(1));
        let order = Arc::clone(&order);
        faults.on_release(1, Box::new(move || order.lock().unwrap().push(number)));
    }
    assert!(faults.wait_until_held(1, Duration::ZERO));
    assert_eq!(faults.report()[0].held, 3);
    faults.release(1);
    assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
    assert_eq!(faults.report()[0].held, 0);
}

#[test]
fn a_request_whose_error_is_handled_is_carried_out() {
    for (handled, is_carried_out) in [("true", true), ("false", false)] {
        let rule = format!(r#"{{"api": "Heartbeat", "error": "REBALANCE_IN_PROGRESS", "handled": {handled}}}"#);
        let faults = faults(&rule);
        let request = Bytes::from_static(HEARTBEAT);
        let arrived = faults.arrived(1, 1, &request).unwrap();
        let chunks = match arrived.step {
            Step::Answer(chunks) if !is_carried_out => chunks,
            Step::Handle(frame) if is_carried_out && frame == request => {
                faults
                    .answered(arrived.exchange, vec![Bytes::from_static(BEATS)])
                    .chunks
            }
            step => panic!("handled {handled}: {step:?}"),
        };
        assert_eq!(errors_in(&request, &chunks), [ErrorCode::REBALANCE_IN_PROGRESS]);
    }
}

/// A ShareFetch of this epoch that adds a partition, if any, of the topic with the id 1.
fn share_fetch(member: &str, epoch: i32, added: Option<i32>) -> Bytes {
    let header = RequestHeader {
        api_key: ApiKey::ShareFetch.code(),
        api_version: 2,
        correlation_id: 1,
        client_id: None,
    };
    let partition = |partition_index| share_fetch_request::FetchPartition {
        partition_index,
        ..Default::default()
    };
    let topics = added.map(|added| share_fetch_request::FetchTopic {
        topic_id: [1; 16],
        partitions: vec![partition(added)],
    });
    let request = ShareFetchRequest {
        group_id: Some("g".into()),
        member_id: Some(member.into()),
        share_session_epoch: epoch,
        topics: topics.into_iter().collect(),
        ..Default::default()
    };
    let mut writer = frame::begin();
    header.encode(&mut writer).unwrap();
    request.encode(&mut writer, 2).unwrap();
    concat(frame::finish(writer).unwrap()).freeze().slice(SIZE..)
}

#[test]
fn a_rule_of_a_partition_matches_every_fetch_of_a_share_session_that_has_it() {
    let topic = "01".repeat(16);
    let rule = format!(r#"{{"api": "ShareFetch", "topic": "{topic}", "partition": 3, "close": "before"}}"#);
    let faults = faults(&rule);
    let closes = |request: Bytes| matches!(faults.arrived(1, 1, &request).unwrap().step, Step::Close);
    assert!(!closes(share_fetch("a", 0, Some(0))));
    assert!(!closes(share_fetch("a", 1, None)));
    assert!(closes(share_fetch("a", 2, Some(3))));
    assert!(closes(share_fetch("a", 3, None)), "the session has the partition");
    assert!(
        !closes(share_fetch("b", 0, Some(0))),
        "another member on the same connection"
    );
    assert!(!closes(share_fetch("a", 0, Some(0))), "a new session");
}
