//! The fetch session with one node and its next request (spec 7.3). Kafka: `FetchSessionHandler.Builder`, as
//! `AbstractFetch#prepareFetchRequests` fills it.

use fletchlog_api::{FetchRequest, NodeId};
use fletchlog_records::TopicPartition;

use super::changed::Changed;
use super::fetch_session_handler::{FetchSessionHandler, Wanted};
use super::fetchable::View;
use crate::net::RequestId;

/// Fetches to one node.
#[derive(Debug, Default)]
pub(super) struct NodeFetches {
    pub(super) session: FetchSessionHandler,
    /// The fetch in flight: at most one.
    pub(super) in_flight: Option<RequestId>,
    /// When it was sent.
    pub(super) asked_ms: i64,
    /// Partitions whose wanted values may differ from the session's last request. Only these are checked, so a request
    /// costs nothing for unchanged partitions.
    pub(super) changed: Changed,
    /// Number of consecutive responses that could not be used.
    pub(super) thrown_away: u32,
}

impl NodeFetches {
    /// Whether the next request must wait. After the first unusable response a full request follows at once, after
    /// further ones only when retry.backoff.ms has passed. (Java never waits here.)
    pub(super) fn backs_off(&self, now_ms: i64, retry_backoff_ms: i64) -> bool {
        self.thrown_away > 1 && now_ms < self.asked_ms.saturating_add(retry_backoff_ms)
    }

    /// What the next request of this node's session asks for; `None` if there is nothing to fetch.
    pub(super) fn build(&mut self, node: NodeId, view: &View<'_>) -> Option<FetchRequest> {
        let request = if self.session.is_full() {
            let all = view.in_request_order();
            let wanted = all
                .into_iter()
                .filter_map(|tp| Some((tp.clone(), view.wanted(tp, node)?)));
            let wanted: Vec<(TopicPartition, Wanted)> = wanted.collect();
            (!wanted.is_empty()).then(|| self.session.build_full(wanted))
        } else {
            let partitions: Vec<&TopicPartition> = match &self.changed {
                Changed::Partitions(partitions) => partitions.iter().collect(),
                Changed::Everything => {
                    let gone = self.session.partitions().filter(|tp| !view.subs.is_assigned(tp));
                    view.subs.iter().map(|(tp, _)| tp).chain(gone).collect()
                }
            };
            let partitions = view.sorted(partitions);
            let now = partitions.into_iter().map(|tp| (tp.clone(), view.wanted(tp, node)));
            let now = now.collect();
            self.session.build_incremental(now)
        };
        if let Some(request) = &request {
            self.changed = Changed::default();
            if view.in_process {
                self.session.note_topic_ids(request, view.without_topic_id(node));
            }
        }
        request
    }
}
