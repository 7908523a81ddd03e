//! The FIFOs of spec 7.4, one step at a time.

use std::sync::atomic::AtomicBool;

use fletchlog_api::{Failure, NodeId, Request, Response};
use fletchlog_testing::{Answer, ScriptedTransport};

use super::super::consumer_network_client::{ConsumerNetworkClient, Wait};
use super::super::metadata::{ConsumerMetadata, Wanted};
use super::fake_broker::{FakeBroker, Net};
use super::*;
use crate::backoff::ExponentialBackoff;
use crate::net::Reconnect;
use crate::net::fixtures::{cluster, topic};

/// What was sent since this was last asked: connection, request and what it was.
fn sent(wire: &ScriptedTransport) -> Vec<(NodeId, i32, &'static str)> {
    let kind = |request| match request {
        Request::Metadata(_) => "metadata",
        _ => "request",
    };
    let sent = wire.take_sent().into_iter();
    sent.map(|sent| (sent.node, sent.correlation_id, kind(sent.request)))
        .collect()
}

fn setup() -> (ScriptedTransport, ConsumerNetworkClient, ConsumerMetadata) {
    let wire = ScriptedTransport::default();
    let net = ConsumerNetworkClient::new(
        Box::new(wire.clone()),
        Arc::clone(&wire.clock) as _,
        30_000,
        Reconnect {
            backoff: ExponentialBackoff::new(50, 50),
            rebootstrap_after_ms: None,
        },
    );
    (wire, net, ConsumerMetadata::new(100, 300_000, true))
}

fn lookup() -> Request {
    super::super::offset_reset::list_offsets_request(fletchlog_api::IsolationLevel::ReadUncommitted, Vec::new())
}

fn any_answer() -> Answer {
    Ok(Response::Heartbeat(fletchlog_api::HeartbeatResponse::default()))
}

#[test]
fn a_turn_writes_one_request_per_connection() {
    let (wire, mut net, mut metadata) = setup();
    let ids = [net.send(1, lookup()), net.send(1, lookup()), net.send(2, lookup())];
    net.try_send(&metadata);
    net.try_send(&metadata);
    assert_eq!(sent(&wire), [], "a wire is written by net_poll");
    net.net_poll(&mut metadata, None).unwrap();
    assert_eq!(sent(&wire), [(1, ids[0], "request"), (2, ids[2], "request")]);
    net.net_poll(&mut metadata, None).unwrap();
    assert_eq!(sent(&wire), [], "the second one is still unsent");
    net.try_send(&metadata);
    net.net_poll(&mut metadata, None).unwrap();
    assert_eq!(sent(&wire), [(1, ids[1], "request")]);
}

#[test]
fn a_turn_reads_one_answer_per_connection_before_it_writes() {
    let (wire, mut net, mut metadata) = setup();
    let ids = [net.send(1, lookup()), net.send(1, lookup())];
    for _ in ids {
        net.try_send(&metadata);
        net.net_poll(&mut metadata, None).unwrap();
    }
    ids.iter().for_each(|&id| wire.answer(1, id, any_answer()));
    for id in ids {
        net.net_poll(&mut metadata, None).unwrap();
        let done: Vec<i32> = net.take_done().iter().map(|c| c.correlation_id).collect();
        assert_eq!(done, [id]);
    }
    assert!(!net.has_pending());
}

