//! What may be different since somebody last looked.

use fletchlog_records::TopicPartition;
use rustc_hash::FxHashSet;

/// Partitions that have to be looked at again; one that is not among them is as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// All of them.
    Everything,
    /// These.
    Partitions(FxHashSet<TopicPartition>),
}

impl Default for Changed {
    fn default() -> Self {
        Self::Partitions(FxHashSet::default())
    }
}

impl Changed {
    /// Nothing.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Partitions(partitions) if partitions.is_empty())
    }

    /// Adds a partition.
    pub fn insert(&mut self, tp: &TopicPartition) {
        if let Self::Partitions(partitions) = self
            && !partitions.contains(tp)
        {
            partitions.insert(tp.clone());
        }
    }
}
