//! Records in flight that were acquired together. Kafka: `InFlightBatch`.

use super::record_state::InFlightState;

/// A range of offsets. Its first offset is its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InFlightBatch {
    pub(crate) last: i64,
    pub(crate) records: Records,
}

/// The states of a batch: a batch costs the same whatever its length, until its records differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Records {
    /// All records have this state.
    All(InFlightState),
    /// One for each offset.
    Each(Vec<InFlightState>),
}

impl InFlightBatch {
    /// A batch whose records have the same state.
    pub(crate) fn new(last: i64, state: InFlightState) -> Self {
        Self {
            last,
            records: Records::All(state),
        }
    }

    /// The state of the whole batch; `None`: its records have states of their own.
    pub(crate) fn whole(&self) -> Option<&InFlightState> {
        match &self.records {
            Records::All(state) => Some(state),
            Records::Each(_) => None,
        }
    }

    /// As [`Self::whole`].
    pub(crate) fn whole_mut(&mut self) -> Option<&mut InFlightState> {
        match &mut self.records {
            Records::All(state) => Some(state),
            Records::Each(_) => None,
        }
    }

    /// The state of one offset of the batch, whose first offset is `first`.
    pub(crate) fn at(&self, first: i64, offset: i64) -> Option<&InFlightState> {
        match &self.records {
            Records::All(state) => (first..=self.last).contains(&offset).then_some(state),
            Records::Each(states) => states.get(usize::try_from(offset - first).ok()?),
        }
    }

    /// The state that is kept for one offset alone.
    pub(crate) fn each_mut(&mut self, first: i64, offset: i64) -> Option<&mut InFlightState> {
        match &mut self.records {
            Records::All(_) => None,
            Records::Each(states) => states.get_mut(usize::try_from(offset - first).ok()?),
        }
    }

    /// The ranges of equal states: (first, last, state).
    pub(crate) fn runs(&self, first: i64) -> Vec<(i64, i64, &InFlightState)> {
        match &self.records {
            Records::All(state) => vec![(first, self.last, state)],
            Records::Each(states) => {
                let mut runs: Vec<(i64, i64, &InFlightState)> = Vec::new();
                for (offset, state) in (first..).zip(states) {
                    match runs.last_mut() {
                        Some(run) if run.2 == state => run.1 = offset,
                        _ => runs.push((offset, offset, state)),
                    }
                }
                runs
            }
        }
    }
}
