//! The machine's clocks, which a test can set ahead, stop and start again; and the clock of a client in the process of such a broker.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::transport::{Clock, SystemClock, Waker};

/// Instead of an offset: the clock is stopped.
const STOPPED: i64 = i64::MIN;

/// The machine's clocks plus an offset, or stopped. Wall clock and monotonic clock move together, and neither goes back by a call.
/// Thread-safe. A reading costs two loads of an atomic number more than one of [`SystemClock`]: the second one shows that the clock was
/// not stopped between the first and the machine's clock.
pub struct SettableClock {
    machine: Arc<dyn Clock>,
    /// What is added to the machine's wall clock, ms; or [`STOPPED`].
    wall_offset_ms: AtomicI64,
    /// What is added to the machine's monotonic clock, ms; or [`STOPPED`].
    monotonic_offset_ms: AtomicI64,
    state: Mutex<State>,
    /// Held by the thread that moves the clock.
    moving: Mutex<()>,
    /// Called after each change; those whose owner is gone are removed.
    watchers: Mutex<Vec<Weak<dyn Fn() + Send + Sync>>>,
}

#[derive(Debug, Default)]
struct State {
    /// [`SettableClock::freeze`] was called last.
    is_frozen: bool,
    /// A [`HeldClock`] exists.
    is_held: bool,
    /// The time, while it is stopped.
    stopped: Option<Stopped>,
}

#[derive(Debug, Clone, Copy)]
struct Stopped {
    wall_ms: i64,
    monotonic_ms: i64,
}

impl Default for SettableClock {
    fn default() -> Self {
        Self::over(Arc::new(SystemClock::default()))
    }
}

impl std::fmt::Debug for SettableClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SettableClock")
            .field("state", &*lock(&self.state))
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SettableClock {
    /// A clock that runs as `machine` does until it is set.
    pub fn over(machine: Arc<dyn Clock>) -> Self {
        Self {
            machine,
            wall_offset_ms: AtomicI64::new(0),
            monotonic_offset_ms: AtomicI64::new(0),
            state: Mutex::default(),
            moving: Mutex::default(),
            watchers: Mutex::default(),
        }
    }

    /// Stops the clock. Does nothing if it is frozen.
    pub fn freeze(&self) {
        {
            let mut state = lock(&self.state);
            state.is_frozen = true;
            self.stop(&mut state);
        }
        self.notify();
    }

    /// Lets the clock run again, from the time at which it is. Does nothing if it is not frozen.
    pub fn resume(&self) {
        {
            let mut state = lock(&self.state);
            state.is_frozen = false;
            self.start(&mut state);
        }
        self.notify();
    }

    /// Whether [`SettableClock::freeze`] was called, and [`SettableClock::resume`] not since.
    pub fn is_frozen(&self) -> bool {
        lock(&self.state).is_frozen
    }

    /// Stops the clock for one thread, which moves it; waits for another such thread. When it is dropped, the clock runs again unless it is
    /// frozen.
    pub fn hold(&self) -> HeldClock<'_> {
        let alone = lock(&self.moving);
        let mut state = lock(&self.state);
        state.is_held = true;
        self.stop(&mut state);
        HeldClock {
            clock: self,
            _alone: alone,
        }
    }

    fn stop(&self, state: &mut State) {
        if state.stopped.is_none() {
            // A thread that reads the clock from now on waits for the lock of the state.
            let wall_offset_ms = self.wall_offset_ms.swap(STOPPED, Ordering::SeqCst);
            let monotonic_offset_ms = self.monotonic_offset_ms.swap(STOPPED, Ordering::SeqCst);
            state.stopped = Some(Stopped {
                wall_ms: self.machine.now_ms().saturating_add(wall_offset_ms),
                monotonic_ms: self.machine.monotonic_ms().saturating_add(monotonic_offset_ms),
            });
        }
    }

    fn start(&self, state: &mut State) {
        if !state.is_frozen
            && !state.is_held
            && let Some(at) = state.stopped.take()
        {
            let wall_offset_ms = at.wall_ms.saturating_sub(self.machine.now_ms());
            let monotonic_offset_ms = at.monotonic_ms.saturating_sub(self.machine.monotonic_ms());
            self.wall_offset_ms.store(wall_offset_ms, Ordering::SeqCst);
            self.monotonic_offset_ms.store(monotonic_offset_ms, Ordering::SeqCst);
        }
    }

    fn read(&self, offset: &AtomicI64, machine: impl Fn() -> i64, stopped: impl Fn(Stopped) -> i64) -> i64 {
        loop {
            let offset_ms = offset.load(Ordering::Acquire);
            if offset_ms == STOPPED {
                if let Some(at) = lock(&self.state).stopped {
                    return stopped(at);
                }
                continue;
            }
            let machine_ms = machine();
            if offset.load(Ordering::Acquire) == offset_ms {
                return machine_ms.saturating_add(offset_ms);
            }
        }
    }

    fn notify(&self) {
        let mut watchers = lock(&self.watchers);
        watchers.retain(|watcher| watcher.upgrade().inspect(|notify| notify()).is_some());
    }
}

