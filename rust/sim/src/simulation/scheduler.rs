//! Threads that take turns: one runs at a time, and virtual time passes only when all wait. Which one is next depends only on the times
//! that they wait for, so a seed gives the same run every time.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use fletchlog_api::Clock;

use fletchlog_testing::VirtualClock;

/// Number of a thread.
pub(super) type ActorId = usize;

type Event = Box<dyn FnOnce() + Send>;

enum Wake {
    /// Ends the actor's wait that has this number.
    Actor(ActorId, u64),
    Event(Event),
}

/// The payload with which threads unwind when a simulation ends early.
pub(super) struct Stopped;

#[derive(Default)]
struct State {
    /// Planned wake-ups by (time, number); those of one time are in the order in which they were planned.
    queue: BTreeMap<(i64, u64), Wake>,
    planned: u64,
    running: ActorId,
    /// Number of waits so far, for each actor.
    waits: Vec<u64>,
    /// Whether an arriving message ends the wait, for each actor.
    listening: Vec<bool>,
    stopped: bool,
    steps: u64,
}

pub(super) struct Scheduler {
    state: Mutex<State>,
    turns: Vec<Condvar>,
    clock: Arc<VirtualClock>,
}

/// More steps than any run needs: a run that reaches it has clients that send without end.
const MOST_STEPS: u64 = 3_000_000;

impl Scheduler {
    /// A scheduler for a number of actors; the first one runs.
    pub fn new(actors: usize, clock: Arc<VirtualClock>) -> Self {
        let state = State {
            waits: vec![0; actors],
            listening: vec![false; actors],
            ..State::default()
        };
        Self {
            state: Mutex::new(state),
            turns: (0..actors).map(|_| Condvar::new()).collect(),
            clock,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn now(&self) -> i64 {
        self.clock.monotonic_ms()
    }

    /// Plans an event, which a thread that waits at that time will run.
    pub fn plan(&self, at_ms: i64, event: Event) {
        let mut state = self.lock();
        state.add(at_ms.max(self.now()), Wake::Event(event));
    }

    /// Lets an actor begin now.
    pub fn begin(&self, actor: ActorId) {
        let mut state = self.lock();
        let wait = state.waits[actor];
        state.add(self.now(), Wake::Actor(actor, wait));
    }

    /// Waits for the first turn of a new actor's thread.
    pub fn first_turn(&self, me: ActorId) {
        self.await_turn(self.lock(), me);
    }

    /// Waits until a time, or, if `listening`, until a message arrives.
    pub fn wait(&self, me: ActorId, until_ms: i64, listening: bool) {
        let mut state = self.lock();
        if state.stopped {
            drop(state);
            std::panic::resume_unwind(Box::new(Stopped));
        }
        state.listening[me] = listening;
        let wait = state.waits[me];
        state.add(until_ms.max(self.now()), Wake::Actor(me, wait));
        if self.next_turn(state, me) != Some(me) {
            self.await_turn(self.lock(), me);
        }
    }

    /// A message arrived for an actor.
    pub fn notify(&self, actor: ActorId) {
        let mut state = self.lock();
        if std::mem::take(&mut state.listening[actor]) {
            let wait = state.waits[actor];
            state.add(self.now(), Wake::Actor(actor, wait));
        }
    }

    /// Ends the actor's thread.
    pub fn finish(&self, me: ActorId) {
        let state = self.lock();
        if !state.stopped {
            self.next_turn(state, me);
        }
    }

    /// Ends the run: every waiting thread unwinds.
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.turns.iter().for_each(Condvar::notify_all);
    }

    fn await_turn(&self, state: MutexGuard<'_, State>, me: ActorId) {
        let waited = self.turns[me].wait_while(state, |s| s.running != me && !s.stopped);
        let stopped = waited.unwrap_or_else(PoisonError::into_inner).stopped;
        if stopped {
            std::panic::resume_unwind(Box::new(Stopped));
        }
    }

    /// Runs planned events until it is an actor's turn, and starts that turn.
    fn next_turn<'a>(&'a self, mut state: MutexGuard<'a, State>, me: ActorId) -> Option<ActorId> {
        loop {
            let Some(((at_ms, _), wake)) = state.queue.pop_first() else {
                return None; // No thread is left to run.
            };
            state.steps += 1;
            assert!(state.steps < MOST_STEPS, "the clients talk without end");
            self.clock.advance(at_ms.saturating_sub(self.now()).max(0));
            match wake {
                Wake::Actor(actor, wait) if state.waits[actor] == wait => {
                    state.waits[actor] += 1;
                    state.listening[actor] = false;
                    state.running = actor;
                    if actor != me {
                        self.turns[actor].notify_one();
                    }
                    return Some(actor);
                }
                Wake::Actor(..) => {}
                Wake::Event(event) => {
                    drop(state);
                    event();
                    state = self.lock();
                }
            }
        }
    }
}

impl State {
    fn add(&mut self, at_ms: i64, wake: Wake) {
        self.queue.insert((at_ms, self.planned), wake);
        self.planned += 1;
    }
}