#[test]
fn what_a_poll_writes_is_answered_while_it_waits_or_after_it() {
    let (wire, mut net, mut metadata) = setup();
    let done = |net: &mut ConsumerNetworkClient| net.take_done().iter().map(|c| c.correlation_id).collect::<Vec<_>>();
    let turn = |net: &mut ConsumerNetworkClient, metadata: &mut ConsumerMetadata, wait_ms: Option<i64>| {
        net.try_send(metadata);
        let (wakeup, mut interrupt) = (AtomicBool::new(false), || false);
        let wait = wait_ms.map(|wait_ms| Wait {
            wait_ms,
            interrupt: &mut interrupt,
            wakeup: &wakeup,
        });
        net.net_poll(metadata, wait).unwrap();
    };
    let before = net.send(1, lookup());
    turn(&mut net, &mut metadata, None);
    wire.answer(1, before, any_answer());
    net.begin_poll();
    let during = net.send(2, lookup());
    turn(&mut net, &mut metadata, None);
    wire.answer(2, during, any_answer());
    assert_eq!(done(&mut net), [before], "it had a poll's time to arrive");
    turn(&mut net, &mut metadata, None);
    turn(&mut net, &mut metadata, Some(0));
    assert!(done(&mut net).is_empty(), "nothing has waited");
    turn(&mut net, &mut metadata, Some(1));
    assert_eq!(done(&mut net), [during]);
    let late = net.send(2, lookup());
    turn(&mut net, &mut metadata, None);
    wire.answer(2, late, any_answer());
    net.end_poll();
    turn(&mut net, &mut metadata, None);
    assert_eq!(done(&mut net), [late]);
    assert_eq!(fletchlog_api::Clock::monotonic_ms(&*wire.clock), 0, "nothing took time");
}

#[test]
fn while_a_metadata_request_is_due_nothing_else_is_sent() {
    let (wire, mut net, mut metadata) = setup();
    net.send(1, lookup());
    metadata.want(Wanted::Topics(vec!["t".into()]));
    net.try_send(&metadata);
    net.net_poll(&mut metadata, None).unwrap();
    assert_eq!(sent(&wire).iter().map(|s| s.2).collect::<Vec<_>>(), ["metadata"]);
    net.try_send(&metadata);
    net.net_poll(&mut metadata, None).unwrap();
    assert_eq!(
        sent(&wire).iter().map(|s| s.2).collect::<Vec<_>>(),
        ["request"],
        "due no more once it was written"
    );
}

#[test]
fn a_refresh_by_age_goes_out_only_when_nothing_else_does_and_holds_up_no_answer() {
    let broker = FakeBroker::default().with("A", 0, 1, 5);
    let mut c = consumer(&broker, &[("max.poll.records", "1")]);
    c.assign(&[tp("A")]).unwrap();
    assert_eq!(poll(&mut c).count(), 1);
    broker.take_net();
    broker.clock.advance(300_000);
    let counts: Vec<usize> = (0..4).map(|_| poll(&mut c).count()).collect();
    assert_eq!(counts, [1, 1, 1, 1]);
    assert_eq!(poll(&mut c).count(), 0);
    assert_eq!(broker.take_net().iter().filter(|n| **n == Net::Metadata).count(), 1);
}

#[test]
fn a_lost_connection_fails_what_was_sent_and_what_was_not_and_rests_for_a_while() {
    let (wire, mut net, mut metadata) = setup();
    let ids = [net.send(1, lookup()), net.send(1, lookup())];
    net.try_send(&metadata);
    net.net_poll(&mut metadata, None).unwrap();
    wire.answer(1, ids[0], Err(Failure::Disconnected));
    net.net_poll(&mut metadata, None).unwrap();
    let done = net.take_done();
    assert!(done.iter().all(|c| c.result.is_err()));
    let mut lost: Vec<i32> = done.iter().map(|c| c.correlation_id).collect();
    lost.sort_unstable();
    assert_eq!(lost, ids);
    assert!(net.is_unavailable(1));
    wire.clock.advance(50);
    assert!(!net.is_unavailable(1));
}

