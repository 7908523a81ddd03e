//! The whole simulation from a seed: the real broker and the real clients on a simulated disk, network and clock, with faults, and the
//! history that the clients saw.
//!
//! Every run of a seed is the same. Client processes are threads that take turns ([`scheduler`]): which one runs next depends only on
//! virtual time. A crash reopens an image of the disk.

mod admin;
mod cleaner;
mod closing;
mod cluster;
mod consumers;
mod copier;
mod cuts;
mod events;
mod group_members;
mod group_watch;
mod members;
mod memory;
mod nemesis;
mod network;
mod plan;
mod port;
mod producers;
mod quiet_group;
mod recorder;
mod scheduler;
mod share_end;
mod share_members;
mod share_tap;
mod sockets;
mod whole_clean;
mod world;

use std::any::Any;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use fletchlog_api::{IsolationLevel, SettableClock};
use fletchlog_broker::panics::CONTAINED;

use crate::checker::{self, Anomaly};
use crate::history::{Fetch, History};
use crate::rng::Rng;
use crate::sim_disk::Lie;
use cluster::Cluster;
use fletchlog_testing::VirtualClock;
use network::{Net, lock};
use plan::Plan;
use recorder::Moment;
use scheduler::{Scheduler, Stopped};
use share_tap::{ShareTap, tap};
use world::{Hand, World};

/// The wall clock at the beginning of a run, ms since the epoch.
const START_MS: i64 = 1_700_000_000_000;
/// Stack size of a thread in bytes: a run has about ten threads.
const STACK: usize = 1 << 20;

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// The operations that clients saw.
    pub history: History,
    /// Anomalies that Kafka does not allow.
    pub anomalies: Vec<Anomaly>,
    /// Anomalies that were found, but that Kafka allows in this run, with the reason.
    pub allowed: Vec<(Anomaly, &'static str)>,
    /// Errors that no client should have seen, panics, and calls that never ended.
    pub surprises: Vec<String>,
    /// Requests that reached the broker.
    pub requests: u64,
    /// The plan of the run, in words.
    pub plan: String,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.anomalies.is_empty() && self.surprises.is_empty()
    }

    /// A readable text of everything that is wrong, with the operations that show it.
    pub fn explain(&self) -> String {
        /// Most anomalies that the text shows.
        const MOST: usize = 5;
        let mut text = format!(
            "seed {}: {} anomalies\n{}\n",
            self.seed,
            self.anomalies.len(),
            self.plan
        );
        for surprise in self.surprises.iter().take(MOST) {
            text.push_str(&format!("unexpected: {surprise}\n"));
        }
        for anomaly in self.anomalies.iter().take(MOST) {
            text.push_str(&anomaly.explain(&self.history));
        }
        text
    }
}

type Part = Box<dyn FnOnce(&mut Hand) + Send>;

/// The actors of a run, except for the thread that closes it.
fn parts(plan: &Plan) -> Vec<Part> {
    let mut parts: Vec<Part> = vec![Box::new(nemesis::run)];
    for index in 0..plan.producers.len() {
        parts.push(Box::new(move |hand| producers::plain(hand, index)));
    }
    for index in 0..plan.transactional {
        parts.push(Box::new(move |hand| producers::transactional(hand, index)));
    }
    let isolations = [IsolationLevel::ReadUncommitted, IsolationLevel::ReadCommitted];
    for isolation in isolations.into_iter().take(plan.manual) {
        parts.push(Box::new(move |hand| consumers::manual(hand, isolation)));
    }
    for index in 0..plan.group.map_or(0, |group| group.members) {
        parts.push(Box::new(move |hand| group_members::member(hand, index)));
    }
    if plan.uses_consumer_protocol() {
        parts.push(Box::new(group_watch::run));
    }
    for index in 0..plan.share.map_or(0, |share| share.members) {
        parts.push(Box::new(move |hand| share_members::member(hand, index)));
    }
    if plan.copier {
        parts.push(Box::new(copier::run));
    }
    if plan.copier || plan.group.is_some() {
        parts.push(Box::new(|hand| consumers::looker(hand, false)));
    }
    if plan.delete_every_ms > 0 {
        parts.push(Box::new(admin::delete));
    }
    if plan.retention_every_ms > 0 {
        parts.push(Box::new(admin::retain));
    }
    if plan.compaction.is_some() {
        parts.push(Box::new(cleaner::run));
    }
    parts
}

/// The connection between clients and broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Between {
    /// Calls in the same process; requests and responses are values.
    Calls,
    /// Sockets, with the production code at both ends; requests and responses are bytes.
    Sockets,
}

impl Between {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Calls, Self::Sockets];

    /// Its name in commands.
    pub fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Sockets => "sockets",
        }
    }
}

/// Runs a seed and checks its history.
pub fn run(seed: u64, between: Between) -> Report {
    run_plan(Plan::of(seed, between == Between::Sockets), None)
}

/// Runs a seed on a disk that breaks a promise, to prove that a run notices.
pub fn run_on(seed: u64, lie: Option<Lie>) -> Report {
    run_plan(Plan::of(seed, false), lie)
}

