//! Partitions whose fetches are refused. Java logs every refusal and repeats the fetch at once: thousands of times a
//! second if the broker responds at once (to a fetch of a deleted topic). Here the first refused fetch is repeated at
//! once, the next ones after retry.backoff.ms, and an error is logged once until the partition can be read again.

use fletchlog_api::ErrorCode;
use fletchlog_records::TopicPartition;

use super::SubscriptionState;

/// State of a partition whose last fetch was refused.
#[derive(Debug, Clone, Default)]
pub(super) struct FetchFailure {
    /// Errors that were logged.
    logged: Vec<ErrorCode>,
    /// When it may be fetched again; `None`: now.
    retry_at_ms: Option<i64>,
}

impl SubscriptionState {
    /// Records a refused fetch. If it is not the first in a row, the partition is fetched again at `retry_at_ms`.
    /// Returns whether this error is new.
    pub fn fetch_failed(&mut self, tp: &TopicPartition, error: ErrorCode, retry_at_ms: i64) -> bool {
        let Some(state) = self.assignment.get_mut(tp) else {
            return false;
        };
        match self.fetch_failures.get_mut(tp) {
            None => {
                self.fetch_failures.entry(tp.clone()).or_default().logged.push(error);
                true
            }
            Some(failure) => {
                failure.retry_at_ms = Some(retry_at_ms);
                state.backs_off = true;
                self.changed.insert(tp);
                self.counted.set(None);
                let is_new = !failure.logged.contains(&error);
                if is_new {
                    failure.logged.push(error);
                }
                is_new
            }
        }
    }

    /// Records a successful fetch. The partition may be backing off: after a change of leader, responses of two nodes
    /// can arrive.
    pub fn fetch_succeeded(&mut self, tp: &TopicPartition) {
        if self.fetch_failures.remove(tp).is_some() {
            self.end_back_off(tp);
        }
    }

    /// Lets partitions be fetched again whose back-off has passed.
    pub fn end_back_offs(&mut self, now_ms: i64) {
        let mut over = Vec::new();
        for (tp, failure) in &mut self.fetch_failures {
            if failure.retry_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
                failure.retry_at_ms = None;
                over.push(tp.clone());
            }
        }
        over.iter().for_each(|tp| self.end_back_off(tp));
    }

    fn end_back_off(&mut self, tp: &TopicPartition) {
        if let Some(state) = self.assignment.get_mut(tp).filter(|state| state.backs_off) {
            state.backs_off = false;
            self.changed.insert(tp);
            self.counted.set(None);
        }
    }

    /// When the first back-off ends.
    pub fn first_back_off_end_ms(&self) -> Option<i64> {
        self.fetch_failures
            .values()
            .filter_map(|failure| failure.retry_at_ms)
            .min()
    }
}
