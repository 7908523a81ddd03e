//! The recorded fault scripts of three Java producers, replayed against the embedded broker on virtual time: requests,
//! log, futures, the place of every request, and the order of callbacks within each partition.

use crate::producer_harness::cluster::cluster;
use crate::producer_harness::scenario::{Outcome, expected, numbers, run, run_script};

const CLIENTS: [&str; 3] = ["2.6.3", "3.9.1", "4.3.1"];

/// Scenarios whose replay is known to differ, with why. A scenario of this list that matches fails the test.
const NOT_MATCHING: &[(&str, &str, &str)] = &[];

/// Callbacks of one answer come in the order in which the broker's answer lists its partitions, which depends on the topic's
/// name, and that was not recorded: so the order is compared within each partition.
fn by_partition(callbacks: &[usize], outcome: &Outcome) -> Vec<Vec<usize>> {
    let partition_of = |id: &usize| {
        outcome
            .requests
            .iter()
            .flat_map(|r| &r.parts)
            .find(|p| p.ids.contains(id))
            .map_or(0, |p| p.partition)
    };
    let mut found = vec![Vec::new(); outcome.log.len()];
    for id in callbacks {
        found[usize::try_from(partition_of(id)).unwrap()].push(*id);
    }
    found
}

fn difference(client: &str, number: &str) -> Option<String> {
    let (wanted, callbacks) = expected(client, number);
    let got = run(client, number, cluster);
    if got.log != wanted.log {
        return Some(format!("log\n  got      {:?}\n  recorded {:?}", got.log, wanted.log));
    }
    if got.futures != wanted.futures {
        return Some(format!(
            "futures\n  got      {:?}\n  recorded {:?}",
            got.futures, wanted.futures
        ));
    }
    if got.init_producer_ids != wanted.init_producer_ids {
        return Some("number of InitProducerId requests".to_owned());
    }
    if got.requests != wanted.requests {
        let at = got.requests.iter().zip(&wanted.requests).position(|(a, b)| a != b);
        let at = at.unwrap_or(got.requests.len().min(wanted.requests.len()));
        return Some(format!(
            "request {}\n  got      {:?}\n  recorded {:?}",
            at + 1,
            got.requests.get(at),
            wanted.requests.get(at)
        ));
    }
    let callbacks = callbacks?;
    (by_partition(&got.callbacks, &got) != by_partition(&callbacks, &wanted))
        .then(|| format!("callbacks\n  got      {:?}\n  recorded {callbacks:?}", got.callbacks))
}

#[test]
fn every_recorded_fault_script_ends_as_the_java_producers_did() {
    let numbers = numbers();
    assert!(numbers.len() >= 86, "recordings are missing");
    let mut failures = Vec::new();
    for client in CLIENTS {
        for number in &numbers {
            let known = NOT_MATCHING.iter().find(|(c, n, _)| *c == client && n == number);
            match (difference(client, number), known) {
                (None, None) | (Some(_), Some(_)) => {}
                (Some(text), None) => failures.push(format!("{client} {number}: {text}")),
                (None, Some(_)) => failures.push(format!("{client} {number} matches now: take it off the list")),
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {}:\n{}",
        failures.len(),
        3 * numbers.len(),
        failures.join("\n")
    );
}

/// As the Java producer 2.6.3 did when `make test-interop` met this script: its sender goes round the partitions while one must wait.
/// Request 14 (partition 1, its epoch bumped) leaves after the answer to 12, although partition 2 has a batch that may not go yet.
#[test]
fn a_partition_whose_back_off_has_ended_goes_past_one_that_must_wait() {
    let scenario = serde_json::json!({
        "partitions": 3,
        "config": {"enable.idempotence": "true", "retry.backoff.ms": "40", "retry.backoff.max.ms": "40"},
        "steps": [
            {"send": [0, 1, 2]},
            {"flush": true},
            {"send": [0, 0]},
            {"flush": true},
            {"send": [0, 1, 1, 2, 2, 1, 2, 2, 0, 2, 0, 2, 0]},
            {"flush": true},
            {"send": [0, 1, 0, 0]},
            {"flush": true},
        ],
        "script": {
            "2": "lost-ack",
            "3": "disconnect",
            "6": "refused:20@1",
            "8": "appended-refused:20",
            "11": "appended-refused:7",
            "12": "refused:10@1",
            "14": "refused:56",
        },
    });
    let got = run_script("2.6.3", &scenario, cluster);
    let after: Vec<i64> = got.requests.iter().map(|request| request.after).collect();
    assert_eq!(
        after,
        [0, 1, 1, 2, 4, 5, 5, 5, 5, 5, 6, 7, 8, 12, 13, 14, 16, 17, 17, 17]
    );
}
