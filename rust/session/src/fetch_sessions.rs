//! What clients and brokers remember of a connection's fetches: a request names only what changes. Kafka: `FetchSession`.

use std::hash::Hash;

use rustc_hash::{FxHashMap, FxHashSet};

/// The state of a fetch session after a request.
#[derive(Debug, Default)]
pub(crate) struct FetchSession {
    /// The greatest max.partition.fetch.bytes of the last request that names partitions; 0: none did.
    pub(crate) limit: i64,
    place: usize,
    offsets: FxHashMap<u32, i64>,
    /// Its partitions in the order in which they were added.
    lanes: Vec<u32>,
    /// Their number, if they are the same as at the last request.
    wanted: Option<u32>,
}

impl FetchSession {
    /// Takes the next request: what it names with offsets, what it takes out, its limit.
    pub(crate) fn update(&mut self, named: &[(u32, i64)], forgotten: &FxHashSet<u32>, limit: i64) {
        for (lane, offset) in named {
            if self.offsets.insert(*lane, *offset).is_none() {
                self.lanes.push(*lane);
                self.wanted = None;
            }
        }
        let mut forgotten: FxHashSet<u32> = forgotten
            .iter()
            .filter(|lane| self.offsets.contains_key(lane))
            .copied()
            .collect();
        if !forgotten.is_empty() {
            for (lane, _) in named {
                forgotten.remove(lane);
            }
        }
        if !forgotten.is_empty() {
            self.offsets.retain(|lane, _| !forgotten.contains(lane));
            self.lanes.retain(|lane| !forgotten.contains(lane));
            self.wanted = None;
        }
        if limit != 0 {
            self.limit = limit;
        }
    }

    /// The offset from which the client asked for a partition; -1: it did not.
    pub(crate) fn asked(&self, lane: u32) -> i64 {
        self.offsets.get(&lane).copied().unwrap_or(-1)
    }

    /// The number of its partitions in `every`: sessions with the same ones share it.
    pub(crate) fn wanted(&mut self, sessions: &mut FetchSessions, every: &mut Vec<Vec<u32>>) -> u32 {
        if let Some(known) = self.wanted {
            return known;
        }
        let number = sessions.number(&self.lanes, every);
        self.wanted = Some(number);
        number
    }
}

/// The sessions of all connections.
#[derive(Debug, Default)]
pub(crate) struct FetchSessions {
    states: Vec<FetchSession>,
    by_id: FxHashMap<(u64, i32), usize>,
    wanted: FxHashMap<Vec<u32>, u32>,
}

impl FetchSessions {
    /// The session of a request, which is kept under the id that its response has. `ids` are those of request and response, 0 without one. A
    /// full request begins with an empty one.
    pub(crate) fn take(&mut self, connection: u64, ids: (i32, i32), epoch: i32) -> FetchSession {
        let (asked, opened) = ids;
        let known = (epoch > 0)
            .then(|| self.by_id.get(&(connection, asked)).copied())
            .flatten();
        let place = known.unwrap_or(self.states.len());
        let kept = if opened == 0 { asked } else { opened };
        if kept != 0 {
            self.by_id.insert((connection, kept), place);
            if known.is_none() {
                self.states.push(FetchSession::default());
            }
        }
        let mut state = self.states.get_mut(place).map(std::mem::take).unwrap_or_default();
        state.place = place;
        state
    }

    /// The number of these partitions in `every`.
    pub(crate) fn number(&mut self, lanes: &[u32], every: &mut Vec<Vec<u32>>) -> u32 {
        number_of(lanes, &mut self.wanted, every)
    }

    /// Keeps a session that was taken, if it has an id.
    pub(crate) fn put(&mut self, state: FetchSession) {
        if let Some(place) = self.states.get_mut(state.place) {
            *place = state;
        }
    }
}

/// The number of a list in `every`, where each list is once.
pub(crate) fn number_of<T: Clone + Eq + Hash>(
    list: &[T],
    known: &mut FxHashMap<Vec<T>, u32>,
    every: &mut Vec<Vec<T>>,
) -> u32 {
    if let Some(number) = known.get(list) {
        return *number;
    }
    let number = u32::try_from(every.len()).unwrap_or(u32::MAX);
    every.push(list.to_vec());
    known.insert(list.to_vec(), number);
    number
}