impl Clock for SettableClock {
    fn now_ms(&self) -> i64 {
        self.read(&self.wall_offset_ms, || self.machine.now_ms(), |at| at.wall_ms)
    }
    fn monotonic_ms(&self) -> i64 {
        let machine = || self.machine.monotonic_ms();
        self.read(&self.monotonic_offset_ms, machine, |at| at.monotonic_ms)
    }
    fn machine_ms(&self) -> i64 {
        self.machine.monotonic_ms()
    }
    fn until(&self, deadline_ms: i64) -> Option<Duration> {
        let is_stopped = self.monotonic_offset_ms.load(Ordering::Acquire) == STOPPED;
        let left_ms = deadline_ms.saturating_sub(self.monotonic_ms());
        (!is_stopped || left_ms <= 0).then(|| Duration::from_millis(u64::try_from(left_ms).unwrap_or(0)))
    }
    fn watch(&self, notify: &Waker) {
        lock(&self.watchers).push(Arc::downgrade(notify));
    }
    fn settable(&self) -> Option<&SettableClock> {
        Some(self)
    }
}

/// A [`SettableClock`] that one thread has stopped to move it.
#[derive(Debug)]
pub struct HeldClock<'a> {
    clock: &'a SettableClock,
    _alone: MutexGuard<'a, ()>,
}

impl HeldClock<'_> {
    /// Moves the clock ahead, `ms` is not negative. The watchers are called when the clock is let go.
    pub fn step(&self, ms: i64) {
        if let Some(at) = &mut lock(&self.clock.state).stopped {
            at.wall_ms = at.wall_ms.saturating_add(ms.max(0));
            at.monotonic_ms = at.monotonic_ms.saturating_add(ms.max(0));
        }
    }
}

impl Drop for HeldClock<'_> {
    fn drop(&mut self) {
        {
            let mut state = lock(&self.clock.state);
            state.is_held = false;
            self.clock.start(&mut state);
        }
        self.clock.notify();
    }
}

/// The clock of a client in the broker's process. Its time-outs are on the machine's clock, as those of any client, so no call of it hangs
/// because the broker's clock is frozen; the wall clock, which is in the records that it writes, is the broker's.
pub struct ClientClock {
    broker: Arc<dyn Clock>,
}

impl ClientClock {
    /// For a client of the broker with this clock.
    pub fn new(broker: Arc<dyn Clock>) -> Self {
        Self { broker }
    }
}

impl Clock for ClientClock {
    fn now_ms(&self) -> i64 {
        self.broker.now_ms()
    }
    fn monotonic_ms(&self) -> i64 {
        self.broker.machine_ms()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    use super::*;

    #[test]
    fn both_clocks_move_by_what_they_are_set_ahead_and_stop() {
        let clock = SettableClock::default();
        clock.freeze();
        let (wall_ms, monotonic_ms) = (clock.now_ms(), clock.monotonic_ms());
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!((clock.now_ms(), clock.monotonic_ms()), (wall_ms, monotonic_ms));
        assert!(clock.machine_ms() >= monotonic_ms + 5);
        clock.hold().step(45_000);
        clock.hold().step(-1);
        let ahead = (wall_ms + 45_000, monotonic_ms + 45_000);
        assert_eq!((clock.now_ms(), clock.monotonic_ms()), ahead);
        assert!(clock.is_frozen());
        clock.resume();
        let since = (clock.now_ms() - ahead.0, clock.monotonic_ms() - ahead.1);
        assert!(
            (0..1000).contains(&since.0) && (0..1000).contains(&since.1),
            "{since:?}"
        );
        assert!(!clock.is_frozen());
    }

    #[test]
    fn a_clock_that_is_held_runs_on_only_when_it_is_let_go_and_not_frozen() {
        let clock = SettableClock::default();
        let held = clock.hold();
        let at_ms = clock.monotonic_ms();
        clock.freeze();
        clock.resume();
        assert_eq!(clock.until(at_ms + 1), None);
        assert_eq!(clock.until(at_ms), Some(Duration::ZERO));
        held.step(10);
        clock.freeze();
        drop(held);
        assert_eq!(clock.monotonic_ms(), at_ms + 10);
        assert_eq!(clock.until(at_ms + 11), None);
        clock.resume();
        assert!(
            clock
                .until(at_ms + 60_000)
                .is_some_and(|left| left <= Duration::from_secs(60))
        );
    }

    #[test]
    fn no_thread_sees_a_clock_go_back_while_others_set_it() {
        let clock = SettableClock::default();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = (0, 0);
                    while !over.load(Ordering::Relaxed) {
                        let now = (clock.now_ms(), clock.monotonic_ms());
                        assert!(now.0 >= last.0 && now.1 >= last.1, "{now:?} after {last:?}");
                        last = now;
                    }
                });
            }
            for round in 0..2000 {
                clock.freeze();
                clock.hold().step(round % 3);
                clock.resume();
            }
            over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_watcher_is_called_after_each_change_while_it_has_an_owner() {
        let clock = SettableClock::default();
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let watcher: Waker = Arc::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        clock.watch(&watcher);
        clock.freeze();
        clock.hold().step(1);
        clock.resume();
        assert_eq!(calls.load(Ordering::Relaxed), 3);
        drop(watcher);
        clock.freeze();
        assert_eq!(calls.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_client_has_the_brokers_wall_clock_and_its_own_time_outs() {
        let broker = Arc::new(SettableClock::default());
        let client = ClientClock::new(Arc::clone(&broker) as Arc<dyn Clock>);
        broker.freeze();
        broker.hold().step(3_600_000);
        assert_eq!(client.now_ms(), broker.now_ms());
        let before_ms = client.monotonic_ms();
        std::thread::sleep(Duration::from_millis(3));
        assert!((before_ms + 3..before_ms + 60_000).contains(&client.monotonic_ms()));
    }
}
