//! Compaction through the broker: which logs are due, how far they are clean, and the thread that may do it in the
//! background (spec 4.3). Kafka: `LogCleaner`, `LogCleanerManager`.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fletchlog_api::transport::Waker;
use fletchlog_api::{Clock, ErrorCode};
use fletchlog_log::{Cleanable, CleanerOptions, CleanerStats, LogError, PartitionLog};
use fletchlog_records::TopicPartition;

use super::{Changed, LogManager};
use crate::BrokerError;
use crate::each_log::EachLog;
use crate::panics::{contained, failing, place};
use crate::partition::Partition;
use crate::sync::{Mutex as RankedMutex, Rank, lock};

/// What cleaning did to one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanedPartition {
    /// Partition.
    pub partition: i32,
    /// Number of rounds; 0: the log was not due.
    pub rounds: u32,
    /// Sums of all rounds; the offsets are those of the first and the last.
    pub stats: CleanerStats,
}

impl CleanedPartition {
    fn add(&mut self, round: &CleanerStats) {
        let sum = &mut self.stats;
        if self.rounds == 0 {
            sum.first_dirty_offset = round.first_dirty_offset;
            sum.segments_read = round.segments_read;
        }
        self.rounds += 1;
        sum.end_offset = round.end_offset;
        sum.segments_written = round.segments_written;
        sum.messages_read += round.messages_read;
        sum.messages_written += round.messages_written;
        sum.bytes_read += round.bytes_read;
        sum.bytes_written += round.bytes_written;
        sum.invalid_messages += round.invalid_messages;
    }
}

impl LogManager {
    /// `clean_topic`.
    ///
    /// # Errors
    /// The first failure of a partition, after all others were cleaned.
    pub(crate) fn clean(
        &self,
        name: &str,
        force: bool,
        cancelled: &mut dyn FnMut() -> bool,
        changed: Changed<'_>,
    ) -> Result<Vec<CleanedPartition>, BrokerError> {
        self.for_writing("clean topics")?;
        let topic = self.table().get(name).cloned();
        let topic = topic.ok_or_else(|| BrokerError::unknown_topic(name))?;
        let mut cleaned = Vec::new();
        let mut cleaning = EachLog::new("cleaning failed");
        for partition in &topic.partitions {
            if !partition.config().log.cleanup_compact {
                return Err(BrokerError::kafka(
                    ErrorCode::POLICY_VIOLATION,
                    format!("topic {name} is not compacted: its cleanup.policy lacks `compact`"),
                ));
            }
            let mut clean = || {
                if partition.opened_log().is_none() && !partition.has_log(&self.directory)? {
                    return Ok(None);
                }
                self.clean_partition(partition, force, cancelled, changed).map(Some)
            };
            let done = match self.ignore_if_deleted(partition, clean()) {
                Ok(None) => return Err(BrokerError::unknown_topic(name)),
                Err(BrokerError::Log(error @ LogError::Cancelled { .. })) => return Err(error.into()),
                done => done.map(Option::flatten),
            };
            if let Some(Some(done)) = cleaning.note(partition, done) {
                cleaned.push(done);
                partition.set_uncleanable(false);
            }
        }
        cleaning.outcome().map(|()| cleaned)
    }

    /// Cleans in rounds until the log is no longer due; with `force` up to the log end, due or not. A panic is a failure of this log
    /// only.
    fn clean_partition(
        &self,
        partition: &Partition,
        force: bool,
        cancelled: &mut dyn FnMut() -> bool,
        changed: Changed<'_>,
    ) -> Result<CleanedPartition, BrokerError> {
        failing(format_args!("cleaning {}", partition.tp()), || {
            self.clean_rounds(partition, force, cancelled, changed)
        })
    }

    fn clean_rounds(
        &self,
        partition: &Partition,
        force: bool,
        cancelled: &mut dyn FnMut() -> bool,
        changed: Changed<'_>,
    ) -> Result<CleanedPartition, BrokerError> {
        let _one_at_a_time = self.cleaning.lock();
        let log = self.log_of(partition)?;
        if force {
            log.roll(self.clock.now_ms())?;
            changed(partition);
        }
        let mut done = CleanedPartition {
            partition: partition.tp().partition,
            rounds: 0,
            stats: CleanerStats::default(),
        };
        loop {
            let cleanable = self.cleanable(partition, log)?;
            let dirty = cleanable.first_dirty_offset < cleanable.first_uncleanable_offset;
            // If forced, a clean log also gets one round: tombstones may have reached their age.
            let due = if force {
                dirty || done.rounds == 0
            } else {
                cleanable.is_due()
            };
            if !due {
                return Ok(done);
            }
            let round = self.clean_once(partition, log, &cleanable, cancelled)?;
            done.add(&round);
            if round.end_offset <= cleanable.first_dirty_offset {
                return Ok(done);
            }
        }
    }

