//! The actor that injects faults: the broker is killed, stopped or loses power, disk calls fail, nodes pause. [`events`] are those of a
//! cluster.

use fletchlog_broker::{Feature, FeatureUpdate, UpgradeType};

use super::events;
use super::network::lock;
use super::world::Hand;
use crate::history::Action;

/// How often it checks whether a fault is due, ms.
const STEP_MS: i64 = 100;

pub(super) fn run(hand: &mut Hand) {
    let process = hand.world.recorder().process();
    let plan = hand.world.plan.clone();
    let step = usize::try_from(STEP_MS).unwrap_or(0);
    while hand.in_chaos() {
        hand.sleep(STEP_MS);
        if hand.strikes(plan.crash_every_ms, step) {
            restart(hand, process);
        }
        if hand.strikes(plan.disk_fault_every_ms, step) {
            let mut rng = hand.rng.fork();
            let fault = hand.world.cluster().fail_disk(&mut rng);
            note(hand, process, format!("a call of the disk is going to fail: {fault:?}"));
        }
        let broken = hand.world.cluster().disk_has_failed();
        // The failure is noticed sooner or later, and the broker is restarted.
        if broken && hand.rng.chance(100) {
            restart(hand, process);
        }
        let nodes = plan.nodes as usize;
        if hand.strikes(plan.pause_every_ms, step) {
            let node = 1 + i32::try_from(hand.rng.below(nodes)).unwrap_or(0);
            let until = hand.now() + i64::try_from(hand.rng.below(5_000)).unwrap_or(0);
            lock(&hand.world.net).pause(node, until);
            note(hand, process, format!("node {node} is paused"));
        }
        events::step(hand, process, step);
        if hand.strikes(plan.transactions.level_every_ms, step) {
            change_level(hand, process);
        }
    }
    if hand.world.cluster().mend_disk() {
        restart(hand, process);
    }
    events::end(hand, process);
    lock(&hand.world.net).heal();
    note(hand, process, "the faults are over".to_owned());
}

pub(super) fn note(hand: &Hand, process: u32, text: String) {
    hand.world.recorder().note(process, Action::Note(text));
}

/// Lowers the cluster's level of transaction.version, or raises it again. It stays as it is while the broker is down or its disk is broken.
fn change_level(hand: &Hand, process: u32) {
    let Some(broker) = hand.world.cluster().broker().cloned() else {
        return;
    };
    let (level, upgrade_type) = match broker.finalized_level(Feature::TransactionVersion) {
        2 => (1, UpgradeType::Downgrade),
        _ => (2, UpgradeType::Upgrade),
    };
    let update = FeatureUpdate {
        feature: Feature::TransactionVersion.name().to_owned(),
        level,
        upgrade_type: Some(upgrade_type),
    };
    if broker.update_features(&[update], false).is_ok() {
        note(hand, process, format!("the level of transaction.version is {level}"));
    }
}

fn restart(hand: &mut Hand, process: u32) {
    let power = hand.world.plan.power_loss && hand.rng.chance(700);
    let broken = hand.world.cluster().disk_has_failed();
    let clean = !power && hand.rng.chance(200) && !broken;
    let text = match (power, clean) {
        (true, _) => "the machine loses power",
        (_, true) => "the broker is stopped",
        _ => "the broker is killed",
    };
    let why = if broken { ", a call of the disk had failed" } else { "" };
    note(hand, process, format!("{text}{why}"));
    let mut rng = hand.rng.fork();
    {
        let mut cluster = hand.world.cluster();
        if clean {
            cluster.stop(&hand.world.net);
        } else {
            cluster.crash(&hand.world.net, &mut rng, power);
        }
    }
    hand.sleep_some(3_000);
    if hand.strikes(hand.world.plan.disk_fault_every_ms, 1_000) {
        let mut rng = hand.rng.fork();
        hand.world.cluster().fail_disk(&mut rng);
    }
    hand.world.cluster().open(&hand.world.net);
    note(hand, process, "the broker is up again".to_owned());
}
