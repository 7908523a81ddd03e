//! Setting the broker's clock ahead: whatever waits wakes in the order of its deadlines.

use std::time::Duration;

use fletchlog_api::{Clock, ConfigError};
use fletchlog_records::planted;

use super::Broker;
use crate::BrokerError;
use crate::panics::contained;

/// How often [`Broker::advance`] looks again for work that another thread does, or that a lock delays.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// [`Broker::advance`] leaves work alone that was delayed for this many looks: some 10 s.
const MOST_LOOKS: u32 = 10_000;

impl Broker {
    /// Sets the clock ahead by `by_ms` (a negative number: not at all). It goes from deadline to deadline, also to those that arise
    /// meanwhile, and does at each what is due; at last to the target. When it returns, all of that has happened: time-outs of
    /// sessions, joins, fetches and transactions, expiry of offsets, of ids and of producers, retention, cleaning. The clock stands still for all
    /// other threads meanwhile, but for these steps. A second thread waits until the first one has finished.
    ///
    /// `cancelled` is called at each step; the clock then stays at that step.
    ///
    /// # Errors
    /// `Closed`, also if the broker is closed meanwhile; the broker was opened with a clock that cannot be set.
    pub fn advance(&self, by_ms: i64, cancelled: &mut dyn FnMut() -> bool) -> Result<(), BrokerError> {
        let clock = self.clock();
        let Some(settable) = clock.settable() else {
            return Err(ConfigError::Conflict("the clock of this broker cannot be set".to_owned()).into());
        };
        drop(self.enter()?);
        let held = settable.hold();
        let target_ms = clock.monotonic_ms().saturating_add(by_ms.max(0));
        let mut looks = 0;
        self.run_all_due();
        loop {
            if self.is_closed() {
                return Err(BrokerError::Closed);
            }
            if cancelled() {
                return Ok(());
            }
            let seen = self.replicas.changes().version();
            let now_ms = clock.monotonic_ms();
            match self.next_timed_work(&*clock) {
                Some(next_ms) if next_ms > now_ms && next_ms <= target_ms && !planted!("clock-passes-deadlines") => {
                    looks = 0;
                    held.step(next_ms - now_ms);
                }
                Some(next_ms) if next_ms <= now_ms && looks < MOST_LOOKS => {
                    looks += 1;
                    self.replicas.changes().wait(seen, LOOK_AGAIN);
                }
                next => {
                    if next.is_some_and(|next_ms| next_ms <= now_ms) {
                        log::warn!("the clock is set ahead although timed work is held up by a lock");
                    }
                    held.step(target_ms - now_ms);
                    self.run_all_due();
                    self.await_checks();
                    return Ok(());
                }
            }
            self.run_all_due();
            self.await_checks();
        }
    }

    /// When the clock has to stop on its way: the next deadline, or the next check that nothing waits for (monotonic ms).
    fn next_timed_work(&self, clock: &dyn Clock) -> Option<i64> {
        let waiting = self.next_deadline();
        if self.is_read_only() {
            return waiting;
        }
        // A check that is overdue was done by the last step; its time is in the future, or a thread is about to do it.
        let checks = [
            self.groups.next_expiry_check(),
            self.transactions.next_expiry_check(),
            Some(self.share_coordinator.next_check()),
            Some(self.logs.next_check()),
            self.cleaner.get().map(|cleaner| cleaner.next_ms()),
        ];
        let checks = checks
            .into_iter()
            .flatten()
            .filter(|at_ms| *at_ms > clock.monotonic_ms());
        checks.chain(waiting).min()
    }

    /// Does all timed work that is due, also what otherwise other threads do.
    fn run_all_due(&self) {
        self.run_due();
        if self.is_read_only() {
            return;
        }
        if let Ok(_open) = self.enter() {
            let now_ms = self.replicas.clock().now_ms();
            contained("retention", || {
                self.logs
                    .maybe_cleanup_logs(now_ms, &|partition| self.replicas.partition_changed(partition));
            });
        }
        if let Some(cleaner) = self.cleaner.get() {
            cleaner.work_if_due();
        }
    }

    /// Waits until other threads have finished the checks that they have begun.
    fn await_checks(&self) {
        let is_checking = || {
            let is_any = self.groups.is_checking() || self.transactions.is_checking();
            is_any || self.share_coordinator.is_checking() || self.logs.is_checking()
        };
        while is_checking() && !self.is_closed() {
            let seen = self.replicas.changes().version();
            self.replicas.changes().wait(seen, LOOK_AGAIN);
        }
    }
}
