//! The share session with one node: which partitions it has, and the epoch of its next request. Fetches and acknowledgements count in the
//! same epochs. Kafka: `ShareSessionHandler`, `ShareRequestMetadata`.

use fletchlog_api::{ErrorCode, TopicId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::topic_id_partition::TopicIdPartition;

/// Opens a session. Kafka: `ShareRequestMetadata.INITIAL_EPOCH`.
const INITIAL_EPOCH: i32 = 0;
/// Closes it, which releases what its member has acquired. Kafka: `ShareRequestMetadata.FINAL_EPOCH`.
pub(super) const FINAL_EPOCH: i32 = -1;

/// What a fetch changes of its session.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SessionChange {
    pub epoch: i32,
    pub added: Vec<TopicIdPartition>,
    pub forgotten: Vec<TopicIdPartition>,
}

/// The client's side of one session.
#[derive(Debug, Default)]
pub(super) struct ShareSessionHandler {
    next_epoch: i32,
    /// In the order in which they were added.
    partitions: Vec<TopicIdPartition>,
    /// The same, by what responses name.
    by_id: FxHashMap<(TopicId, i32), TopicIdPartition>,
}

fn by_id(tip: &TopicIdPartition) -> ((TopicId, i32), TopicIdPartition) {
    ((tip.topic_id, tip.tp.partition), tip.clone())
}

impl ShareSessionHandler {
    /// Whether the next request opens a session: it may carry no acknowledgements. Kafka: `isNewSession`.
    pub fn is_new(&self) -> bool {
        self.next_epoch == INITIAL_EPOCH
    }

    /// The epoch of a request that changes no partition.
    pub fn epoch(&self) -> i32 {
        self.next_epoch
    }

    pub fn has(&self, tip: &TopicIdPartition) -> bool {
        self.named(tip.topic_id, tip.tp.partition).is_some()
    }

    /// The partition of the session that a response names so. Kafka: `topicNamesMap`.
    pub fn named(&self, topic_id: TopicId, partition: i32) -> Option<&TopicIdPartition> {
        self.by_id.get(&(topic_id, partition))
    }

    pub fn has_any(&self) -> bool {
        !self.partitions.is_empty()
    }

    /// What the next fetch says of the session, which then has exactly the `wanted` partitions.
    pub fn change_to(&mut self, wanted: &[TopicIdPartition]) -> SessionChange {
        let epoch = self.next_epoch;
        if self.is_new() {
            self.partitions = wanted.to_vec();
            self.by_id = wanted.iter().map(by_id).collect();
            return SessionChange {
                epoch,
                added: wanted.to_vec(),
                forgotten: Vec::new(),
            };
        }
        let wants: FxHashSet<&TopicIdPartition> = wanted.iter().collect();
        let added: Vec<_> = wanted.iter().filter(|tip| !self.has(tip)).cloned().collect();
        let (kept, forgotten): (Vec<_>, Vec<_>) = std::mem::take(&mut self.partitions)
            .into_iter()
            .partition(|tip| wants.contains(tip));
        self.partitions = kept;
        for tip in &forgotten {
            self.by_id.remove(&(tip.topic_id, tip.tp.partition));
        }
        self.by_id.extend(added.iter().map(by_id));
        self.partitions.extend(added.iter().cloned());
        SessionChange {
            epoch,
            added,
            forgotten,
        }
    }

    /// Takes the error of a response as a whole: without one the session continues with the next epoch, else another one is opened.
    /// Kafka: `handleResponse`.
    pub fn on_response(&mut self, error: ErrorCode) {
        self.next_epoch = match (error, self.next_epoch) {
            (ErrorCode::NONE, i32::MAX) => 1,
            (ErrorCode::NONE, epoch) => epoch.saturating_add(1),
            _ => INITIAL_EPOCH,
        };
    }

    /// A request had no response: the node may have lost the session, so another one is opened. Kafka: `handleError`.
    pub fn on_failure(&mut self) {
        self.next_epoch = INITIAL_EPOCH;
    }
}

#[cfg(test)]
mod tests {
    use fletchlog_records::TopicPartition;

    use super::*;

    fn tips(partitions: &[i32]) -> Vec<TopicIdPartition> {
        let of = |partition: &i32| TopicIdPartition {
            topic_id: [7; 16],
            tp: TopicPartition::new("t", *partition),
        };
        partitions.iter().map(of).collect()
    }

    #[test]
    fn a_session_says_what_changes_and_begins_anew_after_an_error() {
        let mut session = ShareSessionHandler::default();
        let opened = session.change_to(&tips(&[0, 1]));
        assert_eq!(
            (opened.epoch, opened.added, opened.forgotten),
            (0, tips(&[0, 1]), vec![])
        );
        session.on_response(ErrorCode::NONE);
        let same = session.change_to(&tips(&[1, 0]));
        assert_eq!((same.epoch, same.added, same.forgotten), (1, vec![], vec![]));
        session.on_response(ErrorCode::NONE);
        let changed = session.change_to(&tips(&[1, 2]));
        assert_eq!(
            (changed.epoch, changed.added, changed.forgotten),
            (2, tips(&[2]), tips(&[0]))
        );
        assert!(session.has(&tips(&[2])[0]) && !session.has(&tips(&[0])[0]));
        session.on_response(ErrorCode::UNKNOWN_SERVER_ERROR);
        assert!(session.is_new());
        let again = session.change_to(&tips(&[1, 2]));
        assert_eq!((again.epoch, again.added, again.forgotten), (0, tips(&[1, 2]), vec![]));
        session.on_failure();
        assert_eq!(session.epoch(), 0);
        session.next_epoch = i32::MAX;
        session.on_response(ErrorCode::NONE);
        assert_eq!(session.epoch(), 1, "after the largest one comes 1");
    }
}
