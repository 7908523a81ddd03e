//! The recorded fault scripts of three Java producers, replayed against the embedded broker on virtual time: requests,
//! log, futures, the place of every request, and the order of callbacks within each partition.

use crate::producer_harness::cluster::cluster;
use crate::producer_harness::scenario::{Outcome, expected, numbers, run};

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
