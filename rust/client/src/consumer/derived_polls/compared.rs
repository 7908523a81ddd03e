//! Whether a fetch is the recorded one.

use std::sync::Arc;

use fletchlog_api::FetchRequest;
use fletchlog_records::TopicPartition;
use rustc_hash::FxHashSet;

use super::recorded::{RecordedAssignment, RecordedFetch};
use super::recording::Recording;
use super::replayed::Replayed;

/// A fetch that was sent before the group's assignment may arrive this much later: it has another connection.
const OVERTAKEN_US: i64 = 1_000_000;
/// The same of a fetch that was sent before a request that no response precedes.
const OVERTAKEN_BY_OTHERS_US: i64 = 20_000;

impl Replayed {
    /// Whether a fetch is the recorded one; else the first difference in words, and the number of partitions that differ.
    pub(super) fn compare(
        &self,
        of: &Recording<'_>,
        recorded: &RecordedFetch,
        built: &FetchRequest,
    ) -> Result<(), (String, usize)> {
        self.compare_times(of, recorded)?;
        let wanted: Vec<(TopicPartition, i64)> = wanted_by(built);
        let forgotten: FxHashSet<TopicPartition> = forgotten_by(built);
        let recorded_forgotten: FxHashSet<TopicPartition> = recorded.forgotten.iter().cloned().collect();
        let full = built.session_epoch <= 0;
        if (full, &wanted, &forgotten) == (recorded.full, &recorded.wanted, &recorded_forgotten) {
            return Ok(());
        }
        if full != recorded.full {
            let words = |full: bool| {
                if full {
                    "a full one"
                } else {
                    "one that continues a session"
                }
            };
            return Err((format!("it is {}, and {} is due", words(recorded.full), words(full)), 1));
        }
        let missing = recorded.wanted.iter().filter(|one| !wanted.contains(one));
        let missing: Vec<String> = missing
            .map(|(tp, offset)| format!("{tp} at {offset}: {}", self.state_of(tp, *offset)))
            .collect();
        let extra = wanted.iter().filter(|one| !recorded.wanted.contains(one));
        let extra: Vec<String> = extra.map(|(tp, offset)| format!("{tp} at {offset}")).collect();
        let differing = forgotten.symmetric_difference(&recorded_forgotten).count() + missing.len() + extra.len();
        if let Some(first) = missing.first() {
            return Err((format!("it asks for {first}"), differing));
        }
        if let Some(first) = extra.first() {
            return Err((format!("it does not ask for {first}, which is due"), differing));
        }
        if differing > 0 {
            return Err(("it takes other partitions out of the session".to_owned(), differing));
        }
        if wanted != recorded.wanted {
            return Err(("its partitions have another order".to_owned(), 1));
        }
        Ok(())
    }

    fn compare_times(&self, of: &Recording<'_>, recorded: &RecordedFetch) -> Result<(), (String, usize)> {
        if assigned_at(of.assignments, self.assigned)
            .is_some_and(|at_us| at_us.saturating_add(OVERTAKEN_US) < recorded.at_us)
        {
            return Err(("the group has assigned anew before it".to_owned(), 1));
        }
        if self.assigned > 1
            && assigned_at(of.assignments, self.assigned - 1).is_some_and(|at_us| at_us > recorded.at_us)
        {
            return Err(("the group assigned anew only after it".to_owned(), 1));
        }
        if self
            .next_commit(of)
            .is_some_and(|at_us| at_us + OVERTAKEN_BY_OTHERS_US < recorded.at_us)
        {
            return Err(("what was committed before it was not returned by then".to_owned(), 1));
        }
        let asked = |at: usize| of.topics.get(at).map(|asked| asked.at_us);
        if asked(self.narrowed).is_some_and(|at_us| at_us + OVERTAKEN_BY_OTHERS_US < recorded.at_us) {
            return Err(("the program has assigned other topics before it".to_owned(), 1));
        }
        let last = self.narrowed.checked_sub(1).and_then(asked);
        if last.is_some_and(|at_us| at_us - OVERTAKEN_BY_OTHERS_US > recorded.at_us) {
            return Err(("the program assigned other topics only after it".to_owned(), 1));
        }
        if self.read_us > recorded.at_us {
            return Err(("it was sent before the responses that it follows".to_owned(), 1));
        }
        Ok(())
    }

    fn state_of(&self, tp: &TopicPartition, offset: i64) -> String {
        let subs = &self.state.subs;
        match subs.position(tp) {
            _ if !subs.is_assigned(tp) => "it is not assigned".to_owned(),
            None => "it has no position".to_owned(),
            Some(_) if subs.is_paused(tp) => "it is paused".to_owned(),
            Some(_) if self.state.buffer.is_buffered(tp) => "its last fetch is not read to its end".to_owned(),
            Some(at) if at != offset => format!("its position is {at}"),
            Some(_) => "it is in the session already".to_owned(),
        }
    }
}

fn assigned_at(assignments: &[RecordedAssignment], at: usize) -> Option<i64> {
    Some(assignments.get(at)?.at_us)
}

pub(super) fn wanted_by(request: &FetchRequest) -> Vec<(TopicPartition, i64)> {
    let wanted = request.partitions();
    wanted
        .map(|(topic, p)| (TopicPartition::new(Arc::clone(topic), p.partition), p.fetch_offset))
        .collect()
}

pub(super) fn forgotten_by(request: &FetchRequest) -> FxHashSet<TopicPartition> {
    let forgotten = request.forgotten();
    forgotten
        .map(|(topic, partition)| TopicPartition::new(Arc::clone(topic), partition))
        .collect()
}