    fn cleanable(&self, partition: &Partition, log: &PartitionLog) -> Result<Cleanable, BrokerError> {
        let dir = &self.directory.log_dirs()[partition.node_index()];
        let known = dir.clean_offsets(&**self.directory.fs())?.get(partition.tp()).copied();
        Ok(log.cleanable(known, self.clock.now_ms())?)
    }

    fn clean_once(
        &self,
        partition: &Partition,
        log: &PartitionLog,
        cleanable: &Cleanable,
        cancelled: &mut dyn FnMut() -> bool,
    ) -> Result<CleanerStats, BrokerError> {
        place(|| format!("cleaning {}", partition.tp()));
        let configs = self.configs();
        let config = configs.of(partition.leader());
        let options = CleanerOptions {
            dedupe_buffer_bytes: usize::try_from(config.long("log.cleaner.dedupe.buffer.size")).unwrap_or(usize::MAX),
        };
        let stats = log.clean(cleanable, &options, self.clock.now_ms(), cancelled)?;
        // A deletion either writes checkpoints after this or is seen here: a new topic with the name of a deleted one begins as not
        // cleaned.
        let _one_at_a_time = self.checkpointing.lock();
        if self.table().holds(partition) {
            let known = self.partitions();
            self.directory.log_dirs()[partition.node_index()].store_clean_offset(
                &**self.directory.fs(),
                partition.tp(),
                stats.end_offset,
                |tp| known.contains(tp),
            )?;
        }
        Ok(stats)
    }

    /// One step of the background cleaner (log.cleaner.enable): applies retention if it is due, then cleans the due log with the
    /// largest share of dirty bytes. `None`: no log is due, or its cleaning was interrupted.
    ///
    /// # Errors
    /// `ReadOnly`; or a log cannot be examined or cleaned. That log is skipped from then on, so that it does not block the others,
    /// until `clean_topic` has cleaned it or the broker is reopened.
    ///
    /// Kafka: `CleanerThread#tryCleanFilthiestLog`, `LogCleanerManager#grabFilthiestCompactedLog`.
    pub(crate) fn clean_filthiest(
        &self,
        cancelled: &mut dyn FnMut() -> bool,
        changed: Changed<'_>,
    ) -> Result<Option<(TopicPartition, CleanedPartition)>, BrokerError> {
        self.for_writing("clean topics")?;
        self.maybe_cleanup_logs(self.clock.now_ms(), changed);
        let Some(partition) = self.filthiest()? else {
            return Ok(None);
        };
        let cleaned = self.clean_partition(&partition, false, cancelled, changed);
        match self.ignore_if_deleted(&partition, cleaned) {
            Ok(done) => Ok(done
                .filter(|done| done.rounds > 0)
                .map(|done| (partition.tp().clone(), done))),
            // The segments were deleted by retention, or the broker is closing: this is not a failure of the log.
            Err(BrokerError::Log(LogError::Replaced { .. } | LogError::Cancelled { .. })) => Ok(None),
            Err(error) => {
                partition.set_uncleanable(true);
                Err(error)
            }
        }
    }

    /// Of the logs that are due, the one with the largest share of dirty bytes.
    fn filthiest(&self) -> Result<Option<Arc<Partition>>, BrokerError> {
        let topics = self.topics();
        let mut looking = EachLog::new("cannot be looked at, clean_topic() tries again");
        let mut filthiest: Option<(f64, &Arc<Partition>)> = None;
        for partition in topics.iter().flat_map(|topic| &topic.partitions) {
            if !partition.config().log.cleanup_compact || partition.is_uncleanable() {
                continue;
            }
            let due = failing(format_args!("looking at {} for the cleaner", partition.tp()), || {
                self.due(partition)
            });
            let due = self.ignore_if_deleted(partition, due);
            let due = due.inspect_err(|_| partition.set_uncleanable(true));
            let Some(ratio) = looking.note(partition, due).flatten().flatten() else {
                continue;
            };
            if filthiest.is_none_or(|(most, _)| ratio > most) {
                filthiest = Some((ratio, partition));
            }
        }
        looking.outcome()?;
        Ok(filthiest.map(|(_, partition)| partition.clone()))
    }

    /// The share of dirty bytes of a log; `None`: it is not due.
    fn due(&self, partition: &Partition) -> Result<Option<f64>, BrokerError> {
        place(|| format!("looking at {}", partition.tp()));
        if partition.opened_log().is_none() && !partition.has_log(&self.directory)? {
            return Ok(None);
        }
        let cleanable = self.cleanable(partition, self.log_of(partition)?)?;
        Ok(cleanable.is_due().then(|| cleanable.ratio()))
    }
}

/// What the cleaner does in one step: see [`LogManager::clean_filthiest`].
type Clean = dyn Fn() -> Result<Option<(TopicPartition, CleanedPartition)>, BrokerError> + Send + Sync;

/// The background cleaner thread (log.cleaner.enable). Dropping this lets the thread end; [`CleanerThread::stop`] also waits for
/// that.
pub(crate) struct CleanerThread {
    schedule: Arc<Schedule>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// What the clock calls after a change, as long as this exists.
    _clock_changed: Waker,
}

