//! How each client release behaves: the table of spec 9.1, in one place.

/// Behaviour of one client release (`fletchlog.producer.version`). One field per row of spec 9.1 and per default or rule
/// of section 9 that changed between 2.4 and 4.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "a table of independent switches")]
pub(crate) struct Release {
    /// Code 47 is `InvalidProducerEpochException` (the batch fails, the epoch is bumped) and 90 is fatal; before, 47 was
    /// the fatal `ProducerFencedException` and 90 an unknown code. 2.7.
    pub fenced_is_90: bool,
    /// A request time-out is treated as code 7; before, as a lost connection. 3.5.
    pub timeout_is_code_7: bool,
    /// A partition restarts at sequence 0 when a new batch is drained with nothing in flight; before, only when the last
    /// in-flight batch of an older epoch succeeds. 2.7 (KAFKA-12152).
    pub restarts_at_drain: bool,
    /// An error for a batch of an older epoch bumps the epoch. 2.7.
    pub stale_failure_bumps: bool,
    /// A record that cannot even be queued (too large, no memory) makes its transaction abortable; before, only its future failed. 3.2
    /// (KAFKA-9279, read in source).
    pub failed_send_aborts: bool,
    /// An error for a batch that has expired already is ignored; before, it could bump the epoch. 3.6.
    pub late_error_ignored: bool,
    /// One drain index per node, kept before it moves; before, one for all nodes that moves first. 3.3.
    pub drain_index_per_node: bool,
    /// A batch that came out of a split and is refused as too large is split at half its size. 4.2.
    pub split_halves: bool,
    /// KIP-794 partitioner for null keys; before, KIP-480. 3.3.
    pub built_in_partitioner: bool,
    /// KIP-580: the back-off doubles up to retry.backoff.max.ms, and a new leader ends it. 3.7.
    pub exponential_backoff: bool,
    /// acks=all and enable.idempotence=true by default. 3.0.
    pub idempotent_by_default: bool,
    /// linger.ms=5 by default (KIP-1030). 4.0.
    pub lingers_by_default: bool,
    /// Transactions of version 2 on a cluster that has them (KIP-890). 4.0.
    pub knows_transaction_version_2: bool,
}

impl Release {
    /// The row of a release (major, minor).
    pub(crate) fn of(release: (u32, u32)) -> Self {
        let since = |first: (u32, u32)| release >= first;
        Self {
            fenced_is_90: since((2, 7)),
            timeout_is_code_7: since((3, 5)),
            restarts_at_drain: since((2, 7)),
            stale_failure_bumps: since((2, 7)),
            failed_send_aborts: since((3, 2)),
            late_error_ignored: since((3, 6)),
            drain_index_per_node: since((3, 3)),
            split_halves: since((4, 2)),
            built_in_partitioner: since((3, 3)),
            exponential_backoff: since((3, 7)),
            idempotent_by_default: since((3, 0)),
            lingers_by_default: since((4, 0)),
            knows_transaction_version_2: since((4, 0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measured_columns_are_those_of_the_table() {
        let old = Release::of((2, 6));
        let (mid, new) = (Release::of((3, 9)), Release::of((4, 3)));
        assert_eq!(Release::of((2, 4)), old);
        // Recorded: requests, log and futures of 4.4.0 are those of 4.3.1.
        assert_eq!(Release::of((4, 4)), new);
        assert!(!old.fenced_is_90 && !old.timeout_is_code_7 && !old.restarts_at_drain && !old.drain_index_per_node);
        assert!(mid.fenced_is_90 && mid.timeout_is_code_7 && mid.restarts_at_drain && mid.drain_index_per_node);
        assert!(!mid.split_halves && new.split_halves);
        assert_eq!(
            new,
            Release {
                split_halves: true,
                lingers_by_default: true,
                knows_transaction_version_2: true,
                ..mid
            }
        );
    }
}
