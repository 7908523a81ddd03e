//! The client's side of the group protocols: classic (spec 8.7) and consumer (spec 8.13).
//!
//! Seam with the consumer (`consumer/poll.rs` is the only caller):
//! - All times are monotonic ms (`ConsumerNetworkClient::now_ms`). `poll` never waits and may run many times per user poll.
//! - Requests: `net.send(coordinator_connection(node), request)` (FindCoordinator: `net.least_loaded_node()`) returns
//!   the id; the completion with that `correlation_id` comes back through `on_completion`, a lost one as `Err`.
//! - Assignment: `subs.assign_from_subscribed(&partitions)` (any order; `&[]` = revoke all, which drops positions and pauses).
//! - Leader: `subs.group_subscribe(&all_topics)`; the consumer then requests their metadata; the topics are not fresh
//!   until it has arrived.
//! - Pattern subscriptions: the consumer matches the pattern against the cluster and keeps `subs.subscription()` current.
//! - Turn of `poll`: `coordinator.poll(net, subs, topics, now)`; then `net` is polled and every completion offered to
//!   `on_completion` (true = it was the coordinator's). If a response requires another request (join -> sync, an error ->
//!   retry), the next `poll` sends it, so poll again after completions while `rejoin_needed_or_pending`.
//! - Blocking calls: `start_commit` / `start_fetch_committed` return an [`OperationId`]; then `drive` + net +
//!   `on_completion` until `commit_result(id)` / `committed_result(id)` returns a result; `cancel(id)` on timeout.
//!   `drive` never joins or rebalances.
//! - `assign()`: `maybe_auto_commit` first. `unsubscribe()`: `leave`. `close()`: commit `subs.all_consumed()` if
//!   `auto_commit_enabled()`, `leave`, then drive the net until `!leave_pending()`.
//! - `next_deadline_ms(now)` is the absolute time of the next turn with something to do; a wait must not pass it.
//! - Commits take `subs.all_consumed()` if no offsets are given.

use std::sync::Arc;

mod consumer_membership;
mod consumer_protocol;
mod coordinator;
mod leader;
pub mod legacy;
mod liveness;
mod membership;
mod offsets;
mod rebalance;

pub(crate) use coordinator::session_timeout_ms;
pub use coordinator::{ConsumerCoordinator, GroupTopics};
pub use legacy::{LegacyConsumer, LegacyStream};
pub(crate) use offsets::CommittedLookup;
pub use offsets::{Commit, CommittedOffsets, OperationId};

/// The consumer whose offsets a transaction commits; the group coordinator checks it against the group.
/// Kafka: `ConsumerGroupMetadata`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerGroupMetadata {
    /// group.id.
    pub group_id: Arc<str>,
    /// Generation of the member, -1 for a consumer that manages its partitions itself.
    pub generation_id: i32,
    /// Member id, "" for such a consumer.
    pub member_id: Arc<str>,
    /// group.instance.id.
    pub group_instance_id: Option<Arc<str>>,
}

#[cfg(test)]
mod tests;
