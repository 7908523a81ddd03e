//! The history checker is proven by mutation: a history as it should be has no anomaly, and one of each class put into it is found.

use std::collections::BTreeSet;

use fletchlog_sim::checker::{self, Class};
use fletchlog_sim::history::{Action, Fetch, History, Joined, Keyed, Op, Outcome, Step};
use proptest::prelude::*;

mod compacted;
mod cuts;
mod generate;
mod groups;
mod inject;
mod shares;

/// Classes of share groups, which have events instead of operations.
const OF_SHARE_GROUPS: [Class; 7] = [
    Class::AcquiredTwice,
    Class::AcknowledgedAgain,
    Class::DeliveryLimit,
    Class::DeliveryCount,
    Class::NotAcquired,
    Class::NeverDelivered,
    Class::LostAcknowledgement,
];
/// Without this many of a hundred histories having room for an anomaly, the test would say little.
const USABLE: usize = 70;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_history_as_it_should_be_has_no_anomaly(seed: u64) {
        let history = generate::history(seed);
        let found = checker::check(&history);
        let explained: Vec<String> = found.iter().map(|anomaly| anomaly.explain(&history)).collect();
        prop_assert!(found.is_empty(), "{}", explained.concat());
    }
}

#[test]
fn each_class_is_found_where_it_was_put() {
    for class in Class::ALL.into_iter().filter(|class| !OF_SHARE_GROUPS.contains(class)) {
        let mut usable = 0;
        for seed in 0..100 {
            let mut history = generate::history(seed);
            if !inject::inject(class, &mut history, seed) {
                continue;
            }
            usable += 1;
            let found = checker::check(&history);
            let classes: BTreeSet<Class> = found.iter().map(|anomaly| anomaly.class).collect();
            assert!(
                classes.contains(&class),
                "{class} was put into seed {seed}, found {classes:?}"
            );
            let anomaly = found.iter().find(|anomaly| anomaly.class == class).unwrap();
            let text = anomaly.explain(&history);
            assert!(text.starts_with(class.name()) && text.contains("process"), "{text}");
        }
        assert!(usable >= USABLE, "only {usable} of 100 histories have room for {class}");
    }
}

/// What a class must not be confused with.
#[test]
fn an_anomaly_of_one_operation_after_the_other_is_no_anomaly_within_one() {
    let pairs = [
        (Class::PollSkip, Class::IntPollSkip),
        (Class::NonmonotonicPoll, Class::IntNonmonotonicPoll),
        (Class::IntNonmonotonicPoll, Class::NonmonotonicPoll),
        (Class::LostWrite, Class::Unseen),
        (Class::Unseen, Class::LostWrite),
        (Class::G0Process, Class::G0),
        (Class::G0Realtime, Class::G0Process),
        (Class::G1cProcess, Class::G1c),
        (Class::G1cRealtime, Class::G1cProcess),
    ];
    for (put, other) in pairs {
        for seed in 0..50 {
            let mut history = generate::history(seed);
            if inject::inject(put, &mut history, seed) {
                let found = checker::check(&history);
                let mistaken = found.iter().find(|anomaly| anomaly.class == other);
                assert_eq!(
                    mistaken,
                    None,
                    "{put} was put into seed {seed}:\n{}",
                    history.excerpt(&mistaken.unwrap().ops)
                );
            }
        }
    }
}

#[test]
fn the_fingerprint_depends_on_everything() {
    let history = generate::history(1);
    assert_eq!(history.fingerprint(), generate::history(1).fingerprint());
    let mut other = history.clone();
    other.ops.last_mut().unwrap().end += 1;
    assert_ne!(history.fingerprint(), other.fingerprint());
}
