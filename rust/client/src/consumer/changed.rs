//! What may have changed since the last call.

use fletchlog_records::TopicPartition;
use rustc_hash::FxHashSet;

/// Partitions that may have changed; all others are unchanged.
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
    /// Adds the changes of `other`.
    pub fn extend(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::Partitions(partitions), Self::Partitions(others)) => partitions.extend(others),
            (_, Self::Everything) => *self = Self::Everything,
            (Self::Everything, _) => {}
        }
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
