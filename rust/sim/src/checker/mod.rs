//! Finds in a history what a log must not do: the anomaly classes of Jepsen's Kafka workload, and broken promises of a group's commits,
//! copying transactions, deletions and compaction, share groups. The checker judges only what clients saw, not how the log works.

mod commits;
mod compaction;
mod cuts;
mod cycles;
mod fetches;
mod index;
mod members;
mod polls;
mod sends;
mod shares;
mod starts;
mod visibility;

use std::fmt;

use crate::history::{History, Partition};
use index::Index;

/// A class of anomalies. The names are Jepsen's (`jepsen/tests/kafka.clj`, `analysis`), those of Elle for cycles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Two values at one offset.
    InconsistentOffsets,
    /// One value at two offsets.
    Duplicate,
    /// An acknowledged value was never read, although a higher offset was.
    LostWrite,
    /// An acknowledged value was never read, and neither was any higher offset.
    Unseen,
    /// A value was read that was aborted, whose send failed, or that was never sent.
    G1a,
    /// A transaction has read as committed a value that it sent itself.
    PrecommittedRead,
    /// A poll skipped records after those of the previous poll.
    PollSkip,
    /// A poll returned records from before the end of the previous poll.
    NonmonotonicPoll,
    /// Within one operation, a poll skipped records.
    IntPollSkip,
    /// Within one operation, polls went back.
    IntNonmonotonicPoll,
    /// Another record is between two records that a transaction sent to a partition.
    IntSendSkip,
    /// Two records that a transaction sent to a partition are in the wrong order.
    IntNonmonotonicSend,
    /// Two records that a process sent to a partition are in the wrong order.
    NonmonotonicSend,
    /// A cycle of operations by the order of their records.
    G0,
    /// The same with the order of operations in a process.
    G0Process,
    /// The same with the order of operations in time.
    G0Realtime,
    /// A cycle of operations by the order of their records and by the records that each read.
    G1c,
    /// The same with the order of operations in a process.
    G1cProcess,
    /// The same with the order of operations in time.
    G1cRealtime,
    /// A group has committed an offset beyond a record that none of its polls returned.
    CommitSkip,
    /// A group's committed offset went back.
    CommitRegress,
    /// Two committed copies of one value.
    CopiedTwice,
    /// A copying transaction committed an offset beyond a value that has no copy.
    NotCopied,
    /// A log starts below an offset up to which records had been deleted for good.
    StartRegress,
    /// A value was returned from a fetch that was made after it had been deleted for good.
    DeletedRead,
    /// In a cleaned log, a reader did not get a record that compaction must keep.
    CompactedAway,
    /// A value was returned from a fetch that was made after a reader had found it removed by compaction.
    CompactedRead,
    /// A commit succeeded although another member had taken over the committing member's group.instance.id.
    FencedCommit,
    /// A static member came back in time, but did not get its partitions in the same generation.
    StaticRebalance,
    /// A share group's record was acquired while another member had it.
    AcquiredTwice,
    /// A share group's record was acquired after its acknowledgement had been answered.
    AcknowledgedAgain,
    /// A share group's record was delivered more often than its limit.
    DeliveryLimit,
    /// A share group's record had a delivery count that did not go on.
    DeliveryCount,
    /// A share consumer returned or acknowledged a record that it had not acquired.
    NotAcquired,
    /// A share group is done, and a record of the log is neither acknowledged nor at its limit.
    NeverDelivered,
    /// What is persisted of a share group lacks an answered acknowledgement.
    LostAcknowledgement,
}

