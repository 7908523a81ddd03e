//! Runs one recorded fault scenario and compares (formats: tests/golden/README.md, producer-faults).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use fletchlog_testing::VirtualClock;
use serde_json::Value;

use super::faults::{done, scripted};
use super::{Bench, Stored, java_name};
use fletchlog_sim::stepped::never;

/// Settings of every scenario unless overridden.
const DEFAULTS: [(&str, &str); 8] = [
    ("batch.size", "1"),
    ("linger.ms", "0"),
    ("acks", "all"),
    ("retry.backoff.ms", "10"),
    ("retry.backoff.max.ms", "10"),
    ("delivery.timeout.ms", "120000"),
    ("request.timeout.ms", "30000"),
    ("max.block.ms", "10000"),
];

pub fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

pub fn read(path: &str) -> Value {
    let path = golden().join(path);
    serde_json::from_str(&std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))).unwrap()
}

/// Numbers of the scenarios handed out.
pub fn numbers() -> Vec<String> {
    let mut found: Vec<String> = std::fs::read_dir(golden().join("producer-faults/scenarios"))
        .unwrap()
        .map(|e| e.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    found.sort();
    found
}

/// What a run gave, in the terms of the recordings.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// (parts) per request, consecutive repeats folded.
    pub requests: Vec<Sent>,
    pub log: Vec<Vec<Row>>,
    pub futures: Vec<String>,
    pub callbacks: Vec<usize>,
    pub init_producer_ids: i64,
}

/// (offset, record, producer id, epoch, sequence).
pub type Row = (i64, usize, i64, i64, i64);

#[derive(Debug, Clone, PartialEq)]
pub struct Sent {
    pub action: String,
    pub parts: Vec<Part>,
    pub repeats: bool,
    /// Number of the request treated last before it arrived; -1 where the recording does not say.
    pub after: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    pub partition: i64,
    pub ids: Vec<usize>,
    pub producer: (i64, i64, i64),
    pub answer: Option<(i64, i64)>,
}

/// The recordings fold three or more equal requests in a row into one, and give no numbers after that.
fn fold(requests: Vec<Sent>) -> Vec<Sent> {
    let mut folded: Vec<Sent> = Vec::new();
    let mut rest = requests.into_iter().peekable();
    while let Some(mut request) = rest.next() {
        let mut equal = Vec::new();
        while let Some(next) = rest.next_if(|r| r.action == request.action && r.parts == request.parts) {
            equal.push(next);
        }
        request.repeats = equal.len() >= 2;
        let kept = !request.repeats;
        folded.push(request);
        folded.extend(equal.into_iter().filter(|_| kept));
    }
    if let Some(at) = folded.iter().position(|r| r.repeats) {
        for request in &mut folded[at + 1..] {
            request.after = -1;
        }
    }
    folded
}

/// What was recorded. `callbacks` is `None` where two runs differed.
pub fn expected(client: &str, number: &str) -> (Outcome, Option<Vec<usize>>) {
    let value = read(&format!("producer-faults/expected/{client}/{number}.json"));
    let int = |v: &Value| v.as_i64().unwrap();
    let index = |v: &Value| usize::try_from(int(v)).unwrap();
    let requests = value["requests"].as_array().unwrap().iter().map(|r| Sent {
        action: r["action"].as_str().unwrap().to_owned(),
        repeats: r.get("repeats").is_some_and(|v| v.as_bool().unwrap()),
        after: r["after"].as_i64().unwrap_or(-1),
        parts: r["parts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| Part {
                partition: int(&p["p"]),
                ids: p["ids"].as_array().unwrap().iter().map(index).collect(),
                producer: (int(&p["pid"]), int(&p["epoch"]), int(&p["seq"])),
                answer: p.get("answer").map(|a| (int(&a[0]), int(&a[1]))),
            })
            .collect(),
    });
    let log = value["log"].as_array().unwrap().iter().map(|rows| {
        rows.as_array()
            .unwrap()
            .iter()
            .map(|r| (int(&r[0]), index(&r[1]), int(&r[2]), int(&r[3]), int(&r[4])))
            .collect()
    });
    let futures = value["futures"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f.as_str().map_or_else(|| int(f).to_string(), ToOwned::to_owned));
    let callbacks = value["callbacks"]
        .as_array()
        .map(|c| c.iter().map(index).collect::<Vec<_>>());
    let outcome = Outcome {
        requests: requests.collect(),
        log: log.collect(),
        futures: futures.collect(),
        callbacks: callbacks.clone().unwrap_or_default(),
        init_producer_ids: int(&value["initProducerId"]),
    };
    (outcome, callbacks)
}