#[test]
fn a_request_without_an_answer_for_request_timeout_ms_ends_its_connection_and_a_late_answer_is_ignored() {
    let (wire, mut net, mut metadata) = setup();
    let id = net.send(1, lookup());
    net.try_send(&metadata);
    net.net_poll(&mut metadata, None).unwrap();
    wire.clock.advance(30_000);
    net.net_poll(&mut metadata, None).unwrap();
    assert!(net.take_done().is_empty());
    wire.clock.advance(1);
    net.net_poll(&mut metadata, None).unwrap();
    assert!(
        net.take_done()
            .iter()
            .all(|c| c.correlation_id == id && c.result.is_err())
    );
    assert_eq!(
        wire.wire().disconnected,
        [1],
        "what it still carries would end every later wait, and a request held by the node would hold back the next"
    );
    sent(&wire);
    wire.clock.advance(50);
    net.net_poll(&mut metadata, None).unwrap();
    let (node, refresh, kind) = sent(&wire)[0];
    assert_eq!((node, kind), (1, "metadata"), "the leaders may have moved");
    wire.answer(1, refresh, Err(Failure::Disconnected));
    net.net_poll(&mut metadata, None).unwrap();
    let again = net.send(1, lookup());
    net.try_send(&metadata);
    net.net_poll(&mut metadata, None).unwrap();
    wire.answer(1, id, any_answer());
    wire.answer(1, again, any_answer());
    net.net_poll(&mut metadata, None).unwrap();
    assert_eq!(
        net.take_done().iter().map(|c| c.correlation_id).collect::<Vec<_>>(),
        [again]
    );
}

#[test]
fn a_wait_asks_every_50_ms_whether_to_stop() {
    let (wire, mut net, mut metadata) = setup();
    let mut asked = 0;
    let mut interrupt = || {
        asked += 1;
        asked == 4
    };
    let wakeup = AtomicBool::new(false);
    let outcome = net.net_poll(
        &mut metadata,
        Some(Wait {
            wait_ms: 1000,
            interrupt: &mut interrupt,
            wakeup: &wakeup,
        }),
    );
    assert!(matches!(outcome, Err(crate::ClientError::Interrupted)));
    assert_eq!(fletchlog_api::Clock::monotonic_ms(&*wire.clock), 200);
    wakeup.store(true, std::sync::atomic::Ordering::Release);
    let outcome = net.net_poll(
        &mut metadata,
        Some(Wait {
            wait_ms: 1000,
            interrupt: &mut || false,
            wakeup: &wakeup,
        }),
    );
    assert!(matches!(outcome, Err(crate::ClientError::Wakeup)));
}

#[test]
fn an_answer_about_topics_that_are_no_longer_wanted_teaches_nothing_of_them() {
    let mut metadata = ConsumerMetadata::new(100, i64::MAX / 2, false);
    let answer = || cluster([1], [topic("a", []), topic("b", [])]);
    metadata.want(Wanted::Topics(vec!["a".into(), "b".into()]));
    metadata.start_request();
    metadata.want(Wanted::Topics(vec!["b".into(), "c".into()]));
    metadata.on_response(answer(), 1);
    assert_eq!(["a", "b", "c"].map(|t| metadata.knows(t)), [false, true, false]);
    assert!(metadata.awaits_new_topics());
    metadata.want(Wanted::All);
    metadata.on_response(answer(), 2);
    assert_eq!(metadata.topic_names(), ["a".into(), "b".into()] as [Arc<str>; 2]);
}

#[test]
fn topic_ids_are_asked_for_at_once_or_when_time_has_passed_after_an_answer() {
    let mut metadata = ConsumerMetadata::new(100, i64::MAX / 2, false);
    let answer = |metadata: &mut ConsumerMetadata| {
        metadata.start_request();
        metadata.on_response(cluster([1], []), 0);
    };
    answer(&mut metadata);
    metadata.request_update_for_ids();
    assert!(!metadata.is_update_due(0), "an answer came in this poll");
    metadata.let_backoff_pass();
    assert!(metadata.is_update_due(0));
    answer(&mut metadata);
    metadata.let_backoff_pass();
    assert!(!metadata.is_update_due(0));
    metadata.request_update_for_ids();
    assert!(metadata.is_update_due(0));
}
