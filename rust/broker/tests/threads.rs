//! Many threads share one broker: nothing is lost, nobody waits for ever.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::*;
use bytes::Bytes;
use fletchlog_api::transport::SystemClock;
use fletchlog_api::*;
use fletchlog_broker::Broker;
use fletchlog_records::BatchIter;

fn broker(nodes: u32) -> Arc<Broker> {
    Broker::in_memory(options(Some(nodes), false, &[]), Arc::new(SystemClock::default())).unwrap()
}

/// Reads partition `p` through long polls until `end`; the offsets must be gapless.
fn read_to(broker: &Arc<Broker>, p: i32, end: i64) {
    let tp = tp("t", p);
    let node = broker.describe_topic("t").unwrap().partitions[usize::try_from(p).unwrap()].leader;
    let mut client = Client::new(broker);
    let mut next = 0;
    let (mut session_id, mut session_epoch) = (0, 0);
    while next < end {
        let listed = fetch_of(&[(&tp, next, 4000)]);
        let request = FetchRequest {
            max_wait_ms: 500,
            session_id,
            session_epoch,
            ..listed
        };
        client.send(node, Request::Fetch(request));
        while !client.transport.has_arrived(node) {
            client.transport.wait(Duration::from_secs(30));
        }
        let Some(Response::Fetch(response)) = client.take(node) else {
            panic!()
        };
        assert_eq!(response.error_code, ErrorCode::NONE);
        session_id = response.session_id;
        session_epoch += 1;
        for (_, partition) in response.partitions() {
            for batch in BatchIter::new(partition.records.clone().unwrap()) {
                let header = *batch.unwrap().header();
                assert_eq!(header.base_offset, next, "partition {p}");
                next = header.next_offset();
            }
        }
    }
}

#[test]
fn producers_and_long_polling_consumers_on_every_partition_meet_without_loss() {
    const PARTITIONS: i32 = 4;
    const BATCHES: i64 = 400;
    let broker = broker(2);
    broker.create_topic("t", PARTITIONS, &[]).unwrap();
    std::thread::scope(|scope| {
        for p in 0..PARTITIONS {
            for _ in 0..2 {
                let broker = &broker;
                scope.spawn(move || {
                    for _ in 0..BATCHES / 2 {
                        broker.append_batches(&tp("t", p), batch(3, 10)).unwrap();
                    }
                });
            }
            let broker = &broker;
            scope.spawn(move || read_to(broker, p, 3 * BATCHES));
        }
        // Meanwhile others come and go.
        let broker = &broker;
        scope.spawn(move || {
            for i in 0..20 {
                let name = format!("passing-{i}");
                broker.create_topic(&name, 2, &[]).unwrap();
                broker.append_batches(&tp(&name, 1), batch(1, 1)).unwrap();
                broker.delete_topic(&name).unwrap();
            }
        });
    });
    for partition in broker.describe_topic("t").unwrap().partitions {
        assert_eq!(partition.high_watermark, 3 * BATCHES);
    }
}

#[test]
fn closing_the_broker_frees_every_waiting_thread() {
    let broker = broker(1);
    broker.create_topic("t", 1, &[]).unwrap();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                let mut client = Client::new(&broker);
                client.send(
                    1,
                    Request::Fetch(FetchRequest {
                        max_wait_ms: 600_000,
                        ..fetch_of(&[(&tp("t", 0), 0, 1)])
                    }),
                );
                scope.spawn(move || {
                    assert!(client.transport.wait(Duration::from_secs(600)));
                    client.transport.receive(1).unwrap().result.unwrap_err()
                })
            })
            .collect();
        broker.close().unwrap();
        for thread in waiting {
            assert_eq!(thread.join().unwrap(), Failure::Disconnected);
        }
    });
}

