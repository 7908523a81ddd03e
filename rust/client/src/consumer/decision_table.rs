//! What differs between the releases of the Java client, as one table (spec 7.8). Everything else in this module is the
//! same in every release.

use fletchlog_api::Config;

/// Order of the fetchable partitions in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestOrder {
    /// Assignment order as rotated.
    List,
    /// Walk order of `new HashSet(list)`: Kafka's PR 14359.
    HashSet,
}

/// Assignment order after a group assignment (spec 7.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscribeOrder {
    /// L -> HashSet(L) -> HashMap(n) -> by topic.
    HashSetThenMap,
    /// L sorted -> HashMap(n) -> by topic.
    SortedThenMap,
    /// L sorted by (topic, partition).
    Sorted,
}

/// When responses that have arrived are read (spec 7.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkRead {
    /// Only by a poll that found nothing buffered.
    Lazy,
    /// Lazy, and once at the start of every poll.
    AtPollStart,
    /// Between polls, by the heartbeat thread.
    Eager,
}

/// One row of the table: the behaviour of a range of releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// First and last release.
    pub releases: ((u32, u32), (u32, u32)),
    /// Order of partitions in a request.
    pub request_order: RequestOrder,
    /// No request goes to a node that hosts buffered, fetchable data: KAFKA-17182.
    pub buffered_node: bool,
    /// Assignment order after subscribe().
    pub subscribe_order: SubscribeOrder,
    /// poll() returns at once, empty, when a position moved without a record.
    pub early_return: bool,
    /// A position found by a lookup gets the leader of the metadata at once; if false, only when the next fetch is
    /// built.
    pub reset_with_leader: bool,
    /// Fetches use topic ids (KIP-516) if the metadata has them.
    pub topic_ids: bool,
    /// Reading under assign() without group.id.
    pub assign: NetworkRead,
    /// Reading under assign() with group.id.
    pub group_assign: NetworkRead,
    /// Reading under subscribe().
    pub subscribe: NetworkRead,
}

use NetworkRead::{AtPollStart, Eager, Lazy};
use RequestOrder::{HashSet, List};
use SubscribeOrder::{HashSetThenMap, Sorted, SortedThenMap};

const fn row(
    releases: ((u32, u32), (u32, u32)),
    request_order: RequestOrder,
    buffered_node: bool,
    subscribe_order: SubscribeOrder,
    early_return: bool,
    group_assign: NetworkRead,
) -> Row {
    let (major, minor) = releases.0;
    Row {
        releases,
        request_order,
        buffered_node,
        subscribe_order,
        early_return,
        reset_with_leader: major > 2 || minor >= 7,
        topic_ids: major > 3 || (major == 3 && minor >= 1),
        assign: Lazy,
        group_assign,
        subscribe: Eager,
    }
}

/// Spec 7.8, row by row.
///
/// | releases  | request order | buffered node | after subscribe() | early return | assign() + group.id |
///
/// `reset_with_leader` and `topic_ids` follow from the first release.
pub const ROWS: [Row; 7] = [
    row(((2, 4), (2, 6)), List, false, HashSetThenMap, false, Lazy),
    row(((2, 7), (3, 0)), List, false, HashSetThenMap, false, Lazy),
    row(((3, 1), (3, 1)), List, false, HashSetThenMap, false, AtPollStart),
    row(((3, 2), (3, 6)), List, false, SortedThenMap, true, AtPollStart),
    row(((3, 7), (3, 9)), HashSet, false, SortedThenMap, true, AtPollStart),
    row(((4, 0), (4, 1)), HashSet, true, SortedThenMap, true, AtPollStart),
    row(((4, 2), (4, 4)), List, true, Sorted, true, AtPollStart),
];

/// The row of a release; releases outside the table (the configuration refuses them) get the first row.
pub fn row_of(release: (u32, u32)) -> &'static Row {
    ROWS.iter()
        .find(|r| r.releases.0 <= release && release <= r.releases.1)
        .unwrap_or(&ROWS[0])
}

/// How one consumer reads, chosen by `fletchlog.network.read`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMode {
    /// By the row.
    Auto,
    /// This mode, under assign() and subscribe() alike.
    Forced(NetworkRead),
}

impl ReadMode {
    /// From `fletchlog.network.read`.
    pub fn of(config: &Config) -> Self {
        match config.text("fletchlog.network.read") {
            "lazy" => Self::Forced(Lazy),
            "eager" => Self::Forced(Eager),
            _ => Self::Auto,
        }
    }

    /// The mode that applies now.
    pub fn network_read(self, row: &Row, subscribed: bool, has_group_id: bool) -> NetworkRead {
        match (self, subscribed, has_group_id) {
            (Self::Forced(read), _, _) => read,
            (Self::Auto, true, _) => row.subscribe,
            (Self::Auto, false, true) => row.group_assign,
            (Self::Auto, false, false) => row.assign,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_release_from_2_4_to_4_3_has_exactly_one_row() {
        let releases = (4..=8)
            .map(|m| (2, m))
            .chain((0..=9).map(|m| (3, m)))
            .chain((0..=3).map(|m| (4, m)));
        for release in releases {
            assert_eq!(
                ROWS.iter()
                    .filter(|r| r.releases.0 <= release && release <= r.releases.1)
                    .count(),
                1,
                "{release:?}"
            );
        }
    }

    #[test]
    fn the_boundaries_between_releases_are_those_that_were_measured() {
        assert_eq!(row_of((3, 0)).group_assign, Lazy);
        assert_eq!(row_of((3, 1)).group_assign, AtPollStart);
        assert!(!row_of((3, 1)).early_return && row_of((3, 2)).early_return);
        assert_eq!(
            (row_of((3, 1)).subscribe_order, row_of((3, 2)).subscribe_order),
            (HashSetThenMap, SortedThenMap)
        );
        assert_eq!(
            (row_of((3, 6)).request_order, row_of((3, 7)).request_order),
            (List, HashSet)
        );
        assert!(!row_of((2, 6)).reset_with_leader && row_of((2, 7)).reset_with_leader);
        assert!(!row_of((3, 0)).topic_ids && row_of((3, 1)).topic_ids);
        assert!(!row_of((3, 9)).buffered_node && row_of((4, 0)).buffered_node);
        assert_eq!(
            (row_of((4, 1)).request_order, row_of((4, 2)).request_order),
            (HashSet, List)
        );
        assert_eq!(
            (row_of((4, 1)).subscribe_order, row_of((4, 2)).subscribe_order),
            (SortedThenMap, Sorted)
        );
        // Recorded: every poll and request of 4.4.0 is that of 4.3.1.
        assert_eq!(row_of((4, 4)).releases, row_of((4, 3)).releases);
    }

    #[test]
    fn a_forced_reading_rule_holds_in_every_mode() {
        for (subscribed, group) in [(false, false), (false, true), (true, true)] {
            assert_eq!(
                ReadMode::Forced(Eager).network_read(row_of((2, 6)), subscribed, group),
                Eager
            );
            assert_eq!(
                ReadMode::Forced(Lazy).network_read(row_of((4, 3)), subscribed, group),
                Lazy
            );
        }
        assert_eq!(ReadMode::Auto.network_read(row_of((2, 6)), true, true), Eager);
        assert_eq!(ReadMode::Auto.network_read(row_of((2, 6)), false, true), Lazy);
    }
}
