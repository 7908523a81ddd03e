//! All ways in which the recorded consumer can have come from one recorded fetch to the next, and what they agree in.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use fletchlog_api::NodeId;
use fletchlog_records::TopicPartition;
use rustc_hash::{FxHashMap, FxHasher};

use super::rebuilt;
use super::recorded::{RecordedFetch, RecordedReader};
use super::replayed::{Difference, Recording, Replayed};
use crate::ClientError;

/// Default of max.poll.records.
const DEFAULT_MAX: usize = 500;
/// States that are followed from one fetch to the next.
const MOST_WAYS: usize = 48;
/// Steps that are tried between two fetches.
const MOST_STEPS: usize = 20_000;
/// Fetches by which a value of max.poll.records is judged before all are replayed.
const SCREENED: usize = 50;

/// Records of a partition that a poll returned.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DerivedRun {
    /// Partition.
    pub tp: TopicPartition,
    /// Offset of the first record.
    pub first_offset: i64,
    /// Offset of the last record.
    pub last_offset: i64,
    /// Number of records.
    pub count: usize,
    /// Whether both offsets are known. They are not where a poll began or ended in a batch that compaction thinned out.
    pub exact: bool,
}

/// What a poll with records returned.
#[derive(Debug, Clone)]
pub struct DerivedPoll {
    /// In the order of a for-each over `ConsumerRecords`.
    pub runs: Vec<DerivedRun>,
    /// Number of the first fetch that was sent at its end or later; `None`: none was.
    pub fetch: Option<u64>,
    /// Partitions whose records had arrived and were left for later polls.
    pub buffered: Vec<TopicPartition>,
    /// Whether the recording leaves no other way. Behind an inferred call nothing is decided: another call can explain the
    /// same fetch.
    pub decided: bool,
}

/// A call of the program that explains a fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DerivedCall {
    /// Its name.
    pub method: &'static str,
    /// Partition.
    pub tp: TopicPartition,
    /// Of a seek; else -1.
    pub offset: i64,
    /// The fetch that shows it.
    pub fetch: u64,
}

impl DerivedCall {
    pub(super) fn new(method: &'static str, tp: &TopicPartition, offset: i64, fetch: u64) -> Self {
        Self {
            method,
            tp: tp.clone(),
            offset,
            fetch,
        }
    }
}

/// Where the replayed consumer does something else than the recorded one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parting {
    /// Number of the recorded fetch.
    pub fetch: u64,
    /// What differs.
    pub why: String,
}

/// The polls of a recorded consumer.
#[derive(Debug, Clone, Default)]
pub struct DerivedPolls {
    /// Polls with records, up to the last fetch that agrees. Polls behind the last fetch show nothing.
    pub polls: Vec<DerivedPoll>,
    /// Calls without which no way agrees.
    pub calls: Vec<DerivedCall>,
    /// The first fetch that no way explains.
    pub parted: Option<Parting>,
    /// Number of fetches that agree.
    pub agreeing: usize,
    /// Partitions whose records had arrived and were not returned by the last of `polls`.
    pub buffered: Vec<TopicPartition>,
    /// max.poll.records.
    pub max_poll_records: usize,
    /// Lowest and highest of the tried values that agree with the fetches; `None`: it was given, or none agrees.
    pub max_poll_records_between: Option<(usize, usize)>,
}

/// Derives the polls of one consumer with one assignment from its fetches, in the order of their arrival.
///
/// `max_poll_records`: as the program has set it. `None`: Kafka's default, if that agrees with every fetch; else the
/// roundest of the values that agree.
///
/// # Errors
/// `Config` if two properties contradict each other; `IllegalState`, `IllegalArgument` for an assignment that no consumer
/// can have.
pub fn derive_polls(
    reader: &RecordedReader,
    fetches: &[RecordedFetch],
    max_poll_records: Option<usize>,
) -> Result<DerivedPolls, ClientError> {
    let (usable, refused) = usable(fetches);
    let mut derived = match max_poll_records {
        Some(max) => best(reader, usable, max)?,
        None => infer(reader, usable)?,
    };
    if derived.parted.is_none() {
        derived.parted = refused;
    }
    Ok(derived)
}

/// The fetches before the first one whose response cannot be rebuilt, and why it cannot.
fn usable(fetches: &[RecordedFetch]) -> (&[RecordedFetch], Option<Parting>) {
    for (at, fetch) in fetches.iter().enumerate() {
        if let Some(Err(why)) = fetch.response.as_ref().map(rebuilt::check) {
            let why = format!("its response cannot be followed: {why}");
            let fetch = fetch.number;
            return (&fetches[..at], Some(Parting { fetch, why }));
        }
    }
    (fetches, None)
}

/// With calls of the program only if no way agrees without any.
fn best(reader: &RecordedReader, fetches: &[RecordedFetch], max: usize) -> Result<DerivedPolls, ClientError> {
    let plain = replay(reader, fetches, max, false)?;
    if plain.parted.is_none() {
        return Ok(plain);
    }
    let with_calls = replay(reader, fetches, max, true)?;
    Ok(if with_calls.agreeing > plain.agreeing {
        with_calls
    } else {
        plain
    })
}

