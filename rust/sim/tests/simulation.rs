//! A slice of `make sim`.

use std::collections::{BTreeMap, BTreeSet};

use fletchlog_api::IsolationLevel;
use fletchlog_sim::history::{Action, History, Op, Outcome, Step};
use fletchlog_sim::share_history::{ShareEvent, ShareHistory, kind};
use fletchlog_sim::sim_disk::Lie;
use fletchlog_sim::simulation::{self, Between, Report};

/// What runs must meet between them: a run in which nothing happens has no anomaly either.
const KINDS: [&str; 42] = [
    "aborted",
    "cleaned",
    "cleaned because of lag",
    "cleaned consumer offsets",
    "cleaned coordinators in background",
    "cleaned in background",
    "cleaned in rounds",
    "cleaned transaction state",
    "clock set ahead",
    "committed offsets",
    "committed transaction",
    "copy",
    "crashed node",
    "cut log",
    "deleted records",
    "disk fault",
    "failed cleaning",
    "fenced member",
    "group poll",
    "killed",
    "lowered level",
    "moved coordinator",
    "moved leader",
    "power loss",
    "refused member",
    "retention",
    "seek",
    "send",
    "share accepted",
    "share delivered again",
    "share drained",
    "share limit",
    "share lock ran out",
    "share rejected",
    "share released",
    "share renewed",
    "share session ended",
    "stopped node",
    "tombstone",
    "tombstone removed",
    "undetected crash",
    "unknown send",
];
/// Runs in any case, and at most until all of that has happened.
const SEEDS: (u64, u64) = (24, 400);
/// Runs that meet what is rare come before the rest.
const RARE: [u64; 3] = [50, 52, 56];

/// The seeds in their order, and which of them run in any case.
fn seeds() -> impl Iterator<Item = (u64, bool)> {
    let others = RARE.into_iter().chain(SEEDS.0..SEEDS.1);
    (0..SEEDS.0)
        .map(|seed| (seed, true))
        .chain(others.map(|seed| (seed, false)))
}

#[test]
fn seeds_have_no_anomaly() {
    let mut missing = BTreeSet::from(KINDS);
    for (seed, in_any_case) in seeds() {
        if !in_any_case && missing.is_empty() {
            break;
        }
        let report = simulation::run(seed, Between::Calls);
        assert!(report.is_clean(), "{}", report.explain());
        for kind in kinds(&report) {
            missing.remove(kind);
        }
    }
    assert!(missing.is_empty(), "none of {} seeds has {missing:?}", SEEDS.1);
}

