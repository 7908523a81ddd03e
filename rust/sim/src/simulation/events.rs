//! Events of a cluster: leaders and coordinators move, nodes stop and start, the broker's clock is set ahead, and rules for faults release
//! what they hold.

use fletchlog_api::{CoordinatorType, NodeId};
use fletchlog_broker::{Broker, BrokerError};
use fletchlog_records::TopicPartition;

use super::admin;
use super::cluster::SHARE_STATE;
use super::consumers::{GROUP, group_id};
use super::cuts;
use super::nemesis::note;
use super::network::lock;
use super::share_members::SHARE_GROUP;
use super::share_tap::tap;
use super::world::Hand;

/// How far the clock is set ahead, ms: less than any time-out, more than that of a session, of a transaction, more than the time between
/// two checks of retention.
const AHEAD_MS: [i64; 4] = [500, 7_000, 45_000, 400_000];

/// Longest time before a crash is detected, ms. Kafka: broker.session.timeout.ms.
const DETECTED_MS: usize = 9_000;

/// Lets each event happen that strikes within this step of so many ms.
pub(super) fn step(hand: &mut Hand, process: u32, step_ms: usize) {
    let plan = hand.world.plan.events;
    if hand.strikes(plan.leader_every_ms, step_ms) {
        move_leader(hand, process);
    }
    if hand.strikes(plan.coordinator_every_ms, step_ms) {
        move_coordinator(hand, process);
    }
    if hand.strikes(plan.node_every_ms, step_ms) {
        stop_or_start(hand, process);
    }
    if hand.strikes(plan.advance_every_ms, step_ms) {
        advance(hand, process);
    }
    // A held request is carried out sooner or later.
    let faults = lock(&hand.world.net).listener_faults.clone();
    let held = faults
        .iter()
        .flat_map(|faults| faults.report())
        .filter(|rule| rule.held > 0);
    for rule in held.map(|rule| rule.number).collect::<Vec<_>>() {
        if hand.rng.chance(50)
            && let Some(faults) = &faults
        {
            faults.release(rule);
            note(hand, process, format!("rule {rule} releases what it holds"));
        }
    }
}

/// Ends the events: all nodes run, and no rule applies.
pub(super) fn end(hand: &Hand, process: u32) {
    for node in 1..=nodes(hand) {
        change(hand, process, format!("node {node} runs"), |broker| {
            broker.start_node(node)
        });
    }
    let faults = lock(&hand.world.net).listener_faults.clone();
    if let Some(faults) = faults {
        faults.clear(None);
    }
}

fn nodes(hand: &Hand) -> NodeId {
    i32::try_from(hand.world.plan.nodes).unwrap_or(1)
}

fn any_node(hand: &mut Hand) -> NodeId {
    let nodes = usize::try_from(nodes(hand)).unwrap_or(1);
    1 + i32::try_from(hand.rng.below(nodes)).unwrap_or(0)
}

/// Changes the cluster if the broker is up. An event that is not possible now, or that the disk fails, does not happen.
fn change(hand: &Hand, process: u32, text: String, event: impl FnOnce(&Broker) -> Result<(), BrokerError>) {
    let Some(broker) = hand.world.cluster().broker().cloned() else {
        return;
    };
    let shares = std::sync::Arc::clone(&lock(&hand.world.net).shares);
    tap(&shares).restarted();
    let outcome = cuts::around(hand, process, &broker, event);
    tap(&shares).restarted();
    lock(&hand.world.net).pipes.wake_listener();
    match outcome {
        Ok(()) => note(hand, process, text),
        Err(error @ BrokerError::Kafka { .. }) => note(hand, process, format!("not possible: {text}: {error}")),
        Err(_) if hand.world.cluster().disk_has_failed() => {}
        Err(error) => hand.surprise(format!("{text}: {error}")),
    }
}

fn move_leader(hand: &mut Hand, process: u32) {
    let (partitions, to) = (hand.world.partitions(), any_node(hand));
    let tp = match hand.world.plan.share.is_some() && hand.rng.chance(300) {
        true => TopicPartition::new(SHARE_STATE, 0),
        false => hand.world.tp(partitions[hand.rng.below(partitions.len())]),
    };
    let text = format!("node {to} leads {tp}");
    change(hand, process, text, |broker| broker.move_leader(&tp, to));
}

fn move_coordinator(hand: &mut Hand, process: u32) {
    let kinds = 3 + usize::from(hand.world.plan.share.is_some());
    let (to, which) = (any_node(hand), hand.rng.below(kinds));
    let (of, id) = match which {
        0 => (CoordinatorType::Group, group_id(GROUP)),
        3 => (CoordinatorType::Group, SHARE_GROUP.to_owned()),
        which => (CoordinatorType::Transaction, format!("transactions-{}", which - 1)),
    };
    let loading = hand.rng.below(hand.world.plan.events.loading_ms + 1);
    let loading_ms = i64::try_from(loading).unwrap_or(0);
    let text = format!("node {to} coordinates {id} after {loading_ms} ms");
    change(hand, process, text, |broker| {
        broker.move_coordinator(of, &id, to, loading_ms)
    });
}

fn stop_or_start(hand: &mut Hand, process: u32) {
    let (node, how, hidden) = (any_node(hand), hand.rng.below(3), hand.rng.below(DETECTED_MS));
    let is_up = hand
        .world
        .cluster()
        .broker()
        .is_some_and(|broker| broker.is_node_up(node));
    match (is_up, how) {
        (false, _) => change(hand, process, format!("node {node} starts"), |broker| {
            broker.start_node(node)
        }),
        (true, 0) => change(hand, process, format!("node {node} stops"), |broker| {
            broker.stop_node(node)
        }),
        (true, 1) => change(hand, process, format!("node {node} crashes"), |broker| {
            broker.kill_node(node)
        }),
        // A crash is detected by the way, so where logs ended then is not known here.
        (true, _) if hand.world.plan.events.unclean => {}
        (true, _) => {
            let hidden_ms = i64::try_from(hidden).unwrap_or(0);
            let text = format!("node {node} crashes, which is detected after {hidden_ms} ms");
            tap(&lock(&hand.world.net).shares).unsettled();
            change(hand, process, text, |broker| broker.crash_node(node, hidden_ms));
        }
    }
}

fn advance(hand: &mut Hand, process: u32) {
    let ms = AHEAD_MS[hand.rng.below(AHEAD_MS.len())];
    // Retention may be due on the way.
    admin::with_log_starts(hand, process, |broker| {
        broker
            .advance(ms, &mut || false)
            .map(|()| Some(format!("the clock is set {ms} ms ahead")))
    });
}
