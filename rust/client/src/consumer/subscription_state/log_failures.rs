//! Logs that the broker cannot read. Java retries silently: after KAFKA_STORAGE_ERROR another broker soon leads the
//! partition. Only an embedded broker sends a reason; no other can take over, so the error is reported to the caller.

use fletchlog_api::ErrorCode;
use fletchlog_records::TopicPartition;

use super::SubscriptionState;
use crate::ClientError;

impl SubscriptionState {
    /// Records that the broker could not read this log; without a reason it does nothing, as in Kafka. Returns whether
    /// the caller will see the error.
    pub fn log_failed(&mut self, tp: &TopicPartition, error: ErrorCode, why: Option<&str>) -> bool {
        let Some(why) = why.filter(|_| self.is_assigned(tp)) else {
            return false;
        };
        let failure = ClientError::unreadable(tp, error, why);
        self.log_failures.insert(tp.clone(), failure);
        true
    }

    /// Forgets all failures before the logs are requested again.
    pub fn forget_log_failures(&mut self) {
        self.log_failures.clear();
    }

    /// Why the log of this partition, or of any, could not be read since [`Self::forget_log_failures`].
    pub fn log_failure(&self, of: Option<&TopicPartition>) -> Option<ClientError> {
        match of {
            Some(tp) => self.log_failures.get(tp).cloned(),
            None => self.log_failures.values().next().cloned(),
        }
    }
}
