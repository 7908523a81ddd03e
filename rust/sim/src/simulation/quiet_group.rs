//! Members while nothing else happens. Those of a consumer group come to rest, whoever leaves and joins. Of static members one comes back
//! in time: of a classic group it was killed, of a consumer group it had left for some time. Then a second one has its name: in a classic
//! group it takes over, in a consumer group it is refused until the first was killed and its session is over.

use super::group_members::{Life, Member, SESSION_MS};
use super::world::Hand;

/// Groups of their own: of static members, and of others.
const GROUP: u32 = 2;
const DYNAMIC: u32 = 3;
const MEMBERS: u32 = 2;
/// How long a rebalance of the group may take, ms.
const PATIENCE_MS: i64 = 30_000;
/// Longer than members need to notice a rebalance, ms.
const A_WHILE_MS: i64 = 2_000;

/// All members are in one generation, and have all partitions.
fn settled(hand: &Hand, members: &[Member]) -> bool {
    let all = usize::try_from(hand.world.plan.partitions).unwrap_or(0);
    let generation = members[0].generation();
    let owned: usize = members.iter().map(|m| m.partitions(hand).len()).sum();
    generation >= 0 && owned == all && members.iter().all(|m| m.generation() == generation)
}

/// A consumer group has all partitions with one member, with two, with one, with two.
pub(super) fn comes_to_rest(hand: &mut Hand) {
    let start = |hand: &mut Hand, which: &str| Member::start(hand, DYNAMIC, None, &format!("quiet-{which}"));
    let mut members = vec![start(hand, "first")];
    for which in ["second", "", "third"] {
        if which.is_empty() {
            let mut leaving = members.remove(0);
            if let Err(error) = leaving.consumer.close(PATIENCE_MS, &mut || false) {
                return hand.surprise(format!("a member of a quiet group cannot leave: {error}"));
            }
        } else {
            members.push(start(hand, which));
        }
        if !poll_until(hand, &mut members, settled) {
            return hand.surprise(format!("a quiet group of {} does not come to rest", members.len()));
        }
    }
}

pub(super) fn run(hand: &mut Hand) {
    let mut members: Vec<Member> = (0..MEMBERS).map(|i| start(hand, i, "first")).collect();
    if !poll_until(hand, &mut members, settled) || !poll_for(hand, &mut members, A_WHILE_MS) {
        return hand.surprise("a quiet group does not settle".to_owned());
    }
    members.iter().for_each(|member| member.note_joined(hand, false));
    let which = hand.rng.below(members.len());
    let instance = u32::try_from(which).unwrap_or(0);
    let mut leaving = members.remove(which);
    if hand.world.plan.uses_consumer_protocol()
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
    match hand.world.plan.uses_consumer_protocol() {
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