fn infer(reader: &RecordedReader, fetches: &[RecordedFetch]) -> Result<DerivedPolls, ClientError> {
    let screened = &fetches[..fetches.len().min(SCREENED)];
    let mut agreeing = Vec::new();
    let mut chosen = None;
    for candidates in [usual(), others()] {
        for max in candidates {
            if replay(reader, screened, max, false)?.parted.is_some() {
                continue;
            }
            agreeing.push(max);
            if chosen.is_none() {
                let all = replay(reader, fetches, max, false)?;
                chosen = all.parted.is_none().then_some(all);
            }
        }
        if !agreeing.is_empty() {
            break;
        }
    }
    for max in between(&agreeing) {
        if replay(reader, screened, max, false)?.parted.is_none() {
            agreeing.push(max);
        }
    }
    let mut derived = match chosen {
        Some(derived) => derived,
        None => best(reader, fetches, agreeing.first().copied().unwrap_or(DEFAULT_MAX))?,
    };
    derived.max_poll_records_between = agreeing.iter().min().copied().zip(agreeing.iter().max().copied());
    Ok(derived)
}

/// Values that were not tried between those that agree and the nearest that do not; none if the default agrees.
fn between(agreeing: &[usize]) -> Vec<usize> {
    let (Some(&low), Some(&high)) = (agreeing.iter().min(), agreeing.iter().max()) else {
        return Vec::new();
    };
    if agreeing.contains(&DEFAULT_MAX) || high > DEFAULT_MAX {
        return Vec::new();
    }
    let tried = usual();
    let below = tried.iter().copied().filter(|&n| n < low).max().unwrap_or(0);
    let above = tried.iter().copied().filter(|&n| n > high).min().unwrap_or(DEFAULT_MAX);
    (below + 1..above)
        .filter(|n| !tried.contains(n) && !agreeing.contains(n))
        .collect()
}

/// Values of max.poll.records: Kafka's default, then round numbers.
fn usual() -> Vec<usize> {
    let round = [
        1000, 100, 10, 1, 200, 50, 250, 2000, 5000, 10_000, 20, 5, 300, 400, 25, 150, 750, 1500, 2, 3,
    ];
    [DEFAULT_MAX].into_iter().chain(round).collect()
}

/// All others up to the default, those that end with a zero first.
fn others() -> Vec<usize> {
    let usual = usual();
    let mut rest: Vec<usize> = (1..DEFAULT_MAX).filter(|n| !usual.contains(n)).collect();
    rest.sort_by_key(|n| n % 10 != 0);
    rest
}

/// A poll in a chain of polls; chains share their beginnings.
struct Link {
    before: Option<Rc<Link>>,
    runs: Vec<DerivedRun>,
    fetch: Option<u64>,
    buffered: Vec<TopicPartition>,
    /// Of the runs of the whole chain.
    hash: u64,
    length: usize,
}

type Chain = Option<Rc<Link>>;

fn hash_of(chain: &Chain) -> u64 {
    chain.as_ref().map_or(0, |link| link.hash)
}

fn length_of(chain: &Chain) -> usize {
    chain.as_ref().map_or(0, |link| link.length)
}

/// One way to come to a state.
#[derive(Clone)]
struct Way {
    at: Replayed,
    polls: Chain,
    calls: Rc<Vec<DerivedCall>>,
    /// Number of polls before the first step that is not certain.
    sure: usize,
    /// Number of recorded fetches that were sent.
    sent: usize,
}

/// Steps that are tried between two fetches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Steps {
    /// Responses, polls, and assignments that begin where the polls end.
    Certain,
    /// Also assignments that begin elsewhere: what was not committed is read again.
    Assigning,
    /// Also calls of the program.
    Calling,
}

/// Two chains that lead to the same state: the first is followed.
type Merged = (Chain, Chain);

struct Search<'a> {
    of: Recording<'a>,
    max: usize,
    with_calls: bool,
    /// Ways by the number of fetches that were sent.
    levels: BTreeMap<usize, Vec<Way>>,
    /// States of this level, with the polls that led there.
    known: FxHashMap<u64, Chain>,
    merged: Vec<Merged>,
    /// Ways were dropped because there were too many.
    was_cut: bool,
    nearest: Option<Difference>,
}

