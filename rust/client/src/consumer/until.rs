//! Polls that end at given offsets.

use std::collections::BTreeMap;

use fletchlog_api::ErrorCode;
use fletchlog_records::{RecordError, RecordSpan, TopicPartition};

use super::{Consumer, Interrupt, PartitionRun, PolledRecords};
use crate::ClientError;

/// The end of each partition that is read, exclusive.
pub type Until = BTreeMap<TopicPartition, i64>;

impl Consumer {
    /// As [`Consumer::poll_at_most`], without records at or beyond the ends, and of these partitions only. Positions never pass an end.
    ///
    /// # Errors
    /// As [`Consumer::poll`].
    pub fn poll_until(
        &mut self,
        until: &Until,
        most: Option<usize>,
        timeout_ms: i64,
        interrupt: Interrupt<'_>,
    ) -> Result<PolledRecords, ClientError> {
        let behind = self.behind(until);
        let mut held = self.assignment();
        let paused = self.paused();
        held.retain(|tp| !behind.contains(tp) && !paused.contains(tp));
        if !held.is_empty() {
            self.pause(&held)?;
        }
        let polled = self.poll_at_most(most, timeout_ms, interrupt);
        // A rebalance may have taken some away.
        let assigned = self.assignment();
        held.retain(|tp| assigned.contains(tp));
        if !held.is_empty() {
            self.resume(&held)?;
        }
        self.cut(until, polled?)
    }

    /// The assigned partitions, without paused ones, whose positions are before their ends or not known yet.
    pub fn behind(&self, until: &Until) -> Vec<TopicPartition> {
        let paused = self.paused();
        let mut behind = self.assignment();
        behind.retain(|tp| {
            let position = self.state.subs.state(tp).and_then(|state| state.position());
            let is_behind = |end: &i64| position.is_none_or(|position| position < *end);
            until.get(tp).is_some_and(is_behind) && !paused.contains(tp)
        });
        behind
    }

    /// Leaves out the records at and beyond the ends, and goes back to them.
    ///
    /// # Errors
    /// `Kafka` with CORRUPT_MESSAGE for a malformed record.
    pub fn cut(&mut self, until: &Until, mut polled: PolledRecords) -> Result<PolledRecords, ClientError> {
        let mut back = BTreeMap::new();
        for run in &mut polled.runs {
            match until.get(&run.tp) {
                Some(end) if run.last_offset < *end => {}
                Some(end) => {
                    back.insert(run.tp.clone(), *end);
                    *run = before(run, *end).map_err(|error| malformed(run, &error))?;
                }
                None => {
                    back.entry(run.tp.clone()).or_insert(run.first_offset);
                    run.count = 0;
                }
            }
        }
        polled.runs.retain(|run| run.count > 0);
        let assigned = self.assignment();
        for (tp, offset) in back.iter().filter(|(tp, _)| assigned.contains(tp)) {
            self.seek(tp, *offset)?;
        }
        Ok(polled)
    }
}

/// The records of a run before an offset.
fn before(run: &PartitionRun, end: i64) -> Result<PartitionRun, RecordError> {
    let mut spans = Vec::new();
    for span in run.spans.iter().filter(|span| span.first_offset < end) {
        spans.extend(span_before(span, end)?);
    }
    Ok(PartitionRun {
        tp: run.tp.clone(),
        first_offset: run.first_offset,
        last_offset: spans.last().map_or(run.first_offset, |span| span.last_offset),
        count: spans.iter().map(|span| span.count).sum(),
        spans,
        delivery_count: run.delivery_count,
    })
}

/// The records of a span before an offset; `None` if there are none.
fn span_before(span: &RecordSpan, end: i64) -> Result<Option<RecordSpan>, RecordError> {
    if span.last_offset < end {
        return Ok(Some(span.clone()));
    }
    let (mut cursor, mut last_offset) = (span.cursor(), -1);
    let count = cursor.visit(&span.slice, span.count, |offset, _, _| {
        let is_before = offset < end;
        last_offset = if is_before { offset } else { last_offset };
        is_before
    })?;
    Ok((count > 0).then(|| RecordSpan {
        end: cursor.position(),
        count,
        last_offset,
        ..span.clone()
    }))
}

fn malformed(run: &PartitionRun, error: &RecordError) -> ClientError {
    ClientError::Kafka {
        code: ErrorCode::CORRUPT_MESSAGE,
        message: format!("{}: {error}", run.tp),
    }
}
