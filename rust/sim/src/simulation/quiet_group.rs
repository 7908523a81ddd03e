//! Static members while nothing else happens. One comes back in time: of a classic group it was killed, of a consumer group it had left
//! for some time. Then a second one has its name: in a classic group it takes over, in a consumer group it is refused until the first was
//! killed and its session is over.

use super::group_members::{Life, Member, SESSION_MS, uses_consumer_protocol};
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
    let mut leaving = members.remove(which);
    if uses_consumer_protocol(hand)
        && let Err(error) = leaving.consumer.close(PATIENCE_MS, &mut || false)
    {
        hand.surprise(format!("instance {instance} cannot leave: {error}"));
    }
    drop(leaving);
    let away = i64::try_from(hand.rng.below(usize::try_from(SESSION_MS / 2).unwrap_or(1))).unwrap_or(0);
    poll_for(hand, &mut members, away);
    members.push(start(hand, instance, "back"));
    let is_back = |_: &Hand, members: &[Member]| members.iter().all(|m| m.generation() >= 0);
    if !poll_until(hand, &mut members, is_back) || !poll_for(hand, &mut members, A_WHILE_MS) {
        return hand.surprise(format!("instance {instance} does not come back"));
    }
    let Some(first) = members.pop() else { return };
    first.note_joined(hand, true);
    match uses_consumer_protocol(hand) {
        true => keeps_its_place(hand, members, first, instance),
        false => is_taken_over(hand, members, first, instance),
    }
}

/// A second member takes over, and the first one learns of it.
fn is_taken_over(hand: &mut Hand, mut members: Vec<Member>, mut first: Member, instance: u32) {
    let is_back = |_: &Hand, members: &[Member]| members.iter().all(|m| m.generation() >= 0);
    members.push(start(hand, instance, "second"));
    if !poll_until(hand, &mut members, is_back) {
        return hand.surprise(format!("instance {instance} cannot be taken over"));
    }
    first.commit(hand);
    let until = hand.now() + A_WHILE_MS;
    while first.poll(hand) == Life::GoesOn {
        if hand.now() > until {
            return hand.surprise(format!("instance {instance} does not learn that it was taken over"));
        }
        poll_for(hand, &mut members, 100);
    }
}

/// A second member is refused as long as the first one lives, and takes its place when its session is over.
fn keeps_its_place(hand: &mut Hand, mut members: Vec<Member>, first: Member, instance: u32) {
    members.push(first);
    let mut second = start(hand, instance, "second");
    if !is_refused(hand, &mut members, &mut second) {
        return hand.surprise(format!("instance {instance} is there twice"));
    }
    let goes_on = members.iter_mut().all(|member| member.commit(hand) == Life::GoesOn);
    if !goes_on || !poll_for(hand, &mut members, A_WHILE_MS) {
        return hand.surprise(format!("instance {instance} does not go on"));
    }
    members.pop();
    let until = hand.now() + PATIENCE_MS;
    let mut lives = 0;
    loop {
        lives += 1;
        let mut third = start(hand, instance, &format!("third-{lives}"));
        if !is_refused(hand, &mut members, &mut third) {
            return;
        }
        if hand.now() > until {
            return hand.surprise(format!("instance {instance} cannot be taken over after a kill"));
        }
        poll_for(hand, &mut members, 500);
    }
}

/// Polls until a member has joined or is refused.
fn is_refused(hand: &mut Hand, members: &mut [Member], new: &mut Member) -> bool {
    let until = hand.now() + PATIENCE_MS;
    while hand.now() < until && new.generation() < 0 {
        match new.poll(hand) {
            Life::GoesOn => poll_for(hand, members, 100),
            Life::Refused => return true,
            Life::Fenced => break,
        };
    }
    false
}

fn start(hand: &mut Hand, instance: u32, which: &str) -> Member {
    Member::start(hand, GROUP, Some(instance), &format!("quiet-{instance}-{which}"))
}

fn poll_for(hand: &mut Hand, members: &mut [Member], ms: i64) -> bool {
    let until = hand.now() + ms;
    while hand.now() < until {
        if !members.iter_mut().all(|member| member.poll(hand) == Life::GoesOn) {
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
