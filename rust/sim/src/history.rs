//! The operations that the clients of a simulation saw, for [`crate::checker`]: each has a begin, an end and an outcome, in the order in
//! which they began. As in Jepsen's Kafka workload (`jepsen/tests/kafka.clj`), every value is sent once, so a value identifies its send.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use fletchlog_api::IsolationLevel;

use crate::share_history::ShareHistory;

/// A value, which is sent only once.
pub type Value = u64;
/// Number of a partition, unique over all topics.
pub type Partition = u32;

/// The key of a record of a compacted partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Keyed {
    /// The key.
    pub key: u32,
    /// It has no value: the key is deleted.
    pub tombstone: bool,
}

/// The known outcome of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It is acknowledged; a transaction is committed.
    Ok,
    /// It has not happened and never will; a transaction is aborted.
    Failed,
    /// It may have happened, or may still happen.
    Unknown,
}

/// A part of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// A record was sent.
    Send {
        /// The partition.
        partition: Partition,
        /// The value.
        value: Value,
        /// The acknowledged offset.
        offset: Option<i64>,
        /// The value that it copies, in a copying transaction.
        source: Option<Value>,
        /// Its key; `None` where nothing is compacted.
        keyed: Option<Keyed>,
    },
    /// Records were returned by one poll.
    Poll {
        /// The isolation level.
        isolation: IsolationLevel,
        /// The group of the consumer, if its position comes from one.
        group: Option<u32>,
        /// (partition, offset, value) in the order in which they were returned.
        records: Vec<(Partition, i64, Value)>,
    },
}

/// The action of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// One send, one poll, or everything that one transaction did.
    Steps {
        /// The steps, in order.
        steps: Vec<Step>,
        /// Whether they take effect together.
        transaction: bool,
    },
    /// The process continues to read at another position (assign, seek, a rebalance): this offset, or an unknown one.
    Moved(Vec<(Partition, Option<i64>)>),
    /// The committed offsets of a group were looked up.
    Committed {
        /// Number of the group.
        group: u32,
        /// Its offsets.
        offsets: Vec<(Partition, i64)>,
    },
    /// A member with a group.instance.id got its partitions in a generation.
    Joined(Joined),
    /// A member with a group.instance.id committed offsets.
    InstanceCommit {
        /// Number of the group.
        group: u32,
        /// Its group.instance.id.
        instance: u32,
    },
    /// The partition's log was made to start here (DeleteRecords), or was found to. If the outcome is unknown, it may start here,
    /// temporarily or for good.
    LogStart {
        /// The partition.
        partition: Partition,
        /// Its first readable offset.
        offset: i64,
    },
    /// The log was cut here: another replica leads that had no more. What was beyond may be lost.
    Cut {
        /// The partition.
        partition: Partition,
        /// Its end.
        offset: i64,
    },
    /// The process has read every readable record below these offsets.
    Reached {
        /// The isolation level.
        isolation: IsolationLevel,
        /// Its positions.
        offsets: Vec<(Partition, i64)>,
    },
    /// The cleaner cleaned a partition. If the outcome is unknown, it may have cleaned a part of it.
    Cleaned {
        /// The partition.
        partition: Partition,
        /// Nothing from this offset on may be cleaned: open transactions, the active segment.
        below: i64,
        /// Nothing sent at this moment or later may be cleaned: min.compaction.lag.ms.
        sent_before: u64,
        /// A tombstone may be removed if a cleaning that began before this moment saw it: delete.retention.ms.
        seen_before: u64,
    },
    /// Any other event, such as a crash or a fault.
    Note(String),
}

/// The assignment of a member with a group.instance.id that joined.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Joined {
    /// Number of the group.
    pub group: u32,
    /// Its group.instance.id.
    pub instance: u32,
    /// The generation.
    pub generation: i32,
    /// Its partitions, sorted.
    pub partitions: Vec<Partition>,
    /// It was away for less than its session time-out, and nothing else happened to the group since it last joined.
    pub in_time: bool,
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Op {
    /// The client that did it. A restarted client is a new process; a reading process begins with its first operation.
    pub process: u32,
    /// Position of its begin in the order of all begins and ends.
    pub begin: u64,
    /// Position of its end; `u64::MAX` if it is not known to have ended.
    pub end: u64,
    /// Its outcome.
    pub outcome: Outcome,
    /// What it did.
    pub action: Action,
}