fn replay(
    reader: &RecordedReader,
    fetches: &[RecordedFetch],
    max: usize,
    with_calls: bool,
) -> Result<DerivedPolls, ClientError> {
    let (of, first) = Recording::new(reader, fetches)?;
    let way = Way {
        at: first,
        polls: None,
        calls: Rc::new(Vec::new()),
        sure: usize::MAX,
        sent: 0,
    };
    let mut search = Search {
        of,
        max,
        with_calls,
        levels: BTreeMap::from([(0, vec![way])]),
        known: FxHashMap::default(),
        merged: Vec::new(),
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
                return self.result(&reached, None);
            }
            for steps in [Steps::Assigning, Steps::Calling] {
                if self.levels.is_empty() && (steps == Steps::Assigning || self.with_calls) {
                    self.known.clear();
                    let again = std::mem::take(&mut reached);
                    reached = self.expand(level, again, steps);
                }
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
        let mut kept = Vec::new();
        let mut tried = 0;
        for way in ways {
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
                // The last one pushed is the first one followed: a response is read as soon as possible.
                if steps == Steps::Calling {
                    self.call(&way);
                }
                self.poll(&way, level, &mut stack);
                self.assign(&way, steps, &mut stack);
                for node in self.of_readable(&way) {
                    let mut next = way.clone();
                    next.at.deliver(&mut self.of, node);
                    if !self.is_known(&next) {
                        stack.push(next);
                    }
                }
            }
        }
        kept
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
        let to_place = way.at.nodes_to_place(&self.of);
        let first = to_place
            .first()
            .map(std::slice::from_ref)
            .filter(|_| to_place.len() > 1);
        for placed in first.into_iter().chain([&to_place[..]]) {
            let mut next = way.clone();
            next.at.place(&self.of, placed);
            self.finish_poll(next, level, Some(stack));
        }
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
        let mut next = way.clone();
        next.at.assign(&self.of);
        if !fits {
            next.sure = next.sure.min(confirmed(&next.polls, u64::MAX));
        }
        if !self.is_known(&next) {
            stack.push(next);
        }
    }

    /// A poll before which the program has called what explains the next fetch of a node.
    fn call(&mut self, way: &Way) {
        for node in way.at.idle_nodes(&self.of) {
            let Some(calls) = way.at.calls_for(&mut self.of, node, self.max) else {
                continue;
            };
            let mut next = way.clone();
            next.at.call(&calls);
            // The call may have been made at any time since a fetch listed the partition.
            let listed = calls.iter().map(|call| way.at.last_listed(&self.of, &call.tp)).min();
            next.sure = next.sure.min(confirmed(&next.polls, listed.unwrap_or(0)));
            Rc::make_mut(&mut next.calls).extend(calls);
            self.finish_poll(next, way.sent, None);
        }
    }

    /// `stack`: takes the way if it sends no fetch.
    fn finish_poll(&mut self, mut next: Way, level: usize, stack: Option<&mut Vec<Way>>) {
        match next.at.poll(&mut self.of, self.max) {
            Err(difference) => {
                let nearer = |known: &Difference| difference.partitions < known.partitions;
                if self.nearest.as_ref().is_none_or(nearer) {
                    self.nearest = Some(difference);
                }
            }
            Ok(polled) => {
                let has_records = !polled.runs.is_empty();
                let number = polled.sent.iter().map(|&at| self.of.fetches[at].number).min();
                if has_records {
                    let buffered = next.at.buffered();
                    next.polls = Some(linked(next.polls.take(), polled.runs, number, buffered));
                }
                match (polled.sent.len(), stack) {
                    (0, Some(stack)) => {
                        if !self.is_known(&next) {
                            stack.push(next);
                        }
                    }
                    (0, None) => {}
                    (sent, _) => {
                        next.sent = level + sent;
                        self.levels.entry(next.sent).or_default().push(next);
                    }
                }
            }
        }
    }
}

fn linked(before: Chain, runs: Vec<DerivedRun>, fetch: Option<u64>, buffered: Vec<TopicPartition>) -> Rc<Link> {
    let mut hasher = FxHasher::default();
    (hash_of(&before), &runs).hash(&mut hasher);
    Rc::new(Link {
        length: length_of(&before) + 1,
        before,
        runs,
        fetch,
        buffered,
        hash: hasher.finish(),
    })
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
        decided.iter_mut().skip(best.sure).for_each(|decided| *decided = false);
        let others = reached.iter().filter(|way| way.calls.len() == best.calls.len());
        let others = others.map(|way| (&best.polls, &way.polls));
        for (followed, other) in others.chain(self.merged.iter().map(|(followed, other)| (followed, other))) {
            let is_best = |link: &Rc<Link>| links.get(link.length - 1).is_some_and(|own| Rc::ptr_eq(link, own));
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

/// Number of polls up to the last one that sent a fetch with at most this number.
fn confirmed(chain: &Chain, most: u64) -> usize {
    let mut at = chain.as_ref();
    while let Some(link) = at.filter(|link| link.fetch.is_none_or(|fetch| fetch > most)) {
        at = link.before.as_ref();
    }
    at.map_or(0, |link| link.length)
}

/// Number of polls that two chains have in common at their beginnings.
fn common_length(one: &Chain, other: &Chain) -> usize {
    let (mut one, mut other) = (one, other);
    loop {
        match (one, other) {
            (Some(a), Some(b)) if a.length == b.length && a.hash == b.hash => return a.length,
            (Some(a), Some(b)) if a.length > b.length => one = &a.before,
            (Some(a), Some(b)) if a.length < b.length => other = &b.before,
            (Some(a), Some(b)) => (one, other) = (&a.before, &b.before),
            _ => return 0,
        }
    }
}
