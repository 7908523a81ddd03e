//! Calls of the program that explain a fetch.

use fletchlog_api::{NodeId, Request};
use fletchlog_records::TopicPartition;
use rustc_hash::FxHashSet;

use super::compared::{forgotten_by, wanted_by};
use super::derived::DerivedCall;
use super::recording::Recording;
use super::replayed::Replayed;
use super::search::Calls;
use crate::consumer::fetch_collector::Collector;
use crate::consumer::subscription_state::PartitionState;

impl Replayed {
    /// Calls of the program that would make the next fetch of a node the recorded one.
    pub(super) fn calls_for(
        &self,
        of: &mut Recording<'_>,
        node: NodeId,
        max: usize,
        tried: Calls,
    ) -> Option<Vec<DerivedCall>> {
        let at = self.next_of(of, node)?;
        if of.fetches[at]
            .wanted
            .iter()
            .all(|(tp, _)| self.state.subs.is_assigned(tp))
        {
            return self.calls_about_assigned(of, node, max);
        }
        let by_user = !self.state.subs.has_auto_assigned_partitions();
        by_user.then(|| self.assign_for(of, at, tried == Calls::AssigningMany))
    }

    fn calls_about_assigned(&self, of: &mut Recording<'_>, node: NodeId, max: usize) -> Option<Vec<DerivedCall>> {
        let at = self.next_of(of, node)?;
        let recorded = &of.fetches[at];
        let mut after = self.clone();
        let collector = Collector {
            state: &mut after.state,
            now_ms: 0,
        };
        collector.collect(max).ok()?;
        after.follow_leaders(of);
        after.fetches.send_fetches(&mut after.state, &mut of.net);
        let mut built = of.net.take_unsent().into_iter();
        let built = built.find_map(|(to, request)| match request {
            Request::Fetch(fetch) if to == node => Some(fetch),
            _ => None,
        });
        let (wanted, forgotten) = built
            .as_ref()
            .map(|b| (wanted_by(b), forgotten_by(b)))
            .unwrap_or_default();
        let number = recorded.number;
        let mut calls = Vec::new();
        for (tp, offset) in recorded.wanted.iter().filter(|one| !wanted.contains(one)) {
            if self.state.subs.is_paused(tp) {
                calls.push(DerivedCall::new("resume", tp, -1, number));
            }
            if self.state.subs.position(tp) != Some(*offset) || self.state.buffer.is_buffered(tp) {
                calls.push(DerivedCall::new("seek", tp, *offset, number));
            }
        }
        // What a session has already is not listed again: a seek to the offset that was asked for before.
        let in_session = |tp: &TopicPartition| {
            let keeps = !recorded.full && !recorded.forgotten.contains(tp) && self.state.subs.is_assigned(tp);
            of.in_session(tp, node, &self.sent).filter(|_| keeps)
        };
        let listed = |tp: &TopicPartition| recorded.wanted.iter().any(|(other, _)| other == tp);
        let kept = forgotten.iter().filter(|tp| !listed(tp));
        let mut kept: Vec<_> = kept.filter_map(|tp| Some((tp.clone(), in_session(tp)?))).collect();
        kept.sort_unstable();
        let gone = recorded.forgotten.iter().filter(|tp| !forgotten.contains(tp));
        let left_out = wanted.iter().map(|(tp, _)| tp).filter(|tp| !listed(tp));
        let mut paused = Vec::new();
        for tp in gone.chain(left_out) {
            match in_session(tp) {
                Some(offset) => kept.push((tp.clone(), offset)),
                None if self.state.subs.is_paused(tp) || !self.state.subs.is_assigned(tp) => return None,
                None => paused.push(tp),
            }
        }
        calls.extend(
            kept.iter()
                .map(|(tp, offset)| DerivedCall::new("seek", tp, *offset, number)),
        );
        calls.extend(paused.into_iter().map(|tp| DerivedCall::new("pause", tp, -1, number)));
        (!calls.is_empty()).then_some(calls)
    }

