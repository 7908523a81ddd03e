//! Polls one after the other. Ways share the beginnings of theirs.

use std::hash::{Hash, Hasher};
use std::rc::Rc;

use fletchlog_records::TopicPartition;
use rustc_hash::FxHasher;

use super::derived::DerivedRun;

/// A poll in a chain of polls; chains share their beginnings.
pub(super) struct Link {
    pub(super) before: Option<Rc<Link>>,
    pub(super) runs: Vec<DerivedRun>,
    /// The first fetch that was sent at its end.
    pub(super) fetch: Option<u64>,
    pub(super) buffered: Vec<TopicPartition>,
    /// Of the runs of the whole chain.
    hash: u64,
    pub(super) length: usize,
}

impl Link {
    /// Whether the same polls lead to both.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.length, self.hash) == (other.length, other.hash)
    }
}

impl Drop for Link {
    /// One after the other: a chain may be longer than the stack is deep.
    fn drop(&mut self) {
        let mut before = self.before.take();
        while let Some(mut link) = before.and_then(|link| Rc::try_unwrap(link).ok()) {
            before = link.before.take();
        }
    }
}

pub(super) type Chain = Option<Rc<Link>>;

pub(super) fn hash_of(chain: &Chain) -> u64 {
    chain.as_ref().map_or(0, |link| link.hash)
}

pub(super) fn length_of(chain: &Chain) -> usize {
    chain.as_ref().map_or(0, |link| link.length)
}

pub(super) fn linked(before: Chain, runs: Vec<DerivedRun>, buffered: Vec<TopicPartition>) -> Rc<Link> {
    let mut hasher = FxHasher::default();
    (hash_of(&before), &runs).hash(&mut hasher);
    Rc::new(Link {
        length: length_of(&before) + 1,
        before,
        runs,
        fetch: None,
        buffered,
        hash: hasher.finish(),
    })
}

/// The same chain, with the fetch that was sent after its last poll.
pub(super) fn with_fetch(chain: &Chain, fetch: Option<u64>) -> Chain {
    let last = chain.as_ref()?;
    if last.fetch.is_some() {
        return Some(Rc::clone(last));
    }
    Some(Rc::new(Link {
        before: last.before.clone(),
        runs: last.runs.clone(),
        fetch,
        buffered: last.buffered.clone(),
        hash: last.hash,
        length: last.length,
    }))
}

/// Number of polls up to the last one that sent a fetch with at most this number.
pub(super) fn confirmed(chain: &Chain, most: u64) -> usize {
    let mut at = chain.as_ref();
    while let Some(link) = at.filter(|link| link.fetch.is_none_or(|fetch| fetch > most)) {
        at = link.before.as_ref();
    }
    at.map_or(0, |link| link.length)
}

/// Number of polls that two chains have in common at their beginnings.
pub(super) fn common_length(one: &Chain, other: &Chain) -> usize {
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
