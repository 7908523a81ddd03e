//! A session that looks only at changed partitions answers like one that looks at all of them.

use std::sync::Arc;

use fletchlog_api::{Clock, Config, FetchRequest, FetchResponse, IsolationLevel, Response, Scope};
use fletchlog_log::AppendOrigin;
use fletchlog_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use fletchlog_records::control::{ControlType, EndTxnMarker, build_marker};
use fletchlog_records::{BatchBuilder, BatchParams, TopicPartition};
use fletchlog_testing::{START_MS as START, VirtualClock};
use proptest::prelude::*;

use super::purgatory::DelayedFetch;
use super::session_cache::FetchSessionCache;
use super::{FetchParams, Fetched};
use crate::sync::Answer;
use crate::{Broker, OpenOptions};

const TOPICS: [&str; 3] = ["kept", "compacted", "comes-and-goes"];
const PARTITIONS: i32 = 4;

/// Which partition: a topic and a number.
type Which = (usize, i32);

#[derive(Debug, Clone)]
enum Step {
    Append(Which, usize),
    /// A batch of a transaction of this producer.
    AppendInTransaction(Which, i64),
    /// Its end there.
    Mark(Which, i64, bool),
    DeleteRecords(Which, i64),
    Retention,
    Clean,
    Delete,
    Create,
    Advance(i64),
    Fetch(FetchStep),
}

#[derive(Debug, Clone)]
struct FetchStep {
    /// Partition and how far from its end, with the leader epoch that is sent.
    listed: Vec<(Which, i64, i32)>,
    forgotten: Vec<Which>,
    kind: Kind,
    max_wait_ms: i32,
    min_bytes: i32,
    max_bytes: i32,
    partition_max_bytes: i32,
    committed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Incremental,
    Full,
    WrongEpoch,
}

fn which() -> impl Strategy<Value = Which> {
    (0..TOPICS.len(), 0..PARTITIONS)
}

fn fetch() -> impl Strategy<Value = Step> {
    let distance = prop_oneof![6 => Just(0i64), 3 => -6..3i64, 1 => Just(-1000)];
    let listed = prop::collection::vec(
        (
            which(),
            distance,
            prop_oneof![8 => Just(-1), 1 => Just(0), 1 => Just(3)],
        ),
        0..5,
    );
    let kind = prop_oneof![16 => Just(Kind::Incremental), 1 => Just(Kind::Full), 1 => Just(Kind::WrongEpoch)];
    let min_bytes = prop_oneof![1 => Just(0), 6 => Just(1), 3 => 2..400i32];
    let limits = (
        prop_oneof![Just(1 << 20), 0..400i32],
        prop_oneof![8 => Just(1 << 20), 8 => 0..300i32, 1 => Just(-1)],
    );
    let forgotten = prop::collection::vec(which(), 0..2);
    let max_wait = prop_oneof![Just(0), Just(500)];
    (
        listed,
        forgotten,
        kind,
        max_wait,
        min_bytes,
        limits,
        prop::bool::weighted(0.2),
    )
        .prop_map(
            |(listed, forgotten, kind, max_wait_ms, min_bytes, (max_bytes, partition_max_bytes), committed)| {
                Step::Fetch(FetchStep {
                    listed,
                    forgotten,
                    kind,
                    max_wait_ms,
                    min_bytes,
                    max_bytes,
                    partition_max_bytes,
                    committed,
                })
            },
        )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (which(), 1..4usize).prop_map(|(p, n)| Step::Append(p, n)),
        3 => (which(), 1..3i64).prop_map(|(p, id)| Step::AppendInTransaction(p, id)),
        3 => (which(), 1..3i64, any::<bool>()).prop_map(|(p, id, commit)| Step::Mark(p, id, commit)),
        2 => (which(), 0..8i64).prop_map(|(p, before)| Step::DeleteRecords(p, before)),
        1 => Just(Step::Retention),
        1 => Just(Step::Clean),
        1 => Just(Step::Delete),
        1 => Just(Step::Create),
        1 => (1..400i64).prop_map(Step::Advance),
        14 => fetch(),
    ]
}

fn tp((topic, partition): Which) -> TopicPartition {
    TopicPartition::new(TOPICS[topic], partition)
}

fn asked((_, partition): Which, fetch_offset: i64, partition_max_bytes: i32) -> FetchPartition {
    FetchPartition {
        partition,
        fetch_offset,
        partition_max_bytes,
        ..Default::default()
    }
}

/// A broker, its one client and what that is waiting for.
struct Side {
    broker: Arc<Broker>,
    clock: Arc<VirtualClock>,
    session: i32,
    /// Sessions so far.
    opened: i32,
    epoch: i32,
    waiting: Option<Arc<Answer>>,
    /// Longest any incremental fetch had to look for: partitions read.
    answers: Vec<String>,
}