    /// An `assign()` of other partitions: those that a fetch asks for, and of the others those that are fetched later on, or wait in a
    /// session. `with_forgotten`: also those that the fetch takes out of the session, as if they were buffered.
    fn assign_for(&self, of: &Recording<'_>, at: usize, with_forgotten: bool) -> Vec<DerivedCall> {
        let recorded = &of.fetches[at];
        let mut assigned: Vec<TopicPartition> = recorded.wanted.iter().map(|(tp, _)| tp.clone()).collect();
        let mut found: FxHashSet<TopicPartition> = assigned.iter().cloned().collect();
        for (tp, state) in self.state.subs.iter() {
            let mut listings = of.next_listings(tp, &self.sent);
            let next = listings.find(|listing| listing.wanted || !with_forgotten);
            let next = next.filter(|listing| listing.wanted);
            let is_read_on = next.is_some_and(|next| self.continues(of, tp, next.at, state));
            let keeps = !recorded.full && !recorded.forgotten.contains(tp);
            let waits = of.next_listings(tp, &self.sent).next().is_none()
                && keeps
                && !self.state.buffer.is_buffered(tp)
                && state.position().is_some();
            let is_gone = !with_forgotten && recorded.forgotten.contains(tp);
            if (is_read_on || waits) && !is_gone && found.insert(tp.clone()) {
                assigned.push(tp.clone());
            }
        }
        let calls = assigned
            .iter()
            .map(|tp| DerivedCall::new("assign", tp, -1, recorded.number));
        calls.collect()
    }

    /// An `assign()` of the partitions that the next fetch of a node asks for; of the others those that are asked for later remain, and
    /// those that wait in the session.
    pub(super) fn assign_before(&self, of: &Recording<'_>, node: NodeId) -> Option<Vec<DerivedCall>> {
        let recorded = &of.fetches[self.next_of(of, node)?];
        let subs = &self.state.subs;
        if subs.has_auto_assigned_partitions() || recorded.wanted.iter().all(|(tp, _)| subs.is_assigned(tp)) {
            return None;
        }
        let mut assigned: Vec<TopicPartition> = recorded.wanted.iter().map(|(tp, _)| tp.clone()).collect();
        for (tp, state) in subs.iter().filter(|(tp, _)| !recorded.forgotten.contains(tp)) {
            let next = of.next_listings(tp, &self.sent).next();
            let is_read_on = next.is_some_and(|next| next.wanted && self.continues(of, tp, next.at, state));
            let waits = !recorded.full && of.in_session(tp, node, &self.sent) == state.position();
            if (is_read_on || waits) && !assigned.contains(tp) {
                assigned.push(tp.clone());
            }
        }
        let calls = assigned
            .iter()
            .map(|tp| DerivedCall::new("assign", tp, -1, recorded.number));
        Some(calls.collect())
    }

    /// Whether a fetch asks for a partition where its position is, or behind that.
    fn continues(&self, of: &Recording<'_>, tp: &TopicPartition, at: usize, state: &PartitionState) -> bool {
        let asked = of.fetches[at]
            .wanted
            .iter()
            .find(|(listed, _)| listed == tp)
            .map(|(_, offset)| *offset);
        asked
            .zip(state.position())
            .is_some_and(|(asked, position)| asked >= position)
    }

    /// Makes these calls; an `assign()` is one for all its partitions, which get the positions of the next fetch of a node.
    pub(super) fn call(&mut self, of: &Recording<'_>, node: NodeId, calls: &[DerivedCall]) {
        let assigned: Vec<TopicPartition> = calls
            .iter()
            .filter(|call| call.method == "assign")
            .map(|call| call.tp.clone())
            .collect();
        if !assigned.is_empty() {
            self.assign_by_user(&assigned);
            self.place(of, &[node]);
        }
        for call in calls.iter().filter(|call| call.method != "assign") {
            let outcome = match call.method {
                "seek" => {
                    self.seek(&call.tp, call.offset);
                    Ok(())
                }
                "pause" => self.state.subs.pause(&call.tp),
                _ => self.state.subs.resume(&call.tp),
            };
            debug_assert!(outcome.is_ok(), "calls are about assigned partitions");
        }
    }
}