impl Op {
    /// The steps; none if it neither sends nor polls.
    pub fn steps(&self) -> &[Step] {
        match &self.action {
            Action::Steps { steps, .. } => steps,
            _ => &[],
        }
    }
    /// Whether the steps take effect together.
    pub fn is_transaction(&self) -> bool {
        matches!(self.action, Action::Steps { transaction: true, .. })
    }
}

/// The records of a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fetch {
    /// The process that fetched.
    pub process: u32,
    /// The partition.
    pub partition: Partition,
    /// A moment before which nothing was read for it: the request had not reached the broker.
    pub arrived: u64,
    /// The first and the last offset of its batches.
    pub offsets: (i64, i64),
}

/// Operations in the order in which they began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct History {
    /// The operations.
    pub ops: Vec<Op>,
    /// The fetches of consumers.
    pub fetches: Vec<Fetch>,
    /// The share group.
    pub shares: ShareHistory,
}

impl History {
    /// Equal for equal histories, in every run of the program.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
    /// These operations, one per line.
    pub fn excerpt(&self, ops: &[usize]) -> String {
        let line = |&op: &usize| self.ops.get(op).map(|o| format!("  {op:>5} {o}\n"));
        ops.iter().filter_map(line).collect()
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send {
                partition,
                value,
                offset,
                source,
                keyed,
            } => {
                write!(f, "send {value} to p{partition}")?;
                if let Some(Keyed { key, tombstone }) = keyed {
                    let what = if *tombstone { "tombstone of key" } else { "key" };
                    write!(f, " ({what} {key})")?;
                }
                if let Some(source) = source {
                    write!(f, " (copy of {source})")?;
                }
                offset.map_or(Ok(()), |offset| write!(f, " at {offset}"))
            }
            Self::Poll {
                isolation,
                group,
                records,
            } => {
                write!(f, "poll {isolation:?}")?;
                if let Some(group) = group {
                    write!(f, " in group {group}")?;
                }
                let mut before = None;
                for (partition, offset, value) in records {
                    if before != Some(partition) {
                        write!(f, " p{partition}:")?;
                    }
                    before = Some(partition);
                    write!(f, " {value}@{offset}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in generation {}", self.partitions, self.generation)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            process,
            begin,
            end,
            outcome,
            ..
        } = self;
        write!(f, "process {process:>2} [{begin}..")?;
        if *end < u64::MAX {
            write!(f, "{end}")?;
        }
        write!(f, "] {outcome:?}: ")?;
        match &self.action {
            Action::Steps { steps, transaction } => {
                if *transaction {
                    f.write_str("transaction: ")?;
                }
                for (i, step) in steps.iter().enumerate() {
                    write!(f, "{}{step}", if i > 0 { "; " } else { "" })?;
                }
                Ok(())
            }
            Action::Moved(to) => {
                f.write_str("reads on")?;
                to.iter().try_for_each(|(partition, offset)| match offset {
                    Some(offset) => write!(f, " p{partition} from {offset}"),
                    None => write!(f, " p{partition}"),
                })
            }
            Action::Committed { group, offsets } => {
                write!(f, "group {group} has committed")?;
                offsets
                    .iter()
                    .try_for_each(|(partition, offset)| write!(f, " p{partition}: {offset}"))
            }
            Action::LogStart { partition, offset } => write!(f, "p{partition} starts at {offset}"),
            Action::Cut { partition, offset } => write!(f, "p{partition} is cut at {offset}"),
            Action::Reached { isolation, offsets } => {
                write!(f, "has read {isolation:?} up to")?;
                offsets
                    .iter()
                    .try_for_each(|(partition, offset)| write!(f, " p{partition}: {offset}"))
            }
            Action::Cleaned {
                partition,
                below,
                sent_before,
                seen_before,
            } => write!(
                f,
                "p{partition} is cleaned below {below}, of what was sent before [{sent_before}], tombstones seen before [{seen_before}]"
            ),
            Action::Joined(joined) => {
                let back = if joined.in_time { ", back in time," } else { "" };
                let (instance, group) = (joined.instance, joined.group);
                write!(f, "instance {instance} of group {group}{back} has {joined}")
            }
            Action::InstanceCommit { group, instance } => write!(f, "instance {instance} of group {group} commits"),
            Action::Note(text) => f.write_str(text),
        }
    }
}
