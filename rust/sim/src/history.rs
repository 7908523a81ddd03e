//! What the clients of a simulation saw, for [`crate::checker`]: operations with a begin, an end and an outcome, in the order in
//! which they began. After Jepsen's Kafka workload (`jepsen/tests/kafka.clj`): every value is sent once, so a value names its send.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use fletchlog_api::IsolationLevel;

/// A value that is sent once.
pub type Value = u64;
/// Number of a partition, unique over all topics.
pub type Partition = u32;

/// What a record of a compacted partition goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Keyed {
    /// The key.
    pub key: u32,
    /// Without a value: the key is to be forgotten.
    pub tombstone: bool,
}

/// What is known about an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Acknowledged; of a transaction: committed.
    Ok,
    /// It has not happened and never will; of a transaction: aborted.
    Failed,
    /// It may have happened, or may still happen.
    Unknown,
}

/// A part of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// A record was sent.
    Send {
        /// Where to.
        partition: Partition,
        /// What.
        value: Value,
        /// Where it was acknowledged to be.
        offset: Option<i64>,
        /// The value that it is the copy of, in a transaction that copies.
        source: Option<Value>,
        /// Its key; `None` where nothing is compacted.
        keyed: Option<Keyed>,
    },
    /// Records were returned by one poll.
    Poll {
        /// How it read.
        isolation: IsolationLevel,
        /// The group of the consumer, if its position comes from one.
        group: Option<u32>,
        /// (partition, offset, value) in the order in which they were returned.
        records: Vec<(Partition, i64, Value)>,
    },
}

/// What a process did.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// One send, one poll, or everything that one transaction did.
    Steps {
        /// In order.
        steps: Vec<Step>,
        /// Whether they take effect together.
        transaction: bool,
    },
    /// The process reads on from elsewhere (assign, seek, a rebalance): from this offset, or an unknown one.
    Moved(Vec<(Partition, Option<i64>)>),
    /// Looked up what a group has committed.
    Committed {
        /// Number of the group.
        group: u32,
        /// Its offsets.
        offsets: Vec<(Partition, i64)>,
    },
    /// A member with a group.instance.id has its partitions of a generation.
    Joined(Joined),
    /// A member with a group.instance.id committed offsets.
    InstanceCommit {
        /// Number of the group.
        group: u32,
        /// Its group.instance.id.
        instance: u32,
    },
    /// The partition's log was made to start here (DeleteRecords), or was found to. An outcome that is unknown: it may do so, for
    /// the time being or for good.
    LogStart {
        /// Which log.
        partition: Partition,
        /// Its first readable offset.
        offset: i64,
    },
    /// The process has read everything below these offsets that there was to read.
    Reached {
        /// How it read.
        isolation: IsolationLevel,
        /// Its positions.
        offsets: Vec<(Partition, i64)>,
    },
    /// The cleaner went over a partition. An outcome that is unknown: over a part of it, perhaps.
    Cleaned {
        /// Which one.
        partition: Partition,
        /// From here on nothing was to be cleaned: open transactions, the active segment.
        below: i64,
        /// Nor what was sent at this moment or later: min.compaction.lag.ms.
        sent_before: u64,
        /// A tombstone may go that a cleaning had seen which began before this moment: delete.retention.ms.
        seen_before: u64,
    },
    /// What happened besides: crashes, faults.
    Note(String),
}

/// What a member with a group.instance.id got when it joined.
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
    /// It was away for less than its session lasts, and nothing else happened to the group since it had joined before.
    pub in_time: bool,
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Op {
    /// The client that did it. A client that is started anew is a new process; a process that reads begins with its first operation.
    pub process: u32,
    /// Place of its begin in the order of all begins and ends.
    pub begin: u64,
    /// Place of its end; `u64::MAX` if it is not known to have ended.
    pub end: u64,
    /// What became of it.
    pub outcome: Outcome,
    /// What it was.
    pub action: Action,
}

impl Op {
    /// The parts; none for what neither sends nor polls.
    pub fn steps(&self) -> &[Step] {
        match &self.action {
            Action::Steps { steps, .. } => steps,
            _ => &[],
        }
    }
    /// Whether the parts take effect together.
    pub fn is_transaction(&self) -> bool {
        matches!(self.action, Action::Steps { transaction: true, .. })
    }
}

/// Records that a fetch has brought to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fetch {
    /// Whose.
    pub process: u32,
    /// Of which partition.
    pub partition: Partition,
    /// A moment before which nothing was read for it: the request had not reached the broker yet.
    pub arrived: u64,
    /// The first and the last offset of its batches.
    pub offsets: (i64, i64),
}

/// Operations in the order in which they began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct History {
    /// The operations.
    pub ops: Vec<Op>,
    /// What consumers have fetched.
    pub fetches: Vec<Fetch>,
}

impl History {
    /// Equal for equal histories, in every run of the program.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
    /// These operations, one a line.
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
