//! Lookups that move no position: offsets by time, log starts and ends (spec 5, 7.12).
//! Kafka: `OffsetFetcher#offsetsForTimes`,
//! `beginningOrEndOffset`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fletchlog_api::ListOffsetsRequest;
use fletchlog_records::TopicPartition;

use super::consumer::Consumer;
use super::consumer_state::ConsumerState;
use super::metadata::{Leader, Wanted};
use super::offset_lookup::Lookup;
use super::offset_reset::list_offsets_request;
use super::{Interrupt, OffsetAndTimestamp};
use crate::ClientError;

impl Consumer {
    /// Earliest offset whose timestamp is at or after the time, per partition (spec 5); `None` if there is no such record.
    ///
    /// # Errors
    /// `IllegalArgument` for a negative time; `Kafka` with KAFKA_STORAGE_ERROR or CORRUPT_MESSAGE for a log that
    /// cannot be read; `Timeout`, for example for an unknown topic.
    pub fn offsets_for_times(
        &mut self,
        times: &[(TopicPartition, i64)],
        timeout_ms: i64,
        interrupt: Interrupt<'_>,
    ) -> Result<Vec<(TopicPartition, Option<OffsetAndTimestamp>)>, ClientError> {
        self.ensure_open()?;
        if let Some((tp, time)) = times.iter().find(|(_, time)| *time < 0) {
            return Err(ClientError::IllegalArgument(format!(
                "cannot look up time {time} in {tp}: a time is 0 or more, in ms since 1970"
            )));
        }
        let found = self.look_up(times, timeout_ms, interrupt)?;
        Ok(times
            .iter()
            .map(|(tp, _)| (tp.clone(), found.get(tp).copied().flatten()))
            .collect())
    }

    /// Log start offsets.
    ///
    /// # Errors
    /// `Kafka` with KAFKA_STORAGE_ERROR or CORRUPT_MESSAGE for a log that cannot be read; `Timeout`, for example for an unknown
    /// topic.
    pub fn beginning_offsets(
        &mut self,
        partitions: &[TopicPartition],
        timeout_ms: i64,
        interrupt: Interrupt<'_>,
    ) -> Result<Vec<(TopicPartition, i64)>, ClientError> {
        self.end_of_log(
            partitions,
            ListOffsetsRequest::EARLIEST_TIMESTAMP,
            timeout_ms,
            interrupt,
        )
    }

    /// End offsets for this consumer's isolation level.
    ///
    /// # Errors
    /// `Kafka` with KAFKA_STORAGE_ERROR or CORRUPT_MESSAGE for a log that cannot be read; `Timeout`, for example for an unknown
    /// topic.
    pub fn end_offsets(
        &mut self,
        partitions: &[TopicPartition],
        timeout_ms: i64,
        interrupt: Interrupt<'_>,
    ) -> Result<Vec<(TopicPartition, i64)>, ClientError> {
        self.end_of_log(partitions, ListOffsetsRequest::LATEST_TIMESTAMP, timeout_ms, interrupt)
    }

    fn end_of_log(
        &mut self,
        partitions: &[TopicPartition],
        timestamp: i64,
        timeout_ms: i64,
        interrupt: Interrupt<'_>,
    ) -> Result<Vec<(TopicPartition, i64)>, ClientError> {
        self.ensure_open()?;
        let wanted: Vec<(TopicPartition, i64)> = partitions.iter().map(|tp| (tp.clone(), timestamp)).collect();
        let found = self.look_up(&wanted, timeout_ms, interrupt)?;
        Ok(partitions
            .iter()
            .filter_map(|tp| Some((tp.clone(), found.get(tp).copied().flatten()?.offset)))
            .collect())
    }

    fn look_up(
        &mut self,
        wanted: &[(TopicPartition, i64)],
        timeout_ms: i64,
        interrupt: Interrupt<'_>,
    ) -> Result<BTreeMap<TopicPartition, Option<OffsetAndTimestamp>>, ClientError> {
        let deadline = self.net.now_ms().saturating_add(timeout_ms.max(0));
        let open = wanted
            .iter()
            .map(|(tp, timestamp)| (tp.clone(), (*timestamp, i64::MIN)))
            .collect();
        self.lookup = Some(Lookup {
            open,
            ..Lookup::default()
        });
        let before = self.want_also(wanted);
        let outcome = self.look_up_until(deadline, timeout_ms, interrupt);
        self.lookup = None;
        if let Some(before) = before {
            self.state.metadata.set_wanted(before);
        }
        outcome
    }

    fn look_up_until(
        &mut self,
        deadline: i64,
        timeout_ms: i64,
        interrupt: Interrupt<'_>,
    ) -> Result<BTreeMap<TopicPartition, Option<OffsetAndTimestamp>>, ClientError> {
        loop {
            self.send_lookups();
            let Some(lookup) = &mut self.lookup else {
                return Ok(BTreeMap::new());
            };
            lookup.questions.take_failure()?;
            if lookup.open.is_empty() && lookup.questions.unanswered().next().is_none() {
                return Ok(std::mem::take(&mut lookup.found));
            }
            if self.net.now_ms() >= deadline {
                let missing: BTreeSet<String> = lookup
                    .open
                    .keys()
                    .chain(lookup.questions.unanswered())
                    .map(ToString::to_string)
                    .collect();
                let missing = missing.into_iter().collect::<Vec<_>>().join(", ");
                let why = self.net.explain_silence("do these partitions exist?");
                return Err(ClientError::Timeout(format!(
                    "no offsets for {missing} after {timeout_ms} ms; {why}"
                )));
            }
            self.wait_for_answers(deadline, &mut *interrupt)?;
        }
    }

    /// Adds the topics of a lookup that are not wanted yet. Returns the previous list if it was extended.
    fn want_also(&mut self, wanted: &[(TopicPartition, i64)]) -> Option<Wanted> {
        let Wanted::Topics(before) = self.state.metadata.wanted().clone() else {
            return None;
        };
        let mut topics: Vec<Arc<str>> = before.clone();
        for (tp, _) in wanted {
            if !topics.contains(&tp.topic) {
                topics.push(tp.topic.clone());
            }
        }
        if topics.len() == before.len() {
            return None;
        }
        self.state.metadata.want(Wanted::Topics(topics));
        Some(Wanted::Topics(before))
    }

    fn send_lookups(&mut self) {
        let Self {
            lookup: Some(lookup),
            net,
            state: ConsumerState { metadata, settings, .. },
            ..
        } = self
        else {
            return;
        };
        let now = net.now_ms();
        let due = |(tp, (timestamp, not_before)): (&TopicPartition, &(i64, i64))| {
            let leader = metadata.leader(tp);
            (leader.is_none() || *not_before <= now).then(|| (tp.clone(), leader, *timestamp))
        };
        let questions = lookup.open.iter().filter_map(due).collect();
        let request = |asked: &[(TopicPartition, Leader, i64)]| {
            let lookups = asked.iter().map(|(tp, leader, timestamp)| (tp, *leader, *timestamp));
            list_offsets_request(settings.isolation_level, lookups)
        };
        for tp in lookup.questions.ask(questions, request, metadata, net) {
            lookup.open.remove(&tp);
        }
    }
}