fn run_plan(plan: Plan, lie: Option<Lie>) -> Report {
    let seed = plan.seed;
    let rng = &mut Rng::new(seed ^ 0x5EED);
    let clock = VirtualClock::at(START_MS);
    let moment = Moment::default();
    let mut parts = parts(&plan);
    if plan.sockets {
        parts.push(Box::new(sockets::serve));
    }
    let scheduler = Arc::new(Scheduler::new(parts.len() + 1, clock.clone()));
    let ahead = Arc::new(SettableClock::over(clock));
    let shares = ShareTap::new(ahead.clone());
    let net = Net::new(scheduler.clone(), rng.fork(), &plan, moment.clone(), shares);
    let cluster = Cluster::new(&plan, &ahead, &net, lie);
    let world = Arc::new(World::new(plan, ahead, scheduler.clone(), net, cluster, moment));
    let threads: Vec<JoinHandle<()>> = parts
        .into_iter()
        .enumerate()
        .map(|(number, part)| start(&world, number + 1, rng.fork(), part))
        .collect();
    let main = Hand {
        world: world.clone(),
        me: 0,
        rng: rng.fork(),
    };
    guarded(&world, main, |hand| {
        close(hand);
        hand.world.end();
    });
    if world.plan.sockets {
        world.scheduler.finish(0);
    }
    for thread in threads {
        // Its panic was caught and reported.
        let _ = thread.join();
    }
    report(&world)
}

/// Starts an actor's thread, which begins with its first turn.
fn start(world: &Arc<World>, me: usize, rng: Rng, part: Part) -> JoinHandle<()> {
    world.scheduler.begin(me);
    let hand = Hand {
        world: world.clone(),
        me,
        rng,
    };
    let body = move || {
        let world = hand.world.clone();
        guarded(&world, hand, |hand| {
            hand.world.scheduler.first_turn(me);
            part(hand);
            *hand.world.done() += 1;
        });
        world.scheduler.finish(me);
    };
    let thread = thread::Builder::new().stack_size(STACK).spawn(body);
    thread.unwrap_or_else(|e| panic!("a thread cannot be started: {e}"))
}

/// Runs an actor, whose panic ends the run. A panic of a broker does not, but is reported.
fn guarded(world: &World, mut hand: Hand, part: impl FnOnce(&mut Hand)) {
    // The thread that closes a run may have closed others before.
    CONTAINED.set(0);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| part(&mut hand)));
    match CONTAINED.get() {
        0 => {}
        contained => world.surprises().push(format!(
            "{contained} panics of a broker, whose texts are lines of the log"
        )),
    }
    if let Err(payload) = caught {
        if !payload.is::<Stopped>() {
            world.surprises().push(format!("panic: {}", text_of(&*payload)));
        }
        world.scheduler.stop();
    }
}

fn text_of(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("of an unknown kind")
}

/// Waits for all actors, then closes the run.
fn close(hand: &mut Hand) {
    /// Longer than the slowest call after the faults.
    const PATIENCE_MS: i64 = 600_000;
    let actors = parts(&hand.world.plan).len();
    let until = hand.world.chaos_ends_ms() + PATIENCE_MS;
    while *hand.world.done() < actors {
        if hand.now() > until {
            let done = *hand.world.done();
            panic!("{} of {actors} actors come to no end", actors - done);
        }
        hand.sleep(100);
    }
    closing::run(hand);
}

fn report(world: &World) -> Report {
    let mut history = world.recorder().history();
    let mut surprises = std::mem::take(&mut *world.surprises());
    let (forgotten, rewritten, late, wrongly_forgotten, requests) = {
        let net = &mut *lock(&world.net);
        net.listener_ended();
        let wrongly = std::mem::take(&mut net.memory.wrongly_forgotten);
        surprises.append(&mut net.pipes.unanswered);
        let fetches = net.fetches.iter().map(|(process, tp, arrived, offsets)| Fetch {
            process: *process,
            partition: world.number(tp),
            arrived: *arrived,
            offsets: *offsets,
        });
        history.fetches = fetches.collect();
        history.shares = std::mem::take(&mut net.share_end);
        history.shares.group = world.plan.share_group();
        history.shares.events = std::mem::take(&mut tap(&net.shares).events);
        let (memory, pipes) = (&net.memory, &net.pipes);
        let requests = net.requests + pipes.requests;
        (
            memory.forgotten,
            memory.rewritten,
            pipes.late.clone(),
            wrongly,
            requests,
        )
    };
    if !world.plan.loses_acknowledged() {
        surprises.extend(wrongly_forgotten);
    }
    let rules = world.plan.allowed(forgotten, rewritten, &late);
    let mut anomalies = Vec::new();
    let mut allowed = Vec::new();
    for anomaly in checker::check(&history) {
        match rules.iter().find(|(class, _)| *class == anomaly.class) {
            Some((_, why)) => allowed.push((anomaly, *why)),
            None => anomalies.push(anomaly),
        }
    }
    Report {
        seed: world.plan.seed,
        history,
        anomalies,
        allowed,
        surprises,
        requests,
        plan: format!("{:?}", world.plan),
    }
}

#[cfg(test)]
mod tests {
    use fletchlog_broker::panics::PLANTED;

    use super::*;

    #[test]
    fn a_panic_of_a_broker_is_reported_for_its_own_run_alone() {
        let run = || super::run(1, Between::Sockets).surprises;
        PLANTED.lock().unwrap().insert("timers".to_owned(), 1);
        assert_eq!(run(), ["1 panics of a broker, whose texts are lines of the log"]);
        assert_eq!(run(), [""; 0]);
        // A panic of another user of this thread is not counted.
        fletchlog_broker::panics::contained("work", || panic!("planted")).unwrap_or(());
        assert_eq!(run(), [""; 0]);
    }
}
