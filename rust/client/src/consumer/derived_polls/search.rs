//! All ways in which the recorded consumer can have come from one recorded fetch to the next, and what they agree in.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use fletchlog_api::NodeId;
use rustc_hash::{FxHashMap, FxHasher};

use super::chain::{Chain, Link, common_length, confirmed, hash_of, length_of, linked, with_fetch};
use super::derived::{DerivedCall, DerivedPoll, DerivedPolls, DerivedRun, Parting};
use super::recorded::{RecordedFetch, RecordedReader};
use super::recording::Recording;
use super::replayed::{Difference, Replayed};
use crate::ClientError;

/// States that are followed from one fetch to the next.
const MOST_WAYS: usize = 48;
/// Steps that are tried between two fetches.
const MOST_STEPS: usize = 20_000;
/// A program that so often commits other offsets than its positions commits none that count.
const MOST_PASSED_OVER: usize = 3;

/// One way to come to a state.
#[derive(Clone)]
struct Way {
    at: Replayed,
    polls: Chain,
    calls: Rc<Vec<DerivedCall>>,
    /// Polls, from and to, around steps that are not certain.
    doubts: Rc<Vec<(usize, usize)>>,
    /// Number of polls before such a step whose consequences are not over, and the fetch that it explains.
    doubt: Option<(usize, u64)>,
    /// Number of recorded fetches that were sent.
    sent: usize,
}

impl Way {
    /// A step that is not certain: these polls are before it.
    fn doubt_from(&mut self, polls: usize, fetch: u64) {
        let (from, newest) = self.doubt.unwrap_or((polls, fetch));
        self.doubt = Some((from.min(polls), newest.max(fetch)));
    }

    /// Ends the doubt where the state depends on nothing that was before: a fetch since then has listed each partition, and nothing is
    /// buffered.
    fn settle(&mut self, of: &Recording<'_>) {
        let is_over = |fetch: u64| self.at.is_plain() && self.at.was_listed_since(of, fetch);
        if let Some((from, _)) = self.doubt.filter(|&(_, fetch)| is_over(fetch)) {
            Rc::make_mut(&mut self.doubts).push((from, length_of(&self.polls)));
            self.doubt = None;
        }
    }
}

/// Steps that are tried between two fetches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Steps {
    /// Responses, polls, and assignments that begin where the polls end.
    Certain,
    /// Also past commits of offsets that are no positions, and polls before another thread has sent the fetches of the last one.
    PassingOver,
    /// Also assignments that begin elsewhere: what was not committed is read again.
    Assigning,
    /// Also calls of the program, each before the poll that sends the fetch.
    Calling,
    /// Also an `assign()` while the fetch before was in flight.
    AssigningInFlight,
}

/// Which calls of the program are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Calls {
    /// None.
    None,
    /// An `assign()` keeps of the other partitions those that are asked for next.
    AssigningFew,
    /// It keeps also those that were buffered and are asked for later.
    AssigningMany,
}

/// Two chains that lead to the same state: the first is followed.
type Merged = (Chain, Chain);

struct Search<'a> {
    of: Recording<'a>,
    max: usize,
    calls: Calls,
    /// Ways by the number of fetches that were sent.
    levels: BTreeMap<usize, Vec<Way>>,
    /// States of this level, with the polls that led there.
    known: FxHashMap<u64, Chain>,
    merged: Vec<Merged>,
    /// How often commits were passed over.
    passed_over: usize,
    /// Ways were dropped because there were too many.
    was_cut: bool,
    nearest: Option<Difference>,
}

pub(super) fn replay(
    reader: &RecordedReader,
    fetches: &[RecordedFetch],
    max: usize,
    calls: Calls,
) -> Result<DerivedPolls, ClientError> {
    let (of, first) = Recording::new(reader, fetches)?;
    let way = Way {
        at: first,
        polls: None,
        calls: Rc::new(Vec::new()),
        doubts: Rc::new(Vec::new()),
        doubt: None,
        sent: 0,
    };
    let mut search = Search {
        of,
        max,
        calls,
        levels: BTreeMap::from([(0, vec![way])]),
        known: FxHashMap::default(),
        merged: Vec::new(),
        passed_over: 0,
        was_cut: false,
        nearest: None,
    };
    Ok(search.run())
}

