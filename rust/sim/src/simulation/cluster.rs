//! The broker on its simulated disk: it is killed or loses power, and is reopened on the remaining files.

use std::path::Path;
use std::sync::Arc;

use fletchlog_api::{Clock, Config, ConfigResource, Scope, SettableClock};
use fletchlog_broker::{AlterConfig, AlterConfigOp, Broker, OpenOptions};

use super::cuts::Ends;
use super::network::{SharedNet, lock};
use super::plan::{CompactionPlan, Plan, SharePlan};
use super::share_members::SHARE_GROUP;
use crate::disk_state::Left;
use crate::rng::Rng;
use crate::sim_disk::{Fault, Lie, SimDisk};

const ROOT: &str = "/data";
/// The topic of all records except copies.
pub(super) const TOPIC: &str = "t";
/// The topic in which the states of share groups are kept.
pub(super) const SHARE_STATE: &str = "__share_group_state";
/// The topic of the copies, with one partition.
pub(super) const COPIES: &str = "copies";

pub(super) struct Cluster {
    disk: SimDisk,
    broker: Option<Arc<Broker>>,
    clock: Arc<SettableClock>,
    nodes: u32,
    config: Config,
    fsync: bool,
    lie: Option<Lie>,
    /// Where the logs of replicas end whose nodes do not run.
    pub ends: Ends,
}

fn config(plan: &Plan) -> Config {
    let durability = if plan.fsync { "fsync" } else { "page-cache" };
    let segment = plan.segment_bytes.to_string();
    let roll_ms = plan.roll_ms.to_string();
    let (replicas, min_isr) = (plan.events.replicas.to_string(), plan.events.min_isr.to_string());
    let share = plan.share.unwrap_or_default();
    let (updates, lock_ms) = (
        share.updates_per_snapshot.to_string(),
        share.lock_ms.max(1_000).to_string(),
    );
    let dedupe_buffer = plan.compaction.map(|compaction| compaction.dedupe_buffer.to_string());
    let mut properties = vec![
        ("fletchlog.durability", durability),
        ("log.segment.bytes", segment.as_str()),
        ("log.roll.ms", roll_ms.as_str()),
        ("log.index.interval.bytes", "200"),
        ("default.replication.factor", replicas.as_str()),
        ("min.insync.replicas", min_isr.as_str()),
        ("offsets.topic.num.partitions", "3"),
        ("offsets.topic.replication.factor", replicas.as_str()),
        ("group.consumer.assignment.interval.ms", "100"),
        ("group.consumer.heartbeat.interval.ms", "500"),
        ("group.consumer.min.heartbeat.interval.ms", "500"),
        ("group.consumer.min.session.timeout.ms", "6000"),
        ("group.consumer.session.timeout.ms", "6000"),
        ("group.share.assignment.interval.ms", "100"),
        ("group.share.heartbeat.interval.ms", "500"),
        ("group.share.min.heartbeat.interval.ms", "500"),
        ("group.share.min.session.timeout.ms", "6000"),
        ("group.share.session.timeout.ms", "6000"),
        ("group.share.min.record.lock.duration.ms", "1000"),
        ("group.share.record.lock.duration.ms", lock_ms.as_str()),
        // Which one keeps a share partition would depend on the id of its topic, which is random.
        ("share.coordinator.state.topic.num.partitions", "1"),
        ("share.coordinator.state.topic.replication.factor", replicas.as_str()),
        ("share.coordinator.state.topic.min.isr", min_isr.as_str()),
        // A snapshot has to fit into a segment.
        ("share.coordinator.state.topic.segment.bytes", "100000"),
        (
            "share.coordinator.snapshot.update.records.per.snapshot",
            updates.as_str(),
        ),
        ("offsets.topic.segment.bytes", segment.as_str()),
        ("transaction.state.log.segment.bytes", segment.as_str()),
        ("transaction.state.log.num.partitions", "3"),
        ("transaction.state.log.replication.factor", replicas.as_str()),
        ("transaction.state.log.min.isr", min_isr.as_str()),
        ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "1000"),
        ("fletchlog.strict.first.sequence", "true"),
    ];
    properties.extend(
        dedupe_buffer
            .as_deref()
            .map(|size| ("log.cleaner.dedupe.buffer.size", size)),
    );
    Config::parse(Scope::Broker, properties).unwrap_or_else(|e| panic!("the broker's properties: {e}"))
}

