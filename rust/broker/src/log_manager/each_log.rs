//! One thing that is done with every log: a log that fails does not keep the others from it.

use crate::BrokerError;
use crate::partition::Partition;

/// What failed. The first failure is the caller's, who reports it; each other one is a line of the log.
pub(crate) struct EachLog {
    /// What did not work.
    action: &'static str,
    /// With the partition, if it is the failure of one.
    first: Option<(String, BrokerError)>,
}

impl EachLog {
    /// Nothing has failed yet. `action` completes a line such as "t-0: ...".
    pub(crate) fn new(action: &'static str) -> Self {
        Self { action, first: None }
    }

    /// What was done with a partition; `None` if it failed.
    pub(crate) fn note<T>(&mut self, partition: &Partition, result: Result<T, BrokerError>) -> Option<T> {
        self.note_as(result, || format!("{}: ", partition.tp()))
    }

    /// What was done with a topic; `None` if it failed.
    pub(crate) fn note_topic<T>(&mut self, name: &str, result: Result<T, BrokerError>) -> Option<T> {
        self.note_as(result, || format!("topic {name}: "))
    }

    /// What was done with a log directory, whose errors have its path; `None` if it failed.
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

    /// Where there is nobody to return the first failure to: a line of the log, too.
    pub(crate) fn report(&self) {
        if let Some((place, error)) = &self.first {
            self.line(place, error);
        }
    }
}
