//! Rules in the words of the recordings' scripts (tests/golden/README.md, producer-faults), and what was done to each Produce in those words.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fletchlog_api::transport::SystemClock;
use fletchlog_faults::{Action, Faults, Predicate, ProducedBatch, RandomFaults, RandomKind, Rule, Selector, When};
use fletchlog_records::ErrorCode;

const PRODUCE: &str = "Produce";

fn recording() -> Arc<Faults> {
    let faults = Faults::of_clients(Arc::new(SystemClock::default()));
    faults.record(true);
    Arc::new(faults)
}

/// Actions by number of the Produce, from 1; every other one is "ok".
pub fn scripted<'a>(script: impl IntoIterator<Item = (u64, &'a str)>) -> Arc<Faults> {
    let faults = recording();
    let sent = Arc::new(AtomicU64::new(0));
    let number = Arc::clone(&sent);
    // Asked about every Produce, before the others.
    let count: Predicate = Arc::new(move |_| number.fetch_add(1, Ordering::SeqCst) == u64::MAX);
    faults.add(rule("ok"), Some(count));
    for (nth, text) in script.into_iter().filter(|(_, text)| *text != "ok") {
        let mut rule = rule(text);
        read(text, &mut rule);
        let number = Arc::clone(&sent);
        // `nth` would count only requests with the partition of the rule.
        faults.add(rule, Some(Arc::new(move |_| number.load(Ordering::SeqCst) == nth)));
    }
    faults
}

fn rule(name: &str) -> Rule {
    Rule {
        name: name.to_owned(),
        selector: Selector {
            api: vec![PRODUCE],
            ..Selector::default()
        },
        action: Action::Hold,
        delay_ms: 0,
        nth: 1,
        times: None,
        optional: true,
    }
}

/// So much of what a producer sends fails, in one of these ways.
pub fn random(seed: u64, rate: f64, kinds: &[RandomKind]) -> Arc<Faults> {
    let faults = recording();
    faults.set_random(Some(RandomFaults {
        seed,
        rate,
        kinds: kinds.to_vec(),
        apis: vec![PRODUCE],
    }));
    faults
}

fn read(text: &str, rule: &mut Rule) {
    if let Some((ms, then)) = text.strip_prefix("wait:").and_then(|rest| rest.split_once('/')) {
        rule.delay_ms = ms.parse().unwrap();
        return match then {
            "ok" => rule.action = Action::Delay(std::mem::take(&mut rule.delay_ms)),
            then => read(then, rule),
        };
    }
    rule.action = match text.split_once(':') {
        None => match text {
            "lost-ack" => Action::Close(When::AfterHandling),
            "disconnect" => Action::Close(When::BeforeHandling),
            "drop" => Action::BlackHole(When::BeforeHandling),
            "drop-appended" => Action::BlackHole(When::AfterHandling),
            text => panic!("{text}"),
        },
        Some(("late", ms)) => Action::DelayResponse(ms.parse().unwrap()),
        Some((refused, rest)) => {
            let (rest, partition) = rest.split_once('@').map_or((rest, None), |(rest, p)| (rest, Some(p)));
            let (code, start) = rest.split_once(':').map_or((rest, None), |(code, at)| (code, Some(at)));
            rule.selector.partition = partition.map(|partition| partition.parse().unwrap());
            let number = code.parse().ok().and_then(ErrorCode::from_code);
            Action::Error {
                code: number.or_else(|| ErrorCode::from_name(code)).unwrap(),
                handled: refused == "appended-refused",
                log_start_offset: start.map(|offset| offset.parse().unwrap()),
            }
        }
    };
}

/// What was done to one Produce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// Number of the Produce whose turn was last when it arrived, from 1; 0 none.
    pub after: u64,
    pub action: String,
    pub batches: Vec<ProducedBatch>,
}

/// Every Produce so far, in the order of arrival.
pub fn done(faults: &Faults) -> Vec<Done> {
    let rows: Vec<_> = faults
        .requests()
        .into_iter()
        .filter(|row| row.request.api == PRODUCE)
        .collect();
    let numbers: Vec<u64> = rows.iter().map(|row| row.number).collect();
    let place = |number: u64| {
        numbers
            .iter()
            .position(|known| *known == number)
            .map_or(0, |at| at as u64 + 1)
    };
    let rows = rows.iter().map(|row| Done {
        after: place(row.after),
        action: match (row.outcome, &row.fault) {
            ("connection lost", _) => "lost-with-connection".to_owned(),
            (_, Some(fault)) => fault.to_string(),
            ("pending", None) => "held".to_owned(),
            (_, None) => "ok".to_owned(),
        },
        batches: row.batches.clone(),
    });
    rows.collect()
}
