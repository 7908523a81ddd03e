//! The right to change a log. A panic in the middle of a change fences the log, so that nothing is added to a half-done
//! change.

use fletchlog_records::planted;
use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;
use std::thread::panicking;

use crate::partition_log::{PartitionLog, Writer};
use crate::sync::lock;

/// Fences the log if a panic unwinds while this is held.
pub(crate) struct FenceOnPanic<'a> {
    log: &'a PartitionLog,
    /// The thread was already panicking: this is dropped because of that panic, not of one in the log.
    was_panicking: bool,
}

impl<'a> FenceOnPanic<'a> {
    pub fn new(log: &'a PartitionLog) -> Self {
        let was_panicking = panicking();
        Self { log, was_panicking }
    }
}

impl Drop for FenceOnPanic<'_> {
    fn drop(&mut self) {
        if panicking() && !self.was_panicking && !planted!("panic-leaves-the-log-open") {
            self.log
                .fence_because("a call panicked while it changed the log".to_owned());
        }
    }
}

/// The right to change the log.
pub(crate) struct WriterGuard<'a> {
    /// First, so that it is dropped before the lock is released.
    _fence: FenceOnPanic<'a>,
    writer: MutexGuard<'a, Writer>,
}

impl PartitionLog {
    pub(crate) fn lock_writer(&self) -> WriterGuard<'_> {
        WriterGuard {
            writer: lock(&self.writer),
            _fence: FenceOnPanic::new(self),
        }
    }
}

impl Deref for WriterGuard<'_> {
    type Target = Writer;

    fn deref(&self) -> &Writer {
        &self.writer
    }
}

impl DerefMut for WriterGuard<'_> {
    fn deref_mut(&mut self) -> &mut Writer {
        &mut self.writer
    }
}
