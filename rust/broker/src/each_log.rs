//! An action on every log, in which the failure of one log does not stop the others.

use crate::BrokerError;
use crate::partition::Partition;

/// The failures of an action. The first is returned to the caller, which reports it; the others are logged.
pub(crate) struct EachLog {
    /// What the log says about a failure, see [`EachLog::new`].
    action: &'static str,
    /// The first failure, with the partition or topic.
    first: Option<(String, BrokerError)>,
}

impl EachLog {
    /// Nothing has failed yet. `action` completes a line such as "t-0: ...".
    pub(crate) fn new(action: &'static str) -> Self {
        Self { action, first: None }
    }

    /// Notes the result for a partition; `None` if it failed.
    pub(crate) fn note<T>(&mut self, partition: &Partition, result: Result<T, BrokerError>) -> Option<T> {
        self.note_as(result, || format!("{}: ", partition.tp()))
    }

    /// Notes the result for a topic; `None` if it failed.
    pub(crate) fn note_topic<T>(&mut self, name: &str, result: Result<T, BrokerError>) -> Option<T> {
        self.note_as(result, || format!("topic {name}: "))
    }

    /// Notes the result for a log directory, whose errors have its path; `None` if it failed.
    pub(crate) fn note_dir<T>(&mut self, result: Result<T, BrokerError>) -> Option<T> {
        self.note_as(result, String::new)
    }

    fn note_as<T>(&mut self, result: Result<T, BrokerError>, place: impl FnOnce() -> String) -> Option<T> {
        match result {
            Ok(done) => return Some(done),
            Err(error) if self.first.is_none() => self.first = Some((place(), error)),
            Err(error) => self.line(&place(), &error),
        }
        None
    }

    fn line(&self, place: &str, error: &BrokerError) {
        log::error!("{place}{}: {error}", self.action);
    }

    /// # Errors
    /// The first failure.
    pub(crate) fn outcome(self) -> Result<(), BrokerError> {
        self.first.map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Logs the first failure too, where no caller can report it.
    pub(crate) fn report(&self) {
        if let Some((place, error)) = &self.first {
            self.line(place, error);
        }
    }
}
