//! Judges what clients of a real cluster noted: `judges/interop/test_20_cluster.py`.
//!
//! Standard input has one JSON object a line, as `judges/interop/load.py` prints operations and moves, and those of the test itself:
//! `{process, begin, end, isolation, reached: [[partition, offset]..]}` and `{process, begin, end, group, committed: [[partition,
//! offset]..]}`. Other lines are passed over. The arguments are the classes of anomalies that Kafka allows in this history. Prints every
//! other one, then one line with the numbers; exit code 1 on an anomaly.

#![allow(clippy::print_stdout, reason = "a command that prints its result")]

use std::collections::BTreeMap;
use std::process::ExitCode;

use fletchlog_api::IsolationLevel;
use fletchlog_sim::checker;
use fletchlog_sim::history::{Action, History, Op, Outcome, Step};
use serde_json::Value;

/// Numbers of what clients call by name.
#[derive(Default)]
struct Names(BTreeMap<String, u32>);

impl Names {
    fn number(&mut self, name: &Value) -> u32 {
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        *self.0.entry(text(name).to_owned()).or_insert(next)
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list"))
}

fn isolation(note: &Value) -> IsolationLevel {
    match text(&note["isolation"]) {
        "read_committed" => IsolationLevel::ReadCommitted,
        _ => IsolationLevel::ReadUncommitted,
    }
}

/// What a note says was done; `None` for one that is no operation.
fn action(note: &Value, partitions: &mut Names, groups: &mut Names) -> Option<Action> {
    if let Some(moved) = note.get("moved") {
        return Some(Action::Moved(
            list(moved).iter().map(|p| (partitions.number(p), None)).collect(),
        ));
    }
    let mut offsets = |of: &Value| {
        let pairs = list(of).iter();
        pairs
            .map(|pair| (partitions.number(&pair[0]), number(&pair[1]) as i64))
            .collect()
    };
    if let Some(reached) = note.get("reached") {
        let (isolation, offsets) = (isolation(note), offsets(reached));
        return Some(Action::Reached { isolation, offsets });
    }
    if let Some(committed) = note.get("committed") {
        let (group, offsets) = (groups.number(&note["group"]), offsets(committed));
        return Some(Action::Committed { group, offsets });
    }
    let transaction = note.get("transaction")?.as_bool()?;
    let mut steps = Vec::new();
    if let Some(polled) = note.get("polled") {
        let place = |p: &Value| (partitions.number(&p[0]), number(&p[1]) as i64, number(&p[2]));
        steps.push(Step::Poll {
            isolation: isolation(note),
            group: note.get("group").map(|group| groups.number(group)),
            records: list(polled).iter().map(place).collect(),
        });
    }
    for sent in list(&note["sends"]) {
        steps.push(Step::Send {
            partition: partitions.number(&sent[0]),
            value: number(&sent[1]),
            offset: sent[2].as_i64(),
            source: sent[3].as_u64(),
            keyed: None,
        });
    }
    Some(Action::Steps { steps, transaction })
}

fn op(note: &Value, partitions: &mut Names, groups: &mut Names) -> Option<Op> {
    let outcome = match note.get("outcome").map(text) {
        None | Some("ok") => Outcome::Ok,
        Some("failed") => Outcome::Failed,
        Some(_) => Outcome::Unknown,
    };
    Some(Op {
        action: action(note, partitions, groups)?,
        process: u32::try_from(number(&note["process"])).unwrap_or(u32::MAX),
        begin: number(&note["begin"]),
        end: number(&note["end"]),
        outcome,
    })
}

/// A group's offsets are those at the end of a look-up: what a member committed meanwhile may be among them.
fn place_in_order(op: &Op) -> u64 {
    match op.action {
        Action::Committed { .. } => op.end,
        _ => op.begin,
    }
}

fn main() -> ExitCode {
    let allowed: Vec<String> = std::env::args().skip(1).collect();
    let (mut partitions, mut groups) = (Names::default(), Names::default());
    let mut history = History::default();
    for line in std::io::stdin().lines() {
        let text = line.unwrap_or_else(|error| panic!("the input cannot be read: {error}"));
        let note: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text:?} is no JSON: {error}"));
        history.ops.extend(op(&note, &mut partitions, &mut groups));
    }
    history.ops.sort_by_key(place_in_order);
    let (allowed, found): (Vec<_>, Vec<_>) = checker::check(&history)
        .into_iter()
        .partition(|anomaly| allowed.iter().any(|class| class == anomaly.class.name()));
    if !found.is_empty() {
        println!("partitions: {:?}, groups: {:?}", partitions.0, groups.0);
    }
    found
        .iter()
        .for_each(|anomaly| println!("{}", anomaly.explain(&history)));
    let (ops, found, allowed) = (history.ops.len(), found.len(), allowed.len());
    println!("judge: {ops} operations, {found} anomalies, {allowed} allowed ones");
    if found == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
