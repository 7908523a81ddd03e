//! The plan of a seed's run, and the anomalies that Kafka allows in it.

use std::collections::BTreeSet;

use fletchlog_api::IsolationLevel;
use fletchlog_protocol::ApiKey;

use super::network::Faults;
use crate::checker::Class;
use crate::rng::Rng;
use crate::share_history::ShareGroup;

/// Whether a producer is idempotent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Idempotence {
    /// Each record once and in order.
    On,
    /// Retries may write a record twice and, with several requests in flight, change the order.
    Off,
}

/// One producer without transactions.
#[derive(Debug, Clone)]
pub(super) struct ProducerPlan {
    pub idempotence: Idempotence,
    pub in_flight: usize,
    pub release: &'static str,
    pub batch_size: usize,
    pub linger_ms: usize,
}

/// The members of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupPlan {
    pub members: usize,
    pub assignor: &'static str,
    pub auto_commit: bool,
    pub read_committed: bool,
    /// The members have a group.instance.id.
    pub static_members: bool,
}

/// Producers of transactions, the copier's too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TransactionPlan {
    /// Each life has one of these releases: from 4.0 on they know version 2 of transactions.
    pub releases: &'static [&'static str],
    /// transaction.timeout.ms.
    pub timeout_ms: i64,
    /// Average ms between two changes of the cluster's level of transaction.version, from 2 to 1 and back; 0 = none.
    pub level_every_ms: usize,
}

const TRANSACTION_RELEASES: [&[&str]; 5] = [&["3.9"], &["4.0"], &["4.4"], &["4.4"], &["2.5", "3.9", "4.0", "4.4"]];

impl TransactionPlan {
    /// From numbers of its own: the rest of a seed's plan does not depend on it.
    fn of(seed: u64) -> Self {
        let rng = &mut Rng::new(seed ^ 0x7A45_AC71);
        Self {
            releases: pick(rng, &TRANSACTION_RELEASES),
            timeout_ms: pick(rng, &[15_000, 15_000, 15_000, 2_000]),
            level_every_ms: if rng.chance(300) { 2_000 + rng.below(4_000) } else { 0 },
        }
    }

    /// Whether some transaction may end without a new epoch.
    fn keeps_epochs(self) -> bool {
        self.level_every_ms > 0 || self.releases.iter().any(|release| !release.starts_with('4'))
    }
}

/// The members of a share group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SharePlan {
    pub members: usize,
    /// share.acknowledgement.mode=explicit.
    pub explicit: bool,
    /// share.acquire.mode=record_limit.
    pub record_limit: bool,
    /// share.isolation.level=read_committed.
    pub read_committed: bool,
    /// share.record.lock.duration.ms.
    pub lock_ms: i64,
    /// share.delivery.count.limit.
    pub max_deliveries: i16,
    /// share.coordinator.snapshot.update.records.per.snapshot.
    pub updates_per_snapshot: usize,
    /// Average ms between two ends of a member's life; 0 = it lives on.
    pub end_every_ms: usize,
}

impl SharePlan {
    /// From numbers of its own: the rest of a seed's plan does not depend on it.
    fn of(seed: u64, calm: bool) -> Option<Self> {
        let rng = &mut Rng::new(seed ^ 0x05AA_2E60);
        let plan = Self {
            members: 1 + rng.below(3),
            explicit: rng.chance(700),
            record_limit: rng.chance(300),
            read_committed: rng.chance(500),
            lock_ms: pick(rng, &[1_000, 2_000, 5_000]),
            max_deliveries: pick(rng, &[2, 3, 5]),
            updates_per_snapshot: pick(rng, &[0, 2, 7, 50]),
            end_every_ms: if calm { 0 } else { pick(rng, &[0, 2_000, 5_000]) },
        };
        rng.chance(350).then_some(plan)
    }
}