/// What happened in a run.
fn kinds(report: &Report) -> BTreeSet<&'static str> {
    let mut kinds = BTreeSet::new();
    kinds.extend(kinds_of_share_group(&report.history.shares));
    if loses_newest_tombstone(&report.history) {
        kinds.insert("tombstone removed");
    }
    for op in &report.history.ops {
        match &op.action {
            Action::Note(text) if text.contains("had failed") => drop(kinds.insert("disk fault")),
            Action::Note(text) if text.contains("killed") => drop(kinds.insert("killed")),
            Action::Note(text) if text.contains("power") => drop(kinds.insert("power loss")),
            Action::Note(text) if text.contains("retention") => drop(kinds.insert("retention")),
            Action::Note(text) if text.contains(" is cleaned") => kinds.extend(cleanings(text)),
            Action::Cleaned { .. } if op.outcome == Outcome::Ok => drop(kinds.insert("cleaned")),
            Action::Cleaned { .. } if op.outcome == Outcome::Unknown => drop(kinds.insert("failed cleaning")),
            Action::Note(text) if text.contains("transaction.version is 1") => drop(kinds.insert("lowered level")),
            Action::Note(text) if text.contains("is refused") => drop(kinds.insert("refused member")),
            Action::Note(text) if text.contains("fenced") => drop(kinds.insert("fenced member")),
            Action::Note(text) if text.contains("not possible") => {}
            Action::Note(text) if text.contains(" leads ") => drop(kinds.insert("moved leader")),
            Action::Note(text) if text.contains(" coordinates ") => drop(kinds.insert("moved coordinator")),
            Action::Note(text) if text.contains("node") && text.ends_with("crashes") => {
                kinds.insert("crashed node");
            }
            Action::Note(text) if text.contains("node") && text.ends_with("stops") => {
                kinds.insert("stopped node");
            }
            Action::Note(text) if text.contains("which is detected") => drop(kinds.insert("undetected crash")),
            Action::Note(text) if text.ends_with("ahead") => drop(kinds.insert("clock set ahead")),
            Action::Note(text) if text.contains("releases") => drop(kinds.insert("released request")),
            Action::Moved(to) if to.iter().any(|(_, offset)| offset.is_some_and(|o| o > 0)) => {
                kinds.insert("seek");
            }
            Action::Cut { .. } => drop(kinds.insert("cut log")),
            Action::LogStart { offset, .. } if *offset > 0 => drop(kinds.insert("deleted records")),
            Action::Committed { offsets, .. } if !offsets.is_empty() => drop(kinds.insert("committed offsets")),
            _ => {}
        }
        for step in op.steps() {
            if let Step::Send { keyed: Some(keyed), .. } = step
                && keyed.tombstone
            {
                kinds.insert("tombstone");
            }
            kinds.extend(match (step, op.outcome, op.is_transaction()) {
                (Step::Send { source: Some(_), .. }, Outcome::Ok, _) => Some("copy"),
                (Step::Send { .. }, Outcome::Ok, true) => Some("committed transaction"),
                (Step::Send { .. }, Outcome::Failed, true) => Some("aborted"),
                (Step::Send { .. }, Outcome::Ok, false) => Some("send"),
                (Step::Send { .. }, Outcome::Unknown, false) => Some("unknown send"),
                (Step::Poll { group: Some(0), .. }, ..) => Some("group poll"),
                _ => None,
            });
        }
    }
    kinds
}

/// What members of the share group have met.
fn kinds_of_share_group(shares: &ShareHistory) -> BTreeSet<&'static str> {
    let limit = shares.group.map_or(i16::MAX, |group| group.max_deliveries);
    let lock_ms = shares.group.map_or(i64::MAX, |group| group.lock_ms);
    let mut kinds: BTreeSet<&'static str> = shares.is_drained.then_some("share drained").into_iter().collect();
    let mut last = BTreeMap::new();
    for event in &shares.events {
        match event {
            ShareEvent::Acquired(acquired) => {
                kinds.extend((acquired.deliveries > 1).then_some("share delivered again"));
                kinds.extend((acquired.deliveries == limit).then_some("share limit"));
                let at = (acquired.offsets.partition, acquired.offsets.first);
                let before: Option<(bool, i64)> = last.insert(at, (false, acquired.between_ms.1));
                let ran_out = before.is_some_and(|(is_said, ms)| !is_said && acquired.between_ms.0 >= ms + lock_ms);
                kinds.extend((ran_out && acquired.deliveries > 1).then_some("share lock ran out"));
            }
            ShareEvent::Acknowledging(_, of, _) => {
                for offset in of.first..=of.last {
                    last.entry((of.partition, offset))
                        .and_modify(|(is_said, _)| *is_said = true);
                }
            }
            ShareEvent::Acknowledged(_, _, how, _) => kinds.extend(match *how {
                kind::ACCEPT => Some("share accepted"),
                kind::RELEASE => Some("share released"),
                kind::REJECT => Some("share rejected"),
                kind::RENEW => Some("share renewed"),
                _ => None,
            }),
            ShareEvent::Ended(_) => drop(kinds.insert("share session ended")),
            _ => {}
        }
    }
    kinds
}

/// What the cleaner says it has done.
fn cleanings(note: &str) -> impl Iterator<Item = &'static str> {
    let coordinators = note.starts_with("__");
    let kinds = [
        ("cleaned consumer offsets", note.starts_with("__consumer_offsets")),
        ("cleaned transaction state", note.starts_with("__transaction_state")),
        ("cleaned in rounds", !note.contains("in 1 rounds")),
        ("cleaned in background", note.contains("background") && !coordinators),
        (
            "cleaned coordinators in background",
            note.contains("background") && coordinators,
        ),
        ("cleaned because of lag", note.contains("max.compaction.lag.ms")),
    ];
    kinds
        .into_iter()
        .filter_map(|(kind, happened)| happened.then_some(kind))
}