fn id_of(record: &Stored) -> usize {
    String::from_utf8(record.value.clone()).unwrap().trim().parse().unwrap()
}

/// Runs a scenario. `cluster` gives a transport for (clock, topic, partitions) and a reader of what the log holds.
pub fn run<T, R>(
    client: &str,
    number: &str,
    cluster: impl FnOnce(&std::sync::Arc<VirtualClock>, &str, i32) -> (T, R),
) -> Outcome
where
    T: fletchlog_api::Transport + 'static,
    R: Fn(i32) -> Vec<Stored>,
{
    run_script(
        client,
        &read(&format!("producer-faults/scenarios/{number}.json")),
        cluster,
    )
}

/// The same with a scenario that is not among the recordings.
pub fn run_script<T, R>(
    client: &str,
    scenario: &Value,
    cluster: impl FnOnce(&std::sync::Arc<VirtualClock>, &str, i32) -> (T, R),
) -> Outcome
where
    T: fletchlog_api::Transport + 'static,
    R: Fn(i32) -> Vec<Stored>,
{
    let partitions = i32::try_from(scenario["partitions"].as_i64().unwrap()).unwrap();
    let mut config: BTreeMap<&str, &str> = DEFAULTS.into_iter().collect();
    for (name, value) in scenario["config"].as_object().unwrap() {
        config.insert(name, value.as_str().unwrap());
    }
    config.insert("fletchlog.producer.version", client);
    let config: Vec<(&str, &str)> = config.into_iter().collect();
    let script = scenario["script"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(n, a)| (n.parse().unwrap(), a.as_str().unwrap()));
    let faults = scripted(script);

    let clock = VirtualClock::new();
    let topic = scenario["topic"].as_str().unwrap_or("t");
    let (transport, reader) = cluster(&clock, topic, partitions);
    let mut bench = Bench::new(transport, &clock, faults, &config);
    topic.clone_into(&mut bench.topic);
    let mut futures = Vec::new();
    for step in scenario["steps"].as_array().unwrap() {
        if let Some(group) = step["send"].as_array() {
            for partition in group {
                let value = format!("{:<40}", futures.len());
                futures.push(bench.send(i32::try_from(partition.as_i64().unwrap()).unwrap(), value.as_bytes()));
            }
        } else if step["flush"].as_bool() == Some(true) {
            bench.producer.flush(&mut never).unwrap();
        } else {
            bench.producer.run_for(step["sleep"].as_i64().unwrap());
        }
    }
    bench.producer.flush(&mut never).unwrap();
    bench.producer.run_until_idle();

    let mut ids: Vec<i64> = Vec::new();
    let mut number_of = |id: i64| {
        if id < 0 {
            return -1;
        }
        if !ids.contains(&id) {
            ids.push(id);
        }
        i64::try_from(ids.iter().position(|&known| known == id).unwrap()).unwrap()
    };
    let sent = bench.requests.lock().unwrap();
    let requests = sent.iter().zip(done(&bench.faults)).map(|(parts, entry)| {
        let mut parts: Vec<Part> = parts
            .iter()
            .zip(&entry.batches)
            .map(|((partition, records), part)| Part {
                partition: i64::from(*partition),
                ids: records.iter().map(id_of).collect(),
                producer: (
                    number_of(part.producer_id),
                    i64::from(part.producer_epoch),
                    i64::from(part.base_sequence),
                ),
                answer: part.answer.map(|(error, offset)| (i64::from(error.code()), offset)),
            })
            .collect();
        parts.sort_by_key(|p| p.partition);
        Sent {
            action: entry.action,
            parts,
            repeats: false,
            after: i64::try_from(entry.after).unwrap(),
        }
    });
    let requests = fold(requests.collect());
    let log = (0..partitions)
        .map(|partition| {
            reader(partition)
                .iter()
                .map(|r| {
                    (
                        r.offset,
                        id_of(r),
                        number_of(r.producer_id),
                        i64::from(r.epoch),
                        i64::from(r.sequence),
                    )
                })
                .collect()
        })
        .collect();
    let outcomes: Vec<String> = futures
        .iter()
        .map(|f| match f.try_result().expect("flush decides everything") {
            Ok(metadata) => metadata.offset.to_string(),
            Err(error) => java_name(&error),
        })
        .collect();
    let callbacks = bench.called_back();
    Outcome {
        requests,
        log,
        futures: outcomes,
        callbacks,
        init_producer_ids: bench.init_producer_ids.load(Ordering::SeqCst),
    }
}
