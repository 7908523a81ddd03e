//! The world that all actors of a run share, and an actor's access to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fletchlog_api::{ClientClock, Clock, Config, Scope, SettableClock, Transport};
use fletchlog_client::producer::Producer;
use fletchlog_client::{Consumer, ShareConsumer};
use fletchlog_records::{Record, RecordCursor, RecordSpan, TopicPartition};

use super::cluster::{COPIES, Cluster, TOPIC};
use super::network::{Net, SharedNet, lock};
use super::plan::Plan;
use super::recorder::{Moment, Recorder};
use super::scheduler::{ActorId, Scheduler};
use super::sockets;
use crate::history::{Keyed, Partition, Value};
use crate::rng::Rng;

pub(super) struct World {
    pub plan: Plan,
    /// The broker's clock, which may be ahead of the machine's.
    pub clock: Arc<SettableClock>,
    pub scheduler: Arc<Scheduler>,
    pub net: SharedNet,
    recorder: Mutex<Recorder>,
    cluster: Mutex<Cluster>,
    /// Events that must not happen and are not in the history, such as an error that no client should see.
    surprises: Mutex<Vec<String>>,
    /// Number of actors that are done.
    done: Mutex<usize>,
    over: AtomicBool,
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    pub fn new(
        plan: Plan,
        clock: Arc<SettableClock>,
        scheduler: Arc<Scheduler>,
        net: SharedNet,
        cluster: Cluster,
        moment: Moment,
    ) -> Self {
        Self {
            plan,
            recorder: Mutex::new(Recorder::new(clock.clone(), moment)),
            clock,
            scheduler,
            net,
            cluster: Mutex::new(cluster),
            surprises: Mutex::default(),
            done: Mutex::default(),
            over: AtomicBool::new(false),
        }
    }
    pub fn recorder(&self) -> MutexGuard<'_, Recorder> {
        guard(&self.recorder)
    }
    pub fn cluster(&self) -> MutexGuard<'_, Cluster> {
        guard(&self.cluster)
    }
    pub fn surprises(&self) -> MutexGuard<'_, Vec<String>> {
        guard(&self.surprises)
    }
    pub fn done(&self) -> MutexGuard<'_, usize> {
        guard(&self.done)
    }
    /// Ends the run after the last actor is done; the listener's actor then ends, too.
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
        lock(&self.net).pipes.kill_listener();
    }
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
    /// The end of the faults, monotonic ms.
    pub fn chaos_ends_ms(&self) -> i64 {
        self.plan.chaos_ms
    }
    /// All partitions, by their numbers in histories.
    pub fn partitions(&self) -> Vec<Partition> {
        (0..=u32::try_from(self.plan.partitions).unwrap_or(0)).collect()
    }
    /// The number of the partition of the copies.
    pub fn copies(&self) -> Partition {
        u32::try_from(self.plan.partitions).unwrap_or(0)
    }
    pub fn tp(&self, partition: Partition) -> TopicPartition {
        if partition == self.copies() {
            TopicPartition::new(COPIES, 0)
        } else {
            TopicPartition::new(TOPIC, i32::try_from(partition).unwrap_or(0))
        }
    }
    pub fn number(&self, tp: &TopicPartition) -> Partition {
        if &*tp.topic == COPIES {
            self.copies()
        } else {
            u32::try_from(tp.partition).unwrap_or(0)
        }
    }
}

/// The process of clients that fetch nothing.
const NOBODY: u32 = 0;

/// An actor's access to the world, and its randomness.
pub(super) struct Hand {
    pub world: Arc<World>,
    pub me: ActorId,
    pub rng: Rng,
}

impl Hand {
    pub fn now(&self) -> i64 {
        self.world.scheduler.now()
    }

    pub fn sleep(&self, ms: i64) {
        self.world.scheduler.wait(self.me, self.now() + ms, false);
    }

    /// Sleeps for a random time up to `most_ms`.
    pub fn sleep_some(&mut self, most_ms: usize) {
        let ms = i64::try_from(self.rng.below(most_ms + 1)).unwrap_or(0);
        self.sleep(ms);
    }

    pub fn in_chaos(&self) -> bool {
        self.now() < self.world.chaos_ends_ms()
    }