impl Class {
    /// All classes, in the order of their declaration.
    pub const ALL: [Self; 36] = [
        Self::InconsistentOffsets,
        Self::Duplicate,
        Self::LostWrite,
        Self::Unseen,
        Self::G1a,
        Self::PrecommittedRead,
        Self::PollSkip,
        Self::NonmonotonicPoll,
        Self::IntPollSkip,
        Self::IntNonmonotonicPoll,
        Self::IntSendSkip,
        Self::IntNonmonotonicSend,
        Self::NonmonotonicSend,
        Self::G0,
        Self::G0Process,
        Self::G0Realtime,
        Self::G1c,
        Self::G1cProcess,
        Self::G1cRealtime,
        Self::CommitSkip,
        Self::CommitRegress,
        Self::CopiedTwice,
        Self::NotCopied,
        Self::StartRegress,
        Self::DeletedRead,
        Self::CompactedAway,
        Self::CompactedRead,
        Self::FencedCommit,
        Self::StaticRebalance,
        Self::AcquiredTwice,
        Self::AcknowledgedAgain,
        Self::DeliveryLimit,
        Self::DeliveryCount,
        Self::NotAcquired,
        Self::NeverDelivered,
        Self::LostAcknowledgement,
    ];

    /// Jepsen's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::InconsistentOffsets => "inconsistent-offsets",
            Self::Duplicate => "duplicate",
            Self::LostWrite => "lost-write",
            Self::Unseen => "unseen",
            Self::G1a => "G1a",
            Self::PrecommittedRead => "precommitted-read",
            Self::PollSkip => "poll-skip",
            Self::NonmonotonicPoll => "nonmonotonic-poll",
            Self::IntPollSkip => "int-poll-skip",
            Self::IntNonmonotonicPoll => "int-nonmonotonic-poll",
            Self::IntSendSkip => "int-send-skip",
            Self::IntNonmonotonicSend => "int-nonmonotonic-send",
            Self::NonmonotonicSend => "nonmonotonic-send",
            Self::G0 => "G0",
            Self::G0Process => "G0-process",
            Self::G0Realtime => "G0-realtime",
            Self::G1c => "G1c",
            Self::G1cProcess => "G1c-process",
            Self::G1cRealtime => "G1c-realtime",
            Self::CommitSkip => "commit-skip",
            Self::CommitRegress => "commit-regress",
            Self::CopiedTwice => "copied-twice",
            Self::NotCopied => "not-copied",
            Self::StartRegress => "start-regress",
            Self::DeletedRead => "deleted-read",
            Self::CompactedAway => "compacted-away",
            Self::CompactedRead => "compacted-read",
            Self::FencedCommit => "fenced-commit",
            Self::StaticRebalance => "static-rebalance",
            Self::AcquiredTwice => "acquired-twice",
            Self::AcknowledgedAgain => "acknowledged-again",
            Self::DeliveryLimit => "delivery-limit",
            Self::DeliveryCount => "delivery-count",
            Self::NotAcquired => "not-acquired",
            Self::NeverDelivered => "never-delivered",
            Self::LostAcknowledgement => "lost-acknowledgement",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One anomaly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anomaly {
    /// The class.
    pub class: Class,
    /// The partition, if it is in a single one.
    pub partition: Option<Partition>,
    /// The operations that show it, by their index in the history.
    pub ops: Vec<usize>,
    /// What is wrong.
    pub what: String,
}

impl Anomaly {
    fn new(class: Class, partition: Partition, mut ops: Vec<usize>, what: String) -> Self {
        ops.sort_unstable();
        ops.dedup();
        Self {
            class,
            partition: Some(partition),
            ops,
            what,
        }
    }

    /// What is wrong, and the operations that show it.
    pub fn explain(&self, history: &History) -> String {
        let at = self.partition.map_or_else(String::new, |p| format!(" in p{p}"));
        format!("{}{at}: {}\n{}", self.class, self.what, history.excerpt(&self.ops))
    }
}

/// Finds all anomalies in a history whose readers have read to the end. Records beyond a cut may be lost, nothing else.
pub fn check(history: &History) -> Vec<Anomaly> {
    let history = cuts::without_lost(history);
    let index = Index::of(&history);
    let mut found = Vec::new();
    visibility::check(&index, &mut found);
    let gone = polls::check(&index, &mut found);
    compaction::check(&index, &gone, &mut found);
    sends::check(&index, &mut found);
    cycles::check(&index, &mut found);
    commits::check(&index, &mut found);
    starts::check(&index, &mut found);
    members::check(&index, &mut found);
    shares::check(&index, &mut found);
    found
}
