//! Row C17 of docs/reliability.md, through the broker: an fsync that takes long holds up only those who asked for it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::held_disk::{HeldFs, Hold};
use crate::common::*;
use crate::transactions::client::Txn;
use bytes::Bytes;
use fletchlog_api::*;
use fletchlog_broker::Broker;

fn broker() -> (Arc<Broker>, Arc<VirtualClock>, Arc<Hold>) {
    let (fs, hold) = HeldFs::new();
    let clock = VirtualClock::new();
    let options = options(Some(1), false, &[("fletchlog.durability", "fsync")]);
    let broker = Broker::open_in(fs, Path::new("/data"), options, clock.clone()).unwrap();
    broker.create_topic("t", 3, &[]).unwrap();
    (broker, clock, hold)
}

/// Runs `slow`, which needs an fsync of a partition whose name begins so, and while that is held up `unrelated`, which must end.
fn while_held_up(hold: &Hold, partition: &'static str, slow: impl FnOnce() + Send, unrelated: impl FnOnce() + Send) {
    let held = hold.disk.lock().unwrap();
    *hold.partition.lock().unwrap() = partition;
    let before = hold.held.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        let slow = scope.spawn(slow);
        while hold.held.load(Ordering::SeqCst) == before {
            assert!(!slow.is_finished(), "nothing was held up");
            std::thread::yield_now();
        }
        let unrelated = scope.spawn(unrelated);
        let begun = Instant::now();
        while !unrelated.is_finished() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
        let (ended, slow_ended) = (unrelated.is_finished(), slow.is_finished());
        drop(held);
        assert!(ended, "it waits for another one's fsync");
        assert!(!slow_ended, "the fsync was not held up");
    });
}

/// A consumer without a group that reads and waits.
fn read(broker: &Arc<Broker>) {
    let mut client = Client::new(broker);
    client.transport.wait(Duration::ZERO);
    let response = client.fetch(1, fetch_of(&[(&tp("t", 2), 0, 4000)]));
    assert_eq!(response.error_code, ErrorCode::NONE);
    client.transport.wait(Duration::from_millis(2));
}

/// The only member of a stable group.
struct Member {
    client: Client,
    group: &'static str,
    id: Arc<str>,
    generation: i32,
}

impl Member {
    fn new(broker: &Arc<Broker>, group: &'static str) -> Self {
        let mut member = Self {
            client: Client::new(broker),
            group,
            id: "".into(),
            generation: -1,
        };
        while member.generation < 0 {
            let request = JoinGroupRequest {
                group_id: group.into(),
                session_timeout_ms: 10_000,
                rebalance_timeout_ms: 60_000,
                member_id: member.id.clone(),
                group_instance_id: None,
                protocol_type: "consumer".into(),
                protocols: vec![protocol("range", Bytes::new())],
                reason: None,
                sender: sender(8),
            };
            let Response::JoinGroup(joined) = member.client.ask(1, Request::JoinGroup(request)) else {
                panic!()
            };
            (member.id, member.generation) = (joined.member_id, joined.generation_id);
        }
        let request = SyncGroupRequest {
            group_id: group.into(),
            generation_id: member.generation,
            member_id: member.id.clone(),
            group_instance_id: None,
            protocol_type: None,
            protocol_name: None,
            assignments: vec![assigned(&member.id, Bytes::new())],
        };
        let Response::SyncGroup(synced) = member.client.ask(1, Request::SyncGroup(request)) else {
            panic!()
        };
        assert_eq!(synced.error_code, ErrorCode::NONE);
        member
    }

