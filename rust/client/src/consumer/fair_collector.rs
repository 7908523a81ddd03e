//! KIP-387: another partition after each turn (spec 7.11). The state is in [`super::fetch_buffer::FetchBuffer`]:
//! `queue`, `parsed` (checked and not finished, oldest first), `parsed_index`, `turn`.
//!
//! Unlike in KIP-387, a paused entry stays at its place in `parsed` and is skipped.

use super::fetch_buffer::FetchBuffer;
use super::fetch_collector::{Collected, Collector, fetch_records};
use super::subscription_state::SubscriptionState;
use crate::ClientError;

impl Collector<'_> {
    /// KIP-387's `drain()`.
    pub(super) fn collect_fairly(&mut self, max_records: usize, collected: &mut Collected) -> Result<(), ClientError> {
        let mut remaining = max_records;
        while remaining > 0 {
            let turn = self
                .state
                .buffer
                .turn
                .take()
                .filter(|&i| self.state.buffer.parsed.get(i).is_some_and(|f| !f.consumed));
            let Some(turn) = turn else {
                let Some(outcome) = self.initialize_head() else {
                    self.state.buffer.turn = next_parsed(&mut self.state.buffer, &self.state.subs);
                    if self.state.buffer.turn.is_none() {
                        break;
                    }
                    continue;
                };
                match outcome {
                    Ok(false) => self.state.buffer.throw_away_head(),
                    Ok(true) => {
                        // Data of a new response comes before all older data; then the round begins at the oldest.
                        self.state.buffer.parsed.extend(self.state.buffer.queue.pop_front());
                        self.state.buffer.turn = Some(self.state.buffer.parsed.len() - 1);
                        self.state.buffer.parsed_index = 0;
                    }
                    Err(error) => {
                        let empty = self.is_head_empty();
                        self.state.buffer.turn = next_parsed(&mut self.state.buffer, &self.state.subs);
                        if self.state.buffer.turn.is_some() {
                            // Errors wait while there are records to return.
                            self.state.buffer.queue.rotate_left(1);
                            continue;
                        }
                        if collected.runs.is_empty() && empty {
                            self.state.buffer.throw_away_head();
                        }
                        return Err(error);
                    }
                }
                continue;
            };
            let fetch = &mut self.state.buffer.parsed[turn];
            if self.state.subs.is_paused(&fetch.tp) {
                continue; // Its turn is over.
            }
            let outcome = fetch_records(
                fetch,
                remaining,
                collected,
                &mut self.state.subs,
                None,
                &self.state.settings,
                &mut self.state.trace,
            );
            if let Some(tp) = fetch.consumed.then(|| fetch.tp.clone()) {
                self.state.buffer.finished(&tp);
            }
            match outcome {
                Ok(taken) => remaining -= taken,
                Err(error) => {
                    self.state.buffer.turn = Some(turn);
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// Returns the next entry of the round with records to return, and removes finished ones. KIP-387: `ParsedFetches`.
fn next_parsed(buffer: &mut FetchBuffer, subs: &SubscriptionState) -> Option<usize> {
    let n = buffer.parsed.len();
    let found = (0..n).map(|i| (buffer.parsed_index + i) % n).find(|&i| {
        let f = &buffer.parsed[i];
        !f.consumed && !subs.is_paused(&f.tp)
    });
    let found = found.map(|i| i - buffer.parsed[..i].iter().filter(|f| f.consumed).count());
    buffer.parsed.retain(|f| !f.consumed);
    buffer.parsed_index = found.map_or(0, |i| (i + 1) % buffer.parsed.len());
    found
}
