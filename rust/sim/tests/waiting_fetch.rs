//! A fetch that would wait ten minutes for records, of a topic that is made or deleted on a disk that fails. Nobody waits for a
//! topic to be made: it is answered as unknown when the wait for the others is over, and at once if there are no others (Kafka:
//! `KafkaApis#handleFetchRequest`). A fetch that waits for records of a topic that is deleted is answered so, too (Kafka:
//! `DelayedFetch#tryComplete`).

use std::sync::Arc;

use crate::broker_disk::{FSYNC, OTHER, TOPIC, append, new_disk, open_with};
use fletchlog_api::{ErrorCode, FetchRequest, IsolationLevel, Request, Response, Transport};
use fletchlog_broker::{Broker, LocalTransport};
use fletchlog_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use fletchlog_records::TopicPartition;
use fletchlog_sim::sim_disk::{Fault, SimDisk};

const PATIENCE_MS: i32 = 600_000;

/// A client of a broker whose clock stands still.
struct Client {
    transport: LocalTransport,
    in_session: bool,
    session_id: i32,
    session_epoch: i32,
}

impl Client {
    fn new(broker: &Arc<Broker>, in_session: bool) -> Self {
        Self {
            transport: LocalTransport::new(broker.clone()),
            in_session,
            session_id: 0,
            session_epoch: if in_session { 0 } else { -1 },
        }
    }

    /// Asks for records of both topics.
    fn fetch(&mut self, max_wait_ms: i32) {
        self.fetch_of(&[OTHER, TOPIC], max_wait_ms);
    }

    /// Asks for records of these topics; a session has them from its first request.
    fn fetch_of(&mut self, topics: &[&str], max_wait_ms: i32) {
        let listed = |topic: &&str| FetchTopic {
            topic: (*topic).into(),
            partitions: vec![FetchPartition {
                partition_max_bytes: 1 << 20,
                ..Default::default()
            }],
            ..Default::default()
        };
        let is_listed = self.session_epoch <= 0;
        let request = FetchRequest {
            max_wait_ms,
            min_bytes: 1,
            max_bytes: 1 << 20,
            isolation_level: IsolationLevel::ReadUncommitted,
            session_id: self.session_id,
            session_epoch: self.session_epoch,
            topics: topics.iter().filter(|_| is_listed).map(listed).collect(),
            ..Default::default()
        };
        self.transport.send(1, 0, Request::Fetch(request));
        self.session_epoch += i32::from(self.in_session);
    }

    /// Ends a wait, as the next poll of a client does.
    fn end_wait(&mut self) {
        self.transport.in_process().unwrap().begin_poll();
    }

    /// What the answer says of the topic in question: the error, and whether there are records. `None`: it waits.
    fn answer(&mut self) -> Option<(ErrorCode, bool)> {
        let Response::Fetch(response) = self.transport.receive(1)?.result.unwrap() else {
            panic!()
        };
        self.session_id = response.session_id;
        let mut partitions = response.partitions();
        let (_, answer) = partitions.find(|(topic, _)| &***topic == TOPIC).unwrap();
        Some((answer.error_code, answer.size() > 0))
    }
}

const UNKNOWN: Option<(ErrorCode, bool)> = Some((ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, false));
const RECORDS: Option<(ErrorCode, bool)> = Some((ErrorCode::NONE, true));

fn prepare() -> (SimDisk, Arc<Broker>) {
    let disk = new_disk();
    let broker = open_with(&disk, 1, &[("fletchlog.durability", FSYNC)]).unwrap();
    broker.create_topic(OTHER, 1, &[]).unwrap();
    (disk, broker)
}

/// Runs it with every call of the disk failing in every way, until none fails; what it returns, how often.
fn with_every_fault(run: impl Fn(&dyn Fn(&SimDisk), bool, &str) -> (SimDisk, bool)) -> [usize; 2] {
    let mut returned = [0, 0];
    for in_session in [false, true] {
        for fault in Fault::ALL {
            for call in 0.. {
                let what = format!("call {call}, {fault:?}, in a session: {in_session}");
                let fail = |disk: &SimDisk| disk.fail(disk.calls() + call, fault);
                let (disk, value) = run(&fail, in_session, &what);
                returned[usize::from(value)] += 1;
                if disk.failed().is_none() {
                    break;
                }
            }
        }
    }
    returned
}

#[test]
fn a_client_that_waits_for_a_topic_learns_of_its_making_with_the_next_fetch() {
    let [failed, made] = with_every_fault(|fail, in_session, what| {
        let (disk, broker) = prepare();
        let mut client = Client::new(&broker, in_session);
        client.fetch(PATIENCE_MS);
        assert_eq!(client.answer(), None, "{what}: the other topic may get records");
        client.end_wait();
        assert_eq!(client.answer(), UNKNOWN, "{what}");
        client.fetch(PATIENCE_MS);
        fail(&disk);
        let made = broker.create_topic(TOPIC, 1, &[]).is_ok();
        disk.fail(u64::MAX, Fault::Io);
        if made {
            append(&broker, &TopicPartition::new(TOPIC, 0), b"new").unwrap();
        }
        assert_eq!(client.answer(), None, "{what}: it did not exist when the wait began");
        client.end_wait();
        assert_eq!(client.answer(), UNKNOWN, "{what}");
        client.fetch(0);
        assert_eq!(client.answer(), if made { RECORDS } else { UNKNOWN }, "{what}");
        (disk, made)
    });
    assert!(failed > 10 && made > 0, "{failed} failed, {made} made");
}

#[test]
fn a_fetch_of_unknown_topics_alone_is_answered_at_once() {
    for in_session in [false, true] {
        let (_disk, broker) = prepare();
        let mut client = Client::new(&broker, in_session);
        for _ in 0..2 {
            client.fetch_of(&[TOPIC], PATIENCE_MS);
            assert_eq!(client.answer(), UNKNOWN, "in a session: {in_session}");
        }
    }
}

#[test]
fn a_fetch_that_waits_for_records_is_answered_when_the_topic_is_gone_even_if_its_deletion_fails() {
    let [gone, kept] = with_every_fault(|fail, in_session, what| {
        let (disk, broker) = prepare();
        broker.create_topic(TOPIC, 1, &[]).unwrap();
        let mut client = Client::new(&broker, in_session);
        client.fetch(0);
        assert_eq!(client.answer(), Some((ErrorCode::NONE, false)));
        client.fetch(PATIENCE_MS);
        assert_eq!(client.answer(), None, "{what}: there is nothing to read yet");
        fail(&disk);
        let deleted = broker.delete_topic(TOPIC).is_ok();
        disk.fail(u64::MAX, Fault::Io);
        let kept = broker.describe_topic(TOPIC).is_ok();
        assert!(!(deleted && kept), "{what}");
        if kept {
            assert_eq!(client.answer(), None, "{what}: it is still there");
            append(&broker, &TopicPartition::new(TOPIC, 0), b"new").unwrap();
            assert_eq!(client.answer(), RECORDS, "{what}");
        } else {
            assert_eq!(client.answer(), UNKNOWN, "{what}");
        }
        (disk, kept)
    });
    assert!(gone > 10 && kept > 10, "{gone} gone, {kept} kept");
}
