//! How a user's call waits: for the sender's thread or, in a stepped producer, by running turns of the sender.

use std::sync::MutexGuard;
use std::time::Duration;

use fletchlog_api::waiting;

use super::producer::Producer;
use super::shared::{Guarded, Shared};
use crate::ClientError;
use crate::consumer::Interrupt;

/// When a suspended call tries a lock again that another thread holds.
const LOCK_AGAIN: Duration = Duration::from_millis(1);

/// One call that may have to wait.
pub(crate) struct Waiter<'a, 'b> {
    pub shared: &'a Shared,
    pub producer: &'a Producer,
    pub interrupt: Interrupt<'b>,
}

impl<'a> Waiter<'a, '_> {
    /// Runs `attempt` under the lock until it yields a value, waiting for the sender in between, at most `max_ms` in all; `late` is the error
    /// after that.
    pub(crate) fn until<T>(
        &mut self,
        max_ms: i64,
        mut attempt: impl FnMut(&mut Guarded) -> Result<Option<T>, ClientError>,
        late: impl FnOnce(i64) -> ClientError,
    ) -> Result<T, ClientError> {
        let shared = self.shared;
        let start = shared.now();
        loop {
            let seen = {
                let mut guard = self.lock()?;
                if let Some(value) = attempt(&mut guard)? {
                    return Ok(value);
                }
                guard.progress()
            };
            shared.wake_sender();
            let waited = shared.now().saturating_sub(start);
            if waited >= max_ms {
                return Err(late(waited));
            }
            let left = max_ms.saturating_sub(waited);
            self.pause(left, |shared| shared.wait_progress(seen, left))?;
        }
    }

    /// Waits until every batch with a serial below `mark` is decided, or less long, at most `ms`; if they are decided, until anything has
    /// happened since `seen`. Waking the user for each batch costs as much as sending it.
    pub(crate) fn settle(&mut self, mark: u64, seen: u64, ms: i64) -> Result<(), ClientError> {
        self.pause(ms, |shared| shared.wait_decided(mark, seen, ms))
    }

    /// Lets a sender that runs by itself free the memory of many batches, for at most max.block.ms: waking the user for each batch costs more
    /// than the batch itself.
    pub(crate) fn rest(&mut self) -> Result<(), ClientError> {
        if self.producer.is_stepped() {
            return self.check_interrupt();
        }
        self.producer.start()?;
        let waits = self.shared.wait_room(self.shared.config.max_block_ms);
        let outcome = self.check_interrupt();
        if waits {
            self.shared.end_wait_for_room();
        }
        outcome
    }

    /// Lets the sender work: waits for its thread with `wait`, or runs a turn of at most `ms`. An error ends the call.
    fn pause(&mut self, ms: i64, wait: impl FnOnce(&Shared)) -> Result<(), ClientError> {
        if self.producer.is_stepped() {
            self.producer.run_once(ms);
        } else {
            self.producer.start()?;
            wait(self.shared);
        }
        self.check_interrupt()
    }

    /// The lock. A call that must not sleep waits for it as for anything else: the sender may hold it while it asks the system's resolver.
    pub(crate) fn lock(&mut self) -> Result<MutexGuard<'a, Guarded>, ClientError> {
        while waiting::suspends() {
            if let Some(guard) = self.shared.lock_soon() {
                return Ok(guard);
            }
            waiting::wait(LOCK_AGAIN, |_| false);
            self.check_interrupt()?;
        }
        Ok(self.shared.lock())
    }

    fn check_interrupt(&mut self) -> Result<(), ClientError> {
        if (self.interrupt)() {
            Err(ClientError::Interrupted)
        } else {
            Ok(())
        }
    }
}