impl Search<'_> {
    fn run(&mut self) -> DerivedPolls {
        let mut reached = Vec::new();
        while let Some((level, ways)) = self.levels.pop_first() {
            self.known.clear();
            self.nearest = None;
            reached = self.expand(level, ways, Steps::Certain);
            if level == self.of.fetches.len() {
                let reached = self.tail(reached);
                return self.result(&reached, None);
            }
            for steps in [
                Steps::PassingOver,
                Steps::Assigning,
                Steps::Calling,
                Steps::AssigningInFlight,
            ] {
                if !self.levels.is_empty() || (steps >= Steps::Calling && self.calls == Calls::None) {
                    continue;
                }
                self.known.clear();
                let again = std::mem::take(&mut reached);
                reached = self.expand(level, again, steps);
                self.passed_over += usize::from(steps == Steps::PassingOver && !self.levels.is_empty());
            }
            if self.passed_over >= MOST_PASSED_OVER {
                self.of.commits = &[];
            }
        }
        let parted = self.parting(&reached);
        self.result(&reached, Some(parted))
    }

    /// Follows the ways of one level until each sends a fetch. Returns them, without those that others include.
    fn expand(&mut self, level: usize, mut ways: Vec<Way>, steps: Steps) -> Vec<Way> {
        ways.sort_by_key(|way| (way.calls.len(), length_of(&way.polls)));
        if ways.len() > MOST_WAYS {
            ways.truncate(MOST_WAYS);
            self.was_cut = true;
        }
        let until_us = self.of.fetches.get(level).map_or(i64::MIN, |fetch| fetch.at_us);
        let mut kept = Vec::new();
        let mut tried = 0;
        for mut way in ways {
            if steps >= Steps::PassingOver {
                way.at.pass_commits(&self.of, until_us);
            }
            if self.is_known(&way) {
                continue;
            }
            kept.push(way.clone());
            let mut stack = vec![way];
            while let Some(way) = stack.pop() {
                tried += 1;
                if tried > MOST_STEPS {
                    self.was_cut = true;
                    break;
                }
                self.step(&way, level, steps, &mut stack);
            }
        }
        kept
    }

    /// All that can happen next. The last one pushed is the first one followed: a response is read as soon as possible.
    fn step(&mut self, way: &Way, level: usize, steps: Steps, stack: &mut Vec<Way>) {
        let owes = self.of.is_background && way.at.owes_fetches;
        if steps >= Steps::Calling && !owes {
            self.call(way);
        }
        if steps == Steps::AssigningInFlight {
            self.assign_in_flight(way, stack);
        }
        if !owes || way.at.polls_again || steps >= Steps::PassingOver {
            self.poll(way, level, stack);
        }
        if owes {
            self.send(way, level, stack);
        }
        self.assign(way, steps, stack);
        self.narrow(way, stack);
        self.deliver(way, stack);
    }

    /// An `assign()` without some of the topics.
    fn narrow(&mut self, way: &Way, stack: &mut Vec<Way>) {
        let mut next = way.clone();
        if next.at.narrow(&self.of) && !self.is_known(&next) {
            stack.push(next);
        }
    }

    fn deliver(&mut self, way: &Way, stack: &mut Vec<Way>) {
        for node in self.of_readable(way) {
            let mut next = way.clone();
            next.at.deliver(&mut self.of, node);
            if !self.is_known(&next) {
                stack.push(next);
            }
        }
    }

    /// Polls behind the last fetch, as far as commits show them.
    fn tail(&mut self, reached: Vec<Way>) -> Vec<Way> {
        let left = |way: &Way, of: &Recording<'_>| way.at.commits_left(of);
        let Some(at_first) = reached
            .iter()
            .map(|way| left(way, &self.of))
            .min()
            .filter(|&left| left > 0)
        else {
            return reached;
        };
        self.known.clear();
        let (mut least, mut found, mut tried) = (at_first, Vec::new(), 0);
        for way in &reached {
            let mut stack = vec![way.clone()];
            while let Some(way) = stack.pop().filter(|_| tried < MOST_STEPS) {
                tried += 1;
                let mut next = Vec::new();
                self.step(&way, usize::MAX - 1, Steps::Certain, &mut next);
                for next in next {
                    let now = left(&next, &self.of);
                    if now < least {
                        least = now;
                        found.clear();
                    }
                    if now == least && now < left(&way, &self.of) {
                        found.push(next.clone());
                    }
                    if now > 0 {
                        stack.push(next);
                    }
                }
            }
        }
        self.levels.clear();
        if found.is_empty() { reached } else { found }
    }

    /// The nodes to deliver from, the one to be followed first at the end.
    fn of_readable(&self, way: &Way) -> Vec<NodeId> {
        let mut nodes = way.at.readable(&self.of);
        nodes.reverse();
        nodes
    }

    /// Whether the state was reached before. If it was reached by other polls, this is noted.
    fn is_known(&mut self, way: &Way) -> bool {
        let key = (way.at.fingerprint(), way.calls.len());
        let mut hasher = FxHasher::default();
        key.hash(&mut hasher);
        match self.known.entry(hasher.finish()) {
            Entry::Occupied(known) => {
                if hash_of(known.get()) != hash_of(&way.polls) {
                    self.merged.push((known.get().clone(), way.polls.clone()));
                }
                true
            }
            Entry::Vacant(unknown) => {
                unknown.insert(way.polls.clone());
                false
            }
        }
    }

    fn poll(&mut self, way: &Way, level: usize, stack: &mut Vec<Way>) {
        if self.of.is_background {
            for partitions in way.at.partly_arrived() {
                self.poll_of_part(way.clone(), partitions, stack);
            }
            return self.finish_poll(way.clone(), level, Some(stack));
        }
        for next in self.placed(way) {
            self.finish_poll(next, level, Some(stack));
        }
    }

    /// A poll that was woken before a response was there as a whole.
    fn poll_of_part(&mut self, mut next: Way, partitions: usize, stack: &mut Vec<Way>) {
        let runs = next.at.collect_first(&self.of, self.max, partitions);
        if let Some(mut next) = self.linked(next, runs) {
            next.at.reach_commits(&self.of);
            if !self.is_known(&next) {
                stack.push(next);
            }
        }
    }

    /// Another thread sends the fetches of the last poll.
    fn send(&mut self, way: &Way, level: usize, stack: &mut Vec<Way>) {
        for next in self.placed(way) {
            self.finish_send(next, level, Some(stack));
        }
    }

    /// With the positions that a lookup may have found by now.
    fn placed(&self, way: &Way) -> Vec<Way> {
        let to_place = way.at.nodes_to_place(&self.of);
        let first = to_place
            .first()
            .map(std::slice::from_ref)
            .filter(|_| to_place.len() > 1);
        let placed = first.into_iter().chain([&to_place[..]]).map(|nodes| {
            let mut next = way.clone();
            next.at.place(&self.of, nodes);
            next
        });
        placed.collect()
    }

    /// The group's next assignment. Polls before it are certain only if the program has committed what they returned.
    fn assign(&mut self, way: &Way, steps: Steps, stack: &mut Vec<Way>) {
        let Some(fits) = way
            .at
            .may_assign(&self.of)
            .filter(|&fits| fits || steps != Steps::Certain)
        else {
            return;
        };
        for polled in [false, true]
            .into_iter()
            .take(1 + usize::from(way.at.may_discard(&self.of)))
        {
            let mut next = way.clone();
            next.at.assign(&self.of, polled);
            if !fits {
                let fetch = self.of.fetches.get(way.sent).map_or(u64::MAX, |fetch| fetch.number);
                next.doubt_from(confirmed(&next.polls, u64::MAX), fetch);
            }
            if !self.is_known(&next) {
                stack.push(next);
            }
        }
    }

    /// A poll before which the program has called what explains the next fetch of a node.
    fn call(&mut self, way: &Way) {
        for node in way.at.idle_nodes(&self.of) {
            if let Some(calls) = way.at.calls_for(&mut self.of, node, self.max, self.calls) {
                self.called(way, node, calls);
            }
        }
    }

    /// An `assign()` of the partitions that the next fetch of a node asks for, while the one before is not read.
    fn assign_in_flight(&mut self, way: &Way, stack: &mut Vec<Way>) {
        let nodes: Vec<NodeId> = way.at.unread.keys().copied().collect();
        for node in nodes {
            if let Some(calls) = way.at.assign_before(&self.of, node) {
                let next = self.with_calls(way, node, calls);
                if !self.is_known(&next) {
                    stack.push(next);
                }
            }
        }
    }

    fn called(&mut self, way: &Way, node: NodeId, calls: Vec<DerivedCall>) {
        let next = self.with_calls(way, node, calls);
        if let Some(next) = self.collected(next) {
            self.finish_send(next, way.sent, None);
        }
    }

    fn with_calls(&self, way: &Way, node: NodeId, calls: Vec<DerivedCall>) -> Way {
        let mut next = way.clone();
        next.at.call(&self.of, node, &calls);
        // The call may have been made at any time since a fetch listed the partition, and an assign() since the node's last fetch.
        let listed = |call: &DerivedCall| match call.method {
            "assign" => way.at.last_sent(&self.of, node),
            _ => self.of.last_listed(&call.tp, &way.at.sent),
        };
        let listed = calls.iter().map(listed).min();
        let explained = match way.at.looked_up_others(&self.of, node, &calls) && calls[0].method != "assign" {
            // It may have been an assign() of the same partitions.
            true => u64::MAX,
            false => calls[0].fetch,
        };
        next.doubt_from(confirmed(&next.polls, listed.unwrap_or(0)), explained);
        Rc::make_mut(&mut next.calls).extend(calls);
        next
    }

    /// After the records of a poll are taken; `None`: the poll fails.
    fn collected(&mut self, mut next: Way) -> Option<Way> {
        let runs = next.at.collect(&self.of, self.max);
        self.linked(next, runs)
    }

    fn linked(&mut self, mut next: Way, runs: Result<Vec<DerivedRun>, Difference>) -> Option<Way> {
        match runs {
            Err(difference) => {
                self.note(difference);
                None
            }
            Ok(runs) => {
                if !runs.is_empty() {
                    let buffered = next.at.buffered();
                    next.polls = Some(linked(next.polls.take(), runs, buffered));
                }
                Some(next)
            }
        }
    }

    /// `stack`: takes the way if it sends no fetch.
    fn finish_poll(&mut self, next: Way, level: usize, stack: Option<&mut Vec<Way>>) {
        let Some(mut next) = self.collected(next) else { return };
        if !self.of.is_background {
            return self.finish_send(next, level, stack);
        }
        next.at.reach_commits(&self.of);
        if let Some(stack) = stack.filter(|_| !self.is_known(&next)) {
            stack.push(next);
        }
    }

    fn finish_send(&mut self, mut next: Way, level: usize, stack: Option<&mut Vec<Way>>) {
        let sent = match next.at.send(&mut self.of) {
            Err(difference) => return self.note(difference),
            Ok(sent) => sent,
        };
        next.at.reach_commits(&self.of);
        if sent.is_empty() {
            if let Some(stack) = stack.filter(|_| !self.is_known(&next)) {
                stack.push(next);
            }
            return;
        }
        let number = sent.iter().map(|&at| self.of.fetches[at].number).min();
        next.polls = with_fetch(&next.polls, number);
        next.settle(&self.of);
        next.sent = level + sent.len();
        self.levels.entry(next.sent).or_default().push(next);
    }

    /// Keeps the difference to the recorded fetch that is nearest.
    fn note(&mut self, difference: Difference) {
        let nearer = |known: &Difference| difference.partitions < known.partitions;
        if self.nearest.as_ref().is_none_or(nearer) {
            self.nearest = Some(difference);
        }
    }
}

