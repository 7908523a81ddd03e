//! Compaction through the broker: which logs are due, how far they are clean, and the thread that may do it in the
//! background (spec 4.3). Kafka: `LogCleaner`, `LogCleanerManager`.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fletchlog_api::ErrorCode;
use fletchlog_log::{Cleanable, CleanerOptions, CleanerStats, LogError, PartitionLog};
use fletchlog_records::TopicPartition;

use super::{Changed, LogManager};
use crate::BrokerError;
use crate::each_log::EachLog;
use crate::panics::{contained, failing, place};
use crate::partition::Partition;
use crate::sync::lock;

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

/// The background cleaner thread (log.cleaner.enable). Dropping this lets the thread end; [`CleanerThread::stop`] also waits for
/// that.
#[derive(Debug)]
pub(crate) struct CleanerThread {
    stop: Arc<Stop>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Sleeps; true: the thread is to end.
    fn wait(&self, timeout: Duration) -> bool {
        let stopped = lock(&self.stopped);
        let (stopped, _) = self
            .changed
            .wait_timeout_while(stopped, timeout, |stopped| !*stopped)
            .unwrap_or_else(PoisonError::into_inner);
        *stopped
    }

    fn set(&self) {
        *lock(&self.stopped) = true;
        self.changed.notify_all();
    }
}

impl CleanerThread {
    /// Starts it. `clean` cleans a log that is due; it holds a reference to the broker only while it works, so that the thread does
    /// not keep a dropped broker open.
    pub(crate) fn start(
        pause: impl Fn() -> Duration + Send + 'static,
        clean: impl Fn() -> Result<Option<(TopicPartition, CleanedPartition)>, BrokerError> + Send + 'static,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(Stop::default());
        let shared = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("fletchlog-cleaner".to_owned())
            .spawn(move || while !shared.wait(pause()) && work(&clean) {})?;
        Ok(Self {
            stop,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Ends the thread and waits until it has ended.
    pub(crate) fn stop(&self) {
        self.stop.set();
        if let Some(thread) = lock(&self.thread).take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Drop for CleanerThread {
    fn drop(&mut self) {
        self.stop.set();
    }
}

/// Cleans all logs that are due. False: the broker is closed or dropped.
fn work(clean: &impl Fn() -> Result<Option<(TopicPartition, CleanedPartition)>, BrokerError>) -> bool {
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