/// When the cleaner works, and its work.
struct Schedule {
    clock: Arc<dyn Clock>,
    pause: Box<dyn Fn() -> Duration + Send + Sync>,
    clean: Box<Clean>,
    /// When it works next, on the monotonic clock.
    next_ms: AtomicI64,
    /// Held while it works: by its thread, or by one that sets the clock ahead.
    working: RankedMutex<()>,
    sleep: Mutex<Sleep>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Sleep {
    is_stopped: bool,
    /// Changes of the clock.
    changes: u64,
}

impl Schedule {
    /// Sleeps until the cleaner is to work; false: the thread is to end.
    fn sleep(&self) -> bool {
        let mut sleep = lock(&self.sleep);
        while !sleep.is_stopped {
            let seen = sleep.changes;
            let left = self.clock.until(self.next_ms.load(Ordering::SeqCst));
            let unchanged = |sleep: &mut Sleep| !sleep.is_stopped && sleep.changes == seen;
            sleep = if let Some(left) = left {
                let waited = self.changed.wait_timeout_while(sleep, left, unchanged);
                let (sleep, waited) = waited.unwrap_or_else(PoisonError::into_inner);
                // The time slept counts, so that it also works with a clock (a simulation's) that does not move.
                if waited.timed_out() {
                    return !sleep.is_stopped;
                }
                sleep
            } else {
                let waited = self.changed.wait_while(sleep, unchanged);
                waited.unwrap_or_else(PoisonError::into_inner)
            };
        }
        false
    }

    /// Cleans all logs that are due. False: the broker is closed or dropped.
    fn work(&self) -> bool {
        let goes_on = work(&*self.clean);
        let pause_ms = i64::try_from((self.pause)().as_millis()).unwrap_or(i64::MAX);
        let next_ms = self.clock.monotonic_ms().saturating_add(pause_ms);
        self.next_ms.store(next_ms, Ordering::SeqCst);
        goes_on
    }

    fn change(&self, change: impl FnOnce(&mut Sleep)) {
        change(&mut lock(&self.sleep));
        self.changed.notify_all();
    }
}

impl CleanerThread {
    /// Starts it. `clean` cleans a log that is due; it holds a reference to the broker only while it works, so that the thread does
    /// not keep a dropped broker open. `pause` is the time between two works, on this clock.
    pub(crate) fn start(
        clock: Arc<dyn Clock>,
        pause: impl Fn() -> Duration + Send + Sync + 'static,
        clean: impl Fn() -> Result<Option<(TopicPartition, CleanedPartition)>, BrokerError> + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let pause_ms = i64::try_from(pause().as_millis()).unwrap_or(i64::MAX);
        let schedule = Arc::new(Schedule {
            next_ms: AtomicI64::new(clock.monotonic_ms().saturating_add(pause_ms)),
            clock,
            pause: Box::new(pause),
            clean: Box::new(clean),
            working: RankedMutex::new(Rank::CleanerThread, ()),
            sleep: Mutex::default(),
            changed: Condvar::new(),
        });
        let weak = Arc::downgrade(&schedule);
        let clock_changed: Waker = Arc::new(move || {
            if let Some(schedule) = weak.upgrade() {
                schedule.change(|sleep| sleep.changes += 1);
            }
        });
        schedule.clock.watch(&clock_changed);
        let shared = Arc::clone(&schedule);
        let run = move || {
            while shared.sleep() {
                let _working = shared.working.lock();
                if !shared.work() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("fletchlog-cleaner".to_owned())
            .spawn(run)?;
        Ok(Self {
            schedule,
            thread: Mutex::new(Some(thread)),
            _clock_changed: clock_changed,
        })
    }

    /// When it works next, on the monotonic clock.
    pub(crate) fn next_ms(&self) -> i64 {
        self.schedule.next_ms.load(Ordering::SeqCst)
    }

    /// Does its work in this thread if the time has come, and waits if its own thread does it.
    pub(crate) fn work_if_due(&self) {
        let _working = self.schedule.working.lock();
        if self.schedule.clock.monotonic_ms() >= self.next_ms() {
            self.schedule.work();
        }
    }

    /// Ends the thread and waits until it has ended.
    pub(crate) fn stop(&self) {
        self.schedule.change(|sleep| sleep.is_stopped = true);
        if let Some(thread) = lock(&self.thread).take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Drop for CleanerThread {
    fn drop(&mut self) {
        self.schedule.change(|sleep| sleep.is_stopped = true);
    }
}

/// Cleans all logs that are due. False: the broker is closed or dropped.
fn work(clean: &Clean) -> bool {
    loop {
        match contained("the cleaner's work", clean) {
            Some(Ok(Some(_))) => {}
            Some(Ok(None)) | None => return true,
            Some(Err(BrokerError::Closed)) => return false,
            Some(Err(error)) => {
                log::error!("cleaning failed, clean_topic() tries again: {error}");
                return true;
            }
        }
    }
}
