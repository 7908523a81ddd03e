//! The polls of the recorded programs, derived from their fetches and responses alone: never another order than the program saw.

use std::collections::BTreeSet;

use fletchlog_api::{Config, Scope};
use fletchlog_client::consumer::{DerivedPolls, RecordedAssignment, RecordedReader, derive_polls};
use fletchlog_records::TopicPartition;
use serde_json::{Value, json};

use super::replay::Outcome;
use super::scenario::{Expected, Scenario, Step};

/// The consumer of a scenario, as its fetches show it.
fn reader(scenario: &Scenario, outcome: &Outcome, properties: &[(&str, &str)]) -> RecordedReader {
    let group = scenario.group.then_some(("group.id", "fresh"));
    let client = scenario.client.iter().map(|(k, v)| (k.as_str(), v.as_str()));
    let given = group.into_iter().chain(client).chain(properties.iter().copied());
    let subscribed = scenario.steps.iter().find_map(|step| match step {
        Step::Subscribe(topics) => Some(topics.iter().map(|t| t.as_str().into()).collect::<Vec<_>>()),
        _ => None,
    });
    let mut assigned: Vec<TopicPartition> = match (&subscribed, &scenario.steps[0]) {
        (None, Step::Assign(tps)) => tps.clone(),
        _ => Vec::new(),
    };
    if subscribed.is_some() {
        let fetched: BTreeSet<_> = outcome
            .recorded
            .iter()
            .flat_map(|f| f.wanted.iter().map(|(tp, _)| tp.clone()))
            .collect();
        assigned = fetched.into_iter().collect();
    }
    RecordedReader {
        config: Config::parse(Scope::Consumer, given).unwrap(),
        assignments: vec![RecordedAssignment {
            at_us: 0,
            partitions: assigned,
            keeps_positions: false,
        }],
        subscribed,
        commits: Vec::new(),
        topics: Vec::new(),
        lookups: Vec::new(),
        fetches_in_background: false,
        reads_between_polls: false,
    }
}

fn shown(derived: &DerivedPolls) -> Vec<Value> {
    let poll = |poll: &fletchlog_client::consumer::DerivedPoll| {
        let runs = poll.runs.iter();
        runs.map(|run| {
            json!([
                &*run.tp.topic,
                run.tp.partition,
                run.first_offset,
                run.last_offset,
                run.count
            ])
        })
        .collect()
    };
    derived.polls.iter().map(poll).collect()
}

/// What was derived from the recordings of one client.
#[derive(Debug, Default)]
pub struct Derived {
    scenarios: usize,
    /// Every fetch is explained.
    whole: usize,
    with_calls: usize,
    polls: usize,
    decided: usize,
    wrong: Vec<String>,
}

impl Derived {
    /// Derives the polls of a scenario, and compares them with those that the program saw.
    pub fn add(
        &mut self,
        id: &str,
        scenario: &Scenario,
        expected: &Expected,
        outcome: &Outcome,
        properties: &[(&str, &str)],
    ) {
        if outcome.recorded.is_empty() {
            return;
        }
        let reader = reader(scenario, outcome, properties);
        let max = scenario.client.iter().find(|(k, _)| *k == "max.poll.records");
        let max = max.map_or(500, |(_, v)| v.parse().unwrap());
        let derived = derive_polls(&reader, &outcome.recorded, Some(max)).unwrap();
        let got = expected.polls.iter().map(|poll| poll.got.clone());
        let seen: Vec<Value> = got
            .filter(|got| got.as_array().is_some_and(|got| !got.is_empty()))
            .collect();
        let have = shown(&derived);
        self.scenarios += 1;
        self.whole += usize::from(derived.parted.is_none());
        self.with_calls += usize::from(!derived.calls.is_empty());
        self.polls += seen.len();
        self.decided += derived.polls.iter().filter(|poll| poll.decided).count();
        let mut behind = seen.iter();
        let decided = have.iter().zip(&derived.polls).filter(|(_, poll)| poll.decided);
        for (have, _) in decided {
            if !behind.any(|seen| seen == have) {
                let (tags, calls) = (&scenario.tags, &derived.calls);
                self.wrong.push(format!("{id} {tags:?} {calls:?}: {have} was not seen"));
                break;
            }
        }
    }

    /// Every poll that is decided was seen, and in this order. Of a third of the polls a fetch leaves more than one way, or a call explains them:
    /// the scenarios seek, pause and reassign a lot.
    pub fn check(&self, client: &str) {
        let Self {
            scenarios,
            whole,
            with_calls,
            polls,
            decided,
            wrong,
        } = self;
        let counts = format!(
            "{client}: {whole} of {scenarios} whole, {with_calls} with calls, {decided} of {polls} polls decided"
        );
        assert!(
            wrong.is_empty(),
            "{counts}, {} wrong:\n{}",
            wrong.len(),
            wrong.join("\n")
        );
        assert!(whole * 10 >= scenarios * 9 && decided * 3 >= polls * 2, "{counts}");
    }
}