/// What happens to leaders, coordinators, nodes and the broker's clock: average ms between two such events, 0 = none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EventPlan {
    /// Replicas of every partition.
    pub replicas: u32,
    /// min.insync.replicas.
    pub min_isr: u32,
    pub leader_every_ms: usize,
    pub coordinator_every_ms: usize,
    /// Longest time for which a new coordinator loads, ms.
    pub loading_ms: usize,
    /// A node stops or starts.
    pub node_every_ms: usize,
    /// The broker's clock is set ahead.
    pub advance_every_ms: usize,
    /// unclean.leader.election.enable.
    pub unclean: bool,
}

impl EventPlan {
    /// From numbers of its own: the rest of a seed's plan does not depend on it.
    fn of(seed: u64, nodes: u32, calm: bool) -> Self {
        let rng = &mut Rng::new(seed ^ 0xE7E2_7500);
        let mut every = |per_mille: usize, ms: usize| match rng.chance(per_mille) && !calm {
            true => ms + rng.below(ms),
            false => 0,
        };
        let (leader, coordinator, node, advance) = (
            every(500, 2_000),
            every(500, 3_000),
            every(400, 3_000),
            every(300, 4_000),
        );
        let of_several = |every_ms| if nodes > 1 { every_ms } else { 0 };
        let replicas = 1 + rng.below(nodes as usize);
        let min_isr = 1 + rng.below(replicas);
        Self {
            replicas: u32::try_from(replicas).unwrap_or(1),
            min_isr: u32::try_from(min_isr).unwrap_or(1),
            leader_every_ms: of_several(leader),
            coordinator_every_ms: of_several(coordinator),
            loading_ms: pick(rng, &[0, 100, 2_000]),
            node_every_ms: of_several(node),
            advance_every_ms: advance,
            unclean: false,
        }
    }

    /// Whether coordinators read again what they have stored.
    pub fn reloads_coordinators(self) -> bool {
        self.coordinator_every_ms > 0 || self.node_every_ms > 0
    }
}

