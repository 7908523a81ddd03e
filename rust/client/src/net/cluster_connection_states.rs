//! Which connections are open, and how long nodes are not used after their connection was lost.
//! Kafka: `ClusterConnectionStates`.

use std::collections::BTreeMap;

use fletchlog_api::{Failure, NodeId};

use crate::backoff::ExponentialBackoff;
use crate::random::Random;

/// State of a connection, as of the client's last check. Kafka: `ConnectionState`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ConnectionState {
    #[default]
    Disconnected,
    Connecting,
    Ready,
}

#[derive(Debug, Default)]
struct NodeConnectionState {
    connection: ConnectionState,
    /// When the client last began to open it.
    last_attempt_ms: Option<i64>,
    /// Nothing is sent before this time: the connection was lost, or the node asked for a pause.
    not_before_ms: Option<i64>,
    /// Number of times it was lost since the last response.
    failed_attempts: i32,
    /// Why it was lost last; `None` for a pause.
    failure: Option<Failure>,
}

/// The connection state of each node, with the back-off after a loss.
#[derive(Debug)]
pub(super) struct ClusterConnectionStates {
    reconnect_backoff: ExponentialBackoff,
    random: Random,
    nodes: BTreeMap<NodeId, NodeConnectionState>,
}

impl ClusterConnectionStates {
    /// `seed`: for the jitter of the waits.
    pub(super) fn new(reconnect_backoff: ExponentialBackoff, seed: u64) -> Self {
        Self {
            reconnect_backoff,
            random: Random::new(seed),
            nodes: BTreeMap::new(),
        }
    }

    /// State of a node's connection.
    pub(super) fn state(&self, node: NodeId) -> ConnectionState {
        self.nodes
            .get(&node)
            .map_or(ConnectionState::default(), |state| state.connection)
    }

    /// When the client last began to open a connection to the node; `None` if never.
    /// Kafka: `ClusterConnectionStates#lastConnectAttemptMs`.
    pub(super) fn last_attempt_ms(&self, node: NodeId) -> Option<i64> {
        self.nodes.get(&node)?.last_attempt_ms
    }

    /// Records that a connection is being opened. Kafka: `ClusterConnectionStates#connecting`.
    pub(super) fn connecting(&mut self, node: NodeId, now: i64) {
        let state = self.nodes.entry(node).or_default();
        if state.connection != ConnectionState::Connecting {
            (state.connection, state.last_attempt_ms) = (ConnectionState::Connecting, Some(now));
        }
    }

    /// Records that a connection is open. Kafka: `ClusterConnectionStates#ready`.
    pub(super) fn connected(&mut self, node: NodeId) {
        self.nodes.entry(node).or_default().connection = ConnectionState::Ready;
    }

    /// ms until a node may be used again; `None` if it may be used now.
    /// Kafka: `ClusterConnectionStates#connectionDelay`.
    pub(super) fn delay(&self, node: NodeId, now: i64) -> Option<i64> {
        let not_before = self.nodes.get(&node)?.not_before_ms?;
        (not_before > now).then(|| not_before - now)
    }

    /// Why a node whose connection was lost may not be used yet; `None` otherwise.
    /// Kafka: `NetworkClient#connectionFailed`, `#authenticationException`.
    pub(super) fn failure(&self, node: NodeId, now: i64) -> Option<&Failure> {
        self.delay(node, now).and(self.nodes.get(&node)?.failure.as_ref())
    }

    /// The node that was lost last and why, if it has sent no response since.
    pub(super) fn last_failure(&self) -> Option<(NodeId, &Failure)> {
        let lost = self.nodes.iter().filter(|(_, state)| state.failed_attempts > 0);
        let (&node, state) = lost.max_by_key(|(_, state)| state.not_before_ms)?;
        Some((node, state.failure.as_ref()?))
    }

    /// ms until the first of the nodes that must not be used now may be used again.
    pub(super) fn first_delay(&self, now: i64) -> Option<i64> {
        self.nodes.keys().filter_map(|&node| self.delay(node, now)).min()
    }

    /// Records that the connection was lost, or could not be opened. Kafka: `ClusterConnectionStates#disconnected`.
    pub(super) fn disconnected(&mut self, node: NodeId, why: Failure, now: i64) {
        let state = self.nodes.entry(node).or_default();
        state.connection = ConnectionState::Disconnected;
        let random = &mut self.random;
        let wait_ms = self
            .reconnect_backoff
            .wait_ms(state.failed_attempts, || random.fraction());
        state.failed_attempts = state.failed_attempts.saturating_add(1);
        state.not_before_ms = Some(now.saturating_add(wait_ms));
        state.failure = Some(why);
    }

    /// Records that the node asked for a pause. Kafka: `ClusterConnectionStates#throttle`.
    pub(super) fn throttle(&mut self, node: NodeId, until_ms: i64) {
        let state = self.nodes.entry(node).or_default();
        (state.not_before_ms, state.failure) = (Some(until_ms), None);
    }

    /// Records a response: the connection works. (In Java it works when the handshake is over; in-process there is
    /// none.)
    pub(super) fn answered(&mut self, node: NodeId) {
        if let Some(state) = self.nodes.get_mut(&node) {
            state.failed_attempts = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lose(states: &mut ClusterConnectionStates, node: NodeId, now: i64) -> i64 {
        states.disconnected(node, Failure::Disconnected, now);
        let ms = states.delay(node, now).unwrap();
        assert_eq!(
            (states.delay(node, now + ms - 1), states.delay(node, now + ms)),
            (Some(1), None)
        );
        ms
    }

    #[test]
    fn a_node_is_left_alone_for_longer_each_time_it_is_lost_until_an_answer_comes() {
        let mut states = ClusterConnectionStates::new(ExponentialBackoff::new(50, 1000), 1);
        for round in 0..2 {
            let waits: Vec<i64> = (0..8).map(|at| lose(&mut states, 1, at * 10_000)).collect();
            for (at, expected) in [50, 100, 200, 400, 800, 1000, 1000, 1000].into_iter().enumerate() {
                let range = expected * 4 / 5..=(expected * 6 / 5).min(1000);
                assert!(range.contains(&waits[at]), "{round}: {waits:?}");
            }
            states.answered(1);
        }
        // Another node has a count of its own.
        assert!((40..=60).contains(&lose(&mut states, 2, 0)));
    }

    #[test]
    fn the_same_seed_gives_the_same_waits() {
        let waits = |seed| {
            let mut states = ClusterConnectionStates::new(ExponentialBackoff::new(50, 1000), seed);
            (0..6).map(|at| lose(&mut states, 1, at * 10_000)).collect::<Vec<_>>()
        };
        assert_eq!(waits(7), waits(7));
        assert_ne!(waits(7), waits(8));
    }

    #[test]
    fn the_first_of_the_nodes_left_alone_decides_how_long_to_wait() {
        let mut states = ClusterConnectionStates::new(ExponentialBackoff::new(50, 50), 1);
        assert_eq!(states.first_delay(0), None);
        states.disconnected(1, Failure::Disconnected, 0);
        states.throttle(2, 30);
        assert_eq!(states.first_delay(10), Some(20));
        assert_eq!(states.failure(1, 10), Some(&Failure::Disconnected));
        assert_eq!((states.failure(2, 10), states.failure(1, 50)), (None, None));
        assert_eq!(states.first_delay(30), Some(20));
        assert_eq!(states.first_delay(50), None);
        assert_eq!(
            states.last_failure(),
            Some((1, &Failure::Disconnected)),
            "as long as it has not answered"
        );
        states.answered(1);
        assert_eq!(states.last_failure(), None);
    }
}
