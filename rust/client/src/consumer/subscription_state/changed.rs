//! What may have changed since the last look: a note that each owner of state that decides fetch requests keeps, so
//! that preparing a request costs nothing for unchanged partitions.

use fletchlog_records::TopicPartition;
use rustc_hash::FxHashSet;

/// Partitions that may have changed; all others are unchanged.
#[derive(Debug, Clone, Default)]
pub enum Changed {
    /// Nothing at all.
    #[default]
    Nothing,
    /// These, and what is not of one partition.
    Partitions(FxHashSet<TopicPartition>),
    /// All of them.
    Everything,
}

impl Changed {
    /// Whether nothing has changed.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }

    /// Adds the changes of `other`.
    pub fn extend(&mut self, other: Self) {
        match (&mut *self, other) {
            (_, Self::Nothing) | (Self::Everything, _) => {}
            (Self::Partitions(partitions), Self::Partitions(others)) => partitions.extend(others),
            (_, other) => *self = other,
        }
    }

    /// Adds a partition.
    pub fn insert(&mut self, tp: &TopicPartition) {
        match self {
            Self::Nothing => *self = Self::Partitions(FxHashSet::from_iter([tp.clone()])),
            Self::Partitions(partitions) if !partitions.contains(tp) => drop(partitions.insert(tp.clone())),
            _ => {}
        }
    }
}
