//! What a real broker (4.3.1) answered to produce requests, batch by batch (tests/golden/produce-vectors.json).
//!
//! Listed differences, all decisions of ours: offset deltas other than 0, 1, 2, ... are refused with 87 (the broker
//! stores them when uncompressed and answers -1 when compressed), and so is what cannot be decompressed (broker: -1).
//! Steps that a broker decides before its log (acks, transactional.id, protocol version) are not steps of the log.

use std::collections::BTreeMap;

use crate::common::*;
use bytes::Bytes;
use fletchlog_log::{AppendError, AppendOrigin, LogConfig, PartitionLog};
use fletchlog_records::{BatchHeader, Compression};
use serde_json::Value;

fn config(case: &Value) -> LogConfig {
    // The default of 4.x (KIP-1030).
    let mut config = LogConfig {
        message_timestamp_after_max_ms: 3_600_000,
        ..LogConfig::default()
    };
    for (key, value) in case["config"].as_object().into_iter().flatten() {
        match key.as_str() {
            "message.timestamp.before.max.ms" => config.message_timestamp_before_max_ms = value.as_i64().unwrap(),
            "message.timestamp.after.max.ms" => config.message_timestamp_after_max_ms = value.as_i64().unwrap(),
            "max.message.bytes" => config.max_message_bytes = i32::try_from(value.as_i64().unwrap()).unwrap(),
            other => panic!("unknown config {other}"),
        }
    }
    // These two say it in their names alone.
    config.compression_type = match case["topic"].as_str().unwrap() {
        "p-zstd-r2" => Some(Compression::Zstd),
        "p-none-r2" => Some(Compression::None),
        _ => None,
    };
    config
}

/// The broker's clock at a step: derived from its message, or from a timestamp given relative to it.
fn now(step: &Value, config: &LogConfig, otherwise: i64) -> i64 {
    if let Some(message) = step["outcome"]["recordErrors"][0][1].as_str() {
        let limits = message.rsplit_once('[').unwrap().1.trim_end_matches(']');
        let to: i64 = limits.split_once(", ").unwrap().1.parse().unwrap();
        return to - config.message_timestamp_after_max_ms;
    }
    let relative = step["batch"]["ts"]
        .as_str()
        .and_then(|ts| ts.strip_prefix("now"))
        .and_then(|n| n.parse::<i64>().ok());
    relative.map_or(otherwise, |n| {
        BatchHeader::parse(&hex(step["recordsHex"].as_str().unwrap()))
            .unwrap()
            .base_timestamp
            - n
    })
}

#[test]
fn every_recorded_produce_request_gets_the_brokers_answer() {
    let vectors = golden_json("produce-vectors.json");
    let t = vectors["T"].as_i64().unwrap();
    let mut logs: BTreeMap<String, (PartitionLog, i64)> = BTreeMap::new();
    let (fs, dir) = memory();
    let mut compared = 0;
    for case in vectors["cases"].as_array().unwrap() {
        let (name, topic) = (case["name"].as_str().unwrap(), case["topic"].as_str().unwrap());
        let config = config(case);
        let (log, shift) = logs.entry(topic.to_string()).or_insert_with(|| {
            (
                open(&fs, &dir.with_file_name(format!("{topic}-0")), config.clone(), CLEAN),
                0,
            )
        });
        log.update_config(config.clone());
        for step in case["steps"].as_array().unwrap() {
            let outcome = &step["outcome"];
            if step["op"] == "acks0" {
                // The batch that was sent without an answer was not recorded.
                *shift += step["leo"][1].as_i64().unwrap() - step["leo"][0].as_i64().unwrap();
            }
            let (Some(records), Some(error)) = (step["recordsHex"].as_str(), outcome["error"].as_i64()) else {
                continue;
            };
            if [21, 53, 76].contains(&error) || step["acks"].as_i64() == Some(0) {
                continue;
            }
            let what = format!("{name}: {} {}", step["batch"], step["note"]);
            let ours = step["batch"]["offsetDeltas"].is_array();
            let expected = if ours { 87 } else { error };
            assert_eq!(
                log.log_end_offset() + *shift,
                step["leoBefore"].as_i64().unwrap(),
                "{what}"
            );
            let before = log.log_end_offset();
            let result = log.append_as_leader(
                Bytes::from(hex(records)),
                0,
                AppendOrigin::Client,
                now(step, &config, t),
            );
            compared += 1;
            match result {
                Ok(info) => {
                    assert_eq!(expected, 0, "{what}");
                    assert_eq!(
                        info.first_offset + *shift,
                        outcome["baseOffset"].as_i64().unwrap(),
                        "{what}"
                    );
                    assert_eq!(
                        info.log_append_time_ms,
                        outcome["logAppendTime"].as_i64().unwrap(),
                        "{what}"
                    );
                    if let Some(start) = outcome["logStartOffset"].as_i64() {
                        assert_eq!(info.log_start_offset, start, "{what}");
                    }
                    assert_eq!(info.duplicate, step["leoBefore"] == step["leoAfter"], "{what}");
                }
                Err(AppendError::Refused {
                    code,
                    record_errors,
                    log_start_offset,
                    message,
                }) => {
                    assert_eq!(i64::from(code.code()), expected, "{what}: {message}");
                    assert_eq!(log.log_end_offset(), before, "{what}");
                    if let Some(start) = outcome["logStartOffset"].as_i64().filter(|_| !ours) {
                        assert_eq!(log_start_offset, start, "{what}");
                    }
                    let recorded: Vec<(i32, String)> =
                        serde_json::from_value(outcome["recordErrors"].clone()).unwrap_or_default();
                    assert_eq!(record_errors, recorded, "{what}");
                    if !recorded.is_empty() {
                        assert_eq!(Some(message.as_str()), outcome["errorMessage"].as_str(), "{what}");
                    }
                }
                Err(e) => panic!("{what}: {e}"),
            }
            *shift = step["leoAfter"].as_i64().unwrap() - log.log_end_offset();
        }
        if let Some(stored) = case.get("storedHeader") {
            let info = log.read(0, 1, true, fletchlog_log::FetchBound::LogEnd).unwrap();
            let header = BatchHeader::parse(&info.records).unwrap();
            let field = |name: &str| stored[name].as_i64().unwrap();
            assert_eq!(i64::from(header.attributes), field("attr"), "{name}");
            assert_eq!(
                (header.base_offset, header.last_offset()),
                (field("base"), field("last")),
                "{name}"
            );
            assert_eq!(
                (header.base_timestamp, header.max_timestamp),
                (field("ts0"), field("tmax")),
                "{name}"
            );
            assert_eq!(
                (
                    header.producer_id,
                    i64::from(header.producer_epoch),
                    i64::from(header.base_sequence)
                ),
                (field("pid"), field("ep"), field("seq")),
                "{name}"
            );
            assert_eq!(
                (
                    i64::from(header.records_count),
                    i64::from(header.partition_leader_epoch)
                ),
                (field("count"), field("le")),
                "{name}"
            );
        }
    }
    assert!(compared > 100, "{compared} steps compared");
}
