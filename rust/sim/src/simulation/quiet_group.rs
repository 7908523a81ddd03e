//! Static members while nothing else happens: one is killed and comes back in time, then a second one takes its name.

use super::group_members::{Member, SESSION_MS};
use super::world::Hand;

/// A separate group.
const GROUP: u32 = 2;
const MEMBERS: u32 = 2;
/// How long a rebalance of the group may take, ms.
const PATIENCE_MS: i64 = 30_000;
/// Longer than members need to notice a rebalance, ms.
const A_WHILE_MS: i64 = 2_000;

pub(super) fn run(hand: &mut Hand) {
    let mut members: Vec<Member> = (0..MEMBERS).map(|i| start(hand, i, "first")).collect();
    let all = usize::try_from(hand.world.plan.partitions).unwrap_or(0);
    let settled = |hand: &Hand, members: &[Member]| {
        let generation = members[0].generation();
        let owned: usize = members.iter().map(|m| m.partitions(hand).len()).sum();
        generation >= 0 && owned == all && members.iter().all(|m| m.generation() == generation)
    };
    if !poll_until(hand, &mut members, settled) || !poll_for(hand, &mut members, A_WHILE_MS) {
        return hand.surprise("a quiet group does not settle".to_owned());
    }
    members.iter().for_each(|member| member.note_joined(hand, false));
    let which = hand.rng.below(members.len());
    let instance = u32::try_from(which).unwrap_or(0);
    drop(members.remove(which));
    let away = i64::try_from(hand.rng.below(usize::try_from(SESSION_MS / 2).unwrap_or(1))).unwrap_or(0);
    poll_for(hand, &mut members, away);
    members.push(start(hand, instance, "back"));
    let is_back = |_: &Hand, members: &[Member]| members.iter().all(|m| m.generation() >= 0);
    if !poll_until(hand, &mut members, is_back) || !poll_for(hand, &mut members, A_WHILE_MS) {
        return hand.surprise(format!("instance {instance} does not come back"));
    }
    let Some(mut first) = members.pop() else { return };
    first.note_joined(hand, true);
    members.push(start(hand, instance, "second"));
    if !poll_until(hand, &mut members, is_back) {
        return hand.surprise(format!("instance {instance} cannot be taken over"));
    }
    first.commit(hand);
    let until = hand.now() + A_WHILE_MS;
    while first.poll(hand) {
        if hand.now() > until {
            return hand.surprise(format!("instance {instance} does not learn that it was taken over"));
        }
        poll_for(hand, &mut members, 100);
    }
}

fn start(hand: &mut Hand, instance: u32, which: &str) -> Member {
    Member::start(hand, GROUP, Some(instance), &format!("quiet-{instance}-{which}"))
}

fn poll_for(hand: &mut Hand, members: &mut [Member], ms: i64) -> bool {
    let until = hand.now() + ms;
    while hand.now() < until {
        if !members.iter_mut().all(|member| member.poll(hand)) {
            return false;
        }
        hand.sleep_some(100);
    }
    true
}

fn poll_until(hand: &mut Hand, members: &mut [Member], done: impl Fn(&Hand, &[Member]) -> bool) -> bool {
    let until = hand.now() + PATIENCE_MS;
    while !done(hand, members) {
        if hand.now() > until || !poll_for(hand, members, 100) {
            return false;
        }
    }
    true
}
