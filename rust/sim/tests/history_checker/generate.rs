//! Histories as they should be: clients that overlap, on logs that give each record the next offset.

use fletchlog_api::IsolationLevel;
use fletchlog_sim::rng::Rng;

use super::{Action, Fetch, History, Joined, Keyed, Op, Outcome, Step};

/// Partitions of the plain producers, of the transactional one, of the copies.
const PLAIN: u32 = 2;
const TRANSACTIONAL: [u32; 2] = [2, 3];
const COPIES: u32 = 4;
/// The compacted one, and its keys.
pub const KEYED: u32 = 5;
const KEYS: usize = 6;
const PARTITIONS: usize = 6;
/// Where records are deleted.
const DELETED: [u32; 2] = [1, 3];
const STEPS: usize = 400;

/// The processes.
pub const READERS: [(u32, IsolationLevel); 2] = [
    (10, IsolationLevel::ReadUncommitted),
    (11, IsolationLevel::ReadCommitted),
];
pub const MEMBER: u32 = 20;
pub const COPIER: u32 = 21;
pub const LOOKER: u32 = 22;
pub const ADMIN: u32 = 23;
pub const CLEANER: u32 = 24;
const KEYED_PRODUCER: u32 = 25;
/// The lives of a static member begin here.
pub const INSTANCE: u32 = 100;
/// Its group and instance.
pub const STATIC: (u32, u32) = (5, 7);
/// The readers at the end.
pub const LAST_READERS: [u32; 2] = [30, 31];

#[derive(Clone, Copy, PartialEq)]
enum Slot {
    Value { value: u64, op: usize, transaction: bool },
    Control,
    Compacted,
}

#[derive(Default)]
struct World {
    logs: [Vec<Slot>; PARTITIONS],
    ops: Vec<Op>,
    moment: u64,
    values: u64,
    /// Next offset of (process, partition).
    positions: std::collections::BTreeMap<(u32, u32), usize>,
    /// Where the logs start.
    starts: [usize; PARTITIONS],
    /// What the records of the compacted partition go by.
    keyed: std::collections::BTreeMap<u64, Keyed>,
    /// When cleanings began, and up to where they went.
    cleanings: Vec<(u64, usize)>,
    fetches: Vec<Fetch>,
}

fn offset(at: usize) -> i64 {
    i64::try_from(at).unwrap()
}