    fn heartbeat(&mut self) -> ErrorCode {
        let request = HeartbeatRequest {
            group_id: self.group.into(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            group_instance_id: None,
        };
        let Response::Heartbeat(response) = self.client.ask(1, Request::Heartbeat(request)) else {
            panic!()
        };
        response.error_code
    }

    fn commit(&mut self, offset: i64) -> ErrorCode {
        let value = OffsetAndMetadata {
            offset,
            leader_epoch: -1,
            metadata: "".into(),
        };
        let request = OffsetCommitRequest {
            group_id: self.group.into(),
            generation_id_or_member_epoch: self.generation,
            member_id: self.id.clone(),
            topics: OffsetCommitRequest::topics_of([(tp("t", 0), value)]),
            ..Default::default()
        };
        let Response::OffsetCommit(response) = self.client.ask(1, Request::OffsetCommit(request)) else {
            panic!()
        };
        response.errors().next().unwrap().1
    }

    fn committed(&mut self) -> Option<i64> {
        let request = OffsetFetchRequest::of(self.group.into(), Some(&[tp("t", 0)]), true);
        let Response::OffsetFetch(response) = self.client.ask(1, Request::OffsetFetch(request)) else {
            panic!()
        };
        let (_, committed) = response.offsets().unwrap().next().unwrap();
        committed.unwrap().map(|o| o.offset)
    }
}

#[test]
fn a_commit_holds_up_neither_consumers_without_a_group_nor_other_groups() {
    let (broker, clock, hold) = broker();
    let (mut slow, mut other) = (Member::new(&broker, "slow"), Member::new(&broker, "other"));
    let reader = broker.clone();
    while_held_up(
        &hold,
        "__consumer_offsets",
        || assert_eq!(slow.commit(7), ErrorCode::NONE),
        || {
            read(&reader);
            assert_eq!(other.heartbeat(), ErrorCode::NONE);
            assert_eq!(other.committed(), None);
            // The member that commits is missed now, but only after its commit.
            clock.advance(61_000);
            assert_eq!(other.heartbeat(), ErrorCode::NONE);
            read(&reader);
        },
    );
    assert_eq!(slow.committed(), Some(7));
}

#[test]
fn an_end_of_a_transaction_holds_up_neither_consumers_nor_other_transactional_producers() {
    let (broker, clock, hold) = broker();
    let (mut slow, mut other) = (Txn::new(&broker, "slow"), Txn::new(&broker, "other"));
    let mut member = Member::new(&broker, "g");
    assert_eq!(slow.add(&[tp("t", 0)]), [0]);
    slow.send(&tp("t", 0), "a").unwrap();
    let reader = broker.clone();
    while_held_up(
        &hold,
        "t-0",
        || assert_eq!(slow.end(true), 0),
        || {
            read(&reader);
            assert_eq!(member.heartbeat(), ErrorCode::NONE);
            assert_eq!(other.add(&[tp("t", 1)]), [0]);
            other.send(&tp("t", 1), "b").unwrap();
            assert_eq!(other.end(true), 0);
            Txn::new(&reader, "new");
            // Time-outs of transactions are looked for.
            clock.advance(10_000);
            read(&reader);
            assert_eq!(member.commit(1), ErrorCode::NONE);
        },
    );
    assert!(
        broker
            .transactions()
            .unwrap()
            .iter()
            .all(|t| t.state != "PrepareCommit")
    );
}

#[test]
fn a_second_close_returns_when_the_first_is_done() {
    let (fs, hold) = HeldFs::new();
    let broker = Broker::open_in(
        fs,
        Path::new("/data"),
        options(Some(1), false, &[]),
        VirtualClock::new(),
    )
    .unwrap();
    broker.create_topic("t", 1, &[]).unwrap();
    broker.append_batches(&tp("t", 0), batch(1, 10)).unwrap();
    let held = hold.disk.lock().unwrap();
    *hold.partition.lock().unwrap() = "t-0";
    let before = hold.held.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| broker.close().unwrap());
        while hold.held.load(Ordering::SeqCst) == before {
            assert!(!first.is_finished(), "nothing was held up");
            std::thread::yield_now();
        }
        let second = scope.spawn(|| broker.close().unwrap());
        // It would have returned by then.
        std::thread::park_timeout(Duration::from_millis(200));
        let returned = second.is_finished();
        drop(held);
        assert!(!returned, "it returned while a log was still being written");
        second.join().unwrap();
    });
}
