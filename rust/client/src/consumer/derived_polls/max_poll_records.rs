//! `max.poll.records` as the program has set it, or the value that agrees with its fetches.

use super::derived::{DerivedPolls, Parting};
use super::rebuilt;
use super::recorded::{RecordedFetch, RecordedReader};
use super::search::{Calls, replay};
use crate::ClientError;

/// Default of max.poll.records.
const DEFAULT_MAX: usize = 500;
/// Fetches by which a value of max.poll.records is judged before all are replayed.
const SCREENED: usize = 50;

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
    let mut best = replay(reader, fetches, max, Calls::None)?;
    for calls in [Calls::AssigningFew, Calls::AssigningMany] {
        if best.parted.is_none() {
            break;
        }
        let other = replay(reader, fetches, max, calls)?;
        if other.agreeing > best.agreeing {
            best = other;
        }
    }
    Ok(best)
}

fn infer(reader: &RecordedReader, fetches: &[RecordedFetch]) -> Result<DerivedPolls, ClientError> {
    let screened = &fetches[..fetches.len().min(SCREENED)];
    let mut agreeing = Vec::new();
    let mut chosen = None;
    for candidates in [usual(), others()] {
        for max in candidates {
            if replay(reader, screened, max, Calls::None)?.parted.is_some() {
                continue;
            }
            agreeing.push(max);
            if chosen.is_none() {
                let all = replay(reader, fetches, max, Calls::None)?;
                chosen = all.parted.is_none().then_some(all);
            }
        }
        if !agreeing.is_empty() {
            break;
        }
    }
    for max in between(&agreeing) {
        if replay(reader, screened, max, Calls::None)?.parted.is_none() {
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
