//! Acquired records that poll has not returned yet. Kafka: `ShareFetchBuffer`, `ShareFetchCollector`.

use std::collections::VecDeque;

use fletchlog_api::NodeId;

use super::acknowledgements::Acknowledgements;
use super::share_completed_fetch::{Reading, ShareCompletedFetch};
use super::share_in_flight_batch::{ShareFetch, ShareInFlightBatch, cut_span, run_of};
use crate::ClientError;
use crate::consumer::PartitionRun;

/// What a poll returns.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub runs: Vec<PartitionRun>,
    pub fetch: ShareFetch,
    /// A batch that could not be read.
    pub failure: Option<ClientError>,
}

/// Responses in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct ShareFetchBuffer {
    queue: VecDeque<ShareCompletedFetch>,
    /// The records of a response of which some were returned.
    next_in_line: Option<ShareInFlightBatch>,
}

impl ShareFetchBuffer {
    pub fn add(&mut self, fetch: ShareCompletedFetch) {
        self.queue.push_back(fetch);
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.next_in_line.is_none()
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The session of a node has ended, and with it what was acquired.
    pub fn forget(&mut self, node: NodeId) {
        self.queue.retain(|fetch| fetch.node != node);
        self.next_in_line = self.next_in_line.take().filter(|batch| batch.node != node);
    }

    /// Takes whole responses of partitions until there are `max_records`, as the leader has acquired them; with `most`, at most that number
    /// of records. Kafka: `ShareFetchCollector#collect`.
    pub fn collect(&mut self, reading: Reading, max_records: usize, most: Option<usize>) -> Collected {
        let mut collected = Collected::default();
        let limit = most.unwrap_or(max_records);
        let mut count = 0;
        while count < limit && collected.failure.is_none() {
            let batch = match self.next_in_line.take() {
                Some(batch) => batch,
                None => match self.queue.pop_front() {
                    Some(fetch) => {
                        let (batch, failure) = fetch.into_batch(reading);
                        collected.failure = failure;
                        batch
                    }
                    None => break,
                },
            };
            let (batch, rest) = match most {
                Some(_) => batch.split(limit - count),
                None => (batch, None),
            };
            self.next_in_line = rest;
            count += batch.runs.iter().map(|run| run.count).sum::<usize>();
            collected.runs.extend(batch.runs.iter().cloned());
            collected.fetch.add(batch);
        }
        collected
    }
}

impl ShareInFlightBatch {
    /// The first `most` records, and the others.
    fn split(self, most: usize) -> (Self, Option<Self>) {
        let mut left = most;
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        for run in &self.runs {
            let (mut taken, mut rest) = (Vec::new(), Vec::new());
            for span in &run.spans {
                let number = left.min(span.count);
                left -= number;
                // Spans have no holes, so offsets count records.
                let cut = span.first_offset + i64::try_from(number).unwrap_or(i64::MAX);
                // Its records were walked when it was cut.
                taken.extend(
                    cut_span(span, span.first_offset, cut - 1)
                        .ok()
                        .flatten()
                        .filter(|_| number > 0),
                );
                rest.extend(
                    cut_span(span, cut, span.last_offset)
                        .ok()
                        .flatten()
                        .filter(|_| number < span.count),
                );
            }
            head.extend(run_of(&run.tp, taken, run.delivery_count));
            tail.extend(run_of(&run.tp, rest, run.delivery_count));
        }
        let rest =
            (!tail.is_empty()).then(|| Self::new(self.tip.clone(), self.node, tail, Acknowledgements::default()));
        match rest {
            None => (self, None),
            Some(rest) => {
                let gaps = self.into_acknowledgements();
                (Self::new(rest.tip.clone(), rest.node, head, gaps), Some(rest))
            }
        }
    }
}