impl Side {
    fn new(reports_changes: bool) -> Self {
        let clock = VirtualClock::new();
        let options = OpenOptions {
            nodes: Some(1),
            named_nodes: Vec::new(),
            read_only: false,
            config: Config::parse(Scope::Broker, []).unwrap(),
        };
        let broker = Broker::in_memory(options, clock.clone()).unwrap();
        broker
            .replicas()
            .fetches
            .set_cache(1, FetchSessionCache::new(3, reports_changes));
        let side = Self {
            broker,
            clock,
            session: 0,
            opened: 0,
            epoch: 0,
            waiting: None,
            answers: Vec::new(),
        };
        (0..TOPICS.len()).for_each(|topic| side.create(topic));
        side
    }

    fn create(&self, topic: usize) {
        let policy = if topic == 1 { "compact,delete" } else { "delete" };
        let config = [
            ("segment.bytes", "600"),
            ("retention.bytes", "700"),
            ("cleanup.policy", policy),
        ];
        let config = config.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let _ = self.broker.create_topic(TOPICS[topic], PARTITIONS, &config);
    }

    fn end(&self, which: Which) -> i64 {
        self.broker
            .partition_log(&tp(which))
            .map_or(0, |log| log.log_end_offset())
    }

    fn append(&self, which: Which, batch: bytes::Bytes) {
        if let Ok(partition) = self.broker.replicas().partition(&tp(which)) {
            // A transaction that ends before it has begun is refused, on both sides.
            let _ = self.broker.replicas().append_as_coordinator(
                &partition,
                batch,
                AppendOrigin::Coordinator,
                self.clock.now_ms(),
            );
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Append(p, records) => {
                let _ = self.broker.append_batches(&tp(*p), batch(*records, -1));
            }
            Step::AppendInTransaction(p, producer_id) => self.append(*p, batch(1, *producer_id)),
            Step::Mark(p, producer_id, commit) => {
                let control_type = if *commit {
                    ControlType::Commit
                } else {
                    ControlType::Abort
                };
                let marker = EndTxnMarker {
                    control_type,
                    coordinator_epoch: 0,
                };
                self.append(*p, build_marker(0, *producer_id, 0, -1, self.clock.now_ms(), marker));
            }
            Step::DeleteRecords(p, before) => {
                let _ = self.broker.delete_records(&tp(*p), Some(*before));
            }
            Step::Retention => {
                self.broker.run_retention().unwrap();
            }
            Step::Clean => {
                self.broker.clean_topic(TOPICS[1], true, &mut || false).unwrap();
            }
            Step::Delete => {
                let _ = self.broker.delete_topic(TOPICS[2]);
            }
            Step::Create => self.create(2),
            Step::Advance(ms) => {
                self.clock.advance(*ms);
                self.broker.run_due();
            }
            Step::Fetch(fetch) => self.fetch(fetch),
        }
        self.look();
    }

    fn look(&mut self) {
        if let Some(Response::Fetch(response)) = self.waiting.as_ref().and_then(|answer| answer.take()) {
            self.waiting = None;
            self.answered(response);
        }
    }

    fn answered(&mut self, mut response: FetchResponse) {
        if response.session_id != self.session || response.session_id == 0 {
            self.session = response.session_id;
            self.epoch = 0;
            self.opened += 1;
        }
        // Ids are random; which session it is, is not.
        response.session_id = if self.session == 0 { 0 } else { self.opened };
        self.answers.push(format!("{response:?}"));
    }

    fn fetch(&mut self, step: &FetchStep) {
        if let Some(answer) = &self.waiting {
            // As a poll begins, and then what a client does that waits no longer.
            self.broker.replicas().answer_if_without_data(answer);
            self.look();
        }
        if let Some(answer) = self.waiting.take() {
            self.broker.replicas().purgatory().cancel(&answer);
        }
        let incremental = self.session != 0 && step.kind != Kind::Full;
        if incremental {
            self.epoch += 1;
        }
        let topics = step.listed.iter().map(|&(which, from_end, current_leader_epoch)| {
            let fetch_offset = (self.end(which) + from_end).max(0);
            FetchTopic {
                partitions: vec![FetchPartition {
                    current_leader_epoch,
                    ..asked(which, fetch_offset, step.partition_max_bytes)
                }],
                topic: TOPICS[which.0].into(),
                ..Default::default()
            }
        });
        let forgotten = step.forgotten.iter().map(|&(topic, partition)| ForgottenTopic {
            topic: TOPICS[topic].into(),
            partitions: vec![partition],
            ..Default::default()
        });
        let request = FetchRequest {
            max_wait_ms: step.max_wait_ms,
            min_bytes: step.min_bytes,
            max_bytes: step.max_bytes,
            isolation_level: if step.committed {
                IsolationLevel::ReadCommitted
            } else {
                IsolationLevel::ReadUncommitted
            },
            session_id: self.session,
            session_epoch: match step.kind {
                Kind::WrongEpoch => 77,
                _ if incremental => self.epoch,
                _ => 0,
            },
            topics: topics.collect(),
            forgotten_topics_data: forgotten.collect(),
            ..Default::default()
        };
        match self.broker.replicas().fetch(1, request) {
            Fetched::Now(response) => self.answered(response),
            Fetched::Later(answer) => self.waiting = Some(answer),
        }
    }