/// Rules for faults at a listener, each with the share of runs that have it, per mille.
const RULES: [(usize, &str); 14] = [
    (
        300,
        r#""api": "Produce", "error": "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "handled": true, "times": 3"#,
    ),
    (
        200,
        r#""api": "Produce", "partition": 0, "error": "NOT_LEADER_OR_FOLLOWER", "times": 2"#,
    ),
    (200, r#""api": "Fetch", "error": "UNKNOWN_LEADER_EPOCH", "times": 4"#),
    (
        200,
        r#""api": ["OffsetCommit", "TxnOffsetCommit"], "lose_response": true, "times": 2"#,
    ),
    (
        200,
        r#""api": ["JoinGroup", "SyncGroup", "ConsumerGroupHeartbeat"], "hold": true"#,
    ),
    (
        200,
        r#""api": ["Produce", "EndTxn", "AddPartitionsToTxn"], "hold": true, "times": 2"#,
    ),
    (
        200,
        r#""api": ["EndTxn", "InitProducerId"], "close": "after", "times": 3"#,
    ),
    (
        200,
        r#""api": ["Produce", "Heartbeat"], "black_hole": "after", "times": 2"#,
    ),
    (
        200,
        r#""api": ["EndTxn", "Produce", "OffsetCommit"], "delay_ms": 2500, "times": 2"#,
    ),
    (
        200,
        r#""api": ["Fetch", "Metadata"], "delay_response_ms": 1500, "times": 4"#,
    ),
    (
        200,
        r#""api": ["Fetch", "FindCoordinator"], "cut_after_bytes": 9, "times": 3"#,
    ),
    (200, r#""api": "Fetch", "slow_bytes_per_second": 3000, "times": 4"#),
    (
        200,
        r#""api": ["Produce", "Fetch"], "throttle_time_ms": 700, "times": 3"#,
    ),
    (200, r#""refuse_connection": true, "times": 3"#),
];

/// A plan of faults for a listener in JSON; without a rule in some runs.
fn listener_faults(seed: u64, calm: bool) -> String {
    let rng = &mut Rng::new(seed ^ 0xFA01_7500);
    let mut rules = Vec::new();
    for (per_mille, rule) in RULES {
        let (takes_part, nth) = (rng.chance(per_mille) && !calm, 1 + rng.below(20));
        if takes_part {
            rules.push(format!(r#"{{{rule}, "nth": {nth}, "optional": true}}"#));
        }
    }
    let rules = rules.join(", ");
    if calm || rng.chance(500) {
        return format!(r#"{{"rules": [{rules}]}}"#);
    }
    let thousandths = 1 + rng.below(20);
    format!(
        r#"{{"rules": [{rules}], "random": {{"seed": {seed}, "rate": {}}}}}"#,
        thousandths as f64 / 1_000.0
    )
}

/// How the topic is compacted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CompactionPlan {
    /// Average ms between two cleanings.
    pub every_ms: usize,
    /// cleanup.policy=compact,delete.
    pub and_delete: bool,
    pub min_cleanable_dirty_ratio: f64,
    pub min_compaction_lag_ms: i64,
    pub delete_retention_ms: i64,
    /// Number of keys in each partition.
    pub keys: usize,
    /// Steps of the background thread (log.cleaner.enable) are run, too.
    pub background: bool,
    pub max_compaction_lag_ms: i64,
    /// log.cleaner.dedupe.buffer.size: if it is too small for all keys, cleaning takes several rounds.
    pub dedupe_buffer: usize,
    /// Everything is cleaned at the end, before the last readers read.
    pub whole_at_end: bool,
}

/// The value of a property that disables its limit.
const NO_LIMIT: i64 = i64::MAX;
/// Memory for the key of one record, of a few, of all.
const DEDUPE_BUFFERS: [usize; 4] = [1, 110, 300, 134_217_728];

impl CompactionPlan {
    fn of(rng: &mut Rng) -> Self {
        let mut plan = Self {
            every_ms: 300 + rng.below(2_000),
            and_delete: rng.chance(300),
            min_cleanable_dirty_ratio: pick(rng, &[0.0, 0.0, 0.3, 0.8]),
            min_compaction_lag_ms: pick(rng, &[0, 0, 1_000, 5_000]),
            delete_retention_ms: pick(rng, &[0, 500, 3_000, 86_400_000]),
            keys: 1 + rng.below(8),
            background: rng.chance(600),
            max_compaction_lag_ms: pick(rng, &[NO_LIMIT, NO_LIMIT, 1_000, 5_000]),
            dedupe_buffer: pick(rng, &DEDUPE_BUFFERS),
            whole_at_end: rng.chance(300),
        };
        plan.max_compaction_lag_ms = plan.max_compaction_lag_ms.max(plan.min_compaction_lag_ms);
        if plan.max_compaction_lag_ms < NO_LIMIT && rng.chance(500) {
            plan.min_cleanable_dirty_ratio = 1.0;
        }
        plan
    }

    /// Whether a log is never due because of its share of dirty bytes.
    pub fn only_lag_counts(&self) -> bool {
        self.min_cleanable_dirty_ratio >= 1.0
    }

    /// The topic's properties.
    pub fn config(&self) -> [(String, String); 5] {
        let policy = if self.and_delete { "compact,delete" } else { "compact" };
        let properties = [
            ("cleanup.policy", policy.to_owned()),
            ("min.cleanable.dirty.ratio", self.min_cleanable_dirty_ratio.to_string()),
            ("min.compaction.lag.ms", self.min_compaction_lag_ms.to_string()),
            ("max.compaction.lag.ms", self.max_compaction_lag_ms.to_string()),
            ("delete.retention.ms", self.delete_retention_ms.to_string()),
        ];
        properties.map(|(name, value)| (name.to_owned(), value))
    }
}

#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub seed: u64,
    /// Clients and broker communicate over sockets.
    pub sockets: bool,
    pub nodes: u32,
    pub partitions: i32,
    pub segment_bytes: usize,
    /// How long faults happen, ms.
    pub chaos_ms: i64,
    pub fsync: bool,
    pub producers: Vec<ProducerPlan>,
    pub transactional: usize,
    pub transactions: TransactionPlan,
    /// The release whose behaviour consumers have.
    pub consumer_release: &'static str,
    /// Number of consumers that assign partitions to themselves: the first is read_uncommitted, the second read_committed.
    pub manual: usize,
    pub group: Option<GroupPlan>,
    pub share: Option<SharePlan>,
    /// A process that copies partition 0 in transactions.
    pub copier: bool,
    pub faults: Faults,
    /// Most requests in flight of every producer.
    pub most_in_flight: usize,
    /// ms between two crashes or pauses, on average; 0 = none.
    pub crash_every_ms: usize,
    pub power_loss: bool,
    pub pause_every_ms: usize,
    pub events: EventPlan,
    /// Rules for faults at the listener; empty without one.
    pub listener_faults: String,
    /// Average ms between two crashes of a client; 0 = none.
    pub client_crash_every_ms: usize,
    /// Average ms between two failing disk calls; 0 = none. Only with fsync, because a failure loses what is only in the page cache.
    pub disk_fault_every_ms: usize,
    /// Average ms between two deletions of records; 0 = never.
    pub delete_every_ms: usize,
    /// Average ms between two runs of retention; 0 = never.
    pub retention_every_ms: usize,
    /// retention.ms and retention.bytes; -1 = without limit.
    pub retention_ms: i64,
    pub retention_bytes: i64,
    pub compaction: Option<CompactionPlan>,
    /// log.roll.ms.
    pub roll_ms: i64,
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len())]
}

const PRODUCER_RELEASES: [&str; 5] = ["2.5", "2.6", "3.2", "3.9", "4.3"];
const CONSUMER_RELEASES: [&str; 5] = ["2.4", "2.6", "3.2", "3.9", "4.3"];
/// An assignor of the coordinator.
pub(super) const REMOTE: &str = "remote ";
/// `remote` ones are the coordinator's, of consumer groups (KIP-848).
const ASSIGNORS: [&str; 7] = [
    "range",
    "roundrobin",
    "sticky",
    "cooperative-sticky",
    "range,cooperative-sticky",
    "remote uniform",
    "remote range",
];

impl Plan {
    pub fn of(seed: u64, sockets: bool) -> Self {
        let rng = &mut Rng::new(seed);
        let calm = rng.chance(100);
        let rate = |rng: &mut Rng, most: usize| if calm { 0 } else { rng.below(most + 1) };
        let every = |rng: &mut Rng, per_mille: usize, ms: usize| {
            if !calm && rng.chance(per_mille) {
                ms + rng.below(ms)
            } else {
                0
            }
        };
        let nodes = 1 + rng.below(3);
        // With one request in flight no batch is forgotten, so no duplicate is allowed.
        let most_in_flight = if rng.chance(400) { 1 } else { 5 };
        let mut plan = Self {
            seed,
            sockets,
            nodes: u32::try_from(nodes).unwrap_or(1),
            partitions: 1 + i32::try_from(rng.below(4)).unwrap_or(0),
            segment_bytes: pick(rng, &[1_000, 4_000, 1_000_000]),
            chaos_ms: 15_000 + i64::try_from(rng.below(15_000)).unwrap_or(0),
            fsync: rng.chance(500),
            producers: (0..1 + rng.below(3)).map(|_| producer(rng, most_in_flight)).collect(),
            transactional: rng.below(3),
            transactions: TransactionPlan::of(seed),
            consumer_release: pick(rng, &CONSUMER_RELEASES),
            manual: 1 + rng.below(2),
            group: rng.chance(700).then(|| GroupPlan {
                members: 1 + rng.below(3),
                assignor: pick(rng, &ASSIGNORS),
                auto_commit: rng.chance(500),
                read_committed: rng.chance(500),
                static_members: rng.chance(500),
            }),
            share: SharePlan::of(seed, calm),
            copier: rng.chance(300),
            faults: Faults {
                close_before: rate(rng, 20),
                close_after: rate(rng, 20),
                silence: rate(rng, 8),
                twice: rate(rng, 50),
                slow: rate(rng, 20),
                latency_ms: rng.below(20),
            },
            crash_every_ms: every(rng, 500, 6_000),
            most_in_flight,
            power_loss: rng.chance(500),
            pause_every_ms: every(rng, 300, 4_000),
            events: EventPlan::of(seed, u32::try_from(nodes).unwrap_or(1), calm),
            listener_faults: match sockets {
                true => listener_faults(seed, calm),
                false => String::new(),
            },
            client_crash_every_ms: every(rng, 400, 6_000),
            disk_fault_every_ms: every(rng, 700, 2_000),
            delete_every_ms: if rng.chance(400) { 500 + rng.below(3_000) } else { 0 },
            retention_every_ms: if rng.chance(300) { 500 + rng.below(3_000) } else { 0 },
            retention_ms: pick(rng, &[-1, 1_000, 5_000]),
            retention_bytes: pick(rng, &[-1, 0, 3_000]),
            compaction: rng.chance(400).then(|| CompactionPlan::of(rng)),
            roll_ms: pick(rng, &[NO_LIMIT, NO_LIMIT, 500, 3_000]),
        };
        if !plan.fsync {
            plan.disk_fault_every_ms = 0;
        }
        plan.elect_unclean(calm);
        plan
    }

    /// Makes some plans those of unclean elections, from numbers of its own. They have no transactions, whose markers may be lost without
    /// their records, no compaction, which may have removed what a lost record replaced, and no failing disk, which may fence a log that is
    /// cut: the workload of logs whose end is cut off has that ([`crate::log_workload`]).
    fn elect_unclean(&mut self, calm: bool) {
        let rng = &mut Rng::new(self.seed ^ 0x0C1E_A700);
        if calm || self.nodes == 1 || !rng.chance(150) {
            return;
        }
        (self.transactional, self.copier, self.compaction) = (0, false, None);
        // A group remembers the offsets of lost records.
        self.share = None;
        self.disk_fault_every_ms = 0;
        self.events = EventPlan {
            replicas: self.nodes,
            min_isr: 1,
            node_every_ms: 800 + rng.below(1_500),
            unclean: true,
            ..self.events
        };
    }

    /// The rules of the share group.
    pub fn share_group(&self) -> Option<ShareGroup> {
        let share = self.share?;
        let events = self.events;
        Some(ShareGroup {
            max_deliveries: share.max_deliveries,
            lock_ms: share.lock_ms,
            isolation: match share.read_committed {
                true => IsolationLevel::ReadCommitted,
                false => IsolationLevel::ReadUncommitted,
            },
            // A release that cannot be written is made all the same.
            keeps_counts: self.disk_fault_every_ms == 0
                && !events.reloads_coordinators()
                && events.leader_every_ms == 0
                && !self.loses_acknowledged(),
        })
    }

    /// Whether the group is a consumer group (KIP-848), in which a static member keeps its place while it lives.
    pub fn uses_consumer_protocol(&self) -> bool {
        self.group.is_some_and(|group| group.assignor.starts_with(REMOTE))
    }

    /// Whether rules for faults at the listener may delay a JoinGroup request until its client has closed the connection.
    pub fn delays_joins(&self) -> bool {
        self.listener_faults.contains("JoinGroup") || self.listener_faults.contains("random")
    }

    /// Whether the machine loses power while acknowledged records are only in the page cache.
    pub fn loses_acknowledged(&self) -> bool {
        !self.fsync && self.power_loss && self.crash_every_ms > 0
    }

    /// The anomalies that Kafka allows here, and why. `forgotten`: batches that the broker no longer remembered when they were sent again;
    /// `rewritten`: batches sent again under a new epoch because another one was too large ([`super::memory`]); `late`: kinds of requests
    /// that arrived after their client had closed the connection.
    pub fn allowed(&self, forgotten: usize, rewritten: usize, late: &BTreeSet<i16>) -> Vec<(Class, &'static str)> {
        use Class::*;
        let mut allowed = Vec::new();
        let mut allow =
            |classes: &[Class], why: &'static str| allowed.extend(classes.iter().map(|&class| (class, why)));
        let cycles = [G0, G0Process, G0Realtime, G1c, G1cProcess, G1cRealtime];
        let twice = [Duplicate, CopiedTwice];
        let writers = self.producers.len() + self.transactional + usize::from(self.copier);
        if self.transactional > 0 && writers > 1 {
            allow(&[IntSendSkip], "others write between two records of a transaction");
            allow(&cycles, "records of open transactions are mixed");
        }
        if self.producers.iter().any(|p| p.idempotence == Idempotence::Off) {
            allow(&twice, "a retry without idempotence writes a record again");
            allow(
                &[NonmonotonicSend],
                "a retry without idempotence overtakes, or is acknowledged at its second place",
            );
        }
        let is_late = |key: ApiKey| late.contains(&key.code());
        let keeps_epochs = self.transactions.keeps_epochs();
        if is_late(ApiKey::EndTxn) && keeps_epochs {
            // KIP-890: only since transaction version 2 does each transaction have its own epoch.
            allow(
                &[G1a, LostWrite, Unseen],
                "an EndTxn that comes late, over a connection that its client has closed, ends the producer's next transaction",
            );
        }
        if is_late(ApiKey::OffsetCommit) || is_late(ApiKey::TxnOffsetCommit) {
            allow(
                &[CommitRegress],
                "a commit that comes late, over a connection that its client has closed, is as good as a new one",
            );
        }
        let repeats =
            forgotten > 0 || rewritten > 0 || self.producers.iter().any(|p| p.idempotence == Idempotence::Off);
        if repeats && self.compaction.is_some() {
            allow(
                &[CompactedAway, LostWrite, Unseen, CommitSkip, NotCopied],
                "a record that was written again, unseen, has replaced later ones of its key",
            );
        }
        if rewritten > 0 {
            let why = "a batch was too large, and one before it, which is in the log and not answered, is sent again under the next epoch";
            allow(&twice, why);
            allow(&[NonmonotonicSend], why);
        }
        if forgotten > 0 {
            // Kafka: `TransactionManager#canRetry`.
            let why = "a batch that the broker has forgotten is sent again under the next epoch";
            allow(&twice, why);
            allow(&[NonmonotonicSend], why);
            // Kafka: `TransactionManager#maybeTransitionToErrorState`: the epoch does not change while the transaction ends.
            let reused = [
                InconsistentOffsets,
                LostWrite,
                Unseen,
                PollSkip,
                IntPollSkip,
                CompactedAway,
                CommitSkip,
                IntNonmonotonicSend,
                IntSendSkip,
                NotCopied,
            ];
            if keeps_epochs && (self.transactional > 0 || self.copier) {
                let why = "the sequence numbers of a batch that is refused while its transaction ends are given to the next one";
                allow(&reused, why);
                allow(&cycles, why);
            }
        }
        if self.loses_acknowledged() {
            let kept = [PrecommittedRead, AcquiredTwice, DeliveryLimit];
            let lost: Vec<Class> = Class::ALL.into_iter().filter(|class| !kept.contains(class)).collect();
            allow(&lost, "a power loss takes what was acknowledged from the page cache");
        }
        allowed
    }
}

fn producer(rng: &mut Rng, most_in_flight: usize) -> ProducerPlan {
    let idempotence = if rng.chance(800) {
        Idempotence::On
    } else {
        Idempotence::Off
    };
    ProducerPlan {
        idempotence,
        in_flight: 1 + rng.below(most_in_flight),
        release: pick(rng, &PRODUCER_RELEASES),
        batch_size: pick(rng, &[1, 100, 400, 16_384]),
        linger_ms: pick(rng, &[0, 0, 5, 30]),
    }
}