impl World {
    fn tick(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    fn begin(&mut self, process: u32, action: Action) -> usize {
        let begin = self.tick();
        self.ops.push(Op {
            process,
            begin,
            end: u64::MAX,
            outcome: Outcome::Unknown,
            action,
        });
        self.ops.len() - 1
    }

    fn end(&mut self, op: usize, outcome: Outcome) {
        let end = self.tick();
        self.ops[op].outcome = outcome;
        if outcome != Outcome::Unknown {
            self.ops[op].end = end;
        }
    }

    fn steps(&mut self, op: usize) -> &mut Vec<Step> {
        match &mut self.ops[op].action {
            Action::Steps { steps, .. } => steps,
            _ => unreachable!(),
        }
    }

    fn send(&mut self, op: usize, partition: u32, transaction: bool, source: Option<u64>) -> usize {
        self.values += 1;
        let value = self.values;
        let keyed = self.keyed.get(&value).copied();
        self.steps(op).push(Step::Send {
            partition,
            value,
            offset: None,
            source,
            keyed,
        });
        let log = &mut self.logs[partition as usize];
        log.push(Slot::Value { value, op, transaction });
        log.len() - 1
    }

    fn acknowledge(&mut self, op: usize, step: usize, at: usize) {
        if let Step::Send {
            offset: acknowledged, ..
        } = &mut self.steps(op)[step]
        {
            *acknowledged = Some(offset(at));
        }
    }

    fn is_open(&self, op: usize) -> bool {
        self.ops[op].end == u64::MAX
    }

    /// What a poll returns, at most `most` records of each partition, and moves the position over.
    fn read(
        &mut self,
        process: u32,
        isolation: IsolationLevel,
        partitions: &[u32],
        most: usize,
    ) -> Vec<(u32, i64, u64)> {
        let mut records = Vec::new();
        for &partition in partitions {
            let at = self.positions.get(&(process, partition)).copied().unwrap_or(0);
            let mut at = at.max(self.starts[partition as usize]);
            let mut left = most;
            while left > 0 && at < self.logs[partition as usize].len() {
                if let Slot::Value { value, op, transaction } = self.logs[partition as usize][at] {
                    let hidden = transaction && isolation == IsolationLevel::ReadCommitted;
                    if hidden && self.is_open(op) {
                        break;
                    }
                    if !(hidden && self.ops[op].outcome == Outcome::Failed) {
                        records.push((partition, offset(at), value));
                        left -= 1;
                    }
                }
                at += 1;
            }
            self.positions.insert((process, partition), at);
        }
        records
    }

    /// What a poll returns was fetched just before.
    fn fetch(&mut self, process: u32, records: &[(u32, i64, u64)]) {
        let fetch = |&(partition, offset, _): &(u32, i64, u64)| Fetch {
            process,
            partition,
            arrived: self.moment,
            offsets: (offset, offset),
        };
        self.fetches.extend(records.iter().map(fetch));
    }

    fn poll(&mut self, process: u32, isolation: IsolationLevel, group: Option<u32>, partitions: &[u32], most: usize) {
        let op = self.begin(
            process,
            Action::Steps {
                steps: Vec::new(),
                transaction: false,
            },
        );
        let records = self.read(process, isolation, partitions, most);
        self.fetch(process, &records);
        self.steps(op).push(Step::Poll {
            isolation,
            group,
            records,
        });
        self.end(op, Outcome::Ok);
    }
}

/// A producer of single records: between two steps of it others take theirs.
enum Plain {
    Idle,
    Begun(usize),
    Appended(usize, usize),
}

fn plain(world: &mut World, rng: &mut Rng, process: u32, state: Plain) -> Plain {
    match state {
        Plain::Idle => Plain::Begun(world.begin(
            process,
            Action::Steps {
                steps: Vec::new(),
                transaction: false,
            },
        )),
        Plain::Begun(op) => {
            let partition = u32::try_from(rng.below(PLAIN as usize)).unwrap();
            if rng.chance(900) {
                let at = world.send(op, partition, false, None);
                return Plain::Appended(op, at);
            }
            world.values += 1;
            let value = world.values;
            world.steps(op).push(Step::Send {
                partition,
                value,
                offset: None,
                source: None,
                keyed: None,
            });
            let outcome = if rng.chance(500) {
                Outcome::Failed
            } else {
                Outcome::Unknown
            };
            world.end(op, outcome);
            Plain::Idle
        }
        Plain::Appended(op, at) => {
            if rng.chance(100) {
                world.end(op, Outcome::Unknown);
            } else {
                world.acknowledge(op, 0, at);
                world.end(op, Outcome::Ok);
            }
            Plain::Idle
        }
    }
}

/// One step of the producer with transactions; `None` between two of them.
fn transactional(world: &mut World, rng: &mut Rng, open: Option<usize>) -> Option<usize> {
    let Some(op) = open else {
        return Some(world.begin(
            5,
            Action::Steps {
                steps: Vec::new(),
                transaction: true,
            },
        ));
    };
    if world.steps(op).len() < 2 || rng.chance(600) {
        let partition = TRANSACTIONAL[rng.below(2)];
        let at = world.send(op, partition, true, None);
        let step = world.steps(op).len() - 1;
        world.acknowledge(op, step, at);
        return Some(op);
    }
    for partition in TRANSACTIONAL {
        world.logs[partition as usize].push(Slot::Control);
    }
    world.end(op, if rng.chance(700) { Outcome::Ok } else { Outcome::Failed });
    None
}

/// A transaction that copies partition 0, and what its group has committed.
fn copy(world: &mut World, rng: &mut Rng) {
    let before = world.positions.get(&(COPIER, 0)).copied().unwrap_or(0);
    let op = world.begin(
        COPIER,
        Action::Steps {
            steps: Vec::new(),
            transaction: true,
        },
    );
    let isolation = IsolationLevel::ReadCommitted;
    let records = world.read(COPIER, isolation, &[0], 1 + rng.below(3));
    world.fetch(COPIER, &records);
    let sources: Vec<u64> = records.iter().map(|&(_, _, value)| value).collect();
    world.steps(op).push(Step::Poll {
        isolation,
        group: Some(1),
        records,
    });
    for (i, source) in sources.into_iter().enumerate() {
        let at = world.send(op, COPIES, true, Some(source));
        world.acknowledge(op, i + 1, at);
    }
    world.logs[COPIES as usize].push(Slot::Control);
    let committed = rng.chance(800);
    world.end(op, if committed { Outcome::Ok } else { Outcome::Failed });
    if !committed {
        world.positions.insert((COPIER, 0), before);
        let moved = world.begin(COPIER, Action::Moved(vec![(0, Some(offset(before)))]));
        world.end(moved, Outcome::Ok);
    }
    look_up(world, 1, COPIER, &[0]);
}

fn look_up(world: &mut World, group: u32, process: u32, partitions: &[u32]) {
    let position = |&p: &u32| (p, offset(world.positions.get(&(process, p)).copied().unwrap_or(0)));
    let offsets = partitions.iter().map(position).collect();
    let op = world.begin(LOOKER, Action::Committed { group, offsets });
    world.end(op, Outcome::Ok);
}

/// Deletes up to somewhere; now and then it remains unknown whether it did.
fn delete(world: &mut World, rng: &mut Rng) {
    let partition = DELETED[rng.below(2)];
    let (start, end) = (world.starts[partition as usize], world.logs[partition as usize].len());
    let to = start + rng.below(end - start + 1);
    let op = world.begin(
        ADMIN,
        Action::LogStart {
            partition,
            offset: offset(to),
        },
    );
    let unknown = rng.chance(200);
    if !unknown || rng.chance(500) {
        world.starts[partition as usize] = to;
    }
    world.end(op, if unknown { Outcome::Unknown } else { Outcome::Ok });
}

/// A value or a tombstone for the compacted partition.
fn send_keyed(world: &mut World, rng: &mut Rng) {
    let keyed = Keyed {
        key: u32::try_from(rng.below(KEYS)).unwrap(),
        tombstone: rng.chance(250),
    };
    world.keyed.insert(world.values + 1, keyed);
    let steps = Vec::new();
    let op = world.begin(
        KEYED_PRODUCER,
        Action::Steps {
            steps,
            transaction: false,
        },
    );
    let at = world.send(op, KEYED, false, None);
    if rng.chance(970) {
        world.acknowledge(op, 0, at);
        world.end(op, Outcome::Ok);
    } else {
        world.end(op, Outcome::Unknown);
    }
}

/// Removes what it may, or a part of it; tombstones that a cleaning has seen before the last ten moments.
fn clean(world: &mut World, rng: &mut Rng) {
    const RETENTION: u64 = 10;
    let below = rng.below(world.logs[KEYED as usize].len() + 1);
    let seen_before = world.moment.saturating_sub(RETENTION);
    let cleaned = Action::Cleaned {
        partition: KEYED,
        below: offset(below),
        sent_before: world.moment + 1,
        seen_before,
    };
    let op = world.begin(CLEANER, cleaned);
    let unknown = rng.chance(200);
    let log = &mut world.logs[KEYED as usize];
    let mut newest = std::collections::BTreeSet::new();
    for at in (0..below).rev() {
        let Slot::Value { value, .. } = log[at] else { continue };
        let Keyed { key, tombstone } = world.keyed[&value];
        let seen = |&(begin, end): &(u64, usize)| begin < seen_before && at < end;
        let may_go = !newest.insert(key) || tombstone && world.cleanings.iter().any(seen);
        if may_go && !(unknown && rng.chance(500)) {
            log[at] = Slot::Compacted;
        }
    }
    world.cleanings.push((world.ops[op].begin, below));
    world.end(op, if unknown { Outcome::Unknown } else { Outcome::Ok });
}

/// A static member: the life it is in, and what it has.
#[derive(Default)]
struct Static {
    lives: u32,
    generation: i32,
    partitions: Vec<u32>,
}

/// It commits, comes back in time under the same generation, or late under another one; the life before it is refused.
fn static_member(world: &mut World, rng: &mut Rng, member: &mut Static) {
    let (group, instance) = STATIC;
    let commit = |world: &mut World, life: u32, outcome| {
        let op = world.begin(INSTANCE + life, Action::InstanceCommit { group, instance });
        world.end(op, outcome);
    };
    if member.lives > 0 && rng.chance(600) {
        return commit(world, member.lives, Outcome::Ok);
    }
    let in_time = member.lives > 0 && rng.chance(500);
    if !in_time {
        member.generation += 1;
        member.partitions = all().into_iter().filter(|_| rng.chance(500)).collect();
    }
    member.lives += 1;
    let joined = world.begin(
        INSTANCE + member.lives,
        Action::Joined(Joined {
            group,
            instance,
            generation: member.generation,
            partitions: member.partitions.clone(),
            in_time,
        }),
    );
    world.end(joined, Outcome::Ok);
    if member.lives > 1 && rng.chance(500) {
        commit(world, member.lives - 1, Outcome::Unknown);
    }
}

fn all() -> Vec<u32> {
    (0..u32::try_from(PARTITIONS).unwrap()).collect()
}

/// A history that has no anomaly.
pub fn history(seed: u64) -> History {
    let (mut world, mut rng) = (World::default(), Rng::new(seed));
    let mut producers = [Plain::Idle, Plain::Idle, Plain::Idle];
    let mut open = None;
    let mut member = Static::default();
    for _ in 0..STEPS {
        if rng.chance(15) {
            delete(&mut world, &mut rng);
        }
        if rng.chance(150) {
            send_keyed(&mut world, &mut rng);
        }
        if rng.chance(25) {
            clean(&mut world, &mut rng);
        }
        if rng.chance(30) {
            static_member(&mut world, &mut rng, &mut member);
        }
        match rng.below(12) {
            0..5 => {
                let which = rng.below(producers.len());
                let state = std::mem::replace(&mut producers[which], Plain::Idle);
                producers[which] = plain(&mut world, &mut rng, u32::try_from(which).unwrap(), state);
            }
            5..8 => open = transactional(&mut world, &mut rng, open),
            8 | 9 => {
                let (process, isolation) = READERS[rng.below(2)];
                if rng.chance(60) {
                    let partition = rng.below(PARTITIONS);
                    let to = rng.below(world.logs[partition].len() + 1);
                    let moved = u32::try_from(partition).unwrap();
                    world.positions.insert((process, moved), to);
                    let op = world.begin(process, Action::Moved(vec![(moved, Some(offset(to)))]));
                    world.end(op, Outcome::Ok);
                }
                world.poll(process, isolation, None, &all(), 1 + rng.below(5));
            }
            10 => {
                world.poll(MEMBER, IsolationLevel::ReadCommitted, Some(0), &all(), 1 + rng.below(4));
                look_up(&mut world, 0, MEMBER, &all());
            }
            _ => copy(&mut world, &mut rng),
        }
    }
    for (process, state) in (0..).zip(producers) {
        let mut state = state;
        while !matches!(state, Plain::Idle) {
            state = plain(&mut world, &mut rng, process, state);
        }
    }
    while open.is_some() {
        open = transactional(&mut world, &mut rng, open);
    }
    for (process, (_, isolation)) in LAST_READERS.into_iter().zip(READERS) {
        let moved = world.begin(
            process,
            Action::Moved(all().into_iter().map(|p| (p, Some(0))).collect()),
        );
        world.end(moved, Outcome::Ok);
        for partition in all() {
            world.positions.insert((process, partition), 0);
        }
        world.poll(process, isolation, None, &all(), usize::MAX);
        let ends = all().into_iter().map(|p| (p, offset(world.logs[p as usize].len())));
        let offsets = ends.collect();
        let reached = world.begin(process, Action::Reached { isolation, offsets });
        world.end(reached, Outcome::Ok);
    }
    History {
        ops: world.ops,
        fetches: world.fetches,
        ..History::default()
    }
}