/// Sets the properties of the share group.
fn configure(broker: &Broker, share: SharePlan) {
    let isolation = if share.read_committed {
        "read_committed"
    } else {
        "read_uncommitted"
    };
    let limit = share.max_deliveries.to_string();
    let properties = [
        ("share.auto.offset.reset", "earliest"),
        ("share.isolation.level", isolation),
        ("share.delivery.count.limit", limit.as_str()),
    ];
    let changes = properties.map(|(name, value)| AlterConfig {
        name: name.to_owned(),
        op: AlterConfigOp::Set,
        value: Some(value.to_owned()),
    });
    let group = ConfigResource::Group(SHARE_GROUP.to_owned());
    let done = broker.alter_config(&group, &changes, false);
    done.unwrap_or_else(|e| panic!("the properties of {SHARE_GROUP}: {e}"));
}

impl Cluster {
    /// Creates a cluster with its topics.
    pub fn new(plan: &Plan, clock: &Arc<SettableClock>, net: &SharedNet, lie: Option<Lie>) -> Self {
        let mut cluster = Self {
            disk: SimDisk::with_dirs(&[Path::new(ROOT)]),
            broker: None,
            clock: clock.clone(),
            nodes: plan.nodes,
            config: config(plan),
            fsync: plan.fsync,
            lie,
            ends: Ends::default(),
        };
        let broker = cluster.open(net);
        let retention = vec![
            ("retention.ms".to_owned(), plan.retention_ms.to_string()),
            ("retention.bytes".to_owned(), plan.retention_bytes.to_string()),
        ];
        let mut config = retention.clone();
        if plan.events.unclean {
            config.push(("unclean.leader.election.enable".to_owned(), "true".to_owned()));
        }
        config.extend(plan.compaction.iter().flat_map(CompactionPlan::config));
        for (topic, partitions, config) in [(TOPIC, plan.partitions, config), (COPIES, 1, retention)] {
            let made = broker.create_topic(topic, partitions, &config);
            made.unwrap_or_else(|e| panic!("topic {topic}: {e}"));
        }
        if let Some(share) = plan.share {
            configure(&broker, share);
        }
        cluster
    }

    /// Opens the broker on the disk.
    pub fn open(&mut self, net: &SharedNet) -> Arc<Broker> {
        let options = OpenOptions {
            nodes: Some(self.nodes),
            named_nodes: Vec::new(),
            read_only: false,
            config: self.config.clone(),
        };
        if let Some(lie) = self.lie {
            self.disk.lie(lie);
        }
        let open = || {
            let clock: Arc<dyn Clock> = self.clock.clone();
            Broker::open_in(Arc::new(self.disk.clone()), Path::new(ROOT), options.clone(), clock)
        };
        let before = self.disk.failed();
        let opened = match open() {
            // The planned fault has happened.
            Err(_) if self.disk.failed() != before => open(),
            other => other,
        };
        let broker = opened.unwrap_or_else(|e| panic!("the broker does not open on what a crash left: {e}"));
        lock(net).broker_up(broker.clone());
        self.ends = Ends::default();
        self.broker = Some(broker.clone());
        broker
    }

    /// Kills the broker. `power`: the machine loses power too, so any part of the unsynced changes may be left.
    pub fn crash(&mut self, net: &SharedNet, rng: &mut Rng, power: bool) {
        // What the broker does when its connections end is not done by one that is killed.
        let (state, fsync) = (self.disk.state(), self.fsync);
        lock(net).broker_down();
        self.broker = None;
        let left = if !power {
            state
        } else if rng.chance(300) {
            state.left(Left::Nothing)
        } else {
            state.left(Left::Some(&mut || match rng.below(4) {
                0 => None,
                // Torn writes only with fsync: without it nothing is promised, and a torn base offset, which has no checksum, can need
                // manual repair.
                1 if fsync => Some(rng.bits()),
                _ => Some(u64::MAX),
            }))
        };
        self.disk = left.into();
    }

    /// Stops the broker cleanly.
    pub fn stop(&mut self, net: &SharedNet) {
        lock(net).broker_down();
        if let Some(broker) = self.broker.take() {
            match broker.close() {
                Err(e) if !self.disk_has_failed() => panic!("the broker does not close: {e}"),
                _ => {}
            }
        }
    }

    /// Makes one of the next disk calls fail.
    pub fn fail_disk(&self, rng: &mut Rng) -> Fault {
        /// The broker makes this many calls in less than a second.
        const SOON: usize = 200;
        let fault = Fault::ALL[rng.below(Fault::ALL.len())];
        self.disk.fail(self.disk.calls() + rng.below(SOON) as u64, fault);
        fault
    }

    /// Whether a call has failed since the disk was mounted, so that a log may be fenced.
    pub fn disk_has_failed(&self) -> bool {
        self.disk.failed().is_some()
    }

    /// Ends the faults. Returns whether a call has failed.
    pub fn mend_disk(&self) -> bool {
        self.disk.fail(u64::MAX, Fault::Io);
        self.disk_has_failed()
    }

    /// The running broker.
    pub fn broker(&self) -> Option<&Arc<Broker>> {
        self.broker.as_ref()
    }
}
