//! What a cut excuses, and what it does not.

use fletchlog_api::IsolationLevel;

use super::{Action, Fetch, History, Op, Outcome, Step};
use fletchlog_sim::checker::{self, Class};

const WRITER: u32 = 1;
const READER: u32 = 2;
const LAST_READER: u32 = 3;

#[derive(Default)]
struct Story(History);

impl Story {
    fn moment(&self) -> u64 {
        2 * self.0.ops.len() as u64 + 1
    }

    fn add(mut self, process: u32, action: Action) -> Self {
        let begin = self.moment();
        self.0.ops.push(Op {
            process,
            begin,
            end: begin + 1,
            outcome: Outcome::Ok,
            action,
        });
        self
    }

    /// Values that are acknowledged at these offsets, one after the other.
    fn sent(self, records: &[(i64, u64)]) -> Self {
        records.iter().fold(self, |story, &(offset, value)| {
            let send = Step::Send {
                partition: 0,
                value,
                offset: Some(offset),
                source: None,
                keyed: None,
            };
            story.add(WRITER, steps(send))
        })
    }

    /// A poll of records that were fetched right before.
    fn polled(mut self, process: u32, records: &[(i64, u64)]) -> Self {
        let arrived = self.moment();
        for &(offset, _) in records {
            self.0.fetches.push(Fetch {
                process,
                partition: 0,
                arrived,
                offsets: (offset, offset),
            });
        }
        self.add(
            process,
            steps(Step::Poll {
                isolation: IsolationLevel::ReadUncommitted,
                group: None,
                records: records.iter().map(|&(offset, value)| (0, offset, value)).collect(),
            }),
        )
    }

    fn cut(self, offset: i64) -> Self {
        self.add(0, Action::Cut { partition: 0, offset })
    }

    fn found(&self) -> Vec<Class> {
        checker::check(&self.0).iter().map(|anomaly| anomaly.class).collect()
    }
}

fn steps(step: Step) -> Action {
    Action::Steps {
        steps: vec![step],
        transaction: false,
    }
}

fn four_records() -> Story {
    Story::default()
        .sent(&[(0, 10), (1, 11), (2, 12), (3, 13)])
        .polled(READER, &[(0, 10), (1, 11), (2, 12)])
}

#[test]
fn records_beyond_a_cut_are_lost_and_their_offsets_are_used_again() {
    let story = four_records()
        .cut(2)
        .sent(&[(2, 22), (3, 23)])
        .polled(READER, &[(2, 22), (3, 23)])
        .polled(LAST_READER, &[(0, 10), (1, 11), (2, 22), (3, 23)]);
    assert_eq!(story.found(), []);
}

#[test]
fn without_the_cut_all_of_that_is_found() {
    let story = four_records()
        .sent(&[(2, 22)])
        .polled(LAST_READER, &[(0, 10), (1, 11), (2, 22)]);
    let found = story.found();
    assert!(found.contains(&Class::InconsistentOffsets), "{found:?}");
    assert!(found.contains(&Class::Unseen), "{found:?}");
}

#[test]
fn what_is_below_a_cut_must_stay() {
    let story = four_records()
        .cut(2)
        .sent(&[(2, 22)])
        .polled(LAST_READER, &[(0, 10), (2, 22)]);
    assert!(story.found().contains(&Class::IntPollSkip));
}

#[test]
fn what_is_sent_after_a_cut_must_stay() {
    let story = four_records()
        .cut(2)
        .sent(&[(2, 22), (3, 23), (4, 24)])
        .polled(LAST_READER, &[(0, 10), (1, 11), (2, 22), (4, 24)]);
    assert!(story.found().contains(&Class::LostWrite));
}

#[test]
fn a_reader_beyond_a_cut_returns_to_it_and_skips_nothing() {
    let story = four_records()
        .cut(2)
        .sent(&[(2, 22), (3, 23)])
        .polled(READER, &[(3, 23)])
        .polled(LAST_READER, &[(0, 10), (1, 11), (2, 22), (3, 23)]);
    assert!(story.found().contains(&Class::PollSkip));
}

#[test]
fn what_was_cut_off_must_not_come_back_beside_what_has_its_offset() {
    let story = four_records()
        .cut(2)
        .sent(&[(2, 22)])
        .polled(READER, &[(2, 22)])
        .polled(LAST_READER, &[(0, 10), (1, 11), (2, 12), (3, 13)]);
    assert!(story.found().contains(&Class::InconsistentOffsets));
}

/// A producer without idempotence: acknowledged where it is lost, and in the log once more.
#[test]
fn a_record_that_is_in_the_log_twice_may_be_lost_at_one_place() {
    let story = Story::default()
        .sent(&[(0, 10), (2, 11)])
        .polled(READER, &[(0, 10), (1, 11), (2, 11)])
        .cut(2)
        .polled(LAST_READER, &[(0, 10), (1, 11)]);
    assert_eq!(story.found(), []);
}
