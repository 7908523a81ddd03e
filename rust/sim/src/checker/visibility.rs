//! inconsistent-offsets, duplicate, lost-write, unseen, G1a, precommitted-read.

use std::collections::{BTreeMap, BTreeSet};

use fletchlog_api::IsolationLevel;

use super::index::{ISOLATIONS, Index, Log, place};
use super::{Anomaly, Class};
use crate::history::{Outcome, Partition, Step, Value};

pub(super) fn check(index: &Index<'_>, found: &mut Vec<Anomaly>) {
    let mut places: BTreeMap<Value, BTreeSet<(Partition, i64)>> = BTreeMap::new();
    for (&partition, log) in &index.logs {
        for (&offset, values) in &log.at {
            for &value in values {
                places.entry(value).or_default().insert((partition, offset));
            }
            if values.len() > 1 {
                let ops = values.iter().flat_map(|&v| index.ops_with(partition, v)).collect();
                let what = format!("offset {offset} holds {values:?}");
                found.push(Anomaly::new(Class::InconsistentOffsets, partition, ops, what));
            }
        }
        missing(index, partition, log, found);
    }
    for (value, places) in places {
        if let (true, Some(&(partition, _))) = (places.len() > 1, places.first()) {
            let what = format!("{value} is at {places:?} (partition, offset)");
            found.push(Anomaly::new(
                Class::Duplicate,
                partition,
                index.ops_with(partition, value),
                what,
            ));
        }
    }
    reads(index, found);
}

/// Finds values that were acknowledged and never read.
fn missing(index: &Index<'_>, partition: Partition, log: &Log, found: &mut Vec<Anomaly>) {
    for isolation in ISOLATIONS.into_iter().filter(|&i| index.is_read[place(i)]) {
        let place = place(isolation);
        let start = index.may_start_at(partition, u64::MAX);
        for (&offset, &value) in log.visible[place].range(start..) {
            let writer = index.writer[&value];
            if log.read[place].contains(&value)
                || index.history.ops[writer].outcome == Outcome::Failed
                || index.may_be_compacted(partition, offset, u64::MAX)
            {
                continue;
            }
            let (class, whereabouts) = match log.highest_read[place] {
                Some(highest) if highest > offset => {
                    (Class::LostWrite, format!("others were read up to offset {highest}"))
                }
                _ => (Class::Unseen, "nothing behind it was read either".to_owned()),
            };
            let what =
                format!("{value} at offset {offset} was never returned to a {isolation:?} reader; {whereabouts}");
            found.push(Anomaly::new(class, partition, vec![writer], what));
        }
    }
}

fn reads(index: &Index<'_>, found: &mut Vec<Anomaly>) {
    for (number, op) in index.history.ops.iter().enumerate() {
        let mut sent_here = BTreeSet::new();
        for step in op.steps() {
            match step {
                Step::Send { value, .. } => {
                    sent_here.insert(*value);
                }
                Step::Poll { isolation, records, .. } => {
                    for &(partition, offset, value) in records {
                        if let Some(what) = forbidden(index, *isolation, value) {
                            let mut ops = index.ops_with(partition, value);
                            ops.push(number);
                            let what = format!("{value} at offset {offset} was read, but {what}");
                            found.push(Anomaly::new(Class::G1a, partition, ops, what));
                        }
                        if *isolation == IsolationLevel::ReadCommitted
                            && op.is_transaction()
                            && sent_here.contains(&value)
                        {
                            let what = format!("the transaction that sent {value} has read it, as committed");
                            found.push(Anomaly::new(Class::PrecommittedRead, partition, vec![number], what));
                        }
                    }
                }
            }
        }
    }
}

/// The reason why no reader of this isolation level should have read the value, if any.
fn forbidden(index: &Index<'_>, isolation: IsolationLevel, value: Value) -> Option<&'static str> {
    let Some(&writer) = index.writer.get(&value) else {
        return Some("it was never sent");
    };
    let op = &index.history.ops[writer];
    match (op.outcome, op.is_transaction(), isolation) {
        (Outcome::Failed, false, _) => Some("its send has failed"),
        (Outcome::Failed, true, IsolationLevel::ReadCommitted) => Some("its transaction was aborted"),
        _ => None,
    }
}
