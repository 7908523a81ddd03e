//! A broker of one node on a disk that may fail: what fails is tried again, once on the same broker, then on reopened ones.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use fletchlog_api::{Clock, Config, Scope};
use fletchlog_broker::{Broker, BrokerError, OpenOptions};
use fletchlog_testing::VirtualClock;

use crate::course::Course;
use crate::port_client::PortClient;
use crate::sim_disk::SimDisk;

/// The directory that holds the broker's.
pub(crate) const DIR: &str = "/data";
const ROOT: &str = "/data/broker";
/// The time of the first call.
pub(crate) const NOW_MS: i64 = 1_700_000_000_000;
/// The failing call, one more on the same broker, and the steps of reopening it.
const ATTEMPTS: usize = 6;

/// Opens the broker of a disk.
pub(crate) fn open(disk: &SimDisk, clock: &Arc<VirtualClock>) -> Result<Arc<Broker>, BrokerError> {
    let properties = [
        ("fletchlog.durability", "fsync"),
        ("offsets.topic.num.partitions", "1"),
        ("transaction.state.log.num.partitions", "1"),
        ("group.initial.rebalance.delay.ms", "0"),
        ("group.consumer.assignment.interval.ms", "0"),
        ("group.share.assignment.interval.ms", "0"),
        ("group.share.min.record.lock.duration.ms", "1000"),
        ("group.share.record.lock.duration.ms", "1000"),
        ("share.coordinator.state.topic.num.partitions", "1"),
        ("share.coordinator.snapshot.update.records.per.snapshot", "3"),
    ];
    let options = OpenOptions {
        nodes: Some(1),
        named_nodes: Vec::new(),
        read_only: false,
        config: Config::parse(Scope::Broker, properties)?,
    };
    let clock: Arc<dyn Clock> = Arc::clone(clock) as _;
    Broker::open_in(Arc::new(disk.clone()), Path::new(ROOT), options, clock)
}

/// The broker that is open, and a client of it.
pub(crate) struct OnDisk<'a> {
    disk: &'a SimDisk,
    course: &'a mut Course,
    pub clock: Arc<VirtualClock>,
    pub broker: Arc<Broker>,
    pub client: PortClient,
}

impl<'a> OnDisk<'a> {
    pub(crate) fn open(disk: &'a SimDisk, course: &'a mut Course) -> Result<Self, String> {
        let clock = VirtualClock::at(NOW_MS);
        let broker = opened(disk, course, &clock)?;
        Ok(Self {
            client: PortClient::new(&broker),
            disk,
            course,
            clock,
            broker,
        })
    }

    /// Makes a topic if there is none.
    pub(crate) fn make_topic(&mut self, topic: &str, partitions: i32) -> Result<(), String> {
        self.insist("creating a topic", |on| match on.broker.describe_topic(topic) {
            Ok(_) => Ok(()),
            Err(_) => on.broker.create_topic(topic, partitions, &[]),
        })
    }

    /// Operations on the disk so far.
    pub(crate) fn operations(&self) -> u64 {
        self.disk.operations()
    }

    /// Whether a call of the disk has failed: a request may have taken effect although its answer was an error.
    pub(crate) fn has_failed(&self) -> bool {
        self.disk.failed().is_some()
    }

    /// Opens the broker again, after a clean stop or without one.
    pub(crate) fn reopen(&mut self, closes: bool) -> Result<(), String> {
        if closes && let Err(error) = self.broker.close() {
            self.course.excuse(self.disk, &error, ATTEMPTS)?;
        }
        self.broker = opened(self.disk, self.course, &self.clock)?;
        self.client = PortClient::new(&self.broker);
        Ok(())
    }

    /// Repeats an action until it succeeds.
    pub(crate) fn insist<T, E: Debug>(
        &mut self,
        what: &str,
        mut act: impl FnMut(&Self) -> Result<T, E>,
    ) -> Result<T, String> {
        let mut again = false;
        loop {
            match act(self) {
                Ok(done) => return Ok(done),
                Err(error) => {
                    let error = format!("{what}: {error:?}");
                    self.course.excuse(self.disk, &error, ATTEMPTS)?;
                }
            }
            if again {
                self.reopen(false)?;
            }
            again = true;
        }
    }
}

fn opened(disk: &SimDisk, course: &mut Course, clock: &Arc<VirtualClock>) -> Result<Arc<Broker>, String> {
    loop {
        match open(disk, clock) {
            Ok(broker) => return Ok(broker),
            Err(error) => course.excuse(disk, &format!("cannot be opened: {error}"), ATTEMPTS)?,
        }
    }
}