/// Fetches, with ten minutes to wait, until the answer has this error code.
fn fetch_until(broker: &Arc<Broker>, offset: i64, wanted: ErrorCode) {
    let mut client = Client::new(broker);
    loop {
        let request = FetchRequest {
            max_wait_ms: 600_000,
            ..fetch_of(&[(&tp("t", 0), offset, 4000)])
        };
        client.send(1, Request::Fetch(request));
        let (begun, most) = (Instant::now(), Duration::from_secs(60));
        client.transport.wait(most);
        assert!(begun.elapsed() < most, "it was not woken");
        let Some(Response::Fetch(response)) = client.take(1) else {
            panic!()
        };
        if nth(&response, 0).error_code == wanted {
            return;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_topic_that_comes_and_goes_is_noticed_by_the_long_polls_of_another_thread() {
    let broker = broker(1);
    for round in 0..60 {
        // So that the other thread sleeps already, or not.
        let head_start = || std::thread::sleep(Duration::from_millis(round % 3));
        std::thread::scope(|scope| {
            scope.spawn(|| fetch_until(&broker, 0, ErrorCode::NONE));
            broker.create_topic("t", 0, &[]).unwrap_err();
            broker.create_topic("t", 1, &[]).unwrap();
            head_start();
            broker.append_batches(&tp("t", 0), batch(1, 10)).unwrap();
        });
        std::thread::scope(|scope| {
            scope.spawn(|| fetch_until(&broker, 1, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
            head_start();
            broker.delete_topic("t").unwrap();
        });
    }
}

/// Without a waker the wait would last its ten minutes, whether it began before or after the call.
#[test]
fn a_waker_ends_the_wait_of_another_thread() {
    let broker = broker(1);
    let mut client = Client::new(&broker);
    let waker = client.transport.waker().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || client.transport.wait(Duration::from_secs(600)));
        waker();
        assert!(!waiting.join().unwrap(), "nothing arrived");
    });
}

#[test]
fn members_in_threads_of_their_own_agree_on_a_generation() {
    const MEMBERS: usize = 4;
    let broker = broker(1);
    let generations: Vec<(i32, usize)> = std::thread::scope(|scope| {
        let members: Vec<_> = (0..MEMBERS)
            .map(|_| {
                let broker = &broker;
                scope.spawn(move || {
                    let mut client = Client::new(broker);
                    let mut wait = |request: Request| {
                        client.send(1, request);
                        while !client.transport.has_arrived(1) {
                            client.transport.wait(Duration::from_secs(30));
                        }
                        client.take(1).unwrap()
                    };
                    let mut id: Arc<str> = "".into();
                    loop {
                        let Response::JoinGroup(joined) = wait(Request::JoinGroup(JoinGroupRequest {
                            group_id: "g".into(),
                            session_timeout_ms: 10_000,
                            rebalance_timeout_ms: 60_000,
                            member_id: id.clone(),
                            group_instance_id: None,
                            protocol_type: "consumer".into(),
                            protocols: vec![protocol("range", Bytes::new())],
                            reason: None,
                            sender: sender(8),
                        })) else {
                            panic!()
                        };
                        id = joined.member_id.clone();
                        if joined.error_code != ErrorCode::NONE {
                            continue;
                        }
                        // The leader assigns to each member how many there are.
                        let assigned = vec![u8::try_from(joined.members.len()).unwrap()];
                        let assignments = joined
                            .members
                            .iter()
                            .map(|m| crate::common::assigned(&m.member_id, assigned.clone()))
                            .collect();
                        let Response::SyncGroup(synced) = wait(Request::SyncGroup(SyncGroupRequest {
                            group_id: "g".into(),
                            generation_id: joined.generation_id,
                            member_id: id.clone(),
                            group_instance_id: None,
                            protocol_type: None,
                            protocol_name: None,
                            assignments,
                        })) else {
                            panic!()
                        };
                        if synced.error_code == ErrorCode::NONE
                            && synced.assignment[..] == [u8::try_from(MEMBERS).unwrap()]
                        {
                            return (joined.generation_id, MEMBERS);
                        }
                        // Until the next rebalance.
                        loop {
                            let Response::Heartbeat(response) = wait(Request::Heartbeat(HeartbeatRequest {
                                group_id: "g".into(),
                                generation_id: joined.generation_id,
                                member_id: id.clone(),
                                group_instance_id: None,
                            })) else {
                                panic!()
                            };
                            if response.error_code != ErrorCode::NONE {
                                break;
                            }
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        members.into_iter().map(|m| m.join().unwrap()).collect()
    });
    assert!(generations.iter().all(|g| *g == generations[0]), "{generations:?}");
}