    /// Partitions that the next fetch of the session would read.
    fn to_read(&self) -> usize {
        self.broker
            .replicas()
            .fetches
            .reading((1, self.session))
            .partitions
            .len()
    }
}

fn batch(records: usize, producer_id: i64) -> bytes::Bytes {
    let params = BatchParams {
        producer_id,
        producer_epoch: if producer_id < 0 { -1 } else { 0 },
        base_sequence: if producer_id < 0 { -1 } else { 0 },
        transactional: producer_id >= 0,
        ..BatchParams::default()
    };
    let mut builder = BatchBuilder::with_capacity(200);
    for key in 0..records {
        builder.append(
            START,
            Some(&[b'a' + u8::try_from(key).unwrap()]),
            Some(&[b'v'; 20]),
            &[],
        );
    }
    builder.build(&params)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn answers_are_those_of_looking_at_every_partition(steps in prop::collection::vec(step(), 1..60)) {
        let (mut reported, mut unreported) = (Side::new(true), Side::new(false));
        for (number, step) in steps.iter().enumerate() {
            reported.take(step);
            unreported.take(step);
            prop_assert_eq!(&reported.answers, &unreported.answers, "after step {} {:?}", number, step);
            prop_assert_eq!(reported.waiting.is_some(), unreported.waiting.is_some(), "waiting after step {} {:?}", number, step);
        }
    }
}

/// One partition of many has changed: only that one is looked at, whatever else the session holds.
#[test]
fn unchanged_partitions_are_not_looked_at() {
    let mut side = Side::new(true);
    let all: Vec<(Which, i64, i32)> = (0..PARTITIONS).map(|p| ((0, p), 0, -1)).collect();
    let fetch = |listed: Vec<(Which, i64, i32)>| {
        Step::Fetch(FetchStep {
            listed,
            forgotten: Vec::new(),
            kind: Kind::Incremental,
            max_wait_ms: 500,
            min_bytes: 1,
            max_bytes: 1 << 20,
            partition_max_bytes: 1 << 20,
            committed: false,
        })
    };
    side.take(&fetch(all));
    side.take(&Step::Advance(500));
    side.take(&fetch(Vec::new()));
    side.take(&Step::Advance(500));
    assert_eq!((side.opened, side.answers.len(), side.to_read()), (1, 2, 0));
    side.take(&fetch(Vec::new()));
    side.take(&Step::Append((0, 2), 1));
    assert_eq!((side.answers.len(), side.to_read()), (3, 1));
    side.take(&fetch(vec![((0, 2), 0, -1)]));
    side.take(&Step::Append((0, 1), 1));
    assert_eq!((side.answers.len(), side.to_read()), (4, 1));
    assert!(side.answers[3].contains("partition_index: 1,") && !side.answers[3].contains("partition_index: 2,"));
}

/// The moment between the first reading and the wait, in which changes are reported to nobody.
#[test]
fn a_fetch_that_begins_to_wait_for_a_topic_that_was_made_again_meanwhile_is_answered_at_once() {
    const GONE: Which = (2, 0);
    let side = Side::new(true);
    // Two batches of the old log take more bytes than the one of the new log, which has more records.
    for _ in 0..2 {
        side.broker.append_batches(&tp(GONE), batch(1, -1)).unwrap();
    }
    let request = FetchRequest {
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: 1 << 20,
        isolation_level: IsolationLevel::ReadUncommitted,
        topics: vec![FetchTopic {
            topic: TOPICS[GONE.0].into(),
            partitions: vec![asked(GONE, side.end(GONE), 1 << 20)],
            ..Default::default()
        }],
        ..Default::default()
    };
    let params = FetchParams {
        node: 1,
        by_topic_ids: false,
        leader_only: false,
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: 1 << 20,
        isolation: IsolationLevel::ReadUncommitted,
        rack: None,
    };
    let context = side.broker.replicas().fetches.new_context(1, &request, 0).unwrap();
    let fetch = DelayedFetch::new(side.broker.replicas(), params, context, 0);
    assert!(!fetch.is_satisfied_at_once());
    side.broker.delete_topic(TOPICS[GONE.0]).unwrap();
    side.create(GONE.0);
    side.broker.append_batches(&tp(GONE), batch(3, -1)).unwrap();
    let answer = side
        .broker
        .replicas()
        .purgatory
        .watch(side.broker.replicas(), fetch)
        .take();
    let Some(Response::Fetch(response)) = answer else {
        panic!("it waits: {answer:?}")
    };
    let partition = &response.responses[0].partitions[0];
    assert_eq!(partition.high_watermark, 3);
    assert!(partition.size() > 0);
}