/// A tombstone that nothing later replaces was in the log, and the last reader of everything does not find it.
fn loses_newest_tombstone(history: &History) -> bool {
    let ops = &history.ops;
    let reads_all = |op: &&Op| {
        matches!(
            op.action,
            Action::Reached {
                isolation: IsolationLevel::ReadUncommitted,
                ..
            }
        )
    };
    let Some(last) = ops.iter().rfind(reads_all).map(|op| op.process) else {
        return false;
    };
    let (mut newest, mut found, mut starts) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
    for op in ops {
        if let Action::LogStart { partition, offset } = op.action {
            let start = starts.entry(partition).or_insert(offset);
            *start = offset.max(*start);
        }
        for step in op.steps() {
            match step {
                Step::Send {
                    partition,
                    offset: Some(offset),
                    keyed: Some(keyed),
                    ..
                } if op.outcome == Outcome::Ok => {
                    let newest = newest
                        .entry((*partition, keyed.key))
                        .or_insert((*offset, keyed.tombstone));
                    *newest = (*newest).max((*offset, keyed.tombstone));
                }
                Step::Poll { records, .. } if op.process == last => {
                    found.extend(records.iter().map(|&(partition, offset, _)| (partition, offset)));
                }
                _ => {}
            }
        }
    }
    newest.iter().any(|(&(partition, _), &(offset, tombstone))| {
        tombstone
            && !found.contains(&(partition, offset))
            && starts.get(&partition).is_none_or(|&start| start <= offset)
    })
}

/// What runs over sockets must meet between them.
const KINDS_OVER_SOCKETS: [&str; 28] = [
    "aborted",
    "cleaned",
    "clock set ahead",
    "committed offsets",
    "committed transaction",
    "copy",
    "crashed node",
    "cut log",
    "deleted records",
    "fenced member",
    "group poll",
    "killed",
    "lowered level",
    "moved coordinator",
    "moved leader",
    "power loss",
    "refused member",
    "released request",
    "send",
    "share accepted",
    "share delivered again",
    "share drained",
    "share rejected",
    "share released",
    "share renewed",
    "stopped node",
    "undetected crash",
    "unknown send",
];

#[test]
fn seeds_over_sockets_have_no_anomaly() {
    let mut missing = BTreeSet::from(KINDS_OVER_SOCKETS);
    for (seed, in_any_case) in seeds() {
        if !in_any_case && missing.is_empty() {
            break;
        }
        let report = simulation::run(seed, Between::Sockets);
        assert!(report.is_clean(), "{}", report.explain());
        for kind in kinds(&report) {
            missing.remove(kind);
        }
    }
    assert!(missing.is_empty(), "none of {} seeds has {missing:?}", SEEDS.1);
}

#[test]
fn a_seed_gives_the_same_history_every_time() {
    for between in Between::ALL {
        for seed in 100..106 {
            let runs = [simulation::run(seed, between), simulation::run(seed, between)];
            let [first, second] = runs.each_ref().map(|run| run.history.fingerprint());
            assert_eq!(first, second, "seed {seed} over {between:?}");
            assert_eq!(runs[0].requests, runs[1].requests, "seed {seed} over {between:?}");
            assert!(runs[0].history.ops.len() > 100, "seed {seed} does next to nothing");
        }
    }
}

/// The simulation notices what it is there for.
#[test]
fn a_disk_that_skips_a_sync_or_hides_an_error_is_found_out() {
    for lie in [
        Lie::DirectorySync,
        Lie::FileSync(".log"),
        Lie::SyncErrorHidden,
        Lie::WriteErrorHidden,
    ] {
        let found = (0..100).any(|seed| !simulation::run_on(seed, Some(lie)).is_clean());
        assert!(found, "{lie:?} went unnoticed");
    }
}
