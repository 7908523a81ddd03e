//! A real Kafka's poll order, replayed: what poll() returned, what went over the wire, and where the positions ended, for every
//! recorded scenario and client.

mod computed;
mod derived;
mod replay;
mod scenario;

use replay::{Outcome, positions_of, replay};
use scenario::{Expected, Scenario, array, recorded};
use serde_json::Value;

/// The forgotten partitions of a request are written in no particular order.
fn normalized(net: &[Value]) -> Vec<Value> {
    let mut net = net.to_vec();
    for event in &mut net {
        if let Some(forgotten) = event.get_mut(3).and_then(Value::as_array_mut) {
            forgotten.sort_by_key(ToString::to_string);
        }
    }
    net
}

/// The first difference, if any.
fn difference(expected: &Expected, outcome: &Outcome) -> Option<String> {
    for (n, (want, have)) in expected.polls.iter().zip(&outcome.polls).enumerate() {
        let n = n + 1;
        if want.got != have.got || want.err != have.err {
            return Some(format!(
                "poll {n}: {} {:?}, recorded {} {:?}",
                have.got, have.err, want.got, want.err
            ));
        }
        if let Some(net) = &want.net {
            let (net, ours) = (normalized(array(net)), normalized(&have.net));
            if net != ours {
                return Some(format!(
                    "wire of poll {n}: {}, recorded {}",
                    Value::Array(ours),
                    Value::Array(net)
                ));
            }
        }
    }
    let wire: Vec<&Value> = outcome
        .polls
        .iter()
        .flat_map(|p| &p.net)
        .filter(|e| e[0] == "req")
        .collect();
    let traced: Vec<&Value> = outcome.traced_requests.iter().take(wire.len()).collect();
    if wire != traced {
        return Some("the consumer's own trace has other requests than the wire".to_owned());
    }
    if expected.polls.len() != outcome.polls.len() {
        return Some(format!(
            "{} polls, recorded {}",
            outcome.polls.len(),
            expected.polls.len()
        ));
    }
    let mut positions = outcome.positions.clone();
    positions.sort();
    let recorded = positions_of(&expected.positions);
    if (outcome.total, &positions) != (expected.total, &recorded) {
        return Some(format!(
            "end {} {positions:?}, recorded {} {recorded:?}",
            outcome.total, expected.total
        ));
    }
    None
}

/// Replays everything recorded with a client. `known` lists the scenarios that differ, and why; one of them that starts to agree
/// fails the test as well.
fn check(client: &str, properties: &[(&str, &str)], known: &[(&str, &str)]) {
    let mut wrong = Vec::new();
    let mut agreeing = 0;
    let mut derived = derived::Derived::default();
    for id in recorded(client) {
        let scenario = Scenario::load(&id);
        let outcome = replay(&scenario, properties);
        let expected = Expected::load(client, &id);
        let difference = difference(&expected, &outcome);
        derived.add(&id, &scenario, &expected, &outcome, properties);
        let expected_to_differ = known.iter().find(|(known, _)| *known == id);
        match (difference, expected_to_differ) {
            (Some(why), None) => wrong.push(format!("{id} {:?}: {why}", scenario.tags)),
            (None, Some((_, why))) => wrong.push(format!("{id} agrees now; take it off the list ({why})")),
            (None, None) => agreeing += 1,
            (Some(_), Some(_)) => {}
        }
    }
    assert!(
        wrong.is_empty(),
        "{client}: {agreeing} agree, {} do not:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(agreeing > 80, "the recordings are gone: {agreeing}");
    // KIP-387 is an order of its own.
    if client != "kip-387" {
        derived.check(client);
    }
}

#[test]
fn every_recorded_trace_of_the_2_6_client() {
    check("2.6.3", &[], &[]);
}

#[test]
fn every_recorded_trace_of_the_3_7_client() {
    check("3.7.2", &[("fletchlog.consumer.version", "3.7.2")], &[]);
}

#[test]
fn every_recorded_trace_of_the_3_9_client() {
    check("3.9.1", &[("fletchlog.consumer.version", "3.9.1")], &[]);
}

#[test]
fn every_recorded_trace_of_the_4_3_client() {
    check("4.3.1", &[("fletchlog.consumer.version", "4.3.1")], &[]);
}

#[test]
fn every_recorded_trace_of_the_kip_387_client() {
    check("kip-387", &[("fletchlog.fetch.order", "kip-387")], &[]);
}