    /// True about every `every_ms` ms if called every `step_ms`; never if `every_ms` is 0 or the faults are over.
    pub fn strikes(&mut self, every_ms: usize, step_ms: usize) -> bool {
        every_ms > 0 && self.in_chaos() && self.rng.below(every_ms) < step_ms
    }

    pub fn surprise(&self, what: String) {
        self.world.surprises().push(what);
    }

    fn connect(&self, process: u32, config: &Config) -> Box<dyn Transport> {
        if self.world.plan.sockets {
            return sockets::connect(&self.world.net, self.me, process, config, self.clock());
        }
        Net::connect(&self.world.net, self.me, process)
    }

    /// A random key for a record of this partition; `None` if it is not compacted.
    pub fn keyed(&mut self, partition: Partition) -> Option<Keyed> {
        let plan = self
            .world
            .plan
            .compaction
            .filter(|_| partition != self.world.copies())?;
        Some(Keyed {
            key: u32::try_from(self.rng.below(plan.keys)).unwrap_or(0),
            tombstone: self.rng.chance(150),
        })
    }

    /// The clock of a client.
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(ClientClock::new(self.world.clock.clone()))
    }

    pub fn producer(&self, properties: &[(&str, &str)]) -> Producer {
        let config = Config::parse(Scope::Producer, properties.iter().copied());
        let made = config.map_err(Into::into).and_then(|config| {
            let transport = self.connect(NOBODY, &config);
            Producer::stepped(config, transport, self.clock())
        });
        made.unwrap_or_else(|e| panic!("the producer's properties: {e}"))
    }

    pub fn share_consumer(&self, process: u32, properties: &[(&str, &str)]) -> ShareConsumer {
        let config = Config::parse(Scope::Consumer, properties.iter().copied());
        let made = config.map_err(Into::into).and_then(|config| {
            let transport = self.connect(process, &config);
            ShareConsumer::new(&config, transport, self.clock())
        });
        made.unwrap_or_else(|e| panic!("the share consumer's properties: {e}"))
    }

    pub fn consumer(&self, process: u32, properties: &[(&str, &str)]) -> Consumer {
        let config = Config::parse(Scope::Consumer, properties.iter().copied());
        let made = config.map_err(Into::into).and_then(|config| {
            let transport = self.connect(process, &config);
            Consumer::new(config, transport, self.clock())
        });
        made.unwrap_or_else(|e| panic!("the consumer's properties: {e}"))
    }
}

/// (offset, value) of the records of a span.
pub(super) fn values_of(span: &RecordSpan) -> Vec<(i64, Value)> {
    let mut cursor = RecordCursor::resume_at(span.start, 0);
    let mut found = Vec::with_capacity(span.count);
    while found.len() < span.count {
        match cursor.next(&span.slice) {
            Ok(Some(record)) => found.push((record.offset, value_of(&record))),
            other => panic!("a span of {} records ends after {}: {other:?}", span.count, found.len()),
        }
    }
    found
}

/// The header in which a tombstone has the text that other records have in their value.
pub(super) const TOMBSTONE: &str = "tombstone";

pub(super) fn key_bytes(keyed: Keyed) -> Vec<u8> {
    format!("key-{}", keyed.key).into_bytes()
}

/// The text of a record: its value, its timestamp and its key.
pub(super) fn text_of(value: Value, timestamp: i64, key: Option<&[u8]>) -> String {
    let key = String::from_utf8_lossy(key.unwrap_or_default());
    format!("{value} {timestamp} {key}.")
}

/// The value of a record. Panics if the record is not as it was sent.
fn value_of(record: &Record<'_>) -> Value {
    let tombstone = record.headers().find(|header| header.key == TOMBSTONE);
    let bytes = match (record.value, tombstone) {
        (Some(value), None) => value,
        (None, Some(header)) => header.value.unwrap_or_default(),
        _ => panic!("{record:?} is neither a value nor a tombstone"),
    };
    let text = String::from_utf8_lossy(bytes);
    let value = text.split(' ').next().and_then(|digits| digits.parse().ok());
    let value = value.unwrap_or_else(|| panic!("a record holds {text:?}, which was never sent"));
    let sent = text_of(value, record.timestamp, record.key);
    assert!(text.starts_with(&sent), "{record:?} is not what was sent: {text:?}");
    value
}
