//! The recorded scenarios and what a real Kafka did, as `tests/golden/README.md` explains them.

use std::path::{Path, PathBuf};

use fletchlog_records::TopicPartition;
use serde_json::Value;

/// tests/golden/poll-traces of the repository.
pub fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/poll-traces")
}

/// One kind of batch, repeated.
pub struct Batches {
    pub repeat: usize,
    pub count: usize,
    pub size: usize,
    pub codec: String,
    /// txn, commit or abort, with the producer id.
    pub kind: Option<(String, i64)>,
}

pub struct Partition {
    pub segments: Vec<i64>,
    pub batches: Vec<Batches>,
    pub end: i64,
    pub log_start: i64,
}

pub struct Topic {
    pub name: String,
    pub config: Vec<(String, String)>,
    pub partitions: Vec<Partition>,
}

pub enum Step {
    Assign(Vec<TopicPartition>),
    Subscribe(Vec<String>),
    Seek(Vec<(TopicPartition, i64)>),
    SeekToBeginning(Vec<TopicPartition>),
    SeekToEnd(Vec<TopicPartition>),
    Pause(Vec<TopicPartition>),
    Resume(Vec<TopicPartition>),
    /// So many polls, until so many records came in the whole run.
    Poll(usize, Option<usize>),
}

pub struct Scenario {
    pub tags: Vec<String>,
    pub group: bool,
    pub client: Vec<(String, String)>,
    pub steps: Vec<Step>,
    pub topics: Vec<Topic>,
    pub poll_timeout_ms: i64,
    /// Longest wait between two calls for answers to arrive.
    pub settle_cap_ms: i64,
}

pub fn text(v: &Value) -> String {
    v.as_str().map_or_else(|| v.to_string(), str::to_owned)
}

pub fn array(v: &Value) -> &[Value] {
    v.as_array().map_or(&[], Vec::as_slice)
}

pub fn tp(v: &Value) -> TopicPartition {
    TopicPartition::new(text(&v[0]), i32::try_from(v[1].as_i64().unwrap()).unwrap())
}

fn tps(v: &Value) -> Vec<TopicPartition> {
    array(v).iter().map(tp).collect()
}

pub fn size(v: &Value) -> usize {
    usize::try_from(v.as_u64().unwrap()).unwrap()
}

impl Scenario {
    pub fn load(id: &str) -> Self {
        let path = golden().join(format!("scenarios/{id}.json"));
        let v: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        Self {
            tags: array(&v["tags"]).iter().map(text).collect(),
            group: v["group"].as_bool().unwrap(),
            client: v["client"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(k, v)| (k.clone(), text(v)))
                .collect(),
            steps: array(&v["steps"]).iter().map(step).collect(),
            topics: v["topics"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, t)| topic(name, t))
                .collect(),
            poll_timeout_ms: v["pollTimeout"].as_i64().unwrap_or(1000),
            settle_cap_ms: v["settleCap"].as_i64().unwrap_or(2000),
        }
    }
}

fn step(v: &Value) -> Step {
    let (name, arg) = v.as_object().unwrap().iter().find(|(k, _)| *k != "total").unwrap();
    match name.as_str() {
        "assign" => Step::Assign(tps(arg)),
        "subscribe" => Step::Subscribe(array(arg).iter().map(text).collect()),
        "seek" => Step::Seek(array(arg).iter().map(|s| (tp(s), s[2].as_i64().unwrap())).collect()),
        "seekToBeginning" => Step::SeekToBeginning(tps(arg)),
        "seekToEnd" => Step::SeekToEnd(tps(arg)),
        "pause" => Step::Pause(tps(arg)),
        "resume" => Step::Resume(tps(arg)),
        "poll" => Step::Poll(size(arg), v.get("total").map(size)),
        other => panic!("a step of a new kind: {other}"),
    }
}

fn topic(name: &str, v: &Value) -> Topic {
    let config = text(&v["config"]);
    let config = config
        .split(',')
        .filter_map(|kv| kv.split_once('='))
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect();
    let partitions = array(&v["partitions"])
        .iter()
        .map(|p| Partition {
            segments: array(&p["segments"]).iter().map(|s| s.as_i64().unwrap()).collect(),
            batches: array(&p["batches"]).iter().map(batches).collect(),
            end: p["end"].as_i64().unwrap(),
            log_start: p["logStart"].as_i64().unwrap_or(0),
        })
        .collect();
    Topic {
        name: name.to_owned(),
        config,
        partitions,
    }
}

fn batches(v: &Value) -> Batches {
    Batches {
        repeat: size(&v[0]),
        count: size(&v[1]),
        size: size(&v[2]),
        codec: text(&v[3]),
        kind: v.get(4).map(|kind| (text(kind), v[5].as_i64().unwrap())),
    }
}

/// What one poll of the recording gave.
pub struct Poll {
    pub got: Value,
    pub err: Option<String>,
    pub net: Option<Value>,
}

pub struct Expected {
    pub polls: Vec<Poll>,
    pub total: usize,
    pub positions: Value,
}

impl Expected {
    pub fn load(client: &str, id: &str) -> Self {
        let path = golden().join(format!("expected/{client}/{id}.jsonl"));
        let mut polls = Vec::new();
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let v: Value = serde_json::from_str(line).unwrap();
            match v.get("end") {
                Some(end) => {
                    return Self {
                        polls,
                        total: size(&end["total"]),
                        positions: end["positions"].clone(),
                    };
                }
                None => polls.push(Poll {
                    got: v["got"].clone(),
                    err: v.get("err").map(text),
                    net: v.get("net").cloned(),
                }),
            }
        }
        panic!("{} has no last line", path.display());
    }
}

/// Ids of the scenarios recorded with a client.
pub fn recorded(client: &str) -> Vec<String> {
    let mut ids: Vec<String> = std::fs::read_dir(golden().join("expected").join(client))
        .unwrap()
        .map(|f| f.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    ids.sort();
    ids
}
