//! Finds in a history what a log must not do: the anomaly classes of Jepsen's Kafka workload, and what a group's
//! commits, a transaction that copies, deletions and compaction promise. The checker judges only what clients saw, not
//! how the log works.

mod commits;
mod compaction;
mod cycles;
mod fetches;
mod index;
mod members;
mod polls;
mod sends;
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
    /// An acknowledged value below what was read, but never read.
    LostWrite,
    /// An acknowledged value above what was read, and not read until the end.
    Unseen,
    /// A value was read that was aborted, has failed, or was never sent.
    G1a,
    /// A transaction has read, as committed, what it sent itself.
    PrecommittedRead,
    /// A poll returned less than what followed the poll before.
    PollSkip,
    /// A poll returned what came before the end of the poll before.
    NonmonotonicPoll,
    /// Within one operation, a poll left something out.
    IntPollSkip,
    /// Within one operation, polls went back.
    IntNonmonotonicPoll,
    /// Between two records that a transaction sent to a partition there is another.
    IntSendSkip,
    /// Of two records that a transaction sent to a partition the later one comes first.
    IntNonmonotonicSend,
    /// Of two records that a process sent to a partition the later one comes first.
    NonmonotonicSend,
    /// A cycle of operations by the order of their records.
    G0,
    /// The same with the order of operations in a process.
    G0Process,
    /// The same with the order of operations in time.
    G0Realtime,
    /// A cycle of operations by the order of their records and by what each read.
    G1c,
    /// The same with the order of operations in a process.
    G1cProcess,
    /// The same with the order of operations in time.
    G1cRealtime,
    /// A group has committed beyond a record that no poll of it returned.
    CommitSkip,
    /// What a group has committed went back.
    CommitRegress,
    /// Two committed copies of one value.
    CopiedTwice,
    /// A value was committed beyond, in a transaction that copies, without a copy.
    NotCopied,
    /// A log starts below an offset up to which it had been deleted for good.
    StartRegress,
    /// A value was returned from a fetch that was made after it had been deleted for good.
    DeletedRead,
    /// A reader went past a record that compaction has to keep, in a log that was cleaned.
    CompactedAway,
    /// A value was returned from a fetch that was made after a reader had found it compacted.
    CompactedRead,
    /// A commit of a member counted whose group.instance.id another one had taken over.
    FencedCommit,
    /// A static member was back in time and did not get its partitions in the same generation.
    StaticRebalance,
}

impl Class {
    /// All, in the order of their declaration.
    pub const ALL: [Self; 29] = [
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
    /// What kind.
    pub class: Class,
    /// Where, if in one partition.
    pub partition: Option<Partition>,
    /// The operations that show it, by their place in the history.
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

/// Everything that is wrong with a history whose readers have read to the end.
pub fn check(history: &History) -> Vec<Anomaly> {
    let index = Index::of(history);
    let mut found = Vec::new();
    visibility::check(&index, &mut found);
    let gone = polls::check(&index, &mut found);
    compaction::check(&index, &gone, &mut found);
    sends::check(&index, &mut found);
    cycles::check(&index, &mut found);
    commits::check(&index, &mut found);
    starts::check(&index, &mut found);
    members::check(&index, &mut found);
    found
}