impl Search<'_> {
    fn parting(&mut self, reached: &[Way]) -> Parting {
        let nearest = self.nearest.take();
        let number = |at: usize| self.of.fetches.get(at).map_or(0, |fetch| fetch.number);
        let next = reached.first().map_or(0, |way| way.sent);
        match nearest {
            Some(Difference { at: Some(at), why, .. }) => Parting { fetch: number(at), why },
            Some(Difference { why, .. }) => Parting {
                fetch: number(next),
                why,
            },
            None => Parting {
                fetch: number(next),
                why: "no poll would send it: the consumer waits for a response, or everything is buffered".to_owned(),
            },
        }
    }

    fn result(&self, reached: &[Way], parted: Option<Parting>) -> DerivedPolls {
        let Some(best) = reached.first() else {
            return DerivedPolls {
                parted,
                max_poll_records: self.max,
                ..Default::default()
            };
        };
        let mut links = Vec::with_capacity(length_of(&best.polls));
        let mut at = best.polls.as_ref();
        while let Some(link) = at {
            links.push(Rc::clone(link));
            at = link.before.as_ref();
        }
        links.reverse();
        let mut decided = vec![!self.was_cut; links.len()];
        for (from, to) in best
            .doubts
            .iter()
            .copied()
            .chain(best.doubt.map(|(from, _)| (from, links.len())))
        {
            decided[from.min(to)..to].fill(false);
        }
        let others = reached.iter().filter(|way| way.calls.len() == best.calls.len());
        let others = others.map(|way| (&best.polls, &way.polls));
        for (followed, other) in others.chain(self.merged.iter().map(|(followed, other)| (followed, other))) {
            let is_best = |link: &Rc<Link>| links.get(link.length - 1).is_some_and(|own| own.is_like(link));
            if followed.as_ref().is_some_and(|end| !is_best(end)) {
                continue;
            }
            let (common, end) = (common_length(followed, other), length_of(followed));
            // The other way has more polls here: whether the next one follows at once is not decided either.
            let has_more = common == end && length_of(other) > end && end < links.len();
            decided[common..end + usize::from(has_more)].fill(false);
        }
        let mut fetch = None;
        let mut polls: Vec<DerivedPoll> = Vec::with_capacity(links.len());
        for (link, decided) in links.iter().zip(decided).rev() {
            fetch = link.fetch.or(fetch);
            polls.push(DerivedPoll {
                runs: link.runs.clone(),
                fetch,
                buffered: link.buffered.clone(),
                decided,
            });
        }
        polls.reverse();
        DerivedPolls {
            polls,
            calls: best.calls.to_vec(),
            parted,
            agreeing: best.sent,
            buffered: best.at.buffered(),
            max_poll_records: self.max,
            max_poll_records_between: None,
        }
    }
}
